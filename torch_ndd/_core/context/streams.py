# SPDX-License-Identifier: Apache-2.0
"""CUDA streams of the process, of threads, and of the context that a thread has entered."""

import os
import threading
from typing import Any, Protocol

from .cuda import Stream, stream
from .device import Device, gpu_count


class HasStream(Protocol):
    """A context, as far as streams are concerned."""

    @property
    def device_id(self) -> int | None:
        """The GPU; None if the context is for the CPU only."""
        ...

    @property
    def cuda_stream(self) -> Stream | None:
        """Stream of GPU operators."""
        ...


class _Local(threading.local):
    def __init__(self) -> None:
        self.entered: list[Any] = []  # contexts, innermost last
        self.streams: dict[int, Stream] = {}  # set_current_stream
        # Streams of default contexts, with the number of changes of the default stream at their creation.
        self.own: dict[int, tuple[int, Stream]] = {}


local = _Local()


def entered_context() -> Any:
    """Return the innermost context that the calling thread has entered; None outside any."""
    return local.entered[-1] if local.entered else None


_default_streams: dict[int, Stream] = {}
_default_changes: dict[int, int] = {}


def _stream_device(device_id: int | None) -> int | None:
    """Return a GPU by its number, by default the current one; None on a machine without a GPU."""
    if not gpu_count():
        return None
    return Device("gpu", device_id).device_id


def set_default_stream(cuda_stream: Any, /, device_id: int | None = None) -> None:
    """Set the CUDA stream of the default context of every thread that has not set its own; None clears it.

    Args:
        cuda_stream: Anything that :func:`stream` takes.
        device_id: The GPU; by default that of the stream, else the current device.

    Raises:
        ValueError: the stream is on another GPU.
        RuntimeError: a stream, but no usable GPU.
    """
    new_stream = stream(stream=cuda_stream, device_id=device_id)
    device = _stream_device(device_id) if new_stream is None else new_stream.device_id
    if device is None:
        return
    if new_stream is None:
        _default_streams.pop(device, None)
    else:
        _default_streams[device] = new_stream
    # Threads notice by the count that their own stream is from before the change.
    _default_changes[device] = _default_changes.get(device, 0) + 1


def get_default_stream(device_id: int | None = None) -> Stream | None:
    """Return the stream set by :func:`set_default_stream` for a GPU, by default the current one; None if none is set.

    >>> get_default_stream() is None
    True
    """
    device = _stream_device(device_id)
    return None if device is None else _default_streams.get(device)


def set_current_stream(cuda_stream: Any, /) -> None:
    """Set the CUDA stream of the calling thread's default context, and of its new contexts; None clears it.

    There is no synchronization: work queued before may run at the same time as work on the new stream.

    Raises:
        ValueError: the stream is not on the current device.
        RuntimeError: a stream, but no usable GPU.
    """
    device = _stream_device(None) if Device.current().device_id is None else Device.current().device_id
    new_stream = stream(stream=cuda_stream, device_id=device)
    if device is None:
        return
    if new_stream is None:
        local.streams.pop(device, None)
    else:
        local.streams[device] = new_stream
    local.own.pop(device, None)


def get_current_stream() -> Stream | None:
    """Return the CUDA stream of the calling thread's default context; None if no GPU can be used.

    >>> get_current_stream() is None or get_current_stream().device_id == Device.current().device_id
    True
    """
    device_id = Device.current().device_id
    return None if device_id is None else thread_stream(device_id)


def find_set_stream(device_id: int) -> Stream | None:
    """Return the stream set for the thread or the process; None if none is set."""
    # What the thread has set precedes what the process has.
    return local.streams.get(device_id) or _default_streams.get(device_id)


def thread_stream(device_id: int) -> Stream:
    """Return the stream of this thread's default context for a GPU: the one that was set, else its own, which it keeps until one is set."""
    if (local.streams or _default_streams) and (found := find_set_stream(device_id)) is not None:
        return found
    changes = _default_changes.get(device_id, 0)
    own = local.own.get(device_id)
    if own is None or own[0] != changes:
        own = local.own[device_id] = (changes, Stream(device_id=device_id))
    return own[1]


def launch_stream(device_id: int) -> Stream:
    """Return the stream for GPU work: the current context's, or the thread's own if the context is for another GPU."""
    if local.entered:  # as entered_context(): every call on a GPU comes here
        context = local.entered[-1]
        if context.device_id == device_id and (found := context.cuda_stream) is not None:
            return found
    # The usual case of thread_stream(), without its call.
    own = local.own.get(device_id)
    if own is not None and own[0] == _default_changes.get(device_id, 0) and not (local.streams or _default_streams):
        return own[1]
    return thread_stream(device_id)


def context_stream() -> Stream | None:
    """Return the stream of the calling thread's current context."""
    context: HasStream | None = entered_context()
    return get_current_stream() if context is None else context.cuda_stream


def _in_child() -> None:
    """Reset the state after a fork: streams belong to the parent's CUDA."""
    _default_streams.clear()
    for held in (local.streams, local.own):
        held.clear()


os.register_at_fork(after_in_child=_in_child)
