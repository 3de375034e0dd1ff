# SPDX-License-Identifier: Apache-2.0
"""A worker process of parallel sources: it calls sources and writes their arrays to shared memory."""

import atexit
import contextlib
import gc
import math
import mmap
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core import native
from ...readers.dataset._worker_processes import end_with_parent
from .. import tensors
from .sources import inspect_source

ALIGNMENT = 64  # bytes, of arrays in shared memory


class Task(NamedTuple):
    """The task of a worker: a batch, or some samples of one.

    Attributes:
        source: Number of the source.
        epoch: Number of restarts of the source, by which results of before a restart are recognized.
        number: Number of the batch.
        part: Number of this part of the batch.
        memory: Number of the shared memory for the result.
        calls: Arguments of each call of the source.
        per_sample: Whether each call gives a sample rather than a batch.
    """

    source: int
    epoch: int
    number: int
    part: int
    memory: int
    calls: Sequence[tuple[Any, ...]]
    per_sample: bool


class Placed(NamedTuple):
    """An array in shared memory."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class Result(NamedTuple):
    """The result of a worker.

    Attributes:
        source, epoch, number, part: See :class:`Task`.
        items: Placed arrays, in the structure that the source returned: one item for a batch, one for each sample.
        size: Bytes of shared memory that the arrays take.
        failed_at: Number of calls that had succeeded before one failed.
        error: Text of its exception; empty for StopIteration; None if all succeeded.
    """

    source: int
    epoch: int
    number: int
    part: int
    items: list[Any]
    size: int
    failed_at: int = 0
    error: str | None = None


class Memory:
    """Memory that processes share through a file without a name, which the system removes with the last process that has it open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    @staticmethod
    def create(size: int = 0) -> "Memory":
        """Return new memory."""
        memory = Memory(os.memfd_create("torch_ndd.dali source"))
        if size:
            os.ftruncate(memory.descriptor, size)
        return memory

    def reserve(self, size: int) -> mmap.mmap:
        """Return the mapped memory, enlarged to ``size`` bytes if necessary. Raise MemoryError or OSError if the system has too little."""
        if self._map is None or len(self._map) < size:
            before = os.fstat(self.descriptor).st_size
            if before < size:
                grown = max(size, before + before // 4)
                _check_free(grown - before)
                # Allocates the pages now: a page that is missing later ends the process with SIGBUS.
                os.posix_fallocate(self.descriptor, 0, grown - grown % -mmap.PAGESIZE)
            # The file may have grown in the other process too: map all of it.
            self._map = mmap.mmap(self.descriptor, 0)  # arrays over the old map keep it
        return self._map

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close the file; arrays over the memory stay valid."""
        self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _check_free(size: int) -> None:
    """Raise MemoryError if ``size`` bytes are not free: the system would kill processes, and not only this one, to get them."""
    native.check_memory(size, "what a parallel source returned")
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        values = dict(line.split(":", 1) for line in file)
        free = sum(int(values[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree") if key in values)
        if size > free:
            raise MemoryError(f"no memory for the {size} bytes that a parallel source returned; {free} are free")


class WorkerSource(NamedTuple):
    """A source as a worker needs it.

    Attributes:
        source, cycle: Arguments of ``external_source``.
        outputs: Number of outputs in an item; None if the item is the output itself.
    """

    source: Any
    cycle: Any
    outputs: int | None


def run(connection: Connection, descriptors: Sequence[Any], load: Callable[[], Sequence[WorkerSource]], parent: int, forked: bool) -> None:
    """Compute tasks until the parent ends or closes the connection.

    Args:
        connection: Receives tasks and sends results.
        descriptors: File descriptors of the shared memories: numbers, or objects with ``detach()`` in a spawned process.
        load: Returns the sources.
        parent: Process id of the parent.
        forked: Whether this process was forked rather than spawned.
    """
    if forked:
        # Inherited objects are never collected here: their finalizers may wait for threads that only the parent has.
        gc.freeze()
        gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, args=[parent], daemon=True).start()
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, and there are several workers
    memories = [Memory(descriptor if isinstance(descriptor, int) else descriptor.detach()) for descriptor in descriptors]
    failure = None
    sources: Sequence[WorkerSource] = ()
    calls: list[Callable[..., Any]] = []
    try:
        sources = load()
        calls = [_open_source(source) for source in sources]
    except BaseException:
        failure = traceback.format_exc()
    ended: dict[int, int] = {}  # by source: the epoch whose data has ended
    try:
        while True:
            task = Task(*connection.recv())
            # A source that could not be unpickled: every task reports it.
            if failure is not None:
                result = _failure(task, 0, failure)
            elif ended.get(task.source) == task.epoch:
                result = _failure(task, 0, "")
            else:
                result = _compute(task, calls[task.source], sources[task.source].outputs, memories[task.memory])
            if result.error == "":
                ended[task.source] = task.epoch
            connection.send(tuple(result))
            # Arrays of the user must not stay alive while the worker waits.
            del task, result
    except (EOFError, OSError):  # the parent has closed the connection, or ended
        pass
    if not forked:
        # Exit functions of the source's modules run, but not the finalization of the interpreter: with torch it takes 0.5 s of CPU time, for which
        # the parent would wait.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)


def _open_source(source: WorkerSource) -> Callable[..., Any]:
    description = inspect_source("external_source", source.source, source.cycle)
    assert description is not None
    return description.call


def _failure(task: Task, failed_at: int, error: str) -> Result:
    return Result(task.source, task.epoch, task.number, task.part, [], 0, failed_at, error)


def _compute(task: Task, call: Callable[..., Any], outputs: int | None, memory: Memory) -> Result:
    items: list[Any] = []
    try:
        for arguments in task.calls:
            items.append(_to_arrays(call(*arguments), outputs, task.per_sample))
        placed, size = _write(items, memory)
    except StopIteration:
        # An empty text stands for the end of the data.
        return _failure(task, len(items), "")
    except BaseException:
        return _failure(task, len(items), traceback.format_exc())
    return Result(task.source, task.epoch, task.number, task.part, placed, size)


def _to_arrays(item: Any, outputs: int | None, per_sample: bool) -> Any:
    """Return an item with NumPy arrays in place of all data. Raise TypeError for other data."""
    if outputs is not None:
        return [_to_arrays(item[k], None, per_sample) for k in range(outputs)]
    if not per_sample and isinstance(item, tensors.TensorListCPU):
        return item.as_array() if item.is_dense_tensor() else [item.at(i) for i in range(len(item))]
    if not per_sample and isinstance(item, list | tuple):
        return [_to_array(sample) for sample in item]
    return _to_array(item)


def _to_array(data: Any) -> np.ndarray:
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, torch.Tensor) and data.device.type == "cpu":
        return data.detach().numpy()
    if isinstance(data, tensors.TensorCPU):
        return np.asarray(data)
    raise TypeError(
        "a parallel source must return NumPy arrays, torch CPU tensors or TensorCPU objects (or, with batch=True, lists of them or a "
        f"TensorListCPU), got {'None' if data is None else f'a {type(data).__name__}'}"
    )


# Not nested in `_write`: a recursive closure is a cycle, which would keep the arrays until the garbage collector runs.
def _place(data: Any, arrays: list[np.ndarray], places: list[Placed]) -> Any:
    if isinstance(data, list):
        return [_place(part, arrays, places) for part in data]
    if data.dtype.hasobject or data.dtype.kind not in "biuf":
        raise TypeError(f"a source must return arrays of numbers, got the type {data.dtype}")
    # Arrays lie one after the other, aligned.
    end = places[-1].offset + arrays[-1].nbytes if places else 0
    placed = Placed(data.dtype.str, data.shape, end + -end % ALIGNMENT)
    arrays.append(data)
    places.append(placed)
    return tuple(placed)


def _write(items: Any, memory: Memory) -> tuple[Any, int]:
    """Write all arrays to shared memory. Return their places in the structure of ``items``, and the size."""
    arrays: list[np.ndarray] = []
    places: list[Placed] = []

    structure = _place(items, arrays, places)
    size = places[-1].offset + arrays[-1].nbytes if places else 0
    if size:
        shared = memory.reserve(size)
        for array, placed in zip(arrays, places, strict=True):
            np.copyto(view(shared, placed), array, casting="no")
    return structure, size


def view(shared: Any, placed: Placed) -> np.ndarray:
    """Return an array over shared memory."""
    count = math.prod(placed.shape)
    if not count:
        return np.empty(placed.shape, placed.dtype)
    return np.frombuffer(shared, placed.dtype, count, placed.offset).reshape(placed.shape)
