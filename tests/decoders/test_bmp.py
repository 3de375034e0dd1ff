# SPDX-License-Identifier: Apache-2.0
"""BMP: channel masks, alpha, palettes, run lengths and windows."""

import struct
from typing import Any

import numpy as np
import pytest

import torch_ndd as ndd
from torch_ndd import types

HEIGHT, WIDTH = 11, 13
_Y, _X = np.mgrid[:HEIGHT, :WIDTH]
COLORS = np.stack([_X * 19, _Y * 23, (_X + _Y) * 10, 255 - _X], -1).astype(np.uint8)
RGB = COLORS[..., :3]
PLAIN, RLE8, RLE4, MASKS, JPEG, PNG, ALPHA_MASKS = range(7)
MASKS_8888 = (0x00FF0000, 0x0000FF00, 0x000000FF, 0xFF000000)
MASKS_8888_SWAPPED = (0x000000FF, 0x0000FF00, 0x00FF0000, 0xFF000000)
MASKS_555, MASKS_565 = (0x7C00, 0x03E0, 0x001F, 0), (0xF800, 0x07E0, 0x001F, 0)
MASKS_5551, MASKS_4444 = (0x7C00, 0x03E0, 0x001F, 0x8000), (0x0F00, 0x00F0, 0x000F, 0xF000)
MASKS_1010102 = (0x3FF00000, 0x000FFC00, 0x000003FF, 0xC0000000)


def bmp(
    pixels: bytes, bits: int, compression: int = PLAIN, masks: tuple[int, ...] = (), size: int = 40, palette: bytes = b"", **options: Any
) -> bytes:
    """Assemble a file. Masks are a part of a header of more than 40 bytes, and follow a shorter one."""
    height, width = options.get("height", HEIGHT), options.get("width", WIDTH)
    header = struct.pack("<IiiHHIIiiII", size, width, height, 1, bits, compression, len(pixels), 0, 0, len(palette) // 4, 0)
    header += struct.pack(f"<{len(masks)}I", *masks)
    header += bytes(max(0, size - len(header))) + palette
    return b"BM" + struct.pack("<IHHI", 14 + len(header) + len(pixels), 0, 0, 14 + len(header)) + header + pixels


def pack(samples: np.ndarray, masks: tuple[int, ...], bits: int) -> bytes:
    """Rows from the bottom, padded to four bytes, of samples that use the range of their masks."""
    words = np.zeros(samples.shape[:2], np.uint32)
    for c, mask in enumerate(masks[: samples.shape[2]]):
        words |= samples[..., c].astype(np.uint32) << (mask & -mask).bit_length() - 1 if mask else np.uint32(0)
    rows = words[::-1].astype(f"<u{bits // 8}")
    return rows_of(rows)


def rows_of(rows: np.ndarray) -> bytes:
    return b"".join(row.tobytes() + bytes(-row.nbytes % 4) for row in rows)


def decode(file: bytes, **options: Any) -> np.ndarray:
    return np.asarray(ndd.decoders.image(np.frombuffer(file, np.uint8), **options))


def reason(file: bytes) -> str:
    images = ndd.decoders.image(ndd.as_batch([np.frombuffer(file, np.uint8)]), on_error="skip")
    assert images.errors, "it was decoded"
    return images.errors[0].reason


@pytest.mark.parametrize(
    ("bits", "masks"),
    [
        (32, MASKS_8888),
        (32, MASKS_8888_SWAPPED),
        (32, (*MASKS_8888[:3], 0)),
        (32, MASKS_1010102),
        (16, MASKS_555),
        (16, MASKS_565),
        (16, MASKS_5551),
        (16, MASKS_4444),
    ],
)
@pytest.mark.parametrize("size", [40, 56, 108, 124])
def test_channel_masks_are_followed(bits: int, masks: tuple[int, ...], size: int) -> None:
    levels = np.array([mask.bit_count() for mask in masks])
    stored = COLORS.astype(int) * ((1 << levels) - 1) // 255
    alpha = masks[3] != 0
    behind = masks if alpha or size > 40 else masks[:3]
    file = bmp(pack(stored, masks, bits), bits, ALPHA_MASKS if alpha and size == 40 else MASKS, behind, size)
    expected = np.rint(stored * 255 / np.maximum((1 << levels) - 1, 1))
    if not alpha:
        expected[..., 3] = 255
    assert np.array_equal(decode(file), expected[..., :3])
    assert np.array_equal(decode(file, output_type=types.BGR), expected[..., 2::-1])
    channels = 4 if alpha or bits == 32 else 3
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), expected[..., :channels])
    assert ndd.peek_image_shape(np.frombuffer(file, np.uint8), image_type=types.ANY_DATA).torch().tolist() == [HEIGHT, WIDTH, channels]


def test_16_bits_without_masks_are_five_a_channel() -> None:
    stored = RGB >> 3
    file = bmp(pack(stored, MASKS_555, 16), 16)
    assert np.array_equal(decode(file), np.rint(stored / 31 * 255))
    assert decode(bmp(pack(np.full_like(RGB, 31), MASKS_555, 16), 16)).min() == 255


def test_32_bits_without_masks_have_four_channels() -> None:
    file = bmp(pack(COLORS, MASKS_8888, 32), 32)
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), COLORS)
    assert np.array_equal(decode(file), RGB)


