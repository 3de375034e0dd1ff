# SPDX-License-Identifier: Apache-2.0
"""How full the units of a plan are, and how equal the ranks of a step."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ._units import Step


class Figures(NamedTuple):
    """Figures of planned batches."""

    samples: int
    units: int
    steps: int
    fill: float | None
    """Part of the budget that is used, including padding; None without a budget."""
    padding: float | None
    """Part of padded batches that is padding, or of the budget of packed sequences that is empty; None without a budget."""
    load: float
    """Mean over the steps of the largest cost of a rank divided by the mean cost; without a last step that had too few samples."""
    attention: float
    """The same of sums of squared costs: the largest of each step added up, divided by the sum of the means."""

    def __str__(self) -> str:
        filled = [] if self.fill is None or self.padding is None else [f"units are filled to {self.fill:.1%}", f"padding is {self.padding:.1%}"]
        balance = f"the costliest rank of a step has {self.load:.3f} times the mean cost, {self.attention:.3f} times the mean of squared costs"
        return ", ".join([*filled, balance])


class Totals:
    """Sums of units and steps, from which :class:`Figures` follow."""

    def __init__(self, budgets: np.ndarray | None, padded: bool) -> None:
        self._budgets, self._padded = budgets, padded
        self._samples = self._units = self._steps = 0
        self._compared = 0  # steps whose ranks are compared: all but one with too few units, unless there is no other
        self._used, self._cost = ([0.0] * (1 if budgets is None else len(budgets)) for _ in range(2))
        self._load = self._largest = self._mean = 0.0

    def add(self, step: Step) -> None:
        """Add a step of all ranks."""
        for unit, again in zip(step.parts, step.repeated, strict=True):
            if not again:
                self._samples, self._units = self._samples + len(unit.places), self._units + 1
                # Plain numbers: NumPy took 20 us for each unit, as long as planning it.
                for kind, cost in enumerate(unit.cost):
                    self._cost[kind] += cost
                    # A padded unit takes as much of the budget as if all samples were as long as the longest.
                    self._used[kind] += unit.longest[kind] * len(unit.places) if self._padded else cost
        self._steps += 1
        if not step.whole and self._compared:
            return
        ranks, shares, squares = len(step.parts), [unit.share for unit in step.parts], [unit.square for unit in step.parts]
        self._compared += 1
        self._load += max(shares) / (sum(shares) / ranks) if any(shares) else 1.0
        self._largest, self._mean = self._largest + max(squares), self._mean + sum(squares) / ranks

    def figures(self) -> Figures:
        """Return the figures up to now."""
        fill = padding = None
        if self._budgets is not None and self._units:
            used = np.array(self._used)
            fill = float((used / self._budgets).max() / self._units)
            padding = 1 - float((self._cost / np.maximum(used, 1e-300)).max()) if self._padded else 1 - fill
        load = self._load / self._compared if self._compared else 1.0
        return Figures(self._samples, self._units, self._steps, fill, padding, load, self._largest / self._mean if self._mean else 1.0)


class Preview(list[Any]):
    """The result of ``preview``: the units of an epoch, the places of the samples of each one, int64; of :class:`Balanced` the steps, lists of parts.

    Attributes:
        steps: the parts of each rank, for each step.
        figures: how full the units are, and how equal the ranks.
    """

    def __init__(self, units: Iterable[Any], steps: list[list[np.ndarray]], figures: Figures) -> None:
        super().__init__(units)
        self.steps, self.figures = steps, figures

    def __repr__(self) -> str:
        return f"<{len(self)} units in {len(self.steps)} steps: {self.figures}>"
