# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of files, and whole files, read ahead by native threads into packed batches."""

import ctypes
import glob
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from ..._core import native
from ..._core.process.workers import warn_of_refused_threads
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import UnreadableSamples
from ..._core.work.sources import Sources as Sources

Path = str | os.PathLike[str]

_range_bytes = torch.ops.ndd.range_bytes.default


class Ranges:
    """Numbered files, or byte ranges in files.

    Neither paths nor ranges are Python objects, because ten million of those would take gigabytes.

    Args:
        root: Common prefix of all paths; a folder ends with a slash.
        paths: The concatenated paths.
        path_offsets: Offsets of the paths in ``paths``, and its length, int64.
        file: The file of each range, int32; such files stay open for a while. None: range k is the whole file k.
        begin: The first byte of each, int64.
        length: Length of each in bytes, int64; -1 for the rest of the file.
    """

    def __init__(
        self,
        root: bytes,
        paths: bytes,
        path_offsets: np.ndarray,
        file: np.ndarray | None = None,
        begin: np.ndarray | None = None,
        length: np.ndarray | None = None,
    ) -> None:
        self.root, self.paths, self.path_offsets = root, paths, np.ascontiguousarray(path_offsets, np.int64)
        # Native code reads the table at this address for every batch; `path_offsets` keeps it alive.
        self.offsets_address = self.path_offsets.ctypes.data
        self.file, self.begin, self.length = file, begin, length
        self._files: OpenFiles | None = None

    @property
    def size(self) -> int:
        """Number of ranges."""
        return len(self.path_offsets) - 1 if self.file is None else len(self.file)

    def path(self, file: int) -> str:
        """Return the path of a file as Python has it: bytes that are not text become surrogates, with which ``open`` finds the file."""
        return os.fsdecode(self.root + self.paths[self.path_offsets[file] : self.path_offsets[file + 1]])

    def place(self, number: int) -> str:
        """Return where a range is, for messages."""
        if self.file is None:
            return self.path(number)
        path = self.path(int(self.file[number]))
        return path if self.begin is None else f"{path} at byte {self.begin[number]}"

    def start(self, numbers: np.ndarray) -> "RangeRequest":
        """Start reading some ranges: numbers (samples,), or (components, samples) for several batches. A negative number is an empty sample."""
        return RangeRequest(self, numbers)

    def start_heads(self, numbers: np.ndarray, size: int) -> "RangeRequest":
        """Start reading at most the first ``size`` bytes of whole files."""
        assert self.file is None
        return RangeRequest(self, numbers, size)

    def files(self) -> int | None:
        """Return the native handle of the open files; None for whole files."""
        if self.file is None:
            return None
        # Threads that hold locks of the parent's handle do not exist in a forked child, so it opens files of its own.
        if self._files is None or self._files.process != os.getpid():
            self._files = OpenFiles()
        return self._files.handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.offsets_address = self.path_offsets.ctypes.data


def start_files(tables: Sequence[Ranges], which: np.ndarray, numbers: np.ndarray) -> "RangeRequest":
    """Start reading whole files into one batch: sample k is file ``numbers[k]`` of table ``which[k]``."""
    # Addresses and lengths of the root and the rest of each path, which native code joins: 256 slices in Python took 100 us.
    count = len(which)
    begins, lengths = np.empty((count, 2), np.int64), np.empty((count, 2), np.int64)
    for k in np.unique(which).tolist():
        table, chosen = tables[k], np.flatnonzero(which == k)
        first, end = table.path_offsets[numbers[chosen]], table.path_offsets[numbers[chosen] + 1]
        begins[chosen, 0], begins[chosen, 1] = _address_of_bytes(table.root), _address_of_bytes(table.paths) + first
        lengths[chosen, 0], lengths[chosen, 1] = len(table.root), end - first
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths.sum(1), out=offsets[1:])
    joined = np.empty(offsets[-1], np.uint8)
    native.gather(None, 1, address_of(begins), address_of(lengths), 2 * count, address_of(joined))
    return Ranges(b"", joined.tobytes(), offsets).start(np.arange(count))


