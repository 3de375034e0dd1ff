# SPDX-License-Identifier: Apache-2.0
"""Errors of operators, with the lines that defined the operator; warnings at the line of the program."""

import linecache
import sys
import warnings
from types import FrameType
from typing import Any

from ..._core.work.call_sites import Site, is_own, line_of
from ..._core.work.pending import Pending
from .graph import Operation


class UnknownArgumentError(KeyError, TypeError):
    """An argument that the operator does not have."""

    # KeyError shows the repr of its argument: quotes and escaped line breaks.
    __str__ = Exception.__str__


class _MultilineKeyError(KeyError):
    """A KeyError whose text is its message, not the ``repr`` of it."""

    __str__ = Exception.__str__


def warn_deprecated(text: str) -> None:
    """Warn at the line of the program that called this package."""
    frame: FrameType | None = sys._getframe(1)
    # Counts the frames of this package, so the warning names the line of the program.
    level = 2
    while frame is not None and is_own(frame.f_code):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def wrap_error(operation: Operation, cause: BaseException) -> Exception:
    """Return an error of the same type as the cause, with the operator's name and the lines of its definition before the cause's text."""
    reason = cause if isinstance(cause, Exception) else repr(cause)
    text = f"torch_ndd.dali.{operation.title} (operator {operation.name!r}) failed.\n{format_site(operation.site)}encountered: {reason}"
    if isinstance(cause, KeyError):
        return _MultilineKeyError(text)
    error_type: Any = type(cause) if isinstance(cause, Exception) else RuntimeError
    if issubclass(error_type, StopIteration):  # would silently end the user's loop
        error_type = RuntimeError
    try:
        error = error_type(text)
        fits = str(error) == text  # some types add to their argument, or take several
    except Exception:
        fits = False
    return error if fits else RuntimeError(text)


def format_site(site: Site) -> str:
    """Format the frames of a definition, the innermost last."""
    if not site:
        return ""
    lines = ["defined at:\n"]
    for code, instruction in reversed(site):
        number = line_of(code, instruction)
        lines.append(f'  File "{code.co_filename}", line {number}, in {code.co_name}\n')
        text = linecache.getline(code.co_filename, number).strip()
        if text:
            lines.append(f"    {text}\n")
    return "".join(lines)


def find_origin(pending: Pending) -> tuple[Site, Exception]:
    """Return the site and the error of the call that made pending work fail."""
    failed = pending.failed_call()
    return failed.site, pending.cause()
