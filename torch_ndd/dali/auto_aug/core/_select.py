# SPDX-License-Identifier: Apache-2.0
"""Selection of an operator for each sample."""

from collections.abc import Callable, Sequence
from typing import Any


def select(ops: Sequence[Callable[..., Any]], selected_op_idx: Any, *op_args: Any, **op_kwargs: Any) -> Any:
    """Apply ``ops[selected_op_idx](*op_args, **op_kwargs)`` to every sample, in a definition with ``enable_conditionals=True``.

    Args:
        ops: Functions of nodes.
        selected_op_idx: Node of ints from 0 to ``len(ops) - 1``.
        op_args, op_kwargs: Arguments; nodes among them are split.
    """
    if not ops:
        raise Exception("select: the list of operators is empty")
    return _select(ops, 0, len(ops), selected_op_idx, op_args, op_kwargs)


def _select(ops: Sequence[Callable[..., Any]], first: int, end: int, index: Any, args: Any, kwargs: Any) -> Any:
    if end - first == 1:
        return ops[first](*args, **kwargs)
    # Binary: a chain of conditions would split the batch as often as there are operators.
    middle = (first + end) // 2
    if index < middle:
        output = _select(ops, first, middle, index, args, kwargs)
    else:
        output = _select(ops, middle, end, index, args, kwargs)
    return output
