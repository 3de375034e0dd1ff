# SPDX-License-Identifier: Apache-2.0
"""The units of an epoch, and the steps that ranks take together."""

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple, Protocol, overload

import numpy as np

from . import _planner


class Cursor(NamedTuple):
    """Where ranks are in the units of an epoch. It names the window of the last delivered unit, so that no earlier one has to be planned again."""

    units: int = 0  # delivered; steps, where ranks divide each one
    window: int = 0
    before: int = 0  # units of all windows before this one
    check: int = 0  # checksum of the costs of the window


class Unit(NamedTuple):
    """Samples that are delivered together."""

    places: np.ndarray
    """Positions in the epoch, int64."""
    costs: np.ndarray
    """Their costs, float64 (n, k)."""
    cost: tuple[float, ...]
    """The sum of the costs, of each kind."""
    longest: tuple[float, ...]
    """The largest ones."""
    share: float
    """The largest share of a budget that the sum is."""
    square: float
    """The sum of squares of the first cost."""


class Units(Sequence[Unit]):
    """The groups of a cut that are not empty.

    Their sums are computed together, because NumPy calls for each group took ten times as long as planning them; but each unit becomes an object only
    when it is due: as objects those of a window took 100 bytes for each sample, in these arrays 24.
    """

    def __init__(self, places: np.ndarray, costs: np.ndarray, cut: _planner.Cut, budgets: np.ndarray) -> None:
        ends = cut.ends[np.diff(cut.ends, prepend=0) > 0]
        # Of empty groups, which are left out here, reduceat would return the next element.
        self._bounds = np.concatenate([np.zeros(1, np.int64), ends])
        self._places, self._costs = places[cut.members], costs[cut.members]
        kinds = costs.shape[1]
        self._sums, self._longest = (
            operation.reduceat(self._costs, self._bounds[:-1]) if len(ends) else np.zeros((0, kinds)) for operation in (np.add, np.maximum)
        )
        self._squares = np.add.reduceat(self._costs[:, 0] ** 2, self._bounds[:-1]) if len(ends) else np.zeros(0)
        self._shares = (self._sums / budgets).max(1)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, k: int) -> Unit: ...
    @overload
    def __getitem__(self, k: slice) -> list[Unit]: ...

    def __getitem__(self, k: int | slice) -> Unit | list[Unit]:
        if isinstance(k, slice):
            return [self[n] for n in range(*k.indices(len(self)))]
        if not 0 <= k < len(self):
            raise IndexError(k)
        begin, end = self._bounds[k : k + 2].tolist()
        sums, longest = tuple(self._sums[k].tolist()), tuple(self._longest[k].tolist())
        return Unit(self._places[begin:end], self._costs[begin:end], sums, longest, self._shares.item(k), self._squares.item(k))

    def list_places(self) -> list[np.ndarray]:
        """Return the places of each unit."""
        bounds = self._bounds.tolist()
        return [self._places[begin:end] for begin, end in pairwise(bounds)]


class Step(NamedTuple):
    """A unit for each rank."""

    parts: list[Unit]
    repeated: list[bool]
    """Which of them another rank has too, because there were too few samples."""
    after: Cursor
    whole: bool
    """Whether it is not one with too few units or samples, at the end of an epoch."""

    @property
    def units(self) -> int:
        """Return the number of parts that are not repetitions."""
        return self.repeated.count(False)

    @property
    def cost(self) -> tuple[float, ...]:
        """Return the cost over all ranks, of each kind."""
        found = [unit.cost for unit, again in zip(self.parts, self.repeated, strict=True) if not again]
        return tuple([sum(costs) for costs in zip(*found, strict=True)])


class Rules(Protocol):
    """What the settings of batches decide."""

    divides: ClassVar[bool]
    """Whether ranks divide a unit, rather than take one each."""
    window: int
    budgets: np.ndarray
    end: str

    def cut(self, costs: np.ndarray, epoch: int, window: int) -> _planner.Cut:
        """Return the units of a window."""
        ...

    def divide(self, costs: np.ndarray, ranks: int, step: int) -> _planner.Cut:
        """Return the part of each rank of a unit."""
        ...


CostsOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Maps positions in an epoch to those that are delivered at all, and their costs, float64 (n, k)."""


_OTHER_COSTS = "DataLoader: the saved state was made with other costs of the samples; load it with the same costs, or begin an epoch with set_epoch"


class Remaining(NamedTuple):
    """Positions of an epoch that other settings left, in order: some single ones, and all from ``tail`` on."""

    size: int
    """Samples of the epoch."""
    head: np.ndarray = np.zeros(0, np.int64)
    tail: int = 0

    def count(self) -> int:
        return len(self.head) + self.size - self.tail

    def cut(self, begin: int, count: int) -> np.ndarray:
        """Return ``count`` positions from number ``begin`` on; fewer at the end."""
        first = self.head[begin : begin + count]
        start = self.tail + max(begin - len(self.head), 0)
        return np.concatenate([first, np.arange(start, min(start + count - len(first), self.size), dtype=np.int64)])

    def without(self, rules: Rules, epoch: int, cursor: Cursor, costs_of: CostsOf) -> "Remaining":
        """Return what is left after the units before ``cursor``. Raise ValueError if the costs are not those with which it was made."""
        if not cursor.units:
            return self
        units, _ = plan(rules, self, epoch, cursor, costs_of)
        # What the cursor's window has not delivered comes first; the windows after it are still whole.
        begin = (cursor.window + 1) * rules.window
        rest = units.list_places()[cursor.units - cursor.before :]
        head = np.concatenate([np.sort(np.concatenate(rest)) if rest else np.zeros(0, np.int64), self.head[begin:]])
        return Remaining(self.size, head, min(self.tail + max(begin - len(self.head), 0), self.size))


def plan(rules: Rules, remaining: Remaining, epoch: int, cursor: Cursor, costs_of: CostsOf) -> tuple[Units, int]:
    """Return the units of the cursor's window, and the checksum of its costs. Raise ValueError if the cursor does not fit it."""
    places, costs = costs_of(remaining.cut(cursor.window * rules.window, rules.window))
    check = zlib.crc32(costs.tobytes())
    cut = rules.cut(costs, epoch, cursor.window) if len(places) else _NONE
    units = Units(places, costs, cut, rules.budgets)
    if cursor.units > cursor.before and (check != cursor.check or cursor.units - cursor.before > len(units)):
        raise ValueError(_OTHER_COSTS)
    return units, check


