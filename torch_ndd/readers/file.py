# SPDX-License-Identifier: Apache-2.0
"""Whole files, each with a label."""

import fnmatch
import os
import re
import warnings
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack, override

from .._core.context.device import DeviceLike
from .._core.process.files import open_text
from .._core.values.batch import Batch, new_batch
from ..io._folders import is_hidden
from ..io._urls import list_names, read_all
from ._base import Reader
from ._options import LoaderOptions
from ._ranges.file_lists import FileArguments, whole_files
from ._ranges.ranges import Path, Ranges, Sources, pack_paths

ENDINGS = ("jpg", "jpeg", "png", "bmp", "tif", "tiff", "pnm", "ppm", "pgm", "pbm", "jp2", "webp", "flac", "ogg", "wav")
FILE_FILTERS = tuple("*." + ending for ending in ENDINGS)

# Name, blanks, number; the name may contain blanks.
_LINE = re.compile(rb"(.*\S)\s+([+-]?\d+)")


class File(Reader):
    """Read whole files: tuples of their contents, uint8 (length,), and labels, int32 (1,), or int64 () with ``scalar_labels``.

    The files are given by one of

    - ``file_root``: the files in its subdirectories whose names match ``file_filters``. The subdirectories, sorted bytewise, have the labels 0, 1,
      ...; they are not searched recursively. Hidden ones and those of tools (``.ipynb_checkpoints``, ``__MACOSX``) are classes too, as in DALI, with
      a warning; ``dir_filters="[!.]*"`` leaves those with a dot out.
    - ``files``: a list of paths, with ``labels`` or numbered from 0.
    - ``file_list``: a text file of lines ``path label``.

    Relative paths in ``files`` and ``file_list`` start at ``file_root``, or without it at the folder of ``file_list``.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        case_sensitive_filter: Match the filters case-sensitively, so that ``*.jpg`` does not match ``A.JPG``.
        dir_filters: Patterns of the subdirectories of ``file_root``; only matching ones get labels.
        file_filters: Patterns of file names; by default the usual extensions of images and audio files.
        scalar_labels: Deliver labels as torch's losses take them: int64 (), so that those of a batch are (N,). Not in DALI.
        **loader: Sharding, shuffling, padding, read-ahead and bad files, see :class:`LoaderOptions`.

    Raises:
        ValueError: at construction, for a shard that does not exist or a device other than the CPU.
        RuntimeError: at the first step, if there are no files; at any step, for a file that cannot be read; the message names it.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.jpg", "dog/2.jpg", "dog/3.jpg"):
    ...     (folder / name).parent.mkdir(exist_ok=True)
    ...     _ = (folder / name).write_bytes(name.encode())
    >>> reader = File(file_root=folder)
    >>> [(bytes(contents.torch().tolist()), label.item()) for contents, label in reader.next_epoch()]
    [(b'cat/1.jpg', 0), (b'dog/2.jpg', 1), (b'dog/3.jpg', 1)]
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        case_sensitive_filter: bool | None = None,
        dir_filters: str | Sequence[str] | None = None,
        file_filters: str | Sequence[str] | None = None,
        file_list: Path | None = None,
        file_root: Path | None = None,
        files: Path | Sequence[Path] | None = None,
        labels: Any = None,
        scalar_labels: bool = False,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._files = FileArguments(file_root, file_list, files)
        self._needs = self._files.needs
        self._labels = None if labels is None else np.asarray(labels)
        self._filters = _patterns(file_filters)
        self._dir_filters = _patterns(dir_filters)
        self._case_sensitive = bool(case_sensitive_filter)
        self._scalar_labels = bool(scalar_labels)
        self._index: _Index | None = None
        self._names: Sequence[str] | None = None  # of the classes

    @override
    def scan(self) -> int:
        if self._index is None:
            self._check()
            root, paths = self._files.root, self._files.paths
            if self._files.list is not None:
                self._index = _index_of_list(self._op, self._files.list, root)
            elif paths is not None:
                self._index = _Index(root, *paths, self._checked_labels(len(paths[1]) - 1))
            else:
                assert root is not None
                filters = self._filters or FILE_FILTERS
                self._index = _index_of_folder(self._op, root, self._filter(filters), self._filter(self._dir_filters))
                if not self._index.size:
                    folders = len(self._index.classes or ())
                    self._index = None
                    raise RuntimeError(f"{self._op}: {self._nothing_found(root, folders, filters)}")
                if self._dir_filters is None:
                    self._warn_of_hidden_classes(root, self._index.classes or ())
        return self._index.size

    def _nothing_found(self, root: bytes, folders: int, filters: Sequence[str]) -> str:
        wanted = "" if self._dir_filters is None else f" that match {', '.join(self._dir_filters)}"
        found = f"no file in {folders} of them matches {', '.join(filters)}" if folders else f"it has none{wanted}"
        return f'No files found in the subdirectories of "{os.fsdecode(root)}": {found}'

    def _warn_of_hidden_classes(self, root: bytes, classes: Sequence[str]) -> None:
        """Warn of classes that are folders of tools, which shift the labels of the others unnoticed."""
        hidden = [f"{name!r} ({label})" for label, name in enumerate(classes) if is_hidden(name)]
        if hidden:
            warnings.warn(
                f'{self._op}: hidden folders in "{os.fsdecode(root)}" are classes too, with these labels: {", ".join(hidden)}. Remove them, or pass '
                'dir_filters="[!.]*" for the folders without a dot, which changes the labels, or dir_filters="*" for all of them',
                UserWarning,
                stacklevel=2,
            )

    def _check(self) -> None:
        self._files.check(self._op)
        if self._labels is not None and self._files.paths is None:
            raise RuntimeError(f"{self._op}: labels belong to files")
        for argument, patterns in (("file_filters", self._filters), ("dir_filters", self._dir_filters)):
            if patterns is not None and not patterns:
                raise RuntimeError(f"{self._op}: {argument} is an empty list")

    def _checked_labels(self, files: int) -> np.ndarray | None:
        labels = self._labels
        if labels is None:
            return None
        if labels.ndim > 1:
            raise RuntimeError(f"{self._op}: labels must be one list of integers, got an array of shape {labels.shape}")
        if labels.size != files or not labels.ndim:
            raise RuntimeError(f"{self._op}: got {labels.size} labels for {files} files")
        if labels.dtype.kind not in "iub":
            labels = self._integers(labels)
        # The smallest and the largest label stand for all of them.
        for label in (labels.min(initial=0), labels.max(initial=0)):
            _int32(self._op, int(label))
        return labels.astype(np.int32)

    def _integers(self, labels: np.ndarray) -> np.ndarray:
        # Whole numbers stored as floats, as pandas does for columns with missing values.
        if labels.dtype.kind == "f" and np.array_equal(labels, np.trunc(labels)) and np.all(np.abs(labels) < 2**63):
            return labels.astype(np.int64)
        if labels.dtype.kind == "U":  # as read from a file
            with suppress(ValueError, OverflowError):
                return labels.astype(np.int64)
        found = f"{', '.join(map(repr, labels[:3].tolist()))}{', ...' * (len(labels) > 3)}"
        raise TypeError(
            f"{self._op}: labels must be integers, got {found}; a DataLoader also takes a list of (pathlib.Path(file), value), with any values"
        )

    def _filter(self, patterns: tuple[str, ...] | None) -> re.Pattern[bytes]:
        joined = "|".join(fnmatch.translate(pattern) for pattern in patterns) if patterns else ""
        return re.compile(os.fsencode(joined), 0 if self._case_sensitive else re.IGNORECASE)

    def _source(self, sample: int) -> str:
        assert self._index is not None
        return self._index.ranges.place(sample)

    @override
    def start(self, samples: np.ndarray) -> Any:
        assert self._index is not None
        return self._index.ranges.start(samples)

    @override
    def start_heads(self, samples: np.ndarray, size: int) -> Any:
        assert self._index is not None
        return self._index.ranges.start_heads(samples, size)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, Batch]:
        index = self._index
        assert index is not None
        files = request.finish()
        # Lazily: paths are built only for messages and for callers that ask for them.
        files.sources = Sources(index.ranges.path, samples)
        return files, self._batch_labels(self._labels_of(samples))

    def _labels_of(self, samples: np.ndarray) -> np.ndarray:
        """Return the labels of samples."""
        assert self._index is not None
        labels, kind = self._index.labels, np.int64 if self._scalar_labels else np.int32
        return samples.astype(kind) if labels is None else labels.take(samples).astype(kind, copy=False)

    def _batch_labels(self, labels: np.ndarray) -> Batch:
        """Return labels as they are delivered."""
        return new_batch(torch.from_numpy(labels if self._scalar_labels else labels[:, None]))

    def _whole_files(self) -> Ranges | None:
        """Return the files of all samples if native threads read them; None for URLs."""
        self.scan()
        ranges = None if self._index is None else self._index.ranges
        # Exactly this class: RemoteRanges is a subclass that reads through fsspec.
        return ranges if type(ranges) is Ranges else None

    @override
    def list_labels(self) -> np.ndarray | None:
        size = self.scan()
        assert self._index is not None
        return np.arange(size) if self._index.labels is None else self._index.labels

    @property
    def classes(self) -> list[str]:
        """Names of the subdirectories of ``file_root`` in the order of their labels. Raise RuntimeError if the files come from a list."""
        if self._names is None:
            with self._lock:
                # Scans the folder if that has not happened yet, with the reader's limits.
                self._build_order()
            self._names = None if self._index is None else self._index.classes
        if self._names is None:
            raise RuntimeError(f"{self._op}: classes are the subdirectories of file_root; with files or file_list only their labels are known")
        return list(self._names)


class _Index:
    """Paths in one buffer rather than one Python object each: ten million paths of 30 bytes take 0.4 GB."""

    def __init__(self, root: bytes | None, paths: bytes, offsets: np.ndarray, labels: np.ndarray | None) -> None:
        self.ranges, self.labels = whole_files(root, paths, offsets), labels
        self.size = len(offsets) - 1
        self.classes: list[str] | None = None  # names of labels


def _patterns(patterns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if patterns is None else (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _int32(op: str, label: int) -> int:
    if not -(2**31) <= label < 2**31:
        raise RuntimeError(f"{op}: labels must fit into 32 bits, got {label}")
    return label


def _index_of_list(op: str, path: bytes, root: bytes | None) -> _Index:
    # Keeps no object per line: ten million of them would take gigabytes.
    names, offsets, labels = bytearray(), array("q", [0]), array("i")
    try:
        lines = open_text(read_all(path))
    except OSError as error:
        raise RuntimeError(f'{op}: file_list "{os.fsdecode(path)}" cannot be read: {error.strerror}') from None
    for number, line in enumerate(lines, 1):
        line = line.rstrip()
        if not line:
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            text = line.decode(errors="replace")
            raise RuntimeError(f'{op}: "{os.fsdecode(path)}", line {number}: expected a path and a label, got {text!r}')
        names += found[1]
        offsets.append(len(names))
        labels.append(_int32(op, int(found[2])))
    if not names:
        raise RuntimeError(f'{op}: No files found in "{os.fsdecode(path)}": the list is empty')
    return _Index(os.path.dirname(path) if root is None else root, bytes(names), np.array(offsets), np.array(labels, np.int32))


def _index_of_folder(op: str, root: bytes, files: re.Pattern[bytes], folders: re.Pattern[bytes]) -> _Index:
    parts, offsets, counts, classes = bytearray(), [np.zeros(1, np.int64)], [], []
    try:
        for name in list_names(root, folders, True):
            found = [os.path.join(name, file) for file in list_names(os.path.join(root, name), files, False)]
            packed, ends = pack_paths(found)
            # Without the leading 0: offsets of all folders are one table, each after the paths so far.
            offsets.append(ends[1:] + len(parts))
            parts += packed
            counts.append(len(found))
            classes.append(os.fsdecode(name))
    except OSError as error:
        raise RuntimeError(f'{op}: file_root "{os.fsdecode(error.filename)}" cannot be opened: {error.strerror}') from None
    # Label k is the number of the folder, in the order in which list_names returns them.
    index = _Index(root, bytes(parts), np.concatenate(offsets), np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    index.classes = classes
    return index
