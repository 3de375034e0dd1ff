# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on tensors: cases for ``test_operators.py``, and operands that are not tensors."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Inputs, arrays, images

import torch_ndd as ndd
from torch_ndd import EvalMode, types

Function = Callable[..., Any]
SUMS = [operator.add, operator.sub, operator.mul]
DIVISIONS = [operator.truediv, operator.floordiv, operator.mod]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
OPERATIONS = [*SUMS, *DIVISIONS, operator.pow, *BITS, *COMPARISONS]
UNARY = [operator.neg, operator.invert, operator.abs]
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)
each_sum = pytest.mark.parametrize("operation", [*SUMS, operator.truediv, operator.lt], ids=lambda f: f.__name__)


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(-300, 300, shape) * 17).astype(dtype)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Division toward zero, in Python integers: the smallest one divided by -1 does not fit."""
    outputs = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a.astype(object).flat, b.astype(object).flat, strict=True)]
    return np.array(outputs, object).reshape(a.shape)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    outputs = [0 if y < 0 else pow(x, y, 2**64) for x, y in zip(a.astype(object).flat, b.astype(object).flat, strict=True)]
    return np.array(outputs, object).reshape(a.shape)


def _wrap(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    bits = 8 * dtype.itemsize
    return np.array([x % 2**bits for x in numbers.flat], np.uint64).astype(f"uint{bits}").view(dtype).reshape(numbers.shape)


def compute_expected(operation: Function, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The reference: NumPy and Python integers on operands of the promoted type."""
    promoted = types.promote(torch.from_numpy(left).dtype, torch.from_numpy(right).dtype)
    if operation is operator.truediv and not promoted.is_floating_point:
        promoted = torch.float32
    dtype = torch.empty(0, dtype=promoted).numpy().dtype
    computed = np.dtype(np.float32) if dtype == np.float16 else dtype
    if (
        operation is operator.mod
        and dtype == np.float32
        and max(left.itemsize * (left.dtype.kind in "iu"), right.itemsize * (right.dtype.kind in "iu")) >= 4
    ):
        computed = np.dtype(np.float64)
    if operation in COMPARISONS and dtype.kind in "iu":
        return operation(left, right)  # by value
    a, b = np.broadcast_arrays(left.astype(computed), right.astype(computed))
    with np.errstate(all="ignore"):
        if operation in COMPARISONS:
            return operation(a, b)
        if dtype.kind == "f":
            function = {operator.floordiv: operator.truediv, operator.mod: np.fmod}.get(operation, operation)
            return function(a, b).astype(dtype)
        if operation is operator.floordiv:
            return _wrap(_quotient(a, b), dtype)
        if operation is operator.mod:
            return _wrap(a.astype(object) - _quotient(a, b) * b.astype(object), dtype)
        if operation is operator.pow:
            return _wrap(_power(a, b), dtype)
        if operation in (operator.lshift, operator.rshift) and dtype.kind != "b":
            wide = a.astype(f"{dtype.kind}{max(4, dtype.itemsize)}")
            return operation(wide, b.astype(wide.dtype) & wide.dtype.type(8 * wide.itemsize - 1)).astype(dtype)
        if dtype.kind == "b" and operation in (operator.lshift, operator.rshift):
            return operation(a.astype(int), b.astype(int)).astype(dtype)
        return operation(a, b).astype(dtype)


def divisible(operation: Function, dtype: str, divisor: np.ndarray) -> np.ndarray:
    """Return the right operand without zeros where they would be an error, and without exponents that take Python too long."""
    if operation in (operator.floordiv, operator.mod):
        return np.where(divisor == 0, np.asarray(1, divisor.dtype), divisor)
    if operation is operator.pow:
        return (
            (divisor % 23).astype(divisor.dtype)
            if divisor.dtype.kind in "iu" and dtype[0] != "f"
            else np.abs(divisor)
            if divisor.dtype.kind == "f"
            else divisor
        )
    return divisor


def is_refused(operation: Function, *dtypes: str) -> str | None:
    """Return the message for an unsupported operation."""
    if operation in (*BITS, operator.invert):
        return "integral" if any(name[0] == "f" for name in dtypes) else None
    if set(dtypes) == {"bool"} and operation is not operator.mul and operation not in COMPARISONS:
        return "cannot be (a boolean|booleans)"
    return None


