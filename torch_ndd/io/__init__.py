# SPDX-License-Identifier: Apache-2.0
"""Reading files whose paths are data."""

from . import file

__all__ = ["file"]
