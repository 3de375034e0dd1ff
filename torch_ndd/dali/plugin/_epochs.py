# SPDX-License-Identifier: Apache-2.0
"""Epochs of an iterator: how many batches they have and which samples of the last one belong to them.

Pipelines deliver full batches without end. What an epoch is follows from counting.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ..._core.context.states import MAX_SHARDS, Description, equal, keys, one_of, rows, whole

_MOST_EPOCHS = 10_000  # that a batch may take its samples from, as in readers


class LastBatchPolicy(Enum):
    """The treatment of the last batch of an epoch if there are too few samples for it.

    * ``FILL``: it is full: the reader repeats its last sample with ``pad_last_batch``, or goes on with the next epoch.
    * ``DROP``: it is not delivered.
    * ``PARTIAL``: it has only the samples of the epoch.
    """

    FILL = 0
    DROP = 1
    PARTIAL = 2


class Epochs:
    """Epochs that end when the pipeline raises StopIteration."""

    counts = False  # samples, so that every batch must be full

    def __init__(self, pipelines: int, batch_size: int) -> None:
        self.pipelines, self.batch_size = pipelines, batch_size

    size = -1

    def ended(self) -> bool:
        """Return whether all batches were taken."""
        return False

    def step(self) -> Sequence[int]:
        """Count a batch of each pipeline, and return how many of its samples to keep. Fewer numbers than pipelines: the others' are dropped."""
        return [self.batch_size] * self.pipelines

    def restart(self) -> int:
        """Begin the next epoch and return how many batches to skip before it."""
        return 0

    def steps(self) -> int:
        """Return the number of batches of the epoch."""
        return 0

    state: Description = staticmethod(keys(kind=one_of("source")))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch."""
        return {"kind": "source"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place that :attr:`state` describes."""


class SizedEpochs(Epochs):
    """Epochs of a given number of samples, which all pipelines deliver together."""

    counts = True

    def __init__(self, pipelines: int, batch_size: int, size: int, padded: bool, policy: LastBatchPolicy) -> None:
        super().__init__(pipelines, batch_size)
        self.size, self.padded, self.policy = size, padded, policy
        self.taken = 0

    def ended(self) -> bool:
        """Return whether all batches were taken."""
        if self.policy is LastBatchPolicy.DROP:
            return self.taken + self._step > self.size
        return self.taken >= self.size

    @property
    def _step(self) -> int:
        return self.pipelines * self.batch_size

    def step(self) -> Sequence[int]:
        """Count a batch of each pipeline."""
        before, self.taken = self.taken, self.taken + self._step
        if self.policy is not LastBatchPolicy.PARTIAL or self.taken <= self.size:
            return super().step()
        whole_ones, rest = divmod(self.size - before, self.batch_size)
        return [self.batch_size] * whole_ones + [rest] * (rest > 0)

    def restart(self) -> int:
        """Begin the next epoch."""
        dropped = self.policy is LastBatchPolicy.DROP and self.size % self._step > 0
        fills = self.policy is LastBatchPolicy.FILL and not self.padded
        self.taken = self.taken % self.size if fills else 0
        return int(dropped)

    def steps(self) -> int:
        """Return the number of batches of an epoch."""
        return self.size // self._step if self.policy is LastBatchPolicy.DROP else -(-self.size // self._step)

    state: Description = staticmethod(keys(kind=one_of("size"), taken=whole()))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch."""
        return {"kind": "size", "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place."""
        self.taken = state["taken"]


