# SPDX-License-Identifier: Apache-2.0
"""Transforms that replace levels: each draws numbers, which make a table of 256 levels for every sample or channel."""

from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch
from ..ops.color._opencv_colors import LEVELS, with_level_tables
from ..ops.color.histogram import equalize
from ..ops.color.levels import invert
from ..reductions import mean as mean_of
from ..torchvision._draws import Draws, real
from ._sample import OP, Sample
from ._step import Params, Step, limits, refuse

MAX_LEVEL = 255
_RAMP = torch.arange(LEVELS, dtype=torch.float64, device="cpu")


def cut_levels(values: torch.Tensor) -> torch.Tensor:
    """Limit numbers to levels and cut off their fractions."""
    return values.clamp(0, MAX_LEVEL).to(torch.uint8)


class Table(Step):
    """Replace levels by the tables that :meth:`tables` makes of the parameters."""

    only_bytes = True

    def tables(self, params: Params) -> torch.Tensor:
        """Return tables, uint8 (N, 256), or (N, C, 256) with one for each channel."""
        raise NotImplementedError

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return with_level_tables(images, self.tables(params))


class RandomBrightnessContrast(Table):
    """A.RandomBrightnessContrast: alpha * in + beta."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"alpha": 1.0, "beta": 0.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        alpha = 1.0 + draws.uniform(*limits(t.contrast_limit))
        beta = draws.uniform(*limits(t.brightness_limit))
        beta = beta * (MAX_LEVEL if t.brightness_by_max else real(mean_of(sample.image).torch().reshape(-1)))
        if t.ensure_safe_range:
            shift = torch.where(alpha > 0, beta.clamp(0, MAX_LEVEL), beta.clamp(max=MAX_LEVEL))
            room = (MAX_LEVEL - shift) / MAX_LEVEL
            alpha, beta = torch.where(alpha > 0, torch.minimum(alpha, room), torch.maximum(alpha, -shift / MAX_LEVEL)), shift
        return {"alpha": alpha, "beta": beta}

    def tables(self, params: Params) -> torch.Tensor:
        return cut_levels(params["alpha"][:, None] * _RAMP + params["beta"][:, None])


class RandomGamma(Table):
    """A.RandomGamma."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"gamma": 1.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"gamma": draws.uniform(*limits(self.original.gamma_limit)) / 100.0}

    def tables(self, params: Params) -> torch.Tensor:
        # In units of 1 / 255, so a gamma of 1 changes nothing.
        return cut_levels((_RAMP / MAX_LEVEL) ** params["gamma"][:, None] * MAX_LEVEL + 1e-9)


class Solarize(Table):
    """A.Solarize."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"threshold": 2.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"threshold": draws.uniform(*limits(self.original.threshold_range))}

    def tables(self, params: Params) -> torch.Tensor:
        return torch.where(params["threshold"][:, None] * MAX_LEVEL <= _RAMP, MAX_LEVEL - _RAMP, _RAMP).to(torch.uint8)


class Posterize(Table):
    """A.Posterize."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"num_bits": 8}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        bits = self.original.num_bits
        if isinstance(bits, list):
            return {"num_bits": torch.stack([draws.integers(int(low), int(high) + 1) for low, high in map(limits, bits)], 1)}
        return {"num_bits": draws.integers(int(bits[0]), int(bits[1]) + 1)}

    def tables(self, params: Params) -> torch.Tensor:
        step = 2.0 ** (8 - params["num_bits"].double())
        return (torch.floor(_RAMP / step[..., None]) * step[..., None]).to(torch.uint8)


class InvertImg(Step):
    """A.InvertImg."""

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return invert(images)


class RGBShift(Table):
    """A.RGBShift: ``shift`` of each channel, in levels."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"shift": 0.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        ranges = self.original.noise_params["ranges"]
        if len(ranges) not in (1, sample.channels):
            raise ValueError(f"{OP}: {self.name} has {len(ranges)} ranges for images of {sample.channels} channels")
        columns = [draws.uniform(*limits(pair)) * MAX_LEVEL for pair in (ranges if len(ranges) > 1 else list(ranges) * sample.channels)]
        return {"shift": torch.stack(columns, 1)}

    def tables(self, params: Params) -> torch.Tensor:
        return cut_levels(_RAMP + torch.trunc(params["shift"])[:, :, None])

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"noise_map": params["shift"][i].to(torch.float32).numpy()}


class MultiplicativeNoise(Table):
    """A.MultiplicativeNoise with factors per image or channel."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.elementwise:
            raise refuse(transform, "elementwise=True", "there is no operator that multiplies every pixel by a random number")

    def neutral_params(self) -> dict[str, Any] | None:
        return {"multiplier": 1.0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = limits(self.original.multiplier)
        count = sample.channels if self.original.per_channel else 1
        return {"multiplier": (low + draws.unit(count) * (high - low)).expand(-1, sample.channels).clone()}

    def tables(self, params: Params) -> torch.Tensor:
        return cut_levels(_RAMP * params["multiplier"][:, :, None])

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"multiplier": params["multiplier"][i].to(torch.float32).numpy().squeeze()}


