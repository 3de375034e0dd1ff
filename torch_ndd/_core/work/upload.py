# SPDX-License-Identifier: Apache-2.0
"""Copies between the host and GPUs.

A GPU reads pinned memory while the host continues; any other memory is first copied by the CUDA driver, piece by piece, to its own pinned memory,
while the host waits. A large copy to a GPU is therefore made from pinned memory, on a separate stream, and overlaps with the work on earlier batches:

- Our own buffers are in pinned memory from the second buffer of their size on that goes to a GPU: :func:`native.empty` then takes it from torch.
- Anything else is first copied to pinned memory on the host, so the caller may overwrite it immediately.
- Values that the CPU still computes are copied by the thread that ends this work: the copy is queued (:class:`cuda_work.LaunchQueue`).

The pinned memory is that of torch's allocator, which does not reuse any before the copies from it have ended, whoever has started them. If the pool's
blocks were pinned in place instead (cudaHostRegister), ``batch.torch().to("cuda", non_blocking=True)`` could read a block that is being refilled.
"""

import os
from collections import deque
from typing import Any, NamedTuple

import torch

from .. import native
from ..context.context import EvalMode, thread_state
from ..context.cuda import new_torch_stream
from ..native.tracing import is_compiling
from ..process.fork_locks import new_lock
from .cuda_work import StreamWork, can_run_later, on_stream, queue_of, record_event, stream_work
from .pending import ALL_SAMPLES, Pending, finish_call

_SMALL = 64 << 10  # bytes that the driver copies at the call, as part of the command
_MAX_PINNED = 1 << 30  # bytes; torch rounds pinned memory up to a power of two and keeps it


class Uploads(NamedTuple):
    """Number of copies to GPUs, and their bytes, since the program started. Copies of up to 64 KB are not counted."""

    direct: int = 0  # from pinned memory, without a copy on the host
    direct_bytes: int = 0
    staged: int = 0  # through pinned memory
    staged_bytes: int = 0
    pageable: int = 0  # the host waited: pinned memory could not be allocated, or more than 1 GiB was needed
    pageable_bytes: int = 0


_DIRECT, _STAGED, _PAGEABLE = 0, 2, 4

_lock = new_lock()
_counts = [0] * len(Uploads._fields)
_streams: dict[int, torch.cuda.Stream] = {}
# Copies from our memory that may not have ended, the latest last: an event, the CPU's work that records it, if any, and the address of the buffer.
_reads: deque[tuple[torch.cuda.Event, Pending | None, int]] = deque()
_queue_copy: Any = getattr(getattr(torch.ops.ndd, "upload", None), "default", None)  # None in a build without CUDA


def uploads() -> Uploads:
    """Return how host memory reached the GPUs so far.

    In a steady loop ``direct`` grows, or ``staged`` if the data are arrays of the caller. ``pageable`` should not: the host waited for those copies.

    >>> uploads().pageable
    0
    """
    return Uploads(*_counts)


def copy_to_device(values: torch.Tensor, pending: Pending | None, caller_owned: bool, target: torch.device) -> tuple[torch.Tensor, Pending | None]:
    """Return a copy on another device and the work that makes it. The host waits only if the user might overwrite pinned memory."""
    on_gpu = values.device.type == "cuda"
    if pending is not None and not on_gpu:
        if _runs_later(values, pending, caller_owned, target):
            return _upload_later(values, pending, target)
        pending.wait()
    gpu = target if target.type == "cuda" else values.device
    if gpu.type != "cuda" or is_compiling():
        return values.to(target, copy=True), None
    large = not on_gpu and (values.nbytes > _SMALL or (native.pinned_sizes and not caller_owned and _is_large(values)))
    if large and not torch.cuda.is_current_stream_capturing():  # a copy within a CUDA graph stays on the graph's stream
        return _upload(values, caller_owned, target)
    with on_stream(gpu, [(values, pending)], caller_owned):
        if pending is not None and on_gpu:
            pending.wait()
        if target.type != "cuda":
            return _download(values), None
        copy = values.to(target, copy=True, non_blocking=not (caller_owned and values.is_pinned()))
        return copy, stream_work([copy])


def _is_large(values: torch.Tensor) -> bool:
    return values.untyped_storage().nbytes() >= native.POOLED_BYTES


def _runs_later(values: torch.Tensor, pending: Pending, caller_owned: bool, target: torch.device) -> bool:
    """Return whether a copy of pending values can be queued. It never waits, for neither part of a CUDA graph nor of a compiled graph can do so."""
    return (
        _queue_copy is not None
        and target.type == "cuda"
        and not caller_owned
        and not is_compiling()
        and thread_state.mode < EvalMode.sync_cpu
        and not pending.done()
        and can_run_later(pending)
        and not torch.cuda.is_current_stream_capturing()
    )


