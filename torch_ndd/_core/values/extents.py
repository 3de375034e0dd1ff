# SPDX-License-Identifier: Apache-2.0
"""Extents that all samples of a ragged batch share, which a compiled graph has as constants.

They include extents that do not change from batch to batch: the channels of images, and the extents requested of an operator. Heights that happen to
be equal are not included, because a graph would be recompiled for every other batch.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from .indexing import bounds, resolve_slice, takes_all

# For each axis of the samples the extent that they share, or None.
SharedExtents: TypeAlias = tuple[int | None, ...]

# Without a layout, the largest number of channels of pixels, coordinates of points and boxes, and rows and columns of maps.
_MAX_UNNAMED = 4


def find_lasting_extents(shapes: Sequence[Sequence[int]], layout: str | None) -> SharedExtents:
    """Return the extents that samples share in every batch like this: channels by the layout; without a layout the last axes if they are short."""
    ndim = len(shapes[0]) if len(shapes) else 0
    extents: list[int | None] = [None] * ndim
    for axis in range(ndim - 1, 0, -1) if layout is None else [axis for axis, letter in enumerate(layout[:ndim]) if letter == "C"]:
        extent = shapes[0][axis]
        # Without a layout the axes are looked at from the last one on, up to the first that is long or differs.
        if any(shape[axis] != extent for shape in shapes) or (layout is None and extent > _MAX_UNNAMED):
            break
        extents[axis] = extent
    return tuple(extents)


def merge_extents(known: SharedExtents | None, more: SharedExtents) -> SharedExtents:
    """Combine two descriptions of the same samples."""
    return more if known is None else tuple(b if a is None else a for a, b in zip(known, more, strict=True))


def confirm_extents(shared_extents: SharedExtents | None, shapes: Sequence[Sequence[int]]) -> SharedExtents | None:
    """Return the shared extents that are true for samples of these shapes."""
    if shared_extents is None or not len(shapes) or len(shared_extents) != len(shapes[0]):
        return None
    return tuple(extent if all(shape[axis] == extent for shape in shapes) else None for axis, extent in enumerate(shared_extents))


def slice_extents(shared_extents: SharedExtents | None, keys: Sequence[Any]) -> SharedExtents | None:
    """Return the extents that these keys, one per axis, select from samples."""
    if shared_extents is None:
        return None
    return tuple(_slice_extent(extent, key) for extent, key in zip(shared_extents, keys, strict=True) if isinstance(key, slice))


def _slice_extent(extent: int | None, key: slice) -> int | None:
    if extent is None or takes_all((key,)):
        return extent
    known = all(bound is None or isinstance(bound, int) for bound in bounds((key,)))
    return len(resolve_slice(key, extent)) if known else None


def shape_table(batch_size: int, shape: Sequence["int | torch.Tensor"]) -> torch.Tensor:
    """Return the shapes of samples, int64 (N, ndim), from their extents: numbers, or int64 tensors (N,) with one per sample."""
    rows = np.empty((batch_size, len(shape)), np.int64)
    for k, extent in enumerate(shape):
        # An extent of 2**63 does not fit the table, which would raise OverflowError.
        if not isinstance(extent, torch.Tensor) and extent >= 2**63:
            raise MemoryError(f"not enough memory for an output with an extent of {extent}")
        rows[:, k] = extent.numpy() if isinstance(extent, torch.Tensor) else extent
    return torch.from_numpy(rows)
