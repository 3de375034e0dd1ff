# SPDX-License-Identifier: Apache-2.0
"""How the items of a batch are divided among threads."""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.process.workers import Workers
from torch_ndd.readers.dataset._requests import ItemRequest, Pace, read_each

PATIENCE = 60  # seconds, for threads of a busy machine; a test that waits so long fails


def read_together(count: int) -> list[Callable[[], list[str]]]:
    """Return as many functions, which return only when each of them was called, by a thread of its own."""
    barrier = threading.Barrier(count)

    def read() -> list[str]:
        barrier.wait(PATIENCE)
        return [threading.current_thread().name]

    return [read] * count


def test_slow_items_are_read_by_all_threads() -> None:
    with Workers(3, "test") as pool:
        pace = Pace()
        for _ in range(2):  # the second batch by what the first one took
            names = ItemRequest(read_together(3), 3, pool, pace).items()
            assert len(set(names)) == 3
            pace.note_batch(1.0, in_turn=True)


def test_quick_items_are_read_by_one_thread() -> None:
    def read() -> list[str]:
        return [threading.current_thread().name]

    with Workers(3, "test") as pool:
        pace = Pace()
        pace.note_batch(1e-6, in_turn=False)
        assert len(set(ItemRequest([read] * 50, 50, pool, pace).items())) == 1


def test_slow_items_are_seldom_tried_by_one_thread() -> None:
    """Together, threads that wait for a disk are quick."""
    pace, trials = Pace(), []
    for batch in range(1000):
        in_turn = pace.in_turn
        if in_turn:
            trials.append(batch)
        pace.note_batch(1e-3 if in_turn else 1e-5, in_turn)
    assert trials == [1, 6, 23, 88, 345]


def test_a_batch_that_was_held_up_is_not_the_last_word() -> None:
    pace = Pace()
    together = [(1e-6, False, False)] * 3
    for seconds, in_turn, one_reads in ((1e-6, False, True), (1e-3, True, False), *together, (1e-6, False, True), (1e-6, True, True)):
        pace.note_batch(seconds, in_turn)
        assert pace.in_turn is one_reads


def test_pieces_suit_the_work() -> None:
    pace = Pace()
    assert (pace.choose_piece(64, 4, False), pace.choose_piece(64, 4, True)) == (1, 64)
    pace.note_batch(0.1, in_turn=False, work=0.4, threads=4)  # decoding of large images
    assert (pace.choose_piece(64, 4, False), pace.choose_piece(64, 4, True), pace.choose_piece(3, 4, True)) == (1, 16, 1)
    pace.note_batch(1e-6, in_turn=True, work=1e-6)
    assert (pace.choose_piece(64, 4, False), pace.choose_piece(64, 4, True), pace.choose_piece(0, 4, True)) == (16, 64, 1)
    assert (pace.choose_piece(256, 4, False), pace.choose_piece(4096, 4, False)) == (64, 100)  # 0.1 ms at most, so that it can stop
    pace.note_batch(10e-6, in_turn=True, work=10e-6)
    assert pace.choose_piece(4096, 4, False) == 16


def run(pace: Pace, alone: float, together: float, batches: int) -> str:
    """Return for each batch whether one thread (1) or three read it, for the seconds that an item takes with one and with each of three."""
    readers = ""
    for _ in range(batches):
        in_turn = pace.in_turn
        readers += "1" if in_turn else "3"
        pace.note_batch(alone if in_turn else together / 3, in_turn, alone if in_turn else together, 1 if in_turn else 3)
    return readers


def test_threads_that_only_wait_for_each_other_are_replaced_by_one() -> None:
    pace = Pace()
    assert run(pace, alone=1e-4, together=5e-4, batches=19) == "3" + "111" + "3" + "11111" + "3" + "11111111"
    assert run(pace, alone=1e-4, together=2e-4, batches=40).count("3") > 30  # now they help
    assert run(Pace(), alone=1e-4, together=2e-4, batches=19) == "3133133331333333331"
    assert run(Pace(), alone=1e-3, together=15e-3, batches=25) == "3" + "1" * 5 + "3" + "1" * 17 + "3"  # small images
    assert run(Pace(), alone=0.1, together=0.4, batches=19) == "3" * 19  # too long for a trial


