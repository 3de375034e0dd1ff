# SPDX-License-Identifier: Apache-2.0
"""How the items of a batch are divided among threads."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.process.workers import Workers
from torch_ndd.readers.dataset._requests import ItemRequest, Pace

PATIENCE = 60  # seconds, for threads of a busy machine; a test that waits so long fails


def read_together(count: int) -> list[Callable[[], str]]:
    """Return as many functions, which return only when each of them was called, by a thread of its own."""
    barrier = threading.Barrier(count)

    def read() -> str:
        barrier.wait(PATIENCE)
        return threading.current_thread().name

    return [read] * count


def test_slow_items_are_read_by_all_threads() -> None:
    with Workers(3, "test") as pool:
        pace = Pace()
        for _ in range(2):  # the second batch by what the first one took
            names = [wait() for wait in ItemRequest(read_together(3), pool, pace).waits]
            assert len(set(names)) == 3
            pace.note_batch(1.0, in_turn=False)


def test_quick_items_are_read_by_one_thread() -> None:
    def read() -> str:
        return threading.current_thread().name

    with Workers(3, "test") as pool:
        pace = Pace()
        pace.note_batch(1e-6, in_turn=False)
        assert len({wait() for wait in ItemRequest([read] * 50, pool, pace).waits}) == 1


def test_slow_items_are_seldom_tried_by_one_thread() -> None:
    """Together, threads that wait for a disk are quick."""
    pace, trials = Pace(), []
    for batch in range(1000):
        in_turn = pace.is_quick
        if in_turn:
            trials.append(batch)
        pace.note_batch(1e-3 if in_turn else 1e-5, in_turn)
    assert trials == [1, 4, 9, 18, 35, 68, 133, 262, 519]


def test_a_batch_that_was_held_up_is_not_the_last_word() -> None:
    pace = Pace()
    for seconds, in_turn, is_quick in ((1e-6, False, True), (1e-3, True, False), (1e-6, False, False), (1e-6, False, True), (1e-6, True, True)):
        pace.note_batch(seconds, in_turn)
        assert pace.is_quick is is_quick


def test_errors_belong_to_their_items() -> None:
    def fail() -> None:
        raise KeyError("nothing here")

    def end() -> None:
        raise SystemExit

    with Workers(2, "test") as pool:
        good, bad, fatal = ItemRequest([int, fail, end], pool).waits
        assert good() == 0
        with pytest.raises(KeyError, match="nothing here"):
            bad()
        with pytest.raises(SystemExit):
            fatal()


def test_cancelled_threads_begin_no_further_items() -> None:
    begun, entered, go_on = [], threading.Event(), threading.Event()

    def read(k: int) -> None:
        begun.append(k)
        entered.set()
        assert go_on.wait(PATIENCE)

    pool = Workers(1, "test")
    first, second = ItemRequest([partial(read, 0), partial(read, 1)], pool).waits
    assert entered.wait(PATIENCE)
    pool.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    for wait in (first, second):
        with pytest.raises(CancelledError):
            wait()
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
