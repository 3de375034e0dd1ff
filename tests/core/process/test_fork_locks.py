# SPDX-License-Identifier: Apache-2.0
"""A process that forks while other threads hold locks: the child can use everything."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _forks import Forks, run_in_child

import torch_ndd as ndd
from torch_ndd._core.context import pools
from torch_ndd._core.process import fork_locks
from torch_ndd._core.process.workers import Workers
from torch_ndd._core.work import upload

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Held:
    """Holds locks in another thread as long as the context lasts."""

    def __init__(self, *locks: Any) -> None:
        self._locks, self._held, self._done = locks, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        for lock in self._locks:
            lock.__enter__()
        self._held.set()
        self._done.wait()
        for lock in self._locks:
            lock.__exit__(None, None, None)

    def __enter__(self) -> None:
        self._thread.start()
        self._held.wait()

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


def reader_in_use() -> tuple[Any, Callable[[], bool]]:
    reader = ndd.readers.Dataset([np.full(2, k) for k in range(6)], 2)
    next(iter(reader))
    return reader._lock, lambda: len(reader) == 3 and len(list(reader)) == 3 and reader.errors == ()


def loader_in_use() -> tuple[Any, Callable[[], bool]]:
    loader = ndd.DataLoader([np.full(2, k) for k in range(6)], batch_size=2)
    next(iter(loader))
    return loader._preparing, lambda: len(list(loader)) == 3


def source_in_use() -> tuple[Any, Callable[[], bool]]:
    source = ndd.ExternalSource(lambda: np.ones(2))
    return source._lock, lambda: source().shape == (2,)


def parquet_in_use(tmp_path: Path) -> tuple[Any, Callable[[], bool]]:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"number": list(range(6))}), tmp_path / "table.parquet", row_group_size=2)
    reader = ndd.readers.Parquet(2, path=tmp_path / "table.parquet")
    next(iter(reader))
    return reader._cache_lock, lambda: len(list(reader)) == 3


def generator_in_use() -> tuple[Any, Callable[[], bool]]:
    rng = ndd.random.RNG(1234)
    return rng._lock, lambda: rng() == 546353992


def context_in_use() -> tuple[Any, Callable[[], bool]]:
    context = ndd.EvalContext(num_threads=2)

    def enter() -> bool:
        with context, context:
            ndd.brightness(ndd.batch([np.ones((2, 2, 3), np.uint8)], layout="HWC")).evaluate()
        return context._depth == 0

    return context, enter


def pool_in_use() -> tuple[Any, Callable[[], bool]]:
    def start() -> bool:
        with Workers(2, "of a test") as workers:
            return workers.submit(int).result() == 0

    return Workers(1, "of the parent", reader_in_use)._lock, start


def default_pool_in_use() -> tuple[Any, Callable[[], bool]]:
    def set_threads() -> bool:
        ndd.set_num_threads(2)
        return ndd.get_num_threads() == 2

    return pools._threads.lock, set_threads


def uploads_in_use() -> tuple[Any, Callable[[], bool]]:
    return upload._lock, lambda: upload._lock.acquire(timeout=20)


USES: dict[str, Callable[..., tuple[Any, Callable[[], bool]]]] = {
    name.removesuffix("_in_use"): use for name, use in dict(globals()).items() if name.endswith("_in_use") and name != "parquet_in_use"
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_child_does_not_wait_for_locks_of_its_parents_threads(use: Callable[[], tuple[Any, Callable[[], bool]]]) -> None:
    lock, work = use()
    with Held(lock):
        assert run_in_child(work) == 0


def test_a_child_does_not_wait_for_the_cache_of_a_parquet_reader(tmp_path: Path) -> None:
    lock, work = parquet_in_use(tmp_path)
    with Held(lock):
        assert run_in_child(work) == 0


def test_a_reentrant_lock_stays_with_the_thread_that_forks() -> None:
    lock = fork_locks.new_reentrant_lock()
    with lock:
        assert run_in_child(lambda: lock._is_owned()) == 0
    assert not lock._is_owned()


class Numbers:
    """Waits within an item until it is released; not in children."""

    def __init__(self) -> None:
        self.parent, self.reading, self.go = os.getpid(), threading.Event(), threading.Event()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, k: int) -> tuple[np.ndarray, int]:
        if os.getpid() == self.parent and k >= 4:
            self.reading.set()
            self.go.wait(60)
        return np.full(1, k), k


@pytest.fixture(params=[{}, {"num_workers": 1}, {"num_workers": 2, "multiprocessing_context": "fork"}], ids=["threads", "one thread", "processes"])
def numbers(request: pytest.FixtureRequest) -> Iterator[tuple[Numbers, dict[str, Any]]]:
    data = Numbers()
    yield data, request.param
    data.go.set()


def test_a_child_can_use_the_loader_that_reads_in_its_parent(numbers: tuple[Numbers, dict[str, Any]]) -> None:
    data, options = numbers
    loader = ndd.DataLoader(data, batch_size=2, **options)
    loop = iter(loader)
    assert next(loop)[0].flatten().tolist() == [0, 1]
    if "multiprocessing_context" not in options:
        data.reading.wait(60)

    def work() -> bool:
        return len(loader) == 6 and [values.flatten().tolist() for values, _ in loader] == [[k, k + 1] for k in range(0, 12, 2)]

    for _ in range(3):
        assert run_in_child(work) == 0
    data.go.set()
    assert len(list(loop)) == 5


def test_a_child_goes_on_with_the_epoch_of_its_parents_reader() -> None:
    """What the parent's threads have read ahead never arrives in the child."""
    data = Numbers()
    reader = ndd.readers.Dataset(data, 2, prefetch_queue_depth=2)
    loop = reader.next_epoch()
    next(loop)
    data.reading.wait(60)
    assert run_in_child(lambda: [values.torch().flatten().tolist() for values, _ in loop] == [[k, k + 1] for k in range(2, 12, 2)]) == 0
    data.go.set()
    assert len(list(loop)) == 5


