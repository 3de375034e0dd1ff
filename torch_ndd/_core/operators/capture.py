# SPDX-License-Identifier: Apache-2.0
"""``next_epoch(capture=True)``: the calls of one step of a loop are issued for the next step before the loop reaches it.

A call is identified by its operator, its constants (by type and value) and the origin of its inputs: the reader, or an earlier call of the same step.
The calls of a step are issued again on the next batch as soon as it has been read. When the loop makes such a call itself, it gets the result; any
other call is simply executed. A call is replaced only if its result cannot differ:

- a result of a call that was executed instead of the one made ahead is not an input of calls made ahead;
- values that were written to since are not those that the call made ahead has read; torch counts writes, and data handed out as a torch tensor or as
  an array may be written to at any time;
- a random operator drew its words at the expected position of its generator; if the generator is there, the loop gets the result, and the generator
  advances.

Values, order and the state of generators therefore equal those of plain execution, whatever the loop does.
"""

import enum
import itertools
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from ...types import DataType
from ..context.context import EvalContext, register, unregister
from ..context.device import Device
from ..context.modes import EvalMode, current_mode
from ..context.rng import RNG, WORDS_PER_CALL, get_default_rng
from ..values.operand import Operand
from ..values.operand import loop as current
from ..work.call_sites import caller
from ..work.pending import Pending

_MOST_BYTES = 4096  # of an array that is compared by value
_MOST_MISSES = 3  # unusable results of a call in a row, after which it is no longer made ahead

_IMMUTABLE = (int, bool, str, bytes, type(None), torch.dtype, enum.Enum, np.generic, DataType, Device)


class Unknown(Exception):
    """A value that may change without notice."""


class Ref(NamedTuple):
    """Output ``part`` of the call with this number in the same step; the reader has the number 0."""

    call: int
    part: int | str


class Origin(NamedTuple):
    """The origin of a value, and its version then."""

    step: object
    ref: Ref
    version: int
    layout: str | None


@dataclass
class _Made:
    """The results of a call made ahead, and the conditions for their use."""

    results: Any
    context: Any
    generator: tuple[RNG, int, int] | None  # with its key and position


@dataclass(eq=False)
class _RecordedCall:
    """A call in the loop's body."""

    number: int
    perform: Callable[..., Any]
    inputs: tuple[Any, ...]
    given: dict[str, Any]
    draws: bool
    refs: set[int]  # the calls whose results it takes
    trusted: bool  # worth making ahead
    step: int = 0  # the latest step that made it
    misses: int = 0
    position: int = 0  # of its generator, at the latest call
    rng: RNG | None = field(default=None)


class Owner:
    """Held by a loop only, while it runs."""


