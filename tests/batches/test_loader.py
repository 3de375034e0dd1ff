# SPDX-License-Identifier: Apache-2.0
"""A loader with batches by cost: what each rank gets, plans, lengths and errors."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import torch_ndd as ndd
from torch_ndd.batches import Balanced, Bucketed, Packed, Plan

COSTS = np.random.default_rng(3).integers(1, 12, 150)
KINDS = {
    "packed": lambda **options: Packed(30, COSTS, window=40, **options),
    "best": lambda **options: Packed(30, COSTS, window=40, fit="best", **options),
    "bucketed": lambda **options: Bucketed(30, COSTS, window=40, **options),
    "balanced": lambda **options: Balanced(16, COSTS, **options),
}


def loader(rank: int = 0, ranks: int = 1, batches: Any = None, **options: Any) -> ndd.DataLoader:
    options = {"shuffle": True, "seed": 5, "prefetch": 0, **options}
    chosen = KINDS["packed"]() if batches is None else batches
    return ndd.DataLoader(range(150), number_and_plan, batches=chosen, shard_id=rank, num_shards=ranks, **options)


def number_and_plan(numbers: Any, plan: Plan) -> Any:
    return numbers.torch().tolist(), plan


def steps(ranks: int, make: Any, epochs: int = 1, **options: Any) -> list[list[tuple[list[int], Plan]]]:
    """Return the batches of all ranks, step by step."""
    loaders = [loader(rank, ranks, make(), **options) for rank in range(ranks)]
    return [step for _ in range(epochs) for step in zip(*map(list, loaders), strict=True)]  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_all_ranks_take_the_same_steps(kind: str, ranks: int) -> None:
    found = steps(ranks, KINDS[kind])
    seen = [number for step in found for numbers, plan in step if not plan.repeated for number in numbers]
    assert sorted(seen) == list(range(150))
    for number, step in enumerate(found):
        cost = sum(int(COSTS[numbers].sum()) for numbers, plan in step if not plan.repeated)
        for numbers, plan in step:
            assert (plan.cost, plan.step_cost, plan.step, plan.epoch) == (COSTS[numbers].sum(), cost, number, 0)
            assert plan.units == sum(not plan.repeated for _, plan in step)
            assert plan.budget == (None if kind == "balanced" else 30)
            assert isinstance(plan.cost, int)
    order = ndd.readers.Dataset(range(150), random_shuffle=True, seed=5).list_order(0, 0, 150)
    assert all(order[plan.places].tolist() == numbers for step in found for numbers, plan in step)
    assert all(len(loader(rank, ranks, KINDS[kind]())) == len(found) for rank in range(ranks))


@pytest.mark.parametrize("kind", ["packed", "best", "bucketed"])
def test_units_do_not_depend_on_the_number_of_ranks(kind: str) -> None:
    streams = [[numbers for step in steps(ranks, lambda: KINDS[kind](end="drop"), epochs=2) for numbers, _ in step] for ranks in (1, 3, 4)]
    half = len(streams[0]) // 4
    assert streams[0][:half] == streams[1][:half] == streams[2][:half]


def test_steps_of_balanced_have_the_same_samples_for_all_numbers_of_ranks() -> None:
    found = [[{number for numbers, _ in step for number in numbers} for step in steps(ranks, KINDS["balanced"])] for ranks in (1, 3, 8)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_differ_and_repeat(kind: str) -> None:
    both = [[[numbers for numbers, _ in step] for step in steps(2, KINDS[kind], epochs=2)] for _ in range(2)]
    assert both[0] == both[1]
    half = len(both[0]) // 2
    assert both[0][:half] != both[0][half : 2 * half]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=9), ranks=st.integers(1, 6), end=st.sampled_from(["share", "drop"]))
def test_few_samples_on_many_ranks(sizes: list[int], ranks: int, end: str) -> None:
    loaders = [
        ndd.DataLoader(sizes, lambda *parts: parts[-1], batches=Packed(10, sizes, end=end), shard_id=rank, num_shards=ranks, prefetch=0)
        for rank in range(ranks)
    ]
    found = list(zip(*map(list, loaders), strict=True))
    places = [place for step in found for plan in step if not plan.repeated for place in plan.places.tolist()]
    if end == "share":
        assert sorted(places) == list(range(len(sizes)))
    assert len(places) == len(set(places))
    assert all(len(plan.places) for step in found for plan in step)
    assert {len(each) for each in loaders} == {len(found)}


def test_plans_reach_every_kind_of_outputs(tmp_path: Path) -> None:
    files = []
    for k in range(4):
        files.append(tmp_path / f"{k}.bin")
        files[-1].write_bytes(bytes([k]) * (k + 1))
    batches = Packed(5, [1, 2, 3, 4], order="first")
    *outputs, plan = next(iter(ndd.DataLoader(ndd.readers.File(files=files), batches=batches)))
    assert (len(outputs), plan.places.tolist()) == (2, [0, 1])
    named = next(iter(ndd.DataLoader({"file": ndd.readers.File(files=files), "more": [1, 2, 3, 4]}, lambda parts: parts, batches=batches)))
    assert named.keys() == {"file", "more", "plan"}
    items = [{"x": k} for k in range(4)]
    assert next(iter(ndd.DataLoader(items, batches=batches)))["plan"].cost == 3
    with pytest.raises(ValueError, match="the key 'plan' is that of the plan"):
        next(iter(ndd.DataLoader([{"plan": k} for k in range(4)], batches=batches)))
    pairs = next(iter(ndd.DataLoader([(k, k) for k in range(4)], batches=batches)))
    assert isinstance(pairs, list)
    assert isinstance(pairs[2], Plan)
    collated = next(iter(ndd.DataLoader([1, 2, 3, 4], lambda value, plan: (value, plan), batches=batches, collate_fn=list)))
    assert (collated[0], collated[1].cost) == ([1, 2], 3)
    with_paths = next(iter(ndd.DataLoader(ndd.readers.File(files=files), lambda *parts: parts, batches=batches, return_paths=True)))
    assert with_paths[-1] == [str(path) for path in files[:2]]


def test_several_budgets_have_several_costs() -> None:
    (_, plan), *_ = ndd.DataLoader([1, 2, 3], batches=Packed([5, 2.5], [[2, 1.5], [3, 1], [1, 1]], order="first"))
    assert (plan.cost, plan.step_cost, plan.budget) == ((5.0, 2.5), (5.0, 2.5), [5, 2.5])


def test_a_native_data_set_is_planned_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for k in range(5):
        Image.fromarray(np.full((4, 4 + k, 3), k * 20, np.uint8)).save(tmp_path / "a" / f"{k}.png")
    folder = ndd.ImageFolder(tmp_path)
    found = list(ndd.DataLoader(folder, lambda images, labels, plan: (images, plan), batches=Packed(40, "pixels", order="first"), shuffle=False))
    assert [len(images) for images, _ in found] == [2, 1, 1, 1]
    assert [plan.cost for _, plan in found] == [36, 24, 28, 32]


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_random_numbers_belong_to_the_unit(prefetch: int) -> None:
    def draws(ranks: int) -> dict[int, float]:
        found = {}
        for rank in range(ranks):
            reader = ndd.DataLoader(
                range(150),
                lambda numbers, plan: (numbers, ndd.random.uniform(batch_size=numbers.batch_size), plan),
                batches=KINDS["packed"](end="drop"),
                shard_id=rank,
                num_shards=ranks,
                seed=1,
                shuffle=True,
                prefetch=prefetch,
            )
            for numbers, values, _ in reader:
                found |= dict(zip(numbers.tolist(), values.tolist(), strict=True))
        return found

    item, three = draws(1), draws(3)
    assert len(set(item.values())) == len(item)
    assert all(item[number] == value for number, value in three.items())


def test_the_reader_may_have_the_shard() -> None:
    found = []
    for rank in range(2):
        reader = ndd.readers.Dataset(range(150), random_shuffle=True, seed=5, shard_id=rank, num_shards=2, pad_shards=True)
        found.append([numbers for numbers, _ in ndd.DataLoader(reader, number_and_plan, batches=KINDS["packed"]())])
    assert list(map(list, zip(*found, strict=True))) == [[numbers for numbers, _ in step] for step in steps(2, KINDS["packed"])]
    reader = ndd.readers.Dataset(range(150), shard_id=1, num_shards=2)
    with pytest.raises(ValueError, match="shard 1 of 2, but the loader shard 0 of 3"):
        ndd.DataLoader(reader, batches=KINDS["packed"](), shard_id=0, num_shards=3)


def test_a_loop_left_early_ends_its_epoch() -> None:
    reader = loader()
    first = [next(iter(reader))[1] for _ in range(2)]
    assert [plan.epoch for plan in first] == [0, 1]
    reader.set_epoch(7)
    assert next(iter(reader))[1].epoch == 7
    loops = [iter(reader), iter(reader)]
    next(loops[0])
    next(loops[1])
    with pytest.raises(RuntimeError, match="another loop"):
        next(loops[0])


def test_a_pickled_loader_goes_on() -> None:
    def make() -> ndd.DataLoader:
        return ndd.DataLoader(range(150), batches=KINDS["packed"](), shuffle=True, seed=5)

    original = make()
    next(iter(original))
    copy = pickle.loads(pickle.dumps(make()))
    copy.load_state_dict(original.state_dict())
    assert [plan.step for *_, plan in copy][:2] == [1, 2]


def test_diagnose_tells_fill_and_balance() -> None:
    reader = loader(1, 2, KINDS["bucketed"]())
    list(reader)
    assert "In the batches units are filled to" in reader.diagnose()
    figures = reader.reader.figures()  # type: ignore[union-attr]
    assert figures.samples == 150
    assert 0.5 < figures.fill <= 1
    assert 0 < figures.padding < 0.2
    assert 1 <= figures.load < 1.5
    assert "batches=Bucketed(budget=30, window=40" in repr(reader)
    assert "Bucketed" in reader._repr_html_()


@pytest.mark.parametrize("wrong", [-1, float("nan")])
def test_wrong_costs_name_the_sample(wrong: float) -> None:
    costs = np.ones(150)
    costs[77] = wrong
    with pytest.raises(ValueError, match=r"batches.Packed: the cost of sample 77 \(range\[77\]\) is (-1|nan): it"):
        loader(batches=Packed(30, costs))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 4}, ValueError, "batch_size and batches exclude each other"),
        ({"drop_last": True}, ValueError, "drop_last and batches exclude each other"),
        ({"batches": 5}, TypeError, "batches must be one of batches.Packed"),
        ({"batches": Packed(30)}, ValueError, "batches.Packed: cost is missing"),
        ({"batches": Packed(30, COSTS[:-1])}, ValueError, "there are costs of 149 samples, but the reader has 150"),
        ({"batches": Packed([30, 3], COSTS)}, ValueError, "each sample has 1 costs, but 2 are needed"),
        ({"batches": Balanced(2, COSTS), "num_shards": 4}, ValueError, "samples must be at least the number of ranks, 4, got 2"),
        ({"num_shards": 4, "shard_id": 4}, ValueError, "shard_id must be from 0 to 3, got 4"),
        ({"num_shards": 0}, ValueError, "num_shards must be from 1"),
    ],
)
def test_arguments_that_exclude_each_other(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ndd.DataLoader(range(150), **{"batches": Packed(30, COSTS), **options})


def test_loader_refuses_sources_without_random_access() -> None:
    for source in (iter(range(5)), ndd.ExternalSource(lambda: [1])):
        with pytest.raises(TypeError, match="batches needs random access"):
            ndd.DataLoader(source, batches=Packed(30, [1] * 5))


def test_a_sample_over_the_budget() -> None:
    costs = COSTS.copy()
    costs[40] = 99
    with pytest.raises(ValueError, match=r"batches.Packed: sample 40 \(range\[40\]\) costs 99, more than the budget of 30"):
        list(loader(batches=Packed(30, costs)))
    for make in (lambda: Packed(30, costs, too_long="skip"), lambda: Bucketed(30, costs, too_long="skip")):
        reader = loader(batches=make())
        assert sorted(number for numbers, _ in reader for number in numbers) == [k for k in range(150) if k != 40]
        ((sample, source, reason),) = reader.reader.errors
        assert (sample, source, reason) == (40, "range[40]", "it costs 99, more than the budget of 30")
    alone = [numbers for numbers, _ in loader(batches=Packed(30, costs, too_long="alone")) if 40 in numbers]
    assert alone == [[40]]


class _Damaged:
    """Some items cannot be read."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 150

    def __getitem__(self, item: int) -> int:
        if item in self.bad:
            raise OSError(f"item {item} is damaged")
        return item


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_sample_does_not_move_others(kind: str, on_error: str) -> None:
    bad = {3, 40, 41, 42, 149}
    good, damaged = [
        [
            list(
                ndd.DataLoader(_Damaged(wrong), number_and_plan, batches=KINDS[kind](), shard_id=rank, num_shards=3, on_error=on_error, shuffle=True)
            )
            for rank in range(3)
        ]
        for wrong in (set[int](), bad)
    ]
    for without, with_bad in zip(good, damaged, strict=True):
        assert len(without) == len(with_bad)
        for (numbers, plan), (others, other) in zip(without, with_bad, strict=True):
            if on_error == "skip" or set(numbers) <= bad:
                assert others == [number for number in numbers if number not in bad] or other.repeated
            else:
                assert len(others) == len(numbers)
                assert all(b == a if a not in bad else b in numbers for a, b in zip(numbers, others, strict=True))
            assert not set(others) & bad
            assert len(others) == len(other.places)
            assert other.step_cost == plan.step_cost


