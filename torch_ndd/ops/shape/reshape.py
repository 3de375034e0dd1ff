# SPDX-License-Identifier: Apache-2.0
"""Reshaping, reordering and copying elements."""

import os
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, ShapeArg, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, empty_batch, new_batch
from .._axes import axes_of_samples
from .._columns import (
    Column,
    at_sample,
    choose,
    column_list,
    extents_of,
    first_failure,
    format_value,
    holds,
    in_sample,
    nearest,
    product,
    rows,
    sample_shape,
    whole,
)
from .._outputs import like


def _transpose_formula(input: torch.Tensor, order: str, *, dtype: torch.dtype) -> torch.Tensor:
    del dtype
    return input.permute(0, *(1 + int(axis) for axis in order)).contiguous()


@operator(formula=_transpose_formula)
def transpose(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    output_layout: str | None = None,
    perm: Any = None,
    transpose_layout: bool = True,
) -> T:
    """Permute the axes: axis ``d`` of the result is axis ``perm[d]`` of the input.

    Args:
        input: any type, at most 8 dimensions.
        perm: a permutation of the axes; by default all of them in reverse.
        transpose_layout: permute the letters of the layout too.
        output_layout: the result's layout, instead of one derived from the input's.

    Raises:
        RuntimeError: ``perm`` is not a permutation, or ``output_layout`` does not have one letter per axis.

    >>> transpose(torch.arange(6).reshape(1, 2, 3), perm=[2, 0, 1]).torch()
    tensor([[[0, 3]],
    <BLANKLINE>
            [[1, 4]],
    <BLANKLINE>
            [[2, 5]]])
    """
    arrays = input
    assert isinstance(arrays, Batch)
    layout, ndim = arrays.layout, arrays.ndim
    if output_layout is not None and (not isinstance(output_layout, str) or len(output_layout) != ndim):
        kind = RuntimeError if isinstance(output_layout, str) else TypeError
        raise kind(f"transpose: output_layout={output_layout!r} must have a letter for each of the {ndim} axes")
    # Reversed by default, as in NumPy.
    order = _permutation(perm, ndim) if perm is not None else list(range(ndim))[::-1]
    if output_layout is not None:
        layout = output_layout
    elif transpose_layout and layout:
        layout = "".join(layout[axis] for axis in order)
    extents = extents_of(arrays)
    out = empty_batch(arrays.batch_size, [extents[axis] for axis in order], arrays.dtype, arrays.buffer.device, layout or None)
    return launch(out, ("".join(map(str, order)),))


def _permutation(perm: Any, ndim: int) -> list[int]:
    if not isinstance(perm, list | tuple | range) or not all(isinstance(p, int | float) and float(p).is_integer() for p in perm):
        raise TypeError(f"transpose: perm must be a list of ints, got {perm!r}")
    if sorted(perm) != list(range(ndim)):
        raise RuntimeError(f"transpose: perm={list(perm)} is not a permutation of the {ndim} axes 0 to {ndim - 1}")
    return [int(p) for p in perm]


def _as_view(input: Batch, shape: Sequence[Column], layout: str | None, dtype: torch.dtype | None = None) -> Batch:
    """Return a view of the same memory with other extents and possibly another type."""
    values = input.buffer
    # Other types need memory aligned for them, which a part of a larger buffer may lack.
    if dtype is not None and dtype is not values.dtype:
        if is_compiling():
            misaligned = dtype.itemsize > values.element_size()  # it may be: torch 2.11 does not know the offset in a graph
        else:
            misaligned = values.storage_offset() * values.element_size() % dtype.itemsize != 0
        if misaligned:
            values = input.wait().clone()  # a sample of a ragged batch that is misaligned for the type
        values = values.reshape(-1).view(dtype)
    is_dense = input.ragged_shapes is None
    for extent in shape:  # a generator would take 0.5 us of the 11 of a view
        if isinstance(extent, torch.Tensor):
            is_dense = False
    if is_dense:
        return new_batch(values.view(input.batch_size, *shape), None, layout)
    table = rows(shape) if shape else torch.empty((input.batch_size, 0), dtype=torch.int64)
    table = table.expand(input.batch_size, len(shape)).contiguous()
    view = new_batch(
        values.reshape(-1), table, layout, shared_extents=tuple(None if isinstance(extent, torch.Tensor) else extent for extent in shape)
    )
    # Samples of different shapes may have equal ones now.
    return view if is_compiling() else view.densify()


