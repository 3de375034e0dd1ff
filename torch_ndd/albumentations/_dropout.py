# SPDX-License-Identifier: Apache-2.0
"""Holes: every transform draws rectangles that are filled."""

from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch
from ..ops.geometry.paste import erase
from ..torchvision._draws import Draws, real
from . import _pixels
from ._sample import OP, Rows, Sample
from ._step import Params, Step, refuse


class Holes(Step):
    """Fill ``holes``: left, top, right and bottom of each, int64 (N, K, 4). Empty ones are there because samples differ in their number."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if isinstance(transform.fill, str):
            raise refuse(transform, f"fill={transform.fill!r}", "holes are filled with one number, or one per channel")
        self.fill = _pixels.check_fill(transform.fill)
        self.fill_mask = None if transform.fill_mask is None else _pixels.check_fill(transform.fill_mask)

    def neutral_params(self) -> dict[str, Any] | None:
        return {"holes": 0}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return _fill_holes(images, params["holes"], self.fill)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return masks if self.fill_mask is None else _fill_holes(masks, params["holes"], self.fill_mask)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        options = self.original.get_processor("bboxes")
        return rows if options is None else _shrink_boxes(rows, params["holes"], sample, options.params)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        options = self.original.get_processor("keypoints")
        if options is None or not options.params.remove_invisible:
            return rows
        x, y = rows.values[:, :1], rows.values[:, 1:2]
        left, top, right, bottom = params["holes"].double()[rows.owners].unbind(2)
        return rows.where(~((x >= left) & (x < right) & (y >= top) & (y < bottom)).any(1))

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        holes = params["holes"][i].numpy()
        return {"holes": holes[(holes[:, 2] > holes[:, 0]) & (holes[:, 3] > holes[:, 1])], "seed": 0}


def _fill_holes(images: Batch, holes: torch.Tensor, fill: Any) -> Batch:
    if not holes.shape[1]:
        return images
    anchor, end = holes[:, :, [1, 0]], holes[:, :, [3, 2]]
    shape = (end - anchor).clamp(min=0)
    flat = [as_batch(numbers.reshape(len(holes), -1).to(torch.float32)) for numbers in (anchor, shape)]
    return erase(images, anchor=flat[0], shape=flat[1], axis_names="HW", fill_value=fill)


def _shrink_boxes(rows: Rows, holes: torch.Tensor, sample: Sample, options: Any) -> Rows:
    """Return boxes around what the holes leave of them; those that keep too little are dropped.

    It works sample by sample on masks of the holes, because holes may overlap.
    """
    heights, widths = (extent.tolist() for extent in sample.sizes)
    values, kept = rows.values.clone().numpy(), np.zeros(len(rows.owners), bool)
    owners = rows.owners.numpy()
    for i in np.unique(owners):
        height, width = heights[i], widths[i]
        if not (holes[i, :, 2:] > holes[i, :, :2]).all(1).any():
            kept[owners == i] = True
            continue
        free = np.ones((height, width), bool)
        for left, top, right, bottom in holes[i].tolist():
            free[top:bottom, left:right] = False
        for row in np.flatnonzero(owners == i):
            # Relative numbers of Albumentations are float32: whole pixels may become a little less.
            left, top, right, bottom = (values[row, :4].astype(np.float32) * (width, height, width, height)).astype(np.int64)
            visible = free[top:bottom, left:right]
            area, rest = (right - left) * (bottom - top), int(visible.sum())
            if rest == 0 or rest < options.min_area or rest < options.min_visibility * area:
                continue
            kept[row] = True
            across, down = np.flatnonzero(visible.any(0)), np.flatnonzero(visible.any(1))
            corners = (left + across[0], top + down[0], left + across[-1] + 1, top + down[-1] + 1)
            values[row, :4] = np.array(corners) / (width, height, width, height)
    return Rows(torch.from_numpy(values), rows.owners, rows.origins).where(torch.from_numpy(kept))


def _keep_first(holes: list[torch.Tensor], counts: torch.Tensor) -> torch.Tensor:
    """Return holes (N, K, 4) of four columns (N, K), of which the first ``counts`` of each sample are not empty."""
    stacked = torch.stack([column.to(torch.int64) for column in torch.broadcast_tensors(*holes)], 2)
    return torch.where((torch.arange(stacked.shape[1]) < counts[:, None])[:, :, None], stacked, 0)


def _draw_up_to(draws: Draws, room: torch.Tensor) -> torch.Tensor:
    """Return uniform integers from 0 to ``room``, (N, K)."""
    return torch.floor(draws.unit(room.shape[1]) * (room + 1)).to(torch.int64)


class CoarseDropout(Holes):
    """A.CoarseDropout."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        low, high = t.num_holes_range
        counts = draws.integers(low, high + 1)
        sizes = []
        for extent, (least, most) in zip(sample.sizes, (t.hole_height_range, t.hole_width_range), strict=True):
            unit = draws.unit(high)
            if t.hole_height_range[1] >= 1:  # pixels; in Albumentations the height decides for both
                most_pixels = torch.clamp(extent, max=int(most))[:, None]
                sizes.append((int(least) + torch.floor(unit * (most_pixels - int(least) + 1))).to(torch.int64))
            else:
                sizes.append((real(extent)[:, None] * (least + unit * (most - least))).to(torch.int64))
        (tall, wide), (height, width) = sizes, sample.sizes
        top, left = _draw_up_to(draws, height[:, None] - tall), _draw_up_to(draws, width[:, None] - wide)
        return {"holes": _keep_first([left, top, left + wide, top + tall], counts)}


