# SPDX-License-Identifier: Apache-2.0
"""The headers of JPEG 2000: the boxes around the codestream (ISO/IEC 15444-1, annex I) and its image and tile sizes (annex A.5.1)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_CODESTREAM = b"\xff\x4f\xff\x51"
_SIZ = struct.Struct(">HH8IH")
_SUPPORTED_SPACES = {12: "CMYK", 16: "RGB", 17: "GRAY", 18: "YCC"}
_OTHER_SPACES = {
    0: "bilevel",
    1: "YCbCr(1)",
    3: "YCbCr(2)",
    4: "YCbCr(3)",
    9: "PhotoYCC",
    11: "CMY",
    13: "YCCK",
    14: "CIELab",
    15: "bilevel",
    19: "CIEJab",
    20: "e-sRGB",
    21: "ROMM-RGB",
    24: "e-sYCC",
}
_PROFILE_SPACES = {b"RGB ": "RGB", b"GRAY": "GRAY", b"CMYK": "CMYK"}


class Depth(NamedTuple):
    """The samples of a component or of a palette's column."""

    bits: int
    signed: bool


class Component(NamedTuple):
    """A component of the codestream."""

    depth: Depth
    dx: int  # distances of its samples, in pixels
    dy: int


class Palette(NamedTuple):
    """The colors of an image that are given by numbers."""

    rows: list[tuple[int, ...]]
    depths: list[Depth]
    channels: list[tuple[int, int | None]]  # of each channel: a component, and the column that its samples are looked up in, or None


class Jpeg2000Header(NamedTuple):
    """What a file says about its pixels."""

    height: int
    width: int
    y: int  # of the first pixel on the reference grid
    x: int
    components: list[Component]
    tiles: int
    palette: Palette | None
    order: list[int]  # of the channels: colors, then the others
    space: str | None  # "RGB", "GRAY", "YCC", "CMYK", None where the file does not say
    codestream: memoryview

    @property
    def channels(self) -> int:
        """Return the number of channels, after the palette."""
        return len(self.palette.channels) if self.palette else len(self.components)


class UnsupportedError(ValueError):
    """A legal file of a kind that we do not decode."""


class TooShortError(ValueError):
    """A file that ends in its header. ``needed`` is a length at which it would not end there."""

    def __init__(self, needed: int) -> None:
        super().__init__("it ends in its header")
        self.needed = needed


def read_header(file: memoryview) -> Jpeg2000Header:
    """Return the header of a file or codestream. Raise ValueError for a damaged one, UnsupportedError for a kind that we do not decode."""
    boxes, start, end = ({}, 0, len(file)) if file[:4] == _CODESTREAM else _read_boxes(file)
    codestream = file[start:end]
    try:
        height, width, y, x, components, tiles = _read_sizes(codestream)
    except TooShortError as error:
        raise TooShortError(start + error.needed) from None
    palette = _read_palette(boxes, len(components))
    channels = len(palette.channels) if palette else len(components)
    return Jpeg2000Header(height, width, y, x, components, tiles, palette, _read_order(boxes, channels), _read_space(boxes), codestream)


