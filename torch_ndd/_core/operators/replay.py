# SPDX-License-Identifier: Apache-2.0
"""Repeating a call of an operator on other inputs like the first ones, without its body: a function of batches that has launched one kernel launches
the same kernel, with the same arguments, for all inputs of the same shape, type and layout and the same numbers.

Checking and preparing the arguments of a small batch takes longer than its kernel: of ``v2.functional.invert`` 40 us, repeated 7, in one call of
native code (csrc/ndd/stream/repeat.cpp).
"""

import enum
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.compiler import is_compiling

from .. import native
from ..values.batch import Batch, new_batch
from ..values.dispatch import resubmit, resubmit_one
from ..values.operand import loop
from ..work.sources import UNKNOWN
from .definition import Operator

_MOST = 1000  # plans; more of them come from arguments that change with each call
_MOST_ELEMENTS = 16  # of a tensor or a list that is compared by value


Drawn = Callable[[torch.Tensor | None, torch.Tensor], torch.Tensor]  # of the input's shapes and the generator's words


class Launched(NamedTuple):
    """A kernel that an operator has launched. Of one with a single output nothing else than the kernel's arguments need be known."""

    op: Operator
    inputs: int
    arguments: Sequence[Any]  # values and shapes of the inputs, arguments, values and shapes of the output
    layout: str | None  # of the output
    any_shape: bool  # of Launch
    drawn: Drawn | None  # of Launch
    words: torch.Tensor | None  # that a random operator has drawn


class Plan(NamedTuple):
    """The recipe for repeating a call."""

    handle: int  # of native code
    owner: Any
    given: tuple[int, ...]  # shape of the input as the kernel takes it
    shape: tuple[int, ...]  # of the result
    layout: str | None


def repeatable(op: Operator) -> bool:
    """Return whether an operator may launch the same for all batches of one shape: its body does not read values."""
    return op.kernel is not None and not (op.variadic or op.options.host_inputs or op.options.reads_values)


class _Recording(threading.local):
    launched: list[Launched | None] | None = None  # by the function that is recorded; None for a launch that cannot be repeated


recording = _Recording()
_plans: dict[Any, Plan | None] = {}


class UnknownValue(Exception):
    """An argument that is not compared by value."""


PLAIN = (float, int, bool, str, type(None), torch.dtype)  # compared by value
_PLAIN = frozenset(PLAIN)
_INTEGERS = {int}


def freeze(key: list[Any], value: Any) -> None:
    """Add an argument to a key, in which 1, 1.0 and True are different, and so are 0.0 and -0.0. Raise UnknownValue if it has no value to compare."""
    kind = type(value)
    if kind in _PLAIN:
        key += kind, value or str(value)
    elif (kind is list or kind is tuple) and len(value) <= _MOST_ELEMENTS:
        key += kind, len(value)
        for one in value:
            freeze(key, one)
    elif kind is torch.Tensor and value.is_cpu and value.numel() <= _MOST_ELEMENTS and not value.requires_grad:
        key += kind, value.dtype, value.shape, *(one or str(one) for one in value.flatten().tolist())
    elif isinstance(value, enum.Enum):
        key += kind, value
    else:
        raise UnknownValue


