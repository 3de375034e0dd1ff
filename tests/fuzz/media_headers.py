# SPDX-License-Identifier: Apache-2.0
"""Headers of audio, videos, arrays and FITS files that contradict themselves or the data."""

import gzip
import random
import struct

NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    24,
    31,
    32,
    64,
    255,
    256,
    1000,
    8000,
    32767,
    32768,
    65535,
    1 << 20,
    (1 << 24) - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
)


def number(draw: random.Random, bits: int) -> int:
    value = draw.choice(NUMBERS) if draw.random() < 0.8 else draw.getrandbits(draw.randrange(1, bits + 1))
    return value & ((1 << bits) - 1)


def _chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(content) if size is None else size) + content + bytes(len(content) % 2)


def wav(file: bytes, draw: random.Random) -> bytes:
    """Fields of fmt at random; chunks missing, repeated, in another order; sizes that do not fit; RF64 and its sizes of 64 bits."""
    at = file.index(b"fmt ")
    format_bytes = bytearray(file[at + 8 : at + 8 + struct.unpack_from("<I", file, at + 4)[0]])
    sound = file[file.index(b"data") + 8 :]
    for _ in range(draw.randrange(1, 4)):
        field = draw.choice(((0, "H", 16), (2, "H", 16), (4, "I", 32), (8, "I", 32), (12, "H", 16), (14, "H", 16)))
        value = draw.choice((1, 2, 3, 6, 7, 0x11, 0x31, 0x55, 0xFFFE)) if field[0] == 0 else number(draw, field[2])
        struct.pack_into(f"<{field[1]}", format_bytes, field[0], value)
    if draw.random() < 0.3:
        format_bytes += struct.pack("<HHI", draw.choice((22, 0, 2, 65535)), number(draw, 16), number(draw, 32)) + draw.randbytes(16)
    chunks = [_chunk(b"fmt ", bytes(format_bytes), number(draw, 32) if draw.random() < 0.2 else None)]
    if draw.random() < 0.4:
        chunks.append(_chunk(draw.choice((b"fact", b"LIST", b"cue ", b"smpl", b"bext", b"PEAK", b"fmt ")), draw.randbytes(draw.randrange(60))))
    chunks.append(_chunk(b"data", sound, number(draw, 32) if draw.random() < 0.5 else None))
    if draw.random() < 0.2:
        draw.shuffle(chunks)
    if draw.random() < 0.2:
        chunks.append(draw.choice(chunks))
    if draw.random() < 0.15:
        ds64 = struct.pack("<QQQI", *(draw.choice((number(draw, 32), 2**63, 2**64 - 1)) for _ in range(3)), number(draw, 32))
        return draw.choice((b"RF64", b"BW64")) + b"\xff\xff\xff\xff" + b"WAVE" + _chunk(b"ds64", ds64) + b"".join(chunks)
    body = b"WAVE" + b"".join(chunks)
    return draw.choice((b"RIFF", b"RIFX", b"RIFF")) + struct.pack("<I", draw.choice((len(body), number(draw, 32)))) + body


def _bits(data: bytearray, at: int, count: int, value: int) -> None:
    for k in range(count):
        bit = value >> (count - 1 - k) & 1
        byte, mask = (at + k) // 8, 0x80 >> (at + k) % 8
        data[byte] = data[byte] & ~mask | (mask if bit else 0)


def flac(file: bytes, draw: random.Random) -> bytes:
    """Fields of STREAMINFO; blocks of wrong lengths or kinds, repeated, missing; frame headers."""
    data = bytearray(file)
    for _ in range(draw.randrange(1, 3)):
        at, bits = draw.choice(((0, 16), (16, 16), (32, 24), (56, 24), (80, 20), (100, 3), (103, 5), (108, 36)))
        _bits(data, 64 + at, bits, number(draw, bits))
    kind = draw.randrange(5)
    if kind == 0:
        data[5:8] = number(draw, 24).to_bytes(3, "big")
    elif kind == 1:
        data[42:42] = bytes([draw.randrange(256)]) + draw.choice((5, 34, 2**24 - 1)).to_bytes(3, "big") + draw.randbytes(draw.choice((0, 5, 34)))
    elif kind == 2:
        data[42:42] = bytes(data[4:42])
        data[4] = 0
    elif kind == 3:
        at = data.find(b"\xff\xf8", 42)
        if at > 0:
            data[at + 2 : at + 4] = draw.randbytes(2)
    return bytes(data)


