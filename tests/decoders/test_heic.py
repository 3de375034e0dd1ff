# SPDX-License-Identifier: Apache-2.0
"""HEIC images, which torchcodec decodes with libheif."""

import importlib
import random
import re
import struct
from typing import Any

import _heif as heif
import numpy as np
import pytest

import torch_ndd as ndd
from torch_ndd import types
from torch_ndd.decoders import _heif_header

try:
    importlib.import_module("torchcodec.decoders").decode_heic(bytes(8))
except ImportError:
    pytest.skip("needs torchcodec and libheif", allow_module_level=True)
except RuntimeError:  # libheif is there and has refused the bytes
    pass

HEIGHT, WIDTH = 96, 128
_Y, _X = np.mgrid[:HEIGHT, :WIDTH]
COLORS = np.stack([2 * _Y, _X, 255 - _Y - _X], -1).astype(np.uint8)


def grid(height: int, width: int, *turns: bytes, **options: Any) -> bytes:
    """Return COLORS in 2x2 tiles, of which the last ones reach beyond the image."""
    tiles = [heif.coded_item(COLORS[y : y + 64, x : x + 64], hidden=True) for y in (0, 32) for x in (0, 64)]
    return heif.file_of([heif.grid_item(2, 2, height, width, [2, 3, 4, 5], *turns, **options), *tiles])


def decode(file: bytes, **options: Any) -> np.ndarray:
    return np.asarray(ndd.decoders.image(file, **options))


def assert_close(image: np.ndarray, expected: np.ndarray) -> None:
    assert image.shape == expected.shape
    assert np.abs(image.astype(int) - expected).max() <= 3


def test_pixels_are_those_that_were_encoded() -> None:
    for file in (heif.encode(COLORS), heif.file_of([heif.coded_item(COLORS)]), heif.file_of([heif.coded_item(COLORS)], b"mif1")):
        assert_close(decode(file), COLORS)
        assert ndd.peek_image_shape(file).torch().tolist() == [HEIGHT, WIDTH, 3]


@pytest.mark.parametrize("shape", [(31, 44), (64, 65), (1, 1), (130, 7)])
def test_sizes_that_are_not_whole_blocks(shape: tuple[int, int]) -> None:
    pixels = np.resize(COLORS, (*shape, 3))
    pixels[:] = pixels.mean((0, 1))
    assert_close(decode(heif.encode(pixels)), pixels)


def test_image_is_cut_to_its_clean_aperture() -> None:
    for turns, turn in (((), 0), ((heif.rotation(1),), 1)):
        file = heif.file_of([heif.coded_item(COLORS, heif.aperture(90, 100), *turns)])
        assert_close(decode(file), np.rot90(COLORS[3:93, 14:114], turn))
        assert_close(decode(file, adjust_orientation=False), COLORS[3:93, 14:114])


def test_tiles_of_a_grid_are_assembled() -> None:
    expected = np.concatenate([COLORS[:64], COLORS[32:96]])
    assert_close(decode(grid(128, 128)), expected)
    assert_close(decode(grid(100, 90)), expected[:100, :90])
    assert ndd.peek_image_shape(grid(100, 90)).torch().tolist() == [100, 90, 3]


TURNS = {
    "upright": ((), lambda x: x),
    **{f"turned by {k} quarters": ((heif.rotation(k),), lambda x, k=k: np.rot90(x, k)) for k in (1, 2, 3)},
    "reflected": ((heif.reflection(1),), np.fliplr),
    "turned upside down": ((heif.reflection(0),), np.flipud),
    "turned and reflected": ((heif.rotation(1), heif.reflection(1)), lambda x: np.fliplr(np.rot90(x))),
}


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("tiled", [False, True], ids=["single", "grid"])
def test_image_is_displayed_as_its_file_says(name: str, tiled: bool) -> None:
    turns, turn = TURNS[name]
    stored = np.concatenate([COLORS[:64], COLORS[32:96]])[:100] if tiled else COLORS
    file = grid(100, WIDTH, *turns) if tiled else heif.file_of([heif.coded_item(COLORS, *turns)])
    for adjust in (True, False):
        expected = turn(stored) if adjust else stored
        assert_close(decode(file, adjust_orientation=adjust), expected)
        assert ndd.peek_image_shape(file, adjust_orientation=adjust).torch().tolist() == list(expected.shape)


def test_all_data_include_the_transparency() -> None:
    pixels = np.concatenate([COLORS, COLORS[..., :1]], -1)
    image = decode(heif.encode(pixels), output_type=types.ANY_DATA)
    assert_close(image, pixels)


