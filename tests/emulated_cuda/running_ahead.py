# SPDX-License-Identifier: Apache-2.0
"""GPU calls that run ahead, on a device whose streams are late: random programs equal their synchronous runs on the CPU.

See late.py. A launch out of order, or memory that returns to torch's allocator too early, gives other values. ``NDD_PROGRAMS`` is the number of
programs (by default 200).
"""

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
from torch_ndd._core.work import cuda_work

PROGRAMS = int(os.environ.get("NDD_PROGRAMS", "200"))
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
def _damaged() -> Any:
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
