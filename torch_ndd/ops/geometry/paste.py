# SPDX-License-Identifier: Apache-2.0
"""Images on canvases: erasing, masking and pasting."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, PerSample, ShapeArg, T, Varying, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._axes import axes_of_samples, usual_layout
from .._borders import BORDERS
from .._channels import is_other
from .._columns import Column, column_list, extent_of, extents_of, first_failure, float32, format_value, holds, larger, real, rows, whole
from .._outputs import columns_of, like
from ._canvas import derive_paste_canvases

_PASTE_LAYOUTS = ("HWC", "FHWC")


@operator()
def erase(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    anchor: Varying[Sequence[float]] | None = None,
    axes: Any = None,
    axis_names: str | None = None,
    centered_anchor: bool = False,
    fill_value: PerSample[Sequence[float]] = 0.0,
    normalized: bool | None = None,
    normalized_anchor: bool | None = None,
    normalized_shape: bool | None = None,
    shape: Varying[Sequence[float]] | None = None,
) -> T:
    """Fill boxes of a sample with a value: from ``anchor`` to ``anchor + shape``, fractions truncated. Several boxes are concatenated.

    Args:
        input: any type and number of dimensions.
        anchor: start of the boxes, one number per axis and box, by default 0; in a Batch the number of boxes may differ between samples.
        shape: extents of the boxes, as many numbers.
        axes: the axes of these numbers, in this order; a box covers the other axes completely.
        axis_names: the axes as letters of the layout, by default ``HW``. Without a layout the usual one is assumed (HW, HWC, DHWC).
        centered_anchor: ``anchor`` is the center of the box.
        normalized_anchor, normalized_shape: ``anchor`` or ``shape`` is relative to the extents of the sample.
        normalized: both are relative.
        fill_value: one number, or one per channel (``C`` in the layout).

    Raises:
        RuntimeError: ``anchor`` and ``shape`` that do not fit together, axes out of range, a wrong number of values for the channels.

    >>> erase(torch.ones(2, 3, dtype=torch.uint8), anchor=[0, 1], shape=[1, 2], fill_value=7).torch()
    tensor([[1, 7, 7],
            [1, 1, 1]], dtype=torch.uint8)
    """
    op, arrays = "erase", input
    assert isinstance(arrays, Batch)
    for name, value in (("normalized", normalized), ("normalized_anchor", normalized_anchor), ("normalized_shape", normalized_shape)):
        if value is not None and not isinstance(value, bool | int):
            raise TypeError(f"{op}: argument {name!r} must be bool, got {value!r}")
    if normalized is not None and (normalized_anchor is not None or normalized_shape is not None):
        raise RuntimeError(f"{op}: normalized cannot be combined with normalized_anchor and normalized_shape")
    if shape is None and anchor is not None:
        raise RuntimeError(f"{op}: anchor needs a shape")
    layout = usual_layout(arrays)
    if axes is None and axis_names is None:
        axis_names = "HW"
    chosen = axes_of_samples(op, axes, axis_names, layout, arrays.ndim)
    order = chosen[0] if chosen else tuple(range(arrays.ndim))
    if shape is None:
        shape = torch.empty((1, 0))
    if anchor is None:
        anchor = torch.zeros(shape.shape)  # type: ignore[union-attr]
    if columns_of(shape) == 0 == columns_of(anchor):
        pass
    elif len(order) == 0 or columns_of(anchor) != columns_of(shape) or columns_of(anchor) % len(order):
        raise RuntimeError(
            f"{op}: anchor has {columns_of(anchor)} numbers and shape {columns_of(shape)}; "
            f"both must have {len(order)} for each box, one for each axis"
        )
    channel = layout.find("C") if arrays.layout else -1
    if columns_of(fill_value) > 1:
        if channel < 0:
            raise RuntimeError(f"{op}: fill_value has {columns_of(fill_value)} values, but the layout {arrays.layout!r} has no channels")
        channels = extents_of(arrays)[channel]
        if not isinstance(channels, torch.Tensor) and is_other(channels, columns_of(fill_value)):
            raise RuntimeError(f"{op}: fill_value has {columns_of(fill_value)} values, but there are {channels} channels")
    relative_anchor = bool(normalized if normalized is not None else normalized_anchor)
    relative_shape = bool(normalized if normalized is not None else normalized_shape)
    numbers = "".join(map(str, order))
    arguments = (anchor, shape, fill_value, numbers, channel, relative_anchor, relative_shape, centered_anchor)
    return launch(like(arrays), arguments, any_shape=True)


@operator()
def grid_mask(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    angle: PerSample[float] = 0.0,
    ratio: PerSample[float] = 0.5,
    shift_x: PerSample[float] = 0.0,
    shift_y: PerSample[float] = 0.0,
    tile: PerSample[int] = 100,
) -> T:
    """Black out the squares of a regular grid (GridMask, arXiv:2001.04086).

    A pixel becomes 0 where the fractional parts of both ``(x cos a - y sin a - shift_x) / tile`` and ``(x sin a + y cos a - shift_y) / tile`` are
    less than ``ratio``.

    Args:
        input: images of any type; rows and columns are the axes ``HW`` of the layout, or the first two without a layout.
        tile: distance between the squares in pixels.
        ratio: side of a square, relative to ``tile``.
        angle: angle of the grid, in radians.
        shift_x, shift_y: offset of the grid, in pixels.

    Raises:
        RuntimeError: a ``tile`` below 1, or fewer than two dimensions.

    >>> grid_mask(torch.ones(2, 4, 1, dtype=torch.uint8), tile=2).torch().squeeze(2)
    tensor([[0, 1, 0, 1],
            [1, 1, 1, 1]], dtype=torch.uint8)
    """
    arrays = input
    assert isinstance(arrays, Batch)
    if arrays.ndim < 2:
        raise RuntimeError(f"grid_mask: the input must have rows and columns, but has {arrays.ndim} dimensions")
    # Without a layout the first two dimensions are rows and columns.
    row_axis = max(0, (arrays.layout or "").find("HW"))
    return launch(like(arrays), (angle, ratio, shift_x, shift_y, tile, row_axis), any_shape=True)


def _one(name: str, value: Any) -> Column:
    """Return a canvas argument, a number or a tensor (rows,), rounded to float32, in double."""
    columns = [real(column.to(torch.float32)) if isinstance(column, torch.Tensor) else float32(float(column)) for column in column_list(value)]
    if len(columns) != 1:
        raise RuntimeError(f"paste: argument {name!r} takes one number per sample, got {format_value(value)}")
    return columns[0]


def _product(factor: Column, extent: Column) -> Column:
    """Round to float32, in which 0.7 of 10 pixels is 7."""
    exact = factor * real(extent)
    return real(exact.to(torch.float32)) if isinstance(exact, torch.Tensor) else float32(exact)


@operator(layouts=("HWC",))
def paste(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    fill_value: Any,
    min_canvas_size: ShapeArg[float] = 0.0,
    n_channels: int = 3,
    paste_x: ShapeArg[float] = 0.5,
    paste_y: ShapeArg[float] = 0.5,
    ratio: ShapeArg[float],
) -> T:
    """Place an image on a larger canvas of extent ``max(ratio * extent, min_canvas_size)``, at ``paste * (canvas - extent)``, fractions truncated.

    Args:
        input: ``HWC``; any type.
        ratio: extents of the canvas relative to the image's, at least 1.
        fill_value: value of the canvas: one number, or one per channel.
        n_channels: number of values in ``fill_value`` if there are several.
        min_canvas_size: smallest height and width of the canvas, in pixels.
        paste_x, paste_y: relative position of the image, from 0 (left, top) to 1.

    Raises:
        RuntimeError: a ratio below 1, a position outside [0, 1], or a number of fill values other than that of the channels.

    >>> paste(torch.ones(1, 1, 3, dtype=torch.uint8), ratio=2, fill_value=9, paste_x=0, paste_y=0).torch()[..., 0]
    tensor([[1, 9],
            [9, 9]], dtype=torch.uint8)
    """
    op, images = "paste", input
    assert isinstance(images, Batch)
    # A string is a sequence too.
    if any(isinstance(value, str) or not isinstance(value, int | float | Sequence) for value in (fill_value, n_channels)):
        raise TypeError(f"{op}: fill_value must be numbers, n_channels an int; got {fill_value!r}, {n_channels!r}")
    fills = [float(value) for value in (fill_value if isinstance(fill_value, Sequence) else [fill_value])]
    channels = extent_of(images, 2)
    differ = len(fills) != 1 and not isinstance(channels, torch.Tensor) and is_other(channels, len(fills))
    if len(fills) not in (1, n_channels) or differ:
        raise RuntimeError(f"{op}: fill_value takes one number or one for each channel, got {len(fills)} (n_channels={n_channels})")
    arguments = {"ratio": ratio, "min_canvas_size": min_canvas_size, "paste_x": paste_x, "paste_y": paste_y}
    start, extents = _place(images, arguments)
    out = empty_batch(images.batch_size, extents, images.dtype, images.buffer.device, "HWC")
    derivation = None
    # Only what differs between samples is derived again by repeated calls; the numbers are constants of the plan.
    varies = images.ragged_shapes is not None or any(isinstance(value, torch.Tensor) for value in arguments.values())
    if varies and not is_compiling():
        derivation = derive_paste_canvases(**arguments)
    return launch(out, (rows(start), torch.tensor([fills]), BORDERS["constant"], "HWC"), derivation=derivation)


def _place(images: Batch, arguments: Mapping[str, Any]) -> tuple[list[Column], list[Column]]:
    """Return where :func:`paste` starts to read, which is before the image, and the extents of the canvas."""
    op, (height, width, channels) = "paste", extents_of(images)
    ratio, min_canvas_size = arguments["ratio"], arguments["min_canvas_size"]
    scale, least = _one("ratio", ratio), _one("min_canvas_size", min_canvas_size)
    if not holds((scale >= 1) & (scale < 2.0**31)):
        raise RuntimeError(f"{op}: a ratio of less than 1 is not supported, got {format_value(ratio)}")
    if not holds((least >= 0) & (least < 2.0**31)):
        raise RuntimeError(f"{op}: min_canvas_size must be from 0 to 2**31, got {format_value(min_canvas_size)}")
    start, extents = [], []
    for name, extent in (("paste_y", height), ("paste_x", width)):
        position = _one(name, arguments[name])
        if not holds((position >= 0) & (position <= 1)):
            raise RuntimeError(f"{op}: {name} must be in range [0, 1], got {format_value(arguments[name])}")
        canvas = whole(larger(_product(scale, extent), least))
        extents.append(canvas)
        # Negative: the window of the input that the canvas shows begins before the image.
        start.append(-whole(_product(position, canvas - extent)))
    return [*start, 0], [*extents, channels]


@operator(layouts=_PASTE_LAYOUTS)
def multi_paste(
    input_0: T,
    /,
    *inputs: T,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    in_anchors: Varying[Sequence[int]] | None = None,
    in_anchors_rel: Varying[Sequence[float]] | None = None,
    in_ids: Varying[Sequence[int]] | None = None,
    out_anchors: Varying[Sequence[int]] | None = None,
    out_anchors_rel: Varying[Sequence[float]] | None = None,
    output_size: ShapeArg[Sequence[int]] | None = None,
    shapes: Varying[Sequence[int]] | None = None,
    shapes_rel: Varying[Sequence[float]] | None = None,
) -> T:
    """Paste regions of several images on a canvas of zeros, in order: mosaics, CutMix.

    Every output sample consists of one region of each input, or of the samples of a single input listed in ``in_ids``.

    Args:
        input_0, inputs: ``HWC``, or sequences ``FHWC``, which are pasted frame by frame; all of the same type. Masks are ``HW``, and masks of objects
            (M, H, W) have the layout ``FHW``.
        in_ids: the samples of the batch to paste, one number per region; in a Batch their number may differ between samples.
        in_anchors, shapes: start and extents of the regions in their inputs, (regions, 2): height and width. By default they start in the upper left
            corner and end in the lower right one.
        out_anchors: positions of the regions on the canvas, by default its upper left corner.
        in_anchors_rel, shapes_rel, out_anchors_rel: the same relative to the input's or the canvas's extents, from 0 to 1; positions are rounded
            down, extents up. All of these may have one value per frame, marked with :func:`per_frame`.
        output_size: height and width of the canvas; by default those of the inputs, which must then be equal.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.

    Raises:
        RuntimeError: regions that leave their input or the canvas, wrong numbers of values, arguments that exclude each other.
        ValueError: another layout.

    >>> ones = torch.ones(2, 2, 1, dtype=torch.uint8)
    >>> multi_paste(ones, 2 * ones, output_size=[3, 3], out_anchors=[[0, 0], [1, 1]]).torch()[..., 0]
    tensor([[1, 1, 0],
            [1, 2, 2],
            [0, 2, 2]], dtype=torch.uint8)
    """
    op = "multi_paste"
    images: list[Batch] = [input_0, *inputs]  # type: ignore[list-item]
    first = images[0]
    for name, other in ((in_anchors, in_anchors_rel), (shapes, shapes_rel), (out_anchors, out_anchors_rel)):
        if name is not None and other is not None:
            raise RuntimeError(f"{op}: in_anchors, shapes and out_anchors cannot be combined with their relative forms")
    if in_ids is not None and len(images) > 1:
        raise RuntimeError(f"{op}: in_ids picks samples of a single input, but there are {len(images)} inputs")
    if any(source.dtype is not first.dtype for source in images):
        raise RuntimeError(f"{op}: all inputs must have the same type, got {', '.join(str(source.dtype) for source in images)}")
    spatial = [extents_of(source)[-3:] for source in images]
    sequences = [source for source in images if source.ndim == 4]
    if output_size is not None:
        size = column_list(output_size)
        if len(size) < 2 or any(isinstance(extent, tuple) for extent in size):
            raise RuntimeError(f"{op}: output_size takes height and width, got {format_value(output_size)}")
        if not all(holds(extent >= 0) for extent in size):
            raise RuntimeError(f"{op}: output_size must not be negative, got {format_value(output_size)}")
        canvas: list[Column] = [whole(extent) for extent in size[:2]]
    else:
        canvas = list(spatial[0][:2])
        for k, (height, width, _) in enumerate(spatial):
            same = (height == canvas[0]) & (width == canvas[1])
            if in_ids is not None:  # a sample's region may come from another sample
                same = _one_for_all(height) & _one_for_all(width)
            if not holds(same):
                sample = first_failure(same)
                raise RuntimeError(f"{op}: without output_size all inputs must have the same shape, but input {k} differs in sample {sample}")
    channels = spatial[0][2]
    if in_ids is not None and not holds(_one_for_all(channels)):
        raise RuntimeError(f"{op}: with in_ids all samples must have the same number of channels, got {format_value(channels)}")
    frames = [extents_of(sequences[0])[0]] if sequences else []
    layout = "FHWC" if sequences else "HWC"
    out = empty_batch(first.batch_size, [*frames, *canvas, channels], dtype or first.dtype, first.buffer.device, layout)
    pairs = (in_anchors, in_anchors_rel), (shapes, shapes_rel), (out_anchors, out_anchors_rel)
    values = [absolute if absolute is not None else relative for absolute, relative in pairs]
    return launch(out, (in_ids, *values, *(relative is not None for _, relative in pairs)), mixes=in_ids is not None)


def _one_for_all(column: Column) -> Any:
    """Return whether all samples have the same number, sample by sample."""
    return column == column[0] if isinstance(column, torch.Tensor) else True
