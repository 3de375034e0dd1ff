# SPDX-License-Identifier: Apache-2.0
"""Operators of pipelines that call functions compiled by Numba."""

from .._function import numba_function as numba_function
from . import experimental as experimental

__all__ = ["experimental", "numba_function"]
