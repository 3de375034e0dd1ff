# SPDX-License-Identifier: Apache-2.0
"""Extents that all samples of a ragged batch share, which a compiled graph has as constants.

They include extents that do not change from batch to batch: the channels of images, and the extents requested of an operator. Heights that happen to
be equal are not included, because a graph would be recompiled for every other batch.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .indexing import bounds, takes_all

# For each axis of the samples the extent that they share, or None.
Fixed: TypeAlias = tuple[int | None, ...]

# Without a layout, the largest number of channels of pixels, coordinates of points and boxes, and rows and columns of maps.
_MOST_UNNAMED = 4


def lasting(shapes: Sequence[Sequence[int]], layout: str | None) -> Fixed:
    """Return what samples of these shapes share in every batch: channels by the layout; without one the last axes if they are short."""
    ndim = len(shapes[0]) if len(shapes) else 0
    made: list[int | None] = [None] * ndim
    for axis in range(ndim - 1, 0, -1) if layout is None else [axis for axis, letter in enumerate(layout[:ndim]) if letter == "C"]:
        extent = shapes[0][axis]
        if any(shape[axis] != extent for shape in shapes) or (layout is None and extent > _MOST_UNNAMED):
            break
        made[axis] = extent
    return tuple(made)


def joined(known: Fixed | None, more: Fixed) -> Fixed:
    """Return what either of them knows about the same samples."""
    return more if known is None else tuple(b if a is None else a for a, b in zip(known, more, strict=True))


def confirmed(fixed: Fixed | None, shapes: Sequence[Sequence[int]]) -> Fixed | None:
    """Return the part of it that holds for samples of these shapes."""
    if fixed is None or not len(shapes) or len(fixed) != len(shapes[0]):
        return None
    return tuple(extent if all(shape[axis] == extent for shape in shapes) else None for axis, extent in enumerate(fixed))


def left(fixed: Fixed | None, keys: Sequence[Any]) -> Fixed | None:
    """Return the extents that these keys, one per axis, select from samples."""
    return None if fixed is None else tuple(_left(extent, key) for extent, key in zip(fixed, keys, strict=True) if isinstance(key, slice))


def _left(extent: int | None, key: slice) -> int | None:
    if extent is None or takes_all((key,)):
        return extent
    return len(range(*key.indices(extent))) if _plain(bounds((key,))) else None


def _plain(numbers: Iterable[Any]) -> bool:
    return all(number is None or isinstance(number, int) for number in numbers)
