# SPDX-License-Identifier: Apache-2.0
"""How busy the threads of a data set are."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..._core.process.fork_locks import new_lock


class Activity:
    """Measures how many cores concurrent calls use together while any of them runs."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._active = 0
        self._since = self._elapsed = self._cpu = 0.0
        self._local = threading.local()

    def __enter__(self) -> None:
        # Per thread: several calls overlap, and thread_time counts only the own CPU time.
        self._local.cpu = time.thread_time()
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end(time.thread_time() - self._local.cpu)

    def _begin(self) -> None:
        with self._lock:
            if not self._active:
                # The clock runs from the first call that enters until the last one leaves.
                self._since = time.perf_counter()
            self._active += 1

    def _end(self, cpu: float) -> None:
        with self._lock:
            self._cpu += cpu
            self._active -= 1
            if not self._active:
                self._elapsed += time.perf_counter() - self._since

    def seconds(self) -> float:
        """Return the seconds during which any call was running."""
        with self._lock:
            return self._elapsed + (time.perf_counter() - self._since if self._active else 0.0)

    def cores(self) -> float:
        """Return CPU seconds per second."""
        elapsed = self.seconds()
        return self._cpu / elapsed if elapsed else 0.0

    def __getstate__(self) -> dict[str, Any]:
        # Locks cannot be pickled, and measurements belong to a process.
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()


# What measures a call, a function that returns items of samples, and the samples.
MeasuredCall = tuple[Activity, Callable[[list[int]], list[Any]], list[int]]


def call_measured(calls: Sequence[MeasuredCall]) -> list[Any]:
    """Return the items of calls, one after the other. What measures them reads the thread's CPU time once between two, because it takes 0.35 us."""
    items: list[Any] = []
    before = time.thread_time()
    for activity, read, samples in calls:
        activity._begin()
        try:
            items += read(samples)
        finally:
            now = time.thread_time()
            activity._end(now - before)
            before = now
    return items
