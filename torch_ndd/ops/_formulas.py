# SPDX-License-Identifier: Apache-2.0
"""Common parts of the operators' torch formulas: compiled graphs trace them, and the tests compare the kernels with them."""

from typing import overload

import torch

from .._core.values.convert import saturate as convert_saturated
from .._core.values.elementwise import on_cpu as on_cpu


def value_range(dtype: torch.dtype) -> float:
    """Return the value of full brightness: 1 for floating-point types, else the largest value."""
    return 1.0 if dtype.is_floating_point or dtype is torch.bool else float(torch.iinfo(dtype).max)


# The float32 before 0.5: added to a value below 2**23 it reaches the next integer only from a half upwards.
_HALF = 0.5 - 2.0**-25
_NARROW = (torch.uint8, torch.int8, torch.uint16, torch.int16)


def saturate(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert like ``cast``: round half away from zero, saturate."""
    if values.dtype is not torch.float32 or dtype not in _NARROW:
        return convert_saturated(values, dtype)
    # Without float64, which takes a compiled CPU kernel 9 times as long (2.4 million elements on one thread: 4.1 ms instead of 0.45).
    limits = torch.iinfo(dtype)
    inside = torch.where(values == values, values, float(limits.min)).clamp(float(limits.min), float(limits.max))
    return (inside + (torch.where(inside < 0, -_HALF, _HALF) if limits.min else _HALF)).to(dtype)


def mirror_axis(values: torch.Tensor, axis: int, wanted: "torch.Tensor | float") -> torch.Tensor:
    """Mirror samples along an axis where ``wanted`` is not 0: a number, or a tensor that broadcasts against the values."""
    if not isinstance(wanted, torch.Tensor):
        return values.flip(axis) if wanted else values
    # Gathers rather than selects between two arrays: the producer of the values is part of the same kernel and would run for both.
    size = values.shape[axis]
    index = torch.arange(size, device=values.device).reshape(-1, *(1,) * (values.dim() - 1 - axis))
    index = torch.where(wanted.to(values.device) != 0, size - 1 - index, index)
    return values.gather(axis, index.expand(values.shape))


# One value per sample, or one for all samples.
Number = torch.Tensor | float


@overload
def per_sample(argument: torch.Tensor, ndim: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> torch.Tensor: ...
@overload
def per_sample(argument: Number, ndim: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Number: ...
def per_sample(argument: Number, ndim: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Number:
    """Reshape an argument with one number per sample or per frame to broadcast against (N, ...) with ``ndim`` dimensions."""
    if not isinstance(argument, torch.Tensor):
        return argument
    argument = argument.to(argument.device if device is None else device, argument.dtype if dtype is None else dtype)
    return argument.reshape(*argument.shape, *(1,) * (ndim - argument.dim()))


def per_channel(values: Number, ndim: int, axis: int, device: torch.device | None = None) -> Number:
    """Reshape an argument with numbers per channel, of each sample or of all, to broadcast against (N, ...) with ``ndim`` dimensions."""
    if not isinstance(values, torch.Tensor):
        return values
    shape = [1] * ndim
    shape[0], shape[axis] = values.shape[0], values.numel() // values.shape[0]
    return values.reshape(shape).to(values.device if device is None else device, torch.float32)


def normal(pixels: torch.Tensor, mean: Number, std: Number, scale: float, shift: float) -> torch.Tensor:
    """Normalize values like crop_mirror_normalize."""
    return (pixels.float() - mean) * (scale / std) + shift
