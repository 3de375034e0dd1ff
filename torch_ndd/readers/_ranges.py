# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of files, and whole files, read ahead by native threads into packed batches."""

import os
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import torch

from .. import _native
from .._batch import Batch, new_batch
from .._workers import tell_refused
from ._base import BadSamples

Path = str | os.PathLike[str]

_range_bytes = torch.ops.ndd.range_bytes.default


class Ranges:
    """Files, or ranges of bytes in files, by number.

    Neither paths nor ranges are Python objects, of which ten million would take gigabytes.

    Args:
        root: What all paths start with; a folder ends with a slash.
        paths: The paths, one after the other.
        path_offsets: Where each begins and the last one ends, int64.
        file: The file of each range, int32; files of ranges stay open for a while. None: range k is the whole file k.
        begin: The first byte of each, int64.
        length: Bytes of each, int64; below 0 for all that follows.
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
        self.file, self.begin, self.length = file, begin, length
        self._files: OpenFiles | None = None

    @property
    def size(self) -> int:
        """How many ranges there are."""
        return len(self.path_offsets) - 1 if self.file is None else len(self.file)

    def path(self, file: int) -> str:
        """The path of a file, readable even when it is no text."""
        return (self.root + self.paths[self.path_offsets[file] : self.path_offsets[file + 1]]).decode(errors="replace")

    def place(self, number: int) -> str:
        """Where a range lies, for messages."""
        if self.file is None:
            return self.path(number)
        path = self.path(int(self.file[number]))
        return path if self.begin is None else f"{path} at byte {self.begin[number]}"

    def start(self, numbers: np.ndarray) -> "RangeRequest":
        """Start to read some ranges: numbers (samples,), or (components, samples) for several batches. Below 0: an empty sample."""
        return RangeRequest(self, numbers)

    def files(self) -> int | None:
        """The native handle of the files that stay open; None for whole files."""
        if self.file is None:
            return None
        if self._files is None or self._files.process != os.getpid():
            self._files = OpenFiles()
        return self._files.handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None}


class OpenFiles:
    """The files that a reader keeps open; they are closed with it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.handle = _native.open_files_make()
        self._owner = _native.owned(self.handle, _native.OF_FILES)


class NativeRequest:
    """Samples that native threads are reading."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self._process = os.getpid()
        self._handle = self._begin()
        # What a parent's thread was at work on when it forked is left alone.
        self._owner = _native.owned(self._handle, _native.OF_READ, only_here=True)

    def _begin(self) -> int:
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until all is read. BadSamples with the reason for each that could not be."""
        if self._process != os.getpid():  # the threads that read it are in the parent
            NativeRequest.__init__(self, self.samples)
        while (failed := _native.read_wait(self._handle)) < 0:
            pass  # here Python handles Ctrl-C
        tell_refused()
        if failed:
            reasons: dict[int, str] = {}
            part = np.empty(1, np.int64)
            for k in range(failed):
                reason = _native.read_failure(self._handle, k, part.ctypes.data).decode(errors="replace")
                reasons.setdefault(int(part[0]) % self.samples, reason)
            raise BadSamples(reasons)


class Parts:
    """What is read for each component of some samples, as batches."""

    def finish(self) -> Batch:
        """Wait and return the bytes of the samples, uint8 (length,). To be called once. BadSamples for what could not be read."""
        (batch,) = self.finish_all()
        return batch

    def finish_all(self) -> tuple[Batch, ...]:
        """The same for all components."""
        return tuple(packed_batch(*one) for one in self.parts())

    def parts(self) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Of each component the bytes of all samples, one after the other, and how many each has."""
        raise NotImplementedError


class RangeRequest(Parts, NativeRequest):
    """Ranges that are being read, each component of the samples into a batch."""

    def __init__(self, ranges: Ranges, numbers: np.ndarray) -> None:
        self._ranges = ranges
        self._components = len(numbers) if numbers.ndim == 2 else 1
        if ranges.file is None:
            self._given = (numbers.astype(np.int32), None, None)
        else:
            parts = [ranges.file[numbers], *(None if one is None else one[numbers] for one in (ranges.begin, ranges.length))]
            parts[0][numbers < 0] = -1
            kinds = (np.int32, np.int64, np.int64)
            self._given = tuple(None if part is None else np.ascontiguousarray(part, kind) for part, kind in zip(parts, kinds, strict=True))
        super().__init__(numbers.shape[-1])

    def _native_ranges(self) -> tuple[Any, ...]:
        """What the native functions take."""
        ranges, given = self._ranges, self._given
        addresses = (None if one is None else one.ctypes.data for one in given)
        return ranges.files(), ranges.root, ranges.paths, ranges.path_offsets.ctypes.data, *addresses, self._components * self.samples

    def _begin(self) -> int:
        return _native.ranges_start(*self._native_ranges(), self._components)

    def parts(self) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Of each component the bytes of all samples, one after the other, and how many each has."""
        self.wait()
        lengths, offsets = np.empty((2, self._components, self.samples), np.int64)
        _native.ranges_parts(self._handle, lengths.ctypes.data, offsets.ctypes.data)
        data = _range_bytes(self._handle)
        begins, ends = offsets[:, 0].tolist(), (offsets[:, -1] + lengths[:, -1]).tolist()
        return [(data[begin:end], row) for begin, end, row in zip(begins, ends, lengths, strict=True)]


class RecordRequest(RangeRequest):
    """Ranges that hold records, which native threads take apart."""

    def output(self, k: int) -> tuple[torch.Tensor, np.ndarray]:
        """The bytes of output k of all samples, one after the other, and how many each has. After :meth:`wait`, once for each output."""
        lengths = np.empty(self.samples, np.int64)
        _native.record_bytes(self._handle, k, lengths.ctypes.data)
        return torch.ops.ndd.record_output(self._handle, k), lengths


class Sources(Sequence[str]):
    """Where the samples of a batch come from, written out when somebody asks: 64 texts take longer than reading 64 small samples."""

    def __init__(self, write: Callable[[int], str], numbers: np.ndarray) -> None:
        self._write, self._numbers = write, numbers

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> "Sources": ...
    def __getitem__(self, key: Any) -> Any:
        return Sources(self._write, self._numbers[key]) if isinstance(key, slice) else self._write(int(self._numbers[key]))

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))


def packed_batch(values: torch.Tensor, lengths: np.ndarray) -> Batch:
    """A Batch of samples with one dimension that lie one after the other."""
    if len(lengths) and (lengths == lengths[0]).all():
        return new_batch(values.view(len(lengths), int(lengths[0])))
    return new_batch(values, torch.from_numpy(lengths[:, None].copy()))


def pack_paths(paths: Sequence[Path | bytes]) -> tuple[bytes, np.ndarray]:
    """Paths one after the other, and their offsets."""
    encoded = [os.fsencode(path) for path in paths]
    return b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def as_paths(given: Path | Sequence[Path]) -> list[str]:
    """One path or several as a list."""
    return [os.fsdecode(given)] if isinstance(given, str | bytes | os.PathLike) else [os.fsdecode(one) for one in given]