class Erasing(Holes):
    """A.Erasing."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        (least, most), (low, high) = self.original.scale, self.original.ratio
        height, width = map(real, sample.sizes)
        area = height * width
        # The largest area that fits with every ratio.
        fits = torch.minimum(torch.minimum(low * height**2, high * height**2), torch.minimum(width**2 / low, width**2 / high))
        largest = torch.minimum(most * area, fits)
        usable = largest >= least * area
        erased = least * area + draws.unit() * (largest - least * area)
        highest, lowest = torch.clamp(width**2 / erased, max=high), torch.clamp(erased / height**2, min=low)
        usable &= lowest <= highest
        ratio = lowest + draws.unit() * (highest - lowest)
        tall, wide = torch.round(torch.sqrt(erased / ratio)), torch.round(torch.sqrt(erased * ratio))
        tall, wide = (torch.where(usable, extent, 0.0).to(torch.int64)[:, None] for extent in (tall, wide))
        top, left = (_draw_up_to(draws, extent.to(torch.int64)[:, None] - size) for extent, size in ((height, tall), (width, wide)))
        return {"holes": _keep_first([left, top, left + wide, top + tall], torch.ones(sample.count))}


class GridDropout(Holes):
    """A.GridDropout: a hole in each cell of a grid."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        height, width = sample.sizes
        if t.holes_number_xy:  # rows and columns, whatever the name says
            rows, columns = (torch.full_like(height, number) for number in t.holes_number_xy)
        elif t.unit_size_range is not None:
            low, high = t.unit_size_range
            if bool((torch.minimum(height, width) < high).any()):
                raise ValueError(f"{OP}: {self.name}: unit_size_range {t.unit_size_range} must be within the shorter side of every image")
            unit = draws.integers(low, max(high, low + 1))
            rows, columns = height // unit, width // unit
        else:
            rows, columns = (extent // (extent // 10).clamp(min=2) for extent in (height, width))
        (top, cell_height), (left, cell_width) = _split(height, rows, draws), _split(width, columns, draws)
        top, left = top[:, :, None].expand(-1, -1, left.shape[1]), left[:, None].expand(-1, top.shape[1], -1)
        cell_height, cell_width = cell_height[:, :, None].expand_as(top), cell_width[:, None].expand_as(top)
        sides = []
        for start, cell, extent, shift in ((left, cell_width, width, t.shift_xy[0]), (top, cell_height, height, t.shift_xy[1])):
            start, cell = start.reshape(sample.count, -1), cell.reshape(sample.count, -1)
            size = torch.minimum((real(cell) * t.ratio).clamp(min=1), real(cell - 1)).to(torch.int64).clamp(min=0)
            offset = _draw_up_to(draws, cell - size) if t.random_offset else shift
            start = torch.minimum((start + offset).clamp(min=0), extent[:, None] - size)
            sides.append((start, start + size))
        (x0, x1), (y0, y1) = sides
        return {"holes": torch.stack([x0, y0, x1, y1], 2)}


def _split(extent: torch.Tensor, parts: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Return starts and sizes of parts that differ by one at most, in random order; those beyond the number of a sample are empty."""
    most = int(parts.max())
    used = torch.arange(most) < parts[:, None]
    order = torch.where(used, draws.unit(most), 2.0).argsort(1).argsort(1)
    size = torch.where(used, (extent // parts)[:, None] + (order < (extent % parts)[:, None]), 0)
    return size.cumsum(1) - size, size


class XYMasking(Holes):
    """A.XYMasking, A.TimeMasking and A.FrequencyMasking: stripes."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        height, width = sample.sizes
        parts = []
        for across, number, lengths in ((True, t.num_masks_x, t.mask_x_length), (False, t.num_masks_y, t.mask_y_length)):
            low, high = number if isinstance(number, tuple | list) else (number, number)
            least, most = lengths if isinstance(lengths, tuple | list) else (lengths, lengths)
            if not high or not most:
                continue
            extent, whole = (width, height) if across else (height, width)
            if bool((extent < most).any()):
                raise ValueError(f"{OP}: {self.name}: a mask of {most} pixels is longer than an image")
            counts = draws.integers(low, high + 1)
            size = (least + torch.floor(draws.unit(high) * (most - least + 1))).to(torch.int64)
            start, zero = _draw_up_to(draws, extent[:, None] - size), torch.zeros_like(size)
            end, full = start + size, whole[:, None].expand_as(size)
            parts.append(_keep_first([start, zero, end, full] if across else [zero, start, full, end], counts))
        return {"holes": torch.cat(parts, 1) if parts else torch.zeros(sample.count, 0, 4, dtype=torch.int64)}
