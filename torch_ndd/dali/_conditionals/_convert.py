# SPDX-License-Identifier: Apache-2.0
"""Decides which functions are rewritten, and compiles them with the same globals, closure, defaults, file and lines."""

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
_CONVERTED = "_ndd_converted"
# Their conditions never depend on nodes, and rewriting them would cost seconds.
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
# Modules of this package whose conditions may be nodes.
_CONVERTED_MODULES = ("torch_ndd.dali.auto_aug", "torch_ndd.dali.experimental.torchvision")
_FUTURE_FLAGS = functools.reduce(lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0)
# Builtins that call their arguments.
_HIGHER_ORDER = (map, filter, sorted, min, max, functools.reduce)


def convert(function: Any) -> Any:
    """Return an equivalent function whose conditions may be DataNodes; the same function if there is nothing to convert."""
    kind = type(function)
    if kind is types.FunctionType:
        return _convert_function(function)
    if kind is types.MethodType:
        inner = function.__func__
        converted = convert(inner)
        return function if converted is inner else types.MethodType(converted, function.__self__)
    if kind is functools.partial:
        converted = convert(function.func)
        return function if converted is function.func else functools.partial(converted, *function.args, **function.keywords)
    # Methods of lists, dicts and sets are builtins: changing one of them in a branch would reach the other branch.
    if kind is types.BuiltinFunctionType or kind is types.MethodWrapperType:
        refuse_mutation(function)
        return _convert_arguments(function) if any(function is builtin for builtin in _HIGHER_ORDER) else function
    if isinstance(function, type):
        return _convert_arguments(function) if any(function is builtin for builtin in _HIGHER_ORDER) else function
    call = getattr(kind, "__call__", None)  # noqa: B004
    # An object whose class defines __call__ in Python; types.MethodType binds the converted function to it.
    if isinstance(call, types.FunctionType) and not hasattr(function, _MARK):
        converted = _convert_function(call)
        return function if converted is call else types.MethodType(converted, function)
    return function


def do_not_convert(func: F) -> F:
    """Mark a function: it runs unchanged in pipelines with conditionals, and so does everything that it calls.

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
    # A function of its own, so the mark does not appear on the original, which others may use.
    if isinstance(func, types.FunctionType):
        keep_unconverted = _with_code(func, func.__code__, func.__closure__)
    else:

        def keep_unconverted(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        functools.update_wrapper(keep_unconverted, func)
    setattr(keep_unconverted, _MARK, True)
    return keep_unconverted  # type: ignore[return-value]


def _convert_function(function: types.FunctionType) -> types.FunctionType:
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] in _LIBRARIES and not module.startswith(_CONVERTED_MODULES):
        return function
    marks = function.__dict__
    if _MARK in marks or _CONVERTED in marks or "_is_pipeline_def" in marks:
        return function
    # Generators and coroutines are suspended inside branches; their bodies run when the scope is another one.
    if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return function
    code = _convert_code(function.__code__.co_filename, function.__code__, _Owner(function))
    if code is None:
        return function
    # The rewritten code has the free variables of the original plus the runtime, in an order of its own: pass cells by name.
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[_rewrite.RUNTIME] = _RUNTIME
    converted = _with_code(function, code, tuple(cells[name] for name in code.co_freevars))
    setattr(converted, _CONVERTED, True)
    return converted


def _with_code(function: types.FunctionType, code: types.CodeType, closure: Any) -> types.FunctionType:
    copy = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    if sys.version_info >= (3, 14):
        copy.__annotate__ = function.__annotate__
    else:
        copy.__annotations__ = function.__annotations__
    return copy


class _Owner:
    """An argument that a cache ignores: all instances are equal. The code is the key, the function only helps to find its source."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Owner)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4096)
def _convert_code(filename: str, code: types.CodeType, owner: _Owner) -> types.CodeType | None:
    """Return the code of the rewritten function; None if its source is not found."""
    # Drop the reference: a cached function would never be freed, nor would anything that its closure holds.
    function, owner.function = owner.function, None  # type: ignore[assignment]  # the cache keeps its arguments alive
    try:
        tree = _rewrite.rewrite(definition_of(function), _class_name(function), code.co_freevars)
        with warnings.catch_warnings():
            # The source was compiled before; its warnings were shown then.
            warnings.simplefilter("ignore")
            compiled = compile(ast.fix_missing_locations(tree), filename, "exec", code.co_flags & _FUTURE_FLAGS, dont_inherit=True)
        converted = _innermost(compiled, _rewrite.depth(_class_name(function)))
        # The file may have been edited after it was imported.
        if converted.co_argcount != code.co_argcount or converted.co_varnames[: code.co_argcount] != code.co_varnames[: code.co_argcount]:
            raise NoSource(f"{filename} has changed since {code.co_name!r} was defined")
    except (NoSource, SyntaxError, RecursionError) as error:
        logger.warning(
            "%s runs unchanged: an `if` on a DataNode and logical expressions do not work in it. %s. "
            "The decorator do_not_convert silences this message",
            function.__qualname__,
            error,
        )
        return None
    # Tracebacks and the default names of operators show the original name.
    converted = converted.replace(co_name=code.co_name)
    return converted.replace(co_qualname=code.co_qualname) if sys.version_info >= (3, 11) else converted


def _innermost(code: types.CodeType, depth: int) -> types.CodeType:
    for _ in range(depth):
        # Each wrapper, a class body or the factory, has the code of the next one among its constants.
        code = next(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return code


def _class_name(function: types.FunctionType) -> str | None:
    """Return the name of the class in whose body a function is defined: Python mangles private names with it."""
    parts = function.__qualname__.split(".")
    pairs = list(itertools.pairwise(parts))[::-1]
    return next((name for name, inner in pairs if name.isidentifier() and inner != "<locals>"), None)


def _convert_arguments(function: Any) -> Any:
    """Return a higher-order function, such as ``map``, that converts its arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*[_convert_callable(value) for value in args], **{key: _convert_callable(value) for key, value in kwargs.items()})

    return call


def _convert_callable(value: Any) -> Any:
    return convert(value) if isinstance(value, types.FunctionType | types.MethodType | functools.partial) else value


_RUNTIME = types.CellType(types.SimpleNamespace(convert=convert, **{name: getattr(_runtime, name) for name in _runtime.__all__}))
