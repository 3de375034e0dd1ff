# SPDX-License-Identifier: Apache-2.0
"""Albumentations over whole batches: :func:`from_albumentations` translates a ``Compose`` to a function of batches."""

from ._from_albumentations import from_albumentations

__all__ = ["from_albumentations"]
