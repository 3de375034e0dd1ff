# SPDX-License-Identifier: Apache-2.0
"""The line of the program that made a call, for errors of work that runs later."""

import ast
import linecache
import os
import sys
import threading
import types

_LEVELS = 12  # frames of the program's stack in an error
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

Site = list[tuple[types.CodeType, int]]


class _Fixed(threading.local):
    """The site that the calls of this thread count as made at, if they are made for a program that runs elsewhere."""

    site: Site | None = None


fixed = _Fixed()


def is_own(code: types.CodeType) -> bool:
    """Return whether code belongs to this package."""
    return code.co_filename.startswith(_PACKAGE)


def caller() -> Site:
    """Return code and line of the program's frames, innermost first, without the frames of this package.

    The frames themselves would keep every local variable alive.
    """
    if fixed.site is not None:
        return fixed.site
    frame, site = sys._getframe(2), []
    while frame is not None and len(site) < _LEVELS:
        if not is_own(frame.f_code):
            site.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return site


def _compiled_raise() -> types.CodeType:
    tree = ast.parse("raise Exception")
    for node in ast.walk(tree):
        vars(node).update(col_offset=-1, end_col_offset=-1)  # without columns, which a traceback would underline
    return compile(tree, "", "exec")


_raiser = _compiled_raise()


def traceback_of(site: Site) -> types.TracebackType | None:
    """Return a traceback that shows ``site``."""
    traceback = None
    for code, line in site:
        stub = _raiser.replace(co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=line)
        try:
            exec(stub, {"__name__": "__main__"})
        except Exception as error:
            raised = error.__traceback__ and error.__traceback__.tb_next
        traceback = raised and types.TracebackType(traceback, raised.tb_frame, raised.tb_lasti, line)
    return traceback


def called_at(site: Site) -> str:
    """Return a line of text with the program line of a call; empty if unknown."""
    if not site:
        return ""
    code, line = site[0]
    text = linecache.getline(code.co_filename, line).strip()
    return f"\ncalled at {code.co_filename}:{line}" + (f": {text}" if text else f", in {code.co_name}")
