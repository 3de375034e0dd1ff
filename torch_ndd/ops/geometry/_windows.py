# SPDX-License-Identifier: Apache-2.0
"""The windows of all samples in one call of native code, outside graphs."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..._core import native
from ..._core.operators.operator import Derivation
from ..._core.values.batch import Batch, empty_batch, empty_packed
from .._columns import Column
from ._axis_numbers import SIZE, AxisNumbers, derive_natively, pack_shapes

_find_windows = native.c_function("ndd_windows")
_KINDS, _POLICIES, ROUNDINGS = (native.numbers(f"window.{name}") for name in ("Kind", "Policy", "Rounding"))


class CropWindow(NamedTuple):
    """A window in samples: its start and extent along each axis."""

    start: tuple[Column, ...]
    extent: tuple[Column, ...]
    rows: torch.Tensor  # the starts, int64 (1 or N, axes)
    # If native code has computed them: the extents, int64 (N, axes), and how to do it again.
    shapes: torch.Tensor | None = None
    derivation: Derivation | None = None

    def is_whole(self, input: Batch) -> bool:
        """Return whether this is known to be all of every sample."""
        pairs = zip(self.extent, input.buffer.shape[1:], strict=False)
        return input.ragged_shapes is None and all(not isinstance(extent, torch.Tensor) and extent == length for extent, length in pairs)

    def allocate(self, input: Batch, dtype: torch.dtype, layout: str | None) -> Batch:
        """Return an unfilled batch of windows."""
        known = [None if isinstance(extent, torch.Tensor) else extent for extent in self.extent]
        if self.shapes is None or None not in known:
            return empty_batch(input.batch_size, self.extent, dtype, input.buffer.device, layout)
        return empty_packed(self.shapes, dtype, input.buffer.device, layout, tuple(known))


def find_windows(
    kind: str, input: Batch, extents: Sequence[Column], axes: Sequence[tuple[int, AxisNumbers, AxisNumbers]], policy: str, rounding: str = "round"
) -> CropWindow | None:
    """Return the windows of the samples; None if an argument is wrong, or of a type that native code does not take.

    Args:
        kind: "crop" (limits are relative position and size), "slice_end" or "slice_shape" (start and end, or start and extent).
        input: The samples.
        extents: Of the samples.
        axes: For each axis of the window its dimension and its limits. The values of the limits have a row for each sample, or one.
        policy: What to do with a window that leaves its sample.
        rounding: Of the start of a crop.
    """
    if not input.batch_size:
        return None
    packed, numbers = b"", []
    moved, equal = set(), set()  # dimensions in which the windows have different extents, and one that follows from the arguments
    for dimension, begin, end in axes:
        first, last = begin.pack(), end.pack()
        if first is None or last is None:
            return None
        packed += struct.pack("q", dimension)
        numbers += (len(packed), begin), (len(packed) + SIZE, end)
        packed += first + last
        length = extents[dimension]
        if kind == "crop":
            known = end.values is None and (end.number >= 1 or not isinstance(length, torch.Tensor))
        else:
            known = begin.is_equal(length) and end.is_equal(length)
        known = known and not (policy == "trim_to_shape" and (begin.values is not None or isinstance(length, torch.Tensor)))
        (equal if known else moved).add(dimension)
    options = _KINDS[kind], len(axes), _POLICIES[policy], ROUNDINGS[rounding]
    starts, shapes = torch.empty(2, input.batch_size, input.ndim, dtype=torch.int64).unbind(0)
    results = starts.data_ptr(), None, shapes.data_ptr()
    if not _find_windows(*pack_shapes(input), input.batch_size, input.ndim, packed, struct.pack("4q", *options), *results):
        return None
    columns, lengths = shapes.unbind(1), shapes[0].tolist()
    found = tuple([columns[k] if k in moved else lengths[k] if k in equal else extent for k, extent in enumerate(extents)])
    is_fixed = not any(isinstance(extent, torch.Tensor) for extent in found)
    return CropWindow(starts.unbind(1), found, starts, shapes, derive_natively(_find_windows, packed, numbers, options, 1, is_fixed))
