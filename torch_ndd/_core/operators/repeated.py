# SPDX-License-Identifier: Apache-2.0
"""Repeated calls, which run the plan of earlier calls like them: without the operator's body, and without checking again what was checked then.

The calls of programs (:class:`OperatorCalls`) and those of pipelines (:class:`BoundOperator`) look up plans in one cache and build them from records.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import profiler

from ..context.device import DeviceLike
from ..values.batch import Batch
from .arguments import Call, prepare_argument
from .call import perform, perform_with_constants, prepare_constants
from .definition import Operator
from .plans import MAX_PLANS, PLAIN, Pattern, UnknownValue, build_plan, find_pattern, freeze, operand_tensors, plans, run_plan, store_plan
from .record import Record

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

    __slots__ = ("_any_shape", "_repeatable", "op")

    def __init__(self, op: Operator) -> None:
        self.op, self._repeatable = op, op.repeatable
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
        """Compare a call with the earlier one of its form, and store a plan if they agree."""
        if any(operand.ragged_shapes is not None for operand in operands) and not all(record.any_shape for record in records):
            self._any_shape = False
            return
        earlier = _forms.get(form)
        tensors, pattern = operand_tensors(operands), None
        if len(records) == 1 and type(result) is Batch and result.buffer is records[0].arguments[-2]:
            pattern = find_pattern(records[0], tensors, names)
        if pattern is not None and earlier is _Seen.once:
            _forms[form] = pattern.without_large_tensors()
            return
        _forms[form] = _Seen.settled
        if pattern is not None and isinstance(earlier, Pattern) and pattern.agrees(earlier):
            plan = build_plan(pattern, records[0], tensors, plans.get(key))
            if plan is not None:
                store_plan(key, plan)


def _find_form(key: Any, operands: Sequence[Batch]) -> Any:
    """Return a key with the dtypes and shapes of the operands; ragged operands of any shapes have the same form."""
    return (
        key,
        *[(batch.buffer.dtype, batch.buffer.shape if batch.ragged_shapes is None else batch.ragged_shapes.shape) for batch in operands],
    )


def _start_records(form: Any) -> list[Record] | None:
    """Return a list for the records of a call to learn from; None for the first call of a form, and once it is settled."""
    state = _forms.get(form)
    if state is None:
        if len(_forms) >= MAX_PLANS:
            _forms.clear()
        _forms[form] = _Seen.once
        return None
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
                try:
                    freeze(key, value)
                except UnknownValue:
                    return perform(op, inputs, arguments)
        call_key = self._extend_key(key, operands)
        if call_key is None:
            return perform(op, inputs, arguments)
        words = None
        plan = plans.get(call_key)
        if plan is not None:
            if op.draws:
                words = prepare_argument(Call(op.name), op.arguments["rng"], arguments.get("rng"))
            result = run_plan(plan, operands, len(inputs), words)
            if result is not None:
                return result
        form = _find_form(call_key, operands)
        records = _start_records(form)
        result = perform(op, inputs, arguments, words, records)
        if records is not None:
            self._learn(call_key, form, operands, names, result, records)
        return result


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
        records = _start_records(form)
        result = perform_with_constants(op, self._constants, inputs, arguments, words, batch_size, None, records)
        if records is not None:
            self._learn(key, form, operands, [*arguments], result, records)
        return result
