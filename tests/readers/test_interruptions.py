# SPDX-License-Identifier: Apache-2.0
"""Killed processes and loops that are left early: nothing is lost and nothing is left behind."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from _forks import Forks
from conftest import CI, WHOLE

import torch_ndd as ndd

TRAINING = """
import json, os, sys
import numpy as np
import torch_ndd as ndd

files, log, pattern = sys.argv[1], sys.argv[2], sys.argv[3]
reader = ndd.readers.File(3, file_root=files, random_shuffle=True, prefetch_queue_depth=2, enable_checkpointing=True)
rng = ndd.random.RNG(seed=1)
checkpoint = ndd.checkpoint.Checkpoint()
try:
    checkpoint.load(pattern)
except FileNotFoundError:
    pass
checkpoint.register(reader, "reader")
checkpoint.register(rng, "rng")
with open(log, "a", buffering=1) as out:
    step = 0
    while True:
        for contents, labels in reader.next_epoch():
            scaled = ndd.random.uniform(batch_size=3, range=[0, 1], rng=rng)
            out.write(json.dumps([labels.torch().flatten().tolist(), np.concatenate([np.asarray(one) for one in contents]).tolist(),
                                  scaled.torch().flatten().tolist()]) + "\\n")
            saved = ndd.checkpoint.Checkpoint()
            saved.register(reader, "reader")
            saved.register(rng, "rng")
            saved.collect()
            saved.save(pattern)
"""


@pytest.mark.slow
@pytest.mark.figures
def test_kill_9(tmp_path: Path, forks: Forks) -> None:
    """Several processes in sequence, each killed at a random moment, yield the sequence of an uninterrupted one.

    A process writes a step, then saves; killed between the two, that one step comes again from the state before it.
    """
    for i in range(20):
        (tmp_path / f"files/{i % 4}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"files/{i % 4}/{i:02}.jpg").write_bytes(bytes([i]) * (i % 3 + 1))
    generator = random.Random(5)
    kills, repeated, steps = 0, 0, 0
    log, pattern = tmp_path / "log", str(tmp_path / "state/{seq}.json")
    sequence: list[str] = []
    for _ in range(20 if CI or WHOLE else 8):
        log.unlink(missing_ok=True)
        process = forks.run(TRAINING, tmp_path / "files", log, pattern)
        end, wanted = time.monotonic() + 60, generator.randint(1, 60)
        while time.monotonic() < end and (not log.exists() or log.read_bytes().count(b"\n") < wanted):
            assert process.poll() is None, process.errors
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        lines = log.read_text().split("\n")[:-1]
        assert len(lines) >= wanted, "the training makes no steps"
        if sequence and lines[0] == sequence[-1]:
            sequence.pop()
            repeated += 1
        sequence += lines
        for file in (tmp_path / "state").glob("*.json"):
            json.loads(file.read_text())  # never truncated
            if int(file.stem) < len(list((tmp_path / "state").glob("*.json"))) - 50:
                file.unlink()
    steps = len(sequence)
    reader = ndd.readers.File(3, file_root=tmp_path / "files", random_shuffle=True)
    rng, expected = ndd.random.RNG(seed=1), []
    while len(expected) < steps:
        for contents, labels in reader.next_epoch():
            scaled = ndd.random.uniform(batch_size=3, range=[0, 1], rng=rng)
            values = [value for content in contents for value in content.torch().tolist()]
            expected.append(json.dumps([labels.torch().flatten().tolist(), values, scaled.torch().flatten().tolist()]))
    print(f"{kills} kills, {steps} steps, {repeated} of them again after a kill between step and saving")
    assert sequence == expected[:steps]


LEFT = """
import gc, os, sys, threading, time
import torch_ndd as ndd

how, files = sys.argv[1], sys.argv[2:] * 40

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def left():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

def use(reader):
    if how == "break":
        for _ in reader:
            break
    elif how == "exception":
        try:
            for _ in reader:
                raise KeyError("in the loop")
        except KeyError:
            pass
    elif how == "interrupt":
        try:
            for _ in reader:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    elif how == "del":
        loop = iter(reader)
        next(loop)
        del loop

def settle(target):
    end = time.monotonic() + 20
    while time.monotonic() < end and any(now > before for now, before in zip(left(), target)):
        time.sleep(0.01)

for _ in range(100):
    reader = ndd.readers.File(8, files=files, prefetch_queue_depth=4)
    use(reader)
del reader
gc.collect()
time.sleep(0.2)
before, memory = left(), resident()
for _ in range(200):
    reader = ndd.readers.File(8, files=files, prefetch_queue_depth=4)
    use(reader)
    use(reader)  # it is usable again
assert len(list(reader)) == len(files) // 8
del reader
gc.collect()
settle(before)
now = left()
assert now[0] <= before[0] and now[1] <= before[1], (before, now)
assert resident() - memory < 30_000_000, (memory, resident())
print(f"{how}: 200 readers, threads {before[0]} -> {now[0]}, open files {before[1]} -> {now[1]}, memory +{(resident() - memory) / 1e6:.1f} MB")
"""


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("how", ["break", "exception", "interrupt", "del"])
def test_nothing_stays_behind(tmp_path: Path, how: str, forks: Forks) -> None:
    for i in range(8):
        (tmp_path / f"{i}.jpg").write_bytes(bytes(300_000))
    run = forks.run(LEFT, how, *sorted(tmp_path.iterdir()))
    assert (run.wait(), run.errors) == (0, "")
    print(run.output.strip())


EXIT = """
import signal, sys, threading
import torch_ndd as ndd

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
how, files = sys.argv[1], sys.argv[2:] * 200
reader = ndd.readers.File(8, files=files, prefetch_queue_depth=16)
loop = iter(reader)
next(loop)
print("reading", flush=True)
if how == "error":
    raise SystemExit(3)
if how == "interrupt":
    for _ in loop:
        pass
    while True:
        for _ in reader:
            pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("return", 0), ("error", 3), ("interrupt", -signal.SIGINT)])
def test_exit_while_reading(tmp_path: Path, how: str, code: int, forks: Forks) -> None:
    for i in range(8):
        (tmp_path / f"{i}.jpg").write_bytes(bytes(300_000))
    for _ in range(3):
        process = forks.run(EXIT, how, *sorted(tmp_path.iterdir()))
        process.wait_for("reading\n")
        if how == "interrupt":
            process.send_signal(signal.SIGINT)
        process.wait(30)
        errors = process.errors
        assert process.returncode == code, errors
        assert ("KeyboardInterrupt" in errors) == (how == "interrupt")
        assert "terminate" not in errors
        assert not os.path.exists(f"/proc/{process.pid}")
