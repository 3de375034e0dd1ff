# SPDX-License-Identifier: Apache-2.0
"""slice and pad against DALI's: elements are moved, so everything is equal."""

import itertools
from typing import Any

import numpy as np
import pytest
from _dali import assert_same, evaluate
from _raises import Raises, raising

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402

A = np.arange(12, dtype=np.uint8).reshape(3, 4)
V = np.arange(10, dtype=np.uint8)
IMAGE = np.arange(4 * 6 * 2, dtype=np.uint8).reshape(4, 6, 2)
RAGGED = [np.arange(n, dtype=np.float32) for n in (10, 20, 7)]


def hw(m: Any) -> Any:
    return m.tensor(A, layout="HW")


def bare(m: Any) -> Any:
    return m.tensor(A)


def line(m: Any) -> Any:
    return m.tensor(V)


def hwc(m: Any) -> Any:
    return m.tensor(IMAGE, layout="HWC")


def make_ragged(m: Any) -> Any:
    return m.batch(RAGGED)


def two(m: Any) -> Any:
    return m.batch([A, A], layout="HW")


SLICES = {
    "nothing": raising(RuntimeError, lambda m: m.slice(hw(m))),
    "relative position": lambda m: m.slice(hw(m), [0.25, 0.0], [0.5, 1.0]),
    "position": lambda m: m.slice(hw(m), [1, 0], [2, 1]),
    "position without a layout": lambda m: m.slice(bare(m), [1, 0], [2, 1]),
    "position, no such axis": raising(RuntimeError, lambda m: m.slice(line(m), [1], [2])),
    "position of one axis": lambda m: m.slice(line(m), [1], [2], axes=[0]),
    "scalar of one axis": lambda m: m.slice(line(m), start=1, shape=2, axes=[0]),
    "scalar of two axes": lambda m: m.slice(hwc(m), start=1, shape=2, axes=[0, 1]),
    "axes": lambda m: m.slice(hw(m), start=[1], shape=[2], axes=[0]),
    "negative axis": lambda m: m.slice(hw(m), start=[1], shape=[2], axes=[-1]),
    "no axes": lambda m: m.slice(hwc(m), start=[0, 1, 1], shape=[2, 2, 1], axes=[]),
    "start, end": lambda m: m.slice(hw(m), start=[1, 1], end=[3, 2]),
    "start, rel_end": lambda m: m.slice(hw(m), start=[1, 1], rel_end=[0.9, 0.8]),
    "rel_start, rel_shape": lambda m: m.slice(hw(m), rel_start=[0.3, 0.3], rel_shape=[0.5, 0.5]),
    "end": lambda m: m.slice(hw(m), end=[2, 2]),
    "shape": lambda m: m.slice(hw(m), shape=[2, 2]),
    "start": lambda m: m.slice(hw(m), start=[2, 2]),
    "rel_start": lambda m: m.slice(hw(m), rel_start=[0.5, 0.5]),
    "start twice": raising(RuntimeError, lambda m: m.slice(hw(m), start=[2, 2], rel_start=[0.5, 0.5])),
    "end twice": raising(RuntimeError, lambda m: m.slice(hw(m), end=[2, 2], shape=[1, 1])),
    "three limits": raising(RuntimeError, lambda m: m.slice(hw(m), start=[1, 1], end=[2, 2], shape=[1, 1])),
    "rel_end twice": raising(RuntimeError, lambda m: m.slice(hw(m), rel_end=[1, 1], rel_shape=[0.5, 0.5])),
    "anchor alone": raising(RuntimeError, lambda m: m.slice(hw(m), [1, 1])),
    "anchor and end": raising(RuntimeError, lambda m: m.slice(hw(m), [1, 1], end=[2, 2])),
    "anchor and start": raising(RuntimeError, lambda m: m.slice(hw(m), [1, 1], [2, 2], start=[1, 1])),
    "none for the anchor": lambda m: m.slice(hw(m), None, None, start=[1, 1], shape=[1, 1]),
    "floats in elements": lambda m: m.slice(hw(m), [1.4, 0.6], [2.0, 1.0], normalized_anchor=False, normalized_shape=False),
    "fractions": lambda m: m.slice(hw(m), [0.6, 0.6], [2.0, 1.6], normalized_anchor=False, normalized_shape=False),
    "relative anchor": lambda m: m.slice(hw(m), [0.5, 0.5], [2.0, 1.0], normalized_shape=False),
    "relative shape": lambda m: m.slice(hw(m), [1.0, 1.0], [0.5, 0.5], normalized_anchor=False),
    "two kinds": raising(RuntimeError, lambda m: m.slice(hw(m), [1, 1], [0.5, 0.5])),
    "int64": lambda m: m.slice(hw(m), np.array([1, 1]), np.array([1, 1])),
    "column": lambda m: m.slice(hw(m), np.array([[1], [1]]), np.array([[1], [1]])),
    "empty": lambda m: m.slice(hw(m), [0.5, 0.5], [0.0, 0.0]),
    "negative relative shape": raising(RuntimeError, lambda m: m.slice(hw(m), [0.5, 0.5], [-0.1, 0.0])),
    "one anchor, one shape": lambda m: m.slice(hw(m), m.batch([[0, 1], [1, 1]]), [2, 2]),
    "anchors": lambda m: m.slice(two(m), m.batch([[0, 1], [1, 1]]), m.batch([[2, 2], [3, 2]])),
    "out of bounds": raising(RuntimeError, lambda m: m.slice(hw(m), start=[3, 1], shape=[3, 3])),
    "padded": lambda m: m.slice(hw(m), start=[3, 1], shape=[3, 3], out_of_bounds_policy="pad", fill_values=[7]),
    "constant": lambda m: m.slice(hw(m), start=[3, 1], shape=[3, 3], out_of_bounds_policy="constant", fill_values=[7]),
    "trimmed": lambda m: m.slice(hw(m), start=[3, 1], shape=[3, 3], out_of_bounds_policy="trim_to_shape"),
    "unknown policy": raising(RuntimeError, lambda m: m.slice(hw(m), start=[3, 1], shape=[3, 3], out_of_bounds_policy="xx")),
    "negative start": raising(RuntimeError, lambda m: m.slice(hw(m), start=[-1, -1], shape=[3, 3])),
    "negative start, padded": lambda m: m.slice(hw(m), start=[-1, -1], shape=[3, 3], out_of_bounds_policy="pad", fill_values=[7]),
    "negative start, trimmed": lambda m: m.slice(hw(m), start=[-1, -1], shape=[3, 3], out_of_bounds_policy="trim_to_shape"),
    "negative shape": raising(RuntimeError, lambda m: m.slice(hw(m), start=[2, 2], shape=[-1, 1])),
    "end before start": raising(RuntimeError, lambda m: m.slice(hw(m), start=[2, 2], end=[1, 1])),
    "negative end": raising(RuntimeError, lambda m: m.slice(hw(m), start=[0, 0], end=[-1, -1])),
    "no width": lambda m: m.slice(hw(m), start=[2, 2], shape=[0, 1]),
    "far away, padded": lambda m: m.slice(hw(m), start=[20, 20], shape=[2, 2], out_of_bounds_policy="pad", fill_values=[7]),
    "far away, trimmed": lambda m: m.slice(hw(m), start=[20, 20], shape=[2, 2], out_of_bounds_policy="trim_to_shape"),
    "fill per channel": lambda m: m.slice(hwc(m), start=[5, 3], shape=[2, 2], out_of_bounds_policy="pad", fill_values=[7, 8]),
    "too many fills": raising(RuntimeError, lambda m: m.slice(hwc(m), start=[5, 3], shape=[2, 2], out_of_bounds_policy="pad", fill_values=[7, 8, 9])),
    "fills without channels": raising(
        RuntimeError, lambda m: m.slice(hw(m), start=[3, 1], shape=[2, 3], out_of_bounds_policy="pad", fill_values=[7, 8])
    ),
    "fills for nothing": lambda m: m.slice(hw(m), start=[0, 0], shape=[2, 2], fill_values=[7, 8]),
    "more channels": lambda m: m.slice(hwc(m), start=[0], shape=[4], axis_names="C", out_of_bounds_policy="pad", fill_values=[7, 8, 9, 10]),
    "more channels, one fill": lambda m: m.slice(hwc(m), start=[0], shape=[4], axis_names="C", out_of_bounds_policy="pad", fill_values=[7]),
    "more channels than fills": raising(
        RuntimeError, lambda m: m.slice(hwc(m), start=[0], shape=[4], axis_names="C", out_of_bounds_policy="pad", fill_values=[7, 8])
    ),
    "names": lambda m: m.slice(hwc(m), start=[1, 2], shape=[2, 3], axis_names="HW"),
    "names and axes": raising(RuntimeError, lambda m: m.slice(hwc(m), start=[1, 2], shape=[2, 3], axis_names="HW", axes=[0, 1])),
    "names without a layout": lambda m: m.slice(bare(m), start=[1, 2], shape=[1, 1], axis_names="HW"),
    "no names": lambda m: m.slice(hw(m), start=[1, 1], shape=[2, 2], axis_names=""),
    "unknown name": raising(RuntimeError, lambda m: m.slice(hwc(m), start=[1], shape=[2], axis_names="D")),
    "strange layout": raising(RuntimeError, lambda m: m.slice(m.tensor(A, layout="AB"), start=[0, 0], shape=[1, 1])),
    "repeated axes": raising(RuntimeError, lambda m: m.slice(hwc(m), start=[1, 1], shape=[2, 2], axes=[0, 0])),
    "no such axis": raising(RuntimeError, lambda m: m.slice(hwc(m), start=[1], shape=[2], axes=[5])),
    "too few numbers": lambda m: m.slice(hwc(m), start=[1], shape=[2, 3], axes=[0, 1]),
    "too many numbers": raising(RuntimeError, lambda m: m.slice(hwc(m), start=[1, 1, 1], shape=[2, 3, 1], axes=[0, 1])),
    "one number for two axes": lambda m: m.slice(hwc(m), start=[1], shape=[2], axes=[0, 1]),
    "to float": lambda m: m.slice(hwc(m), start=[1], shape=[1], axes=[0], dtype=m.float32),
    "nan": raising(RuntimeError, lambda m: m.slice(hw(m), [float("nan"), 0.0], [0.5, 0.5])),
    "a number": raising(RuntimeError, lambda m: m.slice(m.tensor(5), start=[0], shape=[1], axes=[0])),
    "axes of samples": lambda m: m.slice(two(m), start=[1], shape=[2], axes=m.batch([[0], [1]])),
    "starts": lambda m: m.slice(make_ragged(m), start=m.batch([[1], [5], [0]]), shape=[2], axes=[0]),
    "scalar starts": lambda m: m.slice(make_ragged(m), start=m.batch([1, 5, 0]), shape=[2], axes=[0]),
    "relative": lambda m: m.slice(make_ragged(m), rel_start=[0.5], rel_shape=[0.25], axes=[0]),
    "relative ends": lambda m: m.slice(make_ragged(m), rel_start=m.batch([[0.1], [0.2], [0.33]]), rel_end=m.batch([[0.9], [0.7], [0.34]]), axes=[0]),
    "ragged, padded": lambda m: m.slice(make_ragged(m), start=[5], shape=[10], axes=[0], out_of_bounds_policy="pad", fill_values=[-1.5]),
    "ragged, trimmed": lambda m: m.slice(make_ragged(m), start=[5], shape=[10], axes=[0], out_of_bounds_policy="trim_to_shape"),
    "ragged, error": raising(RuntimeError, lambda m: m.slice(make_ragged(m), start=[5], shape=[10], axes=[0])),
    "depth": lambda m: m.slice(m.tensor(np.arange(81, dtype=np.int16).reshape(3, 3, 3, 3)), start=[1], shape=[1], axis_names="D"),
}


