# SPDX-License-Identifier: Apache-2.0
"""GPU calls that run ahead, on a device whose streams are late (late.py), one property at a time."""

import gc
import linecache
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _late_values
import numpy as np
import pytest
import torch
from _late_values import (
    HEIGHT,
    SAMPLES,
    WIDTH,
    compute_expected,
    compute_pending,
    decode_images,
    decode_on_cpu,
    draw_arrays,
    encode_files,
    flip_on_cpu,
    get_work,
    list_streams,
    read_damaged_files,
    upload_array,
)

import torch_ndd as ndd
from torch_ndd._core.values import arithmetic, repeated_kernel
from torch_ndd._core.work import cuda_work, upload


def test_call_returns_before_its_input_is_issued(gate: Any) -> None:
    value = ndd.flip(decode_images(), horizontal=1)
    assert not get_work(value).has_ended()
    gate(False)
    again = ndd.flip(value, horizontal=1)
    assert torch.equal(again.torch().cpu(), decode_images().torch().cpu())


def test_repeated_call_returns_before_its_input_is_issued(gate: Any) -> None:
    for _ in range(8):  # from the fourth on by a plan
        gate(True)
        value = ndd.resize(decode_images(), size=[8, 8])
        assert not get_work(value).has_ended()
        gate(False)
        with ndd.EvalMode.sync_cpu:
            expected = ndd.resize(ndd.decoders.image(encode_files()[0], device="cpu"), size=[8, 8])
        assert torch.equal(value.torch().cpu(), expected.torch())


# Without numbers: torch's own kernels, which fill them on the GPU, do nothing here.
def test_repeated_arithmetic_returns_before_its_input_is_issued(gate: Any) -> None:
    mask, expected = upload_array(), decode_on_cpu().torch() ^ torch.from_numpy(draw_arrays()[0])
    for _ in range(5):  # from the third on by a plan
        gate(True)
        value = decode_images() ^ mask
        assert not get_work(value).has_ended()
        gate(False)
        assert torch.equal(value.torch().cpu(), expected)


def test_repeated_arithmetic_waits_for_operands_of_other_streams() -> None:
    for k in range(20):
        value, expected = upload_array(), torch.from_numpy(draw_arrays()[0])
        for step in range(3):
            other = draw_arrays()[(k + step) % 4]
            with ndd.EvalContext(cuda_stream=list_streams()[(k + step) % 4]):
                value = ndd.math.max(value, ndd.batch(list(other), layout="HWC").gpu()) ^ value
            expected = torch.maximum(expected, torch.from_numpy(other)) ^ expected
        assert torch.equal(value.torch().cpu(), expected)
    assert sum(plan is not None for plan in arithmetic._kernel._plans.values()) >= 2


def test_kept_inputs_serve_calls_on_all_streams() -> None:
    images, expected = upload_array(), torch.from_numpy(draw_arrays()[0])
    for k in range(24):
        with ndd.EvalContext(cuda_stream=list_streams()[k % 4]):
            shifted = ndd.filter(images, [[k % 3, 0], [0, 0]], anchor=0)
            filled = ndd.full_like(images, k % 5)
        assert torch.equal(shifted.torch().cpu(), (expected.int() * (k % 3)).clamp(max=255).to(torch.uint8))
        assert torch.equal(filled.torch().cpu(), torch.full_like(expected, k % 5))


def test_repeated_mixing_returns_before_its_input_is_issued(gate: Any) -> None:
    for k in range(6):  # from the third on by a plan
        gate(True)
        ours = [mix(decode_images(), rng=ndd.random.RNG(k)) for mix in (ndd.augment.mixup, ndd.augment.cutmix)]
        assert not any(get_work(value).has_ended() for value in ours)
        gate(False)
        with ndd.EvalMode.sync_cpu:
            expected = [mix(decode_on_cpu(), rng=ndd.random.RNG(k)) for mix in (ndd.augment.mixup, ndd.augment.cutmix)]
        for value, other in zip(ours, expected, strict=True):
            assert torch.equal(value.torch().cpu(), other.torch())


