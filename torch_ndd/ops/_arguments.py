# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments: samples, sides in pixels, counts, integers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._core.values.batch import Batch, as_batch
from .._core.values.operand import unwrap
from .._core.values.tensor import Tensor

INTEGERS = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def as_samples(value: Any, convert: Callable[[Any], Any] = as_batch) -> tuple[Batch, bool]:
    """Return samples as a Batch, and whether they are a single Tensor. ``convert`` makes a Batch or Tensor of other values."""
    value = unwrap(value)
    samples = value if isinstance(value, Tensor | Batch) else convert(value)
    return (Batch.broadcast(samples, 1), True) if isinstance(samples, Tensor) else (samples, False)


def as_sides(op: str, name: str, value: Any, below: int = 2**31) -> tuple[int, int]:
    """Return height and width in pixels, from both or one number. Raise ValueError unless each is from 1 to below the limit."""
    sides: tuple[Any, ...] = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    if len(sides) != 2 or not all(_is_integer(side) and 1 <= side < below for side in sides):
        raise ValueError(f"{op}: {name} must be a number of pixels, at least 1 and less than {below}, or height and width, got {value!r:.200}")
    return int(sides[0]), int(sides[1])


def require_positive(op: str, below: int = 2**31, **numbers: Any) -> None:
    """Raise ValueError for a number that is not an integer from 1 to below the limit."""
    for name, number in numbers.items():
        if not _is_integer(number) or not 1 <= number < below:
            raise ValueError(f"{op}: {name} must be an integer of at least 1 and less than {below}, got {number!r:.200}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
