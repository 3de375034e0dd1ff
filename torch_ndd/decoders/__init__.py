# SPDX-License-Identifier: Apache-2.0
"""Decoders of files in memory."""

from ._cache import Cache as Cache
from ._cache import CacheStats as CacheStats
from ._cache import cache as cache
from ._library import engine_counts as engine_counts
from .audio import audio as audio
from .image import image as image
from .image import image_random_crop as image_random_crop
from .image_window import image_crop as image_crop
from .image_window import image_slice as image_slice
from .inflate import inflate as inflate
from .numpy import numpy as numpy
from .video import video as video

__all__ = [
    "Cache",
    "CacheStats",
    "audio",
    "cache",
    "engine_counts",
    "image",
    "image_crop",
    "image_random_crop",
    "image_slice",
    "inflate",
    "numpy",
    "video",
]
