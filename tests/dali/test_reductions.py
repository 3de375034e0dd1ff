# SPDX-License-Identifier: Apache-2.0
"""Reductions against DALI's. See known_differences.md for what the cases avoid."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_same, with_dtype
from _raises import Raises, raising

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"]
TOLERANCE = 1e-6


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(1, 100, shape)).astype(dtype)


AXES: list[dict[str, Any]] = [
    {},
    {"axes": None},
    {"axes": 1},
    {"axes": [0, 1]},
    {"axes": (2, 0)},
    {"axes": np.int64(1)},
    {"axes": -1},
    {"axes": [-1, -3]},
    {"axes": []},
    {"axis_names": "HW"},
    {"axis_names": "WH"},
    {"axis_names": "HWC"},
    {"axis_names": ""},
]
WRONG_AXES: list[Any] = [
    raising(IndexError, {"axes": [3]}),
    raising(IndexError, {"axes": [-4]}),
    raising(ValueError, {"axes": [0, 0]}),
    raising(ValueError, {"axes": [0, -3]}),
    raising(RuntimeError, {"axis_names": "X"}),
    raising(RuntimeError, {"axes": [0], "axis_names": "H"}),
]


NAMES = ["mean", "sum", "min", "max", "mean_square", "rms"]
each_name = pytest.mark.parametrize("name", NAMES)


@pytest.mark.parametrize("keep_dims", [None, False, True, 1])
@pytest.mark.parametrize("args", AXES + WRONG_AXES, ids=str)
@each_name
def test_axes_by_index_and_name(name: str, args: dict[str, Any], keep_dims: Any, raises: Raises | None) -> None:
    arrays = [numbers("uint8", shape, i) for i, shape in enumerate([(4, 5, 3), (7, 2, 3)])]
    for make in (
        lambda m: m.batch(arrays, layout="HWC"),
        lambda m: m.batch([arrays[0]] * 2, layout="HWC"),
        lambda m: m.tensor(arrays[0], layout="HWC"),
    ):
        assert_same(lambda m, make=make: getattr(m.reductions, name)(make(m), keep_dims=keep_dims, **args), TOLERANCE, raises=raises)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", [None, 0, [0, 1], [1, 2], [0, 2]], ids=str)
@each_name
def test_every_type_over_every_axis(name: str, dtype: str, axes: Any) -> None:
    arrays = [numbers(dtype, shape, i) for i, shape in enumerate([(4, 5, 3), (7, 2, 3)])]
    assert_same(lambda m: getattr(m.reductions, name)(m.batch(arrays), axes=axes), TOLERANCE)


# Types of results that DALI makes for a type of input.
@pytest.mark.parametrize("dtype", DTYPES)
@each_name
def test_requested_dtypes_of_results(name: str, dtype: str) -> None:
    values = np.asarray([[1, 2], [5, 4]]).astype(dtype)
    wide = "float32" if dtype[0] == "f" else ("u" if dtype[0] == "u" else "") + "int64"
    for result in {
        "mean": {dtype, "float32"},
        "sum": {dtype, wide} | ({"float32"} if "64" not in dtype else set()),
        "mean_square": {"float32", wide},
        "rms": {dtype, "float32"},
    }.get(name, set()):
        assert_same(lambda m, value=result: getattr(m.reductions, name)(m.tensor(values), axes=0, **with_dtype(m, {"dtype": value})), TOLERANCE)


SPREADS = ["variance", "std_dev"]


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "args", [{}, {"axes": 0}, {"axes": [0, 1]}, {"axes": [1, 2], "keep_dims": True}, {"axis_names": "HC"}, {"axes": []}], ids=str
)
@pytest.mark.parametrize("ddof", [0, 1, -1])
def test_spreads_around_a_mean(name: str, dtype: str, args: dict[str, Any], ddof: int) -> None:
    arrays = [numbers(dtype, shape, i) for i, shape in enumerate([(4, 5, 3), (7, 2, 3)])]

    def program(m: Any) -> Any:
        samples = m.batch(arrays, layout="HWC")
        return getattr(m.reductions, name)(samples, m.reductions.mean(samples, **args), ddof=ddof, **args)

    if ddof == 0 or args != {"axes": []}:  # known_differences.md
        assert_same(program, 1e-5)
    if not args:
        assert_same(lambda m: getattr(m.reductions, name)(m.batch(arrays), 40.0, ddof=ddof), 1e-5)
        assert_same(lambda m: getattr(m.reductions, name)(m.batch(arrays), m.batch(np.float32([40, 50])), ddof=ddof), 1e-5)
        assert_same(lambda m: getattr(m.reductions, name)(arrays[0], m.batch(np.float32([40, 50])), ddof=ddof), 1e-5)


@pytest.mark.parametrize(
    ("values", "mean", "ddof"),
    [([[1, 2], [3, 5]], 2.0, 4), ([[1, 2], [3, 5]], 2.0, 5), ([[3]], 3.0, 1), (np.zeros((0, 3)), 2.0, 0), ([np.nan], 1.0, 0)],
)
@pytest.mark.parametrize("name", SPREADS)
def test_special_spreads(name: str, values: Any, mean: float, ddof: int) -> None:
    assert_same(lambda m: getattr(m.reductions, name)(np.float32(values), mean, ddof=ddof))


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize(
    "call",
    [
        raising(TypeError, lambda f, m: f([1.0, 2.0])),
        raising(TypeError, lambda f, m: f([1.0, 2.0], None)),
        raising(TypeError, lambda f, m: f([1.0, 2.0], 1.5, nonsense=1)),
        raising(IndexError, lambda f, m: f([1.0, 2.0], 1.5, axes=1)),
        lambda f, m: f([1.0, 2.0], 1.5, batch_size=2),
        raising(ValueError, lambda f, m: f(m.batch([[1.0], [2.0]]), m.batch([1.0, 2.0, 3.0]))),
    ],
)
def test_calls_of_spreads(name: str, call: Callable[[Any, Any], Any], raises: Raises | None) -> None:
    assert_same(lambda m: call(getattr(m.reductions, name), m), TOLERANCE, raises=raises)


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("HW", "W"),
        ("CHW", "HW"),
        ("FHWC", "FC"),
        ("DHWC", "DHW"),
        ("FDHWC", "F"),
        raising(RuntimeError, "HW", "C"),
        raising(RuntimeError, None, "H"),
        ("XYZ", "ZX"),
    ],
)
@pytest.mark.parametrize("keep_dims", [False, True])
def test_layouts_of_results(layout: str | None, names: str, keep_dims: bool, raises: Raises | None) -> None:
    values = numbers("float32", (2, 3, 4, 5, 2)[: len(layout or "HW")])
    assert_same(lambda m: m.reductions.mean(m.tensor(values, layout=layout), axis_names=names, keep_dims=keep_dims), TOLERANCE, raises=raises)


@each_name
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((), None), raising(IndexError, (), 0), ((7,), None), ((0, 3), None), ((0, 3), 0), ((0, 3), 1), ((2,) * 6, [0, 5]), ((2,) * 8, [0, 2, 4, 6])],
)
def test_shapes_of_results(name: str, shape: tuple[int, ...], axes: Any, raises: Raises | None) -> None:
    dtype = "uint8" if 0 in shape and name in ("min", "max") else "float32"  # for an array of no floats DALI returns the largest finite one
    assert_same(lambda m: getattr(m.reductions, name)(m.tensor(numbers(dtype, shape)), axes=axes), TOLERANCE, raises=raises)


@each_name
@pytest.mark.parametrize("values", [[1.0, np.nan], [np.inf, 1.0], [np.inf, -np.inf], [-0.0], [np.nan, 2.0, 1.0]])
def test_special_numbers(name: str, values: list[float]) -> None:
    assert_same(lambda m: getattr(m.reductions, name)(m.tensor(np.float32(values))))


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.reductions.mean([[1, 2], [3, 5]], axes=1),
        lambda m: m.reductions.mean(np.float32([1, 2])),
        lambda m: m.reductions.mean([1.0, 3.0], batch_size=2),
        lambda m: m.reductions.mean([1.0, 3.0], device="cpu"),
        raising(ValueError, lambda m: m.reductions.mean([1.0, 3.0], device="nowhere")),
        raising(TypeError, lambda m: m.reductions.mean(None)),
        raising(TypeError, lambda m: m.reductions.mean()),
        raising(TypeError, lambda m: m.reductions.mean([1], [2])),
        raising(TypeError, lambda m: m.reductions.mean([1], nonsense=1)),
        raising(TypeError, lambda m: m.reductions.mean([1], axes=m.tensor([0]))),
        raising(TypeError, lambda m: m.reductions.mean(m.batch([[1], [2]]), axes=m.batch([0, 0]))),
        raising(TypeError, lambda m: m.reductions.mean([1], keep_dims=m.tensor(True))),
        raising(ValueError, lambda m: m.reductions.mean([1], dtype="float128")),
    ],
)
def test_wrong_calls_are_rejected(program: Callable[[Any], Any], raises: Raises | None) -> None:
    assert_same(program, TOLERANCE, raises=raises)
