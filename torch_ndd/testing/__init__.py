# SPDX-License-Identifier: Apache-2.0
"""Assertions for users' own tests: of resuming loaders, and of operators written outside of torch_ndd."""

from ._cases import Case, Each, arrays, images
from ._properties import check_operator
from ._resumable import Resumable, Resumed, assert_resumable

__all__ = ["Case", "Each", "Resumable", "Resumed", "arrays", "assert_resumable", "check_operator", "images"]
