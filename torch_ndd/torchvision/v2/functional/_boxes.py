# SPDX-License-Identifier: Apache-2.0
"""Boxes and points only: formats, clamping and sanitizing."""

from typing import Any, Literal

import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.suggestions import check_choice
from ...._core.values.batch import Batch, as_batch, new_batch
from ...._core.values.tv_tensors import ClampingMode, as_box_format
from ... import tv_tensors
from ..._numbers import batch_of
from ..._sample import is_pure_tensor
from ._coordinates import Rows, of_batch, of_tensor, to_batch


def convert_bounding_box_format(inpt: Any, old_format: Any = None, new_format: Any = None, inplace: bool = False) -> Any:
    """Change the format of boxes.

    Args:
        inpt: boxes, or a torch tensor with ``old_format``.
        old_format, new_format: a ``BoundingBoxFormat`` or its name.
        inplace: write into the memory of a torch tensor.

    Raises:
        TypeError: no ``new_format``, a value that is not boxes.
        ValueError: ``old_format`` missing or not allowed; another ``new_format``; a conversion between rotated and unrotated boxes.

    >>> convert_bounding_box_format(torch.tensor([[1, 2, 4, 6]]), "XYXY", "XYWH")
    tensor([[1, 2, 3, 4]])
    """
    if not tv_tensors.is_batch_of(tv_tensors.BoundingBoxes, inpt):
        return reference.convert_bounding_box_format(inpt, old_format, new_format, inplace)
    if new_format is None:
        raise TypeError("convert_bounding_box_format() missing 1 required argument: 'new_format'")
    if old_format is not None:
        raise ValueError("convert_bounding_box_format: boxes have a format: old_format must be None")
    format = as_box_format("convert_bounding_box_format", new_format)
    if format == inpt.format:
        return inpt
    # torchvision's arithmetic on the rows of all samples together.
    rows = of_batch(inpt)
    values = reference.convert_bounding_box_format(rows.values, inpt.format, format)
    columns = tv_tensors.box_columns(format)
    if inpt.ragged_shapes is None:
        converted = new_batch(values.reshape(inpt.batch_size, -1, columns), None, inpt.layout)
    else:
        shapes = torch.stack([inpt.ragged_shapes[:, 0], torch.full_like(inpt.ragged_shapes[:, 0], columns)], 1)
        converted = new_batch(values.reshape(-1), shapes, inpt.layout)
    return inpt.over(converted, format=format)


def clamp_bounding_boxes(inpt: Any, format: Any = None, canvas_size: Any = None, clamping_mode: Literal["auto"] | ClampingMode = "auto") -> Any:
    """Clamp boxes to their canvas, from 0 to its extents.

    Args:
        inpt: boxes, or a torch tensor with ``format``, ``canvas_size`` and ``clamping_mode``.
        format, canvas_size: of a torch tensor.
        clamping_mode: "auto" for the mode of the boxes; "soft", "hard" (which differ for rotated boxes) or None, which changes nothing.

    >>> clamp_bounding_boxes(torch.tensor([[-1.0, 2.0, 4.0, 60.0]]), "XYXY", (10, 20), "soft")
    tensor([[ 0.,  2.,  4., 10.]])
    """
    if clamping_mode is not None:
        check_choice("clamp_bounding_boxes", "clamping_mode", clamping_mode, ("auto", "soft", "hard"), ValueError)
    if tv_tensors.is_batch_of(tv_tensors.BoundingBoxes, inpt):
        if format is not None or canvas_size is not None:
            raise ValueError("clamp_bounding_boxes: boxes have a format and a canvas: format and canvas_size must be None")
        rows = of_batch(inpt)
        mode = inpt.clamping_mode if clamping_mode == "auto" else clamping_mode
        return to_batch(_clamp(Rows(rows.values, rows.canvas, rows.owner, rows.format, mode)), inpt)
    if format is not None:
        format = as_box_format("clamp_bounding_boxes", format)
    rotated = isinstance(inpt, single.BoundingBoxes) or (format is not None and single.is_rotated_bounding_format(format))
    # torchvision handles its own objects, rotated boxes and missing arguments, with its errors.
    if not is_pure_tensor(inpt) or rotated or format is None or canvas_size is None or clamping_mode == "auto":
        return reference.clamp_bounding_boxes(inpt, format, canvas_size, clamping_mode)
    clamped = _clamp(of_tensor(inpt, canvas_size, format, clamping_mode)).values.reshape(inpt.shape)
    return clamped.clone() if clamping_mode is None else clamped


def _clamp(rows: Rows) -> Rows:
    if rows.rotated:
        return rows.each(lambda values, canvas: reference.clamp_bounding_boxes(values, rows.format, canvas, rows.mode))
    return rows.clamp_to_canvas()


def clamp_keypoints(inpt: Any, canvas_size: Any = None) -> Any:
    """Clamp points to the pixels of their canvas, from 0 to its extents - 1.

    >>> clamp_keypoints(torch.tensor([[-1.0, 60.0]]), (10, 20))
    tensor([[0., 9.]])
    """
    if tv_tensors.is_batch_of(tv_tensors.KeyPoints, inpt):
        if canvas_size is not None:
            raise ValueError("clamp_keypoints: points have a canvas: canvas_size must be None")
        rows = of_batch(inpt)
        return to_batch(rows.with_values(rows.within(rows.real, 1)), inpt)
    if is_pure_tensor(inpt) and canvas_size is not None:
        rows = of_tensor(inpt, canvas_size)
        return rows.with_values(rows.within(rows.real, 1)).values.reshape(inpt.shape)
    return reference.clamp_keypoints(inpt, canvas_size)


