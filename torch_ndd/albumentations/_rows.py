# SPDX-License-Identifier: Apache-2.0
"""Boxes and points: their formats, and the filters of BboxParams and KeypointParams."""

import math
from typing import Any

import torch

from .._core.values.batch import Batch, new_batch
from ._sample import OP, Rows, Sample

_BOX_FORMATS = ("pascal_voc", "coco", "yolo", "albumentations")
# Where x, y, angle and scale are; None where a format has none.
_POINT_FORMATS: dict[str, tuple[int | None, ...]] = {
    "xy": (0, 1, None, None),
    "yx": (1, 0, None, None),
    "xya": (0, 1, 2, None),
    "xys": (0, 1, None, 2),
    "xyas": (0, 1, 2, 3),
    "xysa": (0, 1, 3, 2),
}
_EPSILON = 1e-7
_CLOSE = 1e-5


def read_rows(name: str, batch: Any, least: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all rows of a batch, float64 (R, K), and their samples.

    Raises:
        TypeError: not a Batch.
        ValueError: another number of samples, or samples that are not rows of at least ``least`` numbers.
    """
    if not isinstance(batch, Batch):
        raise TypeError(f"{OP}: {name} must be a Batch with the rows of each sample, got {type(batch).__name__}")
    if batch.batch_size != count:
        raise ValueError(f"{OP}: {name} has {batch.batch_size} samples, the images have {count}")
    shapes = batch.sample_shapes().to(torch.int64)
    if batch.ndim != 2 or (count and (int(shapes[:, 1].min()) < least or int(shapes[:, 1].min()) != int(shapes[:, 1].max()))):
        raise ValueError(
            f"{OP}: {name} must have the shape (rows, {least} or more) in each sample, the same number of columns in all, got {batch.shape}"
        )
    columns = int(shapes[0, 1]) if count else least
    values = batch.wait().cpu().to(torch.float64).reshape(-1, columns)
    return values, torch.repeat_interleave(torch.arange(count), shapes[:, 0])


def write_rows(values: torch.Tensor, owners: torch.Tensor, count: int) -> Batch:
    """Return rows, which are in the order of their samples, as a batch."""
    counts = torch.bincount(owners, minlength=count)
    if count and bool((counts == counts[0]).all()):
        return new_batch(values.reshape(count, int(counts[0]), *values.shape[1:]).contiguous())
    shapes = torch.cat([counts[:, None], torch.tensor(values.shape[1:], dtype=torch.int64).expand(count, values.dim() - 1)], 1)
    return new_batch(values.contiguous().reshape(-1), shapes.contiguous())


def _snap(x: torch.Tensor) -> torch.Tensor:
    """Return the numbers, with 0 or 1 in place of those slightly outside of [0, 1]."""
    x = torch.where((x < 0) & (x > -_CLOSE), 0.0, x)
    return torch.where((x > 1) & (x < 1 + _CLOSE), 1.0, x)


class Boxes:
    """A.BboxParams."""

    def __init__(self, params: Any) -> None:
        self.params = params
        self.format = params.format
        if self.format not in _BOX_FORMATS:
            raise ValueError(f"{OP}: format of boxes {self.format!r} must be one of {', '.join(_BOX_FORMATS)}")

    def read(self, name: str, batch: Any, sample: Sample) -> Rows:
        """Return boxes relative to their images.

        Raises:
            ValueError: a box outside its image, or whose end is not after its start.
        """
        values, owners = read_rows(name, batch, 4, sample.count)
        rows = Rows(values, owners, torch.arange(len(owners)))
        x0, y0, x1, y1 = values[:, :4].unbind(1)
        if self.format == "coco":
            x1, y1 = x0 + x1, y0 + y1
        elif self.format == "yolo":
            x0, y0, x1, y1 = x0 - x1 / 2, y0 - y1 / 2, x0 + x1 / 2, y0 + y1 / 2
        if self.format in ("coco", "pascal_voc"):
            height, width = map(rows.of, sample.sizes)
            x0, y0, x1, y1 = x0 / width, y0 / height, x1 / width, y1 / height
        # Albumentations computes in float32: numbers a little outside become 0 or 1.
        rows = rows.with_columns(*map(_snap, (x0, y0, x1, y1)))
        if self.params.clip:
            rows = rows.with_columns(*rows.values[:, :4].clamp(0, 1).unbind(1))
        if self.params.filter_invalid_bboxes:
            rows = self._filter(rows, sample, 0.0, 0.0, 0.0, 0.0, None)
        return self._check(name, rows)

    def _check(self, name: str, rows: Rows) -> Rows:
        box = rows.values[:, :4]
        wrong = ~((box >= 0) & (box <= 1)).all(1) | (box[:, 2] <= box[:, 0]) | (box[:, 3] <= box[:, 1])
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            i, k = int(rows.owners[row]), int((rows.owners[:row] == rows.owners[row]).sum())
            corners = ["({:.6g}, {:.6g})".format(*box[row, j : j + 2].tolist()) for j in (0, 2)]
            raise ValueError(
                f"{OP}: {name}: box {k} of sample {i} is from {corners[0]} to {corners[1]} relative to the image; boxes must lie within it and not "
                "be empty. BboxParams(clip=True, filter_invalid_bboxes=True) mends and drops such boxes"
            )
        return rows

    def filter(self, rows: Rows, sample: Sample) -> Rows:
        """Return boxes clipped to their images, without those of which too little is left."""
        p = self.params
        return self._filter(rows, sample, p.min_area, p.min_visibility, p.min_width, p.min_height, p.max_accept_ratio)

    def _filter(
        self, rows: Rows, sample: Sample, area: float, visibility: float, least_width: float, least_height: float, ratio: float | None
    ) -> Rows:
        height, width = map(rows.of, sample.sizes)
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        before = (x1 - x0) * width * (y1 - y0) * height
        rows = rows.with_columns(*rows.values[:, :4].clamp(0, 1).unbind(1))
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        wide, tall = (x1 - x0) * width, (y1 - y0) * height
        kept = (before >= _EPSILON) & (wide * tall >= area - _EPSILON) & (wide * tall / (before + _EPSILON) >= visibility)
        kept &= (wide >= least_width - _EPSILON) & (tall >= least_height - _EPSILON)
        if ratio is not None:
            kept &= torch.maximum(wide / (tall + _EPSILON), tall / (wide + _EPSILON)) <= ratio
        return rows.where(kept)

    def write(self, rows: Rows, sample: Sample, dtype: torch.dtype) -> Batch:
        """Return boxes in their format."""
        height, width = map(rows.of, sample.sizes)
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        if self.format in ("coco", "pascal_voc"):
            x0, y0, x1, y1 = x0 * width, y0 * height, x1 * width, y1 * height
        if self.format == "coco":
            x1, y1 = x1 - x0, y1 - y0
        elif self.format == "yolo":
            x0, y0, x1, y1 = (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0
        return write_rows(rows.with_columns(x0, y0, x1, y1).values.to(dtype), rows.owners, sample.count)


class Points:
    """A.KeypointParams."""

    def __init__(self, params: Any) -> None:
        self.params = params
        if params.format not in _POINT_FORMATS:
            raise ValueError(f"{OP}: format of keypoints {params.format!r} must be one of {', '.join(_POINT_FORMATS)}")
        self.places = _POINT_FORMATS[params.format]

    def read(self, name: str, batch: Any, sample: Sample) -> Rows:
        """Return points in pixels, with angles in radians.

        Raises:
            ValueError: a point outside its image, with ``remove_invisible``.
        """
        columns = len(self.params.format)
        values, owners = read_rows(name, batch, columns, sample.count)
        zero = torch.zeros(len(values), dtype=torch.float64)
        x, y, angle, scale = (zero if place is None else values[:, place] for place in self.places)
        if self.params.angle_in_degrees:
            angle = torch.deg2rad(angle)
        rows = Rows(torch.cat([torch.stack([x, y, angle % (2 * math.pi), scale], 1), values[:, columns:]], 1), owners, torch.arange(len(owners)))
        if self.params.remove_invisible and bool((outside := ~_is_inside(rows, sample)).any()):
            row = int(outside.nonzero()[0])
            raise ValueError(
                f"{OP}: {name}: a point of sample {int(owners[row])} is at ({x[row]:.6g}, {y[row]:.6g}), outside its image; "
                "KeypointParams(remove_invisible=False) takes such points"
            )
        return rows

    def filter(self, rows: Rows, sample: Sample) -> Rows:
        """Return the points within their images, or all of them without ``remove_invisible``."""
        return rows.where(_is_inside(rows, sample)) if self.params.remove_invisible else rows

    def write(self, rows: Rows, sample: Sample, dtype: torch.dtype) -> Batch:
        """Return points in their format."""
        x, y, angle, scale = rows.values[:, :4].unbind(1)
        angle = angle % (2 * math.pi)
        numbers = (x, y, torch.rad2deg(angle) if self.params.angle_in_degrees else angle, scale)
        columns = {place: number for place, number in zip(self.places, numbers, strict=True) if place is not None}
        values = torch.cat([torch.stack([columns[k] for k in range(len(columns))], 1), rows.values[:, 4:]], 1)
        return write_rows(values.to(dtype), rows.owners, sample.count)


def _is_inside(rows: Rows, sample: Sample) -> torch.Tensor:
    height, width = map(rows.of, sample.sizes)
    x, y = rows.values[:, 0], rows.values[:, 1]
    return (x >= 0) & (x < width) & (y >= 0) & (y < height)
