# SPDX-License-Identifier: Apache-2.0
"""When queued work runs, and results that are still to come."""

import ast
import atexit
import enum
import linecache
import os
import re
import sys
import threading
import time
import types
from collections.abc import Sequence

import torch

from . import _context, _native
from ._weak import WeakValues
from ._workers import is_janitor, tell_refused

_LEVELS = 12  # frames of the user's stack that an error shows
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_KINDS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)  # in the order of ndd::Error::Kind


class _Local(threading.local):
    def __init__(self) -> None:
        self.modes: list[EvalMode] = []
        self.mode = EvalMode.eager


class EvalMode(enum.IntEnum):
    """When operators run. Members are context managers for the calling thread.

    ``deferred``: when a result is needed, if ever. ``eager`` (the default): at once, in other threads; errors appear when a result is used.
    ``sync_cpu``: before the call returns. ``sync_full``: the same, and the CUDA stream is synchronised too.

    >>> with EvalMode.sync_cpu:
    ...     EvalMode.current().name
    'sync_cpu'
    """

    deferred = 1
    eager = 2
    default = 2
    sync_cpu = 3
    sync_full = 4

    @staticmethod
    def current() -> "EvalMode":
        """The mode of the calling thread."""
        return _local.mode

    def __enter__(self) -> "EvalMode":
        _local.modes.append(_local.mode)
        _local.mode = self
        return self

    def __exit__(self, *error: object) -> None:
        _local.mode = _local.modes.pop()


_local = _Local()


def current_mode() -> int:
    """The mode of the calling thread, quickly."""
    return _local.mode


def _site() -> list[tuple[types.CodeType, int]]:
    """Code and line of the user's frames, innermost first. Not the frames themselves: those would keep every local variable alive."""
    frame, site = sys._getframe(2), []
    while frame is not None and len(site) < _LEVELS:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            site.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return site


def user_site() -> list[tuple[types.CodeType, int]]:
    """The line of the user's program that is being executed, as errors show it."""
    return _site()


def _compiled_raise() -> types.CodeType:
    tree = ast.parse("raise Exception")
    for node in ast.walk(tree):
        vars(node).update(col_offset=-1, end_col_offset=-1)  # no columns, which a traceback would underline
    return compile(tree, "", "exec")


_raiser = _compiled_raise()


def _traceback(site: list[tuple[types.CodeType, int]]) -> types.TracebackType | None:
    """A traceback that shows ``site``."""
    traceback = None
    for code, line in site:
        stub = _raiser.replace(co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=line)
        try:
            exec(stub, {"__name__": "__main__"})
        except Exception as error:
            raised = error.__traceback__ and error.__traceback__.tb_next
        traceback = raised and types.TracebackType(traceback, raised.tb_frame, raised.tb_lasti, line)
    return traceback


def called_at(site: list[tuple[types.CodeType, int]]) -> str:
    """A line of text that tells which line of the program made a call; empty where that is not known."""
    if not site:
        return ""
    code, line = site[0]
    text = linecache.getline(code.co_filename, line).strip()
    return f"\ncalled at {code.co_filename}:{line}" + (f": {text}" if text else f", in {code.co_name}")


