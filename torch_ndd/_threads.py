# SPDX-License-Identifier: Apache-2.0
"""Python's threads, and what is said when the system refuses one: a limit of processes or of memory has been reached."""

import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from . import _native

T = TypeVar("T")

_said = False


def _say(running: int, wanted: int) -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(
            f"the system refuses further threads: {running} of {wanted} work, and whoever waits for a result, more slowly. "
            "`ulimit -u`, `ulimit -v` and the limits of the container tell what is allowed; set_num_threads() tells how many are wanted",
            RuntimeWarning,
            stacklevel=3,
        )


def tell_refused() -> None:
    """Warn, once in a process, when the native library has been refused a thread."""
    refused = _native.refused_threads.value
    if refused and not _said:
        _say(refused >> 32, refused & 0xFFFFFFFF)


class Executor(ThreadPoolExecutor):
    """A pool of threads that goes on with fewer where the system refuses one, and without any does the work at :meth:`submit`.

    >>> with Executor(2) as pool:
    ...     pool.submit(pow, 2, 5).result()
    32
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """The result of a call to come."""
        future = super().submit(fn, *args, **kwargs)
        if self._threads or not future.cancel():
            return future
        made: Future[T] = Future()
        try:
            made.set_result(fn(*args, **kwargs))
        except Exception as error:
            made.set_exception(error)
        return made

    def _adjust_thread_count(self) -> None:
        # The base class has queued the call by now and would forget its future.
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            _say(len(self._threads), self._max_workers)
