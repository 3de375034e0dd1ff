# SPDX-License-Identifier: Apache-2.0
"""Noise on images and other data."""

from .ops.noise import gaussian, salt_and_pepper, shot

__all__ = ["gaussian", "salt_and_pepper", "shot"]
