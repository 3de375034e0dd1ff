# SPDX-License-Identifier: Apache-2.0
"""Forks wait for threads that are inside a Python library with locks of its own."""

import os
import threading

_LONGEST = 60.0  # seconds that a fork waits


class ForkGate:
    """A context that a fork of the process waits for, and does not begin in while there is a fork.

    A child of a fork has the parent's locks as they were, and none of the threads that would release them: a lock that a reading thread held is
    locked forever there. astropy has one for each lazy property, for example, and a child that looks at an image waits for it.

    >>> gate = ForkGate()
    >>> with gate:
    ...     pass
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._renew)

    def _renew(self) -> None:
        # A child begins with a lock and counts of its own: the parent's lock is held by the thread that forked.
        self._changed = threading.Condition()
        self._inside, self._closed = 0, False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def _close(self) -> None:
        self._changed.acquire()  # until the parent's _open()
        self._closed = True
        # Bounded: a read that hangs must not keep the program from forking forever.
        self._changed.wait_for(lambda: not self._inside, _LONGEST)

    def _open(self) -> None:
        self._closed = False
        self._changed.notify_all()
        self._changed.release()
