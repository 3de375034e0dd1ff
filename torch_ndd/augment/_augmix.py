# SPDX-License-Identifier: Apache-2.0
"""AugMix: every image is mixed with several chains of augmentations of itself."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.operators.operator import T
from .._core.values.batch import Batch, new_batch
from ..ops.generic.convert import cast
from ..ops.random.distributions import beta
from ._apply import Step, apply_steps
from ._augmentations import AUG_MIX, Augmentation, resolve_augmentations
from ._inputs import as_images, as_results, draw_numbers, exclude_from_compilation, to_sample_values
from ._policies import require_nonempty
from ._steps import draw_magnitude


@exclude_from_compilation
def aug_mix(
    images: T,
    /,
    *,
    alpha: float = 1.0,
    augmentations: Sequence[str | Augmentation] = AUG_MIX,
    depth: int | None = None,
    fill_value: float | Sequence[float] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    magnitude_std: float | None = None,
    num_magnitude_bins: int = 10,
    rng: Any = None,
    severity: Any = 3,
    width: int = 3,
) -> Any:
    """Mix every image with chains of augmentations of it: AugMix (Hendrycks et al., arXiv:1912.02781).

    ``out = (1 - w) * in + w * sum(w_k * chain_k(in))``, where w is drawn from ``Beta(alpha, alpha)`` and the ``w_k``, which add up to 1, from a
    Dirichlet distribution, per sample. Every augmentation of a chain and its magnitude are drawn separately.

    Args:
        images: a Batch of images ``HWC`` or videos ``FHWC`` of any sizes, or one of them; uint8, or floating-point numbers from 0 to 1.
        alpha: parameter of both distributions, positive.
        augmentations: the choices: :class:`Augmentation` objects, or names from ``AUG_MIX``, which are torchvision's.
        depth: augmentations of a chain; None draws 1 to 3 for each chain.
        severity: magnitudes are drawn from the lowest ``severity`` bins; with ``magnitude_std``, from 0 to ``severity`` or about it. Also a Batch
            or sequence with one number per sample.
        num_magnitude_bins: number of evenly spaced magnitudes.
        magnitude_std: standard deviation of the magnitudes about ``severity``; infinity draws them uniformly from 0 to ``severity``.
        width: number of chains.
        fill_value, interp_type, rng: see :func:`trivial_augment`.

    Returns:
        The images, of their own type; fractions of integers are cut off.

    Raises:
        ValueError: another layout or type, an unknown augmentation or none, an ``alpha`` that is not positive, no chains, a depth below 1, a severity
            outside the bins.
        TypeError: ``images`` that are neither a Batch nor an image.

    >>> images = batch(torch.full((2, 4, 6, 3), 100, dtype=torch.uint8), layout="HWC")
    >>> ndd.augment.aug_mix(images, augmentations=["posterize"], width=2).shape
    [(4, 6, 3), (4, 6, 3)]
    """
    op = "aug_mix"
    choices = require_nonempty(op, resolve_augmentations(op, augmentations, AUG_MIX))
    if not 0 < alpha < math.inf:
        raise ValueError(f"{op}: alpha must be positive and finite, got {alpha}")
    if width < 1:
        raise ValueError(f"{op}: width must be 1 or more, got {width}")
    if depth is not None and depth < 1:
        raise ValueError(f"{op}: depth must be 1 or more, or None, got {depth}")
    least = 1 if magnitude_std is None else 0
    batch, is_batch = as_images(op, images)
    severities = to_sample_values(op, "severity", severity, batch.batch_size)
    if num_magnitude_bins < 2 or not all(least <= value <= num_magnitude_bins for value in severities):
        raise ValueError(f"{op}: severity must be from {least} to num_magnitude_bins = {num_magnitude_bins}, got {severity}")
    largest = num_magnitude_bins - 1

    def make_step(sample: int, which: float, side: float, u: float, v: float) -> Step:
        m = severities[sample]
        magnitude = int(u * m) if magnitude_std is None else draw_magnitude(m, magnitude_std, largest, u, v)
        augmentation = choices[int(which * len(choices))]
        return augmentation, augmentation.at(min(magnitude / largest, 1.0), side)

    return as_results(is_batch, [mix_chains(op, batch, make_step, width, depth, alpha, fill_value, interp_type, rng)])


def mix_chains(
    op: str,
    batch: Batch,
    make_step: Callable[..., Step | None],
    width: int,
    depth: int | None,
    alpha: float,
    fill_value: Any,
    interp_type: types.DALIInterpType,
    rng: Any = None,
    per_step: int = 4,
) -> Batch:
    """Return every image mixed with chains of steps.

    ``make_step(sample, *numbers)`` returns a step, or None to leave it out, from the sample's index and ``per_step`` numbers from 0 to 1.
    """
    size, longest = batch.batch_size, depth or 3
    # For each chain its depth and the numbers of its longest possible form, so samples draw independently.
    numbers = draw_numbers(op, rng, size, width * (1 + per_step * longest)).reshape(size, width, -1)

    def make_chain(sample: int, row: np.ndarray) -> list[Step]:
        # The first number decides the length of the chain, the others its steps.
        turns = row[1 : 1 + per_step * (depth or 1 + int(row[0] * 3))].reshape(-1, per_step)
        return [step for step in (make_step(sample, *turn) for turn in turns) if step is not None]

    shares = _draw_dirichlet(alpha, width, size, rng)
    augmented = beta(alpha=alpha, beta=alpha, batch_size=size, rng=rng).torch().numpy()
    # Chain by chain, so only one augmented batch is alive.
    mixed = _scale(batch, 1 - augmented)
    for k in range(width):
        chains = [make_chain(i, row) for i, row in enumerate(numbers[:, k])]
        output, _, _ = apply_steps(op, batch, chains, None, None, fill_value, 0.0, interp_type)
        mixed = mixed + _scale(output, augmented * shares[:, k])
    if not batch.dtype.is_floating_point:
        # timm and torchvision truncate, a cast rounds half up; the weights add up to 1 to seven digits only.
        mixed = mixed - (0.5 - 1e-3)
    return cast(mixed, dtype=batch.dtype)


def _scale(images: Batch, weights: np.ndarray) -> Batch:
    return images * new_batch(torch.from_numpy(weights.astype(np.float32))).to_device(images.device)


def _draw_dirichlet(alpha: float, count: int, size: int, rng: Any) -> np.ndarray:
    """Return ``count`` numbers per sample that add up to 1, by breaking a stick."""
    left, shares = np.ones(size), np.zeros((size, count))
    for k in range(count - 1):
        # The first of the remaining shares of a symmetric Dirichlet distribution follows this Beta distribution.
        part = beta(alpha=alpha, beta=alpha * (count - 1 - k), batch_size=size, rng=rng).torch().numpy().astype(np.float64)
        shares[:, k] = left * part
        left = left * (1 - part)
    shares[:, -1] = left
    return shares
