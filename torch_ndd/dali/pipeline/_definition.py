# SPDX-License-Identifier: Apache-2.0
"""``pipeline_def``, which turns a function that defines a graph into a factory of pipelines."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

from .. import _conditionals
from .._graph.graph import definitions
from ._debug import PipelineDebug
from ._pipeline import Pipeline

_MODES = ("enable_conditionals", "debug")


def do_not_convert(func: Any = None) -> Any:
    """Mark a function that ``enable_conditionals`` leaves unchanged: its conditions are Python's.

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
    """Turn a function that defines a graph into a factory of pipelines.

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
    return make_decorator(fn, {"enable_conditionals": enable_conditionals, "debug": False}, pipeline_kwargs)


def make_decorator(fn: Any, modes: Mapping[str, bool], pipeline_kwargs: Mapping[str, Any]) -> Any:
    """Return the decorator, or with a function the factory. ``modes`` are the defaults of ``enable_conditionals`` and ``debug``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Pipeline]:
        if getattr(function, "_is_pipeline_def", False):
            raise ValueError(f"pipeline_def: {function!r} is already a pipeline definition")
        if hasattr(function, "_ndd_do_not_convert"):
            raise ValueError("do_not_convert cannot be used on a pipeline definition: leave out enable_conditionals instead")

        @functools.wraps(function)
        def factory(*args: Any, **kwargs: Any) -> Pipeline:
            return _make_pipeline(function, modes, pipeline_kwargs, args, kwargs)

        factory._is_pipeline_def = True  # type: ignore[attr-defined]
        factory._pipeline_arguments = dict(pipeline_kwargs)  # type: ignore[attr-defined]
        return factory

    return decorate if fn is None else decorate(fn)


def _make_pipeline(
    function: Callable[..., Any], modes: Mapping[str, bool], decorator_arguments: Mapping[str, Any], args: Any, kwargs: Mapping[str, Any]
) -> Pipeline:
    """Return the pipeline of one call of a factory."""
    own = inspect.signature(function).parameters
    name = getattr(function, "__name__", repr(function))
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values()):
        raise TypeError(f"{name}: a pipeline definition must not have **kwargs: its arguments and those of Pipeline are told apart by their names")
    accepted = inspect.signature(Pipeline.__init__).parameters
    chosen = {key: bool(kwargs.get(key, default)) for key, default in modes.items()}
    pipeline_arguments, function_arguments = dict(decorator_arguments), {}
    for key, value in kwargs.items():
        # An argument of the function comes first, although it hides one of the pipeline.
        if key in own:
            function_arguments[key] = value
            if key in accepted:
                print(f"Warning: the argument `{key}` of {name} hides the argument of Pipeline of the same name")
        elif key not in _MODES:
            pipeline_arguments[key] = value
    for key in pipeline_arguments:
        if key not in accepted or key == "self":
            raise TypeError(f"{name}: {key!r} is an argument neither of the definition nor of Pipeline")

    def define(pipeline: Pipeline) -> Any:
        # Frames above this one belong to the definition; errors show them.
        definitions.push_function(pipeline, pipeline._graph)
        try:
            if not chosen["enable_conditionals"]:
                return function(*args, **function_arguments)
            with _conditionals.scope():
                return _conditionals.convert(function)(*args, **function_arguments)
        finally:
            definitions.stack.pop()

    branches = _conditionals.TracedBranches() if chosen["enable_conditionals"] else None
    if chosen["debug"]:
        pipeline = PipelineDebug(define, **pipeline_arguments)
        pipeline._graph.branches = branches
        return pipeline
    pipeline = Pipeline(**pipeline_arguments)
    pipeline._graph.branches = branches
    outputs = define(pipeline)
    # A single node, None or a tuple may be returned.
    pipeline.set_outputs(*(outputs if isinstance(outputs, tuple) else () if outputs is None else (outputs,)))
    return pipeline
