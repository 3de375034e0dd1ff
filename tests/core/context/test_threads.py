# SPDX-License-Identifier: Apache-2.0
"""Many Python threads get the same results as one, in every mode. ``NDD_THREAD_BATCHES`` shortens it, for the sanitizers."""

import os
import queue
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from _threads import run_in_threads

import torch_ndd as ndd
from torch_ndd import EvalMode

THREADS = 8
BATCHES = int(os.environ.get("NDD_THREAD_BATCHES", "200"))


def program(thread: int, step: int) -> Any:
    """Ragged and dense batches, some small enough to run immediately; random numbers, per-sample arguments, several readers of a result."""
    rng = ndd.random.RNG(seed=1000 * thread + step)
    pixels = np.random.default_rng(step)
    sizes = [(8 + 13 * (step % 7) + k, 16 + 5 * (thread + k)) for k in range(3 + step % 3)]
    if step % 2:
        sizes = sizes[:1] * len(sizes)
    images = ndd.batch([pixels.integers(0, 256, (*size, 3), np.uint8) for size in sizes], layout="HWC")
    mirrored = ndd.flip(images, horizontal=ndd.random.coin_flip(batch_size=len(sizes), rng=rng))
    bright = ndd.brightness(mirrored, brightness=ndd.random.uniform(batch_size=len(sizes), range=(0.5, 1.5), rng=rng), dtype=ndd.float32)
    cropped = ndd.crop(bright, crop=(8, 8), crop_pos_x=ndd.random.uniform(batch_size=len(sizes), range=(0.0, 1.0), rng=rng))
    small = ndd.resize(mirrored, size=(12, 10))
    return (
        cropped * 0.5 + 1,
        ndd.rotate(small, angle=ndd.random.uniform(batch_size=len(sizes), range=(-40.0, 40.0), rng=rng), keep_size=True),
        mirrored,
    )


def digest(results: Any) -> int:
    total = 0
    for result in results:
        for sample in result.tensors:
            total = zlib.crc32(np.ascontiguousarray(sample), total)
    return total


@pytest.fixture(scope="module")
def reference() -> list[list[int]]:
    """Return the results of one Python thread, with one thread of the CPU stream and at the call."""
    with EvalMode.sync_cpu, ndd.EvalContext(num_threads=1):
        return [[digest(program(thread, step)) for step in range(BATCHES)] for thread in range(THREADS)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", EvalMode)
def test_eight_threads_equal_one(mode: EvalMode, reference: list[list[int]]) -> None:
    ndd.set_num_threads(3)
    outputs: list[list[int]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        with mode:
            ahead: list[Any] = []
            for step in range(BATCHES):
                ahead.append(program(number, step))
                if len(ahead) > 3:
                    outputs[number].append(digest(ahead.pop(0)))
            outputs[number] += map(digest, ahead)

    run_in_threads(work, THREADS)
    assert outputs == reference


def test_eight_threads_with_contexts_of_their_own(reference: list[list[int]]) -> None:
    steps = max(1, BATCHES // 4)
    outputs: list[list[int]] = [[] for _ in range(THREADS)]

    def work(number: int) -> None:
        with ndd.EvalContext(num_threads=number % 4), [*EvalMode][number % 4]:
            outputs[number] += [digest(program(number, step)) for step in range(steps)]

    run_in_threads(work, THREADS)
    assert outputs == [row[:steps] for row in reference]


def test_results_are_handed_on(reference: list[list[int]]) -> None:
    """One thread calls the operators, another reads the results, and the number of threads changes meanwhile."""
    steps = max(1, BATCHES // 8)
    handed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    outputs: list[list[int]] = [[0] * steps for _ in range(THREADS)]

    def work(number: int) -> None:
        if number % 2:
            for step in range(2 * steps):
                owner = number - step % 2
                with EvalMode.deferred if step % 3 else EvalMode.eager:
                    handed.put((owner, step // 2, program(owner, step // 2)))
                if step % 16 == 0:
                    ndd.set_num_threads(1 + step % 5)
            return
        for _ in range(2 * steps):
            owner, step, results = handed.get(timeout=60)
            outputs[owner][step] = digest(results)

    run_in_threads(work, THREADS)
    assert outputs == [row[:steps] for row in reference]


def test_random_numbers_of_a_thread_are_its_own() -> None:
    output: list[torch.Tensor] = [torch.empty(0)] * THREADS

    def work(number: int) -> None:
        ndd.random.set_seed(number // 2)
        output[number] = torch.cat([ndd.random.uniform(batch_size=4, range=(0.0, 1.0)).torch() for _ in range(max(1, BATCHES // 10))])

    run_in_threads(work, THREADS)
    for number in range(0, THREADS, 2):
        assert torch.equal(output[number], output[number + 1])
    assert not torch.equal(output[0], output[2])


def test_the_error_names_the_first_sample_that_fails() -> None:
    # Images of the user, which the call waits for: the threads share them without the scheduler.
    images = ndd.as_batch(torch.zeros(64, 200, 200, 3, dtype=torch.uint8), layout="HWC")
    bits = torch.full((64,), 4.0)
    bits[[5, 6, 7, 40]] = 40.0
    ndd.set_num_threads(4)
    try:
        for _ in range(30):
            with pytest.raises(ValueError, match="posterize: sample 5: bits must be"):
                ndd.posterize(images, bits=ndd.as_batch(bits))
    finally:
        ndd.set_num_threads(None)
