# SPDX-License-Identifier: Apache-2.0
"""Decoders of files that are in memory."""

from .image import image as image
from .image import image_random_crop as image_random_crop