@pytest.mark.parametrize(
    ("masks", "text"),
    [((0x00FF00F0, 0xFF, 0xFF00), "next to each other"), ((0x7C0000, 0x3E0, 0x1F), "outside of its pixels")],
)
def test_damaged_masks(masks: tuple[int, ...], text: str) -> None:
    assert text in reason(bmp(bytes(HEIGHT * 28), 16, MASKS, masks))


@pytest.mark.parametrize(("bits", "compression", "name"), [(24, JPEG, "contains a JPEG"), (24, PNG, "contains a PNG"), (17, PLAIN, "17 bits")])
def test_unsupported_kind_is_named(bits: int, compression: int, name: str) -> None:
    text = reason(bmp(bytes(1000), bits, compression))
    assert text.startswith("no CPU decoder for BMP")
    assert name in text


# Palettes

PALETTE = np.random.default_rng(0).integers(0, 256, (256, 3)).astype(np.uint8)


def palette_bytes(colors: int) -> bytes:
    return np.concatenate([PALETTE[:colors, ::-1], np.zeros((colors, 1), np.uint8)], 1).tobytes()


def indices(bits: int) -> np.ndarray:
    return ((_X + 3 * _Y) % (1 << bits)).astype(np.uint8)


def packed_indices(numbers: np.ndarray, bits: int) -> bytes:
    planes = np.unpackbits(numbers[::-1, :, None], axis=2)[..., 8 - bits :].reshape(HEIGHT, -1)
    return rows_of(np.packbits(planes, axis=1))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palette_colors_are_looked_up(bits: int) -> None:
    file = bmp(packed_indices(indices(bits), bits), bits, palette=palette_bytes(1 << bits))
    assert np.array_equal(decode(file), PALETTE[indices(bits)])


def test_number_beyond_the_palette_is_black() -> None:
    file = bmp(packed_indices(indices(8), 8), 8, palette=palette_bytes(20))
    assert np.array_equal(decode(file), np.where(indices(8)[..., None] < 20, PALETTE[indices(8)], 0))


# Run lengths


def runs(bits: int, *commands: bytes) -> bytes:
    return bmp(b"".join(commands), bits, RLE8 if bits == 8 else RLE4, palette=palette_bytes(1 << bits))


END_OF_ROW, END = b"\0\0", b"\0\1"


def test_run_lengths_of_4_bits() -> None:
    numbers = np.zeros((HEIGHT, WIDTH), int)
    numbers[-1, :7] = [1, 2, 1, 2, 1, 2, 1]
    numbers[-1, 7:12] = [3, 4, 5, 6, 7]
    numbers[-4, 2:4] = [9, 9]
    commands = bytes([7, 0x12]), bytes([0, 5, 0x34, 0x56, 0x70, 0]), END_OF_ROW, bytes([0, 2, 2, 2]), bytes([2, 0x99]), END
    assert np.array_equal(decode(runs(4, *commands)), PALETTE[numbers])


def test_run_lengths_of_8_bits() -> None:
    numbers = np.zeros((HEIGHT, WIDTH), int)
    numbers[-1, :7] = 201
    numbers[-1, 7:10] = [3, 4, 5]
    numbers[-2] = 77
    # What the last run has beyond its row is dropped.
    commands = bytes([7, 201]), bytes([0, 3, 3, 4, 5, 0]), END_OF_ROW, bytes([255, 77]), END
    assert np.array_equal(decode(runs(8, *commands)), PALETTE[numbers])


def test_run_lengths_that_end_early_are_damaged() -> None:
    for commands in ((bytes([7, 201]),), (bytes([0, 200, 1]),)):
        assert "ends in its pixels" in reason(runs(8, *commands))


def test_run_lengths_without_an_end() -> None:
    rows = b"".join(bytes([WIDTH, y]) + END_OF_ROW for y in range(HEIGHT - 1)) + bytes([WIDTH, 99])
    expected = np.repeat(PALETTE[[99, *range(HEIGHT - 2, -1, -1)]][:, None], WIDTH, 1)
    assert np.array_equal(decode(runs(8, rows)), expected)


def test_moves_stay_inside_of_the_image() -> None:
    moves = bytes([0, 2, 255, 255]) * 1000
    assert np.array_equal(decode(runs(8, bytes([3, 9]), moves, bytes([200, 7]), END))[-1, :3, 0], [PALETTE[9, 0]] * 3)


# Windows and types


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_windows_and_types(bits: int) -> None:
    pixels = {
        8: packed_indices(indices(8), 8),
        16: pack(RGB >> 3, MASKS_555, 16),
        24: rows_of(np.ascontiguousarray(RGB[::-1, :, ::-1])),
        32: pack(COLORS, MASKS_8888, 32),
    }[bits]
    file = bmp(pixels, bits, palette=palette_bytes(256) if bits == 8 else b"")
    whole = decode(file)
    window = np.asarray(ndd.decoders.image_slice(np.frombuffer(file, np.uint8), start=[2, 3], shape=[5, 7], axis_names="HW"))
    assert np.array_equal(window, whole[2:7, 3:10])
    assert np.array_equal(decode(file, dtype=ndd.uint16), whole.astype(np.uint16) * 257)
    assert np.array_equal(decode(bmp(rows_of(np.ascontiguousarray(RGB[..., ::-1])), 24, height=-HEIGHT)), RGB)
    gray = decode(file, output_type=types.GRAY)[..., 0]
    assert np.abs(gray - whole @ [0.299, 0.587, 0.114]).max() <= 0.51
