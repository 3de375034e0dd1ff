# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: Python raises KeyboardInterrupt anywhere, and drops it in code that runs in a finalizer."""

import gc
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import fsspec
import numpy as np
import pytest
from _forks import Forks
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core.process.workers import Workers


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("images")
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 10, 10)).save(file, "JPEG")
    outputs = [folder / f"{k}.jpg" for k in range(16)]
    for path in outputs:
        path.write_bytes(file.getvalue())
    return [str(path) for path in outputs]


def images(paths: list[str]) -> Iterator[Any]:
    for jpegs, labels in ndd.readers.File(files=paths).next_epoch(batch_size=4):
        yield ndd.flip(ndd.resize(ndd.decoders.image(jpegs), size=(20, 30))), labels


def pending() -> Any:
    return ndd.brightness(ndd.batch(np.ones((4, 200, 200, 3), np.uint8), layout="HWC"))


def in_a_context() -> Any:
    with ndd.EvalContext(num_threads=2) as context:
        return context, pending()


def left(iterator: Iterator[Any]) -> Any:
    next(iterator)
    return iterator


def loader(paths: list[str]) -> Any:
    output = ndd.DataLoader(ndd.readers.File(files=paths), lambda jpegs, labels: ndd.decoders.image(jpegs), batch_size=4)
    return iter(output)


def in_memory() -> list[str]:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    for k in range(8):
        fsspec.filesystem("memory").pipe_file(f"/interrupts/{k}.npy", file.getvalue())
    return [f"memory://interrupts/{k}.npy" for k in range(8)]


# Objects that a program drops, and how to make them.
THINGS: dict[str, Callable[[list[str]], Any]] = {
    "a result": lambda paths: pending(),
    "a result with sources": lambda paths: next(images(paths)),
    "what is being read": lambda paths: left(ndd.readers.File(files=paths).next_epoch(batch_size=2)),
    "a numpy reader": lambda paths: ndd.readers.Numpy(files=paths),
    "a context": lambda paths: in_a_context(),
    "a thread pool": lambda paths: ndd.ThreadPool(2),
    "a generator": lambda paths: ndd.random.RNG(1),
    "a loop": lambda paths: left(images(paths)),
    "a captured loop": lambda paths: left(ndd.readers.File(files=paths).next_epoch(batch_size=2, capture=True)),
    "a captured source": lambda paths: left(ndd.ExternalSource(lambda: np.ones((4, 5, 3), np.uint8)).captured(2)),
    "a loader and its loop": lambda paths: left(loader(paths)),
    "a reader with threads": lambda paths: left(ndd.readers.File(files=in_memory()).next_epoch(batch_size=2)),
    "what native code takes apart": lambda paths: left(ndd.readers.Numpy(files=in_memory()).next_epoch(batch_size=2)),
}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_no_python_runs_in_finalizers(make: Callable[[list[str]], Any], paths: list[str]) -> None:
    thing = make(paths)
    lines: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        return note

    before = sys.gettrace()
    gc.collect()
    gc.disable()
    try:
        sys.settrace(note)
        del thing
    finally:
        sys.settrace(before)
        gc.enable()
    assert lines == []


def test_threads_end_with_their_owner(forks: Forks) -> None:
    code = """
import os, threading, time
from torch_ndd._core.process.workers import Workers

class Owner:
    pass

def end() -> bool:
    owner = Owner()
    workers = Workers(2, "of a test", owner)
    workers.submit(int).result()
    (thread,) = [one for one in threading.enumerate() if one.name.startswith("of a test")]
    del owner, workers
    thread.join(20)
    return not thread.is_alive()

here = end()
child = os.fork()
if not child:
    os._exit(0 if end() else 3)
print(here, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = forks.run(code)
    assert (done.wait(), done.output, done.errors) == (0, "True 0\n", "")


# The program is interrupted at every line that the library runs in the main thread during some batches: the first two times, or every time in
# `make whole`. Not at the end of a `with` statement, where Python looks for no signal.
EVERY_LINE = """
import faulthandler, linecache, os, sys, threading
from collections import Counter
import numpy as np
import torch
import torch_ndd as ndd

kind = sys.argv[1]
WHOLE = bool(os.environ.get("TORCH_NDD_WHOLE"))
EXPECTED = [[k, k + 1] for k in range(0, 12, 2)]

class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, k): return torch.tensor(k), k

def loader():
    made = ndd.DataLoader(Numbers(), batch_size=2, num_workers={"one thread": 0}.get(kind, 3), prefetch={"no prefetch": 0}.get(kind, 2))
    return lambda: (batch[0].tolist() for batch in made)

