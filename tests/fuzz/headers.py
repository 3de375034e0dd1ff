# SPDX-License-Identifier: Apache-2.0
"""Headers that contradict themselves or the pixels: each function makes one file of a format from a good one."""

import random
import struct
import zlib
from collections.abc import Callable

SIZES = (
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    39,
    40,
    41,
    55,
    56,
    57,
    64,
    100,
    255,
    256,
    640,
    1000,
    4480,
    16383,
    16384,
    32767,
    32768,
    65535,
    65536,
    1 << 24,
    2**31 - 1,
    2**31,
)
SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 64, 255)


def size(draw: random.Random, bits: int = 32) -> int:
    value = draw.choice(SIZES) if draw.random() < 0.8 else draw.getrandbits(draw.randrange(1, bits + 1))
    return value & ((1 << bits) - 1)


def jpeg(file: bytes, draw: random.Random) -> bytes:
    """Another size, precision, sampling or number of components; two frames; markers without a length; segments of wrong lengths; another coding;
    other bytes between the segments."""
    data = bytearray(file)
    at = next((i for i in range(2, len(data) - 9) if data[i] == 0xFF and data[i + 1] in (0xC0, 0xC1, 0xC2)), 2)
    length = 2 + struct.unpack_from(">H", data, at + 2)[0]
    frame = bytearray(data[at : at + length])
    kind = draw.randrange(11)
    if kind == 0 or len(frame) < 11:
        struct.pack_into(">HH", data, at + 5, size(draw, 16), size(draw, 16))
    elif kind == 1:
        struct.pack_into(">HH", frame, 5, size(draw, 16), size(draw, 16))
        where = draw.choice((2, at, at + length, draw.randrange(2, len(data))))
        data[where:where] = frame
    elif kind == 2:
        data[at + 4] = draw.choice(SMALL)
    elif kind == 3:
        data[at + 9] = draw.choice(SMALL)
    elif kind == 4:
        data[at + 11 + 3 * draw.randrange(max(1, data[at + 9]))] = draw.choice((0x00, 0x11, 0x12, 0x21, 0x22, 0x41, 0x44, 0x14, 0x33, 0xFF))
    elif kind == 5:
        data[at + 1] = 0xC0 | draw.randrange(16)
    elif kind == 6:
        struct.pack_into(">HH", frame, 5, size(draw, 16), size(draw, 16))
        bare = bytes([0xFF, draw.choice((0xD0, 0xD7, 0xD8, 0x01, 0xDC, 0x02))])
        data[draw.choice((2, at)) : 2] = bare
        data[2 + len(bare) : 2 + len(bare)] = frame if draw.random() < 0.5 else struct.pack(">H", length + 2) + frame
    elif kind == 7:
        struct.pack_into(">H", data, at + 2, draw.choice((0, 1, 2, 7, 8, 11, 17, 20, 65535)))
    elif kind in (8, 9):
        scan = file.find(b"\xff\xda")
        for _ in range(draw.choice((1, 2, 5))):
            where = draw.choice((2, at, at + length, scan if scan > 0 else at, draw.randrange(2, len(data))))
            data[where:where] = draw.choice((b"\0", b"\xff\0", b"\xff\xff", b"\xff\xd3", b"\xff\x01", b"\xff", b"\xff\xc0", draw.randbytes(9)))
    else:
        segment = b"\xff\xe1" + struct.pack(">H", draw.choice((0, 1, 2, 6, 7, 8, 9, 200))) + b"Exif\0\0" + draw.randbytes(draw.randrange(40))
        data[2:2] = segment
    return bytes(data)


def exif(draw: random.Random) -> bytes:
    """EXIF data with any orientation, whose directory may be anywhere, with any number of entries of any type."""
    order = draw.choice("<>")
    start, count = draw.choice((8, 8, 8, 0, 7, 9, size(draw))), draw.choice((1, 1, 0, 2, 65535))
    entry = struct.pack(
        order + "HHIHH", draw.choice((0x0112, 0x0112, 0x0100)), draw.choice((3, 3, 4)), draw.choice((1, 1, size(draw))), draw.randrange(10), 0
    )
    data = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIH", 42, start, count) + entry * draw.choice((1, 1, 2)) + bytes(draw.randrange(6))
    return draw.choice((b"", b"Exif\0\0")) + data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]


