# SPDX-License-Identifier: Apache-2.0
"""Headers of AVIF and HEIC files, read before a codec sees the file: ISO/IEC 14496-12 (boxes), 23008-12 (items and their properties)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ._hevc_header import read_size
from ._torchcodec_header import Header, TooShortError

_MAX_BOXES = 10_000  # of one level; a file has some dozens
_MAX_PROPERTIES = 1000
_MAX_ITEMS = 10_000  # with properties; a photograph of 48 megapixels in tiles has 200
_MAX_PIECES = 100_000  # of the pixels of all items: pieces need not take a byte of the file each
_AUXILIARY_BYTES = 256  # of a box auxC that can name its kind; each of many items may have the same large one
_MAX_UNITS = 10_000  # of HEVC in an item; a still image has some
_PARAMETER_SETS = range(32, 35)  # HEVC's types of units that could replace those of the header

# What libheif takes for an image, also if it cannot decode it.
_IMAGE_ITEMS = frozenset((b"hvc1", b"grid", b"iden", b"iovl", b"av01", b"avc1", b"vvc1", b"jpeg", b"j2k1", b"mski", b"unci"))


def format_of(data: memoryview) -> str | None:
    """Return "AVIF" or "HEIC" for a file that begins like one, "HEIF" for an image of another codec, None for anything else."""
    if bytes(data[4:8]) != b"ftyp":
        return None
    major = bytes(data[8:12])
    if major in (b"avif", b"avis"):
        return "AVIF"
    if major[:3] in (b"hei", b"hev"):
        return "HEIC"
    if major not in (b"mif1", b"mif2", b"msf1"):
        return None
    size = min(int.from_bytes(data[:4], "big"), len(data))
    brands = {bytes(data[at : at + 4]) for at in range(16, size - 3, 4)}
    return "AVIF" if b"avif" in brands else "HEIC" if brands & {b"heic", b"heix"} else "HEIF"


def read_avif(data: memoryview, complete: bool) -> Header:
    """Return the header of the primary image of an AVIF file.

    Raises:
        TooShortError: the file ends before the end of its metadata, or a ``complete`` file before that of its pixels, which the codec would invent.
        ValueError: a damaged file, or an animation.
    """
    return _read_meta(_find_meta(data, complete), crops=False).header


def read_heic(data: memoryview, complete: bool) -> Header:
    """Return the header of the only image of a HEIC file, as ``read_avif`` does.

    What the codec allocates must follow from that header: tiles of a grid must cover the image without excess, and the HEVC headers of all parts must
    agree with the sizes of their items.
    """
    meta = _find_meta(data, complete)
    image = _read_meta(meta, crops=True)
    _Items(data, meta, image, complete).check()
    return image.header


def _find_meta(data: memoryview, complete: bool) -> memoryview:
    # Brands of image sequences, whose sizes are in other boxes than those that are checked here.
    if bytes(data[8:12]) in (b"avis", b"hevc", b"hevx", b"hevm", b"hevs", b"msf1"):
        raise ValueError("it is an animation")
    meta = None
    for kind, box in _list_boxes(data, complete):
        if kind == b"moov":
            raise ValueError("it is an animation")
        if kind == b"meta":
            meta = box[4:]
    if meta is None:
        raise TooShortError("its metadata are missing")
    return meta


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
        # A size of 1 announces one of 64 bits, 0 the rest of the file.
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


class _Image(NamedTuple):
    """The primary image of a file."""

    item: int
    header: Header
    properties: list[tuple[bytes, memoryview]]  # of all items
    associations: dict[int, list[int]]  # the numbers of each item's properties

    def properties_of(self, item: int) -> Iterator[tuple[bytes, memoryview]]:
        """Yield type and content of the properties of an item."""
        for index in self.associations.get(item, ()):
            if index > len(self.properties):
                raise ValueError(f"property {index} is not in the file")
            if index:  # 0 stands for none
                yield self.properties[index - 1]

    def size_of(self, item: int) -> tuple[int, int]:
        """Return height and width of an item, as it is stored."""
        height = width = 0
        for kind, box in self.properties_of(item):
            if kind == b"ispe":
                width, height = _number(box, 4, 4), _number(box, 8, 4)
        if not height or not width:
            raise ValueError("the size of an image in it is missing")
        return height, width


def _read_meta(meta: memoryview, crops: bool) -> _Image:
    """Return the primary image. The codec ``crops`` it to its clean aperture, or would ignore that."""
    boxes = dict(_list_boxes(meta))
    if not {b"pitm", b"iprp"} <= boxes.keys():
        raise ValueError("it has no primary image")
    # The version of a box, its first byte, decides between numbers of 16 and of 32 bits.
    item = _number(boxes[b"pitm"], 4, 4 if _number(boxes[b"pitm"], 0, 1) else 2)
    parts = list(_list_boxes(boxes[b"iprp"]))
    properties = [entry for kind, box in parts if kind == b"ipco" for entry in _list_boxes(box)]
    if len(properties) > _MAX_PROPERTIES:
        raise ValueError(f"it has {len(properties)} properties")
    image = _Image(item, Header(0, 0, 0), properties, _read_associations([box for kind, box in parts if kind == b"ipma"]))
    height, width = image.size_of(item)
    rotation, mirror = 0, None
    for kind, box in image.properties_of(item):
        if kind == b"irot":
            # Quarter turns, counterclockwise.
            rotation = _number(box, 0, 1) & 3
        elif kind == b"imir":
            mirror = _number(box, 0, 1) & 1
        elif kind == b"clap":
            if not crops:
                raise ValueError("images with a clean aperture are not supported")
            height, width = _read_aperture(box, height, width)
    if rotation % 2:
        height, width = width, height
    # Of any item: the codec returns four channels as soon as the file has transparency.
    has_alpha = any(_is_alpha(kind, box) for kind, box in properties)
    return image._replace(header=Header(height, width, 4 if has_alpha else 3, rotation, mirror))


def _is_alpha(kind: bytes, box: memoryview) -> bool:
    """Return whether a property says that an item is the transparency of another."""
    if kind != b"auxC":
        return False
    text = bytes(box[:_AUXILIARY_BYTES])
    return b":alpha" in text or b":auxid:1" in text


def _read_aperture(box: memoryview, height: int, width: int) -> tuple[int, int]:
    """Return height and width of the part of an image that is displayed. Encoders that pad an image to whole blocks cut it to its size so."""
    columns, columns_divisor, rows, rows_divisor = (_number(box, at, 4) for at in (0, 4, 8, 12))
    if not rows_divisor or not columns_divisor or rows % rows_divisor or columns % columns_divisor:
        raise ValueError("its clean aperture does not consist of whole pixels")
    rows, columns = rows // rows_divisor, columns // columns_divisor
    if not (0 < rows <= height and 0 < columns <= width):
        raise ValueError(f"its clean aperture of {rows}x{columns} pixels exceeds the image of {height}x{width}")
    return rows, columns


def _number(box: memoryview, at: int, size: int) -> int:
    if at + size > len(box):
        raise ValueError("a box is too short")
    return int.from_bytes(box[at : at + size], "big")


def _read_associations(boxes: list[memoryview]) -> dict[int, list[int]]:
    """Return the numbers of the properties of each item, from 1 on."""
    associations: dict[int, list[int]] = {}
    left = _MAX_ITEMS
    for box in boxes:
        wide_item, wide_index, fields = _number(box, 0, 1) >= 1, bool(_number(box, 3, 1) & 1), _Fields(box, 4)
        count = fields.number(4)
        left -= count
        if left < 0:
            raise ValueError(f"it has more than {_MAX_ITEMS} items")
        for _ in range(count):
            indices = associations.setdefault(fields.number(4 if wide_item else 2), [])
            for _ in range(fields.number(1)):
                indices.append(fields.number(2) & 0x7FFF if wide_index else fields.number(1) & 0x7F)
    return associations


class _Fields:
    """Reads the numbers of a box one after the other."""

    def __init__(self, box: memoryview, at: int = 0) -> None:
        self._box, self._at = box, at

    def number(self, size: int) -> int:
        self._at += size
        return _number(self._box, self._at - size, size)


class _Items:
    """The items of a HEIC file; the codec decodes those that make up the primary image. ``complete``: the pixels are there."""

    def __init__(self, data: memoryview, meta: memoryview, image: _Image, complete: bool) -> None:
        self._data, self._image, self._complete = data, image, complete
        self._boxes = dict(_list_boxes(meta))
        if not {b"iinf", b"iloc"} <= self._boxes.keys():
            raise ValueError("the list of its items is missing")
        self._extents = _read_extents(self._boxes[b"iloc"])
        self._stored = self._boxes.get(b"idat", memoryview(b""))
        self._read = 0  # bytes of all items
        self._coded_sizes: dict[int, tuple[int, int]] = {}  # by the identity of a property, which tiles share

    def check(self) -> None:
        """Raise ValueError for a file for which the codec could allocate more than its header says, or that it cannot decode."""
        boxes, image = self._boxes, self._image
        kinds, hidden = _read_item_kinds(boxes[b"iinf"])
        references = _read_references(boxes[b"iref"]) if b"iref" in boxes else []
        parts = {source for kind, source, _ in references if kind in (b"thmb", b"auxl")}
        images = [item for item, kind in kinds.items() if kind in _IMAGE_ITEMS and item not in hidden and item not in parts]
        if len(images) > 1:
            raise ValueError(f"it holds {len(images)} images")  # the codec decodes all of them
        # Depth maps and the like are not decoded.
        auxiliary = [source for kind, source, targets in references if kind == b"auxl" and image.item in targets]
        alphas = [item for item in dict.fromkeys(auxiliary) if any(_is_alpha(*entry) for entry in image.properties_of(item))]
        if any(image.size_of(item) != image.size_of(image.item) for item in alphas):
            raise ValueError("its transparency has another size")
        tiles_of = {source: targets for kind, source, targets in references if kind == b"dimg"}
        for item in (image.item, *alphas):
            kind = kinds.get(item, b"none")
            if kind == b"grid":
                tiles = tiles_of.get(item, [])
                if self._complete:
                    self._check_grid(item, tiles)
                for tile in dict.fromkeys(tiles):
                    self._check_coded(tile, kinds.get(tile, b"none"))
            else:
                self._check_coded(item, kind)

    def _check_grid(self, item: int, tiles: list[int]) -> None:
        content = _Fields(self._content(item))
        _, flags, rows, columns = (content.number(1) for _ in range(4))
        # Stored less one, since a grid has at least one row and column.
        rows, columns = rows + 1, columns + 1
        width, height = (content.number(4 if flags & 1 else 2) for _ in range(2))
        if (height, width) != self._image.size_of(item):
            raise ValueError(f"its size can be read in two ways: {self._image.size_of(item)} or {(height, width)}")
        if len(tiles) != rows * columns:
            raise ValueError(f"it has {len(tiles)} tiles for a grid of {rows} rows and {columns} columns")
        # Tiles may occur several times; each is checked a single time, so a long list costs nothing.
        sizes = {self._image.size_of(tile) for tile in dict.fromkeys(tiles)}
        if len(sizes) != 1:
            raise ValueError("its tiles differ in size")
        tile_height, tile_width = sizes.pop()
        if not (tile_height * (rows - 1) < height <= tile_height * rows and tile_width * (columns - 1) < width <= tile_width * columns):
            raise ValueError(f"its {rows}x{columns} tiles of {tile_height}x{tile_width} pixels do not fit an image of {height}x{width}")

    def _check_coded(self, item: int, kind: bytes) -> None:
        if kind != b"hvc1":
            raise ValueError(f"it is coded as {kind.decode('latin-1')!r}")
        configuration = next((box for kind, box in self._image.properties_of(item) if kind == b"hvcC"), None)
        if configuration is None:
            raise ValueError("the header of its HEVC stream is missing")
        # Tiles usually share a property, so hundreds of them need one parse.
        if id(configuration) not in self._coded_sizes:
            self._coded_sizes[id(configuration)] = read_size(configuration)
        size, coded = self._image.size_of(item), self._coded_sizes[id(configuration)]
        if size != coded:  # tiles that are larger than they seem would be written over each other
            raise ValueError(f"its size can be read in two ways: {size} or {coded}")
        if self._complete:
            self._check_units(self._content(item), (_number(configuration, 21, 1) & 3) + 1)

    def _check_units(self, content: memoryview, length_bytes: int) -> None:
        """Raise ValueError if a stream brings a header of its own, which could promise another size."""
        at = 0
        for _ in range(_MAX_UNITS):
            if at == len(content):
                return
            length = _number(content, at, length_bytes)
            at += length_bytes
            # The type of a unit is in the six bits after the highest one.
            if _number(content, at, 1) >> 1 & 0x3F in _PARAMETER_SETS:
                raise ValueError("its HEVC stream has a second header")
            if at + length > len(content):
                raise TooShortError("it ends in the middle of its pixels")
            at += length
        raise ValueError(f"its HEVC stream has more than {_MAX_UNITS} units")

    def _content(self, item: int) -> memoryview:
        pieces = []
        for stored_here, offset, length in self._extents.get(item, []):
            source = self._stored if stored_here else self._data
            piece = source[offset : offset + length] if length else source[offset:]
            if len(piece) < length:
                raise TooShortError("it ends in the middle of its pixels")
            # Items that overlap could make a small file expand without bound.
            self._read += len(piece)
            if self._read > len(self._data):
                raise ValueError("its items overlap")
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _read_item_kinds(box: memoryview) -> tuple[dict[int, bytes], set[int]]:
    """Return the type of each item, and the items that are not to be shown."""
    kinds, hidden = {}, set()
    for kind, entry in _list_boxes(box[4 + (4 if _number(box, 0, 1) else 2) :]):
        if kind != b"infe" or _number(entry, 0, 1) < 2:
            continue
        fields = _Fields(entry, 3)
        flags, item = fields.number(1), fields.number(4 if _number(entry, 0, 1) > 2 else 2)
        fields.number(2)  # protection
        kinds[item] = fields.number(4).to_bytes(4, "big")
        if flags & 1:
            hidden.add(item)
    return kinds, hidden


def _read_references(box: memoryview) -> list[tuple[bytes, int, list[int]]]:
    """Return type, source and targets of the references between items."""
    size, references = 4 if _number(box, 0, 1) else 2, []
    for kind, entry in _list_boxes(box[4:]):
        fields = _Fields(entry)
        source = fields.number(size)
        references.append((kind, source, [fields.number(size) for _ in range(fields.number(2))]))
    return references


def _read_extents(box: memoryview) -> dict[int, list[tuple[bool, int, int]]]:
    """Return the pieces of each item: whether it lies in the metadata instead of the file, its offset and length; 0 is all the rest."""
    version, fields = _number(box, 0, 1), _Fields(box, 4)
    sizes = fields.number(2)
    offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_size = sizes & 15 if version in (1, 2) else 0
    extents: dict[int, list[tuple[bool, int, int]]] = {}
    left = _MAX_PIECES
    for _ in range(fields.number(4 if version == 2 else 2)):
        item = fields.number(4 if version == 2 else 2)
        # 0: in the file, 1: in the box idat. Others build items from items.
        method = fields.number(2) & 15 if version in (1, 2) else 0
        elsewhere, base = fields.number(2), fields.number(base_size)
        if method > 1 or elsewhere:
            raise ValueError("its pixels are not in the file")
        pieces = extents[item] = []
        count = fields.number(2)
        left -= count
        if left < 0:
            raise ValueError(f"its pixels are in more than {_MAX_PIECES} pieces")
        for _ in range(count):
            fields.number(index_size)
            pieces.append((method == 1, base + fields.number(offset_size), fields.number(length_size)))
    return extents
