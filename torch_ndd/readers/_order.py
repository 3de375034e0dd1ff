# SPDX-License-Identifier: Apache-2.0
"""In which order a reader delivers its samples: a pure function of its settings and a position."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .. import _native

# All ranks of a training must agree on what they divide among themselves, whatever their `seed` is.
_SEED_OF_ALL_RANKS = 0x5EED


class Position(NamedTuple):
    """Where a reader is. A pass goes once over a shard; a reader that does not stick to its shard takes another one in the next pass."""

    passes: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Order:
    """The samples of all epochs, as one endless sequence of passes.

    Without padding a batch takes its last samples from the next pass; with padding it repeats the last sample of its own.

    >>> Order(5).take(Position(), 3)
    (array([0, 1, 2]), Position(passes=0, offset=3))
    >>> Order(5).take(Position(0, 3), 3)
    (array([3, 4, 0]), Position(passes=1, offset=1))
    >>> Order(5, pad_last_batch=True).take(Position(0, 3), 3)
    (array([3, 4, 4]), Position(passes=1, offset=0))
    """

    size: int
    shard_id: int = 0
    num_shards: int = 1
    stick_to_shard: bool = False
    pad_last_batch: bool = False
    random_shuffle: bool = False
    initial_fill: int = 1024
    seed: int = 0
    shuffle_after_epoch: bool = False
    shuffle_after_epoch_seed: int = 0
    _passes: dict[int, np.ndarray] = field(default_factory=dict, compare=False, repr=False)  # the last two that were shuffled

    def shard(self, passes: int) -> int:
        """The shard of a pass."""
        return self.shard_id if self.stick_to_shard or self.shuffle_after_epoch else (self.shard_id + passes) % self.num_shards

    def bounds(self, shard: int) -> tuple[int, int]:
        """Where a shard begins and ends among all samples."""
        return self.size * shard // self.num_shards, self.size * (shard + 1) // self.num_shards

    @property
    def padded_shard(self) -> int:
        """Samples of a shard when all have as many as the largest."""
        return -(-self.size // self.num_shards)

    def steps(self, epochs: int, batch_size: int) -> int:
        """Batches of an epoch, after so many complete ones."""
        begin, end = self.bounds(self.shard(epochs))
        return -(-(self.padded_shard if self.pad_last_batch else end - begin) // batch_size)

    def take(self, position: Position, count: int) -> tuple[np.ndarray, Position]:
        """The next ``count`` samples, int64, and the position after them."""
        passes, offset = position
        after = self.skip(position, count, 1)
        if self.pad_last_batch:
            begin, end = self.bounds(self.shard(passes))
            return self._slice(passes, np.minimum(np.arange(offset, offset + count), end - begin - 1)), after
        parts = []
        while count:
            begin, end = self.bounds(self.shard(passes))
            number = min(count, end - begin - offset)
            parts.append(self._slice(passes, np.arange(offset, offset + number)))
            count -= number
            passes, offset = passes + 1, 0
        return parts[0] if len(parts) == 1 else np.concatenate(parts), after

    def skip(self, position: Position, count: int, batches: int) -> Position:
        """The position after ``batches`` of ``count`` samples."""
        passes, offset = position
        if self.pad_last_batch:
            while batches:
                left = -(-(self.padded_shard - offset) // count)  # batches of this pass
                if batches < left:
                    return Position(passes, offset + batches * count)
                passes, offset, batches = passes + 1, 0, batches - left
            return Position(passes, offset)
        offset += batches * count
        while True:
            begin, end = self.bounds(self.shard(passes))
            if offset < end - begin:
                return Position(passes, offset)
            passes, offset = passes + 1, offset - (end - begin)

    def _slice(self, passes: int, places: np.ndarray) -> np.ndarray:
        if self.random_shuffle or self.shuffle_after_epoch:
            return self._shuffled_pass(passes)[places]
        return places + self.bounds(self.shard(passes))[0]

    def _shuffled_pass(self, passes: int) -> np.ndarray:
        found = self._passes.get(passes)
        if found is None:
            begin, end = self.bounds(self.shard(passes))
            if self.shuffle_after_epoch:
                found = _shuffled(np.arange(self.size), self.size, self.shuffle_after_epoch_seed ^ _SEED_OF_ALL_RANKS, passes)[begin:end]
            else:
                # A list that is sorted by class would stay nearly so with a small reservoir.
                everything = _shuffled(np.arange(self.size), self.size, _SEED_OF_ALL_RANKS, 0)
                found = _shuffled(everything[begin:end], self.initial_fill, self.seed, passes)
            for old in list(self._passes)[:-1]:
                del self._passes[old]
            self._passes[passes] = found
        return found


def _shuffled(order: np.ndarray, fill: int, seed: int, epoch: int) -> np.ndarray:
    order = np.ascontiguousarray(order, dtype=np.int64)
    _native.shuffle(order.ctypes.data, len(order), fill, seed & (2**64 - 1), epoch)
    return order
