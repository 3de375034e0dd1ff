# SPDX-License-Identifier: Apache-2.0
"""States of loaders with batches by cost: any number of ranks, other budgets, hostile input, processes that are killed."""

import json
import random
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest
from _forks import Forks, torchrun_variables
from hypothesis import given, settings
from hypothesis import strategies as st

import torch_ndd as ndd
from torch_ndd.batches import Balanced, Batches, Bucketed, Packed
from torch_ndd.testing import assert_resumable

COSTS = np.random.default_rng(3).integers(1, 12, 150)
SIZES = (20, 30, 47)
MAKERS = {
    "packed": lambda size: Packed(size, COSTS, window=40),
    "best": lambda size: Packed(size, COSTS, window=33, fit="best", seed=4),
    "bucketed": lambda size: Bucketed(size, COSTS, window=40, order="shuffled"),
    "balanced": lambda size: Balanced(size, COSTS),
}


def loader(batches: Batches, rank: int = 0, ranks: int = 1, **options: Any) -> ndd.DataLoader:
    return ndd.DataLoader(range(150), number, batches=batches, shard_id=rank, num_shards=ranks, shuffle=True, seed=5, prefetch=0, **options)


def number(numbers: Any, plan: Any) -> Any:
    return numbers.torch().numpy()[: 0 if plan.repeated else None]


