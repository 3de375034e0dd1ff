# SPDX-License-Identifier: Apache-2.0
"""The transforms of ``nvidia.dali.experimental.torchvision``: those of :mod:`torch_ndd.torchvision.v2`, with DALI's parameters.

A transform also takes an image or a batch without :class:`Compose`. Results equal torchvision's, where DALI's differ from them: see
``tests/dali/known_differences.md``.
"""

from . import v2
from .v2 import (
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianBlur,
    Grayscale,
    InterpolationMode,
    Normalize,
    Pad,
    PILToTensor,
    RandomApply,
    RandomCrop,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToPILImage,
    ToPureTensor,
)

# fmt: off
__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "GaussianBlur", "Grayscale", "InterpolationMode", "Normalize", "PILToTensor", "Pad", "RandomApply",
    "RandomCrop", "RandomGrayscale", "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip", "Resize", "ToPILImage", "ToPureTensor",
    "v2",
]
# fmt: on
