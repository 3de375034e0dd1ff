# SPDX-License-Identifier: Apache-2.0
"""``numba_function``: functions compiled by Numba as operators. Importing this raises ImportError where Numba is missing."""

try:
    import numba as _numba  # noqa: F401
except ImportError:
    raise ImportError("torch_ndd.dali.plugin.numba needs the package numba: pip install numba") from None

from . import experimental, fn
from ._function import NumbaFunction

__all__ = ["NumbaFunction", "experimental", "fn"]
