# SPDX-License-Identifier: Apache-2.0
"""``next_epoch(capture=True)``: reads a batch early, so that the recorder can issue the loop's calls on it."""

import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from .._core.context.context import EvalContext
from .._core.operators.capture import LoopRecorder, Owner
from .._core.values.operand import loop
from .._core.work.bad_samples import BadSample
from ._failed import FailedBatch
from ._state import State


class Steps(Protocol):
    """The parts of a reader that a captured epoch uses."""

    _state: State
    _errors: deque[BadSample]

    @property
    def _lock(self) -> AbstractContextManager[Any]: ...
    def _begin_epoch(self) -> None: ...
    def count_steps(self, batch_size: int | None) -> int: ...
    def _step(self, batch_size: int | None, ctx: EvalContext | None, *, left: int) -> Any: ...


class Early(NamedTuple):
    """A batch that was read before the consumer reached it."""

    outputs: Any
    before: State  # of the reader
    after: State
    errors: deque[BadSample]


def captured_epoch(reader: Steps, batch_size: int | None, ctx: EvalContext | None) -> Iterator[Any]:
    """Yield an epoch like ``iter_epoch``, with the calls of the loop's body issued ahead for the next batch."""
    reader._begin_epoch()
    steps = reader.count_steps(batch_size)
    owner = Owner()  # lives as long as this generator
    recorder, early = LoopRecorder(weakref.ref(owner)), None
    for step in range(steps):
        outputs = _deliver(reader, early)
        # Nothing was read early, or the reader has been moved since, by load_state_dict for example.
        if outputs is None:
            recorder.discard()
            outputs = reader._step(batch_size, ctx, left=steps - step - 1)
        if isinstance(outputs, FailedBatch):  # no loop body runs for it
            recorder.discard()
            early = None
            yield outputs
            continue
        recorder.begin(outputs)
        # Calls can be issued ahead once an iteration has recorded them, and only while a batch follows.
        early = _read_early(reader, batch_size, ctx, steps - step - 2) if recorder.has_calls and step + 1 < steps else None
        if early is not None and not isinstance(early.outputs, FailedBatch):
            recorder.call_ahead(early.outputs)
        loop.recorder = recorder
        yield outputs
        # Between two batches no loop body runs: calls then are not part of the recording.
        loop.recorder = None
    with reader._lock:
        reader._state = reader._state._replace(epochs=reader._state.epochs + 1)


def _read_early(reader: Steps, batch_size: int | None, ctx: EvalContext | None, left: int) -> Early | None:
    """Read the next batch before the consumer reaches it; None if that fails, so that reading it in its turn raises the error there."""
    with reader._lock:
        before, errors = reader._state, reader._errors
        # Bad samples of the early batch are reported when it is delivered.
        reader._errors = deque(maxlen=errors.maxlen)
        try:
            outputs = reader._step(batch_size, ctx, left=left)
            return Early(outputs, before, reader._state, reader._errors)
        except Exception:
            return None
        finally:  # the consumer has not seen the batch: a checkpoint taken now must not count it
            reader._state, reader._errors = before, errors


def _deliver(reader: Steps, early: Early | None) -> Any:
    """Deliver the batch that was read early, and only now move the reader; None if the reader has moved elsewhere meanwhile."""
    with reader._lock:
        if early is None or reader._state is not early.before:
            return None
        reader._state = early.after
        reader._errors.extend(early.errors)
    return early.outputs