def operands(left: Inputs, right: Inputs) -> Inputs:
    return lambda ragged: (*left(ragged), *right(ragged))


def case(operation: Function, id: str, left: Inputs, right: Inputs, layout: str | None = "HWC") -> Case:
    return Case(
        "arithmetic", f"{operation.__name__}-{id}", operands(left, right), {}, layout, functools.partial(compute_expected, operation), call=operation
    )


CASES = [
    case(operator.add, "bytes", images("HWC", "uint8"), images("HWC", "uint8")),
    case(operator.add, "of two types", images("HWC", "uint8"), images("HWC", "int16", low=-300)),
    case(operator.sub, "of channels", images("HWC", "uint8"), arrays((3,), "float32", axes=())),
    case(operator.sub, "more dimensions on the right", arrays((3,), "int32", axes=()), images("HWC", "uint16"), layout=None),
    case(operator.mul, "floats", images("HWC", "float32"), images("HWC", "float32")),
    case(operator.mul, "by a number for each sample", images("HWC", "uint8"), arrays((), "float32")),
    case(operator.truediv, "bytes", images("HWC", "uint8"), images("HWC", "uint8", low=1)),
    case(operator.floordiv, "bytes", images("HWC", "uint8"), images("HWC", "uint8", low=1)),
    case(operator.mod, "of channels", images("HWC", "int16", low=-300), arrays((3,), "int32", axes=(), low=1)),
    case(operator.and_, "masks", images("HWC", "uint8"), images("HWC", "uint8")),
    case(operator.rshift, "by a number for each sample", images("HWC", "uint16"), arrays((), "int32", high=5)),
    case(operator.lt, "bytes and floats", images("HWC", "uint8"), images("HWC", "float32")),
    case(operator.sub, "several tiles", images("HWC", "uint8", H=61, W=83), images("HWC", "float32", H=61, W=83)),
    case(operator.mul, "of channels, several tiles", images("HWC", "float16", H=61, W=83), arrays((3,), "float32", axes=())),
    case(operator.add, "of channels in front", images("CHW", "uint8", H=61, W=83), arrays((3, 1, 1), "float32", axes=()), "CHW"),
    case(operator.mul, "of pixels", images("HWC", "float32"), images("HWC", "float32", C=1)),
    case(operator.add, "of frames and channels", images("FHWC", "uint8"), arrays((3, 1, 1, 3), "int16", axes=()), "FHWC"),
    case(operator.truediv, "of rows", arrays((17, 3), "float64", axes=(0,)), arrays((1, 3), "int64", axes=(), low=1), layout=None),
]


def assert_same(result: Any, reference: np.ndarray) -> None:
    output = np.asarray(result)
    assert output.dtype == reference.dtype
    np.testing.assert_array_equal(output, reference)


@each_operation
@pytest.mark.parametrize("left", DTYPES)
def test_every_pair_of_types(operation: Function, left: str) -> None:
    a = numbers(left, (5, 3))
    for right in DTYPES:
        b = divisible(operation, left, numbers(right, (5, 3), 1))
        if text := is_refused(operation, left, right):
            with pytest.raises(RuntimeError, match=text):
                operation(ndd.tensor(a), ndd.tensor(b))
            continue
        output, reference = np.asarray(operation(ndd.tensor(a), ndd.tensor(b))), compute_expected(operation, a, b)
        assert output.dtype == reference.dtype, right
        if operation is operator.pow and reference.dtype.kind == "f":
            np.testing.assert_allclose(output, reference, rtol=1e-3 if reference.dtype == np.float16 else 1e-6)
        else:
            np.testing.assert_array_equal(output, reference, right)


