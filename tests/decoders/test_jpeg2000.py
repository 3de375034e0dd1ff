# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000: what the boxes around the codestream say about the colors, offsets, subsampling, and depths."""

import io
import struct
from typing import Any

import numpy as np
import pytest
from _images import decode, reason
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types

pytest.importorskip("openjpeg")

HEIGHT, WIDTH = 37, 53
_Y, _X = np.mgrid[:HEIGHT, :WIDTH]
COLORS = np.stack([_X * 4 % 256, _Y * 6, (_X + _Y) * 2, 255 - _X], -1).astype(np.uint8)
RGB = COLORS[..., :3]
SRGB, GRAY, YCC, CMYK = 16, 17, 18, 12


def codestream(samples: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(samples).save(file, "JPEG2000", no_jp2=True, mct=0, **options)
    return file.getvalue()


def encode(samples: np.ndarray, bits: int) -> bytes:
    from openjpeg.utils import encode_array

    kind = 1 if samples.ndim == 3 else 2
    return bytes(encode_array(samples, bits_stored=bits, photometric_interpretation=kind, use_mct=False))


def box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + name + content


def jp2(stream: bytes, *boxes: bytes, space: int = SRGB) -> bytes:
    width, height, count = *struct.unpack_from(">II", stream, 8), struct.unpack_from(">H", stream, 40)[0]
    header = box(b"ihdr", struct.pack(">IIHBBBB", height, width, count, 7, 7, 0, 0)) + box(b"colr", struct.pack(">BBBI", 1, 0, 0, space))
    start = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return start + box(b"jp2h", header + b"".join(boxes)) + box(b"jp2c", stream)


def pclr(colors: np.ndarray, bits: int | None = None) -> bytes:
    entries, columns = colors.shape
    depth = (bits or 8 * colors.itemsize) - 1
    return box(b"pclr", struct.pack(">HB", entries, columns) + bytes([depth] * columns) + colors.astype(f">u{colors.itemsize}").tobytes())


def cmap(*channels: tuple[int, int, int]) -> bytes:
    return box(b"cmap", b"".join(struct.pack(">HBB", *channel) for channel in channels))


def cdef(*channels: tuple[int, int, int]) -> bytes:
    return box(b"cdef", struct.pack(">H", len(channels)) + b"".join(struct.pack(">HHH", *channel) for channel in channels))


def peek(file: bytes, image_type: types.DALIImageType = types.RGB) -> list[int]:
    return ndd.peek_image_shape(np.frombuffer(file, np.uint8), image_type=image_type).torch().tolist()


# Palettes

NUMBERS = (_X // 3 + _Y).astype(np.uint8) % 40


def palette_file(colors: np.ndarray, numbers: np.ndarray = NUMBERS, **options: Any) -> bytes:
    columns = colors.shape[1]
    return jp2(codestream(numbers), pclr(colors, **options), cmap(*((0, 1, i) for i in range(columns))))


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_palette_is_applied(columns: int, dtype: type) -> None:
    colors = np.random.default_rng(columns).integers(0, np.iinfo(dtype).max + 1, (40, columns)).astype(dtype)
    file, pixels = palette_file(colors), colors[NUMBERS]
    whole = decode(file, output_type=types.ANY_DATA, dtype=ndd.uint8 if dtype is np.uint8 else ndd.uint16)
    assert np.array_equal(whole, pixels)
    assert peek(file, types.ANY_DATA) == [HEIGHT, WIDTH, columns]
    eight = np.rint(pixels / np.iinfo(dtype).max * 255)
    rgb = eight[..., :3] if columns > 2 else np.repeat(eight[..., :1], 3, -1)
    assert np.array_equal(decode(file), rgb)
    gray = decode(file, output_type=types.GRAY)
    assert np.abs(gray[..., 0] - (rgb @ [0.299, 0.587, 0.114])).max() <= 1
    assert peek(file, types.GRAY) == [HEIGHT, WIDTH, 1]


def test_palette_of_few_bits_uses_the_whole_range() -> None:
    colors = np.random.default_rng(0).integers(0, 32, (40, 3)).astype(np.uint8)
    assert np.array_equal(decode(palette_file(colors, bits=5)), np.rint(colors[NUMBERS] / 31 * 255))


def test_number_beyond_the_palette_is_the_last_color() -> None:
    colors = np.random.default_rng(0).integers(0, 256, (10, 3)).astype(np.uint8)
    assert np.array_equal(decode(palette_file(colors)), colors[np.minimum(NUMBERS, 9)])


def test_palette_with_a_direct_channel() -> None:
    colors = np.random.default_rng(0).integers(0, 256, (256, 3)).astype(np.uint8)
    file = jp2(codestream(COLORS), pclr(colors), cmap((1, 1, 2), (1, 1, 0), (1, 1, 1), (3, 0, 0)))
    expected = np.concatenate([colors[COLORS[..., 1]][..., [2, 0, 1]], COLORS[..., 3:]], -1)
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), expected)


