# SPDX-License-Identifier: Apache-2.0
"""Headers of images that torchcodec decodes, read before a codec sees the file: GIF, by the format's specification of 1989 (87a, 89a)."""

import struct
from typing import NamedTuple

_GIF_TRAILER = b";"


class Header(NamedTuple):
    """What is known of an image before it is decoded."""

    height: int  # as displayed
    width: int
    channels: int
    rotation: int = 0  # quarter turns counterclockwise from the stored to the displayed image
    mirror: int | None = None  # the axis along which it is reflected afterwards: 0 top to bottom, 1 left to right


class TooShortError(ValueError):
    """The header continues after the data."""


def is_gif(data: memoryview) -> bool:
    """Return whether a file begins like a GIF."""
    return bytes(data[:6]) in (b"GIF87a", b"GIF89a")


def read_gif(data: memoryview) -> tuple[Header, bytes]:
    """Return the header of a GIF, and a file with its first frame only: an animation of any length would be decoded as a whole.

    Raises:
        TooShortError: the file ends before the end of the first frame.
        ValueError: a damaged file.
    """
    if len(data) < 13:
        raise TooShortError("its header is incomplete")
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    if not width or not height:
        raise ValueError(f"the screen has {height}x{width} pixels")
    at, channels = 13 + _color_table_bytes(flags), 3
    while True:
        kind = bytes(data[at : at + 1])
        if kind == b"!":  # an extension: its label, then blocks
            label, first = bytes(data[at + 1 : at + 2]), bytes(data[at + 3 : at + 4])
            if label == b"\xf9" and first and first[0] & 1:  # of a graphic control extension: a transparent color
                channels = 4
            at = _skip_blocks(data, at + 2)
        elif kind == b",":  # an image descriptor: position, size, flags; a color table; the code size, then blocks
            if len(data) < at + 10:
                raise TooShortError("it ends in the middle of the first frame")
            left, top, frame_width, frame_height, flags = struct.unpack_from("<4HB", data, at + 1)
            if left + frame_width > width or top + frame_height > height:
                raise ValueError(f"its first frame exceeds the screen of {height}x{width} pixels")
            if (frame_width, frame_height) != (width, height):
                channels = 4  # what it does not cover is transparent
            end = _skip_blocks(data, at + 10 + _color_table_bytes(flags) + 1)
            return Header(height, width, channels), bytes(data[:end]) + _GIF_TRAILER
        elif not kind:
            raise TooShortError("it ends before the first frame")
        else:
            raise ValueError("it has no frame" if kind == _GIF_TRAILER else f"byte {at} does not begin a block")


def without_transparent_color(still: bytes) -> bytes:
    """Return a GIF, as :func:`read_gif` returns it, whose transparent pixels have the color that the palette has for them.

    A decoder draws nothing in their place, so they are as the background color is, or black.
    """
    opaque = bytearray(still)
    at = 13 + _color_table_bytes(opaque[10])
    while opaque[at] == ord("!"):
        if opaque[at + 1] == 0xF9 and opaque[at + 2]:
            opaque[at + 3] &= 0xFE
        at = _skip_blocks(memoryview(still), at + 2)
    return bytes(opaque)


def _color_table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _skip_blocks(data: memoryview, at: int) -> int:
    """Return the place after blocks that end with an empty one."""
    while True:
        if at >= len(data):
            raise TooShortError("it ends in the middle of a block")
        size = data[at]
        at += 1 + size
        if not size:
            return at