def _reshape(
    op: str, data: Batch, shape_input: Any, shape: Any, rel_shape: Any, src_dims: Any, layout: str | None, dtype: torch.dtype | None
) -> Batch:
    forms = [name for name, value in (("shape by position", shape_input), ("shape", shape), ("rel_shape", rel_shape)) if value is not None]
    if len(forms) > 1:
        raise RuntimeError(f"{op}: {' and '.join(forms)} are mutually exclusive")
    if not forms and src_dims is None and layout is None and dtype is None:
        raise RuntimeError(f"{op}: nothing to do: give a shape, a layout" + (" or a dtype" if op == "reinterpret" else ""))
    if layout is not None and not isinstance(layout, str):
        raise TypeError(f"{op}: layout must be a str, got {layout!r}")
    if isinstance(shape_input, torch.Tensor) and shape_input.is_floating_point():
        raise RuntimeError(f"{op}: the shape by position must have integral type, got {shape_input.dtype}")
    extents = extents_of(data)
    in_bytes, out_bytes = data.dtype.itemsize, (dtype or data.dtype).itemsize
    requested: list[Column]
    if shape_input is not None or shape is not None:
        requested = [whole(extent) for extent in column_list(shape if shape is not None else shape_input)]
    elif rel_shape is not None:
        requested = _relative_shape(op, data, extents, column_list(rel_shape), src_dims)
    else:
        requested = _source_extents(op, data, extents, column_list(src_dims)) if src_dims is not None else list(extents)
        if out_bytes != in_bytes:
            requested = _count_in_items(op, requested, in_bytes, out_bytes)
    if any(isinstance(extent, tuple) for extent in requested):
        raise TypeError(f"{op}: the shape must be a list of numbers")
    # Last, because the extent that is left open follows from all others.
    requested = _without_wildcard(op, extents, requested, in_bytes, out_bytes)
    if layout is None:
        layout = data.layout if len(requested) == data.ndim else None
    elif layout and len(layout) != len(requested):
        raise RuntimeError(f'{op}: layout "{layout}" is not compatible with a shape of {len(requested)} dimensions')
    return _as_view(data, requested, layout or None, dtype)


def _source_extents(op: str, data: Batch, extents: Sequence[Column], sources: Sequence[Column]) -> list[Column]:
    """Return the extents selected by ``src_dims``; -1 is a new axis."""
    for k, source in enumerate(sources):
        if not holds((source >= -1) & (source < data.ndim)):
            raise RuntimeError(f"{op}: src_dims[{k}] is out of bounds: axes of the input are 0 to {data.ndim - 1}, -1 inserts a new one")
    # Columns of the input, chosen without a table: the usual case.
    if not any(isinstance(source, torch.Tensor) for source in sources):
        return [1 if source < 0 else extents[int(source)] for source in sources]
    # Column `ndim` of the table has the extent 1 of a new axis.
    table = rows([*extents, 1]).expand(data.batch_size, -1)
    places = rows([choose(whole(source) < 0, data.ndim, whole(source)) for source in sources]).expand(data.batch_size, -1)
    return list(table.gather(1, places).unbind(1))


