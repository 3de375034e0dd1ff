# SPDX-License-Identifier: Apache-2.0
"""Images that Python decodes at the call, because nvImageCodec cannot or must not: JPEG 2000, GIF and AVIF (format_decoded_by_python in csrc)."""

import numpy as np

from . import _jpeg2000, _torchcodec


def shape_of(encoded: np.ndarray, adjust_orientation: bool) -> tuple[int, int, int]:
    """Return height, width and channels of a file, or of its beginning. Raise RuntimeError for damaged data."""
    if _torchcodec.is_gif_or_avif(encoded):
        return _torchcodec.shape_of(encoded, adjust_orientation)
    return _jpeg2000.shape_of(encoded)


def decode_to_raw(encoded: np.ndarray, max_pixels: int, output_type: str, adjust_orientation: bool) -> np.ndarray:
    """Decode a file to the raw format. Raise RuntimeError or MemoryError for damaged data and for too many pixels."""
    if _torchcodec.is_gif_or_avif(encoded):
        return _torchcodec.decode_to_raw(encoded, max_pixels, adjust_orientation)
    return _jpeg2000.decode_to_raw(encoded, max_pixels, output_type)
