# SPDX-License-Identifier: Apache-2.0
"""Output sizes and source regions of resized samples in one call of native code, for arguments with a number for each sample."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..._core import native
from ..._core.values.batch import Batch
from .._columns import float32
from ._axis_numbers import SIZE, AxisNumbers, Template, pack_extents

_find_sizes, _find_regions = native.c_function("ndd_resize_sizes"), native.c_function("ndd_resize_regions")
_MODES, _ROUNDINGS = native.numbers("resize.Mode"), native.numbers("resize.SizeRounding")
_NONE = AxisNumbers()  # no size, no limit
_ARGUMENTS = 5  # of each axis


class SizeCall:
    """The sizes of samples with the same constants, but other values for each sample."""

    def __init__(self, packed: bytes, numbers: Sequence[AxisNumbers], options: tuple[Any, ...]) -> None:
        self._template = Template(packed, [(k * SIZE, part) for k, part in enumerate(numbers)])
        self.names = self._template.names
        self._axes, self._options = len(numbers) // _ARGUMENTS, options

    def __call__(self, input: Batch, first: int, values: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return regions, float32 (N, 2 * axes), and the shapes of the output. Raise ValueError if an argument is wrong, or a sample empty.

        Args:
            input: The samples.
            first: The first of the axes.
            values: The arguments with a value for each sample.
        """
        size, ndim = input.batch_size, input.ndim
        if input.ragged_shapes is None:
            table = np.empty((size, ndim), np.int64)
            table[:] = input.buffer.shape[1:]
            shapes = torch.from_numpy(table)
        else:
            shapes = input.ragged_shapes.clone()
        regions = torch.empty(size, 2 * self._axes)
        results = shapes.data_ptr(), regions.data_ptr()
        if not _find_regions(self._template.fill(values), self._axes, size, *self._options, first, ndim, *results):
            raise ValueError("wrong sizes")
        return regions, shapes


def find_sizes(
    extents: Sequence[int | np.ndarray], arguments: tuple[Any, ...], mode: str | None, relative_region: bool, subpixel_scale: bool
) -> tuple[list[Any], list[np.ndarray], list[np.ndarray], SizeCall] | None:
    """Return extents, starts and ends for the arguments of :func:`plan_resize`, in its order, and how to compute them again.

    Return None if :func:`_plan` has to compute them, or to raise. Extents that follow from the arguments alone are numbers, others int64 (N,).
    """
    size, x, y, z, shorter, longer, max_size, roi_start, roi_end, sizes, scales, alignment, size_rounding = arguments
    axes = len(extents)
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
    rows = {len(value) for value in (*arguments, *extents) if isinstance(value, torch.Tensor | np.ndarray)} - {1}
    parts = list(zip(wanted, limits, starts, ends, _split("alignment", alignment, axes, one_for_all=True), strict=False))
    numbers = [number for part in parts for number in part]
    packed = [number.pack() for number in numbers]
    if len(parts) != axes or None in packed or len(rows) != 1:
        return None
    # Extents that follow from the arguments are numbers, which a Batch knows to be equal.
    are_extents = mode in ("default_mode", "stretch") and scales is None
    is_number = [are_extents and w.values is None and w.number != 0 and limit.values is None for w, limit in zip(wanted, limits, strict=True)]
    if all(is_number) and roi_start is None:
        return None  # nothing differs between samples
    count = rows.pop()
    found, bounds = np.empty((axes, count), np.int64), np.empty((2 * axes, count))
    table = b"".join(part for part in packed if part is not None)
    lengths = b"".join(map(pack_extents, extents))
    options = (_MODES[mode], _ROUNDINGS[size_rounding], roi_start is not None, bool(relative_region), bool(subpixel_scale))
    if not _find_sizes(lengths, table, axes, count, *options, found.ctypes.data, bounds.ctypes.data):
        return None
    columns = [int(row[0]) if equal else torch.from_numpy(row) for row, equal in zip(found, is_number, strict=True)]
    return columns, list(bounds[:axes]), list(bounds[axes:]), SizeCall(table, numbers, options)


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
