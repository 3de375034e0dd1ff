# SPDX-License-Identifier: Apache-2.0
"""``decoders.cache``: decoded images in memory or in a folder, for the decoders' next epochs."""

import atexit
import ctypes
import functools
import os
import re
import stat
import sys
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch

from .._core import native
from .._core.native.dynamo import assume_constant_result
from .._core.native.tracing import is_compiling
from .._core.optional import find_version
from .._core.suggestions import check_choice
from .._core.version import __version__

Admission = Literal["first", "largest"]
CacheType = Literal["", "threshold", "largest"]  # of DALI's process-wide cache
ADMISSIONS = native.numbers("cache.Admission")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_FORMAT = "torch_ndd-images-1"  # name and version of the folder's format


class CacheStats(NamedTuple):
    """Contents of a cache, and its counters in this process."""

    hits: int
    """Images that were copied from the cache."""
    misses: int
    """Images that were decoded."""
    images: int
    """Images in the cache; in a folder those of all processes."""
    bytes: int
    """Bytes that they occupy, in memory pages or disk blocks; never more than ``size``."""
    stored: int
    """Images that were added."""
    evicted: int
    """Images that were removed: for larger ones, or because an epoch did not use them."""
    damaged: int
    """Files of the folder that were damaged, and were removed."""


class Cache:
    """A cache of decoded images, created by :func:`decoders.cache`.

    Attributes:
        size: Maximum number of bytes of the images.
        folder: The folder that contains them; None for memory.
        admission, threshold, shorter: See :func:`decoders.cache`.
    """

    def __init__(self, size: int, folder: Path | None, admission: Admission, threshold: int, shorter: int | None) -> None:
        self.size, self.folder, self.admission, self.threshold, self.shorter = size, folder, admission, threshold, shorter
        # The native cache gets everything that decides whether stored pixels are the ones that a decoder would return.
        place = b"" if folder is None else os.fsencode(folder)
        handle = native.cache_make(size, place, ADMISSIONS[admission], threshold, shorter or 0, _version().encode())
        if not handle:
            error = MemoryError if folder is None else RuntimeError
            raise error(native.cache_text().decode(errors="replace"))
        # Kernels get the number, which finds nothing once the cache was released.
        self._handle = native.own_handle(handle, native.OF_CACHE)
        self._number = native.cache_number(handle)
        self._warned = False

    def __reduce__(self) -> Any:
        # A worker opens the same folder; a cache in memory begins empty there.
        return _recreate, (self.size, self.folder, self.admission, self.threshold, self.shorter)

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        stats = self.stats
        return f"<cache {where}: {stats.images} images, {stats.bytes} of {self.size} bytes>"

    @property
    def stats(self) -> CacheStats:
        """Contents and counters."""
        counts = (ctypes.c_int64 * 7)()
        native.cache_counts(self._number, counts)
        return CacheStats(*counts)

    def clear(self) -> None:
        """Remove all images, including those of other processes in the folder. Raise RuntimeError if another process keeps the folder locked."""
        if not native.cache_clear(self._number):
            raise RuntimeError(native.cache_text().decode(errors="replace"))

    def warn_of_trouble(self) -> None:
        """Warn once when the folder takes no more images.

        :meta private:
        """
        # Once per cache: a full disk would otherwise be reported with every batch.
        if not self._warned and (text := native.cache_trouble(self._number)):
            self._warned = True
            warnings.warn(f"{text.decode(errors='replace')}; images that are not in the cache are decoded", RuntimeWarning, stacklevel=2)


