# SPDX-License-Identifier: Apache-2.0
"""The worker processes of a pipeline's parallel sources, seen from the parent process."""

import _thread
import atexit
import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from typing import Any, Literal, NamedTuple, get_args

from ..._core.process.weak import WeakValues
from ..._core.process.workers import call_soon
from ..._core.suggestions import check_choice
from .. import pickling
from .worker import Memory, Placed, Result, Task, WorkerSource, run, view

StartMethod = Literal["fork", "spawn"]
_GRACE_SECONDS = 0.5  # for a worker to end after its connection was closed, before it is killed
_KILLED_SECONDS = 5  # for the system to end a killed worker: it may wait for a broken disk
_LOST_SECONDS = 10  # delay of a Ctrl-C, at most, until the main thread leaves functions in which it would be lost

# The parent's ends of all connections. A process forked from the parent must not keep them open: the workers would not notice the parent's end.
_ends: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _close_in_child() -> None:
    for connection in list(_ends):
        connection.close()
    _ends.clear()


os.register_at_fork(after_in_child=_close_in_child)

_pools: "WeakValues[WorkerPool]" = WeakValues()  # by id


# Before the interpreter joins threads, which may wait for a worker, and before the exit function of multiprocessing, which sends SIGTERM and waits
# without end: a worker may ignore the signal, by a handler of its source or because it was forked within a lock.
def _end_of_program() -> None:
    for pool in _pools:
        pool.close()


threading._register_atexit(_end_of_program)  # type: ignore[attr-defined]


# Ctrl-C may have interrupted that function, or one before it. This one runs before that of multiprocessing too, and takes no time.
def _kill_all() -> None:
    for pool in _pools:
        pool.kill()


atexit.register(_kill_all)


def _interrupt_main() -> None:
    """Interrupt the main thread as soon as it is outside ``__del__``, where Python would discard the exception."""
    end = time.monotonic() + _LOST_SECONDS
    while time.monotonic() < end:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and frame.f_code.co_name != "__del__":
            frame = frame.f_back
        if frame is None:
            break
        time.sleep(0.001)
    _thread.interrupt_main()


