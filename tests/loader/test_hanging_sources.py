# SPDX-License-Identifier: Apache-2.0
"""One Ctrl-C ends a program whose data set, source or Python function hangs: KeyboardInterrupt in the main thread, then the end of the process."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from _forks import Forks

# Generous: the machine may be busy. What hangs sleeps for 600 s.
SECONDS = 20

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import torch
import torch_ndd as ndd

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
marker = sys.argv[2]

def hang():
    open(marker, "a").close()
    time.sleep(600)

class Hanging(torch.utils.data.Dataset):
    def __init__(self, first=0, how=hang):
        self.first, self.how = first, how
    def __len__(self):
        return 64
    def __getitem__(self, k):
        if k >= self.first:
            self.how()
        return torch.zeros(3)

class HangingStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield torch.zeros(3)
        hang()

def spin():
    open(marker, "a").close()
    while True:
        pass

def compute():
    open(marker, "a").close()
    while True:
        torch.ones(200, 200) @ torch.ones(200, 200)

def wait_for_lock():
    open(marker, "a").close()
    threading.Event().wait()

def iterate(source, **options):
    list(ndd.DataLoader(source, batch_size=4, **options))

def train(source, **options):
    for _ in ndd.DataLoader(source, batch_size=4, **options):
        while not os.path.exists(marker):
            time.sleep(0.01)
        time.sleep(600)

def call_function():
    images = ndd.batch([np.zeros((4, 4, 3), np.uint8)] * 8, layout="HWC")
    np.asarray(ndd.brightness(ndd.python_function(lambda image: hang() or image, images)).torch())

def leave_functions(seconds):
    def work(image):
        open(marker, "a").close()
        time.sleep(seconds)
        return image
    images = ndd.batch([np.zeros((4, 4, 3), np.uint8)] * 400, layout="HWC")
    made = ndd.python_function(work, images)
    time.sleep(600)

def source(number):
    hang()

def run_pipeline(python=False, **options):
    from torch_ndd.dali import Pipeline, fn
    pipe = Pipeline(4, 1, py_num_workers=2, py_start_method="fork")
    with pipe:
        if python:
            node = fn.python_function(fn.constant(fdata=1.0), function=lambda value: hang() or value)
        else:
            node = fn.external_source(source=source, **options)
        pipe.set_outputs(node)
    pipe.run()

def read_in_thread():
    thread = threading.Thread(target=iterate, args=[Hanging()], daemon=True)
    thread.start()
    thread.join()

def fit():
    import lightning.pytorch as pl
    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
        def training_step(self, batch, _):
            return self.layer(batch[0]).sum()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)
    options = dict(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    pl.Trainer(**options).fit(Model(), ndd.DataLoader(Hanging(8), batch_size=4))

SITUATIONS = {
    "threads": lambda: iterate(Hanging()),
    "one thread": lambda: iterate(Hanging(), num_workers=0),
    "no prefetch": lambda: iterate(Hanging(), prefetch=0),
    "next": lambda: next(iter(ndd.DataLoader(Hanging(), batch_size=4))),
    "a later batch": lambda: iterate(Hanging(9)),
    "fork": lambda: iterate(Hanging(), num_workers=2, multiprocessing_context="fork"),
    "prefetch while training": lambda: train(Hanging(8)),
    "prefetch while training, fork": lambda: train(Hanging(8), num_workers=2, multiprocessing_context="fork"),
    "iterable": lambda: iterate(HangingStream()),
    "iterable, fork": lambda: iterate(HangingStream(), multiprocessing_context="fork"),
    "fn": lambda: iterate(Hanging(99), fn=lambda values: hang()),
    "a reader": lambda: next(iter(ndd.readers.Dataset(Hanging(), 4))),
    "a loop in Python": lambda: iterate(Hanging(0, spin)),
    "a loop in torch": lambda: iterate(Hanging(0, compute)),
    "a lock": lambda: iterate(Hanging(0, wait_for_lock)),
    "a thread of the program": read_in_thread,
    "ExternalSource": lambda: iterate(ndd.ExternalSource(hang)),
    "python_function": call_function,
    "functions without a waiting caller": lambda: leave_functions(0.1),
    "a function without a waiting caller": lambda: leave_functions(600),
    "external_source": run_pipeline,
    "a parallel source": lambda: run_pipeline(parallel=True),
    "a function of a pipeline": lambda: run_pipeline(python=True),
    "Lightning": fit,
}
if __name__ == "__main__":
    try:
        SITUATIONS[sys.argv[1]]()
    except KeyboardInterrupt:
        print("interrupted", time.time(), flush=True)
        raise
"""
SITUATIONS = [line.split('"')[1] for line in PROGRAM.partition("SITUATIONS = {")[2].splitlines() if line.startswith('    "')]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_one_ctrl_c_ends_the_program(situation: str, forks: Forks, tmp_path: Path) -> None:
    if situation == "Lightning":
        pytest.importorskip("lightning")
    marker = tmp_path / "marker"
    process = forks.run(PROGRAM, situation, marker)
    end = time.monotonic() + 120
    while not marker.exists():
        assert process.poll() is None, process.errors
        assert time.monotonic() < end, "it does not hang"
        time.sleep(0.01)
    time.sleep(0.2)
    begin, sent = time.monotonic(), time.time()
    process.send_signal(signal.SIGINT)
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it still runs after {SECONDS} s: {process.output} {process.errors}")
    seconds = time.monotonic() - begin
    interrupted = float(process.output.split()[1]) - sent if "interrupted" in process.output else None
    print(f"{situation}: interrupted after {interrupted} s, ended after {seconds:.2f} s with code {code}")
    if situation != "Lightning":  # whose trainer handles Ctrl-C
        assert code == -signal.SIGINT, process.errors
        assert interrupted is not None
    assert "terminate" not in process.errors
    assert "Fatal" not in process.errors
