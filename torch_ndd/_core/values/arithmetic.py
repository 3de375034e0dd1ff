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
from ..native.graph_results import mark_result
from ..native.tracing import is_compiling
from ..native.transforms import in_transform, is_graph_in_transform
from ..work.cuda_work import on_stream, stream_work
from ..work.pending import SAME_SAMPLE, Pending
from ..work.sources import UNKNOWN
from .dispatch import output, run, submit
from .elementwise import Computation, find_computation, label, on_cpu
from .extents import SharedExtents
from .foreign import import_values
from .native_plan import FITS
from .operand import Operand, loop, unwrap
from .python_operators import PythonOperators
from .repeated_kernel import RepeatedKernel
from .transformed import call_outside

_kernel = RepeatedKernel(native.kernel("arithmetic"))


def arithmetic(operation: str, *operands: Any) -> Any:
    """Compute ``operation`` on operands, at least one of which is a Tensor or a Batch; see :func:`torch_ndd.ops.math.arithmetic.arithmetic`."""
    # Looked up once: in a graph it is a constant, and outside it costs a call.
    compiling = is_compiling()
    if is_graph_in_transform() if compiling else in_transform():
        return call_outside(label(operation), lambda inputs, _: compute(operation, inputs, is_compiling()), operands, {})
    if not compiling and (recorder := loop.recorder) is not None:
        return recorder.call("arithmetic", _perform, (operation, *operands), {}, False)
    return compute(operation, operands, compiling)


class Arithmetic(PythonOperators, Operand):
    """An operand with ``+ - * / // % ** & | ^ ~ << >>``, comparisons and ``abs``. Operations between a Tensor and a Batch return a Batch."""

    _apply = _reflect = staticmethod(arithmetic)

    def __neg__(self) -> Self:
        return arithmetic("neg", self)

    def __pos__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        return arithmetic("invert", self)

    def __abs__(self) -> Self:
        return arithmetic("abs", self)


