# SPDX-License-Identifier: Apache-2.0
"""Positions of the records in containers: from their headers, parsed natively, or from the index files of DALI's tools."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..._core import native
from ..._core.process.files import text_of
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import file_size, local_file, read_all
from .ranges import Ranges, pack_paths
from .remote import ranges_of

# Numbered as in csrc/readers/scan.cpp.
TFRECORD, RECORDIO, TAR, LMDB, UNCHECKED_TFRECORD = range(5)
Parsed = tuple[np.ndarray, np.ndarray]  # offsets and lengths


class Scan(NamedTuple):
    """The records of one container."""

    begin: np.ndarray
    length: np.ndarray
    names: bytes
    name_offsets: np.ndarray
    damaged: int  # offset of the first invalid header, or -1; `reason` explains it
    reason: str
    size: int  # of the file

    @property
    def is_cut(self) -> bool:
        """Return whether a tar archive ends with its last file, without the blocks of zeros that end an archive."""
        if self.damaged >= 0 or not len(self.begin):
            return False
        end = int(self.begin[-1] + self.length[-1])
        return end <= self.size <= end + -end % 512


def scan(kind: int, path: str) -> Scan:
    """Find the records of a file. Raise RuntimeError if none can be read."""
    # The native parser needs a file; one at a URL is downloaded for the scan.
    with local_file(path) as here:
        file_bytes = os.stat(here).st_size if os.path.exists(here) else 0  # the error for a missing file is that of the parser
        handle = native.scan(kind, os.fsencode(here))
    try:
        error = native.scan_error(handle).decode(errors="replace")
        if error:
            raise RuntimeError(f'"{path}": {error}')
        size = native.scan_size(handle)
        begin, length = np.empty((2, size), np.int64)
        native.scan_ranges(handle, begin.ctypes.data, length.ctypes.data)
        names, offsets = np.empty(0, np.uint8), np.zeros(size + 1, np.int64)
        if kind in (TAR, LMDB):
            # Called twice: without a buffer it returns the offsets, whose last one is the size of the buffer.
            native.scan_names(handle, offsets.ctypes.data, None)
            names = np.empty(int(offsets[-1]), np.uint8)
            native.scan_names(handle, offsets.ctypes.data, names.ctypes.data)
        reason = native.scan_reason(handle).decode(errors="replace")
        return Scan(begin, length, names.tobytes(), offsets, native.scan_damaged(handle), reason, file_bytes)
    finally:
        native.scan_release(handle)


def record_ranges(
    op: str, kind: int, paths: Sequence[str], indices: Sequence[str], parse: Callable[[bytes, int], Parsed]
) -> tuple[Ranges, dict[int, str]]:
    """Return the records of files, with one index each or none, and the records known to be unreadable: the rest of a damaged file.

    ``parse`` returns offsets and lengths of the records from the contents of an index and the size of its file.
    """
    if indices and len(indices) != len(paths):
        raise RuntimeError(f"{op}: there are {len(indices)} index files for {len(paths)} files")
    begins, lengths, damaged, size = [], [], {}, 0
    for k, path in enumerate(paths):
        try:
            if indices:
                begin, length = parse(text_of(read_all(indices[k])), file_size(path))
            else:
                found = scan(kind, path)
                begin, length = found.begin, found.length
                if found.damaged >= 0:
                    # The rest of a damaged file becomes one sample without bytes, whose reason is known, so on_error applies to it.
                    begin, length = np.append(begin, found.damaged), np.append(length, 0)
                    damaged[size + len(begin) - 1] = found.reason
        except OSError as error:
            raise RuntimeError(f'{op}: "{error.filename}" cannot be read: {error.strerror}') from None
        except ValueError as error:
            raise RuntimeError(f'{op}: the index "{indices[k]}" is damaged: {error}') from None
        except RuntimeError as error:
            raise RuntimeError(f"{op}: {error}") from None
        begins.append(begin)
        lengths.append(length)
        size += len(begin)
    file = np.repeat(np.arange(len(paths), dtype=np.int32), [len(begin) for begin in begins])
    # An empty array in front, because np.concatenate rejects an empty list.
    begin, length = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (begins, lengths))
    return ranges_of(b"", *pack_paths(paths), file, begin, length), damaged


def warn_if_cut(op: str, path: str, archive: Scan) -> None:
    """Warn of a tar archive that may have lost its last files."""
    if archive.is_cut:
        warnings.warn(
            f'{op}: "{path}" ends after {len(archive.begin)} files without the end of a tar archive: it was cut between two files, or not closed',
            UserWarning,
            stacklevel=2,
        )


def refuse(damaged: Mapping[int, str], samples: np.ndarray) -> None:
    """Raise UnreadableSamples for samples known to be damaged."""
    if damaged and not damaged.keys().isdisjoint(samples.tolist()):
        raise UnreadableSamples({k: damaged[sample] for k, sample in enumerate(samples.tolist()) if sample in damaged})


def columns(text: bytes, count: int) -> np.ndarray:
    """Parse lines of ``count`` integers into an array (lines, count)."""
    words = text.split()
    if len(words) % count:
        raise ValueError(f"its lines do not have {count} numbers each")
    try:
        return np.array(words, np.int64).reshape(-1, count)
    except (ValueError, OverflowError):
        raise ValueError("it contains values that are not integers") from None
