# SPDX-License-Identifier: Apache-2.0
"""Sources of one kind, read together into one batch. Merging the batches of several sources would copy all of their bytes."""

import math
import operator
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core import native
from ..._core.native import CPU, empty
from ..._core.process.workers import Workers
from ..._core.work.diagnosis import is_loading
from .._ranges.ranges import Ranges, Sources, address_of, start_files
from .._sources.inner import InnerSource
from ..dataset import Dataset
from ..dataset._activity import MeasuredCall, call_measured
from ..dataset._items import Rows, find_rows, gather_rows, have_plain_rows
from ..dataset._requests import ItemRequest, Pace, choose_size, collate_items
from ..file import File


class JointFiles:
    """Plain readers of files. Copying 256 files of 60 kB takes 10 ms, as long as reading them."""

    def __init__(self, readers: Sequence[File], tables: Sequence[Ranges]) -> None:
        self._readers, self._tables = readers, tables

    def start(self, which: np.ndarray, numbers: np.ndarray, seeds: np.ndarray | None = None) -> Any:
        """Start to read sample ``numbers[k]`` of source ``which[k]``, for each k. Nothing draws from ``seeds``."""
        return start_files(self._tables, which, numbers)

    def finish(self, request: Any, which: np.ndarray, numbers: np.ndarray) -> Any:
        """Return the outputs. Raise UnreadableSamples."""
        files = request.finish()
        parts = [(chosen := which == source, self._readers[source]._labels_of(numbers[chosen])) for source in np.unique(which).tolist()]
        # OutputCheck has verified that the labels of all sources have one dtype.
        labels = np.empty(len(which), parts[0][1].dtype)
        for chosen, values in parts:
            labels[chosen] = values
        return files, self._readers[0]._batch_labels(labels)


# Samples of a source, with the seeds of what they draw.
_Part = tuple[Dataset, list[int], list[int] | None]

# Returns the outputs of the samples from one number to another, whose sources are given. Raises UnreadableSamples.
TakePart = Callable[[int, int, Sources], Any]

# For each pool of threads the places in the batch of its items, and a function that waits for them.
Requests = list[tuple[list[int], Callable[[], list[Any]]]]


class _Started(NamedTuple):
    """The requests of a batch, the process whose threads read, and the seeds of what is drawn."""

    process: int
    requests: Requests
    seeds: np.ndarray | None


class JointItems:
    """Data sets of torch. Their items are collated once; by source and then together takes 0.5 ms more for 64 items of 5 sources."""

    def __init__(self, readers: Sequence[Dataset]) -> None:
        self._readers = readers
        # All processes are used, however quick the items are.
        self._pace = Pace() if all(reader._context is None for reader in readers) else None
        self._has_one_pool = all(reader._lender is readers[0] for reader in readers[1:])
        self._calls = {reader.reads_together for reader in readers}

    def is_quick(self) -> bool:
        """Return whether the thread that wants a batch reads its items."""
        return self._pace is not None and self._pace.in_turn

    def start(self, which: np.ndarray, numbers: np.ndarray, seeds: np.ndarray | None = None) -> _Started:
        """Start to read sample ``numbers[k]`` of source ``which[k]``, for each k. What it draws follows from ``seeds[k]``."""
        order = which.argsort(kind="stable")
        # Lists, because each operation of NumPy on so few numbers takes a microsecond.
        rows, sources, samples = order.tolist(), which[order].tolist(), numbers[order].tolist()
        words = None if seeds is None else seeds[order].view(np.uint64).tolist()
        by_pool: dict[Workers | None, tuple[list[int], list[_Part]]] = {}
        pool = self._readers[0].find_pool() if self._has_one_pool else None
        for source, begin, end in _split_by_source(sources):
            reader = self._readers[source]
            places, parts = by_pool.setdefault(pool if self._has_one_pool else reader.find_pool(), ([], []))
            places += rows[begin:end]
            parts.append((reader, samples[begin:end], words[begin:end] if words is not None and reader.draws() else None))
        requests: Requests = []
        for pool, (places, parts) in by_pool.items():
            reads = [partial(call_measured, piece) for piece in self._cut_pieces(parts, len(places), pool)]
            requests.append((places, ItemRequest(reads, len(places), pool, self._pace, None, self._calls == {True}, is_loading()).items))
        return _Started(os.getpid(), requests, seeds)

    def _cut_pieces(self, parts: list[_Part], count: int, pool: Workers | None) -> list[list[MeasuredCall]]:
        """Return pieces for threads to read, of several sources where each has few samples. Each source measures its own, to find the slow one."""
        sizes = {in_one_call: choose_size(count, pool, self._pace, in_one_call) for in_one_call in self._calls}
        pieces: list[list[MeasuredCall]] = []
        room = 0  # in the latest piece
        for reader, samples, words in parts:
            size, begin = sizes[reader.reads_together], 0
            # Each call takes 3 us, so one thread reads the rest of a part with its last piece. Several threads need pieces of one size.
            more = size - 1 if self.is_quick() else 0
            while begin < len(samples):
                if room <= 0:
                    pieces.append([])
                    room = size
                end = begin + room if len(samples) - begin > room + more else len(samples)
                read = reader._read_piece if words is None else partial(reader._read_piece, seeds=words[begin:end])
                pieces[-1].append((reader._activity, read, samples[begin:end]))
                room, begin = room - (end - begin), end
        return pieces

    def finish(self, request: _Started, which: np.ndarray, numbers: np.ndarray) -> Any:
        """Return the outputs. Raise UnreadableSamples."""
        return collate_items(self._wait(request, which, numbers))

    def split(self, request: _Started, which: np.ndarray, numbers: np.ndarray, order: np.ndarray) -> TakePart:
        """Wait for the samples. Return a function for the outputs of a part of them in ``order``, which is of one source."""
        items = self._wait(request, which, numbers)
        items = [items[k] for k in order.tolist()]
        return lambda begin, end, sources: collate_items(items[begin:end], sources)

    def _wait(self, request: _Started, which: np.ndarray, numbers: np.ndarray) -> list[Any]:
        """Return the items, or why they cannot be read."""
        if request.process != os.getpid():  # a forked child does not have the threads of its parent
            request = self.start(which, numbers, request.seeds)
        items: list[Any] = [None] * len(which)
        for rows, wait in request.requests:
            for row, item in zip(rows, wait(), strict=True):
                items[row] = item
        return items


