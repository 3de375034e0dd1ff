# SPDX-License-Identifier: Apache-2.0
"""Readers that DALI has under ``experimental``."""

from ..readers.experimental_video import Video
from ..readers.fits import Fits

__all__ = ["Fits", "Video"]
