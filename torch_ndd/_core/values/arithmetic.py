# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on tensors and batches: ``+ - * / // % ** & | ^ ~ << >>``, comparisons and the functions of ``ndd.math``.

Not an ``@operator``: the operands have equal roles, anything numeric is accepted, and ``batch + 1`` on small data should cost little more than the
call of its kernel.
"""

from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import Self

from .. import native
from ..native import CPU
from ..native.graph_results import result
from ..work.cuda_work import on_stream, stream_work
from ..work.pending import SAME_SAMPLE, Pending
from ..work.sources import UNKNOWN, with_source
from .dispatch import output, run, submit
from .elementwise import Plan, label, on_cpu, plan
from .extents import Fixed
from .foreign import imported
from .operand import Operand, loop
from .pipeline_values import unwrap

_kernel = native.kernel("arithmetic")


class Arithmetic(Operand):
    """An operand with ``+ - * / // % ** & | ^ ~ << >>``, comparisons and ``abs``. Operations between a Tensor and a Batch return a Batch."""

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Self:
        return arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Self:
        return arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> Self:
        return arithmetic("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return arithmetic("truediv", other, self)

    def __floordiv__(self, other: Any) -> Self:
        return arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> Self:
        return arithmetic("mod", self, other)

    def __rmod__(self, other: Any) -> Self:
        return arithmetic("mod", other, self)

    def __pow__(self, other: Any) -> Self:
        return arithmetic("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return arithmetic("pow", other, self)

    def __and__(self, other: Any) -> Self:
        return arithmetic("and", self, other)

    def __rand__(self, other: Any) -> Self:
        return arithmetic("and", other, self)

    def __or__(self, other: Any) -> Self:
        return arithmetic("or", self, other)

    def __ror__(self, other: Any) -> Self:
        return arithmetic("or", other, self)

    def __xor__(self, other: Any) -> Self:
        return arithmetic("xor", self, other)

    def __rxor__(self, other: Any) -> Self:
        return arithmetic("xor", other, self)

    def __lshift__(self, other: Any) -> Self:
        return arithmetic("lshift", self, other)

    def __rlshift__(self, other: Any) -> Self:
        return arithmetic("lshift", other, self)

    def __rshift__(self, other: Any) -> Self:
        return arithmetic("rshift", self, other)

    def __rrshift__(self, other: Any) -> Self:
        return arithmetic("rshift", other, self)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return arithmetic("eq", self, other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return arithmetic("ne", self, other)

    def __lt__(self, other: Any) -> Self:
        return arithmetic("lt", self, other)

    def __le__(self, other: Any) -> Self:
        return arithmetic("le", self, other)

    def __gt__(self, other: Any) -> Self:
        return arithmetic("lt", other, self)

    def __ge__(self, other: Any) -> Self:
        return arithmetic("le", other, self)

    def __neg__(self) -> Self:
        return arithmetic("neg", self)

    def __pos__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        return arithmetic("invert", self)

    def __abs__(self) -> Self:
        return arithmetic("abs", self)


def arithmetic(operation: str, *operands: Any) -> Any:
    """Compute ``operation`` on operands, at least one of which is a Tensor or a Batch; see :func:`torch_ndd.ops.math.arithmetic.arithmetic`."""
    compiling = torch.compiler.is_compiling()
    if not compiling and (recorder := loop.recorder) is not None:
        return recorder.call("arithmetic", _perform, (operation, *operands), {}, False)
    return computed(operation, operands, compiling)


def _perform(inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    operation, *operands = inputs
    return computed(operation, operands, False)


def computed(operation: str, operands: Sequence[Any], compiling: bool) -> Any:
    """Return the result; a plain :class:`Operand` if no operand is a Tensor or a Batch."""
    values = [_operand(one, compiling) for one in operands]
    for one in values:
        if one is None:
            return _refused(operation, operands, values)
    first = values[0]
    target = first.buffer.device
    for one in values:
        if one.buffer.device != target:
            values, target = _on_one_device(operation, operands, values)
            break
    found = plan(operation, [one.buffer.dtype for one in values])
    like, layout, ragged, external = first, None, False, False
    for one in values:
        if type(like) is Operand:
            like = one
        if one._layout is not None:
            layout = _common_layout(operation, layout, one._layout)
        if one._is_batch:
            like = one
            ragged = ragged or one.ragged_shapes is not None
        external = external or one.caller_owned
    # Inductor stores bools one at a time: x < 100 takes 20 ms where the kernel takes 0.3.
    if compiling and not ragged and found.formula is not None and not (found.out is torch.bool and on_cpu(values[0].buffer)):
        made = result(found.formula(*_aligned(values)))
        return like._result(made if like._is_batch else made[None], None, layout, None, None)

    if ragged:
        out, shapes, fixed = _unfilled_ragged(operation, values, found)
    else:
        out, shapes, fixed = output(native.empty, _broadcast_shape(operation, values), found.out, target), None, None
    arguments = (*_buffers(values), found.operation, found.type, out, shapes)
    if compiling:
        _kernel(*arguments)
        return like._result(out, shapes, layout, None, fixed)
    if (sources := like.sources) is UNKNOWN and like is not first:
        sources = _sources_of(values, like._is_batch)
    if target == CPU:
        reads = [(pending, one._sample) for one in values if (pending := one._unfinished()) is not None]
        pending = submit(_kernel, arguments, reads, external, sources)
        if reads and pending is not None:
            _forget_fused(pending, [read for read, _ in reads])
    else:
        pending = run(_kernel, arguments, [(one, SAME_SAMPLE) for one in values], out)
    made = like._result(out, shapes, layout, pending, fixed)
    if sources is not UNKNOWN:
        made.sources = sources
    return made


def _sources_of(values: Sequence[Any], of_batch: bool) -> Sequence[str]:
    """Return the sources of the first operand that has some: of one that is a batch if the result is one."""
    return next((one.sources for one in values if one.sources is not UNKNOWN and one._is_batch == of_batch), UNKNOWN)


def _forget_fused(pending: Pending, reads: Sequence[Pending]) -> None:
    """Make a result that computes operands inline depend on their inputs instead of on them.

    The program may drop such operands, which then need not be computed.
    """
    fused = native.fused(pending.handle)
    if fused:
        parts = ([read] if not fused >> k & 1 else read._reads for k, read in enumerate(reads))
        pending._reads = [read for part in parts for read in part]


def _buffers(values: Sequence[Any]) -> list[torch.Tensor | None]:
    """Return values and shapes of three operands."""
    buffers: list[torch.Tensor | None] = []
    for value in values:
        if value._is_batch:
            buffers += value.buffer, value.ragged_shapes
        else:
            buffers += value.buffer[None] if value._row is None else value._row, None
    return buffers + [None] * (6 - len(buffers))


_DTYPES = {int: torch.int32, float: torch.float32, bool: torch.bool}
_numbers: dict[tuple[type, Any], Operand] = {}


def _operand(value: Any, compiling: bool) -> Any:
    """Return a value as an operand; None if it is not numeric."""
    if isinstance(value, Operand):
        return value.settle() if compiling else value
    kind = type(value)
    if kind in _DTYPES:
        if compiling:
            return _constant(torch.full((), value, dtype=_DTYPES[kind]))
        key = (kind, value if value else repr(value))  # 0.0 and -0.0 are equal
        made = _numbers.get(key)
        if made is None:
            if kind is int and not -(2**31) <= value < 2**31:
                raise OverflowError(f"arithmetic: {value} is out of range for int32.")
            if len(_numbers) > 1000:
                _numbers.clear()
            made = _numbers[key] = _constant(torch.tensor(value, dtype=_DTYPES[kind]))
            made._row = made.buffer[None]
        return made
    if value is None:
        raise ValueError("arithmetic: None is no operand")
    if isinstance(value, str | bytes):
        raise RuntimeError(f"arithmetic: {value!r} is no operand")
    if isinstance(unwrapped := unwrap(value), Operand):
        return unwrapped
    if compiling and kind in (list, tuple):  # as_tensor uses NumPy, which is not allowed in a graph
        made = torch.tensor(value)
        return _constant(made.to(torch.int32) if made.dtype is torch.int64 else made)
    try:
        values, external = imported(value, wide=False)
    except TypeError:
        return None
    return _constant(values, external)


def _constant(values: torch.Tensor, external: bool = False) -> Operand:
    return Operand(values, None, None, external)


def _refused(operation: str, operands: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return NotImplemented, so that Python tries the other operand, or raise TypeError.

    TypeError is for functions, and for ``==``, where Python would fall back to ``is``.
    """
    if len(values) == 2 and operation not in ("eq", "ne") and any(isinstance(one, Operand) for one in operands):
        return NotImplemented
    wrong = next(given for given, made in zip(operands, values, strict=True) if made is None)
    raise TypeError(f"{label(operation)}: Unexpected element type {type(wrong).__name__}: an operand is a Tensor, a Batch, numbers or an array")


def _on_one_device(operation: str, operands: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], torch.device]:
    """Move numbers and lists to the device of the other operands."""
    target = next(one.buffer.device for one in values if one.buffer.device.type != "cpu")
    for given, made in zip(operands, values, strict=True):
        if made.buffer.device != target and not isinstance(given, int | float | list | tuple | range):
            raise ValueError(f"{label(operation)}: Cannot mix GPU and CPU inputs.")
    return [_placed(given, made, target) for given, made in zip(operands, values, strict=True)], target


def _placed(given: Any, made: Any, target: torch.device) -> Any:
    if type(made) is not Operand:
        return made.to_device(target)
    return _number_on_gpu(given, made, target) if type(given) in _DTYPES else _constant(made.buffer.to(target))


def _number_on_gpu(number: Any, made: Operand, target: torch.device) -> Operand:
    """Return a number in a GPU's memory, where it stays: for a copy from the host the host would wait, and a CUDA graph cannot have one."""
    if torch.compiler.is_compiling():
        return _constant(torch.full((), number, dtype=made.buffer.dtype, device=target))
    if (found := made._on_gpus.get(target)) is not None:
        return found
    with on_stream(target):
        values = torch.full((), number, dtype=made.buffer.dtype, device=target)
        found = Operand(values, None, stream_work([values]), False)
        found._row = values[None]
    if not torch.cuda.is_current_stream_capturing():  # memory of a graph is the graph's
        made._on_gpus = {**made._on_gpus, target: found}
    return found


def _common_layout(operation: str, left: str | None, right: str) -> str:
    if left is None or right.endswith(left):
        return right
    if left.endswith(right):
        return left
    raise RuntimeError(f'{label(operation)}: Layouts of subexpressions "{left}" and "{right}" do not match')


def _broadcast_shape(operation: str, values: Sequence[Any]) -> list[int]:
    """Return the shape of the result's buffer: the number of samples, and the broadcast shape of dense samples."""
    size, extents = None, ()
    for one in values:
        shape = one.buffer.shape
        if one._is_batch:
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


def _unfilled_ragged(operation: str, values: Sequence[Any], found: Plan) -> tuple[torch.Tensor, torch.Tensor | None, Fixed | None]:
    """Return the buffer of a result, the shapes of its samples and what they share."""
    batches = [one for one in values if one._is_batch]
    size, device = batches[0].batch_size, batches[0].buffer.device
    for one in batches:
        if one.batch_size != size:
            raise _wrong_size(operation, size, one.batch_size)
    if len(batches) == 1 and all(one is batches[0] or not one.buffer.shape for one in values):
        one = batches[0]
        return output(native.empty, one.buffer.shape, found.out, device), one.ragged_shapes, one.shared_extents
    ndim = max(one.ndim for one in values)
    rows = [_rows(one, size, ndim) for one in values]
    shapes = rows[0]
    for right in rows[1:]:
        left, shapes = shapes, torch.where(shapes == 1, right, shapes)
        if torch.compiler.is_compiling():  # where the kernel checks
            continue
        wrong = ((right != shapes) & (right != 1)).any(1)
        if bool(wrong.any()):
            i = int(wrong.to(torch.uint8).argmax())
            text = f"{label(operation)}: Can't broadcast shapes {tuple(left[i].tolist())} and {tuple(right[i].tolist())} (sample_idx={i})"
            raise RuntimeError(with_source(text, _sources_of(values, True)))
    return *output(native.unfilled, shapes.contiguous(), found.out, device), _fixed(values, ndim)


def _fixed(values: Sequence[Any], ndim: int) -> tuple[int | None, ...]:
    """Return the extents that all samples of a result share: where those of all operands are known, or one that is not 1."""
    made: list[int | None] = [1] * ndim
    for one in values:
        known = one.buffer.shape if not one._is_batch else one.buffer.shape[1:] if one.ragged_shapes is None else one.shared_extents
        for axis in range(ndim):
            extent = None if known is None else 1 if axis < ndim - one.ndim else known[axis - ndim]
            if made[axis] == 1 or (made[axis] is None and extent not in (None, 1)):
                made[axis] = extent
    return tuple(made)


def _rows(value: Any, size: int, ndim: int) -> torch.Tensor:
    """Return the shapes of the samples, int64 (size, ndim), with ones prepended."""
    if value._is_batch and value.ragged_shapes is not None:
        return torch.nn.functional.pad(value.ragged_shapes, (ndim - value.ragged_shapes.shape[1], 0), value=1)
    shape = value.buffer.shape[1:] if value._is_batch else value.buffer.shape
    return torch.tensor([[1] * (ndim - len(shape)) + list(shape)], dtype=torch.int64).expand(size, ndim)


def _aligned(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the values of dense operands, with ones after the batch dimension if samples of others have more dimensions."""
    ndim = max(one.ndim for one in values)
    aligned = []
    for one in values:
        tensor = one.buffer
        if one._is_batch and one.ndim < ndim:
            tensor = tensor.reshape(tensor.shape[0], *(1,) * (ndim - one.ndim), *tensor.shape[1:])
        aligned.append(tensor)
    return aligned
