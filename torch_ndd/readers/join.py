# SPDX-License-Identifier: Apache-2.0
"""Samples of two data sets with the same key."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from typing_extensions import Unpack, override

from .._core.context.device import DeviceLike
from .._core.process.workers import Workers, is_here
from .._core.suggestions import check_choice
from .._core.values.batch import Batch, new_batch, ragged_batch
from .._core.work.bad_samples import LeftOut, UnreadableSamples
from ._base import Reader
from ._columns import find_column, read_column
from ._key_table import KeyTable
from ._keys import Keys, keys_of
from ._options import LoaderOptions
from ._sources.inner import InnerSource
from ._summary import brief
from ._waits import Waits, describe_slowest

Missing = Literal["raise", "skip", "empty"]

# Batches, by default: the left reader must not wait while its latest batch is joined. On two cores an archive of photographs joined with captions
# took 1.20 times as long as the archive alone, with its default of 1 batch, when it read 2 ahead, 1.13 with 3, 1.00 with 4, and 0.91 with 6.
_READ_AHEAD = 4
_THREADS = 2  # each waits for a batch of the left reader, then reads that of the right one


class Join(Reader):
    """Join two data sets by a key: dicts of the outputs of both.

    The samples, their order and the state are those of ``left``. At the first step the keys of ``right`` are read once, without the other columns of
    :class:`Parquet`, into a table of 64-bit hashes and sample numbers, 16 bytes per sample. Each batch then reads its samples of ``right`` by number,
    and compares the keys.

    Args:
        left: a reader with named outputs, built without shards; a map-style data set whose items are dicts; or a :class:`torch_ndd.Source` that
            returns dicts.
        right: likewise.
        max_batch_size: default batch size of :meth:`next_epoch`.
        device: ``"cpu"``.
        on: the name of the output of both with the keys: whole numbers, texts or bytes.
        missing: what to do with a sample of ``left`` whose key ``right`` does not have. ``"raise"`` RuntimeError. ``"skip"``: leave it out, and
            continue with the following samples, so that batches stay full. ``"empty"``: deliver no elements, or NaN for numbers of float types.
        loader: Options of all readers, see :class:`LoaderOptions`. A sample that one of both cannot read is a bad sample. By default
            4 batches are read ahead.

    Raises:
        TypeError: a source that is not a reader or a map-style data set, or that can only be read from its beginning.
        ValueError: another ``missing``; a source with shards, an order or an ``on_error`` of its own, or that has begun; at the first step, outputs
            without names, without the key, or keys of other types.
        RuntimeError: a data set without samples; at the first step, a key that ``right`` has twice, or an output that both have; at any step, a
            missing key.

    >>> images = [{"id": "b", "pixels": torch.zeros(2)}, {"id": "a", "pixels": torch.ones(2)}]
    >>> captions = [{"id": "a", "label": 1}, {"id": "b", "label": 2}]
    >>> [(batch["id"], batch["label"].torch().tolist()) for batch in Join(images, captions, on="id").next_epoch(2)]
    [(['b', 'a'], [2, 1])]
    """

    def __init__(
        self,
        left: Any,
        right: Any,
        max_batch_size: int | None = None,
        device: DeviceLike = "cpu",
        *,
        on: str,
        missing: Missing = "raise",
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, {"prefetch_queue_depth": _READ_AHEAD, **loader})
        check_choice(self._op, "missing", missing, get_args(Missing), ValueError)
        self._brief, self._on, self._policy_of_missing = f"{brief(left)} and {brief(right)}, on={on!r}", on, missing
        self._left, self._right = (InnerSource(self._op, what, what, source) for what, source in (("left", left), ("right", right)))
        self._right.reader.expect_random_order()
        self._needs = {f"{part.name}: {what}": path for part in (self._left, self._right) for what, path in part.reader._needs.items()}
        self._can_change = self._left.reader._can_change
        # Functions may draw random numbers, in the order of the batches; so they run where the batch is requested, not ahead of it.
        self._reads_ahead = not (self._left.has_functions or self._right.has_functions)
        self._table: KeyTable | None = None
        self._template: Any = None  # outputs of right, for batches without any
        self._executor: Workers | None = None
        self._waits = Waits(("left", "right"))

    @override
    def scan(self) -> int:
        if self._table is None:
            size = self._right.scan()
            # A random salt, so that no data set can be made whose keys collide.
            self._table = KeyTable(lambda: self._read_keys(size), size, int.from_bytes(os.urandom(8), "little"), self._compare)
        return self._left.scan()

    def _read_keys(self, size: int) -> Any:
        for column in read_column(self._op, self._right, self._on, size):
            yield keys_of(self._op, "right", column)

    def _compare(self, first: int, second: int) -> None:
        """Raise RuntimeError if two samples of the right have the same key."""
        source, samples = self._right.narrow(self._on), np.array([first, second])
        keys = keys_of(self._op, "right", find_column(self._op, "right", source.read(samples), self._on))
        if keys.content(0) == keys.content(1):
            paths = " and ".join(f"sample {sample} ({self._right.path(sample)})" for sample in (first, second))
            raise RuntimeError(f"{self._op}: right has the key {keys.text(0)} twice: {paths}")

    @override
    def _begin_source(self) -> None:
        self._left.reader._begin_source()
        self._right.reader._begin_source()

    def _source(self, sample: int) -> str:
        return self._left.path(sample)

    @override
    def _inner_readers(self) -> Sequence[Reader]:
        return self._left.reader, self._right.reader

    @override
    def start(self, samples: np.ndarray) -> "_Request":
        return self.start_seeded(samples, None)

    @override
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray | None) -> "_Request":
        if not self._reads_ahead:
            return _Request(self._left.start(samples, seeds), seeds)
        if not is_here(self._executor):
            self._executor = Workers(_THREADS, self._op, self)
        # The left request starts here, in the order of the batches; the thread waits for it and then reads the right part.
        return _Request(self._executor.submit(self._read, self._left.start(samples, seeds), samples, seeds), seeds)

    @override
    def finish(self, request: "_Request", samples: np.ndarray) -> dict[str, Any]:
        if not self._reads_ahead:
            return self._read(request.work, samples, request.seeds)
        if not is_here(self._executor):
            request = self.start_seeded(samples, request.seeds)
        return request.work.result()

    def _read(self, request: Any, samples: np.ndarray, seeds: np.ndarray | None) -> dict[str, Any]:
        """Read a batch of the left, then the samples of the right with its keys."""
        assert self._table is not None
        with self._waits.measure(0):
            left = self._left.finish(request, samples)
        keys = keys_of(self._op, "left", find_column(self._op, "left", left, self._on))
        if keys.is_number != self._table.is_number:
            kinds = ["whole numbers" if number else "texts" for number in (keys.is_number, self._table.is_number)]
            raise ValueError(f"{self._op}: the keys {self._on!r} of left are {kinds[0]}, but those of right {kinds[1]}")
        with self._waits.measure(1):
            right, found = self._right.read_matching(self._on, keys, self._table), None
            if right is None:
                right, found = self._read_right(keys, self._table.find(keys), seeds)
        if found is not None and len(found) < len(samples):
            absent = np.setdiff1d(np.arange(len(samples)), found).tolist()
            reasons = {k: f"right has no sample with the key {keys.text(k)}" for k in absent}
            if self._policy_of_missing == "skip":
                raise LeftOut(reasons)
            if self._policy_of_missing == "raise":
                raise RuntimeError(f"{self._op}: sample {absent[0]} ({self._source(int(samples[absent[0]]))}): {reasons[absent[0]]}")
            right = {name: _spread(column, found, len(samples), name) for name, column in right.items()}
        if both := [name for name in right if name in left]:
            raise RuntimeError(f"{self._op}: both sources have an output {both[0]!r}; rename it with ndd.Source(reader, fn)")
        return {**left, **right}

    def _read_right(self, keys: Keys, places: np.ndarray, seeds: np.ndarray | None) -> tuple[dict[str, Any], np.ndarray]:
        """Return the outputs of the right without the key, and for which of the keys they are."""
        # Candidates: equal hashes. They are compared below, with the keys that are read along.
        chosen = np.flatnonzero(places >= 0)
        while len(chosen):
            try:
                outputs = self._right.read(places[chosen], None if seeds is None else seeds[chosen])
            except UnreadableSamples as bad:
                reasons = {int(chosen[k]): f"right: {self._right.path(int(places[chosen[k]]))}: {reason}" for k, reason in bad.reasons.items()}
                raise UnreadableSamples(reasons, {int(chosen[k]): cause for k, cause in bad.causes.items()}) from None
            theirs = keys_of(self._op, "right", find_column(self._op, "right", outputs, self._on))
            same = keys.compare(chosen, theirs)
            if same.all():
                return {name: column for name, column in outputs.items() if name != self._on}, chosen
            # Read again without them, so that outputs and keys correspond.
            chosen = chosen[same]  # the hash of a missing key is that of another
        if self._policy_of_missing != "empty":
            return {}, chosen
        # No sample was found: read the first one of `right` only to learn the types of its outputs.
        if self._template is None:
            sample = np.zeros(1, np.int64)
            self._template = self._right.read(sample)
        return {name: column for name, column in self._template.items() if name != self._on}, chosen

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        return describe_slowest(("left", "right"), (self._left.reader, self._right.reader), self._waits.seconds)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None}


class _Request(NamedTuple):
    """A batch that is being read."""

    work: Any  # the request of the left, or the future of both
    seeds: np.ndarray | None


def _spread(column: Any, found: np.ndarray, size: int, name: str) -> Any:
    """Return a column with empty samples where none was found. Of a column that only shows the type, no sample is used."""
    if not isinstance(column, Batch):
        if isinstance(column, Mapping) or not column or not isinstance(column[0], str | bytes):
            raise ValueError(f"readers.Join: output {name!r} has no empty value for a missing key; use missing='skip'")
        # The empty value of a type: "" or b"".
        values = [type(column[0])()] * size
        for n, k in enumerate(found.tolist()):
            values[k] = column[n]
        return values
    buffer = column.export_buffer()
    if column.ndim == 0:
        if not buffer.is_floating_point():
            raise ValueError(f"readers.Join: output {name!r} is a number without an empty value for a missing key; use missing='skip'")
        # A number cannot be empty; NaN is the missing value of floats.
        numbers = torch.full((size,), float("nan"), dtype=buffer.dtype)
        numbers[torch.from_numpy(found)] = buffer[: len(found)]
        return new_batch(numbers, None, column.layout)
    shapes = np.zeros((size, column.ndim), np.int64)
    shapes[found] = column.sample_shapes().numpy()[: len(found)]
    # Missing samples have no elements, so the packed values of the found ones are complete.
    return ragged_batch(buffer.reshape(-1)[: int(shapes.prod(1).sum())], shapes, column.layout)
