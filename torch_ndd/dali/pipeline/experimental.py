# SPDX-License-Identifier: Apache-2.0
"""``pipeline_def`` with debug mode."""

from typing import Any

from ._definition import make_decorator

__all__ = ["pipeline_def"]


def pipeline_def(fn: Any = None, *, enable_conditionals: bool = False, debug: bool = False, **pipeline_kwargs: Any) -> Any:
    """Do the same as :func:`torch_ndd.dali.pipeline_def`, with ``debug``: run the definition in each iteration, and each operator when it is called.

    In debug mode nodes hold data: ``node.get()`` is the batch, and printing a node shows its values.
    """
    return make_decorator(fn, {"enable_conditionals": enable_conditionals, "debug": debug}, pipeline_kwargs)