def _ogg_pages(file: bytes) -> list[bytearray]:
    pages, at = [], 0
    while file[at : at + 4] == b"OggS":
        size = 27 + file[at + 26] + sum(file[at + 27 : at + 27 + file[at + 26]])
        pages.append(bytearray(file[at : at + size]))
        at += size
    return pages


_TABLE = []
for _value in range(256):
    _crc = _value << 24
    for _ in range(8):
        _crc = (_crc << 1 ^ (0x04C11DB7 if _crc & 0x80000000 else 0)) & 0xFFFFFFFF
    _TABLE.append(_crc)


def _with_checksum(page: bytearray) -> bytes:
    page[22:26] = bytes(4)
    value = 0
    for byte in page:
        value = (value << 8 & 0xFFFFFFFF) ^ _TABLE[value >> 24 ^ byte]
    page[22:26] = struct.pack("<I", value)
    return bytes(page)


def ogg(file: bytes, draw: random.Random) -> bytes:
    """Pages with right checksums: other positions, streams, numbers and segment tables; headers and codebooks of the codec changed."""
    pages = _ogg_pages(file)
    for _ in range(draw.randrange(1, 4)):
        page = draw.choice(pages[: draw.choice((1, 2, 3, len(pages)))])
        kind = draw.randrange(6)
        if kind == 0:
            struct.pack_into("<q", page, 6, draw.choice((-1, 0, 1, 2**31, 2**62, -(2**63))))
        elif kind == 1:
            struct.pack_into("<I", page, draw.choice((14, 18)), number(draw, 32))
        elif kind == 2:
            page[5] = draw.randrange(8)
        elif kind == 3:
            page[27 + draw.randrange(page[26])] = draw.choice((0, 1, 254, 255))
        else:
            first = 27 + page[26]
            for _ in range(draw.randrange(1, 4)):
                page[min(len(page) - 1, first + draw.randrange(draw.choice((30, 60, max(1, len(page) - first)))))] = draw.choice(
                    (0, 255, draw.randrange(256))
                )
    if draw.random() < 0.2:
        pages.insert(draw.randrange(len(pages)), draw.choice(pages))
    if draw.random() < 0.1:
        del pages[draw.randrange(len(pages))]
    return b"".join(map(_with_checksum, pages))


def mp3(file: bytes, draw: random.Random) -> bytes:
    """Frame headers that change their kind, a Xing header with other numbers, ID3 tags of other sizes."""
    data = bytearray(file)
    frames = [k for k in range(len(data) - 4) if data[k] == 0xFF and data[k + 1] & 0xE0 == 0xE0]
    for _ in range(draw.randrange(1, 5)):
        at = draw.choice(frames[: draw.choice((1, 2, len(frames)))])
        data[at + draw.randrange(1, 4)] = draw.randrange(256) | (0xE0 if draw.random() < 0.5 else 0)
    at = max(data.find(b"Xing"), data.find(b"Info"))
    if at > 0 and draw.random() < 0.5:
        struct.pack_into(">III", data, at + 4, draw.randrange(16), number(draw, 32), number(draw, 32))
    if draw.random() < 0.3:
        size = number(draw, 28)
        tag = b"ID3" + bytes([draw.choice((2, 3, 4, 255)), 0, draw.randrange(256)]) + bytes(size >> shift & 127 for shift in (21, 14, 7, 0))
        data[:0] = tag + draw.choice((b"", b"TIT2\x7f\xff\xff\xff\0\0", bytes(20)))
    return bytes(data)


_EXTENTS = (
    *("()", "(0,)", "(-1,)", "(600,)", "(601,)", "(2**31,)", "(18446744073709551616,)", "(4294967296, 4294967296)", "(9223372036854775807, 8)"),
    *("(1,) * 9", "(30, 20)", "(20, 31)", "(0, 9223372036854775807)", "(" + "1, " * 70 + ")", "(1.5,)", "('a',)", "[20, 30]", "(20 30)", "("),
)


