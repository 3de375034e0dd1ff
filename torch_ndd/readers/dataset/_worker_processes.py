# SPDX-License-Identifier: Apache-2.0
"""Processes that call the ``__getitem__`` of a data set, for data sets that hold the GIL."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import signal
import struct
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from io import BytesIO
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..._core.context.rng import using_rng
from ..._core.process.fork_locks import new_lock
from ..._core.process.workers import call_when_freed
from ..._core.suggestions import check_choice
from ._generators import follow_with_shared
from ._items import Failed, prepare_item
from ._segments import MIN_BYTES, SegmentReader, SegmentWriter, send_segment

StartMethod = Literal["fork", "spawn", "forkserver"]
Context = StartMethod | BaseContext

PARENT_CHECK_SECONDS = 0.5  # between checks that the parent is alive
EXIT_SECONDS = 2.0  # seconds for an idle process to end
EXIT_SECONDS_AT_END = 0.5  # seconds for a process to end after SIGTERM

MAX_FAILED_STARTS = 5  # in a row, of processes that a signal ends before they serve
_ENDED = "its worker processes have ended"


def check_context(op: str, context: Context | None) -> None:
    """Raise ValueError for a string that is not a start method, before the processes are needed."""
    if isinstance(context, str):
        check_choice(op, "multiprocessing_context", context, get_args(StartMethod), ValueError)


class RemoteError(Exception):
    """An error raised in a worker process; its text is the traceback there."""


class WorkerFailure(Exception):
    """An item that a worker process could not deliver."""


def _describe_failure(text: str, remote: str) -> Failed:
    error = WorkerFailure(text)
    error.__cause__ = RemoteError(f"\n{remote}")
    return Failed(error)


class _Group:
    """The processes of one :class:`Processes`, without a reference to it."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[Any, Connection]] = {}
        self.ended = False  # no process may be started
        self.lock = new_lock()
        self.parent = os.getpid()

    def stop(self) -> list[Any]:
        """Prevent further starts and close the connections, which ends idle processes. Return all processes."""
        if self.parent != os.getpid():  # in a forked child the processes are not children, and another thread may have held the lock
            return []
        with self.lock:
            # Set under the lock, so that a thread that is starting a process sees it before or is seen here.
            self.ended = True
            stopped = list(self.running.values())
            self.running.clear()
        for _, connection in stopped:
            connection.close()
        return [process for process, _ in stopped]

    def end(self) -> None:
        _kill(self.stop(), EXIT_SECONDS)

    def end_in_background(self) -> None:
        """End the processes in the background: many loaders may be collected together."""
        threading.Thread(target=self.end, daemon=True, name="torch_ndd end of workers").start()


_groups: "weakref.WeakSet[_Group]" = weakref.WeakSet()


def _kill(processes: Sequence[Any], patience: float) -> None:
    """Wait for processes to exit; kill those that do not."""
    end = time.monotonic() + patience
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


# Before the interpreter joins threads, which may wait for an item, and before the exit function of multiprocessing, which sends SIGTERM and waits
# without end: a data set may ignore it.
def _end_of_program() -> None:
    stopped = [process for group in list(_groups) for process in group.stop()]
    for process in stopped:
        process.terminate()
    _kill(stopped, EXIT_SECONDS_AT_END)


# Private, but the only hook before the interpreter joins its threads; concurrent.futures uses it too.
threading._register_atexit(_end_of_program)  # type: ignore[attr-defined]


