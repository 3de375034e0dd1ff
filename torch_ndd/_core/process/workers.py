# SPDX-License-Identifier: Apache-2.0
"""Python threads: they end with their owner and with the program; if the system cannot start one, the work continues with fewer."""

import contextvars
import ctypes
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from typing_extensions import TypeIs

from .. import native
from .fork_locks import new_lock
from .weak import WeakValues

P = ParamSpec("P")
R = TypeVar("R")

# A KeyboardInterrupt raised in Python code that runs when an object is destroyed (`weakref.finalize`, for example) is lost. That code therefore
# runs on a separate thread, which receives no signals; C code queues it.
_gone: SimpleQueue[Any] = SimpleQueue()
_guards: dict[int, "weakref.ref[Any]"] = {}  # by the action that they queue; a dead weak reference does nothing
_janitor: threading.Thread | None = None
_process = 0
_warned = False
ending = False  # the program ends: functions on Python threads should stop

# Seconds that the end of the program waits for calls in progress, first for their end, then for the SystemExit that they are sent.
_PATIENCE, _PATIENCE_AFTER_EXIT = 0.1, 0.2


def _warn_of_threads(running: int, wanted: int) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"could not start more threads ({running} of {wanted} running); waiting threads run the rest of the work, more slowly. "
            "Check `ulimit -u`, `ulimit -v` and the limits of the container, or request fewer threads with set_num_threads()",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_refused_threads() -> None:
    """Warn, once per process, if the native library could not start a thread."""
    refused = native.refused_threads.value
    if refused and not _warned:
        _warn_of_threads(refused >> 32, refused & 0xFFFFFFFF)


def _work(gone: "SimpleQueue[Any]") -> None:
    while True:
        action = gone.get()
        _guards.pop(id(action), None)
        try:
            action()
        except Exception as error:  # the next owner's action must run all the same
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread())))
        del action  # and what it holds


