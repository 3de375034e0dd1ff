# SPDX-License-Identifier: Apache-2.0
"""Indexing: the effect of keys on shapes and layouts, and the memory that they select."""

import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from .. import native
from ..native.tracing import is_compiling
from .operand import Operand, unwrap

# Copies a part of sample index[i] for every sample i of the output: csrc/ops/values/take.cpp.
take = native.kernel("take")


class Window(NamedTuple):
    """A part of an array. A step of 0 selects one position of an axis and drops it; ``extents`` are those of the remaining axes."""

    starts: list[int]
    steps: list[int]
    extents: list[int]

    def view(self, values: torch.Tensor, first: int = 0) -> torch.Tensor | None:
        """Return this part of ``values``, whose axes count from ``first``, as a view; None if a step is negative."""
        if any(step < 0 for step in self.steps):
            return None
        keys: list[Any] = [slice(None)] * first
        left = iter(self.extents)
        for start, step in zip(self.starts, self.steps, strict=True):
            keys.append(start if step == 0 else slice(start, start + step * next(left), step))
        return values[tuple(keys)]


def bounds(keys: Iterable[Any]) -> Iterator[Any]:
    """Yield everything in the keys that may be a number."""
    for key in keys:
        yield from (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)


def as_keys(key: Any) -> tuple[Any, ...]:
    """Return the contents of brackets as a tuple of keys, with Tensors and Batches in place of a pipeline's tensors and tensor lists."""
    return tuple(map(_unwrap_key, key if isinstance(key, tuple) else (key,)))


def _unwrap_key(key: Any) -> Any:
    if type(key) is int:
        return key
    if type(key) is slice:
        bounds = (key.start, key.stop, key.step)
        # Without a pipeline's values a slice is kept, because a new one costs as much as the rest.
        return key if all(type(bound) in PLAIN_BOUNDS for bound in bounds) else slice(*map(unwrap, bounds))
    return unwrap(key)


PLAIN_BOUNDS = (int, type(None))


def takes_all(keys: tuple[Any, ...]) -> bool:
    """Return whether the keys select everything. Nothing else is compared, because ``==`` of a Tensor is elementwise."""
    return all(key is Ellipsis or (type(key) is slice and _is_number(key.start, 0) and key.stop is None and _is_number(key.step, 1)) for key in keys)


def _is_number(bound: Any, number: int) -> bool:
    return bound is None or (type(bound) is int and bound == number)


def plain_keys(keys: tuple[Any, ...], ndim: int, what: str, too_many: type[Exception]) -> tuple[Any, ...]:
    """Return one key per dimension, with Python ints for all integers; Operands that are not Tensors stay.

    Raise ValueError for a second Ellipsis or a step of zero, TypeError for an invalid index, ``too_many`` for more keys than dimensions.
    """
    ellipses = sum(key is Ellipsis for key in keys)
    if ellipses > 1:
        raise ValueError("Only one Ellipsis is allowed.")
    count = len(keys) - ellipses
    if count > ndim:
        raise too_many(f"Too many indices: the number of ranges ({count}) is greater than the number of dimensions of the {what} ({ndim})")
    at = next((k for k, key in enumerate(keys) if key is Ellipsis), len(keys))
    keys = (*keys[:at], *(slice(None),) * (ndim - count), *keys[at + 1 :])
    return tuple(_plain_slice(key, what) if isinstance(key, slice) else _as_index(key, what) for key in keys)


def _plain_slice(key: slice, what: str) -> slice:
    result = slice(*(None if bound is None else _as_index(bound, what) for bound in (key.start, key.stop, key.step)))
    if type(result.step) is int and result.step == 0:
        raise ValueError("slice step cannot be zero")
    return result


def _as_index(key: Any, what: str) -> Any:
    if type(key) is int or is_varying(key):
        return key
    try:
        return operator.index(key)
    except TypeError as error:
        kind = type(key).__name__
        reason = f" ({error})" if isinstance(key, Operand) else ""
        raise TypeError(f"a {what} is indexed with ints, slices and Ellipsis, not {kind}{reason}") from None


def is_varying(key: Any) -> bool:
    """Return whether a key is a Batch, which has one number per sample."""
    return isinstance(key, Operand) and hasattr(key, "batch_size")


def has_varying(keys: tuple[Any, ...], size: int) -> bool:
    """Return whether there is a Batch among the keys. Raise ValueError for another size, RuntimeError or TypeError for non-integers."""
    batches = [key for key in bounds(keys) if is_varying(key)]
    for key in batches:
        if key.batch_size != size:
            raise ValueError(f"Inconsistent batch size: {size} != {key.batch_size}")
        if key.ndim:
            raise RuntimeError(f"Array indices must be scalar: a Batch of indices has 0-d samples, not {key.ndim}-d ones")
        if key.dtype.is_floating_point:
            raise TypeError(f"samples are indexed with integers, not with a Batch of {key.dtype}")
    return bool(batches)


