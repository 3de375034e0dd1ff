# SPDX-License-Identifier: Apache-2.0
"""Python's threads: they end with the object that they work for, and where the system refuses one, the work goes on with fewer."""

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

from . import _native

P = ParamSpec("P")
R = TypeVar("R")

# Ctrl-C that falls into Python code which runs because an object goes (`weakref.finalize`, the callback of a weak reference as that in
# ThreadPoolExecutor) is lost. So that code runs on a thread of its own, where no signals arrive; what puts it there is C.
_gone: SimpleQueue[Any] = SimpleQueue()
_guards: dict[int, "weakref.ref[Any]"] = {}  # by the action that they put there; a weak reference that is gone itself does nothing
_janitor: threading.Thread | None = None
_process = 0
_told = False


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
    """Warn, once in a process, when the native library has been refused a thread."""
    refused = _native.refused_threads.value
    if refused and not _told:
        _tell(refused >> 32, refused & 0xFFFFFFFF)


def _work(gone: "SimpleQueue[Any]") -> None:
    while True:
        action = gone.get()
        _guards.pop(id(action), None)
        action()
        del action  # with what it holds


def _start_janitor() -> None:
    global _janitor, _process, _gone
    if _process != os.getpid():  # the child of a fork has no threads, and a queue that its parent's was waiting at
        gone: SimpleQueue[Any] = SimpleQueue() if _process else _gone
        thread = threading.Thread(target=_work, args=[gone], name="torch_ndd janitor", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return  # what is put there waits for the next attempt
        _janitor, _process, _gone = thread, os.getpid(), gone


def is_janitor(thread: threading.Thread) -> bool:
    """Whether a thread is the one of this module: it runs none of torch's code."""
    return thread is _janitor


class Workers(ThreadPoolExecutor):
    """Threads for ``owner``, which end when it goes, or with a ``with`` block. What they do sees the context variables of who submits it.

    Where the system refuses a thread there are fewer, and without any :meth:`submit` does the work.

    >>> with Workers(2, "powers") as pool:
    ...     pool.submit(pow, 2, 5).result()
    32
    """

    def __init__(self, threads: int, name: str, owner: Any = None) -> None:
        super().__init__(threads, name)
        _start_janitor()
        if owner is not None:
            action = partial(self.shutdown, wait=False, cancel_futures=True)
            _guards[id(action)] = weakref.ref(owner, partial(_gone.put, action))  # type: ignore[arg-type]  # put(action, reference)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a function called."""
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
        # The base class has queued the call by now and would forget its future.
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            _tell(len(self._threads), self._max_workers)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _gone.put(partial(_nothing, self))


def _nothing(_: Any) -> None:
    pass
