# SPDX-License-Identifier: Apache-2.0
"""SpecAugment (Park et al., 2019) for batches of features of different lengths."""

import math
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.operators.operator import T
from .._core.values.batch import Batch, as_batch, new_batch, ragged_batch
from .._core.values.operand import unwrap
from .._core.values.tensor import as_tensor
from ..ops.audio.masks import frequency_mask, time_mask
from ..ops.geometry.resize import resize
from ..ops.reductions import mean
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
        lengths: the number of frames of each sample in a padded batch; what lies behind them does not change. By default all frames.
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
    used = shapes if lengths is None else _shorten(op, shapes, lengths)
    applied, center_draw, target_draw = draw_numbers(op, rng, len(shapes), 3).T
    chosen = applied < p
    sounds = values if used is shapes else _begin_of(values, used)
    if time_warp and len(shapes):
        sounds = _warp(sounds, used, np.where(chosen, time_warp, 0), center_draw, target_draw)
    probability = new_batch(torch.from_numpy(chosen.astype(np.float32)))
    fill = mean(as_batch(sounds)) if len(shapes) else 0.0
    # Masks together cover at most this fraction of the frames.
    widths = np.minimum(time_masks[1], max_time_fraction * used[:, 0] / max(time_masks[0], 1))
    sounds = as_batch(sounds, layout="tf")
    sounds = frequency_mask(sounds, freq_mask_param=freq_masks[1], num_masks=freq_masks[0], mask_value=fill, p=probability, rng=rng)
    widest = new_batch(torch.from_numpy(widths.astype(np.float32)))
    sounds = time_mask(sounds, time_mask_param=widest, num_masks=time_masks[0], mask_value=fill, p=probability, rng=rng)
    return sounds if used is shapes else _with_rest(values, sounds, shapes, used)


def _warp(values: Batch, shapes: np.ndarray, widest: np.ndarray, center_draw: np.ndarray, target_draw: np.ndarray) -> Batch:
    """Resize the frames before and behind a random one so that it moves by up to ``widest``."""
    frames = shapes[:, 0]
    is_warped = (widest > 0) & (frames > 2 * widest + 1)
    inner = np.where(is_warped, frames - 2 * widest - 1, 0)  # places of the center with room on both sides
    center = np.where(is_warped, widest + 1 + np.floor(center_draw * inner).astype(np.int64), frames)
    target = np.where(is_warped, center + np.floor((target_draw * 2 - 1) * (widest + 0.5) + 0.5).astype(np.int64), frames)
    # Both sides of a sample follow each other in memory, before and after: two images, without copies.
    sides = np.stack([center, frames - center], 1).reshape(-1)
    resized = np.stack([target, frames - target], 1).reshape(-1)
    width = np.repeat(shapes[:, 1], 2)
    kept = (sides > 0) & (width > 0)
    if not kept.any():
        return values
    width = width[kept]
    images = ragged_batch(_flatten(values), np.stack([sides[kept], width], 1), "HW")
    sizes = new_batch(torch.from_numpy(np.stack([resized[kept], width], 1).astype(np.float32)))
    moved = resize(images, size=sizes, interp_type=types.INTERP_CUBIC, antialias=False, rule="torch")
    return ragged_batch(moved.wait().reshape(-1), shapes)


def _flatten(values: Batch) -> torch.Tensor:
    return values.wait().reshape(-1)


def _begin_of(values: Batch, shapes: np.ndarray) -> Batch:
    parts = [sample.torch()[:length].reshape(-1) for sample, length in zip(values, shapes[:, 0].tolist(), strict=True)]
    return ragged_batch(torch.cat(parts), shapes)


def _with_rest(values: Batch, sounds: Batch, shapes: np.ndarray, used: np.ndarray) -> Batch:
    """Return a copy of the values with other beginnings."""
    result = _flatten(values).clone()
    begins = np.cumsum([0, *shapes.prod(1)])[:-1]
    for begin, count, sample in zip(begins.tolist(), used.prod(1).tolist(), sounds, strict=True):
        result[begin : begin + count] = sample.torch().reshape(-1)
    return ragged_batch(result, shapes)


def _shorten(op: str, shapes: np.ndarray, lengths: Any) -> np.ndarray:
    numbers = np.array(to_sample_values(op, "lengths", lengths, len(shapes)))
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers <= shapes[:, 0]) & (numbers == np.floor(numbers))))
    if len(wrong):
        k = int(wrong[0])
        raise ValueError(f"{op}: sample {k}: lengths must be whole numbers from 0 to its {shapes[k, 0]} frames, got {numbers[k]:g}")
    return np.stack([numbers.astype(np.int64), shapes[:, 1]], 1)


def _check(op: str, time_warp: Any, freq_masks: Any, time_masks: Any, max_time_fraction: float, p: float) -> None:
    if not isinstance(time_warp, int) or isinstance(time_warp, bool) or time_warp < 0:
        raise ValueError(f"{op}: time_warp must be a whole number of frames that is not negative, got {time_warp!r}")
    for name, masks in (("freq_masks", freq_masks), ("time_masks", time_masks)):
        if not isinstance(masks, tuple | list) or len(masks) != 2 or not all(isinstance(n, int | float) and 0 <= n < math.inf for n in masks):
            raise ValueError(f"{op}: {name} must be a number of masks and their largest width, neither negative, got {masks!r}")
    for name, value in (("max_time_fraction", max_time_fraction), ("p", p)):
        if not 0 <= value <= 1:
            raise ValueError(f"{op}: {name} must be from 0 to 1, got {value!r}")
