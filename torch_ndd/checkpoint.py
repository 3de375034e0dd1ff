# SPDX-License-Identifier: Apache-2.0
"""Saving and restoring the states of readers and generators."""

from ._core.context.checkpoint import Checkpoint
from ._core.context.context import EvalContext

__all__ = ["Checkpoint", "current"]


def current() -> Checkpoint:
    """Return the checkpoint of the current context.

    >>> current() is EvalContext.current().checkpoint
    True
    """
    return EvalContext.current().checkpoint
