# SPDX-License-Identifier: Apache-2.0
"""Epochs of an iterator: their number of batches, and the samples of the last batch that belong to them.

Readers deliver full batches without end; an epoch is a count of them.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ..._core.context.states import MAX_SHARDS, Description, equal, keys, one_of, rows, whole

_MAX_EPOCHS = 10_000  # from which the samples of one batch may come, as in readers


class LastBatchPolicy(Enum):
    """The treatment of the last batch of an epoch if there are too few samples for it.

    * ``FILL``: it is full: the reader repeats its last sample with ``pad_last_batch``, or continues with the next epoch.
    * ``DROP``: it is not delivered.
    * ``PARTIAL``: it has only the samples of the epoch.
    """

    FILL = 0
    DROP = 1
    PARTIAL = 2


class UnknownLengthError(ValueError, TypeError):
    """The length of an epoch that ends when the data ends. ValueError as in DALI; TypeError lets ``list()`` and progress bars do without a length."""


class Epochs:
    """Epochs that end when the pipeline raises StopIteration."""

    counts = False  # whether samples are counted: then every batch must be full

    def __init__(self, pipelines: int, batch_size: int) -> None:
        self.pipelines, self.batch_size = pipelines, batch_size

    # -1: unknown.
    size = -1

    def is_over(self) -> bool:
        """Return whether all batches were taken."""
        return False

    def step(self) -> Sequence[int]:
        """Count a batch of each pipeline, and return the number of its samples to keep. Pipelines beyond the end of the list are dropped."""
        return [self.batch_size] * self.pipelines

    def restart(self) -> int:
        """Begin the next epoch and return the number of batches to skip before it."""
        return 0

    def steps(self, op: str) -> int:
        """Return 0 for an unknown number of batches, as DALI does. Raise UnknownLengthError for batches of one sample, where DALI raises."""
        if self.batch_size == 1:
            raise UnknownLengthError(f"{op}: the number of batches is unknown, because the epoch ends when the data ends; give size or reader_name")
        return 0

    state: Description = staticmethod(keys(kind=one_of("source")))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch."""
        return {"kind": "source"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a place that :attr:`state` describes."""


class _CountedEpochs(Epochs):
    """Epochs of ``size`` samples, of which ``taken`` were delivered."""

    counts = True
    size: int
    taken: int
    policy: LastBatchPolicy

    @property
    def _step(self) -> int:
        """Number of samples that a step takes of the epoch."""
        return self.batch_size

    def is_over(self) -> bool:
        """Return whether all batches were taken."""
        if self.policy is LastBatchPolicy.DROP:
            return self.taken + self._step > self.size
        return self.taken >= self.size

    def steps(self, op: str) -> int:
        """Return the number of batches of the epoch."""
        return self.size // self._step if self.policy is LastBatchPolicy.DROP else -(-self.size // self._step)


class SizedEpochs(_CountedEpochs):
    """Epochs of a given number of samples, which all pipelines deliver together."""

    def __init__(self, pipelines: int, batch_size: int, size: int, padded: bool, policy: LastBatchPolicy) -> None:
        super().__init__(pipelines, batch_size)
        self.size, self.padded, self.policy = size, padded, policy
        self.taken = 0

    @property
    def _step(self) -> int:
        return self.pipelines * self.batch_size

    def step(self) -> Sequence[int]:
        """Count a batch of each pipeline."""
        before, self.taken = self.taken, self.taken + self._step
        if self.policy is not LastBatchPolicy.PARTIAL or self.taken <= self.size:
            return super().step()
        # Pipelines take consecutive batches: the first ones are full, one may have a part, the others nothing.
        full, rest = divmod(self.size - before, self.batch_size)
        return [self.batch_size] * full + [rest] * (rest > 0)

    def restart(self) -> int:
        """Begin the next epoch."""
        if not self.is_over():  # the data ended early, and begins with the epoch
            self.taken = 0
            return 0
        dropped = self.policy is LastBatchPolicy.DROP and self.size % self._step > 0
        # Without padding the last batch continues with the next epoch, whose first samples are taken already.
        fills = self.policy is LastBatchPolicy.FILL and not self.padded
        self.taken = self.taken % self.size if fills else 0
        return int(dropped)

    state: Description = staticmethod(keys(kind=one_of("size"), taken=whole()))

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch."""
        return {"kind": "size", "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a place."""
        self.taken = state["taken"]


class ReaderEpochs(_CountedEpochs):
    """Epochs of a reader: each is one pass over its shard. All ranks have equally many batches."""

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
        self.left = left  # samples of the epoch for all ranks; fewer if a run with another number of shards began it
        self.ahead = ahead  # samples of this epoch that each rank delivered in the epoch before
        # The size of an epoch is that of one rank; all ranks take the same number of batches.
        if self.policy is LastBatchPolicy.DROP:
            self.size = left // self.shards
        elif self.padded:
            self.size = -(-left // self.shards)
        else:
            samples = max(0, self._max_left()) if self._fills else -(-left // self.shards)
            # Rounded up to full batches.
            self.size = samples + -samples % self.batch_size

    @property
    def _fills(self) -> bool:
        """Whether the last batch has samples of the next epoch."""
        return self.policy is LastBatchPolicy.FILL and not self.padded

    def _length(self, rank: int) -> int:
        """Return how many samples the shard of this rank has in this epoch."""
        # Unless readers stick to their shards, they move on by one in each epoch.
        shard = rank if self.sticks else (rank + self.epoch) % self.shards
        return self.left * (shard + 1) // self.shards - self.left * shard // self.shards

    def _max_left(self) -> int:
        return max(self._length(rank) - ahead for rank, ahead in enumerate(self.ahead))

    def step(self) -> Sequence[int]:
        """Count a batch of each pipeline."""
        before, self.taken = self.taken, self.taken + self.batch_size
        if self.policy is not LastBatchPolicy.PARTIAL or not self.is_over():
            return super().step()
        # A rank whose shard is shorter has fewer samples in the last batch, perhaps none.
        return [max(0, min(self.batch_size, self._length(rank) - before)) for rank in self.ranks]

    def restart(self) -> int:
        """Begin the next epoch."""
        if not self.is_over():  # another source ended early: the reader continues its epoch
            return 0
        dropped = self.policy is LastBatchPolicy.DROP and self.size % self.batch_size > 0
        ahead = self._beyond() if self._fills else [0] * self.shards
        self._begin(self.epoch + 1, self.samples, ahead)
        while self._fills and not self.size:  # the last batch had all samples of this epoch
            self._begin(self.epoch + 1, self.samples, self._beyond())
        return int(dropped)

    # With FILL every rank takes full batches, so it runs into the next epoch by a different number of samples; they count there.
    def _beyond(self) -> list[int]:
        """Return how many samples beyond this epoch each rank had."""
        return [ahead + self.taken - self._length(rank) for rank, ahead in enumerate(self.ahead)]

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
        """Restore a place. The rest of an epoch of another number of shards is divided among the present ones."""
        own_shards, ahead = self.shards, list(state["ahead"])
        # A restored state is checked: restart() would loop once for each epoch that a batch spans.
        if max(ahead) + state["taken"] > self.samples + _MAX_EPOCHS * max(1, self.samples // len(ahead)):
            raise ValueError(f"'taken' and 'ahead' describe a batch with samples of more than {_MAX_EPOCHS} epochs")
        self.shards = len(ahead)
        self._begin(state["epoch"], state["left"], ahead)
        self.taken = state["taken"]
        if self.shards != own_shards:
            # What the ranks of the saved run had not delivered; samples beyond the epoch count as none.
            left = sum(max(0, -beyond) for beyond in self._beyond())
            self.shards = own_shards
            self._begin(self.epoch, left, [0] * own_shards)


def make_epochs(
    op: str, pipelines: int, batch_size: int, size: int, metas: Sequence[Mapping[str, int]] | None, padded: bool, policy: LastBatchPolicy
) -> Epochs:
    """Return the epochs for the arguments of an iterator."""
    if metas is not None:
        return ReaderEpochs(op, pipelines, batch_size, metas, policy)
    if size > 0:
        return SizedEpochs(pipelines, batch_size, size, padded, policy)
    return Epochs(pipelines, batch_size)
