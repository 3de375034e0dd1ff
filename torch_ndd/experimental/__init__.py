# SPDX-License-Identifier: Apache-2.0
"""Names that DALI has under ``experimental``."""

from ..decoders.peek import peek_image_shape as peek_image_shape
from ..ops.filters.morphology import dilate as dilate
from ..ops.filters.morphology import erode as erode
from ..ops.filters.morphology import median_blur as median_blur
from ..ops.geometry.resize import resize as resize
from ..ops.geometry.warp import remap as remap
from ..ops.geometry.warp import warp_perspective as warp_perspective
from . import decoders as decoders
from . import readers as readers
