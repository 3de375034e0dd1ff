# SPDX-License-Identifier: Apache-2.0
"""Readers whose steps are shared by the ranks: with batches of b samples, R ranks take R * b consecutive positions of one order.

An ordinary reader cuts an epoch into one long shard per rank (``_order.py``). Here a step is cut instead, so that a position is one number, the same
on all ranks, and nothing but it has to change with the number of ranks, the batch size, or a bad sample.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils.data import get_worker_info
from typing_extensions import override

from .._core.context.states import check_state, equal, keys, whole
from ._base import Reader
from ._order import ALL_BLOCKS, Blocks, Order, Position
from ._read_ahead import Outputs, replace_bad
from ._seeds import compute_seeds
from ._state import BLOCKS, State
from .dataset._items import first_sample

# Positions whose samples are computed together: what an interleaved order is shuffled within, and 60 us at a time instead of as much for every batch.
WINDOW = 4096
MAX_EPOCH = 1 << 40  # samples; products with weights and numbers of ranks fit 64 bits
# A batch and those read ahead of it may lie in different windows, even of two epochs.
_KEPT_WINDOWS = 4


@dataclass(frozen=True)
class StepOrder(Order):
    """The samples of all epochs as positions that the ranks take step by step. ``size`` is the number of positions of an epoch.

    Rank r takes positions ``n + r * b`` to ``n + (r + 1) * b`` of a step that begins at n. The last m < R * b positions of an epoch are divided:
    ``n + m * r // R`` to ``n + m * (r + 1) // R``; with ``pad_shards`` each rank has ``ceil(m / R)``, and repeats a neighbor where it has fewer.
    The offset of a :class:`Position` is n. Worker k of W of a torch DataLoader takes every W-th step: for it n is that of the first of the next W, of
    which it takes number k.
    """

    _windows: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def count(self, epoch: int) -> int:
        """Return the number of positions of an epoch."""
        return self.size

    def compute(self, epoch: int, begin: int, end: int) -> np.ndarray:
        """Return the samples at these positions of an epoch, int64, a whole window or the rest of one."""
        raise NotImplementedError

    def first_window(self, epoch: int) -> int:
        """Return the position at which the windows of an epoch begin; those before it are unknown."""
        return 0

    def samples_at(self, epoch: int, begin: int, end: int) -> np.ndarray:
        """Return the samples at these positions of an epoch, int64; fewer at its end."""
        end, origin = min(end, self.count(epoch)), self.first_window(epoch)
        if self.draw_seed is not None:
            return compute_seeds(self.draw_seed, epoch, np.arange(begin, max(begin, end)))
        if begin < min(origin, end):
            raise ValueError(f"the samples before position {origin} of epoch {epoch} were of other weights")
        parts = []
        while begin < end:
            # Windows begin at `origin`, and positions in front of it have none.
            first = begin - (begin - origin) % WINDOW
            window = self._windows.get((epoch, first))
            if window is None:
                window = self.compute(epoch, first, min(first + WINDOW, self.count(epoch)))
                # Dicts keep insertion order: the first key is the oldest window.
                while len(self._windows) >= _KEPT_WINDOWS:
                    del self._windows[next(iter(self._windows))]
                self._windows[epoch, first] = window
            parts.append(window[begin - first : end - first])
            begin += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def _cut_step(self, position: Position, count: int, blocks: Blocks) -> tuple[int, int, int, int]:
        """Return begin and end of this rank's part of a step, its length with padding, and the position after the step."""
        epoch, at = position
        length = self.count(epoch)
        # Workers of one rank take whole steps in turn: worker w the step w, w + workers, ...
        stride = self.num_shards * (count if blocks.workers == 1 else blocks.size)
        # All ranks compute the same position after the step, whatever part of it they take.
        begin, after = at + blocks.worker * stride, min(at + blocks.workers * stride, length)
        left = max(0, length - begin)
        if left >= stride:
            begin += self.shard_id * (stride // self.num_shards)
            return begin, begin + count, count, after
        # The incomplete last step is divided into parts whose sizes differ by one at most.
        first, last = (left * shard // self.num_shards for shard in (self.shard_id, self.shard_id + 1))
        width = -(-left // self.num_shards) if self.pad_shards else last - first
        return begin + first, begin + last, width, after

    @override
    def walk(self, position: Position, count: int, blocks: Blocks) -> tuple[np.ndarray, Position]:
        begin, end, width, after = self._cut_step(position, count, blocks)
        following = Position(position.passes, after)
        if width == end - begin:
            return self.samples_at(position.passes, begin, end), following
        # A rank without a position repeats the one before, or if there is none the first of the step.
        first = min(begin, max(end - 1, position.offset))
        samples = self.samples_at(position.passes, first, first + width)
        return samples[np.minimum(np.arange(width), max(0, end - 1 - first))], following

    @override
    def has_rest(self, position: Position, blocks: Blocks) -> bool:
        return self._cut_step(position, 1, blocks)[2] > 0

    @override
    def rest(self, position: Position, count: int, blocks: Blocks = ALL_BLOCKS) -> np.ndarray:
        return self.walk(position, count, blocks)[0]

    @override
    def take(self, position: Position, count: int) -> tuple[np.ndarray, Position]:
        # Every rank skips the parts of the ranks before it, and then the whole step.
        (epoch, at), parts, wanted = self._advance(position, self.shard_id * count), [], count
        while wanted:
            part = self.samples_at(epoch, at, at + wanted)
            parts.append(part)
            wanted -= len(part)
            epoch, at = epoch + 1, 0
        return parts[0] if len(parts) == 1 else np.concatenate(parts), self._advance(position, self.num_shards * count)

    def _advance(self, position: Position, count: int) -> Position:
        """Return the position after so many positions of the endless sequence."""
        epoch, at = position
        left = max(0, self.count(epoch) - at)
        if count < left:
            return Position(epoch, at + count)
        # `size` is the length of every later epoch.
        epochs, at = divmod(count - left, self.size)
        return Position(epoch + 1 + epochs, at)

    @override
    def steps(self, epochs: int, batch_size: int, drop_last: bool = False) -> int:
        return self._count_steps(Position(epochs), batch_size, drop_last)

    @override
    def steps_left(self, position: Position, batch_size: int, drop_last: bool = False) -> int:
        return self._count_steps(position, batch_size, drop_last)

    def _count_steps(self, position: Position, batch_size: int, drop_last: bool) -> int:
        epoch, at = position
        whole_steps, left = divmod(max(0, self.count(epoch) - at), batch_size * self.num_shards)
        if drop_last or not left:
            return whole_steps
        return whole_steps + bool(self._cut_step(Position(epoch, self.count(epoch) - left), batch_size, ALL_BLOCKS)[2])


# Keys that the states of all these readers have.
COMMON = {
    "version": equal(1),
    "epoch": whole(),
    "at": whole(0, MAX_EPOCH),
    "length": whole(0, MAX_EPOCH),
    "seed": whole(-(2**63), 2**64 - 1),
}


class SharedSteps(Reader):
    """Base class of readers with a :class:`StepOrder`. A bad sample changes no position: what follows is read as if it were good."""

    _is_for_training = True
    _order: StepOrder | None
    _short = False  # the step before was the incomplete one at the end of an epoch

    def build_steps(self) -> StepOrder:
        """Return the order from the current state, once the source was scanned.

        :meta private:
        """
        raise NotImplementedError

    @override
    def _create_order(self, size: int) -> StepOrder:
        return self.build_steps()

    @override
    def prepare_order(self) -> StepOrder:
        order = super().prepare_order()
        assert isinstance(order, StepOrder)
        return order

    @override
    def _begin_epoch(self) -> None:
        with self._lock:
            if self._can_change:
                self._ahead.clear()
            self._begin_source()

    @override
    def count_steps(self, batch_size: int | None) -> int:
        order, size = self.prepare_order(), self._batch_size(batch_size)
        return -(-order.count(self._state.position.passes) // (size * order.num_shards))

    @override
    def _current_order(self) -> StepOrder:
        return self.prepare_order()

    @override
    def count_batches(self, batch_size: int | None, drop_last: bool = False) -> int:
        position = self._state.position
        begun = position.offset > 0 and not self._resumed
        return self.prepare_order().steps(position.passes + begun, self._batch_size(batch_size), drop_last)

    @override
    def is_incomplete(self, samples: int, batch_size: int) -> bool:
        return self._short

    @override
    def _step(self, batch_size: int | None, ctx: Any, walk: Blocks | None = None, left: int = 0) -> Any:
        with self._lock:
            before = self._state.position
            outputs = super()._step(batch_size, ctx, walk, left)
            if walk:
                stride = self._batch_size(batch_size) * self.num_shards * walk.workers
                # Fewer positions than a full step means that the epoch has ended in it.
                self._short = self._state.position.offset - before.offset < stride
        return outputs

    @override
    def _substitute(
        self, policy: str, samples: np.ndarray, bad: list[int], good: np.ndarray, after: Position, following: Position, walk: Blocks | None
    ) -> tuple[np.ndarray, Position, Position, int]:
        assert self._order is not None
        if not len(good):  # all ranks take the same number of steps, so this one needs a sample
            samples, following = self._order.take(following, 1 if policy == "skip" else len(samples))
            return samples, after, following, 0
        if policy == "skip":
            return good, after, following, 0
        return replace_bad(samples, bad, good, self._replacement_groups), after, following, 0

    @override
    def list_order(self, epoch: int, begin: int, count: int) -> np.ndarray:
        """Return samples ``begin`` to ``begin + count`` of an epoch as one rank has them, int64; fewer at its end.

        :meta private:
        """
        with self._lock:  # the order keeps what it has computed
            return self.prepare_order().samples_at(epoch, begin, begin + count)

    @override
    def count_epoch_samples(self, epoch: int) -> int:
        """Return the number of samples in an epoch of all ranks.

        :meta private:
        """
        return self.prepare_order().count(epoch)

    @override
    def get_metadata(self, batch_size: int | None = None) -> dict[str, int]:
        order = self.prepare_order()
        padded = -(-order.size // order.num_shards) * order.num_shards
        return {
            "epoch_size": order.size,
            "epoch_size_padded": padded if order.pad_shards else order.size,
            "number_of_shards": order.num_shards,
            "shard_id": order.shard_id,
            "pad_last_batch": 0,
            "stick_to_shard": 0,
        }

    # State.

    def encode_position(self) -> dict[str, Any]:
        """Return the keys of a state that all these readers have."""
        epoch, at = self._state.position
        content = {"version": 1, "epoch": epoch, "at": at, "length": self.prepare_order().count(epoch), "seed": self._state.seeds[0]}
        return content if self._state.blocks is None else {**content, "worker": list(self._state.blocks)}

    def decode_position(self, description: dict[str, Any], content: Any) -> tuple[dict[str, Any], State]:
        """Check a state whose further keys are described; return it, and where it is."""
        state = check_state(self._op, keys({"worker": BLOCKS}, **COMMON, **description), content)
        if state["at"] > state["length"]:
            raise ValueError(f"{self._op}: not a valid saved state: 'at' is {state['at']}, but 'length' only {state['length']}")
        blocks, worker = state.get("worker"), get_worker_info()
        if blocks is not None:
            blocks = Blocks(*blocks)
            # At the beginning of an epoch any division among workers is possible.
            if state["at"] and (worker is None or (worker.id, worker.num_workers) != blocks[:2]):
                raise ValueError(f"{self._op}: the state belongs to a DataLoader 'worker'; load the state of the StatefulDataLoader instead")
        return state, State((state["seed"], 0), Position(state["epoch"], state["at"]), state["epoch"], blocks=blocks)

    @override
    def order_state(self) -> dict[str, Any]:
        return self.state_dict()

    @override
    def has_begun(self, state: dict[str, Any]) -> bool:
        return state["at"] > 0

    @override
    def locate_next_batch(self) -> tuple[int, int]:
        # Steps are at least as many positions apart as there are ranks.
        epoch, at = self._state.position
        return epoch, at + self.shard_id

    def _first(self, outputs: Outputs) -> Any:
        return first_sample(outputs)
