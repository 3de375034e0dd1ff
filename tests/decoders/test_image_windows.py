# SPDX-License-Identifier: Apache-2.0
"""Window decoders: always equal to the same window of the whole image."""

import io

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types

HEIGHT, WIDTH = 97, 131  # neither a multiple of a JPEG block


def encode(codec: str, seed: int = 0, height: int = HEIGHT, width: int = WIDTH, **options: object) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, codec, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


FILES = {
    "jpeg 4:4:4": encode("JPEG", subsampling=0),
    "jpeg 4:2:0": encode("JPEG", subsampling=2),
    "progressive jpeg": encode("JPEG", progressive=True),
    "png": encode("PNG"),
    "tiff": encode("TIFF", compression="tiff_lzw"),
    "bmp": encode("BMP"),
    "pnm": encode("PPM"),
    "webp": encode("WEBP", lossless=True),
    "jpeg 2000": encode("JPEG2000"),
}
CROPS = (
    {"crop": [40, 50]},
    {"crop": [1, 1], "crop_pos_x": 1.0, "crop_pos_y": 0.0},
    {"crop": [33, 17], "crop_pos_x": 0.21, "crop_pos_y": 0.9, "rounding": "truncate"},
    {"crop_h": 96, "crop_w": 130},
    {"crop": [0, 64]},
    {},
)
SLICES = (
    ({"start": [3, 5], "end": [100, 60]}, ()),
    ({"rel_start": [0.1, 0.2], "rel_shape": [0.5, 0.3]}, ()),
    ({"start": [7], "shape": [50], "axes": [0]}, ()),
    ({"end": [40, 50], "axis_names": "HW"}, ()),
    ({}, ([0.25, 0.5], [0.5, 0.5])),
    ({}, ([11, 13], [60, 70])),
    ({"normalized_anchor": False}, ([11.0, 13.0], [0.4, 0.4])),
)


def values(tensor: ndd.Tensor) -> np.ndarray:
    return np.asarray(tensor)


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_windows_equal_those_of_the_whole_image(file: np.ndarray) -> None:
    whole = ndd.decoders.image(file)
    for options in CROPS:
        assert np.array_equal(values(ndd.decoders.image_crop(file, **options)), values(ndd.crop(whole, **options))), options
    for options, positional in SLICES:
        result, expected = ndd.decoders.image_slice(file, *positional, **options), ndd.slice(whole, *positional, **options)
        assert np.array_equal(values(result), values(expected)), options


