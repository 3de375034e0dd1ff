# SPDX-License-Identifier: Apache-2.0
"""Transforms of colors."""

from typing import Any

import torch
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch
from .._numbers import batch_of
from . import functional as F
from ._base import Batched, RandomTransform, draws_for, query_chw
from .functional._color import jitter_images


class Grayscale(Batched, reference.Grayscale):
    """Make images gray, in one channel or in three."""


class RandomGrayscale(RandomTransform, reference.RandomGrayscale):
    """Make images gray with the probability ``p``; the number of channels stays."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Return the number of channels."""
        return {"num_input_channels": query_chw(flat_inputs)[0]}


class RGB(Batched, reference.RGB):
    """Repeat the only channel of gray images three times."""


# In the order of torchvision, to whose indices the drawn permutations refer.
_FUNCTIONALS = (
    (F.adjust_brightness, "brightness_factor"),
    (F.adjust_contrast, "contrast_factor"),
    (F.adjust_saturation, "saturation_factor"),
    (F.adjust_hue, "hue_factor"),
)


class ColorJitter(Batched, reference.ColorJitter):
    """Change brightness, contrast, saturation and hue by random factors, in random order."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the order and the factors."""
        draws = draws_for(flat_inputs)
        order = draws.permutations(4)
        params: dict[str, Any] = {"fn_idx": order[0] if draws.batch_size is None else order}
        # Factors that are switched off are not drawn.
        for (_, name), limits in zip(_FUNCTIONALS, (self.brightness, self.contrast, self.saturation, self.hue), strict=True):
            params[name] = None if limits is None else draws.result(draws.uniform(limits[0], limits[1]))
        return params

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Transform a leaf."""
        if isinstance(inpt, Batch):  # one call, in which each sample has its own order
            return jitter_images(inpt, *(params[name] for _, name in _FUNCTIONALS), order=params["fn_idx"])
        for k in params["fn_idx"].tolist():
            functional, name = _FUNCTIONALS[k]
            if params[name] is not None:
                inpt = self._call_kernel(functional, inpt, params[name])
        return inpt


class RandomChannelPermutation(Batched, reference.RandomChannelPermutation):
    """Permute the channels at random."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a permutation."""
        draws = draws_for(flat_inputs)
        permutations = draws.permutations(_channel_count(flat_inputs))
        return {"permutation": permutations[0] if draws.batch_size is None else batch_of(permutations)}


def _channel_count(flat_inputs: list[Any]) -> int:
    channels = query_chw(flat_inputs)[0]
    if isinstance(channels, torch.Tensor):
        raise ValueError("to permute channels, all images of a Batch must have the same number of channels")
    return channels


class RandomPhotometricDistort(Batched, reference.RandomPhotometricDistort):
    """Change brightness, contrast, saturation, hue and the order of channels, each with the probability ``p``, as for SSD."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw what changes, and by how much."""
        draws = draws_for(flat_inputs)
        channels = _channel_count(flat_inputs)
        params: dict[str, Any] = {}
        limits = (self.brightness, self.contrast, self.saturation, self.hue)
        single = draws.batch_size is None
        for (_, name), (low, high) in zip(_FUNCTIONALS, limits, strict=True):
            # Drawn even if it does not act, so that a batch and a single sample draw the same.
            acts, value = draws.happens(self.p), draws.uniform(low, high)
            neutral = 0.0 if name == "hue_factor" else 1.0
            params[name] = (value.item() if bool(acts) else None) if single else torch.where(acts, value, neutral)
        before, acts, order = draws.happens(0.5), draws.happens(self.p), draws.permutations(channels)
        if single:
            return {**params, "contrast_before": bool(before), "channel_permutation": order[0] if bool(acts) else None}
        order = torch.where(acts[:, None], order, torch.arange(channels))
        return {**params, "contrast_before": before, "channel_permutation": batch_of(order)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Transform a leaf."""
        if isinstance(inpt, Batch):
            # Contrast comes either second or last.
            order = torch.where(params["contrast_before"][:, None], torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 3, 1]))
            output = jitter_images(inpt, *(params[name] for _, name in _FUNCTIONALS), order=order)
            return self._call_kernel(F.permute_channels, output, params["channel_permutation"])
        for k in (0, 1, 2, 3) if params["contrast_before"] else (0, 2, 3, 1):
            functional, name = _FUNCTIONALS[k]
            if params[name] is not None:
                inpt = self._call_kernel(functional, inpt, params[name])
        if params["channel_permutation"] is not None:
            inpt = self._call_kernel(F.permute_channels, inpt, params["channel_permutation"])
        return inpt


class RandomEqualize(RandomTransform, reference.RandomEqualize):
    """Equalize histograms with the probability ``p``."""


class RandomInvert(RandomTransform, reference.RandomInvert):
    """Invert colors with the probability ``p``."""


class RandomPosterize(RandomTransform, reference.RandomPosterize):
    """Keep ``bits`` bits of each value with the probability ``p``."""


class RandomSolarize(RandomTransform, reference.RandomSolarize):
    """Invert values from ``threshold`` on, with the probability ``p``."""


class RandomAutocontrast(RandomTransform, reference.RandomAutocontrast):
    """Stretch each channel from black to white with the probability ``p``."""


class RandomAdjustSharpness(RandomTransform, reference.RandomAdjustSharpness):
    """Change the sharpness with the probability ``p``."""
