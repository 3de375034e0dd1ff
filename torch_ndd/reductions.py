# SPDX-License-Identifier: Apache-2.0
"""Reductions of samples along some of their dimensions."""

from .ops.reductions import max, mean, mean_square, min, rms, std_dev, sum, variance

__all__ = ["max", "mean", "mean_square", "min", "rms", "std_dev", "sum", "variance"]
