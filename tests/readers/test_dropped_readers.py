# SPDX-License-Identifier: Apache-2.0
"""Readers and loaders that are dropped in the middle of an epoch end: no cycle of references keeps their threads, files and data sets."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from _datasets import Stream
from _robots import write_v3
from _videos import write
from pyarrow import parquet

import torch_ndd as ndd


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, k: int) -> int:
        return k


class Lists(Numbers):
    def __getitems__(self, samples: list[int]) -> list[int]:
        return samples


def make_parquet(folder: Path) -> Any:
    # The second batch is copied from row groups that are in memory.
    parquet.write_table(pa.table({"x": range(100)}), folder / "x.parquet", row_group_size=100)
    return ndd.readers.Parquet(path=folder / "x.parquet", random_shuffle=True)


def make_files(folder: Path) -> Any:
    for k in range(20):
        (folder / f"{k}.bin").write_bytes(bytes([k]))
    return ndd.readers.File(file_root=folder, files=[f"{k}.bin" for k in range(20)])


SOURCES: dict[str, Callable[[Path], Any]] = {
    "items": lambda folder: Numbers(),
    "items in one call": lambda folder: Lists(),
    "rows": lambda folder: torch.utils.data.TensorDataset(torch.arange(100)),
    "subset": lambda folder: torch.utils.data.Subset(Numbers(), range(50)),
    "reader": lambda folder: ndd.readers.Dataset(Numbers()),
    "several": lambda folder: {"a": Numbers(), "b": Numbers()},
    "mix": lambda folder: ndd.readers.Mix({"a": Numbers(), "b": Lists()}),
    "stream": lambda folder: Stream(100),
    "files": make_files,
    "parquet": make_parquet,
    "video": lambda folder: ndd.readers.Video(filenames=write(folder), sequence_length=2),
    "robot": lambda folder: ndd.readers.LeRobot(path=write_v3(folder)),
}


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def threads_of(before: set[threading.Thread]) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread not in before and "janitor" not in thread.name)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("options", [{}, {"prefetch": 0}], ids=str)
@pytest.mark.parametrize("name", list(SOURCES))
def test_loader_left_early_ends_with_its_threads(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    # Here, because errors within a first import may keep the frames that were running.
    sources = [SOURCES[name](tmp_path)]
    before = set(threading.enumerate())

    def take_batches() -> list[weakref.ref[Any]]:
        loader = ndd.DataLoader(sources.pop(), batch_size=2, **options)
        for k, _ in enumerate(loader):
            if k == 3:
                break
        return [weakref.ref(loader), weakref.ref(loader.reader)]

    references = take_batches()
    # A thread of the loader may be in the middle of a batch.
    wait_until(lambda: all(reference() is None for reference in references) and not threads_of(before))
    assert [reference() for reference in references] == [None, None]
    assert threads_of(before) == []


@pytest.mark.usefixtures("without_collector")
def test_dropped_request_reads_no_further_items() -> None:
    begun, go_on, read = threading.Event(), threading.Event(), []

    class Waiting(Numbers):
        def __getitem__(self, k: int) -> int:
            read.append(k)
            begun.set()
            assert go_on.wait(60)
            return k

    reader = ndd.readers.Dataset(Waiting(), num_workers=1)
    reference = weakref.ref(reader)
    request = reader.start(torch.arange(3).numpy())
    assert begun.wait(60)
    del reader
    go_on.set()
    with pytest.raises(CancelledError):
        request.wait()
    assert reference() is None
    assert read == [0]