def _relative_shape(op: str, data: Batch, extents: Sequence[Column], factors: Sequence[Column], src_dims: Any) -> list[Column]:
    if src_dims is None:
        added = len(factors) - data.ndim
        if added == 1 and not isinstance(factors[-1], tuple) and holds(factors[-1] < 0):
            extents = [*extents, 1]  # a wildcard after the axes of the input is an axis of its own
        elif added > 0:
            raise RuntimeError(f"{op}: rel_shape has {len(factors)} values for an input of {data.ndim} dimensions; src_dims adds new axes")
        sources: Sequence[Column] = extents
    else:
        sources = _source_extents(op, data, extents, column_list(src_dims))
        if len(sources) != len(factors):
            raise RuntimeError(f"{op}: src_dims and rel_shape have different lengths: {len(sources)} and {len(factors)}")
    extents_found = []
    # Fewer factors than axes are allowed here: whether all bytes are used is checked for the resulting shape.
    for factor, extent in zip(factors, sources, strict=False):
        if isinstance(factor, tuple):
            raise TypeError(f"{op}: rel_shape must be a list of numbers, got {format_value(factors)}")
        if not holds(factor != 0) or not holds(abs(factor) < 2.0**53):
            raise RuntimeError(
                f"{op}: {in_sample((factor != 0) & (abs(factor) < 2.0**53))}rel_shape must be finite and not 0, got {format_value(factors)}"
            )
        extents_found.append(choose(factor < 0, -1, nearest(factor * extent)))
    return extents_found


