# SPDX-License-Identifier: Apache-2.0
"""Conversion of timm's transform objects to ours."""

from typing import Any

import torch

from ...augment._augmentations import find_timm_augmentation
from ...augment._steps import Candidate
from ...augment._timm_strings import MAX_MAGNITUDE
from .. import v2
from . import _policies as policies
from . import _transforms as transforms

_RANDOM = "random"


def convert_timm(transform: Any) -> Any:
    """Return our transform for one of timm's, a list of several, or None if it is not known."""
    name = type(transform).__name__
    if name == "MaybeToTensor":
        return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    # With timm's loader, the conversion to floats follows on the device.
    if name in ("MaybePILToTensor", "ToNumpy"):
        return v2.ToImage()
    if name == "ToTensor":  # timm's does not scale
        return [v2.ToImage(), v2.ToDtype(transform.dtype, scale=False)]
    if name == "RandomResizedCropAndInterpolation":
        arguments = {key: getattr(transform, key) for key in ("size", "scale", "ratio")}
        return transforms.RandomResizedCropAndInterpolation(**arguments, interpolation=_interpolation(transform.interpolation))
    if name == "ResizeKeepRatio":
        keys = ("size", "longest", "random_scale_prob", "random_scale_range", "random_scale_area", "random_aspect_prob", "random_aspect_range")
        arguments = {key: getattr(transform, key) for key in keys}
        return transforms.ResizeKeepRatio(**arguments, interpolation=_interpolation(transform.interpolation))
    if name in ("CenterCropOrPad", "RandomCropOrPad"):
        return getattr(transforms, name)(transform.size, transform.fill, transform.padding_mode)
    if name == "TrimBorder":
        return transforms.TrimBorder(transform.border_size)
    if name == "RandomErasing":
        # timm stores the logarithms of the aspect ratios.
        low, high = (float(torch.tensor(exponent, dtype=torch.float64).exp()) for exponent in transform.log_aspect_ratio)
        keys = ("probability", "min_area", "max_area", "min_count", "max_count", "num_splits")
        return transforms.RandomErasing(
            **{key: getattr(transform, key) for key in keys}, min_aspect=low, max_aspect=high, mode=transform.mode or "const"
        )
    if name == "RandAugment":
        weights = None if transform.choice_weights is None else list(transform.choice_weights)
        return policies.RandAugment(list(map(_make_candidate, transform.ops)), transform.num_layers, weights, **_image_options(transform.ops[0]))
    if name == "AutoAugment":
        policy = [list(map(_make_candidate, sub_policy)) for sub_policy in transform.policy]
        return policies.AutoAugment(policy, **_image_options(transform.policy[0][0]))
    if name == "AugMixAugment":
        candidates = list(map(_make_candidate, transform.ops))
        return policies.AugMixAugment(candidates, transform.alpha, transform.width, transform.depth, **_image_options(transform.ops[0]))
    return None


def _interpolation(interpolation: Any) -> str:
    # timm stores a pair of modes for "random", and otherwise an enumeration.
    return _RANDOM if isinstance(interpolation, list | tuple) else interpolation.value


def _make_candidate(op: Any) -> Candidate:
    augmentation = find_timm_augmentation(op.name, float(op.hparams.get("translate_const", 250)), float(op.hparams.get("translate_pct", 0.45)))
    limit = op.magnitude_max or MAX_MAGNITUDE
    return Candidate(augmentation, float(op.magnitude), MAX_MAGNITUDE, float(op.prob), float(op.magnitude_std), limit)


def _image_options(op: Any) -> dict[str, Any]:
    """Return how timm's operation treats pixels: the options ``fill`` and ``nearest`` of our policies."""
    resample = op.kwargs.get("resample")
    return {"fill": op.kwargs["fillcolor"], "nearest": not isinstance(resample, list | tuple) and int(resample) == 0}
