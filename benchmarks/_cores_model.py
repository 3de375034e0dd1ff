# SPDX-License-Identifier: Apache-2.0
"""A discrete-event model of the CPU stream: how busy many threads would be, from costs that were measured on few."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Seconds, all measured; the model multiplies those of the lock for larger machines."""

    visit: float  # a hold of the lock: reports what was done and takes what follows, with other threads at the lock
    queue: float  # a hold of the lock that puts an operation of a batch into the queue
    wake: float  # from waking a thread until it asks for the lock
    issue: float = 0.0  # Python's calls of one batch, on one thread
    read: float = 0.0  # the reader's part of one batch, on the same thread


@dataclass(frozen=True)
class Load:
    """What is to be done: the seconds of each operation of a chain, of which samples take one at random."""

    lengths: Sequence[Sequence[float]]
    batch: int
    in_flight: int  # batches that are issued and not delivered


class _Batch:
    def __init__(self, number: int, load: Load, rng: random.Random) -> None:
        self.number, self.left = number, load.batch
        self.lengths = [[rng.choice(times) for times in load.lengths] for _ in range(load.batch)]
        self.issued = 0  # operations that are in the queue
        self.done = [0] * load.batch  # operations of each sample


class _Model:
    """One lock, which serves in order of arrival; threads that work, sleep or are being woken; Python, which issues batches."""

    def __init__(self, threads: int, load: Load, costs: Costs, batches: int, linked: bool, seed: int) -> None:
        self.threads, self.load, self.costs, self.batches, self.linked = threads, load, costs, batches, linked
        self.rng = random.Random(seed)
        self.events: list[tuple[float, int, str, tuple[object, ...]]] = []
        self.order = 0
        self.lock_free = 0.0
        self.ready: list[tuple[int, int, int]] = []  # batch, operation, sample: a heap, in the order of the calls
        self.open: dict[int, _Batch] = {}
        self.idle, self.called = threads, 0
        self.next_batch = self.delivered = 0
        self.python_busy = False
        self.finished: set[int] = set()
        self.worked: deque[tuple[float, float]] = deque()
        self.ends: list[float] = []

    def at(self, time: float, what: str, *arguments: object) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what, arguments))

    def take_lock(self, time: float, hold: float) -> float:
        """When a hold of the lock ends that is asked for now."""
        self.lock_free = max(self.lock_free, time) + hold
        return self.lock_free

    def run(self) -> float:
        """The share of the time that the threads work, of all batches but those of the start and the end."""
        self.python(0.0)
        while self.events and self.delivered < self.batches:
            time, _, what, arguments = heapq.heappop(self.events)
            getattr(self, what)(time, *arguments)
        begin, end = self.ends[self.load.in_flight + 1], self.ends[-self.load.in_flight - 1]
        inside = sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in self.worked)
        return inside / (end - begin) / self.threads

    # --- Python ---

    def python(self, time: float) -> None:
        """Issues the next batch when there are fewer than in_flight."""
        if self.python_busy or self.next_batch - self.delivered >= self.load.in_flight or self.next_batch >= self.batches:
            return
        self.python_busy = True
        number, self.next_batch = self.next_batch, self.next_batch + 1
        self.open[number] = _Batch(number, self.load, self.rng)
        self.at(time + self.costs.read + self.costs.issue / len(self.load.lengths), "issue", number)

    def issue(self, time: float, number: int) -> None:
        end = self.take_lock(time, self.costs.queue)
        self.at(end, "finish_issue", number)

    def finish_issue(self, time: float, number: int) -> None:
        batch = self.open[number]
        operation = batch.issued
        batch.issued += 1
        for sample, done in enumerate(batch.done):
            if done == operation:
                heapq.heappush(self.ready, (number, operation, sample))
        self.recruit(time, 1)
        if batch.issued < len(self.load.lengths):
            self.at(time + self.costs.issue / len(self.load.lengths), "issue", number)
        else:
            self.python_busy = False
            self.python(time)

    # --- threads ---

    def recruit(self, time: float, most: int) -> int:
        """As Scheduler::recruit."""
        if most == 1 and self.called > 0:
            return 0
        wanted = max(0, min(most, len(self.ready) - self.called, self.idle))
        self.idle -= wanted
        self.called += wanted
        for _ in range(wanted):
            self.at(time + self.costs.wake, "visit", None)
        return wanted

    def visit(self, time: float, did: tuple[int, int, int, int] | None) -> None:
        """A thread is at the lock: it did the operations from the first to the last of a sample, or was woken."""
        end = self.take_lock(time, self.costs.visit)
        self.at(end, "finish_visit", did)

    def finish_visit(self, time: float, did: tuple[int, int, int, int] | None) -> None:
        if did is None:
            self.called -= 1
        else:
            self.report(time, *did)
        # The chunks that others make ready during the hold come later: events are handled in order of time.
        if not self.ready:
            self.idle += 1
            return
        number, operation, sample = heapq.heappop(self.ready)
        batch = self.open[number]
        last = batch.issued - 1 if self.linked else operation
        # Waking is the caller's time as well, half of what it takes.
        begin = time + self.recruit(time, 2) * self.costs.wake / 2
        stop = begin + sum(batch.lengths[sample][operation : last + 1])
        self.worked.append((begin, stop))
        self.at(stop, "visit", (number, sample, operation, last))

    def report(self, time: float, number: int, sample: int, _first: int, last: int) -> None:
        batch = self.open[number]
        batch.done[sample] = last + 1
        if last + 1 < len(self.load.lengths):
            if last + 1 < batch.issued:
                heapq.heappush(self.ready, (number, last + 1, sample))
            return
        batch.left -= 1
        if batch.left == 0:
            del self.open[number]
            self.finished.add(number)
            while self.delivered in self.finished:  # in their order
                self.finished.remove(self.delivered)
                self.delivered += 1
                self.ends.append(time)
            self.python(time)


def busy(threads: int, load: Load, costs: Costs, linked: bool = True, seed: int = 0) -> float:
    """How large a part of the time ``threads`` threads work; ``linked=False``: each operation of a sample is a visit of the lock."""
    batches = max(30, 8 * threads // load.batch, 6 * load.in_flight)
    return _Model(threads, load, costs, batches, linked, seed).run()