def cache(
    size: int | str,
    folder: str | os.PathLike[str] | None = None,
    *,
    admission: Admission = "first",
    threshold: int = 0,
    shorter: int | None = None,
) -> Cache:
    """Keep decoded images, so later epochs copy them instead of decoding them again: ``decoders.image(files, cache=cache)``.

    The decoders' results are the same bit for bit with and without a cache. Crops are copied out of the whole image, which is decoded for the
    cache when the file comes for the first time; where it is not admitted, only the crop is decoded. An image is found by a 128-bit hash of its
    file's bytes and the decoding arguments, so a changed file is another image. When a full cache has refused new images for an epoch, the images
    that were not used in it make room.

    In memory, the images belong to the process. A folder is for all processes of a machine and for later runs; ``/dev/shm`` shares memory. Each of
    its files is verified whenever it is read, and replaced if it is damaged; processes may be killed at any time. When the disk is full, the cache
    stores no more images and warns once. The folder is private to its user, who must own it, and may be deleted between runs.

    JPEG 2000 files are not kept, and nothing is with ``device="gpu"``.

    Args:
        size: maximum number of bytes, or a string such as "20GB" or "8GiB". An RGB image takes height * width * 3 bytes, rounded up to 4096.
        folder: where to keep the images. It is created if it does not exist.
        admission: "first" keeps what is decoded first, until the cache is full; "largest" replaces smaller images by larger ones.
        threshold: keep only images of at least this many bytes.
        shorter: reduce images to this length of the shorter side, as :func:`resize` does with ``resize_shorter`` and ``subpixel_scale=False``;
            smaller ones stay as they are. **This is another result**: the decoders return the reduced image, and crops are parts of it, whether it
            comes from the cache or not. For uint8 only.

    Raises:
        ValueError: a size, threshold or length that is not positive, another admission.
        MemoryError: more than the machine's memory.
        RuntimeError: a folder that cannot be created or written, that belongs to another user, or to which others may write.

    >>> import io
    >>> import numpy as np
    >>> import torch_ndd as ndd
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 2), "red").save(file, "PNG")
    >>> kept = ndd.decoders.cache("1MB")
    >>> for epoch in range(3):
    ...     image = ndd.decoders.image(np.frombuffer(file.getvalue(), np.uint8), cache=kept).evaluate()
    >>> kept.stats.misses, kept.stats.hits
    (1, 2)
    """
    check_choice("decoders.cache", "admission", admission, ADMISSIONS, ValueError)
    max_bytes = size_in_bytes(size)
    if threshold < 0:
        raise ValueError(f"decoders.cache: threshold must not be negative, got {threshold}")
    if shorter is not None and not 1 <= shorter <= 1 << 20:
        raise ValueError(f"decoders.cache: shorter must be from 1 to {1 << 20} pixels, got {shorter}")
    if folder is None:
        # More than the memory would be refused later, image by image.
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if max_bytes > memory:
            raise MemoryError(f"decoders.cache: the machine has {memory} bytes of memory, too few for size={max_bytes}; use a folder")
        return Cache(max_bytes, None, admission, threshold, shorter)
    place = Path(folder).absolute() / _FORMAT
    try:
        # Parents one by one: mkdir(parents=True) would create them with the default mode.
        for parent in (*reversed(place.parents), place):
            if not parent.is_dir():
                parent.mkdir(mode=0o700, exist_ok=True)
        _check_owner(place.parent)
    except OSError as error:
        raise RuntimeError(f"decoders.cache: cannot create the folder {place}: {error}") from None
    return Cache(max_bytes, place, admission, threshold, shorter)


def _check_owner(folder: Path) -> None:
    """Raise RuntimeError for a folder in which another user could replace the cache."""
    status = folder.stat()
    # Decoded pixels are not checked again: who may write here decides what a model is trained on.
    if status.st_uid not in (os.geteuid(), 0):
        raise RuntimeError(f"decoders.cache: the folder {folder} belongs to another user; choose another folder")
    # With the sticky bit others may add files to a shared folder such as /tmp, but not replace ours.
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise RuntimeError(f"decoders.cache: other users may write to the folder {folder}; run chmod go-w, or choose another folder")


def _recreate(size: int, folder: Path | None, admission: Admission, threshold: int, shorter: int | None) -> Cache:
    # The folder in the arguments is the one that the caller gave; ours is inside it.
    return cache(size, None if folder is None else folder.parent, admission=admission, threshold=threshold, shorter=shorter)


