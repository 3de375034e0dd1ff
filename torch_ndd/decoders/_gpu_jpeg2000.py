# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000 on a GPU: nvJPEG2000 decodes plain images at the call, on its stream, into memory of torch, where the kernel finds them.

The call waits for the CPU's part, which reads the headers of the packets; the rest runs on the GPU. An image that nvJPEG2000 refuses is decoded by
OpenJPEG in the same call.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from .._core import native
from . import _gpu_engines
from ._jpeg2000_header import Jpeg2000Header

_FILE_BYTES = 16  # of csrc/decoders/gpu/device_images.cpp
_MAX_CHANNELS = 4


class DeviceImage:
    """An image in GPU memory, and the file that stands for it as long as this object lives."""

    def __init__(self, samples: torch.Tensor, shape: tuple[int, int, int], bits: int) -> None:
        self._samples = samples
        self.file = np.empty(_FILE_BYTES, np.uint8)
        self._token = native.c_function("ndd_keep_device_image")(samples.data_ptr(), *shape, bits, self.file.ctypes.data)

    def __del__(self) -> None:
        if hasattr(self, "_token"):
            native.c_function("ndd_forget_device_image")(self._token)


def is_usable(device: Any) -> bool:
    """Return whether images of a call for this device can be decoded by nvJPEG2000."""
    return device is not None and device.type == "cuda" and _gpu_engines.is_loaded("jpeg2000")


def decode(header: Jpeg2000Header, device: torch.device) -> DeviceImage | None:
    """Issue the decoding of a file whose header has been checked, on the current stream. Return None if the GPU cannot decode it."""
    if not is_plain(header):
        return None
    depth, shape = header.components[0].depth, (header.height, header.width, len(header.components))
    samples = torch.empty(shape, dtype=torch.uint8 if depth.bits <= 8 else torch.uint16, device=device)
    codestream = np.frombuffer(header.codestream, np.uint8)
    pointer = codestream.ctypes.data_as(ctypes.c_void_p)
    issued = native.c_function("ndd_issue_jpeg2000")(pointer, len(codestream), *shape, depth.bits, samples.data_ptr())
    return DeviceImage(samples, shape, depth.bits) if issued else None


def is_plain(header: Jpeg2000Header) -> bool:
    """Return whether nothing but the inverse transformation of the codestream leads to the channels, and the codestream is sound."""
    first = header.components[0]
    bits, channels = first.depth.bits, len(header.components)
    colors = header.space in (None, "RGB") or (header.space == "GRAY" and channels <= 2)
    plain = header.palette is None and header.order == list(range(channels)) and channels <= _MAX_CHANNELS and colors
    same = all(component == first for component in header.components) and (first.dx, first.dy) == (1, 1)
    if not plain or not same or first.depth.signed or bits not in range(8, 17) or (header.y, header.x) != (0, 0):
        return False
    try:
        check_codestream(header.codestream, header.tiles)
    except ValueError:
        return False  # the CPU's decoder decides
    return True


# --- Checks of the codestream (ISO/IEC 15444-1, annex A) before nvJPEG2000 reads it ---
#
# Rare segments, which change what the main header says or hold the headers of packets, are not checked but rejected: the CPU decodes such files.

_SIZ, _COD, _COC, _QCD, _QCC, _SOT, _SOD = 0xFF51, 0xFF52, 0xFF53, 0xFF5C, 0xFF5D, 0xFF90, 0xFF93
_TLM, _PLM, _PLT, _CRG, _COM = 0xFF55, 0xFF57, 0xFF58, 0xFF63, 0xFF64
_ONCE = (_SIZ, _COD, _QCD)
# Without POC, RGN and PPM. CAP and PRF belong to other parts of the standard.
_OF_MAIN_HEADER = (*_ONCE, _COC, _QCC, _TLM, _PLM, _CRG, _COM)
# Without COD, COC, QCD, QCC, RGN, POC and PPT.
_OF_TILE_PART = (_PLT, _COM)
_MAX_LEVELS = 32
_MAX_TILES = 65535  # nvJPEG2000's limit
_LARGEST_PRECINCT = 15  # as a power of two, where the coding style gives none


