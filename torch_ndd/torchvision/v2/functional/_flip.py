# SPDX-License-Identifier: Apache-2.0
"""Horizontal and vertical flips."""

from typing import Any

import torch
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.values.batch import Batch
from ....ops.geometry.flip import flip
from ... import tv_tensors
from ..._numbers import as_argument
from ._coordinates import Rows, of_batch, of_tensor, on_coordinates, to_batch
from ._dispatch import as_images, as_planes, dispatch, on_images, on_masks


def horizontal_flip(inpt: Any) -> Any:
    """Mirror left and right: images, videos, masks, boxes and points.

    >>> horizontal_flip(torch.tensor([[[1, 2, 3]]]))
    tensor([[[3, 2, 1]]])
    """
    return dispatch(horizontal_flip, inpt)


def vertical_flip(inpt: Any) -> Any:
    """Mirror top and bottom: images, videos, masks, boxes and points.

    >>> vertical_flip(torch.tensor([[[1], [2]]]))
    tensor([[[2],
             [1]]])
    """
    return dispatch(vertical_flip, inpt)


hflip = horizontal_flip
vflip = vertical_flip


def flip_batch(images: Batch, horizontal: Any, vertical: Any) -> Batch:
    """Flip images; the arguments are 0 or 1, or one for each sample."""
    return flip(images, horizontal=as_argument(horizontal), vertical=as_argument(vertical))


horizontal_flip_image, horizontal_flip_video = on_images(horizontal_flip, lambda images: flip_batch(images, 1, 0))
vertical_flip_image, vertical_flip_video = on_images(vertical_flip, lambda images: flip_batch(images, 0, 1))
horizontal_flip_mask = on_masks(horizontal_flip, lambda masks: flip_batch(masks, 1, 0))
vertical_flip_mask = on_masks(vertical_flip, lambda masks: flip_batch(masks, 0, 1))


def flip_box_rows(rows: Rows, axis: int) -> Rows:
    """Flip boxes along x (0) or y (1); the corners of the canvas are 0 and its extent."""
    kernel = reference.vertical_flip_bounding_boxes if axis else reference.horizontal_flip_bounding_boxes
    if rows.rotated:
        return rows.each(lambda values, canvas: kernel(values, format=rows.format, canvas_size=canvas))
    extent, output = rows.of(rows.canvas[1 - axis]), rows.values.clone()
    low, high = rows.values[:, axis], rows.values[:, axis + 2]
    # The canvas ends at its extent: a box that ends there begins at 0 afterwards.
    if rows.format == BoundingBoxFormat.XYXY:
        output[:, axis], output[:, axis + 2] = extent - high, extent - low
    elif rows.format == BoundingBoxFormat.XYWH:
        output[:, axis] = extent - low - high
    else:
        output[:, axis] = extent - low
    return rows.with_values(output)


def flip_point_rows(rows: Rows, axis: int) -> Rows:
    """Flip points along x (0) or y (1); the pixels of the canvas are 0 to its extent - 1."""
    output = rows.values.clone()
    # Points are pixels: the last one is extent - 1.
    output[:, axis] = rows.of(rows.canvas[1 - axis]) - 1 - output[:, axis]
    return rows.with_values(output)


on_coordinates(horizontal_flip, lambda rows: flip_box_rows(rows, 0), lambda rows: flip_point_rows(rows, 0))
on_coordinates(vertical_flip, lambda rows: flip_box_rows(rows, 1), lambda rows: flip_point_rows(rows, 1))


def horizontal_flip_bounding_boxes(bounding_boxes: torch.Tensor, format: BoundingBoxFormat, canvas_size: tuple[int, int]) -> torch.Tensor:
    """Flip boxes ``(..., K)`` of a canvas of this height and width."""
    return flip_box_rows(of_tensor(bounding_boxes, canvas_size, format), 0).values.reshape(bounding_boxes.shape)


def vertical_flip_bounding_boxes(bounding_boxes: torch.Tensor, format: BoundingBoxFormat, canvas_size: tuple[int, int]) -> torch.Tensor:
    """Flip boxes ``(..., K)`` of a canvas of this height and width."""
    return flip_box_rows(of_tensor(bounding_boxes, canvas_size, format), 1).values.reshape(bounding_boxes.shape)


def horizontal_flip_keypoints(keypoints: torch.Tensor, canvas_size: tuple[int, int]) -> torch.Tensor:
    """Flip points ``(..., 2)`` of a canvas of this height and width."""
    return flip_point_rows(of_tensor(keypoints, canvas_size), 0).values.reshape(keypoints.shape)


def vertical_flip_keypoints(keypoints: torch.Tensor, canvas_size: tuple[int, int]) -> torch.Tensor:
    """Flip points ``(..., 2)`` of a canvas of this height and width."""
    return flip_point_rows(of_tensor(keypoints, canvas_size), 1).values.reshape(keypoints.shape)


def flip_where(inpt: Any, acts: torch.Tensor, axis: int) -> Any:
    """Flip those samples of a Batch for which ``acts`` is true, along x (0) or y (1)."""
    if tv_tensors.is_batch_of(tv_tensors.BoundingBoxes, inpt) or tv_tensors.is_batch_of(tv_tensors.KeyPoints, inpt):
        rows = of_batch(inpt)
        output = (flip_point_rows if rows.format is None else flip_box_rows)(rows, axis)
        return to_batch(rows.with_values(torch.where(rows.of(acts)[:, None], output.values, rows.values)), inpt)
    # Images take a flag per sample, so the batch is not split.
    flags = acts.to(torch.int32)
    horizontal, vertical = (flags, 0) if axis == 0 else (0, flags)
    if tv_tensors.is_batch_of(tv_tensors.Mask, inpt):
        planes, restore_axes = as_planes(inpt.plain())
        return inpt.over(restore_axes(flip_batch(planes, horizontal, vertical)))
    output = flip_batch(as_images("flip", inpt), horizontal, vertical)
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output
