# SPDX-License-Identifier: Apache-2.0
"""Values of LMDB databases in key order, found by native code (csrc/readers/lmdb.cpp explains why not by LMDB itself)."""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import torch

from ..._core.values.batch import Batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import is_url
from .._options import LoaderOptions
from .._ranges.ranges import Path, RangeRequest, Ranges, as_paths, pack_paths, packed_batch
from .._ranges.records import LMDB, scan
from .._threads import BatchThreadsReader, pack_samples


class _Database(NamedTuple):
    """A database: its path and its keys."""

    file: str
    stamp: tuple[int, int, int]  # of the file when it was scanned
    keys: bytes
    offsets: np.ndarray


def _stamp(file: str) -> tuple[int, int, int]:
    found = os.stat(file)
    # Inode, size and time: a writer changes pages in place, so that recorded offsets may point to anything.
    return found.st_ino, found.st_size, found.st_mtime_ns


class LmdbReader(BatchThreadsReader):
    """Base class of readers of the values of some databases; subclasses decode a value."""

    _batch_threads = 1  # parsing messages needs the GIL: one task per sample took 6 times as long as one per batch

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

    def start(self, samples: np.ndarray) -> "Future[tuple[Batch, ...]]":
        assert self._ranges is not None
        # Bytes are read ahead by native threads; only parsing waits for the Python thread.
        return self._submit(self._read, self._ranges.start(samples), samples)

    def _read_batch(self, samples: np.ndarray) -> tuple[Batch, ...]:
        assert self._ranges is not None
        return self._read(self._ranges.start(samples), samples)

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

    def _read(self, request: RangeRequest, samples: np.ndarray) -> tuple[Batch, ...]:
        ((values, lengths),) = request.parts()
        reasons = self._find_changed(samples)  # after reading: whatever is unchanged now was read unchanged
        if reasons:
            raise UnreadableSamples(reasons)
        rows = []
        content, ends = values.numpy().data, np.cumsum(lengths).tolist()
        for k, (length, end) in enumerate(zip(lengths.tolist(), ends, strict=True)):
            try:
                rows.append(self._parse(content[end - length : end]))
            except Exception as error:
                reasons[k] = str(error) or type(error).__name__
        if reasons:
            raise UnreadableSamples(reasons)
        return tuple(map(_pack, zip(*rows, strict=True)))

    def _parse(self, value: memoryview) -> Sequence[np.ndarray]:
        """Return the outputs of one value; they may share its memory. Raise ValueError for a damaged value."""
        raise NotImplementedError


def _pack(arrays: Sequence[np.ndarray]) -> Batch:
    if any(array.ndim != 1 or array.dtype != arrays[0].dtype for array in arrays):
        # pack_samples handles images of more dimensions, and reports mixed dtypes.
        return pack_samples(arrays)
    return packed_batch(torch.from_numpy(np.concatenate(arrays)), np.fromiter(map(len, arrays), np.int64, len(arrays)))