def size_in_bytes(size: int | str) -> int:
    """Convert a number of bytes, or a string with a unit. Raise ValueError unless it is positive."""
    argument = size
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", size.lower())
        if found is None or found[2] not in _UNITS:
            raise ValueError(f'decoders.cache: size must be a number of bytes or a string such as "20GB", got {argument!r}')
        size = int(float(found[1]) * _UNITS[found[2]])
    if not 0 < size < 1 << 60:
        raise ValueError(f"decoders.cache: size must be positive, got {argument!r}")
    return int(size)


@functools.cache
def _version() -> str:
    """Return what determines pixels besides the file and the arguments: versions, and the CPU, whose instructions round differently."""
    codecs = [f"{name} {version}" for name in ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12") if (version := find_version(name))]
    return ", ".join((f"torch_ndd {__version__}", *codecs, torch.backends.cpu.get_cpu_capability()))


class CacheArguments(NamedTuple):
    """The arguments of a decoder that concern the cache."""

    cache: Cache | None
    size: int  # MB
    threshold: int
    kind: str
    debug: bool

    def select_cache(self, op: str, dtype: torch.dtype, on_gpu: bool) -> Cache | None:
        """Return the cache to use, or None. Raise TypeError or ValueError for arguments that contradict each other."""
        if self.cache is None:
            # DALI's own arguments, cache_size and so on, mean one cache for the process, and have no effect on a GPU.
            return self._of_process(op) if self.size and not on_gpu else None
        if not isinstance(self.cache, Cache):
            raise TypeError(f"{op}: cache must be created by decoders.cache, got {self.cache!r}")
        if self.size:
            raise ValueError(f"{op}: cache and cache_size cannot be used together")
        if on_gpu:
            raise ValueError(f'{op}: the cache is for device="cpu"; leave cache out')
        if self.cache.shorter is not None and dtype != torch.uint8:
            raise ValueError(f"{op}: a cache with shorter={self.cache.shorter} takes dtype=torch.uint8, got {dtype}; cast the result")
        if not is_compiling():
            self.cache.warn_of_trouble()
        return self.cache

    def _of_process(self, op: str) -> Cache:
        if self.kind != "":
            check_choice(op, "cache_type", self.kind, get_args(CacheType)[1:], ValueError)
        if self.size < 0 or self.threshold < 0:
            raise ValueError(f"{op}: cache_size and cache_threshold must not be negative, got {self.size} and {self.threshold}")
        return _process_cache(self.size, self.threshold, self.kind == "largest", bool(self.debug))


_caches: dict[tuple[int, int, bool], Cache] = {}
_reported: set[tuple[int, int, bool]] = set()


@assume_constant_result  # also called while tracing a graph
def _process_cache(megabytes: int, threshold: int, largest: bool, debug: bool) -> Cache:
    """Return the cache that all calls of the process with these arguments share."""
    key = megabytes, threshold, largest
    if key not in _caches:
        # DALI's sizes are in units of 2**20 bytes. Of the caches of several threads the first is kept.
        _caches.setdefault(key, cache(megabytes << 20, admission="largest" if largest else "first", threshold=threshold))
    if debug and key not in _reported:
        _reported.add(key)
        atexit.register(_report, _caches[key])
    return _caches[key]


def _report(cache: Cache) -> None:
    print(f"torch_ndd: {cache!r}: {cache.stats}", file=sys.stderr)


def reduced_shapes(shapes: torch.Tensor, shorter: int | None) -> torch.Tensor:
    """Return heights, widths and channels (N, 3) of images reduced to a shorter side; must agree with csrc/decoders/cache/image_cache.cpp."""
    if shorter is None:
        return shapes
    extents = shapes[:, :2]
    side = extents.amin(1, keepdim=True).clamp(min=1)
    # Rounded to the nearest pixel, half up, in integers.
    scaled = (2 * extents * shorter + side) // (2 * side)
    return torch.cat([torch.where(side > shorter, scaled, extents), shapes[:, 2:]], 1)
