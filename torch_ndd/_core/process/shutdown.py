# SPDX-License-Identifier: Apache-2.0
"""Process exit: daemon threads are stopped before torch unregisters the operators."""

import atexit
import threading
import time

from .. import native
from .workers import is_janitor

exiting = False


def park_daemon() -> None:
    """Block a daemon thread at exit until the interpreter ends it.

    torch unregisters the operators before that, and a thread that is ended inside torch's C++ code aborts the process.
    """
    if threading.current_thread().daemon:
        # An event that is never set.
        threading.Event().wait()


def _exit() -> None:
    global exiting
    exiting = True
    try:
        if any(thread.daemon and not is_janitor(thread) for thread in threading.enumerate()):
            time.sleep(0.05)  # for calls in progress
    finally:
        native.stop()


atexit.register(_exit)
