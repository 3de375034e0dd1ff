# SPDX-License-Identifier: Apache-2.0
"""Constant arrays and one-hot encodings."""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.definition import Launch
from ..._core.operators.operator import DeviceLike, Kept, KeptLike, ShapeArg, T, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._columns import Column, column_list, extents_of, first_failure, format_value, holds
from .._outputs import like
from ..generic.convert import cast


def _shape(op: str, shape: Any) -> list[Column]:
    """Return the checked extents."""
    extents = [] if shape is None else column_list(shape)
    for extent in extents:
        if isinstance(extent, tuple):
            raise TypeError(f"{op}: shape takes integers, got {format_value(shape)}")
        if not holds(extent >= 0):
            raise RuntimeError(f"{op}: shape must not be negative, got {format_value(shape)}")
    return [extent.to(torch.int64) if isinstance(extent, torch.Tensor) else extent for extent in extents]


def _empty_output(op: str, batch_size: int, extents: Sequence[Column], dtype: torch.dtype, device: torch.device, layout: str | None) -> Batch:
    if layout is not None and not isinstance(layout, str):
        raise TypeError(f"{op}: argument 'layout' must be str, got {layout!r}")
    if layout and len(layout) != len(extents):
        raise RuntimeError(f'{op}: Layout "{layout}" has {len(layout)} dimensions but output shape has {len(extents)} dimensions')
    return empty_batch(batch_size, extents, dtype, device, layout or None)


# Zeros and ones. Never dropped, because plans and captured CUDA graphs read them; keep_input() drops what it keeps.
_on_gpus: dict[tuple[int, torch.dtype, torch.device], torch.Tensor] = {}


