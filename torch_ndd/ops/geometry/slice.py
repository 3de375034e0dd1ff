# SPDX-License-Identifier: Apache-2.0
"""``slice`` and ``pad``: windows given by their limits, and padding to a size."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.arguments import NO_VALUE
from ..._core.operators.operator import DeviceLike, Hint, PerSample, ShapeArg, T, VaryingShape, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._arguments import INTEGERS
from .._axes import axes_of_samples, named_axes, usual_layout
from .._borders import BORDERS
from .._columns import (
    Column,
    as_hashable,
    at_sample,
    choose,
    column_list,
    extents_of,
    first_failure,
    float32,
    format_value,
    holds,
    in_sample,
    larger,
    nearest,
    real,
    rows,
    whole,
)
from .._outputs import check_per_channel, output_type
from ._axis_numbers import RELATIVE, AxisNumbers
from ._crop_window import BorderPolicy, CropWindow, check_inside, check_policy, trim
from ._windows import find_windows


class _Limit(NamedTuple):
    """An argument for the start or the end of a window."""

    name: str
    value: Any  # a number, a tuple of them, or a tensor (rows, columns)
    relative: bool  # to the extents

    @property
    def rounds_products(self) -> bool:
        """Whether the product with an extent is rounded to float32: DALI multiplies its named arguments as floats, those by position as doubles."""
        return self.name.startswith("rel_")

    def columns(self, op: str, lengths: Sequence[Column], exact: bool = False) -> list[Column]:
        """Return the limit in elements, one column per axis; if ``exact``, as products in double."""
        values = column_list(self.value)
        if len(values) == 1:
            values = values * len(lengths)
        if len(values) != len(lengths):
            raise RuntimeError(f"{op}: argument {self.name!r} must have {len(lengths)} values, one for each axis; got {format_value(self.value)}")
        if any(isinstance(value, tuple) for value in values):
            raise TypeError(f"{op}: argument {self.name!r} takes numbers, got {format_value(self.value)}")
        found_columns = []
        for value, length in zip(values, lengths, strict=True):
            column = real(value.to(torch.float32) if isinstance(value, torch.Tensor) and value.is_floating_point() else value)
            # Arguments are float32 in DALI.
            if isinstance(value, float):
                column = float32(value)
            # NaN, infinity, and numbers whose sum with an extent would not be exact in double.
            finite = (column == column) & (abs(column) < 2.0**53)
            if not holds(finite):
                raise RuntimeError(f"{op}: {in_sample(finite)}argument {self.name!r} must be finite, got {format_value(self.value)}")
            if self.relative:
                column = column * real(length) if exact or not self.rounds_products else float32(column * float32(real(length)))
            found_columns.append(column)
        return found_columns

    def split(self, axes: int) -> list[AxisNumbers] | None:
        """Return the numbers of each axis; None if there are not as many."""
        value, relative = self.value, RELATIVE["no" if not self.relative else "in_float" if self.rounds_products else "in_double"]
        if isinstance(value, torch.Tensor):
            count = value.numel() // max(1, len(value))
            return [AxisNumbers(0.0, value, k if count > 1 else 0, relative, self.name) for k in range(axes)] if count in (1, axes) else None
        numbers = value if isinstance(value, tuple) else (value,)
        if len(numbers) not in (1, axes) or not all(isinstance(number, int | float) for number in numbers):
            return None
        # Integers stay exact; float32 would round those above 2**24.
        singles = [float32(number) if isinstance(number, float) else float(number) for number in numbers]
        return [AxisNumbers(number, None, 0, relative) for number in singles * (axes if len(singles) == 1 else 1)]


def _is_integral(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype in INTEGERS
    return all(isinstance(v, int) and not isinstance(v, bool) for v in column_list(value))


def _limits(op: str, begins: Sequence[_Limit], ends: Sequence[_Limit]) -> tuple[_Limit | None, _Limit | None]:
    begins, ends = [limit for limit in begins if limit.value is not None], [limit for limit in ends if limit.value is not None]
    for limits in (begins, ends):
        if len(limits) > 1:
            raise RuntimeError(f"{op}: {' and '.join(limit.name for limit in limits)} are mutually exclusive")
    return begins[0] if begins else None, ends[0] if ends else None


def _window(
    op: str, layout: str, extents: tuple[Column, ...], axes: tuple[int, ...], begin: _Limit | None, end: _Limit | None, policy: str
) -> CropWindow:
    lengths = [extents[axis] for axis in axes]
    starts = begin.columns(op, lengths) if begin else [0.0] * len(axes)
    stops = end.columns(op, lengths) if end else [real(length) for length in lengths]
    is_shape = end is not None and end.name.endswith("shape")
    start: list[Column] = [0] * len(extents)
    extent: list[Column] = list(extents)
    bases = starts
    if is_shape and begin and end and begin.relative and end.relative:  # DALI adds these in double
        bases, stops = begin.columns(op, lengths, exact=True), end.columns(op, lengths, exact=True)
    for axis, length, first, base, last in zip(axes, lengths, starts, bases, stops, strict=True):
        if is_shape and end:
            if not holds(last >= 0):
                raise RuntimeError(f"{op}: {in_sample(last >= 0)}argument {end.name!r} must not be negative, got {format_value(end.value)}")
            last = base + last
        # Both ends are rounded, not the size: neighboring windows then meet without a gap.
        at, size = nearest(first), nearest(last) - nearest(first)
        if not holds(size >= 0):
            sample = first_failure(size >= 0)
            ends = at_sample(at, sample), at_sample(at + size, sample)
            raise RuntimeError(f"{op}: sample {sample}: along axis {axis} the window ends at {ends[1]}, before its start at {ends[0]}")
        if policy == "trim_to_shape":
            at, size = trim(at, size, length)
        elif policy == "error":
            check_inside(op, layout[axis] if layout else str(axis), at, size, length)
        start[axis], extent[axis] = at, size
    return CropWindow(tuple(start), tuple(extent), rows(start))


def _find_window(
    arrays: Batch, extents: tuple[Column, ...], axes: tuple[int, ...], begin: _Limit | None, end: _Limit | None, policy: str
) -> CropWindow | None:
    """Return the window that native code computes; None if an argument is wrong."""
    starts = [AxisNumbers(0.0)] * len(axes) if begin is None else begin.split(len(axes))
    ends = [AxisNumbers(1.0, relative=RELATIVE["in_double"])] * len(axes) if end is None else end.split(len(axes))
    if starts is None or ends is None:
        return None
    # The native function adds the start to a shape, as _window() does.
    kind = "slice_shape" if end is not None and end.name.endswith("shape") else "slice_end"
    return find_windows(kind, arrays, extents, list(zip(axes, starts, ends, strict=True)), policy)


_plain_window = functools.lru_cache(maxsize=1024)(_window)  # a dense batch has the same window in every call


def _of_sample(op: str, limit: _Limit | None, sample: int, axes: int) -> _Limit | None:
    if limit is None or not isinstance(limit.value, torch.Tensor):
        return limit
    return limit._replace(value=_values_of_sample(op, limit.name, limit.value, sample, axes))


def _values_of_sample(op: str, name: str, table: torch.Tensor, sample: int, axes: int) -> torch.Tensor:
    """Return the values of a sample as one row, without what pads it to the longest row of the batch."""
    row = table[sample if len(table) > 1 else 0].reshape(1, -1)
    missing = _is_missing(row)
    if row.shape[1] > axes and bool(missing[:, axes:].all()):
        row, missing = row[:, :axes], missing[:, :axes]
    if not row.is_floating_point() and bool(missing.any()):  # NaN is refused with other numbers that are not finite
        found = row.shape[1] - int(missing.sum())
        raise RuntimeError(f"{op}: argument {name!r} must have {axes} values, one for each axis; sample {sample} has {found}")
    return row


def _is_missing(values: torch.Tensor) -> torch.Tensor:
    return values.isnan() if values.is_floating_point() else values == NO_VALUE


def _have_different_counts(values: Iterable[Any]) -> bool:
    """Return whether samples have different numbers of values for an argument: the shorter rows are padded."""
    tables = [value for value in values if isinstance(value, torch.Tensor) and value.numel() > len(value)]
    return bool(tables) and not is_compiling() and any(bool(_is_missing(table.reshape(len(table), -1)[:, -1]).any()) for table in tables)


def _stack(windows: Sequence[CropWindow]) -> CropWindow:
    """Return one window per sample as columns."""
    extents = torch.cat([rows(window.extent) for window in windows])
    starts = torch.cat([window.rows for window in windows])
    return CropWindow(starts.unbind(1), extents.unbind(1), starts)


class SliceArguments(NamedTuple):
    """The window arguments of ``slice``: each a number, a sequence or a tensor (rows, columns)."""

    anchor: Any
    shape_input: Any
    normalized_anchor: bool
    normalized_shape: bool
    start: Any
    rel_start: Any
    end: Any
    rel_end: Any
    shape: Any
    rel_shape: Any
    axes: Any
    axis_names: str | None


def slice_window(op: str, arrays: Batch, arguments: SliceArguments, policy: str) -> CropWindow:
    """Return the window of every sample. Raise RuntimeError if it leaves a sample and the policy does not allow that.

    >>> from torch_ndd._core.values.batch import as_batch
    >>> arguments = SliceArguments(None, None, True, True, [100, 20], None, None, None, [300, 200], None, None, None)
    >>> slice_window("slice", as_batch(torch.zeros(1, 480, 640, 3), layout="HWC"), arguments, "error").start
    (20, 100, 0)
    """
    begin, stop = _limits(
        op,
        (_Limit("start", as_hashable(arguments.start), False), _Limit("rel_start", as_hashable(arguments.rel_start), True)),
        (
            _Limit("end", as_hashable(arguments.end), False),
            _Limit("rel_end", as_hashable(arguments.rel_end), True),
            _Limit("shape", as_hashable(arguments.shape), False),
            _Limit("rel_shape", as_hashable(arguments.rel_shape), True),
        ),
    )
    anchor, shape_input = arguments.anchor, arguments.shape_input
    if anchor is not None or shape_input is not None:
        if begin or stop:
            raise RuntimeError(f"{op}: {(begin or stop or _Limit('', 0, False)).name} cannot be combined with anchor and shape by position")
        if anchor is None or shape_input is None:
            raise RuntimeError(f"{op}: anchor and shape must be given together")
        if _is_integral(anchor) != _is_integral(shape_input):
            raise RuntimeError(f"{op}: Anchor and shape should have the same type: both in elements, or both floating-point")
        # The dtype decides, as in DALI: integers count elements, whatever the normalized_ arguments say.
        absolute = _is_integral(anchor)
        begin = _Limit("anchor", as_hashable(anchor), arguments.normalized_anchor and not absolute)
        stop = _Limit("shape", as_hashable(shape_input), arguments.normalized_shape and not absolute)
    if begin is None and stop is None:
        raise RuntimeError(f"{op}: give start, end or shape by name, or anchor and shape by position")

    layout, axes, axis_names = usual_layout(arrays), arguments.axes, arguments.axis_names
    chosen = axes_of_samples(op, axes, axis_names, layout, arrays.ndim)
    # By position, the axes are those of width and height, as in DALI; an empty list of axes means all.
    if chosen is None:
        chosen = [tuple(range(arrays.ndim)) if axes is not None or axis_names is not None else named_axes(op, "WH", layout)]
    chosen = [numbers or tuple(range(arrays.ndim)) for numbers in chosen]
    extents = extents_of(arrays)
    values = [limit.value for limit in (begin, stop) if limit]
    # Samples that name their own axes are handled one by one.
    if len(chosen) > 1 or _have_different_counts(values):
        table = rows(extents).tolist()
        windows = []
        for i in range(arrays.batch_size):
            numbers = chosen[i if len(chosen) > 1 else 0]
            first, last = (_of_sample(op, limit, i, len(numbers)) for limit in (begin, stop))
            windows.append(_window(op, layout, tuple(table[i if len(table) > 1 else 0]), numbers, first, last, policy))
        return _stack(windows)
    if arrays.ragged_shapes is None and torch.Tensor not in map(type, values) and not is_compiling():
        return _plain_window(op, layout, extents, chosen[0], begin, stop, policy)
    if not is_compiling() and (found := _find_window(arrays, extents, chosen[0], begin, stop, policy)) is not None:
        return found
    return _window(op, layout, extents, chosen[0], begin, stop, policy)


@operator()
def slice(
    data: T,
    anchor: ShapeArg[Sequence[float]] | None = None,
    shape_input: ShapeArg[Sequence[float]] | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axes: VaryingShape[Sequence[int]] | None = None,
    axis_names: str | None = None,
    dtype: torch.dtype | None = None,
    end: VaryingShape[Sequence[int]] | None = None,
    fill_values: PerSample[Sequence[float]] = 0.0,
    image_type: Hint[Any] = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    out_of_bounds_policy: BorderPolicy = "error",
    output_dtype: Any = None,
    rel_end: VaryingShape[Sequence[float]] | None = None,
    rel_shape: VaryingShape[Sequence[float]] | None = None,
    rel_start: VaryingShape[Sequence[float]] | None = None,
    shape: VaryingShape[Sequence[int]] | None = None,
    start: VaryingShape[Sequence[int]] | None = None,
) -> T:
    """Slice out a window between two positions: ``out = data[round(start) : round(end)]`` along some axes.

    The window starts at ``start`` or ``rel_start``, by default 0, and its end is given by one of ``end``, ``rel_end``, ``shape`` and ``rel_shape``,
    by default the end of the axis. Alternatively, ``anchor`` and ``shape_input`` may be given as positional arguments.

    Args:
        data: any type and number of dimensions.
        anchor, shape_input: start and shape of the window: integers in elements, floating-point numbers relative to the extents.
        normalized_anchor, normalized_shape: False for floating-point ``anchor`` and ``shape_input`` in elements.
        start, end, shape: in elements, one number per axis or one for all.
        rel_start, rel_end, rel_shape: relative to the extents of the sample.
        axes: the axes of these numbers; negative axes count from the end. ``[]``: all. In a Batch samples may have different numbers of axes.
        axis_names: the axes as letters of the layout, by default ``WH``: width first. Without a layout the usual one is assumed (HW, HWC, DHWC).
        out_of_bounds_policy: what to do with a window that leaves the array: "error", "trim_to_shape", "pad", "constant" or "fill" with
            ``fill_values``, or a border of the array's own elements, which windows may leave by any number of periods: "clamp" or "edge"
            ``(aa|abc|cc)``, "wrap" ``(bc|abc|ab)``, "reflect_1001", "reflect1001", "1001" or "reflect" ``(ba|abc|cb)``, "reflect_101",
            "reflect101" or "101" ``(cb|abc|ba)``.
        fill_values: one number, or one per channel (``C`` in the layout).
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.
        output_dtype: old name of ``dtype``.
        image_type: ignored.

    Raises:
        RuntimeError: a window that leaves the array or ends before it starts, arguments that exclude each other, axes out of range, an unknown
            policy, a border of an array without elements.

    >>> slice(torch.arange(12).reshape(3, 4), start=[1, 0], shape=[2, 2], axes=[1, 0]).torch()
    tensor([[1, 2],
            [5, 6]])
    >>> slice(torch.arange(10), [0.5], [0.2], axes=[0]).torch()
    tensor([5, 6])
    >>> slice(torch.arange(4), start=[-2], end=[7], axes=[0], out_of_bounds_policy="reflect_101").torch()
    tensor([2, 1, 0, 1, 2, 3, 2, 1, 0])
    """
    op, arrays = "slice", data
    assert isinstance(arrays, Batch)
    policy, border = check_policy(op, out_of_bounds_policy, get_args(BorderPolicy))
    if arrays.ndim == 0:
        raise RuntimeError(f"{op}: a number has no axes to cut a window from")
    named = start, rel_start, end, rel_end, shape, rel_shape
    arguments = SliceArguments(anchor, shape_input, normalized_anchor, normalized_shape, *named, axes, axis_names)
    layout = usual_layout(arrays)
    window = slice_window(op, arrays, arguments, policy)
    if border == BORDERS["constant"]:
        check_per_channel(op, "fill_values", fill_values, window.extent[layout.index("C")] if "C" in layout else 1)
    wanted = output_type(op, dtype, output_dtype) or arrays.dtype
    out = window.allocate(arrays, wanted, arrays.layout)
    return launch(out, (window.rows, fill_values, border, layout), derivation=window.derivation)


@operator()
def pad(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    align: VaryingShape[Sequence[int]] | None = None,
    axes: VaryingShape[Sequence[int]] | None = None,
    axis_names: str | None = None,
    fill_value: PerSample[float] = 0.0,
    shape: VaryingShape[Sequence[int]] | None = None,
) -> T:
    """Pad samples at their ends: to the largest extents in the batch, to a given shape, to multiples of a number.

    Args:
        input: any type and number of dimensions.
        fill_value: value to append.
        shape: the smallest extents, one per axis or one for all; larger samples are unchanged. 0 or less: the largest in the batch.
        align: round extents up to multiples of this, one number per axis or one for all.
        axes: the axes to pad, by default or if empty all; negative axes count from the end. In a Batch samples may have different numbers of axes.
        axis_names: the axes as letters of the layout.

    Raises:
        RuntimeError: axes out of range, ``axes`` and ``axis_names`` together, an ``align`` below 1, or a number of values other than that of the
            axes.

    >>> from torch_ndd import batch
    >>> pad(batch([[1, 2, 3], [4]]), fill_value=-1).torch().tolist()
    [[1, 2, 3], [4, -1, -1]]
    """
    arrays = input
    assert isinstance(arrays, Batch)
    if arrays.ndim == 0:
        raise RuntimeError("pad: a number has no axes to fill up")
    chosen = axes_of_samples("pad", axes, axis_names, arrays.layout or "", arrays.ndim) or [tuple(range(arrays.ndim))]
    chosen = [numbers or tuple(range(arrays.ndim)) for numbers in chosen]
    if len(chosen) > 1 or _have_different_counts((shape, align)):
        extents = _padded_each(arrays, chosen if len(chosen) > 1 else chosen * arrays.batch_size, shape, align)
    else:
        extents = _pad_sample(extents_of(arrays), chosen[0], shape, align)
    # A pad is a slice from 0 whose window exceeds the sample.
    out = empty_batch(arrays.batch_size, extents, arrays.dtype, arrays.buffer.device, arrays.layout)
    return launch(out, (_nowhere(arrays.ndim), fill_value, BORDERS["constant"], ""))


def _pad_sample(extents: Sequence[Column], axes: tuple[int, ...], shape: Any, align: Any, largest: Sequence[Column] | None = None) -> list[Column]:
    def columns(name: str, value: Any) -> list[Column]:
        return [whole(column) for column in _Limit(name, as_hashable(value), False).columns("pad", [1] * len(axes))]

    padded: list[Column] = list(extents)
    least = columns("shape", shape) if shape is not None else [0] * len(axes)
    multiple = columns("align", align) if align is not None else [1] * len(axes)
    for axis, size, step in zip(axes, least, multiple, strict=True):
        if not holds(step > 0):
            raise RuntimeError(f"pad: {in_sample(step > 0)}Values of `align` argument must be positive, got {format_value(align)}")
        extent = padded[axis]
        most = extent
        if largest is not None:
            most = largest[axis]
        elif isinstance(extent, torch.Tensor) and len(extent):
            most = extent.amax().expand(len(extent))
        # Never smaller than the sample: pad does not cut.
        wanted = larger(extent, choose(size > 0, size, most))
        padded[axis] = (wanted + step - 1) // step * step
    return padded


def _padded_each(arrays: Batch, axes: Sequence[tuple[int, ...]], shape: Any, align: Any) -> list[Column]:
    """Pad samples that each have their own axes."""
    table = rows(extents_of(arrays)).expand(len(axes), arrays.ndim)
    largest = table.amax(0).tolist()

    def of_sample(name: str, value: Any, i: int) -> Any:
        return _values_of_sample("pad", name, value, i, len(axes[i])) if isinstance(value, torch.Tensor) else value

    tables = [_pad_sample(table[i].tolist(), axes[i], of_sample("shape", shape, i), of_sample("align", align, i), largest) for i in range(len(axes))]
    return list(torch.cat([rows(table_of_sample) for table_of_sample in tables]).unbind(1))


def _nowhere(ndim: int) -> torch.Tensor:
    """Return the start of windows that begin where the samples do."""
    return torch.zeros((1, ndim), dtype=torch.int64) if is_compiling() else _kept_nowhere(ndim)


@functools.cache
def _kept_nowhere(ndim: int) -> torch.Tensor:
    return torch.zeros((1, ndim), dtype=torch.int64)
