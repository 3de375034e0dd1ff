# SPDX-License-Identifier: Apache-2.0
"""reductions.mean against DALI's. See known_differences.md for what the cases avoid."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_same, with_dtype

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
WRONG_AXES: list[dict[str, Any]] = [
    {"axes": [3]},
    {"axes": [-4]},
    {"axes": [0, 0]},
    {"axes": [0, -3]},
    {"axes": np.int64([0, 1])},
    {"axis_names": "X"},
    {"axes": [0], "axis_names": "H"},
]


@pytest.mark.parametrize("keep_dims", [None, False, True, 1])
@pytest.mark.parametrize("args", AXES + WRONG_AXES, ids=str)
def test_axes(args: dict[str, Any], keep_dims: Any) -> None:
    arrays = [numbers("uint8", shape, i) for i, shape in enumerate([(4, 5, 3), (7, 2, 3)])]
    assert_same(lambda m: m.reductions.mean(m.batch(arrays, layout="HWC"), keep_dims=keep_dims, **args), TOLERANCE)
    assert_same(lambda m: m.reductions.mean(m.batch([arrays[0]] * 2, layout="HWC"), keep_dims=keep_dims, **args), TOLERANCE)
    assert_same(lambda m: m.reductions.mean(m.tensor(arrays[0], layout="HWC"), keep_dims=keep_dims, **args), TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", [None, 0, [0, 1], [1, 2], [0, 2]], ids=str)
def test_types(dtype: str, axes: Any) -> None:
    arrays = [numbers(dtype, shape, i) for i, shape in enumerate([(4, 5, 3), (7, 2, 3)])]
    assert_same(lambda m: m.reductions.mean(m.batch(arrays), axes=axes), TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype(dtype: str) -> None:
    values = np.asarray([[1, 2], [5, 4]]).astype(dtype)
    for name in {dtype, "float32"}:
        assert_same(lambda m, name=name: m.reductions.mean(m.tensor(values), axes=0, **with_dtype(m, {"dtype": name})), TOLERANCE)


@pytest.mark.parametrize(
    ("layout", "names"), [("HW", "W"), ("CHW", "HW"), ("FHWC", "FC"), ("DHWC", "DHW"), ("FDHWC", "F"), ("HW", "C"), (None, "H"), ("XYZ", "ZX")]
)
@pytest.mark.parametrize("keep_dims", [False, True])
def test_layouts(layout: str | None, names: str, keep_dims: bool) -> None:
    values = numbers("float32", (2, 3, 4, 5, 2)[: len(layout or "HW")])
    assert_same(lambda m: m.reductions.mean(m.tensor(values, layout=layout), axis_names=names, keep_dims=keep_dims), TOLERANCE)


@pytest.mark.parametrize(
    ("shape", "axes"), [((), None), ((), 0), ((7,), None), ((0, 3), None), ((0, 3), 0), ((0, 3), 1), ((2,) * 6, [0, 5]), ((2,) * 8, [0, 2, 4, 6])]
)
def test_shapes(shape: tuple[int, ...], axes: Any) -> None:
    assert_same(lambda m: m.reductions.mean(m.tensor(numbers("float32", shape)), axes=axes), TOLERANCE)


@pytest.mark.parametrize("values", [[1.0, np.nan], [np.inf, 1.0], [np.inf, -np.inf], [-0.0]])
def test_special_numbers(values: list[float]) -> None:
    assert_same(lambda m: m.reductions.mean(m.tensor(np.float32(values))))


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.reductions.mean([[1, 2], [3, 5]], axes=1),
        lambda m: m.reductions.mean(np.float32([1, 2])),
        lambda m: m.reductions.mean([1.0, 3.0], batch_size=2),
        lambda m: m.reductions.mean([1.0, 3.0], device="cpu"),
        lambda m: m.reductions.mean([1.0, 3.0], device="nowhere"),
        lambda m: m.reductions.mean(None),
        lambda m: m.reductions.mean(),
        lambda m: m.reductions.mean([1], [2]),
        lambda m: m.reductions.mean([1], nonsense=1),
        lambda m: m.reductions.mean([1], axes=m.tensor([0])),
        lambda m: m.reductions.mean(m.batch([[1], [2]]), axes=m.batch([0, 0])),
        lambda m: m.reductions.mean([1], keep_dims=m.tensor(True)),
        lambda m: m.reductions.mean([1], dtype="float32"),
    ],
)
def test_calls(program: Callable[[Any], Any]) -> None:
    assert_same(program, TOLERANCE)
