# SPDX-License-Identifier: Apache-2.0
"""The state of a reader: what it is and its form as a dict."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._order import Blocks, Position, Taken

VERSION = 2


class ReaderState:
    """The position of a reader; ``str`` is its serial form, equal states have equal text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ReaderState({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return str(other) == self._text if isinstance(other, ReaderState | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


class State(NamedTuple):
    """Where a reader is, and what it needs to be there again."""

    seeds: tuple[int, int]
    position: Position = Position()
    epochs: int = 0  # complete ones
    history: tuple[Taken, ...] = ()  # who has taken what of this pass, when other numbers of shards did
    skipped: int = 0  # bad samples of this pass in whose place others were taken
    errors: int = 0  # all bad samples
    size: int | None = None  # of the data set
    blocks: Blocks | None = None  # the position is that of a worker

    def moved(self, position: Position, skipped: int = 0) -> "State":
        """The state at a later position."""
        if position.passes == self.position.passes:
            return self._replace(position=position, skipped=self.skipped + skipped)
        return self._replace(position=position, skipped=0, history=())


def encoded(state: State, num_shards: int, shard: int | None) -> dict[str, Any]:
    """The state as a dict of numbers."""
    taken = [[shards, count if isinstance(count, int) else list(count)] for shards, count in (*state.history, (num_shards, state.position.offset))]
    made: dict[str, Any] = {
        "version": VERSION,
        "epoch": state.position.passes,
        "taken": taken,
        "shard": shard,
        "skipped": state.skipped,
        "errors": state.errors,
        "epochs": state.epochs,
        "size": state.size,
        "seeds": list(state.seeds),
    }
    if state.blocks is not None:
        made["worker"] = list(state.blocks)
    return made


def decoded(state: Any, num_shards: int, shard_of: Any, worker: tuple[int, int] | None) -> State:
    """What :func:`encoded` was given, for a reader with ``num_shards``. ``shard_of`` is its shard in a pass. ValueError, TypeError or KeyError."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ValueError(f"this is no state of version {VERSION}: {state!r}")
    passes, epochs, skipped, errors = (_count(state[key]) for key in ("epoch", "epochs", "skipped", "errors"))
    seed, other = (operator.index(one) for one in state["seeds"])
    size = None if state["size"] is None else _count(state["size"])
    *history, (shards, taken) = [_taken(*one) for one in state["taken"]]
    blocks = Blocks(*map(_count, state["worker"])) if "worker" in state else None
    if blocks is not None and taken:
        if shards != num_shards:
            raise ValueError(f"the state of a DataLoader's worker fits the same number of shards only, {shards}, not {num_shards}")
        if worker != blocks[:2]:
            raise ValueError("this is the state of a worker of a DataLoader; load that of the StatefulDataLoader")
    offset = 0
    if shards != num_shards:
        if skipped and isinstance(taken, int):
            raise ValueError(
                f"this is the state of shard {state['shard']} of {shards} alone, which has skipped {skipped} bad samples; "
                "readers.merge_states(states of all shards) fits other numbers of shards"
            )
        history.append((shards, taken))
    elif isinstance(taken, int):
        offset = taken
        if skipped and state["shard"] != shard_of(passes):
            raise ValueError(
                f"this is the state of shard {state['shard']}, which has skipped {skipped} bad samples; this reader has shard {shard_of(passes)}"
            )
    else:
        offset = taken[shard_of(passes)]
        skipped = offset - min(taken)
    return State((seed, other), Position(passes, offset), epochs, tuple(history), skipped, errors, size, blocks)


def _count(value: Any) -> int:
    value = operator.index(value)
    if value < 0:
        raise ValueError(f"a count must not be negative, got {value}")
    return value


def _taken(shards: Any, count: Any) -> Taken:
    shards = _count(shards)
    if isinstance(count, Sequence):
        if len(count) != shards:
            raise ValueError(f"{shards} shards, but {len(count)} counts")
        return shards, tuple(map(_count, count))
    if shards < 1:
        raise ValueError("there must be a shard")
    return shards, _count(count)


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One state of the states of all shards, for readers that have skipped different numbers of bad samples (``on_error="skip"``).

    Without skipped samples the state of any shard is that of all, and this is not needed.

    Args:
        states: what ``state_dict`` returned on each rank, in any order.

    Raises:
        ValueError: a shard is missing or there twice, or the states are not of the same run and epoch.

    >>> first = {"version": 2, "epoch": 0, "taken": [[2, 4]], "shard": 0, "skipped": 1, "errors": 1, "epochs": 0, "size": 20, "seeds": [0, 0]}
    >>> merge_states([first, {**first, "shard": 1, "taken": [[2, 3]], "skipped": 0, "errors": 0}])["taken"]
    [[2, [4, 3]]]
    """
    if not states:
        raise ValueError("merge_states: there are no states")
    epoch = min(one["epoch"] for one in states)
    running = [one for one in states if one["epoch"] == epoch]
    first = running[0]
    shards = first["taken"][-1][0]
    counts: dict[int, int] = {}
    for one in states:
        same = all(one[key] == first[key] for key in ("version", "seeds", "size")) and one["taken"][-1][0] == shards and "worker" not in one
        if not same or one["epoch"] > epoch + 1 or (one["epoch"] == epoch and one["taken"][:-1] != first["taken"][:-1]):
            raise ValueError("merge_states: the states are not of one run and one epoch")
        ended = one["epoch"] == epoch + 1
        if ended and one["taken"][-1][1]:
            raise ValueError("merge_states: a shard is in the next epoch already")
        if not ended:
            counts[one["shard"]] = one["taken"][-1][1]
    if len(counts) != len(running) or len(states) != shards or None in counts:
        raise ValueError(f"merge_states: there must be one state of each of {shards} shards, got those of {sorted(map(str, counts))}")
    everything = first["size"] or 0
    taken = [counts.get(shard, everything) for shard in range(shards)]
    return {**first, "taken": [*first["taken"][:-1], [shards, taken]], "shard": None, "skipped": 0, "errors": sum(one["errors"] for one in states)}
