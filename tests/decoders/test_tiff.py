# SPDX-License-Identifier: Apache-2.0
"""TIFF: layouts, sample sizes, colors, orientations and compressions, against the samples that the files were written from."""

import io
import itertools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _tiff_files import LONG, RATIONAL, SHORT, SIGNED_BYTE, UNDEFINED, Layout, encode_chroma_blocks, pack_row, write_tiff
from PIL import Image, ImageOps

import torch_ndd as ndd
from torch_ndd import types

HEIGHT, WIDTH = 37, 53
RNG = np.random.default_rng(11)


def noise(bits: int, channels: int = 3) -> np.ndarray:
    samples = RNG.integers(0, 1 << bits, (HEIGHT, WIDTH, channels), dtype=np.uint64)
    samples[0, 0], samples[0, 1] = 0, (1 << bits) - 1
    return samples


def decode(file: bytes, **options: Any) -> np.ndarray:
    options = {name: getattr(types, value) if name == "output_type" else value for name, value in options.items()}
    return np.asarray(ndd.decoders.image(ndd.tensor(np.frombuffer(file, np.uint8)), **options))


def read_samples(file: bytes, dtype: Any = ndd.uint8) -> np.ndarray:
    return decode(file, output_type="ANY_DATA", dtype=dtype)


def reason(file: bytes, **options: Any) -> str:
    """Return why a file is rejected, and check that it is also when only its size is asked for or with pixels to be replaced."""
    with pytest.raises(RuntimeError) as error:
        decode(file, **options)
    images = ndd.decoders.image(ndd.as_batch([np.frombuffer(file, np.uint8)]), on_error="replace")
    assert bool(images.evaluate().errors) == ("output_type" not in options)
    return str(error.value)


