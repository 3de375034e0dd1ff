# SPDX-License-Identifier: Apache-2.0
"""The worker processes of ``ndd.DataLoader``: deaths, signals, and what is left when they end."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import _datasets
import pytest
import torch
from _datasets import Fragile, Squares

import torch_ndd as ndd
from torch_ndd.readers.dataset import _worker_processes

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_a_worker_that_dies() -> None:
    loader = ndd.DataLoader(Fragile(9, kill=3), batch_size=4, multiprocessing_context="fork", num_workers=2)
    with pytest.raises(RuntimeError, match=r"Fragile\[3\]\): its worker process ended with signal 9"):
        list(loader)
    rest = ndd.DataLoader(Fragile(9, kill=3), batch_size=9, multiprocessing_context="fork", num_workers=1, on_error="skip")
    assert [x for batch in rest for x in batch.tolist()] == [0, 1, 2, 4, 6, 7, 8]


class Uneven(torch.utils.data.Dataset[int]):
    """Squares, one of which cannot be computed, one not sent, and one ends the process."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        if index == 150:
            raise KeyError("no such square")
        if index == 160:
            os.kill(os.getpid(), signal.SIGKILL)
        return threading.Lock() if index == 170 else index * index


def test_bad_items_are_found_among_those_of_one_message() -> None:
    loader = ndd.DataLoader(Uneven(), batch_size=50, multiprocessing_context="fork", num_workers=2, on_error="skip")
    assert [x for batch in loader for x in batch.tolist()] == [k * k for k in range(200) if k not in (150, 160, 170)]
    reasons = {error.source: error.reason for error in loader.reader.errors}
    assert sorted(reasons) == ["Uneven[150]", "Uneven[160]", "Uneven[170]"]
    assert "no such square" in reasons["Uneven[150]"]
    assert "its worker process ended with signal 9" in reasons["Uneven[160]"]
    assert "cannot pickle" in reasons["Uneven[170]"]


class Ending(torch.utils.data.IterableDataset[int]):
    """Numbers up to one that cannot be computed, or that ends the process."""

    def __init__(self, error: int = -1, kill: int = -1) -> None:
        self.error, self.kill = error, kill

    def __iter__(self) -> Iterator[int]:
        for k in range(70):
            if k == self.error:
                raise KeyError("no such number")
            if k == self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            yield k


@pytest.mark.parametrize("batch_size", [1, 16, 100])
def test_a_stream_of_a_process_ends_where_it_ends(batch_size: int) -> None:
    loader = ndd.DataLoader(Ending(), batch_size=batch_size, multiprocessing_context="fork")
    for _ in range(2):
        assert [x for batch in loader for x in batch.tolist()] == list(range(70))
    shards = [ndd.DataLoader(Ending(), batch_size=batch_size, multiprocessing_context="fork", shard_id=k, num_shards=3) for k in range(3)]
    assert [[x for batch in loader for x in batch.tolist()] for loader in shards] == [list(range(k, 70, 3)) for k in range(3)]


@pytest.mark.parametrize(("bad", "reason"), [({"error": 37}, "no such number"), ({"kill": 37}, "its worker process ended with signal 9")])
def test_a_stream_of_a_process_fails_where_it_fails(bad: dict[str, int], reason: str) -> None:
    loader = ndd.DataLoader(Ending(**bad), batch_size=16, multiprocessing_context="fork")
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(2)] == [list(range(16)), list(range(16, 32))]
    with pytest.raises(RuntimeError, match=f"sample 37: .*{reason}"):
        next(batches)


