# SPDX-License-Identifier: Apache-2.0
"""Repeating the calls of an operator on batches: without its body, and without checking what was checked for batches of the same shapes.

A program has cold caches at its next call, because of the threads that decode, or of a model's step. Each function of Python that is not called then
saves 5 to 10 us, each attribute of a tensor that is not read up to 20: ``flip`` of small images took 250 us, repeated 118, 93 of them in
``ndd::again`` (csrc/ndd/stream/repeat.cpp), the one call of native code that remains.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd import profiler

from .. import native
from ..values.batch import Batch, new_batch
from ..values.dispatch import resubmit
from ..work.cuda_work import on_stream, stream_work
from ..work.sources import UNKNOWN
from .arguments import Call, Role, prepared
from .definition import Operator
from .replay import PLAIN, Drawn, Launched, UnknownValue, freeze, recorded, recording

_MOST = 1000  # shapes; more of them come from batches that are never alike
_MOST_OF_A_KEY = 8  # shapes of calls that are equal otherwise, through which a call looks
_MOST_ELEMENTS = 64  # of a tensor that is compared by value
_WARNS = "output_dtype"  # an argument with which each call warns


class _Template(NamedTuple):
    """A call with batches as its inputs and arguments."""

    kernel: Any
    arguments: list[Any]  # with None in the places of what differs
    places: list[tuple[int, int]]  # of the values of operand k, 2k, or of its shapes, 2k + 1
    words: int | None  # place of what a random operator has drawn, or of what `drawn` makes of it
    shape: tuple[int, ...]  # of the result
    dtype: torch.dtype
    layout: str | None
    draws: bool
    drawn: Drawn | None

    def agrees(self, other: "_Template") -> bool:
        """Return whether two calls with equal batches have launched the same, so that nothing was computed from the values of the batches."""
        return self[2:-1] == other[2:-1] and all(self._same(a, b) for a, b in zip(self.arguments, other.arguments, strict=True))

    def lightened(self) -> "_Template":
        """Return the same, to be compared with a later call, without keeping large tensors that the body does not keep."""
        large = [weakref.ref(one) if type(one) is torch.Tensor and one.numel() > _MOST_ELEMENTS else one for one in self.arguments]
        return self._replace(arguments=large)

    def _same(self, a: Any, b: Any) -> bool:
        if type(b) is weakref.ref:
            return a is b()
        if a is b or type(a) is not type(b):
            return a is b
        if type(a) is torch.Tensor and not self.draws:  # what was drawn may be equal by chance
            return a.dtype == b.dtype and a.shape == b.shape and a.numel() <= _MOST_ELEMENTS and a.is_cpu and _bytes(a) == _bytes(b)
        return type(a) in PLAIN and a == b


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


class _Plan(NamedTuple):
    """The recipe for repeating a call, for one shape or several."""

    handle: int  # of native code
    owner: Any
    shapes: int
    words: bool  # whether something is drawn
    layout: str | None
    drawn: Drawn | None
    gpu: torch.device | None  # where the kernel runs; None for the CPU


class Repeated:
    """The calls of an operator with the same constants, repeated for batches like those of earlier calls.

    The second and the third call are compared. What a kernel takes besides the values of the batches is then an object that both had, a constant or
    one that the body keeps, an equal number, or a small tensor with equal elements. A random operator must not have numbers of its own there, which
    might have been drawn, unless :attr:`Launch.drawn` says what was.
    """

    __slots__ = ("_confirmed", "_known", "_of_any_shape", "_op", "_seen")

    def __init__(self, op: Operator) -> None:
        self._op = op
        self._confirmed: dict[Any, _Plan] = {}
        self._known: set[Any] = set()  # keys of calls
        self._seen: dict[Any, _Template | None] = {}  # by one call so far; None for calls that cannot be repeated
        self._of_any_shape = True  # until a call has shown that shapes matter

    def key(self, operands: Sequence[Batch], names: Iterable[Any], batch_size: int | None) -> Any:
        """Return what a call depends on besides values and the shapes of dense batches; None for a call that is not repeated."""
        key: list[Any] = [batch_size, *names]
        for one in operands:
            values, shapes = one.buffer, one.ragged_shapes
            if type(values) is not torch.Tensor:
                return None
            key += (one._layout, values.get_device())
            if shapes is None:
                if self._op.draws:
                    key.append(values.shape)  # what is made of the words depends on it
            elif self._of_any_shape and shapes.numpy().all():
                key.append(one.shared_extents)
            else:
                return None
        return tuple(key)

    def call(self, inputs: Sequence[Any], given: dict[str, Any], perform: Callable[..., Any]) -> Any:
        """Make a call of the program: ``perform(operator, inputs, given)``, or what two equal calls have launched.

        In one function with :meth:`key`, because each one more takes 5 to 10 us here.
        """
        op = self._op
        if recording.launched is not None or len(inputs) > op.inputs or profiler._is_profiler_enabled:
            return perform(op, inputs, given)  # a profile has the names of kernels
        operands: list[Batch] = []
        names: list[str] = []
        key: list[Any] = [len(inputs)]
        for one in inputs:
            if type(one) is not Batch or (one._layout is None and op.options.layouts is not None):
                return perform(op, inputs, given)
            operands.append(one)
        for name, value in given.items():
            kind = type(value)
            if kind is Batch:
                operands.append(value)
                names.append(name)
                key.append(name)
            elif name == _WARNS or (name == "device" and value not in (None, "cpu")):  # "gpu" is the current one
                return perform(op, inputs, given)
            elif kind in PLAIN:
                key += (name, kind, value or str(value))
            elif name != "rng" or not op.draws:
                key += (name, operands[0].batch_size if operands else None)  # of which it may have one value for each
                try:
                    freeze(key, value)
                except UnknownValue:
                    return perform(op, inputs, given)
        found = self.key(operands, key, None)
        if found is None:
            return perform(op, inputs, given)
        words = None
        if op.draws and found in self._confirmed:
            words = prepared(Call(op.name), op.arguments["rng"], given.get("rng"), False)
        made = self.again(found, operands, len(inputs), words)
        return self.recorded(found, operands, names, partial(perform, op, inputs, given, words)) if made is None else made

    def again(self, key: Any, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
        """Return the result of a call that can be repeated."""
        plan = self._confirmed.get(key)
        if plan is None:
            return None
        if plan.gpu is not None:
            return self._on_gpu(plan, plan.gpu, operands, inputs, words)
        given, reads, external = [], [], False
        for one in operands:
            given.append(one.buffer)
            if one.ragged_shapes is not None:
                given.append(one.ragged_shapes)
            if one.caller_owned:
                external = True
            if one.pending is not None and (pending := one._unfinished()) is not None:
                reads.append((pending, one._sample))
        if plan.words:
            assert words is not None
            given.append(words if plan.drawn is None else plan.drawn(operands[0].ragged_shapes, words))
        sources = operands[0].sources if inputs else UNKNOWN
        if sources is UNKNOWN and inputs > 1:
            sources = operands[1].sources
        out, pending = resubmit(plan.handle, given, reads, external, sources)
        if out is None:
            return None
        made = new_batch(out, None, plan.layout, pending)
        if sources is not UNKNOWN:
            made.sources = sources
        return made

    def _on_gpu(self, plan: _Plan, gpu: torch.device, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
        given: list[torch.Tensor] = []
        with on_stream(gpu, [(one.buffer, one.pending) for one in operands], any(one.caller_owned for one in operands)):
            for one in operands:
                given.append(one.buffer)
                if one.ragged_shapes is not None:
                    given.append(one.ragged_shapes)
                if one.pending is not None and (pending := one._unfinished()) is not None:
                    pending.wait()  # the launcher reads arguments on the host
            if plan.words:
                assert words is not None
                given.append(words if plan.drawn is None else plan.drawn(operands[0].ragged_shapes, words))
            sources = operands[0].sources if inputs else UNKNOWN
            out, _ = resubmit(plan.handle, given, [], False, sources)
            if out is None:
                return None
            made = new_batch(out, None, plan.layout, stream_work([out]))
            made.sources = sources
            return made

    def recorded(self, key: Any, operands: Sequence[Batch], names: Iterable[str], call: Callable[[], Any]) -> Any:
        """Return what a call makes, and remember what it launches if there has been one like it: of many, there is never another."""
        if key not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known.add(key)
            return call()
        forms = [(one.buffer.dtype, one.buffer.shape if one.ragged_shapes is None else one.ragged_shapes.shape) for one in operands]
        of_shapes = (key, *forms)
        first = self._seen.get(of_shapes, False)  # in one step: another thread may clear it
        if first is None:
            return call()
        made, launched = recorded(call)
        if len(self._seen) >= _MOST:
            self._seen.clear()
            self._confirmed.clear()
        ragged = any(operand.ragged_shapes is not None for operand in operands)
        if ragged and not all(one is not None and one.any_shape for one in launched):
            self._of_any_shape = False
            return made
        found = _template(launched, made, operands, names)
        self._seen[of_shapes] = found and found.lightened()
        if isinstance(first, _Template) and found is not None:
            if found.agrees(first) and (plan := _planned(found, operands, made.buffer, launched[0], self._confirmed.get(key))) is not None:
                self._confirmed[key] = plan
            self._seen[of_shapes] = None
        return made


def _planned(template: _Template, operands: Sequence[Batch], out: torch.Tensor, launched: Launched | None, other: _Plan | None) -> _Plan | None:
    """Return the plan of a call, and of those that ``other`` is for; None if it cannot be repeated."""
    gpu = out.device if out.is_cuda else None
    if other is not None and (other.shapes >= _MOST_OF_A_KEY or other[3:] != (template.words is not None, template.layout, template.drawn, gpu)):
        return None
    words = None if launched is None else launched.words
    arguments = template.arguments.copy()
    arguments[-2] = out
    places = [(len(arguments) - 2, native.PLAN_OUTPUT)]
    given: list[int] = []  # places of the operands' tensors
    any_size: list[int] = []
    for k, one in enumerate(operands):
        given.append(2 * k)
        any_size.append(one.ragged_shapes is not None)
        if one.ragged_shapes is not None:
            given.append(2 * k + 1)
            any_size.append(False)
    for place, k in template.places:
        places.append((place, given.index(k)))
        operand = operands[k >> 1]
        arguments[place] = operand.ragged_shapes if k & 1 else operand.buffer
    if template.words is not None and words is not None:
        places.append((template.words, len(given)))
        any_size.append(False)
        arguments[template.words] = words if template.drawn is None else template.drawn(operands[0].ragged_shapes, words)
    numbers = [number for pair in places for number in pair]
    handle = native.planned(template.kernel, arguments, numbers, any_size, None if other is None else other.handle)
    if handle is None:
        return None
    owner = native.owned(handle, native.OF_PLAN)
    return _Plan(handle, owner, 1 if other is None else other.shapes + 1, template.words is not None, template.layout, template.drawn, gpu)


def _template(launched: list[Launched | None], made: Any, operands: Sequence[Batch], names: Iterable[str]) -> _Template | None:
    one = launched[0] if len(launched) == 1 else None
    if one is None or type(made) is not Batch or made.buffer is not one.arguments[-2] or made.ragged_shapes is not None:
        return None
    if any((one.op.arguments.get(name) or one.op.positional[name]).role is not Role.per_sample for name in names):
        return None  # the body reads the values
    tensors = [tensor for operand in operands for tensor in (operand.buffer, operand.ragged_shapes)]
    arguments: list[Any] = [*one.arguments]
    places: list[tuple[int, int]] = []
    drawn = None
    arguments[-2] = None
    for place, given in enumerate(arguments):
        if not isinstance(given, torch.Tensor):
            if one.op.draws and given is not None and one.drawn is None and one.op.automatic is None:
                return None  # it may have been drawn; a kernel that takes the function's own arguments has them from the program
            continue
        if one.drawn is not None and place == 2 * one.op.inputs:  # the first argument after the inputs
            drawn, arguments[place] = place, None
            continue
        k = next((k for k, one_given in enumerate(tensors) if one_given is given), None)
        if k is not None:
            places.append((place, k))
        elif given is one.words:
            drawn = place
        else:
            continue
        arguments[place] = None
    if {k for _, k in places} != {k for k, tensor in enumerate(tensors) if tensor is not None} or (one.words is None) != (drawn is None):
        return None  # something was computed of them, or drawn otherwise
    return _Template(one.op.kernel, arguments, places, drawn, made.buffer.shape, made.buffer.dtype, made._layout, one.op.draws, one.drawn)
