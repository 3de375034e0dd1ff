# SPDX-License-Identifier: Apache-2.0
"""What loops with ``next_epoch(capture=True)`` may be told."""

from typing import TypeVar

V = TypeVar("V")


def invariant(value: V) -> V:
    """Mark a value as one that is the same in every step of a loop with ``next_epoch(capture=True)``: it is returned as it is.

    DALI needs the mark to capture a call with an argument that is no literal. Here calls are compared by the values of their arguments, so the mark
    says nothing new, and a value that changes all the same is not a mistake.

    >>> invariant([224, 224])
    [224, 224]
    """
    return value
