# SPDX-License-Identifier: Apache-2.0
"""The order in which a reader delivers its samples: a pure function of its settings and a position."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from .._core import native
from ._seeds import compute_seeds

# The samples of a shard in a shuffled pass do not depend on `seed`, so that ranks with different seeds never share a sample.
_SEED_OF_ALL_RANKS = 0x5EED

# Number of shards, and samples each has delivered: one number for all, or one per shard.
Taken = tuple[int, int | tuple[int, ...]]


class Position(NamedTuple):
    """Position of a reader. A pass covers one shard once; a reader that does not stick to its shard takes another one in the next pass."""

    passes: int = 0
    offset: int = 0


class Blocks(NamedTuple):
    """The part of a shard that one of several workers reads: block ``worker`` of every ``workers``, of ``size`` samples each.

    >>> Blocks(1, 2, 3).places(2, 4)  # its own samples number 2 to 5
    array([ 5,  9, 10, 11])
    """

    worker: int = 0
    workers: int = 1
    size: int = 1

    def places(self, begin: int, count: int) -> np.ndarray:
        """Return the positions in the shard of the worker's samples ``begin`` to ``begin + count``."""
        return self.place(np.arange(begin, begin + count))

    def place(self, number: Any) -> Any:
        """Return the position in the shard of a sample of the worker, or of an array of them."""
        # The worker's sample k lies in its block k // size; blocks of all workers alternate in the shard.
        return number if self.workers == 1 else (number // self.size * self.workers + self.worker) * self.size + number % self.size


ALL_BLOCKS = Blocks()
MAX_CACHED_SPANS = 8


class _Span(NamedTuple):
    """A shard's part of a pass: begin, end, delivered samples including padding, and whether no other number of shards began the pass."""

    begin: int
    end: int
    delivered: int
    whole: bool


def shard_of_pass(passes: int, shard_id: int, num_shards: int, sticks: bool) -> int:
    """Return the shard that a reader covers in a pass."""
    return shard_id if sticks else (shard_id + passes) % num_shards


@dataclass(frozen=True)
class Order:
    """The samples of all epochs as an endless sequence of passes.

    Without padding, a batch takes its last samples from the next pass; with padding, it repeats the last sample of its own.

    >>> Order(5).take(Position(), 3)
    (array([0, 1, 2]), Position(passes=0, offset=3))
    >>> Order(5).take(Position(0, 3), 3)
    (array([3, 4, 0]), Position(passes=1, offset=1))
    >>> Order(5, pad_last_batch=True).take(Position(0, 3), 3)
    (array([3, 4, 4]), Position(passes=1, offset=0))

    ``pad_shards`` only makes all shards as long as the largest one.

    >>> [Order(5, shard, 2, pad_shards=True).rest(Position(), 8) for shard in range(2)]
    [array([0, 1, 1]), array([2, 3, 4])]

    A pass begun with another number of shards continues from there: the new shards divide the remaining samples. ``history`` holds the counts.

    >>> [Order(8, shard, 3, history=((2, 1),)).rest(Position(0, 0), 8) for shard in range(3)]  # 2 shards had delivered 1 each: 0 and 4
    [array([1, 2]), array([3, 5]), array([6, 7])]
    """

    size: int
    shard_id: int = 0
    num_shards: int = 1
    stick_to_shard: bool = False
    pad_last_batch: bool = False
    pad_shards: bool = False
    random_shuffle: bool = False
    seed: int = 0
    shuffle_after_epoch: bool = False
    shuffle_after_epoch_seed: int = 0
    history_pass: int = 0
    history: tuple[Taken, ...] = ()
    draw_seed: int | None = None  # see of_seeds()
    _passes: dict[int, np.ndarray] = field(default_factory=dict, compare=False, repr=False)  # the last two shuffled passes
    _spans: dict[int, "_Span"] = field(default_factory=dict, compare=False, repr=False)  # of the latest passes

    def shard(self, passes: int) -> int:
        """Return the shard of a pass."""
        return shard_of_pass(passes, self.shard_id, self.num_shards, self.stick_to_shard or self.shuffle_after_epoch)

    def length(self, passes: int) -> int:
        """Return the number of samples of this reader in a pass; fewer in a pass that other numbers of shards began."""
        begin, end = self._bounds(passes)
        return end - begin

    @property
    def padded_shard(self) -> int:
        """Return the number of samples per shard if all are as long as the largest."""
        return -(-self.size // self.num_shards)

    def of_all_shards(self) -> "Order":
        """Return the order of a single reader of all samples, as if no other number of shards had begun a pass.

        >>> [Order(5, shard, 2).of_all_shards().rest(Position(), 8) for shard in range(2)]
        [array([0, 1, 2, 3, 4]), array([0, 1, 2, 3, 4])]
        """
        single = {"shard_id": 0, "num_shards": 1, "pad_last_batch": False, "pad_shards": False, "history": ()}
        return replace(self, **single, _passes={}, _spans={})

    def of_seeds(self, seed: int) -> "Order":
        """Return the order with the seed of each sample's random numbers in place of its number, int64.

        A seed follows from the place in the whole pass. It depends neither on the shards nor on the batches.

        >>> seeds = Order(5, random_shuffle=True).of_seeds(1)
        >>> parts = [replace(seeds, shard_id=shard, num_shards=2).rest(Position(), 8) for shard in range(2)]
        >>> np.array_equal(np.concatenate(parts), seeds.rest(Position(), 5))
        True
        """
        return replace(self, draw_seed=seed)

    def steps(self, epochs: int, batch_size: int, drop_last: bool = False) -> int:
        """Return the number of batches in an epoch, after this many complete ones."""
        begin, end = _part(self.size, self.shard(epochs), self.num_shards)
        samples = self.padded_shard if self.pad_last_batch or self.pad_shards else end - begin
        return self._batches(samples, batch_size, drop_last)

    def steps_left(self, position: Position, batch_size: int, drop_last: bool = False) -> int:
        """Return the number of batches in the rest of a pass."""
        return max(0, self._batches(self._count_delivered(position.passes) - position.offset, batch_size, drop_last))

    def _batches(self, samples: int, batch_size: int, drop_last: bool) -> int:
        return samples // batch_size if drop_last and not self.pad_last_batch else -(-samples // batch_size)

    def take(self, position: Position, count: int) -> tuple[np.ndarray, Position]:
        """Return the next ``count`` samples of the endless sequence, int64, and the position after them."""
        passes, offset = position
        span = self._span(passes)
        begin = span.begin + offset
        if span.whole and begin + count < span.end:  # the common case, without the table of intervals
            return self._cut(passes, begin, count), Position(passes, offset + count)
        # A padded batch never crosses into the next pass.
        if self.pad_last_batch:
            if offset >= self._count_delivered(passes):
                passes, offset = passes + 1, 0
            samples = self._pad_to_shard(passes, np.arange(offset, offset + count))
            ended = offset + count >= self._count_delivered(passes)
            return samples, Position(passes + 1, 0) if ended else Position(passes, offset + count)
        parts = []
        while count:
            # Without padding a batch is filled from the passes that follow, several if the shard is smaller than the batch.
            part = self.rest(Position(passes, offset), count)
            parts.append(part)
            count -= len(part)
            offset += len(part)
            # A shard that other divisions have emptied has no samples in this pass: continue with the next one.
            if offset >= self._span(passes).delivered:
                passes, offset = passes + 1, 0
        return parts[0] if len(parts) == 1 else np.concatenate(parts), Position(passes, offset)

    def rest(self, position: Position, count: int, blocks: Blocks = ALL_BLOCKS) -> np.ndarray:
        """Return the next ``count`` samples of this pass, int64; fewer at its end, then none. With padding the last one is repeated.

        The offset counts the samples of the worker described by ``blocks``.
        """
        passes, offset = position
        span = self._span(passes)
        if blocks.workers == 1 and span.whole and span.begin + offset + count <= span.end:  # nearly always: no table of places is needed
            return self._cut(passes, span.begin + offset, count)
        places = blocks.places(offset, count)
        inside = places < self._count_delivered(passes)
        # A batch that begins beyond the end stays empty even with padding: the pass is over.
        return self._pad_to_shard(passes, places if self.pad_last_batch and inside[0] else places[inside])

    def has_rest(self, position: Position, blocks: Blocks) -> bool:
        """Return whether this pass has samples left."""
        return blocks.place(position.offset) < self._span(position.passes).delivered

    def walk(self, position: Position, count: int, blocks: Blocks) -> tuple[np.ndarray, Position]:
        """Return the next ``count`` samples of this pass as :meth:`rest` does, and the position after them."""
        return self.rest(position, count, blocks), Position(position.passes, position.offset + count)

    def _cut(self, passes: int, begin: int, count: int) -> np.ndarray:
        """Return samples of a pass that no other number of shards has begun."""
        if self.draw_seed is not None:
            return compute_seeds(self.draw_seed, passes, np.arange(begin, begin + count))
        # A copy: a view would keep the whole permutation alive, and changes to it would reach later batches.
        return self._table(passes)[begin : begin + count].copy() if self._has_table else np.arange(begin, begin + count)

    def _span(self, passes: int) -> "_Span":
        """Return this shard's part of a pass."""
        found = self._spans.get(passes)
        if found is None:
            if len(self._spans) >= MAX_CACHED_SPANS:
                self._spans.clear()
            found = self._spans[passes] = _Span(*self._bounds(passes), self._count_delivered(passes), self._remaining_intervals(passes) is None)
        return found

    def _pad_to_shard(self, passes: int, places: np.ndarray) -> np.ndarray:
        # A shard without samples, because few remained for many shards, repeats the sample before it: all ranks must take the same number of steps.
        return self._samples(passes, np.minimum(places, self.length(passes) - 1))

    def _count_delivered(self, passes: int) -> int:
        """Return the number of samples of this shard in a pass, including those repeated to make all shards equal."""
        return -(-self._left(passes) // self.num_shards) if self.pad_last_batch or self.pad_shards else self.length(passes)

    def _bounds(self, passes: int) -> tuple[int, int]:
        return _part(self._left(passes), self.shard(passes), self.num_shards)

    def _left(self, passes: int) -> int:
        """Return the number of samples of a pass for all shards together."""
        begun = self._remaining_intervals(passes)
        return self.size if begun is None else int(begun[1].sum())

    def _remaining_intervals(self, passes: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the intervals that other numbers of shards left of a pass, as begins and lengths; None if none began it."""
        if passes != self.history_pass or not self.history:
            return None
        if -1 not in self._passes:  # pass numbers are not negative, so -1 is free for the intervals
            begins, lengths = np.zeros(1, np.int64), np.array([self.size])
            for shards, taken in self.history:
                # Each entry divides what the previous entries have left.
                begins, lengths = _left_by(begins, lengths, shards, taken)
            self._passes[-1] = np.stack([begins, lengths])
        begins, lengths = self._passes[-1]
        return begins, lengths

    def _samples(self, passes: int, places: np.ndarray) -> np.ndarray:
        # A shard without samples that begins at 0 has place -1 after _pad_to_shard.
        places = np.maximum(places + self._bounds(passes)[0], 0)
        begun = self._remaining_intervals(passes)
        if begun is not None and len(places):
            # From numbers among the remaining samples to positions in the whole pass.
            places = _places(*begun, places)
        if self.draw_seed is not None:
            return compute_seeds(self.draw_seed, passes, places)
        return self._table(passes)[places] if self._has_table else places

    @property
    def _has_table(self) -> bool:
        """Whether the samples of a pass are not in the order of their numbers, but in that of :meth:`_table`."""
        return self.random_shuffle or self.shuffle_after_epoch

    def _permute(self, passes: int) -> np.ndarray:
        """Return all samples in the order of a pass."""
        samples = np.arange(self.size)
        if self.shuffle_after_epoch:
            _shuffle(samples, self.shuffle_after_epoch_seed ^ _SEED_OF_ALL_RANKS, passes)
            return samples
        # A pass keeps the permutation of the number of shards that began it, or samples would repeat after a change.
        shards = self.history[0][0] if passes == self.history_pass and self.history else self.num_shards
        # First all ranks agree on who gets which sample (a common seed), then each shard is shuffled with the reader's own seed.
        if shards > 1 and not self.stick_to_shard:
            _shuffle(samples, _SEED_OF_ALL_RANKS, passes)
        for shard in range(shards):
            begin, end = _part(self.size, shard, shards)
            _shuffle(samples[begin:end], self.seed, passes, shard)
        return samples

    def _table(self, passes: int) -> np.ndarray:
        found = self._passes.get(passes)
        if found is None:
            found = self._permute(passes)
            # Keep two, because a batch may reach into the next pass; for ten million samples each takes 80 MB.
            for old in [key for key in self._passes if key >= 0][:-1]:
                del self._passes[old]
            self._passes[passes] = found
        return found


def _part(size: int, shard: int, shards: int) -> tuple[int, int]:
    """Return the begin and end of a shard; sizes differ by one at most."""
    return size * shard // shards, size * (shard + 1) // shards


def _left_by(begins: np.ndarray, lengths: np.ndarray, shards: int, taken: int | Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of intervals that remain after each shard took its first samples."""
    total = int(lengths.sum())
    # The products overflow int64 for huge data sets on many shards; Python's integers do not.
    edges = total * np.arange(shards + 1) // shards if total * shards < 2**62 else np.array([total * i // shards for i in range(shards + 1)])
    left = np.stack([np.minimum(edges[:-1] + np.asarray(taken), edges[1:]), edges[1:]], 1)  # as sample numbers
    ends = np.cumsum(lengths)
    cuts = np.unique(np.concatenate([left.ravel(), ends[:-1]]))  # between neighboring cuts either all samples remain or none, within one interval
    first, last = cuts[:-1], cuts[1:]
    shard = np.searchsorted(left[:, 1], first, "right")
    kept = np.zeros(len(first), bool)
    inside = shard < shards
    kept[inside] = first[inside] >= left[shard[inside], 0]
    first, last = first[kept], last[kept]
    return _places(begins, lengths, first), last - first


def _places(begins: np.ndarray, lengths: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Map sample numbers to positions in a sequence of intervals."""
    ends = np.cumsum(lengths)
    which = np.searchsorted(ends, numbers, "right")
    return begins[which] + numbers - (ends - lengths)[which]


def _shuffle(order: np.ndarray, seed: int, epoch: int, shard: int = 0) -> None:
    native.shuffle(order.ctypes.data, len(order), seed & (2**64 - 1), epoch, shard)
