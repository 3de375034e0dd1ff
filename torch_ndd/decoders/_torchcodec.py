# SPDX-License-Identifier: Apache-2.0
"""GIF and AVIF samples, decoded by torchcodec at the call.

nvImageCodec has no decoders for them. As those of JPEG 2000, the decoded samples are passed on in a private raw format (`_raw.py`), so that windows,
output types and dtypes need no second implementation. Of an animated GIF the first frame is decoded.
"""

import importlib
from collections.abc import Callable

import numpy as np
import torch

from .._core import native
from ._raw import check_pixels, pack_raw
from ._torchcodec_header import Header, TooShortError, is_avif, is_gif, read_avif, read_gif

PACKAGE = "torchcodec"
_CODEC_BYTES = 16  # a pixel of four channels of 16 bits, in the codec's planes and in the result


def _kind(encoded: np.ndarray) -> str:
    return "GIF" if is_gif(encoded.data) else "AVIF"


def is_gif_or_avif(encoded: np.ndarray) -> bool:
    """Return whether a file begins like a GIF or an AVIF image."""
    data = np.ascontiguousarray(encoded[:12]).data
    return is_gif(data) or is_avif(data)


def shape_of(encoded: np.ndarray, adjust_orientation: bool) -> tuple[int, int, int]:
    """Return height, width and channels of a file, or of its beginning. Raise RuntimeError for damaged data."""
    header, _ = _read_header(encoded, complete=False)
    turned = header.rotation % 2 == 1 and not adjust_orientation
    return (header.width, header.height, header.channels) if turned else header[:3]


def _read_header(encoded: np.ndarray, complete: bool) -> tuple[Header, bytes]:
    """Return the header, and the part of the file to decode."""
    data = np.ascontiguousarray(encoded).data
    try:
        return read_gif(data) if is_gif(data) else (read_avif(data, complete), bytes(data) if complete else b"")
    except TooShortError as error:
        if complete:
            raise RuntimeError(f"the file is damaged: {error}") from None
        raise RuntimeError(f"the first {encoded.size} bytes of this {_kind(encoded)} do not tell its size: {error}; pass more") from None
    except ValueError as error:
        raise RuntimeError(f"no decoder for this {_kind(encoded)} image: {error}") from None


def decode_to_raw(encoded: np.ndarray, max_pixels: int, adjust_orientation: bool) -> np.ndarray:
    """Decode a GIF or AVIF file to the raw format. Raise RuntimeError or MemoryError for damaged data and for too many pixels."""
    header, file = _read_header(encoded, complete=True)
    pixels = header.height * header.width
    check_pixels(pixels, max_pixels, f"{header.height}x{header.width} = {pixels}")
    native.check_memory(_CODEC_BYTES * pixels, f"{pixels} pixels of an image, each of {_CODEC_BYTES} bytes in the codec")
    decode = _find_decoder(_kind(encoded))
    mode = "RGB_ALPHA" if header.channels == 4 else "RGB"
    try:
        planes = decode(torch.frombuffer(bytearray(file), dtype=torch.uint8), mode=mode, output_dtype="auto")
    except MemoryError:
        raise
    except Exception as error:
        raise RuntimeError(f"the file is damaged ({' '.join(str(error).split())})") from None
    if tuple(planes.shape) != (header.channels, header.height, header.width):
        raise RuntimeError(f"its header can be read in two ways: {header.height}x{header.width}x{header.channels} or {tuple(planes.shape)}")
    samples = planes.numpy().transpose(1, 2, 0)
    if not adjust_orientation:  # the codec returns the displayed image
        samples = samples if header.mirror is None else np.flip(samples, header.mirror)
        samples = np.rot90(samples, -header.rotation)
    return pack_raw(samples)


def _find_decoder(kind: str) -> Callable[..., torch.Tensor]:
    try:
        decoders = importlib.import_module("torchcodec.decoders")
    except (ImportError, RuntimeError):
        raise RuntimeError(f"{kind} images need the package {PACKAGE}: pip install torch_ndd[video]") from None
    decode = getattr(decoders, f"decode_{kind.lower()}", None)
    if decode is None:
        raise RuntimeError(f"{kind} images need {PACKAGE} 0.16 or newer")
    return decode
