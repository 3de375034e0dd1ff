# SPDX-License-Identifier: Apache-2.0
"""GPU calls that run ahead, on a device whose streams are late: random programs equal their synchronous runs on the CPU.

See late.py. A launch out of order, or memory that returns to torch's allocator too early, gives other values. ``NDD_PROGRAMS`` is the number of
programs (by default 300).
"""

import ctypes
import functools
import gc
import io
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.work import cuda_work

PROGRAMS = int(os.environ.get("NDD_PROGRAMS", "300"))
SAMPLES, HEIGHT, WIDTH = 3, 16, 24


def _jpeg(rng: np.random.Generator) -> np.ndarray:
    stored = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)).save(stored, "JPEG")
    return np.frombuffer(stored.getvalue(), np.uint8)


@functools.cache
def _files() -> list[Any]:
    rng = np.random.default_rng(1)
    return [ndd.batch([_jpeg(rng) for _ in range(SAMPLES)]).evaluate() for _ in range(4)]


@functools.cache
def _read_damaged_files() -> Any:
    intact = _files()[0].tensors
    return ndd.batch([intact[0], intact[1], np.concatenate([np.asarray(intact[2])[:-200], np.zeros(9, np.uint8)])]).evaluate()


@functools.cache
def _arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.integers(0, 256, (SAMPLES, HEIGHT, WIDTH, 3), dtype=np.uint8) for _ in range(4)]


@functools.cache
def _streams() -> list[Any]:
    return [ndd.stream() for _ in range(4)]


class _Run:
    """One run of a random program: on the GPU with results that run ahead, or on the CPU. Both draw the same steps."""

    def __init__(self, seed: int, on_gpu: bool, shared: list[Any]) -> None:
        self._random, self._on_gpu = random.Random(seed), on_gpu
        self._values: list[Any] = list(shared)
        self.results: list[torch.Tensor] = []

    def run(self, steps: int) -> None:
        choices: list[Callable[[], Any]] = [self._decode, self._decode, self._upload, self._blur, self._xor, self._flip, self._flip_by_pending]
        choices += [self._brightness, self._resize, self._drop, self._consume]
        for _ in range(steps):
            step, stream = self._random.choice(choices), self._random.randrange(4)
            if not self._on_gpu:
                value = step()
            else:
                with ndd.EvalContext(cuda_stream=_streams()[stream]):
                    value = step()
            if value is not None:
                self._values.append(value)
        for value in self._values:
            self._store(value)

    def _pick(self) -> Any:
        return self._random.choice(self._values) if self._values else self._upload()

    def _store(self, value: Any) -> None:
        self.results.append(value.torch().cpu().clone())

    def _decode(self) -> Any:
        return ndd.decoders.image(self._random.choice(_files()), device="gpu" if self._on_gpu else "cpu")

    def _upload(self) -> Any:
        value = ndd.batch(list(self._random.choice(_arrays())), layout="HWC")
        return value.gpu() if self._on_gpu else value

    def _blur(self) -> Any:
        return ndd.gaussian_blur(self._pick(), window_size=3)

    def _xor(self) -> Any:
        return self._pick() ^ self._pick()

    def _flip(self) -> Any:
        return ndd.flip(self._pick(), horizontal=self._random.randrange(2), vertical=self._random.randrange(2))

    def _flip_by_pending(self) -> Any:
        """Flip as the host computes from images that it decodes: an argument that is pending there."""
        sums = ndd.reductions.sum(ndd.decoders.image(self._random.choice(_files()), device="cpu"))
        return ndd.flip(self._pick(), horizontal=ndd.cast(sums % 2, dtype=ndd.int32))

    def _brightness(self) -> Any:
        return ndd.brightness(self._pick(), brightness=[self._random.random() * 2 for _ in range(SAMPLES)])

    def _resize(self) -> Any:
        return ndd.resize(ndd.resize(self._pick(), size=[WIDTH, HEIGHT]), size=[HEIGHT, WIDTH])

    def _drop(self) -> None:
        if self._values:
            del self._values[self._random.randrange(len(self._values))]

    def _consume(self) -> None:
        self._store(self._pick())


def _run_threads(seed: int, on_gpu: bool) -> list[list[torch.Tensor]]:
    """Run two programs in two threads, which share a value, and return what each has read."""
    shared = [ndd.decoders.image(_files()[seed % 4], device="gpu" if on_gpu else "cpu")]
    runs = [_Run(2 * seed + k, on_gpu, shared) for k in range(2)]
    errors: list[BaseException] = []

    def work(run: _Run) -> None:
        try:
            run.run(10)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [run.results for run in runs]


