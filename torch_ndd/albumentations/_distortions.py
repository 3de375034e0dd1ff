# SPDX-License-Identifier: Apache-2.0
"""Distortions: a map holds for every pixel the position that it comes from. Boxes and points are not translated."""

from typing import Any

import torch

from .. import types
from .._core.values.batch import Batch, new_batch
from ..ops.geometry.warp import remap
from ..torchvision._draws import Draws, real
from . import _pixels
from ._sample import OP, Rows, Sample
from ._step import Params, Step, limits, refuse

_FILTERS = {_pixels.NEAREST: types.INTERP_NN, _pixels.LINEAR: types.INTERP_LINEAR, _pixels.CUBIC: types.INTERP_CUBIC}


class Distortion(Step):
    """Sample every pixel at the position that :meth:`find_sources` computes."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        _pixels.check_filter(transform, warps=True)
        if transform.border_mode != _pixels.CONSTANT:
            raise refuse(transform, f"border_mode={transform.border_mode}", "outside of the image there is a constant")
        self.fill, self.fill_mask = _pixels.check_fill(transform.fill), _pixels.check_fill(transform.fill_mask)

    def find_sources(self, params: Params, grid: "Grid") -> tuple[torch.Tensor, torch.Tensor]:
        """Return x and y for all pixels of the batch, one after the other."""
        raise NotImplementedError

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return self._remap(images, params, sample, self.original.interpolation, self.fill)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return self._remap(masks, params, sample, self.original.mask_interpolation, self.fill_mask)

    def _remap(self, images: Batch, params: Params, sample: Sample, interpolation: int, fill: Any) -> Batch:
        grid = Grid(*sample.sizes)
        maps = [grid.as_batch(values) for values in self.find_sources(params, grid)]
        return remap(images, *maps, interp=_FILTERS[interpolation], fill_value=fill, pixel_origin="center")

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        raise ValueError(f"{OP}: {self.name} with boxes is not translated: Albumentations draws them into masks and looks for what is left")

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        raise ValueError(f"{OP}: {self.name} with keypoints is not translated: Albumentations draws them into masks and looks for what is left")

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        height, width = (int(params[name][i]) for name in ("height", "width"))
        grid = Grid(torch.tensor([height]), torch.tensor([width]))
        x, y = self.find_sources({name: value[i : i + 1] for name, value in params.items()}, grid)
        return {"map_x": x.to(torch.float32).reshape(height, width).numpy(), "map_y": y.to(torch.float32).reshape(height, width).numpy()}


class Grid:
    """The pixels of all samples, one after the other: their ``owner``, ``x`` and ``y``."""

    def __init__(self, height: torch.Tensor, width: torch.Tensor) -> None:
        self.height, self.width = height, width
        volumes = height * width
        self.owner = torch.repeat_interleave(torch.arange(len(height)), volumes)
        place = torch.arange(int(volumes.sum())) - (volumes.cumsum(0) - volumes)[self.owner]
        self.x, self.y = real(place % width[self.owner]), real(place // width[self.owner])

    def of(self, column: torch.Tensor) -> torch.Tensor:
        """Return for each pixel the number of its sample."""
        return real(column)[self.owner]

    def as_batch(self, values: torch.Tensor) -> Batch:
        """Return a number for each pixel as a batch of maps."""
        values, shapes = values.to(torch.float32), torch.stack([self.height, self.width], 1)
        if bool((shapes == shapes[0]).all()):
            return new_batch(values.reshape(len(shapes), *shapes[0].tolist()), None, "HW")
        return new_batch(values, shapes.contiguous(), "HW")


def _with_sizes(params: Params, sample: Sample) -> Params:
    height, width = sample.sizes
    return {**params, "height": height, "width": width}


class OpticalDistortion(Distortion):
    """A.OpticalDistortion: a barrel or a pincushion."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return _with_sizes({"k": draws.uniform(*limits(self.original.distort_limit))}, sample)

    def find_sources(self, params: Params, grid: Grid) -> tuple[torch.Tensor, torch.Tensor]:
        height, width, k = grid.of(grid.height), grid.of(grid.width), grid.of(params["k"])
        if self.original.mode == "camera":
            # The focal lengths are the sides of the image. OpenCV's undistorted camera looks at the middle of pixels, half a pixel further.
            x, y = grid.x - (width - 1) / 2, grid.y - (height - 1) / 2
            squared = (x / width) ** 2 + (y / height) ** 2
            factor = 1 + k * squared + k * squared**2
        else:
            x, y = grid.x - width / 2, grid.y - height / 2
            factor = 1 + k * (x**2 + y**2) / ((width / 2) ** 2 + (height / 2) ** 2)
        return x * factor + width / 2, y * factor + height / 2


