# SPDX-License-Identifier: Apache-2.0
"""Colours of pixels."""

import math

import torch

from .. import types
from .._batch import Batch
from .._operator import DeviceLike, Hint, PerSample, T, operator
from ._formulas import per_sample, saturate, value_range
from ._layouts import IMAGE_LAYOUTS
from ._outputs import like


def _brightness_formula(input: torch.Tensor, brightness: torch.Tensor, brightness_shift: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
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


# RGB to YIQ as NTSC defines it, with three decimals, and its exact inverse. With these, unlike with more decimals, results equal DALI's.
_YIQ_OF_RGB = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]], dtype=torch.float64)
_RGB_OF_YIQ = _YIQ_OF_RGB.inverse()


def _color_twist_formula(
    input: torch.Tensor, brightness: torch.Tensor, contrast: torch.Tensor, hue: torch.Tensor, saturation: torch.Tensor, *, dtype: torch.dtype
) -> torch.Tensor:
    parts = torch.broadcast_tensors(*(per_sample(x.double(), input.dim()) for x in (brightness, contrast, hue, saturation)))
    scale, contrast, turn, saturation = parts
    cos, sin = saturation * torch.cos(turn * (math.pi / 180)), saturation * torch.sin(turn * (math.pi / 180))
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    plane = torch.cat([one, zero, zero, zero, cos, sin, zero, -sin, cos], -1).unflatten(-1, (3, 3))
    there, back = _YIQ_OF_RGB.to(input.device), _RGB_OF_YIQ.to(input.device)
    matrix = ((scale * contrast)[..., None] * (back @ plane @ there)).float()
    offset = (scale * (1 - contrast) * (0.5 if input.dtype.is_floating_point else 128.0)).float()
    red, green, blue = input.float().split(1, -1)
    mixed = matrix[..., 0] * red + (matrix[..., 1] * green + (matrix[..., 2] * blue + offset))
    return saturate(mixed, dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_color_twist_formula)
def color_twist(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    brightness: PerSample[float] = 1.0,
    contrast: PerSample[float] = 1.0,
    dtype: torch.dtype | None = None,
    hue: PerSample[float] = 0.0,
    image_type: Hint[types.DALIImageType | None] = None,
    saturation: PerSample[float] = 1.0,
) -> T:
    """Change hue, saturation, contrast and brightness of RGB images, in this order, by one colour matrix.

    ``out = brightness * (middle + contrast * (M in - middle))``, where M turns the plane of I and Q in the YIQ colour space by ``hue`` and scales
    it by ``saturation``, and ``middle`` is 0.5 for floating-point input, else 128.

    Args:
        input: ``HWC``, ``FHWC`` or ``DHWC`` with three channels, any numeric type.
        brightness: factor; like all of them one per sample or per frame.
        contrast: factor about the middle grey.
        hue: angle in degrees.
        saturation: factor; 0 makes the image grey.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.
        image_type: deprecated, without effect.

    Raises:
        RuntimeError: another number of channels than 3.

    >>> color_twist(torch.tensor([[[200, 100, 0]]], dtype=torch.uint8), saturation=0.5).torch().flatten()
    tensor([159, 109,  59], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if images._shapes is None and images._values.shape[-1] != 3:
        raise RuntimeError(f"color_twist: the image must have 3 channels, got {images._values.shape[-1]}")
    return like(images, dtype)