def scale(samples: np.ndarray, bits: int, full: int = 255) -> np.ndarray:
    """Return samples of so many bits in a range up to ``full``, rounded."""
    largest = (1 << bits) - 1
    return ((samples.astype(object) * full + largest // 2) // largest).astype(np.int64)


# Layouts


@pytest.mark.parametrize("bits", [*range(1, 17), 20, 24, 31, 32])
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("tile", [None, (16, 16), (16, 32), (48, 64)])
def test_samples_of_every_size(bits: int, planar: bool, tile: tuple[int, int] | None) -> None:
    for order, big in itertools.product("<>", (False, True)):
        samples = noise(bits)
        file = write_tiff(samples, Layout(bits=bits, photometric=2, planar=planar, tile=tile, order=order, big=big))
        assert np.abs(read_samples(file).astype(int) - scale(samples, bits)).max() <= (1 if bits > 8 else 0)
        values = read_samples(file, ndd.float32)
        assert values[0, 0].max() == 0
        assert values[0, 1].min() == 1
        assert np.abs(values - samples / ((1 << bits) - 1)).max() < (1e-5 if bits > 8 else 1 / 500)
        assert np.array_equal(decode(file), read_samples(file))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("compression", [8, 32946])
def test_horizontal_predictor(bits: int, compression: int) -> None:
    for planar, tile, order in itertools.product((False, True), (None, (16, 48)), "<>"):
        samples = noise(bits)
        layout = Layout(bits=bits, photometric=2, compression=compression, predictor=2, planar=planar, tile=tile, order=order)
        assert np.array_equal(read_samples(write_tiff(samples, layout), ndd.float32), read_samples(write_tiff(samples, Layout(bits, 2)), ndd.float32))


@pytest.mark.parametrize("bits", [16, 24, 32, 64])
@pytest.mark.parametrize("predictor", [1, 2, 3])
def test_floating_point_samples(bits: int, predictor: int) -> None:
    values = RNG.integers(0, 1025, (HEIGHT, WIDTH, 3)) / 1024 - 0.25  # exact in 16 bits
    if bits == 24:
        patterns = values.astype(np.float32).view(np.uint32).astype(np.int64)
        exponent = np.where(values == 0, 0, (patterns >> 23 & 255) - 127 + 63)
        patterns = ((patterns >> 31 << 23) | exponent << 16 | (patterns >> 7 & 0xFFFF)).astype(np.uint64)
    else:
        patterns = values.astype(f"f{bits // 8}").view(f"u{bits // 8}").astype(np.uint64)
    for planar, order, tile in itertools.product((False, True), "<>", (None, (32, 16))):
        layout = Layout(bits, 2, compression=8, predictor=predictor, sample_format=3, planar=planar, order=order, tile=tile)
        assert np.array_equal(read_samples(write_tiff(patterns, layout), ndd.float32), values.astype(np.float32))


@pytest.mark.parametrize(("bits", "dtype"), [(8, ndd.int8), (16, ndd.int16)])
def test_samples_with_a_sign(bits: int, dtype: Any) -> None:
    samples = noise(bits)
    file = write_tiff(samples, Layout(bits, 2, sample_format=2))
    signed = samples.astype(f"u{bits // 8}").view(f"i{bits // 8}")
    result = read_samples(file, dtype)
    assert np.array_equal(result, signed)
    assert f"samples with a sign, of {bits} bits; output_type=types.ANY_DATA" in reason(file)


@pytest.mark.parametrize("compression", [1, 8, 32773])
def test_reversed_bits(compression: int) -> None:
    for bits, tile in itertools.product((1, 2, 4, 8, 12, 16), (None, (16, 16))):
        samples = noise(bits, 1)
        file = write_tiff(samples, Layout(bits, compression=compression, fill_order=2, tile=tile))
        assert np.array_equal(read_samples(file, ndd.uint16), read_samples(write_tiff(samples, Layout(bits, tile=tile)), ndd.uint16))


def test_extra_samples_are_left_out_of_colors() -> None:
    for channels, planar in itertools.product((4, 5), (False, True)):
        samples = noise(8, channels)
        file = write_tiff(samples, Layout(photometric=2, planar=planar, tags={338: (SHORT, [2] + [0] * (channels - 4))}))
        assert np.array_equal(read_samples(file), samples)
        assert np.array_equal(decode(file), samples[..., :3])
        assert np.array_equal(decode(file, output_type="BGR"), samples[..., 2::-1])
    gray = noise(8, 2)
    for planar in (False, True):
        file = write_tiff(gray, Layout(planar=planar, tags={338: (SHORT, [2])}))
        assert np.array_equal(read_samples(file), gray)
        assert np.array_equal(decode(file, output_type="GRAY"), gray[..., :1])
        assert np.array_equal(decode(file), gray[..., :1].repeat(3, -1))


# Files that lack a tag, or have one too many


def test_bilevel_file_without_bits_and_samples() -> None:
    samples = noise(1, 1)
    for without in ((258,), (277,), (258, 277), (258, 277, 284)):
        for photometric, tile in itertools.product((0, 1), (None, (16, 16))):
            file = write_tiff(samples, Layout(1, photometric, without=without, tile=tile))
            assert np.array_equal(decode(file)[..., :1], 255 * (samples if photometric else 1 - samples))
    rgb = noise(8)
    assert np.array_equal(decode(write_tiff(rgb, Layout(photometric=2, without=(277,)))), rgb)


def test_files_that_lack_what_they_can_do_without() -> None:
    samples = noise(8)
    for without in ((278,), (284,), (279,), (259,)):
        assert np.array_equal(decode(write_tiff(samples, Layout(photometric=2, without=without, rows=64))), samples)
    assert np.array_equal(decode(write_tiff(samples, Layout(photometric=2, compression=8, without=(279,)))), samples)
    tiles = Layout(photometric=2, compression=8, without=(325,), tile=(16, 16))
    assert np.array_equal(decode(write_tiff(samples, tiles)), samples)


def test_rows_per_strip_beside_tiles() -> None:
    samples = noise(8)
    for compression in (1, 8):
        file = write_tiff(samples, Layout(photometric=2, compression=compression, tile=(16, 32), tags={278: (LONG, [16])}))
        assert np.array_equal(decode(file), samples)


def test_repeated_tag_that_nobody_needs() -> None:
    samples = noise(8, 1)
    file = write_tiff(samples, Layout(tags={305: (SHORT, [1]), 306: (SHORT, [1])}))
    at = file.index(b"\x32\x01\x03\0")
    assert np.array_equal(decode(file[:at] + b"\x31\x01" + file[at + 2 :])[..., :1], samples)


# Orientations


def encode_tiff(mode: str, orientation: int, compression: str | None = None) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(noise(8).astype(np.uint8)).convert(mode)
    image.save(file, "TIFF", compression=compression, tiffinfo={274: orientation})
    return file.getvalue()


def layouts_to_turn() -> dict[str, Callable[[int], bytes]]:
    lab, gray, rgb, inks, bits = noise(8), noise(8, 1), noise(8), noise(8, 4), noise(1, 1)
    palette = {320: (SHORT, RNG.integers(0, 65536, 768).tolist())}
    blocks = {530: (SHORT, [2, 2])}
    return {
        "rgb": lambda n: write_tiff(rgb, Layout(photometric=2, orientation=n)),
        "planes": lambda n: write_tiff(rgb, Layout(photometric=2, planar=True, orientation=n)),
        "tiles": lambda n: write_tiff(rgb, Layout(photometric=2, planar=True, tile=(16, 16), orientation=n)),
        "12 bits": lambda n: write_tiff(noise_of_12_bits, Layout(12, 2, orientation=n)),
        "white is zero": lambda n: write_tiff(gray, Layout(photometric=0, orientation=n)),
        "bits, white is zero": lambda n: write_tiff(bits, Layout(1, 0, orientation=n)),
        "palette": lambda n: write_tiff(gray, Layout(photometric=3, tags=palette, orientation=n)),
        "inks": lambda n: write_tiff(inks, Layout(photometric=5, orientation=n)),
        "lab": lambda n: write_tiff(lab, Layout(photometric=8, orientation=n)),
        "ycbcr": lambda n: write_tiff(lab, Layout(photometric=6, orientation=n, tags=blocks, encode=lambda piece: encode_chroma_blocks(piece, 2, 2))),
        "fax": lambda n: encode_bilevel("group4", n),
        "ycbcr, jpeg": lambda n: encode_photo("YCbCr", n),
        "inks, jpeg": lambda n: encode_photo("CMYK", n),
        "old-style jpeg": lambda n: encode_old_jpeg(orientation=n),
        "old-style jpeg without samples": lambda n: encode_old_jpeg(orientation=n, without=(277,)),
    }


noise_of_12_bits = noise(12)
_BITS = noise(1, 1)[..., 0].astype(np.uint8) * 255


def encode_bilevel(compression: str, orientation: int = 1) -> bytes:
    file = io.BytesIO()
    Image.fromarray(_BITS).convert("1", dither=Image.Dither.NONE).save(file, "TIFF", compression=compression, tiffinfo={274: orientation})
    return file.getvalue()


def encode_photo(mode: str, orientation: int = 1) -> bytes:
    file, ramp = io.BytesIO(), np.mgrid[:HEIGHT, :WIDTH]
    photo = np.stack([ramp[0] * 6, ramp[1] * 4, ramp[0] + ramp[1]], -1).astype(np.uint8)
    Image.fromarray(photo).convert(mode).save(file, "TIFF", compression="jpeg", quality=95, tiffinfo={274: orientation})
    return file.getvalue()


def encode_old_jpeg(**options: Any) -> bytes:
    ramp, file = np.mgrid[:HEIGHT, :WIDTH], io.BytesIO()
    Image.fromarray(np.stack([ramp[0] * 6, ramp[1] * 4, ramp[0] + ramp[1]], -1).astype(np.uint8)).save(file, "JPEG", quality=95)
    stream = file.getvalue()
    tags = {512: (SHORT, [1]), 513: (LONG, [8]), 514: (LONG, [len(stream)]), 530: (SHORT, [2, 2])}
    return write_tiff(noise(8), Layout(photometric=6, compression=6, rows=HEIGHT, encode=lambda _: stream, tags=tags, **options))


TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda image: image,
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: np.rot90(image, -1),
    7: lambda image: image[::-1, ::-1].swapaxes(0, 1),
    8: lambda image: np.rot90(image),
}
LAYOUTS = layouts_to_turn()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("output_type", ["RGB", "ANY_DATA"])
def test_orientation_is_applied_once(name: str, output_type: str) -> None:
    stored = decode(LAYOUTS[name](1), output_type=output_type)
    for orientation, turn in TURNS.items():
        file = LAYOUTS[name](orientation)
        displayed = decode(file, output_type=output_type)
        assert np.array_equal(displayed, turn(stored)), orientation
        assert np.array_equal(decode(file, output_type=output_type, adjust_orientation=False), stored), orientation
        shape = ndd.peek_image_shape(np.frombuffer(file, np.uint8), image_type=getattr(types, output_type))
        assert shape.torch().tolist() == list(displayed.shape)


@pytest.mark.parametrize("name", LAYOUTS)
def test_windows_and_types_are_those_of_the_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / "image.tif"
    for orientation in (1, 6):
        path.write_bytes(LAYOUTS[name](orientation))
        contents = ndd.tensor(np.frombuffer(path.read_bytes(), np.uint8))
        assert np.array_equal(ndd.imread(path), decode(path.read_bytes()))
        for output_type, dtype in itertools.product(("RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA"), (ndd.uint8, ndd.float32)):
            options = {"output_type": getattr(types, output_type), "dtype": dtype}
            whole = np.asarray(ndd.decoders.image(contents, **options))
            for x, y in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0)):
                part = np.asarray(ndd.decoders.image_crop(contents, crop=[11, 13], crop_pos_x=x, crop_pos_y=y, **options))
                top, left = round(y * (whole.shape[0] - 11)), round(x * (whole.shape[1] - 13))
                assert np.array_equal(part, whole[top : top + 11, left : left + 13])
        rgb = decode(path.read_bytes(), dtype=ndd.float32)
        assert np.array_equal(decode(path.read_bytes(), output_type="BGR", dtype=ndd.float32), rgb[..., ::-1])
        luma = rgb @ np.array([0.299, 0.587, 0.114], np.float32)
        assert np.abs(decode(path.read_bytes(), output_type="GRAY", dtype=ndd.float32)[..., 0] - luma).max() < 1.2 / 255