def _address_of_bytes(content: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


class OpenFiles:
    """The files that a reader keeps open; closed with this object."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.handle = native.open_files_make()
        self._owner = native.own_handle(self.handle, native.OF_FILES)


class NativeRequest:
    """A request that native threads are serving."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self._process = os.getpid()
        self._handle = self._begin()
        # A forked child must not release a request that threads of the parent are filling.
        self._owner = native.own_handle(self._handle, native.OF_READ, only_here=True)

    def _begin(self) -> int:
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until everything is read. Raise UnreadableSamples with the reason for each sample that could not be read."""
        if self._process != os.getpid():  # the child has no reading threads: begin again here
            # Of this class, not the subclass: the arguments are prepared already, only the request is started again.
            NativeRequest.__init__(self, self.samples)
        while (failed := native.read_wait(self._handle)) < 0:
            pass  # returns every 100 ms, so Python handles Ctrl-C
        warn_of_refused_threads()
        if failed:
            reasons: dict[int, str] = {}
            part = np.empty(1, np.int64)
            for k in range(failed):
                reason = native.read_failure(self._handle, k, part.ctypes.data).decode(errors="replace")
                # All components of a sample count as one: part % samples is its number, and its first reason is reported.
                reasons.setdefault(int(part[0]) % self.samples, reason)
            raise UnreadableSamples(reasons)


class Parts:
    """A request for each component of some samples, delivered as batches."""

    def finish(self) -> Batch:
        """Wait and return the bytes of the samples, uint8 (length,). Call once. Raise UnreadableSamples for samples that could not be read."""
        (batch,) = self.finish_all()
        return batch

    def finish_all(self) -> tuple[Batch, ...]:
        """Wait and return one batch per component."""
        return tuple(packed_batch(*part) for part in self.parts())

    def parts(self) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Return the concatenated bytes of all samples and their lengths, for each component."""
        raise NotImplementedError


class RangeRequest(Parts, NativeRequest):
    """Ranges that are being read, each component of the samples into a batch."""

    def __init__(self, ranges: Ranges, numbers: np.ndarray, most: int | None = None) -> None:
        self._ranges = ranges
        self._components = len(numbers) if numbers.ndim == 2 else 1
        # As bytes, which ctypes passes directly: taking the address of an array costs 20 us with cold caches.
        self._table: tuple[bytes | None, ...]
        if ranges.file is None:
            heads = None if most is None else np.full(numbers.shape, -1 - most, np.int64).tobytes()  # see check_range in csrc/readers
            self._table = (numbers.astype(np.int32).tobytes(), None, heads)
        else:
            # Without ranges all numbers are negative; an empty column cannot be indexed.
            columns = (column if column is None or ranges.size else np.zeros(1, column.dtype) for column in (ranges.begin, ranges.length))
            files = ranges.file[numbers] if ranges.size else np.zeros(numbers.shape, np.int32)
            # A negative number indexed an arbitrary file above; to native code, -1 means an empty sample.
            files[numbers < 0] = -1
            parts = [files, *(None if column is None else column[numbers] for column in columns)]
            kinds = (np.int32, np.int64, np.int64)
            self._table = tuple(None if part is None else part.astype(kind, copy=False).tobytes() for part, kind in zip(parts, kinds, strict=True))
        self._whole_files = numbers.ravel() if ranges.file is None else None
        super().__init__(numbers.shape[-1])

    @override
    def wait(self) -> None:
        try:
            super().wait()
        except UnreadableSamples as bad:
            if self._whole_files is not None:
                for sample, reason in bad.reasons.items():
                    bad.reasons[sample] = reason + _explain_missing(self._ranges.path(int(self._whole_files[sample])))
            raise

    def _native_ranges(self) -> tuple[Any, ...]:
        """Return the arguments of the native functions."""
        ranges = self._ranges
        return ranges.files(), ranges.root, ranges.paths, ranges.offsets_address, *self._table, self._components * self.samples

    def _begin(self) -> int:
        return native.ranges_start(*self._native_ranges(), self._components)

    def finish(self) -> Batch:
        """Wait and return the bytes of the samples, of which there is one component."""
        if self._components != 1:
            return super().finish()
        self.wait()
        # The native operator fills in the lengths and hands its buffer over without a copy.
        lengths = torch.empty((self.samples, 1), dtype=torch.int64)
        return _packed_batch(_range_bytes(self._handle, lengths), lengths)

    def parts(self) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Return the concatenated bytes of all samples and their lengths, for each component."""
        self.wait()
        # One allocation for both tables: native code writes lengths first, then offsets.
        lengths, offsets = tables = np.empty((2, self._components, self.samples), np.int64)
        address = address_of(tables)
        native.ranges_parts(self._handle, address, address + lengths.nbytes)
        data = _range_bytes(self._handle, None)
        if self._components == 1:
            return [(data, lengths[0])]
        # All components are in one buffer, one after the other.
        begins, ends = offsets[:, 0].tolist(), (offsets[:, -1] + lengths[:, -1]).tolist()
        return [(data[begin:end], row) for begin, end, row in zip(begins, ends, lengths, strict=True)]


class RecordRequest(RangeRequest):
    """Ranges that contain records, parsed by native threads."""

    def output(self, k: int) -> tuple[torch.Tensor, np.ndarray]:
        """Return the concatenated bytes of output k of all samples and their lengths. Call after :meth:`wait`, once per output."""
        lengths = np.empty(self.samples, np.int64)
        native.record_bytes(self._handle, k, lengths.ctypes.data)
        return torch.ops.ndd.record_output(self._handle, k), lengths


def _explain_missing(path: str) -> str:
    """Return what a path is that names no file, for messages; nothing for one that does or that is simply missing."""
    if os.path.exists(path):
        return ""
    if os.path.islink(path):
        return f"; it is a link to {os.readlink(path)}"
    return "; patterns are for file_root with file_filters, or expand this one with glob.glob" if glob.has_magic(path) else ""


def address_of(array: np.ndarray) -> int:
    """Return the address of the elements, for native code."""
    return array.__array_interface__["data"][0]  # ten times as fast as `array.ctypes`, which creates a Python object


def packed_batch(values: torch.Tensor, lengths: np.ndarray) -> Batch:
    """Return a Batch of one-dimensional samples that are contiguous in memory."""
    return _packed_batch(values, torch.from_numpy(lengths[:, None].copy()))


def _packed_batch(values: torch.Tensor, shapes: torch.Tensor) -> Batch:
    lengths = shapes.numpy()
    # Equal lengths make a dense batch. Comparing the first and the last finds most ragged ones without a pass over all.
    if len(lengths) and lengths.item(0) == lengths.item(-1) and (lengths == lengths[0]).all():
        return new_batch(values.view(len(lengths), lengths.item(0)))
    return new_batch(values, shapes)


def pack_paths(paths: Sequence[Path | bytes]) -> tuple[bytes, np.ndarray]:
    """Concatenate paths; return them with their offsets."""
    encoded = [os.fsencode(path) for path in paths]
    return b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def as_paths(paths: Path | Sequence[Path]) -> list[str]:
    """Return a single path or several as a list."""
    return [os.fsdecode(paths)] if isinstance(paths, str | bytes | os.PathLike) else [os.fsdecode(path) for path in paths]