class Pending:
    """The work of one call that had not ended when the call returned."""

    stays = False  # once waited for, nobody need wait again

    def __init__(self, handle: int, reads: "list[Pending]", sources: Sequence[str] = ()) -> None:
        self._owner = _native.own(handle, _native.OF_CALL, 0)  # not by owned(): every call comes here
        self._handle = handle
        self._reads = reads
        self._site = _site()
        self._sources = sources
        if sources:
            _with_sources[self.number] = self
        self._status: int | None = None
        self.raised = False  # whether its error has reached the program

    def wait(self) -> None:
        """Return when the work is done; raise its error, now and whenever asked again."""
        if self._status is None:
            self._end()
        if self._status:
            self.raised = True
            raise self._wrapped() from self.cause()

    def done(self) -> bool:
        """Whether the work has ended well. What it read is let go then, so that an endless chain of calls does not grow."""
        if self._status is None and _native.done(self._handle):
            self._end()
        return self._status == 0

    def _end(self) -> None:
        while (status := _native.wait(self._handle)) < 0:
            pass  # here Python handles Ctrl-C
        self._status = status
        tell_refused()
        if status == 0:
            self._reads.clear()

    @property
    def number(self) -> int:
        """In order of the calls."""
        return _native.identity(self._handle)

    @property
    def handle(self) -> int:
        """What the native library calls it."""
        return self._handle

    def cause(self) -> Exception:
        """The error as a synchronous call would have raised it, with the lines of the call that failed first."""
        assert self._status
        error = _KINDS[self._status - 1](_message(self._handle))
        return error.with_traceback(_traceback(self._origin(_native.error_origin(self._handle))._site))

    def at_the_call(self) -> Exception:
        """The error for who raises it at the line of this call; it names another line where an earlier call failed."""
        assert self._status
        failed = self._origin(_native.error_origin(self._handle))
        return _KINDS[self._status - 1](_message(self._handle) + ("" if failed is self else called_at(failed._site)))

    def _wrapped(self) -> Exception:
        """The error as it is shown, with the line of the call in its text: ``str(error)`` is what programs log."""
        assert self._status
        failed = self._origin(_native.error_origin(self._handle))
        return _KINDS[self._status - 1](_message(self._handle) + called_at(failed._site))

    def _origin(self, identity: int) -> "Pending":
        seen: set[int] = set()
        open_: list[Pending] = [self]
        while open_:
            one = open_.pop()
            if _native.identity(one._handle) == identity:
                return one
            for read in one._reads:
                if id(read) not in seen:
                    seen.add(id(read))
                    open_.append(read)
        return self


_with_sources: WeakValues[Pending] = WeakValues()  # by number: calls whose samples have names
_SAMPLE = re.compile(r"[\w.]+: sample (\d+)")


def _message(handle: int) -> str:
    """What went wrong, with the file of the sample. It is written out here and not at the call: for 64 samples that took 0.2 ms."""
    text = _native.error(handle).decode(errors="replace")
    failed, found = _with_sources.get(_native.error_origin(handle)), _SAMPLE.match(text)
    if failed is None or found is None or int(found[1]) >= len(failed._sources):
        return text
    return f"{found[0]} ({failed._sources[int(found[1])]}){text[found.end() :]}"


# Values that were pending when a compiled graph was called. A copy of them, because what comes after the wait has to be another tensor: only so no
# part of the graph can read it before.
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define("waited_for(Tensor values, SymInt handle) -> Tensor")


@torch.library.impl("ndd::waited_for", "CompositeExplicitAutograd", lib=_library)
def _(values: torch.Tensor, handle: int) -> torch.Tensor:
    while (status := _native.wait(handle)) < 0:
        pass
    if status:
        origin = _native.error_origin(handle)
        sites = [call._site for call in _context.known_calls() if type(call) is Pending and _native.identity(call.handle) == origin]
        raise _KINDS[status - 1](_message(handle) + called_at(sites[0] if sites else []))
    return values.clone()


@torch.library.register_fake("ndd::waited_for", lib=_library)
def _(values: torch.Tensor, handle: int) -> torch.Tensor:
    return torch.empty_like(values)


def finish_call(handle: int, mode: int, reads: list[Pending], sources: Sequence[str]) -> Pending | None:
    """The pending work of the call that :func:`_native.end` closed, or None when it is done. Raises what must be raised at the call."""
    pending = Pending(handle & ~1, reads, sources)
    if handle & 1 or mode >= EvalMode.sync_cpu:
        pending._end()
        if pending._status:
            raise pending.at_the_call()
        return None
    _context.register(pending)
    return pending


exiting = False


def park_daemon() -> None:
    """Keep a daemon thread here until the interpreter ends it, when the program exits: torch forgets the operators before that, and a thread that is
    ended while it is in torch's C++ code aborts the process."""
    if threading.current_thread().daemon:
        threading.Event().wait()


def _exit() -> None:
    global exiting
    exiting = True
    try:
        if any(thread.daemon and not is_janitor(thread) for thread in threading.enumerate()):
            time.sleep(0.05)  # for their calls that have begun
    finally:
        _native.stop()


atexit.register(_exit)
