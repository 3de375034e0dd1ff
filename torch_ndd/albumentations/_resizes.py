# SPDX-License-Identifier: Apache-2.0
"""Resizing: every step computes the new sizes."""

from typing import Any

import torch

from .._core.values.batch import Batch
from ..torchvision._draws import Draws, real, round_half_even
from . import _pixels
from ._crops import scale_points
from ._sample import Rows, Sample
from ._step import Params, Step, limits


class ResizeStep(Step):
    """Resize to ``size``, height and width, int64 (N, 2). Points are multiplied by ``scale``, across and down."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        _pixels.check_filter(transform)

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return _pixels.resize_window(images, None, params["size"], self.original.interpolation)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return _pixels.resize_window(masks, None, params["size"], self.original.mask_interpolation)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        x, y = params["scale"][rows.owners].unbind(1)
        return scale_points(rows, x, y)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"scale": float(params["scale"][i, 0])}


class Resize(ResizeStep):
    """A.Resize."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        height, width = sample.sizes
        size = torch.tensor([[self.original.height, self.original.width]]).expand(sample.count, 2)
        return {"size": size, "scale": torch.stack([self.original.width / real(width), self.original.height / real(height)], 1)}

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {}


class MaxSize(ResizeStep):
    """The base of LongestMaxSize and SmallestMaxSize, which differ in the side, and scale, that decides."""

    longest: bool

    def draw(self, sample: Sample, draws: Draws) -> Params:
        height, width = map(real, sample.sizes)
        choose = torch.minimum if self.longest else torch.maximum
        if self.original.max_size is not None:
            sides = torch.as_tensor(self.original.max_size).reshape(-1)
            target = real(sides[draws.integers(0, len(sides))] if len(sides) > 1 else sides.expand(sample.count))
            scale = choose(target / height, target / width)
        else:
            high, wide = self.original.max_size_hw
            scales = [side / extent for side, extent in ((high, height), (wide, width)) if side is not None]
            scale = scales[0] if len(scales) == 1 else choose(*scales)
        size = torch.stack([round_half_even(extent * scale).clamp(min=1) for extent in (height, width)], 1)
        return {"size": size, "scale": torch.stack([scale, scale], 1)}


class LongestMaxSize(MaxSize):
    """A.LongestMaxSize."""

    longest = True


class SmallestMaxSize(MaxSize):
    """A.SmallestMaxSize."""

    longest = False


class RandomScale(ResizeStep):
    """A.RandomScale."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = limits(self.original.scale_limit)
        scale = draws.uniform(low, high) + 1.0
        size = torch.stack([(real(extent) * scale).to(torch.int64).clamp(min=1) for extent in sample.sizes], 1)
        return {"size": size, "scale": torch.stack([scale, scale], 1)}
