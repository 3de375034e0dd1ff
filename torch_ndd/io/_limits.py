# SPDX-License-Identifier: Apache-2.0
"""Limits on the size and duration of a download, because a server may never finish, or never answer."""

import math
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_GIB = 2**30
# A container is copied to disk once and may be as large as a disk; everything else is held in memory.
_FILE_BYTES, _CONTAINER_BYTES, _LISTING_BYTES = 4 * _GIB, 64 * _GIB, _GIB // 4
_FILE_SECONDS, _CONTAINER_SECONDS = 600.0, 3600.0
_STALL_SECONDS = 30.0
# Fewer bytes are not progress: otherwise a server that sends one byte per second would never time out.
_PROGRESS = 4096
# An attempt may use a third of the time without progress, so a dead connection is dropped and reopened.
_SHARES = 3


@dataclass(frozen=True)
class UrlLimits:
    """The limits of a read from one URL.

    Args:
        max_bytes: Largest file size. By default 4 GiB, and 64 GiB for a container without an index, which is downloaded to find its records.
        stall_seconds: Give up when fewer than 4096 bytes arrive in this time, over all attempts.
        max_seconds: Total time, over all attempts. By default 600, and 3600 for a container without an index.
    """

    max_bytes: int | None = None
    stall_seconds: float = _STALL_SECONDS
    max_seconds: float | None = None

    @classmethod
    def from_arguments(cls, op: str, max_bytes: Any, stall_seconds: Any, max_seconds: Any) -> "UrlLimits":
        """Convert arguments to limits. Raise TypeError or ValueError naming operator and argument for invalid ones."""
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


def current_limits() -> UrlLimits:
    """Return the limits of the current operation."""
    return _limits.get()


class using:
    """``with using(limits):`` applies limits to reads from URLs within the block."""

    def __init__(self, limits: UrlLimits) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        self._token = _limits.set(self._limits)

    def __exit__(self, *error: object) -> None:
        _limits.reset(self._token)


class LimitError(Exception):
    """A limit was reached; the message names its argument."""


class Meter:
    """Progress of one file, over all attempts."""

    def __init__(self, kind: str = "file", limits: UrlLimits | None = None) -> None:
        limits = current_limits() if limits is None else limits
        defaults = {"container": _CONTAINER_BYTES, "listing": _LISTING_BYTES}
        self.max_bytes = limits.max_bytes or defaults.get(kind, _FILE_BYTES)
        self._stall = limits.stall_seconds
        self._seconds = limits.max_seconds or (_CONTAINER_SECONDS if kind == "container" else _FILE_SECONDS)
        self._begin = self._mark = time.monotonic()
        self._since = 0  # bytes since the mark, which moves with every 4096 bytes
        self._last = self._begin  # time of the latest byte, or the start of the attempt
        self.counts = False
        """Whether bytes are reported as they arrive, so stalls are known."""
        self.takes_bodies = False
        """Whether the caller accepts a body in blocks instead of bytes."""
        self.ignored_range = False
        """Whether the server sent the whole file instead of a range."""

    def left(self) -> float:
        """Return the seconds until a limit is reached if nothing more arrives."""
        end = self._begin + self._seconds
        return max((min(end, self._mark + self._stall) if self.counts else end) - time.monotonic(), 0.0)

    def begin_attempt(self) -> None:
        """Note that another attempt begins."""
        self._last = time.monotonic()

    def patience(self) -> float:
        """Return how many more seconds the attempt may stay silent; 0 ends it."""
        return max(self._last + self._stall / _SHARES - time.monotonic(), 0.0) if self.counts else self._seconds

    def note_bytes(self, count: int) -> None:
        """Note that bytes have arrived."""
        self._last = time.monotonic()
        self._since += count
        if self._since >= _PROGRESS:
            self._mark, self._since = self._last, 0

    def check(self) -> None:
        """Raise LimitError if the time is over."""
        now = time.monotonic()
        if now >= self._begin + self._seconds:
            raise LimitError(f"it was not complete after {self._seconds:g} s (url_max_seconds)")
        if self.counts and now >= self._mark + self._stall:
            raise LimitError(f"fewer than {_PROGRESS} bytes have arrived in {self._stall:g} s (url_stall_seconds)")

    def check_size(self, size: int) -> None:
        """Raise LimitError if a file of this size is too large."""
        if size > self.max_bytes:
            raise LimitError(f"it has more than {self.max_bytes} bytes (url_max_bytes)")


meter: ContextVar[Meter | None] = ContextVar("torch_ndd_url_meter", default=None)
"""The meter of the file that is being read."""
