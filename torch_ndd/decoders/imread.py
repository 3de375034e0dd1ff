# SPDX-License-Identifier: Apache-2.0
"""Reading and decoding image files."""

from typing import Any

import torch

from .. import types
from .._core.operators.operator import DeviceLike
from .._core.values.batch import Batch, batch
from .._core.work.bad_samples import OnError
from ..io.file import read
from ._cache import Cache, CacheType
from ._files import path_bytes
from .image import image


def imread(
    filepaths: Any,
    /,
    *,
    device: DeviceLike = "cpu",
    adjust_orientation: bool | None = None,
    affine: bool | None = None,
    at_least: Any = None,
    cache: Cache | None = None,
    cache_batch_copy: bool | None = None,
    cache_debug: bool | None = None,
    cache_size: int | None = None,
    cache_threshold: int | None = None,
    cache_type: CacheType | None = None,
    device_memory_padding: int | None = None,
    device_memory_padding_jpeg2k: int | None = None,
    dtype: torch.dtype | None = None,
    host_memory_padding: int | None = None,
    host_memory_padding_jpeg2k: int | None = None,
    hw_decoder_load: float | None = None,
    hybrid_huffman_threshold: int | None = None,
    jpeg_fancy_upsampling: bool | None = None,
    max_pixels: int | None = None,
    memory_stats: bool | None = None,
    on_error: OnError | None = None,
    output_type: types.DALIImageType | None = None,
    preallocate_height_hint: int | None = None,
    preallocate_width_hint: int | None = None,
    split_stages: bool | None = None,
    url_max_bytes: int | None = None,
    url_max_seconds: float | None = None,
    url_stall_seconds: float | None = None,
    use_chunk_allocator: bool | None = None,
    use_fast_idct: bool | None = None,
) -> Any:
    """Read and decode image files: a Tensor (H, W, C) for one path, a Batch for a list; equal to :func:`decoders.image` of their contents.

    Args:
        filepaths: a path or URL, or a list or tuple of them; each a string, a ``pathlib.Path``, or the bytes of a path in a Tensor or array of uint8.
            A Batch of such bytes returns a Batch.
        device: device of the images.
        url_max_bytes, url_max_seconds, url_stall_seconds: limits of reads from URLs, see :func:`io.file.read`.

    All other arguments are those of :func:`decoders.image`.

    Raises:
        ValueError: an empty list, or an unknown device.
        RuntimeError: a file that cannot be read or decoded; the message names it.

    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "red.png"
    >>> Image.new("RGB", (4, 2), "red").save(path)
    >>> imread(path).shape, imread([path, path]).shape
    ((2, 4, 3), [(2, 4, 3), (2, 4, 3)])
    """
    options = dict(locals())  # the arguments of this call
    limits = {name: options.pop(name) for name in ("url_max_bytes", "url_max_seconds", "url_stall_seconds")}
    return image(read(_path_bytes(options.pop("filepaths")), **limits), **options)


def _path_bytes(filepaths: Any) -> Any:
    if isinstance(filepaths, Batch):
        return filepaths
    if isinstance(filepaths, list | tuple):
        if not filepaths:
            raise ValueError("imread: the list of paths is empty")
        return batch([path_bytes(path) for path in filepaths])
    return path_bytes(filepaths)
