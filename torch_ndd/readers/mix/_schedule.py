# SPDX-License-Identifier: Apache-2.0
"""Exact interleaving: which source delivers position n of a mix, a pure function of the weights.

Item j of source i, from 0, is due at (2j + 1) / (2 W_i). Positions are the order of the due times; of equal ones the earlier source comes first. So
after n samples the counts of the sources are the Sainte-Lague apportionment of n, and the sequence has the period of all W_i together.
"""

import bisect
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

MAX_PERIOD = 1 << 20  # a larger sum of weights is scaled to it
MAX_SOURCES = 1 << 16  # they are numbered by uint16
# Slots of a period that are computed together: 1 ms. A whole period of 2**20 takes 150 ms, so it is computed as far as it is needed.
_PART = 8192
# Differences of due times within a period are at least 1 / (2 W_i W_k) >= 2**-40.
_DUE_BITS = 46


def reduce_weights(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """Return positive weights as whole numbers in the same proportion, or nearly so if their sum would pass 2**20.

    >>> reduce_weights([Fraction("0.5"), Fraction("0.3"), Fraction("0.2")])
    (5, 3, 2)
    """
    common = math.lcm(*(weight.denominator for weight in weights))
    whole = [int(weight * common) for weight in weights]
    divisor, total = math.gcd(*whole), sum(whole)
    if total // divisor <= MAX_PERIOD:
        return tuple(weight // divisor for weight in whole)
    # Scaled down with rounding, but never to 0: every source keeps a share.
    return tuple(max(1, round(Fraction(weight * MAX_PERIOD, total))) for weight in whole)


class _Part(NamedTuple):
    """Some slots of a period."""

    begin: int  # the first slot
    counts: np.ndarray  # items of each source before it
    sources: np.ndarray  # uint16


class Schedule:
    """An endless sequence of sources. A slot is ``block`` consecutive positions of one source.

    >>> Schedule([3, 1]).sources(0, 8).tolist(), Schedule([3, 1]).counts(6).tolist()
    ([0, 0, 1, 0, 0, 0, 1, 0], [5, 1])

    Args:
        weights: whole numbers W_i.
        block: consecutive positions of one source.
        begin: the sequence begins after so many slots, in which every source had whole blocks.
    """

    def __init__(self, weights: Sequence[int], block: int = 1, begin: int = 0) -> None:
        whole = np.asarray(weights, np.int64)
        # Several periods are one of larger weights; a short one would be read piece by piece.
        self.weights = whole * max(1, _PART // int(whole.sum()))
        self.block, self.period = block, int(self.weights.sum())
        self._begin = begin * block
        self._parts: list[_Part | None] = [None] * max(1, -(-self.period // _PART))

    def sources(self, begin: int, count: int) -> np.ndarray:
        """Return the sources of ``count`` positions, uint16."""
        first, last = begin + self._begin, begin + self._begin + count
        # Slots that contain the first and the last position.
        slot, end = first // self.block, -(-last // self.block)
        found = []
        while slot < end:
            part = self._find(slot % self.period)
            at = slot % self.period - part.begin
            found.append(part.sources[at : at + end - slot])
            slot += len(found[-1])
        slots = found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.uint16), *found])
        # With blocks, each slot stands for `block` positions.
        return slots if self.block == 1 else slots[np.arange(first, last) // self.block - first // self.block]

    def counts(self, position: int) -> np.ndarray:
        """Return how many positions before this one each source has, int64; slots before ``begin`` count too."""
        # Whole periods have every source by its weight; only the rest is counted.
        slot, inside = divmod(position + self._begin, self.block)
        periods, slot = divmod(slot, self.period)
        part = self._find(slot)
        before = part.sources[: slot - part.begin]
        found = (periods * self.weights + part.counts + np.bincount(before, minlength=len(self.weights))) * self.block
        if inside:
            found[part.sources[slot - part.begin]] += inside
        return found

    def locate(self, source: int, item: int) -> int:
        """Return the position of an item of a source; ``begin`` must be 0."""
        # The item's slot is the number of slots that are due up to it, less one.
        number, inside = divmod(item, self.block)
        return (int(count_before(self.weights, number, source).sum()) - 1) * self.block + inside

    def _find(self, slot: int) -> _Part:
        """Return the part of the period with this slot."""
        last = len(self._parts) - 1
        # Due times are spread nearly evenly over the period, so this guess is close; the loops correct it.
        k = slot * len(self._parts) // self.period
        while k and (part := self._part(k)).begin > slot:
            k -= 1
        while True:
            part = self._part(k)
            if k == last or slot < part.begin + len(part.sources):
                return part
            k += 1

    def _part(self, k: int) -> _Part:
        found = self._parts[k]
        if found is None:
            found = self._parts[k] = self._compute(k)
        return found

    def _compute(self, k: int) -> _Part:
        """Return the slots whose due times are from k / n to (k + 1) / n of the period, with n parts."""
        parts, weights = len(self._parts), self.weights
        # The first item of each source with (2j + 1) / (2 W) >= k / n.
        first, last = (np.maximum(0, -((parts - 2 * weights * edge) // (2 * parts))) for edge in (k, k + 1))
        lengths = last - first
        source = np.repeat(np.arange(len(weights)), lengths)
        # Numbers of items count from `first` for each source.
        item = np.arange(len(source)) + (first - np.cumsum(lengths) + lengths)[source]
        # A quotient of numbers below 2**53 is rounded correctly, so equal due times are equal here, and the bits tell different ones apart.
        due = ((2 * item + 1) / (2 * weights[source]) * 2.0**_DUE_BITS).astype(np.int64)
        # Due time in the upper bits, source in the lower 16: one sort orders by both.
        keys = due << 16 | source
        keys.sort()
        return _Part(int(first.sum()), first, (keys & 0xFFFF).astype(np.uint16))


def count_before(weights: np.ndarray, number: int, source: int) -> np.ndarray:
    """Return how many items of each source are due up to item ``number`` of ``source``, with it, int64."""
    # Items with (2j + 1) * W_source <= (2 * number + 1) * W_i, without equality for the sources behind it.
    due = (2 * number + 1) * weights
    due[source + 1 :] -= 1
    return (due // int(weights[source]) + 1) // 2


class _Phase(NamedTuple):
    """The positions from one source's end to the next one's."""

    begin: int
    end: int
    active: np.ndarray  # sources
    schedule: Schedule


class FiniteSchedule:
    """The same order, in which a source ends after its items; the others go on.

    >>> FiniteSchedule([1, 1], [1, 3]).sources(0, 9).tolist()
    [0, 1, 1, 1]

    Args:
        weights: whole numbers W_i.
        items: of each source.
        block: consecutive positions of one source, except for its last ones.
    """

    def __init__(self, weights: Sequence[int], items: Sequence[int], block: int = 1) -> None:
        self.weights, self.items, self.block = np.asarray(weights, np.int64), np.asarray(items, np.int64), block
        self.total = int(self.items.sum())
        self._slots = -(-self.items // block)
        # When the last item of each source is due, exactly: with floats, two ends could change places between machines.
        due = {k: Fraction(2 * slots - 1, 2 * weight) for k, (slots, weight) in enumerate(zip(self._slots.tolist(), weights, strict=True)) if slots}
        self._ending = sorted(due, key=lambda k: (due[k], k))  # sources in the order of their ends
        self._phase: _Phase | None = None

    def sources(self, begin: int, count: int) -> np.ndarray:
        """Return the sources of ``count`` positions, uint16; fewer at the end."""
        end, found = min(begin + count, self.total), [np.zeros(0, np.uint16)]
        while begin < end:
            phase = self._find(begin)
            part = phase.schedule.sources(begin - phase.begin, min(end, phase.end) - begin)
            found.append(phase.active[part].astype(np.uint16))
            begin += len(part)
        return np.concatenate(found)

    def counts(self, position: int) -> np.ndarray:
        """Return how many positions before this one each source has, int64."""
        if position >= self.total:
            return self.items.copy()
        phase, found = self._find(position), self.items.copy()
        # Sources that have ended keep all of their items; the others have what the phase's schedule counted.
        found[phase.active] = phase.schedule.counts(position - phase.begin)
        return found

    def _slots_before(self, ended: int) -> np.ndarray:
        """Return the slots of each source up to the end of this many sources."""
        if not ended:
            return np.zeros_like(self._slots)
        source = self._ending[ended - 1]
        return np.minimum(count_before(self.weights, int(self._slots[source]) - 1, source), self._slots)

    def _begin(self, ended: int) -> int:
        return int(np.minimum(self._slots_before(ended) * self.block, self.items).sum())

    def _find(self, position: int) -> _Phase:
        phase = self._phase
        if phase is None or not phase.begin <= position < phase.end:
            # bisect over phases: `_begin` computes the first position of each only when it is compared.
            ended = bisect.bisect_right(range(len(self._ending)), position, key=self._begin) - 1
            active = np.sort(np.asarray(self._ending[ended:], np.int64))
            # It begins where the active sources stand: the number of their slots so far.
            schedule = Schedule(self.weights[active].tolist(), self.block, int(self._slots_before(ended)[active].sum()))
            phase = self._phase = _Phase(self._begin(ended), self._begin(ended + 1), active, schedule)
        return phase