@pytest.mark.parametrize("operation", UNARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_operators_equal_numpy(operation: Function, dtype: str) -> None:
    a = numbers(dtype, (5, 3))
    if text := is_refused(operation, dtype):
        with pytest.raises(RuntimeError, match=text):
            operation(ndd.tensor(a))
    else:
        assert_same(operation(ndd.tensor(a, layout="HW")), operation(a))
    tensor = ndd.tensor(a)
    assert +tensor is tensor


LIMITS = [-(2**63), -(2**31), -(2**15), -(2**7), -1, 0, 1, 2**7 - 1, 2**8 - 1, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]


@each_operation
def test_limits_of_integers(operation: Function) -> None:
    """The smallest and the largest numbers of every pair of types, combined."""

    def limits(dtype: str) -> np.ndarray:
        return np.array([x for x in LIMITS if np.iinfo(dtype).min <= x <= np.iinfo(dtype).max], dtype)

    integers = [name for name in DTYPES if "int" in name]
    for left in integers:
        for right in integers:
            a, b = limits(left)[:, None], limits(right)
            if operation in (operator.floordiv, operator.mod):
                b = b[b != 0]
            assert_same(operation(ndd.tensor(a), ndd.tensor(b)), compute_expected(operation, a, b))


def test_bfloat16_and_float16() -> None:
    """Computed in float32, rounded once."""
    for dtype in (torch.bfloat16, torch.float16):
        a, b = torch.tensor([1.5, -2.25, 300.0], dtype=dtype), torch.tensor([0.1, 7.0, 1e-3], dtype=dtype)
        for operation in (*SUMS, operator.truediv, operator.mod):
            output = operation(ndd.as_tensor(a), ndd.as_tensor(b)).torch()
            reference = (torch.fmod if operation is operator.mod else operation)(a.float(), b.float()).to(dtype)
            assert output.dtype is dtype
            assert torch.equal(output, reference)
        assert (ndd.as_tensor(a) + 1).dtype is dtype  # float beats int
        assert (ndd.as_tensor(a) + 1.0).dtype is torch.float32  # and the wider float wins
        assert torch.equal((ndd.as_tensor(a) < 1).torch(), a < 1)
    mixed = ndd.as_tensor(torch.ones(1, dtype=torch.bfloat16)) + ndd.as_tensor(torch.ones(1, dtype=torch.float16))
    assert mixed.dtype is torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_16_bit_float_is_rounded_right(dtype: torch.dtype) -> None:
    """All values times some: neighbors, subnormal and infinite products."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    factors = torch.tensor([[1.0], [1.37], [1.001], [2**-8], [2**8], [0.5]], dtype=dtype)
    output = (ndd.as_tensor(every) * ndd.as_tensor(factors)).torch()
    reference = (every.float() * factors.float()).to(dtype)
    assert torch.equal(output.isnan(), reference.isnan())
    assert torch.equal(output.nan_to_num(7.0), reference.nan_to_num(7.0))
    assert torch.equal(output.signbit() & ~output.isnan(), reference.signbit() & ~reference.isnan())


def test_every_pair_of_types_promotes_as_documented() -> None:
    """DALI's table (semantics.md 1.4), written out, and the same rules for the 16-bit floats."""
    names = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "bool"]
    table = """i8 i16 i32 i64 i16 i32 i64 i64 f32 f64 i8
        i16 i16 i32 i64 i16 i32 i64 i64 f32 f64 i16
        i32 i32 i32 i64 i32 i32 i64 i64 f32 f64 i32
        i64 i64 i64 i64 i64 i64 i64 i64 f32 f64 i64
        i16 i16 i32 i64 u8 u16 u32 u64 f32 f64 u8
        i32 i32 i32 i64 u16 u16 u32 u64 f32 f64 u16
        i64 i64 i64 i64 u32 u32 u32 u64 f32 f64 u32
        i64 i64 i64 i64 u64 u64 u64 u64 f32 f64 u64
        f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 f32
        f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool"""
    rows = [row.split() for row in table.splitlines()]
    for left, row in zip(names, rows, strict=True):
        for right, result in zip(names, row, strict=True):
            a, b = ndd.tensor([1], dtype=left), ndd.tensor([1], dtype=right)
            assert types.dtype_name((a * b).dtype) == result
            assert types.dtype_name((a / b).dtype if {left, right} != {"bool"} else torch.float32) == (result if result[0] == "f" else "f32")
            assert (a == b).dtype is torch.bool
    for half in (torch.float16, torch.bfloat16):
        for other in names:
            result = (ndd.tensor([1], dtype=half) * ndd.tensor([1], dtype=other)).dtype
            assert result is (half if other not in ("f32", "f64") else types.to_dtype(other))


