# SPDX-License-Identifier: Apache-2.0
"""``next_epoch(capture=True)``: the calls of one step of a loop are issued for the next step before the loop reaches it.

A call is identified by its operator, its constants (by type and value) and the origin of its inputs: the reader, or an earlier call of the same step.
The calls of a step are issued again on the next batch as soon as it has been read. When the loop makes such a call itself, it gets the result; any
other call is simply executed. All calls go through :class:`OperatorCalls`, so those issued ahead run the plans of earlier steps.

The result of a call issued ahead is used only if it cannot differ from that of the loop's own call:

- a result of a call that was executed instead of the one issued ahead is not an input of calls issued ahead;
- the values that were read have not been written to since; torch counts writes, and data handed out as a torch tensor or as an array may be written
  to at any time;
- a random operator drew its words at the expected position of its generator; if the generator is there, the loop gets the result, and the generator
  advances.

Values, order and the state of generators therefore equal those of plain execution, whatever the loop does.

Issuing ahead pays where CPU threads would be idle while the loop's body waits for something else, such as a model. Calls on a GPU return before the
GPU has done their work, as the model's do, so the next step's calls follow without a pause anyway: issued ahead they would only delay the model.
A loop with results on a GPU is therefore executed plainly.
"""

import enum
import itertools
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ...types import DataType
from ..context.context import EvalContext, EvalMode, register, thread_state, unregister
from ..context.device import Device
from ..context.rng import RNG, WORDS_PER_CALL, get_default_rng
from ..values.operand import Operand, loop
from ..work.call_sites import caller
from ..work.pending import Pending

_MAX_BYTES = 4096  # of an array that is compared by value
_MAX_MISSES = 3  # unusable results of a call in a row, after which it is no longer issued ahead

_IMMUTABLE = (int, bool, str, bytes, type(None), torch.dtype, enum.Enum, np.generic, DataType, Device)
_SAME_OBJECT = -1  # among the references of a call: a value without an origin, identified as an object

Function: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Any]  # of inputs and keyword arguments


class Unknown(Exception):
    """A value that may change without notice."""


class Ref(NamedTuple):
    """Output ``part`` of the call with this number in the same step; the reader has the number 0."""

    call: int
    part: int | str


class Origin(NamedTuple):
    """The origin of a value, and its version and layout when it came from there."""

    step: object
    ref: Ref
    version: int
    layout: str | None


@dataclass
class _Ahead:
    """The results of a call issued ahead, and the conditions for their use."""

    results: Any
    context: Any
    generator: tuple[RNG, int, int] | None  # with its key and position


@dataclass(eq=False)
class _BodyCall:
    """A call in the loop's body."""

    number: int
    function: Function
    inputs: tuple[Any, ...]  # with a Ref in place of each result of this step
    arguments: dict[str, Any]
    draws: bool
    refs: set[int]  # the calls whose results it takes
    trusted: bool  # it is likely to return in the next step
    step: int = 0  # the latest step that made it
    misses: int = 0
    position: int = 0  # of its generator, at the latest call
    rng: RNG | None = None


class Owner:
    """Held by a loop only, while it runs."""