def test_another_sample_replaces_a_unit_of_bad_samples() -> None:
    batches = Packed(10, [10] * 150, order="first")
    found = list(ndd.DataLoader(_Damaged({2, 3, 4, 149}), number_and_plan, batches=batches, on_error="skip"))
    assert [numbers[0] for numbers, _ in found] == [0, 1, 5, 5, 5, *range(5, 149), 0]
    assert [plan.places.tolist() for _, plan in found][2:4] == [[5], [5]]
    assert [k for k, (_, plan) in enumerate(found) if plan.repeated] == [2, 3, 4, 149]
    with pytest.raises(RuntimeError, match="none of the 150 samples can be read; the last one: OSError"):
        list(ndd.DataLoader(_Damaged(set(range(150))), batches=batches, on_error="skip"))
    with pytest.raises(RuntimeError, match=r"_Damaged\[2\]"):
        list(ndd.DataLoader(_Damaged({2}), batches=batches))


def test_a_data_set_that_grows_is_planned_with_its_costs() -> None:
    data = list(range(6))
    reader = ndd.DataLoader(data, lambda numbers, plan: numbers, batches=Packed(4, lambda numbers: numbers.torch() * 0 + 2, order="first"))
    assert [batch.tolist() for batch in reader] == [[0, 1], [2, 3], [4, 5]]
    data.append(6)
    assert [batch.tolist() for batch in reader] == [[0, 1], [2, 3], [4, 5], [6]]
    fixed = ndd.DataLoader(data, batches=Packed(4, [2] * 7))
    data.append(7)
    with pytest.raises(ValueError, match="costs of 7 samples, but the reader has 8"):
        next(iter(fixed))


def test_workers_of_a_torch_loader_raise() -> None:
    class Around(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(loader())

    assert next(iter(torch.utils.data.DataLoader(Around(), batch_size=None)))[1].step == 0
    with pytest.raises(RuntimeError, match="use it without a torch DataLoader around it"):
        next(iter(torch.utils.data.DataLoader(Around(), batch_size=None, num_workers=1)))


@pytest.mark.slow
def test_items_from_worker_processes() -> None:
    batches = KINDS["packed"]()
    found = [
        numbers
        for numbers, _ in ndd.DataLoader(
            range(150), number_and_plan, batches=batches, multiprocessing_context="fork", num_workers=1, shuffle=True, seed=5
        )
    ]
    assert found == [numbers for numbers, _ in loader()]
