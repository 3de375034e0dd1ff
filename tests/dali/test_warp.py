# SPDX-License-Identifier: Apache-2.0
"""rotate against DALI's. Known differences: where a point falls exactly between two pixels (quarter turns between sizes of unlike parity), nearest
takes the higher one everywhere, while DALI's choice follows its rounding noise; a fractional size is rounded as documented, while DALI truncates it
unless it is a literal."""

from types import ModuleType

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types as ndd_types  # noqa: E402

MODULES = ((dali, dali_types), (ndd, ndd_types))


def image(shape: tuple[int, ...], dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


def rotated(data: np.ndarray, layout: str, *, interp: str = "LINEAR", dtype: str | None = None, **options: object) -> list[np.ndarray]:
    def run(module: ModuleType, types: ModuleType) -> np.ndarray:
        out_dtype = {} if dtype is None else {"dtype": getattr(module, dtype)}
        tensor = module.tensor(data, layout=layout)
        return np.asarray(module.rotate(tensor, interp_type=getattr(types, "INTERP_" + interp), **out_dtype, **options).evaluate())

    ours, theirs = (run(*module) for module in reversed(MODULES))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    return [ours.astype(np.float64), theirs.astype(np.float64)]


def assert_close(ours: np.ndarray, theirs: np.ndarray, *, integer: bool) -> None:
    # Coordinates are float32 on both sides: a few 1e-5 of a pixel, times steps of up to 255.
    difference = np.abs(ours - theirs)
    assert difference.max(initial=0) <= (1 if integer else 0.05)
    assert (difference > 0.05).mean() < 0.02


@pytest.mark.parametrize("fill", [None, 42.0, 300.0, -7.5, 1.5])
@pytest.mark.parametrize(
    ("source", "target"), [("uint8", "uint8"), ("uint8", "float32"), ("float32", "uint8"), ("int16", "int16"), ("int32", "float32")]
)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_linear(source: str, target: str, channels: int, fill: float | None) -> None:
    options = {} if fill is None else {"fill_value": fill}
    for angle, shape in ((30.0, (37, 52)), (-77.25, (64, 9)), (201.5, (1, 40)), (90.0, (33, 20))):
        assert_close(*rotated(image((*shape, channels), source), "HWC", angle=angle, dtype=target, **options), integer=target != "float32")


@pytest.mark.parametrize("fill", [None, 42.0])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_nearest(dtype: str, channels: int, fill: float | None) -> None:
    options = {} if fill is None else {"fill_value": fill}
    for angle, shape in ((30.0, (37, 52)), (-77.25, (64, 9)), (201.5, (1, 40)), (90.0, (33, 20))):
        ours, theirs = rotated(image((*shape, channels), dtype), "HWC", interp="NN", angle=angle, **options)
        assert (ours != theirs).mean() < 1e-3


@pytest.mark.parametrize("interp", ["NN", "LINEAR"])
def test_volume(interp: str) -> None:
    for seed, axis in enumerate([(0, 0, 2), (1, 0, 0), (0, -1, 0), (1, 2, -3), (0.5, 0.1, 0.7)]):
        for fill in ({}, {"fill_value": 9.0}):
            options = dict(angle=17.0 + 50 * seed, axis=[float(a) for a in axis], **fill)
            ours, theirs = rotated(image((7, 12, 9, 2), seed=seed), "DHWC", interp=interp, **options)
            assert_close(ours, theirs, integer=True)


@pytest.mark.parametrize("options", [{"keep_size": True}, {"size": [20, 31]}, {"size": [20.4, 31.0]}, {"size": [5, 7], "keep_size": True}])
def test_canvas_options(options: dict[str, object]) -> None:
    assert_close(*rotated(image((25, 30, 3)), "HWC", angle=33.0, **options), integer=True)


def canvases(module: ModuleType, images: list[np.ndarray], layout: str, **options: list[np.ndarray]) -> list[tuple[int, ...]]:
    arguments = {name: module.batch(values) for name, values in options.items()}
    return [tuple(shape) for shape in module.rotate(module.batch(images, layout=layout), **arguments).evaluate().shape]


def test_canvas_size() -> None:
    generator = np.random.default_rng(7)
    sizes = generator.integers(1, 40, (500, 2))
    angles = np.where(generator.random(500) < 0.5, generator.integers(-40, 40, 500) * 15.0, generator.uniform(-400, 400, 500)).astype(np.float32)
    images = [np.zeros((*size, 1), np.uint8) for size in sizes]
    ours, theirs = (canvases(module, images, "HWC", angle=list(angles)) for module in (ndd, dali))
    assert ours == theirs


def test_canvas_size_of_volumes() -> None:
    generator = np.random.default_rng(8)
    sizes = generator.integers(1, 14, (200, 3))
    options = {"angle": list(generator.uniform(-400, 400, 200).astype(np.float32)), "axis": list(generator.normal(size=(200, 3)).astype(np.float32))}
    images = [np.zeros((*size, 1), np.uint8) for size in sizes]
    ours, theirs = (canvases(module, images, "DHWC", **options) for module in (ndd, dali))
    assert ours == theirs


def test_frames() -> None:
    video = image((3, 20, 31, 3))
    assert_close(*rotated(video, "FHWC", angle=25.0), integer=True)
    ours, theirs = (
        np.asarray(module.rotate(module.tensor(video, layout="FHWC"), angle=module.per_frame([10.0, -40.0, 80.0])).evaluate()).astype(np.float64)
        for module in (ndd, dali)
    )
    assert_close(ours, theirs, integer=True)


def test_ragged_batch() -> None:
    images = [image((10 + i, 31 - 2 * i, 3), seed=i) for i in range(4)]
    angles = [np.float32(a) for a in (0.0, 45.0, -120.0, 333.0)]
    results = [
        [np.asarray(t) for t in module.rotate(module.batch(images, layout="HWC"), angle=module.batch(angles), fill_value=0.0).evaluate().tensors]
        for module in (ndd, dali)
    ]
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours.astype(np.float64), theirs.astype(np.float64), integer=True)
