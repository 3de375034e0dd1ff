# SPDX-License-Identifier: Apache-2.0
"""What a ``DataLoader`` reads with ``batches=``: the units of this rank."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import get_worker_info

from .._core.context.states import check_state, equal, keys, row, rows, whole
from ..readers import Reader
from ..readers._failed import FailedBatch
from ..readers._seeds import compute_seeds
from ..readers._sources.listed import Listed, Readable
from ._costs import Costs, KnownCosts, resolve_costs
from ._figures import Figures, Totals
from ._settings import Batches, parse_settings
from ._units import Cursor, Remaining, Step, Steps, Unit, count_units

STATE_VERSION = 1
MAX_PLANS = 64  # of an epoch that was resumed with other settings
_MAX_CHUNK = 256


class Plan(NamedTuple):
    """What a batch is part of: the last argument of a loader's function with ``batches=``, or the key ``"plan"`` of its dict."""

    cost: Any
    """Cost of the samples of this batch: a number, or a tuple of several."""
    step_cost: Any
    """The same of the batches of all ranks in this step: the loss of a step can be divided by it without an all-reduce."""
    units: int
    """How many ranks have samples of their own in this step."""
    step: int
    """Number of the step in the epoch."""
    epoch: int
    places: np.ndarray
    """Positions of the samples in the order of the epoch, int64 (N,)."""
    repeated: bool
    """Whether the samples are those of another rank, because there were too few: their loss should not count."""
    budget: Any
    """The budget: a number, a list of several, or None."""


class Planned(NamedTuple):
    """The outputs of a reader for a unit, and its plan."""

    outputs: Any
    plan: Plan


class Position(NamedTuple):
    """A saved position: where ranks are in the units of the last settings, and those of earlier settings in this epoch."""

    epoch: int
    cursor: Cursor
    history: tuple[tuple[Batches, Cursor], ...] = ()


class _State(NamedTuple):
    """A checked state."""

    position: Position
    settings: dict[str, Any]
    reader: Any


class _Ahead(NamedTuple):
    """A unit that is being read."""

    step: Step
    unit: Unit
    samples: np.ndarray
    seeds: np.ndarray | None  # of what a data set draws for each sample
    request: Any


_COUNT = whole(0, 1 << 50)
_STATE = keys(
    version=equal(STATE_VERSION),
    epoch=whole(),
    units=_COUNT,
    plan=parse_settings,
    history=rows(row(parse_settings, _COUNT), 0, MAX_PLANS),
    windows=rows(row(_COUNT, _COUNT, whole(0, 2**32 - 1)), 1, MAX_PLANS + 1),
    reader=lambda value, name: value,
)


