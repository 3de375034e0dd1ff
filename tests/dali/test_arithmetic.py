# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on tensors compared with DALI's. known_differences.md lists what the cases avoid."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _dali import assert_raises, assert_same
from _raises import Raises, raising

Function = Callable[..., Any]
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
DIVISIONS = [operator.floordiv, operator.mod]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
OPERATIONS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, *DIVISIONS, operator.pow),
    *BITS,
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
]
TOO_LARGE = 2**31  # for a Python number, which is an int32
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)
each_unary = pytest.mark.parametrize("operation", [operator.neg, operator.pos, operator.invert, operator.abs], ids=lambda f: f.__name__)


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(1, 100, shape)).astype(dtype)


def draw_numbers(dtype: str, count: int, seed: int) -> np.ndarray:
    """Numbers of the whole range, some of them equal; floats of a range where the sixth digit matters."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, count).astype(bool)
    if dtype[0] == "f":
        return generator.integers(-20, 20, count).astype(dtype) / 4
    limits = np.iinfo(dtype)
    result = generator.integers(limits.min, limits.max, count, dtype, endpoint=True)
    return np.where(generator.integers(0, 2, count) == 0, result, generator.integers(0, 4, count).astype(dtype))


def error_of(operation: Function, left: str, right: str) -> type[Exception] | None:
    """Return the error for a pair of dtypes: bits of floats; arithmetic of two booleans."""
    if operation in BITS:
        return RuntimeError if "float" in left + right else None
    arithmetic = (operator.add, operator.sub, operator.truediv, *DIVISIONS, operator.pow)
    return RuntimeError if left == right == "bool" and operation in arithmetic else None


def tolerance(operation: Function) -> float:
    """DALI's pow of floats differs by a unit in the last place."""
    return 3e-7 if operation is operator.pow else 0.0


@pytest.mark.slow
@each_operation
@pytest.mark.parametrize("left", DTYPES)
def test_dtypes_and_values_of_every_pair_of_types(operation: Function, left: str) -> None:
    """Dtype and values for every pair of dtypes, and for Python numbers and lists on both sides."""
    a = numbers(left, (2, 3), 0)
    for right in DTYPES:
        b = numbers(right, (2, 3), 1)
        assert_same(lambda m, b=b: operation(m.tensor(a), m.tensor(b)), tolerance(operation), raises=error_of(operation, left, right))
    for value in (7, 2.5, True, TOO_LARGE, [1, 2, 3], [0.5, 2.0, 1.0], np.int64(3), np.float64([1.0, 2.0, 3.0])):
        raises = OverflowError if value is TOO_LARGE else error_of(operation, left, str(np.asarray(value).dtype))
        assert_same(lambda m, value=value: operation(m.tensor(a), value), tolerance(operation), raises=raises)
        if not isinstance(value, np.ndarray | np.generic):  # with NumPy on the left, NumPy computes
            assert_same(lambda m, value=value: operation(value, m.tensor(a)), tolerance(operation), raises=raises)


@each_operation
@pytest.mark.parametrize("left", DTYPES)
def test_whole_range(operation: Function, left: str) -> None:
    """Wrapping, mixed signs, shifts by any count, comparisons by value, powers with negative exponents."""
    a = draw_numbers(left, 200, 0)
    for right in DTYPES:
        b = draw_numbers(right, 200, 1)
        if operation in DIVISIONS:  # DALI crashes when the smallest integer is divided by -1
            b = np.where((b == 0) | (b == -1 if right[0] == "i" else b >= np.asarray(2**63 if right == "uint64" else 2**31, np.uint64)), 3, b).astype(
                right
            )
        if operation is operator.pow:  # where both are certain of the last digit
            b = np.clip(b, 0 if right[0] in "ub" else -3, 3).astype(right)
        assert_same(lambda m, b=b: operation(m.tensor(a), m.tensor(b)), tolerance(operation), raises=error_of(operation, left, right))


@each_unary
def test_unary_operations_of_every_type(operation: Function) -> None:
    for dtype in DTYPES:
        a = draw_numbers(dtype, 100, 2)
        wrong = "bool" in dtype if operation in (operator.neg, operator.abs) else operation is operator.invert and "float" in dtype
        assert_same(lambda m, a=a: operation(m.tensor(a, layout="W")), raises=RuntimeError if wrong else None)
        assert_same(lambda m, a=a: operation(m.batch([a, a[:3]])), raises=RuntimeError if wrong else None)


@each_operation
@pytest.mark.parametrize(
    ("left", "right"), [((5, 3), (3,)), ((5, 1, 3), (4, 1)), ((3,), (2, 3)), raising(RuntimeError, (2,), (3,)), ((), (2, 2)), ((0, 3), (1, 3))]
)
def test_shapes_are_broadcast(operation: Function, left: tuple[int, ...], right: tuple[int, ...], raises: Raises | None) -> None:
    a, b = numbers("uint8", left, 0), numbers("int32", right, 1) % 7 + 1
    assert_same(lambda m: operation(m.tensor(a), m.tensor(b)), raises=raises)
    assert_same(lambda m: operation(m.batch([a, a]), m.tensor(b)), raises=raises)
    assert_same(lambda m: operation(m.tensor(a), m.batch([b, b])), raises=raises)
    assert_same(lambda m: operation(m.batch([a, a]), m.batch([b, b])), raises=raises)
    assert_same(lambda m: operation(m.batch([a, a, a]), m.batch([b, b])), raises=ValueError)


