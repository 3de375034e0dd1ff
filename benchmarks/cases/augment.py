# SPDX-License-Identifier: Apache-2.0
"""Policies and mixtures. DALI has its policies in pipelines alone."""

from typing import Any

import torch

from ._case import Case

_CLASSES = torch.arange(16) % 10


def _each(policy: Any, images: torch.Tensor) -> torch.Tensor:
    """torchvision draws once for all images of a call, so each image is a call."""
    return torch.cat([policy(image) for image in images.split(1)])


CASES = (
    Case(
        "augment.rand_augment",
        ndd=lambda ndd, types, x: ndd.augment.rand_augment(x),
        tv=lambda v2, x: _each(v2.RandAugment(interpolation=v2.InterpolationMode.BILINEAR), x),
    ),
    Case(
        "augment.trivial_augment",
        ndd=lambda ndd, types, x: ndd.augment.trivial_augment(x),
        tv=lambda v2, x: _each(v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR), x),
    ),
    Case(
        "augment.auto_augment",
        ndd=lambda ndd, types, x: ndd.augment.auto_augment(x, policy="reduced_image_net"),
        tv=lambda v2, x: _each(v2.AutoAugment(interpolation=v2.InterpolationMode.BILINEAR), x),
    ),
    Case(
        "augment.rand_augment, nearest",
        ndd=lambda ndd, types, x: ndd.augment.rand_augment(x, interp_type=types.INTERP_NN),
        tv=lambda v2, x: _each(v2.RandAugment(), x),
    ),
    Case(
        "augment.mixup, uint8 to float32",
        ndd=lambda ndd, types, x: ndd.augment.mixup(x, _CLASSES, num_classes=10, dtype=ndd.float32)[0],
        tv=lambda v2, x: v2.MixUp(num_classes=10)(x.float(), _CLASSES[: len(x)])[0],
    ),
    Case(
        "augment.cutmix",
        ndd=lambda ndd, types, x: ndd.augment.cutmix(x, _CLASSES, num_classes=10)[0],
        tv=lambda v2, x: v2.CutMix(num_classes=10)(x, _CLASSES[: len(x)])[0],
    ),
    Case(
        "augment.elastic",
        ndd=lambda ndd, types, x: ndd.augment.elastic(x),
        tv=lambda v2, x: _each(v2.ElasticTransform(), x),
    ),
    Case(
        "augment.random_erasing",
        ndd=lambda ndd, types, x: ndd.augment.random_erasing(x, probability=1.0),
        tv=lambda v2, x: _each(v2.RandomErasing(p=1.0), x),
    ),
)
