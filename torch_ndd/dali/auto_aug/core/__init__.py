# SPDX-License-Identifier: Apache-2.0
"""The tools behind policies: augmentations with magnitudes, their random signs, and the choice of one per sample."""

from ._augmentation import signed_bin
from ._select import select
from .decorator import augmentation
from .policy import Policy

__all__ = ["Policy", "augmentation", "select", "signed_bin"]
