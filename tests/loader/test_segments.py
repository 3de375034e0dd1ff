# SPDX-License-Identifier: Apache-2.0
"""The memory that worker processes share with the program: large items arrive whole, stay as they are while they are held, and are freed."""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd.readers.dataset import _segments
from torch_ndd.readers.dataset._segments import SegmentReader, SegmentWriter, send_segment

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Blocks(torch.utils.data.Dataset[Any]):
    """Arrays and tensors of sizes around the smallest of a segment, each filled with its index; one of them may end the process."""

    def __init__(self, count: int, kill: int = -1) -> None:
        self.count, self.kill = count, kill

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = 1 + 37 * (index % 11)
        return torch.full((rows, 512), index, dtype=torch.float32), np.full((rows, 3), index, np.int16), np.zeros((0, 4)), f"text {index}"


def check_block(index: int, block: Any) -> None:
    rows = 1 + 37 * (index % 11)
    tensor, array, empty, text = block
    assert (tuple(tensor.shape), tuple(array.shape), tuple(empty.shape), text) == ((rows, 512), (rows, 3), (0, 4), f"text {index}")
    assert (torch.as_tensor(tensor) == index).all()
    assert (torch.as_tensor(array) == index).all()


def shared_maps() -> set[str]:
    """Return the inodes of the segments that are mapped; those of earlier tests may still go."""
    return {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines() if "torch_ndd items" in line}


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow), pytest.param("forkserver", marks=pytest.mark.slow)])
def test_large_items_of_processes_arrive_whole(context: Any) -> None:
    loader = ndd.DataLoader(Blocks(200), batch_size=8, multiprocessing_context=context, num_workers=2)
    index = 0
    for tensors, arrays, empties, texts in loader:
        for block in zip(tensors, arrays, empties, texts, strict=True):
            check_block(index, block)
            index += 1
    assert index == 200


@pytest.mark.parametrize("most", [2, 128])
def test_items_that_are_held_are_not_written_over(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_segments, "MAX_SEGMENTS", most)  # further items come through the pipe
    gc.collect()
    before, maps = count_descriptors(), shared_maps()
    loader = ndd.DataLoader(Blocks(300), batch_size=4, multiprocessing_context="fork", num_workers=2, collate_fn=list)
    held = [block for batch in loader for block in batch]
    assert 0 < len(shared_maps() - maps) <= 2 * most
    assert count_descriptors() <= before + 20  # none for a segment
    for index, block in enumerate(held):
        check_block(index, block)
    del loader, block
    gc.collect()
    for index, block in enumerate(held):  # also when the processes have ended
        check_block(index, block)
    del held, block
    gc.collect()
    assert not shared_maps() - maps


def test_segments_are_written_again_once_their_items_are_freed() -> None:
    loader = ndd.DataLoader(Blocks(2000), batch_size=4, multiprocessing_context="fork", num_workers=2, collate_fn=list)
    gc.collect()
    most, maps = 0, shared_maps()
    for index, batch in enumerate(loader):
        check_block(4 * index, batch[0])
        most = max(most, len(shared_maps() - maps))
    assert 0 < most <= 60  # of 1,400 items that are large enough


def test_a_killed_worker_leaves_the_items_of_others() -> None:
    loader = ndd.DataLoader(Blocks(100, kill=50), batch_size=5, multiprocessing_context="fork", num_workers=2, collate_fn=list, on_error="skip")
    held = [block for batch in loader for block in batch]
    for index, block in zip([k for k in range(100) if k != 50], held, strict=True):
        check_block(index, block)


@pytest.fixture
def ends() -> Iterator[tuple[Any, Any]]:
    """A pipe with the ends of the program and of a worker."""
    ours, theirs = Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


def exchange(writer: SegmentWriter, reader: SegmentReader, ends: tuple[Any, Any], arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """Send arrays as a worker does, and return them as the program gets them."""
    writer.free(reader.take_freed())
    placed = writer.write([array.data.cast("B") for array in arrays])
    if placed is None:
        return None
    number, descriptor = placed
    if descriptor >= 0:
        send_segment(ends[1], descriptor)
        reader.add(number, ends[0])
    return [np.frombuffer(buffer, array.dtype) for buffer, array in zip(reader.read(number, [array.nbytes for array in arrays]), arrays, strict=True)]


def test_random_exchanges_of_segments(ends: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_segments, "MAX_SEGMENTS", 12)
    random = np.random.default_rng(3)
    writer, reader = SegmentWriter(), SegmentReader()
    held: list[tuple[int, list[np.ndarray]]] = []
    refused = 0
    for k in range(1500):
        sizes = random.integers(0, 1 << int(random.integers(1, 16)), size=random.integers(1, 4))
        found = exchange(writer, reader, ends, [np.full(size, k, np.int32) for size in sizes])
        if found is None:
            refused += 1
            assert len(held) >= 12
        else:
            assert [len(array) for array in found] == list(sizes)
            held.append((k, found))
        found = None
        while len(held) > random.integers(0, 16):
            value, arrays = held.pop(int(random.integers(len(held))))
            assert all((array == value).all() for array in arrays)
            arrays = []
    assert refused > 0


def test_free_segments_keep_a_bounded_amount_of_memory(ends: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_segments, "MAX_FREE_BYTES", 4 << 20)
    writer, reader = SegmentWriter(), SegmentReader()
    create, files = os.memfd_create, []

    def create_noted(name: str) -> int:
        descriptor = create(name)
        files.append(os.dup(descriptor))
        return descriptor

    monkeypatch.setattr(_segments.os, "memfd_create", create_noted)
    held = [exchange(writer, reader, ends, [np.ones(1 << 20, np.uint8)]) for _ in range(20)]
    assert _memory(files) == 20 << 20
    held.clear()
    writer.free(reader.take_freed())
    assert _memory(files) == 4 << 20
    held = [exchange(writer, reader, ends, [np.full(1 << 20, k, np.uint8)]) for k in range(20)]  # all can be written to again
    assert len(files) == 20
    assert all(found is not None and (found[0] == k).all() for k, found in enumerate(held))
    for descriptor in files:
        os.close(descriptor)


def _memory(files: list[int]) -> int:
    """Return the bytes that files take."""
    return sum(os.fstat(descriptor).st_blocks * 512 for descriptor in files)


def test_an_item_whose_memory_cannot_be_mapped_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("unable to mmap 1048576 bytes: Cannot allocate memory (12)")

    loader = ndd.DataLoader(Blocks(30), batch_size=10, multiprocessing_context="fork", num_workers=1)
    monkeypatch.setattr(_segments.torch, "from_file", refuse)
    with pytest.raises(RuntimeError, match=r"Blocks\[\d+\]\): the memory that it shares with its worker process could not be mapped: unable to mmap"):
        list(loader)


def test_items_are_freed_by_any_thread(ends: tuple[Any, Any]) -> None:
    writer, reader = SegmentWriter(), SegmentReader()
    for _ in range(5):
        held = [[exchange(writer, reader, ends, [np.arange(5000)])] for _ in range(8)]
        threads = [threading.Thread(target=part.clear) for part in held]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(reader.take_freed()) == list(range(8))
