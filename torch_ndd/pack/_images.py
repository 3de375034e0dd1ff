# SPDX-License-Identifier: Apache-2.0
"""One image: its bytes unchanged, or resized and encoded again."""

import importlib.util
import io
from typing import NamedTuple

import numpy as np

from .. import types
from .._core import native
from .._core.values.tensor import as_tensor
from ..decoders import _scale
from ..decoders.image import image
from ..decoders.peek import peek_image_shape
from ..ops.geometry.resize import resize

_LEAST_ROOM = 1 << 16


class Packed(NamedTuple):
    """A file of the packed data set; ``size`` and ``original`` are heights and widths as they are stored, or as displayed if it was turned."""

    content: bytes
    ending: str  # ".jpg"
    size: tuple[int, int]
    original: tuple[int, int]


def encoder() -> str:
    """Return the name of the encoder of this installation. Raise RuntimeError if there is none."""
    version = _scale.libjpeg_version()
    if version is not None:
        return version
    if importlib.util.find_spec("PIL") is not None:
        return "Pillow"
    raise RuntimeError(
        "pack: writing smaller images needs an encoder: pip install pillow, or build torch_ndd where libjpeg-turbo is (apt install libjpeg-dev)"
    )


def encode(pixels: np.ndarray, quality: int) -> bytes:
    """Return uint8 (H, W, 1 or 3) as the contents of a JPEG file with chroma of half the height and width."""
    height, width, channels = pixels.shape
    pixels = np.ascontiguousarray(pixels)
    if _scale.libjpeg_version() is None:
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(pixels if channels == 3 else pixels[:, :, 0]).save(file, "JPEG", quality=quality, optimize=True, subsampling=2)
        return file.getvalue()
    # Guess the size of the file; the encoder returns the size that it needs if this is too little.
    room = _LEAST_ROOM + pixels.size // 2
    while True:
        out = np.empty(room, np.uint8)
        length = native.encode_jpeg(pixels.ctypes.data, height, width, channels, quality, 1, out.ctypes.data, room)
        if length < 0:
            raise RuntimeError(f"an image of {height}x{width} cannot be written as JPEG")
        if length <= room:
            return out[:length].tobytes()
        room = length


def pack_image(content: bytes, ending: str, shorter: int | None, quality: int, adjust_orientation: bool) -> Packed:
    """Return a file for the packed data set: the same bytes where no smaller size is asked for or it is not larger. Raise RuntimeError if damaged."""
    data = as_tensor(np.frombuffer(content, np.uint8))
    if not content:
        raise RuntimeError("the file is empty")
    height, width, channels = peek_image_shape(data, adjust_orientation=adjust_orientation, image_type=types.ANY_DATA).torch().tolist()
    if shorter is None or min(height, width) <= shorter:
        return Packed(content, ending, (height, width), (height, width))
    kind = types.GRAY if channels == 1 else types.RGB
    decoded = image(data, output_type=kind, at_least=shorter, adjust_orientation=adjust_orientation)
    # The size is that of the whole image's resize, whichever scale it was decoded at.
    size = [max(1, round(extent * shorter / min(height, width))) for extent in (height, width)]
    pixels = np.asarray(resize(decoded, size=size, antialias=True))
    return Packed(encode(pixels, quality), ".jpg", (size[0], size[1]), (height, width))