def to_numbers(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the keys with int64 tensors (N,) in place of Batches."""

    def numbers(key: Any) -> Any:
        return key.cpu().wait().reshape(-1).to(torch.int64) if is_varying(key) else key

    return tuple(slice(numbers(k.start), numbers(k.stop), numbers(k.step)) if isinstance(k, slice) else numbers(k) for k in keys)


def resolve_slice(key: slice, size: int) -> range:
    """Return the indices that a slice of numbers selects from ``size`` elements.

    ``range(*key.indices(size))`` would, but Dynamo of torch 2.11 cannot trace it.
    """
    step = 1 if key.step is None else key.step
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)

    def clamp(bound: int) -> int:
        return max(bound + size, lowest) if bound < 0 else min(bound, highest)

    first, last = (lowest, highest) if step > 0 else (highest, lowest)
    return range(first if key.start is None else clamp(key.start), last if key.stop is None else clamp(key.stop), step)


def window(shape: Iterable[int], keys: tuple[Any, ...]) -> Window:
    """Return the part that :func:`plain_keys` select from an array of this shape. Raise IndexError for an index out of range."""
    result = Window([], [], [])
    for axis, (size, key) in enumerate(zip(shape, keys, strict=True)):
        if isinstance(key, slice):
            indices = resolve_slice(key, size)
            extent = len(indices)
            result.starts.append(indices.start if extent else 0)
            result.steps.append(indices.step)
            result.extents.append(extent)
        else:
            # Negative numbers count from the end.
            index = key + size if key < 0 else key
            if not 0 <= index < size:
                raise IndexError(f"Index {index} is out of bounds for dimension {axis} with size {size}")
            result.starts.append(index)
            # A step of 0: the axis has one element, and is left out of the result.
            result.steps.append(0)
    return result


def windows(shapes: torch.Tensor, keys: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return :func:`window` of ragged samples, int64 (N, ndim): starts, steps and extents, int64 (N, ...). A key may be a tensor (N,)."""
    starts, steps, extents = [], [], []
    for axis, key in enumerate(keys):
        # Each line below is one operation for all samples, since a loop over them in Python would take microseconds each.
        size = shapes[:, axis]
        if not isinstance(key, slice):
            index = _count_from_start(size, key)
            _check_inside(index, size, axis)
            starts.append(index)
            steps.append(torch.zeros_like(size))
            continue
        if takes_all((key,)):
            starts.append(torch.zeros_like(size))
            steps.append(torch.ones_like(size))
            extents.append(size)
            continue
        start, step, extent = _range(size, key)
        starts.append(start)
        steps.append(step)
        extents.append(extent)
    rows = shapes.shape[0]

    def columns(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(parts, 1) if parts else torch.zeros((rows, 0), dtype=torch.int64, device="cpu")

    return columns(starts), columns(steps), columns(extents)


_FAR = 1 << 62  # beyond any extent, and its sum with one fits in 64 bits


def _range(size: torch.Tensor, key: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return first position, step and number of positions of a slice of axes with these sizes."""
    step = 1 if key.step is None else key.step
    if isinstance(step, int):
        # Backward slices begin at the last element and end before the first, at -1.
        back = int(step < 0)
        first, last = (size - 1, -torch.ones_like(size)) if back else (torch.zeros_like(size), size)
        sign, step = (-1 if back else 1), torch.full_like(size, step)
    else:
        if not is_compiling() and bool((step == 0).any()):
            raise ValueError("slice step cannot be zero")
        # Some samples forward, others backward.
        back = (step < 0).to(torch.int64)
        first, last = torch.where(step < 0, size - 1, 0), torch.where(step < 0, -1, size)
        sign = torch.sign(step)
    if key.start is not None:
        first = _within(_count_from_start(size, key.start), -back, size - back)
    if key.stop is not None:
        last = _within(_count_from_start(size, key.stop), -back, size - back)
    # The number of steps from first to last, rounded up: `step - sign` is the largest remainder.
    extent = (last - first + step - sign).div(step, rounding_mode="trunc").clamp(min=0)
    return torch.where(extent > 0, first, 0), step, extent


def _within(position: torch.Tensor, low: Any, high: torch.Tensor) -> torch.Tensor:
    position = position.clamp(min=low) if isinstance(low, int) else torch.maximum(position, low)
    return torch.minimum(position, high)


def _count_from_start(size: torch.Tensor, position: Any) -> torch.Tensor:
    """Return positions counted from the start, converting those that count from the end."""
    if isinstance(position, int):
        # Python accepts any integer as a bound; in int64 it would overflow.
        position = min(max(position, -_FAR), _FAR)
        return size + position if position < 0 else torch.full_like(size, position)
    return torch.where(position < 0, position + size, position)


def _check_inside(index: torch.Tensor, size: torch.Tensor, axis: int) -> None:
    if is_compiling():
        return
    wrong = (index < 0) | (index >= size)
    if bool(wrong.any()):
        i = int(wrong.to(torch.uint8).argmax())
        raise IndexError(f"Index {int(index[i])} is out of bounds for dimension {axis} with size {int(size[i])}, in sample {i} of the batch")


def whole(ndim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return starts and steps that select a whole sample."""
    return torch.zeros((1, ndim), dtype=torch.int64, device="cpu"), torch.ones((1, ndim), dtype=torch.int64, device="cpu")


def remaining_layout(layout: str | None, keys: tuple[Any, ...]) -> str | None:
    """Return the letters of the dimensions that no index drops."""
    if layout is None:
        return None
    return "".join(letter for letter, key in zip(layout, keys, strict=True) if isinstance(key, slice)) or None
