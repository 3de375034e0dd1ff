# SPDX-License-Identifier: Apache-2.0
"""Decoding images: whole, cropped at random, or a window of each."""

from collections.abc import Sequence

import torch

from .. import types
from .._core.operators.operator import DeviceLike, Hint, Random, ShapeArg, T
from .._core.work.bad_samples import OnError
from ..ops.geometry._crop_window import CropArguments, CropWindow, Rounding, crop_window
from ..ops.geometry._random_crop import DEFAULT_AREA, DEFAULT_ASPECT_RATIO, random_crop_windows
from ..ops.geometry.slice import SliceArguments, slice_window
from ._cache import Cache, CacheArguments, CacheType
from ._decode import FILLS, DecodeArguments, GpuMemory, Target, decode, sizes_of
from ._files import decoder


@decoder(name="decoders.image", host_inputs=True, fills=FILLS)
def image(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    affine: Hint[bool] = True,
    at_least: ShapeArg[Sequence[int] | int] | None = None,
    cache: Cache | None = None,
    cache_batch_copy: Hint[bool] = True,
    cache_debug: bool = False,
    cache_size: int = 0,
    cache_threshold: int = 0,
    cache_type: CacheType = "",
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
    split_stages: Hint[bool] = False,
    use_chunk_allocator: Hint[bool] = False,
    use_fast_idct: bool = False,
) -> T:
    """Decode images: bytes of JPEG, PNG, TIFF, BMP, PNM, WebP, JPEG 2000, GIF, AVIF or HEIC files to (H, W, C), layout ``HWC``.

    The sizes come from the headers at the call; the pixels are decoded on demand, each file by one thread.

    With ``device="gpu"`` the files stay in host memory and the pixels are produced on the GPU: baseline JPEGs by its JPEG engines, if it has any, and
    by CUDA; progressive and lossless JPEGs by CUDA; plain TIFF and JPEG 2000 files by nvTIFF and nvJPEG2000 (``pip install torch_ndd[gpu]``); all
    others, and those the engines reject, by the CPU, followed by an upload. Pixels of a JPEG may differ from the CPU's by a few levels, more along
    color edges unless ``jpeg_fancy_upsampling`` is True. :func:`engine_counts` returns how many images each engine decoded.

    Transparency is a channel of ``ANY_DATA`` and without effect on the colors of the other output types: transparent pixels have those of the file,
    of a GIF those of its palette.

    Args:
        input: contents of the files, uint8 (length,), in host memory. A path, a URL or ``bytes`` makes a Tensor, a list of them a Batch.
        adjust_orientation: apply the EXIF orientation.
        at_least: a height and a width, or one number for both, for a following resize to no more than that. JPEGs are decoded at the smallest of an
            eighth, a quarter and a half of their size that has at least so many rows and columns, rounded up, after the orientation; 0 leaves an axis
            free. Other files, lossless and 12-bit JPEGs, and images that would become too small, are decoded whole, as is everything on a GPU, and
            where the library was built without libjpeg-turbo (``python -m torch_ndd`` says so). The pixels are not those of the whole image reduced
            by averaging, but within a few levels of them: blocks of 8x8 samples are reduced one by one, by leaving out their high frequencies, and
            an eighth of a file with 4:2:2 chroma repeats its columns. A JPEG on which libjpeg fails, but that can be decoded whole, is reduced by
            averaging. Files with hundreds of scans are rejected.
        cache: keeps decoded images for the next epochs, see :func:`decoders.cache`; not on a GPU.
        cache_size: keep decoded images in memory, this many MB at most, in one cache of the process for all calls with equal ``cache_size``,
            ``cache_threshold`` and ``cache_type``. No effect on a GPU.
        cache_threshold: keep only images of at least this many bytes.
        cache_type: "threshold" (or "") keeps what is decoded first, "largest" replaces smaller images by larger ones.
        cache_debug: print the counters of the cache when the process ends.
        cache_batch_copy: accepted; the threads copy the images of a batch at the same time in any case.
        dtype: an integer type represents [0, 1] by its full range: 8-bit 128 becomes 0.50196 in a floating-point type and 32896 in uint16. The same
            holds for the depth of the file: the largest sample of 5 or 12 bits (TIFF, JPEG 2000) and PNM's largest value become 255 in uint8, 65535
            in uint16 and 1.0 in floats; uint8 rounds samples of more than 8 bits.
        output_type: ``types.RGB``, ``BGR``, ``GRAY`` (one channel), ``YCbCr`` (ITU-R BT.601, Y from 16 to 235), or ``ANY_DATA``: the channels of the
            file. Of a TIFF these are also the inks of CMYK, and samples whose colors are unknown, such as those of a color filter array, or that have
            a sign (with ``dtype=torch.int16`` the numbers of a file of 16 bits); palettes, YCbCr and L*a*b* become RGB. Colors that a TIFF holds
            multiplied by alpha stay so.
        use_fast_idct: use a faster and less exact inverse DCT for JPEG.
        hw_decoder_load: on a GPU, the share of a batch for its JPEG engine. With the default, 0.65, the engine and the CPU threads with CUDA take
            images from the two ends of the waiting batches until they meet, so both end at the same time; which of them decodes an image, and
            so the last bits of its pixels, may then change from run to run. Any other value is fixed, CUDA takes the rest, and runs are reproducible.
        hybrid_huffman_threshold: on a GPU, images with more pixels than this have their Huffman code decoded by CUDA, too, instead of the CPU.
        jpeg_fancy_upsampling: interpolate chroma on a GPU. The CPU always does.
        device_memory_padding: on a GPU, bytes by which each CPU thread's decoder of JPEGs (CUDA) enlarges its buffer in device memory, so it
            does not allocate another one for each larger image; 0 for as much as the largest image so far needs.
        host_memory_padding: the same for its two buffers in pinned host memory.
        preallocate_height_hint, preallocate_width_hint: on a GPU, the largest images for which the JPEG engine allocates memory beforehand.
        max_pixels: the largest image to decode, as a protection against small files that promise gigabytes: height times width times a
            quarter of the channels, rounded up. Checked before anything is allocated. By default the environment variable ``TORCH_NDD_MAX_PIXELS``,
            or 2**28.
        on_error: what to do with a file that cannot be decoded. "raise" raises RuntimeError; "replace" returns pixels of zeros, in the size of the
            header, or in the batch's median height and width if the header is unreadable (1x1 if there is none in the whole batch); "skip" leaves the
            sample out, and the call waits until all are decoded. ``result.errors`` lists number, file and reason of each, and
            ``labels.select(result.kept)`` are the labels of the samples that "skip" keeps.

    The other arguments are accepted for compatibility with DALI and have no effect.

    Raises:
        RuntimeError: a file that is not an image, is damaged or has too many pixels; the message names the sample and the file. A damaged header
            raises at the call, damaged pixels when the image is used.
        ValueError: an unknown ``on_error`` or ``cache_type``, ``max_pixels`` that is not positive, ``hw_decoder_load`` outside 0 to 1, or ``cache``
            together with ``cache_size`` or on a GPU.

    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 2), "red").save(file, "PNG")
    >>> image(np.frombuffer(file.getvalue(), np.uint8)).shape
    (2, 4, 3)
    """
    memory = GpuMemory(device_memory_padding, host_memory_padding, preallocate_height_hint, preallocate_width_hint)
    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling, memory)
    caching = CacheArguments(cache, cache_size, cache_threshold, cache_type, cache_debug)
    arguments = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target, caching, at_least)
    return decode("decoders.image", input, arguments)


