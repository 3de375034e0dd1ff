# SPDX-License-Identifier: Apache-2.0
"""Readers whose samples are produced by Python libraries on threads."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import numpy as np
import torch

from .._core.process.workers import Workers
from .._core.values.batch import Batch, empty_packed, new_batch
from .._core.values.extents import find_lasting_extents
from .._core.work.bad_samples import UnreadableSamples
from ..io._urls import reason_of
from ._base import Reader

Array = np.ndarray | torch.Tensor

# Libraries that release the GIL keep all cores busy; a few more threads than cores hide the latency of a disk or a network.
READING_THREADS = 2 + len(os.sched_getaffinity(0))
# A request to a server takes tens of milliseconds without any computation.
_WAITING_THREADS = 32


class ThreadedReader(Reader):
    """Base class of readers that define how one sample is read. Its threads end with it."""

    _layouts: ClassVar[Sequence[str | None]] = ()
    """Layouts of the outputs; missing ones have none."""
    _executor: Workers | None = None
    _process = 0
    _remote = False
    """Whether samples come from URLs; known after :meth:`_scan`."""

    def _read(self, sample: int) -> Sequence[Array]:
        """Return the outputs of one sample, on a thread. Any Exception makes it a bad sample."""
        raise NotImplementedError

    def _pool(self) -> Workers:
        if self._executor is None or self._process != os.getpid():  # a forked child has no threads
            self._executor, self._process = Workers(_WAITING_THREADS if self._remote else READING_THREADS, self._op, self), os.getpid()
        return self._executor

    def _start(self, samples: np.ndarray) -> list[Future[Sequence[Array]]]:
        pool = self._pool()
        return [pool.submit(self._read, sample) for sample in samples.tolist()]

    def _finish(self, request: list[Future[Sequence[Array]]], samples: np.ndarray) -> tuple[Batch, ...]:
        if self._process != os.getpid():
            request = self._start(samples)
        return self._together([future.result for future in request], samples)

    def _together(self, reads: Sequence[Callable[[], Sequence[Array]]], samples: np.ndarray) -> tuple[Batch, ...]:
        """Return a batch of the samples that were read."""
        reasons, rows = {}, []
        for k, read in enumerate(reads):
            try:
                rows.append(read())
            except Exception as error:
                reasons[k] = reason_of(error)
        if reasons:
            raise UnreadableSamples(reasons)
        layouts = [*self._layouts, *[None] * (len(rows[0]) - len(self._layouts))]
        outputs = tuple(packed(column, layout) for column, layout in zip(zip(*rows, strict=True), layouts, strict=True))
        outputs[0].sources = tuple(map(self._source, samples.tolist()))
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None}


def packed(samples: Sequence[Array], layout: str | None = None) -> Batch:
    """Copy arrays of one dtype and number of dimensions into a batch."""
    tensors = [torch.from_numpy(np.require(one, requirements=["C", "W"])) if isinstance(one, np.ndarray) else one for one in samples]
    if len({one.dtype for one in tensors}) > 1 or len({one.dim() for one in tensors}) > 1:
        kinds = sorted({f"{str(one.dtype).removeprefix('torch.')} with {one.dim()} dimensions" for one in tensors})
        raise RuntimeError(f"samples of one batch must have one type and number of dimensions, got {', '.join(kinds)}")
    first = tensors[0]
    if not first.dim():
        return new_batch(torch.stack(tensors), None, layout)
    shapes = [one.shape for one in tensors]
    made = empty_packed(torch.tensor(shapes, dtype=torch.int64), first.dtype, first.device, layout, find_lasting_extents(shapes, layout))
    _join(tensors, made.buffer)
    return made


def _join(tensors: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Copy tensors one after the other, as bytes. torch.cat shares a copy among its threads and waits for them: 15 ms for 1.6 MB while all decode."""
    to, at = out.view(-1).view(torch.uint8).numpy(), 0
    for one in tensors:
        flat = one.contiguous().as_strided((one.numel(),), (1,))  # the stride of a single element may be 0, which cannot be seen as bytes
        data = flat.view(torch.uint8).numpy()
        to[at : at + len(data)] = data
        at += len(data)