@pytest.mark.parametrize("program", SLICES.values(), ids=SLICES)
def test_arguments_of_slice(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("length", [1, 5, 7, 10, 100, 641])
def test_relative_windows_are_rounded_alike(length: int) -> None:
    values = np.arange(length, dtype=np.int32)
    generator = np.random.default_rng(length)
    for _ in range(40):
        first, last = sorted(np.float32(generator.choice([generator.uniform(0, 1), generator.integers(0, 9) / 8])) for _ in range(2))
        start, end, extent = [float(first)], [float(last)], [float(last - first)]
        assert_same(lambda m, a=start, b=end: m.slice(m.tensor(values), rel_start=a, rel_end=b, axes=[0], out_of_bounds_policy="pad"))
        assert_same(lambda m, a=start, b=extent: m.slice(m.tensor(values), rel_start=a, rel_shape=b, axes=[0], out_of_bounds_policy="pad"))
        assert_same(lambda m, a=start, b=extent: m.slice(m.tensor(values), a, b, axes=[0], out_of_bounds_policy="pad"))


# Fractions of these lengths lie halfway between two elements, on the one or the other side in float32 and in double.
@pytest.mark.parametrize("length", [5, 15, 35, 375])
def test_relative_windows_that_end_halfway_are_rounded_alike(length: int) -> None:
    values = np.arange(length, dtype=np.int32)
    for start, part in itertools.product((0.0, 0.3, 0.7, 0.9), (0.1, 0.45, 0.7, 0.9)):
        for limits in (
            {"rel_start": [start], "rel_end": [start + part]},
            {"rel_start": [start], "rel_shape": [part]},
            {"rel_start": [start], "shape": [2]},
            {"start": [2], "rel_shape": [part]},
        ):
            options: dict[str, Any] = {**limits, "axes": [0], "out_of_bounds_policy": "pad"}
            assert_same(lambda m, options=options: m.slice(m.tensor(values), **options))
            assert_same(lambda m, options=options: m.slice(m.batch([values, values[:-2]]), **options))
        assert_same(lambda m, a=start, b=part: m.slice(m.tensor(values), [a], [b], axes=[0], out_of_bounds_policy="pad"))


BORDERS = (
    "edge",
    "clamp",
    "reflect",
    "reflect_1001",
    "reflect1001",
    "1001",
    "reflect_101",
    "reflect101",
    "101",
    "wrap",
    "fill",
    "Edge",
    "REFLECT_101",
)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_random_windows_with_borders(border: str, dtype: str) -> None:
    random = np.random.default_rng(len(border))
    for _ in range(6):
        ndim = int(random.integers(1, 5))
        count = int(random.integers(1, ndim + 1))
        values = [random.integers(0, 100, random.integers(1, 7, ndim)).astype(dtype) for _ in range(2)]
        limits = [random.integers(low, 30, (2, count)).astype(np.int32) for low in (-30, 0)]
        options: dict[str, Any] = {"axes": random.permutation(ndim)[:count].tolist(), "out_of_bounds_policy": border, "fill_values": [5.0]}
        if random.integers(2) and dtype in ("uint8", "int16", "float32"):
            options["dtype"] = "float32"

        def cut(m: Any, values: Any = values, limits: Any = limits, options: Any = options) -> Any:
            start, shape = (m.batch(list(rows)) for rows in limits)
            converted = {"dtype": m.float32} if "dtype" in options else {}
            return m.slice(m.batch(values), start=start, shape=shape, **{**options, **converted})

        assert_same(cut)


@pytest.mark.parametrize("policy", ["replicate", "symmetric", "ERROR", "Trim_To_Shape", " edge", ""])
def test_policies_that_neither_takes(policy: str) -> None:
    assert_same(lambda m: m.slice(hw(m), start=[3, 1], shape=[3, 3], out_of_bounds_policy=policy), raises=RuntimeError)


def test_deliberate_differences() -> None:
    empty = np.zeros((0,), np.uint8)  # DALI returns whatever is in memory, or divides by 0
    with pytest.raises(RuntimeError, match="axis W has no elements"):
        evaluate(lambda m: m.slice(m.tensor(empty), start=[0], shape=[3], axes=[0], out_of_bounds_policy="edge"), ndd)
    assert ndd.slice(line(ndd), start=[1], shape=[2], axes=[0], dtype=ndd.int16).dtype is ndd.int16
    with pytest.raises(TypeError, match="'start' takes integers"):
        ndd.slice(line(ndd), start=[1.7], shape=[2], axes=[0])
    assert evaluate(lambda m: m.slice(m.tensor(np.ones((2, 2, 2, 2, 2))), start=[1], shape=[1], axes=[0]), ndd).shapes == [(1, 2, 2, 2, 2)]


PADS = {
    "alone": lambda m: m.pad(hw(m)),
    "batch": lambda m: m.pad(m.batch([np.ones((2, 3), np.uint8), np.ones((3, 1), np.uint8)], layout="HW")),
    "batch, one axis": lambda m: m.pad(m.batch([np.ones((2, 3), np.uint8), np.ones((3, 1), np.uint8)], layout="HW"), axes=[0], fill_value=5),
    "batch, name": lambda m: m.pad(m.batch([np.ones((2, 3), np.uint8), np.ones((3, 1), np.uint8)], layout="HW"), axis_names="W", fill_value=5),
    "shape": lambda m: m.pad(hw(m), shape=[5, 5], fill_value=30),
    "smaller shape": lambda m: m.pad(hw(m), shape=[2, 5]),
    "shape -1": lambda m: m.pad(hw(m), shape=[-1, 5]),
    "shape 0": lambda m: m.pad(hw(m), shape=[0, 5]),
    "shape of one axis": lambda m: m.pad(hw(m), shape=[6], axes=[1]),
    "shape of too few axes": lambda m: m.pad(hw(m), shape=[6]),
    "scalar shape": lambda m: m.pad(hw(m), shape=6),
    "align": lambda m: m.pad(hw(m), align=[4, 8]),
    "align of too few axes": lambda m: m.pad(hw(m), align=[4]),
    "align of too many axes": raising(RuntimeError, lambda m: m.pad(hw(m), align=[4, 4, 4])),
    "scalar align": lambda m: m.pad(hw(m), align=4),
    "align 0": raising(RuntimeError, lambda m: m.pad(hw(m), align=[0, 1])),
    "negative align": raising(RuntimeError, lambda m: m.pad(hw(m), align=[-2, 1])),
    "align and shape": lambda m: m.pad(hw(m), align=[4, 4], shape=[2, 5]),
    "align of one axis": lambda m: m.pad(hw(m), align=[4], axes=[0]),
    "shapes": lambda m: m.pad(two(m), shape=m.batch([[4, 4], [5, 5]])),
    "batch, shape -1": lambda m: m.pad(m.batch([np.ones((2, 3), np.uint8), np.ones((3, 1), np.uint8)]), shape=[-1, 2]),
    "aligns": lambda m: m.pad(m.batch([np.ones((2, 3), np.uint8), np.ones((3, 1), np.uint8)]), align=m.batch([[4, 4], [5, 5]])),
    "axes of samples": lambda m: m.pad(m.batch([np.ones((2, 3), np.uint8), np.ones((3, 1), np.uint8)]), axes=m.batch([[0], [1]])),
    "fills": lambda m: m.pad(m.batch([np.ones((1, 2), np.uint8), np.ones((2, 1), np.uint8)]), fill_value=m.batch([3.0, 5.0])),
    "axes and names": raising(RuntimeError, lambda m: m.pad(hw(m), axes=[0], axis_names="H")),
    "unknown name": raising(RuntimeError, lambda m: m.pad(hw(m), axis_names="D")),
    "name without a layout": raising(RuntimeError, lambda m: m.pad(bare(m), axis_names="H", shape=[5])),
    "negative axis": lambda m: m.pad(hw(m), axes=[-1], shape=[5]),
    "no such axis": raising(RuntimeError, lambda m: m.pad(hw(m), axes=[2], shape=[5])),
    "repeated axes": raising(RuntimeError, lambda m: m.pad(hw(m), axes=[0, 0], shape=[5, 5])),
    "no axes": lambda m: m.pad(hw(m), axes=[], shape=[5, 5]),
    "a number": raising(RuntimeError, lambda m: m.pad(m.tensor(3))),
    "float16": lambda m: m.pad(m.tensor(np.ones(2, np.float16)), shape=[3]),
    "bool": lambda m: m.pad(m.tensor(np.ones(2, bool)), shape=[3]),
    "nan": lambda m: m.pad(m.tensor(np.ones(2, np.float32)), shape=[3], fill_value=float("nan")),
    "nothing in it": lambda m: m.pad(m.tensor(np.ones((0, 2), np.uint8)), shape=[3, 3], fill_value=1),
    "five dimensions": lambda m: m.pad(m.tensor(np.ones((1,) * 5, np.uint8)), shape=[1, 1, 1, 1, 2], fill_value=7),
}


@pytest.mark.parametrize("program", PADS.values(), ids=PADS)
def test_arguments_of_pad(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


def axes_of_each_sample() -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
    """Return images, different numbers of axes for them, and how many each names; none are all."""
    generator = np.random.default_rng(1)
    images = [generator.integers(0, 255, generator.integers(6, 10, 3)).astype(np.uint8) for _ in range(6)]
    axes = [np.array(numbers, np.int32) for numbers in ([0], [1, 2], [-1], [2, 0, 1], [1], [])]
    return images, axes, [len(numbers) or 3 for numbers in axes]


@pytest.mark.parametrize("begin", ["start", "rel_start"])
@pytest.mark.parametrize("end", ["shape", "rel_shape", "end", None])
def test_slice_of_samples_with_different_numbers_of_axes(begin: str, end: str | None) -> None:
    images, axes, counts = axes_of_each_sample()
    numbers = {"start": np.int32(1), "rel_start": np.float32(0.3), "shape": np.int32(4), "rel_shape": np.float32(0.6), "end": np.int32(5)}

    def run(module: Any) -> list[np.ndarray]:
        limits = {name: module.batch([np.full(count, numbers[name]) for count in counts]) for name in (begin, end) if name}
        return [np.asarray(t) for t in module.slice(module.batch(images), axes=module.batch(axes), **limits).evaluate().tensors]

    for ours, theirs in zip(run(ndd), run(dali), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("names", [(), ("shape",), ("align",), ("shape", "align")])
def test_pad_of_samples_with_different_numbers_of_axes(names: tuple[str, ...]) -> None:
    images, axes, counts = axes_of_each_sample()

    def run(module: Any) -> list[np.ndarray]:
        sizes = {name: module.batch([np.arange(count, dtype=np.int32) * 5 + 3 for count in counts]) for name in names}
        return [np.asarray(t) for t in module.pad(module.batch(images), axes=module.batch(axes), **sizes).evaluate().tensors]

    for ours, theirs in zip(run(ndd), run(dali), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("operator", ["slice", "pad"])
@pytest.mark.parametrize("counts", [(1, 2), (2, 3)])
def test_limits_must_have_a_value_for_each_axis_of_a_sample(operator: str, counts: tuple[int, int]) -> None:
    for module in (ndd, dali):
        images, shape = module.batch([np.zeros((5, 6, 7), np.uint8)] * 2), module.batch([np.full(count, 4, np.int32) for count in counts])
        with pytest.raises(RuntimeError) as raised:
            getattr(module, operator)(images, shape=shape, axes=[0, 1]).evaluate()
        if module is ndd:
            assert "'shape' must have 2 values, one for each axis" in str(raised.value)


@pytest.mark.parametrize("axes", [None, []])
def test_limits_without_values_are_refused_where_dali_ignores_them(axes: list[int] | None) -> None:
    """known_differences.md"""
    image = np.arange(30, dtype=np.uint8).reshape(5, 6)
    for operator, arguments in (("slice", ("start", "shape")), ("pad", ("shape",)), ("pad", ("align",))):
        program = lambda m: getattr(m, operator)(m.tensor(image), axes=axes, **{name: [] for name in arguments})  # noqa: B023, E731
        np.testing.assert_array_equal(np.asarray(program(dali).evaluate()), image)
        with pytest.raises(RuntimeError, match=rf"{operator}: argument '{arguments[0]}' must have 2 values, one for each axis"):
            program(ndd).evaluate()
