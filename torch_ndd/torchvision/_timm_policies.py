# SPDX-License-Identifier: Apache-2.0
"""timm's automatic augmentations of the images of a sample, with the tables and draws of ``torch_ndd.augment``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.values.batch import Batch
from ..augment._applied import Step, applied
from ..augment._augmix import mixed_chains
from ..augment._steps import Operation, chosen_steps, sequence_steps
from ..augment._timm import AUG_MIX_NAMES, DECREASING, INCREASING, LARGEST, SETS, TABLES, UnknownText, deviation_of, named, parsed, table
from ..ops.shape.reshape import transpose
from ._sample import flatten, is_explicit_image, unflatten

GRAY = (128.0, 128.0, 128.0)


class _OnImages:
    """Works on the images of a sample, HWC or CHW uint8; boxes and masks stay as they are.

    Args:
        fill: color outside the image.
        nearest: interpolate by nearest neighbor, not bilinearly.
    """

    def __init__(self, fill: Sequence[float] = GRAY, nearest: bool = False) -> None:
        self.fill, self.interpolation = tuple(float(one) for one in fill), types.INTERP_NN if nearest else types.INTERP_LINEAR

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        return unflatten([self._one(leaf) if isinstance(leaf, Batch) and is_explicit_image(leaf) else leaf for leaf in leaves], spec)

    def _one(self, images: Batch) -> Batch:
        if images.dtype != torch.uint8:
            kind = types.dtype_name(images.dtype)
            raise ValueError(f"{type(self).__name__}: images must be uint8, got {kind}; it comes before the conversion to floats")
        if images.layout == "CHW":
            return transpose(self._images(transpose(images, perm=[1, 2, 0])), perm=[2, 0, 1])
        return self._images(images)

    def _images(self, images: Batch) -> Batch:
        raise NotImplementedError

    def _done(self, images: Batch, steps: Sequence[Sequence[Step]]) -> Batch:
        return applied(type(self).__name__, images, steps, None, None, list(self.fill), 0.0, self.interpolation)[0]


class RandAugment(_OnImages):
    """timm's RandAugment: some of the operations one after the other, each with its probability."""

    def __init__(self, operations: Sequence[Operation], num_layers: int = 2, choice_weights: Sequence[float] | None = None, **looks: Any) -> None:
        super().__init__(**looks)
        self.operations, self.num_layers, self.choice_weights = list(operations), num_layers, choice_weights

    def _images(self, images: Batch) -> Batch:
        shares = None if self.choice_weights is None else np.asarray(self.choice_weights, np.float64)
        return self._done(images, chosen_steps("RandAugment", [self.operations] * images.batch_size, self.num_layers, shares))

    def __repr__(self) -> str:
        return f"RandAugment(n={self.num_layers}, ops={[one.augmentation.name for one in self.operations]})"


class AutoAugment(_OnImages):
    """timm's AutoAugment: one of the policy's sequences for every sample."""

    def __init__(self, policy: Sequence[Sequence[Operation]], **looks: Any) -> None:
        super().__init__(**looks)
        self.policy = [list(row) for row in policy]

    def _images(self, images: Batch) -> Batch:
        return self._done(images, sequence_steps("AutoAugment", self.policy, images.batch_size))


class AugMixAugment(_OnImages):
    """timm's AugMix: chains of operations, mixed with each other and with the image."""

    def __init__(self, operations: Sequence[Operation], alpha: float = 1.0, width: int = 3, depth: int = -1, **looks: Any) -> None:
        super().__init__(**looks)
        self.operations, self.alpha, self.width, self.depth = list(operations), alpha, width, depth

    def _images(self, images: Batch) -> Batch:
        def step(sample: int, which: float, side: float, u: float, v: float, coin: float) -> Step | None:
            del sample
            one = self.operations[int(which * len(self.operations))]
            return one.step(side, u, v) if coin < one.probability else None

        depth = self.depth if self.depth > 0 else None
        fill: Any = list(self.fill)
        return mixed_chains("AugMixAugment", images, step, self.width, depth, self.alpha, fill, self.interpolation, per_step=5)


def policy_of(text: str, translate_const: float, translate_pct: float, **looks: Any) -> _OnImages:
    """Return what a text like ``rand-m9-mstd0.5-inc1``, ``augmix-m5-w4``, ``original-mstd0.5`` or ``3a`` describes.

    Args:
        text: timm's ``auto_augment``.
        translate_const, translate_pct: largest translation in pixels, and relative to the image.
        **looks: of the images: ``fill`` and ``nearest``.

    Raises:
        ValueError: an unknown policy or section.
    """
    try:
        kind, given, chosen = parsed(text)
    except UnknownText as error:
        raise ValueError(f"from_timm: {error}, in auto_augment={text!r}") from None
    std = deviation_of(kind, given)
    if kind in TABLES:
        return AutoAugment(table(kind, translate_const, translate_pct, std), **looks)

    def operation(name: str, probability: float, magnitude: float) -> Operation:
        most = int(given["mmax"]) if given.get("mmax") else LARGEST
        return Operation(named(name, translate_const, translate_pct), int(magnitude), LARGEST, probability, std, most)

    if kind == "augmix":
        operations = [operation(name, 1.0, given.get("m", 3)) for name in AUG_MIX_NAMES]
        return AugMixAugment(operations, given.get("a", 1.0), int(given.get("w", 3)), int(given.get("d", -1)), **looks)
    names = SETS.get(chosen, INCREASING if given.get("inc") else DECREASING)
    weights = [one / sum(names.values()) for one in names.values()] if isinstance(names, Mapping) else None
    operations = [operation(name, given.get("p", 0.5), given.get("m", LARGEST)) for name in names]
    return RandAugment(operations, int(given.get("n", 2)), weights, **looks)
