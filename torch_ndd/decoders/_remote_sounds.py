# SPDX-License-Identifier: Apache-2.0
"""Sounds at URLs that are fetched in part.

Native code tries to decode the part from what is there and says which bytes are missing. These are fetched, and it tries again: no second
implementation of the formats has to know where a part lies.
"""

import ctypes
import math
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from .._core import native
from ..io._body import Body
from ..io._limits import Meter
from ..io._urls import Range, fetch, file_size

_find_missing = native.c_function("ndd_sound_missing")

# Bytes of a block. Headers, and what a search of FLAC or Ogg looks at, are shorter.
_BLOCK = 64 << 10
# The most blocks of a request beyond what is needed, and the most attempts to decode, after which the rest is fetched. Three are usual.
_MAX_AHEAD, _ATTEMPTS = 64, 16
_MAP_NORESERVE = 0x4000  # which the module mmap lacks before Python 3.12
# Threads that look for missing bytes, which decodes.
_THREADS = 8


class Part(NamedTuple):
    """What is decoded, as the kernel of :func:`decoders.audio` takes it: seconds, and 0 for the file's own rate."""

    start: float
    duration: float
    rate: float
    downmix: bool
    dtype: torch.dtype
    quality: float
    max_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole sound."""
        return self.start == 0 and math.isinf(self.duration)


class RemoteSound:
    """A sound at a URL, or in a range of one: its bytes, with zeros in place of those that were not fetched."""

    def __init__(self, place: Range) -> None:
        self._place = place
        self._size = place.length  # negative: not known yet
        self._first: tuple[Range, bytes | Body] | None = None  # what was fetched before there was memory for the sound
        self._bytes: np.ndarray | None = None
        self._marks = np.zeros(0, np.uint8)  # for each block whether it is there
        self._tried = 0

    @property
    def size(self) -> int:
        """Bytes of the sound; negative before it is known."""
        return self._size

    def contents(self) -> torch.Tensor:
        """Return all bytes, uint8 (length,)."""
        assert self._bytes is not None
        return torch.from_numpy(self._bytes)

    def first_range(self, part: Part) -> Range | None:
        """Return what to fetch before anything is known; None if something is."""
        if self._bytes is not None:
            return None
        whole = self._place if part.is_whole or 0 <= self._size <= _BLOCK else None
        return whole or Range(self._place.path, self._place.begin, _BLOCK)

    def set_first(self, wanted: Range, content: bytes | Body) -> None:
        """Take the first bytes, which a server without ranges may send with all others. Raise an Exception for a file that cannot be read."""
        if self._size < 0 and len(content) == wanted.length:
            try:
                self._size = file_size(self._place.path)
            except RuntimeError:  # some servers do not report it
                self.set_all()
                return
        if self._size < 0:
            self._size = len(content)
        Meter().check_size(self._size)
        self._first = wanted, content

    def set_all(self) -> None:
        """Fetch and take all bytes. Raise an Exception for a file that cannot be read."""
        (content,) = fetch([self._place])
        if isinstance(content, Exception):
            raise content from None
        self.set_first(self._place, content)

    def allocate(self, out: np.ndarray) -> None:
        """Take memory for the sound, zeros, once its size is known."""
        assert self._first is not None
        self._bytes, self._marks = out, np.zeros(-(-len(out) // _BLOCK), np.uint8)
        self.store(*self._first)
        self._first = None

    def missing_ranges(self, part: Part) -> list[Range]:
        """Return the bytes to fetch next in order to decode a part; none if all are there."""
        assert self._bytes is not None
        found = np.zeros(5, np.int64)
        addresses = [array.ctypes.data_as(ctypes.c_void_p) for array in (self._bytes, self._marks, found)]
        kind = part.dtype.itemsize, part.dtype.is_floating_point, part.downmix
        seconds = part.rate, part.quality, part.start, part.duration, part.max_bytes
        if self._marks.all() or not _find_missing(addresses[0], self._size, addresses[1], _BLOCK, *kind, *seconds, addresses[2]):
            return []
        begin, end, first, count, frames = found.tolist()
        self._tried += 1
        if self._tried >= _ATTEMPTS or 2 * np.count_nonzero(self._marks) > len(self._marks):
            return self._gap(0, self._size)
        ranges = self._gap(begin, max(end, begin + _BLOCK * min(2**self._tried, _MAX_AHEAD)))
        if frames:  # where the part is at a constant number of bytes per frame
            guess = self._gap(self._size * first // frames - _BLOCK, self._size * (first + count) // frames + _BLOCK)
            if guess and guess[0].begin <= ranges[0].begin < guess[0].begin + guess[0].length:
                return guess
            ranges += guess
        return ranges

    def _gap(self, begin: int, end: int) -> list[Range]:
        """Return the range of blocks that has all missing ones of a range, if there are any."""
        first, last = max(begin, 0) // _BLOCK, -(-min(end, self._size) // _BLOCK)
        missing = first + np.flatnonzero(self._marks[first:last] == 0)
        if not len(missing):
            return []
        first_byte, last_byte = int(missing[0]) * _BLOCK, min((int(missing[-1]) + 1) * _BLOCK, self._size)
        return [Range(self._place.path, self._place.begin + first_byte, last_byte - first_byte)]

    def store(self, wanted: Range, content: bytes | Body) -> None:
        """Take fetched bytes. Raise EOFError if there are fewer than requested."""
        assert self._bytes is not None
        at = wanted.begin - self._place.begin
        if len(content) < min(wanted.length, self._size - at):
            raise EOFError(f"it ends at byte {wanted.begin + len(content)}, before byte {wanted.begin + wanted.length}")
        begin, out = at // _BLOCK, self._bytes.data[at:]
        end = len(self._marks) if at + len(content) >= self._size else (at + len(content)) // _BLOCK

        def put(part: bytes | memoryview) -> None:
            nonlocal out
            count = min(len(part), len(out))
            out[:count] = part[:count]
            out = out[count:]

        if isinstance(content, Body):
            content.move_to(put)
        else:
            put(content)
        self._marks[begin:end] = 1


def fetch_parts(sounds: Sequence[RemoteSound], parts: Sequence[Part]) -> dict[int, Exception]:
    """Fetch what decoding a part of each sound needs, all of them concurrently. Return the errors, by number."""
    errors: dict[int, Exception] = {}
    first = [(k, wanted) for k, sound in enumerate(sounds) if (wanted := sound.first_range(parts[k])) is not None]
    with ThreadPoolExecutor(min(_THREADS, max(len(sounds), 1))) as pool:

        def take(tasks: Sequence[tuple[int, Range]], as_sent: bool, put: Callable[[RemoteSound, Range, bytes | Body], None]) -> None:
            contents = fetch([wanted for _, wanted in tasks], as_sent)
            taken: list[tuple[int, Future[None]]] = []
            for (k, wanted), content in zip(tasks, contents, strict=True):
                if isinstance(content, Exception) and sounds[k].size < 0:
                    # These were the first bytes, and an empty file has no range. For others the same error comes again.
                    taken.append((k, pool.submit(copy_context().run, sounds[k].set_all)))
                elif isinstance(content, Exception):
                    errors.setdefault(k, content)
                else:
                    # With the limits of this context.
                    taken.append((k, pool.submit(copy_context().run, put, sounds[k], wanted, content)))
            for k, future in taken:
                if (error := future.exception()) is not None:
                    if not isinstance(error, Exception):
                        raise error
                    errors.setdefault(k, error)

        # A whole file is welcome where its beginning was asked for; a range from elsewhere could not be told apart from it.
        take([task for task in first if task[1].begin == 0], True, RemoteSound.set_first)
        take([task for task in first if task[1].begin != 0], False, RemoteSound.set_first)
        _allocate([sounds[k] for k, _ in first if k not in errors])
        unfinished = [k for k in range(len(sounds)) if k not in errors]
        while unfinished:
            found = list(pool.map(lambda k: sounds[k].missing_ranges(parts[k]), unfinished))
            wanted = [(k, each) for k, ranges in zip(unfinished, found, strict=True) for each in ranges]
            take(wanted, False, RemoteSound.store)
            unfinished = sorted({k for k, _ in wanted if k not in errors})
    return errors


def _allocate(sounds: Sequence[RemoteSound]) -> None:
    """Give sounds of known sizes their memory, one after the other, so they are a batch without a copy."""
    ends = np.cumsum([0, *(sound.size for sound in sounds)]).tolist()
    # Address space: only pages that are written take memory.
    space = np.frombuffer(mmap.mmap(-1, max(ends[-1], 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE), np.uint8)
    for sound, (begin, end) in zip(sounds, pairwise(ends), strict=True):
        sound.allocate(space[begin:end])
