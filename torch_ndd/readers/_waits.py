# SPDX-License-Identifier: Apache-2.0
"""Which of the sources of a reader is the slow one."""

import time
from collections.abc import Sequence
from typing import Any

from ._base import Reader


class Waits:
    """How long a reader has waited for each of its sources. They read at the same time, so that the wait is for the slow ones."""

    def __init__(self, names: Sequence[Any]) -> None:
        self.seconds = [0.0] * len(names)

    def measure(self, source: int) -> "_Wait":
        """Return a context that adds its time to that of a source."""
        return _Wait(self.seconds, source)


class _Wait:
    """A context without a generator, which took three times as long, for each source of a batch."""

    __slots__ = ("_begin", "_seconds", "_source")

    def __init__(self, seconds: list[float], source: int) -> None:
        self._seconds, self._source = seconds, source

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._source] += time.perf_counter() - self._begin


def describe_slowest(names: Sequence[Any], readers: Sequence[Reader], seconds: Sequence[float]) -> tuple[str, str]:
    """Return what a loader waits for, and advice, for the source that takes the most time; as ``describe_bottleneck`` does."""
    advice = [reader.describe_bottleneck() for reader in readers]
    # Unknown where native threads read the files of all sources together. Advice about Python code helps more than advice about files.
    if len(names) == 1 or not any(seconds):
        return next((pair for pair in advice if pair[0] != "files"), advice[0])
    slowest = max(range(len(names)), key=seconds.__getitem__)
    what, how = advice[slowest]
    return f"{what} of the source {names[slowest]!r}, which takes the most time", how
