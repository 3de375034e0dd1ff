# SPDX-License-Identifier: Apache-2.0
"""``LoaderEvaluator``: how long a training waits for its loader, and how fast it would be without waiting."""

from .loader import LoaderEvaluator

__all__ = ["LoaderEvaluator"]
