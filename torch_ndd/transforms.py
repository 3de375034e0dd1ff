# SPDX-License-Identifier: Apache-2.0
"""Affine maps as matrices, for :func:`torch_ndd.warp_affine` and for points."""

from .ops.geometry.pixel_maps import of
from .ops.geometry.projective import perspective
from .ops.transforms import combine, crop, rotation, scale, shear, translation

__all__ = ["combine", "crop", "of", "perspective", "rotation", "scale", "shear", "translation"]
