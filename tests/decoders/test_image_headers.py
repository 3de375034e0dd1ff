# SPDX-License-Identifier: Apache-2.0
"""Headers that readers can take for different sizes, and legal ones that look similar."""

import io
import struct

import numpy as np
import pytest
from _forks import Forks
from _images import COLORS, GRAY, HEIGHT, PNG, PNG_END, RGB, WIDTH, chunk, decode, ihdr, pillow, reason, turned_exif
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types

BITS = GRAY > 127


# JPEG


def jpeg_parts() -> tuple[bytes, int, bytes]:
    """A file, where its frame header begins, and that header with another size."""
    file = pillow(RGB, "JPEG")
    at = file.index(b"\xff\xc0")
    return file, at, file[at : at + 5] + struct.pack(">HH", 640, 640) + file[at + 9 : at + 19]


def test_jpeg_with_two_frames() -> None:
    file, at, other = jpeg_parts()
    assert "two frame headers" in reason(file[:at] + other + file[at:])


@pytest.mark.parametrize("marker", [0x01, 0xD0, 0xD7, 0xD8, 0xD9])
def test_jpeg_with_a_marker_without_a_length(marker: int) -> None:
    file, at, other = jpeg_parts()
    # A parser that takes it for a segment skips the frame after it.
    hidden = bytes([0xFF, marker]) + other
    assert ("a marker that is not allowed" if marker > 0xD7 else "two frame headers") in reason(file[:at] + hidden + file[at:])


STRAY = [b"\0", b"\xff\0", b"\0\0\0abc", b"\xff\0\xff\xff\0", b"\xff\xd3", b"\xff\x01\xff\xd0x", bytes(range(255)) * 3]


@pytest.mark.parametrize("stray", STRAY)
def test_jpeg_with_bytes_between_segments(stray: bytes) -> None:
    file = pillow(RGB, "JPEG", exif=turned_exif(), progressive=True)
    expected, at = decode(file), [i for i in range(len(file)) if file[i : i + 2] in (b"\xff\xe1", b"\xff\xc2", b"\xff\xda")]
    for where in (2, *at[:3]):
        damaged = file[:where] + stray + file[where:]
        assert np.array_equal(decode(damaged), expected)
        assert ndd.peek_image_shape(np.frombuffer(damaged, np.uint8)).torch().tolist() == list(expected.shape)
        assert np.array_equal(crop(damaged), expected[3:23, 5:35])
        assert decode(damaged, at_least=5).shape == decode(file, at_least=5).shape


def test_jpeg_with_nothing_but_bytes_between_segments() -> None:
    assert "ends in its header" in reason(b"\xff\xd8" + b"\xff\0x" * 1000)


def crop(file: bytes) -> np.ndarray:
    return np.asarray(ndd.decoders.image_slice(ndd.tensor(np.frombuffer(file, np.uint8)), start=[3, 5], shape=[20, 30], axis_names="HW"))


def first_scans(file: bytes, count: int) -> bytes:
    """Leave the other scans of a progressive JPEG out."""
    at = -1
    for _ in range(count + 1):
        at = file.index(b"\xff\xda", at + 1)
    return file[: file.rindex(b"\xff\xc4", 0, at)] + b"\xff\xd9"


@pytest.mark.parametrize("scans", [1, 2, 3, 5])
def test_windows_of_a_jpeg_without_its_last_scans(scans: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (13, 18, 3), dtype=np.uint8).repeat(12, 0).repeat(12, 1)
    file = first_scans(pillow(noise, "JPEG", progressive=True, quality=95), scans)
    whole = decode(file)
    for y, x, height, width in ((40, 40, 60, 60), (0, 100, 50, 116), (101, 3, 7, 9)):
        window = ndd.decoders.image_slice(ndd.tensor(np.frombuffer(file, np.uint8)), start=[y, x], shape=[height, width], axis_names="HW")
        assert np.array_equal(np.asarray(window), whole[y : y + height, x : x + width])


