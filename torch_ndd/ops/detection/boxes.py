# SPDX-License-Identifier: Apache-2.0
"""Bounding boxes that follow the transformations of an image, and their encoding for detectors."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import AsGiven, DeviceLike, PerSample, ShapeArg, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, empty_batch
from .._formulas import per_sample
from .._outputs import like
from ..geometry._canvas import rotated_canvas
from ._boxes import check_boxes, check_labels, check_table, mapped_boxes, rotation_maps

RotateMode = Literal["expand", "halfway", "fixed"]
_MODES = native.numbers("boxes.Mode")
BoxLayout = Literal["xyXY", "xyWH"]
_LAYOUTS = get_args(BoxLayout)


def _corners(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return starts (N, boxes, 2), and ends or sizes."""
    rows = boxes.reshape(len(boxes), -1, 2, 2)
    return rows[:, :, 0], rows[:, :, 1]


def _flip_formula(
    boxes: torch.Tensor, horizontal: torch.Tensor | int, ltrb: bool, vertical: torch.Tensor | int, *, dtype: torch.dtype
) -> torch.Tensor:
    del dtype
    start, other = _corners(boxes)
    # Per sample, or one number for all.
    across, down = torch.broadcast_tensors(*(torch.as_tensor(flag).reshape(-1) != 0 for flag in (horizontal, vertical)))
    flipped = torch.stack([across, down], -1)[:, None].to(boxes.device)
    if ltrb:
        # Mirrored, the end of a box becomes its start.
        corners = torch.where(flipped, 1 - other, start), torch.where(flipped, 1 - start, other)
    else:
        corners = torch.where(flipped, 1 - start - other, start), other
    return torch.stack(corners, 2).reshape(boxes.shape)


@operator(formula=_flip_formula)
def bb_flip(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    horizontal: PerSample[int] = 1,
    ltrb: bool = False,
    vertical: PerSample[int] = 0,
) -> T:
    """Mirror bounding boxes like :func:`flip` mirrors their image: ``x`` becomes ``1 - x - width``.

    Args:
        input: float32 with 4 numbers per box, relative to the image's width and height: left, top, width, height.
        ltrb: the boxes are left, top, right, bottom; left becomes ``1 - right``.
        horizontal: mirror left and right.
        vertical: mirror top and bottom.

    Raises:
        RuntimeError: boxes of another type, or a number of values that is not a multiple of 4.

    >>> bb_flip(torch.tensor([[0.0, 0.25, 0.5, 0.25]])).torch()
    tensor([[0.5000, 0.2500, 0.5000, 0.2500]])
    """
    check_boxes("bb_flip", input)  # type: ignore[arg-type]
    return launch(like(input), [horizontal, ltrb, vertical])  # not the input alone: the shapes of each ragged batch are checked


def _paste_formula(
    boxes: torch.Tensor, ltrb: bool, paste_x: torch.Tensor | float, paste_y: torch.Tensor | float, ratio: torch.Tensor | float, *, dtype: torch.dtype
) -> torch.Tensor:
    del dtype
    start, other = _corners(boxes)
    x, y, scale = (per_sample(torch.as_tensor(argument, dtype=torch.float32, device=boxes.device), 3) for argument in (paste_x, paste_y, ratio))
    # What the canvas has around the image, relative to the canvas.
    room = 1 - 1 / scale
    shift = torch.cat(torch.broadcast_tensors(*(torch.minimum(argument * room, room) for argument in (x, y))), 2)
    return torch.stack([shift + start / scale, (shift if ltrb else 0) + other / scale], 2).reshape(boxes.shape)


