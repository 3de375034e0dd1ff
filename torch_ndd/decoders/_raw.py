# SPDX-License-Identifier: Apache-2.0
"""Samples that Python has decoded, as files in a private format (csrc/decoders/raw_image.cpp), which the kernels convert like any other."""

import struct

import numpy as np

# Magic, height, width, channels, bits per sample.
_PREFIX = struct.Struct("<8s4q")
_MAGIC = b"\x89NDDRAW\n"


def pack_raw(samples: np.ndarray) -> np.ndarray:
    """Return uint8 or uint16 samples (H, W, C) as a file."""
    height, width, channels = samples.shape
    prefix = _PREFIX.pack(_MAGIC, height, width, channels, 8 * samples.itemsize)
    return np.concatenate([np.frombuffer(prefix, np.uint8), np.ascontiguousarray(samples).reshape(-1).view(np.uint8)])


def check_pixels(pixels: int, max_pixels: int, what: str) -> None:
    """Raise RuntimeError for more pixels than ``max_pixels``, before anything is allocated."""
    if pixels > max_pixels:
        raise RuntimeError(
            f"the image has {what} pixels, more than max_pixels={max_pixels}, the guard against decompression bombs; "
            "pass a larger max_pixels, or set TORCH_NDD_MAX_PIXELS"
        )