def _start_janitor() -> None:
    global _janitor, _process, _gone
    if _process != os.getpid():  # a forked child has no threads, and its parent's threads were waiting at the queue
        # The first process keeps the queue of the import, which may have actions already.
        gone: SimpleQueue[Any] = SimpleQueue() if _process else _gone
        thread = threading.Thread(target=_work, args=[gone], name="torch_ndd janitor", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return  # queued actions wait for the next attempt
        _janitor, _process, _gone = thread, os.getpid(), gone


def is_janitor(thread: threading.Thread) -> bool:
    """Return whether this thread belongs to this module: it runs none of torch's code."""
    return thread is _janitor


def call_when_freed(owner: Any, action: Callable[[], Any]) -> None:
    """Call ``action``, which must not refer to ``owner``, on a thread of this module after ``owner`` was collected; not in forked children."""
    _start_janitor()
    _guards[id(action)] = weakref.ref(owner, partial(_gone.put, action))  # type: ignore[arg-type]  # put(action, reference)


def call_soon(action: Callable[[], Any]) -> None:
    """Call ``action`` on a thread of this module, which receives no signals."""
    _start_janitor()
    _gone.put(action)


class _Call:
    """A call that waits for a thread, and the future of its result."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function, self.future = function, Future[Any]()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function()
        except BaseException as error:
            self.future.set_exception(error)
            del self  # the error's traceback has this frame: a cycle with the future
        else:
            self.future.set_result(result)


class Workers(Executor):
    """Threads for ``owner``, which end with it, or with a ``with`` block. Work runs with the context variables of the submitting thread.

    Unlike those of ``concurrent.futures`` they do not keep the program from ending: calls that have not begun are then cancelled, running ones get
    0.3 s. There are never more than ``threads`` of them, even if Ctrl-C interrupts the start of one; calls begin in the order in which they were
    submitted. ``begin`` is called at the start of each thread. If the system cannot start threads there are fewer; without any, :meth:`submit` runs
    the work.

    >>> with Workers(2, "powers") as pool:
    ...     pool.submit(pow, 2, 5).result()
    32
    """

    def __init__(self, threads: int, name: str, owner: Any = None, begin: Callable[[], Any] | None = None) -> None:
        self.max_workers, self._name, self._begin = threads, name, begin
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()  # None ends a thread, which passes it on to the next
        self._lock = new_lock()
        self._threads: set[threading.Thread] = set()  # those that take calls: a thread adds itself, where no signal interrupts it
        self._open = 0  # calls that have not ended
        self._started = 0  # threads, for their names
        self._ended = self._cancels = False
        self._process = os.getpid()
        _all[id(self)] = self
        if owner is not None:
            call_when_freed(owner, partial(self.shutdown, wait=False, cancel_futures=True))

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Schedule a function. Raise RuntimeError after the end of the threads; in exit functions of the program, do it here."""
        call = _Call(partial(contextvars.copy_context().run, partial(fn, *args, **kwargs)))
        with self._lock:
            ended = self._ended
            if not ended:
                self._open += 1
                self._queue.put(call)
            needs_thread = len(self._threads) < min(self.max_workers, self._open)
        if ended:
            # At the end of the program the main thread may still be in exit functions that need the result.
            if not ending or threading.current_thread() is not threading.main_thread():
                raise RuntimeError(f"{self._name}: the program ends" if ending else f"{self._name}: its threads have ended")
            call.run()
        elif needs_thread:
            self._start_thread()
        return call.future

    def resize(self, threads: int) -> None:
        """Set the number of threads. Submitted calls stay scheduled; surplus threads end after their current call."""
        if threads != self.max_workers:
            with self._lock:
                self.max_workers = threads
                for _ in range(len(self._threads) - threads):  # wakes those that wait
                    self._open += 1
                    self._queue.put(_Call(int))

    def is_cancelled(self) -> bool:
        """Return whether the calling thread, one of these, should stop in the middle of a long call."""
        return self._cancels and self.works_here()

    def works_here(self) -> bool:
        """Return whether the calling thread is one of these."""
        return threading.current_thread() in self._threads

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the submitted calls, or, with ``cancel_futures``, after the running ones."""
        with self._lock:
            self._ended = True
        if cancel_futures:
            self._cancels = True
            while (call := self._waiting_call()) is not None:
                call.future.cancel()
        # One None is enough for all threads.
        self._queue.put(None)
        if wait:
            for thread in list(self._threads):
                thread.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # Ctrl-C must not wait for what may take forever.
        self.shutdown(wait=error is None or isinstance(error, Exception), cancel_futures=error is not None)

    def _start_thread(self) -> None:
        self._started += 1
        thread = threading.Thread(target=self._serve, name=f"{self._name}_{self._started - 1}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            _warn_of_threads(len(self._threads), self.max_workers)
            self._serve_here()

    def _serve(self) -> None:
        if not self._take_place():
            return
        try:
            if self._begin is not None:
                self._begin()
            while (call := self._queue.get()) is not None:
                try:
                    call.run()
                finally:
                    del call
                    surplus = self._end_call()
                if surplus:
                    return
            self._queue.put(None)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _serve_here(self) -> None:
        """Run the waiting calls on the submitting thread, unless there are other threads."""
        with self._lock:
            if self._threads:
                return
            self._threads.add(threading.current_thread())
        try:
            while True:
                with self._lock:  # in which nothing is submitted
                    call = self._waiting_call()
                    if call is None:
                        self._threads.discard(threading.current_thread())
                        return
                call.run()
                self._end_call()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _take_place(self) -> bool:
        """Make the calling thread one of these, unless there are enough: more are started when Ctrl-C interrupts a start."""
        with self._lock:
            if len(self._threads) >= self.max_workers:
                return False
            self._threads.add(threading.current_thread())
            return True

    def _end_call(self) -> bool:
        """Count a call that has ended. Return whether the calling thread is surplus, and then is none of these any more."""
        with self._lock:
            self._open -= 1
            if len(self._threads) <= self.max_workers:
                return False
            self._threads.discard(threading.current_thread())
            return True

    def _waiting_call(self) -> _Call | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            return None


_all: WeakValues[Workers] = WeakValues()  # by id


def is_here(pool: Workers | None) -> TypeIs[Workers]:
    """Return whether there is a pool whose threads belong to this process: a forked child has none of its parent's."""
    return pool is not None and pool._process == os.getpid()


def _end_of_program() -> None:
    global ending
    ending = True
    pools = [pool for pool in _all if pool._process == os.getpid()]  # not those of a parent process
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
    threads = [thread for pool in pools for thread in list(pool._threads)]
    _wait_for(threads, _PATIENCE)
    for thread in threads:
        if thread.is_alive() and thread.ident is not None:
            # Raised at its next line of Python. A thread that returns from C++ to an interpreter that has ended could abort the process.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    _wait_for(threads, _PATIENCE_AFTER_EXIT)


def _wait_for(threads: list[threading.Thread], seconds: float) -> None:
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


threading._register_atexit(_end_of_program)  # type: ignore[attr-defined]  # the interpreter would join non-daemon threads, which may wait for ours, after it