# Colors


@pytest.mark.parametrize("bits", range(1, 17))
def test_white_is_zero(bits: int) -> None:
    for tile, order in itertools.product((None, (16, 16)), "<>"):
        samples = noise(bits, 1)
        file = write_tiff(samples, Layout(bits, 0, tile=tile, order=order))
        full = 255 if bits <= 8 else 65535
        result = read_samples(file, ndd.uint8 if bits <= 8 else ndd.uint16)
        assert np.array_equal(result, full - scale(samples, bits, full))
        assert decode(file, dtype=ndd.float32)[0, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 12, 16])
def test_palette_colors_are_looked_up(bits: int) -> None:
    colors = RNG.integers(0, 65536, (3, 1 << bits))
    for tile, order, compression in itertools.product((None, (16, 16)), "<>", (1, 8)):
        samples = noise(bits, 1)
        layout = Layout(bits, 3, compression, tile=tile, order=order, tags={320: (SHORT, colors.reshape(-1).tolist())})
        wanted = colors.T[samples[..., 0].astype(int)]
        assert np.array_equal(decode(write_tiff(samples, layout), dtype=ndd.uint16), wanted)


def test_palette_of_bytes_and_palette_with_alpha() -> None:
    colors, samples = RNG.integers(0, 256, (3, 256)), noise(8, 2)
    tags = {320: (SHORT, colors.reshape(-1).tolist()), 338: (SHORT, [2])}
    wanted = colors.T[samples[..., 0].astype(int)]
    assert np.array_equal(decode(write_tiff(samples[..., :1], Layout(photometric=3, tags=tags))), wanted)
    for planar in (False, True):
        file = write_tiff(samples, Layout(photometric=3, planar=planar, tags=tags))
        assert np.array_equal(decode(file), wanted)
        assert np.array_equal(read_samples(file), np.concatenate([wanted, samples[..., 1:]], -1))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("planar", [False, True])
