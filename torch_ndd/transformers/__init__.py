# SPDX-License-Identifier: Apache-2.0
"""Batched, native versions of the processors of Hugging Face transformers and of timm's NaFlex transforms."""

from ._from_processor import from_processor
from ._naflex import from_naflex

__all__ = ["from_naflex", "from_processor"]