def _split_boxes(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, beginning and end of the content of each box, which may end beyond the data."""
    at = 0
    while at + 8 <= len(data):
        length, name, start = int.from_bytes(data[at : at + 4], "big"), bytes(data[at + 4 : at + 8]), 8
        # A length of 1 means that a 64-bit length follows the name.
        if length == 1:
            length, start = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if length == 0:  # up to the end
            length = len(data) - at
        if length < start:
            raise ValueError(f"a box has a length of {length}")
        yield name, at + start, at + length
        at += length


def _read_boxes(file: memoryview) -> tuple[dict[bytes, memoryview], int, int]:
    """Return the first box of each name in the first header, and beginning and end of the first codestream after it."""
    header: dict[bytes, memoryview] = {}
    end = 0
    for name, start, end in _split_boxes(file):
        # Everything else in the file, such as metadata, does not concern the pixels.
        if name == b"jp2h" and not header:
            content = file[start:end]
            for inner, first, last in _split_boxes(content):
                header.setdefault(inner, content[first:last])
        if name == b"jp2c":
            return header, start, end
    raise TooShortError(end + 8)


def _read_sizes(codestream: memoryview) -> tuple[int, int, int, int, list[Component], int]:
    if codestream[:4] != _CODESTREAM[: len(codestream)]:
        raise ValueError("its codestream does not begin with the sizes")
    if len(codestream) < 4 + _SIZ.size:
        raise TooShortError(4 + _SIZ.size)
    length, _, x1, y1, x0, y0, tile_width, tile_height, tile_x, tile_y, count = _SIZ.unpack_from(codestream, 4)
    if not 1 <= count <= 16384 or length != _SIZ.size + 3 * count:
        raise ValueError(f"its sizes do not fit {count} components")
    if len(codestream) < 4 + length:
        raise TooShortError(4 + length)
    if x0 >= x1 or y0 >= y1 or max(x1, y1) >= 1 << 31:
        raise ValueError(f"its pixels reach from {y0}, {x0} to {y1}, {x1}")
    if not (tile_x <= x0 < tile_x + tile_width and tile_y <= y0 < tile_y + tile_height):
        raise ValueError("its first tile lies outside of the image")
    components = []
    for i in range(count):
        depth, dx, dy = codestream[42 + 3 * i : 45 + 3 * i]
        # A component has the points of the grid that are multiples of dx and dy: their number is a difference of two ceilings.
        if dx == 0 or dy == 0 or -(-x1 // dx) <= -(-x0 // dx) or -(-y1 // dy) <= -(-y0 // dy):
            raise ValueError(f"its component {i} has no samples")
        components.append(Component(_depth_of(depth), dx, dy))
    tiles = -(-(x1 - tile_x) // tile_width) * -(-(y1 - tile_y) // tile_height)
    return y1 - y0, x1 - x0, y0, x0, components, tiles


def _depth_of(code: int) -> Depth:
    bits = (code & 127) + 1
    if bits > 38:
        raise ValueError(f"a component has {bits} bits a sample")
    # The highest bit is the sign, the others are the bits minus one.
    return Depth(bits, code > 127)


def _read_palette(boxes: dict[bytes, memoryview], components: int) -> Palette | None:
    colors, mapping = boxes.get(b"pclr"), boxes.get(b"cmap")
    if colors is None and mapping is None:
        return None
    if colors is None or mapping is None:
        raise ValueError("it has a palette without a mapping, or a mapping without a palette")
    if len(colors) < 3:
        raise ValueError("its palette ends in its header")
    # Annex I.5.3.4: the numbers of entries, in two bytes, and of columns; the depth of each column; the entries, each sample in whole bytes.
    entries, columns = int.from_bytes(colors[:2], "big"), colors[2]
    depths = [_depth_of(code) for code in colors[3 : 3 + columns]]
    sizes = [(depth.bits + 7) // 8 for depth in depths]
    if not 1 <= entries <= 1024 or not columns or len(depths) != columns or len(colors) < 3 + columns + entries * sum(sizes):
        raise ValueError(f"its palette does not hold {entries} colors of {columns} samples")
    rows, at = [], 3 + columns
    for _ in range(entries):
        row = []
        for size in sizes:
            row.append(int.from_bytes(colors[at : at + size], "big"))
            at += size
        rows.append(tuple(row))
    channels: list[tuple[int, int | None]] = []
    # Annex I.5.3.5: a component in two bytes, 1 if the palette replaces its samples, and the column of the palette.
    for at in range(0, len(mapping) - 3, 4):
        component, kind, column = int.from_bytes(mapping[at : at + 2], "big"), mapping[at + 2], mapping[at + 3]
        if component >= components or kind > 1 or (kind == 1 and column >= columns):
            raise ValueError("its palette's mapping names a component or column that it does not have")
        channels.append((component, column if kind == 1 else None))
    if not channels:
        raise ValueError("its palette's mapping is empty")
    return Palette(rows, depths, channels)


def _read_order(boxes: dict[bytes, memoryview], channels: int) -> list[int]:
    """Return the channels in the order of their colors, those without one last."""
    content = boxes.get(b"cdef")
    if content is None:
        return list(range(channels))
    count = int.from_bytes(content[:2], "big")
    if len(content) < 2 + 6 * count:
        raise ValueError("its channel definitions are cut off")
    places: dict[int, int] = {}
    for at in range(2, 2 + 6 * count, 6):
        channel, kind, color = struct.unpack_from(">HHH", content, at)
        if channel >= channels or channel in places:
            raise ValueError(f"its channel definitions name the channel {channel}, which it does not have or has named before")
        # Kind 0 is a color; 1 and 2 are opacity. Color 0 means the whole image.
        is_color = kind == 0 and 1 <= color <= channels
        if is_color and color in places.values():
            raise ValueError(f"two of its channels are the color {color}")
        places[channel] = color if is_color else channels + 1
    return sorted(range(channels), key=lambda channel: (places.get(channel, channels + 1), channel))


def _read_space(boxes: dict[bytes, memoryview]) -> str | None:
    content = boxes.get(b"colr")
    if content is None or len(content) < 3:
        return None
    method = content[0]
    if method == 1 and len(content) >= 7:
        number = int.from_bytes(content[3:7], "big")
        if number in _OTHER_SPACES:
            raise UnsupportedError(f"in the color space {number} ({_OTHER_SPACES[number]}); convert them to sRGB")
        return _SUPPORTED_SPACES.get(number)
    if method in (2, 3) and len(content) >= 3 + 20:  # a profile, whose header names the space
        space = bytes(content[3 + 16 : 3 + 20])
        if space == b"Lab ":
            raise UnsupportedError("with a profile of the color space CIELab; convert them to sRGB")
        return _PROFILE_SPACES.get(space)
    return None
