# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of data at URLs."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from ..._core import native
from ..._core.process.workers import Workers, call_when_freed, is_here
from ..._core.work.bad_samples import UnreadableSamples
from ...io._body import Body, fill
from ...io._urls import Download, Range, current_download, fetch, is_url, merge_ranges, reason_of
from .ranges import NativeRequest, Parts, Ranges, pack_paths

# A batch is one fsspec call, which requests its ranges concurrently if the protocol allows; the threads serve the batches read ahead.
_THREADS = 4


def ranges_of(
    root: bytes,
    paths: bytes,
    path_offsets: np.ndarray,
    file: np.ndarray | None = None,
    begin: np.ndarray | None = None,
    length: np.ndarray | None = None,
) -> "Ranges | RemoteRanges":
    """Return byte ranges of files, read natively, or through fsspec if any path is a URL."""
    remote = is_url(root) or (
        b"://" in paths and any(is_url(paths[b:e]) for b, e in zip(path_offsets[:-1].tolist(), path_offsets[1:].tolist(), strict=True))
    )
    return (RemoteRanges if remote else Ranges)(root, paths, path_offsets, file, begin, length)


class RemoteRanges(Ranges):
    """Byte ranges read through fsspec."""

    _executor: Workers | None = None

    def start(self, numbers: np.ndarray) -> "RemoteRequest":  # type: ignore[override]
        """Start fetching some ranges: numbers (samples,), or (components, samples) for several batches. A negative number is an empty sample."""
        return RemoteRequest(self, numbers)

    def start_heads(self, numbers: np.ndarray, size: int) -> "RemoteRequest":  # type: ignore[override]
        """Start fetching whole files: their sizes are not known, and many servers refuse ranges beyond the end."""
        return self.start(numbers)

    def fetch(self, numbers: np.ndarray) -> "Future[list[bytes | Body | Exception]]":
        """Fetch some ranges on a thread; return the bytes of each or the error."""
        if not is_here(self._executor):
            self._executor = Workers(_THREADS, "torch_ndd fsspec", self)
        return self._executor.submit(self._fetch, numbers.ravel())

    def _fetch(self, numbers: np.ndarray) -> list[bytes | Body | Exception]:
        wanted = [self._range(number) for number in numbers.tolist()]
        # Neighboring ranges are fetched as one: `known` numbers the distinct requests, `place` holds the one that serves each range.
        known: dict[Range, int] = {}
        place = [
            known.setdefault(whole, len(known)) if part_range.path else -1 for part_range, whole in zip(wanted, merge_ranges(wanted), strict=True)
        ]
        wholes = list(known)
        contents = fetch(wholes)
        # Each range is cut out of the bytes that were fetched for it; errors are passed on, and empty samples get no bytes.
        return [
            b"" if k < 0 else part if isinstance(part := contents[k], Exception) else part_range.of(wholes[k], part)
            for part_range, k in zip(wanted, place, strict=True)
        ]

    def _range(self, number: int) -> "Range":
        file = number if number < 0 or self.file is None else int(self.file[number])
        if file < 0:
            return Range("", 0, 0)
        begin = 0 if self.file is None or self.begin is None else int(self.begin[number])
        return Range(self.path(file), begin, -1 if self.file is None or self.length is None else int(self.length[number]))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None}


class RemoteRequest(Parts):
    """Ranges that are being fetched."""

    def __init__(self, ranges: RemoteRanges, numbers: np.ndarray) -> None:
        self._ranges, self._numbers = ranges, numbers
        self._future, self._process = self._submit(), os.getpid()

    def _submit(self) -> "Future[list[bytes | Body | Exception]]":
        download = Download()
        # A discarded request, after load_state_dict for example, stops downloading.
        call_when_freed(self, download.abandon)
        # The thread pool copies the context of the submitter, and with it this download, into the job.
        token = current_download.set(download)
        try:
            return self._ranges.fetch(self._numbers)
        finally:
            current_download.reset(token)

    def contents(self) -> list[bytes | Body]:
        """Wait for the bytes of all ranges. Call once. Raise UnreadableSamples for ranges that could not be fetched."""
        if self._process != os.getpid():  # the fetching threads are in the parent
            self._future, self._process = self._submit(), os.getpid()
        fetched = self._future.result()
        samples = self._numbers.shape[-1]
        reasons: dict[int, str] = {}
        for k, content in enumerate(fetched):
            if isinstance(content, Exception):
                # Ranges are ordered by component, each with one range per sample.
                reasons.setdefault(k % samples, reason_of(content))
        if reasons:
            raise UnreadableSamples(reasons)
        return [content for content in fetched if not isinstance(content, Exception)]

    def parts(self) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Return the concatenated bytes of all samples and their lengths, for each component."""
        contents, samples, parts = self.contents(), self._numbers.shape[-1], []
        # max() because range() rejects a step of 0.
        for first in range(0, len(contents), max(samples, 1)):
            component = contents[first : first + samples]
            lengths = np.array([len(each) for each in component], np.int64)
            values = np.empty(lengths.sum(), np.uint8)
            fill(values.data, component)
            parts.append((torch.from_numpy(values), lengths))
        return parts


R = TypeVar("R", bound=NativeRequest)


def native_request(make: Callable[[Ranges, np.ndarray], R], ranges: Ranges, numbers: np.ndarray) -> "R | RemoteNative[R]":
    """Return ``make`` of some ranges. Native parsers read files, so remote ranges are first fetched into files in memory."""
    return RemoteNative(make, ranges, numbers) if isinstance(ranges, RemoteRanges) else make(ranges, numbers)


class RemoteNative(Generic[R]):
    """A native request whose data is still being fetched."""

    def __init__(self, make: Callable[[Ranges, np.ndarray], R], ranges: RemoteRanges, numbers: np.ndarray) -> None:
        self._make, self._fetching, self._whole = make, RemoteRequest(ranges, numbers), ranges.file is None
        self._request: R | None = None
        self._files: list[_InMemory] = []

    def wait(self) -> None:
        """Wait for the bytes and for the native request. Raise UnreadableSamples for what could not be read."""
        contents = self._fetching.contents()
        lengths = np.array([len(content) for content in contents], np.int64)
        # Whole files become one memory file each; ranges are joined into a single one.
        parts = [[content] for content in contents] if self._whole else [contents]
        self._files = [_InMemory(part) for part in parts]
        paths = pack_paths([file.path for file in self._files])
        numbers = np.arange(len(contents))
        if self._whole:
            local = Ranges(b"", *paths)
        else:
            local = Ranges(b"", *paths, np.zeros(len(contents), np.int32), np.cumsum(lengths) - lengths, lengths)
        self._request = self._make(local, numbers)
        self._request.wait()
        self._files = []  # the request has read them

    def __getattr__(self, name: str) -> Any:
        # Also during unpickling, when `_request` does not exist yet: without this check the lookup would recurse.
        if name.startswith("_"):
            raise AttributeError(name)
        if self._request is None:
            self.wait()
        return getattr(self._request, name)


class _InMemory:
    """A file in memory, closed with this object."""

    def __init__(self, contents: Sequence[bytes | Body]) -> None:
        # Native parsers open paths, so the bytes get one: /proc gives a descriptor without a name a path.
        descriptor = os.memfd_create("torch_ndd")
        self._owner = native.own_handle(descriptor, native.OF_DESCRIPTOR)
        self.path = f"/proc/self/fd/{descriptor}"
        with open(descriptor, "wb", closefd=False) as file:
            for content in contents:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    content.copy_to(file.write)
        for content in contents:  # only now: several entries may be the same object
            if isinstance(content, Body):
                content.clear()