class BatchSource:
    """The batches of this rank. It reads samples of ``reader`` by number, and its position is a number of units, equal on all ranks."""

    max_batch_size: int | None = None
    draw_seed = 0
    """The seed of the random numbers that data sets draw, from the loader."""

    def __init__(self, reader: Any, batches: Batches, shard_id: int | None = None, num_shards: int | None = None) -> None:
        self._op = "DataLoader"
        if not isinstance(batches, Batches):
            raise TypeError(f"{self._op}: batches must be one of batches.Packed, Bucketed and Balanced, got {batches!r}")
        if not isinstance(reader, Reader):
            raise TypeError(
                f"{self._op}: batches needs random access, but the source can only be read from its beginning; use a reader or a map-style data set"
            )
        self.reader, self.batches = reader, batches
        self._listed = Listed(reader)
        self.shard_id, self.num_shards = self._choose_shard(shard_id, num_shards)
        # Each rank needs a sample of its own in each window.
        if batches.divides and batches.window < self.num_shards:
            raise ValueError(f"batches.Balanced: samples must be at least the number of ranks, {self.num_shards}, got {batches.window}")
        if batches.cost is None:
            raise ValueError(f"batches.{type(batches).__name__}: cost is missing: the costs of samples, the name of a column, or a function")
        self._costs: Costs | None = None
        self._samples = self._listed.size  # for which there are costs, if they are known
        if self._samples is not None and isinstance(batches.cost, np.ndarray | torch.Tensor | list):  # wrong ones are found as early as possible
            self._costs = self._resolve(self._samples)
        self._size = 0  # of the running epoch
        self._position = Position(0, Cursor())
        self._resumed = False
        self._saved_size: int | None = None  # of the epoch that was resumed
        self._ahead: deque[_Ahead] = deque()
        self._steps: Steps | None = None
        self._lengths: dict[int, int] = {}  # units of the latest epoch
        self._totals = Totals(None if batches.divides else batches.budgets, batches.padded)
        self._loop: object = None

    def _choose_shard(self, shard_id: int | None, num_shards: int | None) -> tuple[int, int]:
        own = self._listed.shard
        if shard_id is None and num_shards is None:
            return own
        shards = whole(1)(1 if num_shards is None else num_shards, f"{self._op}: num_shards")
        found = whole(0, shards - 1)(0 if shard_id is None else shard_id, f"{self._op}: shard_id"), shards
        if own not in ((0, 1), found):
            raise ValueError(
                f"{self._op}: the reader has shard {own[0]} of {own[1]}, but the loader shard {found[0]} of {found[1]}; give it to one of them"
            )
        return found

    def _resolve(self, size: int) -> Costs:
        batches = self.batches
        return resolve_costs(f"batches.{type(batches).__name__}", batches.cost, self._listed, len(batches.budgets), size)

    def _prepare_costs(self) -> None:
        """Find the costs of the samples, also after the data set has grown."""
        if self._costs is None or self._listed.changes:
            samples = self._listed.samples
            if self._costs is None or samples != self._samples:
                self._costs, self._samples, self._lengths = self._resolve(samples), samples, {}

    def _costs_at(self, epoch: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of those samples that are delivered, and their costs."""
        assert self._costs is not None
        samples = self._samples_at(epoch, places)
        costs = self._costs.of(samples)
        kept = self.batches.admit(places, costs, lambda place: self._listed.name(int(samples[places == place][0])))
        for k in np.flatnonzero(~kept).tolist():
            cost = ", ".join(f"{value:.12g}" for value in costs[k].tolist())
            self._listed.note(int(samples[k]), f"it costs {cost}, more than the budget of {self.batches.budget}")
        return (places, costs) if kept.all() else (places[kept], costs[kept])

    def _samples_at(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Return the sample numbers at positions of an epoch."""
        if not len(places):
            return places
        first, last = int(places.min()), int(places.max())
        # Close positions are one request; those of several windows lie far apart, block by block.
        if last - first < 2 * self.batches.window + len(places):
            return self.reader.list_order(epoch, first, last - first + 1)[places - first]
        blocks = [(int(block[0]), len(block)) for block in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)]
        return np.concatenate([self.reader.list_order(epoch, begin, count) for begin, count in blocks])

    def _seeds_at(self, epoch: int, places: np.ndarray) -> np.ndarray | None:
        """Return the seeds of what a data set draws for the samples at positions of an epoch; None if nothing draws."""
        return compute_seeds(self.draw_seed, epoch, places) if self.reader.draws() else None

    # The protocol of a loader.

    def reads_here(self) -> bool:
        """Return what the method of the reader does."""
        return self.reader.reads_here()

    def begin_pass(self, batch_size: int | None) -> Iterator[Planned | FailedBatch]:
        """Begin the next epoch, or the rest of a restored epoch, and return its batches, with a FailedBatch for each that cannot be read."""
        # Workers would each plan the whole epoch.
        if get_worker_info() is not None:
            raise RuntimeError(f"{self._op}: batches are planned in the process of the loader; use it without a torch DataLoader around it")
        if not self._resumed and self._has_begun(self._position):
            self._next_epoch()
        self._ahead.clear()
        epoch = self._position.epoch
        self._size = size = self._listed.begin_epoch(epoch)
        if self._saved_size not in (None, size) and self._has_begun(self._position):
            raise ValueError(f"{self._op}: the state is for an epoch of {self._saved_size} samples, but this one has {size}")
        self._prepare_costs()
        self._steps = self._new_steps()
        self._loop = loop = object()
        return self._iterate(loop)

    def _new_steps(self) -> Steps:
        epoch, cursor, _ = self._position
        return Steps(self.batches, self._remaining(self._size), epoch, cursor, partial(self._costs_at, epoch), self.num_shards)

    def _remaining(self, size: int) -> Remaining:
        """Return the positions of this epoch, of so many samples, that earlier settings left."""
        epoch, remaining = self._position.epoch, Remaining(size)
        for batches, cursor in self._position.history:
            remaining = remaining.without(batches, epoch, cursor, partial(self._costs_before, batches, epoch))
        return remaining

    def _costs_before(self, batches: Batches, epoch: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self._costs is not None
        costs = self._costs.of(self._samples_at(epoch, places))
        kept = (costs <= batches.budgets).all(1) if batches.too_long == "skip" else np.ones(len(places), bool)
        return places[kept], costs[kept]

    def _fill(self) -> None:
        """Read ahead."""
        while self._steps is not None and len(self._ahead) <= self._listed.depth and (step := next(self._steps, None)) is not None:
            unit = step.parts[self.shard_id]
            samples = self._samples_at(self._position.epoch, unit.places)
            seeds = self._seeds_at(self._position.epoch, unit.places)
            self._ahead.append(_Ahead(step, unit, samples, seeds, self._listed.start(samples, seeds)))

    def _iterate(self, loop: object) -> Iterator[Planned | FailedBatch]:
        while True:
            if self._loop is not loop:
                raise RuntimeError(f"{self._op}: another loop over it began before this one had ended; loops at the same time need a loader each")
            self._fill()
            if not self._ahead:
                break
            ahead = self._ahead.popleft()
            finished = self._finish(ahead)
            if isinstance(finished, FailedBatch):
                # Where only failed batches were tried, the next loop yields the rest of this epoch.
                self._resumed = self._resumed or not self._has_begun(self._position)
                self._position = self._position._replace(cursor=ahead.step.after)
                yield finished
                continue
            outputs, rows = finished
            plan = self._describe(ahead, rows)
            # Ranks must take the same number of steps, even if no sample of this unit could be read.
            if outputs is None:
                outputs, plan = self._substitute(ahead, plan)
            self._totals.add(ahead.step)
            self._position, self._resumed = self._position._replace(cursor=ahead.step.after), False
            yield Planned(outputs, plan)
        self._next_epoch()

    def _finish(self, ahead: _Ahead) -> Readable | FailedBatch:
        # Not in the frame of the loop: the traceback of the error would keep it.
        try:
            return self._listed.finish(ahead.request, ahead.samples, ahead.seeds)
        except Exception as error:
            return FailedBatch(self._op, error)

    def _next_epoch(self) -> None:
        self._position, self._resumed, self._steps = Position(self._position.epoch + 1, Cursor()), False, None
        self._listed.follow(self._position.epoch)

    def _describe(self, ahead: _Ahead, rows: np.ndarray) -> Plan:
        step, batches = ahead.step, self.batches
        before = self._count_steps(self._position)
        cost, step_cost = self._number(ahead.unit.cost), self._number(step.cost)
        repeated = step.repeated[self.shard_id]
        return Plan(cost, step_cost, step.units, before, self._position.epoch, ahead.unit.places[rows], repeated, batches.budget)

    def _count_steps(self, position: Position) -> int:
        """Return the number of steps of this epoch before a position."""
        plans = [*position.history, (self.batches, position.cursor)]
        return sum(cursor.units if batches.divides else -(-cursor.units // self.num_shards) for batches, cursor in plans)

    def _number(self, costs: tuple[float, ...]) -> Any:
        values = tuple(map(int, costs)) if self._costs is not None and self._costs.integral else costs
        return values[0] if len(values) == 1 else values

    def _substitute(self, ahead: _Ahead, plan: Plan) -> tuple[Any, Plan]:
        """Return the next sample of the epoch that can be read, for a unit without any: all ranks take the same number of steps."""
        epoch, first = self._position.epoch, int(ahead.unit.places[-1]) + 1
        begin, chunk = 0, 1
        while begin < self._size:
            # Chunks grow, so that a few bad samples cost few requests, and many are passed fast.
            places = (first + np.arange(begin, min(begin + chunk, self._size))) % self._size
            samples = self._samples_at(epoch, places)
            seeds = self._seeds_at(epoch, places)
            outputs, rows = self._listed.read(samples, seeds=seeds)
            if len(rows):
                place = rows[:1]
                if len(rows) > 1:
                    outputs, _ = self._listed.read(samples[place], seeds=None if seeds is None else seeds[place])
                return outputs, Plan(0, plan.step_cost, plan.units, plan.step, epoch, places[place], True, plan.budget)
            begin, chunk = begin + chunk, min(2 * chunk, _MAX_CHUNK)
        raise RuntimeError(f"{self._op}: none of the {self._size} samples can be read; the last one: {self.errors[-1].reason}")

    @property
    def errors(self) -> Any:
        """The samples that could not be read, and those that were left out because of their costs; see :attr:`readers.Reader.errors`."""
        return self.reader.errors

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Return the position, equal on all ranks."""
        epoch, cursor, history = self._position
        return {
            "version": STATE_VERSION,
            "epoch": epoch,
            "units": cursor.units,
            "plan": self.batches.settings(),
            "history": [[batches.settings(), before.units] for batches, before in history],
            "windows": [list(before[1:]) for before in (*(before for _, before in history), cursor)],
            "reader": self.reader.order_state(),
        }

    def parse_state(self, state: Any) -> _State:
        """Check a result of :meth:`state_dict` for :meth:`move_to`. Raise ValueError for anything else."""
        found = check_state(self._op, _STATE, state)
        entries, windows = [*found["history"], (found["plan"], found["units"])], found["windows"]
        if len(windows) != len(entries):
            raise ValueError(f"{self._op}: not a valid saved state: 'windows' must have {len(entries)} values, one for each plan, got {len(windows)}")
        plans = []
        for (batches, units), (window, before, check) in zip(entries, windows, strict=True):
            if before > units or window > units or (batches.divides and before != window):
                raise ValueError(
                    f"{self._op}: not a valid saved state: 'windows' has {before} units before window {window}, but only {units} were delivered"
                )
            plans.append((batches, Cursor(units, window, before, check)))
        *history, (batches, cursor) = plans
        if batches.settings() != self.batches.settings():  # what it delivered is removed from the epoch, and the rest planned again
            if cursor.units:
                history.append((batches, cursor))
            cursor = Cursor()
        if len(history) > MAX_PLANS:
            raise ValueError(f"{self._op}: the epoch of the state was resumed with other settings more than {MAX_PLANS} times")
        reader = self.reader.parse_state(found["reader"])
        return _State(Position(found["epoch"], cursor, tuple(history)), found["reader"], reader)

    def move_to(self, state: _State) -> None:
        """Move to a position; requests read ahead are discarded."""
        self._ahead.clear()
        self._steps, self._loop = None, None
        self.reader.move_to(state.reader)
        self._position, self._resumed = state.position, True
        self._saved_size = state.settings.get("length", state.settings.get("size"))

    def _has_begun(self, position: Position) -> bool:
        return position.cursor.units > 0 or bool(position.history)

    def has_begun(self, state: dict[str, Any]) -> bool:
        """Return whether a result of :meth:`state_dict` counts any unit."""
        return state["units"] > 0 or bool(state["history"])

    def set_epoch(self, epoch: int) -> None:
        """Make an epoch the next one."""
        epoch = whole()(epoch, f"{self._op}: epoch")
        if epoch != self._position.epoch:
            self._ahead.clear()
            self.reader.set_epoch(epoch)
            self._steps, self._position, self._resumed = None, Position(epoch, Cursor()), False

    # Figures.

    def is_incomplete(self, samples: int, batch_size: int) -> bool:
        """Return False: the end of an epoch is that of the batches."""
        return False

    def locate_next_batch(self) -> tuple[int, int]:
        """Return the epoch, and the first place of the next unit in it. So random numbers do not depend on the number of ranks."""
        self._fill()
        if not self._ahead:
            return self._position.epoch, self._size
        step, unit = self._ahead[0][:2]
        return self._position.epoch, self._size + self.shard_id if step.repeated[self.shard_id] else int(unit.places[0])

    def count_batches(self, batch_size: int | None, drop_last: bool = False) -> int:
        """Return the number of steps of an epoch; with a batch size, of batches of a fixed number of samples."""
        if batch_size is not None:
            return -(-self.reader.count_epoch_samples(self._position.epoch) // (batch_size * self.num_shards))
        return self.count_epoch_steps(self._position.epoch)

    def count_epoch_steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        self._prepare_costs()
        if epoch not in self._lengths:
            self._lengths = {epoch: self._count(epoch, Remaining(self.reader.count_epoch_samples(epoch)), Cursor())}
        return self._lengths[epoch]

    def count_batches_left(self, batch_size: int | None, drop_last: bool = False) -> int:
        """Return the number of steps in the rest of this epoch."""
        self._prepare_costs()
        epoch = self._position.epoch
        return self._count(epoch, self._remaining(self.reader.count_epoch_samples(epoch)), self._position.cursor)

    def _count(self, epoch: int, remaining: Remaining, cursor: Cursor) -> int:
        batches, ranks = self.batches, self.num_shards
        if batches.divides:
            left = remaining.count() - cursor.units * batches.window
            return left // batches.window if batches.end == "drop" else -(-left // batches.window)
        if not isinstance(self._costs, KnownCosts):
            raise TypeError(f"{self._op}: the number of batches is unknown: their costs are read with the samples; batches.measure stores them once")
        units = count_units(batches, remaining, epoch, cursor, partial(self._costs_before, batches, epoch))
        return units // ranks if batches.end == "drop" else -(-units // ranks)

    def figures(self) -> Figures:
        """Return the figures of the steps delivered so far."""
        return self._totals.figures()

    def describe_bottleneck(self) -> tuple[str, str]:
        return self.reader.describe_bottleneck()

    def __getstate__(self) -> dict[str, Any]:
        # Requests in flight belong to this process.
        return {**self.__dict__, "_ahead": deque(), "_steps": None, "_loop": None}
