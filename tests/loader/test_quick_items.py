# SPDX-License-Identifier: Apache-2.0
"""Items that the program's thread reads, because handing them from thread to thread takes longer."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import _hand_over
from torch_ndd.readers.dataset import _requests

SIZE = 640


class Items(torch.utils.data.Dataset[Any]):
    """Numbers and texts; notes which threads read them."""

    def __init__(self, first: int = 0) -> None:
        self.first, self.threads = first, set[int]()
        self.bad: dict[int, BaseException] = {}

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, k: int) -> Any:
        if k in self.bad:
            raise self.bad[k]
        self.threads.add(threading.get_ident())
        return self.first + k, f"text {k}"


@pytest.fixture(autouse=True)
def _everything_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(_requests, "_QUICK", 1e6)
    monkeypatch.setattr(_hand_over, "_HAND_OVER", 1e6)


def read_on(loader: ndd.DataLoader, data: Items) -> set[int]:
    """Return the threads that read the last one of several epochs."""
    for _ in range(3):
        data.threads.clear()
        assert sum(len(numbers) for numbers, _ in loader) == SIZE
    return data.threads


def test_the_program_reads_quick_items() -> None:
    data = Items()
    assert read_on(ndd.DataLoader(data, batch_size=16), data) == {threading.get_ident()}


def test_the_program_reads_a_mix_of_quick_items() -> None:
    sources = {"a": Items(), "b": Items(SIZE)}
    loader = ndd.DataLoader(ndd.readers.Mix(sources), batch_size=16)
    expected = [[values.torch().tolist(), source.torch().tolist()] for values, _, source in ndd.readers.Mix(sources, 16)]
    for _ in range(3):
        for data in sources.values():
            data.threads.clear()
        assert [[values.tolist(), source.tolist()] for values, _, source in loader] == expected
    assert sources["a"].threads | sources["b"].threads == {threading.get_ident()}


class Together(Items):
    """Items that are read in one call."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.calls: list[int] = []

    def __getitems__(self, numbers: list[int]) -> list[tuple[int, str]]:
        self.calls.append(len(numbers))
        return [self[k] for k in numbers]


@pytest.mark.parametrize("workers", [None, 0, 1])
def test_a_mix_of_data_sets_that_are_read_in_different_ways(workers: int | None) -> None:
    together = Together(4 * SIZE)
    first = ndd.readers.Dataset(Items(), num_workers=workers)
    sources = {"a": first, "b": together, "c": Items(2 * SIZE), "d": Items(3 * SIZE)}
    loader = ndd.DataLoader(ndd.readers.Mix(sources, weights={"a": 5, "b": 20, "c": 1, "d": 3}, epoch=58), batch_size=29)
    for epoch in range(4):
        together.calls.clear()
        for step, (values, texts, source) in enumerate(loader):
            begins = np.array([0, 4 * SIZE, 2 * SIZE, 3 * SIZE])[source.numpy()]
            numbers = values.numpy() - begins
            assert texts == tuple(f"text {k}" for k in numbers)
            for k, weight in enumerate((5, 20, 1, 3)):  # each source in its order, and exactly its part
                expected = ((2 * epoch + step) * weight + np.arange(weight)) % SIZE
                assert numbers[source.numpy() == k].tolist() == expected.tolist()
    assert together.calls == [20, 20]  # a call for each batch once one thread reads


def test_a_function_stays_on_the_thread_of_the_loader() -> None:
    data, threads = Items(), set[int]()

    def note(numbers: Any, texts: Any) -> Any:
        threads.add(threading.get_ident())
        return numbers, texts

    read_on(ndd.DataLoader(data, note, batch_size=16), data)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu"), lambda: torch.device("meta")])
def test_modes_of_the_program_do_not_reach_the_items(mode: Any) -> None:
    data = Items()
    with mode():
        assert threading.get_ident() not in read_on(ndd.DataLoader(data, batch_size=16), data)


def test_slow_items_are_read_behind_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hand_over, "_HAND_OVER", 0.0)
    data = Items()
    assert threading.get_ident() not in read_on(ndd.DataLoader(data, batch_size=16), data)


def batches(loader: Any, count: int) -> Iterator[list[int]]:
    for _, (numbers, *_) in zip(range(count), loader, strict=False):
        yield numbers.tolist()


@pytest.mark.parametrize("mixed", [False, True])
def test_resuming_is_exact(mixed: bool) -> None:
    def create() -> ndd.DataLoader:
        data: Any = ndd.readers.Mix({"a": Items(), "b": Items(SIZE)}, random_shuffle=True) if mixed else Items()
        return ndd.DataLoader(data, batch_size=16, seed=3, shuffle=None if mixed else True)

    loader = create()
    read = [list(batches(loader, 100)) for _ in range(2)]
    read.append(list(batches(loader, 7)))
    state = loader.state_dict()
    other = create()
    other.load_state_dict(state)
    rest = list(batches(other, 100))
    plain = create()
    plain.prefetch = 0
    expected = [list(batches(plain, 100)) for _ in range(3)]
    assert [*read[:2], read[2] + rest] == expected
    assert list(batches(loader, 100)) == list(batches(plain, 100))  # the loop that was left has ended its epoch


def test_errors_come_when_their_batch_is_due() -> None:
    data = Items()
    loader = ndd.DataLoader(data, batch_size=16)
    read_on(loader, data)
    data.bad[40] = KeyError("no item")
    loop = iter(loader)
    assert [next(loop)[0].tolist() for _ in range(2)] == [list(range(16)), list(range(16, 32))]
    with pytest.raises(RuntimeError, match=r"Items\[40\].*no item"):
        next(loop)
    data.bad.clear()
    assert read_on(loader, data) == {threading.get_ident()}


def test_an_interrupted_loop_leaves_the_loader_usable() -> None:
    data = Items()
    loader = ndd.DataLoader(data, batch_size=16)
    read_on(loader, data)
    data.bad[300] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    data.bad.clear()
    read_on(loader, data)


def test_an_item_cannot_move_the_loader() -> None:
    class Moving(Items):
        def __getitem__(self, k: int) -> Any:
            if self.first and k == 100:
                loader.load_state_dict(state)
            return super().__getitem__(k)

    data = Moving()
    loader = ndd.DataLoader(data, batch_size=16)
    state = loader.state_dict()
    read_on(loader, data)
    data.first = 1
    with pytest.raises(RuntimeError, match="cannot move the loader"):
        list(loader)


def test_loops_of_two_threads_over_one_loader() -> None:
    data = Items()
    loader = ndd.DataLoader(data, batch_size=16)
    read_on(loader, data)
    loop, found = iter(loader), list[int]()

    def take() -> None:
        for numbers, _ in loop:
            found.extend(numbers.tolist())

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(SIZE))
