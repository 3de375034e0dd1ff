# SPDX-License-Identifier: Apache-2.0
"""The files to damage: some made by Pillow, and those of DALI_EXTRA_PATH if it is set."""

import io
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).parents[1] / "helpers"))  # for the TIFF files of the tests
from _tiff_files import LONG, RATIONAL, SHORT, Layout, encode_chroma_blocks, write_tiff

FORMATS = ("jpeg", "png", "tiff", "bmp", "pnm", "webp", "jpeg2000", "gif", "avif", "heic")
ENDINGS = {
    "jpeg": (".jpg", ".jpeg"),
    "png": (".png",),
    "tiff": (".tiff", ".tif"),
    "bmp": (".bmp",),
    "pnm": (".ppm", ".pgm", ".pbm", ".pnm"),
    "webp": (".webp",),
    "jpeg2000": (".jp2", ".j2k"),
    "gif": (".gif",),
    "avif": (".avif",),
    "heic": (".heic", ".heif"),
}
REAL_FILES = 8  # per format, the smallest ones
LARGEST = 350_000

_Y, _X = np.mgrid[:40, :56]
COLORS = np.stack([(2 * _Y + 3 * _X) % 256, (255 - _Y * _X) % 256, _X * 4, _Y * 6], -1).astype(np.uint8)


