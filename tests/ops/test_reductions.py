# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from _cases import Case, arrays, images

import torch_ndd as ndd


def averaged(
    values: np.ndarray, axes: Sequence[int] | int | None = None, axis_names: str | None = None, keep_dims: bool = False, dtype: str | None = None
) -> np.ndarray:
    if axis_names is not None:
        axes = ["HWC".index(letter) for letter in axis_names]
    axis = None if axes is None else tuple(np.atleast_1d(axes).astype(int))
    result = values.astype(np.float64).mean(axis, keepdims=keep_dims)
    return np.trunc(result).astype(np.int32) if dtype == "i32" else result.astype({None: np.float32, "f64": np.float64}[dtype])


CASES = [
    Case("reductions.mean", "all", images("HWC", "uint8"), {}, "HWC", averaged, 1e-4, out_layout=None),
    Case("reductions.mean", "of channels", images("HWC", "float32"), {"axis_names": "HW"}, "HWC", averaged, 1e-4, out_layout="C"),
    Case("reductions.mean", "keep_dims", images("HWC", "int16", low=-300), {"axes": [0, 2], "keep_dims": True}, "HWC", averaged, 1e-4),
    Case("reductions.mean", "last", images("HWC", "uint8"), {"axes": -1, "dtype": "f64"}, "HWC", averaged, 1e-12, out_layout="HW"),
    Case("reductions.mean", "first", arrays((17, 23), "int32", low=-1000, high=1000), {"axes": 0, "dtype": "i32"}, None, averaged, out_layout=None),
    Case("reductions.mean", "nothing", images("HWC", "uint16"), {"axes": []}, "HWC", averaged),
]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5), (3, 1, 5), (40, 50, 3), (300, 1100)])
def test_mean_of_any_axes(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 120, shape).astype(dtype)
    for count in range(len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            expected = values.astype(np.float64).mean(axes).astype(np.float32)
            np.testing.assert_allclose(np.asarray(ndd.reductions.mean(ndd.tensor(values), axes=list(axes))), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [-128, 127, 255])
def test_long_sums_of_bytes_are_exact(value: int) -> None:
    values = np.full((3000, 1500), value, np.int8 if value < 128 else np.uint8)
    assert ndd.reductions.mean(values).item() == value


def test_mean_of_many_floats_is_accurate() -> None:
    assert ndd.reductions.mean(np.full(5_000_000, 0.1, np.float32)).item() == np.float32(0.1)


def test_mean_of_nothing() -> None:
    empty = np.ones((0, 3), np.uint8)
    assert np.isnan(np.asarray(ndd.reductions.mean(empty, axes=0))).all()
    assert np.asarray(ndd.reductions.mean(empty, axes=0, dtype="u8")).tolist() == [0, 0, 0]
    assert ndd.reductions.mean(empty, axes=1).shape == (0,)


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        ({"axes": [3]}, IndexError, "axes: Axis index out of range: 3"),
        ({"axes": -4}, IndexError, "axes: Axis index out of range: -4"),
        ({"axes": [0, -3]}, ValueError, "Duplicate axis index"),
        ({"axis_names": "X"}, RuntimeError, "'X' is not present"),
        ({"axis_names": "HH"}, ValueError, "Duplicate axis index"),
        ({"axis_names": "H", "axes": 0}, RuntimeError, "mutually exclusive"),
        ({"axis_names": 0}, TypeError, "axis_names"),
        ({"axes": [0.5]}, TypeError, "axes"),
    ],
)
def test_wrong_axes(args: dict[str, object], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ndd.reductions.mean(ndd.tensor(np.zeros((2, 4, 3), np.uint8), layout="HWC"), **args)
