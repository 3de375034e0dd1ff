# SPDX-License-Identifier: Apache-2.0
"""``pickle_by_value``, and the pickling of callbacks for spawned worker processes.

Functions that a worker cannot import (lambdas and nested functions) and marked ones are sent by value: their code, and the variables of the module
and of the enclosing functions that they use. The bytes are for a process of the same program; never load them from elsewhere.
"""

import importlib
import io
import marshal
import pickle
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

__all__ = ["pickle_by_value"]

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_torch_ndd_pickle_by_value"


def pickle_by_value(fun: F) -> F:
    """Mark a function to be sent to worker processes by value.

    Functions of a notebook or of an interactive session need it, because a spawned worker cannot import them. Lambdas and nested functions
    are always sent by value. Variables of the module that the function uses are copied.

    Raise TypeError for anything but a Python function.

    >>> @pickle_by_value
    ... def source(info):
    ...     return info.idx_in_epoch
    """
    if type(fun) is not types.FunctionType:
        raise TypeError(f"pickle_by_value takes a function defined in Python, got {type(fun).__name__}")
    setattr(fun, _MARK, True)
    return fun


class Codec(NamedTuple):
    """Conversion of callbacks to bytes and back."""

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]


def codec(py_callback_pickler: Any = None) -> Codec:
    """Return the codec of a pipeline's ``py_callback_pickler``.

    That is None, an object with ``dumps`` and ``loads`` (``dill``, ``cloudpickle``), or a tuple of it and the keyword arguments of the two.

    Raise ValueError for anything else.

    >>> double = codec().loads(codec().dumps(lambda x: 2 * x))
    >>> double(4)
    8
    """
    if py_callback_pickler is None:
        return Codec(dumps, loads)
    module, *options = py_callback_pickler if isinstance(py_callback_pickler, tuple) else (py_callback_pickler,)
    if len(options) > 2 or not all(value is None or isinstance(value, Mapping) for value in options):
        raise ValueError("py_callback_pickler: a tuple must be the pickler and up to two dicts, the keyword arguments of dumps and loads")
    if not callable(getattr(module, "dumps", None)) or not callable(getattr(module, "loads", None)):
        raise ValueError(f"py_callback_pickler must have the functions dumps and loads, got {module!r}")
    # Options of dumps, and of loads; missing ones are empty.
    to_bytes, from_bytes = ({**(value or {})} for value in (*options, None, None)[:2])
    return Codec(lambda value: module.dumps(value, **to_bytes), lambda data: module.loads(data, **from_bytes))


def dumps(value: Any) -> bytes:
    """Pickle a value, with functions by value where necessary. Raise the errors of ``pickle``."""
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def loads(data: bytes) -> Any:
    """Return the value of bytes that :func:`dumps` returned in this program."""
    return pickle.loads(data)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and _is_sent_by_value(obj):
            return _reduce_function(obj)
        if isinstance(obj, types.ModuleType):
            # A module is imported in the worker, not copied.
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, types.CellType):
            # Cells are made empty and filled afterwards, because a recursive function is in its own cell.
            return _empty_cell, (), _contents(obj), None, None, _fill_cell
        return NotImplemented


def _is_sent_by_value(function: types.FunctionType) -> bool:
    return getattr(function, _MARK, False) or function.__name__ == "<lambda>" or "<locals>" in function.__qualname__


_STATE = ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__", "__module__", "__doc__")


def _reduce_function(function: types.FunctionType) -> Any:
    # The state is set afterwards, because a function may refer to itself.
    cells = function.__closure__ or ()
    state = {name: getattr(function, name) for name in _STATE}
    # Only the globals that the code may use: the whole module could not be pickled, or would take long.
    values = {name: function.__globals__[name] for name in sorted(_find_names(function.__code__)) if name in function.__globals__}
    arguments = marshal.dumps(function.__code__), function.__name__, cells
    return _empty_function, arguments, (state, function.__dict__, values), None, None, _fill_function


def _find_names(code: types.CodeType) -> set[str]:
    """Return the names of globals that code and its nested functions may use."""
    inner = (_find_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)


def _empty_function(code: bytes, name: str, cells: tuple[types.CellType, ...]) -> types.FunctionType:
    # The worker runs the same Python, so code can be marshaled.
    return types.FunctionType(marshal.loads(code), {"__builtins__": __builtins__}, name, None, cells)


def _fill_function(function: types.FunctionType, state: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    attributes, own, values = state
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(own)
    function.__globals__.update(values, __name__=attributes["__module__"])


def _empty_cell() -> types.CellType:
    return types.CellType()


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # the variable is not bound yet
        return ()


def _fill_cell(cell: types.CellType, contents: tuple[Any, ...]) -> None:
    for value in contents:
        cell.cell_contents = value
