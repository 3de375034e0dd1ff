# SPDX-License-Identifier: Apache-2.0
"""Locks that are free in a forked child, which has none of the threads that may have held them."""

import os
import threading
from typing import Any

from .weak import WeakValues

_locks: WeakValues[Any] = WeakValues()  # by id


def new_lock() -> threading.Lock:
    """Return a lock that a forked child finds unlocked.

    The state that it guards must be usable in the child at any moment: assign whole values, or drop incomplete changes in the child.
    """
    lock = threading.Lock()
    # Weak, because locks belong to objects that come and go.
    _locks[id(lock)] = lock
    return lock


def new_reentrant_lock() -> Any:
    """Return a reentrant lock that a forked child finds unlocked, unless the thread that forked holds it."""
    lock = threading.RLock()
    _locks[id(lock)] = lock
    return lock


def _in_child() -> None:
    # A reentrant lock stays with the thread that forked, which releases it in the child.
    for lock in _locks:
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()


os.register_at_fork(after_in_child=_in_child)
