# SPDX-License-Identifier: Apache-2.0
"""Headers of GIF and AVIF files, read before a codec sees the file.

GIF: the format's specification of 1989 (87a, 89a). AVIF: ISO/IEC 14496-12 (boxes), 23008-12 (items and their properties).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_GIF_TRAILER = b";"
_MAX_BOXES = 10_000  # of one level; a file has some dozens
_MAX_PROPERTIES = 1000


class Header(NamedTuple):
    """What is known of an image before it is decoded."""

    height: int  # as displayed
    width: int
    channels: int
    rotation: int = 0  # quarter turns counterclockwise from the stored to the displayed image
    mirror: int | None = None  # the axis along which it is reflected afterwards: 0 top to bottom, 1 left to right


class TooShortError(ValueError):
    """The header goes on behind the data."""


def is_gif(data: memoryview) -> bool:
    """Return whether a file begins like a GIF."""
    return bytes(data[:6]) in (b"GIF87a", b"GIF89a")


def is_avif(data: memoryview) -> bool:
    """Return whether a file begins like an AVIF image or sequence."""
    return bytes(data[4:12]) in (b"ftypavif", b"ftypavis")


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


def _color_table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _skip_blocks(data: memoryview, at: int) -> int:
    """Return the place behind blocks that end with an empty one."""
    while True:
        if at >= len(data):
            raise TooShortError("it ends in the middle of a block")
        size = data[at]
        at += 1 + size
        if not size:
            return at


def read_avif(data: memoryview, complete: bool) -> Header:
    """Return the header of the primary image.

    Raises:
        TooShortError: the file ends before the end of its metadata, or a ``complete`` file before that of its pixels, which the codec would invent.
        ValueError: a damaged file, or an animation.
    """
    if bytes(data[8:12]) == b"avis":
        raise ValueError("it is an animation")
    header = None
    for kind, box in _list_boxes(data, complete):
        if kind == b"moov":
            raise ValueError("it is an animation")
        if kind == b"meta":
            header = _read_meta(box[4:])
    if header is None:
        raise TooShortError("its metadata are missing")
    return header


def _list_boxes(data: memoryview, complete: bool = True) -> Iterator[tuple[bytes, memoryview]]:
    """Yield type and content of the boxes of a level. Unless they are ``complete``, the pixels may be missing."""
    at = 0
    for _ in range(_MAX_BOXES):
        if at == len(data) or (not complete and at + 8 > len(data)):
            return
        if at + 8 > len(data):
            raise TooShortError("it ends in the middle of a box")
        size, kind = struct.unpack_from(">I4s", data, at)
        begin = at + 8
        if size == 1 and begin + 8 <= len(data):
            (size,) = struct.unpack_from(">Q", data, begin)
            begin += 8
        end = len(data) if size == 0 else at + size
        if end < begin:
            raise ValueError(f"a box of {size} bytes is smaller than its header")
        if end > len(data):
            if kind == b"mdat" and not complete:
                return
            raise TooShortError(f"box {kind.decode('latin-1')!r} exceeds the data")
        yield kind, data[begin:end]
        at = end
    raise ValueError(f"it has more than {_MAX_BOXES} boxes")


def _read_meta(meta: memoryview) -> Header:
    boxes = dict(_list_boxes(meta))
    if not {b"pitm", b"iprp"} <= boxes.keys():
        raise ValueError("it has no primary image")
    primary = _number(boxes[b"pitm"], 4, 4 if _number(boxes[b"pitm"], 0, 1) else 2)
    parts = list(_list_boxes(boxes[b"iprp"]))
    properties = [entry for kind, box in parts if kind == b"ipco" for entry in _list_boxes(box)]
    if len(properties) > _MAX_PROPERTIES:
        raise ValueError(f"it has {len(properties)} properties")
    height = width = rotation = 0
    mirror = None
    for index in (index for kind, box in parts if kind == b"ipma" for index in _list_associations(box, primary)):
        if not 1 <= index <= len(properties):
            raise ValueError(f"property {index} is not in the file")
        kind, box = properties[index - 1]
        if kind == b"ispe":
            width, height = _number(box, 4, 4), _number(box, 8, 4)
        elif kind == b"irot":
            rotation = _number(box, 0, 1) & 3
        elif kind == b"imir":
            mirror = _number(box, 0, 1) & 1
        elif kind == b"clap":
            raise ValueError("images with a clean aperture are not supported")
    if not height or not width:
        raise ValueError("the size of its primary image is missing")
    if rotation % 2:
        height, width = width, height
    has_alpha = any(kind == b"auxC" and b":alpha" in bytes(box) for kind, box in properties)
    return Header(height, width, 4 if has_alpha else 3, rotation, mirror)


def _number(box: memoryview, at: int, size: int) -> int:
    if at + size > len(box):
        raise ValueError("a box is too short")
    return int.from_bytes(box[at : at + size], "big")


def _list_associations(box: memoryview, item: int) -> list[int]:
    """Return the numbers of the properties of an item, from 1 on."""
    wide_item, wide_index = _number(box, 0, 1) >= 1, bool(_number(box, 3, 1) & 1)
    at, found = 8, []
    for _ in range(_number(box, 4, 4)):
        number = _number(box, at, 4 if wide_item else 2)
        at += 4 if wide_item else 2
        count = _number(box, at, 1)
        at += 1
        size = 2 if wide_index else 1
        if number == item:
            found += [_number(box, at + k * size, size) & (0x7FFF if wide_index else 0x7F) for k in range(count)]
        at += count * size
    return found
