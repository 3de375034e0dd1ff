# SPDX-License-Identifier: Apache-2.0
"""``external_source(parallel=True)``: sources that worker processes call ahead."""

import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

from .._core.process.workers import call_when_freed
from . import types
from ._graph import Graph, Operation, Step
from ._sources import Group, InputOperation, Source
from ._worker import Called
from ._worker_pool import Layout, WorkerPool


def parallel_group(title: str, source: Source | None, batch: bool, several: bool, given: Mapping[str, Any]) -> "ParallelGroup":
    """Return the group of a parallel source.

    Raises:
        TypeError: a source that cannot run in parallel.
        ValueError: arguments that contradict ``parallel``.
    """
    if source is None:
        raise TypeError(f"{title}: parallel=True needs a source")
    if given.get("no_copy") is False:
        raise ValueError(f"{title}: no_copy=False contradicts parallel=True")
    depth, hint = given.get("prefetch_queue_depth", 1), given.get("bytes_per_sample_hint")
    for key, value in (("prefetch_queue_depth", depth), ("bytes_per_sample_hint", 1 if hint is None else hint)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{title}: {key} must be a positive int, got {value!r}")
    if source.iterable:
        if not batch:
            raise TypeError(
                f"{title}: parallel=True with batch=False needs a callable that takes a SampleInfo: samples of an iterable come one after the other. "
                "Let it give batches, with batch=True"
            )
    elif not source.takes_argument:
        raise TypeError(f"{title}: with parallel=True a callable must take one argument, which says what is wanted: workers call it in any order")
    return ParallelGroup(title, source, batch, bool(given.get("batch_info")), several, depth, hint)


class ParallelGroup(Group):
    """A source that workers call ahead. See :class:`Group`."""

    def __init__(self, title: str, source: Source, batch: bool, batch_info: bool, several: bool, depth: int, hint: int | None) -> None:
        super().__init__(title, source, batch, batch_info, several)
        self._depth, self._hint = depth, hint
        self._pool: WorkerPool | None = None
        self._index = 0
        self._restarts = 0
        self._next: tuple[int, int] | None = None  # epoch and iteration of the batch that is received next; of an iterable 0 and its number
        self._sent = 0  # the iteration that is sent next
        self._taken = 0  # items of an iterable that were asked for

    def prepare(self, pipeline: Graph) -> None:
        """Start the workers of the pipeline, for all of its parallel sources."""
        super().prepare(pipeline)
        if self._pool is None:
            _start(pipeline, pipeline._operations)

    def assigned(self, pool: WorkerPool, index: int) -> None:
        """Use workers that know this source by a number."""
        self._pool, self._index = pool, index

    def called(self) -> Called:
        """Return the source for the workers."""
        return Called(self.source.given, self.source.cycle, len(self.operations) if self.several else None)

    def layout(self, workers: int, batch_size: int) -> Layout:
        """Return the shared memory that is needed: for the batch that is being received, and those that are computed ahead."""
        parts = 1 if self.batch else workers
        samples = -(-batch_size // parts)
        return Layout(self._depth + 1, parts, samples, (self._hint or 0) * samples)

    def asked(self, step: Step, size: int) -> Any:
        """Return the batch of an iteration and let the workers begin another one."""
        assert self._pool is not None
        # Items of an iterable come one after the other, whatever the other sources do; a callable is told what is wanted.
        epoch, number = (0, self._taken) if self.source.iterable else (step.epoch, step.iteration)
        if self._next != (epoch, number):
            self._next = None
            self._pool.drop(self._index)
            self._restarts += 1
            self._sent = number
            self._next = (epoch, number)
        self._send_until(number + self._depth, step.epoch, size)
        self._taken += 1
        results = self._pool.receive(self._index, self._restarts, number)
        parts = len(results)
        failed = [(k + result.failed_at * parts, result.error) for k, result in enumerate(results) if result.error is not None]
        if failed:
            self._next = None  # begin again
            _, error = min(failed)
            if error:
                raise Exception(f"{self.title}: the source raised an exception in a worker process:\n\n{error}")
            raise StopIteration
        self._next = (epoch, number + 1)
        self._send_until(number + 1 + self._depth, step.epoch, size)
        items = [self._pool.items(self._index, result) for result in results]
        if self.batch:
            return items[0][0]
        return [items[k % parts][k // parts] for k in range(size)]

    def _send_until(self, end: int, epoch: int, size: int) -> None:
        while self._sent < end:
            self._send(self._sent, epoch, size)
            self._sent += 1

    def _send(self, iteration: int, epoch: int, size: int) -> None:
        pool = self._pool
        assert pool is not None
        if self.batch:
            worker = self._index % pool.count if self.source.iterable else iteration % pool.count
            arguments = (self.batch_argument(iteration, epoch),) if self.source.takes_argument else ()
            pool.send(worker, self._index, self._restarts, iteration, 0, [arguments], False)
            return
        infos = [(types.SampleInfo(iteration * size + k, k, iteration, epoch),) for k in range(size)]
        for worker in range(pool.count):
            pool.send(worker, self._index, self._restarts, iteration, worker, infos[worker :: pool.count], True)

    def close(self) -> None:
        """End the workers, and drop the batch that lies in their memory."""
        self._item = None
        if self._pool is not None:
            self._pool.close()


def start_workers(pipeline: Graph) -> None:
    """Start the workers of a pipeline's parallel sources, unless they run or there are none. This may be done before building it."""
    if not pipeline._operations and not pipeline._made:
        pipeline.build()
    _start(pipeline, pipeline._operations or pipeline._made)


def shm_statistics(pipeline: Graph) -> dict[str, Any]:
    """Return the sizes in bytes of the shared memories of a pipeline's parallel sources, and those sizes divided by the samples in each."""
    pool: WorkerPool | None = pipeline.__dict__.get("_py_pool")
    capacities, samples = ([], []) if pool is None else (pool.capacities(), pool.samples())
    return {"capacities": capacities, "per_sample_capacities": [size // count for size, count in zip(capacities, samples, strict=True)]}


def _start(pipeline: Graph, operations: list[Operation]) -> None:
    if pipeline.__dict__.get("_py_pool") is not None:
        return
    groups: list[ParallelGroup] = []
    for one in operations:
        if isinstance(one, InputOperation) and isinstance(one.group, ParallelGroup) and not any(one.group is other for other in groups):
            groups.append(one.group)
    if not groups:
        return
    workers = pipeline.py_num_workers
    layouts = [group.layout(max(workers, 1), pipeline.max_batch_size) for group in groups]
    pool = WorkerPool([group.called() for group in groups], layouts, workers, pipeline.py_start_method, pipeline._arguments["py_callback_pickler"])
    pipeline.__dict__["_py_pool"] = pool
    call_when_freed(pipeline, partial(_end, pool, [weakref.ref(group) for group in groups]))  # a source may refer to the pipeline
    for index, group in enumerate(groups):
        group.assigned(pool, index)


def _end(pool: WorkerPool, groups: "list[weakref.ref[ParallelGroup]]") -> None:
    pool.close()
    for one in groups:
        if (group := one()) is not None:
            group.close()