class LoopRecorder:
    """The calls in a loop's body. It is active in the thread of the loop while the body runs."""

    def __init__(self, owner: "weakref.ref[Any]") -> None:
        self.owner = owner  # lives as long as the loop runs
        self.batch_size: int | None = None  # of this step; None if it has no Batch
        self.counts_writes = True  # until the loop is executed plainly
        self._calls: dict[Any, _BodyCall] = {}
        self._numbers = itertools.count(1)
        self._step = 0
        self._token = object()  # of this step
        self._counts: dict[Any, int] = {}  # equal calls in this step
        self._ahead: dict[int, _Ahead] = {}  # for this step, by the call's number
        self._next_ahead: dict[int, _Ahead] = {}  # for the next step
        self._replaced: set[int] = set()  # calls of this step that were executed instead of those issued ahead
        self._drawn: dict[int, tuple[RNG, int]] = {}  # generators, and their positions at the start of this step or at the first draw
        self._strides: dict[int, int] = {}  # words that a generator yields per step

    def begin(self, outputs: Any) -> None:
        """Start the loop's next step, with these outputs of the reader."""
        self._step += 1
        # A call that the previous step did not make is not issued ahead again.
        self._calls = {key: call for key, call in self._calls.items() if call.step == self._step - 1}
        self._ahead, self._next_ahead = self._next_ahead, {}
        self._token = object()
        self._counts, self._replaced = {}, set()
        # Assumes that each step draws as many words as the last one; skip_if_at() finds out when it does not.
        for number, (rng, position) in list(self._drawn.items()):
            self._strides[number] = rng._position - position
            self._drawn[number] = (rng, rng._position)
        self.batch_size = next((size for value in _parts(outputs).values() if (size := getattr(value, "batch_size", None)) is not None), None)
        self._mark(outputs, 0)

    def discard(self) -> None:
        """Discard the results for the next step."""
        self._next_ahead = {}

    @property
    def has_calls(self) -> bool:
        """Return whether there is anything to issue ahead now."""
        return self._step > 1 and thread_state.mode == EvalMode.eager and any(call.trusted for call in self._calls.values())

    def call_ahead(self, outputs: Any) -> None:
        """Issue the calls of this step for the next one, which has these outputs of the reader."""
        parts: dict[int, Any] = {0: _parts(outputs)}
        context = EvalContext.current()
        # Without the recorder, so the calls are not taken for calls of the body.
        recorder, loop.recorder = loop.recorder, None
        try:
            for call in self._calls.values():  # in the order of the step: inputs come before the calls that take them
                if call.trusted and call.misses < _MAX_MISSES and call.refs <= parts.keys():
                    ahead = self._issue(call, parts, context)
                    if ahead is not None:
                        self._next_ahead[call.number] = ahead
                        parts[call.number] = _parts(ahead.results)
        finally:
            loop.recorder = recorder

    def _issue(self, call: _BodyCall, parts: dict[int, Any], context: Any) -> _Ahead | None:
        """Execute a call on the next step's values."""
        arguments = {name: _resolve(value, parts) for name, value in call.arguments.items()}
        generator = None
        if call.draws:
            rng = call.rng or get_default_rng()
            stride = self._strides.get(rng._number)
            if stride is None:
                return None
            # Other calls may draw in between, the same number of words in each step.
            generator = (rng, rng._key, call.position + (self._step + 1 - call.step) * stride)
            arguments["rng"] = rng.at(generator[2])
        try:
            results = call.function(tuple(_resolve(value, parts) for value in call.inputs), arguments)
        except Exception:  # the loop's own call raises it
            return None
        for pending in _pending(results):
            unregister(pending)  # errors belong to the loop's own call
        return _Ahead(results, context, generator)

    def call(self, name: str, function: Function, inputs: tuple[Any, ...], arguments: dict[str, Any], draws: bool) -> Any:
        """Return the result of a call in the loop's body: the one issued ahead, or that of ``function(inputs, arguments)``."""
        if not self.counts_writes:
            return function(inputs, arguments)
        call = self._find_call(name, function, inputs, arguments, draws)
        if call is None:
            return _execute(function, inputs, arguments)
        rng = (call.rng or get_default_rng()) if draws else None
        if rng is not None:
            call.position = rng._position
            self._drawn.setdefault(rng._number, (rng, rng._position))
        call.step = self._step
        ahead = self._ahead.pop(call.number, None)
        # What was issued ahead is used only if nothing that it depends on has changed since.
        if ahead is not None and self._is_usable(call, ahead, rng):
            call.misses = 0
            # From here on the result is the program's: errors name its line, and the end of a context waits for it.
            for pending in _pending(ahead.results):
                pending._site = caller()
                register(pending)
            results = ahead.results
        else:
            # Wasted work is counted, so a call whose results are never used is not issued ahead forever.
            call.misses += ahead is not None
            self._replaced.add(call.number)
            results = _execute(function, inputs, arguments)
            # Calls on a GPU are queued anyway, ahead of the device: issuing them earlier gains nothing.
            if any(value.buffer.device.type == "cuda" for value in _parts(results).values() if _has_buffer(value)):
                self._execute_plainly()
        self._mark(results, call.number)
        return results

    def _execute_plainly(self) -> None:
        """Stop issuing calls ahead. The recorder stays: sources that are called in the body take their batch size from it."""
        self.counts_writes = False
        self._calls, self._ahead, self._next_ahead = {}, {}, {}

    def _is_usable(self, call: _BodyCall, ahead: _Ahead, rng: RNG | None) -> bool:
        if thread_state.mode != EvalMode.eager or ahead.context is not EvalContext.current() or call.refs & self._replaced:
            return False
        if rng is None:
            return True
        assert ahead.generator is not None
        expected, key, position = ahead.generator
        return expected is rng and rng.skip_if_at(key, position, WORDS_PER_CALL)

    def _find_call(self, name: str, function: Function, inputs: tuple[Any, ...], arguments: dict[str, Any], draws: bool) -> _BodyCall | None:
        """Return the description of a call, a new one if the loop makes it for the first time; None if a value has no identity."""
        refs: set[int] = set()
        rng = arguments.get("rng") if draws else None
        if rng is not None and not isinstance(rng, RNG):
            return None
        try:
            pairs = [self._identify(value, refs) for value in inputs]
            named = {key: self._identify(value, refs) for key, value in arguments.items() if not (draws and key == "rng")}
        except Unknown:
            return None
        # Equal calls of one step are told apart by their order.
        signature = (name, tuple(pair[0] for pair in pairs), tuple((key, pair[0]) for key, pair in named.items()), rng and rng._number)
        count = self._counts[signature] = self._counts.get(signature, 0) + 1
        call = self._calls.get((signature, count))
        if call is None:
            stored = tuple(pair[1] for pair in pairs), {key: pair[1] for key, pair in named.items()}
            # A value identified as an object may be another one in the next step, and the work would be wasted. So would be that of a call that
            # differs from the calls of the first step, until it returns.
            trusted = self._step == 1 and _SAME_OBJECT not in refs
            call = _BodyCall(next(self._numbers), function, *stored, draws, refs - {_SAME_OBJECT}, trusted, rng=rng)
            self._calls[signature, count] = call
        elif call.step == self._step - 1:
            call.trusted = True
        return call

    def _identify(self, value: Any, refs: set[int]) -> tuple[Any, Any]:
        """Return the identity of a value, and the value to pass in later steps. Raise :class:`Unknown` if it has no identity.

        ``refs`` collects the numbers of the calls that it comes from, and ``_SAME_OBJECT``.
        """
        # As hexadecimal digits, so NaN equals itself and 0.0 differs from -0.0.
        if isinstance(value, float | np.floating):
            return (type(value), float(value).hex()), value
        if isinstance(value, _IMMUTABLE):
            return (type(value), value), value
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            pairs = [self._identify(element, refs) for element in value]
            return (type(value), *(pair[0] for pair in pairs)), type(value)(pair[1] for pair in pairs)
        if isinstance(value, Operand):
            origin = value._origin
            # A result of this step: the next step finds its own by the call and the part that it comes from.
            if origin is not None and origin.step is self._token:
                # The body has written to the value or relabeled it: the value of the next step would lack that change.
                if origin.version != _version(value) or origin.layout != value._layout:
                    raise Unknown
                refs.add(origin.ref.call)
                return origin.ref, origin.ref
            refs.add(_SAME_OBJECT)
            return (Operand, id(value), _version(value), value._layout), value
        if isinstance(value, np.ndarray) and value.nbytes <= _MAX_BYTES and value.dtype.kind in "biuf":
            return (np.ndarray, value.dtype.str, value.shape, value.tobytes()), value.copy()
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.nbytes <= _MAX_BYTES:
            # A copy, because the body may write to the tensor before the next step compares it.
            copy = value.detach().clone(memory_format=torch.contiguous_format)
            return (torch.Tensor, value.dtype, tuple(value.shape), copy.view(-1).view(torch.uint8).numpy().tobytes()), copy
        raise Unknown

    def _mark(self, results: Any, number: int) -> None:
        """Set the origin of the results of a call."""
        for part, value in _parts(results).items():
            if _has_buffer(value) and not value.buffer.is_inference():
                value._origin = Origin(self._token, Ref(number, part), _version(value), value._layout)


