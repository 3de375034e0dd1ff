# SPDX-License-Identifier: Apache-2.0
"""external_source(parallel=True): results as those of the sequential form and of DALI, failures of workers, and how everything ends."""

import ctypes
import gc
import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from _pipelines import both, full, iterations, ours_raises, sub

import torch_ndd.dali as ours


def made(dali, source, batch_size=3, depth=2, workers=1, start="fork", pickler=None, parallel=True, **options):
    more = {"py_num_workers": workers, "py_start_method": start, "py_callback_pickler": pickler}
    pipe = dali.Pipeline(batch_size, 1, None, prefetch_queue_depth=depth, **more)
    with pipe:
        nodes = dali.fn.external_source(source, parallel=parallel, **options)
        pipe.set_outputs(*(nodes if isinstance(nodes, list) else [nodes]))
    return pipe


def sample(info):
    if info.iteration == 3:
        raise StopIteration
    return np.int32([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])


def two(info):
    return np.float32([info.idx_in_epoch]), np.full(info.idx_in_epoch % 4, info.iteration, np.uint8)


def batches(number):
    """Dense, as a list, as a ragged list, with fewer samples, and none."""
    if number == 8:
        raise StopIteration
    made = (full(number), list(full(number)), [np.full(k, number, np.int64) for k in range(3)], full(number, 2))
    return made[number % 4 if number < 4 else 0].astype(np.float32) if number in (0, 3) or number > 3 else list(full(number))


def generator():
    for k in range(4):
        yield list(full(k))


class Iterable:
    def __iter__(self):
        return generator()


# Results.


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("ahead", [1, 3])
def test_samples(workers, ahead):
    """SampleInfo, order and epochs."""
    both(lambda dali: iterations(made(dali, sample, batch=False, workers=workers, prefetch_queue_depth=ahead), 10))


@pytest.mark.parametrize("workers", [1, 3])
def test_outputs(workers):
    both(lambda dali: iterations(made(dali, two, batch=False, num_outputs=2, workers=workers), 4))


@pytest.mark.parametrize("cycle", [None, "quiet", "raise"])
@pytest.mark.parametrize("source", [generator, Iterable()], ids=["generator", "iterable"])
def test_iterables(source, cycle):
    both(lambda dali: iterations(made(dali, source, cycle=cycle, prefetch_queue_depth=2, workers=2), 12))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize(
    ("source", "options"),
    [
        (batches, {}),
        (sample, {"batch": False}),
        (two, {"batch": False, "num_outputs": 2}),
        (generator, {"cycle": "raise"}),
        (generator, {"cycle": True}),
        (lambda info: full(info.iteration * 10 + info.epoch_idx) if info.iteration < 3 else next(iter(())), {"batch_info": True}),
        (lambda number: (full(number), full(number, 3, ())), {"num_outputs": 2}),
        (lambda number: torch.ones(3, 4)[:, ::2], {}),
        (lambda number: full(number), {"layout": "A", "ndim": 1}),
    ],
)
def test_results_are_those_of_the_sequential_form(source, options, ahead, workers):
    parallel = made(ours, source, workers=workers, prefetch_queue_depth=ahead, **options)
    sequential = made(ours, source, parallel=False, **options)
    first, second = iterations(parallel, 11), iterations(sequential, 11)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_equal(one, other)


def test_several_sources_share_the_workers():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None, py_num_workers=2)
        with pipe:
            first = dali.fn.external_source(sample, parallel=True, batch=False, prefetch_queue_depth=2)
            second = dali.fn.external_source(generator, parallel=True, cycle=True)
            pipe.set_outputs(first, second, dali.fn.external_source(lambda number: full(number)))
        return iterations(pipe, 9)

    both(program)


def test_spawned_workers():
    """They get functions by value, and end with the pipeline."""
    offset = 5
    pipe = made(ours, lambda info: np.int32([info.idx_in_epoch + offset]), batch=False, start="spawn")
    for k in range(4):
        assert pipe.run()[0].as_array().tolist() == [[3 * k + i + offset] for i in range(3)]
    workers = processes(pipe)
    assert len(alive(workers)) == 1
    del pipe
    assert_ended(workers)


class Pickler:
    """A pickler of the user."""

    @staticmethod
    def dumps(value, mark):
        return mark + pickle.dumps(value)

    @staticmethod
    def loads(data):
        assert data.startswith(b"mark")
        return pickle.loads(data[4:])


def test_picklers():
    pipe = made(ours, sample, batch=False, start="spawn", pickler=(Pickler, {"mark": b"mark"}))
    assert pipe.run()[0].as_array()[:, 0].tolist() == [0, 1, 2]
    both(lambda dali: made(dali, sample, batch=False, start="fork", pickler=pickle))


def test_the_class_takes_samples_by_default():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            pipe.set_outputs(dali.ops.ExternalSource(source=sample, parallel=True)())
        return pipe.run()

    both(program)


def test_a_checkpoint_continues():
    def build(**more):
        pipe = ours.Pipeline(3, 1, enable_checkpointing=True, **more)
        with pipe:
            pipe.set_outputs(ours.fn.external_source(sample, parallel=True, batch=False, prefetch_queue_depth=2))
        return pipe

    pipe = build()
    pipe.run()
    again = build(checkpoint=pipe.checkpoint())
    for _ in range(2):
        np.testing.assert_array_equal(again.run()[0].as_array(), pipe.run()[0].as_array())


