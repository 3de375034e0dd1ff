# SPDX-License-Identifier: Apache-2.0
"""Joining arrays: ``cat`` and ``stack``."""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core.operators.operator import DeviceLike, T, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._columns import Column, choose, extents_of, first_failure, holds, product, sample_shape


def _check_alike(op: str, arrays: Sequence[Batch]) -> None:
    first = arrays[0]
    for k, array in enumerate(arrays):
        if array.dtype is not first.dtype or array.ndim != first.ndim:
            raise RuntimeError(
                f"{op}: All inputs must have the same type and number of dimensions, but input 0 is {first.dtype} with {first.ndim}, "
                f"input {k} is {array.dtype} with {array.ndim}"
            )


def _axis_of(op: str, axis: int, axis_name: Any, ndim: int, layout: str) -> int:
    if axis_name is not None and (not isinstance(axis_name, str) or len(axis_name) != 1):
        kind = RuntimeError if isinstance(axis_name, str) else TypeError
        raise kind(f"{op}: axis_name must be a single letter, got {axis_name!r}")
    if axis_name is not None and op == "cat":
        if axis_name not in layout:
            raise RuntimeError(f'cat: axis_name: there is no axis {axis_name!r} in the layout "{layout}"')
        return layout.index(axis_name)
    if not -ndim <= axis < ndim:
        raise RuntimeError(f"{op}: axis={axis} is out of range: from {-ndim} to {ndim - 1}, with negative indices being counted from the back")
    return axis % ndim


def _cat_formula(inputs: list[torch.Tensor], axis: int, *, dtype: torch.dtype) -> torch.Tensor:
    del dtype
    return torch.cat(inputs, axis + 1)


def _stack_formula(inputs: list[torch.Tensor], axis: int, *, dtype: torch.dtype) -> torch.Tensor:
    del dtype
    return torch.stack(inputs, axis + 1)


@operator(formula=_cat_formula)
def cat(
    input_0: T,
    /,
    *inputs: T,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axis: int = 0,
    axis_name: str | None = None,
) -> T:
    """Concatenate along an axis.

    Args:
        input_0, inputs: arrays of the same type and number of dimensions, with equal extents except along the axis. An empty input whose extents do
            not fit is left out.
        axis: the axis; negative axes count from the end.
        axis_name: the axis as a letter of the first input's layout.

    Returns:
        The concatenated inputs, with the first one's layout.

    Raises:
        RuntimeError: types or shapes that do not fit, an axis out of range, ``axis`` and ``axis_name`` together.

    >>> cat([1, 2], [3]).torch()
    tensor([1, 2, 3], dtype=torch.int32)
    """
    arrays: list[Batch] = [input_0, *inputs]  # type: ignore[list-item]
    if axis and axis_name is not None:
        raise RuntimeError("cat: axis and axis_name are mutually exclusive")
    _check_alike("cat", arrays)
    first = arrays[0]
    at = _axis_of("cat", axis, axis_name, first.ndim, first.layout or "")
    extents = [extents_of(array) for array in arrays]
    reference = extents[0]
    for shape in reversed(extents):  # of every sample, the first one with elements
        reference = tuple(choose(product(shape) != 0, extent, other) for extent, other in zip(shape, reference, strict=True))
    total: Column = 0
    for k, shape in enumerate(extents):
        fits: Any = True
        for d, (extent, expected) in enumerate(zip(shape, reference, strict=True)):
            fits = fits & (extent == expected) if d != at else fits
        allowed = fits | (product(shape) == 0)
        if not holds(allowed):
            sample = first_failure(allowed)
            raise RuntimeError(
                f"cat: sample {sample}: Concatenated tensors can differ in size only along axis {at}, "
                f"but one has the shape {sample_shape(reference, sample)}, input {k} {sample_shape(shape, sample)}"
            )
        total = total + choose(fits, shape[at], 0)
    out = empty_batch(first.batch_size, [*reference[:at], total, *reference[at + 1 :]], first.dtype, first.buffer.device, first.layout)
    # torch.cat does not accept inputs without elements whose other extents differ.
    fusable = all(shape[:at] + shape[at + 1 :] == reference[:at] + reference[at + 1 :] for shape in extents) if out.ragged_shapes is None else False
    return launch(out, (at,), fusable=fusable)


@operator(formula=_stack_formula)
def stack(
    input_0: T,
    /,
    *inputs: T,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axis: int = 0,
    axis_name: str | None = None,
) -> T:
    """Stack along a new axis.

    Args:
        input_0, inputs: arrays of the same type and shape.
        axis: position of the new axis in the result; negative axes count from the end.
        axis_name: letter of the new axis. Without one the result has no layout.

    Raises:
        RuntimeError: types or shapes that do not fit, an axis out of range, a letter for data without a layout.

    >>> stack([1, 2], [3, 4], axis=1).torch()
    tensor([[1, 3],
            [2, 4]], dtype=torch.int32)
    """
    arrays: list[Batch] = [input_0, *inputs]  # type: ignore[list-item]
    _check_alike("stack", arrays)
    first = arrays[0]
    at = _axis_of("stack", axis, axis_name, first.ndim + 1, "")
    layout = None
    if axis_name is not None:
        if first.ndim and not first.layout:
            raise RuntimeError("stack: axis_name needs an input with a layout")
        layout = (first.layout or "")[:at] + axis_name + (first.layout or "")[at:]
    extents = extents_of(first)
    for k, array in enumerate(arrays[1:], 1):
        for expected, extent in zip(extents, extents_of(array), strict=True):
            if not holds(extent == expected):
                sample = first_failure(extent == expected)
                shapes = sample_shape(extents, sample), sample_shape(extents_of(array), sample)
                raise RuntimeError(f"stack: sample {sample}: all inputs must have the same shape, but input 0 has {shapes[0]}, input {k} {shapes[1]}")
    shape = [*extents[:at], len(arrays), *extents[at:]]
    return launch(empty_batch(first.batch_size, shape, first.dtype, first.buffer.device, layout), (at,))
