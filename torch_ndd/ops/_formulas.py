# SPDX-License-Identifier: Apache-2.0
"""What the torch formulas of operators share: a compiled graph traces them, the tests compare the kernels with them."""

import torch

from .._tensor import saturated


def value_range(dtype: torch.dtype) -> float:
    """What stands for full brightness: 1 for floating-point types, else the largest value."""
    return 1.0 if dtype.is_floating_point or dtype is torch.bool else float(torch.iinfo(dtype).max)


def saturate(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert as ``cast`` does: round half away from zero, saturate."""
    return saturated(values, dtype)


def per_sample(argument: torch.Tensor, ndim: int) -> torch.Tensor:
    """An argument with one number a sample, or one a frame, ready to broadcast against (N, ...) with ``ndim`` dimensions in all."""
    return argument.reshape(*argument.shape, *(1,) * (ndim - argument.dim()))