# Definitions that are refused.


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (lambda: full(1), {}),
        ([full(1)], {"batch": False}),
        (generator, {"batch": False}),
        (sample, {"batch": False, "no_copy": False}),
        (sample, {"batch": False, "prefetch_queue_depth": 0}),
        (sample, {"batch": False, "bytes_per_sample_hint": 0}),
        (sample, {"batch": False, "workers": 0}),
        (sample, {"batch": False, "start": "thread"}),
    ],
)
def test_refused_definitions(source, options):
    both(lambda dali: made(dali, source, **options).build())


def test_sources_of_definitions_with_conditionals():
    """DALI refuses them, because it has changed their code. Here a function is changed only when the definition calls it."""

    @ours.pipeline_def(batch_size=8, num_threads=1, enable_conditionals=True)
    def define():
        def source(info):
            value = info.idx_in_epoch
            if value > 5 and not value % 2:
                value = 5
            return np.int32([value])

        return ours.fn.external_source(source, parallel=True, batch=False)

    assert define().run()[0].as_array()[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 5, 7]


def test_a_source_is_needed():
    ours_raises(lambda dali: made(dali, None), TypeError, "parallel=True needs a source")


# Failures.


def raising(number):
    if number == 2:
        raise LookupError("nothing there")
    return list(full(number))


def test_an_exception_has_the_traceback_of_the_worker():
    pipe = made(ours, raising, prefetch_queue_depth=2)
    assert [pipe.run()[0].at(0)[0] for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(Exception, match="nothing there") as caught:
            pipe.run()
        assert type(caught.value) is Exception
        for part in ("Traceback (most recent call last)", "in raising", 'raise LookupError("nothing there")', "fn.external_source"):
            assert part in str(caught.value)


def test_errors_are_exceptions_as_in_dali():
    both(lambda dali: made(dali, lambda info: 1 // 0, batch=False).run())
    for data in (3, None, np.float32(1)):
        both(lambda dali, data=data: made(dali, lambda info: data, batch=False).run())


def test_arrays_of_objects_are_refused():
    """DALI's worker crashes."""
    ours_raises(
        lambda dali: made(dali, lambda info: np.array([None]), batch=False).run(), Exception, "must return arrays of numbers, got the type object"
    )


def test_the_first_sample_decides():
    """Sample 2 raises and sample 1 ends the data, in different workers: the end comes first, as in the sequential form."""

    def source(info):
        if info.idx_in_epoch == 4:
            raise StopIteration
        if info.idx_in_epoch == 5:
            raise LookupError
        return np.int32([info.idx_in_epoch])

    pipe = made(ours, source, workers=3, batch=False)
    pipe.run()
    with pytest.raises(StopIteration):
        pipe.run()


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
    assert time.monotonic() - begin < 10
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


def test_a_source_that_cannot_be_loaded_says_why():
    pipe = made(ours, Unloadable(), batch=False, start="spawn")
    with pytest.raises(Exception, match="cannot be loaded here"):
        pipe.run()


class Unloadable:
    def __call__(self, info):
        return np.zeros(1)

    def __setstate__(self, state):
        raise LookupError("cannot be loaded here")

    def __getstate__(self):
        return {"a": 1}


def test_a_source_that_cannot_be_pickled_raises_at_build():
    class Local:
        def __call__(self, info):
            return np.zeros(1)

    with pytest.raises((pickle.PicklingError, AttributeError), match="Local"):
        made(ours, Local(), batch=False, start="spawn").build()


# Ends.


def processes(pipe):
    return pipe.__dict__["_py_pool"].processes


def alive(pids):
    """Return which of the processes exist and are not only waiting to be reaped."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(pid)
    return found


def assert_ended(pids, seconds=10):
    end = time.monotonic() + seconds
    while alive(pids):
        assert time.monotonic() < end, f"still running: {alive(pids)}"
        time.sleep(0.01)


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_with_the_pipeline(busy):
    """Also while they compute, and when nodes of the pipeline live on."""
    pipe = made(ours, slow if busy else sample, batch=False, workers=2)
    pipe.start_py_workers()
    node = pipe._made[0].outputs[0]
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
        links = [Path(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
        return sum(one.is_symlink() and "torch_ndd.dali source" in os.readlink(one) for one in links)

    gc.collect()
    files, before = set(os.listdir("/dev/shm")), open_memory()
    pipe = made(ours, lambda number: full(number, 3, (100, 100)), workers=2, prefetch_queue_depth=3)
    for _ in range(3):
        pipe.run()
    assert not {one for one in set(os.listdir("/dev/shm")) - files if "ndd" in one}
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
    assert [int(one.as_array().mean()) for one in outputs] == list(range(6))


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
    workers = [int(one) for one in process.output.split() if one.isdigit()]
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


def test_names_of_both_packages():
    both(lambda dali: [hasattr(made(dali, sample, batch=False), name) for name in ("start_py_workers", "external_source_shm_statistics")])
    assert sub(ours, "external_source").external_source is ours.fn.external_source
