# SPDX-License-Identifier: Apache-2.0
"""The shards of a streaming data set, read in parallel.

An epoch is a queue of shards. Rank r of R takes the shards r, r + R, ... of the queue. It keeps some of them open, in slots, and takes one sample of
each slot in turn; a slot whose shard has ended continues with the rank's next shard, or closes if there is none. So the sequence of a rank depends
on the data, the queue and the number of slots only, not on batch sizes or threads.
"""

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from ..._core.context.states import MAX_SHARDS, whole
from ..._core.process.workers import Workers, is_here
from ..._core.values.batch import Batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import reason_of
from .._sources.streams import Stream
from ..parquet._columns import Column, select_columns, table_to_batches, without_views
from ..parquet._files import import_arrow
from ._state import Progress, Queue, StreamState

_CHUNK = 32  # rows that a thread reads at a time; an open shard has two chunks in memory


class ShardStream(Stream):
    """A rank's part of a streaming data set, for a loader. ``seed`` is None if the shards keep their order."""

    _op = "readers.HuggingFaceStream"

    def __init__(self, dataset: Any, columns: Sequence[str] | None, parallel: int, shard_id: int, num_shards: int, seed: int | None) -> None:
        super().__init__()
        self.shard_id, self.num_shards = shard_id, num_shards
        self._dataset, self._columns, self._parallel, self._seed = dataset, columns, parallel, seed
        self._shards: int = dataset.num_shards
        if not num_shards <= self._shards <= MAX_SHARDS:
            raise ValueError(
                f"{self._op}: the data set has {self._shards} shards, which cannot be divided among {num_shards} ranks; "
                "store it in more files, or see dataset.reshard()"
            )
        self._selected: list[Column] = []
        self._executor: Workers | None = None
        self._queue, self._progress = Queue(), Progress()

    def set_epoch(self, epoch: int) -> None:
        self._epoch = whole()(epoch, f"{self._op}: epoch")
        self._queue, self._progress, self._resumed = Queue(), Progress(), True

    def _next_epoch(self) -> None:
        self.set_epoch(self._epoch + 1)

    def begin_pass(self, batch_size: int | None) -> Iterator[Any]:
        assert batch_size is not None
        # A pass that was left early is not continued, unless a state was loaded since.
        if not self._resumed and self._progress.samples:
            self._next_epoch()
        return self._rest(batch_size)

    def _rest(self, batch_size: int) -> Iterator[Any]:
        for batch, after in self._read(batch_size):
            self._progress, self._resumed = after, False
            yield batch
        self._next_epoch()

    def locate_next_batch(self) -> tuple[int, int]:
        return self._epoch, self._queue.delivered + self._progress.samples * self.num_shards + self.shard_id

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this rank."""
        progress = {self.shard_id: self._progress}
        return StreamState(self._epoch, self._shards, self._seed, self._queue, self.num_shards, progress).encode()

    def parse_state(self, state: Any) -> tuple[int, Queue, Progress]:  # type: ignore[override]
        found = StreamState.decode(self._op, state)
        if (found.shards, found.seed) != (self._shards, self._seed):
            raise ValueError(
                f"{self._op}: the state is for {found.shards} shards with seed {found.seed} for their order, "
                f"but here are {self._shards} with seed {self._seed}; samples would be repeated or left out"
            )
        return found.epoch, *found.divide(self._op, self.shard_id, self.num_shards)

    def move_to(self, state: tuple[int, Queue, Progress]) -> None:  # type: ignore[override]
        self._epoch, self._queue, self._progress = state
        self._resumed = True

    def has_begun(self, state: dict[str, Any]) -> bool:
        return bool(state["queue"]["delivered"] or any(progress["samples"] for progress in state["progress"].values()))

    def describe_bottleneck(self) -> tuple[str, str]:
        return "the streaming data set", "read more shards at a time (parallel)"

    # Reading.

    def _list_shards(self) -> list[tuple[int, int]]:
        """Return the rank's part of the queue: shards, and how many of their samples were delivered before."""
        order = range(self._shards) if self._seed is None else np.random.default_rng([self._seed % 2**64, self._epoch]).permutation(self._shards)
        # Every n-th shard, so that ranks that leave the queue at different places have read from the same part of the epoch.
        places = self._queue.list_places(self._shards)[self.shard_id :: self.num_shards]
        return [(int(order[place]), skip) for place, skip in places]

    def _pool(self) -> Workers:
        if not is_here(self._executor):
            self._executor = Workers(self._parallel, self._op, self)
        return self._executor

    def _read(self, batch_size: int) -> Iterator[tuple[dict[str, Batch], Progress]]:
        """Yield the batches from the position on, each with the position after it."""
        pool, shards = self._pool(), self._list_shards()
        taken, _, turn, samples = self._progress

        def open_shard(item: int, count: int = 0) -> "_OpenShard":
            shard, skip = shards[item]
            return _OpenShard(pool, self._dataset, self._epoch, shard, item, skip + count, count)

        slots = [open_shard(item, count) for item, count in self._progress.slots]
        while len(slots) < self._parallel and taken < len(shards):
            slots.append(open_shard(taken))
            taken += 1
        rows: list[_Row] = []
        # One row from each open shard in turn: the order depends on the position only, not on which thread is faster.
        while slots:
            turn %= len(slots)
            slot = slots[turn]
            row = slot.take_row(self._op)
            if row is None and taken < len(shards):
                slots[turn] = open_shard(taken)
                taken += 1
            elif row is None:
                del slots[turn]
            else:
                rows.append(row)
                turn += 1
            if rows and (len(rows) == batch_size or not slots):
                samples += len(rows)
                progress = Progress(taken, tuple((slot.item, slot.count) for slot in slots), turn, samples)
                yield self._join_rows(rows), progress
                rows = []

    def _join_rows(self, rows: Sequence["_Row"]) -> dict[str, Batch]:
        arrow = import_arrow(self._op)
        places: dict[int, list[int]] = {}  # of the rows in the batch, by chunk
        for place, row in enumerate(rows):
            places.setdefault(id(row.chunk), []).append(place)
        parts = [without_views(rows[chosen[0]].chunk, arrow).take([rows[place].row for place in chosen]) for chosen in places.values()]
        # A column without a value in a chunk may have the type null there, or that of empty lists.
        table = arrow.concat_tables(parts, promote_options="permissive")
        # One take for each chunk and one that restores the order, instead of one for each row.
        table = table.take(np.argsort([place for chosen in places.values() for place in chosen]))
        names = tuple(row.name for row in rows)
        if not self._selected:
            self._selected = select_columns(self._op, table.schema, self._columns, arrow)
        try:
            outputs = table_to_batches(table, self._selected, arrow)
        except UnreadableSamples as bad:
            k = min(bad.reasons)
            raise RuntimeError(f"{self._op}: {names[k]} cannot be read: {bad.reasons[k]}") from None
        for batch in outputs.values():
            batch.sources = names
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_executor": None}


