# SPDX-License-Identifier: Apache-2.0
"""Repeated calls: from the fourth equal call on, an operator runs a plan, without its body and without the checks that its earlier calls have passed.

A plan is a kernel call that native code keeps (``ndd::again``, csrc/ndd/stream/repeat.cpp), built from the record of a launch, and run on other
tensors. The calls of programs (:class:`OperatorCalls`), those of pipelines (:class:`BoundOperator`) and functionals (functions.py) share one cache.

A program has cold caches at its next call, because of the threads that decode, or of a model's step. Each Python function that is not called then
saves 5 to 10 us, each attribute of a tensor that is not read up to 20: ``flip`` of small images took 250 us, repeated 118, 93 of them in
``ndd::again``, the only call of native code that remains.
"""

import enum
import marshal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd import profiler

from .. import native
from ..context.device import Device, DeviceLike, torch_device
from ..native import CPU
from ..native.default_device import may_have_default_device
from ..native.tracing import is_compiling, is_jit_tracing
from ..native.transforms import check_drawing, in_transform, is_graph_in_transform
from ..values.batch import Batch, new_batch
from ..values.operand import loop
from ..values.tensor import Tensor, new_tensor
from ..values.transformed import call_outside
from ..work.cuda_work import StreamWork
from ..work.sources import UNKNOWN
from .arguments import Call, Role, draw_words, one_per_sample
from .call import perform, perform_with_constants, prepare_constants
from .definition import Operator, Record
from .kept import keep_input
from .patterns import PLAIN, Pattern, find_pattern, operand_tensors
from .plan import Learned, Plan, build_plan, run_plan

MAX_PLANS = 4096  # more keys come from shapes or arguments that change with each call
_MAX_FROZEN = 16  # elements of a tensor or a list in a key
_MAX_FROZEN_NUMBERS = 256  # of a flat list of numbers, such as a table of all levels


# The only cache of plans. Keys of operators begin with their _Calls, keys of functions with the function. None: the call cannot be repeated.
plans: dict[Any, Plan | None] = {}


def store_plan(key: Any, plan: Plan | None) -> None:
    """Add a plan to the cache. A full cache is cleared: finding the oldest entry would cost every call."""
    if len(plans) >= MAX_PLANS:
        plans.clear()
    plans[key] = plan


class UnknownValue(Exception):
    """An argument that cannot be compared by value."""


_PLAIN = frozenset(PLAIN)
_NUMBERS = frozenset((int, float, bool))
_SEQUENCES = frozenset((list, tuple, np.ndarray, torch.Tensor, Tensor))  # which may have a value for each sample


def freeze(key: list[Any], value: Any) -> None:
    """Append an argument to a key in which 1, 1.0 and True differ, and so do 0.0 and -0.0. Raise UnknownValue if it cannot be compared."""
    kind = type(value)
    if kind in _PLAIN:
        key += kind, value or str(value)
    elif (kind is list or kind is tuple) and len(value) <= _MAX_FROZEN:
        kinds = (*map(type, value),)
        # Nearly all lists: without a call for each element. Zeros differ by their text.
        if _PLAIN.issuperset(kinds) and 0 not in value:
            key += kind, kinds, tuple(value)
            return
        key += kind, len(value)
        for element in value:
            freeze(key, element)
    elif kind is torch.Tensor and value.is_cpu and value.numel() <= _MAX_FROZEN and not value.requires_grad:
        key += kind, value.dtype, value.shape, *(number or str(number) for number in value.flatten().tolist())
    elif (kind is list or kind is tuple) and len(value) <= _MAX_FROZEN_NUMBERS and _NUMBERS.issuperset(map(type, value)):
        # Version 2 writes the types and the bits of numbers, and nothing that depends on the identity of objects.
        key += kind, marshal.dumps(value, 2)
    elif isinstance(value, enum.Enum):
        key += kind, value
    else:
        raise UnknownValue


# --- Calls ---

_has_zero = native.c_function("ndd_has_zero")  # NumPy takes 8 us instead of 2, a third of a call
_WARNS = "output_dtype"  # an argument that warns at each call


class _Seen(enum.Enum):
    """States of a form besides the pattern of its second call."""

    once = enum.auto()
    settled = enum.auto()  # a plan exists, or the call cannot be repeated


# By the key of calls with the dtypes and shapes of their operands. Most forms of a program whose shapes always change are seen only once, so that the
# first call does nothing else than adding one.
_forms: dict[Any, Pattern | _Seen] = {}

# Calls of an operator, and their arguments with a value for each sample, where the kernel gets something that was computed from these values.
_computed: set[tuple[Any, tuple[str, ...]]] = set()


