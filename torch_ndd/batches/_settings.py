# SPDX-License-Identifier: Apache-2.0
"""``Packed``, ``Bucketed`` and ``Balanced``: how samples become batches."""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from .._core.context.states import whole, yes_or_no
from .._core.native import MAX_SAMPLES
from .._core.suggestions import check_choice
from . import _planner
from ._costs import check_costs
from ._figures import Preview, Totals
from ._units import Cursor, Remaining, Steps

MAX_WINDOW = 1 << 22  # samples: planning takes a second
MAX_KINDS = 64

Fit = Literal["first", "best"]
UnitOrder = Literal["first", "shuffled", "similar"]
TooLong = Literal["raise", "skip", "alone"]
End = Literal["share", "drop"]
Cost = Any
"""Numbers of all samples, the name of a column, ``"pixels"``, ``"seconds"``, or a function; see :class:`Packed`."""


class Batches:
    """The base of :class:`Packed`, :class:`Bucketed` and :class:`Balanced`."""

    divides: ClassVar[bool] = False
    padded: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = {}
    window: int
    budget: Any = None
    budgets: np.ndarray
    too_long: TooLong = "alone"

    def __init__(self, cost: Cost, end: End) -> None:
        self._op = f"batches.{type(self).__name__}"
        self.cost = cost
        check_choice(self._op, "end", end, get_args(End), ValueError)
        self.end = end

    def cut(self, costs: np.ndarray, epoch: int, window: int) -> _planner.Cut:
        """Return the units of a window.

        :meta private:
        """
        raise NotImplementedError

    def divide(self, costs: np.ndarray, ranks: int, step: int) -> _planner.Cut:
        """Return the part of each rank of a unit.

        :meta private:
        """
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the arguments that decide which samples are a unit, without those that have their default.

        :meta private:
        """
        changed = {name: getattr(self, name) for name, default in self.defaults.items() if getattr(self, name) != default}
        return {"type": type(self).__name__, **self._size(), **changed}

    def _size(self) -> dict[str, Any]:
        raise NotImplementedError

    def admit(self, places: np.ndarray, costs: np.ndarray, name: Callable[[int], str]) -> np.ndarray:
        """Return which samples are delivered: all, or those within the budget. ``name`` describes the sample at a place.

        :meta private:
        """
        if self.too_long == "alone":
            return np.ones(len(places), bool)
        within: np.ndarray = np.all(costs <= self.budgets, axis=1)
        # The first sample that exceeds the budget is named.
        if self.too_long == "raise" and not within.all():
            row = int(np.argmin(within))
            cost, budget = (_readable(values) for values in (costs[row], self.budgets))
            raise ValueError(
                f"{self._op}: {name(int(places[row]))} costs {cost}, more than the budget of {budget}; "
                'raise the budget, or pass too_long="skip" or "alone"'
            )
        return within

    def preview(self, costs: Any = None, ranks: int = 1, epoch: int = 0) -> Preview:
        """Plan an epoch, without data.

        Args:
            costs: the cost of each sample in the order of the epoch, (N,) or (N, k); by default ``cost``, if that is an array.
            ranks: how many ranks take the steps together.
            epoch: its number: the order of units depends on it.

        Returns:
            :class:`Preview`: a list of the units, each the places of its samples, int64; with :class:`Balanced` of the steps, lists with the places
            of each rank. Its ``figures`` tell how full the units are and how equal the ranks.

        Raises:
            ValueError: costs that are negative or missing, or more than the budget; ``ranks`` < 1.
        """
        ranks, epoch = whole(1, MAX_SAMPLES)(ranks, f"{self._op}: ranks"), whole()(epoch, f"{self._op}: epoch")
        table = check_costs(self._op, self.cost if costs is None else costs, len(self.budgets))

        def costs_of(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = np.asarray(table[places], np.float64)
            kept = self.admit(places, found, lambda place: f"sample {place}")
            return places[kept], found[kept]

        remaining, totals = Remaining(len(table)), Totals(None if self.divides else self.budgets, self.padded)
        units: list[np.ndarray] = []
        steps = []
        for step in Steps(self, remaining, epoch, Cursor(), costs_of, ranks, lambda found: units.extend(found.list_places())):
            totals.add(step)
            steps.append([unit.places for unit in step.parts])
        return Preview(steps if self.divides else units, steps, totals.figures())

    def __repr__(self) -> str:
        shown = {**self.settings(), "end": self.end}
        arguments = ", ".join(f"{name}={value!r}" for name, value in shown.items() if name != "type")
        return f"{type(self).__name__}({arguments})"


class _Windowed(Batches):
    """Cuts each window into units, apart from the others."""

    defaults: ClassVar[Mapping[str, Any]] = {"window": 4096, "order": "similar", "max_samples": None, "too_long": "raise", "seed": 0}
    _fit: str = "padded"

    def _set_up_windows(
        self, budget: float | Sequence[float], window: int, order: UnitOrder, max_samples: int | None, too_long: TooLong, seed: int
    ) -> None:
        self.budget = _check_budget(self._op, budget)
        self.budgets = np.atleast_1d(np.asarray(self.budget, np.float64))
        self.window = whole(1, MAX_WINDOW)(window, f"{self._op}: window")
        check_choice(self._op, "order", order, get_args(UnitOrder), ValueError)
        self.order = order
        self.max_samples = None if max_samples is None else whole(1, MAX_SAMPLES)(max_samples, f"{self._op}: max_samples")
        check_choice(self._op, "too_long", too_long, get_args(TooLong), ValueError)
        self.too_long = too_long
        self.seed = whole(-(2**63), 2**64 - 1)(seed, f"{self._op}: seed")

    def _size(self) -> dict[str, Any]:
        return {"budget": self.budget}

    def cut(self, costs: np.ndarray, epoch: int, window: int) -> _planner.Cut:
        return _planner.plan_window(costs, self.budgets, self.max_samples, self._fit, self.order, (self.seed, epoch, window))


class Packed(_Windowed):
    """Sequences of bounded cost: the costs of the samples of a batch add up to at most ``budget``.

    The samples of an epoch, in the order of the reader on a single rank, are cut into windows, and each window into such units. In a step each rank
    takes one unit, so that all ranks have about the same work. Every rank plans every window, from the costs alone; only the samples of its own units
    are read. Which samples form a unit does not depend on the number of ranks.

    Args:
        budget: the largest cost of a unit; several for several costs per sample.
        cost: the costs of samples: an array (N,), or (N, k) for k budgets, in the order of the data set; a dict of such arrays for a mix of sources;
            the name of a column of the reader; ``"pixels"``, height times width from the headers of encoded images; ``"seconds"``, the durations of a
            manifest or from the headers of sound files; :func:`from_headers`; or a function of the reader's outputs for a batch, which returns one
            number per sample, for small data only because every rank reads every sample for it. A cost is computed once for all epochs, so it must
            not depend on random numbers that a data set draws for an item: the item that is delivered has others. Can be left out for
            :meth:`preview`.
        window: samples that are planned together. A larger window fills units better; its samples are drawn from a longer stretch of the epoch.
        fit: ``"first"``: each sample, in order, into the first unit with room; ``"best"``: from the costliest sample down, into the fullest unit with
            room.
        order: of the units of a window: ``"first"``, by their first samples; ``"shuffled"``; ``"similar"``: in groups of 64 units with like sums of
            squared costs, in random order, because the time of attention depends on those.
        max_samples: the most samples of a unit.
        too_long: a sample over the budget: ``"raise"`` ValueError, ``"skip"`` it and note it in the ``errors`` of the loader's ``reader``, or deliver
            it ``"alone"``.
        end: if fewer units remain than there are ranks: ``"share"``, split the costliest one until there are enough; a rank that still has none
            repeats the last unit (``plan.repeated``); or ``"drop"`` them.
        seed: of the random orders.

    Raises:
        ValueError: a budget, a window or ``max_samples`` less than 1, an unknown word; costs that are negative or missing.

    >>> batches = Packed(budget=10, order="first")
    >>> preview = batches.preview([4, 5, 7, 1, 3, 6, 2], ranks=2)
    >>> [unit.tolist() for unit in preview]
    [[0, 1, 3], [2, 4], [5, 6]]
    >>> round(preview.figures.fill, 3)
    0.7
    """

    defaults: ClassVar[Mapping[str, Any]] = {"fit": "first", **_Windowed.defaults}

    def __init__(
        self,
        budget: float | Sequence[float],
        cost: Cost = None,
        *,
        window: int = 4096,
        fit: Fit = "first",
        order: UnitOrder = "similar",
        max_samples: int | None = None,
        too_long: TooLong = "raise",
        end: End = "share",
        seed: int = 0,
    ) -> None:
        super().__init__(cost, end)
        self._set_up_windows(budget, window, order, max_samples, too_long, seed)
        check_choice(self._op, "fit", fit, get_args(Fit), ValueError)
        self.fit = self._fit = fit


class Bucketed(_Windowed):
    """Padded batches of bounded size: the number of samples times the longest is at most ``budget``.

    From the costliest sample of a window down, as many consecutive ones form a unit as the budget allows: samples of like lengths, with little
    padding. Otherwise like :class:`Packed`, with the same arguments except ``fit``.

    Args:
        budget: the largest padded size of a unit.
        cost: the lengths of samples, see :class:`Packed`.
        window: samples that are planned together.
        order: of the units of a window, see :class:`Packed`.
        max_samples: the most samples of a unit.
        too_long: what to do with a sample over the budget, see :class:`Packed`.
        end: what to do with the last units of an epoch, see :class:`Packed`.
        seed: of the random orders.

    Raises:
        ValueError: see :class:`Packed`.

    >>> [unit.tolist() for unit in Bucketed(budget=12, order="first").preview([2, 6, 3, 5, 2, 3])]
    [[0, 2, 4, 5], [1, 3]]
    """

    padded: ClassVar[bool] = True

    def __init__(
        self,
        budget: float | Sequence[float],
        cost: Cost = None,
        *,
        window: int = 4096,
        order: UnitOrder = "similar",
        max_samples: int | None = None,
        too_long: TooLong = "raise",
        end: End = "share",
        seed: int = 0,
    ) -> None:
        super().__init__(cost, end)
        self._set_up_windows(budget, window, order, max_samples, too_long, seed)


class Balanced(Batches):
    """Consecutive samples, divided among the ranks so that their costs are equal.

    Step t takes the same ``samples`` samples whatever the number of ranks: from the costliest down, each goes to the part with the smallest sum. Part
    j belongs to rank ``(j + t) % ranks``.

    Args:
        samples: of a step, on all ranks together.
        cost: the costs of samples, see :class:`Packed`; one number each.
        equal: give no rank more than ``ceil(samples / ranks)`` samples, so that all ranks have the same number of them.
        end: ``"share"``, the last step of an epoch has fewer samples, and a rank without one repeats the last (``plan.repeated``); or ``"drop"`` it.

    Raises:
        ValueError: ``samples`` less than 1, or less than the number of ranks; ``equal`` that is not True or False; see :class:`Packed`.

    >>> preview = Balanced(samples=4).preview([1, 8, 5, 4, 2, 2, 9, 3], ranks=2)
    >>> [[part.tolist() for part in step] for step in preview]
    [[[0, 1], [2, 3]], [[4, 7], [5, 6]]]
    """

    divides: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"equal": True}
    budgets = np.ones(1)

    def __init__(self, samples: int, cost: Cost = None, *, equal: bool = True, end: End = "share") -> None:
        super().__init__(cost, end)
        self.samples = self.window = whole(1, MAX_SAMPLES)(samples, f"{self._op}: samples")
        self.equal = yes_or_no(equal, f"{self._op}: equal")

    def _size(self) -> dict[str, Any]:
        return {"samples": self.samples}

    def cut(self, costs: np.ndarray, epoch: int, window: int) -> _planner.Cut:
        return _planner.Cut(np.arange(len(costs)), np.array([len(costs)]))

    def divide(self, costs: np.ndarray, ranks: int, step: int) -> _planner.Cut:
        return _planner.balance(costs, self.budgets, ranks, step, self.equal)


KINDS: Mapping[str, type[Batches]] = {kind.__name__: kind for kind in (Packed, Bucketed, Balanced)}


def _check_budget(op: str, budget: Any) -> float | list[float]:
    """Return a budget, or a list of several, as numbers that JSON has."""
    plain = budget.tolist() if hasattr(budget, "tolist") else budget
    found = [_check_number(op, value, budget) for value in (plain if isinstance(plain, list | tuple) else [plain])]
    if not 1 <= len(found) <= MAX_KINDS:
        raise ValueError(f"{op}: budget must have 1 to {MAX_KINDS} numbers, got {len(found)}")
    return found if isinstance(plain, list | tuple) else found[0]


def _check_number(op: str, value: Any, budget: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{op}: budget must be a number or a list of numbers, got {budget!r}")
    number = int(value) if isinstance(value, numbers.Integral) else float(value)
    if not (math.isfinite(number) and number >= 1):
        raise ValueError(f"{op}: budget must be finite and at least 1, got {value!r}")
    return number


def _readable(values: np.ndarray) -> str:
    return ", ".join(f"{value:.12g}" for value in values.tolist())


def parse_settings(value: Any, name: str) -> Batches:
    """Return the batches of a result of :meth:`Batches.settings`, without costs. Raise ValueError for anything else."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or value["type"] not in KINDS:
        raise ValueError(f"{name} must be the settings of {', '.join(KINDS)}")
    arguments = {key: entry for key, entry in value.items() if key != "type"}
    kind = KINDS[value["type"]]
    # A state is untrusted: bound the number of arguments, and do not evaluate a cost from it.
    if len(arguments) > 16 or not all(isinstance(key, str) for key in arguments) or "cost" in arguments:
        raise ValueError(f"{name} must be the settings of {', '.join(KINDS)}")
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
