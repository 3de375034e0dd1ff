# SPDX-License-Identifier: Apache-2.0
"""How the items of a batch are read: in pieces, by as many threads as are worth it."""

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..._core.process.fork_locks import new_lock
from ..._core.process.workers import Workers
from ..._core.work.bad_samples import UnreadableSamples
from ._activity import Activity
from ._items import Failed
from ._worker_processes import WorkerFailure, describe_error

# Seconds. Items that take less are read by one thread at a time: handing the GIL from thread to thread takes 5 to 10 us, more than most data sets
# in memory need for an item.
_QUICK = 30e-6
_SHORT = 5e-3  # seconds of all threads: of longer items one thread alone is not tried
_ITEMS_IN_TURN = 16  # of a piece, if one thread reads: it looks after each piece whether it should stop
_MAX_PAUSE = 1 << 12
# Seconds of work in a call for several items, at least: one of a Hugging Face data set takes 0.25 ms however few the items are.
_CALL = 2e-3
_MESSAGE = 10e-3  # the same for a message to a process, which takes 0.3 ms; the processes have other batches to go on with


class Pace:
    """Whether one thread should read the items, or all.

    Threads of Python code share the GIL. Each call of torch or NumPy in an item releases it to another thread and waits to get it back: transforms of
    torchvision on 32 x 32 pixels take 90 us on one thread and 570 us of wall time on four. Items that wait for disks or decode take all threads.

    Only a trial shows it, and only a batch of one thread alone: several threads may be quick together because they wait at the same time. So one
    batch is tried, and if threads were faster, the next trial comes after twice as many batches as the one before; likewise for threads.
    """

    def __init__(self) -> None:
        self.in_turn = False  # one thread reads at a time
        self.turn = new_lock()  # held by that thread
        self._work = 0.0  # seconds that threads spent on an item, of the latest batch
        self._shared = 0.0  # seconds for each item if all threads read
        self._is_trial = False
        self._pause = self._left = 1  # batches between two trials; until the next one

    def note_batch(self, seconds: float, in_turn: bool, work: float = 0.0, threads: int = 1, limit: float = _QUICK) -> None:
        """Note what an item of a batch took on average. Batches that were begun before a change of pace may be noted after it.

        Args:
            seconds: From the beginning of the first item to the end of the last one.
            in_turn: One thread has read them in its turn, else all of them.
            work: Seconds of all threads together.
            threads: Number of threads that have read: one may read all before the others begin.
            limit: Items that take less are quick: threads are not tried.
        """
        self._work = work
        if not in_turn:
            # Not `seconds`: batches that are read at the same time share the threads.
            self._shared = work / threads
            if not self.in_turn:
                self._left -= 1
                self.in_turn = self._is_trial = self._left <= 0 and (seconds < limit or 0.0 < work < _SHORT)
        elif seconds < limit:
            self.in_turn, self._is_trial = True, False
            self._pause = self._left = 1
        elif self.in_turn and seconds >= self._shared:
            self.in_turn = False
            self._wait_longer()
        elif self.in_turn and self._is_trial:
            self._wait_longer()
        elif self.in_turn:
            self._left -= 1
            if self._left <= 0:  # a batch of all threads, and then a trial of one
                self.in_turn, self._left = False, 1

    def _wait_longer(self) -> None:
        self._is_trial = False
        self._left = self._pause = min(2 * self._pause, _MAX_PAUSE)

    def choose_piece(self, items: int, threads: int, in_one_call: bool) -> int:
        """Return how many items of a batch a thread should take at a time."""
        if not in_one_call:
            return _ITEMS_IN_TURN if self.in_turn else 1
        calls = 1 if self.in_turn else max(1, min(threads, int(items * self._work / _CALL)))
        return max(1, -(-items // calls))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # locks cannot be pickled, and measurements belong to a process


class PaceOfProcesses(Pace):
    """How many items a process should take at a time. All processes are used, however quick the items are."""

    def note_batch(self, seconds: float, in_turn: bool, work: float = 0.0, threads: int = 1, limit: float = _QUICK) -> None:
        self._work = work

    def choose_piece(self, items: int, threads: int, in_one_call: bool) -> int:
        return max(1, min(-(-items // threads), int(_MESSAGE / self._work))) if self._work else 1


class ItemRequest:
    """The items of a batch that threads read. Each thread takes the next piece that none has begun.

    Args:
        reads: a function for each piece, which returns its items, with :class:`Failed` in place of those that cannot be read.
        count: number of items.
        pool: the threads; None for the thread that wants the items.
        pace: of such items, which decides how many threads read and is updated; by default all of the pool read.
        activity: measures the threads while they read.
        in_one_call: the data set reads the items of a piece in one call.
    """

    def __init__(
        self,
        reads: Sequence[Callable[[], list[Any]]],
        count: int,
        pool: Workers | None,
        pace: Pace | None = None,
        activity: Activity | None = None,
        in_one_call: bool = False,
    ) -> None:
        self._reads, self._pool, self._pace, self._activity = reads, pool, pace, activity
        self._count, self._limit = max(1, count), max(_QUICK, _CALL / max(1, count)) if in_one_call else _QUICK
        self._pieces: list[list[Any]] = [[]] * len(reads)
        self._fatal: BaseException | None = None
        self._numbers = itertools.count()
        self._spans: list[tuple[float, float]] = []  # when each thread began and ended
        self._in_turn = pool is None or (pace is not None and pace.in_turn)
        self._runs: list[Future[None]] = []
        if pool is not None and pace is not None and self._in_turn:
            self._runs = [pool.submit(self._run_in_turn, pace.turn)]
        elif pool is not None:
            self._runs = [pool.submit(self._run) for _ in range(min(pool.max_workers, len(reads)))]

    def _run_in_turn(self, turn: AbstractContextManager[Any]) -> None:
        with turn:
            self._run()

    def _run(self) -> None:
        """Read pieces until all have been begun."""
        reads, has_read = self._reads, False
        begin = time.perf_counter()
        with self._activity or nullcontext():
            while (k := next(self._numbers)) < len(reads):  # a call of C code, which threads cannot interrupt
                if self._pool is not None and self._pool.is_cancelled():
                    raise CancelledError
                try:
                    self._pieces[k] = reads[k]()
                except BaseException as error:  # SystemExit of a data set, for example
                    self._fatal = error
                has_read = True
        if has_read:
            self._spans.append((begin, time.perf_counter()))

    def items(self) -> list[Any]:
        """Return the items, with :class:`Failed` in place of those that could not be read. Called once."""
        for run in self._runs:
            run.result()
        if self._pool is None:
            self._run()
        if self._fatal is not None:
            raise self._fatal
        if self._pace is not None and self._spans:
            begins, ends = zip(*self._spans, strict=True)
            work = (sum(ends) - sum(begins)) / self._count
            self._pace.note_batch((max(ends) - min(begins)) / self._count, self._in_turn, work, len(self._spans), self._limit)
        return join_pieces(self._pieces)


def read_each(read: Callable[[Any], Any], samples: Sequence[Any]) -> list[Any]:
    """Return what ``read`` returns for each sample, :class:`Failed` where it raises an Exception."""
    items: list[Any] = []
    left = iter(samples)
    while True:
        try:
            for sample in left:
                items.append(read(sample))  # keeps what was read before an error
            return items
        except Exception as error:
            items.append(Failed(error))


def join_pieces(pieces: Sequence[list[Any]]) -> list[Any]:
    """Return the items of all pieces."""
    return pieces[0] if len(pieces) == 1 else list(itertools.chain.from_iterable(pieces))


def check_items(items: list[Any]) -> list[Any]:
    """Return the items of a batch. Raise UnreadableSamples with the errors of all that could not be read."""
    if Failed not in set(map(type, items)):
        return items
    causes, reasons = {}, {}
    for k, item in enumerate(items):
        if type(item) is Failed:
            error = item.error
            is_remote = isinstance(error, WorkerFailure)
            reasons[k] = str(error) if is_remote else describe_error(error)
            causes[k] = (error.__cause__ or error) if is_remote else error
    raise UnreadableSamples(reasons, causes)
