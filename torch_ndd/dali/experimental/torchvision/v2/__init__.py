# SPDX-License-Identifier: Apache-2.0
"""The transforms, made from those of :mod:`torch_ndd.torchvision.v2`."""

from ._transforms import CenterCrop as CenterCrop
from ._transforms import ColorJitter as ColorJitter
from ._transforms import Compose as Compose
from ._transforms import GaussianBlur as GaussianBlur
from ._transforms import Grayscale as Grayscale
from ._transforms import InterpolationMode as InterpolationMode
from ._transforms import Normalize as Normalize
from ._transforms import Pad as Pad
from ._transforms import PILToTensor as PILToTensor
from ._transforms import RandomApply as RandomApply
from ._transforms import RandomCrop as RandomCrop
from ._transforms import RandomGrayscale as RandomGrayscale
from ._transforms import RandomHorizontalFlip as RandomHorizontalFlip
from ._transforms import RandomResizedCrop as RandomResizedCrop
from ._transforms import RandomVerticalFlip as RandomVerticalFlip
from ._transforms import Resize as Resize
from ._transforms import ToPILImage as ToPILImage
from ._transforms import ToPureTensor as ToPureTensor

from . import functional as functional  # isort: skip
