# SPDX-License-Identifier: Apache-2.0
"""The laws of a mix, for random weights, ranks, batch sizes, kills and resumes."""

import json
import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from readers._numbers import Numbers, World, count_epoch, interleave

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

FAR = 1_000_000  # between the numbers of two sources


def draw(rng: random.Random) -> tuple[list[int], list[int], dict[str, Any]]:
    """Return random sizes, weights and arguments of a mix."""
    sources = rng.randint(1, 6)
    sizes = [rng.randint(1, 60) for _ in range(sources)]
    weights = [rng.randint(1, 9) for _ in range(sources)]
    policy = rng.choice(["first", "all", "once", rng.randint(1, 150)])
    return sizes, weights, {"epoch": policy, "block": rng.choice([1, 1, 1, 3]), "seed": rng.randint(0, 99), "random_shuffle": rng.random() < 0.5}


def maker(sizes: list[int], weights: list[int], arguments: dict[str, Any]) -> Any:
    names = [f"s{k}" for k in range(len(sizes))]

    def make(**shard: Any) -> ndd.readers.Mix:
        sources = {name: Numbers(size, k * FAR) for k, (name, size) in enumerate(zip(names, sizes, strict=True))}
        return ndd.readers.Mix(sources, weights=dict(zip(names, weights, strict=True)), **arguments, **shard)

    return make


