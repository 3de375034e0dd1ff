# SPDX-License-Identifier: Apache-2.0
"""What operators work with: the number of threads, pools of threads, CUDA streams, and the contexts that hold them."""

import operator
import os
import threading
import weakref
from typing import Any

from torch.utils.data import get_worker_info

from . import _native
from ._checkpoint import Checkpoint
from ._cuda import Stream, stream
from ._device import Device, gpu_count, new_device
from ._weak import WeakValues


class _Local(threading.local):
    def __init__(self) -> None:
        self.entered: list[EvalContext] = []
        self.defaults: dict[int | None, EvalContext] = {}  # by GPU
        self.streams: dict[int, Stream] = {}  # set_current_stream
        self.own: dict[int, tuple[int, Stream]] = {}  # of default contexts: number of changes when it was made, stream
        self.changes: dict[int, int] = {}
        self.calls: WeakValues[Any] = WeakValues()  # those outside any context that was entered


_local = _Local()

# --- the number of threads ---


def _default_threads() -> int:
    text = os.environ.get("DALI_NUM_THREADS")
    if text:
        try:
            return checked_threads(int(text))
        except ValueError as error:
            raise ValueError(f"DALI_NUM_THREADS={text!r}: {error}") from None
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cpus // _processes_here())


def _processes_here() -> int:
    """How many processes share the CPUs: those that torchrun and its kin have started on this machine, times their DataLoader's workers."""
    text, worker = os.environ.get("LOCAL_WORLD_SIZE", ""), get_worker_info()
    ranks = int(text) if text.isdecimal() else 1
    return max(1, ranks, _Threads.sharing) * (1 if worker is None else worker.num_workers)


def checked_threads(number: Any, least: int = 1) -> int:
    """``number`` as an int. TypeError or ValueError unless it is a sensible number of threads."""
    try:
        if isinstance(number, bool):
            raise TypeError
        count = operator.index(number)
    except TypeError:
        raise TypeError(f"the number of threads must be an int, got {number!r}") from None
    cpus = os.cpu_count() or 1
    if not least <= count <= 100 * cpus:
        raise ValueError(f"the number of threads must be from {least} to {100 * cpus} (100 for each CPU), got {count}")
    return count


class ThreadPool:
    """Threads that work for the contexts that share it: so many tasks of theirs run at a time.

    Args:
        num_threads: How many; :func:`get_num_threads` by default. With 0 nothing starts by itself: whoever needs a result does the work.
        device_id: The GPU that the pool belongs to; the current device by default, None for none.

    Raises:
        TypeError: no int.
        ValueError: a negative number, one far above the CPUs, or a GPU that does not exist.

    >>> ThreadPool(2).num_threads
    2
    """

    def __init__(self, num_threads: int | None = None, *, device_id: int | None = -1) -> None:
        self._num_threads = get_num_threads() if num_threads is None else checked_threads(num_threads, 0)
        self._device_id = _gpu_or_none(device_id)
        self._handle = _native.pool_make(self._num_threads)
        self._owner = _native.owned(self._handle, _native.OF_POOL)

    @property
    def num_threads(self) -> int:
        """How many threads."""
        return self._num_threads

    @property
    def device_id(self) -> int | None:
        """The GPU that the pool belongs to; None for none."""
        return self._device_id

    @property
    def _most_running(self) -> int:
        """The most tasks that have run at a time."""
        return _native.pool_most_running(self._handle)

    def __repr__(self) -> str:
        return f"ThreadPool({self.num_threads}, device_id={self.device_id})"


def _gpu_or_none(device_id: int | None) -> int | None:
    if device_id is None:
        return None
    return Device.current().device_id if device_id == -1 else Device("gpu", device_id).device_id


class _Threads:
    """The number that :func:`set_num_threads` sets, and the pools of contexts without one of their own, by GPU."""

    sharing = 1  # processes on this machine, where somebody knows it who is not the environment

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.set(_default_threads(), chosen=False)

    def set(self, number: int, chosen: bool) -> None:
        with self.lock:
            self.number, self.chosen = number, chosen
            pool = ThreadPool(number, device_id=None)
            self.pools: dict[int | None, ThreadPool] = {None: pool}
            _native.pool_set_default(pool._handle)  # work that is queued keeps the pool of its call

    def pool(self, device_id: int | None) -> ThreadPool:
        with self.lock:
            if device_id not in self.pools:
                self.pools[device_id] = ThreadPool(self.number, device_id=device_id)
            return self.pools[device_id]


_threads = _Threads()


unsettled = True


def settle() -> None:
    """Take the default number of threads that is right by now. It is called before the first work of a process: at the import a DataLoader's worker
    does not know yet that it is one."""
    global unsettled
    unsettled = False
    if not _threads.chosen and (number := _default_threads()) != _threads.number:
        _threads.set(number, chosen=False)


def share_cpus(processes: int) -> None:
    """So many processes on this machine do the same work; the default number of threads follows."""
    _Threads.sharing = processes
    settle()


