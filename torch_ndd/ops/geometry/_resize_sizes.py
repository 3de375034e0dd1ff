# SPDX-License-Identifier: Apache-2.0
"""Output sizes and source regions of resized samples in one call of native code, for arguments with a number for each sample."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core import native
from ..._core.operators.operator import Derivation
from .._columns import float32
from ._axis_numbers import SIZE, AxisNumbers, derive_natively, pack_extents, pack_numbers

_find_sizes, _find_regions, _find_windows = map(native.c_function, ("ndd_resize_sizes", "ndd_resize_regions", "ndd_resize_windows"))
_MODES, _ROUNDINGS = native.numbers("resize.Mode"), native.numbers("resize.SizeRounding")
_NONE = AxisNumbers()  # no size, no limit
_ARGUMENTS = 5  # of each axis


class PackedSizes(NamedTuple):
    """The arguments of a resize in the form of native code: five for each axis, and options."""

    packed: bytes
    numbers: list[AxisNumbers]
    options: tuple[int, ...]
    is_number: list[bool]  # whether the extent of an axis follows from the arguments alone, and is the same for all samples
    rows: set[int]  # numbers of samples that values are given for

    def derive_regions(self, first: int, is_fixed: bool) -> Derivation:
        """Return how to compute source regions, float32 (N, 2 * axes), and shapes again, for samples whose axes begin with ``first``."""
        places = [(k * SIZE, number) for k, number in enumerate(self.numbers)]
        return derive_natively(_find_regions, self.packed, places, (len(self.is_number), first, *self.options), 1, is_fixed)

    def derive_windows(
        self, first: int, window: Sequence[AxisNumbers], mirror: AxisNumbers, rounding: int, rule: int, is_fixed: bool
    ) -> Derivation | None:
        """Return how to compute mirrored windows of the resized samples again; None for a type that native code does not take.

        ``window``: position and size along each axis.
        """
        numbers = [*self.numbers, *window, mirror]
        packed = pack_numbers((*window, mirror))
        if packed is None:
            return None
        places = [(k * SIZE, number) for k, number in enumerate(numbers)]
        options = len(self.is_number), first, *self.options, rounding, rule
        return derive_natively(_find_windows, self.packed + packed, places, options, 1 if rule == 0 else 2, is_fixed)


def pack_sizes(axes: int, arguments: tuple[Any, ...], mode: str | None, relative_region: bool, subpixel_scale: bool) -> PackedSizes | None:
    """Return the arguments of :func:`plan_resize`, in its order, for native code; None if it does not take them, or one of them is wrong."""
    size, x, y, z, shorter, longer, max_size, roi_start, roi_end, sizes, scales, alignment, size_rounding = arguments
    forms = [value for value in (size, shorter, longer, sizes, scales) if value is not None]
    separate = any(value is not None for value in (x, y, z))
    sides = shorter is not None or longer is not None
    if len(forms) + separate != 1 or (separate and axes > 3) or (sides and mode is not None) or (roi_start is None) != (roi_end is None):
        return None
    if sides:
        mode = "not_larger" if shorter is None else "not_smaller"
    elif scales is not None and mode in ("not_larger", "not_smaller"):
        return None
    elif mode is None or mode == "default":
        mode = "default_mode"
    if mode not in _MODES:
        return None
    if separate:
        sides_of_axes = (("resize_z", z), ("resize_y", y), ("resize_x", x))[3 - axes :]
        wanted = [_NONE if value is None else _split(name, value, 1)[0] for name, value in sides_of_axes]
    else:
        named = {"size": size, "resize_shorter": shorter, "resize_longer": longer, "sizes": sizes, "scales": scales}
        name = next(name for name, value in named.items() if value is not None)
        wanted = _split(name, forms[0], axes, one_for_all=size is None, relative=scales is not None)
    limits = [_NONE] * axes if max_size is None else _split("max_size", max_size, axes, one_for_all=True)
    starts, ends = ([_NONE] * axes if value is None else _split(n, value, axes) for n, value in (("roi_start", roi_start), ("roi_end", roi_end)))
    parts = list(zip(wanted, limits, starts, ends, _split("alignment", alignment, axes, one_for_all=True), strict=False))
    numbers = [number for part in parts for number in part]
    packed = pack_numbers(numbers)
    if len(parts) != axes or packed is None:
        return None
    # Extents that follow from the arguments are numbers, which a Batch knows to be equal.
    are_extents = mode in ("default_mode", "stretch") and scales is None
    is_number = [are_extents and w.values is None and w.number != 0 and limit.values is None for w, limit in zip(wanted, limits, strict=True)]
    options = (_MODES[mode], _ROUNDINGS[size_rounding], roi_start is not None, bool(relative_region), bool(subpixel_scale))
    rows = {len(value) for value in arguments if isinstance(value, torch.Tensor)}
    return PackedSizes(packed, numbers, options, is_number, rows)


def find_sizes(
    extents: Sequence[int | np.ndarray], arguments: tuple[Any, ...], mode: str | None, relative_region: bool, subpixel_scale: bool
) -> tuple[list[Any], list[np.ndarray], list[np.ndarray], PackedSizes] | None:
    """Return extents, starts and ends for the arguments of :func:`plan_resize`, in its order, and these in native form.

    Return None if :func:`_plan` has to compute them, or to raise. Extents that follow from the arguments alone are numbers, others int64 (N,).
    """
    sizes = pack_sizes(len(extents), arguments, mode, relative_region, subpixel_scale)
    if sizes is None or (all(sizes.is_number) and not sizes.options[2]):
        return None  # nothing differs between samples
    rows = (sizes.rows | {len(extent) for extent in extents if isinstance(extent, np.ndarray)}) - {1}
    if len(rows) != 1:
        return None
    axes, count = len(extents), rows.pop()
    found, bounds = np.empty((axes, count), np.int64), np.empty((2 * axes, count))
    lengths = b"".join(map(pack_extents, extents))
    if not _find_sizes(lengths, sizes.packed, axes, count, *sizes.options, found.ctypes.data, bounds.ctypes.data):
        return None
    columns = [int(row[0]) if equal else torch.from_numpy(row) for row, equal in zip(found, sizes.is_number, strict=True)]
    return columns, list(bounds[:axes]), list(bounds[axes:]), sizes


def _split(name: str, value: Any, axes: int, one_for_all: bool = False, relative: bool = False) -> list[AxisNumbers]:
    """Return the numbers of each axis; less than that if the argument does not have as many."""
    if isinstance(value, torch.Tensor):
        count = value.numel() // max(1, len(value))
        if value.dim() == 1 or (one_for_all and count == 1):
            return [AxisNumbers(0.0, value, 0, relative, name)] * axes
        return [AxisNumbers(0.0, value, k, relative, name) for k in range(axes)] if count == axes else []
    numbers = value if isinstance(value, tuple) else (value,) * axes
    if one_for_all and len(numbers) == 1:
        numbers = numbers * axes
    if len(numbers) != axes or not all(isinstance(number, int | float) and abs(number) < 2.0**127 for number in numbers):
        return []
    return [AxisNumbers(float32(number), None, 0, relative) for number in numbers]
