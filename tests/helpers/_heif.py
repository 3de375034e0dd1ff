# SPDX-License-Identifier: Apache-2.0
"""HEIC files made of images that libheif's encoder has compressed: grids of tiles, turned and damaged ones, which it does not write itself."""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pillow_heif
from PIL import Image


def encode(pixels: np.ndarray) -> bytes:
    """Return a HEIC file as libheif writes it."""
    pillow_heif.from_pillow(Image.fromarray(pixels)).save(file := io.BytesIO(), quality=-1, chroma=444)
    return file.getvalue()


def box(kind: bytes, *content: bytes) -> bytes:
    data = b"".join(content)
    return struct.pack(">I", 8 + len(data)) + kind + data


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 8], data[at + 8 : at + size]
        at += size


@dataclass
class Item:
    """A part of a file."""

    kind: bytes
    content: bytes
    properties: list[bytes]
    hidden: bool = False
    references: list[tuple[bytes, list[int]]] = field(default_factory=list)


def coded_item(pixels: np.ndarray, *turns: bytes, hidden: bool = False) -> Item:
    """Return the item of an image: its stream, its header and its size."""
    parts = dict(boxes(encode(pixels)))
    properties = dict(boxes(dict(boxes(dict(boxes(parts[b"meta"][4:]))[b"iprp"]))[b"ipco"]))
    return Item(b"hvc1", parts[b"mdat"], [box(b"hvcC", properties[b"hvcC"]), size(*pixels.shape[:2]), *turns], hidden)


def size(height: int, width: int) -> bytes:
    return box(b"ispe", bytes(4), struct.pack(">II", width, height))


def aperture(height: int, width: int) -> bytes:
    """Return the property that shows the middle of an image."""
    return box(b"clap", struct.pack(">8I", width, 1, height, 1, 0, 1, 0, 1))


def rotation(quarters: int) -> bytes:
    return box(b"irot", bytes([quarters]))


def reflection(axis: int) -> bytes:
    return box(b"imir", bytes([axis]))


def grid_item(rows: int, columns: int, height: int, width: int, tiles: list[int], *turns: bytes, stated: tuple[int, int] | None = None) -> Item:
    """Return the item of an image that consists of tiles. ``stated`` is the size that the file says besides that of the grid."""
    content = struct.pack(">4BHH", 0, 0, rows - 1, columns - 1, width, height)
    return Item(b"grid", content, [size(*(stated or (height, width))), *turns], references=[(b"dimg", tiles)])


def file_of(items: list[Item], brand: bytes = b"heic", brands: bytes = b"mif1heic") -> bytes:
    """Return the file of items, numbered from 1, of which the first is the primary one."""
    head = box(b"ftyp", brand, bytes(4), brands)
    meta = _meta(items, 0)
    return head + _meta(items, len(head) + len(meta) + 8) + box(b"mdat", *(item.content for item in items))


def _meta(items: list[Item], begin: int) -> bytes:
    infos, places, associations, references, properties = [], [], [], [], []
    at, count = begin, 0
    for number, item in enumerate(items, 1):
        infos.append(box(b"infe", bytes([2, 0, 0, item.hidden]), struct.pack(">HH", number, 0), item.kind, b"\0"))
        places.append(struct.pack(">HHHII", number, 0, 1, at, len(item.content)))
        at += len(item.content)
        properties += item.properties
        associations.append(struct.pack(">HB", number, len(item.properties)) + bytes(range(count + 1, count + 1 + len(item.properties))))
        count += len(item.properties)
        references += [box(kind, struct.pack(f">HH{len(to)}H", number, len(to), *to)) for kind, to in item.references]
    return box(
        b"meta",
        bytes(4),
        box(b"hdlr", bytes(8), b"pict", bytes(13)),
        box(b"pitm", bytes(4), struct.pack(">H", 1)),
        box(b"iloc", bytes(4), b"\x44\0", struct.pack(">H", len(items)), *places),
        box(b"iinf", bytes(4), struct.pack(">H", len(items)), *infos),
        box(b"iref", bytes(4), *references),
        box(b"iprp", box(b"ipco", *properties), box(b"ipma", bytes(4), struct.pack(">I", len(items)), *associations)),
    )
