# SPDX-License-Identifier: Apache-2.0
"""A worker process of parallel sources: computes what it is told and writes it to shared memory."""

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

from .._core import native
from ..readers.dataset._worker_processes import end_with_parent
from . import tensors
from ._sources import described

ALIGNMENT = 64  # bytes, of arrays in shared memory


class Task(NamedTuple):
    """The task of a worker: a batch, or some samples of one.

    Attributes:
        source: Number of the source.
        epoch: Counts the restarts of the source, to recognize what belongs to an epoch that is over.
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
        items: Placed arrays, in the structure of what the source returned: one item for a batch, one for each sample.
        size: Bytes of shared memory that were written.
        failed_at: How many calls had succeeded before one failed.
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
        made = Memory(os.memfd_create("torch_ndd.dali source"))
        if size:
            os.ftruncate(made.descriptor, size)
        return made

    def at_least(self, size: int) -> mmap.mmap:
        """Return the mapped memory, which grows if necessary. Raise MemoryError or OSError if there is no memory for it."""
        if self._map is None or len(self._map) < size:
            before = os.fstat(self.descriptor).st_size
            if before < size:
                grown = max(size, before + before // 4)
                _check_free(grown - before)
                # Reports a lack of memory in the file system, which would otherwise end the process.
                os.posix_fallocate(self.descriptor, 0, grown - grown % -mmap.PAGESIZE)
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
    """Raise MemoryError if ``size`` bytes are more than what is free: the system would end processes, and not only this one, to get it."""
    native.check_memory(size, "what a parallel source returned")
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        values = dict(line.split(":", 1) for line in file)
        free = sum(int(values[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree") if key in values)
        if size > free:
            raise MemoryError(f"no memory for {size} bytes, which a parallel source returned; {free} are free")


class Called(NamedTuple):
    """A source as a worker needs it.

    Attributes:
        source, cycle: As given to ``external_source``.
        outputs: Number of outputs in an item; None if it is one without a sequence around it.
    """

    source: Any
    cycle: Any
    outputs: int | None


def run(connection: Connection, descriptors: Sequence[Any], load: Callable[[], Sequence[Called]], parent: int, forked: bool) -> None:
    """Compute tasks until the parent ends or closes the connection.

    Args:
        connection: Gives tasks and takes results.
        descriptors: Of the shared memory: numbers, or what detaches them in a spawned process.
        load: Returns the sources.
        parent: Process id of the parent.
        forked: Whether this process was forked rather than spawned.
    """
    if forked:
        # What was inherited is never collected here: finalizers may wait for threads that only the parent has.
        gc.freeze()
        gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, args=[parent], daemon=True).start()
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, and there are several workers
    memories = [Memory(one if isinstance(one, int) else one.detach()) for one in descriptors]
    failure = None
    sources: Sequence[Called] = ()
    asks: list[Callable[..., Any]] = []
    try:
        sources = load()
        asks = [_ask(one) for one in sources]
    except BaseException:
        failure = traceback.format_exc()
    over: dict[int, int] = {}  # by source: the epoch whose data have ended
    try:
        while True:
            task = Task(*connection.recv())
            if failure is not None:
                result = _failed(task, 0, failure)
            elif over.get(task.source) == task.epoch:
                result = _failed(task, 0, "")
            else:
                result = _computed(task, asks[task.source], sources[task.source].outputs, memories[task.memory])
            if result.error == "":
                over[task.source] = task.epoch
            connection.send(tuple(result))
            del task, result
    except (EOFError, OSError):  # the parent has closed the connection, or ended
        pass
    if not forked:
        # The exit functions of the source's modules run. Taking down an interpreter with torch in it would take another 0.5 s of CPU time, in which
        # the parent waits, and after which it kills.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)


def _ask(called: Called) -> Callable[..., Any]:
    made = described("external_source", called.source, called.cycle)
    assert made is not None
    return made.ask


def _failed(task: Task, failed_at: int, error: str) -> Result:
    return Result(task.source, task.epoch, task.number, task.part, [], 0, failed_at, error)


def _computed(task: Task, ask: Callable[..., Any], outputs: int | None, memory: Memory) -> Result:
    items: list[Any] = []
    try:
        for arguments in task.calls:
            items.append(_arrays(ask(*arguments), outputs, task.per_sample))
        placed, size = _written(items, memory)
    except StopIteration:
        return _failed(task, len(items), "")
    except BaseException:
        return _failed(task, len(items), traceback.format_exc())
    return Result(task.source, task.epoch, task.number, task.part, placed, size)


def _arrays(item: Any, outputs: int | None, per_sample: bool) -> Any:
    """Return an item with NumPy arrays in the place of all data. Raise TypeError for anything that is no array."""
    if outputs is not None:
        return [_arrays(item[k], None, per_sample) for k in range(outputs)]
    if not per_sample and isinstance(item, tensors.TensorListCPU):
        return item.as_array() if item.is_dense_tensor() else [item.at(i) for i in range(len(item))]
    if not per_sample and isinstance(item, list | tuple):
        return [_array(one) for one in item]
    return _array(item)


def _array(data: Any) -> np.ndarray:
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, torch.Tensor) and data.device.type == "cpu":
        return data.detach().numpy()
    if isinstance(data, tensors.TensorCPU):
        return np.asarray(data)
    raise TypeError(
        "a parallel source must return NumPy arrays, torch tensors of the CPU or TensorCPU objects (or, with batch=True, lists of them or a "
        f"TensorListCPU), got {'None' if data is None else f'a {type(data).__name__}'}"
    )


# Not a function inside `_written`, whose cycle would hold the arrays until the garbage collector runs.
def _place(one: Any, arrays: list[np.ndarray], places: list[Placed]) -> Any:
    if isinstance(one, list):
        return [_place(part, arrays, places) for part in one]
    if one.dtype.hasobject or one.dtype.kind not in "biuf":
        raise TypeError(f"a source must return arrays of numbers, got the type {one.dtype}")
    end = places[-1].offset + arrays[-1].nbytes if places else 0
    placed = Placed(one.dtype.str, one.shape, end + -end % ALIGNMENT)
    arrays.append(one)
    places.append(placed)
    return tuple(placed)


def _written(items: Any, memory: Memory) -> tuple[Any, int]:
    """Write all arrays to shared memory. Return their places in the structure of ``items``, and the size."""
    arrays: list[np.ndarray] = []
    places: list[Placed] = []

    structure = _place(items, arrays, places)
    size = places[-1].offset + arrays[-1].nbytes if places else 0
    if size:
        shared = memory.at_least(size)
        for array, placed in zip(arrays, places, strict=True):
            np.copyto(view(shared, placed), array, casting="no")
    return structure, size


def view(shared: Any, placed: Placed) -> np.ndarray:
    """Return an array over shared memory."""
    count = math.prod(placed.shape)
    if not count:
        return np.empty(placed.shape, placed.dtype)
    return np.frombuffer(shared, placed.dtype, count, placed.offset).reshape(placed.shape)
