# SPDX-License-Identifier: Apache-2.0
"""Reductions of samples along some of their dimensions."""

from collections.abc import Sequence
from typing import Any

import torch

from .._core.operators.operator import DeviceLike, T, launch, operator
from .._core.values.batch import Batch, empty_batch
from ._columns import extents_of


@operator(name="reductions.mean")
def mean(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    dtype: torch.dtype | None = None,
    keep_dims: bool = False,
) -> Any:
    """Compute the arithmetic mean of every sample over some axes, by default over all.

    Sums are exact for integers of at most 32 bits and computed in double otherwise. The mean of no elements is NaN, or 0 as an integer.

    Args:
        input: any numeric type and number of dimensions.
        axes: one or several axes; negative axes count from the end. ``[]`` reduces nothing.
        axis_names: the axes as letters of the layout: ``HW``.
        keep_dims: keep the reduced axes with extent 1, and the layout.
        dtype: type of the result, by default float32; integers are truncated.

    Raises:
        IndexError: an axis out of range.
        ValueError: a repeated axis.
        RuntimeError: a letter that is not in the layout, or ``axes`` and ``axis_names`` together.

    >>> mean(torch.tensor([[1, 2], [3, 5]], dtype=torch.uint8), axes=0).torch()
    tensor([2.0000, 3.5000])
    """
    return _launch("reductions.mean", input, axes, axis_names, keep_dims, dtype or torch.float32)


@operator(name="reductions.sum")
def sum(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    dtype: torch.dtype | None = None,
    keep_dims: bool = False,
) -> Any:
    """Sum every sample over some axes, by default over all. Integers are added exactly, modulo 2**64, all others in double.

    Args:
        input: any numeric type and number of dimensions.
        axes, axis_names, keep_dims: see :func:`mean`.
        dtype: type of the result, by default uint64 for unsigned integers and bool, int64 for signed ones, float32 for float16 and bfloat16, else the
            input's. Values are saturated, fractions truncated.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`mean`.

    >>> sum(torch.tensor([[1, 2], [3, 5]], dtype=torch.uint8), axes=0).torch()
    tensor([4, 7], dtype=torch.uint64)
    """
    return _launch("reductions.sum", input, axes, axis_names, keep_dims, dtype or _sum_type(input.dtype))  # type: ignore[attr-defined]


