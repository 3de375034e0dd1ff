# SPDX-License-Identifier: Apache-2.0
"""Python threads: they end with the object they work for, and if the system refuses one, the work continues with fewer."""

import contextvars
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from . import native
from .weak import WeakValues

P = ParamSpec("P")
R = TypeVar("R")

# A KeyboardInterrupt raised in Python code that runs when an object is destroyed (`weakref.finalize`, the weak reference callback of
# ThreadPoolExecutor) is lost. That code therefore runs on a separate thread, which receives no signals; C code queues it.
_gone: SimpleQueue[Any] = SimpleQueue()
_guards: dict[int, "weakref.ref[Any]"] = {}  # by the action that they queue; a dead weak reference does nothing
_janitor: threading.Thread | None = None
_process = 0
_told = False
ending = False  # the program ends: what runs in threads of Python should stop


def _tell(running: int, wanted: int) -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            f"the system refuses further threads: {running} of {wanted} work, and whoever waits for a result, more slowly. "
            "`ulimit -u`, `ulimit -v` and the limits of the container tell what is allowed; set_num_threads() tells how many are wanted",
            RuntimeWarning,
            stacklevel=3,
        )


def tell_refused() -> None:
    """Warn, once per process, if the system refused the native library a thread."""
    refused = native.refused_threads.value
    if refused and not _told:
        _tell(refused >> 32, refused & 0xFFFFFFFF)


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


def when_gone(owner: Any, action: Callable[[], Any]) -> None:
    """Call ``action``, which must not refer to ``owner``, on a thread of this module after ``owner`` was collected; not in forked children."""
    _start_janitor()
    _guards[id(action)] = weakref.ref(owner, partial(_gone.put, action))  # type: ignore[arg-type]  # put(action, reference)


def soon(action: Callable[[], Any]) -> None:
    """Call ``action`` on a thread of this module, which receives no signals."""
    _start_janitor()
    _gone.put(action)


class Workers(ThreadPoolExecutor):
    """Threads for ``owner``, which end with it, or with a ``with`` block. Their work sees the context variables of the submitting thread.

    At the end of the program those of an owner finish what they are doing, and what has not begun is cancelled.
    ``begin`` is called at the start of each thread. If the system refuses threads there are fewer; without any, :meth:`submit` does the work itself.

    >>> with Workers(2, "powers") as pool:
    ...     pool.submit(pow, 2, 5).result()
    32
    """

    def __init__(self, threads: int, name: str, owner: Any = None, begin: Callable[[], Any] | None = None) -> None:
        super().__init__(threads, name, begin)
        if owner is None:
            _start_janitor()
        else:
            when_gone(owner, partial(self.shutdown, wait=False, cancel_futures=True))
            _owned[id(self)] = self

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Schedule a function."""
        work = partial(contextvars.copy_context().run, partial(fn, *args, **kwargs))
        future: Future[R] = super().submit(work)  # type: ignore[assignment]
        if self._threads or not future.cancel():
            return future
        made: Future[R] = Future()
        try:
            made.set_result(work())  # type: ignore[arg-type]
        except Exception as error:
            made.set_exception(error)
        return made

    def _adjust_thread_count(self) -> None:
        # The base class has queued the call already and would forget its future.
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            _tell(len(self._threads), self._max_workers)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _gone.put(partial(_nothing, self))


def _nothing(_: Any) -> None:
    pass


_owned: WeakValues[Workers] = WeakValues()  # by id


def _end_of_program() -> None:
    global ending
    ending = True
    for one in _owned:
        one.shutdown(wait=False, cancel_futures=True)


threading._register_atexit(_end_of_program)  # type: ignore[attr-defined]  # before that of concurrent.futures, which waits for everything submitted