@decoder(name="decoders.image_random_crop", host_inputs=True, fills=FILLS)
def image_random_crop(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    affine: Hint[bool] = True,
    at_least: ShapeArg[Sequence[int] | int] | None = None,
    cache: Cache | None = None,
    cache_batch_copy: Hint[bool] = True,
    cache_debug: bool = False,
    cache_size: int = 0,
    cache_threshold: int = 0,
    cache_type: CacheType = "",
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
    num_attempts: int = 10,
    on_error: OnError = "raise",
    output_type: types.DALIImageType = types.RGB,
    preallocate_height_hint: Hint[int] = 0,
    preallocate_width_hint: Hint[int] = 0,
    random_area: float | Sequence[float] = DEFAULT_AREA,
    random_aspect_ratio: float | Sequence[float] = DEFAULT_ASPECT_RATIO,
    split_stages: Hint[bool] = False,
    use_chunk_allocator: Hint[bool] = False,
    use_fast_idct: bool = False,
    rng: Random = None,
) -> T:
    """Decode a random region of each image; bitwise equal to the same region of :func:`image`'s result, and faster.

    The region has ``random_area`` of the image's area and ``random_aspect_ratio`` (width over height), each a range. If no such region fits in
    ``num_attempts``, it is the largest one that both ranges allow, at a random position. Of a JPEG only that region is decoded: 1.6 times as many
    images per second for half the height and half the width of 500x375 files.

    Args:
        at_least: the least height and width of the region's result: it is taken from the image at the smallest scale that has them, as with
            :func:`image`, at positions rounded to that image's pixels. Regions that are not larger are decoded at their full size.
        rng: random generator; by default this thread's.

    All other arguments are those of :func:`image`.

    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 20), "red").save(file, "PNG")
    >>> image_random_crop(np.frombuffer(file.getvalue(), np.uint8), random_area=1.0, random_aspect_ratio=2.0).shape
    (20, 40, 3)
    """

    name = "decoders.image_random_crop"

    def windows(shapes: torch.Tensor) -> torch.Tensor:
        words: torch.Tensor = rng  # type: ignore[assignment]  # drawn by the decorator
        return random_crop_windows(shapes, words, random_area, random_aspect_ratio, num_attempts, op=name)

    memory = GpuMemory(device_memory_padding, host_memory_padding, preallocate_height_hint, preallocate_width_hint)
    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling, memory)
    caching = CacheArguments(cache, cache_size, cache_threshold, cache_type, cache_debug)
    arguments = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target, caching, at_least)
    return decode(name, input, arguments, windows)


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
        crop: height and width in pixels; fractions are truncated. Less than 1 means the whole axis. Of three numbers the first is a depth, which
            images do not have.
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

    memory = GpuMemory(device_memory_padding, host_memory_padding, preallocate_height_hint, preallocate_width_hint)
    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling, memory)
    caching = CacheArguments(cache, cache_size, cache_threshold, cache_type, cache_debug)
    options = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target, caching)
    return decode(name, input, options, windows)


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

    memory = GpuMemory(device_memory_padding, host_memory_padding, preallocate_height_hint, preallocate_width_hint)
    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling, memory)
    caching = CacheArguments(cache, cache_size, cache_threshold, cache_type, cache_debug)
    options = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target, caching)
    return decode(name, data, options, windows)