def test_inks_become_rgb(bits: int, planar: bool) -> None:
    full, dtype = (1 << bits) - 1, ndd.uint8 if bits == 8 else ndd.uint16
    samples = noise(bits, 4)
    file = write_tiff(samples, Layout(bits, 5, planar=planar))
    values = samples.astype(float) / full
    assert np.abs(decode(file, dtype=dtype) - (1 - values[..., :3]) * (1 - values[..., 3:]) * full).max() <= 0.51
    assert np.array_equal(read_samples(file, dtype), samples)
    if bits == 8:
        assert np.abs(decode(file).astype(int) - np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))).max() <= 1
    other = write_tiff(samples, Layout(bits, 5, planar=planar, tags={332: (SHORT, [2])}))
    assert "photometric interpretation 5 (separated inks other than CMYK)" in reason(other)
    assert np.array_equal(read_samples(other, dtype), samples)


def test_inks_in_jpeg() -> None:
    file = encode_photo("CMYK")
    stored = Image.open(io.BytesIO(file))
    assert np.abs(read_samples(file).astype(int) - np.asarray(stored)).max() <= 1
    assert np.abs(decode(file).astype(int) - np.asarray(stored.convert("RGB"))).max() <= 2


def lab(lightness: float, a: int, b: int, bits: int = 8, photometric: int = 8, **options: Any) -> np.ndarray:
    unit, full = (1, 255) if bits == 8 else (256, 65535)
    if photometric == 8:
        codes = [round(lightness * full / 100), a * unit % (full + 1), b * unit % (full + 1)]
    else:
        codes = [round(lightness * (255 if bits == 8 else 65280) / 100), (a + 128) * unit, (b + 128) * unit]
    file = write_tiff(np.full((4, 4, 3), codes, np.uint64), Layout(bits, photometric, **options))
    pixels = decode(file)
    assert np.array_equal(read_samples(file), pixels)
    assert (pixels == pixels[0, 0]).all()
    return pixels[0, 0]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("photometric", [8, 9])
