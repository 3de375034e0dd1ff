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


def test_a_single_rank_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.DataLoader(DATA, batch_size=2, shuffle=True)