def repeat_last_scan(file: bytes) -> bytes:
    last = file[file.rindex(b"\xff\xda") : -2]
    return file[:-2] + last * 600 + file[-2:]


def test_a_progressive_jpeg_with_hundreds_of_scans_is_refused() -> None:
    """Each costs a pass over the image."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    endless = repeat_last_scan(pillow(noise, "JPEG", progressive=True))
    assert "more than 500 scans, far more than an image of this size needs" in reason(endless)
    # Of a sequential file whose first scan is complete, no other is read.
    plain = pillow(noise, "JPEG")
    assert np.array_equal(decode(repeat_last_scan(plain)), decode(plain))


def test_a_sequential_jpeg_with_hundreds_of_scans_is_refused() -> None:
    """One whose scans hold a component each."""
    file = pillow(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8), "JPEG")
    scan = file.index(b"\xff\xda")
    first = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + b"\0" * 20
    assert "more than 500 scans" in reason(file[:scan] + first * 600 + file[scan:])


def test_jpeg_with_a_short_exif_segment() -> None:
    file, _, _ = jpeg_parts()
    assert "EXIF" in reason(file[:2] + b"\xff\xe1\0\x04Exif\0\0" + file[2:])


@pytest.mark.parametrize(
    "extra", [b"\xff\xff\xff", b"\xff\xef\0\x02", b"\xff\xe1\0\x04xy", b"\xff\xfe\0\x05abc"], ids=["fill", "empty", "APP1", "comment"]
)
def test_jpeg_with_unusual_segments(extra: bytes) -> None:
    file, _, _ = jpeg_parts()
    assert np.array_equal(decode(file[:2] + extra + file[2:] + b"beyond the end"), decode(file))


@pytest.mark.parametrize(("frame", "bits", "kind"), [(0xC3, 8, "lossless"), (0xC5, 8, "hierarchical"), (0xCB, 8, "lossless"), (0xC1, 12, "12 bits")])
def test_jpeg_that_no_codec_decodes(frame: int, bits: int, kind: str) -> None:
    file, at, _ = jpeg_parts()
    text = reason(file[:at] + bytes([0xFF, frame]) + file[at + 2 : at + 4] + bytes([bits]) + file[at + 5 :])
    assert text.startswith("no CPU decoder for")
    assert kind in text
    assert "damaged" not in text


@pytest.mark.parametrize("count", [2, 5])
def test_jpeg_with_an_unusual_number_of_components(count: int) -> None:
    file, at, _ = jpeg_parts()
    components = b"".join(bytes([i + 1, 0x11, 0]) for i in range(count))
    frame = b"\xff\xc0" + struct.pack(">H", 8 + 3 * count) + file[at + 4 : at + 9] + bytes([count]) + components
    assert reason(file[:at] + frame + file[at + 19 :]).startswith(f"no CPU decoder for JPEG with {count} components")


def test_blank_jpeg_is_not_too_small() -> None:
    blank = np.zeros((3000, 2000, 3), np.uint8)
    for options in ({"optimize": True, "quality": 1}, {"progressive": True, "quality": 1}):
        assert decode(pillow(blank, "JPEG", **options)).shape == blank.shape


def test_peek_needs_no_pixels() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), dtype=np.uint8)
    first = np.frombuffer(pillow(noise, "JPEG")[:700], np.uint8)
    assert ndd.peek_image_shape(first).torch().tolist() == [1500, 2000, 3]


# PNG


FRAME = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 20, 20, 0, 0, 1, 1, 0, 0))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (PNG[:PNG_END] + ihdr(640, 640) + PNG[PNG_END:], "second IHDR"),
        (PNG[:-12] + ihdr(640, 640) + PNG[-12:], "second IHDR"),
        (PNG[:8] + chunk(b"tEXt", b"a\0b") + PNG[8:], "first chunk"),
        (PNG[:8] + ihdr(WIDTH, HEIGHT, depth=4) + PNG[PNG_END:], "4 bits"),
        (PNG[:8] + ihdr(WIDTH, HEIGHT, colors=5) + PNG[PNG_END:], "color type"),
        (PNG[:8] + ihdr(WIDTH, HEIGHT, interlaced=2) + PNG[PNG_END:], "interlacing"),
        (PNG[:8] + ihdr(2**31 - 1, 2**31 - 1) + PNG[PNG_END:], "cannot hold"),
    ],
)
def test_damaged_png_headers_are_rejected(file: bytes, text: str) -> None:
    assert text in reason(file)


@pytest.mark.parametrize("hidden", [False, True])
def test_png_animation_is_its_default_image(hidden: bool) -> None:
    images = [Image.fromarray(np.roll(COLORS[..., :channels], 9 * i, 1)) for channels in (3, 4) for i in range(3)]
    for first, *others in (images[:3], images[3:]):
        file = io.BytesIO()
        first.save(file, "PNG", save_all=True, append_images=others, default_image=hidden)
        assert np.array_equal(decode(file.getvalue(), output_type=types.ANY_DATA), np.asarray(first))


def test_png_animation_of_another_size_is_left_out() -> None:
    assert np.array_equal(decode(PNG[:PNG_END] + chunk(b"acTL", struct.pack(">II", 2, 0)) + FRAME + PNG[PNG_END:]), RGB)


def test_png_without_an_end() -> None:
    assert np.array_equal(decode(PNG[:-12]), RGB)
    assert np.array_equal(decode(PNG[:-5]), RGB)


# BMP


def bmp(change: dict[int, bytes]) -> bytes:
    data = bytearray(pillow(RGB, "BMP"))
    for at, value in change.items():
        data[at : at + len(value)] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({18: struct.pack("<i", -WIDTH)}, "pixels"),
        ({22: struct.pack("<i", -(2**31))}, "cannot hold"),
        ({18: struct.pack("<i", WIDTH * 2)}, "cannot hold"),
        ({28: struct.pack("<H", 17)}, "17 bits"),
        ({30: struct.pack("<I", 1)}, "compression 1"),
        ({10: struct.pack("<I", 20)}, "header"),
        ({14: struct.pack("<I", 39)}, "39 bytes"),
    ],
)
def test_damaged_bmp_headers_are_rejected(change: dict[int, bytes], text: str) -> None:
    assert text in reason(bmp(change))


def test_bmp_palette_beyond_the_file() -> None:
    file = pillow(GRAY, "BMP")
    assert "palette" in reason(file[:46] + struct.pack("<I", 257) + file[50:])
    assert "palette" in reason(file[:300])


def test_bmp_from_the_top() -> None:
    assert np.array_equal(decode(bmp({22: struct.pack("<i", -HEIGHT)})), RGB[::-1])


# WebP


def test_webp_canvas_of_another_size() -> None:
    file = pillow(RGB, "WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0")
    at = file.index(b"VP8X") + 12
    wide = file[:at] + (639).to_bytes(3, "little") + file[at + 3 :]
    assert f"its canvas has {HEIGHT}x640 pixels, its image {HEIGHT}x{WIDTH}" in reason(wide)


def test_webp_exif_chunk_longer_than_the_file() -> None:
    for size in (12, 13):  # RIFF pads the chunk in front of it, which nvImageCodec's parser overlooks
        icc, exif = (name + struct.pack("<I", length) for name, length in ((b"ICCP", size), (b"EXIF", 2**32 - 1)))
        image = pillow(RGB, "WEBP")[12:]
        canvas = b"VP8X" + struct.pack("<IB3x", 10, 0x28) + (WIDTH - 1).to_bytes(3, "little") + (HEIGHT - 1).to_bytes(3, "little")
        body = b"WEBP" + canvas + icc + bytes(size + size % 2) + image + exif + bytes(8)
        assert "EXIF chunk is longer" in reason(b"RIFF" + struct.pack("<I", len(body)) + body)


def blank_webp(height: int, width: int) -> bytes:
    """A black image of any size in 28 bytes: each of its five codes has one symbol, which takes no bits."""
    sizes = struct.pack("<I", (height - 1) << 14 | (width - 1))
    return b"RIFF" + struct.pack("<I", 20) + b"WEBPVP8L" + struct.pack("<I", 8) + b"\x2f" + sizes + b"\x88\x88\x08"


def test_small_webp() -> None:
    file = blank_webp(3, 2)
    assert len(file) == 28
    assert np.array_equal(decode(file), np.zeros((3, 2, 3)))
    assert all(reason(file[:length]) for length in range(12, 28))


def test_blank_webp_has_a_limit() -> None:
    assert decode(blank_webp(3000, 4000)).shape == (3000, 4000, 3)
    assert "16384x16384 pixels, which a file of" in reason(blank_webp(16384, 16384))


# PNM


def pnm(kind: int, header: bytes) -> bytes:
    digits = b" ".join(str(v).encode() for v in (RGB if kind == 3 else BITS.astype(int) if kind == 1 else GRAY).ravel().tolist())
    pixels = {4: np.packbits(BITS, axis=1).tobytes(), 5: GRAY.tobytes(), 6: RGB.tobytes()}.get(kind, digits)
    return b"P%d" % kind + header + pixels


PICTURES = {1: 255 * ~BITS, 2: GRAY, 3: RGB, 4: 255 * ~BITS, 5: GRAY, 6: RGB}


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize(
    "text",
    [
        b"\n%d %d\n%d\n",
        b" %d %d %d ",
        b"\n# Created by GIMP version 2.10 PNM plug-in\n%d %d\n%d\n",
        b" # a 9 9\n#b\r\n\n%d\t# width 4\r%d #h\n%d\n",
        b"\r\n%d\v%d\f%d\n",
    ],
    ids=["plain", "line", "gimp", "comments", "spaces"],
)
def test_pnm_with_comments(kind: int, text: bytes) -> None:
    picture = PICTURES[kind].astype(np.uint8)
    assert np.array_equal(decode(pnm(kind, header_of(kind, text))), picture if kind in (3, 6) else np.dstack([picture] * 3))


def header_of(kind: int, text: bytes) -> bytes:
    """A header of this form, without the largest value if the kind has none."""
    if kind not in (1, 4):
        return text % (WIDTH, HEIGHT, 255)
    width, _, _ = text.rpartition(b"%d")[0].rpartition(b"%d")
    return width % WIDTH + b"%d\n" % HEIGHT


@pytest.mark.parametrize(
    "file",
    [
        b"P5\n64#4480 255\n 48\n255\n" + bytes(100_000),
        b"P5\n64 48#\n\n255\n" + bytes(100_000),
        b"P5\n64 48 255#c\n" + bytes(100_000),
        b"P5\n64 48 # never ends" + b"x" * 100_000,
        b"P5\n-64 48 255\n" + bytes(100_000),
        b"P5\n64 48 0\n" + bytes(100_000),
        b"P5\n64 48 65536\n" + bytes(100_000),
        b"P5\n99999999999 48 255\n" + bytes(100_000),
        b"P5\n64 2000 255\n" + bytes(100_000),
        b"P4\n4294967295 1\n" + bytes(100_000),
        b"P6\n",
        b"P2\n2 2\n255\n1 2 3 x",
        b"P1\n2 2\n0 1 2 1\n",
    ],
)
def test_pnm_refused(file: bytes) -> None:
    text = reason(file)
    assert "damaged" in text or "cannot hold" in text


@pytest.mark.parametrize("largest", [1, 15, 100, 255, 1000, 4095, 65535])
@pytest.mark.parametrize("kind", [2, 3, 5, 6])
def test_pnm_uses_the_whole_range(kind: int, largest: int) -> None:
    samples = (RGB if kind in (3, 6) else GRAY).astype(np.int64) * 977 % (largest + 1)
    raw = samples.astype(">u2" if largest > 255 else np.uint8).tobytes()
    text = b" ".join(str(v).encode() for v in samples.ravel().tolist())
    file = b"P%d\n%d %d\n%d\n" % (kind, WIDTH, HEIGHT, largest) + (raw if kind > 4 else text)
    values = samples.reshape(HEIGHT, WIDTH, -1) / largest
    for dtype, steps in (("uint8", 255), ("uint16", 65535)):
        result = decode(file, output_type=types.ANY_DATA, dtype=getattr(ndd, dtype))
        assert np.abs(result - values * steps).max() <= (0.51 if largest > 255 or dtype == "uint8" else 129)


def test_pnm_bits_that_look_like_a_number() -> None:
    for pixels in (b"9" * 8, b" " * 8, b"#" * 8, b"255\n255\n"):
        bits = np.unpackbits(np.frombuffer(pixels, np.uint8)).reshape(8, 8)
        assert np.array_equal(decode(b"P4\n8 8\n" + pixels)[..., 0], 255 * (1 - bits))
    assert np.array_equal(decode(b"P1\n8 2\n1111111100000000")[..., 0], [[0] * 8, [255] * 8])


# TIFF


def tiff(entries: list[tuple[int, int, int, int]], pixels: bytes, order: str = "<") -> bytes:
    """Little or big endian; values of one number, or the offset of several, which lie behind ``pixels`` at 8."""
    directory = struct.pack(order + "H", len(entries))
    for tag, kind, count, value in entries:
        packed = struct.pack(order + "HH", value, 0) if kind == 3 and count == 1 else struct.pack(order + "I", value)
        directory += struct.pack(order + "HHI", tag, kind, count) + packed
    start = 8 + len(pixels) + len(pixels) % 2
    body = pixels + bytes(len(pixels) % 2) + directory + bytes(4)
    return {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HI", 42, start) + body


def entries(**changed: int) -> dict[str, tuple[int, int, int, int]]:
    values = {
        "width": WIDTH,
        "height": HEIGHT,
        "bits": 8,
        "compression": 1,
        "photometric": 1,
        "offsets": 8,
        "samples": 1,
        "rows": HEIGHT,
        "lengths": GRAY.size,
    }
    tags = {
        "width": 256,
        "height": 257,
        "bits": 258,
        "compression": 259,
        "photometric": 262,
        "offsets": 273,
        "samples": 277,
        "rows": 278,
        "lengths": 279,
    }
    return {
        name: (tags[name], 4 if name in ("offsets", "lengths", "width", "height") else 3, 1, changed.get(name, value))
        for name, value in values.items()
    }


def test_tiff_by_hand_is_legal() -> None:
    for order in "<>":
        assert np.array_equal(decode(tiff(list(entries().values()), GRAY.tobytes(), order))[..., 0], GRAY)


@pytest.mark.parametrize("name", list(entries()))
def test_tiff_with_a_tag_twice(name: str) -> None:
    good = list(entries().values())
    twice = entries(**{name: entries()[name][3] * 2})[name]
    at = [value[0] for value in good].index(twice[0])
    for i in (at, at + 1, len(good)):
        assert f"the tag {twice[0]} twice" in reason(tiff([*good[:i], twice, *good[i:]], GRAY.tobytes()))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"width": 640}, "longer than the file"),
        ({"height": 100_000}, "fewer strips"),
        ({"rows": 0}, "no pixels"),
        ({"rows": 5}, "fewer strips"),
        ({"samples": 3}, "longer than the file"),
        ({"samples": 0}, "0 samples"),
        ({"bits": 0}, "0 bits"),
        ({"bits": 16}, "longer than the file"),
        ({"compression": 0}, "compression is 0"),
        ({"compression": 5, "lengths": 2, "width": 5000}, "too short"),
        ({"offsets": 10**9}, "outside of the file"),
        ({"photometric": 3}, "palette"),
    ],
)
def test_damaged_tiff_directories_are_rejected(changed: dict[str, int], text: str) -> None:
    assert text in reason(tiff(list(entries(**changed).values()), GRAY.tobytes()))


def test_tiff_with_strips_and_tiles() -> None:
    tiles = [(322, 3, 1, 64), (323, 3, 1, 64), (324, 4, 1, 8)]
    assert "strips and tiles" in reason(tiff([*entries().values(), *tiles], GRAY.tobytes()))


def test_tiff_out_of_order() -> None:
    good = list(entries().values())
    assert np.array_equal(decode(tiff(good[::-1], GRAY.tobytes()))[..., 0], GRAY)


def test_tiff_with_gray_and_alpha() -> None:
    tifffile, file = pytest.importorskip("tifffile"), io.BytesIO()
    tifffile.imwrite(file, COLORS[..., :2], photometric="minisblack", planarconfig="contig", extrasamples=["unassalpha"])
    assert np.array_equal(decode(file.getvalue(), output_type=types.ANY_DATA), COLORS[..., :2])
    assert np.array_equal(decode(file.getvalue()), np.dstack([GRAY] * 3))
    assert np.array_equal(decode(file.getvalue(), output_type=types.GRAY)[..., 0], GRAY)


# Files that ended the process, each in its own process.

HOSTILE = f"""
import numpy as np
import torch_ndd as ndd
from torch_ndd import types