class Steps(Iterator[Step]):
    """The steps of the rest of an epoch for a number of ranks. A window is planned when its first unit is due."""

    def __init__(
        self,
        rules: Rules,
        remaining: Remaining,
        epoch: int,
        cursor: Cursor,
        costs_of: CostsOf,
        ranks: int,
        note: Callable[[Units], object] | None = None,
    ) -> None:
        self._note = note  # called with the units of each window
        self._rules, self._remaining, self._epoch, self._costs_of, self._ranks = rules, remaining, epoch, costs_of, ranks
        self._next = cursor  # where the next window to plan begins
        self._taken = cursor.units
        if cursor.units and cursor.window * rules.window >= remaining.count():
            raise ValueError(_OTHER_COSTS)
        self._windows: deque[tuple[Units, Cursor]] = deque()  # planned and not delivered, with the cursor after the last unit of each
        self._planned = cursor.units

    def _fill(self, count: int) -> None:
        """Plan windows until ``count`` units are there, or the epoch ends."""
        rules = self._rules
        while self._planned - self._taken < count and self._next.window * rules.window < self._remaining.count():
            cursor = self._next
            units, check = plan(rules, self._remaining, self._epoch, cursor, self._costs_of)
            if self._note is not None:
                self._note(units)
            self._planned = total = cursor.before + len(units)
            self._windows.append((units, Cursor(total, cursor.window, cursor.before, check)))
            self._next = Cursor(total, cursor.window + 1, total)

    def __next__(self) -> Step:
        return self._next_division() if self._rules.divides else self._next_units()

    def _next_units(self) -> Step:
        self._fill(self._ranks)
        count = min(self._ranks, self._planned - self._taken)
        if not count or (count < self._ranks and self._rules.end == "drop"):
            raise StopIteration
        taken = [self._take() for _ in range(count)]
        # At the end of an epoch the units are divided further, so that as few ranks as possible repeat samples.
        parts = share(taken, self._ranks, self._rules.budgets)
        missing = self._ranks - len(parts)
        return Step(parts + [parts[-1]] * missing, [False] * len(parts) + [True] * missing, self._locate(), count == self._ranks)

    def _take(self) -> Unit:
        while self._windows[0][1].units == self._taken:
            self._windows.popleft()
        units, after = self._windows[0]
        self._taken += 1
        return units[self._taken - 1 - after.before]

    def _locate(self) -> Cursor:
        """Return the cursor after the units that are taken."""
        return self._windows[0][1]._replace(units=self._taken)

    def _next_division(self) -> Step:
        self._fill(1)
        if self._planned == self._taken:
            raise StopIteration
        unit = self._take()
        if self._rules.end == "drop" and len(unit.places) < self._rules.window:
            raise StopIteration
        after = self._locate()
        cut = self._rules.divide(unit.costs, self._ranks, after.window)
        empty = np.diff(cut.ends, prepend=0) == 0
        parts = iter(Units(unit.places, unit.costs, cut, self._rules.budgets))
        (last,) = Units(unit.places[-1:], unit.costs[-1:], _ONE, self._rules.budgets)
        return Step([last if again else next(parts) for again in empty.tolist()], empty.tolist(), after, len(unit.places) == self._rules.window)


_NONE = _planner.Cut(np.zeros(0, np.int64), np.zeros(0, np.int64))
_ONE = _planner.Cut(np.zeros(1, np.int64), np.ones(1, np.int64))


def count_units(rules: Rules, remaining: Remaining, epoch: int, cursor: Cursor, costs_of: CostsOf) -> int:
    """Return the number of units from ``cursor`` to the end of an epoch."""
    units, last = 0, -(-remaining.count() // rules.window)
    while cursor.window < last:
        planned, _ = plan(rules, remaining, epoch, cursor, costs_of)
        units += len(planned) - (cursor.units - cursor.before)
        # The checksum belongs to the first window only.
        cursor = Cursor(0, cursor.window + 1)
    return units


def share(units: list[Unit], ranks: int, budgets: np.ndarray) -> list[Unit]:
    """Split the costliest unit of several samples in two until there is one for each rank, as far as possible."""
    units = list(units)
    while len(units) < ranks:
        shares = [unit.share if len(unit.places) > 1 else -1.0 for unit in units]
        costliest = int(np.argmax(shares))
        if shares[costliest] < 0:
            break
        unit = units[costliest]
        units[costliest : costliest + 1] = Units(unit.places, unit.costs, _planner.balance(unit.costs, budgets, 2), budgets)
    return units
