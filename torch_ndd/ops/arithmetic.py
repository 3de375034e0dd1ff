# SPDX-License-Identifier: Apache-2.0
"""``+ - * / // % ** & | ^ ~ << >>``, comparisons and the functions of ``ndd.math`` on tensors and batches.

Not an ``@operator``: the operands play equal parts, anything that looks like numbers is one, and ``batch + 1`` on small data should cost little more
than the call of its kernel.
"""

from collections.abc import Sequence
from typing import Any

import torch

from .. import _native
from .._batch import Batch, empty_packed, new_batch
from .._operand import Operand, loop
from .._operator import OPERATORS, Operator
from .._queue import launch, queue
from .._stream import Pending
from .._tensor import SAME_SAMPLE, Tensor, as_tensor, new_tensor
from ._elementwise import Plan, label, plan
from ._formulas import on_cpu

_kernel = _native.define(
    "arithmetic",
    [
        ("Tensor", "first"),
        ("Tensor?", "first_shapes"),
        ("Tensor?", "second"),
        ("Tensor?", "second_shapes"),
        ("Tensor?", "third"),
        ("Tensor?", "third_shapes"),
        ("int", "operation"),
        ("int", "type"),
        ("Tensor(a!)", "out"),
        ("Tensor?", "out_shapes"),
    ],
)


def arithmetic(operation: str, *operands: Any) -> Any:
    """What ``operation`` makes of the elements of its operands, for instance ``arithmetic("add", left, right)``.

    An operand is a Tensor, a Batch, a number, a list or an array. The names are those of the methods (``add``, ``floordiv``, ``lt``, ``neg``, ...)
    and of the functions of :mod:`torch_ndd.math`.

    The type is that of :func:`torch_ndd.types.promote`, with a Python int as int32 and a float as float32. Comparisons give bool; ``/`` and the
    functions of real numbers make float32 of integers. Integers wrap around, ``//`` and ``%`` on them are those of C (toward zero), an int to a
    negative power is 0, and shifts count modulo the width. ``//`` on floats is ``/``. float16 and bfloat16 are computed in float32 and rounded.
    Shapes are broadcast as in NumPy, sample by sample: what is no Batch meets every sample.

    Raises:
        ValueError: batches of different size, operands on different devices, division of integers by zero (on the CPU; on a GPU it gives 0).
        RuntimeError: shapes that cannot be broadcast, layouts of which none ends with the other, bools for numbers, floats for bits.
        OverflowError: an int that does not fit int32.

    >>> (batch([[1, 2], [3, 4, 5]]) * 2).tensors[1].torch()
    tensor([ 6,  8, 10], dtype=torch.int32)
    """
    compiling = torch.compiler.is_compiling()
    if not compiling and (recorder := loop.recorder) is not None:
        return recorder.call("arithmetic", _perform, (operation, *operands), {}, False)
    return _result(operation, operands, compiling)


