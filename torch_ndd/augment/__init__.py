# SPDX-License-Identifier: Apache-2.0
"""Augmentation policies that draw for every image, and mixtures of several images. Boxes and masks move with the images.

These are the recommended functions for RandAugment and its relatives, mixup and CutMix; ``torch_ndd.torchvision.v2``, ``torch_ndd.dali.auto_aug`` and
``from_timm`` offer the spellings of other libraries, with the same search spaces (``_spaces.py``).

Not in DALI's dynamic mode. The functions are plain Python on top of the operators: they read the numbers that they draw, so that they break the graph
of a function under ``torch.compile``, and ``fullgraph=True`` rejects them. Images may be dense or ragged, on the CPU or on a GPU.
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
from ._spec_augment import spec_augment as spec_augment
from ._timm_strings import timm_arguments as timm_arguments
