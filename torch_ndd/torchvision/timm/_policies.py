# SPDX-License-Identifier: Apache-2.0
"""timm's automatic augmentations of the images of a sample, with the search spaces and draws of ``torch_ndd.augment``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ... import types
from ..._core.values.batch import Batch
from ...augment import _spaces
from ...augment._apply import Step, apply_steps
from ...augment._augmentations import find_timm_augmentation
from ...augment._augmix import mix_chains
from ...augment._steps import Candidate, draw_steps, draw_sub_policies
from ...augment._timm_strings import MAX_MAGNITUDE, PolicyStringError, magnitude_deviation, parse_policy
from ...ops.shape.reshape import transpose
from ._transforms import ImageTransform

GRAY = (128.0, 128.0, 128.0)


class _Policy(ImageTransform):
    """A policy for images, HWC or CHW uint8; boxes and masks stay as they are.

    Args:
        fill: color outside the image.
        nearest: interpolate by nearest neighbor, not bilinearly.
    """

    def __init__(self, fill: Sequence[float] = GRAY, nearest: bool = False) -> None:
        self.fill, self.interpolation = tuple(map(float, fill)), types.INTERP_NN if nearest else types.INTERP_LINEAR

    def transform_images(self, images: Batch) -> Batch:
        if images.dtype != torch.uint8:
            dtype = types.dtype_name(images.dtype)
            raise ValueError(f"{type(self).__name__}: images must be uint8, got {dtype}; put the policy before the conversion to floats")
        if images.layout == "CHW":  # the operators of augment have the channels last
            return transpose(self._augment(transpose(images, perm=[1, 2, 0])), perm=[2, 0, 1])
        return self._augment(images)

    def _augment(self, images: Batch) -> Batch:
        raise NotImplementedError

    def _apply(self, images: Batch, steps: Sequence[Sequence[Step]]) -> Batch:
        return apply_steps(type(self).__name__, images, steps, None, None, list(self.fill), 0.0, self.interpolation)[0]


class RandAugment(_Policy):
    """timm's RandAugment: some of the augmentations in sequence, each with its probability."""

    def __init__(self, candidates: Sequence[Candidate], num_layers: int = 2, choice_weights: Sequence[float] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.candidates, self.num_layers, self.choice_weights = list(candidates), num_layers, choice_weights

    def _augment(self, images: Batch) -> Batch:
        weights = None if self.choice_weights is None else np.asarray(self.choice_weights, np.float64)
        return self._apply(images, draw_steps("RandAugment", [self.candidates] * images.batch_size, self.num_layers, weights))

    def __repr__(self) -> str:
        return f"RandAugment(n={self.num_layers}, ops={[candidate.augmentation.name for candidate in self.candidates]})"


class AutoAugment(_Policy):
    """timm's AutoAugment: one of the sub-policies for every sample."""

    def __init__(self, policy: Sequence[Sequence[Candidate]], **options: Any) -> None:
        super().__init__(**options)
        self.policy = [list(sub_policy) for sub_policy in policy]

    def _augment(self, images: Batch) -> Batch:
        return self._apply(images, draw_sub_policies("AutoAugment", self.policy, images.batch_size))

    def __repr__(self) -> str:
        return f"AutoAugment({len(self.policy)} sub-policies)"


class AugMixAugment(_Policy):
    """timm's AugMix: chains of augmentations, mixed with each other and with the image."""

    def __init__(self, candidates: Sequence[Candidate], alpha: float = 1.0, width: int = 3, depth: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.candidates, self.alpha, self.width, self.depth = list(candidates), alpha, width, depth

    def _augment(self, images: Batch) -> Batch:
        def make_step(sample: int, which: float, side: float, u: float, v: float, coin: float) -> Step | None:
            del sample
            candidate = self.candidates[int(which * len(self.candidates))]
            return candidate.step(side, u, v) if coin < candidate.probability else None

        depth = self.depth if self.depth > 0 else None
        fill: Any = list(self.fill)
        return mix_chains("AugMixAugment", images, make_step, self.width, depth, self.alpha, fill, self.interpolation, per_step=5)

    def __repr__(self) -> str:
        return f"AugMixAugment(alpha={self.alpha}, width={self.width}, depth={self.depth})"


def make_policy(text: str, translate_const: float, translate_pct: float, **options: Any) -> _Policy:
    """Return the policy of a string such as ``rand-m9-mstd0.5-inc1``, ``augmix-m5-w4``, ``original-mstd0.5`` or ``3a``.

    Args:
        text: timm's ``auto_augment``.
        translate_const, translate_pct: largest translation in pixels, and relative to the image.
        **options: ``fill`` and ``nearest``.

    Raises:
        ValueError: an unknown policy or section.
    """
    try:
        kind, numbers, set_name = parse_policy(text)
    except PolicyStringError as error:
        raise ValueError(f"from_timm: {error}, in auto_augment={text!r}") from None
    std = magnitude_deviation(kind, numbers)

    def make_candidate(name: str, probability: float, magnitude: float, limit: float = MAX_MAGNITUDE) -> Candidate:
        return Candidate(find_timm_augmentation(name, translate_const, translate_pct), magnitude, MAX_MAGNITUDE, probability, std, limit)

    if kind == "3a":
        return AutoAugment([[make_candidate(name, 1.0, magnitude)] for name, magnitude in _spaces.TIMM_THREE_AUGMENT], **options)
    if kind in _spaces.TIMM_POLICIES:
        policy, other_names = _spaces.TIMM_POLICIES[kind]
        names = {find_timm_augmentation(name).name: name for name in _spaces.TIMM_DECREASING} | dict(other_names)
        sub_policies = _spaces.POLICIES[policy][0]
        return AutoAugment([[make_candidate(names[name], *step) for name, *step in sub_policy] for sub_policy in sub_policies], **options)
    # timm truncates the numbers of "m" and "mmax" to whole ones here.
    limit = int(numbers["mmax"]) if numbers.get("mmax") else MAX_MAGNITUDE
    if kind == "augmix":
        candidates = [make_candidate(name, 1.0, int(numbers.get("m", 3)), limit) for name in _spaces.TIMM_AUG_MIX]
        return AugMixAugment(candidates, numbers.get("a", 1.0), int(numbers.get("w", 3)), int(numbers.get("d", -1)), **options)
    names = _spaces.TIMM_SETS.get(set_name, _spaces.TIMM_INCREASING if numbers.get("inc") else _spaces.TIMM_DECREASING)
    weights = [weight / sum(names.values()) for weight in names.values()] if isinstance(names, Mapping) else None
    candidates = [make_candidate(name, numbers.get("p", 0.5), int(numbers.get("m", MAX_MAGNITUDE)), limit) for name in names]
    return RandAugment(candidates, int(numbers.get("n", 2)), weights, **options)
