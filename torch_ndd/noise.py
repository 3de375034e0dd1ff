# SPDX-License-Identifier: Apache-2.0
"""Noise on images and other data."""

from .ops.noise import gaussian as gaussian
from .ops.noise import salt_and_pepper as salt_and_pepper
from .ops.noise import shot as shot
