# SPDX-License-Identifier: Apache-2.0
"""What works on any data."""

import torch

from .._operator import DeviceLike, T, operator
from ._formulas import saturate
from ._outputs import like


def _cast_formula(input: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor | None:
    if torch.uint64 in (input.dtype, dtype) and input.dtype is not dtype:
        return None  # torch has no arithmetic for it
    return saturate(input, dtype)


@operator(formula=_cast_formula)
def cast(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, dtype: torch.dtype) -> T:
    """Convert to another element type.

    Floating-point numbers become integers by rounding half away from zero, what does not fit becomes the nearest limit, NaN the smallest one. A
    bool is whether the rounded value is not zero. Integers are converted exactly.

    Args:
        input: anything.
        dtype: the type of the result.

    >>> cast(torch.tensor([-3.0, 2.5, 254.6, 300.0]), dtype=torch.uint8).torch()
    tensor([  0,   3, 255, 255], dtype=torch.uint8)
    """
    return like(input, dtype)
