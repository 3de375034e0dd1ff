# SPDX-License-Identifier: Apache-2.0
"""Samples of a reader that its caller chooses from the order of an epoch, as batches by cost do."""

from typing import Any, NamedTuple

import numpy as np

from ..._core.work.bad_samples import BadSample, LeftOut, UnreadableSamples
from ...io._limits import using
from .._base import Reader
from .._order import Position
from .._read_ahead import replace_bad, start
from ..dataset import Dataset


class Readable(NamedTuple):
    """What could be read of some samples."""

    outputs: Any
    """None if there is none."""
    rows: np.ndarray
    """For each sample of the outputs, which of the requested ones it is."""


class Listed:
    """Reads samples by number. A bad one changes only the batch that it is in."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def begin_epoch(self, epoch: int) -> int:
        """Prepare the source for an epoch, and return its number of samples."""
        reader = self.reader
        with reader._lock, using(reader._url_limits):
            # The order of the epoch may depend on the epoch, so the reader moves there before its source begins.
            self.follow(epoch)
            reader._begin_epoch()
            reader._started = True
            return reader.count_epoch_samples(epoch)

    def follow(self, epoch: int) -> None:
        """Let the reader know the epoch: a mix counts what its sources have delivered."""
        reader = self.reader
        with reader._lock:
            if reader._state.position != Position(epoch):
                reader._state = reader._state.moved_to(Position(epoch))
                # A source that can change is counted again for each epoch.
                reader._order = None if reader._can_change else reader._order

    @property
    def size(self) -> int | None:
        """Return the number of samples of the source, if it is known without reading anything."""
        return self.reader.scan() if isinstance(self.reader, Dataset) else self.reader._size

    @property
    def changes(self) -> bool:
        """Return whether the source may have another size in each epoch."""
        return self.reader._can_change

    @property
    def samples(self) -> int:
        """Return the number of samples that numbers stand for. A mix may deliver more or fewer in an epoch."""
        with using(self.reader._url_limits):
            return self.reader.scan()

    @property
    def raises(self) -> bool:
        """Return whether a bad sample raises an error."""
        return self.reader._on_error == "raise"

    @property
    def depth(self) -> int:
        """Return how many batches are read ahead."""
        return self.reader._depth

    @property
    def shard(self) -> tuple[int, int]:
        """Return the number of the reader's shard, and how many there are."""
        return self.reader.shard_id, self.reader.num_shards

    def name(self, sample: int) -> str:
        """Return what a sample is, for messages."""
        return f"sample {sample} ({self.reader._source(sample)})"

    def note(self, sample: int, reason: str) -> None:
        """Record a sample that is left out."""
        self.reader.note_errors([BadSample(sample, self.reader._source(sample), reason)])

    def start(self, samples: np.ndarray, seeds: np.ndarray | None) -> Any:
        """Start to read samples, whose random numbers follow from ``seeds``; return a request."""
        with using(self.reader._url_limits):
            return start(self.reader, samples, seeds)

    def finish(self, request: Any, samples: np.ndarray, seeds: np.ndarray | None) -> Readable:
        """Return the samples of a request, by ``on_error``: bad ones are left out or replaced by others of the same batch."""
        reader, rows = self.reader, np.arange(len(samples))
        while len(rows):
            try:
                with using(reader._url_limits):
                    return Readable(reader.finish(request, samples[rows]), rows)
            except UnreadableSamples as bad:
                with reader._lock:
                    reader._note_bad(samples[rows], bad)
                skips = self.reader._on_error == "skip" or isinstance(bad, LeftOut)
                rows = self._substitute(samples, rows, sorted(bad.reasons), skips)
            request = self.start(samples[rows], None if seeds is None else seeds[rows])
        return Readable(None, rows)

    def _substitute(self, samples: np.ndarray, rows: np.ndarray, bad: list[int], skips: bool) -> np.ndarray:
        good = np.delete(rows, bad)
        good = good[~np.isin(samples[good], samples[rows[bad]])]  # the bad ones may have been there twice
        if skips or not len(good):
            return good
        return replace_bad(rows, bad, good, lambda chosen: self.reader._replacement_groups(samples[chosen]))

    def read(self, samples: np.ndarray, head: int | None = None, seeds: np.ndarray | None = None) -> Readable:
        """Return the samples that can be read, without a record of the others; of files possibly no more than the first ``head`` bytes."""
        rows = np.arange(len(samples))
        while len(rows):
            try:
                with using(self.reader._url_limits):
                    chosen = None if seeds is None else seeds[rows]
                    request = start(self.reader, samples[rows], chosen) if head is None else self.reader.start_heads(samples[rows], head)
                    return Readable(self.reader.finish(request, samples[rows]), rows)
            except UnreadableSamples as bad:
                if self.raises:
                    try:
                        with self.reader._lock:
                            self.reader._note_bad(samples[rows], bad)
                    except RuntimeError as error:  # costs are read before there is a batch
                        raise RuntimeError(f"{error}; batches cannot be planned without its cost, so the loop ends") from error.__cause__
                rows = np.delete(rows, sorted(bad.reasons))
        return Readable(None, rows)
