# SPDX-License-Identifier: Apache-2.0
"""The CPU decoders against DALI's, on DALI's own test images and on every codec, output type and dtype."""

import io
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from _raises import Raises, raising
from PIL import Image

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

from _dali import assert_same  # noqa: E402

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types as ndd_types  # noqa: E402

EXTRA = Path(os.environ.get("DALI_EXTRA_PATH", "/work/shared/dali_extra")) / "db"
SUFFIXES = {".jpg", ".jpeg", ".jp2", ".png", ".bmp", ".tiff", ".tif", ".webp", ".pnm", ".ppm", ".pgm", ".pbm"}
FILES = [path for path in sorted(EXTRA.glob("single/*/*/*")) + sorted(EXTRA.glob("imgcodec/**/*.jpg")) if path.suffix in SUFFIXES]


def run(module: ModuleType, file: np.ndarray, **options: object) -> np.ndarray:
    return np.asarray(module.decoders.image(module.as_tensor(file), **options).evaluate())


def both(file: np.ndarray, output_type: str = "RGB", dtype: str = "uint8", **options: object) -> tuple[np.ndarray, np.ndarray]:
    theirs = run(dali, file, output_type=getattr(dali_types, output_type), dtype=getattr(dali, dtype), **options)
    ours = run(ndd, file, output_type=getattr(ndd_types, output_type), dtype=getattr(ndd, dtype), **options)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    return ours, theirs


@pytest.mark.skipif(not FILES, reason="DALI_EXTRA_PATH holds no images")
@pytest.mark.slow
def test_dali_extra() -> None:
    decoded = 0
    for path in FILES:
        file = np.fromfile(path, np.uint8)
        for adjust_orientation in (True, False):
            try:
                theirs = run(dali, file, adjust_orientation=adjust_orientation)
            except RuntimeError:
                if path.name == "cat-3449999_640_grayscale_8bit.jpg":  # lossless: ours decodes it
                    assert run(ndd, file).shape == (426, 640, 3)
                    continue
                with pytest.raises(RuntimeError):
                    run(ndd, file, adjust_orientation=adjust_orientation)
                continue
            ours = run(ndd, file, adjust_orientation=adjust_orientation)
            assert np.array_equal(ours, theirs), path
            decoded += 1
    assert decoded > 0


def encode(codec: str, mode: str) -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 256, (36, 52, 4), dtype=np.uint8)
    channels = {"L": noise[..., 0], "I;16": noise[..., 0].astype(np.uint16) * 256 + noise[..., 1]}
    image = Image.fromarray(channels[mode]) if mode in channels else Image.fromarray(noise[..., :3]).convert(mode)
    file = io.BytesIO()
    image.save(file, codec, **({"lossless": True} if codec == "WEBP" else {}))
    return np.frombuffer(file.getvalue(), np.uint8)


IMAGES = [
    (codec, mode)
    for codec, modes in {
        "JPEG": ("RGB", "L"),
        "PNG": ("RGB", "RGBA", "L", "I;16", "P", "1"),
        "TIFF": ("RGB", "RGBA", "L", "I;16"),
        "BMP": ("RGB", "L"),
        "PPM": ("RGB", "L"),
        "WEBP": ("RGB", "RGBA"),
        "JPEG2000": ("RGB", "L", "I;16"),
    }.items()
    for mode in modes
]
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32")


@pytest.mark.parametrize("output_type", ["RGB", "BGR", "GRAY", "ANY_DATA"])
@pytest.mark.parametrize(("codec", "mode"), IMAGES)
def test_output_types_and_dtypes_are_equal(codec: str, mode: str, output_type: str) -> None:
    if (codec, mode, output_type) == ("JPEG", "L", "ANY_DATA"):
        pytest.skip("DALI 2.4.0 writes three channels into a buffer of one")
    for dtype in DTYPES:
        ours, theirs = both(encode(codec, mode), output_type, dtype)
        if (codec, output_type) == ("JPEG2000", "GRAY"):  # OpenCV rounds its weights to 14 bits
            full = 1.0 if dtype == "float32" else float(np.iinfo(dtype).max)
            assert np.abs(ours / full - theirs / full).max() <= 1 / 255 + (dtype != "float32") / full
        else:
            assert np.array_equal(ours, theirs), dtype


@pytest.mark.parametrize(("codec", "mode"), IMAGES)
def test_output_in_ycbcr(codec: str, mode: str) -> None:
    for dtype in DTYPES:
        ours, theirs = both(encode(codec, mode), "YCbCr", dtype)
        if dtype == "uint8":
            assert np.array_equal(ours, theirs)
        else:  # the sums are in another order
            scale = 1.0 if dtype == "float32" else float(np.iinfo(dtype).max)
            assert np.abs(ours / scale - theirs / scale).max() < 1e-6 + (dtype != "float32") / scale