def test_lab_becomes_srgb(bits: int, photometric: int) -> None:
    kind = {"bits": bits, "photometric": photometric}
    assert lab(50.196, 0, 0, **kind).tolist() == [119, 119, 119]
    assert lab(100, 0, 0, **kind).tolist() == [255, 255, 255]
    assert lab(0, 0, 0, **kind).tolist() == [0, 0, 0]
    # sRGB's red, green and blue relative to D50; the places are rounded to whole numbers of a* and b*.
    for place, color in (((54.29, 81, 70), [255, 0, 0]), ((87.82, -79, 81), [0, 255, 0]), ((29.57, 68, -112), [0, 0, 255])):
        assert np.abs(lab(*place, **kind).astype(int) - color).max() <= 10
    for planar in (False, True):
        assert lab(50.196, 0, 0, planar=planar, **kind).tolist() == [119, 119, 119]


def test_lab_of_pillow() -> None:
    imagecms = pytest.importorskip("PIL.ImageCms")
    ramp = np.mgrid[:HEIGHT, :WIDTH]
    photo = np.stack([80 + ramp[0] * 3, 90 + ramp[1] * 2, 100 + ramp[0] + ramp[1]], -1).astype(np.uint8)
    to_lab = imagecms.buildTransform(imagecms.createProfile("sRGB"), imagecms.createProfile("LAB"), "RGB", "LAB")
    file = io.BytesIO()
    imagecms.applyTransform(Image.fromarray(photo), to_lab).save(file, "TIFF")
    assert np.abs(decode(file.getvalue()).astype(int) - photo).max() <= 4  # a* and b* have steps of 1


def test_lab_of_another_white() -> None:
    d65 = {318: (RATIONAL, [3127, 10000, 3290, 10000])}
    assert lab(50.196, 0, 0, tags=d65).tolist() == [119, 119, 119]
    assert np.abs(lab(32.3, 79, -108, tags=d65).astype(int) - [0, 0, 255]).max() <= 8  # relative to D65


@pytest.mark.parametrize("across", [1, 2, 4])
@pytest.mark.parametrize("down", [1, 2, 4])
@pytest.mark.parametrize("tile", [None, (16, 16)])
def test_ycbcr_without_jpeg(across: int, down: int, tile: tuple[int, int] | None) -> None:
    samples = noise(8)
    held = samples.astype(float).copy()
    held[..., 1:] = held[::down, ::across, 1:].repeat(down, 0).repeat(across, 1)[:HEIGHT, :WIDTH]
    y, cb, cr = held[..., 0], held[..., 1] - 128, held[..., 2] - 128
    wanted = np.stack([y + 1.402 * cr, y - 0.114 * 1.772 / 0.587 * cb - 0.299 * 1.402 / 0.587 * cr, y + 1.772 * cb], -1).clip(0, 255)
    for compression in (1, 8):

        def encode(piece: np.ndarray, compression: int = compression) -> bytes:
            packed = encode_chroma_blocks(piece, across, down)
            return packed if compression == 1 else zlib.compress(packed)

        layout = Layout(photometric=6, compression=compression, tile=tile, tags={530: (SHORT, [across, down])}, encode=encode)
        file = write_tiff(samples, layout)
        assert np.abs(decode(file) - wanted).max() <= 0.51
        if (across, down) == (1, 1):
            assert np.abs(decode(write_tiff(samples, Layout(photometric=6, planar=True, tags=layout.tags))) - wanted).max() <= 0.51


