# SPDX-License-Identifier: Apache-2.0
"""Finds the syntax tree of a function in the file that defines it."""

import ast
import functools
import inspect
import linecache
import types
import warnings
from typing import Any

Definition = ast.FunctionDef | ast.Lambda


class NoSource(Exception):
    """The source of a function cannot be found, or not for certain."""


def definition_of(function: types.FunctionType) -> Definition:
    """Return the definition of a function, with the lines and columns of its file; not to be changed. Raise NoSource if it is not found."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise NoSource(f"the source of {code.co_filename} is not available")
    try:
        tree = _parse(code.co_filename, "".join(lines))
    except SyntaxError as error:
        raise NoSource(f"the source of {code.co_filename} cannot be parsed: {error}") from None
    # Several lambdas may begin in one line, all with the name "<lambda>".
    if code.co_name == "<lambda>":
        lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
        return lambdas[0] if len(lambdas) == 1 else _lambda_at(code, lambdas)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and first_line(node) == code.co_firstlineno:
            return node
    raise NoSource(f"no definition of {code.co_name!r} was found at line {code.co_firstlineno} of {code.co_filename}")


def first_line(definition: Definition) -> int:
    """Return the line of a definition's code object: that of its first decorator."""
    decorators = getattr(definition, "decorator_list", [])
    return decorators[0].lineno if decorators else definition.lineno


@functools.lru_cache(maxsize=16)
def _parse(name: str, text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's source: they were issued when it was imported
        return ast.parse(text, name)


def _lambda_at(code: types.CodeType, lambdas: list[ast.Lambda]) -> ast.Lambda:
    """Return the lambda expression, of several in one line, that a code object was compiled from."""
    # Since Python 3.11 instructions have columns. The innermost expression that contains all of them is the right one.
    if hasattr(code, "co_positions"):
        # Instructions that the compiler added have no columns, or an end column of 0.
        spans = [span for span in code.co_positions() if None not in span and span[3]]  # type: ignore[attr-defined]
        around = [node for node in lambdas if all(_within(span, node.body) for span in spans)]
        if around:
            return min(around, key=lambda node: _length(node))
    # Without columns, equal expressions are interchangeable.
    texts = {ast.dump(node) for node in lambdas if _parameter_names(node) == code.co_varnames[: _count_parameters(code)]}
    if lambdas and len(texts) == 1:
        return next(node for node in lambdas if ast.dump(node) in texts)
    raise NoSource(f"{len(lambdas)} lambda expressions begin at line {code.co_firstlineno} of {code.co_filename}; write them on lines of their own")


def _within(span: Any, body: ast.expr) -> bool:
    line, end_line, column, end_column = span
    assert body.end_lineno is not None
    assert body.end_col_offset is not None
    return (body.lineno, body.col_offset) <= (line, column) and (end_line, end_column) <= (body.end_lineno, body.end_col_offset)


def _length(node: ast.Lambda) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno - node.lineno, node.end_col_offset - node.col_offset


def _count_parameters(code: types.CodeType) -> int:
    # Flags count one parameter each for *args and **kwargs.
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)


def _parameter_names(function: ast.Lambda) -> tuple[str, ...]:
    arguments = function.args
    variadic = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None]
    return tuple(parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variadic))