def _sum_type(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point:
        return torch.float32 if dtype.itemsize == 2 else dtype
    return torch.int64 if dtype.is_signed else torch.uint64


@operator(name="reductions.min")
def min(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    keep_dims: bool = False,
) -> Any:
    """Return the smallest element of every sample over some axes, by default over all, ignoring NaN; infinity or the type's maximum if there is none.

    Args:
        input: any numeric type and number of dimensions; the result has its type.
        axes, axis_names, keep_dims: see :func:`mean`.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`mean`.

    >>> min(torch.tensor([[1, 5], [3, 2]], dtype=torch.uint8), axes=0).torch()
    tensor([1, 2], dtype=torch.uint8)
    """
    return _launch("reductions.min", input, axes, axis_names, keep_dims, input.dtype)  # type: ignore[attr-defined]


@operator(name="reductions.max")
def max(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    keep_dims: bool = False,
) -> Any:
    """Return the largest element of every sample over some axes, by default over all, ignoring NaN; -infinity or the type's minimum if there is none.

    Args:
        input: any numeric type and number of dimensions; the result has its type.
        axes, axis_names, keep_dims: see :func:`mean`.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`mean`.

    >>> max(torch.tensor([[1, 5], [3, 2]], dtype=torch.uint8), axes=0).torch()
    tensor([3, 5], dtype=torch.uint8)
    """
    return _launch("reductions.max", input, axes, axis_names, keep_dims, input.dtype)  # type: ignore[attr-defined]


@operator(name="reductions.mean_square")
def mean_square(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    dtype: torch.dtype | None = None,
    keep_dims: bool = False,
) -> Any:
    """Compute the mean square of every sample over some axes, by default over all.

    Sums are exact for integers of at most 16 bits and computed in double otherwise. The mean of no elements is NaN, or 0 as an integer.

    Args:
        input: any numeric type and number of dimensions.
        axes, axis_names, keep_dims: see :func:`mean`.
        dtype: type of the result, by default float32; integers are truncated.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`mean`.

    >>> mean_square(torch.tensor([[1, 2], [3, 5]], dtype=torch.uint8), axes=0).torch()
    tensor([ 5.0000, 14.5000])
    """
    return _launch("reductions.mean_square", input, axes, axis_names, keep_dims, dtype or torch.float32)


@operator(name="reductions.rms")
def rms(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    dtype: torch.dtype | None = None,
    keep_dims: bool = False,
) -> Any:
    """Compute the root mean square of every sample over some axes, by default over all. See :func:`mean_square`.

    Args:
        input: any numeric type and number of dimensions.
        axes, axis_names, keep_dims: see :func:`mean`.
        dtype: type of the result, by default float32; integers are truncated.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`mean`.

    >>> rms(torch.tensor([[1, 2], [7, 2]], dtype=torch.uint8), axes=0).torch()
    tensor([5., 2.])
    """
    return _launch("reductions.rms", input, axes, axis_names, keep_dims, dtype or torch.float32)


@operator(name="reductions.variance")
def variance(
    data: T,
    mean: Any,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    ddof: int = 0,
    keep_dims: bool = False,
) -> Any:
    """Compute the variance of every sample about a given mean over some axes: ``sum((data - mean) ** 2) / (N - ddof)``, in double.

    Args:
        data: any numeric type and number of dimensions; the result is float32.
        mean: a number, or one per element of the result: a result of :func:`mean`, with or without ``keep_dims``.
        axes, axis_names, keep_dims: see :func:`mean`.
        ddof: degrees of freedom to subtract from the number of elements.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`mean`; RuntimeError for a mean of another size.

    >>> variance(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), [2.0, 3.5], axes=0).torch()
    tensor([1.0000, 2.2500])
    """
    return _launch("reductions.variance", data, axes, axis_names, keep_dims, torch.float32, _degrees("reductions.variance", ddof))


@operator(name="reductions.std_dev")
def std_dev(
    data: T,
    mean: Any,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any = None,
    axis_names: Any = None,
    ddof: int = 0,
    keep_dims: bool = False,
) -> Any:
    """Compute the standard deviation of every sample about a given mean over some axes, the square root of :func:`variance`.

    Args:
        data, mean, axes, axis_names, keep_dims, ddof: see :func:`variance`.

    Raises:
        IndexError, ValueError, RuntimeError: see :func:`variance`.

    >>> std_dev(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), [2.0, 3.5], axes=0).torch()
    tensor([1.0000, 1.5000])
    """
    return _launch("reductions.std_dev", data, axes, axis_names, keep_dims, torch.float32, _degrees("reductions.std_dev", ddof))


def _degrees(op: str, ddof: int) -> int:
    if abs(ddof) >= 2**31:
        raise ValueError(f"{op}: ddof is out of range: {ddof}")
    return int(ddof)


def _launch(op: str, input: Any, axes: Any, axis_names: Any, keep_dims: bool, dtype: torch.dtype, *arguments: int) -> Any:
    reduced = reduced_axes(op, input, axes, axis_names)
    bits = 0
    # Not with sum(), which is a reduction in this module.
    for axis in reduced:
        bits |= 1 << axis
    return launch(_empty_output(input, reduced, keep_dims, dtype), [bits, *arguments])


def reduced_axes(op: str, input: Any, axes: Any, axis_names: Any) -> list[int]:
    """Return the axes that a reduction is along, from their numbers or names; all of them by default."""
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
    numbers: Sequence[Any] = axes if isinstance(axes, list | tuple | range) else [axes]
    for axis in numbers:
        # Arrays and tensors of one element have __index__ too; a bool is an int.
        if isinstance(axis, bool) or not hasattr(axis, "__index__") or hasattr(axis, "__len__"):
            raise TypeError(f"{op}: axes must be ints, got {axes!r}")
        if not -ndim <= axis < ndim:
            raise IndexError(f"{op}: axes: Axis index out of range: {axis} not in range [{-ndim},{ndim - 1}]")
        if axis % ndim in reduced:
            raise ValueError(f"{op}: axes: Duplicate axis index {axis}")
        reduced.append(int(axis) % ndim)
    return reduced


def _empty_output(input: Any, reduced: list[int], keep_dims: bool, dtype: torch.dtype) -> Batch:
    shape = [1 if axis in reduced else n for axis, n in enumerate(extents_of(input)) if keep_dims or axis not in reduced]
    layout = input.layout
    if layout and not keep_dims:
        layout = "".join(letter for axis, letter in enumerate(layout) if axis not in reduced) or None
    return empty_batch(input.batch_size, shape, dtype, input.buffer.device, layout)