def test_mixing_of_uploaded_images_is_one_native_call(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, run = [], repeated_kernel.run
    monkeypatch.setattr(repeated_kernel, "run", lambda *arguments: (runs.append(1), run(*arguments))[1])
    images = upload_array()
    for k in range(8):
        with ndd.EvalContext(cuda_stream=list_streams()[k % 4]):
            ours = [mix(images, rng=ndd.random.RNG(k)) for mix in (ndd.augment.mixup, ndd.augment.cutmix)]
        with ndd.EvalMode.sync_cpu:
            expected = [mix(images.cpu(), rng=ndd.random.RNG(k)) for mix in (ndd.augment.mixup, ndd.augment.cutmix)]
        for value, other in zip(ours, expected, strict=True):
            assert torch.equal(value.torch().cpu(), other.torch())
        if k == 1:
            runs.clear()
    assert len(runs) == 2 * 6  # all of them on the CPU


def test_launches_of_a_stream_keep_their_order(gate: Any) -> None:
    issued = upload_array()
    first = ndd.flip(decode_images(), horizontal=1)
    second = ndd.flip(issued, horizontal=1)  # nothing to wait for but the first
    assert not get_work(second).has_ended()
    gate(False)
    get_work(second).wait()
    assert get_work(first).has_ended()


def test_launches_of_another_stream_do_not_join(gate: Any) -> None:
    issued = upload_array()
    first = ndd.flip(decode_images(), horizontal=1)
    with ndd.EvalContext(cuda_stream=list_streams()[0]):
        second = ndd.flip(issued, horizontal=1)
    assert type(second.pending) is cuda_work.StreamWork
    gate(False)
    first.evaluate()


def test_reading_waits_for_the_launch(gate: Any) -> None:
    value = ndd.flip(decode_images(), horizontal=1)
    work = get_work(value)
    opening = threading.Timer(0.05, gate, [False])
    opening.start()
    value.torch()
    assert work.has_ended()
    opening.join()


@pytest.mark.parametrize("has_failed", [False, True])
def test_error_has_the_line_of_its_call_and_passes_on(gate: Any, has_failed: bool) -> None:
    for _ in range(6):  # from the fourth on by plans
        gate(True)
        images = ndd.decoders.image(read_damaged_files(), device="gpu")  # the line of the error
        if has_failed:
            gate(False)
            assert not get_work(images).wait_for_success()
        flipped = ndd.flip(images, horizontal=1)
        resized = ndd.resize(flipped, size=[8, 8])
        brighter = flipped + 1
        later = ndd.flip(decode_images(), horizontal=1)
        gate(False)
        for value in (brighter, resized, flipped, images):
            with pytest.raises(RuntimeError, match=r"(?s)sample 2.*# the line of the error"):
                value.torch()
        assert later.torch().shape == (SAMPLES, HEIGHT, WIDTH, 3)  # what follows on the stream is not affected


@pytest.mark.parametrize("mode", [ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full])
def test_synchronous_mode_waits(mode: Any) -> None:
    with mode:
        value = ndd.flip(decode_images(), horizontal=1)
    assert type(value.pending) is cuda_work.StreamWork


def test_deferred_mode_runs_ahead(gate: Any) -> None:
    with ndd.EvalMode.deferred:
        value = ndd.flip(decode_images(), horizontal=1)
    assert not get_work(value).has_ended()
    gate(False)
    value.evaluate()


def test_launch_on_the_stream_of_the_program_is_not_queued() -> None:
    stream = list_streams()[1]
    with ndd.EvalContext(cuda_stream=stream), torch.cuda.stream(stream.torch):
        value = ndd.flip(decode_images(), horizontal=1)
        assert type(value.pending) is cuda_work.StreamWork
        value.evaluate()


def test_launch_does_not_wait_behind_a_python_function() -> None:
    """The function may launch on the same stream and wait for that: a launch queued behind the function would never be made."""
    stream = list_streams()[2]

    def launch_too(sample: Any) -> Any:
        with ndd.EvalContext(cuda_stream=stream):
            ndd.flip(decode_images(), horizontal=1).torch()
        return np.int32(1)

    with ndd.EvalContext(cuda_stream=stream):
        flag = ndd.python_function(launch_too, ndd.batch([np.int32(k) for k in range(SAMPLES)]))
        value = ndd.flip(decode_images(), horizontal=flag)
        assert value.torch().shape == (SAMPLES, HEIGHT, WIDTH, 3)


def test_dropped_results_leave_nothing_behind() -> None:
    with ndd.EvalContext(cuda_stream=list_streams()[3]):
        for _ in range(20):
            ndd.flip(decode_images(), horizontal=1)
        last = ndd.flip(decode_images(), horizontal=1)
        last.torch().cpu()
        before = torch.cuda.memory_allocated()
        for _ in range(50):
            last = ndd.flip(decode_images(), horizontal=1)
        last.torch().cpu()
    gc.collect()
    ndd.flip(upload_array(), horizontal=1).evaluate()
    assert torch.cuda.memory_allocated() <= before + 8 * last.buffer.nbytes
    assert all(queue.is_empty() for queue in cuda_work.queues.values())


# --- CUDA graphs ---


def test_graph_is_ordered_after_what_was_queued_before(gate: Any) -> None:
    """A result that is queued is waited for when the graph reads it; replays read its memory."""
    expected = flip_on_cpu()
    images = decode_images()
    opener = threading.Timer(0.2, lambda: gate(False))
    opener.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        flipped = ndd.flip(images, horizontal=1)
    opener.join()
    for _ in range(3):
        graph.replay()
        assert torch.equal(flipped.torch().cpu(), expected)
    resized = ndd.resize(flipped, size=[8, 8])  # outside
    with ndd.EvalMode.sync_cpu:
        assert torch.equal(resized.torch().cpu(), ndd.resize(ndd.flip(decode_on_cpu(), horizontal=1), size=[8, 8]).torch())


def test_replays_read_what_the_program_has_written() -> None:
    static = torch.empty((SAMPLES, HEIGHT, WIDTH, 3), dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        flipped = ndd.flip(ndd.as_batch(static, layout="HWC"), horizontal=1)
    for values in draw_arrays():
        pinned = torch.from_numpy(values).pin_memory()
        static.copy_(pinned, non_blocking=True)
        graph.replay()
        assert torch.equal(flipped.torch().cpu(), pinned.flip(2))


def test_graph_cannot_decode() -> None:
    issued = upload_array()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ndd.flip(issued, horizontal=1)
        with pytest.raises(RuntimeError, match="images and videos cannot be decoded within a CUDA graph"):
            decode_images()
    assert torch.equal(ndd.flip(decode_images(), horizontal=1).torch().cpu(), flip_on_cpu())  # the library goes on


def test_graph_is_captured_while_other_threads_run_ahead() -> None:
    """Their calls must not invalidate the capture: CUDA forbids waits, queries and allocations meanwhile."""
    end = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not end.is_set():
                with ndd.EvalContext():
                    assert torch.equal(ndd.flip(decode_images(), horizontal=1).torch().cpu(), flip_on_cpu())
                    assert torch.equal(compute_pending(8).gpu().torch().cpu(), compute_expected(8))
        except BaseException as error:
            errors.append(error)

    images = upload_array()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                flipped = ndd.flip(images, horizontal=1)
                time.sleep(0.01)
            graph.replay()
            assert torch.equal(flipped.torch().cpu(), torch.from_numpy(draw_arrays()[0]).flip(2))
    finally:
        end.set()
        thread.join()
    assert errors == []


def test_contexts_never_have_the_stream_of_a_capture() -> None:
    def create_contexts() -> set[int]:
        contexts = [ndd.EvalContext(device_id=0) for _ in range(70)]  # more than torch's pool and the library's have streams
        return {context.cuda_stream.handle for context in contexts if context.cuda_stream is not None}

    def find_handles(graph_stream: torch.cuda.Stream | None) -> tuple[int, set[int]]:
        found: list[set[int]] = []
        thread = threading.Thread(target=lambda: found.append(create_contexts()))
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=graph_stream, capture_error_mode="thread_local"):
            ndd.flip(images, horizontal=1)  # torch warns of an empty graph
            captured = torch.cuda.current_stream().cuda_stream
            thread.start()
            thread.join()
        assert len(found[0]) > 1
        return captured, found[0]

    images, earlier = upload_array(), create_contexts()
    for stream in (None, *[torch.cuda.Stream() for _ in range(32)]):
        captured, handles = find_handles(stream)
        assert captured not in earlier | handles
    # The program may capture on the stream of a context. That joins no other context.
    captured, handles = find_handles(ndd.stream().torch)
    assert captured in earlier
    assert captured not in handles


# --- Several devices ---


def test_each_device_has_its_queues(gate: Any) -> None:
    """Streams and events of two devices are not mixed, which CUDA forbids, and neither waits for the other."""
    expected = flip_on_cpu()
    issued = [ndd.batch(list(draw_arrays()[0]), layout="HWC").gpu(device).evaluate() for device in (0, 1)]
    values = [ndd.flip(ndd.decoders.image(encode_files()[0], device=f"gpu:{device}"), horizontal=1) for device in (0, 1)]
    assert [value.device.device_id for value in values] == [0, 1]
    assert not any(get_work(value).has_ended() for value in values)
    second = ndd.flip(issued[1], horizontal=1)  # behind those of its device
    assert not get_work(second).has_ended()
    gate(False)
    for value in values:
        assert torch.equal(value.torch().cpu(), expected)
    assert torch.equal(second.torch().cpu(), torch.from_numpy(draw_arrays()[0]).flip(2))


def test_pending_values_are_uploaded_to_each_device() -> None:
    value = compute_pending(256)
    copies = [ndd.flip(value.gpu(device), horizontal=1) for device in (1, 0, 1)]
    assert [copy.device.device_id for copy in copies] == [1, 0, 1]
    for copy in copies:
        assert torch.equal(copy.torch().cpu().flip(2), compute_expected(256))


# --- Interruptions ---


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Make Ctrl-C raise: a shell without job control starts background processes that ignore it, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupted_wait_loses_nothing(gate: Any, ctrl_c: None) -> None:
    value = ndd.flip(decode_images(), horizontal=1)
    copy = compute_pending(8).gpu()
    interrupt = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

    def wait() -> None:
        interrupt.start()  # here: on a busy machine it may take until the next line
        value.torch()

    with pytest.raises(KeyboardInterrupt):
        wait()
    interrupt.join()
    gate(False)
    later = ndd.flip(value, horizontal=1)
    assert torch.equal(value.torch().cpu(), flip_on_cpu())
    assert torch.equal(later.torch().cpu(), flip_on_cpu().flip(2))
    assert torch.equal(copy.torch().cpu(), compute_expected(8))


def test_call_may_be_interrupted_anywhere(busy: Any) -> None:
    """Ctrl-C at each line of a call that queues a launch and of one that queues an upload: later calls work, and the queues become empty."""
    busy(True)
    stream, images = list_streams()[0], decode_images()

    def call() -> None:
        ndd.flip(images, horizontal=1)
        decode_on_cpu().gpu()

    def interrupt_at(count: int) -> bool:
        left = count

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in (cuda_work.__file__, upload.__file__):
                return None
            # Signals are not handled between the body of a `with` statement and its end, nor at a `try:`. CPython 3.11 has no handler for what is
            # raised at a `try:` within a `with`: the lock of the block would stay locked, and other threads wait for it forever.
            if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith(("with ", "try:")):
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    with ndd.EvalContext(cuda_stream=stream):
        call()
        interrupted = 0
        while interrupt_at(interrupted + 1):
            interrupted += 1
            # As torch's context managers, ours leave their stream current if they are interrupted before they end.
            torch.cuda.set_stream(torch.cuda.default_stream())
        assert interrupted > 30
        busy(False)
        assert torch.equal(ndd.flip(images, horizontal=1).torch().cpu(), flip_on_cpu())
        assert torch.equal(compute_pending(8).gpu().torch().cpu(), compute_expected(8))
    assert all(queue.is_empty() for queue in cuda_work.queues.values())


# Programs that end, or fork, while launches are queued, and their exit codes.
_PROGRAMS = {
    "values that are kept": (
        0,
        """
        values = [ndd.flip(ndd.decoders.image(encode_files()[k % 4], device="gpu"), horizontal=1) for k in range(40)]
        values += [compute_pending(256).gpu() for _ in range(10)]
        """,
    ),
    "dropped values": (
        0,
        """
        for k in range(40):
            ndd.flip(ndd.decoders.image(encode_files()[k % 4], device="gpu"), horizontal=1)
            compute_pending(256).gpu()
        """,
    ),
    "an error": (
        3,
        """
        values = [ndd.flip(decode_images(), horizontal=1) for _ in range(20)]
        raise SystemExit(3)
        """,
    ),
    # The parent issues everything before the fork. The child computes on the CPU, and the parent goes on.
    "fork": (
        0,
        """
        values = [ndd.flip(decode_images(), horizontal=1) for _ in range(20)]
        copies = [compute_pending(256).gpu() for _ in range(5)]
        child = os.fork()
        if child == 0:
            with ndd.EvalMode.sync_cpu:
                os._exit(not torch.equal(ndd.flip(decode_on_cpu(), horizontal=1).torch(), flip_on_cpu()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        values.append(ndd.flip(decode_images(), horizontal=1))
        assert all(torch.equal(value.torch().cpu(), flip_on_cpu()) for value in values)
        assert all(torch.equal(copy.torch().cpu(), compute_expected(256)) for copy in copies)
        """,
    ),
}


def _run_programs() -> None:
    """Run each program in a fork of this process, in which CUDA has not been used, and print its exit code."""
    for name, (_, text) in _PROGRAMS.items():
        child = os.fork()
        if child == 0:
            exec(textwrap.dedent(text), globals())
            return  # the interpreter ends as after any program
        print(f"{name}: {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


def test_programs_end_and_fork_with_launches_queued() -> None:
    folders = [str(Path(__file__).parent), str(Path(_late_values.__file__).parent)]
    command = f"import sys; sys.path[:0] = {folders!r}; import running_ahead; running_ahead._run_programs()"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=180, check=False)
    assert result.stderr == ""
    assert result.stdout == "".join(f"{name}: {code}\n" for name, (code, _) in _PROGRAMS.items())


# --- Streams of the program ---


@pytest.mark.parametrize("used_later", [False, True])
def test_stream_of_the_program_reads_before_memory_is_reused(used_later: bool) -> None:
    """torch's allocator knows of every stream that has waited for a result: nothing overwrites the result before that stream has read it."""
    stream = torch.cuda.Stream()
    expected = flip_on_cpu()
    results = []
    for _ in range(10):
        value = ndd.flip(decode_images(), horizontal=1)
        result = torch.empty(expected.shape, dtype=torch.uint8, pin_memory=True)
        with torch.cuda.stream(stream):
            values = value.torch()
            if used_later:
                torch.cuda.current_stream().wait_event(_late_event())
            result.copy_(values, non_blocking=True)
        del value, values
        for _ in range(3):
            ndd.flip(ndd.batch(list(draw_arrays()[1]), layout="HWC").gpu(), horizontal=1)  # in the same memory, if it is free
        results.append(result)
    stream.synchronize()
    assert all(torch.equal(result, expected) for result in results)


def _late_event() -> torch.cuda.Event:
    """Return an event after much work of another stream."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        memory = torch.empty(8, dtype=torch.uint8, device="cuda")
        for _ in range(20):
            memory.copy_(torch.zeros(8, dtype=torch.uint8).pin_memory(), non_blocking=True)
    return cuda_work.record_event(stream)


def test_operators_wait_for_what_a_stream_of_the_program_writes(gate: Any) -> None:
    stream = torch.cuda.Stream()
    pixels = torch.from_numpy(draw_arrays()[2]).pin_memory()
    queued = ndd.flip(decode_images(), horizontal=1)
    with torch.cuda.stream(stream):
        values = torch.empty(pixels.shape, dtype=torch.uint8, device="cuda")
        torch.cuda.current_stream().wait_event(_late_event())
        values.copy_(pixels, non_blocking=True)
        opener = threading.Timer(0.2, lambda: gate(False))
        opener.start()
        mixed = ndd.as_batch(values, layout="HWC") ^ queued  # memory of the program: waits, and the program may then overwrite it
        values.zero_()
    opener.join()
    assert torch.equal(mixed.torch().cpu(), pixels ^ flip_on_cpu())
