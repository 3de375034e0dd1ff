# SPDX-License-Identifier: Apache-2.0
"""``external_source(parallel=True)``: sources that worker processes call ahead of the pipeline."""

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..._core.process.workers import call_when_freed
from .. import types
from .._graph.graph import Operation, Step
from .sources import Group, InputOperation, Source
from .worker import WorkerSource
from .worker_pool import Layout, WorkerPool


def parallel_group(title: str, source: Source | None, batch: bool, returns_tuple: bool, options: Mapping[str, Any]) -> "ParallelGroup":
    """Return the group of a parallel source.

    Raises:
        TypeError: a source that cannot run in parallel.
        ValueError: arguments that contradict ``parallel``.
    """
    if source is None:
        raise TypeError(f"{title}: parallel=True needs a source")
    if options.get("no_copy") is False:
        raise ValueError(f"{title}: no_copy=False contradicts parallel=True")
    depth, hint = options.get("prefetch_queue_depth", 1), options.get("bytes_per_sample_hint")
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
        raise TypeError(f"{title}: with parallel=True a callable must take one argument, the position of its data: workers call it in any order")
    return ParallelGroup(title, source, batch, bool(options.get("batch_info")), returns_tuple, depth, hint)


class ParallelGroup(Group):
    """A source that workers call ahead. See :class:`Group`.

    The batches of an epoch are sent to the workers in their order, at most ``depth`` ahead. A jump, to another epoch or position, drops what they
    compute; results of before it are recognized by the number of the restart.
    """

    def __init__(self, title: str, source: Source, batch: bool, batch_info: bool, returns_tuple: bool, depth: int, hint: int | None) -> None:
        super().__init__(title, source, batch, batch_info, returns_tuple)
        self._depth, self._hint = depth, hint
        self._pool: WorkerPool | None = None
        self._index = 0
        self._restarts = 0
        self._expected: tuple[int, int] | None = None  # epoch and iteration of the batch received next, if nothing jumps
        self._next_sent = 0  # the iteration that is sent to workers next
        self._pulled = 0  # items of an iterable that were pulled

    @property
    def has_workers(self) -> bool:
        """Whether workers were started for the source."""
        return self._pool is not None

    def assign(self, pool: WorkerPool, index: int) -> None:
        """Use workers that know this source by a number."""
        self._pool, self._index = pool, index

    def worker_source(self) -> WorkerSource:
        """Return the source as workers need it."""
        return WorkerSource(self.source.object, self.source.cycle, len(self.operations) if self.returns_tuple else None)

    def layout(self, workers: int, batch_size: int) -> Layout:
        """Return the shared memory that the source needs: for the batch that is being received, and those that are computed ahead."""
        # A batch comes from one worker; single samples are divided among all of them.
        parts = 1 if self.batch else workers
        samples = -(-batch_size // parts)
        return Layout(self._depth + 1, parts, samples, (self._hint or 0) * samples)

    def call(self, step: Step, size: int) -> Any:
        """Return the batch of an iteration and send the workers the next one."""
        assert self._pool is not None
        # An iterable has one position, whatever the epoch; a callable is called with the position.
        epoch, number = (0, self._pulled) if self.source.iterable else (step.epoch, step.iteration)
        if self._expected != (epoch, number):
            self._expected = None
            self._pool.drop(self._index)  # workers may still write to the memory that the restart needs
            self._restarts += 1
            self._next_sent = number
            self._expected = (epoch, number)
        self._send_until(number + self._depth, step.epoch, size)  # nothing to send, except after a restart
        self._pulled += 1
        results = self._pool.receive(self._index, self._restarts, number)
        parts = len(results)
        # Worker k has samples k, k + parts, ...: this is the position of the failed one in the batch.
        failed = [(k + result.failed_at * parts, result.error) for k, result in enumerate(results) if result.error is not None]
        if failed:
            self._expected = None  # the next call restarts the source
            _, error = min(failed)  # the first sample in the batch: as without workers
            # An empty text stands for StopIteration in the worker.
            if error:
                raise Exception(f"{self.title}: the source raised an exception in a worker process:\n\n{error}")
            raise StopIteration
        self._expected = (epoch, number + 1)
        self._send_until(number + 1 + self._depth, step.epoch, size)
        items = [self._pool.items(self._index, result) for result in results]
        if self.batch:
            return items[0][0]
        # Sample k was computed by worker k % parts.
        return [items[k % parts][k // parts] for k in range(size)]

    def _send_until(self, end: int, epoch: int, size: int) -> None:
        while self._next_sent < end:
            self._send(self._next_sent, epoch, size)
            self._next_sent += 1

    def _send(self, iteration: int, epoch: int, size: int) -> None:
        pool = self._pool
        assert pool is not None
        if self.batch:
            # An iterable lives in one worker, its position is there; calls for batches go round all workers.
            worker = self._index % pool.count if self.source.iterable else iteration % pool.count
            arguments = (self.batch_argument(iteration, epoch),) if self.source.takes_argument else ()
            pool.send(worker, self._index, self._restarts, iteration, 0, [arguments], False)
            return
        infos = [(types.SampleInfo(iteration * size + k, k, iteration, epoch),) for k in range(size)]
        for worker in range(pool.count):
            pool.send(worker, self._index, self._restarts, iteration, worker, infos[worker :: pool.count], True)

    def close(self) -> None:
        """End the workers, and drop the batch in their shared memory."""
        self._item = None
        if self._pool is not None:
            self._pool.close()


def start_pool(owner: Any, operations: Sequence[Operation], batch_size: int, workers: int, start_method: str, pickler: Any) -> WorkerPool | None:
    """Start the worker processes for the parallel sources among operations; None if there are none, or if they have workers.

    They end when ``owner``, the pipeline, is deleted.
    """
    groups: list[ParallelGroup] = []
    for operation in operations:
        group = operation.group if isinstance(operation, InputOperation) else None
        if isinstance(group, ParallelGroup) and group not in groups:
            groups.append(group)
    if all(group.has_workers for group in groups):
        return None
    layouts = [group.layout(max(workers, 1), batch_size) for group in groups]
    pool = WorkerPool([group.worker_source() for group in groups], layouts, workers, start_method, pickler)
    call_when_freed(owner, partial(_end, pool, [weakref.ref(group) for group in groups]))  # weak: a source may refer to the pipeline
    for index, group in enumerate(groups):
        group.assign(pool, index)
    return pool


def memory_statistics(pool: WorkerPool | None) -> dict[str, Any]:
    """Return the sizes in bytes of the shared memories of parallel sources, and those sizes divided by the samples in each."""
    capacities, samples = ([], []) if pool is None else (pool.capacities(), pool.samples())
    return {"capacities": capacities, "per_sample_capacities": [size // count for size, count in zip(capacities, samples, strict=True)]}


def _end(pool: WorkerPool, groups: "list[weakref.ref[ParallelGroup]]") -> None:
    pool.close()
    for reference in groups:
        if (group := reference()) is not None:
            group.close()
