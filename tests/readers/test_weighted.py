# SPDX-License-Identifier: Apache-2.0
"""Samples drawn by weight."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from readers._numbers import Numbers, World

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

Weighted = ndd.readers.Weighted


def draws(reader: ndd.readers.Reader, batch_size: int = 64) -> list[int]:
    return [number for batch in ndd.DataLoader(reader, lambda values: values, batch_size=batch_size) for number in batch.flatten().tolist()]


def test_frequencies_are_those_of_the_weights() -> None:
    weights = np.array([0, 1, 2, 3, 0, 4.5, 0.25, 9, 0])
    found = Counter(draws(Weighted(Numbers(9), weights=weights, samples_per_epoch=20_000, seed=3), 500))
    expected = weights / weights.sum() * 20_000
    assert not {0, 4, 8} & found.keys()
    chi_squared = sum((found[k] - expected[k]) ** 2 / expected[k] for k in range(9) if expected[k])
    assert chi_squared < 20.5  # 5 degrees of freedom: passed by one seed in a thousand


def test_a_bad_sample_may_be_drawn_more_often_than_there_are_samples() -> None:
    reader = Weighted(Numbers(4, 0, [2]), weights=np.ones(4), samples_per_epoch=60, seed=3, on_error="skip")
    found = draws(reader)
    assert found == [number for number in draws(Weighted(Numbers(4), weights=np.ones(4), samples_per_epoch=60, seed=3)) if number != 2]
    assert len(found) < 60 - 4
    with pytest.raises(RuntimeError, match=r"none of the \d+ samples can be read"):
        draws(Weighted(Numbers(4, 0, range(4)), weights=np.ones(4), samples_per_epoch=60, on_error="skip"))


def test_epochs_and_seeds_differ_and_repeat() -> None:
    def make(seed: int) -> ndd.readers.Reader:
        return Weighted(Numbers(1000), weights=np.ones(1000), seed=seed)

    reader, same, other = make(1), make(1), make(2)
    first, second = draws(reader), draws(reader)
    assert (draws(same), draws(same)) == (first, second)
    assert first != second
    assert draws(other) != first
    assert len(first) == 1000


def test_draws_are_found_without_those_before_them() -> None:
    reader = Weighted(Numbers(100), weights=np.arange(100), samples_per_epoch=50_000)
    everything = reader.list_order(3, 0, 50_000)
    again = Weighted(Numbers(100), weights=np.arange(100), samples_per_epoch=50_000)
    for begin in (49_990, 4095, 4096, 17, 0):
        assert again.list_order(3, begin, 100).tolist() == everything[begin : begin + 100].tolist()
    assert again.count_epoch_samples(3) == 50_000


def test_every_cut_of_an_epoch_resumes() -> None:
    def make(rank: int, world: int, batch_size: int) -> ndd.readers.Reader:
        return Weighted(Numbers(50), batch_size, weights=np.arange(50), samples_per_epoch=30, shard_id=rank, num_shards=world)

    resumed = assert_resumable(make)
    assert resumed.state_bytes < 100


def test_the_running_epoch_keeps_its_length() -> None:
    first = Weighted(Numbers(5), 4, weights=np.ones(5), samples_per_epoch=10)
    loop = iter(first)
    next(loop)
    second = Weighted(Numbers(5), 4, weights=np.ones(5), samples_per_epoch=20)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [sum(batch[0].batch_size for batch in second) for _ in range(2)] == [6, 20]


def test_a_bad_sample_moves_no_rank() -> None:
    def make(bad: list[int], on_error: Any) -> Any:
        return lambda **shard: Weighted(Numbers(5, 0, bad), weights=np.ones(5), samples_per_epoch=40, on_error=on_error, **shard)

    good = World(make([], "skip"), 2, 4)
    expected = list(good.steps())
    assert list(World(make([2], "skip"), 2, 4).steps()) == [[[k for k in part if k != 2] for part in parts] for parts in expected]
    replaced = list(World(make([2], "replace"), 2, 4).steps())
    assert all(len(part) == 4 and 2 not in part for parts in replaced for part in parts)
    with pytest.raises(RuntimeError, match=r"readers.Weighted: sample \d \(number 2\): it is bad"):
        World(make([2], "raise"), 1, 4).numbers()


@pytest.mark.parametrize("kind", ["file", "targets", "parquet", "items", "texts"])
def test_balanced_classes_come_equally_often(kind: str, tmp_path: Path) -> None:
    labels = [0] * 90 + [1] * 9 + [2]
    column = "label"
    if kind == "file":
        for k, label in enumerate(labels):
            (tmp_path / f"{label}").mkdir(exist_ok=True)
            (tmp_path / f"{label}/{k:02}.jpg").write_bytes(b"x")
        source: Any = ndd.readers.File(file_root=tmp_path)
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"k": list(range(100)), "label": labels}), tmp_path / "x.parquet")
        source = ndd.readers.Parquet(path=tmp_path / "x.parquet")
    elif kind == "targets":

        class Digits(torch.utils.data.Dataset[Any]):
            targets = torch.tensor(labels)
            reads = 0

            def __len__(self) -> int:
                return len(labels)

            def __getitem__(self, k: int) -> Any:
                self.reads += 1
                return k, labels[k]

        source = Digits()
    else:
        column = "label" if kind == "items" else "name"
        source = [(k, label) for k, label in enumerate(labels)] if kind == "items" else [{"name": "abc"[label], "k": label} for label in labels]
    reader = Weighted(source, balanced=column, samples_per_epoch=3000)
    order = reader.list_order(0, 0, 3000)
    if kind == "targets":
        assert source.reads == 0
    counts = Counter(np.asarray(labels)[order].tolist())
    assert all(abs(counts[label] - 1000) < 5 * 26 for label in range(3))
    assert next(iter(ndd.DataLoader(reader, batch_size=4))) is not None


def test_readers_with_an_order_of_their_own_are_no_sources() -> None:
    weighted, mix = Weighted(Numbers(5), weights=np.ones(5)), ndd.readers.Mix({"a": Numbers(5)})
    for make in (
        lambda: ndd.readers.Mix({"a": weighted}),
        lambda: Weighted(mix, weights=np.ones(5)),
        lambda: ndd.readers.Join(mix, Numbers(5), on="key"),
        lambda: ndd.DataLoader({"a": Numbers(5), "b": weighted}, batch_size=2),
    ):
        with pytest.raises(TypeError, match="determines the order of its samples itself"):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted(Numbers(3), weights=[1, -1, 0]), "sample 1 has -1"),
        (lambda: Weighted(Numbers(3), weights=[1, 2, np.nan]), "sample 2 has nan"),
        (lambda: Weighted(Numbers(3), weights=[1, np.inf, np.nan]), "sample 1 has inf"),
        (lambda: Weighted(Numbers(3), weights=[1e308, 1e308, 1e308]), "sum is infinite"),
        (lambda: Weighted(Numbers(3), weights=[0, 0, 0]), "must not all be 0"),
        (lambda: Weighted(Numbers(3), weights=[]), "they are empty"),
        (lambda: Weighted(Numbers(3), weights=[[1, 2, 3]]), "one number for each sample"),
        (lambda: Weighted(Numbers(3), weights=["a"]), "one number for each sample"),
        (lambda: Weighted(Numbers(3)), "either weights or balanced"),
        (lambda: Weighted(Numbers(3), weights=[1], balanced="label"), "either weights or balanced"),
        (lambda: Weighted(Numbers(3), weights=[1, 1, 1], samples_per_epoch=0), "samples_per_epoch must be a positive number"),
        (lambda: Weighted(Numbers(3, num_shards=2), weights=[1, 1, 1]), "the source has num_shards=2"),
        (lambda: next(Weighted(Numbers(3), weights=[1, 1]).next_epoch(1)), "there are 2 weights, but the source has 3 samples"),
        (lambda: next(Weighted(Numbers(3), balanced="label").next_epoch(1)), "1 outputs without names"),
        (lambda: next(Weighted([{"x": 1}], balanced="y").next_epoch(1)), "no output 'y', but x"),
        (lambda: Weighted(Numbers(3), weights=[1, 1, 1]).load_state_dict(Weighted(Numbers(4), weights=np.ones(4)).state_dict()), "3 samples, but 4"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("kind", ["equal", "heavy", "gaps"])
def test_draws_are_the_inverse_of_the_cumulative_weights(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    weights = {"equal": np.ones(count), "heavy": rng.pareto(0.5, count) + 1e-9, "gaps": (rng.random(count) < 0.1) * rng.random(count)}[kind]
    weights[-1] = 1  # a gap alone has no weight
    found = Weighted(Numbers(count), weights=weights, samples_per_epoch=4096, seed=7).list_order(0, 0, 4096)
    numbers = (np.random.Philox(counter=0, key=np.array([7, 0], np.uint64)).random_raw(4096) >> np.uint64(11)) * 2.0**-53
    totals = np.cumsum(weights)
    assert np.array_equal(found, np.searchsorted(totals, numbers * totals[-1], "right"))


def test_many_weights() -> None:
    weights = np.zeros(20_000_000, np.float32)
    weights[[5, 10_000_000, 19_999_999]] = [1, 2, 1]
    order = Weighted(Numbers(len(weights)), weights=weights).list_order(0, 0, 4096)
    assert set(order.tolist()) == {5, 10_000_000, 19_999_999}


class Pair(NamedTuple):
    a: int
    b: torch.Tensor


@pytest.mark.parametrize("item", [7, (7, 1.5), Pair(7, torch.ones(2)), {"a": 7, "b": [7, "text"]}, "text"], ids=str)
def test_a_loader_gives_items_in_the_containers_of_the_data_set(item: Any) -> None:
    (found,) = ndd.DataLoader(Weighted([item] * 3, weights=[1, 2, 3]), batch_size=3)
    (expected,) = ndd.DataLoader([item] * 3, batch_size=3)
    assert type(found) is type(expected)
    assert str(found) == str(expected)


def test_what_collate_fn_returns_is_the_output() -> None:
    def make() -> ndd.readers.Reader:
        return Weighted(ndd.readers.Dataset([1, 2, 3], collate_fn=lambda items: {"sum": sum(items)}), weights=[0, 1, 0])

    assert list(ndd.DataLoader(make(), batch_size=2)) == [{"sum": 4}, {"sum": 2}]
    assert next(make().next_epoch(2)) == {"sum": 4}
    assert next(iter(make())) == {"sum": 2}
