# SPDX-License-Identifier: Apache-2.0
"""+ - * / against DALI's. See known_differences.md for what the cases avoid."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_same

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
OPERATIONS = [operator.add, operator.sub, operator.mul, operator.truediv]
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(1, 100, shape)).astype(dtype)


@each_operation
@pytest.mark.parametrize("left", DTYPES)
def test_types(operation: Callable[[Any, Any], Any], left: str) -> None:
    a = numbers(left, (2, 3), 0)
    for right in DTYPES:
        b = numbers(right, (2, 3), 1)
        assert_same(lambda m, b=b: operation(m.tensor(a), m.tensor(b)))
    for scalar in (7, 2.5, True, 2**31, [1, 2, 3]):
        assert_same(lambda m, scalar=scalar: operation(m.tensor(a), scalar))
        assert_same(lambda m, scalar=scalar: operation(scalar, m.tensor(a)))


@each_operation
@pytest.mark.parametrize(("left", "right"), [((5, 3), (3,)), ((5, 1, 3), (4, 1)), ((3,), (2, 3)), ((2,), (3,)), ((), (2, 2)), ((0, 3), (1, 3))])
def test_shapes(operation: Callable[[Any, Any], Any], left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = numbers("uint8", left, 0), numbers("float32", right, 1)
    assert_same(lambda m: operation(m.tensor(a), m.tensor(b)))
    assert_same(lambda m: operation(m.batch([a, a]), m.tensor(b)))
    assert_same(lambda m: operation(m.batch([a, a]), m.batch([b, b])))
    assert_same(lambda m: operation(m.batch([a, a, a]), m.batch([b, b])))


def test_ragged_batches() -> None:
    arrays = [numbers("int16", shape, i) for i, shape in enumerate([(2, 3), (4, 3), (1, 3)])]
    for other in (2, [1, 2, 3], [[1], [2]]):
        assert_same(lambda m, other=other: m.batch(arrays) * other)
    assert_same(lambda m: m.batch(arrays) + m.batch(arrays))


@pytest.mark.parametrize(("left", "right"), [("HW", "HW"), ("HW", "W"), ("W", "HW"), ("HW", None), (None, "HW"), ("HW", "WC"), ("HW", "H")])
def test_layouts(left: str | None, right: str | None) -> None:
    def ones(module: Any, layout: str | None) -> Any:
        return module.tensor(np.ones((2, 2)[2 - len(layout or "HW") :], np.float32), layout=layout)

    assert_same(lambda m: ones(m, left) + ones(m, right))