class _CodingStyle(NamedTuple):
    """What determines the number of a component's precincts."""

    levels: int
    precincts: bytes  # of each resolution: powers of two, the width in the lower four bits, the height in the upper ones; empty: the largest


class _Grid(NamedTuple):
    """What the first segment says: the area of the image and of a tile, and the number of components."""

    width: int
    height: int
    tile_width: int
    tile_height: int
    components: int


def check_codestream(codestream: memoryview, tiles: int) -> None:
    """Raise ValueError unless the headers are legal and agree with each other.

    There must be one main header with legal sizes, steps of quantization for every level of each component, no more packets than bytes, and
    tile-parts that lie within the codestream: of each tile at least one, in order.
    """
    if tiles > _MAX_TILES:
        raise ValueError(f"it has {tiles} tiles")
    grid, layers = _Grid(0, 0, 1, 1, 0), 0
    # By component; None stands for those that have no segment of their own.
    styles: dict[int | None, _CodingStyle] = {}
    steps: dict[int | None, int] = {}
    seen: set[tuple[int, int | None]] = set()
    end = 2
    for marker, segment, begin in _segments(codestream, end, len(codestream), _SOT):
        component: int | None = None
        if marker not in _OF_MAIN_HEADER:
            raise ValueError(f"its main header has a segment {marker:x}")
        if (marker == _SIZ) != (not seen):
            raise ValueError("its main header does not begin with its sizes")
        if marker == _SIZ:
            grid = _read_grid(segment)
        elif marker == _COD:
            layers, styles[None] = _read_coding_style(segment)
        elif marker == _QCD:
            steps[None] = _count_steps(segment)
        elif marker in (_COC, _QCC):
            component, rest = _read_component(segment, grid.components)
            if marker == _COC:
                styles[component] = _read_component_style(rest)
            else:
                steps[component] = _count_steps(rest)
        if (marker, component) in seen and marker in (*_ONCE, _COC, _QCC):
            raise ValueError(f"its main header has two segments {marker:x}")
        seen.add((marker, component))
        end = begin + 4 + len(segment)
    if not seen.issuperset((marker, None) for marker in _ONCE):
        raise ValueError("its main header lacks a segment")
    packets = 0
    for component in range(grid.components):
        style = styles.get(component, styles[None])
        if steps.get(component, steps[None]) < 3 * style.levels + 1:
            raise ValueError(f"its component {component} has more bands than steps of quantization")
        packets += layers * _count_precincts(grid, style)
    if packets > len(codestream):  # each takes a byte or more
        raise ValueError(f"it has {packets} packets in {len(codestream)} bytes")
    _check_tile_parts(codestream, end, tiles)


def _segments(codestream: memoryview, at: int, end: int, last: int) -> Iterator[tuple[int, memoryview, int]]:
    """Yield marker, content and offset of the segments from ``at`` to the marker ``last``, which must begin before ``end``."""
    while True:
        if at + 2 > end:
            raise ValueError("it ends in a header")
        marker = _number(codestream, at, 2)
        if marker == last:
            return
        length = _number(codestream, at + 2, 2) if at + 4 <= end else 0
        if length < 2 or at + 2 + length > end:
            raise ValueError(f"the segment {marker:x} of a header has a length of {length}")
        yield marker, codestream[at + 4 : at + 2 + length], at
        at += 2 + length


def _read_grid(segment: memoryview) -> _Grid:
    if len(segment) < 36 or len(segment) != 36 + 3 * _number(segment, 34, 2):
        raise ValueError("its sizes are cut off")
    right, bottom, left, top, tile_width, tile_height = (_number(segment, at, 4) for at in range(2, 26, 4))
    if left >= right or top >= bottom or 0 in (tile_width, tile_height):
        raise ValueError("its sizes are not legal")
    return _Grid(right - left, bottom - top, tile_width, tile_height, _number(segment, 34, 2))