def pillow(codec: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(COLORS if mode == "RGBA" else COLORS[..., :3])
    (image if mode == image.mode else image.convert(mode)).save(file, codec, **options)
    return file.getvalue()


def frames(codec: str) -> bytes:
    image = Image.fromarray(COLORS[..., :3])
    return pillow(codec, save_all=True, append_images=[image.rotate(90), image.rotate(180)])


def exif() -> Image.Exif:
    result = Image.Exif()
    result[0x0112] = 6
    return result


def hidden_default() -> bytes:
    """An animated PNG whose default image is not a frame, with a curve of brightness."""
    image = Image.fromarray(COLORS[..., :3])
    file = pillow("PNG", save_all=True, append_images=[image.rotate(90), image.rotate(180)], default_image=True)
    return file[:33] + b"\0\0\0\4gAMA\0\0\xb1\x8f\x0b\xfca\x05" + file[33:]


def first_scans(count: int) -> bytes:
    """A progressive JPEG without its last scans."""
    file = pillow("JPEG", progressive=True)
    at = -1
    for _ in range(count + 1):
        at = file.index(b"\xff\xda", at + 1)
    return file[:at] + b"\xff\xd9"


def stray_bytes() -> bytes:
    file = pillow("JPEG", exif=exif())
    at = file.index(b"\xff\xc0")
    return file[:2] + b"\0" + file[2:at] + b"\0\xff\0ab\xff\xd0" + file[at:]


def deep_pnm(kind: int, largest: int) -> bytes:
    samples = COLORS[..., :3] if kind == 6 else COLORS[..., 0]
    return b"P%d\n# comment\n56 40\n%d\n" % (kind, largest) + (samples.astype(">u2") * (largest // 256)).tobytes()


def text_pnm(kind: int) -> bytes:
    samples = COLORS[..., :3] if kind == 3 else COLORS[..., 0]
    values = samples // 128 if kind == 1 else samples
    return b"P%d\n56 40\n" % kind + (b"" if kind == 1 else b"255\n") + b" ".join(str(v).encode() for v in values.ravel().tolist()) + b"\n"


def masked_bmp(bits: int, masks: tuple[int, ...], size: int) -> bytes:
    """Pixels of 16 or 32 bits whose channels lie at ``masks``; without masks, where they always do."""
    header = struct.pack("<IiiHHIIiiII", size, 56, 40, 1, bits, 3 if masks else 0, 0, 0, 0, 0, 0) + struct.pack(f"<{len(masks)}I", *masks)
    header += bytes(max(0, size - len(header)))
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, 14 + len(header)) + header + COLORS.tobytes()[: 56 * 40 * bits // 8]


def run_length_bmp_of_4_bits() -> bytes:
    runs = b"".join(bytes([30, y, 0, 25, *range(13), 0, 0, 0]) for y in range(38)) + b"\0\2\3\1\4\x77\0\1"
    palette = b"".join(bytes([i * 16, 255 - i, i, 0]) for i in range(16))
    header = struct.pack("<IiiHHIIiiII", 40, 56, 40, 1, 4, 2, len(runs), 0, 0, 16, 0)
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, 118) + header + palette + runs


def run_length_bmp() -> bytes:
    runs = b"".join(bytes([30, y, 26, 255 - y, 0, 0]) for y in range(40)) + b"\0\1"
    palette = b"".join(bytes([i, 255 - i, i // 2, 0]) for i in range(256))
    header = struct.pack("<IiiHHIIiiII", 40, 56, 40, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", len(runs) + 1078, 0, 0, 1078) + header + palette + runs


def heic() -> list[bytes]:
    import _heif as heif  # of tests/helpers, which the programs add to the path

    pixels = COLORS[..., :3]
    tiles = [heif.coded_item(np.resize(COLORS[..., :3], (64, 64, 3)), hidden=True) for _ in range(4)]
    turned = heif.coded_item(np.resize(pixels, (64, 64, 3)), heif.aperture(30, 50), heif.rotation(1), heif.reflection(1))
    grid = heif.grid_item(2, 2, 100, 90, [2, 3, 4, 5], heif.rotation(1))
    return [heif.encode(pixels), heif.encode(COLORS), heif.file_of([turned]), heif.file_of([grid, *tiles])]


def jpeg2000_box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + name + content


def boxed_jpeg2000(mode: str, space: int, boxes: bytes, **options: Any) -> bytes:
    """A codestream between boxes that give its colors."""
    stream = pillow("JPEG2000", mode, no_jp2=True, mct=0, **options)
    header = struct.pack(">IIHBBBB", 40, 56, len(mode), 7, 7, 0, 0)
    colors = jpeg2000_box(b"ihdr", header) + jpeg2000_box(b"colr", struct.pack(">BBBI", 1, 0, 0, space)) + boxes
    start = jpeg2000_box(b"jP  ", b"\r\n\x87\n") + jpeg2000_box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return start + jpeg2000_box(b"jp2h", colors) + jpeg2000_box(b"jp2c", stream)


def palette_jpeg2000(columns: int, bits: int) -> bytes:
    palette = struct.pack(">HB", 256, columns) + bytes([bits - 1] * columns) + bytes(range(256)) * (columns * -(-bits // 8))
    mapping = b"".join(struct.pack(">HBB", 0, 1, column) for column in range(columns))
    return boxed_jpeg2000("L", 16, jpeg2000_box(b"pclr", palette) + jpeg2000_box(b"cmap", mapping))


def subsampled_jpeg2000(dx: int, dy: int) -> bytes:
    """All components subsampled: the same samples for a larger image."""
    stream = bytearray(pillow("JPEG2000", no_jp2=True, mct=0, num_resolutions=1))
    for at, value in zip((8, 12, 24, 28), (56 * dx, 40 * dy, 56 * dx, 40 * dy), strict=True):
        struct.pack_into(">I", stream, at, value)
    for i in range(3):
        stream[43 + 3 * i : 45 + 3 * i] = dx, dy
    return bytes(stream)


def tiled_tiff(**options: Any) -> list[bytes]:
    try:
        import tifffile
    except ImportError:
        return []
    file = io.BytesIO()
    tifffile.imwrite(file, COLORS[..., : 3 if options.get("photometric") == "rgb" else 2], **options)
    return [file.getvalue()]


def odd_tiffs() -> list[bytes]:
    """Return what libtiff does not decode alone: planes, sizes, colors, orders of bits, missing tags."""
    rgb, gray, bit = COLORS[..., :3], COLORS[..., :1], COLORS[..., :1] >> 7
    palette = {320: (SHORT, [i * 37 % 65536 for i in range(768)])}
    chroma = {530: (SHORT, [2, 2])}
    deep = rgb.astype("u8") * 16
    layouts = [
        (rgb, Layout(photometric=2, planar=True)),
        (COLORS, Layout(photometric=2, planar=True, compression=8, predictor=2, tile=(16, 16), tags={338: (SHORT, [2])})),
        (deep, Layout(12, 2, tile=(16, 32), order=">")),
        (deep, Layout(12, 2, compression=32773, big=True)),
        (deep, Layout(16, 2, compression=8, predictor=2, planar=True, order=">")),
        (rgb.astype("f4").view("u4").astype("u8"), Layout(32, 2, compression=8, predictor=3, sample_format=3, planar=True)),
        (deep, Layout(16, 2, sample_format=2)),
        (gray, Layout(photometric=0, orientation=6)),
        (gray, Layout(photometric=3, tags=palette, orientation=3)),
        (COLORS[..., :2], Layout(photometric=3, tags=palette | {338: (SHORT, [2])})),
        (COLORS, Layout(photometric=5, compression=8)),
        (rgb, Layout(photometric=8, tile=(16, 16), tags={318: (RATIONAL, [3127, 10000, 3290, 10000])})),
        (rgb, Layout(photometric=9)),
        (rgb, Layout(photometric=6, tags=chroma, encode=lambda piece: encode_chroma_blocks(piece, 2, 2))),
        (rgb, Layout(photometric=6, tags=chroma, tile=(16, 16), encode=lambda piece: encode_chroma_blocks(piece, 2, 2))),
        (rgb, Layout(photometric=2, planar=True, compression=7, encode=lambda piece: gray_jpeg(piece[..., 0].astype("u1")))),
        (bit, Layout(1, 0, without=(258, 277))),
        (bit, Layout(1, fill_order=2, compression=8, tile=(16, 16), tags={278: (LONG, [16])})),
        (rgb, Layout(photometric=2, compression=8, without=(279,))),
        (gray, Layout(photometric=32803)),
        *((rgb, Layout(photometric=2, compression=number)) for number in (34712, 34925, 50001)),
    ]
    jpeg = pillow("JPEG")
    old = chroma | {512: (SHORT, [1]), 513: (LONG, [8]), 514: (LONG, [len(jpeg)])}
    layouts.append((rgb, Layout(photometric=6, compression=6, rows=40, orientation=7, tags=old, encode=lambda _: jpeg)))
    faxes = [pillow("TIFF", "1", compression=name, tiffinfo={274: 5}) for name in ("group3", "tiff_ccitt")]
    return [write_tiff(samples.astype("u8"), layout) for samples, layout in layouts] + faxes + [pillow("TIFF", "CMYK", compression="jpeg")]


def gray_jpeg(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(samples).save(file, "JPEG")
    return file.getvalue()


def make_files(name: str) -> list[bytes]:
    match name:
        case "jpeg":
            kinds = ({}, {"progressive": True}, {"subsampling": 0}, {"exif": exif()}, {"restart_marker_blocks": 2}, {"mode": "L"}, {"mode": "CMYK"})
            return [*(pillow("JPEG", **kind) for kind in kinds), first_scans(3), stray_bytes()]
        case "png":
            return [
                *(pillow("PNG", mode) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")),
                pillow("PNG", exif=exif()),
                frames("PNG"),
                hidden_default(),
            ]
        case "tiff":
            packed = [pillow("TIFF", compression=name) for name in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd")]
            modes = [pillow("TIFF", mode) for mode in ("RGBA", "L", "P", "CMYK", "YCbCr")] + [
                pillow("TIFF", "1", compression="group4"),
                frames("TIFF"),
            ]
            tiles = [file for big in (False, True) for file in tiled_tiff(photometric="rgb", tile=(16, 32), bigtiff=big)]
            return packed + modes + tiles + odd_tiffs() + tiled_tiff(photometric="minisblack", planarconfig="contig", extrasamples=["unassalpha"])
        case "bmp":
            masked = [
                masked_bmp(bits, masks, size)
                for bits, masks, size in ((16, (), 40), (16, (0xF800, 0x7E0, 0x1F), 40), (16, (0xF00, 0xF0, 0xF, 0xF000), 108))
            ]
            deep = masked_bmp(32, (0x3FF, 0xFFC00, 0x3FF00000, 0xC0000000), 124)
            return [*(pillow("BMP", mode) for mode in ("RGB", "RGBA", "L", "P", "1")), run_length_bmp(), run_length_bmp_of_4_bits(), *masked, deep]
        case "pnm":
            return [
                *(pillow("PPM", mode) for mode in ("RGB", "L", "1")),
                deep_pnm(5, 4095),
                deep_pnm(6, 65535),
                *(text_pnm(kind) for kind in (1, 2, 3)),
            ]
        case "webp":
            kinds = ({}, {"lossless": True}, {"mode": "RGBA"}, {"mode": "RGBA", "lossless": True}, {"exif": exif()})
            blank = bytes.fromhex("524946461400000057454250 5650384c080000002f37c00900888808")
            return [*(pillow("WEBP", **kind) for kind in kinds), frames("WEBP"), blank]
        case "gif":
            kinds = ({}, {"interlace": 0}, {"mode": "L"}, {"mode": "P", "transparency": 3})
            return [*(pillow("GIF", **kind) for kind in kinds), frames("GIF")]
        case "avif":
            kinds = ({}, {"mode": "RGBA"}, {"mode": "L"}, {"exif": exif()}, {"subsampling": "4:4:4", "quality": 90})
            return [*(pillow("AVIF", **kind) for kind in kinds), frames("AVIF")]
        case "heic":
            return heic()
        case _:
            return [
                *(pillow("JPEG2000", mode) for mode in ("RGB", "L", "RGBA")),
                pillow("JPEG2000", no_jp2=True),
                pillow("JPEG2000", tile_size=(16, 16)),
                pillow("JPEG2000", tile_size=(32, 32), tile_offset=(0, 0), offset=(9, 8)),
                *(palette_jpeg2000(columns, bits) for columns, bits in ((3, 8), (4, 16), (1, 5))),
                boxed_jpeg2000("RGBA", 12, b""),
                boxed_jpeg2000("RGB", 18, jpeg2000_box(b"cdef", struct.pack(">H9H", 3, 0, 0, 3, 1, 0, 2, 2, 0, 1))),
                subsampled_jpeg2000(2, 1),
            ]


def real(name: str) -> list[bytes]:
    root = os.environ.get("DALI_EXTRA_PATH")
    if not root:
        return []
    found = [path for path in Path(root).rglob("*") if path.suffix.lower() in ENDINGS[name] and 0 < path.stat().st_size < LARGEST]
    return [path.read_bytes() for path in sorted(found, key=lambda path: (path.stat().st_size, path))[:REAL_FILES]]


def files_of(name: str) -> list[bytes]:
    """Return the files of a format; those made by Pillow come first."""
    return make_files(name) + real(name)
