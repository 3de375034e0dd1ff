# SPDX-License-Identifier: Apache-2.0
"""SpecAugment (Park et al., 2019) for batches of features of different lengths."""

import math
from numbers import Real
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.operators.operator import T
from .._core.values.batch import Batch, as_batch
from .._core.values.operand import unwrap
from .._core.values.tensor import as_tensor
from ..ops.audio._spec_augment import MAX_MASKS, warp_and_mask
from ..ops.shape.reshape import transpose
from ._inputs import draw_numbers, exclude_from_compilation, to_sample_values


@exclude_from_compilation
def spec_augment(
    features: T,
    /,
    lengths: Any = None,
    *,
    time_warp: int = 80,
    freq_masks: tuple[int, int] = (2, 27),
    time_masks: tuple[int, int] = (10, 100),
    max_time_fraction: float = 0.15,
    p: float = 0.9,
    rng: Any = None,
) -> T:
    """Warp features in time, and mask random bands of frequencies and spans of time, differently in each sample.

    The warp moves a random frame by up to ``time_warp`` frames, and both sides are resized with cubic interpolation to the places that this leaves
    them. Masks have random widths and places, like those of :func:`frequency_mask` and :func:`time_mask`, and are filled with the mean of the warped
    sample.

    Args:
        features: a Batch of spectrograms or other features, dense or ragged, or one of them; floating-point with the layout ``"tf"`` or ``"ft"``, or
            (time, features) without a layout.
        lengths: the number of frames of each sample in a padded batch; what lies after them does not change. By default all frames.
        time_warp: largest distance, in frames; 0 for no warp. Samples of up to twice as many frames are not warped.
        freq_masks: number of masks, and their largest width, exclusive, in features.
        time_masks: number of masks, and their largest width, exclusive, in frames; limited so that all masks of a sample together are not wider than
            ``max_time_fraction`` of its length.
        max_time_fraction: from 0 to 1.
        p: probability of changing a sample.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`.

    Returns:
        The features, with the shapes, the type and the layout of the input.

    Raises:
        ValueError: another layout or number of dimensions, another type, ``lengths`` that are not the number of samples or longer than their sample,
            negative widths or numbers, ``p`` or ``max_time_fraction`` outside 0 to 1.

    >>> features = batch([torch.randn(300, 80), torch.randn(250, 80)])
    >>> ndd.augment.spec_augment(features, time_warp=40, rng=ndd.random.RNG(1)).shape
    [(300, 80), (250, 80)]
    """
    op = "spec_augment"
    _check(op, time_warp, freq_masks, time_masks, max_time_fraction, p)
    features = unwrap(features)
    is_batch = isinstance(features, Batch)
    values = as_batch(features) if isinstance(features, Batch) else as_batch([as_tensor(features)])
    if values.ndim != 2 or values.layout not in (None, "tf", "ft"):
        layout = "no layout" if values.layout is None else f"the layout {values.layout!r}"
        raise ValueError(f'{op}: features must have two axes, time and features, with the layout "tf", "ft" or none; got {values.ndim} and {layout}')
    if not values.dtype.is_floating_point:
        raise ValueError(f"{op}: features must be floating-point numbers, got {types.dtype_name(values.dtype)}")
    options = (lengths, time_warp, freq_masks, time_masks, max_time_fraction, p, rng)
    if values.layout == "ft":
        result = transpose(_augment(op, transpose(values, perm=[1, 0]), *options), perm=[1, 0])
    else:
        result = _augment(op, values, *options)
    result = as_batch(result, layout=values.layout)
    return result if is_batch else result.nth(0)  # type: ignore[return-value]


def _augment(
    op: str,
    values: Batch,
    lengths: Any,
    time_warp: int,
    freq_masks: tuple[int, int],
    time_masks: tuple[int, int],
    max_time_fraction: float,
    p: float,
    rng: Any,
) -> Batch:
    """Augment features (time, features)."""
    shapes = np.array(values.shape, np.int64).reshape(-1, 2)
    frames = shapes[:, 0] if lengths is None else _read_lengths(op, shapes[:, 0], lengths)
    applied, center_draw, target_draw = draw_numbers(op, rng, len(shapes), 3).T
    chosen = applied < p
    center, target = _draw_warp(frames, np.where(chosen, min(time_warp, int(frames.max(initial=0))), 0), center_draw, target_draw)
    # Masks together cover at most this fraction of the frames.
    widest = np.minimum(time_masks[1], max_time_fraction * frames / max(time_masks[0], 1))
    plan = torch.from_numpy(np.stack([frames, center, target, chosen], 1))
    return warp_and_mask(values, plan, freq_masks, time_masks[0], torch.from_numpy(widest.astype(np.float32)), rng)


def _draw_warp(frames: np.ndarray, widest: np.ndarray, center_draw: np.ndarray, target_draw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a random frame of each sample, and the one up to ``widest`` away that it is moved to; both are the end where there is no room."""
    is_warped = (widest > 0) & (frames > 2 * widest + 1)
    inner = np.where(is_warped, frames - 2 * widest - 1, 0)  # places of the center with room on both sides
    center = np.where(is_warped, widest + 1 + np.floor(center_draw * inner).astype(np.int64), frames)
    moved = center + np.floor((target_draw * 2 - 1) * (widest + 0.5) + 0.5).astype(np.int64)
    return center, np.where(is_warped, moved, frames)


def _read_lengths(op: str, frames: np.ndarray, lengths: Any) -> np.ndarray:
    numbers = np.array(to_sample_values(op, "lengths", lengths, len(frames)))
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= frames) & (numbers == np.floor(numbers))))
    if len(wrong):
        k = int(wrong[0])
        raise ValueError(f"{op}: sample {k}: lengths must be integers from 0 to its {frames[k]} frames, got {numbers[k]:g}")
    return numbers.astype(np.int64)


def _check(op: str, time_warp: Any, freq_masks: Any, time_masks: Any, max_time_fraction: float, p: float) -> None:
    if not isinstance(time_warp, int) or isinstance(time_warp, bool) or time_warp < 0:
        raise ValueError(f"{op}: time_warp must be a non-negative integer number of frames, got {time_warp!r}")
    for name, masks in (("freq_masks", freq_masks), ("time_masks", time_masks)):
        if not isinstance(masks, tuple | list) or len(masks) != 2 or not all(isinstance(n, int | float) and 0 <= n < math.inf for n in masks):
            raise ValueError(f"{op}: {name} must be a number of masks and their largest width, neither negative, got {masks!r}")
        if not isinstance(masks[0], int) or masks[0] > MAX_MASKS:
            raise ValueError(f"{op}: {name} must have a whole number of masks up to {MAX_MASKS}, got {masks[0]}")
    for name, value in (("max_time_fraction", max_time_fraction), ("p", p)):
        if not isinstance(value, Real) or not 0 <= value <= 1:
            raise ValueError(f"{op}: {name} must be from 0 to 1, got {value!r}")