@pytest.mark.parametrize("part", range(10))
def test_random_programs_equal_their_synchronous_runs(part: int) -> None:
    for seed in range(part * PROGRAMS // 20, (part + 1) * PROGRAMS // 20):  # two programs each
        with ndd.EvalMode.sync_cpu:
            expected = _run_threads(seed, on_gpu=False)
        found = _run_threads(seed, on_gpu=True)
        for theirs, ours in zip(expected, found, strict=True):
            for k, (a, b) in enumerate(zip(theirs, ours, strict=True)):
                assert torch.equal(a, b), f"value {k} of the program with seed {seed}"


# --- Single properties ---


@pytest.fixture
def gate() -> Iterator[Callable[[bool], None]]:
    """A function that keeps images from being decoded, or lets them be."""
    close = ctypes.CDLL(str(native.PATH)).ndd_late_close_gate
    close(1)
    yield close
    close(0)


def _decode_images() -> Any:
    return ndd.decoders.image(_files()[0], device="gpu")


def _work(value: Any) -> Any:
    assert isinstance(value.pending, cuda_work.QueuedWork)
    return value.pending.host


def test_call_returns_before_its_input_is_issued(gate: Any) -> None:
    value = ndd.flip(_decode_images(), horizontal=1)
    assert not _work(value).has_ended()
    gate(False)
    again = ndd.flip(value, horizontal=1)
    assert torch.equal(again.torch().cpu(), _decode_images().torch().cpu())


def test_repeated_call_returns_before_its_input_is_issued(gate: Any) -> None:
    for _ in range(8):  # from the fourth on by a plan
        gate(True)
        value = ndd.resize(_decode_images(), size=[8, 8])
        assert not _work(value).has_ended()
        gate(False)
        with ndd.EvalMode.sync_cpu:
            expected = ndd.resize(ndd.decoders.image(_files()[0], device="cpu"), size=[8, 8])
        assert torch.equal(value.torch().cpu(), expected.torch())


def test_launches_of_a_stream_keep_their_order(gate: Any) -> None:
    issued = _upload()
    first = ndd.flip(_decode_images(), horizontal=1)
    second = ndd.flip(issued, horizontal=1)  # nothing to wait for but the first
    assert not _work(second).has_ended()
    gate(False)
    _work(second).wait()
    assert _work(first).has_ended()


def _upload() -> Any:
    return ndd.batch(list(_arrays()[0]), layout="HWC").gpu().evaluate()


def test_launches_of_another_stream_do_not_join(gate: Any) -> None:
    issued = _upload()
    first = ndd.flip(_decode_images(), horizontal=1)
    with ndd.EvalContext(cuda_stream=_streams()[0]):
        second = ndd.flip(issued, horizontal=1)
    assert type(second.pending) is cuda_work.StreamWork
    gate(False)
    first.evaluate()


def test_reading_waits_for_the_launch() -> None:
    value = ndd.flip(_decode_images(), horizontal=1)
    value.torch()
    assert _work(value).has_ended()


def test_error_has_the_line_of_its_call_and_passes_on() -> None:
    images = ndd.decoders.image(_read_damaged_files(), device="gpu")  # the line of the error
    flipped = ndd.flip(images, horizontal=1)
    resized = ndd.resize(flipped, size=[8, 8])
    later = ndd.flip(_decode_images(), horizontal=1)
    for value in (resized, flipped, images):
        with pytest.raises(RuntimeError, match=r"(?s)sample 2.*# the line of the error"):
            value.torch()
    assert later.torch().shape == (SAMPLES, HEIGHT, WIDTH, 3)  # what follows on the stream is not affected


@pytest.mark.parametrize("mode", [ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full])
def test_synchronous_mode_waits(mode: Any) -> None:
    with mode:
        value = ndd.flip(_decode_images(), horizontal=1)
    assert type(value.pending) is cuda_work.StreamWork


def test_deferred_mode_runs_ahead(gate: Any) -> None:
    with ndd.EvalMode.deferred:
        value = ndd.flip(_decode_images(), horizontal=1)
    assert not _work(value).has_ended()
    gate(False)
    value.evaluate()


def test_launch_on_the_stream_of_the_program_is_not_queued() -> None:
    stream = _streams()[1]
    with ndd.EvalContext(cuda_stream=stream), torch.cuda.stream(stream.torch):
        value = ndd.flip(_decode_images(), horizontal=1)
        assert type(value.pending) is cuda_work.StreamWork
        value.evaluate()


def test_launch_does_not_wait_behind_a_python_function() -> None:
    """The function may launch on the same stream and wait for that: a launch queued behind the function would never be made."""
    stream = _streams()[2]

    def launch_too(sample: Any) -> Any:
        with ndd.EvalContext(cuda_stream=stream):
            ndd.flip(_decode_images(), horizontal=1).torch()
        return np.int32(1)

    with ndd.EvalContext(cuda_stream=stream):
        flag = ndd.python_function(launch_too, ndd.batch([np.int32(k) for k in range(SAMPLES)]))
        value = ndd.flip(_decode_images(), horizontal=flag)
        assert value.torch().shape == (SAMPLES, HEIGHT, WIDTH, 3)


def test_dropped_results_leave_nothing_behind() -> None:
    with ndd.EvalContext(cuda_stream=_streams()[3]):
        for _ in range(20):
            ndd.flip(_decode_images(), horizontal=1)
        last = ndd.flip(_decode_images(), horizontal=1)
        last.torch().cpu()
        before = torch.cuda.memory_allocated()
        for _ in range(50):
            last = ndd.flip(_decode_images(), horizontal=1)
        last.torch().cpu()
    gc.collect()
    ndd.flip(_upload(), horizontal=1).evaluate()
    assert torch.cuda.memory_allocated() <= before + 8 * last.buffer.nbytes
    assert all(queue.is_empty() for queue in cuda_work._queues.values())


def test_loader_has_its_batches_in_flight(gate: Any) -> None:
    """The thread of the loader prepares all of them without waiting for one to be decoded."""
    prepared: list[Any] = []

    def prepare(files: Any) -> Any:
        value = ndd.crop_mirror_normalize(ndd.resize(_decode_images(), size=[8, 8]), mean=[1.0] * 3, std=[2.0] * 3, output_layout="CHW")
        prepared.append(_work(value))
        return value

    loader = ndd.DataLoader([(np.zeros(1, np.uint8),)] * 24, batch_size=3, fn=prepare, prefetch=3)
    taken: list[Any] = []
    reader = threading.Thread(target=lambda: taken.extend(loader))  # waits for the first batch
    reader.start()
    end = time.monotonic() + 20
    while len(prepared) < 3 and time.monotonic() < end:
        time.sleep(0.001)
    in_flight = [not work.has_ended() for work in prepared]
    gate(False)
    reader.join()
    assert len(in_flight) >= 3
    assert all(in_flight)
    assert len(taken) == 8