def tiff(*extra):
    entries = {[*entries().values()]!r}
    entries[0] = (256, 4, 1, 640)
    from decoders.test_image_headers import tiff
    return tiff(sorted([*entries, *extra], key=lambda one: one[0]), bytes(640 * 37))

files = [b"P%d\\n64#4480 255\\n 48\\n255\\n" % kind + b"A" * 860160 for kind in (4, 5, 6)]
files += [tiff((256, 4, 1, 1)), tiff((277, 3, 1, 3)), tiff((277, 3, 1, 2)), tiff((258, 3, 1, 32))]
for output in (types.RGB, types.ANY_DATA):
    images = ndd.decoders.image(ndd.as_batch([np.frombuffer(file, np.uint8) for file in files]), on_error="skip", output_type=output).evaluate()
    assert len(images.errors) == len(files), images.errors
    crops = ndd.decoders.image_crop(ndd.as_batch([np.frombuffer(file, np.uint8) for file in files]), on_error="skip", crop=[5, 5])
    assert len(crops.errors) == len(files)
"""


def test_headers_that_ended_the_process(forks: Forks) -> None:
    run = forks.run(HOSTILE)
    assert (run.wait(), run.errors) == (0, "")


# Depths of JPEG 2000


@pytest.mark.parametrize("bits", [1, 5, 7, 8, 10, 12, 16])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg2000_uses_the_whole_range(bits: int, channels: int) -> None:
    codec = pytest.importorskip("openjpeg.utils")
    samples = np.random.default_rng(bits).integers(0, 1 << bits, (HEIGHT, WIDTH, channels)).astype(np.uint8 if bits <= 8 else np.uint16)
    samples[0, :2] = [[0] * channels, [(1 << bits) - 1] * channels]
    kind = 1 if channels == 3 else 2
    file = bytes(codec.encode_array(samples if channels == 3 else samples[..., 0], bits_stored=bits, photometric_interpretation=kind, use_mct=False))
    values = samples / ((1 << bits) - 1)
    for dtype, steps in (("uint8", 255), ("uint16", 65535), ("float32", 1)):
        result = decode(file, output_type=types.ANY_DATA, dtype=getattr(ndd, dtype))
        assert np.abs(result - values * steps).max() <= (0.51 if steps > 1 else 1e-5)
