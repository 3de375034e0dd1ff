# SPDX-License-Identifier: Apache-2.0
"""Data sets of torch that change between epochs of ``ndd.DataLoader``."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from _datasets import Stream

import torch_ndd as ndd

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Growing(torch.utils.data.Dataset[Any]):
    """Changes between epochs."""

    def __init__(self) -> None:
        self.size, self.mosaic = 5, 1

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, k: int) -> tuple[int, int, int]:
        if k >= self.size:
            raise IndexError(k)
        return k, self.mosaic, os.getpid()

    def change(self) -> None:
        self.size, self.mosaic = self.size + 2, self.mosaic - 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 0},
        {"prefetch": 0},
        {"prefetch_queue_depth": 5},
        {"num_workers": 2, "multiprocessing_context": "fork"},
        {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": False},
    ],
    ids=str,
)
def test_changes_between_epochs_are_seen(options: dict[str, Any]) -> None:
    data = Growing()
    loader = ndd.DataLoader(data, batch_size=2, shuffle=True, seed=1, **options)
    processes = set()
    for epoch in range(3):
        assert len(loader) == -(-data.size // 2)
        numbers, mosaic, pids = (torch.cat(column).tolist() for column in zip(*loader, strict=True))
        assert sorted(numbers) == list(range(data.size))
        assert set(mosaic) == {1 - epoch}
        assert not set(pids) & processes
        processes |= set(pids) - {os.getpid()}
        data.change()
    loader.state_dict()
    for _ in loader:
        break
    data.change()
    assert sum(len(numbers) for numbers, *_ in loader) == data.size  # also after a loop that was left


def test_persistent_workers_keep_their_processes() -> None:
    data = Growing()
    loader = ndd.DataLoader(data, batch_size=1, num_workers=1, multiprocessing_context="fork", persistent_workers=True)
    pids = []
    for _ in range(2):
        pids.append({pid.item() for _, _, pid in loader})
        data.mosaic = 0
    assert pids[0] == pids[1]
    stream = ndd.DataLoader(Stream(3), lambda *_: torch.tensor(0), batch_size=1, multiprocessing_context="fork", persistent_workers=True)
    list(stream)
    kept = stream.reader._processes
    list(stream)
    assert stream.reader._processes is kept


class Rates(torch.utils.data.IterableDataset[Any]):
    rate = 1

    def __iter__(self) -> Iterator[Any]:
        return iter([self.rate] * 4)


@pytest.mark.parametrize("context", [None, "fork"])
def test_changes_of_iterables_are_seen(context: str | None) -> None:
    data = Rates()
    loader = ndd.DataLoader(data, batch_size=2, multiprocessing_context=context)
    for rate in (1, 2, 3):
        data.rate = rate
        assert [batch.tolist() for batch in loader] == [[rate, rate]] * 2


def test_changes_in_step_and_of_samplers_are_seen() -> None:
    value, other = Growing(), Growing()
    loader = ndd.DataLoader({"a": value, "b": other}, batch_size=2)
    for _ in range(3):
        assert sum(len(batch["a"][0]) for batch in loader) == value.size
        assert len(loader) == -(-value.size // 2)
        value.change()
        other.change()
    weights = torch.tensor([1.0, 0.0])
    sampler = torch.utils.data.WeightedRandomSampler(weights, 6)
    sampled = ndd.DataLoader([0, 1], batch_size=2, sampler=sampler)
    assert {x for batch in sampled for x in batch.tolist()} == {0}
    sampler.weights = torch.tensor([0.0, 1.0])
    assert {x for batch in sampled for x in batch.tolist()} == {1}


def test_changes_are_seen_by_readers_and_states() -> None:
    data = Growing()
    reader = ndd.readers.Dataset(data, 2)
    for epoch in range(3):
        for capture in (False, True):
            steps = [(numbers.torch().tolist(), mosaic.torch().tolist()) for numbers, mosaic, _ in reader.next_epoch(capture=capture)]
            assert {x for numbers, _ in steps for x in numbers} == set(range(data.size))
            assert {x for _, mosaic in steps for x in mosaic} == {1 - epoch}
        data.change()
    loader = ndd.DataLoader(data, batch_size=2)
    list(loader)
    state = loader.state_dict()
    data.change()
    resumed = ndd.DataLoader(data, batch_size=2)
    len(resumed)
    resumed.load_state_dict(state)
    assert len(resumed) == len(list(resumed)) == -(-data.size // 2)
    next(iter(loader))
    state = loader.state_dict()
    data.change()
    with pytest.raises(RuntimeError, match=rf"the state is for {data.size - 2} samples, but the data set has {data.size}"):
        next(iter(_load(data, state)))


def _load(data: Any, state: dict[str, Any]) -> ndd.DataLoader:
    loader = ndd.DataLoader(data, batch_size=2)
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"prefetch": 0}, {"num_workers": 0}, {"num_shards": 2}, {"drop_last": True}], ids=str)
@pytest.mark.parametrize("make", [list, lambda: torch.utils.data.TensorDataset(torch.zeros(0, 3)), lambda: torch.utils.data.Subset([1, 2], [])])
def test_empty_data_sets_yield_nothing_as_in_torch(make: Any, options: dict[str, Any]) -> None:
    assert list(torch.utils.data.DataLoader(make(), batch_size=2)) == []
    loader = ndd.DataLoader(make(), batch_size=2, **options)
    assert len(loader) == 0
    assert [list(loader), list(loader)] == [[], []]
    saved = json.loads(json.dumps(loader.state_dict()))
    assert saved["reader"]["epoch"] == 2
    loader.load_state_dict(saved)
    assert list(loader) == []
    assert loader.state_dict()["reader"]["epoch"] == 3
    assert loader.diagnose() == ndd.DataLoader([1], batch_size=1).diagnose()


def test_data_sets_may_be_empty_in_some_epochs() -> None:
    data = Growing()
    loader = ndd.DataLoader(data, batch_size=2)
    epochs = []
    for size in (0, 3, 0, 5):
        data.size = size
        epochs.append([k for numbers, *_ in loader for k in numbers.tolist()])
        assert loader.state_dict()["reader"]["epoch"] == len(epochs)
    assert epochs == [[], [0, 1, 2], [], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize(("make", "second"), [(lambda parts: dict(zip("ab", parts, strict=True)), "b"), (tuple, 1)])
def test_empty_data_sets_in_step_yield_nothing(make: Any, second: Any) -> None:
    data = Growing(), Growing()
    loader = ndd.DataLoader(make(data), batch_size=2)
    epochs, lengths = [], []
    for size in (0, 3, 0):
        for part in data:
            part.size = size
        lengths.append(len(loader))
        epochs.append([batch[second][0].tolist() for batch in loader])
        assert loader.state_dict()["reader"]["epoch"] == len(epochs)
    assert (lengths, epochs) == ([0, 2, 0], [[], [[0, 1], [2]], []])


def test_one_empty_data_set_in_step_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"all must have the same number of samples, got \{'a': 2, 'b': 0\}"):
        list(ndd.DataLoader({"a": [1, 2], "b": []}, batch_size=2))
    # A folder without files is a mistake, also next to an empty data set.
    with pytest.raises(RuntimeError, match=r"[Nn]o files|no samples"):
        list(ndd.DataLoader({"a": [], "b": ndd.readers.File(file_root=tmp_path)}, batch_size=2))


def test_empty_data_set_does_not_take_the_state_of_another_one() -> None:
    data = Growing()
    loader = ndd.DataLoader(data, batch_size=2)
    next(iter(loader))
    saved = loader.state_dict()
    data.size = 0
    assert list(loader) == []  # the epoch before was left early
    loader.load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r"no samples found in dataset=<Growing of "):
        next(iter(loader))


def test_endless_sequence_of_an_empty_data_set_is_refused() -> None:
    for take in (lambda reader: next(reader.next_epoch(2)), lambda reader: reader(batch_size=2), lambda reader: reader.next_epoch(2, capture=True)):
        with pytest.raises(RuntimeError, match=r"no samples found in dataset=<list of 0 items>"):
            list(take(ndd.readers.Dataset([])))
