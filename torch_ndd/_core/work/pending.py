# SPDX-License-Identifier: Apache-2.0
"""The work of calls that may not have ended: waiting for it, and its errors."""

import builtins
from collections.abc import Sequence

import torch

from .. import native
from ..context import context
from ..context.context import EvalMode
from ..process.workers import warn_of_refused_threads
from .call_sites import Site, called_at, caller, traceback_of
from .sources import UNKNOWN, with_source

# Which sample of pending work a value reads: its index, or one of these.
SAME_SAMPLE, ALL_SAMPLES = (native.numbers("stream.Read")[name] for name in ("same_sample", "all_samples"))

KINDS: tuple[type[Exception], ...] = tuple(getattr(builtins, f"{name}Error") for name in native.numbers("Error"))


class Pending:
    """The work of a call that had not ended when the call returned."""

    stays = False  # later waits are no-ops

    def __init__(self, handle: int, reads: "list[Pending]", sources: Sequence[str] = UNKNOWN) -> None:
        self._owner = native.own(handle, native.OF_CALL, 0)  # not by owned(): every call comes here
        self._handle = handle
        self._reads = reads
        self._site = caller()
        self.sources = sources
        self._status: int | None = None
        self._raised = False  # whether the error that originated here was raised to the program

    def wait(self) -> None:
        """Wait until the work is done; raise its error, each time."""
        if self._status is None:
            self._end()
        if self._status:
            self.failed_call()._raised = True
            raise self._error_with_line() from self.cause()

    def wait_for_news(self) -> None:
        """Wait until the work is done; raise its error unless that has reached the program, here or where another call read the result."""
        if not self.wait_for_success() and not self.failed_call()._raised:
            self.wait()

    def done(self) -> bool:
        """Return whether the work has ended without an error. Its inputs are then released, so an endless chain of calls does not grow."""
        return self.has_ended() and self._status == 0

    def has_ended(self) -> bool:
        """Return whether the work has ended, with or without an error."""
        if self._status is None and native.done(self._handle):
            self._end()
        return self._status is not None

    def wait_for_success(self) -> bool:
        """Wait until the work is done, without raising its error. Return whether there is none."""
        if self._status is None:
            self._end()
        return self._status == 0

    def end_of_call(self) -> None:
        """Wait for the work of a synchronous call, and raise its error there."""
        if not self.wait_for_success():
            raise self.at_the_call() from self.origin_of_error()

    def origin_of_error(self) -> BaseException | None:
        """Return the exception of the user's code that this work failed with, if any."""
        return None

    def _end(self) -> None:
        while (status := native.wait(self._handle)) < 0:
            pass  # Python handles Ctrl-C here
        self._status = status
        warn_of_refused_threads()
        if status == 0:
            self._reads.clear()

    @property
    def number(self) -> int:
        """Number of the call, in call order."""
        return native.identity(self._handle)

    @property
    def handle(self) -> int:
        """The native library's handle."""
        return self._handle

    def cause(self) -> Exception:
        """Return the error that a synchronous call would have raised, with the lines of the failed call first."""
        assert self._status
        failed = self.failed_call()
        error = KINDS[self._status - 1](_message(self._handle, failed))
        error.__cause__ = failed.origin_of_error()
        return error.with_traceback(traceback_of(failed._site))

    def at_the_call(self) -> Exception:
        """Return the error to raise at the line of this call; it names another line if an earlier call failed."""
        assert self._status
        failed = self.failed_call()
        return KINDS[self._status - 1](_message(self._handle, failed) + ("" if failed is self else called_at(failed._site)))

    def _error_with_line(self) -> Exception:
        """Return the error with the line of the call in its text, because programs log ``str(error)``."""
        assert self._status
        failed = self.failed_call()
        return KINDS[self._status - 1](_message(self._handle, failed) + called_at(failed._site))

    @property
    def site(self) -> Site:
        """The program's frames of the call, innermost first."""
        return self._site

    def failed_call(self) -> "Pending":
        """Return the call in which the error began: this one, or one whose result it reads."""
        identity = native.error_origin(self._handle)
        seen: set[int] = set()
        open_: list[Pending] = [self]
        while open_:
            call = open_.pop()
            if native.identity(call._handle) == identity:
                return call
            for read in call._reads:
                if id(read) not in seen:
                    seen.add(id(read))
                    open_.append(read)
        return self


def _message(handle: int, failed: Pending | None) -> str:
    """Return the message with the file of the sample. Formatted here rather than at the call, where it took 0.2 ms for 64 samples."""
    text = native.error(handle).decode(errors="replace")
    return text if failed is None else with_source(text, failed.sources)


# Copies values that were pending when a compiled graph was called. The copy is another tensor, so no part of the graph can read it before the
# wait.
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define("waited_for(Tensor values, SymInt handle) -> Tensor")


@torch.library.impl("ndd::waited_for", "CompositeExplicitAutograd", lib=_library)
def _(values: torch.Tensor, handle: int) -> torch.Tensor:
    while (status := native.wait(handle)) < 0:
        pass
    if status:
        origin = native.error_origin(handle)
        failed = [call for call in context.known_calls() if isinstance(call, Pending) and call.number == origin]
        for call in failed:
            call._raised = True
        first = failed[0] if failed else None
        raise KINDS[status - 1](_message(handle, first) + called_at([] if first is None else first._site))
    return values.clone()


@torch.library.register_fake("ndd::waited_for", lib=_library)
def _(values: torch.Tensor, handle: int) -> torch.Tensor:
    return torch.empty_like(values)


def finish_call(handle: int, mode: int, reads: list[Pending], sources: Sequence[str]) -> Pending | None:
    """Return the pending work of the call that :func:`native.end` closed, or None if it is done. Raise the errors of synchronous calls."""
    pending = Pending(handle & ~1, reads, sources)
    if handle & 1 or mode >= EvalMode.sync_cpu:
        pending.end_of_call()
        return None
    context.register(pending)
    return pending
