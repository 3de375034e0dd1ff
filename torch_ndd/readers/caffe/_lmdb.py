# SPDX-License-Identifier: Apache-2.0
"""Values of LMDB databases in key order, found by native code (csrc/readers/lmdb.cpp explains why not by LMDB itself)."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from ..._core import native
from ..._core.values.batch import Batch, new_batch, ragged_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import is_url
from .._base import Reader
from .._options import LoaderOptions
from .._ranges.ranges import Path, Ranges, RecordRequest, Sources, as_paths, pack_paths, packed_batch
from .._ranges.records import LMDB, scan
from .._threads import check_alike

_INT32 = native.numbers("caffe.Element")["int32"]


class _Database(NamedTuple):
    """A database: its path and its keys."""

    file: str
    stamp: tuple[int, int, int]  # of the file when it was scanned
    keys: bytes
    offsets: np.ndarray


def _stamp(file: str) -> tuple[int, int, int]:
    found = os.stat(file)
    # Inode, size and time: a writer changes pages in place, so recorded offsets may point to anything.
    return found.st_ino, found.st_size, found.st_mtime_ns


class LmdbReader(Reader):
    """Base class of readers of messages in the values of some databases, which native threads read and parse."""

    def __init__(self, max_batch_size: int | None, device: object, path: Path | Sequence[Path], options: LoaderOptions) -> None:
        super().__init__(max_batch_size, device, options)  # type: ignore[arg-type]
        self._paths = as_paths(path)
        self._databases: list[_Database] | None = None
        self._begins = np.zeros(1, np.int64)  # first sample of each database, and the total
        self._ranges: Ranges | None = None

    def scan(self) -> int:
        if self._databases is None:
            for path in self._paths:
                if is_url(path):
                    raise RuntimeError(f'{self._op}: path "{path}" is a URL, but the keys of an LMDB database lie all over it: download it')
            databases, begins, lengths = [], [], []
            for path in self._paths:
                file = os.path.join(path, "data.mdb") if os.path.isdir(path) else path
                try:
                    stamp, found = _stamp(file), scan(LMDB, file)
                except OSError as error:
                    raise RuntimeError(f'{self._op}: LMDB database "{path}" cannot be read: {error.strerror}') from None
                except RuntimeError as error:
                    raise RuntimeError(f"{self._op}: LMDB database {error}") from None
                databases.append(_Database(file, stamp, found.names, found.name_offsets))
                begins.append(found.begin)
                lengths.append(found.length)
            counts = list(map(len, begins))
            if not sum(counts):
                raise RuntimeError(f"{self._op}: No samples found in {', '.join(self._paths) or 'an empty list of paths'}")
            files = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            self._ranges = Ranges(b"", *pack_paths([database.file for database in databases]), files, np.concatenate(begins), np.concatenate(lengths))
            self._begins = np.cumsum([0, *counts])
            self._databases = databases
        return int(self._begins[-1])

    def _database_of(self, sample: int) -> int:
        return int(np.searchsorted(self._begins, sample, "right")) - 1

    def _source(self, sample: int) -> str:
        assert self._databases is not None
        number = self._database_of(sample)
        database, k = self._databases[number], sample - self._begins[number]
        return f"{self._paths[number]} at key {database.keys[database.offsets[k] : database.offsets[k + 1]].decode(errors='replace')}"

    def _find_changed(self, samples: np.ndarray) -> dict[int, str]:
        """Return the samples whose database was modified: a later tree may have other data at the recorded positions."""
        assert self._databases is not None
        number = np.searchsorted(self._begins, samples, "right") - 1
        reasons: dict[int, str] = {}
        for k in np.unique(number).tolist():
            database = self._databases[k]
            try:
                same = _stamp(database.file) == database.stamp
                reason = "the database was written to, or replaced, since its keys were read: create a new reader"
            except OSError as error:
                same, reason = False, str(error.strerror)
            if not same:
                reasons |= dict.fromkeys(np.flatnonzero(number == k).tolist(), reason)
        return reasons

    def start(self, samples: np.ndarray) -> RecordRequest:
        assert self._ranges is not None
        return self._begin_request(self._ranges, samples)

    def finish(self, request: RecordRequest, samples: np.ndarray) -> tuple[Batch, ...]:
        reasons: dict[int, str] = {}
        try:
            request.wait()
        except UnreadableSamples as bad:
            reasons = bad.reasons
        # Checked after reading: an unchanged file was read unchanged, and a changed one explains a message that looks damaged.
        reasons |= self._find_changed(samples)
        if reasons:
            raise UnreadableSamples(reasons)
        outputs = self._join(request)
        for batch in outputs:
            batch.sources = Sources(self._source, samples)
        return outputs

    def _begin_request(self, ranges: Ranges, samples: np.ndarray) -> RecordRequest:
        """Return a request for the outputs of some values."""
        raise NotImplementedError

    def _join(self, request: RecordRequest) -> tuple[Batch, ...]:
        """Return the outputs of a finished request. Raise UnreadableSamples for values that do not have what was asked for."""
        raise NotImplementedError


def join_images(request: RecordRequest, form: np.ndarray) -> Batch:
    """Return the images, the first output; ``form`` has the number of dimensions of each, 1 or 3, and three extents."""
    values, lengths = request.output(0)
    dims = form[:, 0]
    check_alike({(torch.uint8, count) for count in np.unique(dims).tolist()})
    if not len(dims) or dims[0] == 1:
        return packed_batch(values, lengths)
    shapes = np.ascontiguousarray(form[:, 1:])
    if (shapes == shapes[0]).all():
        return new_batch(values.view(len(shapes), *shapes[0].tolist()))
    return ragged_batch(values, shapes)


class Numbers(NamedTuple):
    """An output of numbers, float32 or int32, those of each sample one after the other."""

    values: torch.Tensor  # bytes
    counts: np.ndarray
    integers: np.ndarray
    """Whether the numbers of each sample are int32."""

    @staticmethod
    def of(request: RecordRequest, output: int, kinds: np.ndarray) -> "Numbers":
        """Return an output of a finished request. ``kinds`` has the type of each sample's numbers."""
        values, lengths = request.output(output)
        return Numbers(values, lengths // 4, kinds == _INT32)

    def join(self) -> Batch:
        """Return the numbers as a batch."""
        kinds = [torch.int32 if whole else torch.float32 for whole in np.unique(self.integers).tolist()]
        check_alike({(kind, 1) for kind in kinds})
        return packed_batch(self.values.view(*kinds), self.counts)

    def array(self) -> np.ndarray:
        """Return the numbers of all samples, whatever their types."""
        if self.integers.all():
            return self.values.view(torch.int32).numpy()
        integers = np.repeat(self.integers, self.counts)
        return np.where(integers, self.values.view(torch.int32).numpy(), self.values.view(torch.float32).numpy().astype(np.float64))


def form_of(request: RecordRequest, output: int, width: int) -> np.ndarray:
    """Return the numbers that say how to interpret the outputs, int64 (samples, width)."""
    return request.output(output)[0].view(torch.int64).numpy().reshape(-1, width)
