# SPDX-License-Identifier: Apache-2.0
"""``torchvision.transforms.v2`` over torch_ndd's operators.

    from torch_ndd.torchvision import v2

Every class and functional has torchvision's name, parameters and defaults. For single samples the results are torchvision's. A sample whose images
are a :class:`torch_ndd.Batch`, of equal or different sizes, is transformed as a whole, and random transforms draw for every sample.
"""

import importlib
import typing

from torchvision.transforms import AutoAugmentPolicy as AutoAugmentPolicy

from .._sample import check_type as check_type
from .._sample import get_bounding_boxes as get_bounding_boxes
from .._sample import get_keypoints as get_keypoints
from .._sample import has_all as has_all
from .._sample import has_any as has_any
from . import functional as functional
from ._auto_augment import AugMix as AugMix
from ._auto_augment import AutoAugment as AutoAugment
from ._auto_augment import RandAugment as RandAugment
from ._auto_augment import TrivialAugmentWide as TrivialAugmentWide
from ._base import Transform as Transform
from ._base import query_chw as query_chw
from ._base import query_size as query_size
from ._boxes import ClampBoundingBoxes as ClampBoundingBoxes
from ._boxes import ClampKeyPoints as ClampKeyPoints
from ._boxes import ConvertBoundingBoxFormat as ConvertBoundingBoxFormat
from ._boxes import RandomIoUCrop as RandomIoUCrop
from ._boxes import SanitizeBoundingBoxes as SanitizeBoundingBoxes
from ._boxes import SanitizeKeyPoints as SanitizeKeyPoints
from ._boxes import SetClampingMode as SetClampingMode
from ._color import RGB as RGB
from ._color import ColorJitter as ColorJitter
from ._color import Grayscale as Grayscale
from ._color import RandomAdjustSharpness as RandomAdjustSharpness
from ._color import RandomAutocontrast as RandomAutocontrast
from ._color import RandomChannelPermutation as RandomChannelPermutation
from ._color import RandomEqualize as RandomEqualize
from ._color import RandomGrayscale as RandomGrayscale
from ._color import RandomInvert as RandomInvert
from ._color import RandomPhotometricDistort as RandomPhotometricDistort
from ._color import RandomPosterize as RandomPosterize
from ._color import RandomSolarize as RandomSolarize
from ._containers import Compose as Compose
from ._containers import Identity as Identity
from ._containers import Lambda as Lambda
from ._containers import RandomApply as RandomApply
from ._containers import RandomChoice as RandomChoice
from ._containers import RandomOrder as RandomOrder
from ._conversion import ConvertImageDtype as ConvertImageDtype
from ._conversion import PILToTensor as PILToTensor
from ._conversion import ToDtype as ToDtype
from ._conversion import ToImage as ToImage
from ._conversion import ToPILImage as ToPILImage
from ._conversion import ToPureTensor as ToPureTensor
from ._conversion import ToTensor as ToTensor
from ._erase import RandomErasing as RandomErasing
from ._filters import JPEG as JPEG
from ._filters import GaussianBlur as GaussianBlur
from ._filters import GaussianNoise as GaussianNoise
from ._filters import LinearTransformation as LinearTransformation
from ._filters import Normalize as Normalize
from ._geometry import CenterCrop as CenterCrop
from ._geometry import FiveCrop as FiveCrop
from ._geometry import Pad as Pad
from ._geometry import RandomCrop as RandomCrop
from ._geometry import RandomHorizontalFlip as RandomHorizontalFlip
from ._geometry import RandomResize as RandomResize
from ._geometry import RandomResizedCrop as RandomResizedCrop
from ._geometry import RandomShortestSize as RandomShortestSize
from ._geometry import RandomVerticalFlip as RandomVerticalFlip
from ._geometry import RandomZoomOut as RandomZoomOut
from ._geometry import Resize as Resize
from ._geometry import ScaleJitter as ScaleJitter
from ._geometry import TenCrop as TenCrop
from ._geometry import UniformTemporalSubsample as UniformTemporalSubsample
from ._mixing import CutMix as CutMix
from ._mixing import MixUp as MixUp
from ._warps import ElasticTransform as ElasticTransform
from ._warps import RandomAffine as RandomAffine
from ._warps import RandomPerspective as RandomPerspective
from ._warps import RandomRotation as RandomRotation
from .functional import InterpolationMode as InterpolationMode

# They make transforms of this module, so they are above it and are imported when they are first used.
_LATE = {"from_timm": "..timm._from_timm", "from_torchvision": ".._translation.from_torchvision"}


def __getattr__(name: str) -> typing.Any:
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
