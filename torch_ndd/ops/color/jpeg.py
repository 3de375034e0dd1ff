# SPDX-License-Identifier: Apache-2.0
"""Artifacts of JPEG compression."""

import torch

from ..._core.operators.operator import DeviceLike, PerSample, T, operator
from ..._core.values.batch import Batch
from .._channels import check_channels
from .._outputs import like


@operator(layouts=("HWC", "FHWC"))
def jpeg_compression_distortion(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    quality: PerSample[int] = 50,
) -> T:
    """Apply the artifacts of JPEG compression, without encoding a file.

    It computes the lossy steps in libjpeg's integer arithmetic: YCbCr with chroma at half resolution (4:2:0), the discrete cosine transform of 8x8
    blocks, quantization with the tables of ITU-T T.81 annex K scaled for the quality, and the inverse with smooth chroma upsampling. The result is
    bitwise equal to writing and reading a file with libjpeg-turbo (OpenCV, Pillow), on the CPU and on a GPU.

    Args:
        input: uint8 RGB images ``HWC`` or sequences ``FHWC``, of any size.
        batch_size: Number of samples, if no argument determines it.
        device: Where to compute; by default the input's device.
        quality: libjpeg's quality, 1 (small file) to 100, one per sample or per frame; values outside are clamped.

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