def _perform(inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    operation, *operands = inputs
    return _result(operation, operands, False)


def _result(operation: str, operands: Sequence[Any], compiling: bool) -> Any:
    values = [_operand(one, compiling) for one in operands]
    if any(one is None for one in values):
        return _refused(operation, operands, values)
    first = values[0]
    target = first._values.device
    for one in values:
        if one._values.device != target:
            values, target = _on_one_device(operation, operands, values)
            break
    found = plan(operation, [one._values.dtype for one in values])
    layout, is_batch, ragged, external = None, False, False, False
    for one in values:
        if one._layout is not None:
            layout = _common_layout(operation, layout, one._layout)
        if type(one) is Batch:
            is_batch = True
            ragged = ragged or one._shapes is not None
        external = external or one._external
    # Inductor stores a bool at a time: x < 100 takes 20 ms where the kernel takes 0.3.
    if compiling and not ragged and found.formula is not None and not (found.out is torch.bool and on_cpu(values[0]._values)):
        computed = found.formula(*_aligned(values))
        return new_batch(computed, None, layout) if is_batch else new_tensor(computed, layout)

    if ragged:
        out = _unfilled_ragged(operation, values, found, layout)
    else:
        out = new_batch(_native.empty(_broadcast_shape(operation, values), found.out, target), None, layout)
    arguments = (*_buffers(values), found.operation, found.type, out._values, out._shapes)
    if compiling:
        _operator.kernel(*arguments)
    elif target.type == "cpu":
        reads = _reads(values)
        out._pending = queue(_operator.kernel, arguments, reads, external)
        if reads and out._pending is not None:
            _forget_inlined(out._pending, [pending for pending, _ in reads])
    else:
        out._pending = launch(_operator.kernel, arguments, [(one, SAME_SAMPLE) for one in values], out._values)
    return out if is_batch else new_tensor(out._values[0], layout, out._pending)


def _reads(values: Sequence[Any]) -> list[tuple[Pending, int]]:
    reads = []
    for value in values:
        pending = value._pending
        if pending is not None:
            if pending.done():
                value._pending = None
            else:
                reads.append((pending, value._sample if type(value) is Tensor else SAME_SAMPLE))
    return reads


def _forget_inlined(pending: Pending, reads: Sequence[Pending]) -> None:
    """Large operands that were still to be computed are computed on the way to the result: it depends on what they depend on, and not on them, whom
    nobody need compute when the program has let go of them."""
    inlined = _native.inlined(pending.handle)
    if inlined:
        parts = ([read] if not inlined >> k & 1 else read._reads for k, read in enumerate(reads))
        pending._reads = [read for part in parts for read in part]


def _buffers(values: Sequence[Any]) -> list[torch.Tensor | None]:
    """Values and shapes of three operands."""
    buffers: list[torch.Tensor | None] = []
    for value in values:
        if type(value) is Batch:
            buffers += value._values, value._shapes
        else:
            buffers += value._values[None], None
    return buffers + [None] * (6 - len(buffers))


_DTYPES = {int: torch.int32, float: torch.float32, bool: torch.bool}
_numbers: dict[tuple[type, Any], Tensor] = {}


def _operand(value: Any, compiling: bool) -> Any:
    """An operand as Tensor or Batch; None for what is no number at all."""
    kind = type(value)
    if kind is Batch or kind is Tensor:
        return value._settled() if compiling else value
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
    if isinstance(value, str | bytes):
        raise RuntimeError(f"arithmetic: {value!r} is no operand")
    if compiling and kind in (list, tuple):  # NumPy, which as_tensor takes, has no place in a graph
        made = torch.tensor(value)
        return new_tensor(made.to(torch.int32) if made.dtype is torch.int64 else made)
    try:
        return as_tensor(value)
    except TypeError:
        return None


def _refused(operation: str, operands: Sequence[Any], values: Sequence[Any]) -> Any:
    """Python may find a method of the other operand's class, but asks nobody else about a function, and takes ``==`` for ``is``."""
    if len(values) == 2 and operation not in ("eq", "ne") and any(isinstance(one, Operand) for one in operands):
        return NotImplemented
    wrong = next(given for given, made in zip(operands, values, strict=True) if made is None)
    raise TypeError(f"{label(operation)}: Unexpected element type {type(wrong).__name__}: an operand is a Tensor, a Batch, numbers or an array")


def _on_one_device(operation: str, operands: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], torch.device]:
    """Numbers and lists go where the other operands are."""
    target = next(one._values.device for one in values if one._values.device.type != "cpu")
    for given, made in zip(operands, values, strict=True):
        if made._values.device != target and not isinstance(given, int | float | list | tuple | range):
            raise ValueError(f"{label(operation)}: Cannot mix GPU and CPU inputs.")
    return [one.to_device(target) for one in values], target


def _common_layout(operation: str, left: str | None, right: str) -> str:
    if left is None or right.endswith(left):
        return right
    if left.endswith(right):
        return left
    raise RuntimeError(f'{label(operation)}: Layouts of subexpressions "{left}" and "{right}" do not match')


def _broadcast_shape(operation: str, values: Sequence[Any]) -> list[int]:
    """The shape of the result's buffer: the number of samples, and what a dense sample of each operand is broadcast to."""
    size, extents = None, ()
    for one in values:
        shape = one._values.shape
        if type(one) is Batch:
            if size is not None and size != shape[0]:
                raise _wrong_size(operation, size, shape[0])
            size, shape = shape[0], shape[1:]
        if shape and shape != extents:
            extents = _broadcast_extents(operation, extents, shape) if extents else shape
    return [1 if size is None else size, *extents]


