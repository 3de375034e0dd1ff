# SPDX-License-Identifier: Apache-2.0
"""The processes of parallel sources: their deaths, their ends, their memory."""

import ctypes
import gc
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from _pipelines import full
from _sources import alive, assert_ended, processes, sample
from _sources import parallel as made

import torch_ndd.dali as ours

DEATHS = {
    "exit": (lambda info: os._exit(3), "ended with the exit code 3"),
    "kill": (lambda info: os.kill(os.getpid(), signal.SIGKILL), "was killed by signal 9"),
    "segmentation fault": (lambda info: ctypes.string_at(0), "was killed by signal 11"),
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("batch", [True, False])
def test_a_worker_that_dies_is_an_error(death, batch):
    source, text = DEATHS[death]
    if death == "segmentation fault":
        import resource

        limits = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
    pipe = made(ours, source, workers=2, batch=batch)
    pipe.build()
    workers = processes(pipe)
    begin = time.monotonic()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=text):
            pipe.run()
    assert time.monotonic() - begin < 60
    assert not alive(workers)


def test_a_worker_that_is_killed_while_it_waits():
    pipe = made(ours, lambda number: full(number), workers=2)
    pipe.run()
    os.kill(processes(pipe)[0], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="was killed by signal 9"):
        iterate(pipe, 10)


def iterate(pipe, count):
    for _ in range(count):
        pipe.run()


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_with_the_pipeline(busy):
    """Also while they compute, and when nodes of the pipeline live on."""
    pipe = made(ours, slow if busy else sample, batch=False, workers=2)
    pipe.start_py_workers()
    node = pipe._graph.created[0].outputs[0]
    workers = processes(pipe)
    if not busy:
        pipe.run()
    else:
        pipe.__dict__["_py_pool"].send(0, 0, 1, 0, 0, [(ours.types.SampleInfo(0, 0, 0, 0),)], True)
    assert len(alive(workers)) == 2
    gc.disable()
    try:
        del pipe
        assert_ended(workers)
    finally:
        gc.enable()
    assert node.name == "__ExternalSource_0"


def slow(info):
    time.sleep(1000)


def test_workers_end_after_an_error_at_build():
    pipe = ours.Pipeline(3, 1)
    with pipe:
        data = ours.fn.external_source(sample, parallel=True, batch=False)
        pipe.set_outputs(data, *ours.fn.readers.file(file_root="/nowhere/at/all"))
    with pytest.raises(RuntimeError):
        pipe.run()
    workers = processes(pipe)
    del pipe
    assert_ended(workers)


def test_nothing_is_left_of_shared_memory():
    """No file in /dev/shm, no open descriptor of the memory."""

    def open_memory() -> int:
        links = [Path(f"/proc/self/fd/{value}") for value in os.listdir("/proc/self/fd")]
        return sum(link.is_symlink() and "torch_ndd.dali source" in os.readlink(link) for link in links)

    gc.collect()
    files, before = set(os.listdir("/dev/shm")), open_memory()
    pipe = made(ours, lambda number: full(number, 3, (100, 100)), workers=2, prefetch_queue_depth=3)
    for _ in range(3):
        pipe.run()
    assert not {value for value in set(os.listdir("/dev/shm")) - files if "ndd" in value}
    assert open_memory() > before
    workers = processes(pipe)
    del pipe
    assert_ended(workers)
    end = time.monotonic() + 60
    while open_memory() > before:
        assert time.monotonic() < end, "descriptors are left open"
        time.sleep(0.01)


def test_shared_memory_is_bounded():
    """It grows with the largest batches, and is used again."""
    pipe = made(ours, lambda number: full(number, 3, (number % 7 + 1, 1000)), workers=2, prefetch_queue_depth=2)
    for _ in range(40):
        pipe.run()
    sizes = pipe.external_source_shm_statistics()["capacities"]
    most = 3 * 7 * 1000 * 4
    assert len(sizes) == 3
    assert most * 3 <= sum(sizes) <= 1.3 * most * 3 + 3 * 4096
    before = sum(sizes)
    for _ in range(20):
        pipe.run()
    assert sum(pipe.external_source_shm_statistics()["capacities"]) == before


def test_outputs_stay_valid():
    pipe = made(ours, lambda number: full(number, 3, (1000,)))
    outputs = [pipe.run()[0] for _ in range(6)]
    assert [int(output.as_array().mean()) for output in outputs] == list(range(6))