class Recorder:
    """The calls in a loop's body. It is active in the thread of the loop while the body runs."""

    counts_writes = True  # NumPy and DLPack do not count their own: see Operand

    def __init__(self, owner: "weakref.ref[Any]") -> None:
        self.owner = owner  # lives as long as the loop runs
        self.batch_size: int | None = None  # of this step; None if it has no Batch
        self._calls: dict[Any, _RecordedCall] = {}
        self._numbers = itertools.count(1)
        self._step = 0
        self._token = object()  # of this step
        self._counts: dict[Any, int] = {}  # of equal calls in this step
        self._made: dict[int, _Made] = {}  # for this step, by the call's number
        self._next: dict[int, _Made] = {}  # for the next one
        self._replaced: set[int] = set()  # calls of this step that were executed instead of those made ahead
        self._drawn: dict[int, tuple[RNG, int]] = {}  # generators, and their positions at the start of this step or at the first draw
        self._strides: dict[int, int] = {}  # words that a generator yields per step

    def begin(self, outputs: Any) -> None:
        """Start the loop's next step, with these outputs of the reader."""
        self._step += 1
        self._calls = {key: call for key, call in self._calls.items() if call.step == self._step - 1}
        self._made, self._next = self._next, {}
        self._token = object()
        self._counts, self._replaced = {}, set()
        for number, (rng, position) in list(self._drawn.items()):
            self._strides[number] = rng._position - position
            self._drawn[number] = (rng, rng._position)
        self.batch_size = next((size for one in _parts(outputs).values() if (size := getattr(one, "batch_size", None)) is not None), None)
        self._mark(outputs, 0)

    def forget(self) -> None:
        """Discard what was made for the next step."""
        self._next = {}

    @property
    def has_calls(self) -> bool:
        """Return whether there is anything to make ahead now."""
        return self._step > 1 and current_mode() == EvalMode.eager and any(call.trusted for call in self._calls.values())

    def call_ahead(self, outputs: Any) -> None:
        """Issue the calls of this step for the next one, which has these outputs of the reader."""
        parts: dict[int, Any] = {0: _parts(outputs)}
        made_in = EvalContext.current()
        recorder, current.recorder = current.recorder, None
        try:
            for call in self._calls.values():
                if call.trusted and call.misses < _MOST_MISSES and call.refs <= parts.keys():
                    made = self._made_ahead(call, parts, made_in)
                    if made is not None:
                        self._next[call.number] = made
                        parts[call.number] = _parts(made.results)
        finally:
            current.recorder = recorder

    def _made_ahead(self, call: _RecordedCall, parts: dict[int, Any], context: Any) -> _Made | None:
        given = {name: _restored(value, parts) for name, value in call.given.items()}
        generator = None
        if call.draws:
            rng = call.rng or get_default_rng()
            stride = self._strides.get(rng._number)
            if stride is None:
                return None
            generator = (rng, rng._key, call.position + (self._step + 1 - call.step) * stride)
            given["rng"] = rng.at(generator[2])
        try:
            results = call.perform(tuple(_restored(value, parts) for value in call.inputs), given)
        except Exception:  # the loop's own call raises it
            return None
        for pending in _pending(results):
            unregister(pending)
        return _Made(results, context, generator)

    def call(self, name: str, perform: Callable[..., Any], inputs: tuple[Any, ...], given: dict[str, Any], draws: bool) -> Any:
        """Return the result of a call in the loop's body: the one made ahead, or that of ``perform(inputs, given)``."""
        call = self._known(name, perform, inputs, given, draws)
        if call is None:
            return _plainly(perform, inputs, given)
        rng = (call.rng or get_default_rng()) if draws else None
        if rng is not None:
            call.position = rng._position
            self._drawn.setdefault(rng._number, (rng, rng._position))
        call.step = self._step
        made = self._made.pop(call.number, None)
        if made is not None and self._fits(call, made, rng):
            call.misses = 0
            for pending in _pending(made.results):
                pending._site = caller()
                register(pending)
            results = made.results
        else:
            call.misses += made is not None
            self._replaced.add(call.number)
            results = _plainly(perform, inputs, given)
        self._mark(results, call.number)
        return results

    def _fits(self, call: _RecordedCall, made: _Made, rng: RNG | None) -> bool:
        if current_mode() != EvalMode.eager or made.context is not EvalContext.current() or call.refs & self._replaced:
            return False
        if rng is None:
            return True
        assert made.generator is not None
        expected, key, position = made.generator
        return expected is rng and rng.moved_on(key, position, WORDS_PER_CALL)

    def _known(self, name: str, perform: Callable[..., Any], inputs: tuple[Any, ...], given: dict[str, Any], draws: bool) -> _RecordedCall | None:
        refs: set[int] = set()
        rng = given.get("rng") if draws else None
        if rng is not None and not isinstance(rng, RNG):
            return None
        try:
            pairs = [self._constant(value, refs) for value in inputs]
            named = {key: self._constant(value, refs) for key, value in given.items() if not (draws and key == "rng")}
        except Unknown:
            return None
        signature = (name, tuple(pair[0] for pair in pairs), tuple((key, pair[0]) for key, pair in named.items()), rng and rng._number)
        count = self._counts[signature] = self._counts.get(signature, 0) + 1
        call = self._calls.get((signature, count))
        if call is None:
            kept = tuple(pair[1] for pair in pairs), {key: pair[1] for key, pair in named.items()}
            # An unmarked object may be another one in the next step, and the result would be made in vain.
            call = _RecordedCall(next(self._numbers), perform, *kept, draws, refs - {-1}, self._step == 1 and -1 not in refs, rng=rng)
            self._calls[signature, count] = call
        elif call.step == self._step - 1:
            call.trusted = True
        return call

    def _constant(self, value: Any, refs: set[int]) -> tuple[Any, Any]:
        """Return the identity of a value, and the value to pass again. Raise :class:`Unknown` if it has none.

        ``refs`` collects the numbers of the calls that it comes from, -1 for a value identified as the same object.
        """
        if isinstance(value, float | np.floating):
            return (type(value), float(value).hex()), value
        if isinstance(value, _IMMUTABLE):
            return (type(value), value), value
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            pairs = [self._constant(one, refs) for one in value]
            return (type(value), *(pair[0] for pair in pairs)), type(value)(pair[1] for pair in pairs)
        if isinstance(value, Operand):
            origin = value._origin
            if origin is not None and origin.step is self._token:
                if origin.version != _version(value) or origin.layout != value._layout:
                    raise Unknown
                refs.add(origin.ref.call)
                return origin.ref, origin.ref
            refs.add(-1)
            return (Operand, id(value), _version(value), value._layout), value
        if isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES and value.dtype.kind in "biuf":
            return (np.ndarray, value.dtype.str, value.shape, value.tobytes()), value.copy()
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.nbytes <= _MOST_BYTES:
            copy = value.detach().clone(memory_format=torch.contiguous_format)
            return (torch.Tensor, value.dtype, tuple(value.shape), copy.view(-1).view(torch.uint8).numpy().tobytes()), copy
        raise Unknown

    def _mark(self, results: Any, number: int) -> None:
        for part, one in _parts(results).items():
            if isinstance(one, Operand) and "buffer" in one.__dict__ and not one.buffer.is_inference():
                one._origin = Origin(self._token, Ref(number, part), _version(one), one._layout)


def _restored(value: Any, parts: dict[int, Any]) -> Any:
    if isinstance(value, Ref):
        return parts[value.call][value.part]
    if isinstance(value, list | tuple):
        return type(value)(_restored(one, parts) for one in value)
    return value


def _version(value: Operand) -> int:
    """Return how often the values were written to. Raise :class:`Unknown` for tensors of torch.inference_mode, which do not count it."""
    if value.buffer.is_inference():
        raise Unknown
    return value.buffer._version


def _plainly(perform: Callable[..., Any], inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    recorder, current.recorder = current.recorder, None  # nested calls are part of this one
    try:
        return perform(inputs, given)
    finally:
        current.recorder = recorder


def _pending(results: Any) -> set[Pending]:
    found = (one.pending for one in _parts(results).values() if isinstance(one, Operand))
    return {pending for pending in found if pending is not None and not pending.stays}


def _parts(results: Any) -> Mapping[int | str, Any]:
    if isinstance(results, Mapping):
        return results
    return dict(enumerate(results if isinstance(results, tuple) else (results,)))
