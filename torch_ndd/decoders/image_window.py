# SPDX-License-Identifier: Apache-2.0
"""Decoding windows of images."""

from collections.abc import Sequence

import torch

from .. import types
from .._core.operators.operator import DeviceLike, Hint, ShapeArg, T
from .._core.work.bad_samples import OnError
from ..ops.geometry._crop_window import CropArguments, CropWindow, Rounding, crop_window
from ..ops.geometry.slice import SliceArguments, slice_window
from ._cache import Cache, CacheArguments, CacheType
from ._decode import FILLS, DecodeArguments, Target, decode, sizes_of
from ._files import decoder


@decoder(name="decoders.image_crop", host_inputs=True, fills=FILLS)
def image_crop(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    affine: Hint[bool] = True,
    cache: Cache | None = None,
    cache_batch_copy: Hint[bool] = True,
    cache_debug: bool = False,
    cache_size: int = 0,
    cache_threshold: int = 0,
    cache_type: CacheType = "",
    crop: ShapeArg[Sequence[float]] | None = None,
    crop_d: ShapeArg[float] | None = None,
    crop_h: ShapeArg[float] | None = None,
    crop_pos_x: ShapeArg[float] = 0.5,
    crop_pos_y: ShapeArg[float] = 0.5,
    crop_pos_z: ShapeArg[float] = 0.5,
    crop_w: ShapeArg[float] | None = None,
    device_memory_padding: Hint[int] = 16777216,
    device_memory_padding_jpeg2k: Hint[int] = 0,
    dtype: torch.dtype = torch.uint8,
    host_memory_padding: Hint[int] = 8388608,
    host_memory_padding_jpeg2k: Hint[int] = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    jpeg_fancy_upsampling: bool = False,
    max_pixels: int | None = None,
    memory_stats: Hint[bool] = False,
    on_error: OnError = "raise",
    output_type: types.DALIImageType = types.RGB,
    preallocate_height_hint: Hint[int] = 0,
    preallocate_width_hint: Hint[int] = 0,
    rounding: Rounding = "round",
    split_stages: Hint[bool] = False,
    use_chunk_allocator: Hint[bool] = False,
    use_fast_idct: bool = False,
) -> T:
    """Decode a window of each image; bitwise equal to :func:`crop` of :func:`image`'s result, and faster: of a JPEG only the window is decoded.

    Args:
        crop: height and width in pixels; fractions are truncated. 0 or less means the whole axis. Of three numbers the first is a depth, which images
            do not have.
        crop_h, crop_w: height and width separately.
        crop_pos_x, crop_pos_y: relative position of the window, from 0 (left, top) to 1.
        crop_d, crop_pos_z: ignored.
        rounding: rounding of the window's start: "round" (half away from zero) or "truncate".

    All other arguments are those of :func:`image`.

    Raises:
        RuntimeError: the errors of :func:`image`; a window that leaves the image or is empty, a position outside [0, 1], ``crop`` together with the
            separate sizes, ``crop_h`` or ``crop_w`` alone, an unknown rounding.

    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 20), "red").save(file, "PNG")
    >>> image_crop(np.frombuffer(file.getvalue(), np.uint8), crop=[10, 16]).shape
    (10, 16, 3)
    """
    name = "decoders.image_crop"
    arguments = CropArguments(crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y, crop_pos_z, rounding, "pad")

    def windows(shapes: torch.Tensor) -> CropWindow:
        return crop_window(name, sizes_of(shapes), arguments)

    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling)
    caching = CacheArguments(cache, cache_size, cache_threshold, cache_type, cache_debug)
    given = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target, caching)
    return decode(name, input, given, windows)


@decoder(name="decoders.image_slice", host_inputs=True, fills=FILLS)
def image_slice(
    data: T,
    anchor: ShapeArg[Sequence[float]] | None = None,
    shape_input: ShapeArg[Sequence[float]] | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    affine: Hint[bool] = True,
    axes: ShapeArg[Sequence[int]] | None = None,
    axis_names: str | None = None,
    cache: Cache | None = None,
    cache_batch_copy: Hint[bool] = True,
    cache_debug: bool = False,
    cache_size: int = 0,
    cache_threshold: int = 0,
    cache_type: CacheType = "",
    device_memory_padding: Hint[int] = 16777216,
    device_memory_padding_jpeg2k: Hint[int] = 0,
    dtype: torch.dtype = torch.uint8,
    end: ShapeArg[Sequence[int]] | None = None,
    host_memory_padding: Hint[int] = 8388608,
    host_memory_padding_jpeg2k: Hint[int] = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    jpeg_fancy_upsampling: bool = False,
    max_pixels: int | None = None,
    memory_stats: Hint[bool] = False,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    on_error: OnError = "raise",
    output_type: types.DALIImageType = types.RGB,
    preallocate_height_hint: Hint[int] = 0,
    preallocate_width_hint: Hint[int] = 0,
    rel_end: ShapeArg[Sequence[float]] | None = None,
    rel_shape: ShapeArg[Sequence[float]] | None = None,
    rel_start: ShapeArg[Sequence[float]] | None = None,
    shape: ShapeArg[Sequence[int]] | None = None,
    split_stages: Hint[bool] = False,
    start: ShapeArg[Sequence[int]] | None = None,
    use_chunk_allocator: Hint[bool] = False,
    use_fast_idct: bool = False,
) -> T:
    """Decode the window of each image between two positions; bitwise equal to :func:`slice` of :func:`image`'s result, and faster.

    The window starts at ``start`` or ``rel_start``, by default 0, and its end is given by one of ``end``, ``rel_end``, ``shape`` and ``rel_shape``,
    by default the end of the axis. Alternatively, ``anchor`` and ``shape_input`` may be given as positional arguments.

    Args:
        data: contents of the files, uint8 (length,). A path, a URL or ``bytes`` makes a Tensor, a list of them a Batch.
        anchor, shape_input: start and shape of the window: integers in pixels, floating-point numbers relative to the image's extents.
        normalized_anchor, normalized_shape: False for floating-point ``anchor`` and ``shape_input`` in pixels.
        start, end, shape: in pixels, one number per axis or one for all.
        rel_start, rel_end, rel_shape: the same, relative to the extents of the image.
        axes: the axes of these numbers: 0 is the height, 1 the width. By default width first, [1, 0].
        axis_names: the axes as letters, by default ``WH``.

    All other arguments are those of :func:`image`.

    Raises:
        RuntimeError: the errors of :func:`image`; a window that leaves the image, is empty or ends before it starts, arguments that exclude each
            other, axes that an image does not have.

    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 20), "red").save(file, "PNG")
    >>> image_slice(np.frombuffer(file.getvalue(), np.uint8), [0.0, 0.5], [1.0, 0.25]).shape
    (5, 40, 3)
    """
    name = "decoders.image_slice"
    named = start, rel_start, end, rel_end, shape, rel_shape
    arguments = SliceArguments(anchor, shape_input, normalized_anchor, normalized_shape, *named, axes, axis_names)

    def windows(shapes: torch.Tensor) -> CropWindow:
        return slice_window(name, sizes_of(shapes), arguments, "pad")

    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling)
    caching = CacheArguments(cache, cache_size, cache_threshold, cache_type, cache_debug)
    given = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target, caching)
    return decode(name, data, given, windows)
