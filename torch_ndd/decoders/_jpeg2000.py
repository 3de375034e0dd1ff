# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000 samples, decoded by OpenJPEG from Python at the call.

nvImageCodec's CPU decoder for JPEG 2000 is OpenCV's, in which OpenJPEG writes through an uninitialized pointer for some damaged headers: 31 of 1,200
mutated files ended the process. OpenJPEG through pylibjpeg-openjpeg survived 4,500. The decoded samples continue as files of a private raw format, so
that windows, output types and dtypes need no second implementation.
"""

import importlib
import struct
from typing import Any

import numpy as np

from .._core import native

PACKAGE = "pylibjpeg-openjpeg"
# Inspected releases, which are told not to print (csrc/decoders/openjpeg_output.md).
CHECKED = ("2.5.0", "2.6.0")


def is_checked(module: Any) -> bool:
    """Return whether the module is one of these releases; another one runs unchanged."""
    return getattr(module, "__version__", "") in CHECKED


def _installed() -> Any:
    try:
        return importlib.import_module("openjpeg")
    except ImportError:
        return None


def _patch(module: Any) -> bool:
    path = importlib.import_module("_openjpeg").__file__ if module is not None and is_checked(module) else None
    if path is None:
        return False
    return native.c_function("ndd_discard_output_of")(path.encode(), b"PyInit__openjpeg")


openjpeg = _installed()
patched = _patch(openjpeg)

# csrc/decoders/raw_image.cpp reads it: magic, height, width, channels, bits per sample.
_PREFIX = struct.Struct("<8s4q")
_MAGIC = b"\x89NDDRAW\n"

# A damaged header may promise more than any file holds; a blank 48-megapixel image has 132,000 pixels per byte.
_MAX_PIXELS_PER_BYTE = 200_000


def shape_of(file: bytes) -> tuple[int, int, int]:
    """Return height, width and channels of a JPEG 2000 file or codestream. Raise RuntimeError for damaged data."""
    if openjpeg is None:
        raise RuntimeError(f"JPEG 2000 images need the package {PACKAGE}: pip install {PACKAGE}")
    try:
        header = openjpeg.get_parameters(file)
        height, width, channels = header["rows"], header["columns"], header["samples_per_pixel"]
        if height * width > _MAX_PIXELS_PER_BYTE * len(file):
            raise ValueError(f"{height * width} pixels in a file of {len(file)} bytes")
    except Exception as error:  # any error of the wrapper on a damaged file
        raise RuntimeError(f"the image data are damaged ({error})") from None
    return height, width, channels


def decode_to_raw(encoded: np.ndarray, max_pixels: int) -> np.ndarray:
    """Decode one JPEG 2000 file or codestream to the raw format. Raise RuntimeError for damaged data and for too many pixels."""
    file = encoded.tobytes()
    height, width, _ = shape_of(file)
    if height * width > max_pixels:
        raise RuntimeError(
            f"the image has {height}x{width} = {height * width} pixels, more than max_pixels={max_pixels}, the guard against decompression bombs; "
            "pass a larger max_pixels for such images"
        )
    try:
        samples = openjpeg.decode(file)
    except Exception as error:
        raise RuntimeError(f"the image data are damaged ({error})") from None
    if samples.dtype not in (np.uint8, np.uint16):
        raise RuntimeError(f"no CPU decoder for JPEG 2000 images with {samples.dtype} samples")
    samples = _whole_range(samples, int(openjpeg.get_parameters(file)["precision"]))
    height, width, *channels = samples.shape
    prefix = _PREFIX.pack(_MAGIC, height, width, channels[0] if channels else 1, 8 * samples.itemsize)
    return np.concatenate([np.frombuffer(prefix, np.uint8), np.ascontiguousarray(samples).reshape(-1).view(np.uint8)])


def _whole_range(samples: np.ndarray, bits: int) -> np.ndarray:
    """Scale samples of this many bits to 16 bits unless they fill their type: 12-bit 4095 and 5-bit 31 become 65535."""
    largest = (1 << bits) - 1
    if largest == np.iinfo(samples.dtype).max:
        return samples
    table = (np.arange(largest + 1) * 65535 + largest // 2) // largest
    return table.astype(np.uint16)[np.minimum(samples, largest)]
