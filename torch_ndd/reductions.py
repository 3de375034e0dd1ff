# SPDX-License-Identifier: Apache-2.0
"""Reductions of samples along some of their dimensions."""

from .ops.reductions import max as max
from .ops.reductions import mean as mean
from .ops.reductions import mean_square as mean_square
from .ops.reductions import min as min
from .ops.reductions import rms as rms
from .ops.reductions import std_dev as std_dev
from .ops.reductions import sum as sum
from .ops.reductions import variance as variance
