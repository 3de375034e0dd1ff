# SPDX-License-Identifier: Apache-2.0
"""Batched, native versions of the processors of Hugging Face transformers and of timm's NaFlex transforms."""

from ._from_processor import from_processor as from_processor

__all__ = ["from_processor"]
