# SPDX-License-Identifier: Apache-2.0
"""Operators of pipelines that call functions compiled by Numba."""

from . import experimental as experimental
