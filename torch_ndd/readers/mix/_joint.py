# SPDX-License-Identifier: Apache-2.0
"""Sources of one kind, read together into one batch. Merging the batches of several sources would copy all of their bytes."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._ranges.ranges import Ranges, start_files
from .._sources.inner import InnerSource
from ..dataset import Dataset
from ..dataset._activity import Activity
from ..dataset._items import collate_outputs
from ..dataset._requests import ItemRequest, Pace, collect_items
from ..file import File


class JointFiles:
    """Plain readers of files. Copying 256 files of 60 kB takes 10 ms, as long as reading them."""

    def __init__(self, readers: Sequence[File], tables: Sequence[Ranges]) -> None:
        self._readers, self._tables = readers, tables

    def start(self, which: np.ndarray, numbers: np.ndarray) -> Any:
        """Start to read sample ``numbers[k]`` of source ``which[k]``, for each k."""
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


class JointItems:
    """Data sets of torch. Their items are collated once; by source and then together takes 0.5 ms more for 64 items of 5 sources."""

    def __init__(self, readers: Sequence[Dataset]) -> None:
        self._readers = readers
        # All processes are used, however quick the items are.
        self._pace = Pace() if all(reader._context is None for reader in readers) else None

    def start(self, which: np.ndarray, numbers: np.ndarray) -> tuple[int, list[Callable[[], Any]]]:
        """Start to read sample ``numbers[k]`` of source ``which[k]``, for each k. Return the process with the functions that wait for the items."""
        # In the order of the batch: grouping the samples by source and back takes 50 us for 256 samples of 5 sources.
        sources = which.tolist()
        readers = {k: self._readers[k].item_reader() for k in set(sources)}
        waits: list[Callable[[], Any]] = [
            partial(_read_measured, self._readers[k]._activity, readers[k][0], number) for k, number in zip(sources, numbers.tolist(), strict=True)
        ]
        for k in readers:
            if self._readers[k]._reads_together:
                rows = [row for row, source in enumerate(sources) if source == k]
                for row, wait in zip(rows, self._readers[k].start(numbers[rows]), strict=True):
                    waits[row] = wait
        apart = [row for row, k in enumerate(sources) if not self._readers[k]._reads_together]
        for pool in {pool for _, pool in readers.values() if pool is not None}:
            rows = [row for row in apart if readers[sources[row]][1] is pool]
            for row, wait in zip(rows, ItemRequest([waits[row] for row in rows], pool, self._pace).waits, strict=True):
                waits[row] = wait
        return os.getpid(), waits

    def finish(self, request: tuple[int, list[Callable[[], Any]]], which: np.ndarray, numbers: np.ndarray) -> Any:
        """Return the outputs. Raise UnreadableSamples."""
        process, waits = request
        if process != os.getpid():  # a forked child does not have the threads of its parent
            _, waits = self.start(which, numbers)
        return collate_outputs(collect_items(waits))


def _read_measured(activity: Activity, read: Callable[[int], Any], number: int) -> Any:
    """Read an item; each data set measures its own, so that the slow one is found."""
    with activity:
        return read(number)


Joint = JointFiles | JointItems


def join_sources(sources: Sequence[InnerSource]) -> Joint | None:
    """Return the sources as readers that are read together; None if they are of different kinds, or have functions or limits of their own."""
    if any(source.has_functions or source.has_limits for source in sources):
        return None
    # Exactly `File`: a subclass may deliver something else.
    files = [source.reader for source in sources if type(source.reader) is File]
    tables = [table for reader in files if (table := reader._whole_files()) is not None]
    if len(tables) == len(sources):
        return JointFiles(files, tables)
    data_sets = [source.reader for source in sources if isinstance(source.reader, Dataset) and source.reader._delivers_items]
    return JointItems(data_sets) if len(data_sets) == len(sources) else None
