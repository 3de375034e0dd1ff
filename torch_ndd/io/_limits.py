# SPDX-License-Identifier: Apache-2.0
"""How much may come from a URL, and how long it may take: whoever answers there may never end, or never begin."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_GIB = 2**30
# A container is copied to a disk once, and may be as large as a disk; anything else is held in memory.
_FILE_BYTES, _CONTAINER_BYTES, _LISTING_BYTES = 4 * _GIB, 64 * _GIB, _GIB // 4
_FILE_SECONDS, _CONTAINER_SECONDS = 600.0, 3600.0
_STALL_SECONDS = 30.0
# Fewer bytes are no progress: a server that sends one a second would be waited for until the end.
_PROGRESS = 4096
# Of the seconds without progress an attempt may take a third: a connection that has died is given up, and made anew.
_SHARES = 3


@dataclass(frozen=True)
class UrlLimits:
    """The limits of what is read from one URL.

    Args:
        max_bytes: Bytes of the file. By default 4 GiB, and 64 GiB for a container without an index, which is copied to look for its records.
        stall_seconds: Seconds in which fewer than 4096 bytes arrive, over all attempts.
        max_seconds: Seconds in all, over all attempts. By default 600, and 3600 for a container without an index.
    """

    max_bytes: int | None = None
    stall_seconds: float = _STALL_SECONDS
    max_seconds: float | None = None

    @classmethod
    def checked(cls, op: str, max_bytes: Any, stall_seconds: Any, max_seconds: Any) -> "UrlLimits":
        """The limits that arguments mean. TypeError or ValueError naming operator and argument for what is none."""
        values = {"url_max_bytes": max_bytes, "url_stall_seconds": stall_seconds, "url_max_seconds": max_seconds}
        for name, value in values.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int if name == "url_max_bytes" else int | float):
                raise TypeError(f"{op}: {name} must be a number of {name.rpartition('_')[2]}, got {value!r}")
            if not value > 0 or not math.isfinite(value):
                raise ValueError(f"{op}: {name} must be positive and finite, got {value!r}")
        return cls(max_bytes, _STALL_SECONDS if stall_seconds is None else float(stall_seconds), max_seconds)


_limits: ContextVar[UrlLimits] = ContextVar("torch_ndd_url_limits", default=UrlLimits())  # noqa: B039 (it is frozen)


def current() -> UrlLimits:
    """The limits of the operation that is under way."""
    return _limits.get()


@contextmanager
def using(limits: UrlLimits) -> Iterator[None]:
    """What is read from URLs within this block has these limits."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


class LimitError(Exception):
    """A limit was reached; the text has its argument."""


class Meter:
    """What arrives of one file, over all attempts."""

    def __init__(self, kind: str = "file", limits: UrlLimits | None = None) -> None:
        limits = current() if limits is None else limits
        defaults = {"container": _CONTAINER_BYTES, "listing": _LISTING_BYTES}
        self.most = limits.max_bytes or defaults.get(kind, _FILE_BYTES)
        self._stall = limits.stall_seconds
        self._seconds = limits.max_seconds or (_CONTAINER_SECONDS if kind == "container" else _FILE_SECONDS)
        self._begin = self._mark = time.monotonic()
        self._since = 0  # bytes
        self._last = self._begin  # the latest byte, or the begin of the attempt
        self.counts = False
        """Whether somebody tells it of the bytes as they arrive: it then knows of seconds without progress."""
        self.ignored_range = False
        """Whether the server has sent the whole file instead of a range of it."""

    def left(self) -> float:
        """Seconds until a limit is reached if nothing more arrives."""
        end = self._begin + self._seconds
        return max((min(end, self._mark + self._stall) if self.counts else end) - time.monotonic(), 0.0)

    def begin_attempt(self) -> None:
        """Another attempt begins."""
        self._last = time.monotonic()

    def patience(self) -> float:
        """Seconds that the attempt may stay silent from now on; 0: it is given up."""
        return max(self._last + self._stall / _SHARES - time.monotonic(), 0.0) if self.counts else self._seconds

    def received(self, count: int) -> None:
        """Bytes have arrived."""
        self._last = time.monotonic()
        self._since += count
        if self._since >= _PROGRESS:
            self._mark, self._since = self._last, 0

    def check(self) -> None:
        """LimitError when the time is over."""
        now = time.monotonic()
        if now >= self._begin + self._seconds:
            raise LimitError(f"it was not complete after {self._seconds:g} s (url_max_seconds)")
        if self.counts and now >= self._mark + self._stall:
            raise LimitError(f"fewer than {_PROGRESS} bytes have arrived in {self._stall:g} s (url_stall_seconds)")

    def check_size(self, size: int) -> None:
        """LimitError when the file has more bytes than it may have."""
        if size > self.most:
            raise LimitError(f"it has more than {self.most} bytes (url_max_bytes)")


meter: ContextVar[Meter | None] = ContextVar("torch_ndd_url_meter", default=None)
"""Of what is being read."""
