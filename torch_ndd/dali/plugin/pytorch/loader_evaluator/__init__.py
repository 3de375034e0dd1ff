# SPDX-License-Identifier: Apache-2.0
"""``LoaderEvaluator``: the time that a training waits for its loader, and its speed without waiting."""

from .loader import LoaderEvaluator

__all__ = ["LoaderEvaluator"]
