# SPDX-License-Identifier: Apache-2.0
"""``pipeline_def``: a function that defines a graph becomes a factory of pipelines."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar, overload

from . import _conditionals, _debug
from ._defined import defined
from ._pipeline import Pipeline

F = TypeVar("F", bound=Callable[..., Any])
_MODES = ("enable_conditionals", "debug")


def do_not_convert(func: Any = None) -> Any:
    """Mark a function that ``enable_conditionals`` leaves as it is: its conditions are Python's.

    Raise ValueError for a pipeline definition.
    """
    if func is None:
        return do_not_convert
    return _conditionals.do_not_convert(func)


@overload
def pipeline_def(fn: Callable[..., Any], *, enable_conditionals: bool = False, **pipeline_kwargs: Any) -> Callable[..., Pipeline]: ...
@overload
def pipeline_def(
    fn: None = None, *, enable_conditionals: bool = False, **pipeline_kwargs: Any
) -> Callable[[Callable[..., Any]], Callable[..., Pipeline]]: ...
def pipeline_def(fn: Any = None, *, enable_conditionals: bool = False, **pipeline_kwargs: Any) -> Any:
    """Make a factory of pipelines of a function that defines a graph.

    Calling the factory runs the function once and returns a :class:`Pipeline`. The function's own keyword arguments and all positional ones go to it;
    the other keyword arguments are those of :class:`Pipeline` and override those of the decorator. It returns a node or a tuple of nodes.

    Args:
        fn: The function, if the decorator is used without arguments.
        enable_conditionals: Let ``if``, ``and``, ``or`` and ``not`` work with nodes, sample by sample.
        pipeline_kwargs: Arguments of :class:`Pipeline`.

    Raises:
        TypeError: at the call, for an argument that neither has, or a definition with ``**kwargs``.

    >>> from torch_ndd.dali import fn
    >>> @pipeline_def(batch_size=3, num_threads=1)
    ... def numbers(low):
    ...     return fn.random.uniform(range=[low, 1]), fn.constant(idata=[1, 2])
    >>> draws, constants = numbers(0.5, seed=1).run()
    >>> len(draws), constants.as_array().tolist()
    (3, [[1, 2], [1, 2], [1, 2]])
    """
    return _decorated(fn, {"enable_conditionals": enable_conditionals, "debug": False}, pipeline_kwargs)


def _experimental_pipeline_def(fn: Any = None, *, enable_conditionals: bool = False, debug: bool = False, **pipeline_kwargs: Any) -> Any:
    """Do the same as :func:`pipeline_def`, with ``debug``: run the definition again in each iteration, each operator at once.

    In debug mode nodes hold data: ``node.get()`` is the batch, and printing a node shows its values.
    """
    return _decorated(fn, {"enable_conditionals": enable_conditionals, "debug": debug}, pipeline_kwargs)


_experimental_pipeline_def.__name__ = _experimental_pipeline_def.__qualname__ = "pipeline_def"

experimental = ModuleType("torch_ndd.dali.pipeline.experimental", "Pipeline definitions in debug mode.")
experimental.pipeline_def = _experimental_pipeline_def  # type: ignore[attr-defined]
# pipeline is no package: `from torch_ndd.dali.pipeline.experimental import pipeline_def` finds it here
sys.modules[experimental.__name__] = experimental


def _decorated(fn: Any, modes: Mapping[str, bool], pipeline_kwargs: Mapping[str, Any]) -> Any:
    def decorate(function: Callable[..., Any]) -> Callable[..., Pipeline]:
        if getattr(function, "_is_pipeline_def", False):
            raise ValueError(f"pipeline_def: {function!r} is a pipeline definition already")
        if hasattr(function, "_ndd_do_not_convert"):
            raise ValueError("do_not_convert cannot be used on a pipeline definition: leave out enable_conditionals instead")

        @functools.wraps(function)
        def factory(*args: Any, **kwargs: Any) -> Pipeline:
            return _made(function, modes, pipeline_kwargs, args, kwargs)

        factory._is_pipeline_def = True  # type: ignore[attr-defined]
        factory._pipeline_arguments = dict(pipeline_kwargs)  # type: ignore[attr-defined]
        return factory

    return decorate if fn is None else decorate(fn)


def _made(function: Callable[..., Any], modes: Mapping[str, bool], given: Mapping[str, Any], args: Any, kwargs: Mapping[str, Any]) -> Pipeline:
    own = inspect.signature(function).parameters
    name = getattr(function, "__name__", repr(function))
    if any(one.kind is one.VAR_KEYWORD for one in own.values()):
        raise TypeError(f"{name}: a pipeline definition must not have **kwargs: its arguments are told from those of Pipeline by their names")
    accepted = inspect.signature(Pipeline.__init__).parameters
    chosen = {key: bool(kwargs.get(key, default)) for key, default in modes.items()}
    of_pipeline, of_function = dict(given), {}
    for key, value in kwargs.items():
        if key in own:
            of_function[key] = value
            if key in accepted:
                print(f"Warning: the argument `{key}` of {name} hides the argument of Pipeline of the same name")
        elif key not in _MODES:
            of_pipeline[key] = value
    for key in of_pipeline:
        if key not in accepted or key == "self":
            raise TypeError(f"{name}: {key!r} is an argument neither of the definition nor of Pipeline")
    if chosen["debug"]:
        return _debug.pipeline(function, args, of_function, of_pipeline, chosen["enable_conditionals"])
    pipeline = Pipeline(**of_pipeline)
    pipeline._branches = _conditionals.TracedBranches() if chosen["enable_conditionals"] else None
    outputs = defined(pipeline, function, args, of_function)
    pipeline.set_outputs(*(outputs if isinstance(outputs, tuple) else () if outputs is None else (outputs,)))
    return pipeline
