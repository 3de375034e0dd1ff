# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000 samples, decoded by OpenJPEG in Python at the call.

nvImageCodec's CPU decoder for JPEG 2000 is OpenCV's, which lets OpenJPEG write through an uninitialised pointer when a header is damaged: 31 of
1,200 mutated files ended the process. OpenJPEG itself, through pylibjpeg-openjpeg, survived 4,500. Its samples go on as if they were a file of
a private raw format, so that windows, output types and dtypes need no second implementation.
"""

import ctypes
import importlib
import struct
from typing import Any

import numpy as np

from .. import _native


def _installed() -> Any:
    try:
        module = importlib.import_module("openjpeg")
    except ImportError:
        return None
    path = importlib.import_module("_openjpeg").__file__
    if path is not None:  # it prints about damaged colours, and decodes on
        discard = ctypes.CDLL(str(_native.PATH)).ndd_discard_output_of
        discard(path.encode(), b"PyInit__openjpeg")
    return module


openjpeg = _installed()

# csrc/decoders/raw_image.cpp reads it: magic, height, width, channels, bits per sample.
_PREFIX = struct.Struct("<8s4q")
_MAGIC = b"\x89NDDRAW\n"

# A damaged header easily promises more than any file holds; a blank 48-megapixel image has 132,000 pixels a byte.
_MAX_PIXELS_PER_BYTE = 200_000


def shape_of(file: bytes) -> tuple[int, int, int]:
    """Height, width and channels of a JPEG 2000 file or codestream. Raises RuntimeError for damaged data."""
    if openjpeg is None:
        raise RuntimeError("JPEG 2000 images need the package pylibjpeg-openjpeg: pip install pylibjpeg-openjpeg")
    try:
        header = openjpeg.get_parameters(file)
        height, width, channels = header["rows"], header["columns"], header["samples_per_pixel"]
        if height * width > _MAX_PIXELS_PER_BYTE * len(file):
            raise ValueError(f"{height * width} pixels in a file of {len(file)} bytes")
    except Exception as error:  # whatever a damaged file provokes in the wrapper
        raise RuntimeError(f"the image data are damaged ({error})") from None
    return height, width, channels


def decode_to_raw(encoded: np.ndarray, max_pixels: int) -> np.ndarray:
    """Decodes one JPEG 2000 file or codestream to the raw format. Raises RuntimeError for damaged data and for too many pixels."""
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
    """Samples of so many bits, stretched to 16 unless they fill their type: 12-bit 4095 and 5-bit 31 become 65535."""
    largest = (1 << bits) - 1
    if largest == np.iinfo(samples.dtype).max:
        return samples
    table = (np.arange(largest + 1) * 65535 + largest // 2) // largest
    return table.astype(np.uint16)[np.minimum(samples, largest)]
