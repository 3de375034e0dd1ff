# SPDX-License-Identifier: Apache-2.0
"""``+ - * /`` on tensors and batches.

Not an ``@operator``: two operands play equal parts, anything that looks like numbers is one, and ``batch + 1`` on small data should cost little more
than the call of its kernel.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _native, types
from .._batch import Batch, empty_packed, new_batch
from .._operand import Operand
from .._operator import OPERATORS, Operator, queue
from .._stream import EvalMode, Pending, current_mode
from .._tensor import SAME_SAMPLE, Tensor, as_tensor, new_tensor

# The numbers are an interface: csrc/ops/math/arithmetic.h.
_CODES = {"add": 0, "sub": 1, "mul": 2, "truediv": 3}
_FORMULAS: dict[str, Callable[[Any, Any], Any]] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.true_divide}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}

_kernel = _native.define(
    "arithmetic",
    [
        ("Tensor", "left"),
        ("Tensor?", "left_shapes"),
        ("Tensor", "right"),
        ("Tensor?", "right_shapes"),
        ("int", "operation"),
        ("Tensor(a!)", "out"),
        ("Tensor?", "out_shapes"),
    ],
)


def arithmetic(operation: str, left: Any, right: Any) -> Any:
    """``left operation right`` (``add``, ``sub``, ``mul``, ``truediv``) for each element; at least one operand is a Tensor or a Batch.

    The type is that of :func:`torch_ndd.types.promote`, with a Python int as int32 and a float as float32; division gives a float. Integers wrap
    around. Shapes are broadcast as in NumPy, sample by sample: what is no Batch meets every sample.

    Raises:
        ValueError: batches of different size, operands on different devices.
        RuntimeError: shapes that cannot be broadcast, layouts of which none ends with the other, two bools.
        OverflowError: an int that does not fit int32.

    >>> (batch([[1, 2], [3, 4, 5]]) * 2).tensors[1].torch()
    tensor([ 6,  8, 10], dtype=torch.int32)
    """
    compiling = torch.compiler.is_compiling()
    a, b = _operand(left, compiling), _operand(right, compiling)
    if a is None or b is None:
        return NotImplemented
    target = a._values.device
    if b._values.device != target:
        a, b, target = _on_one_device(operation, left, right, a, b)
    dtype = _result_type(operation, a._values.dtype, b._values.dtype)
    layout = _result_layout(operation, a._layout, b._layout)
    is_batch = type(a) is Batch or type(b) is Batch
    ragged = is_batch and ((type(a) is Batch and a._shapes is not None) or (type(b) is Batch and b._shapes is not None))
    if compiling and not ragged:
        values = _formula(operation, _aligned(a, b), _aligned(b, a), dtype)
        return new_batch(values, None, layout) if is_batch else new_tensor(values, layout)

    if ragged:
        out = _unfilled_ragged(operation, a, b, dtype, layout)
    else:
        shape = _broadcast_shape(operation, a, b)
        out = new_batch(_native.empty(shape, dtype, target), None, layout)
    arguments = (*_buffers(a), *_buffers(b), _CODES[operation], out._values, out._shapes)
    if compiling or target.type != "cpu":
        _operator.kernel(*arguments)
        if not compiling and current_mode() == EvalMode.sync_full:
            torch.cuda.synchronize(target)
    else:
        out._pending = queue(_operator.kernel, arguments, _reads(a, b), a._external or b._external)
    return out if is_batch else new_tensor(out._values[0], layout, out._pending)


def _reads(*values: Operand) -> list[tuple[Pending, int]]:
    reads = []
    for value in values:
        pending = value._pending
        if pending is not None:
            if pending.done():
                value._pending = None
            else:
                reads.append((pending, value._sample if isinstance(value, Tensor) else SAME_SAMPLE))
    return reads


def _buffers(value: Operand) -> tuple[torch.Tensor, torch.Tensor | None]:
    return (value._values, value._shapes) if isinstance(value, Batch) else (value._values[None], None)


_DTYPES = {int: torch.int32, float: torch.float32, bool: torch.bool}
_numbers: dict[tuple[type, Any], Tensor] = {}


def _operand(value: Any, compiling: bool) -> "Tensor | Batch | None":
    """An operand as Tensor or Batch; None for what is no number at all."""
    kind = type(value)
    if kind is Batch or kind is Tensor:
        return value
    if kind in _DTYPES:
        if compiling:
            return new_tensor(torch.full((), value, dtype=_DTYPES[kind]))
        key = (kind, value if value else repr(value))  # 0.0 and -0.0 are equal
        made = _numbers.get(key)
        if made is None:
            if kind is int and not -(2**31) <= value < 2**31:
                raise OverflowError(f"arithmetic: {value} is out of range for int32.")
            if len(_numbers) > 1000:
                _numbers.clear()
            made = _numbers[key] = new_tensor(torch.tensor(value, dtype=_DTYPES[kind]))
        return made
    if value is None:
        raise ValueError("arithmetic: None is no operand")
    if isinstance(value, str):
        raise RuntimeError(f"arithmetic: {value!r} is no operand")
    if compiling and kind in (list, tuple):  # NumPy, which as_tensor takes, has no place in a graph
        made = torch.tensor(value)
        return new_tensor(made.to(torch.int32) if made.dtype is torch.int64 else made)
    try:
        return as_tensor(value)
    except TypeError:
        return None


def _on_one_device(operation: str, left: Any, right: Any, a: Any, b: Any) -> tuple[Any, Any, torch.device]:
    """Numbers and lists go where the other operand is."""
    target = b._values.device if a._values.device.type == "cpu" else a._values.device
    for given, made in ((left, a), (right, b)):
        if made._values.device != target and not isinstance(given, int | float | list | tuple | range):
            raise ValueError(f"arithmetic {_SYMBOLS[operation]}: Cannot mix GPU and CPU inputs.")
    return a.to_device(target), b.to_device(target), target


def _result_type(operation: str, left: torch.dtype, right: torch.dtype) -> torch.dtype:
    dtype = types.promote(left, right)
    if dtype is torch.bool and operation != "mul":
        raise RuntimeError(f"arithmetic {_SYMBOLS[operation]}: the operands cannot be a boolean both; use &, | or ^")
    return torch.float32 if operation == "truediv" and not dtype.is_floating_point else dtype


def _result_layout(operation: str, left: str | None, right: str | None) -> str | None:
    if left is None or right is None or left == right:
        return left or right
    if left.endswith(right):
        return left
    if right.endswith(left):
        return right
    raise RuntimeError(f'arithmetic {_SYMBOLS[operation]}: Layouts of subexpressions "{left}" and "{right}" do not match')


def _broadcast_shape(operation: str, a: Any, b: Any) -> list[int]:
    """The shape of the result's buffer: the number of samples, and what a dense sample and another one are broadcast to."""
    left, right = a._values.shape, b._values.shape
    size = None
    if type(a) is Batch:
        size, left = left[0], left[1:]
    if type(b) is Batch:
        if size is not None and size != right[0]:
            raise _wrong_size(operation, size, right[0])
        size, right = right[0], right[1:]
    if left != right and right:
        left = _broadcast_extents(operation, left, right)
    return [1 if size is None else size, *left]


