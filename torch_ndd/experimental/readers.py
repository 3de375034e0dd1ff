# SPDX-License-Identifier: Apache-2.0
"""Readers that DALI has under ``experimental``."""

from ..readers.experimental_video import Video as Video
from ..readers.fits import Fits as Fits
