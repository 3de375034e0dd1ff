# SPDX-License-Identifier: Apache-2.0
"""Random crop windows for all operators that crop at random for image classification."""

import functools
import math
from collections.abc import Sequence
from numbers import Real

import torch

from ..._core import native
from ..._core.native.tracing import is_compiling

Range = Sequence[float] | float
Ranges = tuple[float, float, float, float, int]  # smallest and largest area, smallest and largest aspect ratio, attempts: as the kernel takes them

DEFAULT_AREA = (0.08, 1.0)
DEFAULT_ASPECT_RATIO = (3 / 4, 4 / 3)
DALI_NAMES = ("random_area", "random_aspect_ratio")  # of the arguments, in operators that DALI has

_windows = native.kernel("random_crop_windows", writes=(-1,))


def random_crop_windows(
    shapes: torch.Tensor,
    words: torch.Tensor,
    area: Range,
    aspect_ratio: Range,
    num_attempts: int,
    *,
    op: str = "random crop",
    names: tuple[str, str] = DALI_NAMES,
) -> torch.Tensor:
    """Draw a random window of every image: int64 (N, 4) with y, x, height, width. Window i depends on ``words``, i and image i only.

    An attempt draws an area, uniform in its range and relative to the image, and an aspect ratio (width / height), uniform on a logarithmic scale. It
    fails if the window is larger than the image or if rounding moves its ratio out of range. After the last failed attempt the window is the largest
    one that both ranges allow. Its position is uniform. An image without pixels has an empty window.

    Args:
        shapes: int64 (N, 2 or more), heights and widths first.
        words: int64, drawn from the generator for one call.
        area: smallest and largest area, or one number for both.
        aspect_ratio: smallest and largest aspect ratio, or one number for both.
        num_attempts: at least 1.
        op: operator, for errors.
        names: its arguments for the area and the aspect ratio, for errors.

    >>> random_crop_windows(torch.tensor([[480, 640]]), torch.arange(7), 0.25, 4 / 3, 10).shape
    torch.Size([1, 4])
    """
    return draw_windows(shapes, words, check_ranges(op, area, aspect_ratio, num_attempts, names), ends=False)


def draw_windows(shapes: torch.Tensor, words: torch.Tensor, ranges: Ranges, ends: bool) -> torch.Tensor:
    """Draw the windows of :func:`random_crop_windows`, from ranges that :func:`check_ranges` has returned.

    With ``ends`` return float32 (N, 4): where a window begins and where it ends, as the kernels of resizing operators take it.
    """
    out = torch.empty((shapes.shape[0], 4), dtype=torch.float32 if ends else torch.int64)
    _windows(shapes.contiguous(), words, *ranges, out)
    return out


def check_ranges(op: str, area: Range, aspect_ratio: Range, num_attempts: int, names: tuple[str, str] = DALI_NAMES) -> Ranges:
    """Return the arguments in the kernel's form. Raise RuntimeError for an empty range or more than two numbers, ValueError for invalid numbers."""
    check = _check_ranges if is_compiling() else _cached
    return check(op, _numbers(op, names[0], area), _numbers(op, names[1], aspect_ratio), num_attempts, names)


def _check_ranges(op: str, areas: tuple[float, ...], ratios: tuple[float, ...], num_attempts: int, names: tuple[str, str]) -> Ranges:
    for argument, numbers in zip(names, (areas, ratios), strict=True):
        if not 1 <= len(numbers) <= 2:
            raise RuntimeError(f"{op}: {argument} must be a number or two, got {len(numbers)}")
        if not all(-math.inf < x < math.inf for x in numbers):  # isfinite() does not take the symbols of graphs with dynamic=True
            raise ValueError(f"{op}: {argument} must be finite, got {numbers}")
        if numbers[0] > numbers[-1]:
            raise RuntimeError(f"{op}: {argument} is an empty range: {numbers[0]:g} to {numbers[1]:g}")
    if areas[0] < 0 or areas[-1] <= 0:
        raise ValueError(f"{op}: {names[0]} must be positive, got {areas}")
    if ratios[0] <= 0:
        raise ValueError(f"{op}: {names[1]} must be positive, got {ratios}")
    if not 1 <= num_attempts < 2**31:
        raise ValueError(f"{op}: num_attempts must be at least 1 and less than 2**31, got {num_attempts}")
    return areas[0], areas[-1], ratios[0], ratios[-1], num_attempts


_cached = functools.lru_cache(maxsize=64)(_check_ranges)


def _numbers(op: str, argument: str, value: Range) -> tuple[float, ...]:
    if not isinstance(value, tuple) and isinstance(value, Real):
        return (float(value),)
    try:
        return tuple(map(float, value))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op}: {argument} must be a number or two, got {value!r}") from None