class Interrupted:
    def __init__(self, at):
        self.at, self.lines, self.place, self.times = at, 0, None, Counter()

    def trace(self, frame, event, argument):
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        ours = "torch_ndd" in path or (path == threading.__file__ and name == "start")
        if not ours:
            return None
        if event == "line" and not linecache.getline(path, frame.f_lineno).strip().startswith("with "):
            place = f"{os.path.basename(path)}:{frame.f_lineno} {name}"
            self.times[place] += 1
            counts = WHOLE or self.times[place] <= 2
            self.lines += counts
            if counts and self.lines == self.at:
                self.place = place
                raise KeyboardInterrupt
        return self.trace

wrong, at = [], 0
while True:
    at += 1
    epoch = loader()
    interrupted = Interrupted(at)
    faulthandler.dump_traceback_later(60, exit=True)
    sys.settrace(interrupted.trace)
    try:
        for _, batch in zip(range(3), epoch()):
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    if interrupted.place is None:
        break
    for _ in range(2):
        found = list(epoch())
        if found != EXPECTED:
            wrong.append((interrupted.place, found))
    if sum(thread.name.startswith("torch_ndd.DataLoader") for thread in threading.enumerate()) > 20:
        import gc
        gc.collect()
print(at > 100, wrong)
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["threads", "one thread", pytest.param("no prefetch", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_epochs_after_an_interrupt_anywhere_are_whole_and_in_order(kind: str, forks: Forks) -> None:
    process = forks.run(EVERY_LINE, kind)
    assert (process.wait(), process.output) == (0, "True []\n"), process.errors


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("prefetch", [2, 8])
def test_a_pool_of_one_has_one_thread_after_its_start_was_interrupted(moment: str, prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So batches come in order: the thread of a loader prepares them one after the other."""
    start = threading.Thread.start
    interrupts = iter([True])

    def interrupt(thread: threading.Thread) -> None:
        if moment == "after":
            start(thread)
        if next(interrupts, False):
            raise KeyboardInterrupt
        if moment == "before":
            start(thread)

    loader = ndd.DataLoader([np.full(1, k) for k in range(40)], lambda values: values, batch_size=1, num_workers=0, prefetch=prefetch)
    loader._thread()
    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    for _ in range(20):
        assert [int(batch) for batch in loader] == list(range(40))
        assert len(loader._thread()._threads) == 1


def test_a_pool_that_was_made_smaller_has_fewer_threads() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    with Workers(8, "of a test") as workers:
        for threads in (8, 2, 4, 1):
            workers.resize(threads)
            for handle in [workers.submit(work) for _ in range(16)]:  # those that are surplus may still take one
                handle.result()
            most = 0
            for handle in [workers.submit(work) for _ in range(16)]:
                handle.result()
            assert most <= threads
            assert len(workers._threads) <= threads


# Training interrupted at random moments, each with another set of live objects.
TRAINING = """
import os, random, signal, sys, threading, time
import torch_ndd as ndd
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
count, paths = int(sys.argv[1]), sys.argv[2:]
ready, done, lost = threading.Event(), threading.Event(), []

def interrupt():
    generator = random.Random(1)
    for k in range(count):
        ready.wait()
        ready.clear()
        time.sleep(generator.uniform(0, 0.01))
        os.kill(os.getpid(), signal.SIGINT)
        if not ready.wait(10):
            lost.append(k)
            ready.set()
    done.set()

def train():
    while not done.is_set():
        for jpegs, labels in ndd.readers.File(files=paths, random_shuffle=True, pad_last_batch=True).next_epoch(batch_size=4):
            images = ndd.resize(ndd.decoders.image(jpegs), size=(32, 32))
            for _ in range(20):
                images = ndd.brightness(images, brightness=ndd.random.uniform(range=[0.5, 1.5], batch_size=4))
            images.torch().float().mean()
            if done.is_set():
                return

caught = 0
threading.Thread(target=interrupt, daemon=True).start()
while True:
    try:
        ready.set()
        train()
        break
    except KeyboardInterrupt:
        caught += 1
print(caught, lost, flush=True)
os._exit(0)
"""


def test_no_ctrl_c_is_lost(forks: Forks, paths: list[str]) -> None:
    """200 interrupts; of 1,000 with Python finalizers, 16 were lost."""
    done = forks.run(TRAINING, 200, *paths)
    assert (done.wait(), done.output, done.errors) == (0, "200 []\n", "")
