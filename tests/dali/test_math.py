# SPDX-License-Identifier: Apache-2.0
"""``ndd.math`` against DALI's. See known_differences.md for what the cases avoid."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_raises, assert_same

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
UNARY = [
    *("sqrt", "rsqrt", "cbrt", "exp", "log", "log2", "log10", "abs", "fabs", "floor", "ceil", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
]
PAIRS = ["min", "max", "pow", "fpow", "atan2"]
COUNT = dict.fromkeys(UNARY, 1) | dict.fromkeys(PAIRS, 2) | {"clamp": 3}
# Two ulps of float32: the C libraries differ, and DALI's rsqrt of float32 is an approximation.
TOLERANCE = 2.5e-7


def numbers(dtype: str, seed: int) -> np.ndarray:
    result = np.random.default_rng(seed).integers(1, 9, (2, 3)).astype(dtype)
    return result / 8 if dtype[0] == "f" else result


def error_of(name: str, *dtypes: str) -> type[Exception] | None:
    """Return the error for operands of these dtypes: no function takes booleans only."""
    return RuntimeError if all(dtype == "bool" for dtype in dtypes) else None


@pytest.mark.parametrize("name", COUNT)
def test_dtypes_and_values_of_every_pair_of_types(name: str) -> None:
    for first in DTYPES:
        if COUNT[name] == 1:
            assert_same(lambda m, first=first: getattr(m.math, name)(m.tensor(numbers(first, 0))), TOLERANCE, raises=error_of(name, first))
            continue
        for second in DTYPES:
            operands = [numbers(first, 0), numbers(second, 1), numbers(second, 2)][: COUNT[name]]
            raises = error_of(name, *(str(operand.dtype) for operand in operands))
            assert_same(lambda m, operands=operands: getattr(m.math, name)(*(m.tensor(array) for array in operands)), TOLERANCE, raises=raises)


def test_clamp_of_three_types() -> None:
    for first in DTYPES:
        for second in DTYPES:
            for third in ("bool", "uint8", "int16", "uint64", "float32"):
                operands = [numbers(dtype, k) for k, dtype in enumerate((first, second, third))]
                raises = error_of("clamp", first, second, third)
                assert_same(lambda m, operands=operands: m.math.clamp(*(m.tensor(array) for array in operands)), raises=raises)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edge_cases_of_floats(name: str, dtype: str) -> None:
    """Ordinary numbers, and edge cases: zeros, infinities, NaN, undefined results."""
    edges = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e-40, 1e-10, 30.0, -30.0, 1e4, 3e38, np.inf, -np.inf, np.nan], dtype)
    if name == "rsqrt":
        edges = edges[(edges > 1e-30) & (edges < 1e30)]  # there DALI's float32 is NaN or 0
    a = np.concatenate([edges, np.random.default_rng(0).uniform(-5, 5, 200).astype(dtype)])
    # Angles near multiples of pi lose digits differently in the two libraries; subnormal results differ by their ulps.
    assert_same(lambda m: getattr(m.math, name)(m.tensor(a)), 1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_floats(name: str, dtype: str) -> None:
    edges = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, 7.5], dtype)
    a, b = (value.ravel() for value in np.meshgrid(edges, edges))
    assert_same(lambda m: getattr(m.math, name)(m.tensor(a), m.tensor(b)), TOLERANCE)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float64"])
def test_clamp_with_nan_and_crossed_limits(dtype: str) -> None:
    """NaN, and limits that contradict each other."""
    edges = np.array([0, 1, 3, 7], dtype)
    if dtype[0] == "f":
        edges = np.append(edges, np.array([np.nan, np.inf, -2.5], dtype))
    grid = [value.ravel() for value in np.meshgrid(edges, edges, edges)]
    assert_same(lambda m: m.math.clamp(*(m.tensor(value) for value in grid)))


@pytest.mark.parametrize("name", COUNT)
def test_numbers_lists_and_batches(name: str) -> None:
    count = COUNT[name]
    ragged = [np.float32([[0.5, 0.25], [1, 0.75]]), np.float32([[1, 0.5]])]
    for operands in ([1] * count, [1.0] * count, [[1, 1]] * count, [True] * count, [1, [0.5, 1.0], 1.0][:count]):
        raises = RuntimeError if all(operand is True for operand in operands) else None
        assert_same(lambda m, operands=operands: getattr(m.math, name)(*operands), TOLERANCE, raises=raises)
        assert_same(lambda m, operands=operands: getattr(m.math, name)(m.batch(ragged, layout="HW"), *operands[1:]), TOLERANCE)
        if count > 1:
            assert_same(lambda m, operands=operands: getattr(m.math, name)(*operands[1:], m.batch(ragged)), TOLERANCE)


@pytest.mark.parametrize("name", COUNT)
def test_wrong_operands_are_rejected(name: str) -> None:
    count = COUNT[name]

    def call(*operands: Any) -> Any:
        def program(module: Any) -> Any:
            with module.EvalMode.sync_full:
                return getattr(module.math, name)(*(operand(module) if callable(operand) else operand for operand in operands))

        return program

    wrong = ((None, ValueError), ("a", RuntimeError), (object(), TypeError), ({}, TypeError), (2**31, OverflowError))
    programs: list[tuple[Any, type[Exception]]] = [(call(*[value] * count), error) for value, error in wrong]
    programs += [(call(*[1] * (count + 1)), TypeError), (call(*[1] * (count - 1)), TypeError)]
    if count > 1:
        programs += [
            (call(lambda m: m.tensor([1, 2]), [1, 2, 3], *[1] * (count - 2)), RuntimeError),
            (call(lambda m: m.batch([1, 2]), lambda m: m.batch([1, 2, 3]), *[1] * (count - 2)), ValueError),
            (call(lambda m: m.tensor([[1]], layout="HW"), lambda m: m.tensor([1], layout="H"), *[1] * (count - 2)), RuntimeError),
        ]
    for program, error in programs:
        assert_raises(program, error)


def test_layouts_of_three() -> None:
    def program(first: str | None, second: str | None, third: str | None) -> Any:
        return lambda m: m.math.clamp(*(m.tensor(np.ones((1, 1)[: len(value or "HW")]), layout=value) for value in (first, second, third)))

    for layouts in (("HW", "W", "HW"), ("W", "HW", "W"), (None, "HW", "W"), ("HW", None, None), ("W", "W", "HW")):
        assert_same(program(*layouts))
    assert_same(program("HW", "H", "HW"), raises=RuntimeError)
