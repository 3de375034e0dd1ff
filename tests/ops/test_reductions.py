# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from _cases import Case, Inputs, Samples, arrays, images

import torch_ndd as ndd


def average_reference(
    values: np.ndarray, axes: Sequence[int] | int | None = None, axis_names: str | None = None, keep_dims: bool = False, dtype: str | None = None
) -> np.ndarray:
    if axis_names is not None:
        axes = ["HWC".index(letter) for letter in axis_names]
    axis = None if axes is None else tuple(np.atleast_1d(axes).astype(int))
    result = values.astype(np.float64).mean(axis, keepdims=keep_dims)
    return np.trunc(result).astype(np.int32) if dtype == "i32" else result.astype({None: np.float32, "f64": np.float64}[dtype])


def axis_of(axes: Sequence[int] | int | None, axis_names: str | None) -> tuple[int, ...] | None:
    if axis_names is not None:
        axes = ["HWC".index(letter) for letter in axis_names]
    return None if axes is None else tuple(np.atleast_1d(axes).astype(int))


def fold_reference(function: Callable[..., Any], default: Callable[[np.dtype], np.dtype]) -> Callable[..., np.ndarray]:
    """Return a reference: the function in double precision, converted to the result's type."""

    def reference(
        values: np.ndarray,
        axes: Sequence[int] | int | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        dtype: str | None = None,
    ) -> np.ndarray:
        exact = values if function in (np.min, np.max) else values.astype(np.float64)
        result = function(exact, axis=axis_of(axes, axis_names), keepdims=keep_dims)
        wanted = {"i32": np.dtype(np.int32), "f64": np.dtype(np.float64), "u8": np.dtype(np.uint8)}.get(dtype or "", default(values.dtype))
        return np.asarray(np.trunc(result) if wanted.kind in "iu" else result).astype(wanted)

    return reference


def sum_type(dtype: np.dtype) -> np.dtype:
    return np.dtype({"f": np.float32, "i": np.int64}.get(dtype.kind, np.uint64))


