# SPDX-License-Identifier: Apache-2.0
"""A reader of numbers, for tests of orders and states, and what a mix must deliver, computed as its documentation says."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import torch

import torch_ndd as ndd
from torch_ndd._core.values.batch import new_batch
from torch_ndd._core.work.bad_samples import UnreadableSamples


class Numbers(ndd.readers.Reader):
    """Sample k is the number ``first + k``, or cannot be read."""

    def __init__(self, size: int, first: int = 0, bad: Sequence[int] = (), **options: Any) -> None:
        super().__init__(None, "cpu", options)  # type: ignore[arg-type]
        self._count, self._first_number, self._bad = size, first, np.asarray(bad, np.int64)
        self.read: list[int] = []

    def scan(self) -> int:
        return self._count

    def _source(self, sample: int) -> str:
        return f"number {self._first_number + sample}"

    def start(self, samples: np.ndarray) -> None:
        return None

    def finish(self, request: Any, samples: np.ndarray) -> Any:
        if len(self._bad) and (bad := np.flatnonzero(np.isin(samples, self._bad)).tolist()):
            raise UnreadableSamples(dict.fromkeys(bad, "it is bad"))
        self.read += samples.tolist()
        return (new_batch(torch.from_numpy(samples + self._first_number)),)


def walk_schedule(weights: Sequence[int], block: int = 1, sizes: Sequence[int] | None = None) -> Iterator[int]:
    """Yield the sources of positions by due times, in fractions. With ``sizes`` each source ends after its samples."""
    taken = [0] * len(weights)
    while True:
        due = [(Fraction(2 * (n // block) + 1, 2 * w), k) for k, (n, w) in enumerate(zip(taken, weights, strict=True)) if not sizes or n < sizes[k]]
        if not due:
            return
        source = min(due)[1]
        for _ in range(block if not sizes else min(block, sizes[source] - taken[source])):
            taken[source] += 1
            yield source


def interleave(weights: Sequence[int], count: int, block: int = 1, sizes: Sequence[int] | None = None) -> list[int]:
    """Return the sources of the first positions."""
    return list(islice(walk_schedule(weights, block, sizes), count))


def count_epoch(weights: Sequence[int], sizes: Sequence[int], policy: Any, block: int = 1) -> int:
    """Return the length of an epoch by walking along the schedule."""
    if isinstance(policy, int):
        return policy
    if policy == "once":
        return sum(sizes)
    taken = [0] * len(weights)
    for position, source in enumerate(walk_schedule(weights, block)):
        if policy == "first" and taken[source] == sizes[source]:
            return position
        taken[source] += 1
        if policy == "all" and all(n >= size for n, size in zip(taken, sizes, strict=True)):
            return position + 1
    raise AssertionError("the schedule ends")


class World:
    """The ranks of a training over mixes of the same sources, which take steps together."""

    def __init__(self, make: Any, ranks: int, batch_size: int, state: dict[str, Any] | None = None) -> None:
        self.readers = [make(max_batch_size=batch_size, shard_id=rank, num_shards=ranks) for rank in range(ranks)]
        self._state: dict[str, Any] | None = None
        for reader in self.readers:
            if state is not None:
                reader.load_state_dict(state)

    def steps(self, count: int | None = None) -> Iterator[list[list[int]]]:
        """Yield for each step of the epoch what each rank gets."""
        loops = [iter(reader) for reader in self.readers]
        for parts in islice(_together(loops), count):
            # A rank that has nothing of an incomplete last step is at the end of its epoch already.
            states = [reader.state_dict() for reader, part in zip(self.readers, parts, strict=True) if part]
            assert all(state == states[0] for state in states), "the ranks have different states"
            self._state = states[0]
            yield parts

    def numbers(self, count: int | None = None) -> list[int]:
        """Return the numbers of the next steps, rank after rank."""
        return [number for parts in self.steps(count) for part in parts for number in part]

    def state(self) -> dict[str, Any]:
        """Return the state after the latest step."""
        return self._state or self.readers[0].state_dict()


def _together(loops: list[Iterator[Any]]) -> Iterator[list[list[int]]]:
    while True:
        batches = [next(loop, None) for loop in loops]
        if all(batch is None for batch in batches):
            return
        yield [[] if batch is None else batch[0].torch().tolist() for batch in batches]
