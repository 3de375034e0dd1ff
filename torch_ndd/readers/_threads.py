# SPDX-License-Identifier: Apache-2.0
"""Readers whose samples are produced by Python libraries on threads."""

import os
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from typing import Any, ClassVar

import numpy as np
import torch

from .._core.process.fork_locks import new_lock
from .._core.process.workers import Workers, is_here
from .._core.values.batch import Batch, empty_packed, new_batch
from .._core.values.extents import find_lasting_extents
from .._core.values.foreign import stack_arrays, stack_tensors
from .._core.work.bad_samples import UnreadableSamples
from ..io._urls import reason_of
from ._base import Reader
from ._ranges.ranges import Sources

_ONE_THREAD = 1 << 15  # elements: tensors with fewer are copied by the calling thread

Array = np.ndarray | torch.Tensor

# Libraries that release the GIL keep all cores busy; a few more threads than cores hide the latency of a disk or a network.
READING_THREADS = 2 + len(os.sched_getaffinity(0))
# A request to a server takes tens of milliseconds without any computation.
_WAITING_THREADS = 32

_process_lock = new_lock()


class ThreadedReader(Reader):
    """Base class of readers that define how to read one sample. Its threads end when it is collected."""

    _layouts: ClassVar[Sequence[str | None]] = ()
    """Layouts of the outputs; missing ones have none."""
    _executor: Workers | None = None
    _max_threads: int | None = None
    _remote = False
    """Whether samples come from URLs; known after :meth:`scan`."""

    def _read(self, sample: int) -> Sequence[Array]:
        """Return the outputs of one sample, on a thread. Any Exception makes it a bad sample."""
        raise NotImplementedError

    def _pool(self) -> Workers:
        if not is_here(self._executor):
            threads = _WAITING_THREADS if self._remote else READING_THREADS
            self._executor = Workers(min(threads, self._max_threads or threads), self._op, self)
        return self._executor

    def start(self, samples: np.ndarray) -> list[Future[Sequence[Array]]]:
        pool = self._pool()
        # Plain ints: NumPy's would reach the code of users and error messages.
        return [pool.submit(self._read, sample) for sample in samples.tolist()]

    def finish(self, request: list[Future[Sequence[Array]]], samples: np.ndarray) -> tuple[Batch, ...]:
        # The futures of a parent process are never fulfilled in a forked child.
        if not is_here(self._executor):
            request = self.start(samples)
        return self._join_samples([future.result for future in request], samples)

    def _join_samples(self, reads: Sequence[Callable[[], Sequence[Array]]], samples: np.ndarray) -> tuple[Batch, ...]:
        """Join samples into a batch; collect the reasons of all that failed."""
        reasons, rows = {}, []
        # Wait for all samples, even after a failure: one message then names every bad sample.
        for k, read in enumerate(reads):
            try:
                rows.append(read())
            except Exception as error:
                reasons[k] = reason_of(error)
        if reasons:
            raise UnreadableSamples(reasons)
        layouts = [*self._layouts, *[None] * (len(rows[0]) - len(self._layouts))]
        outputs = tuple(pack_samples(column, layout) for column, layout in zip(zip(*rows, strict=True), layouts, strict=True))
        outputs[0].sources = tuple(map(self._source, samples.tolist()))
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None}


class BatchThreadsReader(Reader):
    """Base class of readers that may get a batch in one call of Python, on a thread. Its threads end when it is collected."""

    _batch_threads: ClassVar[int] = 2
    """A batch is one task, and the libraries decode without the GIL: a second thread hides the disk."""
    _executor: Workers | None = None
    _process = 0

    def _read_batch(self, samples: np.ndarray) -> Any:
        """Return the outputs of some samples, on a thread: a dict of batches or a tuple. Raise UnreadableSamples for bad ones."""
        raise NotImplementedError

    def _forget_parent(self) -> None:
        """Forget what a forked child cannot use of its parent; called before the first batch of a process."""
        self._executor = None

    def start(self, samples: np.ndarray) -> Future[Any]:
        return self._submit(self._read_batch, samples)

    def _submit(self, read: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self._check_process()
        if self._executor is None:
            self._executor = Workers(self._batch_threads, self._op, self)
        return self._executor.submit(read, *arguments)

    def finish(self, request: Future[Any], samples: np.ndarray) -> Any:
        if self._process != os.getpid():
            request = self.start(samples)
        return self._name_samples(request.result(), samples)

    def read_samples(self, samples: np.ndarray) -> Any:
        self._check_process()
        return self._name_samples(self._read_batch(samples), samples)

    def _check_process(self) -> None:
        if self._process == os.getpid():
            return
        # The first batches of a process may be read by several threads: a second call would take the files of the first from under it.
        with _process_lock:
            if self._process != os.getpid():
                self._forget_parent()
                self._process = os.getpid()

    def _name_samples(self, outputs: Any, samples: np.ndarray | Sequence[int]) -> Any:
        for batch in outputs.values() if isinstance(outputs, dict) else outputs:
            batch.sources = Sources(self._source, samples)
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None, "_process": 0}


def pack_samples(samples: Sequence[Array], layout: str | None = None, what: str = "samples") -> Batch:
    """Copy arrays of one dtype and number of dimensions into a batch. ``what`` names them in errors."""
    if (stacked := stack_arrays(samples)) is not None:
        return new_batch(stacked, None, layout)
    # "C" and "W" copy only where needed: torch rejects negative strides and warns of read-only memory.
    tensors = [torch.from_numpy(np.require(sample, requirements=["C", "W"])) if isinstance(sample, np.ndarray) else sample for sample in samples]
    check_alike({(tensor.dtype, tensor.dim()) for tensor in tensors}, what)
    first = tensors[0]
    if (stacked := stack_tensors(tensors)) is not None:
        return new_batch(stacked, None, layout)
    shapes = [tensor.shape for tensor in tensors]
    batch = empty_packed(torch.tensor(shapes, dtype=torch.int64), first.dtype, first.device, layout, find_lasting_extents(shapes, layout))
    if batch.ragged_shapes is None and first.numel() < _ONE_THREAD:
        for row, tensor in zip(batch.buffer.unbind(), tensors, strict=True):
            row.copy_(tensor)
    else:
        _join(tensors, batch.buffer)
    return batch


def check_alike(kinds: Set[tuple[torch.dtype, int]], what: str = "samples") -> None:
    """Raise RuntimeError if the samples of a batch have several dtypes or numbers of dimensions."""
    if len(kinds) > 1:
        names = sorted(f"{str(dtype).removeprefix('torch.')} with {dims} dimensions" for dtype, dims in kinds)
        raise RuntimeError(f"{what} of one batch must have one type and number of dimensions, got {', '.join(names)}")


def _join(tensors: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Copy tensors one after the other, as bytes.

    torch.cat splits the copy among its threads and waits for them: 15 ms for 1.6 MB while all cores decode.
    """
    to, at = out.view(-1).view(torch.uint8).numpy(), 0
    for tensor in tensors:
        flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))  # a single element may have stride 0, which cannot be viewed as bytes
        data = flat.view(torch.uint8).numpy()
        to[at : at + len(data)] = data
        at += len(data)
