# SPDX-License-Identifier: Apache-2.0
"""Windows and borders: crop, center_crop, pad, five_crop, ten_crop."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.suggestions import check_choice
from ...._core.values.batch import Batch
from ....ops._borders import Border
from ....ops.geometry.flip import flip
from ....ops.geometry.slice import slice as cut
from ..._draws import round_half_even
from ..._numbers import Number, first_failure, holds, number
from ._coordinates import Rows, of_tensor, on_coordinates
from ._dispatch import dispatch, fills, on_images, on_masks, rows, size_of

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]


def crop(inpt: Any, top: Any, left: Any, height: Any, width: Any) -> Any:
    """Crop a window: ``out[y, x] = in[top + y, left + x]``, 0 outside the image.

    Args:
        inpt: images, videos, masks, boxes or points.
        top, left: corner of the window in pixels; for a Batch one number, or one per sample.
        height, width: its size, likewise.

    >>> crop(torch.arange(6).reshape(1, 2, 3), 0, 1, 2, 1).flatten()
    tensor([1, 4])
    """
    return dispatch(crop, inpt, top=top, left=left, height=height, width=width)


def _as_window(images: Batch | None, rows: Rows | None, top: Any, left: Any, height: Any, width: Any) -> tuple[Number, Number, Number, Number]:
    size = images.batch_size if images is not None else rows.batch_size if rows is not None else None
    named = (("top", top), ("left", left), ("height", height), ("width", width))
    return tuple(number("crop", name, value, size) for name, value in named)  # type: ignore[return-value]


def window_of(
    images: Batch,
    top: Number,
    left: Number,
    height: Number,
    width: Number,
    fill: Sequence[float] = (0.0,),
    op: str = "crop",
    border: Border = "constant",
) -> Batch:
    """Return the window of each image, for a function that errors name."""
    _check_extents(op, height, width)
    return cut(images, start=rows(top, left), shape=rows(height, width), axis_names="HW", out_of_bounds_policy=border, fill_values=list(fill))


def _check_extents(op: str, height: Number, width: Number) -> None:
    """Raise RuntimeError if the result of a function would have a negative height or width."""
    for name, extent in (("height", height), ("width", width)):
        fits = extent >= 0
        if not holds(fits):
            value = extent.reshape(-1)[~fits.reshape(-1)][0].item() if isinstance(extent, torch.Tensor) else extent  # type: ignore[union-attr]
            raise RuntimeError(f"{op}: {first_failure(fits)}the {name} of the result must not be negative, got {value}")


def border_fill(images: Batch, fill: Any) -> list[float]:
    """Return the values of a border, truncated like torchvision's; the operator would round."""
    values = fills(fill, images, "pad") or [0.0]
    return values if images.dtype.is_floating_point else [float(int(value)) for value in values]


def _crop(images: Batch, top: Any, left: Any, height: Any, width: Any) -> Batch:
    return window_of(images, *_as_window(images, None, top, left, height, width))


def _view(image: torch.Tensor, top: Any, left: Any, height: Any, width: Any) -> torch.Tensor | None:
    """Return the window of a tensor as a view, None if it exceeds the image."""
    # Only plain numbers, the usual case: bool, numpy integers and numbers per sample go through the kernel, which checks them.
    if not (type(top) is type(left) is type(height) is type(width) is int) or image.dim() < 2:
        return None
    bottom, right = top + height, left + width
    if top < 0 or left < 0 or height < 0 or width < 0 or bottom > image.shape[-2] or right > image.shape[-1]:
        return None
    return image[..., top:bottom, left:right]


crop_image, crop_video = on_images(crop, _crop, view=_view)
crop_mask = on_masks(crop, _crop, view=_view)


def _shift(rows: Rows, x: Any, y: Any) -> torch.Tensor:
    """Translate boxes or points by whole pixels."""
    output = rows.values.clone()
    for k, by in ((0, x), (1, y)):
        by = rows.of(by)
        by = by.to(output.dtype) if isinstance(by, torch.Tensor) else torch.tensor(by, dtype=output.dtype)
        output[:, k] += by
        if rows.format == BoundingBoxFormat.XYXY:  # the other formats store extents after the position
            output[:, k + 2] += by
    return output


def crop_box_rows(rows: Rows, top: Any, left: Any, height: Any, width: Any) -> Rows:
    """Translate boxes to the coordinates of a window, and clamp them to it."""
    top, left, height, width = _as_window(None, rows, top, left, height, width)
    if rows.rotated:

        def crop_rows(values: torch.Tensor, canvas: Any, t: Any, x: Any, h: Any, w: Any) -> Any:
            return reference.crop_bounding_boxes(values, format=rows.format, top=t, left=x, height=h, width=w, clamping_mode=rows.mode)

        return rows.each(crop_rows, top, left, height, width)
    return rows.with_values(_shift(rows, -left, -top), (height, width)).clamp_to_canvas()


