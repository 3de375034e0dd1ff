# SPDX-License-Identifier: Apache-2.0
"""Repeated calls: from the fourth equal call on, an operator runs a plan, without its body and without the checks that its earlier calls have passed.

A plan is a kernel call that native code keeps (``ndd::again``, csrc/ndd/stream/repeat.cpp), built from the record of a launch, and run on other
tensors. The calls of programs (:class:`OperatorCalls`), those of pipelines (:class:`BoundOperator`) and functionals (functions.py) share one cache.

A program has cold caches at its next call, because of the threads that decode, or of a model's step. Each Python function that is not called then
saves 5 to 10 us, each attribute of a tensor that is not read up to 20: ``flip`` of small images took 250 us, repeated 118, 93 of them in
``ndd::again``, the only call of native code that remains.
"""

import ctypes
import enum
import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import profiler

from .. import native
from ..context.context import EvalMode, current_mode
from ..context.device import DeviceLike
from ..context.streams import launch_stream
from ..process import shutdown
from ..values.batch import Batch, new_batch
from ..values.dispatch import relaunch, resubmit
from ..work.cuda_work import StreamWork, is_queued, on_stream
from ..work.pending import Pending, finish_call
from ..work.sources import UNKNOWN
from .arguments import Call, Role, one_per_sample, prepare_argument
from .call import perform, perform_with_constants, prepare_constants
from .definition import Operator, Record, Redraw

MAX_PLANS = 4096  # more keys come from shapes or arguments that change with each call
_MAX_SHAPES = 8  # plans chained under a key, which native code tries in turn
_MAX_COMPARED = 64  # elements of a tensor that two patterns compare by value
_MAX_FROZEN = 16  # elements of a tensor or a list in a key


class Plan(NamedTuple):
    """A cached call that can be repeated, for one shape of its operands or several."""

    handle: int  # of native code
    owner: Any  # releases the handle
    shapes: int  # number of plans chained under the handle
    input_shape: tuple[int, ...]  # of the first operand's values
    output_shape: tuple[int, ...]
    takes_words: bool
    layout: str | None  # of the output
    redraw: Redraw | None
    gpu: torch.device | None  # None for the CPU
    learned: "Learned | None" = None  # until a call with another number of samples has been compared


class Learned(NamedTuple):
    """The call that a plan was made from."""

    pattern: "Pattern"
    shapes: list[tuple[int, ...]]  # of its operand tensors


# The only cache of plans. Keys of operators begin with their _Calls, keys of functions with the function. None: the call cannot be repeated.
plans: dict[Any, Plan | None] = {}


def store_plan(key: Any, plan: Plan | None) -> None:
    """Add a plan to the cache. A full cache is cleared: finding the oldest entry would cost every call."""
    if len(plans) >= MAX_PLANS:
        plans.clear()
    plans[key] = plan


class UnknownValue(Exception):
    """An argument that cannot be compared by value."""


PLAIN = (float, int, bool, str, type(None), torch.dtype)  # compared by value
_PLAIN = frozenset(PLAIN)
_SEQUENCES = frozenset((list, tuple, np.ndarray, torch.Tensor))


def freeze(key: list[Any], value: Any) -> None:
    """Append an argument to a key in which 1, 1.0 and True differ, and so do 0.0 and -0.0. Raise UnknownValue if it cannot be compared."""
    kind = type(value)
    if kind in _PLAIN:
        key += kind, value or str(value)
    elif (kind is list or kind is tuple) and len(value) <= _MAX_FROZEN:
        key += kind, len(value)
        for element in value:
            freeze(key, element)
    elif kind is torch.Tensor and value.is_cpu and value.numel() <= _MAX_FROZEN and not value.requires_grad:
        key += kind, value.dtype, value.shape, *(number or str(number) for number in value.flatten().tolist())
    elif isinstance(value, enum.Enum):
        key += kind, value
    else:
        raise UnknownValue


