# SPDX-License-Identifier: Apache-2.0
"""What the torch formulas of operators share: a compiled graph traces them, the tests compare the kernels with them."""

from typing import overload

import torch

from .._tensor import saturated


def value_range(dtype: torch.dtype) -> float:
    """What stands for full brightness: 1 for floating-point types, else the largest value."""
    return 1.0 if dtype.is_floating_point or dtype is torch.bool else float(torch.iinfo(dtype).max)


# The number before 0.5: added to what is below 2**23 it never makes the next integer of anything but a half.
_HALF = 0.5 - 2.0**-25
_NARROW = (torch.uint8, torch.int8, torch.uint16, torch.int16)


def saturate(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert as ``cast`` does: round half away from zero, saturate."""
    if values.dtype is not torch.float32 or dtype not in _NARROW:
        return saturated(values, dtype)
    # The same without float64, which takes a compiled CPU kernel 9 times as long (2.4 million elements, one thread: 4.1 ms, and 0.45).
    limits = torch.iinfo(dtype)
    inside = torch.where(values == values, values, float(limits.min)).clamp(float(limits.min), float(limits.max))
    return (inside + (torch.where(inside < 0, -_HALF, _HALF) if limits.min else _HALF)).to(dtype)


kernels_on_cpu = True  # the tests of the formulas turn it off


def on_cpu(input: torch.Tensor) -> bool:
    """Whether the graph is for the CPU, where some operators leave their formula to GPUs."""
    return kernels_on_cpu and input.device.type == "cpu"


def mirrored(values: torch.Tensor, axis: int, wanted: "torch.Tensor | float") -> torch.Tensor:
    """The samples in reverse order along an axis where ``wanted`` says so: a number, or a tensor that broadcasts against the values."""
    if not isinstance(wanted, torch.Tensor):
        return values.flip(axis) if wanted else values
    # Reading from another place, not choosing between two arrays: whatever made the values is part of the same kernel and would run for both.
    size = values.shape[axis]
    index = torch.arange(size, device=values.device).reshape(-1, *(1,) * (values.dim() - 1 - axis))
    index = torch.where(wanted.to(values.device) != 0, size - 1 - index, index)
    return values.gather(axis, index.expand(values.shape))


# One value a sample, or what all samples have in common.
Number = torch.Tensor | float


@overload
def per_sample(argument: torch.Tensor, ndim: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> torch.Tensor: ...
@overload
def per_sample(argument: Number, ndim: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Number: ...
def per_sample(argument: Number, ndim: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Number:
    """An argument with one number a sample, or one a frame, ready to broadcast against (N, ...) with ``ndim`` dimensions in all."""
    if not isinstance(argument, torch.Tensor):
        return argument
    argument = argument.to(argument.device if device is None else device, argument.dtype if dtype is None else dtype)
    return argument.reshape(*argument.shape, *(1,) * (ndim - argument.dim()))
