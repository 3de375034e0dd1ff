# SPDX-License-Identifier: Apache-2.0
"""SpecAugment (Park et al., 2019): random masks on spectrograms."""

import functools
import math
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, PerSample, Random, T, launch, operator
from ..._core.values.batch import Batch
from .._outputs import like

_MAX_MASKS = 64


def _launch_masks(op: str, letter: str, axis: int, input: Batch, widest: Any, mask_value: Any, num_masks: int, p: Any, rng: Any) -> Any:
    """Mask random bands of an axis, which counts from the end, for inputs without a layout."""
    if input.ndim == 0:
        raise RuntimeError(f'{op}: the input must have an axis "{letter}", got a scalar')
    if input.layout is not None and letter not in input.layout:
        raise RuntimeError(f'{op}: the layout must have an axis "{letter}", got {input.layout!r}')
    # Inputs without a layout are taken as (..., frequency, time).
    at = max(0, input.ndim - axis) if input.layout is None else input.layout.index(letter)
    mean = isinstance(mask_value, str)
    if mean and mask_value != "mean":
        raise ValueError(f'{op}: mask_value must be a number or "mean", got {mask_value!r}')
    if isinstance(mask_value, Batch):
        values = mask_value.cpu().wait().to(torch.float32)  # the kernel reads it on the host
        if values.shape != (input.batch_size,):
            raise ValueError(f"{op}: mask_value must have a number for each of the {input.batch_size} samples, got the shape {tuple(values.shape)}")
    elif not mean and (not isinstance(mask_value, int | float) or isinstance(mask_value, bool)):
        raise TypeError(f'{op}: mask_value must be a number, a Batch of them or "mean", got {mask_value!r}')
    else:
        values = _number(0.0 if mean else float(mask_value))
    if not 0 <= num_masks <= _MAX_MASKS:
        raise ValueError(f"{op}: num_masks must be 0 to {_MAX_MASKS}, got {num_masks}")
    return launch(like(input), [at, widest, p, num_masks, mean, values, rng], only_words=True)


def _number(value: float) -> torch.Tensor:
    return torch.tensor([value]) if is_compiling() else _cached_number(value, math.copysign(1.0, value))


@functools.lru_cache(64)
def _cached_number(value: float, sign: float) -> torch.Tensor:  # 0.0 and -0.0 are equal
    del sign
    return torch.tensor([value])


@operator()
def time_mask(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    mask_value: float | str | Batch = 0.0,
    num_masks: int = 1,
    p: PerSample[float] = 1.0,
    rng: Random = None,
    time_mask_param: PerSample[float],
) -> T:
    """Mask random time spans of a spectrogram, different ones in each sample (SpecAugment's time masks).

    For each mask a width w is drawn from 0 to ``time_mask_param`` and a start from 0 to ``length - w``, both uniformly and rounded down, like
    ``torchaudio.transforms.TimeMasking(time_mask_param)``, which draws the same mask for a whole batch unless ``iid_masks`` is set.

    Args:
        input: spectrograms of any type; the time axis is ``t`` in the layout, without a layout the last one.
        mask_value: value of masked elements: a number, a Batch with one for each sample, or ``"mean"`` for the mean of the sample. 0 is the mean of
            normalized features.
        num_masks: number of masks; they may overlap.
        p: probability of applying each mask.
        rng: random generator; by default this thread's.
        time_mask_param: largest width, exclusive, limited by the length; SpecAugment's T.

    Raises:
        ValueError: a negative width, or a probability outside 0 to 1.
        RuntimeError: a layout without ``t``.

    >>> masked = time_mask(ones(shape=[80, 1000]), time_mask_param=100, num_masks=2).torch()
    >>> (masked == masked[0]).all().item(), ((masked == 0).sum() < 80 * 200).item()
    (True, True)
    """
    return _launch_masks("time_mask", "t", 1, input, time_mask_param, mask_value, num_masks, p, rng)  # type: ignore[arg-type]


@operator()
def frequency_mask(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    freq_mask_param: PerSample[float],
    mask_value: float | str | Batch = 0.0,
    num_masks: int = 1,
    p: PerSample[float] = 1.0,
    rng: Random = None,
) -> T:
    """Mask random frequency bands of a spectrogram, different ones in each sample (SpecAugment's frequency masks).

    For each mask a width w is drawn from 0 to ``freq_mask_param`` and a start from 0 to ``frequencies - w``, both uniformly and rounded down, like
    ``torchaudio.transforms.FrequencyMasking(freq_mask_param)``, which draws the same mask for a whole batch unless ``iid_masks`` is set.

    Args:
        input: spectrograms of any type; the frequency axis is ``f`` in the layout, without a layout the second to last one.
        freq_mask_param: largest width, exclusive, limited by the number of frequencies; SpecAugment's F.
        mask_value: value of masked elements: a number, a Batch with one for each sample, or ``"mean"`` for the mean of the sample. 0 is the mean of
            normalized features.
        num_masks: number of masks; they may overlap.
        p: probability of applying each mask.
        rng: random generator; by default this thread's.

    Raises:
        ValueError: a negative width, or a probability outside 0 to 1.
        RuntimeError: a layout without ``f``.

    >>> masked = frequency_mask(ones(shape=[80, 1000]), freq_mask_param=27, num_masks=2).torch()
    >>> (masked == masked[:, :1]).all().item(), ((masked == 0).sum() < 1000 * 54).item()
    (True, True)
    """
    return _launch_masks("frequency_mask", "f", 2, input, freq_mask_param, mask_value, num_masks, p, rng)  # type: ignore[arg-type]
