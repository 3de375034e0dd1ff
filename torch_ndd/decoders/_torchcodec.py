# SPDX-License-Identifier: Apache-2.0
"""GIF, AVIF and HEIC samples, decoded by torchcodec at the call.

nvImageCodec has no decoders for them. As those of JPEG 2000, the decoded samples are passed on in a private raw format (`_raw.py`), so windows,
output types and dtypes need no second implementation. Of an animated GIF the first frame is decoded. torchcodec decodes HEIC with the libheif of the
system, which assembles the tiles of a telephone's photographs.
"""

import importlib
from collections.abc import Callable

import numpy as np
import torch

from .._core import native
from ._heif_header import format_of, read_avif, read_heic
from ._raw import check_pixels, pack_raw
from ._torchcodec_header import Header, TooShortError, is_gif, read_gif, without_transparent_color

PACKAGE = "torchcodec"
_CODEC_BYTES = 16  # a pixel of four channels of 16 bits, in the codec's planes and in the result


_BRAND_BYTES = 1024  # the list of a HEIF file's brands has some dozens


def find_format(encoded: np.ndarray) -> str | None:
    """Return "GIF", "AVIF", "HEIC", or "HEIF" for other images of its kind, if a file begins like one of them."""
    data = np.ascontiguousarray(encoded[:_BRAND_BYTES]).data
    return "GIF" if is_gif(data) else format_of(data)


def shape_of(encoded: np.ndarray, adjust_orientation: bool) -> tuple[int, int, int]:
    """Return height, width and channels of a file, or of its beginning. Raise RuntimeError for damaged data."""
    header, _ = _read_header(encoded, complete=False)
    turned = header.rotation % 2 == 1 and not adjust_orientation
    return (header.width, header.height, header.channels) if turned else header[:3]


def _read_header(encoded: np.ndarray, complete: bool) -> tuple[Header, bytes]:
    """Return the header, and the part of the file to decode."""
    data, kind = np.ascontiguousarray(encoded).data, find_format(encoded)
    try:
        if kind == "GIF":
            return read_gif(data)
        if kind == "HEIF":
            raise ValueError("it is neither AVIF nor HEIC")
        header = read_avif(data, complete) if kind == "AVIF" else read_heic(data, complete)
        return header, bytes(data) if complete else b""
    except TooShortError as error:
        if complete:
            raise RuntimeError(f"the file is damaged: {error}") from None
        raise RuntimeError(f"the first {encoded.size} bytes of this {kind} do not tell its size: {error}; pass more") from None
    except ValueError as error:
        raise RuntimeError(f"no decoder for this {kind} image: {error}") from None


def decode_to_raw(encoded: np.ndarray, max_pixels: int, output_type: str, adjust_orientation: bool) -> np.ndarray:
    """Decode a GIF, AVIF or HEIC file to the raw format. Raise RuntimeError or MemoryError for damaged data and for too many pixels.

    The colors of a GIF are those of its palette in transparent pixels too, as they are in a PNG; its transparency is decoded for ``ANY_DATA`` only.
    """
    header, file = _read_header(encoded, complete=True)
    pixels = header.height * header.width
    check_pixels(pixels, max_pixels, f"{header.height}x{header.width} = {pixels}")
    native.check_memory(_CODEC_BYTES * pixels, f"{pixels} pixels of an image, each of {_CODEC_BYTES} bytes in the codec")
    kind = str(find_format(encoded))
    if kind != "GIF" or header.channels == 3:
        planes = _decode_planes(kind, file, header.channels)
    else:
        planes = _decode_planes(kind, without_transparent_color(file), 3)
        if output_type == "ANY_DATA":
            planes = torch.cat([planes, _decode_planes(kind, file, 4)[3:]])
        else:
            header = header._replace(channels=3)
    if tuple(planes.shape) != (header.channels, header.height, header.width):
        raise RuntimeError(f"its header can be read in two ways: {header.height}x{header.width}x{header.channels} or {tuple(planes.shape)}")
    samples = planes.numpy().transpose(1, 2, 0)
    if not adjust_orientation:  # the codec returns the displayed image
        samples = samples if header.mirror is None else np.flip(samples, header.mirror)
        samples = np.rot90(samples, -header.rotation)
    return pack_raw(samples)


def _decode_planes(kind: str, file: bytes, channels: int) -> torch.Tensor:
    """Decode a file to (channels, H, W). Raise RuntimeError or MemoryError for damaged data."""
    decode = _find_decoder(kind)
    try:
        return decode(torch.frombuffer(bytearray(file), dtype=torch.uint8), mode="RGB_ALPHA" if channels == 4 else "RGB", output_dtype="auto")
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, ImportError):
            raise RuntimeError("HEIC images need libheif, which torchcodec does not find: apt-get install libheif1") from None
        raise RuntimeError(f"the file is damaged ({' '.join(str(error).split())})") from None


def _find_decoder(kind: str) -> Callable[..., torch.Tensor]:
    try:
        decoders = importlib.import_module("torchcodec.decoders")
    except (ImportError, RuntimeError):
        raise RuntimeError(f"{kind} images need the package {PACKAGE}: pip install torch_ndd[video]") from None
    decode = getattr(decoders, f"decode_{kind.lower()}", None)
    if decode is None:
        raise RuntimeError(f"{kind} images need {PACKAGE} 0.16 or newer")
    return decode
