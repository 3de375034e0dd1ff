# SPDX-License-Identifier: Apache-2.0
"""Encoded images to pixels."""

from collections.abc import Sequence

import torch

from .. import types
from .._operator import DeviceLike, Hint, Random, T, operator
from .._random_crop import DEFAULT_AREA, DEFAULT_ASPECT_RATIO, random_crop_windows
from ._decode import KERNEL, MAX_PIXELS, DecodeArguments, Target, decode


@operator(name="decoders.image", kernel=KERNEL, reads_values=True, host_inputs=True)
def image(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    affine: Hint[bool] = True,
    cache_batch_copy: Hint[bool] = True,
    cache_debug: Hint[bool] = False,
    cache_size: Hint[int] = 0,
    cache_threshold: Hint[int] = 0,
    cache_type: Hint[str] = "",
    device_memory_padding: Hint[int] = 16777216,
    device_memory_padding_jpeg2k: Hint[int] = 0,
    dtype: torch.dtype = torch.uint8,
    host_memory_padding: Hint[int] = 8388608,
    host_memory_padding_jpeg2k: Hint[int] = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    jpeg_fancy_upsampling: bool = False,
    max_pixels: int = MAX_PIXELS,
    memory_stats: Hint[bool] = False,
    on_error: str = "raise",
    output_type: types.DALIImageType = types.RGB,
    preallocate_height_hint: Hint[int] = 0,
    preallocate_width_hint: Hint[int] = 0,
    split_stages: Hint[bool] = False,
    use_chunk_allocator: Hint[bool] = False,
    use_fast_idct: bool = False,
) -> T:
    """Decode images: bytes of JPEG, PNG, TIFF, BMP, PNM, WebP or JPEG 2000 files to (H, W, C), layout ``HWC``.

    The sizes come from the headers at the call; the pixels are decoded when they are needed, each file by one thread.

    With ``device="gpu"`` the files stay in host memory and the pixels are made on the GPU: of baseline JPEGs by its JPEG engines, where it has some,
    and by CUDA; all other files, and what those refuse, by the CPU, which uploads the pixels. Those of a JPEG may differ by a few levels from the
    CPU's, more along colour edges unless ``jpeg_fancy_upsampling`` is True. :func:`engine_counts` tells who has decoded how many.

    Args:
        input: contents of the files, uint8 (length,), in host memory.
        adjust_orientation: turn the image as its EXIF orientation says.
        dtype: an integer type stands for [0, 1] with its whole range: 8-bit 128 becomes 0.50196 in a floating-point type and 32896 in uint16. So
            does a file of any depth: the largest sample of 5 or of 12 bits (TIFF, JPEG 2000) and PNM's largest value become 255 in uint8, 65535 in
            uint16 and 1.0; uint8 rounds what has more than 8 bits.
        output_type: ``types.RGB``, ``BGR``, ``GRAY`` (one channel), ``YCbCr`` (ITU-R BT.601, Y from 16 to 235), or ``ANY_DATA``: the channels
            that the file has.
        use_fast_idct: a faster and less exact inverse DCT for JPEG.
        hw_decoder_load: on a GPU, the part of a batch that its JPEG engines decode. 0.65, the default, is where it begins: it is tuned by the times
            that the engines, CUDA and the CPU take, and which of them meets an image, and so the last bits of its pixels, may change from run to run.
            Any other value is kept, CUDA takes the rest, and runs are alike.
        hybrid_huffman_threshold: CUDA decodes also the Huffman code of images with more pixels than that, instead of the CPU.
        jpeg_fancy_upsampling: upsample chroma smoothly on a GPU. The CPU always does.
        max_pixels: the largest image (height times width) that is decoded, against files of a few bytes that promise gigabytes.
        on_error: what happens to a file that cannot be decoded. "raise"; "replace" gives pixels of zeros, of the size in the header, or of the
            batch's median height and width where there is no readable header (1x1 when there is none in the whole batch); "skip" leaves the sample
            out, for which the call waits until all are decoded. ``result.errors`` lists number, file and reason of each, and
            ``labels.select(result.kept)`` are the labels of what "skip" has left.

    The other arguments are hints for DALI's memory, accepted and without effect.

    Raises:
        RuntimeError: a file that is no image, is damaged or has too many pixels; the message names the sample and the file. A damaged header raises
            at the call, damaged pixels when the image is used.
        ValueError: another ``on_error``, ``max_pixels`` that is not positive, or ``hw_decoder_load`` outside of 0 to 1.

    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 2), "red").save(file, "PNG")
    >>> image(np.frombuffer(file.getvalue(), np.uint8)).shape
    (2, 4, 3)
    """
    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling)
    given = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target)
    return decode("decoders.image", input, given)


@operator(name="decoders.image_random_crop", kernel=KERNEL, reads_values=True, host_inputs=True)
def image_random_crop(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    affine: Hint[bool] = True,
    device_memory_padding: Hint[int] = 16777216,
    device_memory_padding_jpeg2k: Hint[int] = 0,
    dtype: torch.dtype = torch.uint8,
    host_memory_padding: Hint[int] = 8388608,
    host_memory_padding_jpeg2k: Hint[int] = 0,
    hw_decoder_load: float = 0.65,
    hybrid_huffman_threshold: int = 1000000,
    jpeg_fancy_upsampling: bool = False,
    max_pixels: int = MAX_PIXELS,
    memory_stats: Hint[bool] = False,
    num_attempts: int = 10,
    on_error: str = "raise",
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
    """Decode a random part of each image; equal to the same part of :func:`image`'s result, bit for bit, and faster.

    The part has ``random_area`` of the image's area and ``random_aspect_ratio`` (width over height), each a range. When no such part fits in
    ``num_attempts``, it is the largest one that both ranges allow, at a random place. Of a JPEG only that part is decoded: 1.6 times as many
    images a second for half the height and half the width of 500x375 files.

    Args:
        rng: where the randomness comes from; by default this thread's generator.

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
        words: torch.Tensor = rng  # type: ignore[assignment]  # the decorator drew them
        return random_crop_windows(shapes, words, random_area, random_aspect_ratio, num_attempts, op=name)

    target = Target(device, hw_decoder_load, hybrid_huffman_threshold, jpeg_fancy_upsampling)
    given = DecodeArguments(output_type, dtype, adjust_orientation, use_fast_idct, max_pixels, on_error, target)
    return decode(name, input, given, windows)
