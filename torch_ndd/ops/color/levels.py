# SPDX-License-Identifier: Apache-2.0
"""Point operations: invert, solarize, gamma."""

import torch

from ..._core.operators.operator import DeviceLike, PerSample, T, operator
from .._formulas import Number, per_sample, value_range
from .._outputs import like
from . import _pixel_chain

_NARROW = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _check_type(op: str, dtype: torch.dtype) -> None:
    if dtype not in _NARROW:
        raise RuntimeError(f"{op}: the input must be of 8 or 16 bits or floating-point, got {dtype}")


def _invert_values(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    most = value_range(dtype)
    # Each sign is inverted on its own: the sign bit stays.
    if dtype in (torch.int8, torch.int16):
        return torch.where(values < 0, -most - 2.0, most) - values
    return most - values


@_pixel_chain.by_level
def _invert_formula(input: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    return _invert_values(input.float(), dtype).to(dtype)


@operator(formula=_invert_formula, ragged_formula=True)
def invert(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None) -> T:
    """Invert values: ``out = range - in``, where ``range`` is 1 for floating-point types and the largest value of the type for integers.

    Negative integers keep their sign and have their other bits inverted. The results equal those of torchvision's ``invert``.

    Args:
        input: any layout; uint8, int8, uint16, int16 or floating-point.

    Raises:
        RuntimeError: another element type.

    >>> invert(torch.tensor([[[10], [100], [255]]], dtype=torch.uint8)).torch().flatten()
    tensor([245, 155,   0], dtype=torch.uint8)
    """
    _check_type("invert", input.dtype)
    return like(input)


@_pixel_chain.by_level
def _solarize_formula(input: torch.Tensor, threshold: Number, *, dtype: torch.dtype) -> torch.Tensor:
    values, limit = input.float(), per_sample(threshold, input.dim(), torch.float32, input.device)
    return torch.where(values >= limit, _invert_values(values, dtype), values).to(dtype)


@operator(formula=_solarize_formula, ragged_formula=True)
def solarize(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, threshold: PerSample[float]) -> T:
    """Invert the values from a threshold on: ``out = range - in if in >= threshold else in``.

    ``range`` is that of :func:`invert`. The results equal those of torchvision's ``solarize``.

    Args:
        input: any layout; uint8, int8, uint16, int16 or floating-point.
        threshold: in units of the input, one per sample or per frame.

    Raises:
        RuntimeError: another element type.

    >>> solarize(torch.tensor([[[10], [128], [255]]], dtype=torch.uint8), threshold=128).torch().flatten()
    tensor([ 10, 127,   0], dtype=torch.uint8)
    """
    _check_type("solarize", input.dtype)
    return like(input)


def _gamma_formula(input: torch.Tensor, gain: Number, gamma: Number, *, dtype: torch.dtype) -> torch.Tensor | None:
    if not dtype.is_floating_point:
        return None  # a table of 256 or 65536 values is faster, and its last bit decides where fractions are cut off
    factor, exponent = (per_sample(x, input.dim(), torch.float32, input.device) for x in (gain, gamma))
    powers = input.float().clamp(min=0.0) ** exponent * factor
    # torchvision clamps only after a gain other than 1.
    limit = torch.where(torch.as_tensor(factor) == 1.0, float("inf"), 1.0)
    return torch.minimum(powers, limit.to(input.device)).to(dtype)


@operator(formula=_gamma_formula)
def gamma(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    gain: PerSample[float] = 1.0,
    gamma: PerSample[float],
) -> T:
    """Apply a power law: ``out = gain * in ** gamma`` of values from 0 to 1.

    Integers are scaled to 0 to 1 and back; fractions are cut off. The results equal those of torchvision's ``adjust_gamma``.

    Args:
        input: any layout; uint8, int8, uint16, int16 or floating-point. Negative values count as 0.
        gamma: exponent, not negative, one per sample or per frame; above 1 it makes shadows darker.
        gain: factor, not negative, given like ``gamma``. With a gain other than 1, results are limited to 1.

    Raises:
        ValueError: a negative ``gamma`` or ``gain``.
        RuntimeError: another element type.

    >>> gamma(torch.tensor([[[0], [64], [255]]], dtype=torch.uint8), gamma=0.5).torch().flatten()
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    _check_type("gamma", input.dtype)
    return like(input)