def test_ycbcr_of_the_studio_range() -> None:
    tags = {530: (SHORT, [1, 1]), 532: (RATIONAL, [n for code in (16, 235, 128, 240, 128, 240) for n in (code, 1)])}
    samples = np.array([[[16, 128, 128], [235, 128, 128]]], np.uint64)
    assert decode(write_tiff(samples, Layout(photometric=6, tags=tags))).tolist() == [[[0, 0, 0], [255, 255, 255]]]


# Compressions


@pytest.mark.parametrize("compression", ["group3", "group4", "tiff_ccitt", "tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd"])
def test_bilevel_compressions(compression: str) -> None:
    assert np.array_equal(decode(encode_bilevel(compression))[..., 0], _BITS)


def encode_thunderscan(piece: np.ndarray) -> bytes:
    """Return a byte with a code for each sample of 4 bits."""
    return (0xC0 | piece).astype(np.uint8).tobytes()


def encode_next(piece: np.ndarray) -> bytes:
    """Return rows of samples of 2 bits, each behind a code."""
    return b"".join(b"\0" + pack_row(row, Layout(2)) for row in piece)


@pytest.mark.parametrize(("compression", "bits", "encode"), [(32809, 4, encode_thunderscan), (32766, 2, encode_next)])
def test_old_compressions_of_few_bits(compression: int, bits: int, encode: Callable[[np.ndarray], bytes]) -> None:
    for tile, photometric in itertools.product((None, (16, 16)), (0, 1)):
        gray = noise(bits, 1)
        file = write_tiff(gray, Layout(bits, photometric, compression, tile=tile, encode=encode))
        wanted = scale(gray, bits)
        assert np.array_equal(decode(file, output_type="GRAY"), wanted if photometric else 255 - wanted)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits", "zstd"])
@pytest.mark.parametrize("mode", ["RGB", "CMYK", "LAB", "L", "P", "I;16"])
def test_damaged_data_are_an_error_and_not_black(compression: str, mode: str) -> None:
    file, gray = io.BytesIO(), noise(8).astype(np.uint8)
    image = Image.fromarray(gray[..., 0].astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(gray)
    if mode == "LAB":
        image = Image.merge("LAB", image.split())
    (image if mode in ("LAB", "I;16") else image.convert(mode)).save(file, "TIFF", compression=compression)
    data = bytearray(file.getvalue())
    assert decode(bytes(data)).any()
    middle = len(data) // 2
    data[middle : middle + 400] = b"\x80" * 400 if compression == "packbits" else b"\xff" * 400
    try:
        pixels = decode(bytes(data))
    except RuntimeError as error:
        assert "damaged" in str(error)  # noqa: PT017  # LZW and PackBits have no checksum
    else:
        assert pixels[: HEIGHT // 8].any()


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (33003, "Aperio JPEG 2000, YCbCr"),
        (33005, "Aperio JPEG 2000, RGB"),
        (34712, "JPEG 2000"),
        (34887, "LERC"),
        (34925, "LZMA"),
        (34933, "PNG"),
        (34934, "JPEG XR"),
        (22610, "JPEG XR"),
        (34661, "JBIG"),
        (34676, "SGI LogLuv"),
        (50001, "WebP"),
        (50002, "JPEG XL"),
        (12345, "unknown"),
    ],
)
def test_compression_without_a_decoder_is_named(number: int, name: str) -> None:
    for photometric, channels, tile in ((1, 1, None), (2, 3, None), (2, 3, (16, 16)), (5, 4, None), (6, 3, (16, 16))):
        text = reason(write_tiff(noise(8, channels), Layout(photometric=photometric, compression=number, tile=tile)))
        assert f"no decoder for compression {number} ({name})" in text
        assert "save the image with another one" in text
        assert "damaged" not in text


@pytest.mark.parametrize(
    ("layout", "channels", "text"),
    [
        (Layout(32, sample_format=6), 1, "complex samples"),
        (Layout(8, sample_format=3), 1, "floating-point samples of 8 bits"),
        (Layout(8, photometric=2, tags={258: (SHORT, [5, 6, 5])}), 3, "samples of different sizes in a pixel (5, 6, 5)"),
        (Layout(8, photometric=2), 33, "33 samples a pixel, more than 32"),
        (Layout(8, photometric=32803), 1, "photometric interpretation 32803 (color filter array)"),
        (Layout(8, photometric=34892), 3, "photometric interpretation 34892 (linear raw)"),
        (Layout(8, compression=8, tags={317: (SHORT, [7])}), 1, "predictor 7"),
        (Layout(12, compression=8, tags={317: (SHORT, [2])}), 1, "a predictor and 12 bits a sample"),
        (Layout(8, compression=4), 1, "the compression of fax machines and more than one bit a pixel"),
        (Layout(12, photometric=6), 3, "YCbCr colors of 12 bits a sample"),
        (Layout(12, photometric=8), 3, "L*a*b* colors of 12 bits a sample"),
    ],
)
def test_kind_without_a_decoder_is_named(layout: Layout, channels: int, text: str) -> None:
    error = reason(write_tiff(noise(layout.bits, channels), layout))
    assert text in error
    assert "damaged" not in error


