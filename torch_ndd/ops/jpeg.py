# SPDX-License-Identifier: Apache-2.0
"""What JPEG compression does to images."""

import torch

from .._batch import Batch
from .._operator import DeviceLike, PerSample, T, operator
from ._channels import check_channels
from ._outputs import like


@operator(layouts=("HWC", "FHWC"))
def jpeg_compression_distortion(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    quality: PerSample[int] = 50,
) -> T:
    """Compress images as JPEG and decompress them, without making the files.

    Computed are the steps that lose something, in the whole-number arithmetic of libjpeg: YCbCr colours with chroma at half the resolution (4:2:0),
    the cosine transform of blocks of 8x8, quantisation with the tables of ITU-T T.81 annex K scaled for the quality, and the way back with smooth
    chroma. The result equals that of writing and reading a file with libjpeg-turbo (OpenCV, Pillow), bit for bit, on the CPU and on a GPU.

    Args:
        input: uint8 RGB images ``HWC`` or sequences ``FHWC``, of any size.
        batch_size: Samples of the batch, where nothing else tells.
        device: Where to compute; by default where the input is.
        quality: 1 (small file) to 100 as libjpeg takes it, one per sample or per frame; what is outside counts as the nearest.

    Returns:
        Images of the same shape and type.

    Raises:
        RuntimeError: Another type than uint8, another number of channels than 3, or fewer qualities than frames.

    >>> jpeg_compression_distortion(torch.tensor([[[200, 100, 0], [0, 0, 0]]], dtype=torch.uint8), quality=5).torch()
    tensor([[[83, 83, 83],
             [32, 32, 32]]], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if images.dtype is not torch.uint8:
        raise RuntimeError(f"jpeg_compression_distortion: the input must be uint8, got {images.dtype}; cast it first")
    check_channels("jpeg_compression_distortion", images, 3)
    return like(images)
