# SPDX-License-Identifier: Apache-2.0
"""+ - * /: cases for ``test_operators.py``, and what is special about operands that need not be tensors."""

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

Function = Callable[[Any, Any], Any]
OPERATIONS = [operator.add, operator.sub, operator.mul, operator.truediv]
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(-300, 300, shape) * 17).astype(dtype)


def expected(operation: Function, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    dtype = types.promote(torch.from_numpy(left).dtype, torch.from_numpy(right).dtype)
    if operation is operator.truediv and not dtype.is_floating_point:
        dtype = torch.float32
    as_numpy = torch.empty(0, dtype=dtype).numpy().dtype
    computed = np.float32 if as_numpy == np.float16 else as_numpy
    with np.errstate(all="ignore"):
        return operation(left.astype(computed), right.astype(computed)).astype(as_numpy)


def operands(left: Inputs, right: Inputs) -> Inputs:
    return lambda ragged: (*left(ragged), *right(ragged))


def case(operation: Function, id: str, left: Inputs, right: Inputs, layout: str | None = "HWC") -> Case:
    return Case("arithmetic", f"{operation.__name__}-{id}", operands(left, right), {}, layout, functools.partial(expected, operation), call=operation)


CASES = [
    case(operator.add, "bytes", images("HWC", "uint8"), images("HWC", "uint8")),
    case(operator.add, "of two types", images("HWC", "uint8"), images("HWC", "int16", low=-300)),
    case(operator.sub, "of channels", images("HWC", "uint8"), arrays((3,), "float32", axes=())),
    case(operator.sub, "more dimensions on the right", arrays((3,), "int32", axes=()), images("HWC", "uint16"), layout=None),
    case(operator.mul, "floats", images("HWC", "float32"), images("HWC", "float32")),
    case(operator.mul, "by a number for each sample", images("HWC", "uint8"), arrays((), "float32")),
    case(operator.truediv, "bytes", images("HWC", "uint8"), images("HWC", "uint8", low=1)),
    case(operator.truediv, "of rows", arrays((17, 3), "float64", axes=(0,)), arrays((1, 3), "int64", axes=(), low=1), layout=None),
]


def assert_same(result: Any, reference: np.ndarray) -> None:
    made = np.asarray(result)
    assert made.dtype == reference.dtype
    np.testing.assert_array_equal(made, reference)


@each_operation
@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_every_pair_of_types(operation: Function, left: str, right: str) -> None:
    a, b = numbers(left, (5, 3)), numbers(right, (5, 3), 1)
    if left == right == "bool" and operation is not operator.mul:
        with pytest.raises(RuntimeError, match="boolean"):
            operation(ndd.tensor(a), ndd.tensor(b))
    else:
        assert_same(operation(ndd.tensor(a), ndd.tensor(b)), expected(operation, a, b))


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


@each_operation
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("uint8", "float32"), ("float32", "float32"), ("int64", "int32"), ("float16", "uint8")])
def test_broadcasting(operation: Function, left: tuple[int, ...], right: tuple[int, ...], dtypes: tuple[str, str]) -> None:
    a, b = numbers(dtypes[0], left), numbers(dtypes[1], right, 1)
    assert_same(operation(ndd.tensor(a), ndd.tensor(b)), expected(operation, a, b))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("first", [1, 37])
def test_results_beyond_the_caches(dtype: str, first: int) -> None:
    """More than 16 MB: stored past the caches. The second sample of the ragged batch does not begin at a cache line."""
    shapes = [(first, 3), (1500, 4000, 3)] if dtype == "uint8" else [(first, 3), (1100, 2700, 3)]
    arrays = [numbers(dtype, shape, i).reshape(-1, 3) for i, shape in enumerate(shapes)]
    for result, a in zip((ndd.batch(arrays) * np.asarray(3, dtype)).tensors, arrays, strict=True):
        assert_same(result, expected(operator.mul, a, np.asarray(3, dtype)))


@each_operation
@pytest.mark.parametrize("mode", list(EvalMode))
@pytest.mark.parametrize("threads", [1, 4])
def test_batches(operation: Function, mode: EvalMode, threads: int) -> None:
    """Dense, ragged, of one sample, with numbers, lists, arrays, tensors and pending operands, from both sides."""
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
                            assert_same(result.tensors[i], expected(operation, a, b))
                        assert_same(reverse.tensors[i], expected(operation, b, a))
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


def test_division() -> None:
    assert (ndd.tensor([7]) / 0).item() == np.inf
    assert (ndd.tensor([7]) / 2).item() == 3.5
    assert (ndd.tensor(np.int64([7])) / 2).dtype == torch.float32


@pytest.mark.parametrize(("left", "right"), [("HW", "W"), ("W", "HW"), (None, "HW"), ("HW", None), ("HW", "HW")])
def test_layouts(left: str | None, right: str | None) -> None:
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
def test_errors(left: Any, right: Any, kind: type[Exception], text: str) -> None:
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


@each_operation
@pytest.mark.parametrize("dtypes", [("uint8", "int32"), ("uint8", "uint8"), ("float32", "float32"), ("uint16", "int16"), ("int64", "uint32")])
def test_compiled(operation: Function, dtypes: tuple[str, str]) -> None:
    torch._dynamo.reset()
    left = ndd.batch(numbers(dtypes[0], (3, 4, 5)))
    right = ndd.batch(numbers(dtypes[1], (3, 5), 1))
    compiled = torch.compile(lambda a, b: operation(operation(a, b), 3), fullgraph=True)
    assert_same(compiled(left, right).torch(), operation(operation(left, right), 3).torch().numpy())


def test_compiled_ragged() -> None:
    torch._dynamo.reset()
    arrays = [numbers("uint8", (4, 5)), numbers("uint8", (2, 3))]
    compiled = torch.compile(lambda a: (a * 2 + a) * [[0.5]], fullgraph=True)
    batch = ndd.batch(arrays)
    for one, other in zip(compiled(batch).tensors, ((batch * 2 + batch) * [[0.5]]).tensors, strict=True):
        assert_same(one, np.asarray(other))