def test_cmyk_becomes_rgb_and_gray() -> None:
    file = encode("JPEG", "CMYK")
    assert np.array_equal(*both(file))
    ours, theirs = both(file, "GRAY")
    assert np.abs(ours.astype(int) - theirs).max() <= 1  # DALI truncates
    for module, types in ((dali, dali_types), (ndd, ndd_types)):
        with pytest.raises(RuntimeError):
            run(module, file, output_type=types.ANY_DATA)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"use_fast_idct": True}, {"jpeg_fancy_upsampling": True}], ids=str)
def test_jpeg_options(subsampling: int, options: dict[str, bool]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (75, 91, 3), dtype=np.uint8)
    for progressive in (False, True):
        file = io.BytesIO()
        Image.fromarray(noise).save(file, "JPEG", subsampling=subsampling, progressive=progressive)
        assert np.array_equal(*both(np.frombuffer(file.getvalue(), np.uint8), **options))


WINDOWS = [
    ("image_crop", {"crop": [10, 20]}, ()),
    ("image_crop", {"crop": [10, 20], "crop_pos_x": 0.0, "crop_pos_y": 1.0}, ()),
    ("image_crop", {"crop": [11, 21], "crop_pos_x": 0.3, "rounding": "truncate"}, ()),
    ("image_crop", {"crop": [11, 21], "crop_pos_x": 0.3}, ()),
    ("image_crop", {"crop_h": 10, "crop_w": 0}, ()),
    ("image_crop", {"crop_h": 10, "crop_w": 20, "crop_d": 3}, ()),
    ("image_crop", {"crop": [1, 10, 20]}, ()),
    ("image_crop", {}, ()),
    raising(RuntimeError, "image_crop", {"crop_h": 10}, ()),
    raising(RuntimeError, "image_crop", {"crop": [50, 20]}, ()),
    raising(RuntimeError, "image_crop", {"crop": [10, 80]}, ()),
    raising(RuntimeError, "image_crop", {"crop": [10, 20], "crop_pos_x": 1.5}, ()),
    ("image_slice", {}, ([0.1, 0.2], [0.5, 0.5])),
    ("image_slice", {}, ([10, 20], [10, 10])),
    raising(RuntimeError, "image_slice", {}, ([10, 20], [0.5, 0.5])),
    raising(RuntimeError, "image_slice", {}, ([10, 20], [10, 30])),
    raising(RuntimeError, "image_slice", {}, ([-10, 20], [10, 10])),
    ("image_slice", {"normalized_anchor": False, "normalized_shape": False}, ([10.0, 5.0], [20.0, 10.0])),
    ("image_slice", {"start": [10, 20], "end": [30, 35]}, ()),
    ("image_slice", {"start": [10, 20], "shape": [9, 5]}, ()),
    raising(RuntimeError, "image_slice", {"start": [10, 20], "end": [70, 35]}, ()),
    raising(RuntimeError, "image_slice", {"start": [10, 20], "end": [5, 35]}, ()),
    raising(RuntimeError, "image_slice", {"start": [10, 20], "end": [10, 35]}, ()),
    ("image_slice", {"start": [10], "shape": [7], "axes": [0]}, ()),
    ("image_slice", {"start": [10], "shape": [7], "axes": [-2]}, ()),
    raising(RuntimeError, "image_slice", {"start": [1], "shape": [1], "axes": [2]}, ()),
    ("image_slice", {"start": [3, 10], "shape": [5, 7], "axis_names": "HW"}, ()),
    raising(RuntimeError, "image_slice", {"start": [3, 10], "shape": [5, 7], "axis_names": "CH"}, ()),
    ("image_slice", {"rel_start": [0.1, 0.1], "rel_end": [0.9, 0.9]}, ()),
    ("image_slice", {"rel_start": [0.13, 0.17], "rel_shape": [0.51, 0.52]}, ()),
    ("image_slice", {"start": [3, 10]}, ()),
    raising(RuntimeError, "image_slice", {}, ()),
]


@pytest.mark.parametrize("codec", ["JPEG", "PNG"])
@pytest.mark.parametrize(("name", "options", "positional"), WINDOWS, ids=str)
def test_windows_are_equal(name: str, options: dict[str, object], positional: tuple[object, ...], codec: str, raises: Raises | None) -> None:
    file = encode(codec, "RGB")
    assert_same(lambda module: getattr(module.decoders, name)(module.as_tensor(file), *positional, **options), raises=raises)


