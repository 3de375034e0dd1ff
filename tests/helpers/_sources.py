# SPDX-License-Identifier: Apache-2.0
"""Pipelines with one external source, and the processes of parallel ones."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def make_pipe(dali: Any, source: Any = None, batch_size: int = 3, depth: int = 2, more: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Return a pipeline with one external source."""
    pipe = dali.Pipeline(batch_size, 1, None, prefetch_queue_depth=depth, **(more or {}))
    with pipe:
        nodes = dali.fn.external_source(source, **options)
        pipe.set_outputs(*(nodes if isinstance(nodes, list) else [nodes]))
    return pipe


def parallel(
    dali: Any, source: Any, batch_size: int = 3, depth: int = 2, workers: int = 1, start: str = "fork", pickler: Any = None, **options: Any
) -> Any:
    """Return a pipeline with one source that worker processes call."""
    more = {"py_num_workers": workers, "py_start_method": start, "py_callback_pickler": pickler}
    return make_pipe(dali, source, batch_size, depth, more, **{"parallel": True, **options})


def sample(info: Any) -> np.ndarray:
    """Give where the sample is, for three iterations."""
    if info.iteration == 3:
        raise StopIteration
    return np.int32([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])


def processes(pipe: Any) -> list[int]:
    """Return the workers of a pipeline."""
    return pipe.__dict__["_py_pool"].processes


def alive(pids: Sequence[int]) -> list[int]:
    """Return which of the processes exist and are not only waiting to be reaped."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(pid)
    return found


def assert_ended(pids: Sequence[int], seconds: float = 60) -> None:
    """Wait until the processes have ended; fail if they do not."""
    end = time.monotonic() + seconds
    while alive(pids):
        assert time.monotonic() < end, f"still running: {alive(pids)}"
        time.sleep(0.01)
