# SPDX-License-Identifier: Apache-2.0
"""The CPU stream: when and in which order queued work runs, and how its errors are reported."""

import gc
import os
import re
import threading
import time
import traceback
from collections.abc import Iterator

import numpy as np
import psutil
import pytest
import torch
from _queued import CAUSE, QUEUED, SYNC, brighter, error_of, eventually, failing, held_until, is_done, ones, videos
from _threads import run_in_threads

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd._core import native


@pytest.fixture(params=[4, 200], ids=["on the spot", "in a thread"])
def size(request: pytest.FixtureRequest) -> int:
    return request.param


# --- order and modes ---


def test_a_task_waits_only_for_its_own_sample() -> None:
    ndd.set_num_threads(2)
    batch = ndd.batch([np.zeros((2, 2, 3), np.uint8), np.zeros((1500, 1500, 3), np.uint8)], layout="HWC")
    go_on = threading.Event()
    chain = brighter(held_until(go_on, brighter(batch), from_size=1500), 5)
    brighter(chain.tensors[0]).evaluate()
    assert not is_done(chain)
    go_on.set()
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
        assert brighter(ones(), 2).pending is None


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
    uses = [result.evaluate, lambda: result.torch(pad=True), lambda: repr(result), result.tensors[0].evaluate, lambda: np.asarray(result.select(1))]
    for use in (*uses, *uses):  # it stays so
        error = error_of(use)
        assert type(error) is RuntimeError
        first, second = str(error).split("\n")
        assert first == CAUSE
        assert re.fullmatch(r"called at \S+_queued\.py:\d+: return ndd\.grid_mask\(.*", second)
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
    assert (lines[-1].line or "").startswith("return ndd.grid_mask(")
    package = os.path.dirname(ndd.__file__) + os.sep  # the checkout may have the package's name too
    assert not any(line.filename.startswith(package) for line in lines)


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
    bad = ndd.brightness(failing(input=good))
    assert str(error_of(bad.evaluate).__cause__) == CAUSE
    assert good.evaluate().batch_size == 3


def test_a_failed_argument_fails_the_call(size: int) -> None:
    bad = failing(size)
    with pytest.raises(RuntimeError, match="called at"):
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


measures_memory = pytest.mark.skipif(b"sanitizer none" not in native.build_info(), reason="a sanitizer keeps freed memory")


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.slow
@measures_memory
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
            ndd.set_num_threads(wrong)
    ndd.set_num_threads(3)
    assert ndd.get_num_threads() == 3
    with ndd.EvalContext(num_threads=2) as context:
        assert context.num_threads == 2
        assert ndd.EvalContext.current() is context


def test_several_python_threads(threads: int) -> None:
    del threads
    shared = brighter(ones(100), 3)

    def work(seed: int) -> None:
        with [EvalMode.deferred, EvalMode.eager][seed % 2]:
            for k in range(15):
                own = brighter(ones(60 + k, 3), 3)
                both = brighter(shared)
                assert int(own.torch().max()) == 4
                assert int(both.torch().min()) == 5
                error_of(failing(40).evaluate)

    run_in_threads(work, 6)


def test_one_result_in_several_threads() -> None:
    for _ in range(20):
        with EvalMode.deferred:
            result = brighter(ones(100), 3)
        assert len(set(run_in_threads(lambda _, value=result: int(value.torch().sum()), 4))) == 1


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


@measures_memory
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


@measures_memory
def test_kernels_outside_a_call_let_their_tensors_go() -> None:
    images = torch.zeros(8, 300, 300, 3, dtype=torch.uint8)
    step = torch.compile(lambda x: ndd.crop(x, crop=(280, 280)), backend="eager")  # a kernel: crop has no formula

    def run(times: int) -> None:
        for _ in range(times):
            step(ndd.as_batch(images.clone(), layout="HWC")).torch()

    run(5)
    before = resident()
    run(100)
    assert resident() - before < 20 << 20  # if kept, they take 190 MB


@pytest.mark.skipif(b"sanitizer address" in native.build_info(), reason="nothing is kept, so its use after it is freed is found")
@pytest.mark.parametrize("size", [900, 3400])
def test_large_buffers_are_used_again(size: int) -> None:
    image = ndd.batch(np.zeros((1, size, size, 3), np.uint8), layout="HWC")
    addresses = set()
    for _ in range(5):
        addresses.add(ndd.brightness(image).torch().data_ptr())
    assert len(addresses) == 1
    kept = [ndd.brightness(image).torch() for _ in range(2)]
    assert kept[0].data_ptr() != kept[1].data_ptr()


@pytest.mark.skipif(b"sanitizer address" in native.build_info(), reason="nothing is kept, so its use after it is freed is found")
def test_large_buffers_are_used_again_for_somewhat_larger_results() -> None:
    heights = (1030, 1100, 1050, 1160)  # 9.3 to 10.4 MB
    inputs = [ndd.batch([np.zeros((height, width, 3), np.uint8) for width in (1500, 1499)], layout="HWC") for height in heights]
    addresses = {ndd.brightness(images).evaluate().buffer.data_ptr() for images in inputs}
    assert len(addresses) == 1


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    yield
    assert EvalMode.current() is EvalMode.eager