def npy(file: bytes, draw: random.Random) -> bytes:
    """Another shape, type and order; a header of another length; what Python's text could be."""
    extents = "(20, 30)" if draw.random() < 0.4 else draw.choice(_EXTENTS)
    types = (
        "<f8",
        ">f8",
        "<f4",
        "|u1",
        "<i8",
        "|O",
        "<U10",
        "|S1000000000",
        "<f16",
        "[('a', '<f4')]",
        "",
        "<f3",
        "<c16",
        "|V8",
        "<M8[ns]",
        "<f2",
        "|b1",
    )
    kind, order = "<f8" if draw.random() < 0.5 else draw.choice(types), draw.choice(("False", "True", "1", "None"))
    text = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {extents}, }}"
    if draw.random() < 0.1:
        text = draw.choice(
            ("{}", "{'shape': (3,)}", text * 2, "(" * 5000, "{'descr': '<f8', 'descr': '|O', 'fortran_order': False, 'shape': (600,)}")
        )
    header = text.encode().ljust(draw.choice((0, 118, 300))) + b"\n"
    length = draw.choice((len(header), len(header), len(header), number(draw, 16)))
    version = draw.choice((1, 1, 1, 2, 3, 0, 255))
    return b"\x93NUMPY" + bytes([version, draw.choice((0, 0, 9))]) + struct.pack("<H" if version == 1 else "<I", length) + header + file[128:]


_BOXES = (
    b"mvhd",
    b"tkhd",
    b"mdhd",
    b"stsd",
    b"avc1",
    b"stts",
    b"stsc",
    b"stsz",
    b"stco",
    b"ctts",
    b"stss",
    b"elst",
    b"hdlr",
    b"avcC",
    b"trak",
    b"moov",
)


def mp4(file: bytes, draw: random.Random) -> bytes:
    """Numbers of the boxes that say how many frames there are, how large, when and where."""
    data = bytearray(file)
    for _ in range(draw.randrange(1, 4)):
        at = data.find(draw.choice(_BOXES))
        if at < 0:
            continue
        if draw.random() < 0.2:
            struct.pack_into(">I", data, at - 4, number(draw, 32))
            continue
        size = max(12, min(struct.unpack_from(">I", data, at - 4)[0], 200, len(data) - at))
        place = at + 4 + draw.randrange(0, size - 8, 2)
        if place + 4 <= len(data):
            struct.pack_into(*((">I", data, place, number(draw, 32)) if draw.random() < 0.7 else (">H", data, place, number(draw, 16))))
    return bytes(data)


_ELEMENTS = (
    "B0",
    "BA",
    "2AD7B1",
    "4489",
    "D7",
    "83",
    "9A",
    "23E383",
    "E7",
    "A3",
    "1F43B675",
    "1654AE6B",
    "AE",
    "E0",
    "86",
    "63A2",
    "1C53BB6B",
    "18538067",
)


def webm(file: bytes, draw: random.Random) -> bytes:
    """Sizes and values of the elements that describe the video and its blocks."""
    data = bytearray(file)
    for _ in range(draw.randrange(1, 4)):
        element = bytes.fromhex(draw.choice(_ELEMENTS))
        at = data.find(element)
        if at < 0:
            continue
        at += len(element)
        if draw.random() < 0.4:
            data[at] = draw.choice((0x80, 0x81, 0xFF, 0x01, 0x00, 0x40, draw.randrange(256)))
        else:
            for k in range(draw.randrange(1, 9)):
                if at + 1 + k < len(data):
                    data[at + 1 + k] = draw.choice((0, 1, 127, 255, draw.randrange(256)))
    return bytes(data)