def get_num_threads() -> int:
    """Threads that CPU operators use: what :func:`set_num_threads` set, else ``DALI_NUM_THREADS``, else the part of this process in its CPUs.

    That is all of them, divided by ``LOCAL_WORLD_SIZE``, which ``torchrun`` sets to the number of processes that it starts on a machine, and in a
    worker of ``torch.utils.data.DataLoader`` by the number of workers. It is at least 1.
    """
    if unsettled:
        settle()
    return _threads.number


def set_num_threads(n: int | None) -> None:
    """Use so many threads for CPU operators from now on, in all contexts without a number of their own; None for the default.

    Calls that were made before keep the number of then.

    Raises:
        TypeError: no int.
        ValueError: below 1, or more than 100 for each CPU.

    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(None)
    """
    _threads.set(_default_threads() if n is None else checked_threads(n), chosen=n is not None)


# --- streams ---

_default_streams: dict[int, Stream] = {}
_default_changes: dict[int, int] = {}


def _stream_device(device_id: int | None) -> int | None:
    """The GPU meant; None on a machine without one."""
    if not gpu_count():
        return None
    return Device("gpu", device_id).device_id


def set_default_stream(cuda_stream: Any, /, device_id: int | None = None) -> None:
    """The CUDA stream of every thread's default context that has not set its own; None clears it.

    Args:
        cuda_stream: What :func:`stream` takes.
        device_id: The GPU; that of the stream by default, else the current device.

    Raises:
        ValueError: the stream is on another GPU.
        RuntimeError: a stream where no GPU can be used.
    """
    made = stream(stream=cuda_stream, device_id=device_id)
    device = _stream_device(device_id) if made is None else made.device_id
    if device is None:
        return
    if made is None:
        _default_streams.pop(device, None)
    else:
        _default_streams[device] = made
    _default_changes[device] = _default_changes.get(device, 0) + 1


def get_default_stream(device_id: int | None = None) -> Stream | None:
    """What :func:`set_default_stream` set for a GPU, by default the current one; None where nothing is set.

    >>> get_default_stream() is None
    True
    """
    device = _stream_device(device_id)
    return None if device is None else _default_streams.get(device)


def set_current_stream(cuda_stream: Any, /) -> None:
    """The CUDA stream of the calling thread's default context, and of contexts made from now on in this thread; None clears it.

    Nothing waits: work that was queued before may run at the same time as work on the new stream.

    Raises:
        ValueError: the stream is not on the current device.
        RuntimeError: a stream where no GPU can be used.
    """
    device = _stream_device(None) if Device.current().device_id is None else Device.current().device_id
    made = stream(stream=cuda_stream, device_id=device)
    if device is None:
        return
    if made is None:
        _local.streams.pop(device, None)
    else:
        _local.streams[device] = made
    _local.changes[device] = _local.changes.get(device, 0) + 1


def get_current_stream() -> Stream | None:
    """The CUDA stream of the calling thread's default context; None where no GPU can be used.

    >>> get_current_stream() is EvalContext.default().cuda_stream
    True
    """
    return EvalContext.default().cuda_stream


def _set_stream(device_id: int) -> Stream | None:
    return _local.streams.get(device_id) or _default_streams.get(device_id)


def thread_stream(device_id: int) -> Stream:
    """The stream of this thread's default context for a GPU: what was set, else one of its own, which stays until something is set."""
    if (found := _set_stream(device_id)) is not None:
        return found
    changes = _default_changes.get(device_id, 0) + _local.changes.get(device_id, 0)
    own = _local.own.get(device_id)
    if own is None or own[0] != changes:
        own = _local.own[device_id] = (changes, Stream(device_id=device_id))
    return own[1]


# --- contexts ---


