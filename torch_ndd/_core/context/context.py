# SPDX-License-Identifier: Apache-2.0
"""What the operators of a thread use: the evaluation mode, and contexts of CPU threads, a GPU and a CUDA stream."""

import enum
import threading
import weakref
from typing import Any

from .. import native
from ..process.fork_locks import new_reentrant_lock
from ..process.weak import WeakValues
from . import streams
from .checkpoint import Checkpoint
from .cuda import Stream, stream
from .device import Device, new_device
from .pools import ThreadPool, default_pool


class EvalMode(enum.IntEnum):
    """When operators run. Members are context managers for the calling thread.

    ``deferred``: when a result is needed, if ever. ``eager`` (the default): immediately, on other threads; errors are raised when a result is used.
    ``sync_cpu``: before the call returns. ``sync_full``: likewise, and the CUDA stream is synchronized too.

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
        """Return the mode of the calling thread."""
        return thread_state.mode

    def __enter__(self) -> "EvalMode":
        # A member may be entered several times, by nested blocks, so the mode to return to cannot be an attribute of it.
        thread_state.modes.append(thread_state.mode)
        thread_state.mode = self
        return self

    def __exit__(self, *error: object) -> None:
        thread_state.mode = thread_state.modes.pop()


class _Local(threading.local):
    def __init__(self) -> None:
        self.mode = EvalMode.eager
        self.modes: list[EvalMode] = []  # to return to, innermost last
        self.defaults: dict[int | None, EvalContext] = {}  # by GPU
        self.calls: WeakValues[Any] = WeakValues()  # calls outside any entered context


thread_state = _Local()  # operators read its mode directly: each call would pay for a function


class EvalContext:
    """The resources that the operators of a thread use: CPU threads, a GPU and a CUDA stream on it.

    A context manager, for one thread at a time; that thread may enter it repeatedly. An operator uses the context that is current at its call.

    Args:
        num_threads: CPU threads of the context's own; by default :func:`get_num_threads`, shared with other contexts.
        device_id: The GPU; by default that of ``cuda_stream`` or the current device.
        cuda_stream: Stream of GPU operators; by default the one set for the thread or for the process, else a new one.
        thread_pool: A pool to share, instead of ``num_threads``.

    Raises:
        ValueError: ``num_threads`` together with ``thread_pool``, or a pool, a stream or a number of another GPU.
        TypeError: a wrong type.

    >>> with EvalContext(num_threads=3) as context:
    ...     EvalContext.current() is context, context.num_threads
    (True, 3)
    """

    def __init__(
        self,
        *,
        num_threads: int | None = None,
        device_id: int | None = None,
        cuda_stream: Any = None,
        thread_pool: ThreadPool | None = None,
    ) -> None:
        if num_threads is not None and thread_pool is not None:
            raise ValueError("EvalContext: thread_pool and num_threads cannot be specified together")
        if thread_pool is not None and not isinstance(thread_pool, ThreadPool):
            raise TypeError(f"EvalContext: thread_pool must be a ThreadPool, got {thread_pool!r}")
        new_stream = stream(stream=cuda_stream, device_id=device_id)
        # A stream determines the GPU, also for a context that was given no device.
        if new_stream is not None:
            device_id = new_stream.device_id
        self._device = Device.current() if device_id is None else Device("gpu", device_id)
        if thread_pool is not None and thread_pool.device_id != self.device_id:
            raise ValueError(f"Device ID clash: the thread pool belongs to GPU {thread_pool.device_id}, the context to {self.device_id}")
        self._pool = ThreadPool(num_threads, device_id=self.device_id) if num_threads is not None else thread_pool
        self._stream = new_stream
        # A stream set for the thread is used, and otherwise a new one: contexts run side by side unless the program wants them in one order.
        if new_stream is None and self.device_id is not None:
            self._stream = streams.find_set_stream(self.device_id) or Stream(device_id=self.device_id)
        self._is_default = False
        self._calls: WeakValues[Any] = WeakValues()  # calls whose work may not have ended
        self._prepare()

    def _prepare(self) -> None:
        self._lock = new_reentrant_lock()
        self._depth = 0
        self._registered: list[Any] = []
        self._checkpoint = Checkpoint()

    @property
    def device_id(self) -> int | None:
        """The GPU; None if the context is for the CPU only."""
        return self._device.device_id

    @property
    def own_pool(self) -> ThreadPool | None:
        """The thread pool of this context; None if it uses the default one.

        :meta private:
        """
        return self._pool

    @property
    def thread_pool(self) -> ThreadPool:
        """The CPU threads."""
        return default_pool(self.device_id) if self._pool is None else self._pool

    @property
    def num_threads(self) -> int:
        """Number of CPU threads; follows :func:`set_num_threads` unless the context was created with a number or a pool."""
        return self.thread_pool.num_threads

    @property
    def cuda_stream(self) -> Stream | None:
        """Stream of GPU operators; None if the context is for the CPU only."""
        # The program may set another stream for the thread at any time, which applies to its default context.
        if self._is_default and self.device_id is not None:
            return streams.thread_stream(self.device_id)
        return self._stream

    @property
    def checkpoint(self) -> Checkpoint:
        """A checkpoint owned by the context; ``clear()`` it before another program uses the same context."""
        return self._checkpoint

    @staticmethod
    def default() -> "EvalContext":
        """Return the context of the calling thread for its current device when none is entered."""
        device_id = Device.current().device_id
        # By GPU, because the current device of a thread may change.
        found = thread_state.defaults.get(device_id)
        if found is None:
            found = thread_state.defaults[device_id] = _new_default(device_id)
        return found

    @staticmethod
    def current() -> "EvalContext":
        """Return the innermost context entered in the calling thread, else the default one."""
        return streams.entered_context() or EvalContext.default()

    def cache_results(self, invocation: Any, results: Any) -> None:
        """Do nothing, like DALI, which reserves this method: results are kept by the values that operators return."""

    def cached_results(self, invocation: Any) -> None:
        """Return None; see :meth:`cache_results`."""

    def _add_invocation(self, invocation: Any, weak: bool = True) -> None:
        """Make :meth:`evaluate_all` call ``invocation.run(context)``; ``weak``: only if another object still holds it then."""
        self._registered.append(weakref.ref(invocation) if weak else lambda: invocation)

    def evaluate_all(self) -> None:
        """Wait for the work of all calls in this context whose results are in use. Raise the first error that was not raised yet."""
        self._run_invocations()
        # In the order of the calls, so the first error is the one that eager code would have raised.
        for call in sorted(self._calls, key=lambda call: call.number):
            call.wait_for_news()

    def _run_invocations(self) -> None:
        # Emptied first: a call that fails is not repeated, and one that registers another does so for the next time.
        registered, self._registered = self._registered, []
        for reference in registered:
            if (invocation := reference()) is not None:
                invocation.run(self)

    def __enter__(self) -> "EvalContext":
        # The lock is reentrant for the thread that has entered the context.
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("An EvalContext cannot be active in two threads simultaneously.")
        try:
            self._device.__enter__()
        except BaseException:
            self._lock.release()
            raise
        entered = streams.local.entered
        self._depth = entered.count(self) + 1  # counted and not added: a fork may have left an entry of a thread that the child lacks
        entered.append(self)
        _enter_pool(self._pool)
        return self

    def __exit__(self, *error: object) -> None:
        if self._depth == 0:
            raise RuntimeError("EvalContext: exit without enter")
        try:
            # Only the outermost exit runs them, and an error in the block would hide behind one of theirs.
            if self._depth == 1 and error[:1] in ((), (None,)):
                self._run_invocations()
        finally:
            self._depth -= 1
            entered = streams.local.entered
            entered.pop()
            _enter_pool(entered[-1]._pool if entered else None)
            self._device.__exit__()
            self._lock.release()

    def __repr__(self) -> str:
        return f"EvalContext(num_threads={self.num_threads}, device_id={self.device_id}, cuda_stream={self.cuda_stream})"


def _new_default(device_id: int | None) -> EvalContext:
    # Without __init__, which would create a stream and look for devices; the stream of a default context is found at each use.
    new = EvalContext.__new__(EvalContext)
    new._device, new._pool, new._stream, new._is_default, new._calls = new_device(device_id), None, None, True, thread_state.calls
    new._prepare()
    return new


def _enter_pool(pool: ThreadPool | None) -> None:
    # The native library starts the tasks of this thread's kernels in this pool.
    native.pool_enter(None if pool is None else pool._handle)


def register(call: Any) -> None:
    """Make the current context's :meth:`EvalContext.evaluate_all` wait for a call, as long as its result is in use."""
    # Weak and by id: calls are numerous, and one whose result was dropped must not keep its memory.
    (streams.local.entered[-1]._calls if streams.local.entered else thread_state.calls)[id(call)] = call


def unregister(call: Any) -> None:
    """Undo :func:`register`."""
    (streams.local.entered[-1]._calls if streams.local.entered else thread_state.calls).pop(id(call))


def known_calls() -> list[Any]:
    """Return the calls of the calling thread whose results are in use."""
    return [call for calls in (thread_state.calls, *(context._calls for context in streams.local.entered)) for call in calls]
