# SPDX-License-Identifier: Apache-2.0
"""``ndd.math``: cases for ``test_operators.py``, every function on every type, and edge cases."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Inputs, arrays, images

import torch_ndd as ndd

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]

# Each function in NumPy, on float64, and operands for which it is defined.
REAL: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "sqrt": (np.sqrt, [0, 1, 2, 100]),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [1, 2, 100]),
    "cbrt": (np.cbrt, [0, 1, 2, 100]),
    "exp": (np.exp, [0, 1, 2, 9]),
    "log": (np.log, [1, 2, 100]),
    "log2": (np.log2, [1, 2, 100]),
    "log10": (np.log10, [1, 2, 100]),
    "fabs": (np.fabs, [0, 1, 100]),
    "floor": (np.floor, [0, 1, 100]),
    "ceil": (np.ceil, [0, 1, 100]),
    "sin": (np.sin, [0, 1, 2, 100]),
    "cos": (np.cos, [0, 1, 2, 100]),
    "tan": (np.tan, [0, 1, 2, 100]),
    "asin": (np.arcsin, [0, 1]),
    "acos": (np.arccos, [0, 1]),
    "atan": (np.arctan, [0, 1, 100]),
    "sinh": (np.sinh, [0, 1, 5]),
    "cosh": (np.cosh, [0, 1, 5]),
    "tanh": (np.tanh, [0, 1, 5]),
    "asinh": (np.arcsinh, [0, 1, 100]),
    "acosh": (np.arccosh, [1, 2, 100]),
    "atanh": (np.arctanh, [0]),
}
SIGNED = {"cbrt", "exp", "fabs", "floor", "ceil", "sin", "cos", "tan", "asin", "atan", "sinh", "cosh", "tanh", "asinh", "atanh"}
FRACTIONS = {"asin": 0.7, "acos": 0.7, "atanh": 0.7, "acosh": 1.7}
PAIRS: dict[str, Callable[..., Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    "fpow": np.power,
    "atan2": np.arctan2,
}


def function(name: str) -> Callable[..., Any]:
    return getattr(ndd.math, name)


def case(name: str, id: str, inputs: Inputs, reference: Callable[..., Any] | None, tolerance: float = 0.0, layout: str | None = "HWC") -> Case:
    return Case("arithmetic", f"{name}-{id}", inputs, {}, layout, reference, tolerance, call=function(name))


def both(*inputs: Inputs) -> Inputs:
    return lambda ragged: tuple(samples for value in inputs for samples in value(ragged))


CASES = [
    case("sqrt", "bytes", images("HWC", "uint8"), lambda x: np.sqrt(x.astype(np.float32)), 1e-6),
    case("exp", "floats", images("HWC", "float32", low=-5, high=5), lambda x: np.exp(x), 1e-4),
    case("floor", "halves", images("HWC", "float16", low=-100, high=100), np.floor),
    case("abs", "integers", images("HWC", "int16", low=-300), np.abs),
    case("cbrt", "doubles", images("HWC", "float64", low=-300), np.cbrt, 1e-12),
    case("min", "of channels", both(images("HWC", "uint8"), arrays((3,), "float32", axes=())), lambda a, b: np.minimum(a.astype(np.float32), b)),
    case(
        "max", "of two types", both(images("HWC", "uint8"), images("HWC", "int8", low=-100, high=100)), lambda a, b: np.maximum(a.astype(np.int16), b)
    ),
    case("atan2", "floats", both(images("HWC", "float32", low=-5), images("HWC", "float32", low=-5)), np.arctan2, 1e-6),
    case("pow", "squares", both(images("HWC", "uint8"), arrays((), "int32", low=2, high=3)), lambda a, b: a.astype(np.int32) ** b),
    case(
        "clamp",
        "per channel and per sample",
        both(images("HWC", "uint8"), arrays((3,), "int32", axes=(), high=100), arrays((), "int16", low=101)),
        lambda x, low, high: np.clip(x.astype(np.int32), low, high),
    ),
]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_real_functions(name: str, dtype: str) -> None:
    reference, operands = REAL[name]
    if dtype[0] == "f":
        operands = [*operands, FRACTIONS.get(name, 3.7)]
    if name in SIGNED and dtype[0] != "u":
        operands = [*operands, *(-x for x in operands)]
    a = np.array(operands, dtype)
    output = np.asarray(function(name)(ndd.tensor(a)))
    assert output.dtype == (dtype if dtype[0] == "f" else np.float32)
    tolerance = {"float16": 1e-3, "float64": 1e-14}.get(dtype, 4e-7)
    np.testing.assert_allclose(output, reference(a.astype(np.float64)), rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_two(name: str, dtype: str) -> None:
    a, b = np.array([1, 3, 5, 0], dtype), np.array([4, 2, 1, 3], dtype)
    output = np.asarray(function(name)(ndd.tensor(a), ndd.tensor(b)))
    kept = dtype[0] == "f" or name in ("min", "max")
    assert output.dtype == (dtype if kept else np.float32)
    np.testing.assert_allclose(output, PAIRS[name](a.astype(np.float64), b.astype(np.float64)), rtol=1e-3 if dtype == "float16" else 4e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_clamp_limits_values(dtype: str) -> None:
    a = np.array([1, 50, 100], dtype)
    output = np.asarray(ndd.math.clamp(ndd.tensor(a), np.asarray(10, dtype), np.asarray(60, dtype)))
    assert output.dtype == dtype
    assert output.tolist() == [10, 50, 60]


@pytest.mark.parametrize("name", [*REAL, "abs", "min", "max", "pow", "fpow", "atan2", "clamp"])
def test_bools_and_non_numbers(name: str) -> None:
    count = {"min": 2, "max": 2, "pow": 2, "fpow": 2, "atan2": 2, "clamp": 3}.get(name, 1)
    with pytest.raises(RuntimeError, match=rf"(math.{name}|\*\*).*cannot be (a boolean|booleans)"):
        function(name)(*[ndd.tensor([True])] * count)
    for wrong, kind in ((None, ValueError), ("a", RuntimeError), (object(), TypeError), (2**31, OverflowError)):
        with pytest.raises(kind):
            function(name)(*[wrong] * count)
    with pytest.raises(TypeError):
        function(name)()


def test_numbers_and_lists() -> None:
    assert ndd.math.sqrt(4).item() == 2.0
    assert ndd.math.sqrt(4).dtype is torch.float32
    assert ndd.math.min(1, 2).dtype is torch.int32
    assert ndd.math.max([1, 2], 2.5).torch().tolist() == [2.5, 2.5]
    assert ndd.math.clamp(ndd.tensor([1.5]), 1, 2).dtype is torch.float32
    assert ndd.math.clamp(ndd.tensor([True]), 1, 2).dtype is torch.int32
    assert ndd.math.clamp(ndd.tensor(np.uint8([1, 200])), np.int8([5]), np.int8([100])).dtype is torch.int16
    assert isinstance(ndd.math.max(ndd.tensor([1]), ndd.batch([[2]])), ndd.Batch)


def test_nan_and_limits_that_contradict_each_other() -> None:
    nan = math.nan
    assert np.array_equal(ndd.math.min([nan, 1.0], [1.0, nan]).torch(), [1.0, nan], equal_nan=True)
    assert np.array_equal(ndd.math.max([nan, 1.0], [1.0, nan]).torch(), [1.0, nan], equal_nan=True)
    output = ndd.math.clamp([nan, 1.0, 5.0, 3.0, 3.0], [1.0, nan, 7.0, 5.0, 1.0], [2.0, 2.0, 3.0, 1.0, nan])
    assert np.array_equal(output.torch(), [nan, 1.0, 3.0, 1.0, 3.0], equal_nan=True)


def test_edge_values_equal_numpy() -> None:
    edges = ndd.tensor([-1.0, 0.0, -0.0, np.inf, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        values = np.asarray(edges)
        for name in ("sqrt", "log", "log2", "exp", "floor", "ceil", "sinh", "tanh", "acosh", "atanh", "asin", "cbrt"):
            np.testing.assert_array_equal(np.isnan(np.asarray(function(name)(edges))), np.isnan(REAL[name][0](values)), name)
    assert ndd.math.rsqrt([0.0, np.inf]).torch().tolist() == [np.inf, 0.0]
    assert ndd.math.exp([1000.0, -1000.0]).torch().tolist() == [np.inf, 0.0]
    assert ndd.math.abs(np.array([-(2**31)], np.int32)).item() == -(2**31)
    assert ndd.math.pow([2, 1, -1, 0], [-1, -1, -1, 0]).torch().tolist() == [0, 0, 0, 1]
    assert ndd.math.atan2(1, 0).item() == pytest.approx(math.pi / 2)


def test_clamp_combines_layouts_and_shapes_of_three_inputs() -> None:
    value = ndd.tensor(np.ones((2, 3)), layout="HW")
    assert ndd.math.clamp(value, ndd.tensor([1.0, 2.0, 3.0], layout="W"), 2).layout == "HW"
    assert ndd.math.clamp([[1, 2, 3]], [[1], [2]], [2, 2, 2]).torch().tolist() == [[1, 2, 2], [2, 2, 2]]
    with pytest.raises(RuntimeError, match=r"math\.clamp: Layouts of subexpressions"):
        ndd.math.clamp(value, ndd.tensor([1.0, 2.0], layout="H"), 2)
    with pytest.raises(RuntimeError, match=r"math\.clamp: Can't broadcast shapes"):
        ndd.math.clamp([[1, 2, 3]], [1, 2], 2)
    with pytest.raises(ValueError, match=r"math\.clamp: Inconsistent batch size: 3 != 2"):
        ndd.math.clamp(ndd.batch([1, 2, 3]), 1, ndd.batch([1, 2]))


@pytest.mark.parametrize("names", [[*REAL, "abs"], ["min", "max", "pow", "fpow", "atan2"], ["clamp"]], ids=["unary", "binary", "ternary"])
@pytest.mark.usefixtures("pause_gc")
def test_compiled_functions_equal_eager(names: list[str]) -> None:
    """In one graph: half of a small one's time is fixed."""
    operands = [ndd.tensor(np.float32([1.5, 2.0])), 2, ndd.tensor([3, 2])]
    values = operands[: {"min": 2, "clamp": 3}.get(names[0], 1)]
    torch._dynamo.reset()
    compiled = torch.compile(lambda *inputs: [function(name)(*inputs) for name in names], fullgraph=True, backend="aot_eager")
    for name, output in zip(names, compiled(*values), strict=True):
        eager = function(name)(*values)
        assert output.dtype is eager.dtype
        np.testing.assert_allclose(output.torch(), eager.torch(), rtol=1e-6, err_msg=name)
