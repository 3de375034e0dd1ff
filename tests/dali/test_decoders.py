# SPDX-License-Identifier: Apache-2.0
"""The CPU decoders against DALI's, on DALI's own test images and on every codec, output type and dtype."""

import io
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

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
def test_dali_extra() -> None:
    decoded = 0
    for path in FILES:
        file = np.fromfile(path, np.uint8)
        for adjust_orientation in (True, False):
            try:
                theirs = run(dali, file, adjust_orientation=adjust_orientation)
            except RuntimeError:
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
def test_ycbcr(codec: str, mode: str) -> None:
    for dtype in DTYPES:
        ours, theirs = both(encode(codec, mode), "YCbCr", dtype)
        if dtype == "uint8":
            assert np.array_equal(ours, theirs)
        else:  # the sums are in another order
            scale = 1.0 if dtype == "float32" else float(np.iinfo(dtype).max)
            assert np.abs(ours / scale - theirs / scale).max() < 1e-6 + (dtype != "float32") / scale


def test_cmyk() -> None:
    file = encode("JPEG", "CMYK")
    assert np.array_equal(*both(file))
    ours, theirs = both(file, "GRAY")
    assert np.abs(ours.astype(int) - theirs).max() <= 1  # DALI cuts off the fraction
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
    # We refuse all that DALI refuses, and the sizes that the file cannot hold.
    assert (True, False) not in outcomes
    assert outcomes.count((False, True)) <= 5
    capfd.readouterr()
