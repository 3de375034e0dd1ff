# SPDX-License-Identifier: Apache-2.0
"""Finding the syntax tree of a function in the file that defines it."""

import ast
import functools
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
        tree = _parsed(code.co_filename, "".join(lines))
    except SyntaxError as error:
        raise NoSource(f"the source of {code.co_filename} cannot be parsed: {error}") from None
    if code.co_name == "<lambda>":
        lambdas = [one for one in ast.walk(tree) if isinstance(one, ast.Lambda) and one.lineno == code.co_firstlineno]
        return lambdas[0] if len(lambdas) == 1 else _lambda_at(code, lambdas)
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef) and one.name == code.co_name and first_line(one) == code.co_firstlineno:
            return one
    raise NoSource(f"no definition of {code.co_name!r} was found at line {code.co_firstlineno} of {code.co_filename}")


def first_line(definition: Definition) -> int:
    """Return the line of a definition's code object: that of its first decorator."""
    decorators = getattr(definition, "decorator_list", [])
    return decorators[0].lineno if decorators else definition.lineno


@functools.lru_cache(maxsize=16)
def _parsed(name: str, text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the user's source: they were shown when it was imported
        return ast.parse(text, name)


def _lambda_at(code: types.CodeType, lambdas: list[ast.Lambda]) -> ast.Lambda:
    """Return the one of several lambda expressions of a line that a code object was compiled from."""
    if hasattr(code, "co_positions"):
        spans = [span for span in code.co_positions() if None not in span and span[3]]  # type: ignore[attr-defined]
        around = [one for one in lambdas if all(_within(span, one.body) for span in spans)]
        if around:
            return min(around, key=lambda one: _length(one))
    texts = {ast.dump(one) for one in lambdas if _arguments(one) == code.co_varnames[: _argument_count(code)]}
    if lambdas and len(texts) == 1:
        return next(one for one in lambdas if ast.dump(one) in texts)
    raise NoSource(f"{len(lambdas)} lambda expressions begin at line {code.co_firstlineno} of {code.co_filename}; write them on lines of their own")


def _within(span: Any, body: ast.expr) -> bool:
    line, end_line, column, end_column = span
    assert body.end_lineno is not None
    assert body.end_col_offset is not None
    return (body.lineno, body.col_offset) <= (line, column) and (end_line, end_column) <= (body.end_lineno, body.end_col_offset)


def _length(one: ast.Lambda) -> tuple[int, int]:
    assert one.end_lineno is not None
    assert one.end_col_offset is not None
    return one.end_lineno - one.lineno, one.end_col_offset - one.col_offset


def _argument_count(code: types.CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def _arguments(one: ast.Lambda) -> tuple[str, ...]:
    of = one.args
    several = [*of.posonlyargs, *of.args, *of.kwonlyargs, *([of.vararg] if of.vararg else []), *([of.kwarg] if of.kwarg else [])]
    return tuple(argument.arg for argument in several)
