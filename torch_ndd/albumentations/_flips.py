# SPDX-License-Identifier: Apache-2.0
"""Flips and quarter turns: the eight symmetries of a square."""

import math
from typing import Any

import torch

from .._core.values.batch import Batch
from ..ops.geometry.flip import flip
from ..ops.shape.reshape import transpose
from ..torchvision._draws import Draws
from ._sample import Rows, Sample, merge
from ._step import Params, Step, per_sample

# Each symmetry exchanges the axes or not, and mirrors the result.
_SYMMETRIES = {
    "e": (False, False, False),
    "r90": (True, False, True),
    "r180": (False, True, True),
    "r270": (True, True, False),
    "v": (False, False, True),
    "hvt": (True, True, True),
    "h": (False, True, False),
    "t": (True, False, False),
}
_NAMES = {flags: name for name, flags in _SYMMETRIES.items()}


class Symmetry(Step):
    """Exchange the axes where ``exchange`` is 1, then mirror the columns where ``horizontal`` is 1 and the rows where ``vertical`` is 1."""

    choices: tuple[str, ...]

    def neutral_params(self) -> dict[str, Any] | None:
        return {"exchange": 0, "horizontal": 0, "vertical": 0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        flags = torch.tensor([_SYMMETRIES[name] for name in self.choices], dtype=torch.int64)
        rows = flags[draws.integers(0, len(flags)) if len(flags) > 1 else torch.zeros(draws.count, dtype=torch.int64)]
        return dict(zip(("exchange", "horizontal", "vertical"), rows.unbind(1), strict=True))

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        images = _exchange_axes(images, params["exchange"].bool())
        horizontal, vertical = params["horizontal"], params["vertical"]
        if not bool(horizontal.any()) and not bool(vertical.any()):
            return images
        return flip(images, horizontal=per_sample(horizontal, torch.int32), vertical=per_sample(vertical, torch.int32))

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return self.change_images(masks, params, sample)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        exchange, horizontal, vertical = _flags(rows, params)
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        x0, y0, x1, y1 = (torch.where(exchange, *pair) for pair in ((y0, x0), (x0, y0), (y1, x1), (x1, y1)))
        x0, x1 = torch.where(horizontal, 1 - x1, x0), torch.where(horizontal, 1 - x0, x1)
        y0, y1 = torch.where(vertical, 1 - y1, y0), torch.where(vertical, 1 - y0, y1)
        return rows.with_columns(x0, y0, x1, y1)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        exchange, horizontal, vertical = _flags(rows, params)
        x, y, angle = rows.values[:, :3].unbind(1)
        height, width = map(rows.of, sample.sizes)
        height, width = torch.where(exchange, width, height), torch.where(exchange, height, width)
        x, y = torch.where(exchange, y, x), torch.where(exchange, x, y)
        # Albumentations mirrors angles at the diagonal in two halves, one of them off by half a turn; its rotations are not.
        opposite = exchange & (horizontal == vertical) & (vertical ^ (angle > math.pi))
        angle = torch.where(exchange, math.pi / 2 - angle, angle) + math.pi * opposite
        x, angle = torch.where(horizontal, width - 1 - x, x), torch.where(horizontal, math.pi - angle, angle)
        y, angle = torch.where(vertical, height - 1 - y, y), torch.where(vertical, -angle, angle)
        return rows.with_columns(x, y, angle % (2 * math.pi))

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        name = _NAMES[tuple(bool(params[key][i]) for key in ("exchange", "horizontal", "vertical"))]  # type: ignore[index]
        return {"group_element": name}


class HorizontalFlip(Symmetry):
    """A.HorizontalFlip, and A.TimeReverse for spectrograms."""

    choices = ("h",)


class VerticalFlip(Symmetry):
    """A.VerticalFlip."""

    choices = ("v",)


class Transpose(Symmetry):
    """A.Transpose."""

    choices = ("t",)


class D4(Symmetry):
    """A.D4 and A.SquareSymmetry."""

    choices = tuple(_SYMMETRIES)


class RandomRotate90(Symmetry):
    """A.RandomRotate90."""

    choices = ("e", "r90", "r180", "r270")

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"factor": self.choices.index(super().arguments(params, i)["group_element"])}


class NoOp(Step):
    """A.NoOp."""

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return images


def _flags(rows: Rows, params: Params) -> tuple[torch.Tensor, ...]:
    return tuple(params[name].bool()[rows.owners] for name in ("exchange", "horizontal", "vertical"))


def _exchange_axes(images: Batch, which: torch.Tensor) -> Batch:
    """Exchange rows and columns of some images."""
    if not bool(which.any()):
        return images
    if bool(which.all()):
        return transpose(images, perm=[1, 0, 2], transpose_layout=False)
    chosen, others = which.nonzero().flatten(), (~which).nonzero().flatten()
    turned = transpose(images.select_samples(chosen.tolist()), perm=[1, 0, 2], transpose_layout=False)
    parts = [(chosen, Sample({"image": turned})), (others, Sample({"image": images.select_samples(others.tolist())}))]
    return merge(parts, images.batch_size).image
