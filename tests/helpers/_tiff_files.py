# SPDX-License-Identifier: Apache-2.0
"""TIFF files of every layout, written from integers."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

SHORT, LONG, RATIONAL, SIGNED_BYTE, UNDEFINED, LONG8 = 3, 4, 5, 6, 7, 16


@dataclass
class Layout:
    """How a file holds its samples."""

    bits: int = 8
    photometric: int = 1
    compression: int = 1
    predictor: int = 1
    sample_format: int | None = None
    planar: bool = False
    tile: tuple[int, int] | None = None
    rows: int = 16
    order: str = "<"
    big: bool = False
    fill_order: int = 1
    orientation: int | None = None
    tags: dict[int, tuple[int, list[int]]] = field(default_factory=dict)  # type and values; of rationals a numerator and a denominator each
    without: tuple[int, ...] = ()
    encode: Callable[[np.ndarray], bytes] | None = None  # the bytes of a strip or tile of samples


def write_tiff(samples: np.ndarray, layout: Layout) -> bytes:
    """Return the file of samples (H, W, C): unsigned integers, which are the patterns of floating-point ones."""
    height, width, channels = samples.shape
    planes = [samples[..., c : c + 1] for c in range(channels)] if layout.planar else [samples]
    tall, wide = layout.tile or (min(layout.rows, height), width)
    pieces = []
    for plane in planes:
        for y in range(0, height, tall):
            for x in range(0, width, wide):
                piece = plane[y : y + tall, x : x + wide]
                if layout.tile:
                    piece = np.pad(piece, ((0, tall - piece.shape[0]), (0, wide - piece.shape[1]), (0, 0)), "edge")
                pieces.append(layout.encode(piece) if layout.encode else encode_piece(piece, layout))
    tags = {
        256: (LONG, [width]),
        257: (LONG, [height]),
        258: (SHORT, [layout.bits] * channels),
        259: (SHORT, [layout.compression]),
        262: (SHORT, [layout.photometric]),
        277: (SHORT, [channels]),
        284: (SHORT, [2 if layout.planar else 1]),
        **({322: (LONG, [wide]), 323: (LONG, [tall])} if layout.tile else {278: (LONG, [tall])}),
    }
    if layout.fill_order != 1:
        tags[266] = (SHORT, [layout.fill_order])
    if layout.orientation is not None:
        tags[274] = (SHORT, [layout.orientation])
    if layout.predictor != 1:
        tags[317] = (SHORT, [layout.predictor])
    if layout.sample_format is not None:
        tags[339] = (SHORT, [layout.sample_format] * channels)
    return assemble(tags | layout.tags, pieces, layout)


def encode_piece(piece: np.ndarray, layout: Layout) -> bytes:
    rows = [pack_row(row, layout) for row in piece.reshape(piece.shape[0], -1, piece.shape[2])]
    packed = b"".join(rows)
    match layout.compression:
        case 8 | 32946:
            packed = zlib.compress(packed)
        case 32773:  # a literal run for each byte; never across rows
            packed = b"".join(bytes([0, byte]) for byte in packed)
    if layout.fill_order == 2:
        packed = np.packbits(np.unpackbits(np.frombuffer(packed, np.uint8)).reshape(-1, 8)[:, ::-1]).tobytes()
    return packed


def pack_row(row: np.ndarray, layout: Layout) -> bytes:
    """Pack samples (W, C)."""
    bits, size = layout.bits, layout.bits // 8
    if bits % 8:
        shifts = np.arange(bits - 1, -1, -1, dtype=np.uint64)
        return np.packbits((row.reshape(-1, 1).astype(np.uint64) >> shifts & np.uint64(1)).astype(np.uint8)).tobytes()
    values = row.astype(np.uint64)
    if layout.predictor == 2:
        values = np.diff(values, axis=0, prepend=np.uint64(0))
    most_first = values.astype(">u8").reshape(-1, 1).view(np.uint8)[:, 8 - size :]
    if layout.predictor == 3:
        planes = most_first.T.reshape(-1)
        return np.diff(planes.reshape(-1, row.shape[1]), axis=0, prepend=np.uint8(0)).astype(np.uint8).tobytes()
    return (most_first[:, ::-1] if layout.order == "<" else most_first).tobytes()


def assemble(tags: dict[int, tuple[int, list[int]]], pieces: list[bytes], layout: Layout) -> bytes:
    order, big = layout.order, layout.big
    start = 16 if big else 8
    body, offsets = bytearray(), []
    for piece in pieces:
        offsets.append(start + len(body))
        body += piece + bytes(len(piece) % 2)
    places, lengths = (324, 325) if layout.tile else (273, 279)
    tags = {places: (LONG8 if big else LONG, offsets), lengths: (LONG, [len(piece) for piece in pieces]), **tags}
    formats = {SHORT: "H", LONG: "I", RATIONAL: "I", SIGNED_BYTE: "b", UNDEFINED: "B", LONG8: "Q"}
    entries = b""
    for tag, (kind, values) in sorted(tags.items()):
        if tag in layout.without:
            continue
        packed = struct.pack(f"{order}{len(values)}{formats[kind]}", *values)
        if len(packed) > (8 if big else 4):
            body += bytes(len(body) % 2)
            at = start + len(body)
            body += packed
            packed = struct.pack(order + ("Q" if big else "I"), at)
        count = len(values) // (2 if kind == RATIONAL else 1)
        entries += struct.pack(order + ("HHQ" if big else "HHI"), tag, kind, count) + packed.ljust(8 if big else 4, b"\0")
    body += bytes(len(body) % 2)
    count = len(entries) // (20 if big else 12)
    mark = b"II" if order == "<" else b"MM"
    if big:
        return mark + struct.pack(order + "HHHQ", 43, 8, 0, start + len(body)) + bytes(body) + struct.pack(order + "Q", count) + entries + bytes(8)
    return mark + struct.pack(order + "HI", 42, start + len(body)) + bytes(body) + struct.pack(order + "H", count) + entries + bytes(4)


def encode_chroma_blocks(piece: np.ndarray, across: int, down: int) -> bytes:
    """Return YCbCr samples (H, W, 3) as blocks of Y with one Cb and one Cr each, those of their first pixel."""
    height, width, _ = piece.shape
    padded = np.pad(piece, ((0, -height % down), (0, -width % across), (0, 0)), "edge")
    rows, columns = padded.shape[0] // down, padded.shape[1] // across
    blocks = padded.reshape(rows, down, columns, across, 3).transpose(0, 2, 1, 3, 4)
    luma = blocks[..., 0].reshape(rows, columns, -1)
    return np.concatenate([luma, blocks[:, :, 0, 0, 1:]], -1).astype(np.uint8).tobytes()
