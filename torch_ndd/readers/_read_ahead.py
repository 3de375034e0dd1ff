# SPDX-License-Identifier: Apache-2.0
"""The batches that a reader has begun to read before they are wanted, and what takes the place of samples that cannot be read."""

import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._core.work.bad_samples import LeftOut, OnError, UnreadableSamples
from ._order import Blocks, Order, Position

Outputs = tuple[Any, ...] | dict[str, Any]


class Request(NamedTuple):
    """A batch that is being read."""

    key: tuple[Blocks | None, Position, int, int]  # walk, position, number of samples, and the process whose threads read them
    after: Position
    samples: np.ndarray
    work: Any  # a result of the reader's start()


class Reads(Protocol):
    """The parts of a reader that reading ahead uses."""

    _op: str
    _depth: int
    _can_change: bool
    _on_error: OnError

    def start(self, samples: np.ndarray) -> Any: ...
    def finish(self, request: Any, samples: np.ndarray) -> Outputs: ...
    def _note_bad(self, samples: np.ndarray, bad: UnreadableSamples) -> dict[int, str]: ...
    def _substitute(
        self, policy: str, samples: np.ndarray, bad: list[int], good: np.ndarray, after: Position, following: Position, walk: Blocks | None
    ) -> tuple[np.ndarray, Position, Position, int]: ...


class ReadAhead:
    """The requests of a reader, oldest first. Its caller holds the reader's lock."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def clear(self) -> None:
        """Discard all requests; their samples are read again."""
        self._requests.clear()

    def read_next(
        self, reader: Reads, order: Order, position: Position, count: int, walk: Blocks | None, left: int
    ) -> tuple[Outputs | None, Position, int]:
        """Return the next batch, the position after it, and how many samples replaced bad ones; None if only bad samples were left of the pass.

        Args:
            order: of the reader's samples.
            position: of the batch.
            count: samples per batch.
            walk: the part of this pass to stay in; None for the endless sequence.
            left: batches that follow in this epoch. A source that can change is not read beyond them.
        """
        process = os.getpid()
        # Requests of another position or batch size are useless; those of a parent process have no threads here.
        if self._requests and self._requests[0].key != (walk, position, count, process):
            self.clear()
        try:
            self._fill(reader, order, (walk, position, count, process), left)
            return self._finish_oldest(reader, order, walk)
        except BaseException:  # also Ctrl-C: a half-finished request cannot be finished twice
            self.clear()
            raise

    def _fill(self, reader: Reads, order: Order, key: tuple[Blocks | None, Position, int, int], left: int) -> None:
        """Start requests, beginning with that of ``key`` if there is none yet."""
        walk, position, count, process = key
        requests = self._requests
        # One more than the depth: the batch to deliver now, and those read ahead of it.
        while len(requests) <= reader._depth:
            if requests:
                # Continue from the last request, which may already lie in the next pass.
                position = requests[-1].after
                ended = walk and not order.has_rest(position, walk)
                if reader._can_change and (ended if walk else len(requests) > left):
                    break
                if ended:
                    position = Position(position.passes + 1)
            samples, after = take(order, position, count, walk)
            if not len(samples):  # a worker that has no block
                break
            requests.append(Request((walk, position, count, process), after, samples, reader.start(samples)))

    def _finish_oldest(self, reader: Reads, order: Order, walk: Blocks | None) -> tuple[Outputs | None, Position, int]:
        requests = self._requests
        _, after, samples, work = requests[0]
        count, drawn, failed = len(samples), 0, 0
        following = after  # where to look for replacements if the whole batch is bad
        while len(samples):
            try:
                outputs = reader.finish(work, samples)
                requests.popleft()
                return outputs, after, drawn
            except UnreadableSamples as bad:
                policy = "skip" if isinstance(bad, LeftOut) else reader._on_error
                reasons = bad.reasons
                found = reader._note_bad(samples, bad)
            failed += len(found)
            # Without this bound a data set of only bad samples would be searched forever.
            if failed > order.size + count:
                raise RuntimeError(f"{reader._op}: none of the {order.size} samples can be read; the last one: {found.popitem()[1]}")
            good = samples[~np.isin(samples, list(found))]
            samples, after, following, more = reader._substitute(policy, samples, sorted(reasons), good, after, following, walk)
            drawn += more
            while more and len(requests) > 1:  # the substitutes were taken from what was read ahead
                requests.pop()
            work = reader.start(samples)
        # Bad samples were skipped up to the end of the pass: their request is still the first in the queue.
        self.clear()
        return None, after, drawn


def take(order: Order, position: Position, count: int, walk: Blocks | None) -> tuple[np.ndarray, Position]:
    """Return the next samples and the position after them: with ``walk`` of this pass, otherwise from the next pass too, to fill the batch."""
    return order.take(position, count) if walk is None else order.walk(position, count, walk)


def replace_bad(rows: np.ndarray, bad: list[int], good: np.ndarray, groups_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return rows in which good ones take the places of bad ones: of the same group if there are any, else of all groups.

    >>> replace_bad(np.array([10, 11, 20, 21]), [1, 3], np.array([10, 20]), lambda rows: rows // 10)
    array([10, 10, 20, 20])
    """
    rows = rows.copy()
    groups, groups_of_good = groups_of(rows), groups_of(good)
    for group in np.unique(groups[bad]):
        places = np.asarray(bad)[groups[bad] == group]
        alike = good[groups_of_good == group]
        # np.resize repeats the good rows until every bad place is filled.
        rows[places] = np.resize(alike if len(alike) else good, len(places))
    return rows