class Pattern(NamedTuple):
    """A record without the batches of its call."""

    kernel: Any
    arguments: list[Any]  # None in the places of operands, words and output
    places: list[tuple[int, int]]  # argument and operand tensor: values of operand k are tensor 2k, its shapes 2k + 1
    words_place: int | None  # argument that is the drawn words, or computed from them by `redraw`
    shape: tuple[int, ...]  # of the output
    dtype: torch.dtype
    layout: str | None
    draws: bool
    redraw: Redraw | None

    def agrees(self, other: "Pattern") -> bool:
        """Return whether two calls with equal batches have launched the same, so that nothing was computed from the values of the batches."""
        return self[2:-1] == other[2:-1] and all(self._is_same(a, b) for a, b in zip(self.arguments, other.arguments, strict=True))

    def agrees_for_other_rows(self, other: "Pattern", rows: int, other_rows: int) -> bool:
        """Return whether two calls on batches of other numbers of samples have launched the same: nothing was computed from those numbers either."""
        resized = self._replace(shape=(other_rows, *self.shape[1:]))
        return self.shape[:1] == (rows,) and other.shape[:1] == (other_rows,) and self.kernel is other.kernel and other.agrees(resized)

    def without_large_tensors(self) -> "Pattern":
        """Return the pattern to keep until the next call. It must not keep memory alive that the body does not keep."""
        large = [weakref.ref(a) if type(a) is torch.Tensor and a.numel() > _MAX_COMPARED else a for a in self.arguments]
        return self._replace(arguments=large)

    def _is_same(self, a: Any, b: Any) -> bool:
        if type(b) is weakref.ref:
            return a is b()
        if a is b or type(a) is not type(b):
            return a is b
        if type(a) is torch.Tensor and not self.draws:  # numbers drawn in two calls may be equal by chance
            return a.dtype == b.dtype and a.shape == b.shape and a.numel() <= _MAX_COMPARED and a.is_cpu and _bytes(a) == _bytes(b)
        return type(a) in PLAIN and a == b


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def operand_tensors(operands: Sequence[Batch]) -> list[torch.Tensor | None]:
    """Return values and shapes of each operand, None as the shapes of a dense one."""
    return [tensor for operand in operands for tensor in (operand.buffer, operand.ragged_shapes)]


def find_pattern(record: Record, tensors: Sequence[torch.Tensor | None], names: Iterable[str]) -> Pattern | None:
    """Return the pattern of a recorded call, or None if a repeated call could differ from it.

    Args:
        record: The record.
        tensors: The operands of the call: :func:`operand_tensors`.
        names: Arguments that are operands. Bodies read the values of those that do not go to the kernel unchanged.
    """
    op, arguments = record.op, list(record.arguments)
    if not record.is_plain or record.outputs[0].ragged_shapes is not None:
        return None
    if any((op.arguments.get(name) or op.positional[name]).role is not Role.per_sample for name in names):
        return None
    places: list[tuple[int, int]] = []
    words_place = None
    output, arguments[-2] = arguments[-2], None
    for place, argument in enumerate(arguments):
        if not isinstance(argument, torch.Tensor):
            # A number of a random operator may have been drawn, unless its kernel takes the function's own arguments: those come from the program.
            if op.draws and argument is not None and record.redraw is None and op.automatic is None:
                return None
            continue
        if record.redraw is not None and place == 2 * op.inputs:  # the first argument after the inputs
            words_place, arguments[place] = place, None
            continue
        k = next((k for k, tensor in enumerate(tensors) if tensor is argument), None)
        if k is not None:
            places.append((place, k))
        elif argument is record.words:
            words_place = place
        else:
            continue  # a constant, if the next call has an equal one
        arguments[place] = None
    if {k for _, k in places} != {k for k, tensor in enumerate(tensors) if tensor is not None} or (record.words is None) != (words_place is None):
        return None  # the kernel gets something computed from an operand or from the words
    return Pattern(record.kernel, arguments, places, words_place, output.shape, output.dtype, record.layouts[0], op.draws, record.redraw)