def png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(file: bytes, draw: random.Random) -> bytes:
    """Another IHDR with a right checksum, a second one, chunks moved, dropped or repeated, palettes of other lengths, frames of an animation, EXIF
    data, curves of brightness, no end."""
    width, height, depth, colors, compression, filters, interlaced = struct.unpack_from(">IIBBBBB", file, 16)
    chunks, at = [], 8
    while at + 12 <= len(file):
        length = struct.unpack_from(">I", file, at)[0]
        chunks.append(file[at : at + 12 + length])
        at += 12 + length
    kind = draw.randrange(8)
    if kind == 0:
        width, height = draw.choice(((size(draw), height), (width, size(draw)), (size(draw), size(draw)), (height, width)))
    elif kind == 1:
        depth = draw.choice(SMALL)
    elif kind == 2:
        colors = draw.choice((0, 1, 2, 3, 4, 5, 6, 7))
    elif kind == 3:
        compression, filters, interlaced = draw.choice(((0, 0, 1), (0, 0, 0), (1, 0, 0), (0, 64, 0), (0, 0, 2)))
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colors, compression, filters, interlaced))
    if kind == 4:
        other = png_chunk(b"IHDR", struct.pack(">IIBBBBB", size(draw), size(draw), draw.choice((8, 16)), draw.choice((0, 2, 3, 4, 6)), 0, 0, 0))
        chunks.insert(draw.randrange(len(chunks) + 1), other)
    elif kind == 5:
        i = draw.randrange(1, len(chunks))
        chunks[i : i + 1] = draw.choice(([], [chunks[i]] * 2))
        draw.shuffle(chunks) if draw.random() < 0.3 else None
    elif kind == 6:
        frame = struct.pack(
            ">IIIIIHHBB", draw.randrange(3), size(draw), size(draw), size(draw), size(draw), 1, 1, draw.randrange(3), draw.randrange(3)
        )
        control = png_chunk(b"acTL", struct.pack(">II", draw.choice((0, 1, 2, 2**31 - 1)), 0))
        extra = [
            control,
            png_chunk(b"fcTL", frame),
            png_chunk(b"PLTE", draw.randbytes(draw.choice((0, 1, 3, 768, 771)))),
            png_chunk(b"tRNS", draw.randbytes(300)),
            png_chunk(b"eXIf", exif(draw)),
            png_chunk(b"fdAT", draw.randbytes(draw.choice((0, 3, 4, 90)))),
            png_chunk(draw.choice((b"gAMA", b"sRGB", b"cHRM", b"iCCP")), draw.randbytes(draw.choice((0, 1, 4, 32)))),
        ]
        where = draw.randrange(1, len(chunks))
        chunks[where:where] = draw.sample(extra, draw.randrange(1, 5))
    elif kind == 7:
        chunks = [*chunks[: draw.randrange(2, len(chunks) + 1)], *draw.choice(([], [b"\0\0\0\0IE"], [png_chunk(b"eXIf", exif(draw))]))]
    if kind != 4 or draw.random() < 0.5:
        chunks = [header if chunk[4:8] == b"IHDR" and i == 0 else chunk for i, chunk in enumerate(chunks)]
    return file[:8] + b"".join(chunks)


TIFF_TAGS = (
    *(256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 292, 293, 317, 318, 320),
    *(322, 323, 324, 325, 332, 338, 339, 347, 512, 513, 529, 530, 532),
)
# Orders of bits and bytes, photometric interpretations, predictors, formats, and compressions.
TIFF_VALUES = (32773, 32946, 34712, 50000, 34925, 32845, 32844, 32803, 32809, 32766, 32909, 32771, 50001, *range(1, 13), 16, 24, 64)


