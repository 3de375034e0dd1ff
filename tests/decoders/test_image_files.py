# SPDX-License-Identifier: Apache-2.0
"""What is around the pixels: gamma, EXIF data, the beginning of a file, files of other kinds."""

import io
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _images import HEIGHT, PNG, PNG_END, RGB, WIDTH, chunk, decode, ihdr, pillow, reason, turned_exif
from PIL import Image, ImageOps

import torch_ndd as ndd
from torch_ndd import types

# Gray of PNG

GAMMA = {
    "sRGB": chunk(b"sRGB", b"\0"),
    "gAMA": chunk(b"gAMA", struct.pack(">I", 45455)),
    "cHRM": chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
    "both": chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"sRGB", b"\0"),
    "none": b"",
}


@pytest.mark.parametrize("gamma", GAMMA.values(), ids=GAMMA)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_png_is_gray_without_its_gamma(gamma: bytes, mode: str) -> None:
    image = Image.new("RGB", (4, 4), (200, 50, 10))
    content = io.BytesIO()
    (image.quantize() if mode == "P" else image.convert(mode)).save(content, "PNG")
    file = content.getvalue()
    gray = decode(file[:PNG_END] + gamma + file[PNG_END:], output_type=types.GRAY)
    assert gray.ravel().tolist() == [90] * 16


def test_png_of_16_bits_is_gray_without_its_gamma() -> None:
    samples = np.array([200, 50, 10] * 6, ">u2") * 257
    rows = b"".join(b"\0" + samples[9 * y : 9 * y + 9].tobytes() for y in range(2))
    file = PNG[:8] + ihdr(3, 2, depth=16) + GAMMA["gAMA"] + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    gray = decode(file, output_type=types.GRAY, dtype=ndd.uint16)
    assert np.abs(gray.astype(int) - 90.29 * 257).max() <= 1


# EXIF in JPEG, PNG and WebP

TURNED = {
    1: RGB,
    2: RGB[:, ::-1],
    3: RGB[::-1, ::-1],
    4: RGB[::-1],
    5: RGB.swapaxes(0, 1),
    6: np.rot90(RGB, -1),
    7: np.rot90(RGB, -1)[::-1],
    8: np.rot90(RGB),
}


@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0"], ids=["bare", "prefix"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("orientation", TURNED)
def test_orientation_of_png_and_webp(orientation: int, wide: bool, order: str, prefix: bytes) -> None:
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIHHHI", 42, 8, 1, 0x0112, 4 if wide else 3, 1)
    exif = prefix + start + (struct.pack(order + "I", orientation) if wide else struct.pack(order + "HH", orientation, 0)) + bytes(4)
    png = PNG[:PNG_END] + chunk(b"eXIf", exif) + PNG[PNG_END:]
    for tail in (b"", b"\0"):  # an odd length
        webp = webp_file(pillow(RGB, "WEBP", lossless=True)[12:], exif + tail)
        for file in (png, webp):
            assert np.array_equal(decode(file), TURNED[orientation])
            assert np.array_equal(decode(file, adjust_orientation=False), RGB)
            assert ndd.peek_image_shape(np.frombuffer(file, np.uint8)).torch().tolist() == list(TURNED[orientation].shape)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("orientation", TURNED)
