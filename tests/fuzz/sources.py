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

sys.path.append(str(Path(__file__).parent.parent))  # for the TIFF files of the tests
from _tiff_files import LONG, RATIONAL, SHORT, Layout, encode_chroma_blocks, write_tiff

FORMATS = ("jpeg", "png", "tiff", "bmp", "pnm", "webp", "jpeg2000")
ENDINGS = {
    "jpeg": (".jpg", ".jpeg"),
    "png": (".png",),
    "tiff": (".tiff", ".tif"),
    "bmp": (".bmp",),
    "pnm": (".ppm", ".pgm", ".pbm", ".pnm"),
    "webp": (".webp",),
    "jpeg2000": (".jp2", ".j2k"),
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
    made = Image.Exif()
    made[0x0112] = 6
    return made


def deep_pnm(kind: int, largest: int) -> bytes:
    samples = COLORS[..., :3] if kind == 6 else COLORS[..., 0]
    return b"P%d\n# comment\n56 40\n%d\n" % (kind, largest) + (samples.astype(">u2") * (largest // 256)).tobytes()


def text_pnm(kind: int) -> bytes:
    samples = COLORS[..., :3] if kind == 3 else COLORS[..., 0]
    values = samples // 128 if kind == 1 else samples
    return b"P%d\n56 40\n" % kind + (b"" if kind == 1 else b"255\n") + b" ".join(str(v).encode() for v in values.ravel().tolist()) + b"\n"


def run_length_bmp() -> bytes:
    runs = b"".join(bytes([30, y, 26, 255 - y, 0, 0]) for y in range(40)) + b"\0\1"
    palette = b"".join(bytes([i, 255 - i, i // 2, 0]) for i in range(256))
    header = struct.pack("<IiiHHIIiiII", 40, 56, 40, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", len(runs) + 1078, 0, 0, 1078) + header + palette + runs


def tiled_tiff(**options: Any) -> list[bytes]:
    try:
        import tifffile
    except ImportError:
        return []
    file = io.BytesIO()
    tifffile.imwrite(file, COLORS[..., : 3 if options.get("photometric") == "rgb" else 2], **options)
    return [file.getvalue()]


def odd_tiffs() -> list[bytes]:
    """Return what libtiff does not decode by itself: planes, sizes, colors, orders of bits, missing tags."""
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


def made(name: str) -> list[bytes]:
    match name:
        case "jpeg":
            kinds = ({}, {"progressive": True}, {"subsampling": 0}, {"exif": exif()}, {"restart_marker_blocks": 2}, {"mode": "L"}, {"mode": "CMYK"})
            return [pillow("JPEG", **kind) for kind in kinds]
        case "png":
            return [*(pillow("PNG", mode) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")), pillow("PNG", exif=exif()), frames("PNG")]
        case "tiff":
            packed = [pillow("TIFF", compression=name) for name in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd")]
            modes = [pillow("TIFF", mode) for mode in ("RGBA", "L", "P", "CMYK", "YCbCr")] + [
                pillow("TIFF", "1", compression="group4"),
                frames("TIFF"),
            ]
            tiles = [file for big in (False, True) for file in tiled_tiff(photometric="rgb", tile=(16, 32), bigtiff=big)]
            return packed + modes + tiles + odd_tiffs() + tiled_tiff(photometric="minisblack", planarconfig="contig", extrasamples=["unassalpha"])
        case "bmp":
            return [*(pillow("BMP", mode) for mode in ("RGB", "RGBA", "L", "P", "1")), run_length_bmp()]
        case "pnm":
            return [
                *(pillow("PPM", mode) for mode in ("RGB", "L", "1")),
                deep_pnm(5, 4095),
                deep_pnm(6, 65535),
                *(text_pnm(kind) for kind in (1, 2, 3)),
            ]
        case "webp":
            kinds = ({}, {"lossless": True}, {"mode": "RGBA"}, {"mode": "RGBA", "lossless": True}, {"exif": exif()})
            return [*(pillow("WEBP", **kind) for kind in kinds), frames("WEBP")]
        case _:
            return [
                *(pillow("JPEG2000", mode) for mode in ("RGB", "L", "RGBA")),
                pillow("JPEG2000", no_jp2=True),
                pillow("JPEG2000", tile_size=(16, 16)),
            ]


def real(name: str) -> list[bytes]:
    root = os.environ.get("DALI_EXTRA_PATH")
    if not root:
        return []
    found = [path for path in Path(root).rglob("*") if path.suffix.lower() in ENDINGS[name] and 0 < path.stat().st_size < LARGEST]
    return [path.read_bytes() for path in sorted(found, key=lambda path: (path.stat().st_size, path))[:REAL_FILES]]


def files_of(name: str) -> list[bytes]:
    """Return the files of a format; those made by Pillow come first."""
    return made(name) + real(name)
