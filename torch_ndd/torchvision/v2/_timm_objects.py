# SPDX-License-Identifier: Apache-2.0
"""timm's objects as ours."""

from typing import Any

import torch

from ...augment._steps import Operation
from ...augment._timm import LARGEST, named
from .. import _timm_policies as policies
from . import _classes as v2
from . import _timm_transforms as transforms

_RANDOM = "random"


def of_timm(transform: Any) -> Any:
    """Return our transform for one of timm's, a list of several, or None if it is not known."""
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
        weights = None if transform.choice_weights is None else list(transform.choice_weights)
        return policies.RandAugment([_operation(one) for one in transform.ops], transform.num_layers, weights, **_looks(transform.ops[0]))
    if name == "AutoAugment":
        rows = [[_operation(one) for one in row] for row in transform.policy]
        return policies.AutoAugment(rows, **_looks(transform.policy[0][0]))
    if name == "AugMixAugment":
        ops = [_operation(one) for one in transform.ops]
        return policies.AugMixAugment(ops, transform.alpha, transform.width, transform.depth, **_looks(transform.ops[0]))
    return None


def _interpolation(given: Any) -> str:
    return _RANDOM if isinstance(given, list | tuple) else given.value


def _operation(one: Any) -> Operation:
    hints = one.hparams
    augmentation = named(one.name, float(hints.get("translate_const", 250)), float(hints.get("translate_pct", 0.45)))
    return Operation(augmentation, float(one.magnitude), LARGEST, float(one.prob), float(one.magnitude_std), one.magnitude_max or LARGEST)


def _looks(one: Any) -> dict[str, Any]:
    resample = one.kwargs.get("resample")
    return {"fill": one.kwargs["fillcolor"], "nearest": not isinstance(resample, list | tuple) and int(resample) == 0}
