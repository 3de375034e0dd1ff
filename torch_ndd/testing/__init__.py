# SPDX-License-Identifier: Apache-2.0
"""Assertions for users' own tests: of resuming loaders, and of operators written outside of torch_ndd."""

from ._cases import Case as Case
from ._cases import Each as Each
from ._cases import arrays as arrays
from ._cases import images as images
from ._properties import check_operator as check_operator
from ._resumable import Resumable as Resumable
from ._resumable import Resumed as Resumed
from ._resumable import assert_resumable as assert_resumable
