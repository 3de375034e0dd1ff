# SPDX-License-Identifier: Apache-2.0
"""Numbers that sum up a sample along some of its dimensions."""

from .ops.reductions import mean as mean