def _wrong_size(operation: str, left: int, right: int) -> ValueError:
    return ValueError(f"{label(operation)}: Inconsistent batch size: {left} != {right}")


def _broadcast_extents(operation: str, left: Sequence[int], right: Sequence[int]) -> list[int]:
    ndim = max(len(left), len(right))
    pairs = zip((*(1,) * (ndim - len(left)), *left), (*(1,) * (ndim - len(right)), *right), strict=True)
    extents = []
    for x, y in pairs:
        if x != y and x != 1 and y != 1:
            raise RuntimeError(f"{label(operation)}: Can't broadcast shapes {tuple(left)} and {tuple(right)}")
        extents.append(y if x == 1 else x)
    return extents


def _unfilled_ragged(operation: str, values: Sequence[Any], found: Plan, layout: str | None) -> Batch:
    batches = [one for one in values if type(one) is Batch]
    size, device = batches[0].batch_size, batches[0]._values.device
    for one in batches:
        if one.batch_size != size:
            raise _wrong_size(operation, size, one.batch_size)
    if len(batches) == 1 and all(one is batches[0] or not one._values.shape for one in values):
        one = batches[0]
        return new_batch(_native.empty(one._values.shape, found.out, device), one._shapes, layout, fixed=one._fixed)
    ndim = max(one.ndim for one in values)
    rows = [_rows(one, size, ndim) for one in values]
    shapes = rows[0]
    for right in rows[1:]:
        left, shapes = shapes, torch.where(shapes == 1, right, shapes)
        if torch.compiler.is_compiling():  # there the kernel checks
            continue
        wrong = ((right != shapes) & (right != 1)).any(1)
        if bool(wrong.any()):
            i = int(wrong.to(torch.uint8).argmax())
            raise RuntimeError(
                f"{label(operation)}: Can't broadcast shapes {tuple(left[i].tolist())} and {tuple(right[i].tolist())} (sample_idx={i})"
            )
    return empty_packed(shapes.contiguous(), found.out, device, layout, _fixed(values, ndim))


def _fixed(values: Sequence[Any], ndim: int) -> tuple[int | None, ...]:
    """The extents of a result that all its samples share: where those of the operands are known, and where one that is not 1 is."""
    made: list[int | None] = [1] * ndim
    for one in values:
        known = one._values.shape if type(one) is not Batch else one._values.shape[1:] if one._shapes is None else one._fixed
        for axis in range(ndim):
            extent = None if known is None else 1 if axis < ndim - one.ndim else known[axis - ndim]
            if made[axis] == 1 or (made[axis] is None and extent not in (None, 1)):
                made[axis] = extent
    return tuple(made)


def _rows(value: Any, size: int, ndim: int) -> torch.Tensor:
    """The shapes of the samples, int64 (size, ndim), with ones in front."""
    if type(value) is Batch and value._shapes is not None:
        return torch.nn.functional.pad(value._shapes, (ndim - value._shapes.shape[1], 0), value=1)
    shape = value._values.shape[1:] if type(value) is Batch else value._values.shape
    return torch.tensor([[1] * (ndim - len(shape)) + list(shape)], dtype=torch.int64).expand(size, ndim)


def _aligned(values: Sequence[Any]) -> list[torch.Tensor]:
    """The values of dense operands, with ones after the batch dimension where the samples of others have more dimensions."""
    ndim = max(one.ndim for one in values)
    aligned = []
    for one in values:
        tensor = one._values
        if type(one) is Batch and one.ndim < ndim:
            tensor = tensor.reshape(tensor.shape[0], *(1,) * (ndim - one.ndim), *tensor.shape[1:])
        aligned.append(tensor)
    return aligned


Operand.arithmetic = staticmethod(arithmetic)
_operator = OPERATORS["arithmetic"] = Operator("arithmetic", arithmetic, None, None, 2, 2, {}, _kernel)