def move_to_next_epoch(world: World, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state after the end of an epoch that was delivered completely."""
    reader = world.readers[0]
    reader.load_state_dict(state)
    assert list(reader) == []
    return json.loads(json.dumps(reader.state_dict()))


def sources_of(numbers: list[int]) -> list[int]:
    return [number // FAR for number in numbers]


def assert_each_once_in_a_pass(numbers: list[int], sizes: list[int]) -> None:
    for source, size in enumerate(sizes):
        own = [number - source * FAR for number in numbers if number // FAR == source]
        for begin in range(0, len(own), size):
            one_pass = own[begin : begin + size]
            assert len(set(one_pass)) == len(one_pass), f"source {source} repeats a sample in a pass"
            assert set(one_pass) <= set(range(size))


@pytest.mark.parametrize("seed", range(10))
def test_positions_are_exactly_those_of_the_due_times_for_all_ranks_and_batch_sizes(seed: int) -> None:
    rng = random.Random(seed)
    sizes, weights, arguments = draw(rng)
    block, once = arguments["block"], arguments["epoch"] == "once"
    length = count_epoch(weights, sizes, arguments["epoch"], block)
    expected = interleave(weights, length if once else 2 * length, block, sizes if once else None) * (2 if once else 1)
    orders = []
    for ranks, batch_size in ((1, 4), (rng.randint(2, 9), rng.randint(1, 9))):
        world = World(maker(sizes, weights, arguments), ranks, batch_size)
        orders.append(world.numbers() + world.numbers())
        assert sources_of(orders[-1]) == expected
    assert orders[0] == orders[1]
    assert_each_once_in_a_pass(orders[0], sizes)


def test_ranks_share_the_rest_of_an_epoch() -> None:
    make = maker([10, 10], [1, 1], {})
    steps = list(World(make, 4, 2).steps())
    assert [[len(part) for part in parts] for parts in steps] == [[2, 2, 2, 2], [2, 2, 2, 2], [1, 1, 1, 1]]
    steps = list(World(make, 3, 3).steps())  # the last two of twenty: positions 18 + 2 * r // 3
    assert [len(part) for part in steps[-1]] == [0, 1, 1]
    padded = list(World(lambda **shard: make(pad_shards=True, **shard), 3, 3).steps())
    assert [len(part) for part in padded[-1]] == [1, 1, 1]
    assert padded[:-1] == steps[:-1]
    assert padded[-1][1:] == steps[-1][1:]
    assert padded[-1][0] == steps[-1][1]  # a neighbor


@pytest.mark.parametrize("seed", range(12))
def test_steps_of_any_ranks_and_batch_sizes_after_kills_equal_those_of_one_rank(seed: int) -> None:
    rng = random.Random(100 + seed)
    sizes, weights, arguments = draw(rng)
    arguments["order"] = rng.choice(["interleaved", "shuffled"])
    make = maker(sizes, weights, arguments)
    single = World(make, 1, 7)
    expected = [single.numbers() for _ in range(3)]
    for numbers in expected:
        assert Counter(sources_of(numbers)).total() == count_epoch(weights, sizes, arguments["epoch"], arguments["block"])
    found: list[list[int]] = [[], [], []]
    state, epoch = None, 0
    while epoch < 3:
        world = World(make, rng.randint(1, 9), rng.randint(1, 9), state)
        for parts in world.steps(rng.randint(0, 4)):
            found[epoch] += [number for part in parts for number in part]
        state = json.loads(json.dumps(world.state()))
        assert len(json.dumps(state)) < 1000
        if state["at"] == state["length"]:
            epoch += 1
            state = move_to_next_epoch(world, state)
    assert found == expected
    if arguments["epoch"] != "once":
        assert_each_once_in_a_pass([number for numbers in found for number in numbers], sizes)


@pytest.mark.parametrize("seed", range(10))
def test_a_change_of_weights_repeats_and_loses_no_sample(seed: int) -> None:
    rng = random.Random(200 + seed)
    sizes, weights, arguments = draw(rng)
    arguments |= {"order": rng.choice(["interleaved", "shuffled"])}
    once, found, state, running = arguments["epoch"] == "once", [], None, 0
    epochs: dict[int, list[int]] = {}
    for _ in range(12):
        before = state
        if rng.random() < 0.7:
            weights = [rng.randint(1, 9) for _ in sizes]
        world = World(maker(sizes, weights, arguments), rng.randint(1, 4), rng.randint(1, 5), state)
        if before is not None and before["at"]:
            assert world.state()["length"] == before["length"]
        running = world.state()["epoch"]
        numbers = world.numbers(rng.randint(1, 4))
        found += numbers
        epochs.setdefault(running, []).extend(numbers)
        state = json.loads(json.dumps(world.state()))
        if state["at"] == state["length"]:
            state = move_to_next_epoch(world, state)
    for epoch, numbers in epochs.items():
        if once:
            assert len(set(numbers)) == len(numbers)
            assert epoch == running or len(numbers) == sum(sizes)
    if not once:
        assert_each_once_in_a_pass(found, sizes)


def test_the_schedule_after_a_change_of_weights_begins_again() -> None:
    first = World(maker([50, 50], [1, 1], {"epoch": 60}), 1, 10)
    first.numbers(2)
    second = World(maker([50, 50], [4, 1], {"epoch": 60}), 2, 5, first.state())
    state = second.state()
    assert (state["base"], state["since"], state["at"], state["length"]) == ({"s0": 10, "s1": 10}, 0, 20, 60)
    numbers = second.numbers()
    assert sources_of(numbers) == interleave([4, 1], 40)
    assert [number for number in numbers if number < FAR] == list(range(10, 42))
    assert second.state()["since"] == 40


def test_new_and_missing_sources() -> None:
    def make(*names: str, **shard: Any) -> ndd.readers.Mix:
        return ndd.readers.Mix({name: Numbers(100, ord(name[0]) * FAR) for name in names}, epoch=30, **shard)

    first = World(lambda **shard: make("a", "b", **shard), 1, 10)
    first.numbers(2)
    second = World(lambda **shard: make("b", "c", **shard), 1, 10, first.state())
    assert second.state()["base"] == {"b": 10, "c": 0}
    numbers = second.numbers()
    assert sorted(numbers) == [*range(98 * FAR + 10, 98 * FAR + 15), *range(99 * FAR, 99 * FAR + 5)]
    assert len(second.numbers()) == 30


def test_set_weights_between_epochs_continues_the_passes() -> None:
    mix = maker([40, 40], [1, 1], {"epoch": 20, "random_shuffle": True})(max_batch_size=5)
    numbers = [number for (values, _) in mix for number in values.torch().tolist()]
    mix.set_weights({"s0": 3, "s1": 1})
    later = [number for (values, _) in mix for number in values.torch().tolist()]
    assert sources_of(later) == interleave([3, 1], 20)
    assert_each_once_in_a_pass(numbers + later, [40, 40])
    with pytest.raises(ValueError, match=r"set_epoch\(5\)"):
        mix.set_epoch(5)
    mix.set_epoch(2)  # where it is


def test_set_epoch_is_a_position_without_what_came_before() -> None:
    make = maker([7, 5], [2, 1], {"random_shuffle": True})
    mix, other = make(max_batch_size=4), make(max_batch_size=3)
    epochs = [[number for (values, _) in mix for number in values.torch().tolist()] for _ in range(4)]
    for epoch in (2, 0, 3, 1):
        other.set_epoch(epoch)
        assert other.state_dict()["since"] == epoch * len(epochs[0])
        assert [number for (values, _) in other for number in values.torch().tolist()] == epochs[epoch]


EVERY_CUT = [("first", "interleaved"), ("all", "shuffled"), ("once", "interleaved"), (25, "shuffled")]
OTHER_ORDER = [("first", "shuffled"), ("all", "interleaved"), ("once", "shuffled"), (25, "interleaved")]


@pytest.mark.parametrize(("policy", "order"), [*EVERY_CUT, *(pytest.param(*row, marks=pytest.mark.slow) for row in OTHER_ORDER)])
def test_every_cut_of_an_epoch_resumes(policy: Any, order: str) -> None:
    make = maker([11, 4, 7], [5, 3, 2], {"epoch": policy, "order": order, "random_shuffle": True})
    resumed = assert_resumable(lambda rank, world, size: make(max_batch_size=size, shard_id=rank, num_shards=world))
    assert resumed.cuts > 50
    assert resumed.state_bytes < 600


def test_next_epoch_delivers_the_same_order_in_full_batches() -> None:
    make = maker([11, 4, 7], [5, 3, 2], {"random_shuffle": True})
    mix, plain = make(), make(max_batch_size=5)
    expected = [number for _ in range(4) for (values, _) in plain for number in values.torch().tolist()]
    found = []
    for _ in range(3):
        for values, _source in mix.next_epoch(5):
            assert values.batch_size == 5
            found += values.torch().tolist()
            state = json.loads(json.dumps(mix.state_dict()))
            resumed = make()
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
    assert found == expected[: len(found)]
    ranks = [make(shard_id=rank, num_shards=3) for rank in range(3)]
    together = [[batch[0].torch().tolist() for batch in mix.next_epoch(2)] for mix in ranks]
    steps = [number for parts in zip(*together, strict=True) for part in parts for number in part]
    assert steps == expected[: len(steps)]


def test_shuffled_windows_have_the_counts_of_the_interleaved_order() -> None:
    orders = {}
    for order in ("interleaved", "shuffled"):
        mix = maker([9000, 9000, 9000], [5, 3, 2], {"order": order, "epoch": 10_000})()
        orders[order] = sources_of([number % FAR + number // 9000 * FAR for number in mix.list_order(0, 0, 20_000).tolist()])
    plain, shuffled = orders["interleaved"], orders["shuffled"]
    assert len(shuffled) == 10_000
    for begin in range(0, 10_000, 4096):
        assert Counter(plain[begin : begin + 4096]) == Counter(shuffled[begin : begin + 4096])
    assert plain[:4096] != shuffled[:4096]
    runs = sum(a == b for a, b in pairwise(shuffled))
    assert runs > 1.2 * sum(a == b for a, b in pairwise(plain))


@pytest.mark.parametrize("block", [1, 4])
def test_counts_stay_near_the_weights(block: int) -> None:
    rng = random.Random(5)
    for _ in range(20):
        weights = [rng.random() + 0.001 for _ in range(rng.randint(2, 100))]
        names = [str(k) for k in range(len(weights))]
        sources = {name: Numbers(5000) for name in names}
        mix = ndd.readers.Mix(sources, weights=dict(zip(names, weights, strict=True)), epoch=20_000, block=block)
        counts = Counter[int]()
        for n, number in enumerate(mix.list_order(0, 0, 20_000).tolist(), 1):
            counts[number // 5000] += 1
            if n % 997 == 0:
                assert all(abs(counts[k] - n * weight / sum(weights)) < 2 * block for k, weight in enumerate(weights))


def test_decimals_are_taken_as_they_are_written() -> None:
    for weights in ({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 5, "b": 3, "c": 2}, {"a": "5e-7", "b": "3e-7", "c": "2e-7"}):
        numbers = {name: Fraction(weight) if isinstance(weight, str) else weight for name, weight in weights.items()}
        mix = ndd.readers.Mix({name: Numbers(100) for name in weights}, weights=numbers)
        assert [entry[:2] for entry in mix.state_dict()["weights"]] == [["a", 5], ["b", 3], ["c", 2]]


def test_temperature_makes_weights_of_sizes() -> None:
    mix = ndd.readers.Mix({"a": Numbers(4900), "b": Numbers(900)}, temperature=2)
    assert [entry[:2] for entry in mix.state_dict()["weights"]] == [["a", 7], ["b", 3]]
    mix = ndd.readers.Mix({"a": Numbers(4900), "b": Numbers(900)}, temperature=1e-3)
    assert [entry[:2] for entry in mix.state_dict()["weights"]] == [["a", 1 << 20], ["b", 1]]


@pytest.mark.slow
def test_a_million_samples_with_kills_and_changes_of_ranks() -> None:
    rng = random.Random(7)
    sizes, weights, total = [400_000, 90_000, 30_000, 5_000, 77], [8, 5, 3, 2, 1], 1_000_000
    make = maker(sizes, weights, {"epoch": total, "order": "shuffled", "random_shuffle": True})
    mix = make()
    begins = np.cumsum([0, *sizes])
    order = mix.list_order(0, 0, total)
    source = np.searchsorted(begins, order, "right") - 1
    expected = (order - begins[source] + source * FAR).tolist()
    found: list[int] = []
    state = None
    while len(found) < total:
        world = World(make, rng.choice([1, 3, 5, 8, 64]), rng.choice([64, 100, 256]), state)
        found += world.numbers(rng.randint(1, 400))
        state = json.loads(json.dumps(world.state()))
        assert state["at"] == len(found)
        assert len(json.dumps(state)) < 1000
    assert found == expected
    assert all(abs(np.count_nonzero(source == k) - total * weight / sum(weights)) < 2 for k, weight in enumerate(weights))
    assert_each_once_in_a_pass(found, sizes)
