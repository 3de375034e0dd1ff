# SPDX-License-Identifier: Apache-2.0
"""What ends with a pipeline, and with the program."""

import contextlib
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from _forks import Forks

from torch_ndd import EvalContext
from torch_ndd._core.process.workers import call_soon
from torch_ndd.dali import Pipeline, fn
from torch_ndd.dali._inputs import worker_pool as _worker_pool


@pytest.fixture(scope="module")
def forks() -> Any:
    with Forks("torch_ndd.dali") as result:
        yield result


def parallel(source: Any, workers: int = 2) -> Pipeline:
    pipe = Pipeline(4, 1, py_num_workers=workers, prefetch_queue_depth=1)
    with pipe:
        pipe.set_outputs(fn.external_source(source, parallel=True, batch=False))
    return pipe


def alive(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


def ends(process: int, seconds: float = 30.0) -> bool:
    """Return whether a process ends in this time."""
    last = time.monotonic() + seconds
    while alive(process) and time.monotonic() < last:
        time.sleep(0.01)
    return not alive(process)


def make_array(info: Any) -> np.ndarray:
    return np.full(3, info.iteration)


def given_late(info: Any) -> np.ndarray:
    if info.iteration > 2:
        time.sleep(1000)
    return make_array(info)


@pytest.mark.parametrize("source", [make_array, given_late])
@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_the_workers_have_ended_when_the_pipeline_is_gone(source: Any, in_a_cycle: bool) -> None:
    pipe = parallel(source)
    for _ in range(3):
        pipe.run()
    workers = pipe.__dict__["_py_pool"].processes
    assert all(map(alive, workers))
    if in_a_cycle:
        pipe.__dict__["itself"] = pipe
    del pipe
    if in_a_cycle:
        gc.collect()
    assert not any(map(alive, workers))


ONES = np.ones((2, 1), np.float32)


def until(stop: int, error: type[Exception]) -> Any:
    """Return a source, and also a function of samples, that fails at its call number ``stop``."""
    calls: list[Any] = []

    def call(sample: Any = None) -> Any:
        calls.append(sample)
        if len(calls) == stop:
            raise error
        return ONES if sample is None else sample

    return call


def three(info: Any) -> np.ndarray:
    if info.iteration == 3:
        raise StopIteration
    return ONES[0]


ENDINGS: dict[str, Any] = {
    "data": lambda: fn.external_source([ONES] * 3),
    "samples": lambda: fn.external_source(three, batch=False),
    "several sources": lambda: (fn.external_source([ONES] * 3), fn.external_source([ONES] * 4)),
    "parallel source": lambda: fn.external_source(three, parallel=True, batch=False),
    "error of a source": lambda: fn.external_source(until(3, LookupError)),
    "error of a Python function": lambda: fn.python_function(fn.external_source([ONES] * 4), function=until(4, LookupError)),
    "error of an operator": lambda: fn.slice(fn.external_source([np.ones((2, 2))] * 3), 0, 4, axes=[0]),
    "error of a decoder": lambda: fn.decoders.image(fn.external_source([np.zeros((2, 9), np.uint8)] * 3)),
    "batch sizes": lambda: (fn.external_source([ONES]), fn.external_source([ONES[:1]])),
    "input that is not fed": lambda: fn.external_source(name="x"),
    "missing files": lambda: fn.readers.file(files=["/nowhere"])[0],
    "nothing to read": lambda: fn.readers.file(file_root="/nowhere")[0],
    "refused checkpoint": lambda: fn.random.uniform(),
}


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_pipeline_that_ended_or_failed_is_gone_with_its_last_reference(name: str, depth: int) -> None:
    """Its errors hold it as long as they are kept, no longer: otherwise memory and processes stay until garbage is collected."""
    refused = {"enable_checkpointing": True, "checkpoint": b"garbage"} if "checkpoint" in name else {}
    pipe = Pipeline(2, 1, prefetch_queue_depth=depth, **refused)
    with pipe:
        result = ENDINGS[name]()
        pipe.set_outputs(*(result if isinstance(result, tuple) else [result]))
    gone = weakref.ref(pipe)
    gc.disable()
    try:
        for _ in range(6):
            with contextlib.suppress(Exception):
                pipe.run()
        del pipe
        assert gone() is None
    finally:
        gc.enable()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A job in the background of a shell ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_the_workers_end_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops exceptions of ``__del__``, and it is there that a pipeline waits for its workers."""
    closing, close = threading.Event(), _worker_pool.WorkerPool._close

    def close_noticed(pool: _worker_pool.WorkerPool) -> None:
        closing.set()
        close(pool)

    def interrupt_the_wait() -> None:
        if closing.wait(60):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(_worker_pool.WorkerPool, "_close", close_noticed)
    pipes = [parallel(given_late)]
    for _ in range(3):
        pipes[0].run()
    workers = pipes[0].__dict__["_py_pool"].processes
    # Not after a time: on a busy machine the interrupt would come before the context that expects it, and end the whole run.
    interrupting = threading.Thread(target=interrupt_the_wait)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        drop(pipes)
    interrupting.join()
    assert all(map(ends, workers))


class EndsSlowly:
    def __del__(self) -> None:
        call_soon(_worker_pool._interrupt_main)
        time.sleep(0.3)  # an exception in here is dropped


@pytest.mark.usefixtures("interruptible")
def test_the_interrupt_comes_when_python_does_not_drop_it() -> None:
    objects: list[Any] = [EndsSlowly()]
    with pytest.raises(KeyboardInterrupt):
        drop(objects)


def drop(pipes: list[Any]) -> None:
    pipes.clear()
    for _ in range(1000):
        time.sleep(0.01)


def test_a_context_that_cannot_be_entered_is_an_error_of_the_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(context: EvalContext) -> EvalContext:
        raise RuntimeError("the device is gone")

    pipe = Pipeline(4, 1, prefetch_queue_depth=1)  # with 2 another iteration may fail before the context can be entered again
    with pipe:
        pipe.set_outputs(fn.random.uniform(range=[0, 1]))
    pipe.build()
    monkeypatch.setattr(EvalContext, "__enter__", refuse)
    with pytest.raises(RuntimeError, match="the device is gone"):
        pipe.run()
    monkeypatch.undo()
    assert pipe.run()[0].shape() == [()] * 4


def test_an_interrupt_while_waiting_loses_no_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipeline(2, 1)
    with pipe:
        pipe.set_outputs(fn.external_source(source=lambda info: np.int32([info.idx_in_epoch]), batch=False))
    taken = [pipe.run()[0].as_array().flatten().tolist()]
    with monkeypatch.context() as patch:
        patch.setattr(Future, "result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pipe.run()
    taken += [pipe.run()[0].as_array().flatten().tolist() for _ in range(3)]
    assert taken == [[0, 1], [2, 3], [4, 5], [6, 7]]


def interrupt(future: object) -> None:
    raise KeyboardInterrupt


FUNCTION = """
import atexit, time
import numpy as np
from torch_ndd.dali import Pipeline, fn
calls = []

def function():
    calls.append(1)
    time.sleep(0.02)
    return np.zeros(1)

pipe = Pipeline(8, 1, prefetch_queue_depth=20)
with pipe:
    pipe.set_outputs(fn.python_function(function=function))
atexit.register(lambda: print(len(calls)))
pipe.run()
"""


def test_iterations_that_were_issued_do_not_run_after_the_end_of_the_program(forks: Forks) -> None:
    process = forks.run(FUNCTION)
    assert process.wait(120) == 0, process.errors
    assert process.errors == ""
    assert 8 <= int(process.output) < 20 * 8


DEAF = """
import os, signal, sys, time
import numpy as np
import torch_ndd as ndd

class Numbers:
    def __len__(self):
        return 8

    def __getitem__(self, k):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("worker", os.getpid(), flush=True)
        if k >= 4:
            time.sleep(1000)
        return np.full(3, k)

loader = ndd.DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="fork")
batches = iter(loader)
next(batches)
if sys.argv[1] == "drops":
    del batches