class _Row(NamedTuple):
    """A sample: a row of a chunk."""

    chunk: Any
    row: int
    name: str  # for messages


class _OpenShard:
    """A shard that is being read by one call at a time, which is one chunk ahead."""

    def __init__(self, pool: Workers, dataset: Any, epoch: int, shard: int, item: int, skip: int, count: int) -> None:
        self.item, self.count = item, count  # see Progress
        self._pool, self._dataset, self._epoch, self._shard = pool, dataset, epoch, shard
        self._next = skip  # number of the next sample in the shard
        self._chunk: Any = None
        self._row = 0
        self._chunks: Iterator[Any] | None = None
        self._ahead: Future[Any] | None = pool.submit(self._read_chunk)

    def _read_chunk(self) -> Any:
        """Return the next chunk, None at the end; on a thread."""
        if self._chunks is None:
            self._chunks = self._open()
        return next(self._chunks, None)

    def _open(self) -> Iterator[Any]:
        part = self._dataset.shard(self._dataset.num_shards, self._shard)
        if self._next:  # nothing has been taken yet
            part = part.skip(self._next)
        # After map() the types are unknown unless it was given `features`; from_dict() derives them from a chunk, "arrow" from each row.
        typed = part.features is not None
        part = part.with_format("arrow" if typed else None)
        part.set_epoch(self._epoch)
        chunks = part.iter(_CHUNK)
        if typed:
            return iter(chunks)
        from_dict = importlib.import_module("datasets").Dataset.from_dict
        return (from_dict(chunk).with_format("arrow")[:] for chunk in chunks)

    def take_row(self, op: str) -> _Row | None:
        """Return the next sample, None at the end. Raise RuntimeError if it cannot be read."""
        while self._chunk is None or self._row == len(self._chunk):
            if self._ahead is None:
                return None
            try:
                self._chunk, self._row = self._ahead.result(), 0
            except Exception as error:
                self._ahead = None
                raise RuntimeError(f"{op}: shard {self._shard} cannot be read after sample {self._next}: {reason_of(error)}") from error
            self._ahead = None if self._chunk is None else self._pool.submit(self._read_chunk)
        taken = _Row(self._chunk, self._row, f"shard {self._shard}, sample {self._next}")
        self._row, self._next, self.count = self._row + 1, self._next + 1, self.count + 1
        return taken
