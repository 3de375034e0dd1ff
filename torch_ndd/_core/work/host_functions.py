# SPDX-License-Identifier: Apache-2.0
"""Python functions as work of the CPU stream: they run on Python threads when their inputs are complete, and kernels wait for them."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from .. import native
from ..context import context
from ..context.context import EvalMode, thread_state
from ..context.pools import get_num_threads
from ..process import shutdown, workers
from ..process.workers import Workers
from .pending import KINDS, Pending

# Seconds that a fork waits for running functions; a longer one fails in the child.
_SECONDS_AT_FORK = 10.0

_INPUTS_FAILED, _RUNTIME_ERROR = -1, 1  # ndd_external_done


class _Local(threading.local):
    works = False  # this thread runs a function


_local = _Local()
_changed = threading.Condition()
_tasks: "set[_Task]" = set()  # that have not ended
_workers: Workers | None = None


class HostWork(Pending):
    """The pending calls of a Python function, one per sample."""

    def __init__(self, handle: int, reads: list[Pending], sources: Sequence[str]) -> None:
        super().__init__(handle, reads, sources)
        self.errors: dict[int, BaseException] = {}  # by sample

    def origin_of_error(self) -> BaseException | None:
        """Return what the function raised for the first sample that failed."""
        return self.errors[min(self.errors)] if self.errors else None


class _Task:
    """One call of an operator: threads take its samples in their order."""

    def __init__(self, work: HostWork, op: str, samples: int, function: Callable[[int], None], reads: Sequence[Pending]) -> None:
        self._work, self._op, self._samples, self._function, self._reads = work, op, samples, function, list(reads)
        self._next = itertools.count()
        self._open = samples
        self.outlasted_fork = False  # a fork has timed out waiting for it; later forks do not wait

    def begin(self) -> None:
        """Make forks wait for the samples."""
        with _changed:
            _tasks.add(self)

    def abandon(self, reason: str) -> None:
        """Fail all samples that have not ended: otherwise forks, and threads that need the results, would wait forever."""
        native.external_done(self._work.handle, 0, self._samples, _RUNTIME_ERROR, f"{self._op}: {reason}".encode(), 0)
        with _changed:
            _tasks.discard(self)
            _changed.notify_all()

    def abandon_on_cancel(self, future: Future[None]) -> None:
        """Fail the samples if the end of the program has cancelled a call of :meth:`run`."""
        if future.cancelled():
            self.abandon("the program ends")

    def run(self) -> None:
        """Run samples until none is left."""
        before, _local.works = _local.works, True
        try:
            for read in self._reads:
                if not read.wait_for_success():
                    self._report(0, self._samples, _INPUTS_FAILED, "", 0)
                    return
            while (i := next(self._next)) < self._samples:
                # A daemon thread may be stopped anywhere while the interpreter ends.
                if workers.ending and threading.current_thread().daemon:
                    self.abandon("the program ends")
                    return
                self._run_sample(i)
        finally:
            _local.works = before

    def _run_sample(self, i: int) -> None:
        begin, kind, text = time.perf_counter_ns(), 0, ""
        try:
            self._function(i)
        except BaseException as error:  # including SystemExit, which has no handler on this thread
            self._work.errors[i] = error
            # Native code knows the exception by its place in KINDS, 1 for RuntimeError.
            kind = 1 + next((k for k, error_type in enumerate(KINDS) if k and isinstance(error, error_type)), 0)
            text = f"{self._op}: sample {i}: {type(error).__name__}: {error}{_place(error)}"
        self._report(i, 1, kind, text, time.perf_counter_ns() - begin)

    def _report(self, first: int, count: int, kind: int, text: str, nanoseconds: int) -> None:
        native.external_done(self._work.handle, first, count, kind, text.encode(errors="replace"), nanoseconds)
        with _changed:
            self._open -= count
            if self._open <= 0:
                _tasks.discard(self)
                _changed.notify_all()


def _place(error: BaseException) -> str:
    """Return the line that raised an error, as the end of a message."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return ""
    code = frame.tb_frame.f_code
    return f" ({os.path.basename(code.co_filename)}:{frame.tb_lineno}, in {code.co_name})"


def _pool(threads: int) -> Workers:
    global _workers
    with _changed:
        if _workers is None:
            _workers = Workers(threads, "torch_ndd functions")
        _workers.resize(threads)
        return _workers


def queue(
    op: str, samples: int, function: Callable[[int], None], reads: Sequence[tuple[Pending, int]], caller_owned: bool, sources: Sequence[str]
) -> Any:
    """Call ``function(i)`` for every sample, on Python threads, when the work in ``reads`` has ended. Return the pending work, None if it is done.

    A function that is called by another one of this module runs immediately, on the same thread, so threads never wait for each other.

    Args:
        op: Name of the operator, for errors and statistics.
        samples: Number of samples.
        function: It raises whatever is wrong with its sample.
        reads: Work that fills the inputs.
        caller_owned: The user may overwrite memory that is read after the call.
        sources: The source of each sample, for errors.
    """
    if shutdown.exiting:
        shutdown.park_daemon()
    if not samples:
        return None
    try:
        native.begin(EvalMode.eager, None, 0)
        for pending, sample in reads:
            native.depend(pending.handle, sample)
        native.external(op.encode(), samples)
        handle = native.end()
    except BaseException:
        # Close the call, or it would absorb the next kernel of this thread. The lowest bit of a handle is a flag.
        native.release(native.end() & ~1)
        raise
    inputs = [pending for pending, _ in reads]
    work = HostWork(handle & ~1, inputs, sources)
    task = _Task(work, op, samples, function, inputs)
    try:
        task.begin()
        if _local.works:
            task.run()
        else:
            threads = max(1, get_num_threads())
            pool = _pool(threads)
            # Each thread takes samples until none is left.
            for _ in range(min(samples, threads)):
                pool.submit(task.run).add_done_callback(task.abandon_on_cancel)
    except BaseException:  # Ctrl-C, mostly
        task.abandon("it was interrupted")
        raise
    if caller_owned or thread_state.mode >= EvalMode.sync_cpu:
        work.end_of_call()
        return None
    context.register(work)
    return work


def _before_fork() -> None:
    """Wait for functions that run: a child has none of the threads."""
    if not _local.works:
        with _changed:
            waiting = [task for task in _tasks if not task.outlasted_fork]
            _changed.wait_for(lambda: not any(task in _tasks for task in waiting), _SECONDS_AT_FORK)
            for task in waiting:
                task.outlasted_fork = True


def _in_child() -> None:
    global _workers, _changed
    _workers, _changed = None, threading.Condition()
    _tasks.clear()
    _local.works = False


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
