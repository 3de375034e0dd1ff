# SPDX-License-Identifier: Apache-2.0
"""Numbers that sum up a sample along some of its dimensions."""

from collections.abc import Sequence
from typing import Any

import torch

from .._batch import Batch, empty_batch
from .._operator import DeviceLike, Launch, T, operator


@operator(name="reductions.mean", kernel="int axes")
def mean(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    keep_dims: bool = False,
    dtype: torch.dtype | None = None,
) -> Any:
    """The arithmetic mean over some axes of every sample, by default over all.

    Sums are exact for integers of at most 32 bits and made in double for all others. The mean of nothing is NaN, as an integer 0.

    Args:
        input: any numeric type and number of dimensions.
        axes: number of an axis or several; negative ones count from the end. ``[]`` reduces nothing.
        axis_names: the same as letters of the layout: ``HW``.
        keep_dims: keep the reduced axes with extent 1, and the layout.
        dtype: type of the result, by default float32; integers are cut off.

    Raises:
        IndexError: no such axis.
        ValueError: an axis is given twice.
        RuntimeError: a letter that the layout has not, or ``axes`` and ``axis_names`` together.

    >>> mean(torch.tensor([[1, 2], [3, 5]], dtype=torch.uint8), axes=0).torch()
    tensor([2.0000, 3.5000])
    """
    reduced = _reduced_axes("reductions.mean", input, axes, axis_names)
    out = _unfilled(input, reduced, keep_dims, dtype or torch.float32)
    return Launch(out, [sum(1 << axis for axis in reduced)])


def _reduced_axes(op: str, input: Any, axes: Any, axis_names: Any) -> list[int]:
    ndim = input.ndim
    if axis_names is not None:
        if axes is not None:
            raise RuntimeError(f"{op}: axes and axis_names are mutually exclusive")
        if not isinstance(axis_names, str):
            raise TypeError(f"{op}: axis_names must be letters of the layout, got {axis_names!r}")
        for letter in axis_names:
            if letter not in (input.layout or ""):
                raise RuntimeError(f"{op}: Axis '{letter}' is not present in the input layout {input.layout!r}")
        axes = [(input.layout or "").index(letter) for letter in axis_names]
    if axes is None:
        return list(range(ndim))
    reduced: list[int] = []
    given: Sequence[Any] = axes if isinstance(axes, list | tuple | range) else [axes]
    for axis in given:
        if isinstance(axis, bool) or not hasattr(axis, "__index__") or hasattr(axis, "__len__"):
            raise TypeError(f"{op}: axes must be ints, got {axes!r}")
        if not -ndim <= axis < ndim:
            raise IndexError(f"{op}: axes: Axis index out of range: {axis} not in range [{-ndim},{ndim - 1}]")
        if axis % ndim in reduced:
            raise ValueError(f"{op}: axes: Duplicate axis index {axis}")
        reduced.append(int(axis) % ndim)
    return reduced


def _unfilled(input: Any, reduced: list[int], keep_dims: bool, dtype: torch.dtype) -> Batch:
    extents = list(input._values.shape[1:]) if input._shapes is None else list(input._shapes.unbind(1))
    shape: list[int | torch.Tensor] = [1 if axis in reduced else n for axis, n in enumerate(extents) if keep_dims or axis not in reduced]
    layout = input._layout
    if layout and not keep_dims:
        layout = "".join(letter for axis, letter in enumerate(layout) if axis not in reduced) or None
    return empty_batch(input.batch_size, shape, dtype, input._values.device, layout)
