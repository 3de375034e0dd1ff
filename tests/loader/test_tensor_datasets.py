# SPDX-License-Identifier: Apache-2.0
"""Rows of a ``TensorDataset`` are taken together, and equal its items."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, random_split

import torch_ndd as ndd

COUNT = 37


def _make_table() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (COUNT, 3, 4, 5), dtype=torch.uint8, generator=generator)
    strided = torch.rand(6, COUNT, generator=generator).T
    return TensorDataset(pixels, torch.arange(COUNT), strided, torch.rand(COUNT, 2, generator=generator).bfloat16(), torch.arange(COUNT) % 2 == 0)


DATA_SETS: dict[str, Callable[[], Dataset[Any]]] = {
    "whole": _make_table,
    "part": lambda: Subset(_make_table(), [3, 1, 36, 0, 1, 8]),
    "part, indices of NumPy": lambda: Subset(_make_table(), np.array([3, 1, 36, 0, 1, 8])),  # type: ignore[arg-type]
    "part, a tensor of indices": lambda: Subset(_make_table(), torch.tensor([3, 1, 36, 0, 1, 8])),  # type: ignore[arg-type]
    "part of a part": lambda: Subset(random_split(_make_table(), [20, 17], torch.Generator().manual_seed(1))[0], range(2, 15)),
    "negative indices": lambda: Subset(_make_table(), [-1, 4, -37]),
    "one tensor": lambda: TensorDataset(torch.arange(COUNT * 2).view(COUNT, 2)),
}


@pytest.mark.parametrize("name", DATA_SETS)
@pytest.mark.parametrize("options", [{}, {"batch_size": 1}, {"drop_last": True}, {"num_workers": 0}, {"prefetch": 0}], ids=str)
def test_batches_equal_those_of_torch(name: str, options: dict[str, Any]) -> None:
    dataset = DATA_SETS[name]()
    batch_size, drop_last = options.get("batch_size", 5), options.get("drop_last", False)
    expected = list(torch.utils.data.DataLoader(dataset, batch_size=batch_size, drop_last=drop_last))
    found = list(ndd.DataLoader(dataset, **{"batch_size": 5, **options}))
    assert len(found) == len(expected)
    for batch, wanted in zip(found, expected, strict=True):
        assert type(batch) is type(wanted) is list
        for tensor, other in zip(batch, wanted, strict=True):
            assert type(tensor) is torch.Tensor
            assert tensor.dtype == other.dtype
            assert torch.equal(tensor, other)


def test_items_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TensorDataset, index: int) -> Any:
        raise AssertionError("read alone")

    first = DATA_SETS["part of a part"]()
    expected = [tuple(tensor.clone() for tensor in first[k]) for k in range(13)]
    monkeypatch.setattr(TensorDataset, "__getitem__", fail)
    loader = ndd.DataLoader(first, lambda pixels, numbers, *_: (ndd.flip(pixels, horizontal=0), numbers), batch_size=13)
    ((pixels, numbers),) = loader
    assert torch.equal(pixels, torch.stack([item[0] for item in expected]))
    assert numbers.tolist() == [int(item[1]) for item in expected]


def test_batches_do_not_share_memory_with_the_tensors() -> None:
    tensor = torch.zeros(4, 3)
    for (batch,) in ndd.DataLoader(TensorDataset(tensor), batch_size=4):
        batch.fill_(1)
    assert not tensor.any()


def test_shuffled_epochs_resume() -> None:
    def make() -> ndd.DataLoader:
        return ndd.DataLoader(_make_table(), batch_size=4, shuffle=True, seed=3)

    loader = make()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    rest = [batch[1].tolist() for batch in batches]
    resumed = make()
    resumed.load_state_dict(state)
    assert [batch[1].tolist() for batch in resumed] == rest
    assert sorted(number for batch in make() for number in batch[1].tolist()) == list(range(COUNT))


def test_mix_takes_tables() -> None:
    mix = ndd.readers.Mix({"a": TensorDataset(torch.arange(10)), "b": TensorDataset(torch.arange(10, 20))})
    assert sorted(number for batch in ndd.DataLoader(mix, batch_size=5) for number in batch[0].tolist()) == list(range(20))


@pytest.mark.parametrize("tensor", [torch.ones(4, requires_grad=True), torch.eye(4).to_sparse()], ids=["gradients", "sparse"])
def test_other_tensors_are_refused_as_in_other_data_sets(tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match=r"requires grad|memory layout"):
        list(ndd.DataLoader(TensorDataset(torch.arange(4), tensor), batch_size=4))


def test_arrays_among_the_tensors_are_read_as_items() -> None:
    dataset = TensorDataset(torch.arange(4))
    dataset.tensors = (torch.arange(4), np.arange(4) * 2)  # type: ignore[assignment]
    ((numbers, doubled),) = ndd.DataLoader(dataset, batch_size=4)
    assert (numbers * 2).tolist() == doubled.tolist() == [0, 2, 4, 6]


def test_index_outside_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"out of (bounds|range)"):
        list(ndd.DataLoader(Subset(_make_table(), [0, COUNT]), batch_size=2))


def _columns(mix: ndd.readers.Mix) -> list[Any]:
    return [[column.tolist() if isinstance(column, torch.Tensor) else [part.tolist() for part in column] for column in batch]
            for batch in ndd.DataLoader(mix, batch_size=11)]  # fmt: skip


def _make_wide() -> TensorDataset:
    """Samples like those of the other, but for the shape of the second."""
    return TensorDataset(torch.zeros(4, 0, dtype=torch.bfloat16), torch.rand(4, 5).double())


MIXES: dict[str, tuple[Callable[[], Any], bool]] = {  # with whether rows are taken together
    "whole, and a part of a part": (lambda: {"a": _make_table(), "b": DATA_SETS["part of a part"]()}, True),
    "negative indices": (lambda: {"a": _make_table(), "b": DATA_SETS["negative indices"]()}, False),
    "no bytes": (lambda: {"a": TensorDataset(torch.zeros(3, 0), torch.arange(3)), "b": TensorDataset(torch.zeros(5, 0), torch.arange(5))}, True),
    "ragged": (lambda: {"a": TensorDataset(torch.zeros(4, 0, dtype=torch.bfloat16), torch.rand(4, 3).double()), "b": _make_wide()}, False),
    "items beside": (lambda: {"a": TensorDataset(torch.arange(7)), "b": [(torch.tensor(k),) for k in range(5)]}, False),
}


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_takes_the_rows_of_each_source_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, together = MIXES[name]
    torch.manual_seed(0)
    sources = make()
    expected = _columns(ndd.readers.Mix({key: [source[k] for k in range(len(source))] for key, source in sources.items()}, epoch=40))
    mix = ndd.readers.Mix(sources, epoch=40)
    mix.prepare_order()
    reads = []
    read = TensorDataset.__getitem__
    monkeypatch.setattr(TensorDataset, "__getitem__", lambda self, index: (reads.append(index), read(self, index))[1])
    mix._check = mix._compare_sources({})  # which reads a sample of each
    reads.clear()
    assert _columns(mix) == expected
    assert bool(reads) is not together


@pytest.mark.parametrize("name", MIXES)
def test_functions_of_sources_get_the_samples_of_theirs(name: str) -> None:
    make, _ = MIXES[name]
    torch.manual_seed(0)
    sources = make()
    calls: list[tuple[str, list[Any]]] = []

    def read_mix(items: bool) -> list[Any]:
        calls.clear()

        def make_source(key: str) -> Any:
            data = [sources[key][k] for k in range(len(sources[key]))] if items else sources[key]
            return ndd.Source(data, lambda *outputs: (calls.append((key, outputs[-1].torch().tolist())), outputs)[1])

        reader = ndd.readers.Mix({key: make_source(key) for key in sources}, epoch=40)
        return [_columns(reader), list(calls)]

    assert read_mix(items=False) == read_mix(items=True)


def test_bad_items_of_sources_with_functions_are_left_out() -> None:
    class Damaged(Dataset[int]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, k: int) -> int:
            if k == 3:
                raise ValueError("damaged")
            return k

    def make(on_error: Any) -> ndd.readers.Mix:
        sources = {"a": ndd.Source(Damaged(), lambda x: ndd.cast(x, dtype=ndd.float32) + 100), "b": ndd.Source(list(range(10)), lambda x: x + 0.0)}
        return ndd.readers.Mix(sources, on_error=on_error)

    found = sorted(value for values, _ in make("skip").next_epoch(5) for value in values.torch().tolist())
    assert found == [*range(10), *(100 + k for k in range(10) if k != 3)]
    with pytest.raises(RuntimeError, match=r"source 'a', sample 3.*damaged"):
        list(make("raise").next_epoch(5))


def test_a_mix_follows_tensors_that_change() -> None:
    first, second = TensorDataset(torch.arange(8)), TensorDataset(torch.arange(8) + 100)
    mix = ndd.readers.Mix({"a": first, "b": second}, epoch=16)

    def read() -> list[int]:
        return sorted(number for batch in ndd.DataLoader(mix, batch_size=4) for number in batch[0].tolist())

    assert read() == [*range(8), *range(100, 108)]
    first.tensors = (torch.arange(8) + 200,)
    assert read() == [*range(100, 108), *range(200, 208)]
    second.tensors[0].data = torch.arange(16)[::2] + 300  # the same tensor with other memory
    assert read() == [*range(200, 208), *range(300, 316, 2)]
    second.tensors[0].data = torch.arange(32)[::4]  # not contiguous
    assert read() == [*range(0, 32, 4), *range(200, 208)]
    batches = iter(ndd.DataLoader(mix, batch_size=4))
    next(batches)
    second.tensors[0].resize_(3)
    with pytest.raises(RuntimeError, match=r"out of (bounds|range)"):
        list(batches)
