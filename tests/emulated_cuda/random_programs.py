# SPDX-License-Identifier: Apache-2.0
"""Random programs on a device whose streams are late (late.py) equal their synchronous runs on the CPU.

A launch out of order, or memory that returns to torch's allocator too early, gives other values. ``NDD_PROGRAMS`` is the number of programs (by
default 300).
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from _late_values import HEIGHT, SAMPLES, WIDTH, draw_arrays, encode_files, list_streams
from _threads import run_in_threads

import torch_ndd as ndd

PROGRAMS = int(os.environ.get("NDD_PROGRAMS", "300"))


class _Run:
    """One run of a random program: on the GPU with results that run ahead, or on the CPU. Both draw the same steps."""

    def __init__(self, seed: int, on_gpu: bool, shared: list[Any]) -> None:
        self._random, self._on_gpu = random.Random(seed), on_gpu
        self._values: list[Any] = list(shared)
        self.results: list[torch.Tensor] = []

    def run(self, steps: int) -> None:
        choices: list[Callable[[], Any]] = [self._decode, self._decode, self._upload, self._blur, self._xor, self._flip, self._flip_by_pending]
        choices += [self._brightness, self._resize, self._drop, self._consume, self._upload_pending, self._upload_large_pending]
        choices += [self._join, self._permute, self._paste, self._look_up, self._sharpen, self._fill, self._cut_and_mix, self._mix_up]
        for _ in range(steps):
            step, stream = self._random.choice(choices), self._random.randrange(4)
            if not self._on_gpu:
                value = step()
            else:
                with ndd.EvalContext(cuda_stream=list_streams()[stream]):
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
        return ndd.decoders.image(self._random.choice(encode_files()), device="gpu" if self._on_gpu else "cpu")

    def _upload(self) -> Any:
        value = ndd.batch(list(self._random.choice(draw_arrays())), layout="HWC")
        return value.gpu() if self._on_gpu else value

    def _upload_pending(self) -> Any:
        value = ndd.flip(ndd.decoders.image(self._random.choice(encode_files()), device="cpu"), horizontal=1)
        return value.gpu() if self._on_gpu else value

    def _upload_large_pending(self) -> Any:
        """Upload more than goes with a command, by way of pinned memory."""
        value = ndd.resize(ndd.decoders.image(self._random.choice(encode_files()), device="cpu"), size=[160, 240])
        return ndd.crop(value.gpu() if self._on_gpu else value, crop=[HEIGHT, WIDTH])

    def _blur(self) -> Any:
        return ndd.gaussian_blur(self._pick(), window_size=3)

    def _xor(self) -> Any:
        return self._pick() ^ self._pick()

    def _flip(self) -> Any:
        return ndd.flip(self._pick(), horizontal=self._random.randrange(2), vertical=self._random.randrange(2))

    def _flip_by_pending(self) -> Any:
        """Flip as the host computes from images that it decodes: an argument that is pending there."""
        sums = ndd.reductions.sum(ndd.decoders.image(self._random.choice(encode_files()), device="cpu"))
        return ndd.flip(self._pick(), horizontal=ndd.cast(sums % 2, dtype=ndd.int32))

    def _brightness(self) -> Any:
        return ndd.brightness(self._pick(), brightness=[self._random.random() * 2 for _ in range(SAMPLES)])

    def _resize(self) -> Any:
        return ndd.resize(ndd.resize(self._pick(), size=[WIDTH, HEIGHT]), size=[HEIGHT, WIDTH])

    def _join(self) -> Any:
        return ndd.crop(ndd.cat(self._pick(), self._pick(), axis=1), crop=[HEIGHT, WIDTH])

    def _permute(self) -> Any:
        return ndd.permute_batch(self._pick(), indices=ndd.batch([self._random.randrange(SAMPLES) for _ in range(SAMPLES)]))

    def _paste(self) -> Any:
        return ndd.multi_paste(self._pick(), self._pick(), output_size=[HEIGHT, WIDTH], shapes_rel=ndd.tensor([[1.0, 1.0], [0.5, 0.5]]))

    def _look_up(self) -> Any:
        return ndd.lookup_table(self._pick(), keys=list(range(256)), values=[255.0 - k for k in range(256)], dtype=ndd.uint8)

    def _sharpen(self) -> Any:
        """Filter by one of a few windows, which stay on the GPU."""
        weight = self._random.choice([0, 1, 2])
        return ndd.filter(self._pick(), [[0, -weight], [weight, 1]])

    def _fill(self) -> Any:
        return ndd.full_like(self._pick(), self._random.randrange(3))

    def _cut_and_mix(self) -> Any:
        return ndd.augment.cutmix(self._pick(), rng=ndd.random.RNG(self._random.randrange(1000)))

    def _mix_up(self) -> Any:
        return ndd.augment.mixup(self._pick(), rng=ndd.random.RNG(self._random.randrange(1000)))

    def _drop(self) -> None:
        if self._values:
            del self._values[self._random.randrange(len(self._values))]

    def _consume(self) -> None:
        self._store(self._pick())


def _run_threads(seed: int, on_gpu: bool) -> list[list[torch.Tensor]]:
    """Run two programs in two threads, which share a value, and return what each has read."""
    shared = [ndd.decoders.image(encode_files()[seed % 4], device="gpu" if on_gpu else "cpu")]
    runs = [_Run(2 * seed + k, on_gpu, shared) for k in range(2)]
    run_in_threads(lambda k: runs[k].run(10), 2)
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
