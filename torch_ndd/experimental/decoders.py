# SPDX-License-Identifier: Apache-2.0
"""The decoders under the names that they had in DALI before."""

from ..decoders.image import image as image
from ..decoders.image import image_random_crop as image_random_crop
from ..decoders.image_window import image_crop as image_crop
from ..decoders.image_window import image_slice as image_slice
