# SPDX-License-Identifier: Apache-2.0
"""Sources without random access: iterable data sets and ``ExternalSource``."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast

from ..._core.context.rng import RNG, using_rng
from ..._core.context.states import check_state, equal, keys, row, whole
from .._failed import FailedBatch
from .._sample_source import Collated
from .._seeds import compute_seed
from ..dataset._generators import seed_shared_generators
from ..dataset._held_transforms import find_transforms, seed_transforms
from ..dataset._items import collate_outputs, prepare_item
from ..dataset._worker_processes import Context, Processes, WorkerFailure, check_context, describe_error
from .external_source import ExternalSource

MAX_SHARDS = 1 << 20
_STATE = keys(
    version=equal(1),
    epoch=whole(),
    taken=row(row(whole(1, MAX_SHARDS), whole())),
    shard=whole(0, MAX_SHARDS),
)


class Stream:
    """Epochs of a source without random access. A position is the number of items that all shards together have taken; going there drops items."""

    _op = "DataLoader"
    max_batch_size: int | None = None
    num_shards, shard_id = 1, 0
    draw_seed = 0
    """The seed of the random numbers that the source draws, from the loader."""

    def __init__(self) -> None:
        self._epoch = self._taken = 0  # by this shard, as if all batches were full
        self._before = 0  # by all shards, before the state that was loaded
        self._resumed = False

    def _batches(self, batch_size: int) -> Iterator[tuple[Any, int]]:
        """Yield the batches from the position on, or a FailedBatch for each that failed, with its number of items of this shard."""
        raise NotImplementedError

    def begin_pass(self, batch_size: int | None) -> Iterator[Any]:
        assert batch_size is not None
        if not self._resumed and (self._taken or self._before):
            self._next_epoch()
        return self._rest(batch_size)

    def _rest(self, batch_size: int) -> Iterator[Any]:
        for batch, count in self._batches(batch_size):
            # Where only failed batches were tried, the next loop yields the rest of this epoch.
            self._resumed = isinstance(batch, FailedBatch) and (self._resumed or not self._position)
            self._taken += count
            yield batch
        self._next_epoch()

    def _next_epoch(self) -> None:
        self._epoch, self._taken, self._before, self._resumed = self._epoch + 1, 0, 0, False

    @property
    def _position(self) -> int:
        return self._before + self._taken * self.num_shards

    def locate_next_batch(self) -> tuple[int, int]:
        return self._epoch, self._position + self.shard_id

    def state_dict(self) -> dict[str, Any]:
        """Return the position, equal on all ranks."""
        # The form of a reader's state with one shard: all items together, so that any number of shards can continue.
        return {"version": 1, "epoch": self._epoch, "taken": [[1, self._position]], "shard": 0}

    def parse_state(self, state: Any) -> tuple[int, int]:
        found = check_state(self._op, _STATE, state)
        return found["epoch"], found["taken"][0][0] * found["taken"][0][1]

    def move_to(self, state: tuple[int, int]) -> None:
        (self._epoch, self._before), self._taken, self._resumed = state, 0, True

    def has_begun(self, state: dict[str, Any]) -> bool:
        return state["taken"][0][1] > 0

    def is_incomplete(self, samples: int, batch_size: int) -> bool:
        return samples < batch_size

    def set_epoch(self, epoch: int) -> None:
        """Make an epoch the next one."""
        self.move_to((whole()(epoch, f"{self._op}: epoch"), 0))

    def count_batches(self, batch_size: int | None, drop_last: bool = False) -> int:
        raise TypeError(f"{self._op}: the number of batches is unknown: the source has no len()")

    def count_batches_left(self, batch_size: int | None, drop_last: bool = False) -> int:
        return self.count_batches(batch_size, drop_last)

    def reads_here(self) -> bool:
        return False

    def describe_bottleneck(self) -> tuple[str, str]:
        return "its source", "make the source faster, or give it random access (__getitem__ and __len__), so that items are loaded in parallel"


class Numbered:
    """Items of an iterable by (epoch, number), in ascending order. An earlier number begins a new iteration, a later one drops items.

    An item whose iterator raises an error is counted like others; what follows is up to the iterator. A generator has ended.

    Each iteration begins with the same random numbers, whatever items are wanted: all shards see one order, and a restored position the items before.
    With ``owns_process`` also those of the generators that all threads share.
    """

    def __init__(self, dataset: Any, owns_process: bool = False) -> None:
        self._dataset, self._owns_process = dataset, owns_process
        self._rng = RNG(0)
        self._items: Iterator[Any] | None = None
        self._at = (-1, 0)

    def __getitem__(self, key: tuple[int, int, int, int, int]) -> list[Any]:
        """Return up to ``count`` items ``(epoch, first, step, count, seed)``, then :class:`Ended` at the end; fewer where a later one fails."""
        epoch, first, step, count, seed = key
        items: list[Any] = []
        for number in range(first, first + step * count, step):
            try:
                items.append(self._item(epoch, number, seed))
            except Exception:
                if not items:
                    raise
                break  # the next call begins with it and raises
            if isinstance(items[-1], Ended):
                break
        return items

    def _item(self, epoch: int, number: int, seed: int) -> Any:
        # Iterables cannot go back, so an earlier item begins a new iteration.
        begins = self._items is None or epoch != self._at[0] or number < self._at[1]
        if begins:
            self._rng = RNG(seed)
            if self._owns_process:
                seed_shared_generators(seed)
                seed_transforms(find_transforms(self._dataset), seed)
        # Of its own, because the generator of a batch is elsewhere when a restored position is reached.
        rng = self._rng
        with using_rng(rng, lambda: rng):
            return self._take(epoch, number, begins)

    def _take(self, epoch: int, number: int, begins: bool) -> Any:
        if begins:
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(epoch)
            self._items, self._at = iter(self._dataset), (epoch, 0)
        items: Any = self._items
        try:
            # Drop the items of other shards, those before a restored position, and the rest of a batch that failed.
            while self._at[1] < number:
                self._at = epoch, self._at[1] + 1
                # An iterator that can go on after an error has only lost an item that is dropped; a generator has ended.
                with contextlib.nullcontext() if inspect.isgenerator(items) else suppress_errors():
                    next(items)
            self._at = epoch, number + 1
            return next(items)
        except StopIteration:
            self._items = None
            return Ended()
        # The iterator's position is unknown then: begin again.
        except BaseException as error:
            if not isinstance(error, Exception):
                self._items = None
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {"_dataset": self._dataset, "_owns_process": self._owns_process, "_rng": RNG(0), "_items": None, "_at": (-1, 0)}


@contextlib.contextmanager
def suppress_errors() -> Iterator[None]:
    """Suppress errors, but not the end of the items."""
    try:
        yield
    except StopIteration:
        raise
    except Exception:
        pass


class Ended:
    """Marks the end of the items: worker processes cannot pass StopIteration on."""


class IterableReader(Stream):
    """An iterable data set: shard k of n takes item k, k + n, ... It is iterated over once per epoch, on one thread or in one process."""

    def __init__(
        self, dataset: Any, shard_id: int, num_shards: int, context: Context | None, keeps_process: bool, collate: Callable[[list[Any]], Any] | None
    ) -> None:
        super().__init__()
        self._op = f"DataLoader({type(dataset).__name__})"
        check_context(self._op, context)
        self._dataset, self._collate, self._keeps_process = dataset, collate, keeps_process
        self._context: Context | None = context
        self.shard_id, self.num_shards = shard_id, num_shards
        self._items, self._processes = Numbered(dataset), cast(Processes | None, None)
        self._one_by_one = False
        self._failed = False  # in this pass: what the iterator has left is unknown
        # A generator ends with its error, which nothing can change.
        self._is_generator = inspect.isgenerator(dataset) or inspect.isgeneratorfunction(type(dataset).__iter__)

    def begin_pass(self, batch_size: int | None) -> Iterator[Any]:
        processes = self._processes
        if self._failed:
            self._items, self._failed = Numbered(self._dataset), False
            if processes is not None:
                self._processes = None
                processes._group.end_in_background()
        elif processes is not None and not self._keeps_process:  # the data set may have changed
            self._processes = None
            # In the background, because a process may take seconds to end.
            processes._group.end_in_background()
        return super().begin_pass(batch_size)

    def _take(self, number: int, count: int) -> list[Any]:
        """Return items of this shard from ``number`` on: one, or of a process up to ``count``, because a message takes 0.1 ms."""
        seed = compute_seed(self.draw_seed, self._epoch)
        try:
            # Started with the first item: a loader that is only constructed needs no process.
            if self._context is not None:
                if self._processes is None:
                    numbered = Numbered(self._dataset, owns_process=True)
                    self._processes = Processes(self._context, 1, numbered, self._collate is not None, self)
                try:
                    return self._processes.item((self._epoch, number, self.num_shards, 1 if self._one_by_one else count, seed))
                except WorkerFailure as error:
                    if error.__cause__ is not None or self._one_by_one or count == 1:
                        raise
                # One of the items has ended the process, which shows when each has a message.
                self._one_by_one = True
                return self._take(number, 1)
            items = self._items[self._epoch, number, self.num_shards, 1, seed]
            return items if self._collate is not None else [prepare_item(item) for item in items]
        except WorkerFailure as error:
            raise RuntimeError(f"{self._op}: sample {number}: {error}") from (error.__cause__ or error)
        except Exception as error:
            end = "; a generator ends with its error, and the epoch with it" if self._is_generator else ""
            raise RuntimeError(f"{self._op}: sample {number}: {describe_error(error)}{end}") from error

    def _batches(self, batch_size: int) -> Iterator[tuple[Any, int]]:
        number, ended = self._position + self.shard_id, False
        while not ended:
            batch, ended = self._read(number, batch_size)
            number += batch_size * self.num_shards
            if batch is not None:
                # Counted as a full batch even if shorter, so that all shards agree on the position.
                yield batch, batch_size

    def _read(self, number: int, batch_size: int) -> tuple[Any, bool]:
        """Return the batch from an item on, None if there is none, and whether the items have ended."""
        items: list[Any] = []
        ended = False
        try:
            while len(items) < batch_size and not ended:
                items += self._take(number + len(items) * self.num_shards, batch_size - len(items))
                if isinstance(items[-1], Ended):
                    items.pop()
                    ended = True
            return self._join_samples(items) if items else None, ended
        except Exception as error:
            self._failed = True
            return FailedBatch(self._op, error), ended

    def _join_samples(self, items: list[Any]) -> Any:
        if self._collate is not None:
            return Collated(self._collate(items), len(items), ())
        return collate_outputs(items)

    def count_batches(self, batch_size: int | None, drop_last: bool = False) -> int:
        return self._batches_after(0, batch_size, drop_last)

    def count_batches_left(self, batch_size: int | None, drop_last: bool = False) -> int:
        return self._batches_after(self._position, batch_size, drop_last)

    def _batches_after(self, position: int, batch_size: int | None, drop_last: bool) -> int:
        if not hasattr(self._dataset, "__len__"):
            return super().count_batches(batch_size, drop_last)
        assert batch_size is not None
        # Items of this shard from the position on: those with a number k + i * shards below the length.
        count = (max(0, len(self._dataset) - position) + self.num_shards - 1 - self.shard_id) // self.num_shards
        return count // batch_size if drop_last else -(-count // batch_size)

    def describe_bottleneck(self) -> tuple[str, str]:
        what, advice = super().describe_bottleneck()
        return type(self._dataset).__name__, advice if what else ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processes": None}


class ExternalReader(Stream):
    """The batches of an ``ExternalSource``; StopIteration ends an epoch. A state is the number of its batches."""

    def __init__(self, source: ExternalSource) -> None:
        super().__init__()
        self._op, self._source = "DataLoader(ExternalSource)", source
        self._asked = 0  # batches of this epoch

    def _batches(self, batch_size: int) -> Iterator[tuple[Any, int]]:
        wanted = self._position
        if wanted < self._asked:
            self._source._items = None  # an iterable and a generator function begin again
            self._asked = 0
        with contextlib.suppress(StopIteration):
            # A restored position is reached by taking batches and dropping them.
            while self._asked < wanted:
                with suppress_errors():
                    self._next(batch_size)
            while True:
                yield self._read(batch_size), 1
        # The source has ended: the next epoch begins with its first item.
        self._asked = 0
        self._source._items = None

    def _read(self, batch_size: int) -> Any:
        try:
            return self._next(batch_size)
        except StopIteration:
            raise
        except Exception as error:
            return FailedBatch(self._op, error)

    def _next(self, batch_size: int) -> Any:
        self._asked += 1  # also if it fails: the next call is for the next batch
        outputs = self._source(batch_size=batch_size)
        return outputs if isinstance(outputs, tuple) else (outputs,)