def test_a_batch_beside_one_of_all_threads_is_no_trial() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait() -> list[int]:
        entered.set()
        assert go_on.wait(PATIENCE)
        return [1]

    def read() -> list[int]:
        time.sleep(0.01)
        return [2]

    with Workers(3, "test") as pool:
        pace = Pace()
        shared = ItemRequest([wait], 1, pool, pace)
        assert entered.wait(PATIENCE)
        pace.note_batch(1e-6, in_turn=False, work=1e-6)
        assert pace.in_turn
        assert ItemRequest([read], 1, pool, pace, here=True).items() == [2]
        assert pace.in_turn  # although it took longer
        go_on.set()
        assert shared.items() == [1]
        pace.note_batch(1e-6, in_turn=False, work=1e-6)
        assert ItemRequest([read], 1, pool, pace, here=True).items() == [2]
        assert not pace.in_turn


@pytest.mark.parametrize("here", [False, True])
def test_threads_help_one_that_proves_slower(here: bool) -> None:
    def wait() -> list[str]:
        time.sleep(0.05)
        return [threading.current_thread().name]

    with Workers(3, "test") as pool:
        pace = Pace()
        pace.note_batch(1e-3, in_turn=False, work=3e-3, threads=3)
        assert pace.in_turn
        # The last ones return only if several threads read them.
        names = ItemRequest([*[wait] * 3, *read_together(3)], 6, pool, pace, here=here).items()
        assert len(set(names[3:])) == 3
        assert (names[0] == threading.current_thread().name) is here
        assert not pace.in_turn


def test_errors_belong_to_their_items() -> None:
    def divide(number: int) -> float:
        return 1 / number

    def end() -> list[Any]:
        raise SystemExit

    with Workers(2, "test") as pool:
        first, second = partial(read_each, divide, [1, 0]), partial(read_each, divide, [2, 0, 4])
        items = ItemRequest([first, second], 5, pool).items()
        assert [item if type(item) is float else repr(item.error) for item in items] == [
            1.0,
            "ZeroDivisionError('division by zero')",
            0.5,
            "ZeroDivisionError('division by zero')",
            0.25,
        ]
        with pytest.raises(SystemExit):
            ItemRequest([first, end, second], 6, pool).items()


def test_cancelled_threads_begin_no_further_items() -> None:
    begun, entered, go_on = [], threading.Event(), threading.Event()

    def read(k: int) -> list[None]:
        begun.append(k)
        entered.set()
        assert go_on.wait(PATIENCE)
        return [None]

    pool = Workers(1, "test")
    request = ItemRequest([partial(read, 0), partial(read, 1)], 2, pool)
    assert entered.wait(PATIENCE)
    pool.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    with pytest.raises(CancelledError):
        request.items()
    assert begun == [0]


def test_samples_stored_channels_last_are_stacked_in_order() -> None:
    images = [torch.arange(24).reshape(2, 4, 3).permute(2, 0, 1) + k for k in range(3)]
    (batch,) = ndd.readers.Dataset(images, 3).next_epoch()
    assert torch.equal(batch[0].torch(), torch.stack(images).contiguous())
    assert batch[0].torch().is_contiguous()


@pytest.mark.parametrize("workers", [0, 1, None])
def test_parts_of_every_kind(workers: int | None) -> None:
    items: list[Any] = [(k, float(k), f"{k}", torch.full((2,), k), None) for k in range(7)]
    reader = ndd.readers.Dataset(items, 7, num_workers=workers)
    for _ in range(3):  # with the pace of the batches before
        ((numbers, floats, texts, tensors, nothing),) = reader.next_epoch()
        assert numbers.torch().tolist() == list(range(7))
        assert floats.torch().dtype == torch.float64
        assert list(texts) == [str(k) for k in range(7)]
        assert torch.equal(tensors.torch(), torch.arange(7)[:, None].expand(7, 2))
        assert list(nothing) == [None] * 7


# --- data sets that read several items in one call ---