class ReaderEpochs(Epochs):
    """Epochs of a reader: each is one pass over its shard. All ranks have equally many batches."""

    counts = True

    def __init__(self, op: str, pipelines: int, batch_size: int, metas: Sequence[Mapping[str, int]], policy: LastBatchPolicy) -> None:
        super().__init__(pipelines, batch_size)
        first = metas[0]
        for key in ("epoch_size", "number_of_shards", "pad_last_batch", "stick_to_shard"):
            if any(meta[key] != first[key] for meta in metas):
                raise AssertionError(f"{op}: the readers of all pipelines must have the same {key}, got {[meta[key] for meta in metas]}")
        self.samples, self.shards = first["epoch_size"], first["number_of_shards"]
        self.padded, self.sticks = bool(first["pad_last_batch"]), bool(first["stick_to_shard"])
        self.policy, self.ranks = policy, [meta["shard_id"] for meta in metas]
        self.state: Description = keys(
            kind=one_of("reader"),
            samples=equal(self.samples),
            epoch=whole(),
            taken=whole(),
            left=whole(0, self.samples),
            ahead=rows(whole(), 1, MAX_SHARDS),
        )
        self._begin(0, self.samples, [0] * self.shards)

    def _begin(self, epoch: int, left: int, ahead: list[int]) -> None:
        self.epoch, self.taken = epoch, 0
        self.left = left  # samples of the epoch for all ranks; fewer than all if other numbers of shards have begun it
        self.ahead = ahead  # samples of the epoch that each rank had in the one before
        if self.policy is LastBatchPolicy.DROP:
            self.size = left // self.shards
        elif self.padded:
            self.size = -(-left // self.shards)
        else:
            samples = max(0, self._most_left()) if self._fills else -(-left // self.shards)
            self.size = samples + -samples % self.batch_size

    @property
    def _fills(self) -> bool:
        """Whether the last batch has samples of the next epoch."""
        return self.policy is LastBatchPolicy.FILL and not self.padded

    def _length(self, rank: int) -> int:
        """Return how many samples the shard of this rank has in this epoch."""
        shard = rank if self.sticks else (rank + self.epoch) % self.shards
        return self.left * (shard + 1) // self.shards - self.left * shard // self.shards

    def _most_left(self) -> int:
        return max(self._length(rank) - ahead for rank, ahead in enumerate(self.ahead))

    def ended(self) -> bool:
        """Return whether all batches were taken."""
        if self.policy is LastBatchPolicy.DROP:
            return self.taken + self.batch_size > self.size
        return self.taken >= self.size

    def step(self) -> Sequence[int]:
        """Count a batch of each pipeline."""
        before, self.taken = self.taken, self.taken + self.batch_size
        if self.policy is not LastBatchPolicy.PARTIAL or not self.ended():
            return super().step()
        return [max(0, min(self.batch_size, self._length(rank) - before)) for rank in self.ranks]

    def restart(self) -> int:
        """Begin the next epoch."""
        dropped = self.policy is LastBatchPolicy.DROP and self.size % self.batch_size > 0
        ahead = self._beyond() if self._fills else [0] * self.shards
        self._begin(self.epoch + 1, self.samples, ahead)
        while self._fills and not self.size:  # the last batch had all samples of this epoch
            self._begin(self.epoch + 1, self.samples, self._beyond())
        return int(dropped)

    def _beyond(self) -> list[int]:
        """Return how many samples beyond this epoch each rank had."""
        return [ahead + self.taken - self._length(rank) for rank, ahead in enumerate(self.ahead)]

    def steps(self) -> int:
        """Return the number of batches of the epoch."""
        return self.size // self.batch_size if self.policy is LastBatchPolicy.DROP else -(-self.size // self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch."""
        return {
            "kind": "reader",
            "samples": self.samples,
            "epoch": self.epoch,
            "taken": self.taken,
            "left": self.left,
            "ahead": list(self.ahead),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place. What other numbers of shards have left of an epoch is divided anew."""
        here, ahead = self.shards, list(state["ahead"])
        if max(ahead) + state["taken"] > self.samples + _MOST_EPOCHS * max(1, self.samples // len(ahead)):
            raise ValueError(f"'taken' and 'ahead' say that a batch had samples of more than {_MOST_EPOCHS} epochs")
        self.shards = len(ahead)
        self._begin(state["epoch"], state["left"], ahead)
        self.taken = state["taken"]
        if self.shards != here:
            left = sum(max(0, -beyond) for beyond in self._beyond())
            self.shards = here
            self._begin(self.epoch, left, [0] * here)


def epochs_of(
    op: str, pipelines: int, batch_size: int, size: int, metas: Sequence[Mapping[str, int]] | None, padded: bool, policy: LastBatchPolicy
) -> Epochs:
    """Return the epochs that an iterator's arguments describe."""
    if metas is not None:
        return ReaderEpochs(op, pipelines, batch_size, metas, policy)
    if size > 0:
        return SizedEpochs(pipelines, batch_size, size, padded, policy)
    return Epochs(pipelines, batch_size)
