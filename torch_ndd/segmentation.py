# SPDX-License-Identifier: Apache-2.0
"""Selecting polygons, pixels and objects of masks."""

from .ops.segmentation import random_mask_pixel as random_mask_pixel
from .ops.segmentation import random_object_bbox as random_object_bbox
from .ops.segmentation import select_masks as select_masks
