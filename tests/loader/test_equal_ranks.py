# SPDX-License-Identifier: Apache-2.0
"""The warning of ranks that read the same samples."""

import warnings
from typing import Any

import pytest
import torch

import torch_ndd as ndd

DATA = list(range(8))


@pytest.fixture(autouse=True)
def _two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 2)


def test_ranks_without_shards_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"each of the 2 processes.*distributed\.shard") as found:
        ndd.DataLoader(DATA, batch_size=2, shuffle=True)
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "num_shards": 2, "shard_id": 1},
        {"shuffle": True, "num_shards": 1},
        {"sampler": torch.utils.data.RandomSampler(DATA)},
        {},  # for validation all ranks may read everything
    ],
)
def test_what_may_be_meant_is_not(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.DataLoader(DATA, batch_size=2, **options)


def readers_without_shards() -> dict[str, Any]:
    return {
        "in random order": ndd.readers.Dataset(DATA, random_shuffle=True),
        "shuffled after epochs": ndd.readers.Dataset(DATA, shuffle_after_epoch=True),
        "in step": {"a": ndd.readers.Dataset(DATA, random_shuffle=True), "b": ndd.readers.Dataset(DATA, random_shuffle=True)},
        "mixed": ndd.readers.Mix({"a": DATA}),
        "weighted": ndd.readers.Weighted(DATA, weights=DATA),
    }


@pytest.mark.parametrize("kind", readers_without_shards())
def test_readers_of_training_data_without_shards_are_warned_of(kind: str) -> None:
    reader = readers_without_shards()[kind]
    with pytest.warns(UserWarning, match=r"each of the 2 processes.*distributed\.shard"):
        ndd.DataLoader(reader, batch_size=2)


def test_batches_by_cost_without_shards_are_warned_of() -> None:
    reader, batches = ndd.readers.Dataset(DATA, random_shuffle=True), ndd.batches.Packed(budget=10, cost=DATA)
    with pytest.warns(UserWarning, match="each of the 2 processes"):
        ndd.DataLoader(reader, batches=batches)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.DataLoader(reader, batches=batches, num_shards=2, shard_id=0)


@pytest.mark.parametrize("shard", [{"num_shards": 1}, {"num_shards": 2, "shard_id": 1}])
def test_readers_with_a_chosen_shard_are_not(shard: dict[str, Any]) -> None:
    readers = [ndd.readers.Dataset(DATA), ndd.readers.Dataset(DATA, random_shuffle=True, **shard), ndd.readers.Mix({"a": DATA}, **shard)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reader in readers:
            for _ in ndd.DataLoader(reader, batch_size=2):
                pass


def test_processes_that_join_later_are_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = ndd.DataLoader(ndd.readers.Dataset(DATA, random_shuffle=True), batch_size=2)
        list(loader)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="each of the 2 processes") as found:
        iter(loader)
    assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)


def test_a_single_rank_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.DataLoader(DATA, batch_size=2, shuffle=True)
