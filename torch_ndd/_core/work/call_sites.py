# SPDX-License-Identifier: Apache-2.0
"""The line of the program that made a call, for errors of work that runs later."""

import ast
import linecache
import os
import sys
import threading
import types
from pathlib import Path

_LEVELS = 12  # frames of the program's stack in an error
# As Python found the package, which may be behind a symbolic link: so is what code objects say.
_PACKAGE = str(Path(__file__).absolute().parents[2]) + os.sep

# Frames, innermost first: their code, and the instruction at which they were. The line is found when it is needed: at each call, that would take
# as long as the rest of caller().
Site = list[tuple[types.CodeType, int]]


class _Fixed(threading.local):
    """The site that the calls of this thread count as made at, if they are made for a program that runs elsewhere."""

    site: Site | None = None


fixed = _Fixed()


def is_own(code: types.CodeType) -> bool:
    """Return whether code belongs to this package."""
    return code.co_filename.startswith(_PACKAGE)


def program_frame() -> types.FrameType | None:
    """Return the innermost frame that is not of this package."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code):
        frame = frame.f_back
    return frame


def caller() -> Site:
    """Return the program's frames, without those of this package.

    The frames themselves would keep every local variable alive.
    """
    if fixed.site is not None:
        return fixed.site
    frame, site, left = sys._getframe(2), [], _LEVELS
    while frame is not None and left:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):  # is_own(), in line: every call comes here
            site.append((code, frame.f_lasti))
            left -= 1
        frame = frame.f_back
    return site


def line_of(code: types.CodeType, instruction: int) -> int:
    """Return the line of a frame of a site."""
    return next((line for begin, end, line in code.co_lines() if begin <= instruction < end and line is not None), code.co_firstlineno)


def _compiled_raise() -> types.CodeType:
    tree = ast.parse("raise Exception")
    for node in ast.walk(tree):
        vars(node).update(col_offset=-1, end_col_offset=-1)  # without columns, which a traceback would underline
    return compile(tree, "", "exec")


_raiser = _compiled_raise()


def traceback_of(site: Site) -> types.TracebackType | None:
    """Return a traceback that shows ``site``."""
    traceback = None
    for code, instruction in site:
        line = line_of(code, instruction)
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
    code = site[0][0]
    line = line_of(*site[0])
    text = linecache.getline(code.co_filename, line).strip()
    return f"\ncalled at {code.co_filename}:{line}" + (f": {text}" if text else f", in {code.co_name}")