@operator(formula=_paste_formula)
def bbox_paste(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    ltrb: bool = False,
    paste_x: PerSample[float] = 0.5,
    paste_y: PerSample[float] = 0.5,
    ratio: PerSample[float],
) -> T:
    """Move bounding boxes like :func:`paste` moves their image on a larger canvas: ``x`` becomes ``paste_x * (1 - 1 / ratio) + x / ratio``.

    Args:
        input: float32 with 4 numbers per box, relative to the image's width and height: left, top, width, height.
        ltrb: the boxes are left, top, right, bottom.
        paste_x, paste_y: relative position of the image on the canvas, from 0 (left, top) to 1.
        ratio: sides of the canvas relative to those of the image.

    Raises:
        RuntimeError: boxes of another type, or a number of values that is not a multiple of 4.

    >>> bbox_paste(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), ratio=2, paste_x=1).torch()
    tensor([[0.5000, 0.2500, 0.5000, 0.5000]])
    """
    check_boxes("bbox_paste", input)  # type: ignore[arg-type]
    return launch(like(input), [ltrb, paste_x, paste_y, ratio])  # see bb_flip


@operator(kernel=None, reads_values=True)
def bbox_rotate(
    bboxes: T,
    labels: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    angle: ShapeArg[float],
    bbox_layout: BoxLayout = "xyXY",
    bbox_normalized: bool = True,
    input_shape: ShapeArg[Sequence[int]],
    keep_size: bool = False,
    mode: RotateMode = "expand",
    remove_threshold: float = 0.1,
    shape_layout: str = "HW",
    size: ShapeArg[Sequence[float]] | None = None,
) -> T | tuple[T, ...]:
    """Rotate bounding boxes like :func:`rotate` rotates their image, clip them to it and drop those with too little left.

    Args:
        bboxes: float32 (boxes, 4).
        labels: one row per box, of any type; the labels of the remaining boxes are returned too.
        angle: degrees, counter-clockwise.
        bbox_layout: "xyXY", start and end, or "xyWH", start and size.
        bbox_normalized: the boxes are relative to the image's width and height rather than in pixels; the result is then relative to the new image.
        input_shape: shape of the original image, in the order of ``shape_layout``.
        keep_size, size: size of the rotated image, as for ``rotate``.
        mode: box of a rotated box: "expand" the box around it, "fixed" a box with its own width and height (swapped beyond 45 degrees), "halfway" the
            mean of both.
        remove_threshold: fraction of a box that must lie within the new image, from 0 to 1.
        shape_layout: axes of ``input_shape``; only H and W are used.

    Returns:
        The remaining boxes; with ``labels``, two results. Their number depends on the values, so the call waits for the inputs.

    Raises:
        RuntimeError: boxes that are not a float32 table, a number of labels other than the number of boxes, an unknown layout or mode, a threshold
            outside 0 to 1, ``size`` together with ``keep_size``.

    >>> bbox_rotate(torch.tensor([[0.0, 0.0, 0.5, 1.0]]), angle=90, input_shape=[100, 200]).torch()
    tensor([[0.0000, 0.5000, 1.0000, 1.0000]])
    """
    op = "bbox_rotate"
    boxes: Batch = bboxes  # type: ignore[assignment]
    with_size = _check_boxes(op, boxes, labels, bbox_layout, remove_threshold)
    if not isinstance(mode, str):
        raise TypeError(f"{op}: mode must be a str, got {mode!r}")
    check_choice(op, "mode", mode, _MODES)
    if size is not None and keep_size:
        raise RuntimeError(f"{op}: give one of size and keep_size")
    # Boxes are relative to the image, whose size the map needs in pixels: the aspect ratio changes the angle.
    angles, planes = numbers(angle), plane_extents(op, "input_shape", input_shape, shape_layout)
    if size is not None:
        canvases = (plane_extents(op, "size", size, "HW", least=0.5) + 0.5).floor()
    elif keep_size:
        canvases = planes
    else:
        # In float32, as rotate() computes the canvas: boxes must be relative to exactly that one.
        columns, rows = rotated_canvas([planes[:, 1], planes[:, 0]], angles[:, 0].to(torch.float32))
        canvases = torch.stack([rows, columns], 1).to(torch.float64)
    table = rotation_maps(angles, planes, canvases)
    return launch(
        (),
        also=mapped_boxes(
            boxes,
            labels,  # type: ignore[arg-type]
            table,
            mode=_MODES[mode],
            normalized=bool(bbox_normalized),
            with_size=with_size,
            cut=True,
            threshold=float(remove_threshold),
        ),
    )