class Processes:
    """Worker processes that end with ``owner``, with the interpreter, and with the parent process, even if that is killed.

    Args:
        context: ``"fork"``, ``"spawn"``, ``"forkserver"`` or a context of ``multiprocessing``.
        count: number of processes.
        dataset: the data set to index; each process has a copy.
        raw: return items as they are, for a ``collate_fn``.
        owner: the processes end when it is collected.

    Raises:
        TypeError: the data set cannot be pickled for processes that are not forked.
    """

    def __init__(self, context: Context, count: int, dataset: Any, raw: bool, owner: Any) -> None:
        self._context: Any = multiprocessing.get_context(context) if isinstance(context, str) else context
        self._dataset, self._raw = dataset, raw
        # Processes must not draw the same random numbers, also if the parent was seeded.
        self._seed = int.from_bytes(os.urandom(4), "little")
        self._group = _Group()
        _groups.add(self._group)
        self._segments: dict[int, SegmentReader] = {}
        # Numbers of idle processes: a thread takes one for the duration of an item.
        self._idle: SimpleQueue[int] = SimpleQueue()
        self._served: set[int] = set()  # processes that have begun to serve
        self._failed_starts = 0  # since the last process that began to serve
        self._failed: str | None = None  # reason for starting no further process
        try:
            for number in range(count):
                self._start(number)
                self._idle.put(number)
        except BaseException:
            self._group.end()
            raise
        call_when_freed(owner, self._group.end_in_background)

    def _start(self, number: int) -> None:
        ours, theirs = self._context.Pipe()
        forked = self._context.get_start_method() == "fork"
        # A forked child inherits the ends of the others: while it holds them, those do not learn that the parent has gone.
        inherited = [ours, *(connection for _, connection in self._group.running.values())] if forked else []
        arguments = (theirs, inherited, self._dataset, self._raw, self._seed + number, os.getpid())
        process = self._context.Process(target=serve, args=arguments, daemon=True, name=f"torch_ndd worker {number}")
        # Ctrl-C goes to all processes of a terminal: one that has not yet got as far as to ignore it would end. A fork server keeps its own signals.
        blocked = set() if self._context.get_start_method() == "forkserver" else {signal.SIGINT}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            ours.close()
            raise TypeError(
                f"the data set cannot be sent to a worker process: {error}; define its class and its functions in a module, "
                'or take multiprocessing_context="fork"'
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._group.running[number] = process, ours
        self._segments[number] = SegmentReader()

    def item(self, key: Any) -> Any:
        """Return an item of the data set, computed by an idle process. Raise WorkerFailure with its error, caused by its traceback."""
        (found,) = self.items([key])
        if type(found) is Failed:
            raise found.error
        return found

    def items(self, keys: Sequence[Any], seeds: Sequence[int] | None = None) -> list[Any]:
        """Return items, computed by an idle process, with a :class:`Failed` WorkerFailure in place of those that it could not deliver.

        With ``seeds`` all generators of the process are seeded before each item.
        """
        number = self._idle.get()
        try:
            answers = self._answer(number, list(keys), seeds)
        except WorkerFailure as error:
            if len(keys) == 1:
                return [Failed(error)]
            answers = None
        finally:
            self._idle.put(number)
        if answers is None:  # one of the items may have ended the process, which shows when each is asked for alone
            alone = [slice(k, k + 1) for k in range(len(keys))]
            return [item for part in alone for item in self.items(keys[part], None if seeds is None else seeds[part])]
        return [found if error is None else _describe_failure(*error) for found, error in answers]

    def _answer(self, number: int, keys: list[Any], seeds: Sequence[int] | None) -> Any:
        while True:
            if self._failed is not None:
                raise WorkerFailure(self._failed)
            with self._group.lock:
                if self._group.ended:
                    raise WorkerFailure(_ENDED)
                process, connection = self._group.running[number]
            try:
                # The first message of a process says that it serves; an end before that is a failed start, not the fault of an item.
                if number not in self._served:
                    connection.recv_bytes()
                    self._served.add(number)
                    self._failed_starts = 0
                connection.send((keys, seeds, self._segments[number].take_freed()))
                return _receive(connection, self._segments[number])
            # The process has ended: it was killed, ran out of memory, or crashed in the data set.
            except (EOFError, OSError):
                _kill([process], EXIT_SECONDS)
            served = number in self._served
            if not served:
                self._note_failed_start(process.exitcode)
            with self._group.lock:
                # A thread that waits for an item does not notice that the group ends; a new process would outlive it.
                if self._group.ended:
                    raise WorkerFailure(_ENDED)
                connection.close()
                self._served.discard(number)
                self._start(number)
            # An item may have crashed the process, so it counts as bad; a process that never served is replaced and asked again.
            if served:
                raise WorkerFailure(f"its worker process ended with {_ending(process.exitcode)}")

    def _note_failed_start(self, code: int | None) -> None:
        """Raise WorkerFailure, now and for all later items, if another process would end like one that ended before it served."""
        with self._group.lock:
            self._failed_starts += 1
            # An exit code means an error of the program itself, which would repeat; a signal may be a shortage of memory, which may pass.
            if self._failed is None and (code is None or code >= 0):
                self._failed = f"a worker process could not start: it ended with {_ending(code)}, see its standard error"
            if self._failed is None and self._failed_starts >= MAX_FAILED_STARTS:
                self._failed = (
                    f"{self._failed_starts} worker processes in a row could not start, the last one ended with {_ending(code)}: the system may have "
                    "too little memory for them (num_workers), or the data set crashes when it is unpickled"
                )
        if self._failed is not None:
            raise WorkerFailure(self._failed)


def _ending(code: int | None) -> str:
    """Describe how a process ended."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal
        return f"signal {-code}"


def serve(connection: Connection, inherited: Sequence[Connection], dataset: Any, raw: bool, seed: int, parent: int) -> None:
    """Answer requests for items until the parent closes the connection or is gone."""
    for other in inherited:
        other.close()
    threading.Thread(target=end_with_parent, args=[parent], daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    # Parallelism comes from the number of processes; threads in each would compete for the same cores.
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    connection.send_bytes(b"ready")
    segments = SegmentWriter()
    while True:
        try:
            keys, seeds, freed = connection.recv()
        except (EOFError, OSError):
            return
        segments.free(freed)
        with using_rng():
            answers = [_compute(dataset, key, raw) for key in (keys if seeds is None else follow_with_shared(dataset, keys, seeds))]
        try:
            message = _encode(answers)
        except Exception:  # an item that cannot be sent
            message = _encode([answer if error is None else (None, error) for answer in answers for error in [_error_of_sending(answer)]])
        try:
            _send(connection, segments, *message)
        except OSError:
            return


def _compute(dataset: Any, key: Any, raw: bool) -> tuple[Any, tuple[str, str] | None]:
    """Return an item, or the text and the traceback of its error."""
    try:
        return dataset[key] if raw else prepare_item(dataset[key]), None
    except Exception as error:
        return None, (describe_error(error), traceback.format_exc())


def _error_of_sending(answer: Any) -> tuple[str, str] | None:
    try:
        _encode(answer)
    except Exception as error:
        return describe_error(error), traceback.format_exc()
    return None


def end_with_parent(parent: int) -> None:
    """End this process when the one that started it, whose id is ``parent``, has ended; it may be computing, and so not waiting at the connection."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    # With a fork server, getppid() is the server; wait for the real parent's sentinel instead.
    starter = multiprocessing.parent_process()
    if starter is not None:  # the parent of this process was, or is, a fork server
        multiprocessing.connection.wait([starter.sentinel])
    os._exit(1)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Pickler(pickle.Pickler):
    """Sends tensor values out of band. torch's shared memory would leave files behind when a process is killed."""

    def reducer_override(self, obj: Any) -> Any:
        # Only plain tensors: subclasses and quantized or sparse ones have state that bytes do not carry.
        if type(obj) is torch.Tensor and obj.device.type == "cpu" and obj.layout == torch.strided and obj.dtype in _NUMPY_DTYPES:
            return torch.from_numpy, (np.ascontiguousarray(obj.detach().resolve_conj().resolve_neg().numpy()).reshape(obj.shape),)
        return NotImplemented


_NUMPY_DTYPES = frozenset(torch.from_numpy(np.zeros(1, kind)).dtype for kind in "?bBhHiIlLefdFD")


def _encode(value: Any) -> tuple[bytes, list[memoryview]]:
    buffers: list[pickle.PickleBuffer] = []
    stream = BytesIO()
    callback: Callable[[pickle.PickleBuffer], None] = buffers.append
    _Pickler(stream, 5, buffer_callback=callback).dump(value)
    return stream.getvalue(), [buffer.raw() for buffer in buffers]


def _send(connection: Connection, segments: SegmentWriter, message: bytes, buffers: list[memoryview]) -> None:
    sizes = [buffer.nbytes for buffer in buffers]
    written = segments.write(buffers) if sum(sizes) >= MIN_BYTES else None
    number, descriptor = (-1, -1) if written is None else written
    # The header: the segment of the buffers, whether it is new, the number of buffers and their sizes; then the pickle.
    connection.send_bytes(struct.pack(f"<{3 + len(sizes)}q", number, descriptor >= 0, len(sizes), *sizes) + message)
    if descriptor >= 0:
        send_segment(connection, descriptor)
    if number < 0:  # the buffers follow as messages of their own
        for buffer in buffers:
            if buffer.nbytes:
                connection.send_bytes(buffer)


def _receive(connection: Connection, segments: SegmentReader) -> Any:
    message = connection.recv_bytes()
    number, is_new, count = struct.unpack_from("<3q", message)
    sizes = struct.unpack_from(f"<{count}q", message, 24)
    # Unpickled arrays use this memory without a copy.
    buffers: list[Any]
    if is_new:
        try:
            segments.add(number, connection)
        except RuntimeError as error:  # of torch or multiprocessing: no descriptor or no address space is left
            raise WorkerFailure(f"the memory that it shares with its worker process could not be mapped: {error}") from error
    if number >= 0:
        buffers = segments.read(number, sizes)
    else:
        buffers = [bytearray(size) for size in sizes]
        for buffer in buffers:
            if buffer:
                connection.recv_bytes_into(buffer)
    return pickle.loads(memoryview(message)[8 * (3 + count) :], buffers=buffers)
