# SPDX-License-Identifier: Apache-2.0
"""The CPU stream: when queued work runs, in which order, and what becomes of its errors."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import EvalMode, _native

QUEUED = [EvalMode.deferred, EvalMode.eager]
SYNC = [EvalMode.sync_cpu, EvalMode.sync_full]
CAUSE = "brightness: sample 1 has 5 frames, its arguments are for 3"


def videos(size: int = 4) -> ndd.Batch:
    return ndd.batch([np.ones((frames, size, size, 3), np.uint8) for frames in (2, 5, 2)], layout="FHWC")


def failing(size: int = 4, given: ndd.Batch | None = None) -> ndd.Batch:
    """Fails in the kernel; with a ``size`` of 200 in another thread."""
    return ndd.brightness(videos(size) if given is None else given, brightness=ndd.tensor([1.0, 2.0, 3.0], layout="F"))


def ones(size: int = 300, count: int = 8) -> ndd.Batch:
    return ndd.batch(np.ones((count, size, size, 3), np.uint8), layout="HWC")


def brighter(value: Any, times: int = 1) -> Any:
    for _ in range(times):
        value = ndd.brightness(value, brightness_shift=1 / 255)
    return value


def is_done(value: Any) -> bool:
    return value._pending is None or bool(_native.done(value._pending.handle))


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def error_of(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture(params=[4, 200], ids=["on the spot", "in a thread"])
def size(request: pytest.FixtureRequest) -> int:
    return request.param


# --- order and modes ---


def test_a_task_waits_only_for_its_own_sample() -> None:
    ndd.set_num_threads(2)
    batch = ndd.batch([np.zeros((2, 2, 3), np.uint8), np.zeros((2000, 2000, 3), np.uint8)], layout="HWC")
    chain = brighter(batch, 50)
    brighter(chain.tensors[0]).evaluate()
    assert not is_done(chain)
    assert int(chain.evaluate().select(1).torch().min()) > 0


def test_eager_work_starts_by_itself() -> None:
    result = brighter(ones(), 5)
    assert eventually(lambda: is_done(result))


def test_deferred_work_runs_only_when_it_is_needed() -> None:
    with EvalMode.deferred:
        unused, used = brighter(ones(), 5), brighter(ones(), 5)
    assert int(used.torch()[0, 0, 0, 0]) == 6
    time.sleep(0.05)
    assert not is_done(unused)


def test_deferred_work_runs_what_it_reads() -> None:
    with EvalMode.deferred:
        source = brighter(ones())
        left, right = brighter(source), brighter(source, 2)
    assert not is_done(source)
    assert int(right.torch().max()) == 4
    assert is_done(source)
    assert not is_done(left)


def test_metadata_does_not_run_deferred_work() -> None:
    with EvalMode.deferred:
        result = ndd.brightness(ones(), dtype="f32")
    assert (result.dtype, result.layout, str(result.device), result.ndim, result.batch_size, result.shape[0]) == (
        ndd.float32,
        "HWC",
        "cpu",
        3,
        8,
        (300, 300, 3),
    )
    assert result.tensors[3].shape == (300, 300, 3)
    assert not is_done(result)


@pytest.mark.parametrize("mode", SYNC)
def test_sync_modes_return_finished_work(mode: EvalMode) -> None:
    with mode:
        assert brighter(ones(), 2)._pending is None


def test_external_input_is_read_before_the_call_returns() -> None:
    for mode in EvalMode:
        array = np.ones((4, 300, 300, 3), np.uint8)
        with mode:
            results = [
                ndd.brightness(value, brightness=2.0) for value in (ndd.as_batch(array, layout="HWC"), ndd.as_tensor(array, layout="FHWC"), array)
            ]
        array[:] = 77
        assert [int(result.torch().max()) for result in results] == [2, 2, 2]


def test_modes_nest_and_belong_to_a_thread() -> None:
    seen = []
    with EvalMode.deferred:
        with EvalMode.sync_cpu:
            assert EvalMode.current() is EvalMode.sync_cpu
        thread = threading.Thread(target=lambda: seen.append(EvalMode.current()))
        thread.start()
        thread.join()
        assert EvalMode.current() is EvalMode.deferred
    assert EvalMode.current() is EvalMode.eager
    assert seen == [EvalMode.eager]
    assert len(EvalMode) == 4
    assert EvalMode.default is EvalMode.eager


# --- errors ---


@pytest.mark.parametrize("mode", SYNC)
def test_sync_modes_raise_at_the_call(mode: EvalMode, size: int) -> None:
    with mode, pytest.raises(RuntimeError, match=CAUSE) as error:
        failing(size)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("mode", EvalMode)
def test_external_input_raises_at_the_call(mode: EvalMode, size: int) -> None:
    frames = ndd.as_tensor(np.ones((5, size, size, 3), np.uint8), layout="FHWC")
    with mode, pytest.raises(RuntimeError, match="5 frames") as error:
        ndd.brightness(frames, brightness=ndd.tensor([1.0, 2.0, 3.0], layout="F"))
    assert error.value.__cause__ is None


@pytest.mark.parametrize("mode", QUEUED)
def test_queued_work_raises_when_it_is_used(mode: EvalMode, size: int) -> None:
    with mode:
        result = failing(size)
    how = "deferred evaluation" if mode is EvalMode.deferred else "asynchronous execution"
    uses = [result.evaluate, lambda: result.torch(pad=True), lambda: repr(result), lambda: result.select([0]), lambda: np.asarray(result.select(1))]
    for use in (*uses, *uses):  # it stays so
        error = error_of(use)
        assert type(error) is RuntimeError
        assert str(error) == f"An error happened during {how}"
        assert type(error.__cause__) is RuntimeError
        assert str(error.__cause__) == CAUSE


def inner(size: int) -> ndd.Batch:
    return failing(size)


def outer(size: int) -> ndd.Batch:
    return inner(size)


@pytest.mark.parametrize("mode", QUEUED)
def test_the_cause_shows_the_line_of_the_call(mode: EvalMode, size: int) -> None:
    with mode:
        result = outer(size)
    del size
    cause = error_of(result.evaluate).__cause__
    assert cause is not None
    lines = traceback.extract_tb(cause.__traceback__)
    assert [line.name for line in lines[-4:]] == ["test_the_cause_shows_the_line_of_the_call", "outer", "inner", "failing"]
    assert [line.line for line in lines[-4:-1]] == ["result = outer(size)", "return inner(size)", "return failing(size)"]
    assert (lines[-1].line or "").startswith("return ndd.brightness(")
    assert all("torch_ndd" + os.sep not in line.filename for line in lines)


def test_frames_of_the_call_are_not_kept_alive() -> None:
    class Marker:
        alive = 0

        def __init__(self) -> None:
            Marker.alive += 1

        def __del__(self) -> None:
            Marker.alive -= 1

    def call() -> ndd.Batch:
        marker = Marker()
        assert marker.alive == 1
        return failing()

    result = call()
    assert Marker.alive == 0
    error_of(result.evaluate)


@pytest.mark.parametrize("mode", QUEUED)
def test_dependants_fail_with_the_first_cause(mode: EvalMode, size: int) -> None:
    with mode:
        chain = [failing(size)]
        for _ in range(5):
            chain.append(ndd.brightness(chain[-1]))
        for result in reversed(chain):
            cause = error_of(result.evaluate).__cause__
            assert str(cause) == CAUSE
            assert cause is not None
            assert traceback.extract_tb(cause.__traceback__)[-1].name == "failing"
        assert str(error_of(ndd.brightness(chain[0]).evaluate).__cause__) == CAUSE


def test_a_failure_in_the_middle_of_a_chain(size: int) -> None:
    good = ndd.brightness(videos(size))
    bad = ndd.brightness(failing(given=good))
    assert str(error_of(bad.evaluate).__cause__) == CAUSE
    assert good.evaluate().batch_size == 3


def test_a_failed_argument_fails_the_call(size: int) -> None:
    bad = failing(size)
    with pytest.raises(RuntimeError, match="An error happened"):
        ndd.brightness(ndd.batch(np.ones((3, 2, 2, 3), np.uint8), layout="HWC"), brightness=bad).evaluate()


def test_unused_failures_are_silent_and_nothing_is_printed(capfd: pytest.CaptureFixture[str], size: int) -> None:
    for _ in range(10):
        failing(size)
        error_of(failing(size).evaluate)
    gc.collect()
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_stream_stays_usable_after_failures(size: int, threads: int) -> None:
    del threads
    for _ in range(20):
        bad = failing(size)
        assert int(brighter(ones(), 3).torch().max()) == 4
        error_of(bad.evaluate)


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("mode", EvalMode)
def test_memory_is_flat_over_failing_calls(mode: EvalMode) -> None:
    def fail(times: int) -> None:
        for k in range(times):
            with mode:
                error_of(lambda: failing(64).evaluate())
                if mode in QUEUED and k % 2:
                    failing(64)

    fail(200)
    before = resident()
    fail(2000)
    assert resident() - before < 4 << 20


# --- threads ---


def test_number_of_threads_changes_with_pending_work() -> None:
    results = []
    for round_ in range(24):
        results.append(brighter(ones(200, 6), 4))
        ndd.set_num_threads(1 + round_ * 5 % 8)
    assert all(int(result.torch().min()) == int(result.torch().max()) == 5 for result in results)


def test_number_of_threads_is_checked() -> None:
    for wrong, kind in ((0, ValueError), (-1, ValueError), (10**6, ValueError), ("2", TypeError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(kind, match="threads"):
            ndd.set_num_threads(wrong)  # type: ignore[arg-type]
    ndd.set_num_threads(3)
    assert ndd.get_num_threads() == 3
    with ndd.EvalContext(num_threads=2) as context:
        assert context.num_threads == 2
        assert ndd.EvalContext.current() is context


def test_several_python_threads(threads: int) -> None:
    del threads
    shared = brighter(ones(100), 3)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with [EvalMode.deferred, EvalMode.eager][seed % 2]:
                for k in range(15):
                    own = brighter(ones(60 + k, 3), 3)
                    both = brighter(shared)
                    assert int(own.torch().max()) == 4
                    assert int(both.torch().min()) == 5
                    error_of(failing(40).evaluate)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_one_result_in_several_threads() -> None:
    for _ in range(20):
        with EvalMode.deferred:
            result = brighter(ones(100), 3)
        seen: list[int] = []
        workers = [threading.Thread(target=lambda value=result, sums=seen: sums.append(int(value.torch().sum()))) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(set(seen)) == 1


# --- long programs ---


@pytest.mark.parametrize("mode", QUEUED)
@pytest.mark.parametrize("used", [True, False])
def test_a_chain_of_20000_operations(mode: EvalMode, used: bool) -> None:
    with mode:
        value = ndd.batch(np.zeros((2, 1, 1, 3), np.int32), layout="HWC")
        value = ndd.brightness(value, brightness=1.0)
        for _ in range(20_000):
            value = ndd.brightness(value)
    if used:
        assert int(value.torch().max()) == 0


def test_an_endless_eager_chain_does_not_grow() -> None:
    value = ones(60, 4)

    def go_on(times: int) -> None:
        nonlocal value
        for _ in range(times):
            value = ndd.brightness(value)

    go_on(300)
    before = resident()
    go_on(3000)
    assert resident() - before < 8 << 20


def test_kernels_outside_a_call_let_their_tensors_go() -> None:
    images = torch.zeros(8, 300, 300, 3, dtype=torch.uint8)
    step = torch.compile(lambda x: ndd.crop(x, crop=(280, 280)), backend="eager")  # a kernel: crop has no formula

    def run(times: int) -> None:
        for _ in range(times):
            step(ndd.as_batch(images.clone(), layout="HWC")).torch()

    run(5)
    before = resident()
    run(100)
    assert resident() - before < 20 << 20  # kept, they take 190 MB


def test_large_buffers_are_used_again() -> None:
    image = ndd.batch(np.zeros((1, 3400, 3400, 3), np.uint8), layout="HWC")
    addresses = set()
    for _ in range(5):
        addresses.add(ndd.brightness(image).torch().data_ptr())
    assert len(addresses) == 1
    kept = [ndd.brightness(image).torch() for _ in range(2)]
    assert kept[0].data_ptr() != kept[1].data_ptr()


# --- processes ---

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_fork_with_pending_work() -> None:
    pending = brighter(ones(), 6)
    with EvalMode.deferred:
        deferred = brighter(ones(), 6)

    def work() -> bool:
        torch.set_num_threads(1)  # torch's own threads do not survive a fork
        results = [int(value.torch().min()) for value in (pending, deferred, brighter(ones(), 6))]
        return results == [7, 7, 7] and str(error_of(failing(200).evaluate).__cause__) == CAUSE

    for _ in range(5):
        assert in_child(work) == 0
        assert int(brighter(pending).torch().max()) == 8
    assert int(deferred.torch().min()) == 7


class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, k: int) -> torch.Tensor:
        return brighter(ndd.batch(np.full((2, 200, 200, 3), k, np.uint8), layout="HWC"), 3).torch()


def test_dataloader_workers() -> None:
    brighter(ones(), 6)
    loader = torch.utils.data.DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [int(batch.max()) for batch in loader] == [4, 6, 8, 10]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    head = "import numpy as np, threading, torch_ndd as ndd\nfrom torch_ndd import EvalMode\n"
    batch = "b = ndd.batch(np.ones((16, 500, 500, 3), np.uint8), layout='HWC')\n"
    return subprocess.run([sys.executable, "-c", head + batch + textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "code",
    [
        "kept = [b]\nfor _ in range(100): kept.append(ndd.brightness(kept[-1]))",
        "with EvalMode.deferred:\n    for _ in range(100): b = ndd.brightness(b)",
        "threading.Thread(target=lambda: [ndd.brightness(b).torch() for _ in range(50)], daemon=True).start()\nc = ndd.brightness(b)",
        "import atexit\nc = ndd.brightness(b)\natexit.register(lambda: ndd.brightness(c).torch())",
        "ndd.set_num_threads(4)\nc = [ndd.brightness(b) for _ in range(20)]\nimport sys\nsys.exit(0)",
        *["for _ in range(3): ndd.brightness(b).evaluate()"] * 5,  # threads that are just going to sleep
    ],
    ids=["eager", "deferred", "daemon thread", "atexit", "sys.exit", *["threads at rest"] * 5],
)
def test_exit_with_pending_work(code: str) -> None:
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_uncaught_error_shows_the_call() -> None:
    done = run_python(
        "c = ndd.brightness(ndd.batch([np.ones((5, 2, 2, 3))], layout='FHWC'), brightness=ndd.tensor([1., 2.], layout='F'))\n\nc.torch()"
    )
    assert done.returncode == 1
    cause, _, wrapper = done.stderr.partition("The above exception was the direct cause")
    assert "line 4, in <module>\nRuntimeError: brightness: sample 0 has 5 frames" in cause
    assert wrapper.rstrip().endswith("RuntimeError: An error happened during asynchronous execution")


def test_the_number_of_threads_comes_from_the_environment() -> None:
    environment = {**os.environ, "DALI_NUM_THREADS": "3"}
    code = "import torch_ndd; print(torch_ndd.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120, check=True)
    assert done.stdout == "3\n"


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    yield
    assert EvalMode.current() is EvalMode.eager
