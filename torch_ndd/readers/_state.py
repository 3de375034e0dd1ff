# SPDX-License-Identifier: Apache-2.0
"""The state of a reader, and its form as a dict, which is a file format: see docs/versions.md."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._core.context.states import MAX_SHARDS, anything, check_state, equal, keys, one_of, or_none, row, rows, whole
from .._core.native import MAX_SAMPLES
from ._order import Blocks, Position, Taken

VERSION = 2


class ReaderState:
    """The position of a reader; ``str`` is its serialized form, and equal states have equal text."""

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
    """The position of a reader and what it needs to return there."""

    seeds: tuple[int, int]
    position: Position = Position()
    epochs: int = 0  # complete ones
    history: tuple[Taken, ...] = ()  # samples taken in this pass under other numbers of shards
    skipped: int = 0  # bad samples of this pass that were replaced by others
    errors: int = 0  # all bad samples
    size: int | None = None  # of the data set
    blocks: Blocks | None = None  # of the DataLoader worker whose position it is
    era: Any = None  # where a mix began with its present weights

    def moved_to(self, position: Position, skipped: int = 0) -> "State":
        """Return the state at a later position."""
        if position.passes == self.position.passes:  # on the path of every batch; _replace() takes three times as long
            return State(self.seeds, position, self.epochs, self.history, self.skipped + skipped, self.errors, self.size, self.blocks, self.era)
        return self._replace(position=position, skipped=0, history=())


def encode_state(state: State, num_shards: int, shard: int | None, shuffled: str) -> dict[str, Any]:
    """Return the state as a dict of numbers."""
    taken = [[shards, count if isinstance(count, int) else list(count)] for shards, count in (*state.history, (num_shards, state.position.offset))]
    content: dict[str, Any] = {
        "version": VERSION,
        "epoch": state.position.passes,
        "taken": taken,
        "shard": shard,
        "skipped": state.skipped,
        "errors": state.errors,
        "completed_epochs": state.epochs,
        "size": state.size,
        "seeds": list(state.seeds),
        "shuffled": shuffled,
    }
    if state.blocks is not None:
        content["worker"] = list(state.blocks)
    return content


MAX_SHARD_CHANGES = 1000  # of the number of shards, in one pass


def _check_taken(value: Any, name: str) -> Taken:
    shards, count = row(whole(1, MAX_SHARDS), anything)(value, name)
    if isinstance(count, list | tuple):
        return shards, rows(whole(), shards, shards)(count, f"{name}[1]")
    return shards, whole()(count, f"{name}[1]")


_BLOCKS = row(whole(0, MAX_SHARDS), whole(1, MAX_SHARDS), whole(1, MAX_SAMPLES))
_STATE = keys(
    {"worker": _BLOCKS, "shuffled": one_of("no", "random_shuffle", "shuffle_after_epoch")},
    version=equal(VERSION),
    epoch=whole(),
    taken=rows(_check_taken, 1, MAX_SHARD_CHANGES),
    shard=or_none(whole()),
    skipped=whole(),
    errors=whole(),
    completed_epochs=whole(),
    size=or_none(whole()),
    seeds=row(*[whole(-(2**63), 2**64 - 1)] * 2),
)


def _check_content(op: str, content: Any) -> dict[str, Any]:
    """Check the types and the consistency of a state dict."""
    state = check_state(op, _STATE, content)
    if "worker" in state:
        state["worker"] = Blocks(*state["worker"])
        if state["worker"].worker >= state["worker"].workers:
            raise ValueError(f"{op}: not a valid saved state: 'worker' is {state['worker'].worker}, but there are only {state['worker'].workers}")
    size = state["size"]
    # Every shard costs memory in Order, also those of past divisions.
    if sum(shards for shards, _ in state["taken"]) > 4 * MAX_SHARDS:
        raise ValueError(f"{op}: not a valid saved state: 'taken' has too many shards")
    for shards, count in state["taken"]:
        most = count if isinstance(count, int) else max(count)
        if size is None:
            if most:
                raise ValueError(f"{op}: not a valid saved state: 'taken' counts delivered samples, but 'size' is missing")
        elif shards > max(1, size) or most > size + MAX_SAMPLES:  # the last batch of a pass may be counted as if it were full
            raise ValueError(f"{op}: not a valid saved state: 'taken' exceeds 'size': {shards} shards, {most} samples in one, {size} in total")
    shards = state["taken"][-1][0]
    if state["shard"] is not None and state["shard"] >= shards:
        raise ValueError(f"{op}: not a valid saved state: 'shard' must be less than the {shards} shards in 'taken', got {state['shard']}")
    if state["shard"] is None and isinstance(state["taken"][-1][1], int):
        raise ValueError(f"{op}: not a valid saved state: 'shard' is missing, and 'taken' lacks the counts of some shards")
    return state


def decode_state(
    op: str, content: Any, size: int | None, num_shards: int, shard_of: Callable[[int], int], worker: tuple[int, int] | None, shuffled: str
) -> State:
    """Return the state that :func:`encode_state` converted, for a reader of ``size`` samples (None: unknown). ``shard_of`` maps a pass to its shard.

    Raise ValueError for anything else, with the key.
    """
    state = _check_content(op, content)
    passes, skipped = state["epoch"], state["skipped"]
    if None not in (size, state["size"]) and state["size"] != size:
        raise ValueError(f"{op}: the state's 'size' is {state['size']} samples, but the data set has {size}")
    if state.get("shuffled", shuffled) != shuffled:
        ways = {"no": "does not shuffle", "random_shuffle": "has random_shuffle=True", "shuffle_after_epoch": "has shuffle_after_epoch=True"}
        raise ValueError(
            f"{op}: the state is from a reader that {ways[state['shuffled']]}, but this one {ways[shuffled]}; samples would be repeated or left out"
        )
    # The last entry is the running division. With the same number of shards the reader continues in it, else it becomes history.
    *history, (shards, taken) = state["taken"]
    blocks = state.get("worker")
    if blocks is not None and taken:
        if shards != num_shards:
            raise ValueError(f"{op}: the state of a DataLoader 'worker' requires {shards} shards, got {num_shards}")
        if worker != blocks[:2]:
            raise ValueError(f"{op}: the state belongs to a DataLoader 'worker'; load the state of the StatefulDataLoader instead")
    offset = 0
    if shards != num_shards:
        if skipped and isinstance(taken, int):
            raise ValueError(
                f"{op}: the state is for shard {state['shard']} of {shards} only, which skipped {skipped} bad samples; "
                "merge the states of all shards with readers.merge_states to use another number of shards"
            )
        if state["size"] is not None:
            history.append((shards, taken))
    elif isinstance(taken, int):
        offset = taken
        here = shard_of(passes)
        if skipped and state["shard"] != here:
            raise ValueError(f"{op}: the state is for shard {state['shard']}, which skipped {skipped} bad samples; this reader has shard {here}")
    else:  # merged states: one count per shard; what exceeds the smallest replaced bad samples
        offset = taken[shard_of(passes)]
        skipped = offset - min(taken)
    return State(state["seeds"], Position(passes, offset), state["completed_epochs"], tuple(history), skipped, state["errors"], state["size"], blocks)


def merge_reader_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the states of all shards of a reader into one. Raise ValueError if they do not belong together."""
    states = [_check_content("merge_states", state) for state in states]
    epoch = min(state["epoch"] for state in states)
    running = [state for state in states if state["epoch"] == epoch]
    first = running[0]
    shards = first["taken"][-1][0]
    counts: dict[int, int] = {}
    for state in states:
        same = (
            all(state.get(key) == first.get(key) for key in ("version", "seeds", "size", "shuffled"))
            and state["taken"][-1][0] == shards
            and "worker" not in state
        )
        if not same or state["epoch"] > epoch + 1 or (state["epoch"] == epoch and state["taken"][:-1] != first["taken"][:-1]):
            raise ValueError("merge_states: the states are not of one run and one epoch")
        ended = state["epoch"] == epoch + 1
        if ended and state["taken"][-1][1]:
            raise ValueError("merge_states: a shard is in the next epoch already")
        if not ended:
            counts[state["shard"]] = state["taken"][-1][1]
    if len(counts) != len(running) or len(states) != shards or None in counts or not all(isinstance(state, int) for state in counts.values()):
        raise ValueError(f"merge_states: there must be one state of each of {shards} shards, got those of {sorted(map(str, counts))}")
    everything = first["size"] or 0
    taken = [counts.get(shard, everything) for shard in range(shards)]
    history = [[n, count if isinstance(count, int) else list(count)] for n, count in first["taken"][:-1]]
    errors = sum(state["errors"] for state in states)
    return {**first, "seeds": list(first["seeds"]), "taken": [*history, [shards, taken]], "shard": None, "skipped": 0, "errors": errors}
