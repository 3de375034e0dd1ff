# SPDX-License-Identifier: Apache-2.0
"""Affine and projective warps. ``matrix`` maps the input to the output, float64 (N, 3, 3); boxes have a matrix of their own, half a pixel apart."""

import math
from typing import Any

import torch

from .._core.values.batch import Batch
from ..torchvision._draws import Draws, real, to_int
from . import _pixels
from ._crops import Window
from ._sample import Rows, Sample
from ._step import Params, Step, limits

_ELLIPSE = torch.deg2rad(torch.arange(360, dtype=torch.float64, device="cpu"))


def affine_matrices(
    center: tuple[torch.Tensor, torch.Tensor],
    angle: torch.Tensor,
    scale: tuple[torch.Tensor, torch.Tensor],
    shear: tuple[torch.Tensor, torch.Tensor],
    translate: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Return maps that scale, rotate, shear and translate about ``center``; angles are in degrees, counter-clockwise."""
    turn, (x, y) = torch.deg2rad(angle % 360), center
    cos, sin, zero, ones = torch.cos(turn), torch.sin(turn), torch.zeros_like(turn), torch.ones_like(turn)
    scaling = _pixels.matrices_of(scale[0], zero, zero, zero, scale[1], zero)
    rotation = _pixels.matrices_of(cos, sin, zero, -sin, cos, zero)
    shearing = _pixels.matrices_of(ones, torch.tan(torch.deg2rad(shear[0])), zero, torch.tan(torch.deg2rad(shear[1])), ones, zero)
    return _pixels.translation(x + translate[0], y + translate[1]) @ shearing @ rotation @ scaling @ _pixels.translation(-x, -y)


def move_boxes(rows: Rows, matrices: torch.Tensor, sample: Sample, size: torch.Tensor, method: str) -> Rows:
    """Return the boxes around moved boxes, or around their moved ellipses; those outside the output of ``size`` (N, 2) are dropped."""
    height, width = map(rows.of, sample.sizes)
    x0, y0, x1, y1 = (column * extent for column, extent in zip(rows.values[:, :4].unbind(1), (width, height, width, height), strict=True))
    if method == "ellipse":
        half_width, half_height = (x1 - x0) / 2, (y1 - y0) / 2
        x = (x0 + half_width)[:, None] + half_width[:, None] * torch.sin(_ELLIPSE)
        y = (y0 + half_height)[:, None] + half_height[:, None] * torch.cos(_ELLIPSE)
    else:
        x, y = torch.stack([x0, x1, x1, x0], 1), torch.stack([y0, y0, y1, y1], 1)
    x, y = project(matrices[rows.owners], x, y)
    new_height, new_width = size.double()[rows.owners].unbind(1)
    left, top, right, bottom = x.amin(1), y.amin(1), x.amax(1), y.amax(1)
    moved = rows.with_columns(left / new_width, top / new_height, right / new_width, bottom / new_height)
    return moved.where((right > 0) & (bottom > 0) & (left < new_width) & (top < new_height))


def project(matrices: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply a map to the points in each row."""
    a = [[matrices[:, i, j, None] for j in range(3)] for i in range(3)]
    over = a[2][0] * x + a[2][1] * y + a[2][2]
    return (a[0][0] * x + a[0][1] * y + a[0][2]) / over, (a[1][0] * x + a[1][1] * y + a[1][2]) / over


class Warp(Step):
    """Move pixels by ``matrix``, boxes by ``box_matrix``, to an output of ``size``; the scales of points are multiplied by ``scale``."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        _pixels.check_filter(transform, warps=True)
        self.fill, self.fill_mask = _pixels.check_fill(transform.fill), _pixels.check_fill(transform.fill_mask)

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return _pixels.warp(images, params["matrix"], params["size"], self.original.interpolation, self.original.border_mode, self.fill)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return _pixels.warp(masks, params["matrix"], params["size"], self.original.mask_interpolation, self.original.border_mode, self.fill_mask)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        _pixels.refuse_reflection(self.name, self.original.border_mode)
        return move_boxes(rows, params["box_matrix"], sample, params["size"], self.original.rotate_method)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        _pixels.refuse_reflection(self.name, self.original.border_mode)
        matrices = params["matrix"][rows.owners]
        x, y = project(matrices, rows.values[:, :1], rows.values[:, 1:2])
        angle = rows.values[:, 2] + torch.atan2(-matrices[:, 1, 0], matrices[:, 0, 0])
        return rows.with_columns(x[:, 0], y[:, 0], angle % (2 * math.pi), rows.values[:, 3] * params["scale"].amax(1)[rows.owners])

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        scale = dict(zip("xy", params["scale"][i].tolist(), strict=True))
        matrices = {"matrix": params["matrix"][i].numpy(), "bbox_matrix": params["box_matrix"][i].numpy()}
        return {**matrices, "output_shape": tuple(params["size"][i].tolist()), "scale": scale}


def _centers(sample: Sample) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return the centers (x, y) in the coordinates of pixels, and half a pixel further in those of boxes."""
    height, width = map(real, sample.sizes)
    return (width / 2 - 0.5, height / 2 - 0.5), (width / 2, height / 2)


class Affine(Warp):
    """A.Affine and A.ShiftScaleRotate."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        height, width = sample.sizes
        if t.translate_px is not None:
            move = tuple(real(draws.integers(int(t.translate_px[axis][0]), int(t.translate_px[axis][1]) + 1)) for axis in "xy")
        elif t.translate_percent is not None:
            parts = [draws.uniform(*limits(t.translate_percent[axis])) for axis in "xy"]
            move = (real(to_int(parts[0] * width)), real(to_int(parts[1] * height)))
        else:
            move = (torch.zeros(sample.count, dtype=torch.float64),) * 2
        shear = tuple(-draws.uniform(*limits(t.shear[axis])) for axis in "xy")
        scale = self._draw_scale(draws)
        angle = draws.uniform(*limits(t.rotate))
        centers, box_centers = _centers(sample)
        matrix, box_matrix = (affine_matrices(center, angle, scale, shear, move) for center in (centers, box_centers))  # type: ignore[arg-type]
        size = torch.stack([height, width], 1)
        if t.fit_output:
            (matrix, size), (box_matrix, _) = _fit_output(matrix, sample), _fit_output(box_matrix, sample)
        return {"matrix": matrix, "box_matrix": box_matrix, "size": size, "scale": torch.stack(scale, 1)}

    def _draw_scale(self, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
        t = self.original
        columns = []
        for axis in "xy":
            low, high = limits(t.scale[axis] if isinstance(t.scale, dict) else t.scale)
            first, second = draws.unit(), draws.unit()
            if not t.balanced_scale:
                columns.append(low + first * (high - low))
                continue
            # Reduction and enlargement are equally likely where the range has both.
            smaller = (second < 0.5) if low < 1 < high else torch.full_like(second, low < 1, dtype=torch.bool)
            columns.append(torch.where(smaller, low + first * (1 - low), 1 + first * max(high - 1, 0)))
        return (columns[0], columns[0] if t.keep_ratio else columns[1])


def _fit_output(matrices: torch.Tensor, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """Return maps to an output that contains the whole image, and its size."""
    height, width = map(real, sample.sizes)
    zero = torch.zeros_like(height)
    x, y = project(matrices, torch.stack([zero, width, width, zero], 1), torch.stack([zero, zero, height, height], 1))
    left, top, right, bottom = torch.floor(x.amin(1)), torch.floor(y.amin(1)), torch.ceil(x.amax(1)), torch.ceil(y.amax(1))
    size = torch.stack([bottom - top + 1, right - left + 1], 1).to(torch.int64)
    return _pixels.translation(-left, -top) @ matrices, size


class SafeRotate(Warp):
    """A.SafeRotate: the rotated image is scaled down to the size of the input."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        angle = draws.uniform(*limits(self.original.limit))
        height, width = map(real, sample.sizes)
        ones, zero = torch.ones_like(height), torch.zeros_like(height)
        sin, cos = torch.sin(torch.deg2rad(angle)).abs(), torch.cos(torch.deg2rad(angle)).abs()
        new_width, new_height = torch.trunc(height * sin + width * cos), torch.trunc(height * cos + width * sin)
        scales = (width / new_width, height / new_height)
        shrink = _pixels.matrices_of(scales[0], zero, zero, zero, scales[1], zero)
        matrices = []
        for x, y in _centers(sample):
            rotation = affine_matrices((x, y), angle, (ones, ones), (zero, zero), (new_width / 2 - x, new_height / 2 - y))
            matrices.append(shrink @ rotation)
        return {
            "matrix": matrices[0],
            "box_matrix": matrices[1],
            "size": torch.stack(sample.sizes, 1),
            "scale": torch.stack(scales, 1),
        }


class Rotate(Warp):
    """A.Rotate."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        angle = draws.uniform(*limits(self.original.limit))
        ones, zero = torch.ones_like(angle), torch.zeros_like(angle)
        matrix, box_matrix = (affine_matrices(center, angle, (ones, ones), (zero, zero), (zero, zero)) for center in _centers(sample))
        params = {"matrix": matrix, "box_matrix": box_matrix, "size": torch.stack(sample.sizes, 1), "scale": torch.stack([ones, ones], 1)}
        if self.original.crop_border:
            params["window"] = _largest_window(angle, sample)
        return params

    def change(self, sample: Sample, params: Params) -> Sample:
        rotated = super().change(sample, params)
        return Window(self.original).change(rotated, params) if self.original.crop_border else rotated

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        window = params["window"][i].tolist() if "window" in params else [-1] * 4
        matrices = {"matrix": params["matrix"][i].numpy(), "bbox_matrix": params["box_matrix"][i].numpy()}
        return {**matrices, **dict(zip(("x_min", "y_min", "x_max", "y_max"), window, strict=True))}


def _largest_window(angle: torch.Tensor, sample: Sample) -> torch.Tensor:
    """Return the largest upright window within each rotated image: left, top, right, bottom."""
    height, width = map(real, sample.sizes)
    turn = torch.deg2rad(angle)
    sin, cos = torch.sin(turn).abs(), torch.cos(turn).abs()
    wide = width >= height
    longer, shorter = torch.maximum(width, height), torch.minimum(width, height)
    # Either two corners of the window touch the long sides, or all four corners touch a side.
    half = 0.5 * shorter
    thin_width, thin_height = torch.where(wide, half / sin, half / cos), torch.where(wide, half / cos, half / sin)
    double = cos * cos - sin * sin
    full_width, full_height = (width * cos - height * sin) / double, (height * cos - width * sin) / double
    thin = (shorter <= 2 * sin * cos * longer) | ((sin - cos).abs() < 1e-10)
    columns = []
    for extent, inner in ((width, torch.where(thin, thin_width, full_width)), (height, torch.where(thin, thin_height, full_height))):
        columns.append((torch.trunc(extent / 2 - inner / 2).clamp(min=0), torch.minimum(torch.trunc(extent / 2 + inner / 2), extent)))
    (left, right), (top, bottom) = columns
    return torch.stack([left, top, right, bottom], 1).to(torch.int64)


class Perspective(Warp):
    """A.Perspective: four points near the corners become the corners."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = limits(self.original.scale)
        scale = draws.uniform(low, high)
        height, width = map(real, sample.sizes)
        offsets = (draws.normal(4, 2) * scale[:, None, None]).abs() % 0.32
        ends = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        points = torch.where(ends > 0, 1.0 - offsets, offsets) * torch.stack([width, height], 1)[:, None]
        points = points.to(torch.float32).double()  # as OpenCV takes them
        zero = torch.zeros_like(height)
        corners = torch.stack([torch.stack([zero, width, width, zero], 1), torch.stack([zero, zero, height, height], 1)], 2)
        matrix = _projective_matrices(points, corners)
        sides = (points - points.roll(-1, 1)).norm(dim=2).clamp(min=2)
        new_width, new_height = torch.trunc(torch.maximum(sides[:, 0], sides[:, 2])), torch.trunc(torch.maximum(sides[:, 1], sides[:, 3]))
        if self.original.fit_output:
            x, y = project(matrix, corners[:, :, 0], corners[:, :, 1])
            target = torch.round(torch.stack([x - x.amin(1, keepdim=True), y - y.amin(1, keepdim=True)], 2))
            matrix = _projective_matrices(corners, target)
            new_width, new_height = target[:, :, 0].amax(1), target[:, :, 1].amax(1)
        size = torch.stack([new_height, new_width], 1).to(torch.int64)
        return {"matrix": matrix, "size": size}

    def _scale_to_input(self, params: Params, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the matrices and sizes of the output."""
        if not self.original.keep_size:
            return params["matrix"], params["size"]
        height, width = map(real, sample.sizes)
        x, y = width / params["size"][:, 1], height / params["size"][:, 0]
        zero = torch.zeros_like(x)
        return _pixels.matrices_of(x, zero, zero, zero, y, zero) @ params["matrix"], torch.stack(sample.sizes, 1)

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        matrix, size = self._scale_to_input(params, sample)
        return _pixels.warp(images, matrix, size, self.original.interpolation, self.original.border_mode, _fill_first(self.fill, images))

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        matrix, size = self._scale_to_input(params, sample)
        return _pixels.warp(masks, matrix, size, self.original.mask_interpolation, self.original.border_mode, _fill_first(self.fill_mask, masks))

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        matrix, size = self._scale_to_input(params, sample)
        height, width = map(rows.of, sample.sizes)
        x0, y0, x1, y1 = (column * extent for column, extent in zip(rows.values[:, :4].unbind(1), (width, height, width, height), strict=True))
        x, y = project(matrix[rows.owners], torch.stack([x0, x1, x1, x0], 1), torch.stack([y0, y0, y1, y1], 1))
        new_height, new_width = size.double()[rows.owners].unbind(1)
        return rows.with_columns(x.amin(1) / new_width, y.amin(1) / new_height, x.amax(1) / new_width, y.amax(1) / new_height)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        matrix, _ = self._scale_to_input(params, sample)
        plain = params["matrix"][rows.owners]
        x, y = project(matrix[rows.owners], rows.values[:, :1], rows.values[:, 1:2])
        angle = rows.values[:, 2] + torch.atan2(plain[:, 1, 0], plain[:, 0, 0])
        factors = torch.maximum(*(torch.sign(plain[:, k, k]) * plain[:, k, :2].norm(dim=1) for k in (0, 1)))
        if self.original.keep_size:
            height, width = map(rows.of, sample.sizes)
            new_height, new_width = params["size"].double()[rows.owners].unbind(1)
            factors = factors * torch.maximum(width / new_width, height / new_height)
        return rows.with_columns(x[:, 0], y[:, 0], angle % (2 * math.pi), rows.values[:, 3] * factors)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        height, width = params["size"][i].tolist()
        matrix = params["matrix"][i].numpy()
        return {"matrix": matrix, "matrix_bbox": matrix, "max_height": height, "max_width": width}


def _fill_first(fill: Any, images: Batch) -> Any:
    """Return a fill value as OpenCV takes it here: a number is that of the first channel, the others are filled with 0."""
    channels = images.shared_extent(2) or int(images.sample_shapes()[0, 2])
    return [fill, *[0.0] * (channels - 1)] if isinstance(fill, float) else fill


def _projective_matrices(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the projective maps that take four points (N, 4, 2) to four others, float64 (N, 3, 3)."""
    x, y = source.unbind(2)
    zero, ones = torch.zeros_like(x), torch.ones_like(x)
    rows = []
    for k, values in enumerate(target.unbind(2)):
        linear = [x, y, ones, zero, zero, zero] if k == 0 else [zero, zero, zero, x, y, ones]
        rows.append(torch.stack([*linear, -x * values, -y * values], 2))
    solved = torch.linalg.solve(torch.cat(rows, 1), torch.cat(target.unbind(2), 1))
    return torch.cat([solved, torch.ones(len(solved), 1, dtype=torch.float64)], 1).reshape(-1, 3, 3)
