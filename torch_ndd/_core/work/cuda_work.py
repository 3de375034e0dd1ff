# SPDX-License-Identifier: Apache-2.0
"""Work on CUDA streams: operators run on the stream of the current context, and the stream that uses a result waits on its CUDA event.

The host does not block. record_stream() informs torch's allocator of every stream that uses a tensor, so memory is not reused too early.

A launch whose inputs are still being issued by CPU threads is issued by such a thread too, in the order of the program (:class:`LaunchQueue`).
"""

import contextlib
import ctypes
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .. import native
from ..context import streams
from ..context.context import EvalMode, thread_state
from ..context.cuda import Stream, new_torch_stream
from ..process.weak import WeakValues
from .pending import Pending

_numbers = itertools.count(1)


class StreamWork(Pending):
    """The work of one call on a CUDA stream, in place of a :class:`Pending`."""

    stays = True  # each stream that uses the result has to wait
    _event: torch.cuda.Event | None = None
    _joined: frozenset[int] = frozenset()  # handles of streams that wait for the work

    def __init__(
        self,
        stream: torch.cuda.Stream,
        tensors: Sequence[torch.Tensor],
        event: torch.cuda.Event | None = None,
        owner: Stream | None = None,
        captured: bool | None = None,  # whether torch's current stream is being captured, if the caller knows
    ) -> None:
        self._stream = stream
        self._owner = owner  # of a stream of the user, which must exist when the event is recorded
        self._tensors = tensors
        self._captured = torch.cuda.is_current_stream_capturing() if captured is None else captured
        if event is not None:
            self._event = event
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
        self.join(torch.cuda.current_stream(self._stream.device))

    def join(self, stream: torch.cuda.Stream) -> bool:
        """Make a stream of the same device wait for the work, where neither is captured into a CUDA graph. Return whether it does."""
        handle = stream.cuda_stream
        if handle in self._joined:
            return True
        event = self.event
        if event is None:
            return False
        stream.wait_event(event)
        for tensor in self._tensors:
            tensor.record_stream(stream)
        self._joined |= {handle}
        return True

    def find_unissued(self) -> "QueuedWork | None":
        """Make the current torch stream wait for the work; if CPU threads have not issued it, or could not, return it instead."""
        self.wait()
        return None

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
    # Numbers are drawn after launches, but here before the event is recorded, so it follows all work with smaller ones, of any thread.
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


class QueuedWork(StreamWork):
    """Work that CPU threads issue to a stream, and ``event``, which the last of them records there: decoding, and the launches that follow it."""

    def __init__(self, stream: torch.cuda.Stream, tensors: Sequence[torch.Tensor], event: torch.cuda.Event, host: Pending) -> None:
        super().__init__(stream, tensors, event)
        self.issued, self.host = event, host

    def wait(self) -> None:
        """Wait until everything has been issued, which is the CPU's part of it; then like any launch. Raise the errors of the CPU's part."""
        was_issued = self.host.has_ended()
        self.host.wait()
        if not was_issued and torch.cuda.is_current_stream_capturing():
            _wait_for_event(self.issued.cuda_event)  # torch.cuda.graph() could not wait for it when the capture began
        super().wait()

    def find_unissued(self) -> "QueuedWork | None":
        """See :meth:`StreamWork.find_unissued`."""
        # Work that has failed stays an input: its error belongs to the results, whether it came before or after the call that reads it.
        if self.host.done():
            self.wait()
            return None
        return self

    def use_later(self, stream: torch.cuda.Stream) -> None:
        """Tell torch's allocator of a queued launch that will use the values on another stream. It keeps them alive until then."""
        if stream.cuda_stream != self._stream.cuda_stream:
            for tensor in self._tensors:
                tensor.record_stream(stream)


_queue_launch = native.c_function("ndd_queue_launch")
_queue_no_launch = native.c_function("ndd_queue_no_launch")
_waits_for_python = native.c_function("ndd_waits_for_python")
_wait_for_event = native.c_function("ndd_wait_for_event")