def fits(file: bytes, draw: random.Random) -> bytes:
    """Cards with other values, repeated, missing and misspelt, of the image and of compressed ones."""
    cards = {
        "BITPIX": (8, 16, 32, 64, -32, -64, 0, 7, -8, 1000), "NAXIS": (0, 1, 2, 3, 999, 1000, -1), "NAXIS1": None, "NAXIS2": None, "NAXIS3": None,
        "PCOUNT": None, "GCOUNT": None, "BSCALE": (0, 1e300, "NaN", -1), "BZERO": (0, 32768, 1e300), "BLANK": None, "EXTEND": ("T", "F", 3),
        "SIMPLE": ("T", "F", 1), "GROUPS": ("T",), "ZIMAGE": ("T", "F"), "ZBITPIX": (8, 16, -64, 3), "ZNAXIS": (0, 1, 2, 50),
        "ZNAXIS1": None, "ZNAXIS2": None,
        "ZTILE1": None, "ZTILE2": None, "ZCMPTYPE": ("'RICE_1'", "'GZIP_1'", "'HCOMPRESS_1'", "'PLIO_1'", "'NOCOMPRESS'", "'x'"), "TFIELDS": None,
        "TFORM1": ("'1PB(1)'", "'1QB(999999999)'", "'1PB'", "'999999999999J'", "''"), "ZVAL1": None, "ZVAL2": None, "THEAP": None,
    }  # fmt: skip
    data = bytearray(file)
    for _ in range(draw.randrange(1, 4)):
        name = draw.choice(list(cards))
        values = cards[name]
        value = draw.choice(values) if values else draw.choice((number(draw, 32), -number(draw, 31), 10**12, 10**19))
        card = f"{name:<8}= {value:>20}".ljust(80).encode()[:80]
        found = [at for at in range(0, len(data) - 79, 80) if data[at : at + 8] == f"{name:<8}".encode()]
        if found and draw.random() < 0.9:
            at = draw.choice(found)
            data[at : at + 80] = card
        else:
            at = draw.randrange(0, min(len(data), 5760) // 80) * 80
            data[at : at + 80] = card
    return bytes(data)


def fits_gz(file: bytes, draw: random.Random) -> bytes:
    """Other cards of the compressed file, or other fields in the header of gzip."""
    if draw.random() < 0.7:
        return gzip.compress(fits(gzip.decompress(file), draw))
    return bytes([*file[:2], *(draw.choice((0, 1, 4, 8, 31, 255)) for _ in range(8))]) + file[10:]


def numbers_at_the_beginning(file: bytes, draw: random.Random) -> bytes:
    """Numbers of the header, of any size."""
    data = bytearray(file)
    for _ in range(draw.randrange(1, 4)):
        kind = draw.choice((">H", ">I", ">Q"))
        struct.pack_into(kind, data, draw.randrange(0, min(len(data), 80) - 8, 2), number(draw, 8 * struct.calcsize(kind)))
    return bytes(data)


def avi(file: bytes, draw: random.Random) -> bytes:
    """Sizes and fields of the chunks."""
    data = bytearray(file)
    marks = (b"avih", b"strh", b"strf", b"idx1", b"movi", b"LIST", b"00dc", b"indx")
    for _ in range(draw.randrange(1, 4)):
        at = data.find(draw.choice(marks), draw.randrange(200) if draw.random() < 0.3 else 0)
        if at >= 0 and at + 60 < len(data):
            struct.pack_into("<I", data, at + draw.randrange(4, 52, 4), number(draw, 32))
    return bytes(data)


def ts(file: bytes, draw: random.Random) -> bytes:
    """Fields of packets; packets missing, repeated, in another order; a beginning within a packet."""
    packets = [bytearray(file[at : at + 188]) for at in range(0, len(file), 188)]
    for _ in range(draw.randrange(1, 5)):
        packet = draw.choice(packets)
        packet[draw.randrange(draw.choice((5, 20, len(packet))))] = draw.choice((0, 1, 0x47, 127, 255, draw.randrange(256)))
    kind = draw.randrange(5)
    if kind == 0:
        del packets[: draw.randrange(len(packets))]
    elif kind == 1:
        del packets[draw.randrange(1, len(packets)) :]
    elif kind == 2:
        packets.insert(draw.randrange(len(packets)), draw.choice(packets))
    return b"".join(packets)[draw.randrange(188) if draw.random() < 0.2 else 0 :]


CONTRADICTORY = {
    "wav": wav,
    "flac": flac,
    "vorbis": ogg,
    "opus": ogg,
    "mp3": mp3,
    "npy": npy,
    "mp4": mp4,
    "webm": webm,
    "avi": avi,
    "ts": ts,
    "au": numbers_at_the_beginning,
    "caf": numbers_at_the_beginning,
    "fits_gz": fits_gz,
    "fits": fits,
    "fits_tiles": fits,
}
