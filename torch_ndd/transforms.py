# SPDX-License-Identifier: Apache-2.0
"""Affine maps as matrices, for :func:`torch_ndd.warp_affine` and for points."""

from .ops.geometry.pixel_maps import of as of
from .ops.geometry.projective import perspective as perspective
from .ops.transforms import combine as combine
from .ops.transforms import crop as crop
from .ops.transforms import rotation as rotation
from .ops.transforms import scale as scale
from .ops.transforms import shear as shear
from .ops.transforms import translation as translation