def test_orientation_of_jpeg(orientation: int, wide: bool, order: str) -> None:
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIHHHI", 42, 8, 1, 0x0112, 4 if wide else 3, 1)
    exif = b"Exif\0\0" + start + (struct.pack(order + "I", orientation) if wide else struct.pack(order + "HH", orientation, 0)) + bytes(4)
    plain = pillow(np.kron(RGB, np.ones((8, 8, 1), np.uint8)), "JPEG")
    xmp = b"http://ns.adobe.com/xap/1.0/\0<x/>"
    # Before the JFIF segment, which usually comes first, after it, and after another APP1 segment.
    after_jfif = 4 + int.from_bytes(plain[4:6], "big")
    for at, segments in ((2, [exif]), (after_jfif, [exif]), (2, [xmp, exif])):
        file = plain[:at] + b"".join(b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content for content in segments) + plain[at:]
        expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))))
        assert np.array_equal(decode(file), expected)
        assert np.array_equal(decode(file, adjust_orientation=False), decode(plain))
        height, width, _ = expected.shape
        assert decode(file, at_least=[height // 2, width // 2]).shape == (height // 2, width // 2, 3)
        assert ndd.peek_image_shape(np.frombuffer(file, np.uint8)).torch().tolist() == list(expected.shape)


@pytest.mark.parametrize("exif", [b"", b"Exif\0", b"II*\0", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08\xff\xff" + bytes(40)])
def test_damaged_exif_leaves_the_image_as_it_is(exif: bytes) -> None:
    assert np.array_equal(decode(PNG[:PNG_END] + chunk(b"eXIf", exif) + PNG[PNG_END:]), RGB)
    assert np.array_equal(decode(webp_file(pillow(RGB, "WEBP", lossless=True)[12:], exif)), RGB)


def webp_file(image: bytes, exif: bytes) -> bytes:
    canvas = b"VP8X" + struct.pack("<IB3x", 10, 0x08) + (WIDTH - 1).to_bytes(3, "little") + (HEIGHT - 1).to_bytes(3, "little")
    body = b"WEBP" + canvas + image + b"EXIF" + struct.pack("<I", len(exif)) + exif + bytes(len(exif) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


# The beginning of a file


@pytest.mark.parametrize(
    ("codec", "options", "length"),
    [("JPEG", {}, 700), ("PNG", {}, 33), ("BMP", {}, 54), ("PPM", {}, 20), ("WEBP", {}, 30), ("WEBP", {"lossless": True}, 25), ("JPEG2000", {}, 200)],
)
def test_peek_of_the_beginning(codec: str, options: dict[str, Any], length: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    file = np.frombuffer(pillow(noise, codec, **options), np.uint8)
    for end in (length, 1000, 5000):
        assert ndd.peek_image_shape(file[:end]).torch().tolist() == [300, 200, 3]


def test_peek_behind_metadata_says_how_many_bytes_it_needs() -> None:
    file = pillow(RGB, "JPEG")
    long = file[:2] + (b"\xff\xe2" + struct.pack(">H", 65535) + bytes(65533)) * 4 + file[2:]
    for length in (100_000, 200_000, 262_149):
        with pytest.raises(RuntimeError, match="lies after these") as caught:
            ndd.peek_image_shape(np.frombuffer(long[:length], np.uint8))
        needed = int(str(caught.value).split("pass more than ")[1].split()[0])
        assert length <= needed < 262_200
    assert ndd.peek_image_shape(np.frombuffer(long[:262_800], np.uint8)).torch().tolist() == [HEIGHT, WIDTH, 3]


@pytest.mark.parametrize(("codec", "length"), [("JPEG", 2), ("JPEG", 5), ("JPEG2000", 50)])
def test_peek_says_that_a_file_may_be_cut_short(tmp_path: Path, codec: str, length: int) -> None:
    path = tmp_path / "cut"
    path.write_bytes(pillow(RGB, codec)[:length])
    with pytest.raises(RuntimeError, match=rf"sample 0 \({path}\): .* after these {length} bytes .*, or a whole file if this one is cut short"):
        ndd.peek_image_shape([path])


def test_peek_of_a_webp_needs_its_exif_data() -> None:
    file = pillow(RGB, "WEBP", exif=turned_exif())
    assert ndd.peek_image_shape(np.frombuffer(file, np.uint8)).torch().tolist() == [WIDTH, HEIGHT, 3]
    with pytest.raises(RuntimeError, match="EXIF data"):
        ndd.peek_image_shape(np.frombuffer(file[:100], np.uint8))


# Files of other kinds

OTHERS = {
    "an MP4 or QuickTime file": b"\0\0\0\x20ftypisom" + bytes(50),
    "a JPEG XL image": b"\xff\x0a" + bytes(50),
    "an icon": pillow(RGB[:16, :16], "ICO"),
    "a WAV file": b"RIFF\x20\0\0\0WAVEfmt " + bytes(50),
    "compressed by gzip (decompress it)": b"\x1f\x8b\x08" + bytes(50),
    "a tar archive": b"name.jpg" + bytes(249) + b"ustar" + bytes(250),
    "a ZIP archive (as .npz files are)": b"PK\3\4" + bytes(50),
    "an HTML or XML document": b"<!DOCTYPE html><html></html>",
    "a pointer of Git LFS (run: git lfs pull)": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "a text file": b"404: Not Found",
    "a file that begins with zeros": bytes(1000),
}


@pytest.mark.parametrize("name", OTHERS)
def test_file_of_another_kind_is_named(name: str) -> None:
    text = reason(OTHERS[name])
    assert text == f"not an image of a supported format (JPEG, PNG, TIFF, BMP, PNM, WebP, JPEG 2000, GIF, AVIF, HEIC): it is {name}"
    with pytest.raises(RuntimeError, match=re.escape(f": it is {name}")):
        ndd.peek_image_shape(np.frombuffer(OTHERS[name], np.uint8))