# --- sanitizing ---


def find_valid_boxes(inpt: Any, min_size: float, min_area: float) -> torch.Tensor:
    """Return which boxes of a Batch are large enough and within their canvas: bool, for the rows of all samples in order."""
    rows = of_batch(inpt)
    height, width = (rows.of(extent) for extent in rows.canvas)
    # Width, height, repeated for each corner below.
    limits = torch.stack([torch.as_tensor(width), torch.as_tensor(height)], 1)
    if rows.rotated:
        corners = reference.convert_bounding_box_format(rows.values, rows.format, BoundingBoxFormat.XYXYXYXY)
        x, y = corners[:, 0::2], corners[:, 1::2]
        # As torchvision does: the second side mixes the corners y2, y3 and x3, x4.
        w = torch.sqrt((x[:, 0] - x[:, 1]) ** 2 + (y[:, 0] - y[:, 1]) ** 2)
        h = torch.sqrt((y[:, 1] - y[:, 2]) ** 2 + (x[:, 2] - x[:, 3]) ** 2)
    else:
        corners = reference.convert_bounding_box_format(rows.values, rows.format, BoundingBoxFormat.XYXY)
        w, h = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    inside = (corners >= 0).all(1) & (corners <= limits.repeat(1, corners.shape[1] // 2)).all(1)
    return inside & (w >= min_size) & (h >= min_size) & (w * h >= min_area)


def find_valid_points(inpt: Any) -> torch.Tensor:
    """Return which points, or groups of points, of a Batch are within their canvas: bool, for the rows of all samples in order."""
    rows = of_batch(inpt)
    height, width = (rows.of(extent) for extent in rows.canvas)
    x, y = rows.values[:, 0], rows.values[:, 1]
    valid = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    if inpt.ndim < 3:
        return valid
    if inpt.ragged_shapes is None:
        # Groups of points are kept or removed together.
        return valid.reshape(inpt.buffer.shape[0] * inpt.buffer.shape[1], -1).all(1)
    groups = [
        part.reshape(shape[0], -1).all(1) for part, shape in zip(valid.split((inpt.ragged_shapes.prod(1) // 2).tolist()), inpt.shape, strict=True)
    ]
    return torch.cat(groups)


def keep_rows(inpt: Batch, valid: torch.Tensor) -> Any:
    """Return the samples with the rows for which ``valid`` is true; ``valid`` is for the rows of all samples in order."""
    if valid.all():  # the usual case; copying masks, often larger than the images, takes long
        return inpt
    counts = [shape[0] for shape in inpt.shape]
    flags = valid.split(counts)
    samples = [sample.torch() if flag.all() else sample.torch()[flag] for sample, flag in zip(inpt.evaluate(), flags, strict=True)]
    output = as_batch(samples, layout=inpt.layout)
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output


def sanitize_bounding_boxes(bounding_boxes: Any, format: Any = None, canvas_size: Any = None, min_size: float = 1.0, min_area: float = 1.0) -> Any:
    """Remove boxes that are too small or exceed their canvas.

    Args:
        bounding_boxes: boxes, or a torch tensor with ``format`` and ``canvas_size``.
        format, canvas_size: of a torch tensor.
        min_size, min_area: smallest width and height, and area.

    Returns:
        The remaining boxes, and a mask of the kept rows; for a Batch, a Batch of masks.

    >>> boxes, kept = sanitize_bounding_boxes(torch.tensor([[0, 0, 5, 5], [3, 3, 3, 4]]), "XYXY", (10, 10))
    >>> kept
    tensor([ True, False])
    """
    if not tv_tensors.is_batch_of(tv_tensors.BoundingBoxes, bounding_boxes):
        return reference.sanitize_bounding_boxes(bounding_boxes, format, canvas_size, min_size, min_area)
    if format is not None or canvas_size is not None:
        raise ValueError("sanitize_bounding_boxes: boxes have a format and a canvas: format and canvas_size must be None")
    valid = find_valid_boxes(bounding_boxes, min_size, min_area)
    return keep_rows(bounding_boxes, valid), _as_masks(bounding_boxes, valid)


def sanitize_keypoints(key_points: Any, canvas_size: Any = None) -> Any:
    """Remove points outside their canvas; groups ``(n, k, 2)`` as a whole.

    Returns:
        The remaining points, and a mask of the kept rows; for a Batch, a Batch of masks.

    >>> points, kept = sanitize_keypoints(torch.tensor([[1, 1], [30, 1]]), (10, 10))
    >>> kept
    tensor([ True, False])
    """
    if not tv_tensors.is_batch_of(tv_tensors.KeyPoints, key_points):
        return reference.sanitize_keypoints(key_points, canvas_size)
    if canvas_size is not None:
        raise ValueError("sanitize_keypoints: points have a canvas: canvas_size must be None")
    valid = find_valid_points(key_points)
    return keep_rows(key_points, valid), _as_masks(key_points, valid)


def _as_masks(inpt: Batch, valid: torch.Tensor) -> Batch:
    if inpt.ragged_shapes is None:
        return batch_of(valid.reshape(inpt.batch_size, -1))
    return as_batch(list(valid.split([shape[0] for shape in inpt.shape])))
