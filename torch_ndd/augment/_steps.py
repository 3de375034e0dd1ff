# SPDX-License-Identifier: Apache-2.0
"""The draws of a policy: for every sample the augmentations and their parameters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._applied import Step
from ._augmentations import Augmentation
from ._given import numbers


@dataclass(frozen=True)
class Operation:
    """An augmentation as a policy uses it.

    Attributes:
        augmentation: what is done.
        magnitude: its magnitude, or the mean of it.
        largest: the magnitude at the end of the augmentation's range.
        probability: that it is done.
        std: standard deviation of the magnitude; infinity draws it uniformly from 0 to ``magnitude``.
        most: limit of the magnitude, by default ``largest``.
    """

    augmentation: Augmentation
    magnitude: float
    largest: float
    probability: float = 1.0
    std: float = 0.0
    most: float | None = None

    def step(self, side: float, u: float = 0.0, v: float = 0.0) -> Step:
        """Return the step for three numbers from 0 to 1."""
        magnitude = drawn_magnitude(self.magnitude, self.std, self.most or self.largest, u, v)
        return self.augmentation, self.augmentation.at(magnitude / self.largest, side)


def drawn_magnitude(m: float, std: float, most: float, u: float, v: float) -> float:
    """Return a magnitude about ``m``, from two numbers from 0 to 1."""
    if math.isinf(std):
        m = u * m
    elif std > 0:
        m += std * math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v)  # Box and Muller
    return min(max(m, 0.0), most)


def chosen_steps(op: str, operations_of: Sequence[Sequence[Operation]], n: int, shares: np.ndarray | None, rng: object = None) -> list[list[Step]]:
    """Return ``n`` steps for every sample, of its operations, which are equally likely, or have these shares and do not occur twice."""
    varied = any(one.std > 0 or one.probability < 1 for operations in operations_of for one in operations)
    per_step = 5 if varied else 2  # the choices of a seed stay what they were where there is nothing else to draw
    drawn = numbers(op, rng, len(operations_of), per_step * n)

    def steps_of(operations: Sequence[Operation], row: np.ndarray) -> list[Step]:
        left = None if shares is None else shares.copy()
        made: list[Step] = []
        for which, side, *more in row[: per_step * n].reshape(n, per_step):
            index = int(which * len(operations)) if left is None else _drawn_index(which, left)
            if left is not None:
                left[index] = 0.0
            u, v, coin = more or (0.0, 0.0, 0.0)
            if coin < operations[index].probability:
                made.append(operations[index].step(side, u, v))
        return made

    return [steps_of(operations, row) for operations, row in zip(operations_of, drawn, strict=True)]


def _drawn_index(u: float, shares: np.ndarray) -> int:
    """Return an index with the probability of its share."""
    return min(int(np.searchsorted(np.cumsum(shares), u * shares.sum(), side="right")), int(np.flatnonzero(shares)[-1]))


def sequence_steps(op: str, sequences: Sequence[Sequence[Operation]], samples: int, rng: object = None) -> list[list[Step]]:
    """Return for every sample the steps of one of the sequences, each with its probability."""
    longest = max(map(len, sequences))
    varied = any(one.std > 0 for sequence in sequences for one in sequence)
    drawn = numbers(op, rng, samples, 1 + (4 if varied else 2) * longest)
    steps = []
    for row in drawn:
        sequence = sequences[int(row[0] * len(sequences))]
        pairs = row[1 : 1 + 2 * longest].reshape(longest, 2)
        more = row[1 + 2 * longest : 1 + 4 * longest].reshape(longest, 2) if varied else np.zeros((longest, 2))
        draws = zip(sequence, pairs, more, strict=False)
        steps.append([one.step(side, u, v) for one, (coin, side), (u, v) in draws if coin < one.probability])
    return steps
