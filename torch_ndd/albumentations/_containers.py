# SPDX-License-Identifier: Apache-2.0
"""Compositions. Where samples take different steps, the batch is divided and joined again."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torchvision._draws import Draws
from ._sample import Sample, merge, transform_where

Run = Callable[..., Sample]
"""A step or a container: takes a sample, draws, and whether it must act."""
Check = Callable[[Sample], Sample]
"""Filters boxes and points after each transform."""


class Container:
    """The base class: children, and the probability of acting."""

    def __init__(self, transform: Any, children: Sequence[Run], check: Check) -> None:
        self.name, self.p = type(transform).__name__, float(transform.p)
        self.original, self.children, self.check = transform, list(children), check

    def __call__(self, sample: Sample, draws: Draws, forced: bool = False) -> Sample:
        """Transform each sample with the probability ``p``; all of them if ``forced``."""
        if not self.children:
            return sample
        if forced or self.p >= 1:
            return self.run(sample, draws)
        return transform_where(draws.happens(self.p), sample, lambda part: self.run(part, draws.for_samples(part.count)))

    def convert_empty(self, sample: Sample) -> Sample:
        """Give a sample without images the type and the layout that others would have."""
        for child in self.children if self.p > 0 else ():
            sample = child.convert_empty(sample)
        return sample

    def run(self, sample: Sample, draws: Draws) -> Sample:
        """Transform all samples."""
        raise NotImplementedError

    def __repr__(self) -> str:
        lines = "\n".join(f"    {line}" for child in self.children for line in repr(child).splitlines())
        return f"{self.name}(p={self.p:g})\n{lines}"


class Sequential(Container):
    """A.Sequential, and A.Compose within another one: all children in order."""

    def run(self, sample: Sample, draws: Draws) -> Sample:
        for child in self.children:
            sample = self.check(child(sample, draws))
        return sample


class OneOf(Container):
    """A.OneOf: one child, chosen by the children's ``p``."""

    def convert_empty(self, sample: Sample) -> Sample:
        """Convert by the first child: batches that go different ways must have one type and layout at the end."""
        return self.children[0].convert_empty(sample) if self.children and self.p > 0 else sample

    def run(self, sample: Sample, draws: Draws) -> Sample:
        return _run_by_choice(sample, draws, draws.choices([child.p for child in self.children]), self.children, True)  # type: ignore[attr-defined]


class OneOrOther(OneOf):
    """A.OneOrOther: the first child with the probability ``p``, otherwise the last."""

    def __call__(self, sample: Sample, draws: Draws, forced: bool = False) -> Sample:
        choice = torch.where(draws.happens(self.p), 0, len(self.children) - 1)
        return _run_by_choice(sample, draws, choice, self.children, True)


class SomeOf(Container):
    """A.SomeOf: ``n`` children in order, each with its own ``p``."""

    def __call__(self, sample: Sample, draws: Draws, forced: bool = False) -> Sample:
        # As in Albumentations, OneOf does not force it.
        return super().__call__(sample, draws)

    def draw_children(self, draws: Draws) -> torch.Tensor:
        """Return the numbers of the children that act, int64 (N, n)."""
        count, n = len(self.children), self.original.n
        if self.original.replace:
            return torch.floor(draws.unit(n) * count).to(torch.int64)
        return draws.permutations(count)[:, :n]

    def run(self, sample: Sample, draws: Draws) -> Sample:
        chosen = self.draw_children(draws)
        for k, child in enumerate(self.children):
            times = (chosen == k).sum(1)
            for turn in range(int(times.max())):
                part = transform_where(times > turn, sample, lambda part, child=child: child(part, draws.for_samples(part.count)))
                sample = self.check(part)
        return sample


class RandomOrder(SomeOf):
    """A.RandomOrder: ``n`` children in the order in which they were drawn."""

    def run(self, sample: Sample, draws: Draws) -> Sample:
        for column in self.draw_children(draws).unbind(1):
            sample = self.check(_run_by_choice(sample, draws, column, self.children, False))
        return sample


CONTAINERS: dict[str, type[Container]] = {
    "Compose": Sequential,
    "OneOf": OneOf,
    "OneOrOther": OneOrOther,
    "RandomOrder": RandomOrder,
    "Sequential": Sequential,
    "SomeOf": SomeOf,
}


def _run_by_choice(sample: Sample, draws: Draws, choice: torch.Tensor, children: Sequence[Run], forced: bool) -> Sample:
    """Transform each sample by the child of its number."""
    parts = []
    for k in choice.unique().tolist():
        indices = (choice == k).nonzero().flatten()
        part = sample if len(indices) == sample.count else sample.select(indices)
        parts.append((indices, children[k](part, draws.for_samples(part.count), forced)))
    return parts[0][1] if len(parts) == 1 else merge(parts, sample.count)
