# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000 samples, decoded by OpenJPEG in Python at the call.

nvImageCodec's CPU decoder for JPEG 2000 is OpenCV's, which lets OpenJPEG write through an uninitialised pointer when a header is damaged: 31 of
1,200 mutated files ended the process. OpenJPEG itself, through pylibjpeg-openjpeg, survived 4,500. Its samples go on as if they were a file of
a private raw format, so that windows, output types and dtypes need no second implementation.
"""

import importlib
import struct
from typing import Any

import numpy as np


def _installed() -> Any:
    try:
        return importlib.import_module("openjpeg")
    except ImportError:
        return None


openjpeg = _installed()

# csrc/decoders/raw_image.cpp reads it: magic, height, width, channels, bits per sample.
_PREFIX = struct.Struct("<8s4q")
_MAGIC = b"\x89NDDRAW\n"

# A damaged header easily promises more than any file holds; a blank 48-megapixel image has 132,000 pixels a byte.
_MAX_PIXELS = 1 << 30
_MAX_PIXELS_PER_BYTE = 200_000


def decode_to_raw(encoded: np.ndarray) -> np.ndarray:
    """Decodes one JPEG 2000 file or codestream to the raw format. Raises RuntimeError for damaged data."""
    if openjpeg is None:
        raise RuntimeError("JPEG 2000 images need the package pylibjpeg-openjpeg: pip install pylibjpeg-openjpeg")
    file = encoded.tobytes()
    try:
        header = openjpeg.get_parameters(file)
        pixels = header["rows"] * header["columns"]
        if pixels > min(_MAX_PIXELS, _MAX_PIXELS_PER_BYTE * len(file)):
            raise ValueError(f"{pixels} pixels in a file of {len(file)} bytes")
        samples = openjpeg.decode(file)
    except Exception as error:  # whatever a damaged file provokes in the wrapper
        raise RuntimeError(f"the image data are damaged ({error})") from None
    if samples.dtype not in (np.uint8, np.uint16):
        raise RuntimeError(f"no CPU decoder for JPEG 2000 images with {samples.dtype} samples")
    height, width, *channels = samples.shape
    prefix = _PREFIX.pack(_MAGIC, height, width, channels[0] if channels else 1, 8 * samples.itemsize)
    return np.concatenate([np.frombuffer(prefix, np.uint8), np.ascontiguousarray(samples).reshape(-1).view(np.uint8)])
