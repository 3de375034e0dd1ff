# SPDX-License-Identifier: Apache-2.0
"""Normalization by mean and standard deviation."""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import AsGiven, DeviceLike, T, launch, operator
from ..._core.values.batch import Batch
from ..._core.values.operand import Operand
from .._axes import named_axes, numbered_axes
from .._formulas import on_cpu, saturate
from .._outputs import like

Shape = tuple[int, ...]


def _formula(
    input: torch.Tensor,
    mean: torch.Tensor | None,
    mean_rows: int,
    stddev: torch.Tensor | None,
    stddev_rows: int,
    axes: int,
    batch: bool,
    ddof: int,
    epsilon: float,
    scale: float,
    shift: float,
    *,
    dtype: torch.dtype,
) -> torch.Tensor | None:
    if mean is not None or stddev is not None or input.numel() == 0 or input.dtype is torch.uint64:
        return None  # the kernel reads the shapes of parameters
    if on_cpu(input):
        return None  # Inductor does not vectorize float64: 21 ms where the kernel takes 1
    dims = [d for d in range(input.dim()) if (d == 0 and batch) or (d > 0 and axes >> (d - 1) & 1)]
    values = input.double()
    centered = values - values.mean(dims, keepdim=True)
    count = 1
    for d in dims:
        count *= input.shape[d]
    squares = centered.square().sum(dims, keepdim=True)
    variance = (squares / (count - ddof) if count > ddof else torch.zeros_like(squares)) + epsilon
    factor = torch.where(variance == 0, 0.0, scale / variance.sqrt())
    return saturate((centered * factor + shift).float(), dtype)


def _parameter(name: str, value: Any) -> tuple[torch.Tensor, list[Shape]] | None:
    """Return the numbers of ``mean`` or ``stddev`` and their shape, common to all samples or per sample."""
    if value is None:
        return None
    if isinstance(value, Batch):
        return value.cpu().wait().reshape(-1).float(), value.shape
    if isinstance(value, Operand):
        values = value.cpu().wait()  # type: ignore[attr-defined]
    else:
        try:
            values = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"normalize: argument {name!r} must be numbers, a Tensor or a Batch, got {value!r}") from None
        # A copy, since the caller may change the array before the kernel runs.
        values = values.detach().cpu().clone()
    return values.reshape(-1).float(), [tuple(values.shape)]


def _is_number(shapes: Sequence[Shape]) -> bool:
    return all(n == 1 for shape in shapes for n in shape) and len({len(shape) for shape in shapes}) == 1


def _axes(images: Batch, axes: Any, axis_names: Any, parameters: list[tuple[torch.Tensor, list[Shape]] | None]) -> tuple[int, ...]:
    """Return the axes to reduce: those given, or those in which the parameters have one element, or all."""
    if axes is not None and axis_names is not None:
        raise RuntimeError("normalize: axes and axis_names are mutually exclusive")
    if axis_names is not None:
        if not isinstance(axis_names, str):
            raise TypeError(f"normalize: axis_names must be letters of the layout, got {axis_names!r}")
        found = named_axes("normalize", axis_names, images.layout or "")
    elif axes is not None:
        found = numbered_axes("normalize", axes if isinstance(axes, int) else list(axes) if isinstance(axes, Sequence) else axes, images.ndim)
    else:
        for parameter in parameters:
            # Parameters show by their extents of 1 along which axes they are equal.
            if parameter is not None and not _is_number(parameter[1]) and len(parameter[1][0]) == images.ndim:
                return tuple(d for d in range(images.ndim) if all(shape[d] == 1 for shape in parameter[1]))
        return tuple(range(images.ndim))
    if not found:
        raise RuntimeError("normalize: axes and axis_names must name at least one axis")
    if len(set(found)) < len(found):
        raise RuntimeError(f"normalize: an axis is given twice: {axes or axis_names!r}")
    return found


def _check_shape(name: str, parameter: tuple[torch.Tensor, list[Shape]] | None, images: Batch, axes: Shape) -> None:
    if parameter is None or _is_number(parameter[1]):
        return
    rows = parameter[1]
    for i, sample in enumerate(images.shape):
        shape, expected = rows[i if len(rows) > 1 else 0], tuple(1 if d in axes else n for d, n in enumerate(sample))
        if shape != expected:
            text = f"normalize: {name} of sample {i} must be one number or have the shape {expected}, got {shape}"
            if len(shape) == 1 < images.ndim:
                channels = (images.layout or "").find("C") % images.ndim  # the last axis where there is no C
                text += f"; values along axis {channels} have the shape {tuple(n if d == channels else 1 for d, n in enumerate(sample))}"
            raise RuntimeError(text)


@operator(formula=_formula)
def normalize(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: int | Sequence[int] | None = None,
    axis_names: str | None = None,
    batch: bool = False,
    ddof: int = 0,
    dtype: torch.dtype | None = torch.float32,
    epsilon: float = 0.0,
    mean: AsGiven[Any] = None,
    scale: float = 1.0,
    shift: float = 0.0,
    stddev: AsGiven[Any] = None,
) -> T:
    """Subtract the mean and divide by the standard deviation: ``out = scale * (in - mean) / stddev + shift``.

    Parameters that are not given are computed from the data: ``mean`` over the axes, ``stddev = sqrt(sum((in - mean)^2) / (n - ddof) + epsilon)``
    with n the number of elements. Constant data becomes ``shift``.

    Args:
        input: any numeric type, shape and layout.
        axes: axes over which to compute mean and standard deviation; by default those in which a given ``mean`` or ``stddev`` has one element, else
            all.
        axis_names: the axes as letters of the layout: ``HW``.
        batch: compute them over all samples; the other axes must have equal extents in all samples, and ``mean`` and ``stddev`` must be single
            numbers.
        ddof: degrees of freedom to subtract from n. If none remain, the variance counts as 0; without an epsilon the result is then ``shift``.
        dtype: type of the result, by default float32; integers are rounded half away from zero and saturated.
        epsilon: added to the variance, also to the square of a given ``stddev``.
        mean: a number, or a tensor with the input's dimensions, in which the reduced ones have extent 1; for all samples, or a Batch.
        scale: standard deviation of the result.
        shift: mean of the result.
        stddev: given like ``mean``.

    Raises:
        RuntimeError: an axis out of range, ``axes`` and ``axis_names`` together, or parameters that do not have the shape of the reduced samples.

    >>> normalize(torch.tensor([[1, 2], [3, 6]], dtype=torch.uint8), axes=0, scale=10, shift=50).torch()
    tensor([[40., 40.],
            [60., 60.]])
    """
    images: Batch = input  # type: ignore[assignment]
    parameters = [_parameter("mean", mean), _parameter("stddev", stddev)]
    reduced = _axes(images, axes, axis_names, parameters)
    if batch:
        if any(parameter is not None and not _is_number(parameter[1]) for parameter in parameters):
            raise RuntimeError("normalize: with batch=True mean and stddev must be single numbers")
        images.wait()  # the statistics need all samples
    if not is_compiling():
        for name, parameter in zip(("mean", "stddev"), parameters, strict=True):
            _check_shape(name, parameter, images, reduced)
    args: list[Any] = []
    for parameter in parameters:
        args += [None, 0] if parameter is None else [parameter[0], len(parameter[1])]
    bits = sum(1 << axis for axis in reduced)
    return launch(like(images, dtype), [*args, bits, batch, ddof, epsilon, scale, shift], mixes=batch)