print("ends", flush=True)
"""


# What the program still holds when it ends has threads that wait for an item.
@pytest.mark.parametrize("how", ["drops", "keeps"])
def test_the_program_does_not_wait_for_loading_processes_that_ignore_signals(forks: Forks, how: str) -> None:
    process = forks.run(DEAF, how)
    process.wait_for("ends")
    workers = {int(value) for value in process.output.split() if value.isdigit()}
    assert workers
    assert process.wait(120) == 0, process.errors
    assert not any(map(alive, workers))


def test_an_operator_of_another_pipeline_is_refused() -> None:
    value, other = Pipeline(2, 1), Pipeline(2, 1)
    with value:
        node = fn.external_source(source=[np.zeros(2)], batch=False, cycle=True, name="of_one")
        value.set_outputs(node + 1)
    with other:
        other.set_outputs(node + fn.constant(fdata=1.0))
    with pytest.raises(RuntimeError, match=r"of_one.*another pipeline") as error:
        other.build()
    assert repr(value) in str(error.value)
    assert repr(other) in str(error.value)
    assert np.asarray(value.run()[0].as_array()).tolist() == [[1.0, 1.0]] * 2  # it can still be used


def test_an_operator_of_a_deleted_pipeline_is_refused() -> None:
    value, other = Pipeline(2, 1), Pipeline(2, 1)
    with value:
        node = fn.constant(fdata=1.0)
    del value
    with other:
        other.set_outputs(node)
    with pytest.raises(RuntimeError, match="another pipeline, which was deleted"):
        other.build()