def _read_coding_style(segment: memoryview) -> tuple[int, _CodingStyle]:
    """Read the layers and the style of all components; progression and transformation of components are checked (A.6.1)."""
    if len(segment) < 10:
        raise ValueError("its coding style is cut off")
    style, layers = segment[0], _number(segment, 2, 2)
    if style > 7 or segment[1] > 4 or layers == 0 or segment[4] > 1:
        raise ValueError("its coding style is not legal")
    return layers, _read_levels(segment[5:], bool(style & 1))


def _read_component_style(segment: memoryview) -> _CodingStyle:
    if len(segment) < 6 or segment[0] > 1:
        raise ValueError("the coding style of a component is not legal")
    return _read_levels(segment[1:], segment[0] == 1)


def _read_levels(segment: memoryview, has_precincts: bool) -> _CodingStyle:
    """Read the part that COD and COC share: levels, size of the code blocks, their style, transformation, and precincts."""
    levels, width, height = segment[0], segment[1] + 2, segment[2] + 2
    precincts = bytes(segment[5:])
    legal = levels <= _MAX_LEVELS and max(width, height) <= 10 and width + height <= 12 and segment[3] < 64 and segment[4] <= 1
    # A precinct of one row or column is legal in the smallest resolution only: a larger one has three bands, of half the size.
    halves = all(size & 15 and size >> 4 for size in precincts[1:])
    if not legal or not halves or len(precincts) != (levels + 1 if has_precincts else 0):
        raise ValueError("its coding style is not legal")
    return _CodingStyle(levels, precincts)


def _read_component(segment: memoryview, components: int) -> tuple[int, memoryview]:
    """Read the number with which a segment for one component begins, and return what follows."""
    size = 1 if components < 257 else 2
    component = _number(segment, 0, size)
    if len(segment) <= size or component >= components:
        raise ValueError(f"it has a segment for component {component} of {components}")
    return component, segment[size:]


def _count_steps(segment: memoryview) -> int:
    """Return for how many bands a segment has steps of quantization (A.6.4)."""
    style, data = segment[0] & 31 if len(segment) else 3, len(segment) - 1
    if style == 0 and data > 0:
        return data
    if style == 1 and data == 2:
        return 3 * _MAX_LEVELS + 1  # derived from the first one
    if style == 2 and data > 0 and data % 2 == 0:
        return data // 2
    raise ValueError("its quantization is not legal")


def _count_precincts(grid: _Grid, style: _CodingStyle) -> int:
    """Return how many precincts a component has at least, in all tiles and resolutions; a packet of each layer belongs to each."""
    count = 0
    for resolution in range(style.levels + 1):
        size = style.precincts[resolution] if style.precincts else _LARGEST_PRECINCT * 17
        scale = style.levels - resolution
        number = 1
        for extent, tile, power in ((grid.width, grid.tile_width, size & 15), (grid.height, grid.tile_height, size >> 4)):
            # Tiles end precincts; those that are narrower than a pixel of this resolution may have none.
            whole_tiles = extent // tile if tile >> scale else 1
            number *= max(whole_tiles, -(-extent >> scale) >> power, 1)
        count += number
    return count


def _check_tile_parts(codestream: memoryview, at: int, tiles: int) -> None:
    next_part = [0] * tiles
    while at + 12 <= len(codestream) and _number(codestream, at, 2) == _SOT:
        tile, length, part, parts = _number(codestream, at + 4, 2), _number(codestream, at + 6, 4), codestream[at + 10], codestream[at + 11]
        length = length or len(codestream) - at  # 0: up to the end
        if _number(codestream, at + 2, 2) != 10 or tile >= tiles or length < 14 or length > len(codestream) - at:
            raise ValueError(f"a part of tile {tile} has {length} bytes")
        if part != next_part[tile] or 0 < parts <= part:
            raise ValueError(f"part {part} of {parts} of tile {tile} follows {next_part[tile]} others")
        next_part[tile] += 1
        for marker, _, _ in _segments(codestream, at + 12, at + length, _SOD):
            if marker not in _OF_TILE_PART:
                raise ValueError(f"a part of tile {tile} has a segment {marker:x}")
        at += length
    if 0 in next_part:
        raise ValueError(f"{next_part.count(0)} of its tiles are missing")


def _number(data: memoryview, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")
