# SPDX-License-Identifier: Apache-2.0
"""Plans: kernel calls kept in native code, built from records, that run again on other tensors (``ndd::again``, csrc/ndd/stream/repeat.cpp).

A program has cold caches at its next call, because of the threads that decode, or of a model's step. Each Python function that is not called then
saves 5 to 10 us, each attribute of a tensor that is not read up to 20: ``flip`` of small images took 250 us, repeated 118, 93 of them in
``ndd::again``, the only call of native code that remains.
"""

import enum
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from ..native import plans as native_plans
from ..values.batch import Batch, new_batch
from ..values.dispatch import resubmit
from ..work.cuda_work import on_stream, stream_work
from ..work.sources import UNKNOWN
from .arguments import Role
from .record import Record, Redraw

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


def build_plan(pattern: Pattern, record: Record, tensors: Sequence[torch.Tensor | None], previous: Plan | None) -> Plan | None:
    """Return the plan of a recorded call, which also serves the calls that ``previous`` does; None if it cannot be repeated."""
    output: torch.Tensor = record.arguments[-2]
    words, gpu = record.words, output.device if output.is_cuda else None
    first = tensors[0].shape if tensors and tensors[0] is not None else ()
    plan = Plan(0, None, 1, first, output.shape, pattern.words_place is not None, pattern.layout, pattern.redraw, gpu)
    if previous is not None and (previous.shapes >= _MAX_SHAPES or previous[5:] != plan[5:]):
        return None
    arguments = pattern.arguments.copy()
    arguments[-2] = output
    places = [(len(arguments) - 2, native_plans.OUTPUT)]
    passed = [k for k, tensor in enumerate(tensors) if tensor is not None]
    # The values of a ragged operand have any size; its shapes have one row for each sample.
    any_size = [k % 2 == 0 and tensors[k + 1] is not None for k in passed]
    for place, k in pattern.places:
        places.append((place, passed.index(k)))
        arguments[place] = tensors[k]
    if pattern.words_place is not None and words is not None:
        places.append((pattern.words_place, len(passed)))
        any_size.append(False)
        arguments[pattern.words_place] = words if pattern.redraw is None else pattern.redraw(tensors[1], words)
    handle = native_plans.build(pattern.kernel, arguments, places, any_size, None if previous is None else previous.handle)
    if handle is None:
        return None
    return plan._replace(handle=handle, owner=native_plans.own(handle), shapes=1 if previous is None else previous.shapes + 1)


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


def _run_on_gpu(plan: Plan, gpu: torch.device, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
    tensors: list[torch.Tensor] = []
    with on_stream(gpu, [(operand.buffer, operand.pending) for operand in operands], any(operand.caller_owned for operand in operands)):
        for operand in operands:
            tensors.append(operand.buffer)
            if operand.ragged_shapes is not None:
                tensors.append(operand.ragged_shapes)
            if operand.pending is not None and (pending := operand._pending_work()) is not None:
                pending.wait()  # the launcher reads per-sample arguments on the host
        if plan.takes_words:
            assert words is not None
            tensors.append(words if plan.redraw is None else plan.redraw(operands[0].ragged_shapes, words))
        sources = operands[0].sources if inputs else UNKNOWN
        output, _ = resubmit(plan.handle, tensors, [], False, sources)
        if output is None:
            return None
        result = new_batch(output, None, plan.layout, stream_work([output]))
        result.sources = sources
        return result
