# SPDX-License-Identifier: Apache-2.0
"""Colours of pixels."""

import torch

from .._operator import DeviceLike, PerSample, T, operator
from ._layouts import IMAGE_LAYOUTS
from ._outputs import like
from ._formulas import per_sample, saturate, value_range


def _brightness_formula(
    input: torch.Tensor, brightness: torch.Tensor, brightness_shift: torch.Tensor, *, dtype: torch.dtype
) -> torch.Tensor:
    scale, shift = per_sample(brightness, input.dim()), per_sample(brightness_shift, input.dim())
    return saturate(scale * input + shift * value_range(dtype), dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_brightness_formula)
def brightness(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    brightness: PerSample[float] = 1.0,
    brightness_shift: PerSample[float] = 0.0,
    dtype: torch.dtype | None = None,
) -> T:
    """Scale and shift the brightness: ``out = brightness * in + brightness_shift * range``.

    ``range`` is 1 for floating-point results and the largest value of the type for integers: 255 for uint8.

    Args:
        input: images ``HWC``, sequences ``FHWC`` or volumes ``DHWC``, any numeric type.
        brightness: factor, one per sample or per frame.
        brightness_shift: what is added, as a part of the output's range.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.

    >>> brightness(torch.tensor([[[10], [200]]], dtype=torch.uint8), brightness=1.5).torch().flatten()
    tensor([ 15, 255], dtype=torch.uint8)
    """
    return like(input, dtype)
