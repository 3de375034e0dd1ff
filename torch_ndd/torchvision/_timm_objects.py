# SPDX-License-Identifier: Apache-2.0
"""timm's objects as ours."""

from typing import Any

import torch

from . import _timm_policies as policies
from . import _timm_transforms as transforms

_RANDOM = "random"


def of_timm(transform: Any) -> Any:
    """Return our transform for one of timm's, a list of several, or None if it is not known."""
    from . import v2

    name = type(transform).__name__
    if name == "MaybeToTensor":
        return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    if name in ("MaybePILToTensor", "ToNumpy"):
        return v2.ToImage()
    if name == "ToTensor":  # timm's does not scale
        return [v2.ToImage(), v2.ToDtype(transform.dtype, scale=False)]
    if name == "RandomResizedCropAndInterpolation":
        given = {key: getattr(transform, key) for key in ("size", "scale", "ratio")}
        return transforms.RandomResizedCropAndInterpolation(**given, interpolation=_interpolation(transform.interpolation))
    if name == "ResizeKeepRatio":
        keys = ("size", "longest", "random_scale_prob", "random_scale_range", "random_scale_area", "random_aspect_prob", "random_aspect_range")
        given = {key: getattr(transform, key) for key in keys}
        return transforms.ResizeKeepRatio(**given, interpolation=_interpolation(transform.interpolation))
    if name in ("CenterCropOrPad", "RandomCropOrPad"):
        return getattr(transforms, name)(transform.size, transform.fill, transform.padding_mode)
    if name == "TrimBorder":
        return transforms.TrimBorder(transform.border_size)
    if name == "RandomErasing":
        low, high = (float(torch.tensor(one, dtype=torch.float64).exp()) for one in transform.log_aspect_ratio)
        keys = ("probability", "min_area", "max_area", "min_count", "max_count", "num_splits")
        return transforms.RandomErasing(
            **{key: getattr(transform, key) for key in keys}, min_aspect=low, max_aspect=high, mode=transform.mode or "const"
        )
    if name == "RandAugment":
        weights = transform.choice_weights
        return policies.RandAugment([_operator(one) for one in transform.ops], transform.num_layers, None if weights is None else list(weights))
    if name == "AutoAugment":
        return policies.AutoAugment([[_operator(one) for one in row] for row in transform.policy])
    if name == "AugMixAugment":
        ops = [_operator(one) for one in transform.ops]
        return policies.AugMixAugment(ops, transform.alpha, transform.width, transform.depth, transform.blended)
    return None


def _interpolation(given: Any) -> str:
    return _RANDOM if isinstance(given, list | tuple) else given.value


def _operator(one: Any) -> policies.Operator:
    hints, resample = one.hparams, one.kwargs.get("resample")
    made = policies.Hints(
        translate_const=float(hints.get("translate_const", 250)),
        translate_pct=float(hints.get("translate_pct", 0.45)),
        img_mean=tuple(one.kwargs["fillcolor"]),
        magnitude_std=float(one.magnitude_std),
        magnitude_max=one.magnitude_max,
        nearest=not isinstance(resample, list | tuple) and int(resample) == 0,
    )
    return policies.Operator(one.name, float(one.prob), float(one.magnitude), made)