@pytest.mark.parametrize(
    ("boxes", "text"),
    [
        ((pclr(np.zeros((4, 3), np.uint8)),), "palette without a mapping"),
        ((cmap((0, 1, 0)),), "mapping without a palette"),
        ((pclr(np.zeros((4, 3), np.uint8)), cmap((1, 1, 0))), "component or column"),
        ((pclr(np.zeros((4, 3), np.uint8)), cmap((0, 1, 3))), "component or column"),
        ((pclr(np.zeros((4, 3), np.uint8)), cmap((0, 2, 0))), "component or column"),
        ((pclr(np.zeros((4, 3), np.uint8)), cmap()), "empty"),
        ((pclr(np.zeros((0, 3), np.uint8)), cmap((0, 1, 0))), "0 colors"),
        ((box(b"pclr", b"\x04\0\3\7\7\7"), cmap((0, 1, 0))), "does not hold 1024 colors"),
        ((box(b"pclr", b"\0"), cmap((0, 1, 0))), "ends in its header"),
    ],
)
def test_damaged_palette(boxes: tuple[bytes, ...], text: str) -> None:
    assert text in reason(jp2(codestream(NUMBERS), *boxes))


# Channels and color spaces


def test_channel_definitions_order_the_colors() -> None:
    file = jp2(codestream(COLORS), cdef((0, 0, 3), (1, 0, 2), (2, 1, 0), (3, 0, 1)))
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), COLORS[..., [3, 1, 0, 2]])
    assert np.array_equal(decode(file), COLORS[..., [3, 1, 0]])


@pytest.mark.parametrize("channels", [((0, 0, 1), (4, 0, 2)), ((0, 0, 1), (0, 0, 2)), ((0, 0, 1), (1, 0, 1))])
def test_damaged_channel_definitions(channels: tuple[tuple[int, int, int], ...]) -> None:
    assert "channel" in reason(jp2(codestream(COLORS), cdef(*channels)))


def test_cmyk_is_converted() -> None:
    inks = COLORS.astype(int)
    file = jp2(codestream(COLORS), space=CMYK)
    assert np.abs(decode(file) - (255 - inks[..., :3]) * (255 - inks[..., 3:]) / 255).max() <= 0.5
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), COLORS)
    assert (peek(file), peek(file, types.ANY_DATA)) == ([HEIGHT, WIDTH, 3], [HEIGHT, WIDTH, 4])


def test_ycc_is_converted() -> None:
    ycc = Image.fromarray(RGB).convert("YCbCr")
    expected = np.asarray(ycc.convert("RGB")).astype(int)
    assert np.abs(decode(jp2(codestream(np.asarray(ycc)), space=YCC)) - expected).max() <= 1


@pytest.mark.parametrize(("space", "name"), [(14, "CIELab"), (24, "e-sYCC")])
def test_unsupported_color_space_is_named(space: int, name: str) -> None:
    text = reason(jp2(codestream(RGB), space=space))
    assert text.startswith("no CPU decoder")
    assert name in text


# The reference grid


def change_sizes(stream: bytes, **fields: int) -> bytes:
    """Change sizes and offsets in the codestream's header."""
    places = {"x1": 8, "y1": 12, "x0": 16, "y0": 20, "tile_width": 24, "tile_height": 28, "tile_x": 32, "tile_y": 36}
    data = bytearray(stream)
    for name, value in fields.items():
        struct.pack_into(">I", data, places[name], value)
    return bytes(data)


def subsample(stream: bytes, *distances: tuple[int, int]) -> bytes:
    data = bytearray(stream)
    for i, (dx, dy) in enumerate(distances):
        data[43 + 3 * i : 45 + 3 * i] = dx, dy
    return bytes(data)


@pytest.mark.parametrize("options", [{"offset": (8, 8)}, {"offset": (3, 5)}, {"offset": (40, 8), "tile_offset": (32, 0)}])
@pytest.mark.parametrize("samples", [RGB, RGB[..., 0]], ids=["RGB", "gray"])
def test_offset_is_no_part_of_the_image(samples: np.ndarray, options: dict[str, Any]) -> None:
    options = {"tile_size": (32, 32), "tile_offset": (0, 0)} | options
    file = io.BytesIO()
    Image.fromarray(samples).save(file, "JPEG2000", **options)
    rgb = samples if samples.ndim == 3 else np.dstack([samples] * 3)
    assert peek(file.getvalue()) == [HEIGHT, WIDTH, 3]
    assert np.array_equal(decode(file.getvalue()), rgb)


def test_offset_counts_against_max_pixels() -> None:
    far = change_sizes(codestream(RGB), x0=2**31 - 2, x1=2**31 - 1, tile_x=0, tile_width=2**31 - 1)
    assert "max_pixels=268435456" in reason(far)


