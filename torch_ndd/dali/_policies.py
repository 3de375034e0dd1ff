# SPDX-License-Identifier: Apache-2.0
"""Options of pipelines that have no effect here."""

import enum


class StreamPolicy(enum.Enum):
    """DALI's assignment of CUDA streams to operators; no effect here."""

    UNSPECIFIED = 0
    SINGLE = 1
    PER_BACKEND = 2
    PER_OPERATOR = 3


class OperatorConcurrency(enum.Enum):
    """The operators that DALI runs at the same time; no effect here."""

    UNSPECIFIED = 0
    NONE = 1
    BACKEND = 2
    FULL = 3
