# SPDX-License-Identifier: Apache-2.0
"""Kernel calls that native code keeps and repeats on other tensors (``ndd::again``, csrc/ndd/stream/repeat.cpp), given by a handle."""

import ctypes
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch

from .. import native
from ..context.context import EvalMode, thread_state
from ..context.streams import launch_stream
from ..process import shutdown
from ..work.cuda_work import StreamWork, is_queued, queues
from ..work.pending import finish_call
from .operand import Operand

FITS = native.numbers("plan.Fit")
ROWS = native.numbers("plan.Rows")
OUTPUT = native.numbers("plan.Place")["output_place"]
WHOLE = -1  # in a place: the argument is the tensor
_begin_plan = native.c_function("ndd_plan")
_derive_in_plan = native.c_function("ndd_plan_derivation")
_end_plan = native.c_function("ndd_plan_made")
_release = native.address(native.c_function("ndd_plan_release"))


class DerivedTensors(NamedTuple):
    """What native code computes in each call of a plan, from constants and from tensors of the call."""

    function: Any  # a C function (csrc/ndd/derive.h)
    arguments: bytes  # that it gets
    places: Sequence[int]  # four numbers each: a byte of these arguments, the tensor whose address goes there, the byte in it, whether to round it
    options: Sequence[int]  # that it gets
    host: Sequence[int]  # of each tensor that the kernel does not get: its number, dtype, number of dimensions and shape
    host_count: int
    tables: int  # how many of the tensors it fills: the last ones
    is_ragged: bool  # the second tensor of the call has the shapes of the first
    is_fixed: bool  # the output has the shape of the first call


class NativePlan(NamedTuple):
    """A kernel call that native code keeps."""

    handle: int
    owner: Any  # releases the handle


def keep_call(
    kernel: Any,
    arguments: Sequence[Any],
    places: Sequence[tuple[int, int, int]],
    fits: Sequence[int],
    packed: int,
    rows: int,
    previous: int | None,
    derived: DerivedTensors | None = None,
) -> NativePlan | None:
    """Return a native plan; None if the kernel cannot be repeated.

    Args:
        kernel: Is not run.
        arguments: Its arguments in one call. The plan keeps those that have no place.
        places: What differs from call to call: the index of the argument, the index in it if it is a list, or ``WHOLE``, and that of the tensor in
            later calls, or ``OUTPUT``.
        fits: For each tensor of later calls, which sizes it may have: one of ``FITS``.
        packed: The tensor with the shapes of a packed output, or -1.
        rows: Which numbers of samples fit, one of ``ROWS``.
        previous: The handle of a plan for other shapes, which native code tries as well.
        derived: What native code computes in each call. The tensors that it fills are not passed to later calls; the shapes of a packed output are,
            and are filled.
    """
    # Between the two functions the library captures the arguments of this thread's next kernel call instead of running it: torch's dispatcher
    # converts them exactly as it does for a real call.
    try:
        tensors = (ctypes.c_int64 * (3 * len(places)))(*chain(*places)), len(places), (ctypes.c_int64 * len(fits))(*fits), len(fits)
        _begin_plan(*tensors, packed, rows)
        if derived is not None:
            _derive_in_plan(
                *(native.address(derived.function), derived.arguments, len(derived.arguments)),
                *((ctypes.c_int64 * len(derived.places))(*derived.places), len(derived.places) // 4),
                *((ctypes.c_int64 * len(derived.options))(*derived.options), len(derived.options)),
                *((ctypes.c_int64 * len(derived.host))(*derived.host), derived.host_count),
                *(derived.tables, derived.is_ragged, derived.is_fixed),
            )
        kernel(*arguments)
    finally:
        handle = _end_plan(previous)
    return None if handle is None else NativePlan(handle, native.own(handle, _release, False))


def bypass_overload(overload: Any) -> Any:
    """Return the C++ function of an operator of torch, without the Python function around it, which eager calls do not need."""
    return getattr(overload, "_op", overload)


_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # None in a torch without CUDA
_is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)  # what torch.cuda.is_current_stream_capturing() calls
_again_on_stream: Any = getattr(getattr(torch.ops.ndd, "again_on_stream", None), "default", None)  # None in a build without CUDA
if _again_on_stream is not None:
    _again_on_stream = bypass_overload(_again_on_stream)

NOT_ONE_CALL = object()
_MAX_TENSORS = 6  # of ndd::again_on_stream


def launch_in_one_call(
    plan: int,
    device: int,
    operands: Sequence[Operand],
    tensors: Sequence[torch.Tensor | None],
    sources: Sequence[str],
    rows: int = 0,
) -> Any:
    """Launch on the context's stream by one native call, the usual case.

    Return the output and its work, both None if the plan does not fit; ``NOT_ONE_CALL`` if it takes more than one call, for which nothing has been
    done.

    Args:
        plan: The handle of the plan of a CUDA kernel.
        device: The index of the GPU.
        operands: The values that are read, with the work that fills them.
        tensors: What the plan gets: parts of operands and whatever else it needs.
        sources: The source of each sample, for errors.
        rows: The number of samples of a call without operands.
    """
    # The context's stream, on which the kernel must run; torch's current stream may have filled an operand.
    ours = launch_stream(device)
    theirs, (stream, torch_stream) = _current_stream(device), ours.both
    captured = _is_capturing()
    # The one needs events between the streams, the other a place in the queue: neither is a single native call. The native function takes six
    # tensors, without a list of them that it would have to copy.
    if (captured and theirs != stream) or ((device, stream) in queues and is_queued(device, stream)) or len(tensors) > _MAX_TENSORS:
        return NOT_ONE_CALL
    before, unrecorded = -1, None
    for operand in operands:
        values, pending = operand.buffer, operand.pending
        if pending is None:
            if theirs != stream and values.is_cuda:  # filled on torch's current stream
                before = theirs
                if operand.recorded_on != stream:
                    unrecorded = [operand] if unrecorded is None else [*unrecorded, operand]
        elif not pending.stays:
            if operand._pending_work() is not None:  # per-sample arguments, which the launcher reads on the host
                return NOT_ONE_CALL
        # Work on another stream is often an upload. To switch streams would take 14 us more.
        elif type(pending) is not StreamWork or (
            pending.raw_stream != stream and (captured or pending.captured or values.get_device() != device or not pending.join(torch_stream))
        ):
            return NOT_ONE_CALL
        if operand.caller_owned:
            return NOT_ONE_CALL
    if shutdown.exiting:
        shutdown.park_daemon()
    output, handle = _again_on_stream(plan, device, stream, before, rows, *tensors)
    if handle:
        finish_call(handle, EvalMode.sync_cpu, [], sources)
    # Torch's allocator must not reuse this memory before our stream has read it. It is told once for each batch: it keeps the stream until the memory
    # is freed, and telling it takes 1.4 us, 20 with cold caches.
    if unrecorded is not None:
        for operand in unrecorded:
            operand.buffer.record_stream(torch_stream)
            operand.recorded_on = stream
    if output is None:
        return None, None
    work = StreamWork(torch_stream, (output,), None, ours, captured)
    if thread_state.mode == EvalMode.sync_full:
        ours.synchronize()
    return output, work
