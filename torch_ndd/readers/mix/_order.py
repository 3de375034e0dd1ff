# SPDX-License-Identifier: Apache-2.0
"""The order of a mix: which sample of which source comes at a position."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from ..._core import native
from .._shared_steps import WINDOW, StepOrder
from ._schedule import FiniteSchedule, Schedule, count_before

_KEPT_PASSES = 2  # of each source: batches read ahead reach into the next one


class Era(NamedTuple):
    """Where a mix began with its present weights."""

    base: tuple[int, ...]
    """How many samples each source had delivered before, in all of its passes."""
    epoch: int = 0
    begin: int = 0
    """Positions between the begin of the era and that of the epoch; negative if the era began inside the epoch."""
    length: int = 0
    """Positions of that epoch."""


@dataclass(frozen=True)
class MixOrder(StepOrder):
    """The order of a mix. Sample numbers count through all sources, one after the other."""

    names: Sequence[str] = ()
    sizes: Sequence[int] = ()
    weights: Sequence[int] = ()
    block: int = 1
    once: bool = False
    """Each epoch is one pass over every source; otherwise passes go on from epoch to epoch."""
    shuffled: bool = False
    """Whether the interleaved order is permuted inside windows."""
    era: Era = Era(())  # noqa: RUF009 (immutable)
    begins: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64), compare=False)
    """The first sample number of each source, and the number of all samples."""
    _tables: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    _schedules: dict[bool, Schedule | FiniteSchedule] = field(default_factory=dict, compare=False, repr=False)

    @override
    def count(self, epoch: int) -> int:
        return self.era.length if epoch == self.era.epoch else self.size

    @override
    def first_window(self, epoch: int) -> int:
        # The schedule is unknown in front of an era that began inside the epoch.
        return max(0, -self.era.begin) if epoch == self.era.epoch else 0

    def since(self, epoch: int, at: int) -> int:
        """Return how many positions of the schedule are before this one."""
        era = self.era
        if epoch == era.epoch:
            return era.begin + at
        # Positions of the era's epoch, of all whole epochs since, and of this one.
        return at if self.once else era.begin + era.length + (epoch - era.epoch - 1) * self.size + at

    def count_samples(self, epoch: int, at: int) -> np.ndarray:
        """Return how many samples of each source come before a position, int64: in all passes, or with ``once`` in this epoch."""
        schedule, base = self._schedule(epoch)
        # Counts are exact at the begin of a shuffled window only; the part of the window is counted from its sources.
        first = at - (at - self.first_window(epoch)) % WINDOW if self.shuffled else at
        counts = base + schedule.counts(self.since(epoch, first))
        if first == at:
            return counts
        sources = self._sources(epoch, first, min(first + WINDOW, self.count(epoch)), schedule)
        return counts + np.bincount(sources[: at - first], minlength=len(self.sizes))

    def _schedule(self, epoch: int) -> tuple[Schedule | FiniteSchedule, np.ndarray]:
        """Return the schedule of an epoch, and what each source had delivered when it began."""
        # With `once` only the era's epoch may begin in the middle of passes; all later ones begin with fresh sources.
        first = epoch == self.era.epoch or not self.once
        base = np.asarray(self.era.base if first else [0] * len(self.sizes), np.int64)
        found = self._schedules.get(first)
        if found is None:
            left = np.asarray(self.sizes, np.int64) - base
            found = FiniteSchedule(self.weights, left.tolist(), self.block) if self.once else Schedule(self.weights, self.block)
            self._schedules[first] = found
        return found, base

    def _sources(self, epoch: int, begin: int, end: int, schedule: Schedule | FiniteSchedule) -> np.ndarray:
        """Return the sources of the positions of a window."""
        since = self.since(epoch, begin)
        sources = schedule.sources(since, end - begin)
        if not self.shuffled:
            return sources
        # Blocks stay together. Only the sources are permuted: each one's samples keep their order, so that the counts say which were delivered.
        block = (np.arange(since, since + len(sources)) // self.block) - since // self.block
        places = np.arange(int(block[-1]) + 1) if len(block) else np.zeros(0, np.int64)
        _shuffle(places, self.seed ^ _hash("order"), epoch, begin // WINDOW)
        return sources[np.argsort(places[block], kind="stable")]

    @override
    def compute(self, epoch: int, begin: int, end: int) -> np.ndarray:
        schedule, base = self._schedule(epoch)
        sources = self._sources(epoch, begin, end, schedule)
        items = base + schedule.counts(self.since(epoch, begin))
        # Group the positions by source, in ascending order, so that samples of each source are computed together.
        order = np.argsort(sources, kind="stable")
        counts = np.bincount(sources, minlength=len(self.sizes))
        ends, samples = np.cumsum(counts), np.empty(len(sources), np.int64)
        for source in np.flatnonzero(counts).tolist():
            places = order[ends[source] - counts[source] : ends[source]]
            samples[places] = self.begins[source] + self._samples(source, epoch, int(items[source]), len(places))
        return samples

    def _samples(self, source: int, epoch: int, first: int, count: int) -> np.ndarray:
        """Return samples ``first`` to ``first + count`` of a source, over its passes."""
        size, parts = self.sizes[source], []
        while count:
            # Item n of a source belongs to pass n // size, at place n % size.
            passes, begin = divmod(first, size)
            end = min(begin + count, size)
            numbers = self._table(source, epoch if self.once else passes)[begin:end] if self.random_shuffle else np.arange(begin, end)
            parts.append(numbers)
            first, count = first + len(numbers), count - len(numbers)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _table(self, source: int, passes: int) -> np.ndarray:
        """Return the permutation of a pass over a source."""
        found = self._tables.get((source, passes))
        if found is None:
            size = self.sizes[source]
            found = np.arange(size)
            _shuffle(found, self.seed, passes, _hash(self.names[source]))
            found = found.astype(np.int32) if size < 2**31 else found
            # Dicts keep insertion order: all but the latest of this source are dropped.
            for old in [key for key in self._tables if key[0] == source][: 1 - _KEPT_PASSES]:
                del self._tables[old]
            self._tables[source, passes] = found
        return found


def count_positions(weights: Sequence[int], sizes: Sequence[int], block: int, policy: Any) -> int:
    """Return the number of positions of an epoch."""
    if policy == "once":
        return sum(sizes)
    if policy not in ("first", "all"):
        return policy
    # The source whose pass ends first or last, by the due time of the block with its first item of the next pass or last one of this.
    items = list(sizes) if policy == "first" else [size - 1 for size in sizes]
    due = [(Fraction(2 * (item // block) + 1, 2 * weight), k) for k, (item, weight) in enumerate(zip(items, weights, strict=True))]
    source = (min(due) if policy == "first" else max(due))[1]
    number, inside = divmod(items[source], block)
    slots = int(count_before(np.asarray(weights, np.int64), number, source).sum()) - 1
    return slots * block + inside + (policy == "all")


def _hash(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _shuffle(order: np.ndarray, seed: int, epoch: int, part: int) -> None:
    native.shuffle(order.ctypes.data, len(order), seed & (2**64 - 1), epoch, part)