@operator(kernel=None, reads_values=True)
def bbox_transform(
    bboxes: T,
    labels: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    MT: ShapeArg[Sequence[float] | Sequence[Sequence[float]]],
    bbox_layout: BoxLayout = "xyXY",
    bbox_normalized: bool = False,
    input_shape: ShapeArg[Sequence[int]] | None = None,
    output_shape: ShapeArg[Sequence[int]] | None = None,
    remove_threshold: float = 0.1,
    shape_layout: str = "HW",
) -> T | tuple[T, ...]:
    """Transform bounding boxes with their image: each becomes the box around its mapped corners.

    It is clipped to the new image, and dropped if too little of it remains. ``transforms.of`` returns the map of a pixel operator. Not in DALI.

    Args:
        bboxes: float32 (boxes, 4).
        labels: one row per box, of any type; the labels of the remaining boxes are returned too.
        MT: the map, (2, 3), from pixels of the old image to pixels of the new one, x first.
        bbox_layout: "xyXY", start and end, or "xyWH", start and size.
        bbox_normalized: the boxes are relative to the image's width and height rather than in pixels; the result is then relative to the new image.
            Needs both shapes.
        input_shape: shape of the old image, in the order of ``shape_layout``.
        output_shape: shape of the new image. Without it nothing is clipped or dropped.
        remove_threshold: fraction of a box that must lie within the new image, from 0 to 1.
        shape_layout: axes of the shapes; only H and W are used.

    Returns:
        The remaining boxes; with ``labels``, two results. Their number depends on the values, so the call waits for the inputs.

    Raises:
        RuntimeError: boxes that are not a float32 table, a number of label rows other than the number of boxes, a matrix of another shape, an unknown
            layout, a threshold outside 0 to 1, normalized boxes without the shapes.

    >>> image = torch.zeros(100, 200, 3)
    >>> half = ndd.transforms.of(ndd.resize, image, size=[50, 100])
    >>> bbox_transform(torch.tensor([[20.0, 10.0, 60.0, 90.0]]), MT=half, output_shape=[50, 100]).torch()
    tensor([[10.,  5., 30., 45.]])
    """
    op = "bbox_transform"
    boxes: Batch = bboxes  # type: ignore[assignment]
    with_size = _check_boxes(op, boxes, labels, bbox_layout, remove_threshold)
    if bbox_normalized and (input_shape is None or output_shape is None):
        raise RuntimeError(f"{op}: normalized boxes need input_shape and output_shape")
    maps = numbers(MT)
    if maps.shape[1] != 6:
        raise RuntimeError(f"{op}: MT must be 2 by 3, got {maps.shape[1]} numbers")
    # Pixels need no sizes: with 1 for all of them the kernel divides and multiplies by 1.
    unit = torch.ones(1, dtype=torch.float64)
    height, width = (unit, unit) if input_shape is None else plane_extents(op, "input_shape", input_shape, shape_layout).unbind(1)
    rows, columns = (unit, unit) if output_shape is None else plane_extents(op, "output_shape", output_shape, shape_layout).unbind(1)
    parts = torch.broadcast_tensors(*maps.unbind(1), width, height, columns, rows)
    return launch(
        (),
        also=mapped_boxes(
            boxes,
            labels,  # type: ignore[arg-type]
            torch.stack(parts, 1),
            mode=0,
            normalized=bool(bbox_normalized),
            with_size=with_size,
            cut=output_shape is not None,
            threshold=float(remove_threshold),
        ),
    )


