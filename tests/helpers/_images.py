# SPDX-License-Identifier: Apache-2.0
"""Image files made by hand, and what becomes of them."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

import torch_ndd as ndd

HEIGHT, WIDTH = 37, 53
_Y, _X = np.mgrid[:HEIGHT, :WIDTH]
COLORS = np.stack([_X * 4 % 256, _Y * 6, (_X + _Y) * 2, 255 - _X], -1).astype(np.uint8)
RGB, GRAY = COLORS[..., :3], COLORS[..., 0]


def pillow(samples: np.ndarray, codec: str, mode: str | None = None, **options: Any) -> bytes:
    file, image = io.BytesIO(), Image.fromarray(samples)
    (image.convert(mode) if mode else image).save(file, codec, **options)
    return file.getvalue()


def decode(file: bytes, **options: Any) -> np.ndarray:
    return np.asarray(ndd.decoders.image(ndd.tensor(np.frombuffer(file, np.uint8)), **options))


def reason(file: bytes, **options: Any) -> str:
    """Return why a file is rejected."""
    images = ndd.decoders.image(ndd.as_batch([np.frombuffer(file, np.uint8)]), on_error="skip", **options)
    assert images.errors, "it was decoded"
    return images.errors[0].reason


def turned_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def ihdr(width: int, height: int, depth: int = 8, colors: int = 2, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colors, 0, 0, interlaced))


PNG = pillow(RGB, "PNG")
PNG_END = 33  # of IHDR
