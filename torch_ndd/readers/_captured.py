# SPDX-License-Identifier: Apache-2.0
"""``next_epoch(capture=True)``: reads a batch early and has the recorder make the loop's calls on it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .._capture import Owner, Recorder
from .._capture import current as loop
from .._context import EvalContext
from ._state import State

if TYPE_CHECKING:
    from ._base import Reader, ReadError


class Early(NamedTuple):
    """A batch that was read before the consumer has come to it."""

    outputs: Any
    before: State  # of the reader
    after: State
    errors: deque[ReadError]


def captured_epoch(reader: Reader, batch_size: int | None, ctx: EvalContext | None) -> Iterator[Any]:
    """An epoch as ``next_epoch`` has it, with the calls of the loop's body made ahead for the batch that follows."""
    steps = reader._steps(batch_size)
    owner = Owner()  # goes with this generator
    recorder, early = Recorder(weakref.ref(owner)), None
    for step in range(steps):
        outputs = _delivered(reader, early)
        if outputs is None:
            recorder.forget()
            outputs = reader._step(batch_size, ctx)
        recorder.begin(outputs)
        early = _early(reader, batch_size, ctx) if recorder.has_calls and step + 1 < steps else None
        if early is not None:
            recorder.call_ahead(early.outputs)
        loop.recorder = recorder
        yield outputs
        loop.recorder = None
    with reader._lock:
        reader._state = reader._state._replace(epochs=reader._state.epochs + 1)


def _early(reader: Reader, batch_size: int | None, ctx: EvalContext | None) -> Early | None:
    """The next batch, which the consumer has not reached; None when it cannot be read: asking for it in its turn says why."""
    with reader._lock:
        before, errors = reader._state, reader._errors
        reader._errors = deque(maxlen=errors.maxlen)
        try:
            outputs = reader._step(batch_size, ctx)
            return Early(outputs, before, reader._state, reader._errors)
        except Exception:
            return None
        finally:
            reader._state, reader._errors = before, errors


def _delivered(reader: Reader, early: Early | None) -> Any:
    """What was read early, now that the consumer comes to it; None when it has gone elsewhere meanwhile."""
    with reader._lock:
        if early is None or reader._state is not early.before:
            return None
        reader._state = early.after
        reader._errors.extend(early.errors)
    return early.outputs
