# SPDX-License-Identifier: Apache-2.0
"""``torchvision.transforms.v2`` over torch_ndd's operators.

    from torch_ndd.torchvision import v2

Every class and functional has torchvision's name, parameters and defaults. For single samples the results are torchvision's. A sample whose images
are a :class:`torch_ndd.Batch`, of equal or different sizes, is transformed as a whole, and random transforms draw for every sample.
"""

import importlib
import typing

from torchvision.transforms import AutoAugmentPolicy

from .._sample import check_type, get_bounding_boxes, get_keypoints, has_all, has_any
from . import functional
from ._auto_augment import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from ._base import Transform, query_chw, query_size
from ._boxes import (
    ClampBoundingBoxes,
    ClampKeyPoints,
    ConvertBoundingBoxFormat,
    RandomIoUCrop,
    SanitizeBoundingBoxes,
    SanitizeKeyPoints,
    SetClampingMode,
)
from ._color import (
    RGB,
    ColorJitter,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from ._containers import Compose, Identity, Lambda, RandomApply, RandomChoice, RandomOrder
from ._conversion import ConvertImageDtype, PILToTensor, ToDtype, ToImage, ToPILImage, ToPureTensor, ToTensor
from ._erase import RandomErasing
from ._filters import JPEG, GaussianBlur, GaussianNoise, LinearTransformation, Normalize
from ._geometry import (
    CenterCrop,
    FiveCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    TenCrop,
    UniformTemporalSubsample,
)
from ._mixing import CutMix, MixUp
from ._warps import ElasticTransform, RandomAffine, RandomPerspective, RandomRotation
from .functional import InterpolationMode

# They make transforms of this module, so they are above it and are imported when they are first used.
_LATE = {"from_timm": "..timm._from_timm", "from_torchvision": ".._translation.from_torchvision"}

from_timm: typing.Callable[..., typing.Any]
from_torchvision: typing.Callable[..., typing.Any]

# fmt: off
__all__ = [
    "JPEG", "RGB", "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ClampBoundingBoxes", "ClampKeyPoints", "ColorJitter", "Compose",
    "ConvertBoundingBoxFormat", "ConvertImageDtype", "CutMix", "ElasticTransform", "FiveCrop", "GaussianBlur", "GaussianNoise", "Grayscale",
    "Identity", "InterpolationMode", "Lambda", "LinearTransformation", "MixUp", "Normalize", "PILToTensor", "Pad", "RandAugment",
    "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChannelPermutation", "RandomChoice", "RandomCrop",
    "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomIoUCrop", "RandomOrder",
    "RandomPerspective", "RandomPhotometricDistort", "RandomPosterize", "RandomResize", "RandomResizedCrop", "RandomRotation", "RandomShortestSize",
    "RandomSolarize", "RandomVerticalFlip", "RandomZoomOut", "Resize", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "ScaleJitter",
    "SetClampingMode", "TenCrop", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor", "Transform", "TrivialAugmentWide",
    "UniformTemporalSubsample", "check_type", "from_timm", "from_torchvision", "functional", "get_bounding_boxes", "get_keypoints", "has_all",
    "has_any", "query_chw", "query_size",
]
# fmt: on


def __getattr__(name: str) -> typing.Any:
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