class Layout(NamedTuple):
    """The shared memory of a source.

    Attributes:
        slots: Number of batches in shared memory at a time.
        parts: Parts of a batch, each computed by one worker.
        samples: Largest number of samples in a part.
        size: Expected size of a part in bytes.
    """

    slots: int
    parts: int
    samples: int
    size: int = 0


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the garbage collector during a fork: the child must not finalize objects of the parent before it has frozen them (``run``)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class WorkerPool:
    """Processes that call sources.

    Attributes:
        ended: Whether the processes have ended and nothing is left to close.

    Args:
        sources: The sources that they call.
        layouts: The shared memory of each source.
        workers: Number of processes.
        start_method: ``"fork"`` or ``"spawn"``.
        pickler: ``py_callback_pickler`` of the pipeline.

    Raises:
        ValueError: an unknown start method.
        RuntimeError: no workers.
    """

    def __init__(self, sources: Sequence[WorkerSource], layouts: Sequence[Layout], workers: int, start_method: str, pickler: Any = None) -> None:
        if workers < 1:
            raise RuntimeError(f"Pipeline: py_num_workers must be positive, because there are parallel sources; got {workers}")
        check_choice("Pipeline", "py_start_method", start_method, get_args(StartMethod), ValueError)
        self._process = os.getpid()
        # Three places close a pool: the end of the program, the deletion of the pipeline, and the thread for pipelines that were garbage.
        # Reentrant, because a garbage collection in one of them may delete the pipeline.
        self._closing = threading.RLock()
        self._broken: str | None = None
        self.ended = False
        self._arrived: dict[tuple[int, int, int, int], Result] = {}
        self._expected: set[tuple[int, int, int, int]] = set()
        self._layouts = list(layouts)
        self._first_memory: list[int] = []  # by source: the index of its first memory
        self._memories: list[Memory] = []
        self._count = workers
        self._workers: list[BaseProcess] = []
        self._connections: list[Connection] = []
        _pools[id(self)] = self
        try:
            for layout in layouts:
                self._first_memory.append(len(self._memories))
                self._memories += [Memory.create(layout.size) for _ in range(layout.slots * layout.parts)]
            self._start(workers, start_method, _loader(sources, start_method, pickler))
        except BaseException:
            self.close()
            raise

    def _start(self, workers: int, start_method: str, load: Callable[[], Sequence[WorkerSource]]) -> None:
        context: Any = multiprocessing.get_context(start_method)
        spawned = start_method == "spawn"
        for number in range(workers):
            ours, theirs = multiprocessing.Pipe()
            _ends.add(ours)
            self._connections.append(ours)
            descriptors = [_PassedDescriptor(memory.descriptor) if spawned else memory.descriptor for memory in self._memories]
            arguments = (theirs, descriptors, load, os.getpid(), not spawned)
            process = context.Process(target=run, args=arguments, name=f"torch_ndd.dali source worker {number}", daemon=True)
            with theirs, warnings.catch_warnings(), _no_collection():
                # Python 3.12 and later warn about a fork while threads run. The child uses none of the locks of those threads.
                warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
                process.start()
            self._workers.append(process)

    @property
    def count(self) -> int:
        """Number of processes."""
        return self._count

    @property
    def processes(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._workers if process.pid is not None]

    def capacities(self) -> list[int]:
        """Return the sizes of all shared memories, in bytes."""
        return [memory.size for memory in self._memories]

    def samples(self) -> list[int]:
        """Return the largest number of samples in each shared memory."""
        return [layout.samples for layout in self._layouts for _ in range(layout.slots * layout.parts)]

    def send(self, worker: int, source: int, epoch: int, number: int, part: int, calls: Sequence[tuple[Any, ...]], per_sample: bool) -> None:
        """Send a worker a part of a batch to compute."""
        self._check()
        layout = self._layouts[source]
        memory = self._first_memory[source] + number % layout.slots * layout.parts + part
        self._expected.add((source, epoch, number, part))
        try:
            self._connections[worker].send(tuple(Task(source, epoch, number, part, memory, calls, per_sample)))
        except OSError:
            self._break(self._describe_death(worker))

    def receive(self, source: int, epoch: int, number: int) -> list[Result]:
        """Wait for all parts of a batch and return them. Raise RuntimeError if a worker has died."""
        keys = [(source, epoch, number, part) for part in range(self._layouts[source].parts)]
        while any(key in self._expected for key in keys):
            self._receive_some()
        return [self._arrived.pop(key) for key in keys]

    def drop(self, source: int) -> None:
        """Drain and discard the outstanding results of a source: their memory will be written again."""
        while any(key[0] == source for key in self._expected):
            self._receive_some()
        for key in [key for key in self._arrived if key[0] == source]:
            del self._arrived[key]

    def items(self, source: int, result: Result) -> list[Any]:
        """Return the items of a result, with arrays over shared memory, which are valid until the memory is written again."""
        layout = self._layouts[source]
        # Slots are used in turn, so results are valid while the next ones are computed.
        memory = self._memories[self._first_memory[source] + result.number % layout.slots * layout.parts + result.part]
        shared = memory.reserve(result.size) if result.size else None
        return _view_items(shared, result.items)

    def _receive_some(self) -> None:
        self._check()
        # Sentinels too: a dead worker sends nothing, and its connection may stay open in another fork.
        sentinels = {item.sentinel: k for k, item in enumerate(self._workers)}
        ready = multiprocessing.connection.wait([*self._connections, *sentinels])
        for k, connection in enumerate(self._connections):
            if connection in ready:
                self._receive_from(k)
        # A worker that ended after it sent its result is not an error: its message is read first.
        dead = [sentinels[item] for item in ready if isinstance(item, int) and not self._connections[sentinels[item]].poll()]
        if dead:
            self._break(self._describe_death(dead[0]))

    def _receive_from(self, worker: int) -> None:
        try:
            result = Result(*self._connections[worker].recv())
        except (EOFError, OSError):
            self._break(self._describe_death(worker))
        except BaseException:  # Ctrl-C in the middle of a message
            self._broken = "the worker processes of parallel sources were interrupted; build the pipeline again"
            self.close()
            raise
        key = result[:4]
        self._expected.discard(key)
        self._arrived[key] = result

    def _describe_death(self, worker: int) -> str:
        process = self._workers[worker]
        process.join(5)
        code = process.exitcode
        how = "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with the exit code {code}"
        return (
            f"worker process {process.pid} of the parallel sources {how} while it was computing: a source crashed or ended it, or the system "
            "ran out of memory. The pipeline cannot continue"
        )

    def _break(self, reason: str) -> None:
        self._broken = reason
        self.close()
        raise RuntimeError(f"Pipeline: {reason}")

    def _check(self) -> None:
        if self._broken is not None:
            raise RuntimeError(f"Pipeline: {self._broken}")
        if self._process != os.getpid():
            raise RuntimeError("Pipeline: the worker processes of parallel sources belong to the process that started them, not to this fork of it")

    def close(self) -> None:
        """End the processes, after a grace period by force. This takes at most some seconds."""
        if self.ended or self._process != os.getpid():
            return
        with self._closing:
            self._close()

    def close_uninterrupted(self) -> None:
        """Do the same as :meth:`close` where Python discards exceptions: a Ctrl-C meanwhile interrupts the main thread afterwards."""
        try:
            self.close()
        except KeyboardInterrupt:
            call_soon(_interrupt_main)

    def kill(self) -> None:
        """Kill the remaining processes without waiting for their end."""
        # In a forked child these are not children, and their ids may belong to other processes.
        if self._process == os.getpid():
            for process in self._workers:
                process.kill()

    def _close(self) -> None:
        if self._broken is None:
            self._broken = "the worker processes of parallel sources have ended"
        for item in self._connections:
            _ends.discard(item)  # first: the number of a closed descriptor may be in use again
            item.close()
        end = time.monotonic() + _GRACE_SECONDS
        for process in self._workers:
            process.join(max(0.0, end - time.monotonic()))
        self.kill()
        end = time.monotonic() + _KILLED_SECONDS
        for process in self._workers:
            process.join(max(0.0, end - time.monotonic()))
        self._workers.clear()  # closes their descriptors
        self._arrived.clear()
        for item in self._memories:
            item.close()
        self.ended = True