def tiff(file: bytes, draw: random.Random) -> bytes:
    """Tags repeated with another value, changed, dropped, out of order, of other types and counts; directories that overlap or form a chain."""
    order = "<" if file[:1] == b"I" else ">"
    big = struct.unpack_from(order + "H", file, 2)[0] == 43
    start, many, form = (
        (struct.unpack_from(order + "Q", file, 8)[0], "Q", "HHQ8s") if big else (struct.unpack_from(order + "I", file, 4)[0], "H", "HHI4s")
    )
    count = struct.unpack_from(order + many, file, start)[0]
    entry, first = struct.calcsize(order + form), start + struct.calcsize(order + many)
    entries = [list(struct.unpack_from(order + form, file, first + i * entry)) for i in range(count)]

    def change(item: list) -> list:
        tag, kind, number, value = item
        which = draw.randrange(4)
        wide = len(value)
        if which == 0:
            kind = draw.choice((1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 16, 17, 18, 0, 99))
        elif which == 1:
            number = draw.choice((0, 1, 2, 3, 4, 5, 256, 768, 65535, 2**31, 2**32 - 1))
        else:
            new = draw.choice((size(draw), draw.choice(SMALL), draw.choice(TIFF_VALUES), draw.choice(TIFF_VALUES)))
            value = struct.pack(order + ("I" if kind != 3 else "HH"), *((new & 0xFFFFFFFF,) if kind != 3 else (new & 0xFFFF, draw.choice((0, 8)))))
            value = value + bytes(wide - len(value))
        return [tag, kind, number, value]

    for _ in range(draw.choice((1, 1, 2, 3))):
        kind, i = draw.randrange(7), draw.randrange(len(entries))
        if kind in (0, 1):
            entries.insert(draw.choice((i, i + 1, 0, len(entries))), change(entries[i]))
        elif kind in (2, 3):
            entries[i] = change(entries[i])
        elif kind == 4 and len(entries) > 1:
            del entries[i]
        elif kind == 5:
            draw.shuffle(entries)
        else:
            value = struct.pack(order + "I", draw.choice((size(draw), draw.choice(TIFF_VALUES))))
            entries.append([draw.choice(TIFF_TAGS), draw.choice((3, 4)), draw.choice((1, 1, 2, 3)), value + bytes(4 if big else 0)])
            entries.sort(key=lambda value: value[0])
    directory = struct.pack(order + many, len(entries)) + b"".join(struct.pack(order + form, *entry) for entry in entries)
    end = len(file) + len(file) % 2
    follow = draw.choice((0, 0, start, end, size(draw)))
    body = bytearray(file + bytes(len(file) % 2) + directory + struct.pack(order + ("Q" if big else "I"), follow))
    struct.pack_into(order + ("Q" if big else "I"), body, 8 if big else 4, end)
    return bytes(body)


def bmp(file: bytes, draw: random.Random) -> bytes:
    """Sizes below zero and huge, other depths and compressions, palettes beyond the file, headers of other lengths, pixels that begin elsewhere,
    masks of all kinds, run lengths that leave the image."""
    data = bytearray(file)
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind = draw.randrange(11)
        if kind == 0:
            struct.pack_into("<I", data, draw.choice((18, 22)), size(draw))
        elif kind == 1:
            struct.pack_into("<i", data, draw.choice((18, 22)), -draw.choice(SIZES[:-1]))
        elif kind == 2:
            struct.pack_into("<H", data, 28, draw.choice((*SMALL, 65535)))
        elif kind == 3:
            struct.pack_into("<I", data, 30, draw.choice((0, 1, 2, 3, 4, 5, 6, 2**32 - 1)))
        elif kind == 4:
            struct.pack_into("<I", data, 46, draw.choice((0, 1, 2, 15, 16, 17, 255, 256, 257, 2**31, 2**32 - 1)))
        elif kind == 5:
            struct.pack_into("<I", data, 14, draw.choice((0, 12, 16, 36, 39, 40, 41, 52, 56, 64, 108, 124, 1000, 2**31, 2**32 - 1)))
        elif kind == 6:
            struct.pack_into("<I", data, 10, draw.choice((0, 1, 14, 26, 54, 55, len(data) - 1, len(data), size(draw))))
        elif kind == 7:
            bits, compression = draw.choice(((16, 0), (16, 3), (16, 6), (32, 3), (32, 6), (2, 0), (4, 2), (8, 1)))
            struct.pack_into("<HI", data, 28, bits, compression)
        elif kind == 8:
            mask = draw.choice((0, 1, 0x1F, 0x7C00, 0xF800, 0xFF000000, 2**31, 2**32 - 1, 0b1011, draw.getrandbits(32)))
            struct.pack_into("<I", data, 54 + 4 * draw.randrange(4), mask)
        elif kind == 9:
            start = min(struct.unpack_from("<I", data, 10)[0], len(data) - 1)
            at = draw.randrange(start, len(data))
            data[at : at + 4] = draw.choice((b"\0\2\xff\xff", b"\0\xff\1\2", b"\xff\x33\0\0", b"\0\0\0\1", b"\0\2\0\x2f"))
        else:
            struct.pack_into("<H", data, 26, draw.choice(SMALL))
    return bytes(data[: draw.choice((len(data), len(data), len(data) - 1, 60))])


COMMENTS = (b"#", b"# c\n", b"#9 9\n", b"# c\r", b"# c\r\n", b"#\n", b"#4480 255\n", b"#" * 50 + b"\n", b"# no end")
SPACES = (b" ", b"\n", b"\t", b"\r", b"\r\n", b"\v", b"\f", b"", b"  \n ", b"\0")