def take(state: Any, batches: Any, ranks: int, count: int | None) -> tuple[list[int], Any]:
    """Take steps on all ranks from a state, and return the samples and the state."""
    loaders = [loader(batches(), rank, ranks) for rank in range(ranks)]
    for each in loaders:
        if state is not None:
            each.load_state_dict(json.loads(json.dumps(state)))
    taken = [list(islice(iter(each), count)) for each in loaders]
    assert len({len(batches) for batches in taken}) == 1
    states = [each.state_dict() for each in loaders]
    assert all(state == states[0] for state in states)
    assert len(json.dumps(states[0])) < 1000
    return [sample for batches in taken for batch in batches for sample in batch.tolist()], states[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_every_cut_of_an_epoch(kind: str) -> None:
    def make_loader(rank: int, world: int, size: int) -> ndd.DataLoader:
        batches = MAKERS[kind](SIZES[size % 3])
        batches.cost = COSTS[:40]
        return ndd.DataLoader(range(40), number, batches=batches, shard_id=rank, num_shards=world, shuffle=True, seed=5, prefetch=0)

    worlds = [(1, 1), (2, 2), (2, 3), (3, 1), (5, 2)]
    resumed = assert_resumable(make_loader, worlds=worlds, batch_sizes=(1, 2))
    assert resumed.cuts > 10
    assert resumed.state_bytes < 1000


PARTS = st.lists(st.tuples(st.sampled_from([*MAKERS]), st.sampled_from(SIZES), st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(parts=PARTS, last=st.tuples(st.sampled_from([*MAKERS]), st.sampled_from(SIZES), st.integers(1, 8)))
@pytest.mark.slow
def test_each_sample_once_whatever_changes(parts: list[tuple[str, int, int, int]], last: tuple[str, int, int]) -> None:
    seen, state = [], None
    for kind, size, ranks, count in parts:
        samples, state = take(state, lambda kind=kind, size=size: MAKERS[kind](size), ranks, count)
        seen += samples
        if state["reader"]["epoch"]:  # taking more steps than there are ends the epoch
            break
    kind, size, ranks = last
    if not state["reader"]["epoch"]:
        seen += take(state, lambda: MAKERS[kind](size), ranks, None)[0]
    assert sorted(seen) == list(range(150))


def test_from_eight_ranks_to_three_to_five_and_another_budget() -> None:
    first, state = take(None, lambda: Packed(30, COSTS, window=40), 8, 1)
    second, state = take(state, lambda: Packed(30, COSTS, window=40), 3, 2)
    assert state["reader"]["units"] == 14
    assert state["reader"]["history"] == []
    third, state = take(state, lambda: Packed(25, COSTS, window=16), 5, 1)
    assert state["reader"]["history"] == [[{"type": "Packed", "budget": 30, "window": 40}, 14]]
    assert state["reader"]["units"] == 5
    rest, state = take(state, lambda: Packed(25, COSTS, window=16), 2, None)
    assert sorted(first + second + third + rest) == list(range(150))
    assert state["reader"]["epoch"] == 1
    whole, _ = take(state, lambda: Packed(25, COSTS, window=16), 2, None)
    assert sorted(whole) == list(range(150))


def test_the_length_of_the_rest() -> None:
    for ranks, batches in ((1, Packed(30, COSTS, window=40)), (3, Bucketed(30, COSTS, window=40)), (2, Balanced(16, COSTS, end="drop"))):
        each = loader(batches, ranks=ranks)
        total, steps = len(each), iter(each)
        for taken in range(1, total + 1):
            next(steps)
            assert each.reader.count_batches_left(None) == total - taken
        state = loader(Packed(20, COSTS), ranks=ranks)
        next(iter(state))
        each.load_state_dict(state.state_dict())
        assert each.reader.count_batches_left(None) == len(list(each))


def test_only_the_window_of_the_state_is_planned_again() -> None:
    class Counted(Packed):
        windows: ClassVar[list[int]] = []

        def cut(self, costs: np.ndarray, epoch: int, window: int) -> Any:
            self.windows.append(window)
            return super().cut(costs, epoch, window)

    costs = np.ones(100_000, np.int64)
    first = ndd.DataLoader(range(100_000), batches=Packed(64, costs, window=256), num_shards=8, shard_id=0, prefetch=0)
    list(islice(iter(first), 150))
    second = ndd.DataLoader(range(100_000), batches=Packed(64, costs, window=256), num_shards=8, shard_id=0, prefetch=0)
    second.batches.__class__ = Counted
    second.reader.batches.__class__ = Counted  # type: ignore[union-attr]
    Counted.__name__ = "Packed"
    second.load_state_dict(first.state_dict())
    next(iter(second))
    assert min(Counted.windows) == 299


def test_state_of_other_costs_raises() -> None:
    first = loader(Packed(30, COSTS, window=40))
    list(islice(iter(first), 5))
    for budget in (30, 20):
        second = loader(Packed(budget, COSTS[::-1], window=40))
        second.load_state_dict(first.state_dict())
        with pytest.raises(ValueError, match="made with other costs of the samples"):
            next(iter(second))


def test_state_of_another_size_raises() -> None:
    first = loader(Packed(30, COSTS, window=40))
    list(islice(iter(first), 5))
    second = ndd.DataLoader(range(140), batches=Packed(30, COSTS[:140], window=40), shuffle=True, seed=5)
    second.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match="the state is for an epoch of 150 samples, but this one has 140"):
        next(iter(second))
    second.load_state_dict(loader(Packed(30, COSTS)).state_dict())  # before an epoch the size does not matter
    assert next(iter(second))[1].step == 0


@pytest.mark.parametrize(
    "change",
    [
        {"units": -1},
        {"units": 10**30},
        {"units": 3.0},
        {"windows": []},
        {"windows": [[0, 0, 0], [0, 0, 0]]},
        {"windows": [[10**9, 0, 0]]},
        {"windows": [[0, 9, 0]]},
        {"windows": [[0, 0, -1]]},
        {"plan": {"type": "Packed"}},
        {"plan": {"type": "Packed", "budget": 0}},
        {"plan": {"type": "Packed", "budget": 30, "window": 10**12}},
        {"plan": {"type": "Packed", "budget": 30, "cost": "pixels"}},
        {"plan": {"type": "Packed", "budget": 30, "wrong": 1}},
        {"plan": {"type": "Batches"}},
        {"plan": {"type": ["Packed"]}},
        {"plan": None},
        {"history": [[{"type": "Packed", "budget": 30}, 5]]},
        {"history": [[{"type": "Packed", "budget": 30}, 5]] * 100, "windows": [[0, 0, 0]] * 101},
        {"reader": {}},
        {"epoch": None},
        {"version": 2},
        {"more": 1},
    ],
    ids=str,
)
def test_load_refuses_invalid_states(change: dict[str, Any]) -> None:
    first = loader(Packed(30, COSTS, window=40))
    list(islice(iter(first), 5))
    state = first.state_dict()
    second = loader(Packed(30, COSTS, window=40))
    list(islice(iter(second), 1))
    before = second.state_dict()
    with pytest.raises(ValueError, match="not a valid saved state"):
        second.load_state_dict({**state, "reader": {**state["reader"], **change}})
    assert second.state_dict() == before


@settings(deadline=None)
@given(units=st.integers(0, 10**6), window=st.integers(0, 10**6), before=st.integers(0, 10**6), check=st.integers(0, 2**32 - 1))
def test_states_that_do_not_fit_end_in_an_error(units: int, window: int, before: int, check: int) -> None:
    each = loader(Packed(30, COSTS, window=40))
    state = each.state_dict()
    try:
        each.load_state_dict({**state, "reader": {**state["reader"], "units": units, "windows": [[window, before, check]]}})
        assert len(list(each)) <= 50
    except ValueError:
        pass


def test_a_state_before_the_first_and_after_the_last_batch() -> None:
    each = loader(Packed(30, COSTS))
    each.load_state_dict(json.loads(json.dumps(each.state_dict())))
    batches, loop = len(each), iter(each)
    for _ in range(batches):
        next(loop)
    after = each.state_dict()
    assert after["reader"]["units"] == batches
    other = loader(Packed(30, COSTS))
    other.load_state_dict(after)
    assert list(other) == []
    assert len(list(other)) == batches


def test_weighted_and_joined_readers_resume() -> None:
    def make(kind: str, ranks: int, rank: int, budget: int) -> ndd.DataLoader:
        rows = [{"key": str(k), "n": k} for k in range(60)]
        if kind == "weighted":
            reader: Any = ndd.readers.Weighted(rows, weights=[k % 3 for k in range(60)], samples_per_epoch=100, seed=3)
        else:
            right = [{"key": str(k), "m": -k} for k in range(0, 60, 2)]
            reader = ndd.readers.Join(rows, right, on="key", missing="skip", random_shuffle=True)
        batches = Packed(budget, np.arange(60) % 7 + 1, window=25)

        def places(parts: Any) -> list[int]:
            assert len(parts["n"].torch()) == len(parts["plan"].places)
            return [] if parts["plan"].repeated else parts["plan"].places.tolist()

        return ndd.DataLoader(reader, places, batches=batches, shard_id=rank, num_shards=ranks, seed=0, prefetch=0)

    for kind, expected in (("weighted", 100), ("joined", 30)):
        first = [make(kind, 2, rank, 30) for rank in range(2)]
        seen = [place for each in first for batch in islice(iter(each), 3) for place in batch]
        assert first[0].state_dict() == first[1].state_dict()
        rest = [make(kind, 3, rank, 20) for rank in range(3)]
        for each in rest:
            each.load_state_dict(json.loads(json.dumps(first[0].state_dict())))
        seen += [place for each in rest for batch in each for place in batch]
        assert len(seen) == len(set(seen)) == expected  # what the join leaves out is nowhere


@pytest.mark.slow
def test_a_million_samples_with_kills_and_changes_of_ranks_and_budgets() -> None:
    size, rng = 1_000_000, random.Random(5)
    costs = np.random.default_rng(2).lognormal(2, 1, size).astype(np.int64).clip(1, 400)
    seen = np.zeros(size, np.int64)

    def make(ranks: int, rank: int, budget: int, state: Any) -> ndd.DataLoader:
        reader = ndd.readers.Dataset(range(size), num_workers=0, random_shuffle=True, seed=3)
        batches = ndd.batches.Packed(budget, costs)
        loader = ndd.DataLoader(reader, lambda numbers, plan: (numbers, plan), batches=batches, shard_id=rank, num_shards=ranks, seed=0, prefetch=0)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        return loader

    state = None
    for stop in [*range(1, 10), None]:
        ranks, budget = rng.choice([1, 3, 5, 8]), rng.choice([600, 800])
        loaders = [make(ranks, rank, budget, state) for rank in range(ranks)]
        for parts in zip(*loaders, strict=True):  # all ranks take the same number of steps
            assert len({plan.step_cost for _, plan in parts}) == 1
            for numbers, plan in parts:
                if not plan.repeated:
                    assert plan.cost == costs[numbers.numpy()].sum() <= budget
                    np.add.at(seen, numbers.numpy(), 1)
            if stop is not None and seen.sum() >= stop * 100_000:
                break
        states = {json.dumps(loader.state_dict()) for loader in loaders}
        assert len(states) == 1
        state = states.pop()
    assert (seen == 1).all()


RANK = """
import json, sys, time
import numpy as np
import torch
import torch_ndd as ndd

folder, steps, state = sys.argv[1:4]
torch.distributed.init_process_group("gloo")
shard = ndd.distributed.shard()
costs = np.random.default_rng(0).lognormal(3, 1, 500).astype(int).clip(1, 400)
batches = ndd.batches.Packed(400, costs, window=64)
loader = ndd.DataLoader(range(500), lambda numbers, plan: (numbers, plan), batches=batches, shuffle=True, seed=1, **shard)
if state != "none":
    loader.load_state_dict(json.loads(open(state).read()))
total = torch.zeros(1)
for step, (numbers, plan) in enumerate(loader):
    torch.distributed.all_reduce(total)  # hangs unless all ranks take the same number of steps
    cost = torch.tensor([plan.cost * (not plan.repeated)])
    torch.distributed.all_reduce(cost)
    assert cost.item() == plan.step_cost
    print(json.dumps([] if plan.repeated else numbers.tolist()), flush=True)
    if shard["shard_id"] == 0:
        with open(folder + "/state", "w") as file:
            file.write(json.dumps(loader.state_dict()))
    if step + 1 == int(steps):
        print("waiting", flush=True)
        time.sleep(100)
print("ended", flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_stop_at_the_same_step_and_others_go_on_after_a_kill(tmp_path: Any, forks: Forks) -> None:
    def run(ranks: int, steps: int, state: str) -> list[Any]:
        return [forks.run(RANK, tmp_path, steps, state, variables=variables) for variables in torchrun_variables(ranks)]

    def samples(processes: list[Any]) -> list[int]:
        lines = [line for process in processes for line in process.output.splitlines() if line.startswith("[")]
        return [sample for line in lines for sample in json.loads(line)]

    two = run(2, 9, "none")
    for process in two:
        process.wait_for("waiting")
        process.kill()
        process.wait()
    three = run(3, -1, str(tmp_path / "state"))
    for process in three:
        assert process.wait() == 0, process.errors
        assert "ended" in process.output
    assert len({process.output.count("\n") for process in three}) == 1
    assert sorted(samples(two) + samples(three)) == list(range(500))