def _upload_later(values: torch.Tensor, pending: Pending, target: torch.device) -> tuple[torch.Tensor, Pending]:
    """Queue a copy that is made when the values have been computed."""
    stream = _stream_of(target)
    direct = values.is_pinned()
    # A thread of the CPU stream fills the tensor, outside of the inference mode of this one.
    with torch.cuda.stream(stream), torch.inference_mode(False):
        copy = torch.empty_like(values, device=target)
        staging = None if direct else _allocate_staging(values, False)

    def call(reads: list[tuple[Pending, int]]) -> tuple[None, Pending | None]:
        try:
            native.begin(EvalMode.eager, reads[0][0].handle, ALL_SAMPLES)
            _queue_copy(values, staging, copy)
            handle = native.end()
        except BaseException:  # KeyboardInterrupt too: an open call would absorb the next kernel of this thread
            native.release(native.end() & ~1)
            raise
        return None, finish_call(handle, EvalMode.eager, [pending], pending.sources)

    _, work = queue_of(stream).add([(pending, ALL_SAMPLES)], call, [copy])
    assert work is not None
    with _lock:
        if values.nbytes > _SMALL:
            _count(_DIRECT if direct else _PAGEABLE if staging is None else _STAGED, values.nbytes)
        _note_read(work.issued, work.host, values)
    return copy, work


def _count(way: int, nbytes: int) -> None:
    _counts[way] += 1
    _counts[way + 1] += nbytes


def _note_read(event: torch.cuda.Event, host: Pending | None, values: torch.Tensor) -> None:
    while _reads and (_reads[0][1] is None or _reads[0][1].has_ended()) and _reads[0][0].query():
        _reads.popleft()
    _reads.append((event, host, values.untyped_storage().data_ptr()))


def _stream_of(target: torch.device) -> torch.cuda.Stream:
    return _streams.get(target.index) or _streams.setdefault(target.index, new_torch_stream(target.index))


def _upload(values: torch.Tensor, caller_owned: bool, target: torch.device) -> tuple[torch.Tensor, Pending]:
    stream = _stream_of(target)
    with torch.cuda.stream(stream):
        pinned = values.is_pinned()
        # The program may overwrite memory that it owns or has seen, before the copy ends.
        may_change = caller_owned or getattr(values.untyped_storage(), "exposed", False)
        source = values if pinned and (caller_owned or not may_change) else _stage(values, caller_owned)
        # The driver stages pageable memory before it returns; only pinned memory is read later, so only its change must be waited out.
        copy = source.to(target, copy=True, non_blocking=not (pinned and may_change and source is values))
        event = record_event(stream)
        pending = StreamWork(stream, [copy], event)
    way = _STAGED if source is not values else _DIRECT if pinned else _PAGEABLE
    with _lock:
        _count(way, values.nbytes)
        if way == _DIRECT and not may_change:
            _note_read(event, None, values)
    if thread_state.mode == EvalMode.sync_full:
        stream.synchronize()
    return copy, pending


def _stage(values: torch.Tensor, caller_owned: bool) -> torch.Tensor:
    """Copy to pinned memory. Return the values themselves if none can be allocated."""
    pinned = _allocate_staging(values, caller_owned)
    return values if pinned is None else pinned.copy_(values)


def _allocate_staging(values: torch.Tensor, caller_owned: bool) -> torch.Tensor | None:
    """Return pinned memory for a copy of these values, None if none can be allocated."""
    if values.nbytes > _MAX_PINNED:
        return None
    try:
        pinned = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
    except RuntimeError:
        return None
    if not caller_owned:
        _pin_next(values)
    return pinned


def _pin_next(values: torch.Tensor) -> None:
    """Use pinned memory for our next buffers of this size."""
    size = values.untyped_storage().nbytes()
    if native.POOLED_BYTES <= size <= _MAX_PINNED:
        native.pin_size(size)


def _download(values: torch.Tensor) -> torch.Tensor:
    """Copy to host memory, and wait for it."""
    if values.nbytes < native.POOLED_BYTES:
        return values.to("cpu")
    copy = native.empty(tuple(values.shape), values.dtype, torch.device("cpu")).copy_(values)
    _pin_next(copy)
    return copy


def has_reads() -> bool:
    """Return whether a copy may be reading our host memory, or will."""
    return bool(_reads or native.pinned_sizes)


def note_exposed(values: torch.Tensor) -> None:
    """Note that our host memory is exposed to a caller, which may write to it: wait for copies from it, and stage later ones."""
    storage = values.untyped_storage()
    if _is_large(values):
        storage.exposed = True  # type: ignore[attr-defined]
    address = storage.data_ptr()
    with _lock:
        reading = [(event, host) for event, host, read in _reads if read == address]
    for event, host in reading:
        if host is not None:
            host.wait_for_success()
        event.synchronize()


def _in_child() -> None:
    """Drop pinned memory and streams after a fork: the child cannot use CUDA."""
    native.pin_no_size()
    _streams.clear()


os.register_at_fork(after_in_child=_in_child)
