# SPDX-License-Identifier: Apache-2.0
"""Names that DALI has under ``experimental``."""

from ..decoders.peek import peek_image_shape
from ..ops.filters.morphology import dilate, erode, median_blur
from ..ops.geometry.resize import resize
from ..ops.geometry.warp import remap, warp_perspective
from . import decoders, readers

__all__ = ["decoders", "dilate", "erode", "median_blur", "peek_image_shape", "readers", "remap", "resize", "warp_perspective"]
