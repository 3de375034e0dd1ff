# SPDX-License-Identifier: Apache-2.0
"""``NumbaFunction``, the class form of ``numba_function``."""

from ._function import NumbaFunction as NumbaFunction

__all__ = ["NumbaFunction"]
