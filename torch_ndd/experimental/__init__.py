# SPDX-License-Identifier: Apache-2.0
"""Names that DALI has under ``experimental``."""

from ..decoders.peek import peek_image_shape as peek_image_shape
from ..ops.morphology import dilate as dilate
from ..ops.morphology import erode as erode
from ..ops.morphology import median_blur as median_blur
from ..ops.resize import resize as resize
from ..ops.warp import remap as remap
from ..ops.warp import warp_perspective as warp_perspective
from . import decoders as decoders
from . import readers as readers
