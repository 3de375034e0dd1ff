# SPDX-License-Identifier: Apache-2.0
"""The transforms of ``nvidia.dali.experimental.torchvision``: those of :mod:`torch_ndd.torchvision.v2`, with DALI's parameters.

A transform also takes an image or a batch without :class:`Compose`. Results equal torchvision's, where DALI's differ from them: see
``tests/dali/known_differences.md``.
"""

from . import v2 as v2
from .v2 import CenterCrop as CenterCrop
from .v2 import ColorJitter as ColorJitter
from .v2 import Compose as Compose
from .v2 import GaussianBlur as GaussianBlur
from .v2 import Grayscale as Grayscale
from .v2 import InterpolationMode as InterpolationMode
from .v2 import Normalize as Normalize
from .v2 import Pad as Pad
from .v2 import PILToTensor as PILToTensor
from .v2 import RandomApply as RandomApply
from .v2 import RandomCrop as RandomCrop
from .v2 import RandomGrayscale as RandomGrayscale
from .v2 import RandomHorizontalFlip as RandomHorizontalFlip
from .v2 import RandomResizedCrop as RandomResizedCrop
from .v2 import RandomVerticalFlip as RandomVerticalFlip
from .v2 import Resize as Resize
from .v2 import ToPILImage as ToPILImage
from .v2 import ToPureTensor as ToPureTensor