def _resolve(value: Any, parts: dict[int, Any]) -> Any:
    """Return a stored value with the next step's results in place of references."""
    if isinstance(value, Ref):
        return parts[value.call][value.part]
    if isinstance(value, list | tuple):
        return type(value)(_resolve(element, parts) for element in value)
    return value


def _version(value: Operand) -> int:
    """Return how often the values were written to. Raise :class:`Unknown` for tensors of torch.inference_mode, which do not count it."""
    if value.buffer.is_inference():
        raise Unknown
    return value.buffer._version


def _execute(function: Function, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """Execute a call, with the calls that it makes itself as parts of it."""
    recorder, loop.recorder = loop.recorder, None
    try:
        return function(inputs, arguments)
    finally:
        loop.recorder = recorder


def _has_buffer(value: Any) -> bool:
    """Return whether a value has a buffer already. A sample of a batch makes its own only when it is used."""
    return isinstance(value, Operand) and "buffer" in value.__dict__


def _pending(results: Any) -> set[Pending]:
    pending = (value.pending for value in _parts(results).values() if isinstance(value, Operand))
    return {work for work in pending if work is not None and not work.stays}


def _parts(results: Any) -> Mapping[int | str, Any]:
    if isinstance(results, Mapping):
        return results
    return dict(enumerate(results if isinstance(results, tuple) else (results,)))
