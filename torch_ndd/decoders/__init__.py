# SPDX-License-Identifier: Apache-2.0
"""Decoders of files in memory."""

from ._cache import Cache, CacheStats, cache
from ._gpu_engines import engine_counts
from .audio import audio
from .image import image, image_crop, image_random_crop, image_slice
from .inflate import inflate
from .numpy import numpy
from .video import video

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