class RandomToneCurve(Table):
    """A.RandomToneCurve: a cubic Bezier curve from black to white, with two inner points at ``low_y`` and ``high_y``."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        count = sample.channels if self.original.per_channel else 1
        low, high = (draws.normal(count) * self.original.scale + middle for middle in (0.25, 0.75))
        return {"low_y": low.clamp(0, 1), "high_y": high.clamp(0, 1)}

    def tables(self, params: Params) -> torch.Tensor:
        t = _RAMP / MAX_LEVEL
        low, high = params["low_y"][..., None], params["high_y"][..., None]
        curve = 3 * (1 - t) ** 2 * t * low + 3 * (1 - t) * t**2 * high + t**3
        return torch.round(curve * MAX_LEVEL).clamp(0, MAX_LEVEL).to(torch.uint8)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        if params["low_y"].shape[1] == 1:
            return {name: float(params[name][i, 0]) for name in ("low_y", "high_y")}
        return {name: params[name][i].numpy() for name in ("low_y", "high_y")}


class ChannelDropout(Table):
    """A.ChannelDropout: ``dropped`` says which channels become ``fill``."""

    def neutral_params(self) -> dict[str, Any] | None:
        return {"dropped": False}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = self.original.channel_drop_range
        if high >= sample.channels:
            raise ValueError(f"{OP}: {self.name} would drop up to {high} of {sample.channels} channels; at least one must stay")
        ranks = draws.permutations(sample.channels)
        return {"dropped": ranks < draws.integers(low, high + 1)[:, None]}

    def tables(self, params: Params) -> torch.Tensor:
        fill = torch.as_tensor(self.original.fill, dtype=torch.float64)
        return cut_levels(torch.where(params["dropped"][:, :, None], fill, _RAMP))

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"channels_to_drop": params["dropped"][i].nonzero().flatten().tolist()}


class PlanckianJitter(Table):
    """A.PlanckianJitter: red and blue are multiplied by those of a black body or of daylight of a color temperature, relative to green.

    The colors are read from the original, by the levels that it makes of white.
    """

    _WHITE, _STEP = 6000, 500

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        low, high = transform.temperature_limit
        # Linear between multiples of 500 kelvin: the ratios there are enough. A level of 100 keeps the products below 255.
        low, high = low // self._STEP * self._STEP, -(-high // self._STEP) * self._STEP
        white = np.full((1, 1, 3), 1.0, np.float32)
        self._low, ratios = low, []
        for temperature in range(low, high + self._STEP, self._STEP):
            ratios.append(transform.apply(0.25 * white, temperature=temperature)[0, 0] * 4.0)
        self._ratios = torch.tensor(np.array(ratios), dtype=torch.float64)

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        low, high = map(float, t.temperature_limit)
        cold = draws.unit() < 0.4
        if t.sampling_method == "uniform":
            unit = draws.unit()
            temperature = torch.where(cold, low + unit * (self._WHITE - low), self._WHITE + unit * (high - self._WHITE))
        else:
            shift = draws.normal().abs() / 3
            temperature = torch.where(cold, self._WHITE - shift * (self._WHITE - low), self._WHITE + shift * (high - self._WHITE))
        return {"temperature": temperature.clamp(low, high).to(torch.int64)}

    def tables(self, params: Params) -> torch.Tensor:
        place = real(params["temperature"] - self._low) / self._STEP
        first = place.floor().to(torch.int64).clamp(max=len(self._ratios) - 1)
        share = (place - first)[:, None]
        following = (first + 1).clamp(max=len(self._ratios) - 1)
        ratios = (1 - share) * self._ratios[first] + share * self._ratios[following]
        return cut_levels(_RAMP * ratios[:, :, None] + 1e-4)


class Equalize(Step):
    """A.Equalize by channels."""

    only_bytes = True

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.mask is not None:
            raise refuse(transform, "mask", "histograms are those of whole images")
        if not transform.by_channels:
            raise refuse(transform, "by_channels=False", "it equalizes the luma of 8-bit YCrCb, which no operator does")
        if transform.mode != "cv":
            raise refuse(transform, f"mode={transform.mode!r}", "its rule is not Pillow's")

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return equalize(images)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"mask": None}
