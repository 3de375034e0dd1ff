# SPDX-License-Identifier: Apache-2.0
"""Filters compared with DALI's. gaussian_blur computes uint8 in fixed point, and DALI's filter rounds halves to even: one level off at a half."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, assert_raises, assert_same, dali
from _raises import Raises, raising

import torch_ndd as ndd


def data(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, shape).astype(dtype) if dtype == "uint8" else generator.uniform(-3000, 3000, shape).astype(dtype)


def assert_blurs_alike(values: np.ndarray, layout: str, dtype: str | None = None, **options: object) -> None:
    ours, theirs = (
        np.asarray(
            module.gaussian_blur(
                module.tensor(values, layout=layout), **({} if dtype is None else {"dtype": getattr(module, dtype)}), **options
            ).evaluate()
        )
        for module in (ndd, dali)
    )
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    if np.issubdtype(ours.dtype, np.integer):
        assert difference.max(initial=0) <= 1
        assert (difference > 0).mean() < 0.1
    else:
        assert difference.max(initial=0) <= (2 if ours.dtype == np.float16 else 2e-3)


@pytest.mark.parametrize(
    ("source", "target"),
    [("uint8", None), ("uint8", "float32"), ("int16", None), ("uint16", None), ("int32", None), ("float32", None), ("float16", None)],
)
@pytest.mark.parametrize(
    "options", [{"sigma": 1.5}, {"sigma": 0.2}, {"sigma": 11.0}, {"window_size": 7}, {"window_size": 1}, {"sigma": 5.0, "window_size": 3}]
)
def test_blur_of_every_type(source: str, target: str | None, options: dict[str, object]) -> None:
    values = np.abs(data((23, 31, 3), source)) if source == "uint16" else data((23, 31, 3), source)
    assert_blurs_alike(values, "HWC", target, **options)


@pytest.mark.parametrize(
    ("layout", "axes"),
    [("HWC", 2), ("CHW", 2), ("HW", 2), ("FHWC", 2), ("FCHW", 2), ("CFHW", 2), ("DHWC", 3), ("CDHW", 3), ("FDHWC", 3), ("FCDHW", 3), ("CW", 1)],
)
def test_layouts_and_per_axis_sigma(layout: str, axes: int) -> None:
    shape = tuple({"F": 2, "C": 3, "D": 4, "H": 13, "W": 10}[letter] for letter in layout)
    for dtype in ("uint8", "float32"):
        assert_blurs_alike(data(shape, dtype), layout, sigma=[0.7, 2.0, 1.2][:axes])
        assert_blurs_alike(data(shape, dtype), layout, sigma=[0.0, 2.0, 1.2][:axes], window_size=[3, 5, 0][:axes])


@pytest.mark.parametrize("shape", [(1, 9, 3), (9, 1, 3), (1, 1, 1), (2, 2, 4)])
def test_window_larger_than_the_image(shape: tuple[int, ...]) -> None:
    for dtype in ("uint8", "float32"):
        assert_blurs_alike(data(shape, dtype), "HWC", window_size=51)


def test_per_sample_and_per_frame() -> None:
    images = [data((10 + 3 * i, 20 - i, 3), "uint8") for i in range(3)]
    for sigma in ([np.float32(s) for s in (0.5, 1.5, 3.0)], [np.float32(s) for s in ([0.5, 2], [1.5, 1], [3, 0.8])]):
        ours, theirs = (
            [np.asarray(t) for t in module.gaussian_blur(module.batch(images, layout="HWC"), sigma=module.batch(sigma)).evaluate().tensors]
            for module in (ndd, dali)
        )
        assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(ours, theirs, strict=True))
    video = data((3, 12, 15, 3), "uint8")
    for frames in ([1.0, 2.0, 3.0], [[1.0, 0.5], [2.0, 1.0], [0.4, 3.0]]):
        ours, theirs = (
            np.asarray(module.gaussian_blur(module.tensor(video, layout="FHWC"), sigma=module.per_frame(frames)).evaluate()).astype(int)
            for module in (ndd, dali)
        )
        assert np.abs(ours - theirs).max() <= 1


def assert_near(program: Callable[[Any], Any], tolerance: float = 1e-5) -> None:
    """Check integers within one level, in fewer than a tenth of the pixels; floats within ``tolerance`` of the largest number."""
    results = assert_alike(program)
    assert results is not None
    for sample, other in zip(results[0].samples, results[1].samples, strict=True):
        difference = np.abs(sample.astype(np.float64) - other.astype(np.float64))
        if sample.dtype.kind == "f":
            assert difference.max(initial=0) <= tolerance * max(1.0, np.abs(other.astype(np.float64)).max(initial=0))
        else:
            assert difference.max(initial=0) <= 1
            assert (difference > 0).mean() < 0.1


def make_ragged(dtype: str, layout: str = "HWC") -> list[np.ndarray]:
    extents = {"F": 2, "C": 3, "D": 4, "H": 13, "W": 10}
    shapes = [tuple(extents[letter] + (3 * i if letter in "HW" else 0) for letter in layout) for i in range(3)]
    return [np.abs(data(shape, dtype)) if dtype[0] == "u" else data(shape, dtype) for shape in shapes]


LAPLACIANS: list[dict[str, Any]] = [
    {},
    {"smoothing_size": 1},
    {"window_size": 5, "scale": 0.1},
    {"window_size": [7, 3]},
    {"window_size": 11, "smoothing_size": [1, 5], "scale": [0.01, 0.2]},
    {"window_size": 9, "normalized_kernel": True},
    {"window_size": 31, "smoothing_size": 3, "normalized_kernel": True},
    {"window_size": [3], "smoothing_size": [5], "scale": [2.0]},
]


@pytest.mark.parametrize("options", LAPLACIANS, ids=str)
@pytest.mark.parametrize(
    ("source", "target"), [("uint8", None), ("uint8", "float32"), ("int16", None), ("uint16", None), ("int32", None), ("float32", None)]
)
def test_arguments_and_types_of_laplacian(options: dict[str, Any], source: str, target: str | None) -> None:
    samples = make_ragged(source)
    assert_near(lambda m: m.laplacian(m.batch(samples, layout="HWC"), **options, **({} if target is None else {"dtype": getattr(m, target)})))


@pytest.mark.parametrize("layout", ["CHW", "HW", "FHWC", "FCHW", "CFHW", "DHWC", "CDHW", "FDHWC", "CW", "F", "HCW", "ABCD"])
@pytest.mark.parametrize("options", [{}, {"window_size": 7, "normalized_kernel": True}], ids=str)
def test_laplacian_layouts(layout: str, options: dict[str, Any]) -> None:
    values = data(tuple({"F": 2, "C": 3, "D": 4, "H": 13, "W": 10}.get(letter, 3) for letter in layout), "float32")
    if layout in ("F", "HCW", "ABCD"):
        assert_raises(lambda m: m.laplacian(m.tensor(values, layout=layout), **options), RuntimeError)
    else:
        assert_near(lambda m: m.laplacian(m.tensor(values, layout=layout), **options))


@pytest.mark.parametrize("source", ["uint8", "float32"])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("window_size", [3, 5, 7]),
        ("smoothing_size", [1, 3, 9]),
        ("scale", [0.1, 1.0, 2.0]),
        ("window_size", [[3, 5], [5, 3], [7, 7]]),
        ("scale", [[0.1, 1.0], [2.0, 0.0], [0.3, 0.4]]),
    ],
)
def test_laplacian_per_sample_and_per_frame(name: str, values: list[Any], source: str) -> None:
    samples, video = make_ragged(source), data((3, 12, 15, 3), source)
    operand = [np.asarray(value, np.float32 if name == "scale" else np.int32) for value in values]
    assert_near(lambda m: m.laplacian(m.batch(samples, layout="HWC"), **{name: m.batch(operand)}))
    assert_near(lambda m: m.laplacian(m.tensor(video, layout="FHWC"), **{name: m.per_frame(np.stack(operand))}))


@pytest.mark.parametrize(
    "options",
    [
        {"window_size": 1},
        {"window_size": 4},
        {"window_size": 33},
        {"window_size": [3, 3, 3]},
        {"smoothing_size": 2},
        {"smoothing_size": 0},
        {"smoothing_size": -1},
        {"scale": [1.0, 2.0, 3.0]},
        {"normalized_kernel": True, "scale": 1.0},
    ],
    ids=str,
)
def test_wrong_arguments_of_laplacian(options: dict[str, Any]) -> None:
    assert_same(lambda m: m.laplacian(m.tensor(data((5, 6, 3), "uint8"), layout="HWC"), **options), raises=RuntimeError)


WEIGHTS = np.random.default_rng(1).uniform(-0.3, 0.4, (4, 5)).astype(np.float32)
FILTERS: list[dict[str, Any]] = [
    *({"border": border} for border in ("reflect_101", "reflect_1001", "wrap", "clamp", "constant")),
    *({"border": name} for name in ("reflect101", "101", "reflect", "reflect1001", "1001", "edge", "pad", "fill", "Edge", "REFLECT_101")),
    {"anchor": 0},
    {"anchor": [3, 1]},
    {"anchor": [-1, 4], "border": "wrap"},
    {"mode": "valid"},
    {"mode": "valid", "anchor": [1, 1]},
]


@pytest.mark.parametrize("options", FILTERS, ids=str)
@pytest.mark.parametrize(("source", "target"), [("uint8", None), ("uint8", "float32"), ("int16", None), ("uint16", None), ("float32", None)])
def test_arguments_and_types_of_filter(options: dict[str, Any], source: str, target: str | None) -> None:
    samples = make_ragged(source)
    dtype: Callable[[Any], dict[str, Any]] = lambda m: {} if target is None else {"dtype": getattr(m, target)}  # noqa: E731
    assert_near(lambda m: m.filter(m.batch(samples, layout="HWC"), WEIGHTS, **options, **dtype(m)))
    each = [np.ascontiguousarray(value) for value in (WEIGHTS, WEIGHTS[:3, :4], WEIGHTS[:, 4:])]
    if "anchor" not in options or options["anchor"] == 0:
        assert_near(lambda m: m.filter(m.batch(samples, layout="HWC"), m.batch(each), **options, **dtype(m)))


@pytest.mark.parametrize("border", ["reflect_101", "reflect_1001", "wrap", "clamp", "constant"])
@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 7, 1), (2, 3, 3)])
def test_filter_larger_than_the_image(border: str, shape: tuple[int, ...]) -> None:
    weights = np.random.default_rng(1).uniform(-0.1, 0.1, (9, 12)).astype(np.float32)
    assert_near(lambda m: m.filter(m.tensor(data(shape, "float32"), layout="HWC"), weights, border=border))


@pytest.mark.parametrize("source", ["uint8", "float32"])
def test_fill_value(source: str) -> None:
    samples = make_ragged(source)
    fills = [np.asarray(value, source) for value in (0, 100, 7)]
    assert_near(lambda m: m.filter(m.batch(samples, layout="HWC"), WEIGHTS, m.batch(fills), border="constant"))
    assert_near(lambda m: m.filter(m.batch(samples, layout="HWC"), WEIGHTS, fills[1], border="constant"))
    assert_near(lambda m: m.filter(m.batch(samples, layout="HWC"), WEIGHTS, fills[1], border="clamp"))


@pytest.mark.parametrize("layout", ["HW", "CHW", "FHWC", "FCHW", "FHW", "XYC", "FWH", "HCW", "CFHW", "ABCD", "F", "C"])
def test_filter_layouts(layout: str) -> None:
    values = data(tuple({"F": 2, "C": 3}.get(letter, 9) for letter in layout), "float32")
    if layout in ("HCW", "ABCD", "F", "C"):
        assert_raises(lambda m: m.filter(m.tensor(values, layout=layout), WEIGHTS), RuntimeError)
    elif layout != "CFHW":  # known_differences.md
        assert_near(lambda m: m.filter(m.tensor(values, layout=layout), WEIGHTS))


def test_filter_per_frame() -> None:
    video = data((3, 12, 15, 3), "uint8")
    each = np.stack([WEIGHTS, WEIGHTS[::-1], -WEIGHTS])
    anchors = np.int32([[0, 1], [3, 4], [-1, 2]])
    assert_near(lambda m: m.filter(m.tensor(video, layout="FHWC"), m.per_frame(each)))
    assert_near(lambda m: m.filter(m.tensor(video, layout="FHWC"), WEIGHTS, anchor=m.per_frame(anchors)))
    assert_near(lambda m: m.filter(m.tensor(video, layout="FHWC"), WEIGHTS, m.per_frame(np.uint8([0, 100, 255])), border="constant"))


@pytest.mark.parametrize(
    "program",
    [
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, anchor=[-2, 0])),
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, anchor=[4, 0])),
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, anchor=[1, 1, 1])),
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, border="nowhere")),
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, mode="full")),
        raising(RuntimeError, lambda m, x: m.filter(x, np.ones((7, 3), np.float32), mode="valid")),
        raising(RuntimeError, lambda m, x: m.filter(x, np.ones((3, 3, 3), np.float32))),
        raising(RuntimeError, lambda m, x: m.filter(x, np.ones(3, np.float32))),
        raising(RuntimeError, lambda m, x: m.filter(x, np.ones((0, 3), np.float32))),
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, np.uint8([1]), border="constant")),
        raising(RuntimeError, lambda m, x: m.filter(x, WEIGHTS, dtype=m.int16)),
        raising(TypeError, lambda m, x: m.filter(x)),
    ],
)
def test_wrong_arguments_of_filter(program: Callable[[Any, Any], Any], raises: Raises | None) -> None:
    assert_raises(lambda m: program(m, m.tensor(data((5, 6, 3), "uint8"), layout="HWC")), raises)
