# SPDX-License-Identifier: Apache-2.0
"""Transforms that mix the channels of a pixel."""

from typing import Any

import torch

from .. import types
from .._core.values.batch import Batch, as_batch
from ..ops.color._opencv_colors import KINDS, NUMBERS, with_color_steps
from ..ops.color.histogram import clahe
from ..ops.color.space import color_space_conversion
from ..ops.generic.convert import cast
from ..ops.random.permute import permute_channels
from ..ops.shape.join import cat
from ..ops.shape.reshape import copy
from ..reductions import max as max_of
from ..reductions import mean as mean_of
from ..torchvision._draws import Draws
from ._sample import OP, Sample
from ._step import Params, Step, limits, per_sample, refuse

_RGB = 3


class ColorSteps(Step):
    """Change colors by the steps that :meth:`steps` makes of the parameters."""

    only_bytes = True

    def steps(self, params: Params) -> torch.Tensor:
        """Return steps, float64 (N, steps, NUMBERS)."""
        raise NotImplementedError

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        if sample.channels not in (1, _RGB):
            raise ValueError(f"{OP}: {self.name} takes images of 1 or 3 channels, got {sample.channels}")
        return with_color_steps(images, self.steps(params))


def _encode(kind: str, acts: torch.Tensor, *numbers: torch.Tensor) -> torch.Tensor:
    """Return steps of one kind for the samples for which ``acts`` is true, (N, NUMBERS)."""
    steps = torch.zeros(len(acts), NUMBERS, dtype=torch.float64)
    steps[:, 0] = torch.where(acts, KINDS[kind], KINDS["none"])
    for k, column in enumerate(numbers, 1):
        steps[:, k] = column
    return steps


class HueSaturationValue(ColorSteps):
    """A.HueSaturationValue."""

    _SHIFTS = ("hue_shift", "sat_shift", "val_shift")

    def neutral_params(self) -> dict[str, Any] | None:
        return dict.fromkeys(self._SHIFTS, 0.0)

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {name: draws.uniform(*limits(getattr(self.original, f"{name}_limit"))) for name in self._SHIFTS}

    def steps(self, params: Params) -> torch.Tensor:
        shifts = [params[name] for name in self._SHIFTS]
        return _encode("hsv", torch.stack(shifts, 1).ne(0).any(1), *shifts)[:, None]


class ColorJitter(ColorSteps):
    """A.ColorJitter: four steps in random order."""

    _NEUTRAL = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}  # noqa: RUF012

    def neutral_params(self) -> dict[str, Any] | None:
        return dict(self._NEUTRAL)

    def draw(self, sample: Sample, draws: Draws) -> Params:
        params = {name: draws.uniform(*limits(getattr(self.original, name))) for name in self._NEUTRAL}
        return {**params, "order": draws.permutations(len(self._NEUTRAL))}

    def steps(self, params: Params) -> torch.Tensor:
        kinds = {"brightness": "scale", "contrast": "contrast", "saturation": "saturation", "hue": "hsv"}
        columns = []
        for name, neutral in self._NEUTRAL.items():
            # The hue of OpenCV has 180 levels.
            columns.append(_encode(kinds[name], params[name] != neutral, params[name] * (180 if name == "hue" else 1)))
        table = torch.stack(columns, 1)
        return table.gather(1, params["order"][:, :, None].expand(-1, -1, NUMBERS))


class ToSepia(ColorSteps):
    """A.ToSepia."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"acts": False}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"acts": torch.ones(sample.count, dtype=torch.bool)}

    def steps(self, params: Params) -> torch.Tensor:
        return _encode("mix", params["acts"], *torch.as_tensor(self.original.sepia_transformation_matrix).reshape(-1))[:, None]

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {}


class ToGray(Step):
    """A.ToGray."""

    only_bytes = True

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.method not in ("weighted_average", "average", "max"):
            raise refuse(transform, f"method={transform.method!r}", "weighted_average, average and max have operators")

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        count = self.original.num_output_channels
        if sample.channels == 1:
            return images
        if self.original.method == "weighted_average" and count == _RGB:
            # Without any saturation: one step instead of two operators.
            return with_color_steps(images, _encode("saturation", torch.ones(sample.count, dtype=torch.bool))[:, None])
        if self.original.method == "weighted_average":
            gray = color_space_conversion(images, image_type=types.RGB, output_type=types.GRAY)
        elif self.original.method == "max":
            gray = max_of(images, axes=[2], keep_dims=True)
        else:
            gray = cast(mean_of(images, axes=[2], keep_dims=True), dtype=torch.uint8)
        return gray if count == 1 else cat(*[gray] * count, axis=2)


class ToRGB(Step):
    """A.ToRGB."""

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        if sample.channels == _RGB:
            return images
        if sample.channels != 1:
            raise ValueError(f"{OP}: {self.name} takes images of one channel, got {sample.channels}")
        count = self.original.num_output_channels
        return images if count == 1 else cat(*[images] * count, axis=2)


class ChannelShuffle(Step):
    """A.ChannelShuffle."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"channels_shuffled": draws.permutations(sample.channels)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return images if sample.channels == 1 else permute_channels(images, permutation=per_sample(params["channels_shuffled"], torch.int32))


class Clahe(Step):
    """A.CLAHE. The operator has one limit for all samples, therefore images are equalized one by one unless the limit is fixed."""

    only_bytes = True

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"clip_limit": draws.uniform(*limits(self.original.clip_limit))}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        across, down = self.original.tile_grid_size
        values = params["clip_limit"].tolist()
        if len(set(values)) == 1:
            return clahe(images, tiles_x=across, tiles_y=down, clip_limit=values[0])
        parts = [clahe(images.select_samples([i]), tiles_x=across, tiles_y=down, clip_limit=value) for i, value in enumerate(values)]
        return copy(as_batch([part.nth(0) for part in parts], layout="HWC"))