@pytest.mark.parametrize(("codec", "mode"), [image for image in IMAGES if image[0] != "JPEG2000"])
def test_windows_of_all_output_types(codec: str, mode: str) -> None:
    file = encode(codec, mode)
    for output_type in ("RGB", "GRAY", "ANY_DATA"):
        if (codec, mode, output_type) == ("JPEG", "L", "ANY_DATA"):
            continue
        for dtype in ("uint8", "float32"):
            results = []
            for module, types in ((dali, dali_types), (ndd, ndd_types)):
                options = {"output_type": getattr(types, output_type), "dtype": getattr(module, dtype)}
                results.append(np.asarray(module.decoders.image_crop(module.as_tensor(file), crop=[20, 31], crop_pos_x=0.7, **options)))
            assert np.array_equal(*results), (output_type, dtype)


@pytest.mark.parametrize("output_type", ["RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA"])
@pytest.mark.parametrize(
    "dtype", ["int64", "int32", "uint32", "uint64", "float32", "float64", raising(RuntimeError, "uint8"), raising(RuntimeError, "int16")]
)
def test_peek_image_shape(output_type: str, dtype: str, raises: Raises | None) -> None:
    files = [encode(codec, mode) for codec, mode in IMAGES]

    def program(module: ModuleType) -> object:
        types = ndd_types if module is ndd else dali_types
        batch = module.batch([module.as_tensor(file) for file in files])
        return module.peek_image_shape(batch, image_type=getattr(types, output_type), dtype=getattr(module, dtype))

    assert_same(program, raises=raises)


def test_peek_image_shape_of_turned_images() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for codec in ("JPEG", "PNG"):
        file = io.BytesIO()
        Image.new("RGB", (9, 5)).save(file, codec, exif=exif)
        contents = np.frombuffer(file.getvalue(), np.uint8)
        for options in ({}, {"adjust_orientation": False}):
            assert_same(lambda module, value=options, file=contents: module.peek_image_shape(module.as_tensor(file), **value))


def test_imread_and_read(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.jpg" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(encode("JPEG", "RGB" if i else "L").tobytes())
    names = [np.frombuffer(bytes(path), np.uint8) for path in paths]
    for program in (
        lambda module: module.imread(paths[0]),
        lambda module: module.imread(str(paths[1])),
        lambda module: module.imread(paths),
        lambda module: module.imread(tuple(paths), use_fast_idct=True),
        lambda module: module.imread([module.as_tensor(names[0]), paths[1]]),
        lambda module: module.imread(module.batch(names)),
        lambda module: module.imread(paths[1], output_type=(ndd_types if module is ndd else dali_types).GRAY),
        lambda module: module.io.file.read(module.as_tensor(names[0])),
        lambda module: module.io.file.read(names[0], batch_size=2),
        lambda module: module.io.file.read(module.batch(names)),
    ):
        assert_same(program)
    for program, error in (
        (lambda module: module.imread([]), ValueError),
        (lambda module: module.imread(tmp_path / "missing.jpg"), RuntimeError),
        (lambda module: module.imread(paths[0], device="tpu"), ValueError),
        (lambda module: module.io.file.read(np.frombuffer(bytes(tmp_path), np.uint8)), RuntimeError),
        (lambda module: module.io.file.read(np.frombuffer(b"/missing", np.uint8)), RuntimeError),
        (lambda module: module.io.file.read(np.zeros(3, np.int32)), RuntimeError),
    ):
        assert_same(program, raises=error)


def mutations(file: np.ndarray, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    damaged = [file[: rng.integers(len(file))] for _ in range(count // 2)]
    for _ in range(count // 2):
        copy = file.copy()
        copy[rng.integers(len(file), size=3)] = rng.integers(256, size=3)
        damaged.append(copy)
    return damaged


def test_damaged_jpegs_are_refused_or_equal(capfd: pytest.CaptureFixture[str]) -> None:
    outcomes = []
    for file in mutations(encode("JPEG", "RGB"), 200):
        results: list[np.ndarray | None] = []
        for module in (dali, ndd):
            try:
                results.append(run(module, file))
            except RuntimeError:
                results.append(None)
        theirs, ours = results
        outcomes.append((theirs is None, ours is None))
        if theirs is not None and ours is not None:
            assert np.array_equal(theirs, ours)
    # We reject everything that DALI rejects, and sizes that the file cannot hold.
    assert (True, False) not in outcomes
    assert outcomes.count((False, True)) <= 5
    capfd.readouterr()