def test_workers_start_early():
    pipe = made(ours, lambda number: list(full(os.getpid())), workers=2)
    pipe.start_py_workers()
    workers = processes(pipe)
    pipe.build()
    assert processes(pipe) == workers
    assert int(pipe.run()[0].at(0)[0]) in [int(np.float32(pid)) for pid in workers]


def test_a_forked_process_cannot_use_the_workers(forks):
    program = """
import os
import numpy as np
from torch_ndd.dali import Pipeline, fn
pipe = Pipeline(2, 1)
with pipe:
    pipe.set_outputs(fn.external_source(lambda number: np.zeros((2, 1)), parallel=True))
pipe.run()
pid = os.fork()
if not pid:
    try:
        pipe.__dict__["_py_pool"].drop(0)
        pipe.__dict__["_py_pool"].send(0, 0, 9, 0, 0, [(0,)], False)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
pipe.run()
print("parent ends", flush=True)
"""
    process = forks.run(program)
    assert process.wait() == 0, process.errors
    assert "belong to the process that started them" in process.output
    assert "parent ends" in process.output


PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
import numpy as np
from torch_ndd.dali import Pipeline, fn
how, busy = sys.argv[1:]

def source(info):
    if busy == "busy" and info.iteration >= 2:
        time.sleep(1000)
    return np.zeros(10)

pipe = Pipeline(4, 1, py_num_workers=2)
with pipe:
    pipe.set_outputs(fn.external_source(source, parallel=True, batch=False))
pipe.run()
print("workers", *pipe.__dict__["_py_pool"].processes, "started", flush=True)
if how == "error":
    raise LookupError("of the program")
if how == "exit":
    sys.exit(0)
if how == "run":
    while True:
        pipe.run()
        time.sleep(0.001)
time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("busy", ["busy", "idle"])
@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("wait", signal.SIGKILL),
        ("wait", signal.SIGTERM),
        ("wait", signal.SIGINT),
        ("run", signal.SIGKILL),
        ("run", signal.SIGINT),
        ("error", None),
        ("exit", None),
    ],
)
def test_workers_end_with_the_program(forks, how, number, busy):
    """However it ends, and whatever they compute. Ctrl-C goes to all processes of a terminal."""
    process = forks.run(PROGRAM, how, busy)
    process.wait_for("started")
    workers = [int(value) for value in process.output.split() if value.isdigit()]
    assert len(workers) == 2
    if number is not None:
        time.sleep(0.05)
        if number is signal.SIGINT:
            for worker in workers:
                os.kill(worker, number)
        process.send_signal(number)
    process.wait(120)
    assert_ended(workers)
    if number is signal.SIGINT:
        assert process.errors.count("KeyboardInterrupt") == 1, process.errors
    if how == "error":
        assert "LookupError: of the program" in process.errors
    if how == "exit":
        assert process.errors == ""


DEAF = """
import os, signal, sys, threading, time
import numpy as np
signal.signal(signal.SIGTERM, lambda *_: None)  # a program's own handler, which forked processes inherit
from torch_ndd.dali import Pipeline, fn

def source(info):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if info.iteration >= 2:
        time.sleep(1000)
    return np.zeros(10)

pipe = Pipeline(4, 1, py_num_workers=2)
with pipe:
    pipe.set_outputs(fn.external_source(source, parallel=True, batch=False))
pipe.run()
print("workers", *pipe.__dict__["_py_pool"].processes, "started", flush=True)


def interrupt(pool):
    while pool._broken is None:  # until it is being closed, which takes half a second with these workers
        time.sleep(0.001)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

if len(sys.argv) > 1:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, args=[pipe.__dict__["_py_pool"]], daemon=True).start()
"""


def test_the_program_does_not_wait_for_workers_that_ignore_signals(forks):
    process = forks.run(DEAF)
    process.wait_for("started")
    workers = [int(value) for value in process.output.split() if value.isdigit()]
    assert process.wait(120) == 0, process.errors
    assert_ended(workers)


def test_nor_does_it_when_it_is_interrupted_while_it_ends(forks):
    process = forks.run(DEAF, "interrupt")
    process.wait_for("started")
    workers = [int(value) for value in process.output.split() if value.isdigit()]
    process.wait(60)
    assert "KeyboardInterrupt" in process.errors
    assert_ended(workers)