def crop_point_rows(rows: Rows, top: Any, left: Any, height: Any, width: Any) -> Rows:
    """Translate points to the coordinates of a window."""
    top, left, height, width = _as_window(None, rows, top, left, height, width)
    return rows.with_values(_shift(rows, -left, -top), (height, width))


on_coordinates(crop, crop_box_rows, crop_point_rows)


def crop_bounding_boxes(
    bounding_boxes: torch.Tensor, format: BoundingBoxFormat, top: Any, left: Any, height: Any, width: Any, clamping_mode: Any = "soft"
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes in a window, and its size."""
    output = crop_box_rows(of_tensor(bounding_boxes, (0, 0), format, clamping_mode), top, left, height, width)
    return output.values.reshape(bounding_boxes.shape), (height, width)


def crop_keypoints(keypoints: torch.Tensor, top: Any, left: Any, height: Any, width: Any) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points in a window, and its size."""
    output = crop_point_rows(of_tensor(keypoints, (0, 0)), top, left, height, width)
    return output.values.reshape(keypoints.shape), (height, width)


# --- center_crop ---


def center_crop(inpt: Any, output_size: Any) -> Any:
    """Crop the window in the middle, after padding with 0 where the image is smaller.

    Args:
        inpt: images, videos, masks, boxes or points.
        output_size: height and width, or one number for both.

    >>> center_crop(torch.arange(5).reshape(1, 1, 5), [1, 3]).flatten()
    tensor([1, 2, 3])
    """
    return dispatch(center_crop, inpt, output_size=output_size)


def center_window(height: Number, width: Number, output_size: Any) -> tuple[Number, Number, int, int]:
    """Return the window in the middle: top, left, height, width."""
    h, w = as_height_width(output_size)
    return _middle_start(height, h), _middle_start(width, w), h, w


def as_height_width(output_size: Any) -> tuple[int, int]:
    """Return height and width from one number or two."""
    if isinstance(output_size, int | float):
        return int(output_size), int(output_size)
    try:
        numbers = [int(extent) for extent in output_size]
    except (TypeError, ValueError):
        raise TypeError(f"center_crop: output_size must be one number or two, got {output_size!r}") from None
    if len(numbers) not in (1, 2):
        raise ValueError(f"center_crop: output_size must be one number or two, got {output_size!r}")
    return numbers[0], numbers[-1]


def _middle_start(extent: Number, size: int) -> Number:
    """Return the start of the window: (extent - size) / 2, half to even; or minus the padding in front, rounded down."""
    # torchvision pads a smaller image first, with the larger half after it, and crops afterwards.
    if not isinstance(extent, torch.Tensor):
        return -((size - extent) // 2) if size > extent else round_half_even((extent - size) / 2.0)
    return torch.where(extent < size, -((size - extent) // 2), round_half_even((extent - size).to(torch.float64) / 2.0))


def _center_crop(images: Batch, output_size: Any) -> Batch:
    return window_of(images, *center_window(*size_of(images), output_size), op="center_crop")


def _central_view(image: torch.Tensor, output_size: Any) -> torch.Tensor | None:
    return None if image.dim() < 2 else _view(image, *center_window(image.shape[-2], image.shape[-1], output_size))


center_crop_image, center_crop_video = on_images(center_crop, _center_crop, view=_central_view)
center_crop_mask = on_masks(center_crop, _center_crop, view=_central_view)


def _window_of_rows(rows: Rows, output_size: Any) -> tuple[Number, Number, int, int]:
    """Return the window of boxes and points, which torchvision rounds to even also where it is larger than the canvas."""
    h, w = as_height_width(output_size)
    top, left = ((extent.to(torch.float64) if isinstance(extent, torch.Tensor) else extent) for extent in rows.canvas)
    return round_half_even((top - h) / 2.0), round_half_even((left - w) / 2.0), h, w


def _center_crop_boxes(rows: Rows, output_size: Any) -> Rows:
    return crop_box_rows(rows, *_window_of_rows(rows, output_size))


def _center_crop_points(rows: Rows, output_size: Any) -> Rows:
    return crop_point_rows(rows, *_window_of_rows(rows, output_size))


on_coordinates(center_crop, _center_crop_boxes, _center_crop_points)


def center_crop_bounding_boxes(
    bounding_boxes: torch.Tensor, format: BoundingBoxFormat, canvas_size: tuple[int, int], output_size: Any, clamping_mode: Any = "soft"
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes in the window in the middle, and its size."""
    output = _center_crop_boxes(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), output_size)
    return output.values.reshape(bounding_boxes.shape), output.canvas


def center_crop_keypoints(inpt: torch.Tensor, canvas_size: tuple[int, int], output_size: Any) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points in the window in the middle, and its size."""
    output = _center_crop_points(of_tensor(inpt, canvas_size), output_size)
    return output.values.reshape(inpt.shape), output.canvas


# --- pad ---


def pad(inpt: Any, padding: Any, fill: Any = None, padding_mode: PaddingMode = "constant") -> Any:
    """Add borders.

    Args:
        inpt: images, videos, masks, boxes or points.
        padding: pixels on every side; or [left and right, top and bottom]; or [left, top, right, bottom]. Negative numbers crop.
        fill: value of a constant border, by default 0: a number, or one per channel.
        padding_mode: "constant"; "edge" (aa|abc|cc); "reflect" (cb|abc|ba); "symmetric" (ba|abc|cb).

    Raises:
        ValueError: another mode or count of numbers; boxes or points with another mode than "constant".
        RuntimeError: a reflected border that is not smaller than the image.

    >>> pad(torch.ones(1, 1, 1), [1, 0]).flatten()
    tensor([0., 1., 0.])
    """
    return dispatch(pad, inpt, padding=padding, fill=fill, padding_mode=padding_mode)


def sides(padding: Any, batch_size: int | None) -> tuple[Number, Number, Number, Number]:
    """Return the borders: left, top, right, bottom."""
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if isinstance(padding, Batch | np.ndarray | torch.Tensor):
        table = padding.torch() if isinstance(padding, Batch) else torch.as_tensor(padding)
        padding = list(table.reshape(len(table), -1).unbind(1))
    if not isinstance(padding, list | tuple):
        raise TypeError(f"pad: padding must be an integer or a sequence of integers, got {padding!r}")
    if len(padding) not in (1, 2, 4):
        raise ValueError(f"pad: padding must be an int or a sequence of 1, 2 or 4 ints, got {len(padding)}")
    borders = [number("pad", "padding", border, batch_size) for border in padding]
    if len(borders) == 1:
        borders = borders * 4
    return (borders[0], borders[1], borders[0], borders[1]) if len(borders) == 2 else tuple(borders)  # type: ignore[return-value]


def _pad(images: Batch, padding: Any, fill: Any = None, padding_mode: PaddingMode = "constant") -> Batch:
    left, top, right, bottom = sides(padding, images.batch_size)
    check_choice("pad", "padding_mode", padding_mode, get_args(PaddingMode), ValueError)
    values = fills(fill, images, "pad") or [0.0]
    if padding_mode != "constant" and len(values) > 1:
        raise ValueError(f"pad: padding mode {padding_mode!r} is not supported if fill is not one number")
    height, width = size_of(images)
    # A reflected border must not need more pixels than the image has; "reflect" leaves out the edge pixel.
    if padding_mode in ("reflect", "symmetric"):
        _check_borders(padding_mode, height, width, left, top, right, bottom)
    size = height + top + bottom, width + left + right
    _check_extents("pad", *size)
    return window_of(images, -top, -left, *size, border_fill(images, fill), op="pad", border=_BORDERS[padding_mode])


# torchvision's names, and those of the operators.
_BORDERS: dict[PaddingMode, Border] = {"constant": "constant", "edge": "edge", "reflect": "reflect_101", "symmetric": "reflect_1001"}


def _check_borders(mode: str, height: Number, width: Number, left: Number, top: Number, right: Number, bottom: Number) -> None:
    for border, extent, axis in ((left, width, "width"), (right, width, "width"), (top, height, "height"), (bottom, height, "height")):
        fits = border < extent if mode == "reflect" else border <= extent
        if not holds(fits):
            raise RuntimeError(f"pad: {first_failure(fits)}a {mode} border must be smaller than the image, got {border} for the {axis} {extent}")


def _pad_mask(masks: Batch, padding: Any, fill: Any = None, padding_mode: PaddingMode = "constant") -> Batch:
    if isinstance(fill, list | tuple):
        raise ValueError("pad: fill must be one number for masks, got a sequence")
    return _pad(masks, padding, fill, padding_mode)


pad_image, pad_video = on_images(pad, _pad)
pad_mask = on_masks(pad, _pad_mask)


def _pad_canvas(rows: Rows, padding: Any, padding_mode: PaddingMode, what: str) -> tuple[Number, Number, tuple[Any, Any]]:
    check_choice("pad", "padding_mode", padding_mode, get_args(PaddingMode), ValueError)
    if padding_mode != "constant":
        raise ValueError(f"pad: padding mode {padding_mode!r} is not supported with {what}, only 'constant'")
    left, top, right, bottom = sides(padding, rows.batch_size)
    height, width = rows.canvas
    return left, top, (height + top + bottom, width + left + right)


def _pad_boxes(rows: Rows, padding: Any, padding_mode: PaddingMode = "constant") -> Rows:
    left, top, canvas = _pad_canvas(rows, padding, padding_mode, "bounding boxes")
    if rows.rotated:

        def pad_rows(values: torch.Tensor, canvas: Any, *by: Any) -> Any:
            borders = [int(border) for border in by]
            return reference.pad_bounding_boxes(values, format=rows.format, canvas_size=canvas, padding=borders, clamping_mode=rows.mode)

        return rows.each(pad_rows, *sides(padding, rows.batch_size))
    return rows.with_values(_shift(rows, left, top), canvas).clamp_to_canvas()


def _pad_points(rows: Rows, padding: Any, padding_mode: PaddingMode = "constant") -> Rows:
    left, top, canvas = _pad_canvas(rows, padding, padding_mode, "key points")
    return rows.with_values(_shift(rows, left, top), canvas)


on_coordinates(pad, _pad_boxes, _pad_points, drops=("fill",))


def pad_bounding_boxes(
    bounding_boxes: torch.Tensor,
    format: BoundingBoxFormat,
    canvas_size: tuple[int, int],
    padding: Any,
    padding_mode: PaddingMode = "constant",
    clamping_mode: Any = "soft",
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes of a padded image, and its size."""
    output = _pad_boxes(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), padding, padding_mode)
    return output.values.reshape(bounding_boxes.shape), output.canvas


def pad_keypoints(
    keypoints: torch.Tensor, canvas_size: tuple[int, int], padding: Any, padding_mode: PaddingMode = "constant"
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points of a padded image, and its size."""
    output = _pad_points(of_tensor(keypoints, canvas_size), padding, padding_mode)
    return output.values.reshape(keypoints.shape), output.canvas


# --- five_crop, ten_crop ---


def five_crop(inpt: Any, size: Any) -> Any:
    """Return five windows: top left, top right, bottom left, bottom right, middle.

    Args:
        inpt: images or videos.
        size: height and width, or one number for both.

    Raises:
        ValueError: an image that is smaller.

    >>> [part.flatten().tolist() for part in five_crop(torch.arange(4).reshape(1, 2, 2), 1)]
    [[0], [1], [2], [3], [0]]
    """
    return dispatch(five_crop, inpt, size=size)


def ten_crop(inpt: Any, size: Any, vertical_flip: bool = False) -> Any:
    """Return the windows of :func:`five_crop`, and those of the flipped image.

    >>> len(ten_crop(torch.zeros(3, 8, 8), 4))
    10
    """
    return dispatch(ten_crop, inpt, size=size, vertical_flip=vertical_flip)


def _five_size(size: Any) -> tuple[int, int]:
    if isinstance(size, int | float):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 1:
        return int(size[0]), int(size[0])
    if not isinstance(size, Sequence) or len(size) != 2:
        raise ValueError(f"five_crop: please provide only two dimensions (h, w) for size, got {size!r}")
    return int(size[0]), int(size[1])


def _five_crop(images: Batch, size: Any) -> tuple[Batch, ...]:
    h, w = _five_size(size)
    height, width = size_of(images)
    fits = (h <= height) & (w <= width) if isinstance(height, torch.Tensor) or isinstance(width, torch.Tensor) else h <= height and w <= width
    if not holds(fits):
        raise ValueError(f"five_crop: {first_failure(fits)}requested crop size {(h, w)} is bigger than the input size {(height, width)}")
    # Top left, top right, bottom left, bottom right, middle.
    corners = ((0, 0), (0, width - w), (height - h, 0), (height - h, width - w), (_middle_start(height, h), _middle_start(width, w)))
    return tuple(window_of(images, top, left, h, w) for top, left in corners)


def _ten_crop(images: Batch, size: Any, vertical_flip: bool = False) -> tuple[Batch, ...]:
    return (*_five_crop(images, size), *_five_crop(flip(images, horizontal=int(not vertical_flip), vertical=int(vertical_flip)), size))


five_crop_image, five_crop_video = on_images(five_crop, _five_crop)
ten_crop_image, ten_crop_video = on_images(ten_crop, _ten_crop)