def pnm(file: bytes, draw: random.Random) -> bytes:
    """Comments in odd places, spaces of all kinds, numbers that are huge, negative, glued together or missing, another kind with the same pixels."""

    def number() -> bytes:
        value = draw.choice((b"56", b"40", b"255", b"%d" % size(draw), b"%d" % size(draw, 40), b"-1", b"+8", b"1e3", b"0x40", b"", b"00056"))
        if draw.random() < 0.25:
            at = draw.randrange(len(value) + 1)
            value = value[:at] + draw.choice(COMMENTS) + value[at:]
        return value

    def gap() -> bytes:
        return b"".join(draw.choice(SPACES if draw.random() < 0.7 else COMMENTS) for _ in range(draw.choice((1, 1, 2, 3))))

    kind = draw.choice(b"123456")
    numbers = [number() if draw.random() < 0.4 else good for good in (b"56", b"40", b"255")]
    pixels = draw.choice(
        (file[-6720:], file[-2240:], draw.randbytes(3000), b"1 0 7 255 #x\n" * 500, b"\x20" * 7000, b"#" * 7000, b"9" * 7000, b"0" * 7000)
    )
    return (
        b"P" + bytes([kind]) + gap() + numbers[0] + gap() + numbers[1] + gap() + (b"" if kind in b"14" else numbers[2] + draw.choice(SPACES)) + pixels
    )


