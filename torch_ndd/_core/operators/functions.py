# SPDX-License-Identifier: Apache-2.0
"""Functions of one batch or tensor that call operators, as the functionals of torchvision do, repeated as a plan if they launch a single kernel.

Checking and preparing the arguments of a small batch takes longer than its kernel: of ``v2.functional.invert`` 40 us, repeated 7.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..native.tracing import is_compiling
from ..native.transforms import is_followed
from ..values.batch import Batch, new_batch
from ..values.operand import loop
from ..work.sources import UNKNOWN
from .call import perform
from .definition import Record
from .patterns import find_pattern
from .plan import build_plan, resubmit, resubmit_one
from .plans import OperatorCalls, UnknownValue, freeze, plans, store_plan


class FunctionRecorder:
    """Records the operators that a function calls in this thread, each of which runs its body: no plan hides what it launches."""

    counts_writes = False  # values written to between its calls do not matter: a function with several calls is not repeated
    batch_size = None  # it is not a loop with batches of one size

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._calls = 0

    def owner(self) -> Any:
        """Return an object that lives as long as the recorder may be active."""
        return self

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``function(*args, **kwargs)``."""
        previous, loop.recorder = loop.recorder, self
        try:
            return function(*args, **kwargs)
        finally:
            loop.recorder = previous

    def call(self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any], draws: bool) -> Any:
        """Return the result of a call that the function makes. Operators that are called by a body are recorded as well."""
        self._calls += 1
        if isinstance(function, OperatorCalls):
            return perform(function.op, inputs, arguments, records=self.records)
        return function(inputs, arguments)

    @property
    def only_record(self) -> Record | None:
        """The record of the only call, if it has one input and draws nothing; else None."""
        record = self.records[0] if self._calls == len(self.records) == 1 else None
        if record is None or len(record.inputs) != 1 or record.op.draws or record.op.variadic:
            return None
        return None if record.launch.mixes or record.launch.also_again is not None else record


_MAX_ITEMS = 16  # of a list of integers in a key
_INTEGERS = {int}


def _freeze_all(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the arguments of a call as a key."""
    if not (args or kwargs):
        return None
    key: list[Any] = [len(args), *kwargs]
    for value in (*args, *kwargs.values()) if args else kwargs.values():
        kind = type(value)
        if kind is int:  # a shortcut for the most frequent types
            key += kind, value
        elif kind is list and {*map(type, value)} == _INTEGERS and len(value) <= _MAX_ITEMS:
            key += kind, tuple(value)
        else:
            freeze(key, value)
    return tuple(key)


def _is_repeatable(values: torch.Tensor) -> bool:
    """Return whether a plan may run on these values: native code reads their memory, so nothing but a kernel may observe the call."""
    return type(values) is torch.Tensor and not is_compiling() and (loop.latest is None or loop.recorder is None)


def _has_plain_memory(values: torch.Tensor) -> bool:
    return values.is_contiguous() and values.is_cpu


def _plan_function(key: Any, record: Record | None, result: torch.Tensor, layout: str | None = None) -> None:
    """Store the plan of a function that has made one call and returned its output as ``result``; without a record it is never repeated."""
    plan = None
    pattern = None if record is None else find_pattern(record, record.arguments[:2], ())
    if record is not None and pattern is not None and pattern.derivation is None and not pattern.is_packed:
        plan = build_plan(pattern._replace(layout=layout), record, record.arguments[:2], None)
    store_plan(key, None if plan is None else plan._replace(output_shape=result.shape))


def call_on_batch(function: Callable[..., Any], batch: Batch, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(batch, *args, **kwargs)``, which depends on the shape, type and layout of the batch and on the arguments only.

    >>> from torch_ndd import as_batch, flip
    >>> images = as_batch(torch.arange(4).reshape(2, 1, 2, 1), layout="HWC")
    >>> [call_on_batch(flip, images, vertical=0).torch().flatten().tolist() for _ in range(2)]
    [[1, 0, 3, 2], [1, 0, 3, 2]]
    """
    values = batch.buffer
    if type(batch) is not Batch or batch.ragged_shapes is not None or not _is_repeatable(values):
        return function(batch, *args, **kwargs)
    try:
        key = function, batch._layout, values.shape, values.dtype, _freeze_all(args, kwargs)
    except UnknownValue:
        return function(batch, *args, **kwargs)
    plan = plans.get(key)
    if plan is None:
        if key in plans or not _has_plain_memory(values):
            return function(batch, *args, **kwargs)
        recorder = FunctionRecorder()
        result, record = recorder.run(function, batch, *args, **kwargs), recorder.only_record
        if record is not None and (type(result) is not Batch or result.buffer is not record.arguments[-2] or record.arguments[0] is not values):
            record = None
        _plan_function(key, record, values if record is None else result.buffer, getattr(result, "_layout", None))
        return result
    # run_plan() for one operand: with cold caches each Python function takes 0.5 to 1 us here.
    if batch.pending is None or (pending := batch._pending_work()) is None:
        output, pending = resubmit_one(plan.handle, values, batch.caller_owned, batch.sources)
    else:
        output, pending = resubmit(plan.handle, [values], ((pending, batch._sample),), batch.caller_owned, batch.sources)
    if output is None:
        return function(batch, *args, **kwargs)
    result = new_batch(output, None, plan.layout, pending)
    if batch.sources is not UNKNOWN:
        result.sources = batch.sources
    return result


def call_on_tensor(function: Callable[..., Any], values: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return ``function(values, *args, **kwargs)``, which makes a Batch of the tensor and a tensor of the result.

    >>> from torch_ndd import as_batch, flip
    >>> mirror = lambda values: flip(as_batch(values, layout="HWC")).torch()
    >>> [call_on_tensor(mirror, torch.tensor([1, 2]).reshape(1, 1, 2, 1), (), {}).flatten().tolist() for _ in range(2)]
    [[2, 1], [2, 1]]
    """
    if not _is_repeatable(values) or values.requires_grad or is_followed():
        return function(values, *args, **kwargs)
    try:
        key = function, values.shape, values.dtype, _freeze_all(args, kwargs)
    except UnknownValue:
        return function(values, *args, **kwargs)
    plan = plans.get(key)
    if plan is None:
        if key in plans or not _has_plain_memory(values):
            return function(values, *args, **kwargs)
        recorder = FunctionRecorder()
        result, record = recorder.run(function, values, *args, **kwargs), recorder.only_record
        if record is not None and (
            type(result) is not torch.Tensor or not _is_same(values, record.arguments[0]) or not _is_same(result, record.arguments[-2])
        ):
            record = None
        _plan_function(key, record, result)
        return result
    # The function may have seen the tensor with other dimensions, as a batch of one, for example.
    if plan.input_shape == values.shape:
        kernel_input = values
    elif values.is_contiguous():
        kernel_input = values.view(plan.input_shape)
    else:
        return function(values, *args, **kwargs)
    output, pending = resubmit_one(plan.handle, kernel_input, True, ())
    if output is None:
        return function(values, *args, **kwargs)
    assert pending is None  # because the memory is the caller's
    return output if output.shape == plan.output_shape else output.view(plan.output_shape)


def _is_same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same contiguous elements."""
    return tensor.data_ptr() == other.data_ptr() and tensor.numel() == other.numel() and tensor.dtype == other.dtype and tensor.is_contiguous()