class Together(torch.utils.data.Dataset[Any]):
    """Squares; counts the calls, and refuses some indices."""

    def __init__(self, size: int, bad: tuple[int, ...] = ()) -> None:
        self.size, self.bad, self.together, self.alone = size, bad, list[list[int]](), list[int]()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        self.alone.append(index)
        if index in self.bad:
            raise KeyError(f"no square of {index}")
        return index, torch.full((index % 3,), index * index)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.together.append(indices)
        if set(self.bad).intersection(indices):
            raise KeyError("some square")
        return [(index, torch.full((index % 3,), index * index)) for index in indices]


@pytest.mark.parametrize("workers", [0, 1, 3, None])
def test_several_items_are_read_in_one_call(workers: int | None) -> None:
    data = Together(50)
    for _ in range(3):  # with the pace of the batches before
        found = list(ndd.DataLoader(data, batch_size=20, num_workers=workers))
        assert [numbers.tolist() for numbers, _ in found] == [list(range(20)), list(range(20, 40)), list(range(40, 50))]
        assert [square.tolist() for _, squares in found for square in squares] == [[k * k] * (k % 3) for k in range(50)]
    assert data.alone == []
    assert all(type(index) is int for piece in data.together for index in piece)
    assert workers != 0 or [len(piece) for piece in data.together] == [20, 20, 10] * 3


@pytest.mark.parametrize("workers", [0, None])
def test_bad_items_of_one_call_are_named_and_skipped(workers: int | None) -> None:
    with pytest.raises(RuntimeError, match=r"Together\[7\].*no square of 7"):
        list(ndd.readers.Dataset(Together(12, bad=(7,)), 12, num_workers=workers).next_epoch())
    ((numbers, _),) = ndd.DataLoader(Together(12, bad=(7, 9)), batch_size=12, num_workers=workers, on_error="skip")
    assert numbers.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 10, 11]


def test_one_call_must_return_all_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Together, "__getitems__", lambda self, indices: [(0, torch.zeros(1))])
    with pytest.raises(RuntimeError, match="__getitems__ returned 1 items for 4 indices"):
        list(ndd.readers.Dataset(Together(4), 4, num_workers=0).next_epoch())


def test_a_subset_reads_as_its_data_set_does() -> None:
    subset, data = torch.utils.data.Subset, Together(9)
    ((numbers, _),) = ndd.readers.Dataset(subset(subset(data, [8, 2, 5]), [2, 0]), 2).next_epoch()
    assert (numbers.torch().tolist(), data.alone) == ([5, 8], [])
    # Each on a thread of its own: the subset's own __getitems__ would read one after the other.
    barrier = threading.Barrier(2)
    slow = subset(Slow(barrier), [0, 1])
    ((numbers,),) = ndd.readers.Dataset(slow, 2, num_workers=2).next_epoch()
    assert numbers.torch().tolist() == [0, 1]


class Slow(torch.utils.data.Dataset[Any]):
    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        self.barrier.wait(PATIENCE)
        return (index,)


def test_a_mix_reads_several_items_in_one_call() -> None:
    together, alone = Together(40), [(k, torch.full((k % 3,), -k)) for k in range(40)]
    sources = {"together": ndd.readers.Dataset(together), "alone": ndd.readers.Dataset(alone)}
    reader = ndd.readers.Mix(sources, weights={"together": 1, "alone": 1}, max_batch_size=16)
    for numbers, values, *_ in itertools.islice(reader, 3):
        for number, value in zip(numbers.torch().tolist(), values.tensors, strict=True):
            assert value.torch().tolist() in ([number * number] * (number % 3), [-number] * (number % 3))
    assert together.alone == []
    assert together.together


def test_a_hugging_face_data_set_equals_the_loader_of_torch() -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"tokens": torch.arange(60).reshape(20, 3).tolist(), "label": list(range(20))}
    data = datasets.Dataset.from_dict(rows).with_format("torch")
    for ours, theirs in zip(ndd.DataLoader(data, batch_size=8), torch.utils.data.DataLoader(data, batch_size=8), strict=True):
        assert {name: value.tolist() for name, value in ours.items()} == {name: value.tolist() for name, value in theirs.items()}
