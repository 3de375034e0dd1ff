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
from .._timm import from_timm as from_timm
from .._translate import from_torchvision as from_torchvision
from . import functional as functional
from ._augment import JPEG as JPEG
from ._augment import CutMix as CutMix
from ._augment import MixUp as MixUp
from ._augment import RandomErasing as RandomErasing
from ._auto_augment import AugMix as AugMix
from ._auto_augment import AutoAugment as AutoAugment
from ._auto_augment import RandAugment as RandAugment
from ._auto_augment import TrivialAugmentWide as TrivialAugmentWide
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
from ._container import Compose as Compose
from ._container import RandomApply as RandomApply
from ._container import RandomChoice as RandomChoice
from ._container import RandomOrder as RandomOrder
from ._flips_crops import CenterCrop as CenterCrop
from ._flips_crops import FiveCrop as FiveCrop
from ._flips_crops import Pad as Pad
from ._flips_crops import RandomCrop as RandomCrop
from ._flips_crops import RandomHorizontalFlip as RandomHorizontalFlip
from ._flips_crops import RandomResize as RandomResize
from ._flips_crops import RandomResizedCrop as RandomResizedCrop
from ._flips_crops import RandomShortestSize as RandomShortestSize
from ._flips_crops import RandomVerticalFlip as RandomVerticalFlip
from ._flips_crops import RandomZoomOut as RandomZoomOut
from ._flips_crops import Resize as Resize
from ._flips_crops import ScaleJitter as ScaleJitter
from ._flips_crops import TenCrop as TenCrop
from ._meta import ClampBoundingBoxes as ClampBoundingBoxes
from ._meta import ClampKeyPoints as ClampKeyPoints
from ._meta import ConvertBoundingBoxFormat as ConvertBoundingBoxFormat
from ._meta import SanitizeBoundingBoxes as SanitizeBoundingBoxes
from ._meta import SanitizeKeyPoints as SanitizeKeyPoints
from ._meta import SetClampingMode as SetClampingMode
from ._misc import ConvertImageDtype as ConvertImageDtype
from ._misc import GaussianBlur as GaussianBlur
from ._misc import GaussianNoise as GaussianNoise
from ._misc import Identity as Identity
from ._misc import Lambda as Lambda
from ._misc import LinearTransformation as LinearTransformation
from ._misc import Normalize as Normalize
from ._misc import PILToTensor as PILToTensor
from ._misc import ToDtype as ToDtype
from ._misc import ToImage as ToImage
from ._misc import ToPILImage as ToPILImage
from ._misc import ToPureTensor as ToPureTensor
from ._misc import ToTensor as ToTensor
from ._misc import UniformTemporalSubsample as UniformTemporalSubsample
from ._transform import Transform as Transform
from ._transform import query_chw as query_chw
from ._transform import query_size as query_size
from ._warps import ElasticTransform as ElasticTransform
from ._warps import RandomAffine as RandomAffine
from ._warps import RandomIoUCrop as RandomIoUCrop
from ._warps import RandomPerspective as RandomPerspective
from ._warps import RandomRotation as RandomRotation
from .functional import InterpolationMode as InterpolationMode