def build_plan(
    pattern: Pattern, record: Record, tensors: Sequence[torch.Tensor | None], previous: Plan | None, any_rows: bool = False
) -> Plan | None:
    """Return the plan of a recorded call, which also serves the calls that ``previous`` does; None if it cannot be repeated.

    ``any_rows``: the plan serves batches of any number of samples.
    """
    output: torch.Tensor = record.arguments[-2]
    words, gpu = record.words, output.device if output.is_cuda else None
    first = tensors[0].shape if tensors and tensors[0] is not None else ()
    plan = Plan(0, None, 1, first, output.shape, pattern.words_place is not None, pattern.layout, pattern.redraw, gpu)
    if previous is not None and (previous.shapes >= _MAX_SHAPES or previous[5:-1] != plan[5:-1]):
        return None
    arguments = pattern.arguments.copy()
    arguments[-2] = output
    places = [(len(arguments) - 2, _OUTPUT)]
    passed = [k for k, tensor in enumerate(tensors) if tensor is not None]
    # The values of a ragged operand have any size; its shapes have one row for each sample.
    equal = _FITS["any_rows" if any_rows else "equal_shape"]
    fits = [_FITS["any_size"] if k % 2 == 0 and tensors[k + 1] is not None else equal for k in passed]
    for place, k in pattern.places:
        places.append((place, passed.index(k)))
        arguments[place] = tensors[k]
    if pattern.words_place is not None and words is not None:
        places.append((pattern.words_place, len(passed)))
        fits.append(_FITS["equal_shape"])
        arguments[pattern.words_place] = words if pattern.redraw is None else pattern.redraw(tensors[1], words)
    handle = _keep_call(pattern.kernel, arguments, places, fits, None if previous is None else previous.handle)
    if handle is None:
        return None
    return plan._replace(handle=handle, owner=native.own(handle, _RELEASE, False), shapes=1 if previous is None else previous.shapes + 1)


_FITS = native.numbers("plan.Fit")
_OUTPUT = native.numbers("plan.Place")["output_place"]
_begin_plan = native.c_function("ndd_plan")
_end_plan = native.c_function("ndd_plan_made")
_RELEASE = native.address(native.c_function("ndd_plan_release"))


def _keep_call(kernel: Any, arguments: Sequence[Any], places: Sequence[tuple[int, int]], fits: Sequence[int], previous: int | None) -> int | None:
    """Return the handle of a native plan; None for a kernel that takes a list of tensors.

    Args:
        kernel: Is not run.
        arguments: Its arguments in one call. The plan keeps those that have no place.
        places: Arguments that differ from call to call: the index of the argument, and that of the tensor in later calls, or ``_OUTPUT``.
        fits: For each tensor of later calls, which sizes it may have: one of ``_FITS``.
        previous: The handle of a plan for other shapes, which native code tries as well.
    """
    # Between the two functions the library captures the arguments of this thread's next kernel call instead of running it: torch's dispatcher
    # converts them exactly as it does for a real call.
    try:
        _begin_plan((ctypes.c_int64 * (2 * len(places)))(*chain(*places)), len(places), (ctypes.c_int64 * len(fits))(*fits), len(fits))
        kernel(*arguments)
    finally:
        handle = _end_plan(previous)
    return handle


