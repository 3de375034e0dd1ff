# SPDX-License-Identifier: Apache-2.0
"""Shards as tasks on a Ray cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._core.context.pools import get_num_threads, set_num_threads
from ._plan import Options, Plan, Sample
from ._shards import write_shard

_AHEAD = 4  # tasks for each CPU that are known to Ray


def _task(source: str, target: str, options: Options, number: int, samples: list[Sample]) -> dict[str, Any]:
    # Ray starts a task for each CPU: a task must not start threads for all of them.
    if get_num_threads() != 1:
        set_num_threads(1)
    return write_shard(Path(source), Path(target), options, number, samples)


def run_on_cluster(pack_plan: Plan, where: Path, left: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Write shards on all machines of the cluster, and return their numbers and records as they are done.

    Raises:
        RuntimeError: Ray is not installed, or a shard failed for good.
    """
    try:
        import ray
        from ray.exceptions import RayTaskError
    except ImportError:
        raise RuntimeError("pack: --ray needs Ray: pip install 'torch_ndd[ray]'") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    task = ray.remote(num_cpus=1, max_retries=3)(_task)
    source, target = str(pack_plan.source.resolve()), str(where.resolve())
    # Enough tasks to keep all CPUs busy, without holding a record of every shard in memory.
    most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    shards, waiting = pack_plan.shards(), iter(left)
    running: dict[Any, int] = {}
    try:
        while True:
            while len(running) < most and (number := next(waiting, None)) is not None:
                running[task.remote(source, target, pack_plan.options, number, shards[number])] = number
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            try:
                record = ray.get(done[0])
            except RayTaskError as error:
                raise RuntimeError(str(error.cause)) from None
            yield running.pop(done[0]), record
    # If the caller stops early, tasks must not go on writing.
    finally:
        for task in running:
            ray.cancel(task)