class _Calls:
    """Calls of an operator that may share plans.

    The second and the third call of a form are compared. What a kernel takes besides the tensors of the batches is part of the plan if both calls
    had the same object (a constant, or one that the body keeps), an equal number, or a small tensor with equal elements. A random operator must not
    have numbers of its own there, which might have been drawn, unless it says by :attr:`Launch.redraw` how they are computed.
    """

    __slots__ = ("_repeatable", "op")

    def __init__(self, op: Operator) -> None:
        self.op, self._repeatable = op, op.repeatable

    def _extend_key(self, key: list[Any], operands: Sequence[Batch]) -> Any:
        """Return the key with what a call depends on besides values and the shapes of dense batches; None if the call cannot be repeated."""
        for operand in operands:
            values, shapes = operand.buffer, operand.ragged_shapes
            if type(values) is not torch.Tensor:
                return None
            key += (operand._layout, values.get_device())
            if shapes is None:
                continue
            if any((other._layout or "").startswith("F") for other in operands[self.op.inputs :]):
                return None  # the numbers of frames, which the ordinary call compares, change with each batch
            if not shapes.is_contiguous() or _has_zero(shapes.data_ptr(), shapes.numel()):
                return None
            key.append(operand.shared_extents)
        return tuple(key)

    def _learn(
        self,
        key: Any,
        form: Any,
        operands: Sequence[Batch],
        names: Sequence[str],
        result: Any,
        records: list[Record],
        given_rows: int = 0,
    ) -> bool:
        """Compare a call with an earlier one and store a plan if they agree. Return False if the kernel reads values computed from the operands.

        ``given_rows``: the number of samples of a call without operands.
        """
        serves_any_shape = all(record.launch.any_shape or record.launch.derivation is not None for record in records)
        if not serves_any_shape and any(operand.ragged_shapes is not None for operand in operands):
            _forms[form] = _Seen.settled  # the shapes matter, and differ in each call
            return True
        earlier = _forms.get(form)
        tensors, pattern = operand_tensors(operands), None
        first = result[0] if type(result) is tuple else result
        if len(records) == 1 and type(first) is Batch and first.buffer is records[0].arguments[-2]:
            pattern = find_pattern(records[0], tensors, names)
        plan = plans.get(key)
        rows = operands[0].batch_size if operands else given_rows
        if plan is not None and (learned := plan.learned) is not None and earlier is _Seen.once:
            plans[key] = plan._replace(learned=None)
            shapes = [_shape_of(tensor) for tensor in tensors]
            # Two calls that differ in nothing but the number of samples show whether the launch depends on that number.
            differs = pattern is not None and _differ_in_rows(shapes, learned.shapes, rows, learned.rows)
            if pattern is not None and differs and learned.pattern.agrees_for_other_rows(pattern, learned.rows, rows):
                _forms[form] = _Seen.settled
                # In place of the plan for the number of samples of the earlier call, which it serves too.
                new = build_plan(pattern, records[0], tensors, learned.previous, any_rows=True, names=names, rows_are_given=given_rows > 0)
                if new is not None:
                    store_plan(key, new)
                return True
        # The second call of a form: keep what it has launched, to be compared with the third.
        if pattern is not None and earlier is _Seen.once:
            _forms[form] = pattern.without_large_tensors()
            return True
        _forms[form] = _Seen.settled
        if pattern is not None and isinstance(earlier, Pattern) and pattern.agrees(earlier):
            new = build_plan(pattern, records[0], tensors, plan, names=names, rows_are_given=given_rows > 0)
            if new is not None:
                learned = None
                if not pattern.is_packed and (operands[0].ragged_shapes is None if operands else given_rows):
                    learned = Learned(pattern.without_large_tensors(), [_shape_of(tensor) for tensor in tensors], rows, plan)
                store_plan(key, new._replace(learned=learned))
        return pattern is not None


def _shape_of(tensor: torch.Tensor | None) -> tuple[int, ...]:
    """Return the shape of a tensor; () for the shapes of a dense operand."""
    return () if tensor is None else tuple(tensor.shape)


def _differ_in_rows(shapes: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]], rows: int, other_rows: int) -> bool:
    """Return whether shapes of operands differ in the number of samples, which all operands of a call share, and in nothing else."""
    same = ({shape[0] for shape in group if shape} <= {count} for group, count in ((shapes, rows), (others, other_rows)))
    return rows != other_rows and all(same) and [shape[1:] for shape in shapes] == [shape[1:] for shape in others]


