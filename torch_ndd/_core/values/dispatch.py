# SPDX-License-Identifier: Apache-2.0
"""Launching a kernel on the CPU stream, or on a CUDA stream."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from .. import native
from ..context import pools
from ..context.context import EvalMode, thread_state
from ..native import CPU
from ..native.tracing import is_compiling
from ..process import shutdown
from ..work.cuda_work import StreamWork, Switch, join_queue, on_stream, other_launch_stream, stream_work
from ..work.pending import Pending, finish_call
from ..work.sources import UNKNOWN
from .operand import Operand

Buffer = TypeVar("Buffer")


def submit(
    kernel: Callable[..., Any], arguments: Sequence[Any], reads: Sequence[tuple[Pending, int]], caller_owned: bool, sources: Sequence[str] = UNKNOWN
) -> Pending | None:
    """Run a CPU kernel in the current evaluation mode. Return its pending work, or None if it has ended.

    ``caller_owned``: the caller may overwrite memory that is read after the call, so the work must end now. ``sources``: the source of each sample,
    for errors.
    """
    if shutdown.exiting:
        shutdown.park_daemon()
    if pools.unsettled:
        pools.settle()
    mode = EvalMode.sync_cpu if caller_owned else thread_state.mode
    # On the CPU the two synchronous modes are one.
    level = 3 if mode >= EvalMode.sync_cpu else mode
    try:
        if reads:
            native.begin(level, reads[0][0].handle, reads[0][1])
            for pending, sample in reads[1:]:
                native.depend(pending.handle, sample)
        else:
            native.begin(level, None, 0)
        kernel(*arguments)
        handle = native.end()
    except BaseException:  # KeyboardInterrupt too: an open call would absorb the next kernel of this thread
        native.release(native.end() & ~1)
        raise
    return finish_call(handle, mode, [pending for pending, _ in reads], sources) if handle else None


def launch(
    kernel: Callable[..., Any],
    arguments: Sequence[Any],
    reads: Sequence[tuple[Pending, int]],
    caller_owned: bool,
    filled: Sequence[torch.Tensor],
    sources: Sequence[str] = UNKNOWN,
) -> StreamWork:
    """Launch a CUDA kernel within :func:`on_stream`, or queue it behind inputs and earlier launches that have not been issued yet.

    Args:
        kernel: The kernel.
        arguments: Its arguments.
        reads: Work that has not ended or not been issued: of inputs, and of arguments that the launcher reads on the host.
        caller_owned: The caller may overwrite memory that is read.
        filled: What the kernel fills, on the GPU.
        sources: The source of each sample, for errors.
    """
    queue = join_queue(reads, caller_owned)
    if queue is None:
        # submit() only so that errors of the launcher keep their types: a CUDA kernel leaves no CPU work behind.
        submit(kernel, arguments, [], False, sources)
        return stream_work(filled)
    _, work = queue.add(reads, lambda hosts: (None, submit(kernel, arguments, hosts, False, sources)), filled)
    assert work is not None
    return work


def output(allocate: Callable[..., Buffer], shape: Any, dtype: torch.dtype, device: torch.device, *more: Any) -> Buffer:
    """Allocate the buffer that :func:`run` fills, by ``allocate(shape, dtype, device, *more)``: on a GPU on the stream that fills it.

    Torch's allocator reuses freed memory in the order of the stream on which it was allocated. A kernel on another stream could overwrite memory that
    earlier work of torch's current stream still uses.
    """
    if device == CPU or is_compiling() or device.type != "cuda":
        return allocate(shape, dtype, device, *more)
    stream = other_launch_stream(device)
    if stream is None:
        return allocate(shape, dtype, device, *more)
    with Switch(stream):
        return allocate(shape, dtype, device, *more)


def run(kernel: Callable[..., Any], arguments: Sequence[Any], sources: Iterable[tuple[Operand, int]], out: torch.Tensor) -> Pending | None:
    """Run a kernel that reads ``sources`` and fills ``out``, which :func:`output` has allocated, on their device.

    Each source has the index of the sample that is read, or ``SAME_SAMPLE`` or ``ALL_SAMPLES``.
    """
    sources = list(sources)
    caller_owned = any(source.caller_owned for source, _ in sources)
    if is_compiling():
        kernel(*arguments)
        return None
    if out.device.type == "cpu":
        return submit(kernel, arguments, _find_reads(sources), caller_owned)
    with on_stream(out.device, [(source.buffer, source.pending) for source, _ in sources], caller_owned):
        return launch(kernel, arguments, _find_reads(sources), caller_owned, [out])


def _find_reads(sources: Sequence[tuple[Operand, int]]) -> list[tuple[Pending, int]]:
    """Return the work that a kernel has to wait for. On a GPU its stream waits here for work that has been issued."""
    return [(pending, sample) for source, sample in sources if (pending := source._pending_work()) is not None]
