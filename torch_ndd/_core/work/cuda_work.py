# SPDX-License-Identifier: Apache-2.0
"""Work on CUDA streams: operators run on the stream of the current context, and the stream that uses a result waits on its CUDA event.

The host does not block. record_stream() informs torch's allocator of every stream that uses a tensor, so that memory is not reused too early.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..context import streams
from ..context.context import EvalMode, current_mode
from ..context.cuda import Stream
from ..process.weak import WeakValues
from .pending import Pending

_numbers = itertools.count(1)


class StreamWork(Pending):
    """The work of one call on a CUDA stream, in place of a :class:`Pending`."""

    stays = True  # each stream that uses the result has to wait

    def __init__(
        self, stream: torch.cuda.Stream, tensors: Sequence[torch.Tensor], event: torch.cuda.Event | None = None, owner: Stream | None = None
    ) -> None:
        self._stream = stream
        self._owner = owner  # of a stream of the user, which must exist when the event is recorded
        self._tensors = tensors
        self._captured = torch.cuda.is_current_stream_capturing()
        self._event = event
        self._joined: frozenset[int] = frozenset()
        self._handle = next(_numbers)  # after the launch: see _record_after()
        _alive[self._handle] = self

    def wait(self) -> None:
        """Make the current torch stream of the device wait for the work."""
        handle = torch._C._cuda_getCurrentRawStream(self._stream.device_index)
        if handle == self._stream.cuda_stream or handle in self._joined:
            return
        # Events do not order work inside a CUDA graph and outside: torch.cuda.graph() has waited for all work when the capture begins, and a replay
        # is work of the stream that replays.
        if self._captured or torch.cuda.is_current_stream_capturing():
            return
        event = self.event
        if event is None:
            return
        current = torch.cuda.current_stream(self._stream.device)
        current.wait_event(event)
        for tensor in self._tensors:
            tensor.record_stream(current)
        self._joined |= {handle}

    @property
    def captured(self) -> bool:
        """Whether it is part of a CUDA graph: its results are filled by replays."""
        return self._captured

    @property
    def raw_stream(self) -> int:
        """CUDA's handle of the stream that does the work; 0 for work of a graph, whose results belong to the stream of the replay."""
        return 0 if self._captured else self._stream.cuda_stream

    @property
    def event(self) -> torch.cuda.Event | None:
        """An event after the work, recorded when it is first asked for; None if the stream is being captured into a CUDA graph.

        Most results are only used on their own stream. ``torch.cuda.graph()`` waits for all work when a capture begins.
        """
        if self._event is None:
            self._event = _record_after(self._stream, self._handle)
        return self._event

    def done(self) -> bool:
        """Return False: other streams have to wait, whether the work has ended or not."""
        return False


_alive: WeakValues[StreamWork] = WeakValues()  # by handle

_MAX_EVENTS = 256
_latest_events: dict[tuple[int, int], tuple[int, torch.cuda.Event]] = {}  # of streams, by device and handle


def _record_after(stream: torch.cuda.Stream, number: int) -> torch.cuda.Event | None:
    """Return an event that follows the work of a number on its stream, which several results share if nothing was launched in between."""
    key = (stream.device_index, stream.cuda_stream)
    latest = _latest_events.get(key)
    if latest is not None and latest[0] > number:
        return latest[1]
    with Switch(stream):
        if torch.cuda.is_current_stream_capturing():  # an event of a capture would draw the stream that waits for it into the graph
            return None
    # Numbers are drawn after launches, but here before the event is recorded, so that it follows all work with smaller ones, of any thread.
    before = next(_numbers)
    event = record_event(stream)
    if len(_latest_events) >= _MAX_EVENTS:  # of streams of the user, which come and go
        _latest_events.clear()
    _latest_events[key] = (before, event)
    return event


# Copies values that were pending on a GPU when a compiled graph was called, after the work that fills them. A copy for the reason given at
# `ndd::waited_for`: nothing in the graph can read it too early.
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define("behind(Tensor values, SymInt handle) -> Tensor")


@torch.library.impl("ndd::behind", "CompositeExplicitAutograd", lib=_library)
def _(values: torch.Tensor, handle: int) -> torch.Tensor:
    if (pending := _alive.get(handle)) is not None:
        pending.wait()
    return values.clone()


@torch.library.register_fake("ndd::behind", lib=_library)
def _(values: torch.Tensor, handle: int) -> torch.Tensor:
    return torch.empty_like(values)


class DecodeWork(StreamWork):
    """Work that CPU threads issue to a stream, and ``event``, which the last of them records there."""

    def __init__(self, stream: torch.cuda.Stream, tensors: Sequence[torch.Tensor], event: torch.cuda.Event, host: Pending | None) -> None:
        super().__init__(stream, tensors, event)
        self._host = host

    def wait(self) -> None:
        """Wait until everything has been issued, which is the CPU's part of it; then like any launch. Raise the errors of the CPU's part."""
        if self._host is not None:
            self._host.wait()
        super().wait()