def _check_boxes(op: str, boxes: Batch, labels: Any, bbox_layout: Any, remove_threshold: Any) -> bool:
    """Return whether the boxes are start and size."""
    check_table(op, boxes)
    if labels is not None:
        check_labels(op, boxes, labels)
    if not isinstance(bbox_layout, str):
        raise TypeError(f"{op}: bbox_layout must be a str, got {bbox_layout!r}")
    check_choice(op, "bbox_layout", bbox_layout, _LAYOUTS)
    if isinstance(remove_threshold, bool) or not isinstance(remove_threshold, int | float):
        raise TypeError(f"{op}: remove_threshold must be a number, got {remove_threshold!r}")
    if not 0 <= remove_threshold <= 1:
        raise RuntimeError(f"{op}: remove_threshold must be from 0 to 1, got {remove_threshold}")
    return bbox_layout == "xyWH"


def numbers(value: Any) -> torch.Tensor:
    """Return a shape argument as float64 (1 or N, columns)."""
    if isinstance(value, torch.Tensor):
        return value.to(torch.float64).reshape(len(value), -1)
    flat = np.asarray(value, np.float64).reshape(1, -1)
    return torch.from_numpy(flat)


def plane_extents(op: str, name: str, value: Any, layout: Any, least: float = 0.0) -> torch.Tensor:
    """Return heights and widths, float64 (1 or N, 2), of an argument whose numbers are in the order of a layout."""
    if not isinstance(layout, str):
        raise TypeError(f"{op}: shape_layout must be a str, got {layout!r}")
    extents = numbers(value)
    if "H" not in layout or "W" not in layout or max(layout.index("H"), layout.index("W")) >= extents.shape[1]:
        raise RuntimeError(f"{op}: {name} must have one number per axis of the layout {layout!r}, with H and W, got {extents.shape[1]} of them")
    planes = extents if layout == "HW" and extents.shape[1] == 2 else extents[:, [layout.index("H"), layout.index("W")]]
    if not is_compiling() and planes.numel() and not planes.numpy().min() >= least:
        raise RuntimeError(f"{op}: {name} must {'be positive' if least > 0 else 'not be negative'}, got {extents.tolist()}")
    return planes