ENDING_CHILD = """
import multiprocessing, os, signal, sys, threading
import numpy as np
import torch_ndd as ndd
from torch_ndd._core.process.workers import _all

def child():
    signal.alarm(20)

if __name__ == "__main__":
    loader = ndd.DataLoader([np.zeros(2)] * 6, batch_size=2)
    next(iter(loader))
    held, done = threading.Event(), threading.Event()

    def hold():
        for one in _all:
            one._lock.acquire()
        held.set()
        done.wait()
        for one in _all:
            one._lock.release()

    threading.Thread(target=hold).start()
    held.wait()
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    done.set()
    print(process.exitcode)
"""


def test_a_child_ends_while_its_parents_threads_hold_locks(forks: Forks) -> None:
    process = forks.run(ENDING_CHILD)
    assert (process.wait(), process.output) == (0, "0\n"), process.errors


def test_a_child_can_compute_tables_and_allocate_while_its_parents_threads_do() -> None:
    over = threading.Event()

    def spectra(number: int) -> tuple[int, ...]:
        sound = ndd.batch([np.ones(3000, np.float32)] * 2)
        output = ndd.mel_filter_bank(ndd.spectrogram(sound, nfft=512 + number % 64, window_length=400), nfilter=20 + number % 16)
        images = ndd.batch(np.ones((2, 700, 700, 3), np.uint8), layout="HWC")  # their memory comes from the pool
        return output.tensors[0].shape[0], int(np.asarray(ndd.brightness(images).tensors[0])[0, 0, 0])

    def compute() -> None:
        number = 0
        while not over.is_set():
            number += 1
            spectra(number)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            assert run_in_child(lambda number=number: spectra(number) == (20 + number % 16, 1)) == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