class EvalContext:
    """The resources that the operators of a thread use: CPU threads, a GPU and a CUDA stream on it.

    A context manager, for one thread at a time, which may enter it again. An operator uses the context that is current when it is called.

    Args:
        num_threads: CPU threads of the context's own; :func:`get_num_threads`, shared with other contexts, by default.
        device_id: The GPU; that of ``cuda_stream`` or the current device by default.
        cuda_stream: Where GPU operators run; by default the stream that was set for the thread or for the process, else a new one.
        thread_pool: A pool to share, instead of ``num_threads``.

    Raises:
        ValueError: ``num_threads`` together with ``thread_pool``, or a pool, a stream or a number that belongs to another GPU.
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
        given = stream(stream=cuda_stream, device_id=device_id)
        if given is not None:
            device_id = given.device_id
        self._device = Device.current() if device_id is None else Device("gpu", device_id)
        if thread_pool is not None and thread_pool.device_id != self.device_id:
            raise ValueError(f"Device ID clash: the thread pool belongs to GPU {thread_pool.device_id}, the context to {self.device_id}")
        self._pool = ThreadPool(num_threads, device_id=self.device_id) if num_threads is not None else thread_pool
        self._stream = given
        if given is None and self.device_id is not None:
            self._stream = _set_stream(self.device_id) or Stream(device_id=self.device_id)
        self._is_default = False
        self._calls: WeakValues[Any] = WeakValues()  # those whose work may not have ended
        self._prepare()

    def _prepare(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._registered: list[Any] = []
        self._checkpoint = Checkpoint()

    @property
    def device_id(self) -> int | None:
        """The GPU; None where the context is for the CPU only."""
        return self._device.device_id

    @property
    def thread_pool(self) -> ThreadPool:
        """The CPU threads."""
        if unsettled:
            settle()
        return _threads.pool(self.device_id) if self._pool is None else self._pool

    @property
    def num_threads(self) -> int:
        """How many CPU threads; follows :func:`set_num_threads` unless the context was made with a number or a pool."""
        return self.thread_pool.num_threads

    @property
    def cuda_stream(self) -> Stream | None:
        """Where GPU operators run; None where the context is for the CPU only."""
        if self._is_default and self.device_id is not None:
            return thread_stream(self.device_id)
        return self._stream

    @property
    def checkpoint(self) -> Checkpoint:
        """A checkpoint of the context's own; ``clear()`` it before another program uses the same context."""
        return self._checkpoint

    @staticmethod
    def default() -> "EvalContext":
        """The context of the calling thread for its current device when none is entered."""
        device_id = Device.current().device_id
        found = _local.defaults.get(device_id)
        if found is None:
            found = _local.defaults[device_id] = _new_default(device_id)
        return found

    @staticmethod
    def current() -> "EvalContext":
        """The innermost context entered in the calling thread, else the default one."""
        return _local.entered[-1] if _local.entered else EvalContext.default()

    def cache_results(self, invocation: Any, results: Any) -> None:
        """Does nothing, as in DALI, which reserves it: results are kept by the values that the operators return."""

    def cached_results(self, invocation: Any) -> None:
        """Always None; see :meth:`cache_results`."""

    def _add_invocation(self, invocation: Any, weak: bool = True) -> None:
        """Have :meth:`evaluate_all` call ``invocation.run(context)``; ``weak``: only if somebody else still holds it then."""
        self._registered.append(weakref.ref(invocation) if weak else lambda: invocation)

    def evaluate_all(self) -> None:
        """Return when the work of all calls made in this context whose results are in use is done. Raises the first error that was not raised yet."""
        self._run_registered()
        for call in sorted(self._calls, key=lambda call: call.number):
            if not call.raised:
                call.wait()

    def _run_registered(self) -> None:
        registered, self._registered = self._registered, []
        for reference in registered:
            if (invocation := reference()) is not None:
                invocation.run(self)

    def __enter__(self) -> "EvalContext":
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("An EvalContext cannot be active in two threads simultaneously.")
        try:
            self._device.__enter__()
        except BaseException:
            self._lock.release()
            raise
        self._depth += 1
        _local.entered.append(self)
        _enter_pool()
        return self

    def __exit__(self, *error: object) -> None:
        if self._depth == 0:
            raise RuntimeError("EvalContext: exit without enter")
        try:
            if self._depth == 1 and error[:1] in ((), (None,)):
                self._run_registered()
        finally:
            self._depth -= 1
            _local.entered.pop()
            _enter_pool()
            self._device.__exit__()
            self._lock.release()

    def __repr__(self) -> str:
        return f"EvalContext(num_threads={self.num_threads}, device_id={self.device_id}, cuda_stream={self.cuda_stream})"


def _new_default(device_id: int | None) -> EvalContext:
    made = EvalContext.__new__(EvalContext)
    made._device, made._pool, made._stream, made._is_default, made._calls = new_device(device_id), None, None, True, _local.calls
    made._prepare()
    return made


def _enter_pool() -> None:
    pool = _local.entered[-1]._pool if _local.entered else None
    _native.pool_enter(None if pool is None else pool._handle)


def register(call: Any) -> None:
    """Have the current context's :meth:`EvalContext.evaluate_all` wait for a call, as long as its result is in use."""
    (_local.entered[-1]._calls if _local.entered else _local.calls)[id(call)] = call


def unregister(call: Any) -> None:
    """Undo :func:`register`."""
    (_local.entered[-1]._calls if _local.entered else _local.calls).pop(id(call))


def known_calls() -> list[Any]:
    """The calls of the calling thread whose results are in use."""
    return [call for calls in (_local.calls, *(context._calls for context in _local.entered)) for call in calls]


def launch_stream(device_id: int) -> Stream:
    """Where work for a GPU goes: the current context's stream, or the thread's own where the context is for another GPU."""
    context = _local.entered[-1] if _local.entered else None
    if context is not None and context.device_id == device_id and context.cuda_stream is not None:
        return context.cuda_stream
    return thread_stream(device_id)


Checkpoint.current_stream = staticmethod(lambda: EvalContext.current().cuda_stream)


def _in_child() -> None:
    """After a fork: locks may be held by threads that the child does not have, and streams belong to the parent's CUDA."""
    global unsettled
    unsettled = True
    _threads.lock = threading.Lock()
    _default_streams.clear()
    for held in (_local.streams, _local.own):
        held.clear()
    for context in (*_local.defaults.values(), *_local.entered):
        depth, context._lock = context._depth, threading.RLock()
        for _ in range(depth):
            context._lock.acquire()


os.register_at_fork(after_in_child=_in_child)