SHAPES = [
    ((5, 3), ()),
    ((), (5, 3)),
    ((5, 1, 3), (4, 1)),
    ((40, 37, 3), (3,)),
    ((40, 37, 1), (40, 37, 3)),
    ((2, 1), (2, 1500)),
    ((0, 3), (1, 3)),
    ((7, 1, 5, 1), (1, 6, 1, 4)),
    ((3000,), (1,)),
]


@each_sum
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("uint8", "float32"), ("float32", "float32"), ("int64", "int32"), ("float16", "uint8")])
def test_broadcasting_equals_numpy(operation: Function, left: tuple[int, ...], right: tuple[int, ...], dtypes: tuple[str, str]) -> None:
    a, b = numbers(dtypes[0], left), numbers(dtypes[1], right, 1)
    assert_same(operation(ndd.tensor(a), ndd.tensor(b)), compute_expected(operation, a, b))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("first", [1, 37])
def test_results_beyond_the_caches(dtype: str, first: int) -> None:
    """More than 16 MB: stored past the caches. The second sample of the ragged batch does not begin at a cache line."""
    shapes = [(first, 3), (1500, 4000, 3)] if dtype == "uint8" else [(first, 3), (1100, 2700, 3)]
    arrays = [numbers(dtype, shape, i).reshape(-1, 3) for i, shape in enumerate(shapes)]
    for result, a in zip((ndd.batch(arrays) * np.asarray(3, dtype)).tensors, arrays, strict=True):
        assert_same(result, compute_expected(operator.mul, a, np.asarray(3, dtype)))


@each_sum
@pytest.mark.parametrize("mode", list(EvalMode))
@pytest.mark.parametrize("threads", [1, 4])
def test_batches_and_numbers_mix(operation: Function, mode: EvalMode, threads: int) -> None:
    """Dense, ragged, of one sample, with numbers, lists, arrays, tensors and pending operands, on both sides."""
    ndd.set_num_threads(threads)
    try:
        for shapes in ([(40, 50, 3)] * 3, [(40, 50, 3), (60, 31, 3), (1, 2, 3)], [(4, 5, 3)]):
            arrays = [numbers("uint8", shape, i) for i, shape in enumerate(shapes)]
            with mode:
                batch = ndd.batch(arrays, layout="HWC")
                pending = batch + np.uint8(0)
                for other in (3, 2.5, [1, 2, 3], np.float64([1, 2, 3]), torch.tensor([7], dtype=torch.int16), ndd.tensor([4.0]), pending, batch):
                    results = [operation(batch, other), operation(pending, other)]
                    reverse = operation(other, batch)
                    for i, a in enumerate(arrays):
                        b = a if isinstance(other, ndd.Batch) else np.asarray(ndd.as_tensor(other))
                        for result in results:
                            assert result.layout == "HWC"
                            assert_same(result.tensors[i], compute_expected(operation, a, b))
                        assert_same(reverse.tensors[i], compute_expected(operation, b, a))
    finally:
        ndd.set_num_threads(None)


def test_python_numbers_are_typed() -> None:
    small = ndd.tensor(np.uint8([250]))
    assert ((small + 300).dtype, (small + 300).item()) == (torch.int32, 550)
    assert (small + 1.5).dtype == torch.float32
    assert (small + True).dtype == torch.uint8
    assert (small + np.uint8(10)).item() == 4
    assert np.signbit(np.asarray(ndd.tensor([1.0]) * -0.0))[0]
    assert not np.signbit(np.asarray(ndd.tensor([1.0]) * 0.0))[0]
    for wrong in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError, match="out of range for int32"):
            small + wrong


