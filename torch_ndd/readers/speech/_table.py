# SPDX-License-Identifier: Apache-2.0
"""Where the sounds of a data set are, packed: one Python object per sample would take ten times the memory."""

import os
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...io._urls import is_url
from .._ranges.ranges import pack_paths

# Uncompressed float32 stereo at 48 kHz. A file with more bytes per requested second is sought, not read to its end.
_BYTES_PER_SECOND = 48000 * 2 * 4
_HEADER_BYTES = 64 << 10


class Texts:
    """A text, or a few bytes, for each sample."""

    def __init__(self) -> None:
        self._packed, self._ends = bytearray(), array("q", [0])

    def add(self, text: bytes) -> None:
        """Append the text of the next sample."""
        self._packed += text
        self._ends.append(len(self._packed))

    def __getitem__(self, sample: int) -> bytes:
        return bytes(self._packed[self._ends[sample] : self._ends[sample + 1]])


class SoundTable:
    """The file of each sample, the bytes in it, and the part of the sound. After :meth:`pack` nothing can be added."""

    UNKNOWN, NO, YES = 0, 1, 2
    """Whether a sample is a short part of its file, which is cheaper to seek than to read the whole file."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}
        self._places = array("i"), array("q"), array("q")  # file, and begin and length in it
        self._parts = array("d"), array("d")  # offset and duration
        self.missing: dict[int, tuple[str, str]] = {}
        """What samples without a sound are called, and why they have none."""

    def add_file(self, folder: str, path: str) -> int:
        """Return the number of a file: a URL, an absolute path, or one relative to the folder or the current one."""
        return self._known.setdefault((folder, path), len(self._known))

    def add(self, file: int, offset: float, duration: float, begin: int = 0, length: int = -1) -> None:
        """Append a sample: the part of a sound in seconds, a negative duration for its rest, and the bytes of a file that are the sound."""
        for column, number in zip(self._places, (file, begin, length), strict=True):
            column.append(number)
        for column, seconds in zip(self._parts, (offset, duration), strict=True):
            column.append(seconds)

    def add_missing(self, name: str, reason: str, duration: float) -> None:
        """Append a sample without a sound."""
        self.missing[len(self)] = name, reason
        self.add(-1, 0.0, duration)

    def __len__(self) -> int:
        return len(self._places[0])

    def pack(self) -> None:
        """Convert the columns to arrays."""
        # Views of the arrays' memory, which cannot grow from here on.
        self.file, self.begin, self.length = map(np.frombuffer, self._places, (np.int32, np.int64, np.int64))
        self.offsets, self.durations = map(np.frombuffer, self._parts, (np.float64, np.float64))
        folders: dict[str, int] = {}
        # Folders repeat, so each path refers to its folder by number.
        self._folder = np.array([folders.setdefault(folder, len(folders)) for folder, _ in self._known], np.int32)
        self._folders = list(folders)
        self._paths, self._path_offsets = pack_paths([path for _, path in self._known])
        self._known = {}
        self.has_urls = any(map(is_url, self._folders)) or b"://" in self._paths
        self.has_members = bool((self.length >= 0).any())
        is_file = (self.length < 0) & (self.file >= 0)
        self.is_part = np.where((self.offsets > 0) & is_file, self.YES, np.where((self.durations < 0) | ~is_file, self.NO, self.UNKNOWN)).astype(
            np.int8
        )
        # Members of archives, whose sizes are known: entries of a small one share its bytes.
        self.is_part[self.is_long(self.length, self.durations)] = self.YES

    @staticmethod
    def is_long(size: Any, duration: Any) -> Any:
        """Return whether a sound of so many bytes is much longer than its part, so that it is sought, not read to its end."""
        return (duration >= 0) & (size > np.maximum(duration, 0) * _BYTES_PER_SECOND + _HEADER_BYTES)

    def files(self) -> list[str]:
        """Return the paths of all files, by number."""
        return [self._path_of(file) for file in range(len(self._folder))]

    def path(self, sample: int) -> str:
        """Return the path of the file of a sample; the name of one without a file."""
        file = int(self.file[sample])
        return self.missing[sample][0] if file < 0 else self._path_of(file)

    def place(self, sample: int) -> str:
        """Return where a sample is, for messages."""
        path = self.path(sample)
        return path if self.length[sample] < 0 else f"{path} at byte {self.begin[sample]}"

    def _path_of(self, file: int) -> str:
        path = os.fsdecode(self._paths[self._path_offsets[file] : self._path_offsets[file + 1]])
        folder = self._folders[self._folder[file]]
        if not folder or is_url(path) or os.path.isabs(path):
            return path
        beside = f"{folder}/{path}"
        # Beside the manifest if the file exists there; otherwise relative to the current folder.
        return beside if is_url(folder) or os.path.exists(beside) else path

    def share_sounds(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions of samples with different sounds, and for each sample which of these has its sound."""
        keys = np.stack([self.file[samples].astype(np.int64), self.begin[samples]])
        _, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(first)  # in the order of the samples
        # np.unique sorts by key; `rank` numbers the keys by first occurrence instead.
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return first[order], rank[place.reshape(-1)]


def stem_of(name: str) -> str:
    """Return the name of a file without its folder and extension.

    >>> stem_of("a/b.c.wav")
    'b.c'
    """
    return os.path.splitext(name.rpartition("/")[2])[0]


def unique(names: Iterable[str]) -> dict[str, int]:
    """Return the position of each name; -1 for one that occurs more than once."""
    found: dict[str, int] = {}
    for k, name in enumerate(names):
        # skip
        found[name] = -1 if name in found else k
    return found
