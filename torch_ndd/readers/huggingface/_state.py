# SPDX-License-Identifier: Apache-2.0
"""Where the ranks are in the shards of a streaming data set; the saved form of it.

Shards are named by their places in the order of the epoch, so that those that were read are nearly always a few ranges.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._core.context.states import MAX_SHARDS, check_state, equal, keys, or_none, row, rows, whole

MAX_SLOTS = 256  # shards that a rank reads at a time
_MAX_BEGUN = 1 << 16  # shards of all ranks that were interrupted in the middle


class Queue(NamedTuple):
    """What the ranks divide: the shards of an epoch that no rank had finished when it was last divided."""

    done: tuple[tuple[int, int], ...] = ()  # ranges of places, ascending
    begun: tuple[tuple[int, int], ...] = ()  # place and number of samples that were delivered
    delivered: int = 0  # samples of the epoch before

    def list_places(self, shards: int) -> list[tuple[int, int]]:
        """Return the places to read, and how many samples to skip at each: first those that had begun."""
        # Those that were begun come first, each with the samples to skip; all others are read from their start.
        skipped = {place for place, _ in self.begun}
        untouched = [place for begin, end in _find_gaps(self.done, shards) for place in range(begin, end) if place not in skipped]
        return [*self.begun, *((place, 0) for place in untouched)]


class Progress(NamedTuple):
    """What a rank has taken of its part of the queue."""

    taken: int = 0  # places that were opened
    slots: tuple[tuple[int, int], ...] = ()  # of the open ones: the number in the rank's part, and how many samples were taken since the division
    turn: int = 0  # the slot that comes next
    samples: int = 0


_RANGE = row(whole(0, MAX_SHARDS), whole(0, MAX_SHARDS))
_COUNT = row(whole(0, MAX_SHARDS), whole())
_PROGRESS = keys(taken=whole(0, MAX_SHARDS), slots=rows(_COUNT, 0, MAX_SLOTS), turn=whole(0, MAX_SLOTS), samples=whole())


def _check_progress(value: Any, name: str) -> dict[int, Progress]:
    if not isinstance(value, dict) or not all(isinstance(rank, str) and rank.isdecimal() and len(rank) < 8 for rank in value):
        raise ValueError(f"{name} must be a dict from ranks to positions")
    return {int(rank): Progress(**_PROGRESS(progress, f"{name}[{rank}]")) for rank, progress in value.items()}


_STATE = keys(
    version=equal(1),
    epoch=whole(),
    shards=whole(1, MAX_SHARDS),
    seed=or_none(whole(-(2**63), 2**64 - 1)),
    queue=keys(done=rows(_RANGE, 0, MAX_SHARDS), begun=rows(_COUNT, 0, _MAX_BEGUN), delivered=whole()),
    ranks=whole(1, MAX_SHARDS),
    progress=_check_progress,
)


class StreamState(NamedTuple):
    """A saved state: of one rank, or merged of all."""

    epoch: int
    shards: int
    seed: int | None  # of the order of the shards; None if they keep theirs
    queue: Queue
    ranks: int
    progress: dict[int, Progress]

    @classmethod
    def decode(cls, op: str, content: Any) -> "StreamState":
        """Check a state and convert it from its saved form. Raise ValueError with the key that is wrong."""
        found = check_state(op, _STATE, content)
        del found["version"]
        state = cls(**{**found, "queue": Queue(**found["queue"])})
        state._check(op)
        return state

    def encode(self) -> dict[str, Any]:
        """Return the saved form."""
        return {
            "version": 1,
            "epoch": self.epoch,
            "shards": self.shards,
            "seed": self.seed,
            "queue": {"done": _lists(self.queue.done), "begun": _lists(self.queue.begun), "delivered": self.queue.delivered},
            "ranks": self.ranks,
            "progress": {str(rank): {**progress._asdict(), "slots": _lists(progress.slots)} for rank, progress in self.progress.items()},
        }

    def _check(self, op: str) -> None:
        # A state comes from a file: ranges must ascend without overlap, and what was begun must lie between them.
        edges = [0, *(edge for part in self.queue.done for edge in part), self.shards]
        in_order = edges == sorted(edges)
        begun = [place for place, _ in self.queue.begun]
        free = {place for begin, end in _find_gaps(self.queue.done, self.shards) for place in range(begin, end)} if in_order else set()
        if not in_order or len(set(begun)) < len(begun) or not free.issuperset(begun):
            raise ValueError(f"{op}: not a valid saved state: 'queue' is not a division of {self.shards} shards")
        for rank, progress in self.progress.items():
            # Places of the queue are dealt to the ranks in turn.
            size = len(range(rank, len(free), self.ranks))
            opened = [item for item, _ in progress.slots]
            if rank >= self.ranks or progress.taken > size or len(set(opened)) < len(opened) or max(opened, default=-1) >= progress.taken:
                raise ValueError(f"{op}: not a valid saved state: 'progress' of rank {rank} does not fit the queue")

    def divide(self, op: str, rank: int, ranks: int) -> tuple[Queue, Progress]:
        """Return the queue and the progress of a rank. Raise ValueError if another number of ranks needs the states of all."""
        # The same division as before: the rank continues in the middle of its part.
        if ranks == self.ranks and rank in self.progress:
            return self.queue, self.progress[rank]
        if len(self.progress) < self.ranks:
            raise ValueError(
                f"{op}: the state is that of {len(self.progress)} of {self.ranks} ranks; to use it on rank {rank} of {ranks}, "
                "merge the states of all ranks with readers.merge_states"
            )
        places = self.queue.list_places(self.shards)
        begun: dict[int, int] = {}
        finished: set[int] = set()
        for former_rank, progress in self.progress.items():
            counts = dict(progress.slots)
            for item, (place, skip) in enumerate(places[former_rank :: self.ranks]):
                # Opened, and no longer open: it was read to its end.
                if item < progress.taken and item not in counts:
                    finished.add(place)
                elif skip or counts.get(item):
                    begun[place] = skip + counts.get(item, 0)
        done = _to_ranges({place for begin, end in self.queue.done for place in range(begin, end)} | finished)
        delivered = self.queue.delivered + sum(progress.samples for progress in self.progress.values())
        return Queue(done, tuple(sorted(begun.items())), delivered), Progress()


def merge_stream_states(op: str, contents: Sequence[Any]) -> dict[str, Any]:
    """Merge the states of all ranks. Raise ValueError if they are not those of one run."""
    states = [StreamState.decode(op, content) for content in contents]
    # A rank with a short part may have begun the next epoch; it counts as having finished this one.
    epoch = min(state.epoch for state in states)
    first = next(state for state in states if state.epoch == epoch)
    progress: dict[int, Progress] = {}
    for state in states:
        begun = any(part.samples for part in state.progress.values())
        if state[1:3] != first[1:3] or state.ranks != first.ranks or ((state.epoch, state.queue) != (epoch, first.queue) and begun):
            raise ValueError(f"{op}: the states are not of one run and one epoch")
        for rank, part in state.progress.items():
            if state.epoch > epoch:  # this rank has already ended the epoch
                size = len(range(rank, len(first.queue.list_places(first.shards)), first.ranks))
                part = Progress(size, samples=max(other.samples for at in states for other in at.progress.values()))
            progress[rank] = part
    if len(progress) < first.ranks:
        raise ValueError(f"{op}: there must be one state of each of {first.ranks} ranks, got those of {sorted(progress)}")
    return first._replace(progress=dict(sorted(progress.items()))).encode()


def _find_gaps(ranges: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    edges = [0, *(edge for part in ranges for edge in part), end]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _to_ranges(places: set[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[list[int]] = []
    for place in sorted(places):
        if ranges and ranges[-1][1] == place:
            ranges[-1][1] = place + 1
        else:
            ranges.append([place, place + 1])
    return tuple((begin, end) for begin, end in ranges)


def _lists(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    return [list(pair) for pair in pairs]