def _find_form(key: Any, operands: Sequence[Batch], given_rows: int = 0) -> Any:
    """Return a key with the dtypes and shapes of the operands; ragged operands of any shapes have the same form."""
    return (
        key,
        given_rows,
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
        # A profile shows the names of kernels, which a plan hides; torch.jit.trace stores them.
        if len(inputs) > op.inputs or profiler._is_profiler_enabled or not self._repeatable or is_jit_tracing():
            return perform(op, inputs, arguments)
        # The key lists what the launch may depend on: kinds and values of arguments, layouts, devices. Operands enter by layout, device
        # and shared extents; native code compares their shapes.
        operands: list[Batch] = []
        names: list[str] = []
        constants: list[str] = []  # arguments that are Tensors
        for_each: tuple[str, ...] | None = None  # arguments with a value for each sample, where one of them is a sequence
        given_rows = 0
        rows = -1  # of the first operand, once a sequence is compared with them
        key: list[Any] = [self, len(inputs)]
        for value in inputs:
            if type(value) is not Batch:
                k = len(operands)
                repeated = None
                if k in op.kept:
                    repeated = self._keep(value, k, operands, arguments)
                elif k in op.shared and k:
                    repeated = _repeat(value, operands[0].batch_size)
                if repeated is None:
                    return perform(op, inputs, arguments)
                operands.append(repeated)
                inputs = (*operands, *inputs[k + 1 :])
                continue
            if value._layout is None and op.options.layouts is not None and (op.variadic or not operands):  # the call chooses one
                return perform(op, inputs, arguments)
            operands.append(value)
        argument: Any
        for name, argument in arguments.items():  # the dict may be replaced by a copy within the loop
            kind = type(argument)
            if kind is Batch:
                operands.append(argument)
                names.append(name)
                key.append(name)
            elif name == _WARNS:
                return perform(op, inputs, arguments)
            elif name == "device" and argument not in (None, "cpu"):
                if (device := _find_device(argument)) is None:
                    return perform(op, inputs, arguments)
                key += (name, device.device_type, device.device_id)
            elif (
                name == "batch_size"
                and type(argument) is int
                and (argument == operands[0].batch_size if operands else 0 < argument <= native.MAX_SAMPLES)
            ):
                given_rows = argument
            elif kind in PLAIN:
                key += (name, kind, argument or str(argument))
            elif name != "rng" or not op.draws:
                for_samples = False
                if kind in _SEQUENCES and operands:
                    if rows < 0:
                        rows = operands[0].batch_size
                    for_samples = len(argument) == rows if type(argument) is list or type(argument) is tuple else _has_rows(argument, rows)
                # A plan takes a batch, so that calls with other numbers are repeated too.
                if for_samples and for_each is None:
                    for_each = _name_rows(arguments, rows)
                if for_samples and (self, for_each) not in _computed and (numbers := self._as_rows(name, argument, operands[0])) is not None:
                    arguments = {**arguments, name: numbers}
                    operands.append(numbers)
                    names.append(name)
                    key.append(name)
                    continue
                key += (name, for_samples)
                try:
                    freeze(key, _freeze_form(key, constants, name, argument) if kind is Tensor else argument)
                except UnknownValue:
                    return perform(op, inputs, arguments)
        if given_rows:
            key.append("batch_size")
            if operands:
                if operands[0].batch_size != given_rows:  # an error of the ordinary call
                    key.append(given_rows)
                given_rows = 0
        call_key = self._extend_key(key, operands)
        if call_key is None:
            return perform(op, inputs, arguments)
        words = None
        plan = plans.get(call_key)
        if plan is not None:
            if op.draws:
                words = draw_words(op.name, arguments.get("rng"))
            result = run_plan(plan, operands, len(inputs), words, given_rows)
            if result is not None:
                return result
        form = _find_form(call_key, operands, given_rows)
        records = _start_records(form, plan)
        arguments = {**arguments}
        if records is not None:
            # The plan keeps what the kernel gets, but the program may write to its own memory later.
            arguments.update((name, new_tensor(arguments[name].buffer.clone(), arguments[name]._layout)) for name in constants)
        # The words are passed on: the generator has moved already, and must move once for each call.
        result = perform(op, inputs, {**arguments}, words, records)
        is_learned = records is None or self._learn(call_key, form, operands, names, result, records, given_rows)
        if not is_learned and for_each is not None:
            _computed.add((self, for_each))  # calls with equal sequences are repeated: these become part of the key
        return result

    def _keep(self, value: Any, k: int, operands: Sequence[Batch], arguments: Mapping[str, Any]) -> Batch | None:
        """Return input ``k``, a number, a list or an array, as a batch that is kept; None to leave it to the ordinary call."""
        if k:
            first = operands[0]
            return keep_input(value, first.batch_size, first.buffer.device, first.buffer.dtype if self.op.kept[k] else None)
        rows, device = arguments.get("batch_size"), arguments.get("device")
        if type(rows) is not int or not 0 < rows <= native.MAX_SAMPLES:
            return None
        if device is None:
            return keep_input(value, rows, CPU, None)
        found = _find_device(device)
        return None if found is None else keep_input(value, rows, torch_device(found), None)

    def _as_rows(self, name: str, value: Any, first: Batch) -> Batch | None:
        """Return a sequence of as many values as ``first`` has samples as a batch; None if it has a value for all of them."""
        argument = self.op.arguments.get(name)
        if argument is None or argument.role not in (Role.per_sample, Role.shape):
            return None
        call = Call(self.op.name, compiling=False)
        call.join(first, 0)
        try:
            return one_per_sample(call, argument, value)
        except (TypeError, ValueError):
            return None  # perform() raises the error


def _has_rows(value: Any, count: int) -> bool:
    """Return whether a sequence has as many elements or rows as there are samples."""
    return (len(value) if type(value) is list or type(value) is tuple else value.shape[0] if value.shape else None) == count


def _name_rows(arguments: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Return the names of Batches, and of sequences with as many elements as there are samples."""
    return tuple([name for name, value in arguments.items() if type(value) is Batch or (type(value) in _SEQUENCES and _has_rows(value, count))])


def _freeze_form(key: list[Any], constants: list[str], name: str, value: Any) -> torch.Tensor:
    """Append what a Tensor is besides its numbers to a key, and its name to ``constants``. Return the numbers."""
    if value.pending is not None:
        raise UnknownValue
    constants.append(name)
    key += type(value), value._layout
    return value.buffer


def _repeat(value: Any, rows: int) -> Batch | None:
    """Return a sample that all samples share as a batch that repeats it, without a copy; None for anything else, and while the CPU works on it."""
    if type(value) is not Tensor or value.sources is not UNKNOWN or not (value.pending is None or type(value.pending) is StreamWork):
        return None
    return new_batch(value.buffer.expand(rows, *value.buffer.shape), None, value._layout, value.pending, value.caller_owned)


def _find_device(value: Any) -> Device | None:
    """Return a device; None for one that cannot be used, or of another kind. ``"gpu"`` is the current GPU, which may change."""
    try:
        return value if type(value) is Device else Device(value) if type(value) is str else None
    except (ValueError, RuntimeError):
        return None  # perform() raises the error


def make_caller(op: Operator) -> Callable[..., Any]:
    """Return the function that a program calls: ``op`` with its inputs by position and its arguments by keyword."""
    calls = OperatorCalls(op)
    # Bound once: calling an object takes longer.
    repeat_or_perform = calls.__call__ if op.repeatable else partial(perform, op)

    def record_or_run(inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        if loop.latest is not None and (recorder := loop.recorder) is not None:
            return recorder.call(op.name, calls, inputs, arguments, op.draws)
        return repeat_or_perform(inputs, arguments)

    def call(*inputs: Any, **arguments: Any) -> Any:
        if is_compiling():  # plans are of eager calls
            if not is_graph_in_transform():
                return perform(op, inputs, arguments)
            if op.draws:
                check_drawing(op.name)
            return call_outside(op.name, partial(perform, op), inputs, arguments)
        if in_transform():
            if op.draws:
                check_drawing(op.name)
            return call_outside(op.name, record_or_run, inputs, arguments)
        if may_have_default_device():
            with CPU:
                return record_or_run(inputs, arguments)
        return record_or_run(inputs, arguments)

    return call


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
        given_rows = 0 if operands or batch_size is None or not 0 < batch_size <= native.MAX_SAMPLES else batch_size
        key = None
        if self._repeatable and device is None:
            key = self._extend_key([self, len(inputs), 0 if given_rows else batch_size, *arguments], operands)
        if key is None:
            return perform_with_constants(op, self._constants, inputs, arguments, words, batch_size, device, None)
        plan = plans.get(key)
        if plan is not None and (result := run_plan(plan, operands, len(inputs), words, given_rows)) is not None:
            return result
        form = _find_form(key, operands, given_rows)
        records = _start_records(form, plan)
        result = perform_with_constants(op, self._constants, inputs, arguments, words, batch_size, None, records)
        if records is not None:
            self._learn(key, form, operands, [*arguments], result, records, given_rows)
        return result
