# SPDX-License-Identifier: Apache-2.0
"""Load a library of codecs when the first file needs it."""

import functools
from collections.abc import Callable
from typing import TypeVar

from .._core.native.dynamo import assume_constant_result
from .._core.process.fork_locks import new_lock

R = TypeVar("R")


def load_once(load: Callable[[], R]) -> Callable[[], R]:
    """Call a function once, whichever threads need it first, and return its result each time. After an error the next call tries again."""
    lock = new_lock()  # the first files of several threads; the native library must not get its functions twice
    results: list[R] = []

    @assume_constant_result  # also called while tracing a graph
    @functools.wraps(load)
    def load_unless_loaded() -> R:
        if not results:
            with lock:
                if not results:
                    results.append(load())
        return results[0]

    return load_unless_loaded
