# SPDX-License-Identifier: Apache-2.0
"""Selecting polygons, pixels and objects of masks."""

from .ops.segmentation import random_mask_pixel, random_object_bbox, select_masks

__all__ = ["random_mask_pixel", "random_object_bbox", "select_masks"]
