# SPDX-License-Identifier: Apache-2.0
"""Astronomical images from FITS files."""

import io
import math
import os
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack, override

from ... import types
from ..._core import native
from ..._core.context.device import DeviceLike
from ..._core.optional import import_optional
from ..._core.process.limits import check_sample
from ..._core.values.convert import saturate
from ...decoders.inflate import inflate_gzip
from ...io._urls import read_all
from .._options import DecodingOptions
from .._ranges.file_lists import FileArguments
from .._ranges.ranges import Path, Ranges
from .._ranges.remote import RemoteRanges
from .._threads import ThreadedReader
from ._codecs import image_of
from ._fork_gate import ForkGate
from ._headers import PlainImage, check_headers

_in_astropy = ForkGate()


class Fits(ThreadedReader):
    """Read images from FITS files: tuples of arrays, one for each of ``hdu_indices``.

    The files are given by ``file_root`` (those in it and in its subdirectories that match ``file_filter``), ``files``, or the lines of ``file_list``.
    Compressed images are decompressed, and values are physical: ``BSCALE`` and ``BZERO`` are applied.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        dtypes: Dtypes of the outputs, one for each of ``hdu_indices`` or one for all, converted like :func:`cast`; by default those of the files.
        file_filter: Pattern of file names in ``file_root``; by default ``*.fits`` and ``*.fits.gz``. Any file may be
            compressed by gzip.
        file_list: Text file with one path per line, relative to ``file_root`` or to the text file's folder.
        file_root: A folder.
        files: Paths or URLs, relative to ``file_root``.
        hdu_indices: Which HDUs to read, from 1, the primary one; by default 2, the first extension.
        max_sample_bytes: The largest sample to decode, to guard against small files that declare large data; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        **loader: Sharding, shuffling, padding, read-ahead and bad files, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, if there are no files; at any step, for a file that cannot be read or lacks such an image, and for arrays
            of one batch that differ in type or number of dimensions.

    Needs the package astropy: ``pip install torch_ndd[fits]``.

    >>> import tempfile
    >>> from astropy.io import fits
    >>> path = tempfile.mkdtemp() + "/a.fits"
    >>> fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(np.arange(6, dtype=np.int16).reshape(2, 3))]).writeto(path)
    >>> [image.torch().tolist() for (image,) in Fits(files=[path]).next_epoch()]
    [[[0, 1, 2], [3, 4, 5]]]
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        dtypes: Any = None,
        file_filter: str | None = None,
        file_list: Path | None = None,
        file_root: Path | None = None,
        files: Path | Sequence[Path] | None = None,
        hdu_indices: int | Sequence[int] | None = None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._op = "experimental.readers.Fits"
        self._files = FileArguments(file_root, file_list, files)
        self._needs = self._files.needs
        self._filters = ("*.fits", "*.fits.gz") if file_filter is None else (file_filter,)
        parts = [2] if hdu_indices is None else [hdu_indices] if isinstance(hdu_indices, int) else list(hdu_indices)
        # HDUs count from 1, as in the FITS standard.
        if not parts or not all(isinstance(part, int) and part >= 1 for part in parts):
            raise RuntimeError(f"{self._op}: hdu_indices must be numbers from 1, got {hdu_indices!r}")
        self._parts = parts
        kinds = [None] if dtypes is None else list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes]
        if len(kinds) not in (1, len(parts)):
            raise RuntimeError(f"{self._op}: {len(kinds)} dtypes for {len(parts)} hdu_indices")
        self._dtypes = [None if kind is None else types.to_dtype(kind) for kind in kinds * (len(parts) // len(kinds))]
        self._ranges: Ranges | None = None

    @override
    def scan(self) -> int:
        _astropy()
        if self._ranges is None:
            self._ranges = self._files.find(self._op, *self._filters)
            self._remote = isinstance(self._ranges, RemoteRanges)
        return self._ranges.size

    def _source(self, sample: int) -> str:
        assert self._ranges is not None
        return self._ranges.place(sample)

    def _contents(self, path: str) -> bytes:
        """Return a file, decompressed if it is a .fits.gz."""
        # Read here, with limits, instead of by astropy, which would map or download the file itself.
        content = read_all(path)
        if not content.startswith(b"\x1f\x8b"):
            return _check_content(content)
        try:
            inflated_content = inflate_gzip(content, self._max_sample_bytes)
        except (zlib.error, ValueError) as error:
            raise ValueError(f"its gzip data are damaged: {error}") from None
        check_sample("the decompressed file has at least", len(inflated_content), self._max_sample_bytes)
        return _check_content(inflated_content)

    def _read(self, sample: int) -> tuple[torch.Tensor, ...]:
        assert self._ranges is not None
        begin, end = self._ranges.path_offsets[sample : sample + 2]
        path = os.fsdecode(self._ranges.root + self._ranges.paths[begin:end])
        content = self._contents(path)
        # One copy of the file for the check and for astropy, which loops for minutes over a header that changes in between.
        with io.BytesIO(content) as source:
            images = check_headers(source, self._max_sample_bytes, self._parts)
            # Without astropy, where the bytes are the values: it takes 0.7 ms for the headers of two HDUs.
            if all(part in images for part in self._parts):
                return tuple(_plain_image(content, images[part], dtype) for part, dtype in zip(self._parts, self._dtypes, strict=True))
            source.seek(0)
            with _in_astropy:
                file = _astropy().open(source, memmap=False)
                return tuple(_image(file, part, dtype) for part, dtype in zip(self._parts, self._dtypes, strict=True))


def _check_content(content: bytes) -> bytes:
    if content.startswith(b"SIMPLE"):
        return content
    kind = native.file_kind(content[:512])
    raise ValueError(f"this is not a FITS file{kind and f': it is {kind}'}" if content else "the file is empty")


def _image(file: Any, part: int, dtype: torch.dtype | None) -> torch.Tensor:
    try:
        unit = file[part - 1]  # len(file) reads to the end, and a file that changes meanwhile may have none: astropy then reads HDUs forever
    except IndexError:
        raise ValueError(f"HDU {part} does not exist; the file has {len(file)}") from None
    data = image_of(unit) if unit.is_image else None
    if data is None:
        raise ValueError(f"HDU {part} holds no image")
    return _to_tensor(data, dtype)


def _plain_image(content: bytes, image: PlainImage, dtype: torch.dtype | None) -> torch.Tensor:
    count = math.prod(image.shape)
    return _to_tensor(np.frombuffer(content, image.dtype, count, image.begin).reshape(image.shape), dtype)


def _to_tensor(data: np.ndarray, dtype: torch.dtype | None) -> torch.Tensor:
    # FITS is big-endian; torch needs native byte order, contiguous and writable memory.
    values = torch.from_numpy(np.require(data, data.dtype.newbyteorder("="), ["C", "O", "W"]))
    return values if dtype in (None, values.dtype) else saturate(values, dtype)


def _astropy() -> Any:
    return import_optional("astropy.io.fits", "FITS files need the package astropy", "fits")