def test_division_by_zero() -> None:
    for zero in (ndd.tensor([1, 0]), 0):
        for operation in (operator.floordiv, operator.mod):
            with pytest.raises(ValueError, match="Integer division by zero"):
                operation(ndd.tensor([7, 7]), zero).evaluate()
    with EvalMode.sync_cpu, pytest.raises(ValueError, match=r"Integer division by zero.*sample_idx=1"):
        ndd.batch([[1], [2]]) // ndd.batch([[1], [0]])
    assert (ndd.tensor(np.int32([])) // 0).shape == (0,)
    assert np.isnan((ndd.tensor([1.0]) % 0).item())
    assert (ndd.tensor([1.0]) // 0).item() == np.inf


def test_integer_division_is_that_of_c() -> None:
    a, b = ndd.tensor([7, -7, 7, -7]), ndd.tensor([2, 2, -2, -2])
    assert (a // b).torch().tolist() == [3, -3, -3, 3]
    assert (a % b).torch().tolist() == [1, -1, 1, -1]
    assert (ndd.tensor([7.5]) // 2).item() == 3.75
    assert (7 // ndd.tensor([2, -2])).torch().tolist() == [3, -3]
    for dtype in ("int8", "int16", "int32", "int64"):
        low = ndd.tensor(np.array([np.iinfo(dtype).min], dtype))
        minus_one = ndd.tensor(np.array([-1], dtype))
        assert (low // minus_one).item() == np.iinfo(dtype).min
        assert (low % minus_one).item() == 0
        assert (-low).item() == abs(low).item() == np.iinfo(dtype).min


def test_the_remainder_of_a_large_int_and_a_float_is_exact() -> None:
    assert (ndd.tensor([2**24 + 1]) % 2.0).item() == 1.0


def test_powers_and_shifts_of_integers() -> None:
    assert (ndd.tensor([2, 1, -1, 0, 0]) ** ndd.tensor([-1, -1, -1, 0, 5])).torch().tolist() == [0, 0, 0, 1, 0]
    assert (2 ** ndd.tensor([3, 31, 32])).torch().tolist() == [8, -(2**31), 0]
    assert (ndd.tensor([1, 1, -8]) << 33).torch().tolist() == [2, 2, -16]
    assert (ndd.tensor([-8]) >> 1).item() == -4
    assert ([4, 5, 6] ** ndd.batch([[2, 2, 2]])).tensors[0].torch().tolist() == [16, 25, 36]


def test_comparisons_equal_numpy() -> None:
    assert (ndd.tensor(np.int64([-1])) < np.uint64([1])).item() is True
    assert (ndd.tensor(np.uint64([2**63])) > np.int64([-1])).item() is True
    assert (ndd.tensor(np.int64([2**24 + 1])) == np.float32([2**24])).item() is True
    assert (1 < ndd.tensor([1, 2])).torch().tolist() == [False, True]  # noqa: SIM300
    assert (ndd.tensor([np.nan]) != ndd.tensor([np.nan])).item() is True
    assert (ndd.tensor([np.nan]) >= 1.0).item() is False
    with pytest.raises(TypeError):
        hash(ndd.tensor([1]))
    for wrong, kind in ((None, ValueError), ("a", RuntimeError), (object(), TypeError), ({}, TypeError), (1j, TypeError)):
        for operation in (operator.eq, operator.ne):
            with pytest.raises(kind):
                operation(ndd.tensor([1]), wrong)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)
def test_torch_tensors_on_either_side(operation: Function) -> None:
    ours, theirs = ndd.tensor([5, 2]), torch.tensor([2, 3], dtype=torch.int32)
    for output in (operation(ours, theirs), operation(theirs, ours)):
        assert isinstance(output, ndd.Tensor)
    assert_same(operation(theirs, ours), compute_expected(operation, theirs.numpy(), np.asarray(ours)))


def test_no_operand_is_changed() -> None:
    a = ndd.tensor([1, 2])
    b = a
    b += 1
    assert a.torch().tolist() == [1, 2]
    assert b.torch().tolist() == [2, 3]


def test_many_dimensions() -> None:
    a, b = numbers("int32", (2, 1, 3, 1, 2, 1, 2, 1, 3, 1)), numbers("int32", (2, 1, 4, 1, 2, 1, 2))
    assert_same(ndd.tensor(a) + ndd.tensor(b), a + b)


def test_division_returns_floats() -> None:
    assert (ndd.tensor([7]) / 0).item() == np.inf
    assert (ndd.tensor([7]) / 2).item() == 3.5
    assert (ndd.tensor(np.int64([7])) / 2).dtype == torch.float32


@pytest.mark.parametrize(("left", "right"), [("HW", "W"), ("W", "HW"), (None, "HW"), ("HW", None), ("HW", "HW")])
def test_layouts_of_results(left: str | None, right: str | None) -> None:
    def ones(layout: str | None) -> ndd.Tensor:
        return ndd.tensor(np.ones((2, 2)[2 - len(layout or "HW") :]), layout=layout)

    assert (ones(left) + ones(right)).layout == "HW"


@pytest.mark.parametrize(
    ("left", "right", "kind", "text"),
    [
        (ndd.tensor([[1]], layout="HW"), ndd.tensor([[1]], layout="WC"), RuntimeError, "Layouts of subexpressions"),
        (ndd.batch([[1], [2], [3]]), ndd.batch([[1], [2]]), ValueError, "Inconsistent batch size: 3 != 2"),
        (ndd.batch([[1], [2, 3], [3]]), ndd.batch([[1], [2]]), ValueError, "Inconsistent batch size: 3 != 2"),
        (ndd.tensor([1, 2]), ndd.tensor([1, 2, 3]), RuntimeError, "Can't broadcast shapes"),
        (ndd.batch([[1, 2, 3], [1, 2]]), [1, 2, 3], RuntimeError, "Can't broadcast shapes.*sample_idx=1"),
        (ndd.tensor([1]), None, ValueError, "None"),
        (ndd.tensor([1]), "a", RuntimeError, "'a'"),
        (ndd.tensor([1]), object(), TypeError, "unsupported operand"),
    ],
)
def test_bad_operands_are_rejected(left: Any, right: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        left + right


def test_numpy_on_the_left_computes_tensors_itself() -> None:
    assert isinstance(np.ones(3) + ndd.tensor([1, 2, 3]), np.ndarray)
    assert isinstance(np.ones(3) + ndd.batch([[1, 2, 3]]), ndd.Batch)


def test_a_wrapped_array_may_change_after_the_call() -> None:
    values = np.arange(400_000, dtype=np.int32)
    result = ndd.as_tensor(values) + 1
    values[:] = 0
    assert np.asarray(result)[-1] == 400_000


COMPILED = [("uint8", "int32"), ("uint8", "uint8"), ("float32", "float32"), ("uint16", "int16"), ("int64", "uint64"), ("float16", "bool")]


@pytest.mark.slow
@each_operation
@pytest.mark.usefixtures("pause_gc")
def test_compiled_arithmetic_equals_eager(operation: Function) -> None:
    """The formula, or the kernel if there is none, equals eager evaluation. All types are in one graph: half of a small one's time is fixed."""

    def both(left: ndd.Batch, right: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
        output = operation(left, right)
        return output == 3, output

    values = [
        (ndd.batch(numbers(value, (3, 4, 5))), ndd.batch(divisible(operation, value, numbers(other, (3, 5), 1))))
        for value, other in COMPILED
        if not is_refused(operation, value, other)
    ]
    assert values
    torch._dynamo.reset()
    compiled = torch.compile(lambda pairs: [both(*pair) for pair in pairs], fullgraph=True, backend="aot_eager")
    for results, (left, right) in zip(compiled(values), values, strict=True):
        for result, reference in zip(results, both(left, right), strict=True):
            assert result.dtype is reference.dtype
            np.testing.assert_allclose(result.torch().double(), reference.torch().double(), rtol=1e-6, err_msg=f"{left.dtype}, {right.dtype}")


@pytest.mark.parametrize("operation", UNARY, ids=lambda f: f.__name__)
@pytest.mark.usefixtures("pause_gc")
def test_compiled_unary(operation: Function) -> None:
    dtypes = [dtype for dtype in ("bool", "uint8", "int16", "uint32", "uint64", "float16", "float32") if not is_refused(operation, dtype)]
    values = [ndd.batch(numbers(dtype, (3, 4))) for dtype in dtypes]
    torch._dynamo.reset()
    compiled = torch.compile(lambda batches: [operation(batch) for batch in batches], fullgraph=True, backend="aot_eager")
    for output, batch in zip(compiled(values), values, strict=True):
        assert_same(output.torch(), operation(batch).torch().numpy())


def test_compiled_ragged() -> None:
    torch._dynamo.reset()
    arrays = [numbers("uint8", (4, 5)), numbers("uint8", (2, 3))]
    compiled = torch.compile(lambda a: (a * 2 + a) * [[0.5]], fullgraph=True)
    batch = ndd.batch(arrays)
    for sample, other in zip(compiled(batch).tensors, ((batch * 2 + batch) * [[0.5]]).tensors, strict=True):
        assert_same(sample, np.asarray(other))