def _wrong_size(operation: str, left: int, right: int) -> ValueError:
    return ValueError(f"arithmetic {_SYMBOLS[operation]}: Inconsistent batch size: {left} != {right}")


def _broadcast_extents(operation: str, left: Sequence[int], right: Sequence[int]) -> list[int]:
    ndim = max(len(left), len(right))
    pairs = zip((*(1,) * (ndim - len(left)), *left), (*(1,) * (ndim - len(right)), *right), strict=True)
    extents = []
    for x, y in pairs:
        if x != y and x != 1 and y != 1:
            raise RuntimeError(f"arithmetic {_SYMBOLS[operation]}: Can't broadcast shapes {tuple(left)} and {tuple(right)}")
        extents.append(y if x == 1 else x)
    return extents


def _unfilled_ragged(operation: str, a: Any, b: Any, dtype: torch.dtype, layout: str | None) -> Batch:
    if type(a) is Batch and type(b) is Batch and a.batch_size != b.batch_size:
        raise _wrong_size(operation, a.batch_size, b.batch_size)
    for one, other in ((a, b), (b, a)):
        if type(other) is not Batch and not other._values.shape:
            return new_batch(_native.empty(one._values.shape, dtype, one._values.device), one._shapes, layout)
    size = (a if type(a) is Batch else b).batch_size
    ndim = max(a.ndim, b.ndim)
    left, right = _rows(a, size, ndim), _rows(b, size, ndim)
    shapes = torch.where(left == 1, right, left)
    if not torch.compiler.is_compiling():  # there the kernel checks
        wrong = ((right != shapes) & (right != 1)).any(1)
        if bool(wrong.any()):
            i = int(wrong.to(torch.uint8).argmax())
            raise RuntimeError(
                f"arithmetic {_SYMBOLS[operation]}: Can't broadcast shapes {tuple(left[i].tolist())} and {tuple(right[i].tolist())} (sample_idx={i})"
            )
    return empty_packed(shapes.contiguous(), dtype, a._values.device, layout)


def _rows(value: Any, size: int, ndim: int) -> torch.Tensor:
    """The shapes of the samples, int64 (size, ndim), with ones in front."""
    if type(value) is Batch and value._shapes is not None:
        return torch.nn.functional.pad(value._shapes, (ndim - value._shapes.shape[1], 0), value=1)
    shape = value._values.shape[1:] if type(value) is Batch else value._values.shape
    return torch.tensor([[1] * (ndim - len(shape)) + list(shape)], dtype=torch.int64).expand(size, ndim)


def _aligned(value: Any, other: Any) -> torch.Tensor:
    """The values of a dense operand, with ones after the batch dimension where the other one's samples have more dimensions."""
    missing = other.ndim - value.ndim
    if type(value) is not Batch or missing <= 0:
        return value._values
    return value._values.reshape(value._values.shape[0], *(1,) * missing, *value._values.shape[1:])


# Torch has no arithmetic of its own for these; the lowest bits are the same.
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


def _formula(operation: str, left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    computed = _WIDER.get(dtype, dtype)
    return _FORMULAS[operation](left.to(computed), right.to(computed)).to(dtype)


Operand.arithmetic = staticmethod(arithmetic)
_operator = OPERATORS["arithmetic"] = Operator("arithmetic", arithmetic, None, None, 2, 2, {}, _kernel)
