# SPDX-License-Identifier: Apache-2.0
"""Augmentation policies that choose at random for every image, and mixtures of several images. Boxes and masks follow.

Not in DALI's dynamic mode. These are plain Python on top of the operators: they read the numbers that they draw, so that they break the graph of a
function under ``torch.compile``, and ``fullgraph=True`` rejects them. Images may be dense or ragged, on the CPU or on a GPU.
"""

from ._augmentations import RAND_AUGMENT as RAND_AUGMENT
from ._augmentations import TRIVIAL_AUGMENT_WIDE as TRIVIAL_AUGMENT_WIDE
from ._augmentations import Augmentation as Augmentation
from ._augmix import aug_mix as aug_mix
from ._elastic import elastic as elastic
from ._erasing import random_erasing as random_erasing
from ._mixing import cutmix as cutmix
from ._mixing import mixup as mixup
from ._mixing import mixup_or_cutmix as mixup_or_cutmix
from ._mosaic import mosaic as mosaic
from ._policies import auto_augment as auto_augment
from ._policies import rand_augment as rand_augment
from ._policies import trivial_augment as trivial_augment
from ._timm import timm_arguments as timm_arguments

# fmt: off
__all__ = [
    "RAND_AUGMENT", "TRIVIAL_AUGMENT_WIDE", "Augmentation", "aug_mix", "auto_augment", "cutmix", "elastic", "mixup", "mixup_or_cutmix", "mosaic",
    "rand_augment", "random_erasing", "timm_arguments", "trivial_augment",
]
# fmt: on
