# SPDX-License-Identifier: Apache-2.0
"""The decoders under their former names in DALI."""

from ..decoders.image import image as image
from ..decoders.image import image_crop as image_crop
from ..decoders.image import image_random_crop as image_random_crop
from ..decoders.image import image_slice as image_slice
