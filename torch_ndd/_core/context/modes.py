# SPDX-License-Identifier: Apache-2.0
"""Evaluation modes: when the work of a call runs."""

import enum
import threading


class _Local(threading.local):
    def __init__(self) -> None:
        self.modes: list[EvalMode] = []
        self.mode = EvalMode.eager


class EvalMode(enum.IntEnum):
    """When operators run. Members are context managers for the calling thread.

    ``deferred``: when a result is needed, if ever. ``eager`` (the default): immediately, on other threads; errors are raised when a result is used.
    ``sync_cpu``: before the call returns. ``sync_full``: likewise, and the CUDA stream is synchronized too.

    >>> with EvalMode.sync_cpu:
    ...     EvalMode.current().name
    'sync_cpu'
    """

    deferred = 1
    eager = 2
    default = 2
    sync_cpu = 3
    sync_full = 4

    @staticmethod
    def current() -> "EvalMode":
        """Return the mode of the calling thread."""
        return _local.mode

    def __enter__(self) -> "EvalMode":
        _local.modes.append(_local.mode)
        _local.mode = self
        return self

    def __exit__(self, *error: object) -> None:
        _local.mode = _local.modes.pop()


_local = _Local()


def current_mode() -> int:
    """Return the mode of the calling thread, without overhead."""
    return _local.mode