def mean_of_squares(values: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.mean(values**2, axis=axis, keepdims=keepdims)


def root_mean_square(values: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.sqrt(mean_of_squares(values, axis, keepdims))


def spread(root: bool) -> Callable[..., np.ndarray]:
    def reference(
        values: np.ndarray, mean: np.ndarray, axes: Any = None, axis_names: str | None = None, keep_dims: bool = False, ddof: int = 0
    ) -> np.ndarray:
        axis = axis_of(axes, axis_names)
        count = values.size if axis is None else int(np.prod([values.shape[k] for k in axis]))
        kept = np.mean(values, axis=axis, keepdims=True).shape
        center = mean.astype(np.float64).reshape(kept if mean.size > 1 else [1] * values.ndim)
        result = ((values.astype(np.float64) - center) ** 2).sum(axis, keepdims=keep_dims) / (count - ddof)
        return np.asarray(np.sqrt(result) if root else result).astype(np.float32)

    return reference


def with_mean(inputs: Inputs, axes: tuple[int, ...] | None) -> Inputs:
    """Samples and their means over some axes, or one number for each."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        (samples,) = inputs(ragged)
        return (samples, [np.asarray(np.float32(7.5)) if axes is None else sample.mean(axes).astype(np.float32) for sample in samples])

    return make


def same(dtype: np.dtype) -> np.dtype:
    return dtype


def single(dtype: np.dtype) -> np.dtype:
    del dtype
    return np.dtype(np.float32)


def cases_of(name: str, reference: Callable[..., np.ndarray], dtype: str | None, tolerance: float) -> list[Case]:
    """Return the common cases of operators with one input; ``dtype`` is one that they can produce."""
    output = {} if dtype is None else {"dtype": dtype}
    return [
        Case(name, "all", images("HWC", "uint8"), {}, "HWC", reference, tolerance, out_layout=None),
        Case(name, "of channels", images("HWC", "int16", low=-300), {"axis_names": "HW", **output}, "HWC", reference, tolerance, out_layout="C"),
        Case(name, "keep_dims", images("HWC", "int32", low=-300), {"axes": [0, 2], "keep_dims": True}, "HWC", reference, tolerance),
        Case(name, "last", images("HWC", "float32"), {"axes": -1}, "HWC", reference, tolerance, out_layout="HW"),
        Case(name, "nothing", images("HWC", "uint16"), {"axes": []}, "HWC", reference, tolerance),
        Case(name, "large", images("HWC", "uint8", H=161, W=83), {"axes": [0, 1]}, "HWC", reference, tolerance, out_layout="C"),
        Case(name, "frames", images("FHWC", "float32", H=61, W=83), {"axes": [1, 2]}, "FHWC", reference, 50 * tolerance, out_layout="FC"),
    ]


CASES = [
    *cases_of("reductions.sum", fold_reference(np.sum, sum_type), "i32", 1e-3),
    *cases_of("reductions.min", fold_reference(np.min, same), None, 0),
    *cases_of("reductions.max", fold_reference(np.max, same), None, 0),
    *cases_of("reductions.mean_square", fold_reference(mean_of_squares, single), "f64", 1e-2),
    *cases_of("reductions.rms", fold_reference(root_mean_square, single), "u8", 1e-4),
    Case("reductions.variance", "one mean", with_mean(images("HWC"), None), {}, "HWC", spread(False), 1e-2, out_layout=None),
    Case("reductions.variance", "of channels", with_mean(images("HWC"), (0, 1)), {"axis_names": "HW", "ddof": 1}, "HWC", spread(False), 1e-2, "C"),
    Case("reductions.variance", "rows", with_mean(images("HWC", "float32"), (1,)), {"axes": 1, "keep_dims": True}, "HWC", spread(False), 1e-2),
    Case("reductions.std_dev", "one mean", with_mean(images("HWC", "int16"), None), {}, "HWC", spread(True), 1e-3, out_layout=None),
    Case("reductions.std_dev", "last", with_mean(images("HWC"), (2,)), {"axes": [2]}, "HWC", spread(True), 1e-4, out_layout="HW"),
    Case("reductions.mean", "all", images("HWC", "uint8"), {}, "HWC", average_reference, 1e-4, out_layout=None),
    Case("reductions.mean", "of channels", images("HWC", "float32"), {"axis_names": "HW"}, "HWC", average_reference, 1e-4, out_layout="C"),
    Case("reductions.mean", "keep_dims", images("HWC", "int16", low=-300), {"axes": [0, 2], "keep_dims": True}, "HWC", average_reference, 1e-4),
    Case("reductions.mean", "last", images("HWC", "uint8"), {"axes": -1, "dtype": "f64"}, "HWC", average_reference, 1e-12, out_layout="HW"),
    Case(
        "reductions.mean",
        "first",
        arrays((17, 23), "int32", low=-1000, high=1000),
        {"axes": 0, "dtype": "i32"},
        None,
        average_reference,
        out_layout=None,
    ),
    Case("reductions.mean", "nothing", images("HWC", "uint16"), {"axes": []}, "HWC", average_reference),
]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5), (3, 1, 5), (40, 50, 3), (300, 1100)])
def test_mean_of_any_axes(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 120, shape).astype(dtype)
    for count in range(len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            expected = values.astype(np.float64).mean(axes).astype(np.float32)
            np.testing.assert_allclose(np.asarray(ndd.reductions.mean(ndd.tensor(values), axes=list(axes))), expected, rtol=1e-6)


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5), (3, 1, 5), (40, 50, 3), (300, 1100), (7, 1030, 2), (4, 3, 33)])
def test_any_axes(dtype: str, shape: tuple[int, ...]) -> None:
    low = 0 if dtype[0] in "ub" else -60
    values = np.asarray(np.random.default_rng(0).integers(low, 2 if dtype == "bool" else 60, shape)).astype(dtype)
    tensor, wide = ndd.tensor(values), values.astype(np.float64)
    for count in range(len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            arguments = {"axes": list(axes)}
            mean = wide.mean(axes)
            total = np.asarray(ndd.reductions.sum(tensor, **arguments))
            assert np.array_equal(total.astype(np.float64), wide.sum(axes))
            assert np.array_equal(np.asarray(ndd.reductions.min(tensor, **arguments)), values.min(axes) if axes else values)
            assert np.array_equal(np.asarray(ndd.reductions.max(tensor, **arguments)), values.max(axes) if axes else values)
            np.testing.assert_allclose(np.asarray(ndd.reductions.mean_square(tensor, **arguments)), (wide**2).mean(axes), rtol=1e-6)
            np.testing.assert_allclose(np.asarray(ndd.reductions.rms(tensor, **arguments)), np.sqrt((wide**2).mean(axes)), rtol=1e-6)
            np.testing.assert_allclose(np.asarray(ndd.reductions.variance(tensor, mean, **arguments)), wide.var(axes), rtol=1e-6)
            np.testing.assert_allclose(np.asarray(ndd.reductions.std_dev(tensor, mean, **arguments)), wide.std(axes), rtol=1e-6)


def test_sums_of_integers_are_exact() -> None:
    assert ndd.reductions.sum(np.full(5_000_000, 255, np.uint8)).item() == 5_000_000 * 255
    assert ndd.reductions.sum(np.full(1000, 2**31 - 1, np.int32)).item() == 1000 * (2**31 - 1)
    assert ndd.reductions.sum(np.array([2**62 + 1, 5, -(2**62)])).item() == 6
    assert ndd.reductions.sum(np.array([2**63 + 1, 2**62], np.uint64)).item() == 2**63 + 2**62 + 1
    assert ndd.reductions.sum(np.full(4, 2**62)).item() == 0  # modulo 2**64, as DALI and NumPy
    assert ndd.reductions.sum(np.full(4, 200, np.uint8), dtype="u8").item() == 255
    assert ndd.reductions.sum(np.full(4, -100, np.int8), dtype="u8").item() == 0
    assert ndd.reductions.mean_square(np.full(200_000, 255, np.uint8), dtype="f64").item() == 255**2


def test_sums_of_floats_are_accurate() -> None:
    values = np.full(5_000_000, 0.1, np.float32)
    assert ndd.reductions.sum(values).item() == np.float32(np.float64(np.float32(0.1)) * 5_000_000)
    offset = np.float32(1e6) + np.arange(4096, dtype=np.float32) % 2
    assert ndd.reductions.variance(offset, np.float64(1e6 + 0.5)).item() == 0.25


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_extremes_are_past_nan(dtype: str) -> None:
    values = np.array([[1, np.nan, -np.inf], [np.nan, np.nan, 5]], dtype)
    assert np.asarray(ndd.reductions.min(values, axes=1)).tolist() == [-np.inf, 5]
    assert np.asarray(ndd.reductions.max(values, axes=1)).tolist() == [1, 5]
    assert np.asarray(ndd.reductions.max(values, axes=0)).tolist() == [1, -np.inf, 5]


def test_of_nothing() -> None:
    empty = np.ones((0, 3), np.uint8)
    assert np.asarray(ndd.reductions.sum(empty, axes=0)).tolist() == [0, 0, 0]
    assert np.asarray(ndd.reductions.min(empty, axes=0)).tolist() == [255, 255, 255]
    assert np.asarray(ndd.reductions.max(empty, axes=0)).tolist() == [0, 0, 0]
    assert ndd.reductions.max(empty.astype(np.float32)).item() == -np.inf
    assert np.isnan(np.asarray(ndd.reductions.rms(empty, axes=0))).all()
    assert np.isnan(np.asarray(ndd.reductions.variance(empty, 0.0, axes=0))).all()
    assert ndd.reductions.sum(empty, axes=1).shape == (0,)


def test_degrees_of_freedom() -> None:
    values = np.float32([[1, 2], [3, 5]])
    assert ndd.reductions.variance(values, 2.0, ddof=4).item() == np.inf
    assert ndd.reductions.variance(values, 2.0, ddof=5).item() == -11
    assert np.isnan(ndd.reductions.std_dev(values, 2.0, ddof=5).item())
    assert np.isnan(ndd.reductions.std_dev(np.float32([3]), 3.0, ddof=1).item())
    with pytest.raises(ValueError, match="ddof"):
        ndd.reductions.variance(values, 2.0, ddof=2**40)


@pytest.mark.parametrize("mean", [[1.0, 2.0, 3.0], [[1.0], [2.0], [3.0]], np.zeros((2, 2))])
def test_a_mean_of_another_size(mean: Any) -> None:
    with pytest.raises(RuntimeError, match="variance: sample 0: the mean"):
        ndd.reductions.variance(np.float32([[1, 2], [3, 5]]), mean, axes=0)


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
