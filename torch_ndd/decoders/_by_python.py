# SPDX-License-Identifier: Apache-2.0
"""Images that Python decodes at the call, because nvImageCodec cannot or must not: JPEG 2000, GIF, AVIF, HEIC (format_decoded_by_python in csrc)."""

from typing import Any

import numpy as np

from . import _gpu_jpeg2000, _jpeg2000, _torchcodec


def shape_of(encoded: np.ndarray, adjust_orientation: bool) -> tuple[int, int, int]:
    """Return height, width and channels of a file, or of its beginning. Raise RuntimeError for damaged data."""
    if _torchcodec.find_format(encoded):
        return _torchcodec.shape_of(encoded, adjust_orientation)
    return _jpeg2000.shape_of(encoded)


def decode_to_raw(encoded: np.ndarray, max_pixels: int, output_type: str, adjust_orientation: bool) -> np.ndarray:
    """Decode a file to the raw format. Raise RuntimeError or MemoryError for damaged data and for too many pixels."""
    if _torchcodec.find_format(encoded):
        return _torchcodec.decode_to_raw(encoded, max_pixels, output_type, adjust_orientation)
    return _jpeg2000.decode_to_raw(encoded, max_pixels, output_type)


def decode_on_gpu(encoded: np.ndarray, max_pixels: int, device: Any) -> _gpu_jpeg2000.DeviceImage | None:
    """Decode a file on the GPU of a call, or return None: the CPU decodes it. Raise RuntimeError or MemoryError as :func:`decode_to_raw` does."""
    if _torchcodec.find_format(encoded) or not _gpu_jpeg2000.is_usable(device):
        return None
    # The decoder writes as much as it reads in the header, which must not change after the check.
    return _gpu_jpeg2000.decode(_jpeg2000.read_checked_header(encoded.copy(), max_pixels), device)
