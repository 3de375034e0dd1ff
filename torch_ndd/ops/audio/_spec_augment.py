# SPDX-License-Identifier: Apache-2.0
"""SpecAugment's warp and masks of features in one pass of the kernel ``spec_augment``."""

import torch

from ..._core import native
from ..._core.context.rng import RNG, WORDS_PER_CALL, get_default_rng
from ..._core.values.batch import Batch
from ..._core.values.dispatch import output, run
from ..._core.work.pending import SAME_SAMPLE

_kernel = native.kernel("spec_augment")

MAX_MASKS = 64
"""Masks of each kind."""


def warp_and_mask(
    features: Batch, plan: torch.Tensor, freq_masks: tuple[int, float], time_masks: int, widest: torch.Tensor, rng: RNG | None
) -> Batch:
    """Return features whose frames are resized on both sides of one, with masks that have the mean of the result.

    The masks are those that :func:`frequency_mask` and then :func:`time_mask` draw from the generator.

    Args:
        features: floating-point (frames, features).
        plan: int64 (N, 4): how many frames are augmented, the frame that is moved, where it is moved to, and whether the sample is changed.
        freq_masks: number of frequency masks and their largest width.
        time_masks: number of time masks.
        widest: float32 (N,), the largest width of time masks.
        rng: generator; by default this thread's.
    """
    features = features.settle()
    result = features.with_buffer(output(native.empty, features.buffer.shape, features.dtype, features.buffer.device), None)
    rng = rng or get_default_rng()
    bands, widest_band = freq_masks
    arguments = (
        *(features.buffer, features.ragged_shapes, plan, bands, float(widest_band), rng.draw(WORDS_PER_CALL)),
        *(time_masks, widest, rng.draw(WORDS_PER_CALL), result.buffer, result.ragged_shapes),
    )
    result.pending = run(_kernel, arguments, [(features, SAME_SAMPLE)], result.buffer)
    return result