def test_batch_with_other_formats_has_types_and_windows() -> None:
    files = [heif.encode(COLORS), grid(128, 128)]
    assert ndd.decoders.image(files, output_type=types.GRAY, dtype=ndd.float32).shape == [(HEIGHT, WIDTH, 1), (128, 128, 1)]
    window = ndd.decoders.image_crop(files, crop=[10, 12], crop_pos_x=0.0, crop_pos_y=1.0)
    assert_close(np.asarray(window.select(0)), COLORS[-10:, :12])


def test_beginning_of_a_file_tells_its_size() -> None:
    file = grid(100, 90)
    assert ndd.peek_image_shape(file[: file.index(b"mdat")]).torch().tolist() == [100, 90, 3]
    with pytest.raises(RuntimeError, match="the first 40 bytes of this HEIC do not tell its size"):
        ndd.peek_image_shape(file[:40])


def second_header() -> bytes:
    item = heif.coded_item(COLORS)
    configuration = dict(heif.boxes(item.properties[0]))[b"hvcC"]
    header = next(bytes(unit) for unit in _list_headers(configuration))
    item.content = struct.pack(">I", len(header)) + header + item.content
    return heif.file_of([item])


def _list_headers(configuration: bytes) -> list[memoryview]:
    from torch_ndd.decoders._hevc_header import _list_units

    return _list_units(memoryview(configuration))


def coded_larger_than_stated() -> bytes:
    item = heif.coded_item(COLORS)
    item.properties[1] = heif.size(16, 16)
    return heif.file_of([item])


def tile_larger_than_stated() -> bytes:
    # libheif would write tiles over each other, in the order in which its threads end.
    tiles = [heif.coded_item(COLORS[:64, :64], hidden=True) for _ in range(4)]
    for tile in tiles:
        tile.properties[1] = heif.size(32, 32)
    return heif.file_of([heif.grid_item(2, 2, 64, 64, [2, 3, 4, 5]), *tiles])