@each_operation
def test_ragged_batches(operation: Function) -> None:
    arrays = [numbers("int16", shape, i) for i, shape in enumerate([(2, 3), (4, 3), (1, 3)])]
    for other in (2, [1, 2, 3], [[1], [2]], 1.5, np.int64([[3, 1, 2]]), torch.tensor([2, 1, 3])):
        raises = RuntimeError if np.shape(other) == (2, 1) else error_of(operation, "int16", str(np.asarray(other).dtype))
        assert_same(lambda m, other=other: operation(m.batch(arrays), other), tolerance(operation), raises=raises)
        if not isinstance(other, np.ndarray):
            assert_same(lambda m, other=other: operation(other, m.batch(arrays)), tolerance(operation), raises=raises)
    assert_same(lambda m: operation(m.batch(arrays), m.batch([array % 5 + 1 for array in arrays])))
    assert_same(lambda m: operation(m.batch(arrays), m.batch([array[:1] % 5 + 1 for array in arrays])))
    assert_same(lambda m: operation(m.batch(arrays), m.batch([2, 1, 3])))
    assert_same(lambda m: operation(m.tensor([[1], [2]]), m.batch(arrays[::2])))


@pytest.mark.parametrize(
    ("left", "right"),
    [("HW", "HW"), ("HW", "W"), ("W", "HW"), ("HW", None), (None, "HW"), raising(RuntimeError, "HW", "WC"), raising(RuntimeError, "HW", "H")],
)
@pytest.mark.parametrize("operation", [operator.add, operator.lt])
def test_layouts_must_match(operation: Function, left: str | None, right: str | None, raises: Raises | None) -> None:
    def ones(module: Any, layout: str | None) -> Any:
        return module.tensor(np.ones((2, 2)[2 - len(layout or "HW") :], np.float32), layout=layout)

    assert_same(lambda m: operation(ones(m, left), ones(m, right)), raises=raises)


@pytest.mark.parametrize("layout", ["C", "HW"])
def test_a_result_with_more_dimensions_has_no_layout(layout: str) -> None:
    few, many = np.ones((2, 3)[2 - len(layout) :], np.float32), np.ones((4, 2, 3), np.float32)
    assert_same(lambda m: m.tensor(few, layout=layout) + m.tensor(many))
    assert_same(lambda m: many.tolist() * m.batch([few, few], layout=layout))
    assert_same(lambda m: m.batch([few, few[..., :1].copy()], layout=layout) < m.batch([many, many]))
    assert_same(lambda m: m.math.clamp(m.batch([few], layout=layout), many.tolist(), 5))


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "int" in name])
@pytest.mark.parametrize("operation", DIVISIONS)
def test_division_by_zero(operation: Function, dtype: str) -> None:
    a, b = np.array([1, 2], dtype), np.array([1, 0], dtype)
    for program in (
        lambda m: operation(m.tensor(a), m.tensor(b)),
        lambda m: operation(m.tensor(a), 0),
        lambda m: operation(m.batch([a, a]), m.batch([a, b])),
    ):
        assert_raises(program, ValueError)
    assert_same(lambda m: operation(m.tensor(a[:0]), 0))
    assert_same(lambda m: operation(m.tensor(a), 0.0))


@each_operation
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_floats(operation: Function, dtype: str) -> None:
    edges = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, 7.5], dtype)
    a, b = (value.ravel() for value in np.meshgrid(edges, edges))
    assert_same(lambda m: operation(m.tensor(a), m.tensor(b)), tolerance(operation), raises=error_of(operation, dtype, dtype))


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu", "sync_full"])
def test_results_are_equal_in_every_mode(mode: str) -> None:
    a = numbers("uint8", (4, 5), 0)

    def program(module: Any) -> Any:
        with module.EvalMode[mode]:
            batch = module.batch([a, a[:2]])
            return ((batch * 2 - [1, 2, 3, 4, 5]) / 3 > batch) & True

    assert_same(program)


@pytest.mark.parametrize(
    "wrong",
    [
        raising(ValueError, None),
        raising(RuntimeError, "a"),
        raising(TypeError, object()),
        raising(TypeError, {}),
        raising(OverflowError, 2**31),
        raising(OverflowError, 2**70),
    ],
    ids=["None", "str", "object", "dict", "2**31", "2**70"],
)
@each_operation
def test_non_operands(operation: Function, wrong: Any, raises: Raises | None) -> None:
    def program(module: Any) -> Any:
        with module.EvalMode.sync_full:
            return operation(module.tensor([1]), wrong)

    assert_raises(program, raises)


def test_an_operand_is_not_changed_in_place() -> None:
    def program(module: Any) -> Any:
        a = module.tensor([1, 2])
        b = a
        b += 1
        return a

    assert_same(program)