def _frozen(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the arguments of a call as a key."""
    if not (args or kwargs):
        return None
    key: list[Any] = [len(args), *kwargs]
    for value in (*args, *kwargs.values()) if args else kwargs.values():
        kind = type(value)
        if kind is int:  # in short, and lists of them
            key += kind, value
        elif kind is list and {*map(type, value)} == _INTEGERS and len(value) <= _MOST_ELEMENTS:
            key += kind, tuple(value)
        else:
            freeze(key, value)
    return tuple(key)


def _repeats(values: torch.Tensor) -> bool:
    """Return whether a call on these values can be repeated: not where something else than the kernel sees the tensors.

    Native code looks at their memory.
    """
    return type(values) is torch.Tensor and not is_compiling() and (loop.latest is None or loop.recorder is None)


def _plain(values: torch.Tensor) -> bool:
    return values.is_contiguous() and values.is_cpu


def on_batch(function: Callable[..., Any], batch: Batch, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(batch, *args, **kwargs)``, which depends on the shape, type and layout of the batch and on the arguments only.

    >>> from torch_ndd import as_batch, flip
    >>> images = as_batch(torch.arange(4).reshape(2, 1, 2, 1), layout="HWC")
    >>> [on_batch(flip, images, vertical=0).torch().flatten().tolist() for _ in range(2)]
    [[1, 0, 3, 2], [1, 0, 3, 2]]
    """
    # With the caches cold, as a program has them, each call of a Python function takes 0.5 to 1 us here.
    values = batch.buffer
    if type(batch) is not Batch or batch.ragged_shapes is not None or not _repeats(values):
        return function(batch, *args, **kwargs)
    if args or kwargs:
        try:
            key = function, batch._layout, values.shape, values.dtype, _frozen(args, kwargs)
        except UnknownValue:
            return function(batch, *args, **kwargs)
    else:
        key = function, batch._layout, values.shape, values.dtype
    plan = _plans.get(key)
    if plan is None:
        if key in _plans or not _plain(values):
            return function(batch, *args, **kwargs)
        made, launched = _recorded(function, batch, args, kwargs)
        if launched is not None and type(made) is Batch and made.buffer is launched.arguments[-2] and launched.arguments[0] is values:
            _keep(key, launched, made.buffer.shape, made._layout)
        else:
            _keep(key, None)
        return made
    if batch.pending is None or (pending := batch._unfinished()) is None:
        out, pending = resubmit_one(plan.handle, values, batch.caller_owned, batch.sources)
    else:
        out, pending = resubmit(plan.handle, [values], ((pending, batch._sample),), batch.caller_owned, batch.sources)
    if out is None:
        return function(batch, *args, **kwargs)
    made = new_batch(out, None, plan.layout, pending)
    if batch.sources is not UNKNOWN:
        made.sources = batch.sources
    return made


def on_tensor(function: Callable[..., Any], values: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return ``function(values, *args, **kwargs)``, which makes a Batch of the tensor and a tensor of the result.

    >>> from torch_ndd import as_batch, flip
    >>> mirrored = lambda values: flip(as_batch(values, layout="HWC")).torch()
    >>> [on_tensor(mirrored, torch.tensor([1, 2]).reshape(1, 1, 2, 1), (), {}).flatten().tolist() for _ in range(2)]
    [[2, 1], [2, 1]]
    """
    if not _repeats(values) or values.requires_grad:
        return function(values, *args, **kwargs)
    try:
        key = function, values.shape, values.dtype, _frozen(args, kwargs)
    except UnknownValue:
        return function(values, *args, **kwargs)
    plan = _plans.get(key)
    if plan is None:
        if key in _plans or not _plain(values):
            return function(values, *args, **kwargs)
        made, launched = _recorded(function, values, args, kwargs)
        if launched is not None and type(made) is torch.Tensor and _same(made, launched.arguments[-2]) and _same(values, launched.arguments[0]):
            _keep(key, launched, made.shape)
        else:
            _keep(key, None)
        return made
    if plan.given == values.shape:
        given = values
    elif values.is_contiguous():
        given = values.view(plan.given)
    else:
        return function(values, *args, **kwargs)
    out, pending = resubmit_one(plan.handle, given, True, ())
    if out is None:
        return function(values, *args, **kwargs)
    assert pending is None  # because the memory is the caller's
    return out if out.shape == plan.shape else out.view(plan.shape)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same contiguous elements."""
    return one.data_ptr() == other.data_ptr() and one.numel() == other.numel() and one.dtype == other.dtype and one.is_contiguous()


def recorded(call: Callable[[], Any]) -> tuple[Any, list[Launched | None]]:
    """Return what a call makes, and the kernels that it launches."""
    before, launched = recording.launched, list[Launched | None]()
    recording.launched = launched
    try:
        return call(), launched
    finally:
        recording.launched = before


def _recorded(function: Callable[..., Any], given: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Launched | None]:
    """Return what a function makes, and the kernel if it has launched only one."""
    made, launched = recorded(partial(function, given, *args, **kwargs))
    one = launched[0] if len(launched) == 1 else None
    return made, one if one is not None and one.inputs == 1 and not one.op.draws else None


def _keep(key: Any, launched: Launched | None, shape: tuple[int, ...] = (), layout: str | None = None) -> None:
    if len(_plans) >= _MOST:
        _plans.clear()
    _plans[key] = None if launched is None else _plan(launched, shape, layout)


def _plan(launched: Launched, shape: tuple[int, ...], layout: str | None) -> Plan | None:
    arguments = launched.arguments
    if arguments[1] is not None or arguments[-1] is not None:  # ragged
        return None
    handle = native.planned(launched.op.kernel, arguments, [0, 0, len(arguments) - 2, native.PLAN_OUTPUT], [False], None)
    return None if handle is None else Plan(handle, native.owned(handle, native.OF_PLAN), arguments[0].shape, shape, layout)
