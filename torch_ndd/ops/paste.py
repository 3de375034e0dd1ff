# SPDX-License-Identifier: Apache-2.0
"""Images on canvases: parts of them erased, masked or pasted elsewhere."""

from collections.abc import Sequence
from typing import Any

import torch

from .._batch import Batch, empty_batch
from .._operator import DeviceLike, Launch, PerSample, ShapeArg, T, Varying, operator
from ._axes import axes_of_samples, usual_layout
from ._channels import is_other
from ._columns import Column, column_list, extents_of, first_failure, float32, holds, larger, real, rows, shown, whole
from ._outputs import columns_of, like

_PASTE_LAYOUTS = ("HWC", "FHWC")


@operator(
    kernel="Tensor anchor, Tensor shape, Tensor fill_value, str axes, int channel, bool normalized_anchor, bool normalized_shape, "
    "bool centered_anchor",
)
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
    """Fill boxes of a sample with a value: from ``anchor`` to ``anchor + shape``, fractions cut off. Several boxes are given one after the other.

    Args:
        input: any type and number of dimensions.
        anchor: where the boxes begin, a number for each axis and box, by default 0; a Batch may have more boxes for one sample than for another.
        shape: their extents, as many numbers.
        axes: the axes that the numbers are for, in that order; a box goes from end to end along the others.
        axis_names: the same as letters of the layout, by default ``HW``. Without a layout the usual one is assumed (HW, HWC, DHWC).
        centered_anchor: ``anchor`` is the middle of the box.
        normalized_anchor, normalized_shape: ``anchor`` or ``shape`` is relative to the extents of the sample.
        normalized: both are.
        fill_value: one number, or one for each channel (``C`` in the layout).

    Raises:
        RuntimeError: ``anchor`` and ``shape`` that do not go together, wrong axes, values for channels that are not there.

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
    channel = layout.find("C") if arrays._layout else -1
    if columns_of(fill_value) > 1:
        if channel < 0:
            raise RuntimeError(f"{op}: fill_value has {columns_of(fill_value)} values, but the layout {arrays._layout!r} has no channels")
        channels = extents_of(arrays)[channel]
        if not isinstance(channels, torch.Tensor) and is_other(channels, columns_of(fill_value)):
            raise RuntimeError(f"{op}: fill_value has {columns_of(fill_value)} values, but there are {channels} channels")
    relative_anchor = bool(normalized if normalized is not None else normalized_anchor)
    relative_shape = bool(normalized if normalized is not None else normalized_shape)
    numbers = "".join(map(str, order))
    return Launch(like(arrays), (anchor, shape, fill_value, numbers, channel, relative_anchor, relative_shape, centered_anchor))  # type: ignore[return-value]


@operator(kernel="Tensor angle, Tensor ratio, Tensor shift_x, Tensor shift_y, Tensor tile, int row_axis")
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
    """Blacken the squares of a regular grid (arXiv:2001.04086).

    A pixel becomes 0 where the fractional parts of both ``(x cos a - y sin a - shift_x) / tile`` and ``(x sin a + y cos a - shift_y) / tile`` are
    less than ``ratio``.

    Args:
        input: images; rows and columns are the axes ``HW`` of the layout, the first two where it has none. Any type.
        tile: distance of the squares in pixels.
        ratio: side of a square, relative to ``tile``.
        angle: of the grid, in radians.
        shift_x, shift_y: where the grid begins, in pixels.

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
    row_axis = max(0, (arrays._layout or "").find("HW"))
    return Launch(like(arrays), (angle, ratio, shift_x, shift_y, tile, row_axis))  # type: ignore[return-value]


def _one(name: str, value: Any) -> Column:
    """A canvas argument: a number or a tensor (rows,), rounded to float32, in double."""
    columns = [real(column.to(torch.float32)) if isinstance(column, torch.Tensor) else float32(float(column)) for column in column_list(value)]
    if len(columns) != 1:
        raise RuntimeError(f"paste: argument {name!r} takes one number per sample, got {shown(value)}")
    return columns[0]


def _product(factor: Column, extent: Column) -> Column:
    """As float32 has it: 0.7 of 10 pixels is 7."""
    exact = factor * real(extent)
    return real(exact.to(torch.float32)) if isinstance(exact, torch.Tensor) else float32(exact)


