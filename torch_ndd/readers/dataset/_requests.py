# SPDX-License-Identifier: Apache-2.0
"""How the items of a batch are read: by as many threads as are worth it."""

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from ..._core.process.fork_locks import new_lock
from ..._core.process.workers import Workers
from ..._core.work.bad_samples import UnreadableSamples
from ._activity import Activity
from ._worker_processes import WorkerFailure, describe_error

# Seconds. Items that take less are read by one thread at a time: handing the GIL from thread to thread takes 5 to 10 us, more than most data sets
# in memory need for an item.
_QUICK = 30e-6
_MAX_PAUSE = 1 << 12
# Seconds of work in a call for several items, at least: one of a Hugging Face data set takes 0.25 ms however few the items are.
_PIECE = 2e-3


class Result(NamedTuple):
    """What reading an item came to."""

    item: Any
    error: BaseException | None = None

    def get(self) -> Any:
        """Return the item, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.item


class Pace:
    """Whether items are so quick that one thread should read them.

    Only a batch of one thread shows it: several threads may be quick together because they wait at the same time. So one batch is tried,
    and if its items were slow, the next trial comes after twice as many batches as the one before.
    """

    def __init__(self) -> None:
        self.is_quick = False
        self.turn = new_lock()  # held by the thread that reads quick items
        self.work = 0.0  # seconds that threads spent on an item, of the latest batch
        self._pause = self._left = 1  # batches between two trials; until the next one

    def note_batch(self, seconds: float, in_turn: bool, limit: float = _QUICK) -> None:
        """Note the seconds that an item took on average, of a batch that one thread has read in its turn, or all of them.

        Items that take less than ``limit`` are quick.
        """
        if in_turn:
            self.is_quick = seconds < limit
            self._pause = self._left = 1 if self.is_quick else min(2 * self._pause, _MAX_PAUSE)
        else:
            self._left -= 1
            self.is_quick = self._left <= 0 and seconds < limit

    def choose_pieces(self, items: int, most: int) -> int:
        """Return into how many calls a batch should be cut if a call reads several items."""
        return 1 if self.is_quick else max(1, min(most, items, int(items * self.work / _PIECE)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Pace, ()  # locks cannot be pickled, and measurements belong to a process


class ItemRequest:
    """The items of a batch that threads read. Each of them takes the next item that none has begun.

    Args:
        reads: a function for each item.
        pool: the threads.
        pace: of such items, which decides how many threads read and is updated; by default all of the pool read.
        activity: measures the threads while they read.
        count: number of items, if a function reads several.
    """

    def __init__(
        self,
        reads: Sequence[Callable[[], Any]],
        pool: Workers,
        pace: Pace | None = None,
        activity: Activity | None = None,
        count: int | None = None,
    ) -> None:
        self._reads, self._pool, self._pace, self._activity = reads, pool, pace, activity
        self._count = len(reads) if count is None else count
        self._results: list[Result | None] = [None] * len(reads)
        self._numbers = itertools.count()
        self._spans: list[tuple[float, float]] = []  # when each thread began and ended
        self._in_turn = pace is not None and pace.is_quick
        if pace is not None and self._in_turn:
            self._runs: list[Future[None]] = [pool.submit(self._run_in_turn, pace.turn)]
        else:
            self._runs = [pool.submit(self._run) for _ in range(min(pool.max_workers, len(reads)))]

    @property
    def waits(self) -> list[Callable[[], Any]]:
        """Functions that wait for the items: each returns one, or raises its error."""
        return [partial(self._wait, k) for k in range(len(self._reads))]

    def _run_in_turn(self, turn: AbstractContextManager[Any]) -> None:
        with turn:
            self._run()

    def _run(self) -> None:
        """Read items until all have been begun."""
        reads, results, has_read = self._reads, self._results, False
        begin = time.perf_counter()
        with self._activity or nullcontext():
            while (k := next(self._numbers)) < len(reads):  # a call of C code, which threads cannot interrupt
                if self._pool.is_cancelled():
                    raise CancelledError
                try:
                    results[k] = Result(reads[k]())
                except BaseException as error:
                    results[k] = Result(None, error)
                has_read = True
        if has_read:
            self._spans.append((begin, time.perf_counter()))

    def _wait(self, k: int) -> Any:
        if self._runs:
            for run in self._runs:
                run.result()
            self._runs = []
            if self._pace is not None and self._spans:
                begins, ends = zip(*self._spans, strict=True)
                self._pace.work = (sum(ends) - sum(begins)) / self._count
                limit = _QUICK if self._count == len(self._reads) else max(_QUICK, _PIECE / self._count)
                self._pace.note_batch((max(ends) - min(begins)) / self._count, self._in_turn, limit)
        result = self._results[k]
        assert result is not None
        return result.get()


class Piece:
    """Items that one call reads, when the first of them is needed."""

    def __init__(self, read: Callable[[], Sequence[Result]]) -> None:
        self._read = read
        self._results: Sequence[Result] | None = None

    def item(self, k: int) -> Any:
        """Return an item, or raise its error."""
        if self._results is None:
            self._results = self._read()
        return self._results[k].get()


def attempt(function: Callable[[Any], Any], argument: Any) -> Result:
    """Return what a function returns, or its error."""
    try:
        return Result(function(argument))
    except Exception as error:
        return Result(None, error)


def collect_items(reads: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the items of a batch. Raise UnreadableSamples with the errors of all that cannot be read."""
    items, causes, reasons = [], {}, {}
    for k, read in enumerate(reads):
        try:
            items.append(read())
        except WorkerFailure as error:
            reasons[k], causes[k] = str(error), error.__cause__ or error
        except Exception as error:
            reasons[k], causes[k] = describe_error(error), error
    if reasons:
        raise UnreadableSamples(reasons, causes)
    return items
