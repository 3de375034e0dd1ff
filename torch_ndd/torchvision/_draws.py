# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the transforms, one per sample, from torch_ndd's generators.

The distributions are torchvision's; the numbers are not, and torch's generator is neither read nor advanced.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from .._core.context.rng import RNG, compiled_draw
from .._core.native.tracing import is_compiling
from ..random import get_default_rng

Column: TypeAlias = "int | float | torch.Tensor"  # one number for all samples, or float64 or int64 (N,)


class Draws:
    """Draws for a single sample (``batch_size`` is None) or for each sample of a batch.

    A draw for a single sample is a tensor of one element, so the same arithmetic serves both; :meth:`result` converts it to a number.
    """

    def __init__(self, batch_size: int | None, rng: RNG | None = None) -> None:
        self.batch_size = batch_size
        self.count = 1 if batch_size is None else batch_size
        self.rng = rng
        """The generator, by default this thread's."""

    def for_samples(self, count: int) -> "Draws":
        """Return draws from the same generator for another number of samples."""
        return Draws(count, self.rng)

    def result(self, column: Any, kind: type = float) -> Any:
        """Return the column for a batch; a Python number for a single sample."""
        if self.batch_size is not None:
            return column
        if isinstance(column, torch.Tensor):
            return kind(column.item())
        return kind(column)

    def unit(self, *more: int) -> torch.Tensor:
        """Return uniform numbers in [0, 1), float64 (N, *more)."""
        shape = (self.count, *more)
        total = math.prod(shape)
        # 32 random bits per number, which is more than torch.rand has in float32.
        # In a graph the draw is an operator that runs each time; get_default_rng() would be called once, while tracing.
        words = compiled_draw(None, total) if is_compiling() else (self.rng or get_default_rng()).draw(total)
        return words.to(torch.float64).mul(2.0**-32).reshape(shape)

    def uniform(self, low: Column, high: Column) -> torch.Tensor:
        """Return uniform numbers in [low, high)."""
        return low + self.unit() * (high - low)

    def integers(self, low: Column, high: Column) -> torch.Tensor:
        """Return uniform integers in [low, high), int64 (N,)."""
        return (low + torch.floor(self.unit() * (high - low))).to(torch.int64)

    def happens(self, probability: float) -> torch.Tensor:
        """Return True with a probability: never for 0, always for 1."""
        return self.unit() < probability

    def choices(self, weights: Sequence[float]) -> torch.Tensor:
        """Return indices with these probabilities, int64 (N,)."""
        # The clamp is for rounding: the last limit may be a little below 1.
        limits = torch.tensor(weights, dtype=torch.float64).cumsum(0)
        return torch.searchsorted(limits / limits[-1], self.unit(), right=True).clamp(max=len(weights) - 1)

    def permutations(self, count: int) -> torch.Tensor:
        """Return permutations, int64 (N, count)."""
        # Sorting uniform numbers gives each order the same probability.
        return self.unit(count).argsort(1)

    def normal(self, *more: int) -> torch.Tensor:
        """Return numbers of the standard normal distribution, float64 (N, *more)."""
        pairs = self.unit(2, *more)  # Box and Muller; log1p, because u may be 0 but not 1
        return torch.sqrt(-2.0 * torch.log1p(-pairs[:, 0])) * torch.cos(2.0 * torch.pi * pairs[:, 1])

    def parts(self, count: int, limits: Sequence[float]) -> torch.Tensor:
        """Return uniform numbers with the precision of float32, float64 (N, count)."""
        return _as_float32(limits[0] + self.unit(count) * (limits[1] - limits[0]))

    def sides(self, area: torch.Tensor, ratio: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``round(sqrt(area * a))`` and ``round(sqrt(area / a))`` of areas (N, K), for aspect ratios whose logarithms are uniform."""
        exponents = self.parts(area.shape[1], (math.log(ratio[0]), math.log(ratio[1])))
        if is_compiling():
            aspect = _as_float32(torch.exp(exponents))
            return torch.round(torch.sqrt(area * aspect)), torch.round(torch.sqrt(area / aspect))
        # NumPy, because torch hands more than 100 exponentials or roots to its own threads, and waits for them up to 5 ms while all cores decode.
        values, aspects = area.numpy(), np.exp(exponents.numpy()).astype(np.float32).astype(np.float64)
        return torch.from_numpy(np.rint(np.sqrt(values * aspects))), torch.from_numpy(np.rint(np.sqrt(values / aspects)))

    def gamma(self, shape: float, *more: int) -> torch.Tensor:
        """Return numbers of the gamma distribution, float64 (N, *more), by the rejection method of Marsaglia and Tsang (2000)."""
        d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
        c = 1.0 / (9.0 * d) ** 0.5
        numbers = torch.full((self.count, *more), -1.0, dtype=torch.float64)
        # Bounded, because a graph cannot loop until all are accepted; 64 rounds leave one number in 10^83.
        for _ in range(64):  # each round accepts more than 95 %
            x, u = self.normal(*more), self.unit(*more)
            v = (1.0 + c * x) ** 3
            fits = (v > 0) & (torch.log1p(-u) < 0.5 * x * x + d - d * v + d * torch.log(v.clamp(min=1e-300)))
            # Numbers that were accepted before keep their value: -1 marks the others.
            numbers = torch.where((numbers < 0) & fits, d * v, numbers)
            if not is_compiling() and bool((numbers >= 0).all()):
                break
        if shape < 1.0:  # the method needs 1 or more: draw for shape + 1 and scale
            numbers = numbers * (1.0 - self.unit(*more)) ** (1.0 / shape)
        return numbers

    def dirichlet(self, concentration: float, count: int) -> torch.Tensor:
        """Return weights of the symmetric Dirichlet distribution, float64 (N, count)."""
        numbers = self.gamma(concentration, count).clamp(min=1e-300)  # for small concentrations all of them may be 0
        return numbers / numbers.sum(1, keepdim=True)


def check_range(op: str, argument: str, limits: Sequence[float], above: float = -math.inf) -> None:
    """Raise RuntimeError, as torch's generators do, for a range that begins above its end, or not above a number."""
    low, high = limits
    if not above < low <= high:
        rule = "" if above == -math.inf else f", above {above:g}"
        raise RuntimeError(f"{op}: {argument} must be the lowest and the highest number{rule}, got {low} and {high}")


def real(column: Column) -> torch.Tensor:
    """Convert to double: torch multiplies integers by a Python number in float32."""
    return torch.as_tensor(column, dtype=torch.float64)


def _as_float32(column: torch.Tensor) -> torch.Tensor:
    """Round to float32, in which torchvision draws."""
    return column.to(torch.float32).to(torch.float64)


def to_int(column: Column) -> Any:
    """Truncate."""
    return column.to(torch.int64) if isinstance(column, torch.Tensor) else int(column)


def round_half_even(column: Column) -> Any:
    """Round half to even."""
    return torch.round(column).to(torch.int64) if isinstance(column, torch.Tensor) else round(column)