@pytest.mark.parametrize(
    ("layout", "channels", "text"),
    [
        (Layout(photometric=6, tags={530: (SHORT, [1, 1]), 532: (RATIONAL, [16, 1] * 6)}), 3, "tag 532 has equal codes for black and white"),
        (Layout(photometric=6, tags={530: (SHORT, [1, 1]), 529: (RATIONAL, [0, 1] * 3)}), 3, "tag 529 is not three weights"),
        (Layout(photometric=6, tags={530: (SHORT, [1, 1]), 529: (RATIONAL, [1, 0] * 3)}), 3, "tag 529 has a zero denominator"),
        (Layout(photometric=6, tags={530: (SHORT, [3, 1])}), 3, "tag 530 is neither 1, 2 nor 4"),
        (Layout(photometric=6), 1, "YCbCr colors and 1 samples"),
        (Layout(photometric=8, tags={318: (RATIONAL, [0, 1, 1, 1])}), 3, "tag 318 is not a plausible white point"),
        (Layout(photometric=3, tags={320: (SHORT, [0] * 765)}), 1, "its palette does not fit its samples"),
        (Layout(compression=8, predictor=3), 1, "a predictor for floating-point samples, and none such"),
        (Layout(tile=(16, 16), tags={323: (LONG, [1 << 24])}), 1, "its rows or tiles are too large"),
        (Layout(compression=7, photometric=0, tags={347: (UNDEFINED, [0] * 70000)}), 1, "tag 347 has 70000 values"),
        (Layout(compression=8, photometric=0, tags={279: (LONG, [0, 0, 0])}), 1, "its strips or tiles are too short"),
        (Layout(compression=50000, photometric=0, tags={279: (LONG, [0, 0, 0])}), 1, "a strip or tile is empty"),
        (Layout(photometric=0, tags={258: (SIGNED_BYTE, [8])}), 1, "tag 258 is not an integer"),
    ],
)
def test_damaged_directories(layout: Layout, channels: int, text: str) -> None:
    with pytest.raises(RuntimeError, match=r"the file is damaged") as error:
        decode(write_tiff(noise(8, channels), layout))
    assert text in str(error.value)


def test_samples_of_unknown_colors() -> None:
    samples = noise(8, 1)
    assert np.array_equal(read_samples(write_tiff(samples, Layout(photometric=32803))), samples)


def test_jpeg_in_strips_tiles_and_planes() -> None:
    ramp = np.mgrid[:HEIGHT, :WIDTH]
    photo = np.stack([ramp[0] * 6, ramp[1] * 4, ramp[0] + ramp[1]], -1).astype(np.uint8)

    def encode(piece: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(piece[..., 0] if piece.shape[2] == 1 else piece).save(file, "JPEG", quality=95, subsampling=0, keep_rgb=piece.shape[2] == 3)
        return file.getvalue()

    for planar, tile in itertools.product((False, True), (None, (16, 16))):
        file = write_tiff(photo, Layout(photometric=2, compression=7, planar=planar, tile=tile, encode=encode))
        assert np.abs(decode(file).astype(int) - photo).max() < 12
    white = write_tiff(photo[..., :1], Layout(photometric=0, compression=7, encode=encode))
    assert np.abs(255 - decode(white, output_type="GRAY").astype(int) - photo[..., :1]).max() < 12


def test_old_style_jpeg_tags_are_not_needed_for_other_files() -> None:
    samples = noise(8)
    assert np.array_equal(decode(write_tiff(samples, Layout(photometric=2, tags={512: (SHORT, [1])}))), samples)


def test_orientation_of_pillow() -> None:
    for mode, orientation in itertools.product(("L", "RGB", "CMYK", "1"), range(1, 9)):
        file = encode_tiff(mode, orientation)
        displayed = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")
        assert np.abs(decode(file).astype(int) - np.asarray(displayed)).max() <= 1
