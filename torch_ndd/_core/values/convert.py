# SPDX-License-Identifier: Apache-2.0
"""Conversion of element types: the kernel of ``cast``, the same as a torch formula, and NumPy's rules for Python numbers."""

import math

import numpy as np
import torch

_BELOW_2_63 = math.nextafter(2.0**63, 0)  # 2**63 - 1 is not a double, and converting 2**63 to int64 is undefined


def saturate(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert like ``cast``: floats are rounded half away from zero and saturated."""
    if values.dtype == dtype:
        return values
    if dtype.is_floating_point:
        return values.to(dtype)
    if dtype is torch.bool:
        return values.abs() >= 0.5 if values.dtype.is_floating_point else values != 0
    if values.dtype is torch.bool:
        return values.to(dtype)
    if torch.uint64 in (values.dtype, dtype):  # torch has no arithmetic for this type
        return torch.from_numpy(_saturate_array(values.cpu(), dtype)).to(values.device)
    limits = torch.iinfo(dtype)
    if not values.dtype.is_floating_point:
        # Every integer type but uint64 fits int64, where clamping is exact.
        return values.to(torch.int64).clamp(limits.min, limits.max).to(dtype)
    rounded = _round(values)
    whole = torch.nan_to_num(rounded, nan=float(limits.min)).clamp(float(limits.min), min(float(limits.max), _BELOW_2_63))
    # The upper limit of int64 is not a float, and is chosen by comparison.
    return torch.where(rounded >= float(limits.max), limits.max, whole.to(torch.int64)).to(dtype)


def _round(values: torch.Tensor) -> torch.Tensor:
    """Round half away from zero, as float64."""
    # The double below 0.5: 0.5 itself would round 0.49999999999999994 up, because the sum is rounded too.
    wide = values.double()
    return torch.trunc(wide + torch.copysign(torch.full_like(wide, 0.49999999999999994), wide))


def _saturate_array(values: torch.Tensor, dtype: torch.dtype) -> np.ndarray:
    target = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
    limits = np.iinfo(target)
    if not values.dtype.is_floating_point:
        array = values.numpy()
        source = np.iinfo(array.dtype)
        return array.clip(max(limits.min, int(source.min)), min(limits.max, int(source.max))).astype(target)
    rounded = np.nan_to_num(_round(values).numpy(), nan=float(limits.min))
    whole = rounded.clip(float(limits.min), np.nextafter(float(limits.max), 0)).astype(target)
    return np.where(rounded >= float(limits.max), target.type(limits.max), whole)


def truncate(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert Python numbers like NumPy: fractions are truncated, and an integer that does not fit raises OverflowError."""
    if not dtype.is_floating_point and dtype is not torch.bool and values.numel():
        limits, low, high = torch.iinfo(dtype), values.numpy().min().item(), values.numpy().max().item()
        if math.trunc(low) < limits.min or math.trunc(high) > limits.max:
            raise OverflowError(f"{high if high > limits.max else low} is out of range for {dtype}")
    return values.to(dtype)