def _perform(inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    operation, *operands = inputs
    return compute(operation, operands, False)


def compute(operation: str, operands: Sequence[Any], compiling: bool) -> Any:
    """Return the result; a plain :class:`Operand` if no operand is a Tensor or a Batch."""
    values = [_to_operand(operand, compiling) for operand in operands]
    for value in values:
        if value is None:
            return _refuse(operation, operands, values)
    first = values[0]
    target = first.buffer.device
    for value in values:
        if value.buffer.device != target:
            values, target = _on_one_device(operation, operands, values)
            break
    computation = find_computation(operation, [value.buffer.dtype for value in values], compiling)
    # The result is made like the first operand, unless only another has a type of its own, and like a Batch if there is one.
    like, layout, ragged, caller_owned = first, None, False, False
    for value in values:
        # A plain Operand is a number or an array; the result should have the type that the program works with.
        if type(like) is Operand:
            like = value
        if value._layout is not None:
            layout = _common_layout(operation, layout, value._layout)
        if value._is_batch:
            like = value
            ragged = ragged or value.ragged_shapes is not None
        caller_owned = caller_owned or value.caller_owned
    # Inductor stores bools one at a time: x < 100 takes 20 ms where the kernel takes 0.3.
    if compiling and not ragged and computation.formula is not None and not (computation.out is torch.bool and on_cpu(values[0].buffer)):
        result = mark_result(computation.formula(*_align(values)))
        result = result if like._is_batch else result[None]
        return like._result(result, None, _fitting_layout(layout, result.dim() - 1), None, None)

    # The first operand's sources come before those of others; an operand of other kind than the result cannot have them.
    sources = UNKNOWN if compiling else like.sources
    if sources is UNKNOWN and like is not first and not compiling:
        sources = _sources_of(values, like._is_batch)
    on_host = target == CPU
    tensors = _kernel_tensors(values)
    launched = key = None
    if not (ragged or compiling or on_host):
        key = _find_key(operation, values, target)
        launched = _kernel.launch_again(key, target.index, values, tensors[: 2 * len(values) : 2], sources)
    if launched is not None:
        out, pending = launched
        shapes, shared_extents = None, None
    else:
        if ragged:
            out, shapes, shared_extents = _allocate_ragged(operation, values, computation)
        else:
            out, shapes, shared_extents = output(native.empty, _broadcast_shape(operation, values), computation.out, target), None, None
        arguments = (*tensors, computation.operation, computation.type, out, shapes)
        pending = None
        if compiling:
            _kernel.kernel(*arguments)
        elif on_host:
            reads = [(pending, value._sample) for value in values if (pending := value._pending_work()) is not None]
            pending = submit(_kernel.kernel, arguments, reads, caller_owned, sources)
            if reads and pending is not None:
                _skip_fused(pending, [read for read, _ in reads])
        else:
            pending = run(_kernel.kernel, arguments, [(value, SAME_SAMPLE) for value in values], out)
            if key is not None:
                fits = {2 * k: FITS["any_rows" if value._is_batch else "equal_shape"] for k, value in enumerate(values)}
                _kernel.learn(key, arguments, len(arguments) - 2, fits)
    if layout is not None:
        layout = _fitting_layout(layout, out.dim() - 1 if shapes is None else shapes.shape[1])
    result = like._result(out, shapes, layout, pending, shared_extents)
    if sources is not UNKNOWN:
        result.sources = sources
    return result


def _kernel_tensors(values: Sequence[Any]) -> list[torch.Tensor | None]:
    """Return values and shapes of three operands, as the kernel takes them."""
    tensors: list[torch.Tensor | None] = []
    for value in values:
        # The kernel takes batches only: a Tensor is one of a single sample, which is broadcast.
        if value._is_batch:
            tensors += value.buffer, value.ragged_shapes
        else:
            tensors += value.buffer[None] if value._row is None else value._row, None
    return tensors + [None] * (6 - len(tensors))


def _find_key(operation: str, values: Sequence[Any], device: torch.device) -> tuple[Any, ...]:
    """Return what a plan depends on: everything but the number of samples. Numbers are operands too: a plan serves all numbers of a type."""
    key = [operation, device.index]
    for value in values:
        buffer = value.buffer
        key += (True, buffer.dtype, buffer.shape[1:]) if value._is_batch else (False, buffer.dtype, buffer.shape)
    return tuple(key)


def _sources_of(values: Sequence[Any], of_batch: bool) -> Sequence[str]:
    """Return the sources of the first operand with known sources: of a Batch for a Batch, else of a Tensor."""
    return next((value.sources for value in values if value.sources is not UNKNOWN and value._is_batch == of_batch), UNKNOWN)


def _skip_fused(pending: Pending, reads: Sequence[Pending]) -> None:
    """Let a result whose kernel computes pending operands itself depend on their inputs instead of on them.

    The program may drop such operands, which then need not be computed.
    """
    fused = native.fused(pending.handle)
    if fused:
        parts = ([read] if not fused >> k & 1 else read._reads for k, read in enumerate(reads))
        pending._reads = [read for part in parts for read in part]


_DTYPES = {int: torch.int32, float: torch.float32, bool: torch.bool}
_numbers: dict[tuple[type, Any], Operand] = {}


def _to_operand(value: Any, compiling: bool) -> Any:
    """Return a value as an operand; None if it is not numeric."""
    if isinstance(value, Operand):
        return value.settle() if compiling else value
    kind = type(value)
    if kind in _DTYPES:
        if compiling:
            return _constant(torch.full((), value, dtype=_DTYPES[kind], device="cpu"))
        # Numbers of a program recur in every iteration, and their tensors are kept. True and 1 are equal too, so the key has the type.
        key = (kind, value if value else repr(value))  # 0.0 and -0.0 are equal
        operand = _numbers.get(key)
        if operand is None:
            if kind is int and not -(2**31) <= value < 2**31:
                raise OverflowError(f"arithmetic: {value} is out of range for int32.")
            # A program that counts up would fill the memory.
            if len(_numbers) > 1000:
                _numbers.clear()
            operand = _numbers[key] = _constant(torch.tensor(value, dtype=_DTYPES[kind], device="cpu"))
            operand._row = operand.buffer[None]
        return operand
    if value is None:
        raise ValueError("arithmetic: an operand must be a Tensor, a Batch, numbers or an array, got None")
    if isinstance(value, str | bytes):
        raise RuntimeError(f"arithmetic: an operand must be a Tensor, a Batch, numbers or an array, got {value!r}")
    if isinstance(unwrapped := unwrap(value), Operand):
        return unwrapped
    if compiling and kind in (list, tuple):  # as_tensor uses NumPy, which is not allowed in a graph
        operand = torch.tensor(value, device="cpu")
        return _constant(operand.to(torch.int32) if operand.dtype is torch.int64 else operand)
    try:
        values, caller_owned = import_values(value, wide=False)
    except TypeError:
        return None
    return _constant(values, caller_owned)


def _constant(values: torch.Tensor, caller_owned: bool = False) -> Operand:
    return Operand(values, None, None, caller_owned)


def _refuse(operation: str, operands: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return NotImplemented, so Python tries the other operand, or raise TypeError.

    TypeError is for functions, and for ``==``, where Python would fall back to ``is``.
    """
    if len(values) == 2 and operation not in ("eq", "ne") and any(isinstance(operand, Operand) for operand in operands):
        return NotImplemented
    wrong = next(operand for operand, value in zip(operands, values, strict=True) if value is None)
    raise TypeError(f"{label(operation)}: Unexpected element type {type(wrong).__name__}: an operand is a Tensor, a Batch, numbers or an array")


# Numbers and lists have no device of their own; arrays and tensors do, and moving those silently would hide slow code.
_WITHOUT_DEVICE = (int, float, list, tuple, range)


def _on_one_device(operation: str, operands: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], torch.device]:
    """Move numbers and lists to the device of the other operands."""
    target = CPU
    for value in values:
        if (target := value.buffer.device) != CPU:
            break
    placed = []
    for operand, value in zip(operands, values, strict=True):
        if value.buffer.device == target:
            placed.append(value)
        elif type(operand) in _DTYPES:
            placed.append(value._on_gpus.get(target) or _number_on_gpu(operand, value, target))
        elif isinstance(operand, _WITHOUT_DEVICE):
            placed.append(_constant(value.buffer.to(target)))
        else:
            raise ValueError(f"{label(operation)}: Cannot mix GPU and CPU inputs.")
    return placed, target


def _number_on_gpu(number: Any, operand: Operand, target: torch.device) -> Operand:
    """Return a number in a GPU's memory, where it stays: the host would wait for a copy, and a CUDA graph cannot contain one."""
    if is_compiling():
        return _constant(torch.full((), number, dtype=operand.buffer.dtype, device=target))
    with on_stream(target):
        values = torch.full((), number, dtype=operand.buffer.dtype, device=target)
        found = Operand(values, None, stream_work([values]), False)
        found._row = values[None]
    if not torch.cuda.is_current_stream_capturing():  # memory of a graph is the graph's
        operand._on_gpus = {**operand._on_gpus, target: found}
    return found


def _common_layout(operation: str, left: str | None, right: str) -> str:
    # Layouts match from their ends, like the extents in broadcasting: "C" fits "HWC".
    if left is None or right.endswith(left):
        return right
    if left.endswith(right):
        return left
    raise RuntimeError(f'{label(operation)}: Layouts of subexpressions "{left}" and "{right}" do not match')


def _fitting_layout(layout: str | None, ndim: int) -> str | None:
    """Return the layout, or None if an operand without one has more dimensions: nothing names the others."""
    return layout if layout is not None and len(layout) == ndim else None


def _broadcast_shape(operation: str, values: Sequence[Any]) -> list[int]:
    """Return the shape of the result's buffer: the number of samples, and the broadcast shape of dense samples."""
    size, extents = None, ()
    for value in values:
        shape = value.buffer.shape
        if value._is_batch:
            if size is not None and size != shape[0]:
                raise _wrong_size(operation, size, shape[0])
            size, shape = shape[0], shape[1:]
        # The usual case, equal shapes, is found without a loop.
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


def _allocate_ragged(
    operation: str, values: Sequence[Any], computation: Computation
) -> tuple[torch.Tensor, torch.Tensor | None, SharedExtents | None]:
    """Return the buffer of a result, the shapes of its samples and the extents that they share."""
    batches = [value for value in values if value._is_batch]
    size, device = batches[0].batch_size, batches[0].buffer.device
    for value in batches:
        if value.batch_size != size:
            raise _wrong_size(operation, size, value.batch_size)
    # Numbers do not change the shapes, so the result shares them and need not look at each sample.
    if len(batches) == 1 and all(value is batches[0] or not value.buffer.shape for value in values):
        value = batches[0]
        return output(native.empty, value.buffer.shape, computation.out, device), value.ragged_shapes, value.shared_extents
    ndim = max(value.ndim for value in values)
    rows = [_shape_rows(value, size, ndim) for value in values]
    shapes = rows[0]
    for right in rows[1:]:
        left, shapes = shapes, torch.where(shapes == 1, right, shapes)
        if is_compiling():  # where the kernel checks
            continue
        wrong = ((right != shapes) & (right != 1)).any(1)
        if bool(wrong.any()):
            i = int(wrong.to(torch.uint8).argmax())
            # The files of all operands: any of them may be the one with a wrong shape.
            known = [value.sources for value in values if value._is_batch and value.sources is not UNKNOWN]
            files = dict.fromkeys(sources[i] for sources in known if i < len(sources) and sources[i])
            place = ", ".join([f"sample_idx={i}", *([" and ".join(files)] if files else [])])
            raise RuntimeError(f"{label(operation)}: Can't broadcast shapes {tuple(left[i].tolist())} and {tuple(right[i].tolist())} ({place})")
    return *output(native.allocate_samples, shapes.contiguous(), computation.out, device), _find_shared_extents(values, ndim)


def _find_shared_extents(values: Sequence[Any], ndim: int) -> tuple[int | None, ...]:
    """Return the extents that all samples of a result share: where those of all operands are known, or one that is not 1."""
    shared: list[int | None] = [1] * ndim
    for value in values:
        known = value.buffer.shape if not value._is_batch else value.buffer.shape[1:] if value.ragged_shapes is None else value.shared_extents
        for axis in range(ndim):
            extent = None if known is None else 1 if axis < ndim - value.ndim else known[axis - ndim]
            if shared[axis] == 1 or (shared[axis] is None and extent not in (None, 1)):
                shared[axis] = extent
    return tuple(shared)


def _shape_rows(value: Any, size: int, ndim: int) -> torch.Tensor:
    """Return the shapes of the samples, int64 (size, ndim), with ones prepended."""
    if value._is_batch and value.ragged_shapes is not None:
        return torch.nn.functional.pad(value.ragged_shapes, (ndim - value.ragged_shapes.shape[1], 0), value=1)
    shape = value.buffer.shape[1:] if value._is_batch else value.buffer.shape
    # One row that is repeated without memory.
    return torch.tensor([[1] * (ndim - len(shape)) + list(shape)], dtype=torch.int64, device="cpu").expand(size, ndim)


def _align(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the values of dense operands, with ones after the batch dimension if samples of others have more dimensions."""
    ndim = max(value.ndim for value in values)
    aligned = []
    for value in values:
        tensor = value.buffer
        if value._is_batch and value.ndim < ndim:
            tensor = tensor.reshape(tensor.shape[0], *(1,) * (ndim - value.ndim), *tensor.shape[1:])
        aligned.append(tensor)
    return aligned
