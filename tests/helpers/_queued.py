# SPDX-License-Identifier: Apache-2.0
"""Work for the CPU stream that takes time or fails, and whether it is done."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd._core import native

QUEUED = [EvalMode.deferred, EvalMode.eager]
SYNC = [EvalMode.sync_cpu, EvalMode.sync_full]
CAUSE = "grid_mask: sample 1: Tile argument must be positive, got 0"
TILES = ndd.batch([9, 0, 9])


def videos(size: int = 4) -> ndd.Batch:
    return ndd.batch([np.ones((frames, size, size, 3), np.uint8) for frames in (2, 5, 2)], layout="FHWC")


def failing(size: int = 4, input: ndd.Batch | None = None) -> ndd.Batch:
    """Return a call that fails in the kernel; with a ``size`` of 200 on another thread."""
    return ndd.grid_mask(videos(size) if input is None else input, tile=TILES)


def ones(size: int = 300, count: int = 8) -> ndd.Batch:
    return ndd.batch(np.ones((count, size, size, 3), np.uint8), layout="HWC")


def brighter(value: Any, times: int = 1) -> Any:
    for _ in range(times):
        value = ndd.brightness(value, brightness_shift=1 / 255)
    return value


def held_until(event: threading.Event, value: Any, from_size: int = 0) -> Any:
    """Return the same values, which are not ready before the event if their rows are at least ``from_size``."""

    def wait(sample: Any) -> Any:
        if len(sample) >= from_size:
            event.wait(60)
        return sample

    return ndd.python_function(wait, value, shape="same")


def is_done(value: Any) -> bool:
    return value.pending is None or bool(native.done(value.pending.handle))


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def error_of(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")