class GridDistortion(Distortion):
    """A.GridDistortion: columns and rows of a grid become wider and narrower."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        low, high = limits(t.distort_limit)
        params = {}
        for name, extent in zip(("steps_y", "steps_x"), sample.sizes, strict=True):
            if bool((extent < t.num_steps).any()):
                raise ValueError(f"{OP}: {self.name}: an image has fewer pixels than the {t.num_steps} steps of the grid")
            steps = 1.0 + low + draws.unit(t.num_steps + 1) * (high - low)
            if t.normalized:  # so that the grid ends at the border of the image
                size = extent // t.num_steps
                last = torch.minimum(extent, (t.num_steps + 1) * size) - t.num_steps * size
                steps = torch.cat([steps[:, :-1], (steps[:, -1] * real(last) / real(size))[:, None]], 1)
                steps = steps * (real(extent) / real(size) / steps.sum(1))[:, None]
            params[name] = steps
        return _with_sizes(params, sample)

    def find_sources(self, params: Params, grid: Grid) -> tuple[torch.Tensor, torch.Tensor]:
        columns, rows = self._stretch(grid.width, params["steps_x"]), self._stretch(grid.height, params["steps_y"])
        return columns[grid.owner, grid.x.to(torch.int64)], rows[grid.owner, grid.y.to(torch.int64)]

    def _stretch(self, extent: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return where each column, or row, of all samples comes from, (N, largest extent): evenly spaced in a cell, with both ends."""
        size = real(extent // self.original.num_steps)[:, None]
        ends = (steps * size).cumsum(1)
        place = torch.arange(int(extent.max()), dtype=torch.float64)
        cell = torch.div(place, size, rounding_mode="floor").to(torch.int64)
        # Pixels beyond the last cell come from 0, as in Albumentations.
        inside = cell <= self.original.num_steps
        cell = cell.clamp(max=self.original.num_steps)
        first = cell * size
        count = torch.minimum(first + size, real(extent)[:, None]) - first
        end = ends.gather(1, cell)
        start = end - steps.gather(1, cell) * size
        share = (place - first) / (count - 1).clamp(min=1)
        return torch.where(inside, start + share * (end - start), 0.0)


class ElasticTransform(Distortion):
    """A.ElasticTransform: random displacements, smoothed by a Gaussian."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        height, width = sample.sizes
        if not bool((height == height[0]).all()) or not bool((width == width[0]).all()):
            raise ValueError(f"{OP}: {self.name} takes images of one size; resize or crop them first")
        shape = (1 if t.same_dxdy else 2, int(height[0]), int(width[0]))
        if t.noise_distribution == "gaussian":
            noise = draws.normal(*shape)
            noise = noise / noise.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-6)
        else:
            noise = 2 * draws.unit(*shape) - 1
        # OpenCV's window for floats; both displacements are blurred as one image, one above the other.
        reach = 8 if t.approximate else round(t.sigma * 4 * 2 + 1) // 2
        weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float64) / t.sigma) ** 2)
        weights = (weights / weights.sum()).to(torch.float32)
        field = noise.to(torch.float32).reshape(sample.count, 1, -1, shape[2])
        for axis, kernel in ((3, weights.reshape(1, 1, 1, -1)), (2, weights.reshape(1, 1, -1, 1))):
            padding = (reach, reach, 0, 0) if axis == 3 else (0, 0, reach, reach)
            field = torch.nn.functional.conv2d(torch.nn.functional.pad(field, padding, mode="replicate"), kernel)
        field = real(field.reshape(sample.count, *shape)) * t.alpha
        return _with_sizes({"dx": field[:, 0], "dy": field[:, -1]}, sample)

    def find_sources(self, params: Params, grid: Grid) -> tuple[torch.Tensor, torch.Tensor]:
        return grid.x + params["dx"].reshape(-1), grid.y + params["dy"].reshape(-1)
