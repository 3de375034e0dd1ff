# SPDX-License-Identifier: Apache-2.0
"""``torchvision.transforms.v2`` over torch_ndd's operators.

    from torch_ndd.torchvision import v2

Every class and functional has torchvision's name, parameters and defaults. A single sample gives what torchvision gives. A sample whose images are a
:class:`torch_ndd.Batch`, of one size or many, is transformed at once, and random transforms draw for every sample.
"""

from torchvision.transforms import AutoAugmentPolicy as AutoAugmentPolicy

from .._sample import check_type as check_type
from .._sample import get_bounding_boxes as get_bounding_boxes
from .._sample import get_keypoints as get_keypoints
from .._sample import has_all as has_all
from .._sample import has_any as has_any
from . import functional as functional
from ._classes import *  # noqa: F403
from ._timm import from_timm as from_timm
from ._translate import from_torchvision as from_torchvision
from .functional import InterpolationMode as InterpolationMode

__all__ = [
    "AutoAugmentPolicy",
    "InterpolationMode",
    "check_type",
    "from_timm",
    "from_torchvision",
    "functional",
    "get_bounding_boxes",
    "get_keypoints",
    "has_all",
    "has_any",
]