def _constant(value: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zero or one as the kernels take it: a batch of one number. On a GPU the tensor is kept, so repeated calls pass the same one."""
    if device.type != "cuda" or is_compiling() or torch.cuda.is_current_stream_capturing():
        return torch.full((1,), value, dtype=dtype, device=device)
    if (found := _on_gpus.get((value, dtype, device))) is None:
        with torch.inference_mode(False):  # later calls may be outside of it
            found = torch.full((1,), value, dtype=dtype, device=device)
        torch.cuda.current_stream(device).synchronize()  # once: from now on all streams may read it
        _on_gpus[value, dtype, device] = found
    return found


def _fill(op: str, value: int, batch_size: int | None, device: Any, dtype: torch.dtype | None, layout: str | None, shape: Any) -> Launch:
    out = _empty_output(op, batch_size or 0, _shape(op, shape), dtype or torch.int32, device, layout)
    return launch(out, (_constant(value, out.dtype, out.buffer.device),))


@operator()
def zeros(
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    layout: str | None = None,
    shape: ShapeArg[Sequence[int]] | None = None,
) -> Any:
    """Return an array of zeros.

    Args:
        shape: its shape; by default a scalar.
        dtype: its dtype; by default int32.
        layout: its layout, one letter per dimension.

    Raises:
        RuntimeError: a negative extent, or a layout that does not fit.

    >>> zeros(shape=[2, 3]).torch().tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    return _fill("zeros", 0, batch_size, device, dtype, layout, shape)


@operator()
def ones(
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    layout: str | None = None,
    shape: ShapeArg[Sequence[int]] | None = None,
) -> Any:
    """Return an array of ones, with the arguments of :func:`zeros`.

    >>> ones(shape=3, dtype=torch.float32).torch()
    tensor([1., 1., 1.])
    """
    return _fill("ones", 1, batch_size, device, dtype, layout, shape)


@operator()
def full(
    fill_value: Kept[T],
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    layout: str | None = None,
    shape: ShapeArg[Sequence[int]] | None = None,
) -> T:
    """Return an array of one value, or of a smaller array broadcast as in NumPy.

    Args:
        fill_value: a number or an array; its type is the result's.
        shape: shape of the result, by default that of ``fill_value``.
        layout: layout of the result, one letter per dimension.

    Raises:
        RuntimeError: a shape that ``fill_value`` cannot be broadcast to, or a layout that does not fit.

    >>> full([1, 2], shape=[2, 2]).torch().tolist()
    [[1, 2], [1, 2]]
    """
    value = fill_value
    assert isinstance(value, Batch)
    extents = list(extents_of(value)) if shape is None else _shape("full", shape)
    _check_broadcast("full", value, extents)
    return launch(_empty_output("full", value.batch_size, extents, value.dtype, value.buffer.device, layout))


def _check_broadcast(op: str, value: Batch, extents: Sequence[Column]) -> None:
    value_extents = extents_of(value)
    fits: Any = len(value_extents) <= len(extents)
    for own, extent in zip(value_extents[::-1], extents[::-1], strict=False):
        fits = fits & ((own == extent) | (own == 1))
    if value.batch_size and not holds(fits):
        sample = first_failure(fits)
        shape = [int(e[sample if len(e) > 1 else 0]) if isinstance(e, torch.Tensor) else e for e in extents]
        raise RuntimeError(f"{op}: sample {sample}: a value of shape {value.shape[sample]} can't be broadcast to {tuple(shape)}")


@operator()
def zeros_like(data_like: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, dtype: torch.dtype | None = None) -> T:
    """Return zeros in the shape, layout and, unless ``dtype`` is given, type of another array.

    >>> zeros_like(torch.tensor([1.5, 2.5])).torch()
    tensor([0., 0.])
    """
    out = like(data_like, dtype)
    return launch(out, (_constant(0, out.dtype, out.buffer.device),), any_shape=True)


@operator()
def ones_like(data_like: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, dtype: torch.dtype | None = None) -> T:
    """Return ones in the shape, layout and, unless ``dtype`` is given, type of another array.

    >>> ones_like(torch.tensor([1.5, 2.5]), dtype=torch.int32).torch()
    tensor([1, 1], dtype=torch.int32)
    """
    out = like(data_like, dtype)
    return launch(out, (_constant(1, out.dtype, out.buffer.device),), any_shape=True)


@operator()
def full_like(data_like: T, fill_value: KeptLike[Any], /, *, batch_size: int | None = None, device: DeviceLike | None = None) -> T:
    """Return one value, or a smaller array broadcast as in NumPy, in the shape, layout and type of another array.

    Args:
        data_like: the array.
        fill_value: a number or an array, converted like :func:`cast`.

    Raises:
        RuntimeError: a shape that ``fill_value`` cannot be broadcast to.

    >>> full_like(torch.zeros(2, 2), 7).torch()
    tensor([[7., 7.],
            [7., 7.]])
    """
    assert isinstance(data_like, Batch)
    _check_broadcast("full_like", fill_value, extents_of(data_like))
    if fill_value.dtype is data_like.dtype:
        return launch(like(data_like), any_shape=fill_value.ndim == 0)
    return launch(like(data_like), inputs=(data_like, cast(fill_value, dtype=data_like.dtype)))


@operator()
def one_hot(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axis: int = -1,
    axis_name: str | None = None,
    dtype: torch.dtype | None = None,
    num_classes: int = 0,
    off_value: float = 0.0,
    on_value: float = 1.0,
) -> T:
    """Encode one-hot: ``out[..., c] = on_value if input[...] == c else off_value``. A number that is not a class has no ``on_value``.

    Args:
        input: class indices; fractions are truncated. A sample of one number is treated as a scalar unless ``axis`` is given.
        num_classes: extent of the new axis.
        axis: position of the new axis in the result, -1 for the end.
        axis_name: letter of the new axis. Without one the result has no layout.
        on_value, off_value: the two values; rounded half away from zero and saturated for integers.
        dtype: type of the result; by default float32.

    Raises:
        RuntimeError: an axis out of range, a negative number of classes, a letter for data without a layout.

    >>> one_hot([1, 0], num_classes=3).torch()
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    classes = input
    assert isinstance(classes, Batch)
    if num_classes < 0:
        raise RuntimeError(f"one_hot: num_classes must not be negative, got {num_classes}")
    if axis_name is not None and (not isinstance(axis_name, str) or len(axis_name) != 1):
        kind = RuntimeError if isinstance(axis_name, str) else TypeError
        raise kind(f"one_hot: axis_name must be a single letter, got {axis_name!r}")
    extents = list(extents_of(classes))
    layout = classes.layout or ""
    if axis == -1 and extents and classes.ragged_shapes is None and classes.buffer[0:1].numel() == min(1, classes.batch_size):
        extents, layout = [], ""  # like DALI
    if not -1 <= axis <= len(extents):
        raise RuntimeError(f"one_hot: axis={axis} is outside of the allowed range, from -1 to {len(extents)}")
    at = len(extents) if axis < 0 else axis
    if axis_name is not None and len(layout) != len(extents):
        raise RuntimeError("one_hot: axis_name needs an input with a layout")
    named = layout[:at] + axis_name + layout[at:] if axis_name is not None else None
    out = empty_batch(classes.batch_size, [*extents[:at], num_classes, *extents[at:]], dtype or torch.float32, classes.buffer.device, named)
    return launch(out, (at, num_classes, on_value, off_value))
