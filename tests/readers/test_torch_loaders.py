# SPDX-License-Identifier: Apache-2.0
"""Readers used directly in PyTorch's loaders."""

import warnings
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for i in range(11):
        (tmp_path / f"{i:02}.bin").write_bytes(bytes([i]) * (i % 3 + 1))
    return sorted(tmp_path.iterdir())


def numbers(loader: Any) -> list[list[int]]:
    return [label.torch().flatten().tolist() for _, label in loader]


# A spawned worker imports torch, 4 seconds per epoch: one suffices to show that readers work there.
@pytest.mark.parametrize(("context", "workers"), [(None, 0), ("fork", 1), ("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)])
def test_data_loader(files: list[Path], workers: int, context: str | None) -> None:
    reader = ndd.readers.File(2, files=files, random_shuffle=True)
    expected = numbers(reader)
    reader.set_epoch(0)
    loader = torch.utils.data.DataLoader(reader, batch_size=None, num_workers=workers, multiprocessing_context=context)
    assert numbers(loader) == expected  # in the same order, without repetitions
    if workers:  # each epoch has new workers, with new copies of the reader
        reader.set_epoch(1)
    second = numbers(loader)
    assert sorted(chain(*second)) == list(range(11))
    assert second != expected


def test_data_loader_of_samples(files: list[Path]) -> None:
    loader = torch.utils.data.DataLoader(ndd.readers.File(files=files), batch_size=None, num_workers=2)
    samples = list(loader)
    assert [label.item() for _, label in samples] == list(range(11))
    assert [content.torch().tolist() for content, _ in samples] == [[i] * (i % 3 + 1) for i in range(11)]


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_makes_the_batches(files: list[Path], workers: int) -> None:
    loader = torch.utils.data.DataLoader(ndd.readers.File(files=files), batch_size=4, num_workers=workers)
    batches = list(loader)
    assert all(isinstance(sample, ndd.Batch) for batch in batches for sample in batch)
    assert sorted(chain(*numbers(batches))) == list(range(11))
    content, label = batches[0]
    assert content.shape == [(number % 3 + 1,) for number in label.torch().flatten().tolist()]


def test_shards_and_workers(files: list[Path]) -> None:
    found = []
    for rank in range(2):
        reader = ndd.readers.File(2, files=files, num_shards=2, shard_id=rank)
        found += numbers(torch.utils.data.DataLoader(reader, batch_size=None, num_workers=2))
    assert sorted(chain(*found)) == list(range(11))


def stateful() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_data_loader(files: list[Path], workers: int) -> None:
    loader = stateful()

    def make(rank: int, world: int, batch_size: int) -> Any:
        return loader(
            ndd.readers.File(batch_size, files=files, random_shuffle=True, shard_id=rank, num_shards=world), batch_size=None, num_workers=workers
        )

    resumed = assert_resumable(make, worlds=[(1, 1)], batch_sizes=[3] if workers else [1, 3, 8], cuts=[0, 1, 2, 4] if workers else None)
    assert resumed.cuts >= 4


class Doubled(torch.utils.data.IterableDataset):
    """A user's data set around a reader, which passes the state on."""

    def __init__(self, reader: ndd.readers.File) -> None:
        self.reader = reader

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _, label in self.reader:
            yield label.torch() * 2

    def state_dict(self) -> dict[str, Any]:
        return self.reader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reader.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_data_set_around_a_reader(files: list[Path]) -> None:
    def make(rank: int, world: int, batch_size: int) -> Any:
        return stateful()(Doubled(ndd.readers.File(batch_size, files=files)), batch_size=None)

    assert assert_resumable(make, worlds=[(1, 1)], batch_sizes=[2]).cuts == 7


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_the_state_of_a_worker_fits_only_that_worker(files: list[Path]) -> None:
    loader = stateful()(ndd.readers.File(2, files=files), batch_size=None, num_workers=2)
    for _ in islice(loader, 3):
        pass
    worker = loader.state_dict()["_snapshot"]["_worker_snapshots"]["worker_0"]
    with pytest.raises(ValueError, match="belongs to a DataLoader 'worker'"):
        ndd.readers.File(2, files=files).load_state_dict(worker["dataset_state"])
