# SPDX-License-Identifier: Apache-2.0
"""The draws of a policy: for every sample the augmentations and their parameters."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._apply import Step
from ._augmentations import Augmentation
from ._inputs import draw_numbers


@dataclass(frozen=True)
class Candidate:
    """An augmentation that a policy may draw.

    Attributes:
        augmentation: the augmentation.
        magnitude: its magnitude, or the mean of it.
        largest: the magnitude at the end of the augmentation's range.
        probability: probability of applying it when it is drawn.
        std: standard deviation of the magnitude; infinity draws it uniformly from 0 to ``magnitude``.
        limit: limit of the magnitude, by default ``largest``.
    """

    augmentation: Augmentation
    magnitude: float
    largest: float
    probability: float = 1.0
    std: float = 0.0
    limit: float | None = None

    def step(self, side: float, u: float = 0.0, v: float = 0.0) -> Step:
        """Return the step for three numbers from 0 to 1."""
        if self._parameters is not None:
            return self.augmentation, self._parameters[side < 0.5]
        return self.augmentation, self.augmentation.at(self._draw_position(u, v), side)

    def _draw_position(self, u: float, v: float) -> float:
        return draw_magnitude(self.magnitude, self.std, self.limit or self.largest, u, v) / self.largest

    @functools.cached_property
    def _parameters(self) -> tuple[float, float] | None:
        """The parameters of both sides of a magnitude that is not drawn; None if the parameter depends on more."""
        if self.std > 0 or type(self.augmentation).at is not Augmentation.at:
            return None
        position = self._draw_position(0.0, 0.0)
        return self.augmentation.parameter(position, False), self.augmentation.parameter(position, True)


@functools.lru_cache(maxsize=256)
def make_candidates(
    augmentations: tuple[Augmentation, ...], magnitude: float, largest: float, probability: float, std: float = 0.0
) -> tuple[Candidate, ...]:
    """Return candidates that differ in nothing but the augmentation. They are kept, because a program has the same ones in each call."""
    return tuple([Candidate(augmentation, magnitude, largest, probability, std) for augmentation in augmentations])


def draw_magnitude(mean: float, std: float, limit: float, u: float, v: float) -> float:
    """Return a magnitude about ``mean``, from two numbers from 0 to 1."""
    magnitude = mean
    if math.isinf(std):
        magnitude = u * mean
    elif std > 0:
        magnitude += std * math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v)  # Box and Muller
    return min(max(magnitude, 0.0), limit)


def draw_steps(op: str, candidates: Sequence[Sequence[Candidate]], n: int, weights: np.ndarray | None, rng: object = None) -> list[list[Step]]:
    """Return ``n`` steps for every sample, drawn from its candidates with equal probability, or by weight and without repetition."""
    # Most samples share their candidates.
    different_rows = {id(row): row for row in candidates}.values()
    varied = any(candidate.std > 0 or candidate.probability < 1 for row in different_rows for candidate in row)
    # Fewer numbers where nothing else is random: the images of a seed must not change between versions.
    per_step = 5 if varied else 2
    numbers = draw_numbers(op, rng, len(candidates), per_step * n)[:, : per_step * n].reshape(len(candidates), n, per_step).tolist()

    def sample_steps(candidates: Sequence[Candidate], rows: list[list[float]]) -> list[Step]:
        left = None if weights is None else weights.copy()
        steps: list[Step] = []
        # The first number chooses the augmentation, the second its side; the rest the magnitude and whether it acts.
        for which, side, *more in rows:
            index = int(which * len(candidates)) if left is None else _find_index(which, left)
            if left is not None:
                left[index] = 0.0
            u, v, coin = more or (0.0, 0.0, 0.0)
            if coin < candidates[index].probability:
                steps.append(candidates[index].step(side, u, v))
        return steps

    return [sample_steps(*pair) for pair in zip(candidates, numbers, strict=True)]


def _find_index(u: float, weights: np.ndarray) -> int:
    """Return the index whose share of the weights contains ``u``."""
    index = int(np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))  # the sum rounds: u close to 1 may lie after it


def draw_sub_policies(op: str, sub_policies: Sequence[Sequence[Candidate]], samples: int, rng: object = None) -> list[list[Step]]:
    """Return for every sample the steps of one of the sub-policies, each applied with its probability."""
    # The longest sub-policy decides how many numbers a sample draws, so samples do not depend on each other.
    longest = max(map(len, sub_policies))
    varied = any(candidate.std > 0 for candidates in sub_policies for candidate in candidates)
    steps = []
    numbers = draw_numbers(op, rng, samples, 1 + (4 if varied else 2) * longest)
    all_pairs = numbers[:, 1 : 1 + 2 * longest].reshape(samples, longest, 2).tolist()
    all_more = (numbers[:, 1 + 2 * longest :] if varied else np.zeros((samples, 2 * longest))).reshape(samples, longest, 2).tolist()
    for which, pairs, more in zip(numbers[:, 0].tolist(), all_pairs, all_more, strict=True):
        candidates = sub_policies[int(which * len(sub_policies))]
        draws = zip(candidates, pairs, more, strict=False)
        steps.append([candidate.step(side, u, v) for candidate, (coin, side), (u, v) in draws if coin < candidate.probability])
    return steps