class LaunchQueue:
    """The launches on a CUDA stream that CPU threads have yet to issue, in the order of the program.

    While there is one, all further launches on the stream join the queue.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        # Of threads that launch on the same stream; reentrant, because a finalizer may launch, too.
        self._lock = threading.RLock()
        # The latest is last. What a launch needs is kept until it has been issued, also if the program drops its result: its event, and those that it
        # waits for. (Tensors are owned by the native operation, which frees them earlier.)
        self._launches: deque[tuple[Pending, torch.cuda.Event, list[torch.cuda.Event]]] = deque()

    def is_empty(self) -> bool:
        """Return whether everything has been issued, and forget what has."""
        if not self._launches:
            return True
        with self._lock:
            while self._launches and self._launches[0][0].has_ended():
                self._launches.popleft()
            return not self._launches

    def drain(self) -> None:
        """Wait until everything has been issued. Errors are left to the results."""
        # It ends: a launch depends only on work of earlier calls, none of it by Python functions, and this thread can do that work itself.
        for host, _, _ in tuple(self._launches):
            host.wait_for_success()
        self.is_empty()

    def add(
        self,
        reads: Sequence[tuple[Pending, int]],
        call: Callable[[list[tuple[Pending, int]]], tuple[torch.Tensor | None, Pending | None]],
        filled: Sequence[torch.Tensor] = (),
    ) -> tuple[torch.Tensor | None, "QueuedWork | None"]:
        """Queue the kernel launch in ``call``. Return the output that ``call`` allocates, if any, and the work, which is None without a launch.

        Args:
            reads: The pending inputs of the launch.
            call: Launches the kernel once the given host work has ended. Returns the output, None if it allocates none, and the pending work.
            filled: The tensors that the kernel fills, unless ``call`` returns them.
        """
        event, awaited, hosts = record_event(self._stream), [], []
        for work, sample in reads:
            if isinstance(work, QueuedWork):
                work.use_later(self._stream)
                if work._stream.cuda_stream != self._stream.cuda_stream:
                    awaited.append(work.event)
                hosts.append((work.host, sample))
            else:
                hosts.append((work, sample))
        handles = (ctypes.c_void_p * len(awaited))(*[other.cuda_event for other in awaited])
        with self._lock:
            previous = self._launches[-1][0].handle if self._launches else None
            try:
                _queue_launch(self._stream.device_index, self._stream.cuda_stream, event.cuda_event, handles, len(awaited), previous)
                output, host = call(hosts)
            except BaseException:  # Ctrl-C may come after the launch has been queued
                _interrupted.append([event, *awaited])
                raise
            finally:
                _queue_no_launch()
            if host is None:
                return None, None
            self._launches.append((host, event, awaited))
        return output, QueuedWork(self._stream, filled if output is None else [output], event, host)


_interrupted: list[list[torch.cuda.Event]] = []  # events that a launch may still need
queues: dict[tuple[int, int], LaunchQueue] = {}  # by device and handle of the stream; kept, because another thread may be about to join one


def join_queue(reads: Sequence[tuple[Pending, int]], caller_owned: bool) -> LaunchQueue | None:
    """Return the queue that a launch on torch's current stream has to join; None if it is to be made now, for which this waits.

    A launch is made now if everything before it on its stream has been issued, and so have its inputs, and in these cases, which wait for that:

    - synchronous modes, and memory that the caller may overwrite after the call;
    - the stream is the program's current stream, so the program's own work on it would overtake queued launches; a CUDA graph is being captured;
    - an input waits for a Python function, which may itself wait for a launch on this stream.
    """
    index = torch.cuda.current_device()
    handle = torch._C._cuda_getCurrentRawStream(index)
    queue = queues[index, handle] if is_queued(index, handle) else None
    if queue is None and not reads:
        return None
    makes_now = caller_owned or thread_state.mode >= EvalMode.sync_cpu or _local.stream != (index, handle)
    if makes_now or not all(can_run_later(work) for work, _ in reads):
        for work, _ in reads:
            work.wait()
        if queue is not None:
            queue.drain()
        return None
    return queue or queue_of(torch.cuda.current_stream(index))


def queue_of(stream: torch.cuda.Stream) -> LaunchQueue:
    """Return the queue of a stream on which the program itself does not work."""
    key = (stream.device_index, stream.cuda_stream)
    return queues.get(key) or queues.setdefault(key, LaunchQueue(stream))


def can_run_later(work: Pending) -> bool:
    """Return whether a launch may wait in a queue for work of the CPU: not for Python functions, which may themselves wait for launches."""
    host = work.host if isinstance(work, QueuedWork) else work
    return not _waits_for_python(host.handle)


def is_queued(device: int, stream: int) -> bool:
    """Return whether launches on a stream, given by its handle, have to join its queue."""
    queue = queues.get((device, stream))
    return queue is not None and not queue.is_empty()


def _in_child() -> None:
    """Forget the queues after a fork: the parent has issued everything before it, and the child cannot use CUDA."""
    queues.clear()


os.register_at_fork(after_in_child=_in_child)


class _Local(threading.local):
    stream: tuple[int, int] | None = None  # device and handle of the stream to which on_stream() has switched this thread


_local = _Local()


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
        caller_owned: Some of them belong to the user, who may overwrite them afterwards: torch's current stream waits for the block's work.
    """

    __slots__ = ("_before", "_caller_owned", "_device", "_foreign", "_guard", "_ours", "_theirs", "_used")

    def __init__(self, device: torch.device, used: Iterable[tuple[torch.Tensor, Pending | None]] = (), caller_owned: bool = False) -> None:
        self._device, self._used, self._caller_owned = device, used, caller_owned

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
        self._before, _local.stream = _local.stream, (ours.device_index, ours.cuda_stream)

    def __exit__(self, *error: Any) -> None:
        ours = self._ours
        if ours is not None:
            _local.stream = self._before
            self._guard.__exit__(*error)
            for tensor in self._foreign:
                tensor.record_stream(ours)
            if self._caller_owned and self._foreign:
                self._theirs.wait_stream(ours)
        if error[0] is None and thread_state.mode == EvalMode.sync_full:
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

    It is a separate stream, so decoding ahead does not delay the work of the context. Raise RuntimeError while torch's is captured into a CUDA
    graph, which has no part for the CPU.
    """
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("images and videos cannot be decoded within a CUDA graph; decode before the capture, into a buffer that the graph reads")
    index = torch.cuda.current_device() if device.index is None else device.index
    stream = _decode_streams.get(index)
    if stream is None:
        stream = _decode_streams[index] = new_torch_stream(index)
    with torch.cuda.stream(stream):
        yield
    if thread_state.mode == EvalMode.sync_full:
        stream.synchronize()


def decode_work(tensors: Sequence[torch.Tensor], event: torch.cuda.Event, host: Pending | None) -> StreamWork:
    """Return the work that CPU threads issue to fill these tensors, within :func:`on_decode_stream`; without ``host`` they have issued it."""
    stream = torch.cuda.current_stream(tensors[0].device)
    return StreamWork(stream, tensors, event) if host is None else QueuedWork(stream, tensors, event, host)
