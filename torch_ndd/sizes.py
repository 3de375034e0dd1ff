# SPDX-License-Identifier: Apache-2.0
"""Sizes of images by the rules of vision-language models, for ``resize(size=)`` and for planning from headers alone."""

from .ops.geometry.sizes import budget as budget
from .ops.geometry.sizes import canvas as canvas
from .ops.geometry.sizes import fit as fit
from .ops.geometry.sizes import patches as patches

__all__ = ["budget", "canvas", "fit", "patches"]
