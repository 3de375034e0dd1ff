# SPDX-License-Identifier: Apache-2.0
"""Threads that end with the object that they work for."""

import contextvars
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Ctrl-C that falls into Python code which runs because an object goes (`weakref.finalize`, the callback of a weak reference as that in
# ThreadPoolExecutor) is lost. So that code runs on a thread of its own, where no signals arrive; what puts it there is C.
_gone: SimpleQueue[Any] = SimpleQueue()
_guards: dict[int, "weakref.ref[Any]"] = {}  # by the action that they put there; a weak reference that is gone itself does nothing
_janitor: threading.Thread | None = None
_process = 0


def _work() -> None:
    while True:
        action = _gone.get()
        _guards.pop(id(action), None)
        action()
        del action  # with what it holds


def _start_janitor() -> None:
    global _janitor, _process
    if _process != os.getpid():  # the child of a fork has no threads
        _janitor, _process = threading.Thread(target=_work, name="torch_ndd janitor", daemon=True), os.getpid()
        _janitor.start()


def is_janitor(thread: threading.Thread) -> bool:
    """Whether a thread is the one of this module: it runs none of torch's code."""
    return thread is _janitor


class Workers(ThreadPoolExecutor):
    """Threads for ``owner``, which end when it goes, or with a ``with`` block. What they do sees the context variables of who submits it."""

    def __init__(self, threads: int, name: str, owner: Any = None) -> None:
        super().__init__(threads, name)
        _start_janitor()
        if owner is not None:
            action = partial(self.shutdown, wait=False, cancel_futures=True)
            _guards[id(action)] = weakref.ref(owner, partial(_gone.put, action))  # type: ignore[arg-type]  # put(action, reference)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a function called."""
        return super().submit(contextvars.copy_context().run, partial(fn, *args, **kwargs))  # type: ignore[return-value]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _gone.put(partial(_nothing, self))


def _nothing(_: Any) -> None:
    pass
