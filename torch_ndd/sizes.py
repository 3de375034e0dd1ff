# SPDX-License-Identifier: Apache-2.0
"""Sizes of images by the rules of vision-language models, for ``resize(size=)`` and for planning from headers alone."""

from .ops.geometry.sizes import budget, canvas, fit, patches

__all__ = ["budget", "canvas", "fit", "patches"]