def webp(file: bytes, draw: random.Random) -> bytes:
    """Canvases of another size than the image, flags without their chunks, chunks of wrong lengths, moved, dropped or repeated, EXIF data."""
    chunks, at = [], 12
    while at + 8 <= len(file):
        length = struct.unpack_from("<I", file, at + 4)[0]
        chunks.append(bytearray(file[at : at + 8 + length + length % 2]))
        at += 8 + length + length % 2
    canvas = bytearray(b"VP8X" + struct.pack("<I", 10) + bytes([draw.choice((0, 2, 8, 16, 24, 0x3E, 255)), 0, 0, 0]))
    canvas += struct.pack("<I", size(draw, 24))[:3] + struct.pack("<I", size(draw, 24))[:3]
    kind, image = draw.randrange(7), next((chunk for chunk in chunks if chunk[:4] in (b"VP8 ", b"VP8L")), chunks[0])
    if kind == 0:
        chunks.insert(draw.choice((0, 0, 1)), canvas)
    elif kind == 1 and chunks[0][:4] == b"VP8X":
        chunks[0] = canvas
    elif kind == 2 and len(image) > 20:
        if image[:4] == b"VP8 ":
            struct.pack_into("<HH", image, 14, size(draw, 16), size(draw, 16))
        else:
            struct.pack_into("<I", image, 9, draw.getrandbits(32))
    elif kind == 3:
        value = draw.choice(chunks)
        struct.pack_into("<I", value, 4, draw.choice((0, 1, 4, 10, len(value), 2**31, 2**32 - 1)))
    elif kind == 4:
        chunks = [chunk for chunk in chunks for _ in range(draw.choice((0, 1, 1, 2)))]
        draw.shuffle(chunks) if draw.random() < 0.3 else None
    elif kind == 5:
        content = exif(draw)
        chunk = bytearray(b"EXIF" + struct.pack("<I", draw.choice((len(content), len(content), len(content) + 1, size(draw)))) + content)
        chunks.insert(draw.randrange(1, len(chunks) + 1), chunk + bytes(len(content) % 2))
        if chunks[0][:4] == b"VP8X":
            chunks[0][8] |= 8
    else:
        image[:4] = draw.choice((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANMF"))
    body = b"WEBP" + b"".join(map(bytes, chunks))
    return b"RIFF" + struct.pack("<I", draw.choice((len(body), len(body), size(draw)))) + body


def jpeg2000(file: bytes, draw: random.Random) -> bytes:
    """Sizes, offsets, tiles, components, distances and precisions in SIZ, the boxes' sizes, colors, palettes, mappings and channels."""
    data = bytearray(file)
    siz = file.find(b"\xff\x51")
    if siz < 0 or siz + 45 > len(data):
        return bytes(data)
    for _ in range(draw.choice((1, 1, 2))):
        kind = draw.randrange(10)
        if kind in (0, 1):
            struct.pack_into(">I", data, siz + 6 + 4 * draw.randrange(8), size(draw))
        elif kind == 2:
            struct.pack_into(">H", data, siz + 38, draw.choice((*SMALL, 16384, 65535)))
        elif kind == 3:
            data[siz + 40 + draw.randrange(min(9, len(data) - siz - 40))] = draw.choice((*SMALL, 0x87, 0x8B, 37, 38))
        elif kind == 4 and (box := file.find(b"ihdr")) >= 0:
            struct.pack_into(">IIHB", data, box + 4, size(draw), size(draw), draw.choice(SMALL), draw.choice((*SMALL, 0x87)))
        elif kind in (5, 6):
            at, near = siz + 6 + 4 * draw.choice((0, 1, 2, 3)), draw.choice((-9, -1, 1, 2, 3, 8, 31))
            struct.pack_into(">I", data, at, max(0, struct.unpack_from(">I", data, at)[0] + near))
            data[siz + 41 + draw.randrange(6)] = draw.choice((1, 1, 2, 2, 3, 8, 255))
        elif kind in (7, 8) and (box := file.find(draw.choice((b"pclr", b"cmap", b"cdef", b"colr")))) >= 0:
            data[min(len(data) - 1, box + 4 + draw.randrange(16))] = draw.choice((*SMALL, 0x87))
        else:
            box = draw.choice((b"jp2h", b"ihdr", b"colr", b"jp2c", b"ftyp", b"pclr", b"cmap", b"cdef"))
            at = max(4, file.find(box))
            struct.pack_into(">I", data, at - 4, draw.choice((0, 1, 7, 8, 9, len(data), 2**32 - 1)))
    return bytes(data)


def gif(file: bytes, draw: random.Random) -> bytes:
    """The sizes of the screen and the frames, color tables, code sizes, lengths of blocks, extensions."""
    data = bytearray(file)
    for _ in range(draw.choice((1, 1, 2))):
        kind, frame = draw.randrange(6), file.find(b",", 13)
        if kind == 0:
            struct.pack_into("<HH", data, 6, size(draw, 16), size(draw, 16))
        elif kind == 1:
            data[10] = draw.getrandbits(8)
        elif kind == 2 and 0 <= frame < len(data) - 10:
            struct.pack_into("<4H", data, frame + 1, *(size(draw, 16) if draw.random() < 0.5 else 0 for _ in range(4)))
        elif kind == 3 and 0 <= frame < len(data) - 12:
            data[frame + draw.choice((9, 10, 11))] = draw.getrandbits(8)
        elif kind == 4:
            data[draw.randrange(13, len(data))] = draw.choice((0x21, 0x2C, 0x3B, 0, 255))
        else:
            at = draw.randrange(13, len(data))
            data[at:at] = bytes(data[13:at]) * draw.choice((1, 3))
    return bytes(data)


def heif(file: bytes, draw: random.Random) -> bytes:
    """Sizes and types of boxes; the size, rotation, clean aperture and associations of the primary item; sizes in the codec's header."""
    data = bytearray(file)
    boxes = (
        b"ftyp",
        b"meta",
        b"hdlr",
        b"pitm",
        b"iloc",
        b"iinf",
        b"iprp",
        b"ipco",
        b"ispe",
        b"pixi",
        b"av1C",
        b"colr",
        b"ipma",
        b"mdat",
        b"irot",
        b"auxC",
        b"hvcC",
        b"iref",
        b"dimg",
        b"infe",
        b"clap",
    )
    for _ in range(draw.choice((1, 1, 2))):
        name = draw.choice(boxes)
        at = file.find(name)
        if at < 4:
            continue
        kind = draw.randrange(6)
        if kind == 0:
            struct.pack_into(">I", data, at - 4, draw.choice((0, 1, 7, 8, 9, 12, len(data), 2**32 - 1, size(draw))))
        elif kind == 1 and (ispe := file.find(b"ispe")) >= 0:
            struct.pack_into(">II", data, ispe + 8, size(draw), size(draw))
        elif kind == 2:
            data[at : at + 4] = draw.choice((b"free", b"irot", b"imir", b"clap", b"moov", b"meta", b"ispe", b"grid"))
        elif kind == 3 and (sequence := max(file.find(b"av1C"), file.find(b"hvcC"))) >= 0:
            data[min(len(data) - 1, sequence + 4 + draw.randrange(20 if file.find(b"av1C") >= 0 else 110))] = draw.getrandbits(8)
        elif kind == 4 and (samples := file.find(b"mdat")) >= 0:
            data[min(len(data) - 1, samples + 4 + draw.randrange(24))] = draw.getrandbits(8)
        else:
            data[min(len(data) - 1, at + 4 + draw.randrange(24))] = draw.choice((*SMALL, 0x80, 0x81))
    return bytes(data)


CONTRADICTORY: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "jpeg": jpeg,
    "png": png,
    "tiff": tiff,
    "bmp": bmp,
    "pnm": pnm,
    "webp": webp,
    "jpeg2000": jpeg2000,
    "gif": gif,
    "avif": heif,
    "heic": heif,
}