def run_plan(plan: Plan, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
    """Repeat a call on other operands, of which the first ``inputs`` are inputs; None if they do not fit the plan."""
    if plan.gpu is not None:
        return _run_on_gpu(plan, plan.gpu, operands, inputs, words)
    tensors, reads, external = [], [], False
    for operand in operands:
        tensors.append(operand.buffer)
        if operand.ragged_shapes is not None:
            tensors.append(operand.ragged_shapes)
        if operand.caller_owned:
            external = True
        if operand.pending is not None and (pending := operand._pending_work()) is not None:
            reads.append((pending, operand._sample))
    if plan.takes_words:
        assert words is not None
        tensors.append(words if plan.redraw is None else plan.redraw(operands[0].ragged_shapes, words))
    sources = operands[0].sources if inputs else UNKNOWN
    if sources is UNKNOWN and inputs > 1:
        sources = operands[1].sources
    output, pending = resubmit(plan.handle, tensors, reads, external, sources)
    if output is None:
        return None
    result = new_batch(output, None, plan.layout, pending)
    if sources is not UNKNOWN:
        result.sources = sources
    return result


_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # None in a torch without CUDA
_again_on_stream: Any = getattr(getattr(torch.ops.ndd, "again_on_stream", None), "default", None)  # None in a build without CUDA


def _run_on_gpu(plan: Plan, gpu: torch.device, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
    """Launch on the context's stream. The usual case is one native call; ``_run_within_stream`` has all others."""
    device = gpu.index
    ours = launch_stream(device)
    theirs, stream = _current_stream(device), ours.handle
    if is_queued(device, stream) or (theirs != stream and torch.cuda.is_current_stream_capturing()):
        return _run_within_stream(plan, gpu, operands, inputs, words)
    tensors: list[torch.Tensor | None] = []
    foreign: list[torch.Tensor] = []  # filled on torch's current stream
    for operand in operands:
        values, pending = operand.buffer, operand.pending
        if pending is None:
            if theirs != stream and values.is_cuda:
                foreign.append(values)
        elif not pending.stays:
            if operand._pending_work() is not None:  # per-sample arguments, which the launcher reads on the host
                return _run_within_stream(plan, gpu, operands, inputs, words)
        elif type(pending) is not StreamWork or pending.raw_stream != stream:
            return _run_within_stream(plan, gpu, operands, inputs, words)
        if operand.caller_owned:
            return _run_within_stream(plan, gpu, operands, inputs, words)
        tensors.append(values)
        if operand.ragged_shapes is not None:
            tensors.append(operand.ragged_shapes)
    if plan.takes_words:
        assert words is not None
        tensors.append(words if plan.redraw is None else plan.redraw(operands[0].ragged_shapes, words))
    if len(tensors) > 3:
        return _run_within_stream(plan, gpu, operands, inputs, words)
    if shutdown.exiting:
        shutdown.park_daemon()
    sources = operands[0].sources if inputs else UNKNOWN
    tensors += (None,) * (3 - len(tensors))
    output, handle = _again_on_stream(plan.handle, *tensors, device, stream, theirs if foreign else -1)
    if handle:
        finish_call(handle, EvalMode.sync_cpu, [], sources)
    for values in foreign:
        values.record_stream(ours.torch)
    if output is None:
        return None
    result = new_batch(output, None, plan.layout, StreamWork(ours.torch, (output,), owner=ours))
    result.sources = sources
    if current_mode() == EvalMode.sync_full:
        ours.synchronize()
    return result


def _run_within_stream(plan: Plan, gpu: torch.device, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
    tensors: list[torch.Tensor] = []
    reads: list[tuple[Pending, int]] = []
    external = any(operand.caller_owned for operand in operands)
    with on_stream(gpu, [(operand.buffer, operand.pending) for operand in operands], external):
        for operand in operands:
            tensors.append(operand.buffer)
            if operand.ragged_shapes is not None:
                tensors.append(operand.ragged_shapes)
            if operand.pending is not None and (pending := operand._pending_work()) is not None:
                reads.append((pending, operand._sample))
        if plan.takes_words:
            assert words is not None
            tensors.append(words if plan.redraw is None else plan.redraw(operands[0].ragged_shapes, words))
        sources = operands[0].sources if inputs else UNKNOWN
        output, work = relaunch(plan.handle, tensors, reads, external, sources)
        if output is None:
            return None
        result = new_batch(output, None, plan.layout, work)
        result.sources = sources
        return result


# --- Calls ---

_WARNS = "output_dtype"  # an argument that warns at each call


class _Seen(enum.Enum):
    """States of a form besides the pattern of its second call."""

    once = enum.auto()
    settled = enum.auto()  # a plan exists, or the call cannot be repeated


# By the key of calls with the dtypes and shapes of their operands. Most forms of a program whose shapes always change are seen only once, so that the
# first call does nothing else than adding one.
_forms: dict[Any, Pattern | _Seen] = {}


class _Calls:
    """Calls of an operator that may share plans.

    The second and the third call of a form are compared. What a kernel takes besides the tensors of the batches is part of the plan if both calls
    had the same object (a constant, or one that the body keeps), an equal number, or a small tensor with equal elements. A random operator must not
    have numbers of its own there, which might have been drawn, unless it says by :attr:`Launch.redraw` how they are computed.
    """

    __slots__ = ("_any_shape", "_repeatable", "_takes_rows", "op")

    def __init__(self, op: Operator) -> None:
        self.op, self._repeatable = op, op.repeatable
        self._takes_rows = True  # until the kernel has got something computed from numbers given for each sample
        self._any_shape = True  # until a call of ragged batches has shown that shapes matter

    def _extend_key(self, key: list[Any], operands: Sequence[Batch]) -> Any:
        """Return the key with what a call depends on besides values and the shapes of dense batches; None if the call cannot be repeated."""
        for operand in operands:
            values, shapes = operand.buffer, operand.ragged_shapes
            if type(values) is not torch.Tensor:
                return None
            key += (operand._layout, values.get_device())
            if shapes is None:
                if self.op.draws:
                    key.append(values.shape)  # which Launch.redraw may depend on
            elif self._any_shape and shapes.numpy().all():
                key.append(operand.shared_extents)
            else:
                return None
        return tuple(key)

    def _learn(self, key: Any, form: Any, operands: Sequence[Batch], names: Sequence[str], result: Any, records: list[Record]) -> None:
        """Compare a call with an earlier one, and store a plan if they agree."""
        if any(operand.ragged_shapes is not None for operand in operands) and not all(record.any_shape for record in records):
            self._any_shape = False
            return
        earlier = _forms.get(form)
        tensors, pattern = operand_tensors(operands), None
        if len(records) == 1 and type(result) is Batch and result.buffer is records[0].arguments[-2]:
            pattern = find_pattern(records[0], tensors, names)
        plan = plans.get(key)
        if plan is not None and plan.learned is not None and earlier is _Seen.once:
            plans[key] = plan._replace(learned=None)
            shapes = [_shape_of(tensor) for tensor in tensors]
            if pattern is not None and _differ_in_rows(shapes, plan.learned.shapes):
                rows, earlier_rows = operands[0].batch_size, plan.learned.shapes[0][0]
                if plan.learned.pattern.agrees_for_other_rows(pattern, earlier_rows, rows):
                    _forms[form] = _Seen.settled
                    if (new := build_plan(pattern, records[0], tensors, plan, any_rows=True)) is not None:
                        store_plan(key, new)
                    return
        if pattern is None and names:
            self._takes_rows = False
        if pattern is not None and earlier is _Seen.once:
            _forms[form] = pattern.without_large_tensors()
            return
        _forms[form] = _Seen.settled
        if pattern is not None and isinstance(earlier, Pattern) and pattern.agrees(earlier):
            new = build_plan(pattern, records[0], tensors, plan)
            if new is not None:
                learned = None
                if plan is None and not pattern.draws and operands and operands[0].ragged_shapes is None:
                    learned = Learned(pattern.without_large_tensors(), [_shape_of(tensor) for tensor in tensors])
                store_plan(key, new._replace(learned=learned))


def _shape_of(tensor: torch.Tensor | None) -> tuple[int, ...]:
    """Return the shape of a tensor; () for the shapes of a dense operand."""
    return () if tensor is None else tuple(tensor.shape)


def _differ_in_rows(shapes: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> bool:
    """Return whether shapes of operands differ in the number of samples, which all operands of a call share, and in nothing else."""
    rows, other_rows = ({shape[0] for shape in group if shape} for group in (shapes, others))
    return len(rows) == len(other_rows) == 1 and rows != other_rows and [shape[1:] for shape in shapes] == [shape[1:] for shape in others]


def _find_form(key: Any, operands: Sequence[Batch]) -> Any:
    """Return a key with the dtypes and shapes of the operands; ragged operands of any shapes have the same form."""
    return (
        key,
        *[(batch.buffer.dtype, batch.buffer.shape if batch.ragged_shapes is None else batch.ragged_shapes.shape) for batch in operands],
    )


def _start_records(form: Any, plan: Plan | None) -> list[Record] | None:
    """Return a list for the records of a call to learn from; None for the first call of a form, and once it is settled.

    ``plan`` is one for other shapes. If it may serve this one's too, the first call is compared with that of the plan.
    """
    state = _forms.get(form)
    if state is None:
        if len(_forms) >= MAX_PLANS:
            _forms.clear()
        _forms[form] = _Seen.once
        return None if plan is None or plan.learned is None else []
    return None if state is _Seen.settled else []


class OperatorCalls(_Calls):
    """The calls of an operator by the program."""

    __slots__ = ()

    def __call__(self, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        """Call the operator as :func:`perform` does, or run a plan.

        One function for all kinds of arguments: with cold caches each further one takes 5 to 10 us.
        """
        op = self.op
        # A profile shows the names of kernels, which a plan hides.
        if len(inputs) > op.inputs or profiler._is_profiler_enabled or not self._repeatable:
            return perform(op, inputs, arguments)
        operands: list[Batch] = []
        names: list[str] = []
        sequences: list[str] = []  # arguments that may have one value per sample
        key: list[Any] = [self, len(inputs)]
        for value in inputs:
            if type(value) is not Batch or (value._layout is None and op.options.layouts is not None):
                return perform(op, inputs, arguments)
            operands.append(value)
        for name, value in arguments.items():
            kind = type(value)
            if kind is Batch:
                operands.append(value)
                names.append(name)
                key.append(name)
            elif name == _WARNS or (name == "device" and value not in (None, "cpu")):  # "gpu" is the current GPU, which may change
                return perform(op, inputs, arguments)
            elif kind in PLAIN:
                key += (name, kind, value or str(value))
            elif name != "rng" or not op.draws:
                key += (name, operands[0].batch_size if operands else None)  # a list may have one value per sample
                if kind in _SEQUENCES:
                    sequences.append(name)
                try:
                    freeze(key, value)
                except UnknownValue:
                    rows = self._with_rows(arguments, sequences, operands)
                    return perform(op, inputs, arguments) if rows is None else self(inputs, rows)
        call_key = self._extend_key(key, operands)
        if call_key is None:
            return perform(op, inputs, arguments)
        words = None
        plan = plans.get(call_key)
        if plan is None and sequences and (form := _find_form(call_key, operands)) not in _forms:
            # Equal numbers for each sample get the fastest plan, from the second call on. Others at each call share one.
            rows = self._with_rows(arguments, sequences, operands)
            if rows is not None:
                _start_records(form, None)
                return self(inputs, rows)
        if plan is not None:
            if op.draws:
                words = prepare_argument(Call(op.name), op.arguments["rng"], arguments.get("rng"))
            result = run_plan(plan, operands, len(inputs), words)
            if result is not None:
                return result
        form = _find_form(call_key, operands)
        records = _start_records(form, plan)
        result = perform(op, inputs, arguments, words, records)
        if records is not None:
            self._learn(call_key, form, operands, names, result, records)
        return result

    def _with_rows(self, arguments: dict[str, Any], sequences: Sequence[str], operands: Sequence[Batch]) -> dict[str, Any] | None:
        """Return the arguments with batches in place of sequences of one value per sample; None if there are none.

        A plan takes batches, so that calls with other numbers are repeated too.
        """
        if not self._takes_rows or not operands:
            return None
        call = Call(self.op.name, compiling=False)
        call.join(operands[0], 0)
        converted: dict[str, Batch] = {}
        for name in sequences:
            argument = self.op.arguments.get(name)
            if argument is None or argument.role is not Role.per_sample:
                continue
            try:
                rows = one_per_sample(call, argument, arguments[name])
            except (TypeError, ValueError):
                return None  # perform() raises the error
            if rows is not None:
                converted[name] = rows
        return {**arguments, **converted} if converted else None


class BoundOperator(_Calls):
    """An operator with constant arguments, called on batches many times. Everything that follows from the constants is computed once.

    Args:
        op: The operator.
        constants: The arguments that all calls share.
    """

    __slots__ = ("_constants",)

    def __init__(self, op: Operator, constants: Mapping[str, Any]) -> None:
        super().__init__(op)
        self._constants = prepare_constants(op, constants)

    def __call__(
        self,
        inputs: Sequence[Batch],
        arguments: dict[str, Batch],
        *,
        words: torch.Tensor | None = None,
        batch_size: int | None = None,
        device: DeviceLike | None = None,
    ) -> Any:
        """Call the operator.

        Args:
            inputs: As many as the operator takes; further ones are arguments by position.
            arguments: Batches, by names that the operator has.
            words: Words drawn for a random operator.
            batch_size: Batch size of an operator without inputs.
            device: Where to compute; by default where the inputs are.
        """
        op = self.op
        if len(inputs) > op.inputs:
            arguments = {**arguments, **dict(zip(op.positional, inputs[op.inputs :], strict=False))}
            inputs = inputs[: op.inputs]
        operands = [*inputs, *arguments.values()]
        key = self._extend_key([self, batch_size, *arguments], operands) if self._repeatable and device is None else None
        if key is None:
            return perform_with_constants(op, self._constants, inputs, arguments, words, batch_size, device, None)
        plan = plans.get(key)
        if plan is not None and (result := run_plan(plan, operands, len(inputs), words)) is not None:
            return result
        form = _find_form(key, operands)
        records = _start_records(form, plan)
        result = perform_with_constants(op, self._constants, inputs, arguments, words, batch_size, None, records)
        if records is not None:
            self._learn(key, form, operands, [*arguments], result, records)
        return result
