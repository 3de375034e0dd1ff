# SPDX-License-Identifier: Apache-2.0
"""``numba_function``."""

from .._function import numba_function as numba_function

__all__ = ["numba_function"]
