# SPDX-License-Identifier: Apache-2.0
"""The batches that a reader has begun to read before they are wanted, and what takes the place of samples that cannot be read."""

import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._core.work.bad_samples import LeftOut, OnError, UnreadableSamples
from ._failed import FailedBatch
from ._order import Blocks, Order, Position
from ._state import State

Outputs = tuple[Any, ...] | dict[str, Any]


class Request(NamedTuple):
    """A batch that is being read."""

    key: tuple[Blocks | None, Position, int, int]  # walk, position, number of samples, and the process whose threads read them
    after: Position
    samples: np.ndarray
    seeds: np.ndarray | None  # of what a data set draws for each sample
    work: Any  # a result of the reader's start(), or its error as a FailedBatch


class Reads(Protocol):
    """The parts of a reader that reading ahead uses."""

    _op: str
    _depth: int
    _can_change: bool
    _on_error: OnError

    draw_seed: int | None
    _state: State

    def draws(self) -> bool: ...
    def start(self, samples: np.ndarray) -> Any: ...
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray) -> Any: ...
    def finish(self, request: Any, samples: np.ndarray) -> Outputs: ...
    def _note_bad(self, samples: np.ndarray, bad: UnreadableSamples) -> dict[int, str]: ...
    def _substitute(
        self, policy: str, samples: np.ndarray, bad: list[int], good: np.ndarray, after: Position, following: Position, walk: Blocks | None
    ) -> tuple[np.ndarray, Position, Position, int]: ...


class ReadAhead:
    """The requests of a reader, oldest first. Its caller holds the reader's lock."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._seeded: tuple[Order, Order] | None = None  # an order, and that of its seeds

    def clear(self) -> None:
        """Discard all requests; their samples are read again."""
        self._requests.clear()

    def read_next(
        self, reader: Reads, order: Order, position: Position, count: int, walk: Blocks | None, left: int
    ) -> tuple[Outputs | FailedBatch | None, Position, int]:
        """Return the next batch, the position after it, and how many samples replaced bad ones; None if only bad samples were left of the pass.

        What was read ahead of a batch that fails is read again: the fault may have been removed.

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
            seeded = self._find_seeds(reader, order)
            seeds = None if seeded is None else take(seeded, position, count, walk)[0]
            requests.append(Request((walk, position, count, process), after, samples, seeds, self._start(reader, samples, seeds)))

    @staticmethod
    def _start(reader: Reads, samples: np.ndarray, seeds: np.ndarray | None) -> Any:
        """Start a request. An error is raised in its turn: it is that of this batch, which may be read ahead."""
        try:
            return start(reader, samples, seeds)
        except Exception as error:
            return FailedBatch(reader._op, error)

    def _find_seeds(self, reader: Reads, order: Order) -> Order | None:
        """Return the order of the seeds of the samples; None if no data set draws anything."""
        if not reader.draws():
            return None
        seed = reader._state.seeds[0] if reader.draw_seed is None else reader.draw_seed
        if self._seeded is None or self._seeded[0] is not order or self._seeded[1].draw_seed != seed:
            self._seeded = order, order.of_seeds(seed)
        return self._seeded[1]

    def _substitute_seeds(self, seeds: np.ndarray, is_good: np.ndarray, count: int, more: int, before: Position, walk: Blocks | None) -> np.ndarray:
        """Return the seeds of a batch of so many samples, the last of which, ``more``, were taken from a position on in place of bad ones."""
        if more:
            assert self._seeded is not None
            return np.concatenate([seeds[is_good], take(self._seeded[1], before, more, walk)[0]])
        # A substitute draws the numbers of the bad sample: its own are drawn where it is delivered itself.
        return seeds if count == len(seeds) else seeds[is_good] if is_good.any() else seeds[:count]

    def _finish_oldest(self, reader: Reads, order: Order, walk: Blocks | None) -> tuple[Outputs | FailedBatch | None, Position, int]:
        requests = self._requests
        _, after, samples, seeds, work = requests[0]
        count, drawn, failed = len(samples), 0, 0
        following = after  # where to look for replacements if the whole batch is bad
        if isinstance(work, FailedBatch):
            self.clear()
            return work, after, drawn
        while len(samples):
            try:
                try:
                    outputs = reader.finish(work, samples)
                    requests.popleft()
                    return outputs, after, drawn
                except UnreadableSamples as bad:
                    policy = "skip" if isinstance(bad, LeftOut) else reader._on_error
                    reasons = bad.reasons
                    found = reader._note_bad(samples, bad)
            except Exception as error:
                self.clear()
                return FailedBatch(reader._op, error), after, drawn
            failed += len(found)
            # Without this bound a data set of only bad samples would be searched forever.
            if failed > order.size + count:
                raise RuntimeError(f"{reader._op}: none of the {order.size} samples can be read; the last one: {found.popitem()[1]}")
            is_good, before = ~np.isin(samples, list(found)), after
            samples, after, following, more = reader._substitute(policy, samples, sorted(reasons), samples[is_good], after, following, walk)
            seeds = None if seeds is None else self._substitute_seeds(seeds, is_good, len(samples), more, before, walk)
            drawn += more
            while more and len(requests) > 1:  # the substitutes were taken from what was read ahead
                requests.pop()
            work = start(reader, samples, seeds)
        # Bad samples were skipped up to the end of the pass: their request is still the first in the queue.
        self.clear()
        return None, after, drawn


def start(reader: Reads, samples: np.ndarray, seeds: np.ndarray | None) -> Any:
    """Start reading samples, and return the request."""
    return reader.start(samples) if seeds is None else reader.start_seeded(samples, seeds)


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