def record_event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Record an event after the work that is on the stream so far."""
    event = torch.cuda.Event()
    event.record(stream)
    return event


class on_stream:
    """Make the context's stream torch's current stream on ``device`` within this block, except while torch's is captured into a CUDA graph.

    Args:
        device: A CUDA device.
        used: The tensors that the block reads, with the work that fills them. Tensors without pending work belong to torch's current stream.
        external: Some of them belong to the user, who may overwrite them afterwards: torch's current stream waits for the block's work.
    """

    __slots__ = ("_device", "_external", "_foreign", "_guard", "_ours", "_theirs", "_used")

    def __init__(self, device: torch.device, used: Iterable[tuple[torch.Tensor, Pending | None]] = (), external: bool = False) -> None:
        self._device, self._used, self._external = device, used, external

    def __enter__(self) -> None:
        device = self._device
        ours = self._ours = other_launch_stream(device)
        if ours is None:
            return
        self._foreign = [
            tensor for tensor, pending in self._used if tensor.device == device and (not isinstance(pending, StreamWork) or pending.captured)
        ]
        if self._foreign:
            self._theirs = torch.cuda.current_stream(device)
            ours.wait_stream(self._theirs)
        self._guard = Switch(ours)
        self._guard.__enter__()

    def __exit__(self, *error: Any) -> None:
        ours = self._ours
        if ours is not None:
            self._guard.__exit__(*error)
            for tensor in self._foreign:
                tensor.record_stream(ours)
            if self._external and self._foreign:
                self._theirs.wait_stream(ours)
        if error[0] is None and current_mode() == EvalMode.sync_full:
            (ours or torch.cuda.current_stream(self._device)).synchronize()


class Switch:
    """Switch streams like ``torch.cuda.stream``, in 2 us instead of 10 if the device stays the same."""

    __slots__ = ("_before", "_stream")

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        stream, index = self._stream, self._stream.device_index
        if torch._C._cuda_getDevice() == index:
            self._before = torch._C._cuda_getCurrentStream(index)
            torch._C._cuda_setStream(stream_id=stream.stream_id, device_index=index, device_type=stream.device_type)
        else:
            self._before = torch.cuda.stream(stream)
            self._before.__enter__()

    def __exit__(self, *error: Any) -> None:
        before = self._before
        if isinstance(before, tuple):
            torch._C._cuda_setStream(stream_id=before[0], device_index=before[1], device_type=before[2])
        else:
            before.__exit__(*error)


def is_current(stream: Stream) -> bool:
    """Return whether a stream is torch's current one of its device. Compared by handle: creating a stream object takes 3 us, switching 10."""
    return torch._C._cuda_getCurrentRawStream(stream.device_id) == stream.handle


def other_launch_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Return the context's stream; None if it is torch's current one, or that is captured into a CUDA graph: work stays there."""
    ours = streams.launch_stream(device.index)
    return None if is_current(ours) or torch.cuda.is_current_stream_capturing() else ours.torch


def stream_work(tensors: Sequence[torch.Tensor]) -> StreamWork:
    """Return the work launched within :func:`on_stream` to fill these tensors."""
    ours = streams.launch_stream(tensors[0].device.index)
    if is_current(ours):
        return StreamWork(ours.torch, tensors, owner=ours)
    return StreamWork(torch.cuda.current_stream(tensors[0].device), tensors)


_decode_streams: dict[int, torch.cuda.Stream] = {}


@contextlib.contextmanager
def on_decode_stream(device: torch.device) -> Iterator[None]:
    """Make the decoders' stream torch's current stream on ``device`` within this block.

    It is a separate one, so that decoding ahead does not delay the work of the context. Raise RuntimeError while torch's is captured into a CUDA
    graph, which has no part for the CPU.
    """
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("images cannot be decoded within a CUDA graph; decode before the capture, into a buffer that the graph reads")
    index = torch.cuda.current_device() if device.index is None else device.index
    stream = _decode_streams.get(index)
    if stream is None:
        stream = _decode_streams[index] = torch.cuda.Stream(index)
    with torch.cuda.stream(stream):
        yield
    if current_mode() == EvalMode.sync_full:
        stream.synchronize()


def decode_work(tensors: Sequence[torch.Tensor], event: torch.cuda.Event, host: Pending | None) -> DecodeWork:
    """Return the work that CPU threads issue to fill these tensors, within :func:`on_decode_stream`."""
    return DecodeWork(torch.cuda.current_stream(tensors[0].device), tensors, event, host)
