# SPDX-License-Identifier: Apache-2.0
"""How the items of a batch are read: in pieces, by as many threads as are worth it."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakSet

from ..._core.process.fork_locks import new_lock
from ..._core.process.workers import Workers
from ..._core.work.bad_samples import UnreadableSamples
from ._activity import Activity
from ._items import Failed, Unprepared, collate_outputs, prepare_item
from ._worker_processes import WorkerFailure, describe_error

# Seconds. Items that take less are read by one thread at a time: handing the GIL from thread to thread takes 5 to 10 us, more than most data sets
# in memory need for an item.
_QUICK = 30e-6
# Seconds of all threads, which also wait for each other: of longer items one thread alone is not tried. Augmentation by torchvision that takes 0.8 ms
# on one thread takes 10 to 16 ms of four.
_SHORT = 0.2
# Items of a piece, if one thread reads: it looks after each piece whether it should stop. That takes 3 us, so that quick items have larger pieces in
# large batches: _PIECES_OF_QUICK, of _QUICK_PIECE seconds at most. With 3 a mix of two sources has 2, too few to leave out one that was held up.
_ITEMS_IN_TURN = 16
_PIECES_OF_QUICK, _QUICK_PIECE = 4, 100e-6
_PIECE_IN_TURN = 2e-3  # seconds of a piece, at most
_TRIAL = 20e-3  # seconds that one thread reads before others may help it
_PIECES_OF_TRIAL = 3  # at least
_SLOWER = 1.25  # times the threads together: then they help
_MAX_PAUSE = 1 << 12
# Seconds of work in a call for several items, at least: one of a Hugging Face data set takes 0.25 ms however few the items are.
_CALL = 2e-3
_MESSAGE = 10e-3  # the same for a message to a process, which takes 0.3 ms; the processes have other batches to go on with


class Pace:
    """Whether one thread should read the items, or all.

    Threads of Python code share the GIL. Each call of torch or NumPy in an item releases it to another thread and waits to get it back: transforms of
    torchvision on 32 x 32 pixels take 90 us on one thread and 570 us of wall time on four. Items that wait for disks or decode take all threads.

    Only a trial shows it, and only one of one thread alone: several threads may be quick together because they wait at the same time. So one
    batch is tried, and if threads were faster, the next trial comes after twice as many batches as the one before, four times as many where they took
    less than half of the time; likewise for threads. Where one thread proves slower before the end of its batch, the others read the rest of it.
    """

    def __init__(self) -> None:
        self.in_turn = False  # one thread reads at a time
        self.turn = new_lock()  # held by that thread
        self._work = 0.0  # seconds that threads spent on an item, of the latest batch
        self._shared = 0.0  # seconds for each item if all threads read
        self._is_trial = False
        self._is_one_better: bool | None = None  # by the latest trial
        self._pause = self._left = 1  # batches between two trials; until the next one
        self.shared: WeakSet[ItemRequest] = WeakSet()  # batches that all threads read now

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
            self.in_turn, self._is_trial, self._is_one_better = True, False, True
            self._pause = self._left = 1
        elif self.in_turn and seconds >= self._shared:
            self._decide(False, seconds > 2 * self._shared)
        elif self.in_turn and self._is_trial:
            self._decide(True, self._shared > 2 * seconds)
        elif self.in_turn:
            self._left -= 1
            if self._left <= 0:  # a batch of all threads, and then a trial of one
                self.in_turn, self._left = False, 1

    def _decide(self, in_turn: bool, is_clear: bool) -> None:
        """End a trial, or a batch that shows as much."""
        # Another result than before may be due to a batch that was held up, and is tried again soon.
        if in_turn is not self._is_one_better:
            self._is_one_better, self._pause = in_turn, 1
        self.in_turn, self._is_trial = in_turn, False
        # Two batches are begun before a check ends, and threads that wait for each other take three to ten times as long.
        self._left = self._pause = min((4 if is_clear else 2) * self._pause, _MAX_PAUSE)

    def choose_piece(self, items: int, threads: int, in_one_call: bool) -> int:
        """Return how many items of a batch a thread should take at a time."""
        if self.in_turn:
            if not in_one_call and 0.0 < self._work * _ITEMS_IN_TURN <= _QUICK_PIECE:
                return max(_ITEMS_IN_TURN, min(-(-items // _PIECES_OF_QUICK), int(_QUICK_PIECE / self._work)))
            # Long items in small pieces: so one thread is soon found to be slower.
            largest, seconds = (max(1, items), _TRIAL) if in_one_call else (_ITEMS_IN_TURN, _PIECE_IN_TURN)
            return largest if self._work * largest <= seconds else max(1, int(seconds / self._work))
        if not in_one_call:
            return 1
        return max(1, -(-items // max(1, min(threads, int(items * self._work / _CALL)))))

    def needs_help(self, seconds: float, limit: float) -> bool:
        """Return whether one thread, which takes so many seconds for an item, is slower than all threads together."""
        return seconds > max(limit, _SLOWER * self._shared)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # locks cannot be pickled, and measurements belong to a process


class PaceOfProcesses(Pace):
    """How many items a process should take at a time. All processes are used, however quick the items are."""

    def note_batch(self, seconds: float, in_turn: bool, work: float = 0.0, threads: int = 1, limit: float = _QUICK) -> None:
        self._work = work

    def choose_piece(self, items: int, threads: int, in_one_call: bool) -> int:
        return max(1, min(-(-items // threads), int(_MESSAGE / self._work))) if self._work else 1


def choose_size(items: int, pool: Workers | None, pace: Pace | None, in_one_call: bool) -> int:
    """Return how many items of a batch should be read as a piece: all without a pool, one without a pace."""
    if pool is None:
        return max(1, items)
    return 1 if pace is None else pace.choose_piece(items, pool.max_workers, in_one_call)


def _time_item(pieces: Sequence[tuple[float, int]]) -> float:
    """Return the seconds of an item, from those of pieces and their numbers of items, without the longest: it may have waited for a busy core."""
    (longest, left_out), (seconds, items) = max(pieces), map(sum, zip(*pieces, strict=True))
    return (seconds - longest) / max(1, items - left_out)


class ItemRequest:
    """The items of a batch that threads read. Each thread takes the next piece that none has begun.

    Args:
        reads: a function for each piece, which returns its items, with :class:`Failed` in place of those that cannot be read.
        count: number of items.
        pool: the threads; None for the thread that wants the items.
        pace: of such items, which decides how many threads read and is updated; by default all of the pool read.
        activity: measures the threads while they read.
        in_one_call: the data set reads the items of a piece in one call.
        here: where one thread should read, that of :meth:`items` does. A batch that goes to another takes 0.2 ms more, its items twice as long.
    """

    def __init__(
        self,
        reads: Sequence[Callable[[], list[Any]]],
        count: int,
        pool: Workers | None,
        pace: Pace | None = None,
        activity: Activity | None = None,
        in_one_call: bool = False,
        here: bool = False,
    ) -> None:
        self._reads, self._pool, self._pace, self._activity = reads, pool, pace, activity
        self._count, self._limit = max(1, count), max(_QUICK, _CALL / max(1, count)) if in_one_call else _QUICK
        self._pieces: list[list[Any]] = [[]] * len(reads)
        self._fatal: BaseException | None = None
        self._numbers = itertools.count()
        self._spans: list[tuple[float, float]] = []  # when each thread began and ended
        self._in_turn = pool is None or (pace is not None and pace.in_turn)
        self._here = pool is None or (here and self._in_turn)
        self._is_disturbed = False
        self._alone: float | None = None  # seconds of one thread for each item, where they were measured apart
        self._runs: list[Future[None]] = []
        if pool is not None and not self._here:
            if pace is not None and self._in_turn:
                self._runs = [pool.submit(self._run_in_turn, pace.turn)]
            else:
                if pace is not None:
                    pace.shared.add(self)
                self._share(pool, pool.max_workers, len(reads))

    def _share(self, pool: Workers, threads: int, pieces: int) -> None:
        """Let threads of the pool read some pieces."""
        self._runs += [pool.submit(self._run) for _ in range(min(threads, pieces))]

    def _run_in_turn(self, turn: AbstractContextManager[Any]) -> None:
        with turn:
            self._run(self._pace)

    def _run(self, pace: Pace | None = None) -> None:
        """Read pieces until all have been begun. With a pace, other threads help once that is quicker."""
        reads, has_read, pool = self._reads, False, self._pool
        begin, took = time.perf_counter(), list[tuple[float, int]]()
        # Beside threads that read another batch, one that waits for their GIL takes ten times as long, and shows nothing.
        if pace is not None and len(pace.shared):
            self._is_disturbed, pace = True, None
        with self._activity or nullcontext():
            while (k := next(self._numbers)) < len(reads):  # a call of C code, which threads cannot interrupt
                if self._pool is not None and self._pool.is_cancelled():
                    raise CancelledError
                begin_piece = time.perf_counter()
                try:
                    self._pieces[k] = reads[k]()
                except BaseException as error:  # SystemExit of a data set, for example
                    self._fatal = error
                has_read = True
                if pace is None or pool is None:
                    continue
                now = time.perf_counter()
                took.append((now - begin_piece, len(self._pieces[k])))
                is_trial = now - begin > _TRIAL and len(took) >= _PIECES_OF_TRIAL and k + 1 < len(reads)
                if is_trial and pace.needs_help(_time_item(took), self._limit):
                    pace = None
                    self._share(pool, pool.max_workers - (not self._here), len(reads) - k - 1)
        if len(took) >= _PIECES_OF_TRIAL:
            self._alone = _time_item(took)
        if has_read:
            self._spans.append((begin, time.perf_counter()))

    def items(self) -> list[Any]:
        """Return the items, with :class:`Failed` in place of those that could not be read. Called once."""
        if self._here:
            self._run(self._pace)
        for run in self._runs:  # which may become more, until the first has ended
            run.result()
        if self._pace is not None and not self._in_turn:
            self._pace.shared.discard(self)
        if self._fatal is not None:
            raise self._fatal
        if self._pace is not None and self._alone is not None:
            self._pace.note_batch(self._alone, True, self._alone, 1, self._limit)
        elif self._pace is not None and self._spans and not self._is_disturbed:
            begins, ends = zip(*self._spans, strict=True)
            work = (sum(ends) - sum(begins)) / self._count
            self._pace.note_batch((max(ends) - min(begins)) / self._count, self._in_turn, work, len(self._spans), self._limit)
        return join_pieces(self._pieces)


def read_each(read: Callable[[Any], Any], samples: Iterable[Any]) -> list[Any]:
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


def check_items(items: list[Any]) -> Set[type]:
    """Return the types of the items of a batch. Raise UnreadableSamples with the errors of all that could not be read."""
    kinds = set(map(type, items))
    if Failed not in kinds:
        return kinds
    causes, reasons = {}, {}
    for k, item in enumerate(items):
        if type(item) is Failed:
            error = item.error
            is_remote = isinstance(error, WorkerFailure)
            reasons[k] = str(error) if is_remote else describe_error(error)
            causes[k] = (error.__cause__ or error) if is_remote else error
    raise UnreadableSamples(reasons, causes)


def collate_items(items: list[Any], sources: Sequence[str] = ()) -> Any:
    """Return the outputs of the items of a batch. Raise UnreadableSamples like :func:`check_items`."""
    try:
        return collate_outputs(items, sources, check_items(items))
    except Unprepared:
        items = read_each(prepare_item, items)
        return collate_outputs(items, sources, check_items(items))
