# SPDX-License-Identifier: Apache-2.0
"""Saving and restoring the states of readers and generators."""

from ._checkpoint import Checkpoint as Checkpoint
from ._context import EvalContext


def current() -> Checkpoint:
    """The checkpoint of the current context.

    >>> current() is EvalContext.current().checkpoint
    True
    """
    return EvalContext.current().checkpoint
