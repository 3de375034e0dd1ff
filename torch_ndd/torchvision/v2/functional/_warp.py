# SPDX-License-Identifier: Apache-2.0
"""Warps: affine, rotate and perspective."""

import numbers as abstract
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.native.tracing import is_compiling
from ...._core.values.batch import Batch
from ....experimental import warp_perspective
from ....ops.geometry.warp import warp_affine
from ..._numbers import Number, first_failure, holds, number, numbers
from ._coordinates import Rows, enclosing_boxes, four_corners, of_tensor, on_coordinates
from ._dispatch import blend_fills, dispatch, on_images, on_masks, rows, size_of
from ._interpolation import InterpolationMode, warp_filter, warp_in_float32
from ._matrices import (
    Matrix,
    about_centers,
    affine_matrix,
    inverse_coefficients,
    projective_coefficients,
    rotated_size,
)

_NEAREST = InterpolationMode.NEAREST


def affine(
    inpt: Any,
    angle: Any,
    translate: Any,
    scale: Any,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """Rotate, scale, shear and translate. Every number may be one for each sample of a Batch.

    Args:
        inpt: images, videos, masks, boxes or points.
        angle: degrees, clockwise.
        translate: pixels along x and y.
        scale: positive factor.
        shear: degrees along x, or along x and y.
        interpolation: "nearest" or "bilinear".
        fill: value outside the image: None blends with 0, a number or one per channel replaces.
        center: fixed point (x, y) in pixels from the upper left corner, by default the middle.

    Raises:
        TypeError, ValueError: arguments of another kind or count, a scale that is not positive.

    >>> affine(torch.tensor([[[1, 2, 3]]]), 0, [1, 0], 1.0, [0, 0])
    tensor([[[0, 1, 2]]])
    """
    arguments = {"angle": angle, "translate": translate, "scale": scale, "shear": shear, "center": center}
    return dispatch(affine, inpt, **arguments, interpolation=interpolation, fill=fill)


def _affine_arguments(batch_size: int | None, angle: Any, translate: Any, scale: Any, shear: Any, center: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return the checked arguments of an affine map."""
    angle = number("affine", "angle", angle, batch_size)
    if not isinstance(translate, list | tuple) and batch_size is None:
        raise TypeError("affine: translate must be a sequence")
    moved = numbers("affine", "translate", translate, 2, batch_size)
    scale = number("affine", "scale", scale, batch_size)
    positive = scale > 0.0
    if not holds(positive):
        raise ValueError(f"affine: {first_failure(positive)}scale must be positive, got {scale}")
    # As in torchvision: a number shears along x, a sequence of one along both axes.
    if isinstance(shear, abstract.Number):
        shear = (shear, 0.0)
    elif isinstance(shear, list | tuple) and len(shear) == 1:
        shear = (shear[0], shear[0])
    elif batch_size is None and not isinstance(shear, list | tuple):
        raise TypeError("affine: shear must be a number or a sequence of two numbers")
    return angle, moved, scale, numbers("affine", "shear", shear, 2, batch_size), _center("affine", center, batch_size)


def _center(op: str, center: Any, batch_size: int | None) -> Any:
    if center is None:
        return None
    if not isinstance(center, list | tuple) and batch_size is None:
        raise TypeError(f"{op}: center must be a sequence")
    return numbers(op, "center", center, 2, batch_size)


def _offset_from_middle(center: Any, height: Number, width: Number) -> tuple[Number, Number]:
    return (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)


def _warp(images: Batch, matrix: Matrix, target: tuple[Number, Number] | None, interpolation: Any, fill: Any, op: str) -> Batch:
    """Warp images by a map between coordinates relative to the centers of the output and of the input; the size is by default the images'."""
    source = size_of(images)
    # torchvision computes relative to the centers, the operator from the upper left corner.
    values = rows(*about_centers(matrix, source, source if target is None else target))
    chosen = warp_filter(op, interpolation)
    size = None if target is None else rows(*target)
    return _blend(warp_affine, images, chosen, blend_fills(fill, images, op), matrix=values, size=size)


def _blend(warp: Any, images: Batch, chosen: Any, fill: list[float] | None, **arguments: Any) -> Batch:
    # With a fill, 0 too, torchvision blends border pixels with it; without, the pixels outside count as 0. The results differ.
    arguments |= {"interp_type": chosen, "fill_value": fill or 0.0, "fade": fill is not None}
    return warp_in_float32(images, chosen, lambda pixels: warp(pixels, **arguments))


def _affine(
    images: Batch,
    angle: Any,
    translate: Any,
    scale: Any,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Batch:
    turn, moved, factor, sheared, fixed = _affine_arguments(images.batch_size, angle, translate, scale, shear, center)
    height, width = size_of(images)
    matrix = affine_matrix(_offset_from_middle(fixed, height, width), turn, moved, factor, sheared, inverse=True)
    return _warp(images, matrix, None, interpolation, fill, "affine")


affine_image, affine_video = on_images(affine, _affine)


def _affine_mask(masks: Batch, angle: Any, translate: Any, scale: Any, shear: Any, fill: Any = None, center: Any = None) -> Batch:
    return _affine(masks, angle, translate, scale, shear, _NEAREST, fill, center)


affine_mask = on_masks(affine, _affine_mask)


def _move_points(rows: Rows, coefficients: Sequence[Number], points: torch.Tensor) -> torch.Tensor:
    """Apply an affine map of six numbers, or a projective one of eight, to points (R, 2 k)."""
    a, b, c, d, e, f, *projective = (rows.of(number) for number in coefficients)
    output = torch.empty_like(points)
    for k in range(0, points.shape[1], 2):
        x, y = points[:, k], points[:, k + 1]
        over = projective[0] * x + projective[1] * y + 1.0 if projective else 1.0
        output[:, k], output[:, k + 1] = (a * x + b * y + c) / over, (d * x + e * y + f) / over
    return output


def _smallest_coordinates(canvas: tuple[Any, Any], matrix: Matrix) -> tuple[Number, Number]:
    """Return the smallest x and y of the rotated canvas, for each sample."""
    height, width = canvas
    a, b, c, d, e, f = matrix
    xs, ys = [], []
    # The corners of the canvas after the rotation.
    for x, y in ((0, 0), (0, height), (width, height), (width, 0)):
        xs.append(torch.as_tensor(a * x + b * y + c, dtype=torch.float64))
        ys.append(torch.as_tensor(d * x + e * y + f, dtype=torch.float64))
    low_x, low_y = (torch.stack(torch.broadcast_tensors(*column)).amin(0) for column in (xs, ys))
    return low_x if low_x.dim() else float(low_x), low_y if low_y.dim() else float(low_y)


def _map_rows(rows: Rows, coefficients: Sequence[Number], expanded: Any = None) -> Rows:
    """Apply a map to unrotated boxes or points; ``expanded`` is the new canvas with its smallest coordinates."""
    boxes = rows.format is not None
    points = _move_points(rows, coefficients, four_corners(rows.corners()) if boxes else rows.real)
    values, canvas = enclosing_boxes(points) if boxes else points, rows.canvas
    if expanded is not None:
        canvas, low_x, low_y = expanded
        values[:, 0::2] -= _column(rows.of(low_x))
        values[:, 1::2] -= _column(rows.of(low_y))
    if boxes:
        # Clamped to the new canvas, not to the old one.
        if rows.mode is not None:
            values = replace(rows, values=values, canvas=canvas).within(values, 0)
        values = rows.from_corners(values)
    return rows.with_values(values, canvas)


def _column(value: Any) -> Any:
    return value[:, None] if isinstance(value, torch.Tensor) and value.dim() else value


def _middle_of(rows: Rows, center: Any) -> tuple[Number, Number]:
    return (rows.canvas[1] * 0.5, rows.canvas[0] * 0.5) if center is None else center


def _affine_boxes(rows: Rows, angle: Any, translate: Any, scale: Any, shear: Any, center: Any = None) -> Rows:
    turn, moved, factor, sheared, fixed = _affine_arguments(rows.batch_size, angle, translate, scale, shear, center)
    if rows.rotated:

        def move(values: torch.Tensor, canvas: Any, *n: Any) -> Any:
            # `each` passes the numbers of one sample in a row: angle, translation, scale, shear, center.
            at = None if fixed is None else list(n[6:])
            return reference.affine_bounding_boxes(
                values, rows.format, canvas, n[0], [n[1], n[2]], n[3], [n[4], n[5]], center=at, clamping_mode=rows.mode
            )

        return rows.each(move, turn, *moved, factor, *sheared, *(fixed or ()))
    if not rows.values.numel():
        return rows
    return _map_rows(rows, affine_matrix(_middle_of(rows, fixed), turn, moved, factor, sheared, inverse=False))


def _affine_points(rows: Rows, angle: Any, translate: Any, scale: Any, shear: Any, center: Any = None) -> Rows:
    turn, moved, factor, sheared, fixed = _affine_arguments(rows.batch_size, angle, translate, scale, shear, center)
    return _map_rows(rows, affine_matrix(_middle_of(rows, fixed), turn, moved, factor, sheared, inverse=False))


on_coordinates(affine, _affine_boxes, _affine_points, drops=("interpolation", "fill"))


def affine_bounding_boxes(
    bounding_boxes: torch.Tensor,
    format: BoundingBoxFormat,
    canvas_size: tuple[int, int],
    angle: Any,
    translate: Any,
    scale: Any,
    shear: Any,
    center: Any = None,
    clamping_mode: Any = "soft",
) -> torch.Tensor:
    """Return the boxes around moved boxes."""
    output = _affine_boxes(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), angle, translate, scale, shear, center)
    return output.values.reshape(bounding_boxes.shape)


def affine_keypoints(
    keypoints: torch.Tensor, canvas_size: tuple[int, int], angle: Any, translate: Any, scale: Any, shear: Any, center: Any = None
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return moved points and the size of the canvas."""
    output = _affine_points(of_tensor(keypoints, canvas_size), angle, translate, scale, shear, center)
    return output.values.reshape(keypoints.shape), output.canvas


# --- rotate ---


def rotate(inpt: Any, angle: Any, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False, center: Any = None, fill: Any = None) -> Any:
    """Rotate counter-clockwise.

    Args:
        inpt: images, videos, masks, boxes or points.
        angle: degrees; for a Batch one number, or one per sample.
        interpolation: "nearest" or "bilinear".
        expand: enlarge the canvas to hold the whole result.
        center: fixed point (x, y) in pixels from the upper left corner, by default the middle.
        fill: value outside the image: None blends with 0, a number or one per channel replaces.

    >>> rotate(torch.tensor([[[1, 2], [3, 4]]]), 90)
    tensor([[[2, 4],
             [1, 3]]])
    """
    return dispatch(rotate, inpt, angle=angle, interpolation=interpolation, expand=expand, center=center, fill=fill)


def _rotate(
    images: Batch, angle: Any, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False, center: Any = None, fill: Any = None
) -> Batch:
    turn = number("rotate", "angle", angle, images.batch_size) % 360
    fixed = _center("rotate", center, images.batch_size)
    height, width = size_of(images)
    if fixed is None and not isinstance(turn, torch.Tensor):
        # Turns that move pixels to pixels copy them exactly, whatever the interpolation. Sizes that are unknown in a graph may not be square.
        unknown = isinstance(height == width, torch.Tensor) and is_compiling()
        if turn in (0, 180) or (turn in (90, 270) and (expand or (not unknown and holds(height == width)))):
            interpolation = _NEAREST
    matrix = _rotation_matrix(fixed, turn, height, width)
    target = _rotated_canvas(matrix, turn, height, width, fixed is None) if expand else None
    return _warp(images, matrix, target, interpolation, fill, "rotate")


def _rotation_matrix(center: Any, turn: Number, height: Number, width: Number) -> Matrix:
    """Return the map from the rotated image to the image, relative to their middles."""
    return affine_matrix(_offset_from_middle(center, height, width), -turn, (0.0, 0.0), 1.0, (0.0, 0.0), inverse=True)


def _expanded_canvas(canvas: tuple[Any, Any], turn: Number, center: Any) -> tuple[Any, Any]:
    """Return the expanded canvas of a rotated image of this size."""
    return _rotated_canvas(_rotation_matrix(center, turn, *canvas), turn, *canvas, center is None)


def _rotated_canvas(matrix: Matrix, turn: Number, height: Number, width: Number, about_middle: bool) -> tuple[Any, Any]:
    """Return height and width of the canvas that holds the rotated image; for quarter turns they are exact."""
    extents = rotated_size(matrix, height, width)
    if not about_middle:
        return extents
    # Rounding could add a pixel to the sides that a quarter turn only exchanges.
    half, quarter = turn % 180 == 0, turn % 180 == 90
    if not isinstance(turn, torch.Tensor):
        return (height, width) if half else (width, height) if quarter else extents
    sides = [torch.as_tensor(extent) for extent in (height, width)]
    half, quarter = torch.as_tensor(half), torch.as_tensor(quarter)
    tall, wide = (torch.where(half, a, torch.where(quarter, b, torch.as_tensor(c))) for a, b, c in zip(sides, sides[::-1], extents, strict=True))
    return tall, wide


rotate_image, rotate_video = on_images(rotate, _rotate)


def _rotate_mask(masks: Batch, angle: Any, expand: bool = False, center: Any = None, fill: Any = None) -> Batch:
    return _rotate(masks, angle, _NEAREST, expand, center, fill)


rotate_mask = on_masks(rotate, _rotate_mask)


def _rotate_rows(rows: Rows, angle: Any, expand: bool = False, center: Any = None) -> Rows:
    size = rows.batch_size
    turn, fixed = number("rotate", "angle", angle, size), _center("rotate", center, size)
    # The canvas of the image: torchvision computes another one for boxes, often a pixel smaller, and none without boxes.
    canvas = _expanded_canvas(rows.canvas, turn % 360, fixed) if expand else rows.canvas
    if rows.rotated:

        def turn_rows(values: torch.Tensor, old: Any, a: Any, *at: Any) -> Any:
            middle = None if fixed is None else list(at)
            return reference.rotate_bounding_boxes(values, rows.format, old, a, expand=expand, center=middle, clamping_mode=rows.mode)

        return replace(rows.each(turn_rows, turn, *(fixed or ())), canvas=canvas)
    matrix = affine_matrix(_middle_of(rows, fixed), -turn, (0.0, 0.0), 1.0, (0.0, 0.0), inverse=False)
    return _map_rows(rows, matrix, (canvas, *_smallest_coordinates(rows.canvas, matrix)) if expand else None)


on_coordinates(rotate, _rotate_rows, _rotate_rows, drops=("interpolation", "fill"))


def rotate_bounding_boxes(
    bounding_boxes: torch.Tensor,
    format: BoundingBoxFormat,
    canvas_size: tuple[int, int],
    angle: Any,
    expand: bool = False,
    center: Any = None,
    clamping_mode: Any = "soft",
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return the boxes around rotated boxes, and the size of the canvas."""
    output = _rotate_rows(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), angle, expand, center)
    return output.values.reshape(bounding_boxes.shape), output.canvas


def rotate_keypoints(
    keypoints: torch.Tensor, canvas_size: tuple[int, int], angle: Any, expand: bool = False, center: Any = None
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return rotated points and the size of the canvas."""
    output = _rotate_rows(of_tensor(keypoints, canvas_size), angle, expand, center)
    return output.values.reshape(keypoints.shape), output.canvas


# --- perspective ---


def perspective(
    inpt: Any, startpoints: Any, endpoints: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None, coefficients: Any = None
) -> Any:
    """Warp by a projective map.

    Args:
        inpt: images, videos, masks, boxes or points.
        startpoints, endpoints: four points (x, y) of the input, and their places in the output; for a Batch also (N, 4, 2).
        interpolation: "nearest" or "bilinear".
        fill: value outside the image: None blends with 0, a number or one per channel replaces.
        coefficients: a to h of ``x_in = (a x + b y + c) / (g x + h y + 1)``, ``y_in = (d x + e y + f) / (g x + h y + 1)`` instead of the points.

    Raises:
        ValueError: neither points nor coefficients, or both.

    >>> perspective(torch.tensor([[[1, 2, 3]]]), None, None, coefficients=[1, 0, 1, 0, 1, 0, 0, 0])
    tensor([[[2, 3, 0]]])
    """
    arguments = {"startpoints": startpoints, "endpoints": endpoints, "coefficients": coefficients}
    return dispatch(perspective, inpt, **arguments, interpolation=interpolation, fill=fill)


def _perspective(
    images: Batch, startpoints: Any, endpoints: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None, coefficients: Any = None
) -> Batch:
    matrix = rows(*projective_coefficients(startpoints, endpoints, coefficients, images.batch_size), 1.0)
    chosen = warp_filter("perspective", interpolation)
    return _blend(warp_perspective, images, chosen, blend_fills(fill, images, "perspective"), matrix=matrix)


perspective_image, perspective_video = on_images(perspective, _perspective)


def _perspective_mask(masks: Batch, startpoints: Any, endpoints: Any, fill: Any = None, coefficients: Any = None) -> Batch:
    return _perspective(masks, startpoints, endpoints, _NEAREST, fill, coefficients)


perspective_mask = on_masks(perspective, _perspective_mask)


def _perspective_rows(rows: Rows, startpoints: Any, endpoints: Any, coefficients: Any = None) -> Rows:
    if not rows.values.numel():
        return rows
    found = projective_coefficients(startpoints, endpoints, coefficients, rows.batch_size)
    if rows.rotated:

        def project(values: torch.Tensor, canvas: Any, *c: Any) -> Any:
            return reference.perspective_bounding_boxes(values, rows.format, canvas, None, None, list(c), rows.mode)

        return rows.each(project, *found)
    # Points move from the input to the output; the coefficients map the other way, as warps need.
    return _map_rows(rows, inverse_coefficients(found))


on_coordinates(perspective, _perspective_rows, _perspective_rows, drops=("interpolation", "fill"))


def perspective_bounding_boxes(
    bounding_boxes: torch.Tensor,
    format: BoundingBoxFormat,
    canvas_size: tuple[int, int],
    startpoints: Any,
    endpoints: Any,
    coefficients: Any = None,
    clamping_mode: Any = "soft",
) -> torch.Tensor:
    """Return the boxes around projected boxes."""
    output = _perspective_rows(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), startpoints, endpoints, coefficients)
    return output.values.reshape(bounding_boxes.shape)


def perspective_keypoints(
    keypoints: torch.Tensor, canvas_size: tuple[int, int], startpoints: Any, endpoints: Any, coefficients: Any = None
) -> torch.Tensor:
    """Return projected points."""
    return _perspective_rows(of_tensor(keypoints, canvas_size), startpoints, endpoints, coefficients).values.reshape(keypoints.shape)
