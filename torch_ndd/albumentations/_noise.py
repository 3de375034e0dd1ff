# SPDX-License-Identifier: Apache-2.0
"""Noise, whose pixels are random: its distribution is the original's."""

from typing import Any

import torch

from .._core.context.rng import RNG
from .._core.values.batch import Batch
from ..ops import noise
from ..torchvision._draws import Draws
from ._sample import Sample
from ._step import Params, Step, limits, per_sample, refuse

_BYTE = 255.0
_SEEDS = 2**31


class Noise(Step):
    """A step with random pixels: ``seed`` starts their generator."""

    only_bytes = True
    random_pixels = True

    def draw_seed(self, draws: Draws) -> torch.Tensor:
        """Return one seed for all images of a call, for each sample."""
        return draws.integers(0, _SEEDS)

    def generator(self, params: Params) -> RNG:
        """Return the generator: the same for several images of a sample."""
        return RNG(int(params["seed"][0]))


class GaussNoise(Noise):
    """A.GaussNoise, and A.AdditiveNoise with normal noise for every element."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if self.name == "AdditiveNoise":
            options, approximation = transform.noise_params, transform.approximation
            self._mean, self._std = limits(options["mean_range"]), limits(options["std_range"])
        else:
            approximation = transform.noise_scale_factor
            self._mean, self._std = limits(transform.mean_range), limits(transform.std_range)
            if not transform.per_channel:
                raise refuse(transform, "per_channel=False", "every channel gets its own noise")
        if approximation != 1.0:
            raise refuse(transform, f"a scale of the noise of {approximation}", "every pixel gets its own noise")

    def neutral_params(self) -> dict[str, Any] | None:
        return {"mean": 0.0, "std": 0.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"mean": _BYTE * draws.uniform(*self._mean), "std": _BYTE * draws.uniform(*self._std), "seed": self.draw_seed(draws)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return noise.gaussian(images, mean=per_sample(params["mean"]), stddev=per_sample(params["std"]), rng=self.generator(params))


class SaltAndPepper(Noise):
    """A.SaltAndPepper; the number of pixels is random here, and only its mean is ``amount``."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"amount": 0.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        params = {"amount": draws.uniform(*limits(t.amount)), "salt_vs_pepper": draws.uniform(*limits(t.salt_vs_pepper))}
        return {**params, "seed": self.draw_seed(draws)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        options: dict[str, Any] = {"prob": per_sample(params["amount"]), "salt_vs_pepper": per_sample(params["salt_vs_pepper"])}
        return noise.salt_and_pepper(images, **options, rng=self.generator(params))


class PixelDropout(Noise):
    """A.PixelDropout."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if not isinstance(transform.drop_value, int | float):
            raise refuse(transform, f"drop_value={transform.drop_value!r}", "pixels are replaced by one number")
        if transform.mask_drop_value is not None:
            raise refuse(transform, f"mask_drop_value={transform.mask_drop_value!r}", "masks do not change")

    def neutral_params(self) -> dict[str, Any] | None:
        return {"dropout_prob": 0.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"dropout_prob": torch.full((sample.count,), self.original.dropout_prob, dtype=torch.float64), "seed": self.draw_seed(draws)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        options: dict[str, Any] = {"per_channel": self.original.per_channel, "rng": self.generator(params)}
        value = float(self.original.drop_value)
        return noise.salt_and_pepper(images, prob=per_sample(params["dropout_prob"]), salt_vs_pepper=0.0, pepper_val=value, **options)