@pytest.mark.parametrize("output_type", ["BGR", "GRAY", "YCbCr", "ANY_DATA"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_windows_of_turned_images(orientation: int, output_type: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    for codec in ("JPEG", "PNG"):
        file = encode(codec, exif=exif)
        for adjust in (True, False):
            options = {"output_type": getattr(types, output_type), "adjust_orientation": adjust, "dtype": ndd.float32}
            whole = ndd.decoders.image(file, **options)
            window = {"crop": [60, 40], "crop_pos_x": 0.2, "crop_pos_y": 0.7}
            assert np.array_equal(values(ndd.decoders.image_crop(file, **window, **options)), values(ndd.crop(whole, **window)))
            assert tuple(values(ndd.peek_image_shape(file, image_type=options["output_type"], adjust_orientation=adjust))) == whole.shape


def test_each_sample_has_its_own_window() -> None:
    files = ndd.batch([encode("JPEG", i, 60 + i, 80 + 2 * i) for i in range(5)])
    whole = ndd.decoders.image(files)
    sizes = ndd.batch(np.array([[10 + i, 20 - i] for i in range(5)], np.float32))
    x = ndd.batch(np.linspace(0, 1, 5, dtype=np.float32))
    for ours, expected in zip(ndd.decoders.image_crop(files, crop=sizes, crop_pos_x=x), ndd.crop(whole, crop=sizes, crop_pos_x=x), strict=True):
        assert np.array_equal(values(ours), values(expected))
    anchors, shapes = (ndd.batch(np.random.default_rng(1).uniform(low, high, (5, 2)).astype(np.float32)) for low, high in ((0, 0.5), (0.1, 0.5)))
    result = ndd.decoders.image_slice(files, anchors, shapes)
    for ours, expected in zip(result, ndd.slice(whole, anchors, shapes), strict=True):
        assert np.array_equal(values(ours), values(expected))
    axes = ndd.batch([[0], [1], [0], [1], [0]])
    result = ndd.decoders.image_slice(files, start=[4], end=[9], axes=axes)
    assert [value[:2] for value in result.shape] == [(5, 80), (61, 5), (5, 84), (63, 5), (5, 88)]


def test_crops_of_equal_size_are_dense() -> None:
    files = ndd.batch([encode("JPEG", i, 60 + i, 80) for i in range(3)])
    assert ndd.decoders.image_crop(files, crop=[32, 32]).torch().shape == (3, 32, 32, 3)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("image_crop", {"crop": [98, 10]}, r"sample 1: the window y=\[-1, 97\) .*leaves the image of height 96"),
        ("image_crop", {"crop": [10, 132]}, "sample 0: .*width 131"),
        ("image_crop", {"crop": [10, 10], "crop_pos_y": 1.5}, "crop_pos_y must lie between 0 and 1"),
        ("image_crop", {"crop_w": 10}, "crop_h and crop_w must be given together"),
        ("image_crop", {"crop": [10, 10], "crop_w": 10}, "crop cannot be combined"),
        ("image_crop", {"crop": [10, 10], "rounding": "up"}, "rounding must be one of .*got 'up'"),
        ("image_slice", {"start": [10, 10], "end": [140, 20]}, "leaves the image"),
        ("image_slice", {"start": [-1, 10], "end": [40, 20]}, "leaves the image"),
        ("image_slice", {"start": [10, 10], "end": [10, 20]}, "is empty"),
        ("image_slice", {"start": [10, 10], "end": [5, 20]}, "before its start"),
        ("image_slice", {"start": [1], "end": [2], "axes": [2]}, "out of range"),
        ("image_slice", {"start": [1], "end": [2], "axis_names": "C"}, "not present"),
        ("image_slice", {"start": [1, 1], "rel_start": [0.1, 0.1]}, "mutually exclusive"),
        ("image_slice", {}, "give start, end or shape"),
    ],
)
def test_invalid_windows(name: str, options: dict[str, object], reason: str) -> None:
    files = ndd.batch([encode("PNG"), encode("PNG", 1, HEIGHT - 1)])
    if options == {"crop": [98, 10]}:
        files = ndd.batch([encode("PNG", 0, 98), encode("PNG", 1, HEIGHT - 1)])
    with pytest.raises(RuntimeError, match=rf"decoders\.{name}: .*{reason}"):
        getattr(ndd.decoders, name)(files, **options)


def test_peek_image_shape() -> None:
    for file in FILES.values():
        shape = ndd.peek_image_shape(file)
        assert (shape.dtype, shape.torch().tolist()) == (ndd.int64, [HEIGHT, WIDTH, 3])
        assert ndd.peek_image_shape(file, image_type=types.GRAY, dtype=ndd.float32).torch().tolist() == [HEIGHT, WIDTH, 1]
    for mode, channels in (("L", 1), ("LA", 2), ("RGBA", 4)):
        file = io.BytesIO()
        Image.new(mode, (9, 7)).save(file, "PNG")
        contents = np.frombuffer(file.getvalue(), np.uint8)
        assert ndd.peek_image_shape(contents, image_type=types.ANY_DATA).torch().tolist() == [7, 9, channels]
    batch = ndd.peek_image_shape(ndd.batch([*FILES.values()]), dtype=ndd.int32)
    assert batch.torch().tolist() == [[HEIGHT, WIDTH, 3]] * len(FILES)


def test_peek_image_shape_needs_only_the_header() -> None:
    # A TIFF may have its directory at the end, a PNG's chunks are searched for an orientation, a PNM must be as long as its header says.
    for name in ("jpeg 4:2:0", "bmp", "webp", "jpeg 2000"):
        assert ndd.peek_image_shape(FILES[name][:1000]).torch().tolist() == [HEIGHT, WIDTH, 3], name


def test_peek_image_shape_refuses() -> None:
    with pytest.raises(RuntimeError, match=r"peek_image_shape: sample 1: "):
        ndd.peek_image_shape(ndd.batch([FILES["png"], FILES["png"][:10]]))
    with pytest.raises(RuntimeError, match=r"peek_image_shape: sample 0: the size lies after these 50 bytes of a JPEG 2000"):
        ndd.peek_image_shape(FILES["jpeg 2000"][:50])
    with pytest.raises(RuntimeError, match=r"peek_image_shape: dtype must be one of"):
        ndd.peek_image_shape(FILES["png"], dtype=ndd.uint8)
    with pytest.raises(RuntimeError, match=r"peek_image_shape: encoded images must be uint8"):
        ndd.peek_image_shape(np.zeros((2, 2), np.uint8))