# Not nested in `items`: a recursive closure is a cycle, which would keep the memory until the garbage collector runs.
def _view_items(shared: Any, item: Any) -> Any:
    return [_view_items(shared, part) for part in item] if isinstance(item, list) else view(shared, Placed(*item))


class _PassedDescriptor:
    """A file descriptor that is duplicated into a spawned process by pickling this."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> Any:
        return _identity, (DupFd(self._descriptor),)


def _identity(value: Any) -> Any:
    return value


def _loader(sources: Sequence[WorkerSource], start_method: str, pickler: Any) -> Callable[[], Sequence[WorkerSource]]:
    """Return a function for a worker process that returns the sources."""
    if start_method == "fork":
        return partial(list, sources)
    # Pickled here, so a source that cannot be pickled raises in the user's thread. The user's pickler gets each source separately.
    dump = pickling.codec(pickler).dumps
    return partial(_load_sources, pickling.dumps(pickler), [(dump(source.source), source.cycle, source.outputs) for source in sources])


def _load_sources(pickler: bytes, sources: Sequence[tuple[bytes, Any, int | None]]) -> Sequence[WorkerSource]:
    load = pickling.codec(pickling.loads(pickler)).loads
    return [WorkerSource(load(data), cycle, outputs) for data, cycle, outputs in sources]
