# SPDX-License-Identifier: Apache-2.0
"""Choosing the functions to rewrite, and making the rewritten ones with the same globals, closure, defaults, file and lines."""

import __future__

import ast
import functools
import inspect
import itertools
import logging
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from . import _rewrite, _runtime
from ._slots import refuse_mutation
from ._source import NoSource, definition_of

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("torch_ndd.dali")

_MARK = "_ndd_do_not_convert"
_DONE = "_ndd_converted"
_LIBRARIES = frozenset(sys.stdlib_module_names - {"__main__"}) | {
    "torch_ndd",
    "torch",
    "torchvision",
    "numpy",
    "nvidia",
    "cupy",
    "PIL",
    "cv2",
    "pytest",
    "_pytest",
}
_CONVERTED_MODULES = ("torch_ndd.dali.auto_aug", "torch_ndd.dali.experimental.torchvision")
_FUTURE_FLAGS = functools.reduce(lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0)
_WITH_FUNCTIONS = (map, filter, sorted, min, max, functools.reduce)


def convert(function: Any) -> Any:
    """Return a function that does the same, in which conditions may be DataNodes; the function itself where there is nothing to convert."""
    kind = type(function)
    if kind is types.FunctionType:
        return _function(function)
    if kind is types.MethodType:
        inner = function.__func__
        made = convert(inner)
        return function if made is inner else types.MethodType(made, function.__self__)
    if kind is functools.partial:
        made = convert(function.func)
        return function if made is function.func else functools.partial(made, *function.args, **function.keywords)
    if kind is types.BuiltinFunctionType or kind is types.MethodWrapperType:
        refuse_mutation(function)
        return _on_converted(function) if any(function is one for one in _WITH_FUNCTIONS) else function
    if isinstance(function, type):
        return _on_converted(function) if any(function is one for one in _WITH_FUNCTIONS) else function
    call = getattr(kind, "__call__", None)  # noqa: B004
    if isinstance(call, types.FunctionType) and not hasattr(function, _MARK):
        made = _function(call)
        return function if made is call else types.MethodType(made, function)
    return function


def do_not_convert(func: F) -> F:
    """Mark a function: it runs as it is in pipelines with conditionals, and so does everything that it calls.

    Returns:
        A copy of the function, or a function that calls it.

    Raises:
        ValueError: the function is a pipeline definition.

    >>> @do_not_convert
    ... def numbers(count):
    ...     return [k for k in range(count) if k % 2]
    >>> numbers(5)
    [1, 3]
    """
    if hasattr(func, "_is_pipeline_def"):
        raise ValueError("do_not_convert cannot be used on a pipeline definition: leave out enable_conditionals instead")
    if isinstance(func, types.FunctionType):
        made = _with_code(func, func.__code__, func.__closure__)
    else:

        def made(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        functools.update_wrapper(made, func)
    setattr(made, _MARK, True)
    return made  # type: ignore[return-value]


def _function(function: types.FunctionType) -> types.FunctionType:
    named = getattr(function, "__module__", None) or ""
    if named.partition(".")[0] in _LIBRARIES and not named.startswith(_CONVERTED_MODULES):
        return function
    marks = function.__dict__
    if _MARK in marks or _DONE in marks or "_is_pipeline_def" in marks:
        return function
    if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return function
    made = _code(function.__code__.co_filename, function.__code__, _Owner(function))
    if made is None:
        return function
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[_rewrite.RUNTIME] = _RUNTIME
    result = _with_code(function, made, tuple(cells[name] for name in made.co_freevars))
    setattr(result, _DONE, True)
    return result


def _with_code(function: types.FunctionType, code: types.CodeType, closure: Any) -> types.FunctionType:
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    if sys.version_info >= (3, 14):
        made.__annotate__ = function.__annotate__
    else:
        made.__annotations__ = function.__annotations__
    return made


class _Owner:
    """A function as the argument of a cache that does not depend on it: its code decides."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Owner)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4096)
def _code(filename: str, code: types.CodeType, owner: _Owner) -> types.CodeType | None:
    """Return the code of the rewritten function; None if it stays as it is."""
    function, owner.function = owner.function, None  # type: ignore[assignment]  # the cache must not keep it alive
    try:
        tree = _rewrite.rewritten(definition_of(function), _class_name(function), code.co_freevars)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = compile(ast.fix_missing_locations(tree), filename, "exec", code.co_flags & _FUTURE_FLAGS, dont_inherit=True)
        made = _innermost(compiled, _rewrite.depth(_class_name(function)))
        if made.co_argcount != code.co_argcount or made.co_varnames[: code.co_argcount] != code.co_varnames[: code.co_argcount]:
            raise NoSource(f"{filename} has changed since {code.co_name!r} was defined")
    except (NoSource, SyntaxError, RecursionError) as error:
        logger.warning(
            "%s runs as it is: an `if` on a DataNode and logical expressions do not work in it. %s. "
            "The decorator do_not_convert turns this message off",
            function.__qualname__,
            error,
        )
        return None
    made = made.replace(co_name=code.co_name)
    return made.replace(co_qualname=code.co_qualname) if sys.version_info >= (3, 11) else made


def _innermost(code: types.CodeType, depth: int) -> types.CodeType:
    for _ in range(depth):
        code = next(one for one in code.co_consts if isinstance(one, types.CodeType))
    return code


def _class_name(function: types.FunctionType) -> str | None:
    """Return the name of the class in whose body a function is defined, on which private names depend."""
    parts = function.__qualname__.split(".")
    pairs = list(itertools.pairwise(parts))[::-1]
    return next((name for name, inner in pairs if name.isidentifier() and inner != "<locals>"), None)


def _on_converted(function: Any) -> Any:
    """Return a function that is called with functions, ``map`` for instance, such that these are converted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*[_if_callable(one) for one in args], **{key: _if_callable(one) for key, one in kwargs.items()})

    return call


def _if_callable(value: Any) -> Any:
    return convert(value) if isinstance(value, types.FunctionType | types.MethodType | functools.partial) else value


_RUNTIME = types.CellType(types.SimpleNamespace(convert=convert, **{name: getattr(_runtime, name) for name in _runtime.__all__}))
