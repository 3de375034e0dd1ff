# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet files."""

import copy
import importlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import Unpack, override

from ..._core import native
from ..._core.context.device import DeviceLike
from ..._core.process.files import open_regular
from ..._core.process.fork_locks import new_lock
from ..._core.process.limits import check_sample
from ..._core.process.workers import Workers
from ..._core.values.batch import Batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import call_filesystem, filesystem, find_urls, is_url, reason_of
from .._key_table import KeyTable
from .._keys import Keys
from .._options import DecodingOptions
from .._ranges.ranges import Path, as_paths
from .._threads import BatchThreadsReader
from ._columns import (
    Column,
    convert_columns,
    known_columns,
    number_type,
    promised_bytes,
    select_columns,
    to_batch,
    to_numpy,
    with_files,
    without_views,
)
from ._files import import_arrow, open_file
from ._groups import Group, Rows, gather
from ._matching import LocatedRows, WholeTable, read_matching

# In random order the latest row groups are kept, up to this many bytes.
_KEPT_BYTES = 256 * 2**20
# In file order a batch has few row groups, unless they are small.
_MAX_GROUPS_IN_ORDER = 64
# Handing a batch to a thread takes longer than to copy so many bytes: 150 us of CPU time.
_BYTES_COPIED_HERE = 256 * 2**10
_FILES_KEPT = 16
# A row group whose values may be more than the limit is read in at least this many parts.
_PARTS = 16


Loaded = tuple[LocatedRows, list[Group]]  # samples whose row groups are in memory