@operator(layouts=("HWC",), kernel="Tensor start, Tensor fill_values, bool pad, str layout")
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
    """Put an image on a larger canvas: ``canvas = max(ratio * extent, min_canvas_size)``, placed at ``paste * (canvas - extent)``, fractions cut off.

    Args:
        input: ``HWC``; any type.
        ratio: extents of the canvas relative to the image's, at least 1.
        fill_value: of the canvas: one number, or one for each channel.
        n_channels: how many numbers ``fill_value`` has where it is not one.
        min_canvas_size: the least height and width of the canvas, in pixels.
        paste_x, paste_y: where the image lies, from 0 (left, top) to 1.

    Raises:
        RuntimeError: a ratio below 1, a position outside [0, 1], or not as many fill values as channels.

    >>> paste(torch.ones(1, 1, 3, dtype=torch.uint8), ratio=2, fill_value=9, paste_x=0, paste_y=0).torch()[..., 0]
    tensor([[1, 9],
            [9, 9]], dtype=torch.uint8)
    """
    op, images = "paste", input
    assert isinstance(images, Batch)
    if any(isinstance(value, str) or not isinstance(value, int | float | Sequence) for value in (fill_value, n_channels)):
        raise TypeError(f"{op}: fill_value must be numbers, n_channels an int; got {fill_value!r}, {n_channels!r}")
    fills = [float(value) for value in (fill_value if isinstance(fill_value, Sequence) else [fill_value])]
    height, width, channels = extents_of(images)
    differ = len(fills) != 1 and not isinstance(channels, torch.Tensor) and is_other(channels, len(fills))
    if len(fills) not in (1, n_channels) or differ:
        raise RuntimeError(f"{op}: fill_value takes one number or one for each channel, got {len(fills)} (n_channels={n_channels})")
    scale, least = _one("ratio", ratio), _one("min_canvas_size", min_canvas_size)
    if not holds((scale >= 1) & (scale < 2.0**31)):
        raise RuntimeError(f"{op}: a ratio of less than 1 is not supported, got {shown(ratio)}")
    if not holds(abs(least) < 2.0**31):
        raise RuntimeError(f"{op}: min_canvas_size must be finite, got {shown(min_canvas_size)}")
    start, extents = [], []
    for name, value, extent in (("paste_y", paste_y, height), ("paste_x", paste_x, width)):
        position = _one(name, value)
        if not holds((position >= 0) & (position <= 1)):
            raise RuntimeError(f"{op}: {name} must be in range [0, 1], got {shown(value)}")
        canvas = whole(larger(_product(scale, extent), least))
        extents.append(canvas)
        start.append(-whole(_product(position, canvas - extent)))
    out = empty_batch(images.batch_size, [*extents, channels], images.dtype, images._values.device, "HWC")
    return Launch(out, (rows([*start, 0]), torch.tensor([fills]), True, "HWC"))  # type: ignore[return-value]


@operator(
    layouts=_PASTE_LAYOUTS,
    kernel="Tensor? in_ids, Tensor? in_anchors, Tensor? shapes, Tensor? out_anchors, bool in_relative, bool shapes_relative, bool out_relative",
)
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
    """Paste regions of several images on a canvas of zeros, one after the other: mosaics, CutMix.

    Every output sample is made of one region of each input, or of as many samples of a single input as ``in_ids`` lists.

    Args:
        input_0, inputs: ``HWC``, or sequences ``FHWC``, whose frames are pasted one by one; of one type.
        in_ids: which samples of the batch are pasted, one number for each region; a Batch may have more for one sample than for another.
        in_anchors, shapes: where the regions begin in their inputs and their extents, (regions, 2): height and width. By default they go from the
            upper left corner, and to the lower right one.
        out_anchors: where they lie on the canvas, by default in its upper left corner.
        in_anchors_rel, shapes_rel, out_anchors_rel: the same relative to the input's or the canvas's extents, from 0 to 1; positions are rounded
            down, extents up. Marked with :func:`per_frame`, all these have one value for each frame.
        output_size: height and width of the canvas; by default those of the inputs, which then must be equal.
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
    if any(one.dtype is not first.dtype for one in images):
        raise RuntimeError(f"{op}: all inputs must have the same type, got {', '.join(str(one.dtype) for one in images)}")
    spatial = [extents_of(one)[-3:] for one in images]
    sequences = [one for one in images if one.ndim == 4]
    if output_size is not None:
        size = column_list(output_size)
        if len(size) < 2 or any(isinstance(extent, tuple) for extent in size):
            raise RuntimeError(f"{op}: output_size takes height and width, got {shown(output_size)}")
        if not all(holds(extent >= 0) for extent in size):
            raise RuntimeError(f"{op}: output_size must not be negative, got {shown(output_size)}")
        canvas: list[Column] = [whole(extent) for extent in size[:2]]
    else:
        canvas = list(spatial[0][:2])
        for k, (height, width, _) in enumerate(spatial):
            same = (height == canvas[0]) & (width == canvas[1])
            if in_ids is not None:  # a sample's region may be of another sample
                same = _one_for_all(height) & _one_for_all(width)
            if not holds(same):
                sample = first_failure(same)
                raise RuntimeError(f"{op}: without output_size all inputs must have the same shape, but input {k} differs in sample {sample}")
    channels = spatial[0][2]
    if in_ids is not None and not holds(_one_for_all(channels)):
        raise RuntimeError(f"{op}: with in_ids all samples must have the same number of channels, got {shown(channels)}")
    frames = [extents_of(sequences[0])[0]] if sequences else []
    layout = "FHWC" if sequences else "HWC"
    out = empty_batch(first.batch_size, [*frames, *canvas, channels], dtype or first.dtype, first._values.device, layout)
    pairs = (in_anchors, in_anchors_rel), (shapes, shapes_rel), (out_anchors, out_anchors_rel)
    values = [absolute if absolute is not None else relative for absolute, relative in pairs]
    return Launch(out, (in_ids, *values, *(relative is not None for _, relative in pairs)), mixes=in_ids is not None)  # type: ignore[return-value]


def _one_for_all(column: Column) -> Any:
    """Whether all samples have the same number, sample by sample."""
    return column == column[0] if isinstance(column, torch.Tensor) else True