@pytest.mark.parametrize("offset", [0, 1])
def test_subsampled_components_are_enlarged(offset: int) -> None:
    # Without a wavelet transform the samples are the same wherever they lie on the grid.
    stream = codestream(COLORS[:8, :8], num_resolutions=1)
    ends = dict.fromkeys(("x1", "y1", "tile_width", "tile_height"), 16 + offset)
    file = change_sizes(subsample(stream, *[(2, 2)] * 4), x0=offset, y0=offset, **ends)
    samples = np.repeat(np.repeat(COLORS[:8, :8], 2, 0), 2, 1)
    # A sample lies at each even place; an odd offset has half of a pixel in front of the first one.
    expected = np.pad(samples, ((offset, 0), (offset, 0), (0, 0)), mode="edge")[:16, :16]
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), expected)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"x0": WIDTH}, "pixels reach"),
        ({"x1": 2**31}, "pixels reach"),
        ({"tile_x": 1}, "first tile"),
        ({"tile_width": 0}, "first tile"),
        ({"x1": 100_000, "y1": 100_000}, "10000000000 pixels"),
    ],
)
def test_damaged_sizes(fields: dict[str, int], text: str) -> None:
    assert text in reason(change_sizes(codestream(RGB), **fields))


def test_component_without_samples() -> None:
    stream = change_sizes(subsample(codestream(RGB), (1, 1), (2, 1), (2, 1)), x0=1, x1=2)
    assert "component 1 has no samples" in reason(stream)


# Components


@pytest.mark.parametrize(("bits", "dtype"), [(4, np.int8), (8, np.int8), (12, np.int16), (16, np.int16)])
def test_signed_samples_start_at_black(bits: int, dtype: type) -> None:
    samples = np.random.default_rng(bits).integers(-(1 << (bits - 1)), 1 << (bits - 1), (HEIGHT, WIDTH)).astype(dtype)
    values = (samples.astype(int) + (1 << (bits - 1))) / ((1 << bits) - 1)
    result = decode(encode(samples, bits), output_type=types.GRAY, dtype=ndd.uint16)
    assert np.abs(result[..., 0] - values * 65535).max() <= 0.51


def test_samples_of_more_than_16_bits() -> None:
    samples = np.random.default_rng(0).integers(0, 1 << 20, (HEIGHT, WIDTH)).astype(np.uint32)
    assert np.abs(decode(encode(samples, 20), output_type=types.GRAY, dtype=ndd.float32)[..., 0] - samples / ((1 << 20) - 1)).max() < 2e-5


def with_components(count: int, stream: bytes) -> bytes:
    """Promise another number of components."""
    end = 42 + 3 * struct.unpack_from(">H", stream, 40)[0]
    sizes = stream[6:40] + struct.pack(">H", count) + stream[42:45] * count
    return stream[:4] + struct.pack(">H", 2 + len(sizes)) + sizes + stream[end:]


@pytest.mark.parametrize("count", [8, 1000])
def test_components_count_against_max_pixels(count: int) -> None:
    file = with_components(count, codestream(RGB))
    assert f"{HEIGHT}x{WIDTH}x{count}" in reason(file, max_pixels=HEIGHT * WIDTH)
    assert peek(file, types.ANY_DATA) == [HEIGHT, WIDTH, count]


def test_more_samples_than_memory_is_a_memory_error() -> None:
    size = 2**20
    stream = change_sizes(codestream(RGB), x1=size, y1=size, tile_width=size, tile_height=size)
    file = jp2(stream, box(b"uuid", bytes(6_000_000)))  # or the file is too short for that many pixels
    with pytest.raises(MemoryError, match=r"decoders\.image: sample 0: no memory for .* samples of a JPEG 2000 image"):
        ndd.decoders.image(np.frombuffer(file, np.uint8), max_pixels=2**41)
    assert "no memory for" in reason(file, max_pixels=2**41)


def test_too_many_components_are_named() -> None:
    assert reason(with_components(16384, codestream(RGB))) == "no CPU decoder for JPEG 2000 images of more than 1023 channels"


def test_deeper_component_behind_a_shallow_one_is_named() -> None:
    stream = bytearray(codestream(RGB))
    stream[45] = 11
    assert reason(bytes(stream)) == "no CPU decoder for JPEG 2000 images with 8 bits in the first component and 12 in another one"


def test_header_of_more_components_than_the_codestream() -> None:
    stream = codestream(RGB)
    file = jp2(stream).replace(struct.pack(">IIHB", HEIGHT, WIDTH, 3, 7), struct.pack(">IIHB", HEIGHT * 2, WIDTH * 2, 4, 7))
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), RGB)


def test_peek_says_how_many_bytes_it_needs() -> None:
    file = jp2(codestream(RGB), box(b"uuid", bytes(100_000)))
    length = 100
    while length < 100_000:
        with pytest.raises(RuntimeError, match="lies after these") as caught:
            peek(file[:length])
        needed = int(str(caught.value).split("; pass ")[1].split()[0])
        assert needed > length
        length = needed
    assert peek(file[: length + 100]) == [HEIGHT, WIDTH, 3]
    assert 100_000 < length < 100_400
    for end in range(12, length, 1000):
        assert "ends in its header" in reason(file[:end])