class Parquet(BatchThreadsReader):
    """Read rows of Parquet files: dicts of columns.

    Numbers, booleans, dates and times become scalars, lists of equal lengths arrays with one dimension per depth, bytes and text uint8 (length,).
    Dates and times are the integers of the file, in its unit; decimals become float64. Each field of a structure is a column, ``name.field``; a
    structure of ``bytes`` and ``path``, the form in which Hugging Face stores images and audio, is a column ``name`` of file contents. Lists of
    text or of structures, maps and columns without a type cannot become samples: ``columns`` names the others. Missing numbers are NaN in a column
    of floats or decimals, missing bytes and text are empty; a sample with any other missing value cannot be read.

    Rows are read by row group, and the latest row groups stay in memory. In random order a row group is read about as often as it has rows, unless
    all row groups in use fit in memory: 256 MB.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for consistency with the other readers.
        device: ``"cpu"``.
        path: A file, a folder of ``.parquet`` files, a pattern with ``*``, a URL of any of these (``hf://datasets/...``), or several.
        columns: Columns to deliver, in this order; by default all.
        file_root: Folder or URL below which files are that a column stores as a path; by default the folder of the table.
        allow_any_path: Also follow absolute paths, ``..`` and URLs in such a column, which can make this process read any file and contact any host.
            By default a row with one is a bad sample.
        max_sample_bytes: The largest row group to decode, as a protection against small files that promise a lot; by default the environment
            variable ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, for files that cannot be read or have different columns, columns that do not exist or cannot become samples,
            or without pyarrow (``torch_ndd[parquet]``); at any step, for a row that cannot be read.

    >>> import pathlib, tempfile
    >>> import pyarrow, pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp(), "x.parquet")
    >>> pyarrow.parquet.write_table(pyarrow.table({"label": [3, 1, 2], "text": ["a", "bc", "def"]}), path)
    >>> (batch,) = Parquet(path=path).next_epoch(3)
    >>> batch["label"].torch().tolist(), batch["text"].shape
    ([3, 1, 2], [(1,), (2,), (3,)])
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        path: Path | Sequence[Path],
        columns: str | Sequence[str] | None = None,
        file_root: Path | None = None,
        allow_any_path: bool = False,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._given = as_paths(path)
        self._file_root = None if file_root is None else os.fsdecode(file_root)
        self._allow_any_path = allow_any_path
        self._is_random = False  # whether another reader takes samples in random order
        self._columns = None if columns is None else [columns] if isinstance(columns, str) else list(columns)
        self._paths: list[str] | None = None
        self._selected: list[Column] = []
        self._groups = np.zeros((0, 2), np.int64)  # file, and number in the file, of each row group
        self._begins = np.zeros(1, np.int64)  # the first row of each
        self._count = 0  # of row groups with rows
        self._forget_parent()

    @override
    def _forget_parent(self) -> None:
        super()._forget_parent()
        # Nor are file objects and locks of the parent usable.
        self._files: OrderedDict[int, tuple[Any, threading.Lock]] = OrderedDict()
        self._loaded: OrderedDict[int, Future[Group]] = OrderedDict()  # by number of the row group
        self._sizes: dict[int, int] = {}  # of those that are read
        self._row_bytes = 0  # of a row, on average, in the latest of them
        self._whole: WholeTable | None = None  # once all are in memory
        self._groups_kept = 2  # at least
        self._cache_lock = new_lock()

    @override
    def scan(self) -> int:
        if self._paths is None:
            arrow = import_arrow(self._op)
            paths = [path for source in self._given for path in self._find_files(source)]
            if not paths:
                raise RuntimeError(f"{self._op}: No files found in {', '.join(self._given) or 'an empty list of paths'}")
            # Footers are small reads that wait for the disk or the network, so several at a time.
            with Workers(8, self._op) as executor, ExitStack() as stack:
                opened = executor.map(self._footer, paths)
                footers = [stack.enter_context(footer) for footer in opened]
                groups, rows = self._list_groups(paths, footers, arrow)
            if not sum(rows):
                raise RuntimeError(f"{self._op}: No rows found in {', '.join(self._given)}")
            self._groups, self._begins = np.array(groups, np.int64), np.cumsum([0, *rows], dtype=np.int64)
            self._count = np.count_nonzero(rows)
            self._paths = paths
        return int(self._begins[-1])

    def _list_groups(self, paths: list[str], footers: list[Any], arrow: Any) -> tuple[list[tuple[int, int]], list[int]]:
        """Select the columns, and return the file and the number in it of each row group, and its rows."""
        schema = footers[0].schema_arrow
        self._selected = select_columns(self._op, schema, self._columns, arrow)
        wanted = [schema.field(column.field) for column in self._selected]
        groups, rows = [], []
        for number, (path, footer) in enumerate(zip(paths, footers, strict=True)):
            schema = footer.schema_arrow
            for field in wanted:
                kinds = [each.type for each in schema if each.name == field.name]
                if kinds != [field.type]:
                    there = f"has {field.name!r} as {' and '.join(map(str, kinds))}" if kinds else f"lacks {field.name!r}"
                    reason = f'it {there}, which is {field.type} in "{paths[0]}"; columns=[...] names the columns to read'
                    raise RuntimeError(f'{self._op}: "{path}" does not have the columns of "{paths[0]}": {reason}')
            counts = [footer.metadata.row_group(k).num_rows for k in range(footer.metadata.num_row_groups)]
            # Metadata are untrusted: sample numbers are computed from these counts.
            if sum(counts) != footer.metadata.num_rows or min(counts, default=0) < 0:
                raise RuntimeError(f'{self._op}: "{path}" is damaged: its row groups do not have the {footer.metadata.num_rows} rows of the file')
            groups += [(number, k) for k in range(len(counts))]
            rows += counts
        return groups, rows

    @override
    def list_costs(self, column: str) -> np.ndarray:
        self.scan()
        assert self._paths is not None
        arrow, parts = import_arrow(self._op), []
        for path in self._paths:
            with self._footer(path) as file:
                parts += self._read_numbers(path, file, column, arrow)
        return np.concatenate(parts)

    def _read_numbers(self, path: str, file: Any, column: str, arrow: Any) -> list[np.ndarray]:
        """Return a column of numbers of a file, by row group."""
        known = known_columns(file.schema_arrow, arrow)
        if column not in known or number_type(known[column][1], arrow.types) is None:
            names = ", ".join(name for name, (_, kind) in known.items() if number_type(kind, arrow.types) is not None)
            raise ValueError(f'{self._op}: "{path}" has no column {column!r} of numbers; it has {names or "none"}')
        source, parts = known[column][0], []
        try:
            for k in range(file.metadata.num_row_groups):
                check_sample(f"row group {k} has", promised_bytes(file.metadata.row_group(k), [source.field])[0], self._max_sample_bytes)
                values = source.whole(file.read_row_group(k, columns=[source.field], use_threads=False).column(0), arrow)
                parts.append(to_numpy(values, arrow))
        except Exception as error:
            raise RuntimeError(f'{self._op}: column {column!r} of "{path}" cannot be read: {reason_of(error)}') from None
        return parts

    @override
    def expect_random_order(self) -> None:
        self._is_random = True

    @override
    def narrow(self, column: str) -> "Parquet":
        # copy() goes through __getstate__, so the copy has caches of its own: its row groups have other columns.
        reader = copy.copy(self)
        reader._columns, reader._paths = [column], None
        reader._is_random = False  # a column is read from its beginning to its end
        reader.scan()
        return reader

    def _find_files(self, source: str) -> list[str]:
        """Return the files of a path, a folder or a pattern."""
        try:
            if is_url(source):
                if any(wildcard in source for wildcard in "*?["):
                    return find_urls(source)
                fs, _ = filesystem(source)
                if source.endswith(".parquet") or not call_filesystem(source, "isdir", kind="listing"):
                    return [source]
                found = [fs.unstrip_protocol(name) for name in call_filesystem(source, "find", kind="listing")]
            elif os.path.isdir(source):
                found = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]
            elif any(wildcard in source for wildcard in "*?[") and not os.path.exists(source):
                found = importlib.import_module("glob").glob(source, recursive=True)
                return sorted(name for name in found if os.path.isfile(name))
            else:
                return [source]
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f'{self._op}: "{source}" cannot be read: {reason_of(error)}') from None
        return sorted(name for name in found if name.endswith(".parquet") and not os.path.basename(name).startswith((".", "_")))

    def _footer(self, path: str) -> Any:
        try:
            return open_file(self._op, path)
        except Exception as error:
            raise RuntimeError(f'{self._op}: "{path}" cannot be read: {_other_kind(path) or reason_of(error)}') from None

    def _row(self, sample: int) -> tuple[int, int]:
        """Return the row group of a sample and its row there."""
        group = int(np.searchsorted(self._begins, sample, "right")) - 1
        return group, int(sample - self._begins[group])

    def _source(self, sample: int) -> str:
        assert self._paths is not None
        group, _ = self._row(sample)
        file = self._groups[group, 0]
        # The first row group of the file: the row in the message counts from the file's begin.
        first = np.searchsorted(self._groups[:, 0], file)
        return f"{self._paths[file]} at row {sample - self._begins[first]}"

    @override
    def start(self, samples: np.ndarray) -> Future[Any] | Loaded:
        return self._find_loaded(samples) or super().start(samples)

    @override
    def finish(self, request: Future[Any] | Loaded, samples: np.ndarray) -> Any:
        if isinstance(request, Future):
            return super().finish(request, samples)
        return self._name_samples(self._copy_rows(samples, *request, self._selected), samples)

    def _find_loaded(self, samples: np.ndarray) -> Loaded | None:
        """Return the samples for :meth:`finish` to copy, if they are small and their row groups are in memory."""
        if self._process != os.getpid() or len(samples) * self._row_bytes > _BYTES_COPIED_HERE:
            return None
        located = LocatedRows(samples, self._begins, len(self._selected))
        with self._cache_lock:
            if not located.groups or not self._sizes.keys() >= set(located.groups):
                return None
            groups = [self._loaded[number].result() for number in located.groups]
            for number in located.groups:
                self._loaded.move_to_end(number)
        # Values that need a look at each sample may be in files.
        return (located, groups) if all(group.is_contiguous for group in groups) else None

    def _copy_rows(self, samples: np.ndarray, located: LocatedRows, groups: list[Group], columns: Sequence[Column]) -> dict[str, Batch]:
        """Return some of the selected columns of samples whose row groups are in memory."""
        # Two native calls for all selected columns.
        if columns is self._selected and (outputs := located.copy(groups, [column.name for column in columns])) is not None:
            return outputs
        counts, rows, places = self._sort_by_group(samples, located.groups)
        return self._convert(samples, Rows(groups, counts, rows, places), columns)

    @override
    def _read_batch(self, samples: np.ndarray) -> dict[str, Batch]:
        return self._read_columns(samples, self._selected)

    def _read_columns(self, samples: np.ndarray, columns: Sequence[Column]) -> dict[str, Batch]:
        """Return some of the selected columns."""
        located = LocatedRows(samples, self._begins, len(self._selected))
        if self._reads_in_order:  # the row group that ends this batch begins the next one, whose others another thread may have read before
            self._groups_kept = max(self._groups_kept, min(2 * len(located.groups) - 1, _MAX_GROUPS_IN_ORDER))
        groups: list[Group] = []
        failed: dict[int, str] = {}
        for number in located.groups:
            try:
                groups.append(self._group(number))
            # All samples of the group are bad; other groups of the batch may be good.
            except Exception as error:
                failed[number] = f"its row group cannot be read: {reason_of(error)}"
        if failed:
            numbers = self._groups_of(samples).tolist()
            raise UnreadableSamples({k: failed[number] for k, number in enumerate(numbers) if number in failed})
        return self._copy_rows(samples, located, groups, columns)

    def _groups_of(self, samples: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._begins, samples, "right") - 1

    def _sort_by_group(self, samples: np.ndarray, groups: Sequence[int]) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Return how many samples are of each row group; sorted by them, the rows of the samples there, and their places."""
        if len(groups) == 1:
            return [len(samples)], samples - self._begins[groups[0]], np.arange(len(samples))
        group_of = self._groups_of(samples)
        order = np.argsort(group_of, kind="stable")
        group_of = group_of[order]
        begins = [0, *(np.flatnonzero(group_of[1:] != group_of[:-1]) + 1).tolist()]
        return np.diff([*begins, len(samples)]).tolist(), samples[order] - self._begins[group_of], order

    def _convert(self, samples: np.ndarray, chosen: Rows, columns: Sequence[Column]) -> dict[str, Batch]:
        """Return columns of samples, which ``chosen`` describes."""
        span = chosen.span

        def convert(column: Column) -> Batch:
            if (whole := gather(column.name, chosen, span)) is not None:
                return whole
            arrow = import_arrow(self._op)
            arrays = [column.of(group.table.column(column.field), arrow.array(rows), arrow) for group, rows, _ in chosen.split()]
            array = (arrays[0] if len(arrays) == 1 else arrow.concat_arrays(arrays)).take(arrow.array(np.argsort(chosen.places, kind="stable")))
            return to_batch(self._read_files(array, samples, arrow) if column.inner is None else array, arrow)

        return convert_columns(columns, len(samples), convert)

    @override
    def read_matching(self, column: str, keys: Keys, table: KeyTable) -> dict[str, Batch] | None:
        self._check_process()
        try:
            if (whole := self._whole) is not None:
                matched = whole.match(keys, column, table)
            else:
                names = [each.name for each in self._selected]
                matched = read_matching(keys, column, names, table.find(keys), self._begins, self._group)
        except Exception:  # read_samples says which samples are bad, or which column there is not
            return None
        return None if matched is None else self._name_samples(*matched)

    def _read_files(self, column: Any, samples: np.ndarray, arrow: Any) -> Any:
        """Return the contents of a column of files, some of which may be stored as a path."""
        advice = None if self._allow_any_path else "; allow_any_path=True follows it"
        return with_files(column, self._folders(samples), arrow, self._max_sample_bytes, advice)

    def _folders(self, samples: np.ndarray) -> list[str]:
        assert self._paths is not None
        if self._file_root is not None:
            return [self._file_root] * len(samples)
        return [self._paths[self._groups[self._row(sample)[0], 0]].rpartition("/")[0] for sample in samples.tolist()]

    def _group(self, group: int) -> Group:
        """Return a row group from the cache; the first thread that needs it loads it, others wait for its future."""
        with self._cache_lock:
            future = self._loaded.get(group)
            # Outside the lock the first thread loads; the others wait for the future, without holding the lock.
            mine = future is None
            if future is None:
                future = self._loaded[group] = Future()
            self._loaded.move_to_end(group)
        if mine:
            try:
                table, promised = self._load_group(group), self._begins[group + 1] - self._begins[group]
                # The rows that a file delivers may differ from what its metadata promise, and samples are numbered by those.
                if table.num_rows != promised:
                    raise RuntimeError(f"the row group has {table.num_rows} rows instead of {promised}")
                arrow = import_arrow(self._op)
                future.set_result(Group(without_views(table, arrow), self._selected, arrow))
            except BaseException as error:
                # A failed group is forgotten, so that a later request tries again.
                with self._cache_lock:
                    self._loaded.pop(group, None)
                future.set_exception(error)
                raise
            with self._cache_lock:
                self._sizes[group], self._row_bytes = future.result().bytes, future.result().row_bytes
                done = [k for k in self._loaded if k in self._sizes]
                total = sum(self._sizes[k] for k in done)
                # In file order a row group is needed for a few batches, and memory that was just freed is still in the CPU's cache.
                limit = 0 if self._reads_in_order else _KEPT_BYTES
                # Oldest first: entries are moved to the end when used. Those of two batches stay.
                for k in done[: -self._groups_kept]:
                    if total > limit:
                        del self._loaded[k]
                        total -= self._sizes.pop(k)
                self._note_whole()
        return future.result()

    def _note_whole(self) -> None:
        """Note that all row groups are in memory, where they stay: only loading another one removes any. The caller holds the lock."""
        if len(self._sizes) < self._count:
            return
        groups = {number: self._loaded[number].result() for number in self._sizes}
        if all(group.fields is not None for group in groups.values()):
            names = [column.name for column in self._selected]
            self._whole = WholeTable([groups.get(number) for number in range(len(self._groups))], self._begins, names)

    @property
    def _reads_in_order(self) -> bool:
        return not (self._is_random or self._random_shuffle or self._shuffle_after_epoch)

    def _load_group(self, group: int) -> Any:
        assert self._paths is not None
        number, k = self._groups[group].tolist()
        with self._cache_lock:
            found = self._files.get(number)
            if found is None:
                # Only one thread at a time may read from a file object of Arrow.
                found = self._files[number] = (open_file(self._op, self._paths[number]), threading.Lock())
                if len(self._files) > _FILES_KEPT:
                    self._files.popitem(last=False)
            self._files.move_to_end(number)
        file, lock = found
        names = list(dict.fromkeys(column.field for column in self._selected))
        with lock:
            size, longest = promised_bytes(file.metadata.row_group(k), names)
            check_sample(f"row group {k} has", size, self._max_sample_bytes)
            # Repeated values of a dictionary can exceed the size in the footer.
            if longest * file.metadata.row_group(k).num_rows > self._max_sample_bytes:
                return self._load_group_in_parts(file, k, names, max(1, self._max_sample_bytes // (_PARTS * longest)))
            read = partial(file.read_row_group, k, columns=names, use_threads=False)
            return read().combine_chunks()

    def _load_group_in_parts(self, file: Any, k: int, names: list[str], rows: int) -> Any:
        """Read a row group in parts, and stop when it exceeds the size limit."""
        parts, size = [], 0
        for part in file.iter_batches(rows, [k], names, use_threads=False):
            parts.append(part)
            size += part.nbytes
            check_sample(f"row group {k} has more than", size, self._max_sample_bytes)
        return import_arrow(self._op).Table.from_batches(parts, parts[0].schema if parts else file.schema_arrow).combine_chunks()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "_files": OrderedDict(), "_loaded": OrderedDict(), "_sizes": {}, "_whole": None, "_cache_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._cache_lock = new_lock()


def _other_kind(path: str) -> str:
    """Return what a local file is if not Parquet, for the message; else an empty string."""
    try:
        with open_regular(path) as file:
            kind = native.file_kind(file.read(512))
    except OSError:
        return ""
    return f"it is {kind}, not a Parquet file" if kind not in ("", "a Parquet file") else ""
