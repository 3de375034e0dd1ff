# SPDX-License-Identifier: Apache-2.0
"""The decoders under their former names in DALI."""

from ..decoders.image import image, image_crop, image_random_crop, image_slice

__all__ = ["image", "image_crop", "image_random_crop", "image_slice"]