def test_many_quick_items_are_sent_in_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    answer = _worker_processes.Processes._answer
    monkeypatch.setattr(
        _worker_processes.Processes, "_answer", lambda self, number, keys, seeds: messages.append(len(keys)) or answer(self, number, keys, seeds)
    )
    loader = ndd.DataLoader(Squares(6400), batch_size=64, multiprocessing_context="fork", num_workers=2)
    assert sum(len(values) for values, _ in loader) == 6400
    assert sum(messages) == 6400
    assert max(messages) <= 32  # each process gets a part of a batch
    assert messages.count(1) < 3200


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_worker_that_is_killed_while_it_starts_is_replaced(on_error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = _worker_processes.serve

    def serve_the_third_time(*arguments: Any) -> None:
        (tmp_path / str(os.getpid())).touch()
        if len(list(tmp_path.iterdir())) <= 2:
            os.kill(os.getpid(), signal.SIGKILL)
        serve(*arguments)

    monkeypatch.setattr(_worker_processes, "serve", serve_the_third_time)
    loader = ndd.DataLoader(Squares(9), batch_size=3, multiprocessing_context="fork", num_workers=3, on_error=on_error)
    for _ in range(2):
        assert [values.tolist() for values, _ in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert loader.reader.errors == ()


def test_workers_that_are_always_killed_while_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_worker_processes, "serve", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    loader = ndd.DataLoader(Squares(9), batch_size=3, multiprocessing_context="fork", num_workers=2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"5 worker processes in a row could not start, the last one ended with signal 9 \(SIGKILL\)"):
            list(loader)


def test_a_worker_that_cannot_be_unpickled_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_worker_processes, "serve", lambda *_: os._exit(3))
    loader = ndd.DataLoader(Squares(9), batch_size=3, multiprocessing_context="fork", num_workers=2)
    with pytest.raises(RuntimeError, match="a worker process could not start: it ended with exit code 3"):
        list(loader)


def test_ctrl_c_does_not_end_workers_that_start(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = _worker_processes.serve

    def serve_interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        serve(*arguments)

    monkeypatch.setattr(_worker_processes, "serve", serve_interrupted)
    loader = ndd.DataLoader(Squares(9), batch_size=3, multiprocessing_context="fork", num_workers=2)
    assert len(list(loader)) == 3


def children() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _parent(path) == os.getpid()}


def _parent(path: pathlib.Path) -> int:
    try:
        return int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_nothing_stays_behind(context: str) -> None:
    def until(condition: Any) -> bool:
        end = time.monotonic() + 20
        while not condition() and time.monotonic() < end:
            gc.collect()
            time.sleep(0.02)
        return bool(condition())

    list(ndd.DataLoader(Squares(3), batch_size=2, multiprocessing_context=context, num_workers=1))  # starts what lasts as long as the process
    gc.collect()
    time.sleep(0.2)
    before, threads = children(), threading.active_count()
    loader = ndd.DataLoader(Squares(30), batch_size=2, multiprocessing_context=context, num_workers=2)
    list(islice(iter(loader), 2))
    started = {process.pid for process, _ in loader.reader._processes._group.running.values()}
    assert len(started - before) == 2
    assert started <= children()
    del loader
    assert until(lambda: not started & children())
    assert until(lambda: threading.active_count() <= threads)


PARENT = """
import sys, time
sys.path.insert(0, {tests!r})
import torch_ndd as ndd
from _datasets import Squares

if __name__ == "__main__":
    loader = ndd.DataLoader(Squares(1000, {seconds}, {marker!r}), batch_size=2, multiprocessing_context={context!r}, num_workers=2)
    loop = iter(loader)
    if not {seconds}:
        next(loop)
    else:
        loader.prefetch = 1
        loader.reader._pool(), loader._thread()
        loop._submit(loader, loop._begin(loader))
    print(*[process.pid for process, _ in loader.reader._processes._group.running.values()], flush=True)
    time.sleep(100)
"""


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("seconds", [0, 1000])
def test_workers_end_with_a_killed_parent(context: str, seconds: int, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    marker = tmp_path / "marker"
    script.write_text(PARENT.format(tests=str(Path(_datasets.__file__).parent), context=context, seconds=seconds, marker=str(marker)))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        end = time.monotonic() + 120
        while seconds and (not marker.exists() or marker.stat().st_size < 2) and time.monotonic() < end:
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + 20
    while any(_runs(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