def _count_in_items(op: str, extents: list[Column], in_bytes: int, out_bytes: int) -> list[Column]:
    """Return the innermost extent in items of another size."""
    if not extents:
        raise RuntimeError(f"{op}: a number cannot be taken for items of another size; give a shape")
    size = extents[-1] * in_bytes
    if not holds(size % out_bytes == 0):
        raise RuntimeError(f"{op}: the {in_bytes}-byte items of the innermost axis do not make up whole items of {out_bytes} bytes; give a shape")
    return [*extents[:-1], size // out_bytes]


def _without_wildcard(op: str, extents: Sequence[Column], requested: list[Column], in_bytes: int, out_bytes: int) -> list[Column]:
    """Return the requested extents with negative ones resolved. Raise RuntimeError unless they hold as many bytes as the input."""
    bytes_in = product(extents) * in_bytes
    unknown = sum((choose(extent < 0, 1, 0) for extent in requested), 0)
    if not holds(unknown <= 1):
        sample = first_failure(unknown <= 1)
        raise RuntimeError(f"{op}: {in_sample(unknown <= 1)}only one extent can be negative, got {sample_shape(requested, sample)}")
    # A number only if no sample has a wildcard: then there is nothing to infer.
    if not (isinstance(unknown, int) and unknown == 0):
        known = product([choose(extent < 0, 1, extent) for extent in requested]) * out_bytes
        if not holds((known != 0) | (unknown == 0)):
            raise RuntimeError(f"{op}: cannot infer an extent where the volume of the others is 0")
        # Samples without elements must not divide by 0; for them the check below decides.
        missing = bytes_in // choose(known == 0, 1, known)
        requested = [choose(extent < 0, missing, extent) for extent in requested]
    fits = product(requested) * out_bytes == bytes_in
    if not holds(fits):
        sample = first_failure(fits)
        raise RuntimeError(
            f"{op}: sample {sample}: shape {sample_shape(extents, sample)} of {in_bytes}-byte items and shape {sample_shape(requested, sample)} "
            f"of {out_bytes}-byte items do not occupy the same number of bytes"
        )
    return requested


@operator(kernel=None)
def reshape(
    data: T,
    shape_input: ShapeArg[Sequence[int]] | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    layout: str | None = None,
    rel_shape: ShapeArg[Sequence[float]] | None = None,
    shape: ShapeArg[Sequence[int]] | None = None,
    src_dims: ShapeArg[Sequence[int]] | None = None,
) -> T:
    """Reshape without copying: the result shares the input's memory.

    Args:
        data: any type and number of dimensions.
        shape_input: the shape, as a positional argument.
        shape: the new extents; one of them may be negative and is inferred.
        rel_shape: the new extents relative to the input's; negative as in ``shape``.
        src_dims: the input axis for each extent, or the one that ``rel_shape`` relates to; -1 is a new axis.
        layout: layout of the result; "" for none. By default the input's if the number of dimensions does not change.

    Raises:
        RuntimeError: extents that do not fit, several forms of them, or none and no layout.

    >>> reshape(torch.arange(6), shape=[2, -1]).torch()
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    return _reshape("reshape", data, shape_input, shape, rel_shape, src_dims, layout, None)  # type: ignore[return-value,arg-type]


@operator(kernel=None)
def reinterpret(
    data: T,
    shape_input: ShapeArg[Sequence[int]] | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    layout: str | None = None,
    rel_shape: ShapeArg[Sequence[float]] | None = None,
    shape: ShapeArg[Sequence[int]] | None = None,
    src_dims: ShapeArg[Sequence[int]] | None = None,
) -> T:
    """Reinterpret the bytes as elements of another type, without copying: the result shares the input's memory.

    Without a shape the innermost extent changes with the size of an element. (A sample of a ragged batch that is misaligned for the type is copied.)

    Args:
        data: any type and number of dimensions.
        dtype: type of the result.
        shape_input, shape, rel_shape, src_dims, layout: see :func:`reshape`, in elements of the result.

    Raises:
        RuntimeError: extents with a different number of bytes, or no change.

    >>> reinterpret(torch.tensor([1.0, 2.0]), dtype=torch.int32).torch()
    tensor([1065353216, 1073741824], dtype=torch.int32)
    """
    return _reshape("reinterpret", data, shape_input, shape, rel_shape, src_dims, layout, dtype)  # type: ignore[return-value,arg-type]


@operator(kernel=None)
def squeeze(
    data: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: ShapeArg[Sequence[int]] | None = None,
    axis_names: str | None = None,
) -> T:
    """Remove axes of extent 1, without copying: the result shares the input's memory.

    Args:
        data: any type and number of dimensions.
        axes: the axes; negative axes count from the end. With axes per sample (a Batch), all samples must have the same number of them.
        axis_names: the axes as letters of the layout. One of the two is required.

    Raises:
        RuntimeError: an extent that is not 1, unless there are no elements with and without the axis; axes out of range, both or neither of ``axes``
            and ``axis_names``.

    >>> squeeze(torch.zeros(1, 3, 1), axes=[0]).shape
    (3, 1)
    """
    arrays = data
    assert isinstance(arrays, Batch)
    if axes is None and axis_names is None:
        raise RuntimeError("squeeze: give axes or axis_names")
    chosen = axes_of_samples("squeeze", axes, axis_names, arrays.layout or "", arrays.ndim) or [()]
    extents = extents_of(arrays)
    if len({len(row) for row in chosen}) > 1:
        raise RuntimeError(f"squeeze: samples must keep the same number of dimensions, but axes are {chosen}")
    for sample, row in enumerate(chosen):
        for axis in row:
            fits = extents[axis] == 1 if len(chosen) == 1 else at_sample(extents[axis], sample) == 1
            if not holds(fits) and not holds(fits | _stays_empty(extents, row, None if len(chosen) == 1 else sample)):
                found = first_failure(fits) if len(chosen) == 1 else sample
                raise RuntimeError(f"squeeze: sample {found}: axis {axis} has the extent {at_sample(extents[axis], found)}, not 1")
    if len(chosen) == 1:
        kept = [axis for axis in range(arrays.ndim) if axis not in chosen[0]]
        layout = "".join(arrays.layout[axis] for axis in kept) if arrays.layout else None
        return _as_view(arrays, [extents[axis] for axis in kept], layout or None)  # type: ignore[return-value]
    # Axes that differ between samples: what is left is chosen sample by sample, and no layout holds for all.
    table = rows(extents).expand(len(chosen), arrays.ndim)
    left = torch.stack([table[i][[axis for axis in range(arrays.ndim) if axis not in row]] for i, row in enumerate(chosen)])
    return _as_view(arrays, list(left.unbind(1)), None)  # type: ignore[return-value]


def _stays_empty(extents: Sequence[Any], removed: Sequence[int], sample: int | None) -> Any:
    """Return whether samples have no elements, with and without these axes."""
    left = product([extent if sample is None else at_sample(extent, sample) for axis, extent in enumerate(extents) if axis not in removed])
    return left == 0


@operator(kernel=None)
def expand_dims(
    data: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: Any,
    new_axis_names: str = "",
) -> T:
    """Insert axes of extent 1, without copying: the result shares the input's memory.

    Args:
        data: any type and number of dimensions.
        axes: positions of the new axes in the result.
        new_axis_names: their letters, in the same order; without letters the result has no layout.

    Raises:
        RuntimeError: axes that are negative, repeated or beyond the result's dimensions; letters for data without a layout, or too few.

    >>> expand_dims(torch.zeros(2, 3), axes=[0, 3]).shape
    (1, 2, 3, 1)
    """
    arrays = data
    assert isinstance(arrays, Batch)
    positions = list(axes) if isinstance(axes, list | tuple | range) else [axes]
    for axis in positions:
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise TypeError(f"expand_dims: axes must be ints, got {axes!r}")
    if min(positions, default=0) < 0:
        raise RuntimeError(f"expand_dims: axes must not be negative, got {axes!r}")
    if len(set(positions)) < len(positions):
        raise RuntimeError(f"expand_dims: axes has duplicates: {axes!r}")
    ndim = arrays.ndim + len(positions)
    if max(positions, default=-1) >= ndim:
        raise RuntimeError(f"expand_dims: axes={axes!r}, but the result has {ndim} dimensions")
    letters = dict(zip(positions, new_axis_names, strict=False))
    if new_axis_names:
        if len(new_axis_names) != len(positions):
            raise RuntimeError(f"expand_dims: new_axis_names={new_axis_names!r} must have a letter for each of the {len(positions)} new axes")
        if arrays.ndim and not arrays.layout:
            raise RuntimeError("expand_dims: new_axis_names needs an input with a layout")
    extents, old = list(extents_of(arrays)), list(arrays.layout or "")
    # The old axes keep their order, around the new ones.
    shape = [1 if axis in positions else extents.pop(0) for axis in range(ndim)]
    layout = "".join(letters[axis] if axis in positions else old.pop(0) for axis in range(ndim)) if new_axis_names else ""
    return _as_view(arrays, shape, layout or (arrays.layout if not positions else None))  # type: ignore[return-value]


def _copy_formula(input: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    del dtype
    return input.clone()


@operator(formula=_copy_formula)
def copy(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None) -> T:
    """Copy the values into new memory, on ``device`` if given.

    >>> a = torch.zeros(2)
    >>> b = copy(a)
    >>> a[0] = 1
    >>> b.torch()
    tensor([0., 0.])
    """
    return like(input)


Property = Literal["layout", "source_info"]
_PROPERTIES = get_args(Property)


@operator(kernel=None)
def get_property(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, key: Property) -> T:
    """Return a property of the data as bytes, uint8; empty if it is unknown.

    Args:
        input: anything.
        key: "layout", or "source_info": the file from which a sample was read.

    Raises:
        RuntimeError: another key.

    >>> from torch_ndd import tensor
    >>> bytes(get_property(tensor([[1]], layout="HW"), key="layout").torch().tolist())
    b'HW'
    """
    arrays = input
    assert isinstance(arrays, Batch)
    check_choice("get_property", "key", key, _PROPERTIES, RuntimeError if isinstance(key, str) else TypeError)
    device_ = arrays.buffer.device
    count = arrays.batch_size
    if key == "layout" or not arrays.sources:
        text = (arrays.layout or "").encode() if key == "layout" else b""
        return new_batch(torch.tensor(list(text), dtype=torch.uint8, device=device_).expand(count, len(text)).contiguous(), None)  # type: ignore[return-value]
    # Names of files are bytes: fsencode() returns those that are not valid UTF-8 unchanged.
    texts = [os.fsencode(source) for source in arrays.sources]
    values = torch.tensor(list(b"".join(texts)), dtype=torch.uint8, device=device_)
    lengths = torch.tensor([[len(text)] for text in texts], dtype=torch.int64)
    return new_batch(values, lengths).densify()  # type: ignore[return-value]
