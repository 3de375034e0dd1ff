# SPDX-License-Identifier: Apache-2.0
"""Readers that DALI has under ``experimental``."""

from ..readers.fits import Fits
from ..readers.video._experimental import Video

__all__ = ["Fits", "Video"]
