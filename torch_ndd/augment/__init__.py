# SPDX-License-Identifier: Apache-2.0
"""Augmentation policies that draw for every image, and mixtures of several images. Boxes and masks move with the images.

These are the recommended functions for RandAugment and its relatives, mixup and CutMix; ``torch_ndd.torchvision.v2``, ``torch_ndd.dali.auto_aug`` and
``from_timm`` offer the spellings of other libraries, with the same search spaces (``_spaces.py``).

Not in DALI's dynamic mode. The functions are plain Python on top of the operators: they read the numbers that they draw, so they break the graph
of a function under ``torch.compile``, and ``fullgraph=True`` rejects them. Images may be dense or ragged, on the CPU or on a GPU.
"""

from ._augmentations import RAND_AUGMENT, TRIVIAL_AUGMENT_WIDE, Augmentation
from ._augmix import aug_mix
from ._elastic import elastic
from ._erasing import random_erasing
from ._mixing import cutmix, mixup, mixup_or_cutmix
from ._mosaic import mosaic
from ._policies import auto_augment, rand_augment, trivial_augment
from ._spec_augment import spec_augment
from ._timm_strings import timm_arguments

# fmt: off
__all__ = [
    "RAND_AUGMENT", "TRIVIAL_AUGMENT_WIDE", "Augmentation", "aug_mix", "auto_augment", "cutmix", "elastic", "mixup", "mixup_or_cutmix", "mosaic",
    "rand_augment", "random_erasing", "spec_augment", "timm_arguments", "trivial_augment",
]
# fmt: on
