# SPDX-License-Identifier: Apache-2.0
"""Handing a kernel to the CPU stream, or to that of a GPU."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from . import _context, _native, _stream
from ._launch import launched, on_stream
from ._operand import Operand
from ._stream import EvalMode, Pending, current_mode, finish_call


def queue(
    kernel: Callable[..., Any], arguments: Sequence[Any], reads: Sequence[tuple[Pending, int]], external: bool, sources: Sequence[str] = ()
) -> Pending | None:
    """Run a CPU kernel as the evaluation mode says: its pending work, or None when it is done.

    ``external``: memory of the user is read, who may overwrite it after the call. ``sources``: where each sample comes from, for errors.
    """
    if _stream.exiting:
        _stream.park_daemon()
    if _context.unsettled:
        _context.settle()
    mode = EvalMode.sync_cpu if external else current_mode()
    native = 3 if mode >= EvalMode.sync_cpu else mode
    try:
        if reads:
            _native.begin(native, reads[0][0].handle, reads[0][1])
            for pending, sample in reads[1:]:
                _native.depend(pending.handle, sample)
        else:
            _native.begin(native, None, 0)
        kernel(*arguments)
        handle = _native.end()
    except BaseException:  # also Ctrl-C: a call that stays open would take up the next kernel, whoever calls it
        _native.release(_native.end() & ~1)
        raise
    return finish_call(handle, mode, [pending for pending, _ in reads], sources) if handle else None


def launch(kernel: Callable[..., Any], arguments: Sequence[Any], sources: Iterable[tuple[Operand, int]], out: torch.Tensor) -> Pending | None:
    """Run a kernel that reads ``sources`` and fills ``out`` on their device. Each source comes with the number of the sample that is read, or with
    which one it is (``SAME_SAMPLE``, ``ALL_SAMPLES``)."""
    sources = list(sources)
    external = any(source._external for source, _ in sources)
    if torch.compiler.is_compiling():
        kernel(*arguments)
        return None
    if out.device.type != "cpu":
        used = [(source._values, source._pending) for source, _ in sources]
        with on_stream(out.device, used, external):
            for _, pending in used:
                if pending is not None:
                    pending.wait()
            kernel(*arguments)
            return launched([out])
    reads = []
    for source, sample in sources:
        pending = source._pending
        if pending is not None:
            if pending.done():
                source._pending = None
            else:
                reads.append((pending, sample))
    return queue(kernel, arguments, reads, external)
