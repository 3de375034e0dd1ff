# SPDX-License-Identifier: Apache-2.0
"""Elastic deformations."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.native.tracing import is_compiling
from ...._core.values.batch import Batch
from ....experimental import remap
from ....ops.generic.convert import cast
from ..._numbers import batch_of
from ._coordinates import Rows, enclosing_boxes, four_corners, of_tensor, on_coordinates
from ._dispatch import blend_fills, dispatch, on_images, on_masks
from ._interpolation import InterpolationMode, warp_filter, warp_in_float32


def elastic(inpt: Any, displacement: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> Any:
    """Move every pixel: ``out[y, x] = in[y + displacement_y * height / 2, x + displacement_x * width / 2]``.

    Args:
        inpt: images, videos, masks, boxes or points. Boxes and points move by the displacement at their place, backwards: an approximation.
        displacement: ``(1, height, width, 2)``, x first; for a Batch also one array ``(height, width, 2)`` per sample, as a Batch.
        interpolation: "nearest" or "bilinear".
        fill: value outside the image: None blends with 0, a number or one per channel replaces.

    Raises:
        TypeError: a displacement that is not a tensor.
        ValueError: a displacement of another shape.

    >>> shift = torch.zeros(1, 1, 3, 2)
    >>> shift[..., 0] = 2 / 3
    >>> elastic(torch.tensor([[[1.0, 2.0, 3.0]]]), shift)
    tensor([[[2., 3., 0.]]])
    """
    return dispatch(elastic, inpt, displacement=displacement, interpolation=interpolation, fill=fill)


elastic_transform = elastic


def _as_fields(displacement: Any, sizes: list[tuple[int, int]]) -> list[torch.Tensor]:
    """Return a displacement (height, width, 2) for each sample; a single one if all samples share it."""
    if isinstance(displacement, Batch):
        _check_count(displacement, len(sizes))
        fields = [sample.torch() for sample in displacement.evaluate()]
    elif isinstance(displacement, torch.Tensor):
        if displacement.dim() != 4 or displacement.shape[0] != 1:
            raise ValueError(f"elastic: displacement must have the shape (1, height, width, 2), got {tuple(displacement.shape)}")
        # Samples of one size share the displacement; with several sizes the check below fails for some.
        fields = [displacement[0]] * (1 if len(set(sizes)) <= 1 else len(sizes))
    else:
        raise TypeError(f"elastic: displacement must be a Tensor, got {type(displacement).__name__}")
    for field, size in zip(fields, sizes, strict=False):
        if tuple(field.shape) != (*size, 2):
            raise ValueError(f"elastic: displacement must have the shape (1, {size[0]}, {size[1]}, 2), got (1, {', '.join(map(str, field.shape))})")
    return fields


def _check_count(displacement: Batch, count: int) -> list[Any]:
    if displacement.batch_size != count:
        raise ValueError(f"elastic: displacement must have {count} samples, one for each image, got {displacement.batch_size}")
    return displacement.shape


def _distances(displacement: Any, images: Batch) -> tuple[Any, Any]:
    """Return the distances along x and y, as two tensors or Batches (height, width), in pixels."""
    layout = images.layout or ""
    at = layout.index("H"), layout.index("W")
    sizes = [(shape[at[0]], shape[at[1]]) for shape in images.shape]
    if isinstance(displacement, Batch):
        for k, (shape, size) in enumerate(zip(_check_count(displacement, len(sizes)), sizes, strict=True)):
            if tuple(shape) != (*size, 2):
                raise ValueError(f"elastic: sample {k}: displacement must have the shape {(*size, 2)}, got {tuple(shape)}")
        # Displacements are relative to half the extent, as in grid_sample's coordinates from -1 to 1.
        halves = torch.tensor(sizes, dtype=torch.float32) * 0.5
        return tuple(cast(displacement.slice[..., k], dtype=torch.float32) * batch_of(halves[:, 1 - k]) for k in (0, 1))  # type: ignore[return-value]
    fields = _as_fields(displacement, sizes)
    x = [_scale_component(field, 0, field.shape[1] * 0.5) for field in fields]
    y = [_scale_component(field, 1, field.shape[0] * 0.5) for field in fields]
    return _as_operand(x), _as_operand(y)


def _scale_component(field: torch.Tensor, axis: int, factor: float) -> torch.Tensor:
    """Return a component of a displacement in pixels."""
    # NumPy, because torch's threads keep spinning after their work and occupy the cores that the next kernel needs: elastic of 16 images takes
    # 3.5 instead of 7 ms on two cores.
    if not field.is_cpu or field.requires_grad or is_compiling():
        return field[..., axis].float() * factor
    return torch.from_numpy(np.multiply(field.float().numpy()[..., axis], np.float32(factor)))


def _as_operand(fields: list[torch.Tensor]) -> Any:
    return fields[0].contiguous() if len(fields) == 1 else Batch(fields)


def _elastic(images: Batch, displacement: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> Batch:
    chosen = warp_filter("elastic", interpolation)
    values = blend_fills(fill, images, "elastic")
    x, y = _distances(displacement, images)
    options: Any = {"interp": chosen, "relative": True, "fill_value": values or 0.0, "fade": values is not None}
    return warp_in_float32(images, chosen, lambda pixels: remap(pixels, x, y, **options))


elastic_image, elastic_video = on_images(elastic, _elastic)


def _elastic_mask(masks: Batch, displacement: Any, fill: Any = None) -> Batch:
    return _elastic(masks, displacement, InterpolationMode.NEAREST, fill)


elastic_mask = on_masks(elastic, _elastic_mask)


def _move_points(rows: Rows, points: torch.Tensor, pixels: torch.Tensor, displacement: Any) -> torch.Tensor:
    """Move points (R, 2 k) against the displacement, which is read at their ``pixels``."""
    height, width = rows.canvas
    if rows.owner is None:
        sizes = [(int(height), int(width))]
    else:
        sizes = list(zip(height.tolist(), width.tolist(), strict=True))
    fields = _as_fields(displacement, sizes)
    output = points.to(rows.real.dtype, copy=True)
    for i, (h, w) in enumerate(sizes):
        chosen = slice(None) if rows.owner is None else rows.owner == i
        field = fields[i if len(fields) > 1 else 0].to(output.dtype)
        part, moved = pixels[chosen], output[chosen]
        x, y = part[:, 0::2].to(torch.int64).clamp(0, w - 1), part[:, 1::2].to(torch.int64).clamp(0, h - 1)
        moved[:, 0::2] -= field[y, x, 0] * (w * 0.5)
        moved[:, 1::2] -= field[y, x, 1] * (h * 0.5)
        output[chosen] = moved
    return output


def _elastic_boxes(rows: Rows, displacement: Any) -> Rows:
    if not rows.values.numel():
        if rows.owner is None:  # the displacement of a single sample is checked even without boxes
            _as_fields(displacement, [(int(rows.canvas[0]), int(rows.canvas[1]))])
        return rows
    if rows.rotated:
        return _elastic_rotated_boxes(rows, displacement)
    # torchvision reads the displacement of boxes at the pixel after the corner, that of points at their own pixel.
    points = four_corners(rows.corners())
    around = enclosing_boxes(_move_points(rows, points, torch.ceil(points), displacement))
    if not rows.values.dtype.is_floating_point:
        around = around.trunc()
    return rows.with_values(rows.from_corners(rows.within(around, 0) if rows.mode is not None else around))


def _elastic_rotated_boxes(rows: Rows, displacement: Any) -> Rows:
    """Move the centers of rotated boxes."""
    boxes = reference.convert_bounding_box_format(rows.values, rows.format, BoundingBoxFormat.CXCYWHR)
    boxes = torch.cat([_move_points(rows, boxes[:, :2], torch.ceil(boxes[:, :2]), displacement), boxes[:, 2:]], 1)
    moved = replace(rows, values=boxes, format=BoundingBoxFormat.CXCYWHR)

    def clamp(values: torch.Tensor, canvas: Any) -> torch.Tensor:
        return reference.clamp_bounding_boxes(values, BoundingBoxFormat.CXCYWHR, canvas, rows.mode)

    return rows.with_values(reference.convert_bounding_box_format(moved.each(clamp).values, BoundingBoxFormat.CXCYWHR, rows.format))


def _elastic_points(rows: Rows, displacement: Any) -> Rows:
    if not rows.values.numel() and rows.owner is not None:
        return rows
    return rows.with_values(_move_points(rows, rows.values, rows.values, displacement))


on_coordinates(elastic, _elastic_boxes, _elastic_points, drops=("interpolation", "fill"))


def elastic_bounding_boxes(
    bounding_boxes: torch.Tensor, format: BoundingBoxFormat, canvas_size: tuple[int, int], displacement: Any, clamping_mode: Any = "soft"
) -> torch.Tensor:
    """Return the smallest boxes around deformed boxes."""
    output = _elastic_boxes(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), displacement)
    return output.values.reshape(bounding_boxes.shape)


def elastic_keypoints(keypoints: torch.Tensor, canvas_size: tuple[int, int], displacement: Any) -> torch.Tensor:
    """Return deformed points."""
    return _elastic_points(of_tensor(keypoints, canvas_size), displacement).values.reshape(keypoints.shape)