def _split_by_source(sources: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each number in a sorted list, and where its run begins and ends."""
    begin = 0
    while begin < len(sources):
        end = bisect_right(sources, sources[begin], begin)
        yield sources[begin], begin, end
        begin = end


class _RowAddresses:
    """Where the rows of the tensors of all sources are, so that native code copies those of a batch in one call for each tensor.

    Args:
        tables: the tensors of each source, contiguous, with rows alike.
    """

    def __init__(self, tables: Sequence[Sequence[torch.Tensor]]) -> None:
        self._tensors = [tensor for tensors in tables for tensor in tensors]
        self._states = _states_of(self._tensors)
        self._first = tables[0]
        self._sizes = np.array([min(map(len, tensors)) for tensors in tables])
        self._begins = np.array([[tensor.data_ptr() for tensor in column] for column in zip(*tables, strict=True)])  # (tensors, sources)
        self._row_bytes = [math.prod(tensor.shape[1:]) * tensor.itemsize for tensor in self._first]

    def are_of(self, datasets: Sequence[Any]) -> bool:
        """Return whether the data sets still have the same tensors, at the same addresses."""
        tensors = [tensor for dataset in datasets for tensor in dataset.tensors]
        return len(tensors) == len(self._tensors) and all(map(operator.is_, tensors, self._tensors)) and _states_of(tensors) == self._states

    def take(self, which: np.ndarray, numbers: np.ndarray) -> Rows | None:
        """Return rows ``numbers[k]`` of source ``which[k]``; None if one is outside."""
        if not len(which) or numbers.min() < 0 or (numbers >= self._sizes[which]).any():
            return None
        rows = Rows()
        for tensor, begins, row_bytes in zip(self._first, self._begins, self._row_bytes, strict=True):
            column = empty((len(which), *tensor.shape[1:]), tensor.dtype, CPU)
            addresses, lengths = begins[which] + numbers * row_bytes, np.full(len(which), row_bytes)
            native.gather(None, 1, address_of(addresses), address_of(lengths), len(which), column.data_ptr())
            rows.append(column)
        return rows


def _states_of(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return what must not change of tensors whose rows are copied by address: 0.4 us for each, all checks of a source 15 us."""
    return [(tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.requires_grad) for tensor in tensors]


def _find_addresses(datasets: Sequence[Any]) -> _RowAddresses | None:
    """Return where the rows of data sets are; None unless all are whole tensors with rows alike."""
    if any(type(dataset) is not torch.utils.data.TensorDataset for dataset in datasets):
        return None
    tables = [dataset.tensors for dataset in datasets]
    if not all(tensors and have_plain_rows(tensors) and all(tensor.is_contiguous() for tensor in tensors) for tensors in tables):
        return None
    if len({tuple((tensor.dtype, tensor.shape[1:]) for tensor in tensors) for tensors in tables}) > 1:
        return None
    return _RowAddresses(tables)


class JointRows:
    """``TensorDataset``s, of which rows are taken together: 256 samples of two tensors take 5 us more from 5 sources than from one.

    In a loader 0.5 ms, as items 2.4 ms.
    """

    def __init__(self, readers: Sequence[Dataset]) -> None:
        self._readers = readers
        self._items = JointItems(readers)
        self._datasets = [reader._dataset for reader in readers]
        self._addresses = _find_addresses(self._datasets)

    def is_quick(self) -> bool:
        """Return whether the thread that wants a batch reads its items."""
        return True

    def start(self, which: np.ndarray, numbers: np.ndarray, seeds: np.ndarray | None = None) -> None:
        """Do nothing: :meth:`finish` takes the rows."""

    def finish(self, request: None, which: np.ndarray, numbers: np.ndarray) -> Any:
        """Return the outputs. Raise UnreadableSamples."""
        rows = self._take(which, numbers)
        # Rows of different shapes, and tensors of kinds that are read item by item.
        return self._items.finish(self._items.start(which, numbers), which, numbers) if rows is None else rows.outputs(())

    @property
    def copies(self) -> bool:
        """Whether rows are copied by their addresses."""
        return self._addresses is not None

    def split(self, request: None, which: np.ndarray, numbers: np.ndarray, order: np.ndarray) -> TakePart:
        """Do what :meth:`JointItems.split` does."""
        rows = self._copy(which[order], numbers[order])
        if rows is None:
            return self._items.split(self._items.start(which, numbers), which, numbers, order)
        return lambda begin, end, sources: Rows(column[begin:end] for column in rows).outputs(sources)

    def _copy(self, which: np.ndarray, numbers: np.ndarray) -> Rows | None:
        """Return the rows of a batch, copied by their addresses; None where this is not possible."""
        if self._addresses is not None and not self._addresses.are_of(self._datasets):
            self._addresses = _find_addresses(self._datasets)
        return None if self._addresses is None else self._addresses.take(which, numbers)

    def _take(self, which: np.ndarray, numbers: np.ndarray) -> Rows | None:
        """Return the rows of a batch; None if they are not alike."""
        if (rows := self._copy(which, numbers)) is not None:
            return rows
        order = which.argsort(kind="stable")
        sources, samples, parts = which[order].tolist(), numbers[order], []
        for source, begin, end in _split_by_source(sources):
            reader = self._readers[source]
            if (found := find_rows(reader._dataset, samples[begin:end])) is None:
                return None
            parts.append((reader, *found, begin, end))
        if len({tuple((tensor.dtype, tensor.shape[1:]) for tensor in tensors) for _, tensors, *_ in parts}) > 1:
            return None
        columns = [empty((len(samples), *tensor.shape[1:]), tensor.dtype, CPU) for tensor in parts[0][1]]
        for reader, tensors, index, begin, end in parts:
            with reader._activity:
                for column, tensor in zip(columns, tensors, strict=True):
                    gather_rows(tensor, index, column[begin:end])
        if len(parts) == 1:
            return Rows(columns)
        # Source by source so far. With copies to scattered places in place of one more gather, a batch took 0.84 ms.
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return Rows(gather_rows(column, places, torch.empty_like(column)) for column in columns)


Joint = JointFiles | JointItems | JointRows


def join_sources(sources: Sequence[InnerSource]) -> Joint | None:
    """Return the sources as readers that are read together; None if they are of different kinds, or have functions or limits of their own."""
    if any(source.has_functions or source.has_limits for source in sources):
        return None
    # Exactly `File`: a subclass may deliver something else.
    files = [source.reader for source in sources if type(source.reader) is File]
    tables = [table for reader in files if (table := reader._whole_files()) is not None]
    return JointFiles(files, tables) if len(tables) == len(sources) else _join_data_sets(sources)


def join_reads(sources: Sequence[InnerSource]) -> JointItems | JointRows | None:
    """Return data sets with functions as readers that are read together, and split for the functions; None for other sources."""
    if any(source.has_limits for source in sources):
        return None
    joint = _join_data_sets(sources)
    # Parts of a TensorDataset take their own rows together, as items of all together would not.
    return None if isinstance(joint, JointRows) and not joint.copies else joint


def _join_data_sets(sources: Sequence[InnerSource]) -> JointItems | JointRows | None:
    data_sets = [source.reader for source in sources if isinstance(source.reader, Dataset) and source.reader._delivers_items]
    if len(data_sets) < len(sources):
        return None
    return JointRows(data_sets) if all(reader._has_table() for reader in data_sets) else JointItems(data_sets)