class _AnchorTable:
    """Cache of the anchors of recent calls in the kernel's form: converting a list of 35000 numbers takes 1 ms, comparing it with a copy 0.1 ms."""

    def __init__(self) -> None:
        self._lists: dict[int, tuple[Any, torch.Tensor]] = {}
        self._tables: dict[tuple[int, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}

    def table(self, anchors: Any, device: torch.device) -> torch.Tensor:
        """Return float32 (5, A): left, top, right, bottom and area."""
        if isinstance(anchors, list | tuple) and is_compiling():  # constants of the graph
            return _sides(torch.tensor(anchors, dtype=torch.float32).reshape(-1)).to(device)
        if isinstance(anchors, list | tuple):
            known = self._lists.get(id(anchors))
            # The same list may have new contents, and another list the number of one that was freed.
            if known is None or known[0] != anchors:
                if len(self._lists) > 8:
                    self._lists.clear()
                    self._tables.clear()
                known = self._lists[id(anchors)] = (type(anchors)(anchors), torch.from_numpy(np.array(anchors, np.float32).reshape(-1)))
            flat = known[1]
            sides = self._tables.get((id(flat), device))
            if sides is None or sides[0] is not flat:
                sides = self._tables[id(flat), device] = (flat, _sides(flat).to(device))
            return sides[1]
        flat = torch.as_tensor(anchors.wait() if isinstance(anchors, Batch) or hasattr(anchors, "wait") else anchors)
        return _sides(flat.reshape(-1).to(torch.float32)).to(device)


def _sides(flat: torch.Tensor) -> torch.Tensor:
    if flat.numel() % 4 or not flat.numel():
        raise RuntimeError(f"box_encoder: anchors must be 4 numbers for each anchor, got {flat.numel()}")
    left, top, right, bottom = flat.reshape(-1, 4).unbind(1)
    return torch.stack([left, top, right, bottom, (right - left) * (bottom - top)])


_anchors = _AnchorTable()


def _four(name: str, numbers: Any, default: float) -> list[float]:
    if numbers is None:
        return [default] * 4
    values = list(numbers) if isinstance(numbers, Sequence) and not isinstance(numbers, str) else numbers
    if not isinstance(values, list) or not all(isinstance(number, int | float) for number in values):
        raise TypeError(f"box_encoder: argument {name!r} must be four numbers, got {numbers!r}")
    if len(values) != 4:
        raise RuntimeError(f"box_encoder: argument {name!r} must be four numbers, got {len(values)}")
    return [float(number) for number in values]


@operator()
def box_encoder(
    boxes: T,
    labels: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    anchors: AsGiven[Any],
    criteria: float = 0.5,
    means: Sequence[float] | None = None,
    offset: bool = False,
    scale: float = 1.0,
    stds: Sequence[float] | None = None,
) -> tuple[T, T]:
    """Assign a box and its label to every anchor of a detector: the box that it overlaps most, if by more than ``criteria``.

    Overlap is intersection over union. Every box has at least one anchor: the one that it overlaps most. Among equals the last one wins.

    Args:
        boxes: float32 (boxes, 4): left, top, right, bottom.
        labels: integers, one per box.
        anchors: A anchors of 4 numbers each, like the boxes: a list, an array or a tensor. The conversion of a list is cached.
        criteria: threshold of the overlap, from 0 to 1.
        means, stds: mean and standard deviation of the differences, four numbers each, by default zeros and ones: ``(difference - mean) / std``.
        offset: encode differences from the anchor, ``((x - xa) / wa, (y - ya) / ha, log(w / wa), log(h / ha))`` of centers and sizes.
        scale: factor on boxes and anchors for the differences.

    Returns:
        float32 (A, 4), center and size of the box assigned to each anchor, or of the anchor itself if there is none; zeros with ``offset``. And its
        label, of the labels' type, (A,); 0 if there is none.

    Raises:
        RuntimeError: boxes that are not a float32 table, a number of labels other than the number of boxes, another number of anchors, means or
            standard deviations, a standard deviation of zero, ``criteria`` outside 0 to 1.

    >>> anchors = [0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1]
    >>> encoded, labels = box_encoder(torch.tensor([[0.0, 0.0, 0.5, 0.25]]), torch.tensor([7], dtype=torch.int32), anchors=anchors)
    >>> encoded.torch(), labels.torch()
    (tensor([[0.2500, 0.1250, 0.5000, 0.2500],
            [0.7500, 0.7500, 0.5000, 0.5000]]), tensor([7, 0], dtype=torch.int32))
    """
    op = "box_encoder"
    truth, classes = boxes, labels
    assert isinstance(truth, Batch)
    assert isinstance(classes, Batch)
    check_table(op, truth)
    check_labels(op, truth, classes)
    if classes.dtype.is_floating_point or classes.dtype is torch.bool:
        raise RuntimeError(f"{op}: labels must be integers, got {classes.dtype}")
    if not 0 <= criteria <= 1:
        raise RuntimeError(f"{op}: criteria must be from 0 to 1, got {criteria}")
    values = [*_four("means", means, 0.0), *_four("stds", stds, 1.0)]
    if 0.0 in values[4:]:
        raise RuntimeError(f"{op}: stds must not be zero, got {stds}")
    target = truth.buffer.device
    try:
        table = _anchors.table(anchors, target)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op}: argument 'anchors': {error}") from None
    count = table.shape[1]
    out = empty_batch(truth.batch_size, [count, 4], torch.float32, target), empty_batch(truth.batch_size, [count], classes.dtype, target)
    return launch(out, [table, torch.tensor(values, dtype=torch.float32), criteria, offset, scale])
