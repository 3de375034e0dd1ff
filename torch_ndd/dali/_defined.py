# SPDX-License-Identifier: Apache-2.0
"""Running the function that defines a graph."""

from collections.abc import Callable, Mapping
from typing import Any

from . import _conditionals
from ._graph import Graph, definitions


def defined(pipeline: Graph, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Run a definition with a pipeline as the current one, and return what it returns."""
    definitions.push_function(pipeline)
    try:
        if pipeline._branches is None:
            return function(*args, **kwargs)
        with _conditionals.scope():
            return _conditionals.converted(function)(*args, **kwargs)
    finally:
        definitions.stack.pop()