def transparency(stated: tuple[int, int]) -> bytes:
    alpha = heif.coded_item(np.zeros((*stated, 3), np.uint8), heif.box(b"auxC", bytes(4), b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0"))
    alpha.references = [(b"auxl", [1])]
    return heif.file_of([heif.coded_item(COLORS), alpha])


def test_depth_maps_are_not_decoded() -> None:
    depth = heif.coded_item(COLORS[:16, :16], heif.box(b"auxC", bytes(4), b"urn:mpeg:hevc:2015:auxid:2\0"))
    depth.references = [(b"auxl", [1])]
    assert_close(decode(heif.file_of([heif.coded_item(COLORS), depth])), COLORS)


SINGLE = heif.file_of([heif.coded_item(COLORS)])
BAD = {
    "grid of another size": (grid(128, 128, stated=(64, 64)), r"its size can be read in two ways: \(64, 64\) or \(128, 128\)"),
    "grid larger than its tiles": (grid(200, 128), "2x2 tiles of 64x64 pixels do not fit an image of 200x128"),
    "grid much smaller than its tiles": (grid(128, 20), "2x2 tiles of 64x64 pixels do not fit an image of 128x20"),
    "grid without tiles": (heif.file_of([heif.grid_item(2, 2, 128, 128, [])]), "it has 0 tiles for a grid of 2 rows and 2 columns"),
    "grid of missing tiles": (heif.file_of([heif.grid_item(1, 1, 64, 64, [9])]), "the size of an image in it is missing"),
    "stream larger than its item": (coded_larger_than_stated(), r"its size can be read in two ways: \(16, 16\) or \(96, 128\)"),
    "tiles larger than their items": (tile_larger_than_stated(), r"its size can be read in two ways: \(32, 32\) or \(64, 64\)"),
    "second header": (second_header(), "its HEVC stream has a second header"),
    "transparency of another size": (transparency((64, 64)), "its transparency has another size"),
    "several images": (heif.file_of([heif.coded_item(COLORS), heif.coded_item(COLORS)]), "it holds 2 images"),
    "overlay": (heif.file_of([heif.Item(b"iovl", bytes(20), [heif.size(8, 8)])]), "it is coded as 'iovl'"),
    "animation": (heif.file_of([heif.coded_item(COLORS)], b"hevc"), "it is an animation"),
    "unknown codec": (heif.file_of([heif.coded_item(COLORS)], b"mif1", b"mif1"), "no decoder for this HEIF image: it is neither AVIF nor HEIC"),
    "no pixels": (SINGLE[: SINGLE.index(b"mdat") + 40], "the file is damaged: box 'mdat' exceeds the data"),
    "empty aperture": (heif.file_of([heif.coded_item(COLORS, heif.aperture(0, 1))]), "its clean aperture of 0x1 pixels exceeds the image of 96x128"),
    "aperture beyond the image": (heif.file_of([heif.coded_item(COLORS, heif.aperture(97, 1))]), "its clean aperture of 97x1 pixels exceeds"),
}


def reason(file: bytes) -> str:
    with pytest.raises(RuntimeError, match=r"decoders\.image: ") as caught:
        decode(file)
    return str(caught.value)


@pytest.mark.parametrize("name", BAD)
def test_damaged_file_is_an_error_of_its_sample(name: str) -> None:
    file, pattern = BAD[name]
    assert re.search(pattern, reason(file))
    assert ndd.decoders.image([SINGLE, file], on_error="skip").batch_size == 1


def test_size_is_limited_before_decoding() -> None:
    with pytest.raises(RuntimeError, match="96x128 = 12288 pixels, more than max_pixels=1000"):
        decode(SINGLE, max_pixels=1000)


def test_header_of_a_mutated_file_is_read_or_refused() -> None:
    draw = random.Random(3)
    for file in (SINGLE, grid(100, 90)):
        end = file.index(b"mdat")
        for _ in range(1500):
            data = bytearray(file)
            for _ in range(draw.choice((1, 2, 5))):
                data[draw.randrange(12, end)] = draw.choice((0, 1, 2, 127, 128, 255, draw.getrandbits(8)))
            try:
                header = _heif_header.read_heic(memoryview(bytes(data)), complete=True)
            except ValueError:
                continue
            assert header.height > 0
            assert header.width > 0


def _replace_box(file: bytes, kind: bytes, content: bytes) -> bytes:
    """Return the metadata of a file with another box, without its pixels."""

    def rebuild(data: bytes) -> bytes:
        parts = []
        for name, inner in heif.boxes(data):
            if name == kind:
                inner = content
            elif name in (b"meta", b"iprp"):
                skipped = 4 if name == b"meta" else 0
                inner = inner[:skipped] + rebuild(inner[skipped:])
            parts.append(heif.box(name, inner))
        return b"".join(parts)

    return rebuild(file[: file.index(b"mdat") - 4])


def _many_pieces() -> bytes:
    # Neither the pieces nor their sizes take bytes.
    items = b"".join(struct.pack(">HHH", number, 0, 65535) for number in range(1, 1001))
    return _replace_box(SINGLE, b"iloc", bytes(6) + struct.pack(">H", 1000) + items)


def _many_associations() -> bytes:
    entries = b"".join(struct.pack(">HBB", number % 65536, 1, 1) for number in range(1, 20_001))
    return _replace_box(SINGLE, b"ipma", bytes(4) + struct.pack(">I", 20_000) + entries)


def _many_headers(name: str, count: int) -> bytes:
    item = heif.coded_item(COLORS)
    configuration = dict(heif.boxes(item.properties[0]))[b"hvcC"]
    unit = bytes(_list_headers(configuration)[0]) if name == "sequences" else b""
    units = (struct.pack(">H", len(unit)) + unit) * count
    item.properties[0] = heif.box(b"hvcC", configuration[:22], b"\1", struct.pack(">BH", 33 if unit else 39, count), units)
    return heif.file_of([item])


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (_many_pieces(), "its pixels are in more than 100000 pieces"),
        (_many_associations(), "it has more than 10000 items"),
        (_many_headers("sequences", 17), "its HEVC header has more than 16 sequences"),
        (_many_headers("units", 257), "its HEVC header has more than 256 units"),
    ],
    ids=["pieces", "associations", "sequences", "units"],
)
def test_small_header_cannot_cause_endless_work(file: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _heif_header.read_heic(memoryview(file), complete=False)


def test_the_kind_of_a_property_is_searched_in_its_beginning_only() -> None:
    """Thousands of items may have the same large property, which would be searched for each of them."""
    kind = b"urn:mpeg:hevc:2015:auxid:1"
    assert _heif_header._is_alpha(b"auxC", memoryview(bytes(4) + kind))
    assert not _heif_header._is_alpha(b"auxC", memoryview(bytes(1000) + kind))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("torchcodec.decoders", r"HEIC images need the package torchcodec: pip install torch_ndd\[video\]"),
        ("libheif", "HEIC images need libheif, which torchcodec does not find: apt-get install libheif1"),
    ],
)
def test_missing_library_is_named(error: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise ImportError(error)

    if error == "libheif":
        monkeypatch.setattr(importlib.import_module("torchcodec.decoders"), "decode_heic", fail)
    else:
        monkeypatch.setattr(importlib, "import_module", fail)
    assert re.search(message, reason(SINGLE))
