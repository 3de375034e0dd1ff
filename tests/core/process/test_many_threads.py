# SPDX-License-Identifier: Apache-2.0
"""Threads of the program that use operators, decoders, readers and loaders at the same time, with and without the GIL."""

import io
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _threads import run_in_threads
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core.operators.functions import call_on_tensor
from torch_ndd.decoders import _cache
from torch_ndd.decoders._load_once import load_once

THREADS, ROUNDS = 8, 12
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 40, 50, 3), dtype=np.uint8)
RAGGED = [pixels[: 30 + k] for k, pixels in enumerate(PIXELS)]


def encode(pixels: np.ndarray) -> bytes:
    Image.fromarray(pixels).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


FILES = [encode(pixels) for pixels in RAGGED]
DAMAGED = FILES[0][:200] + bytes(100) + FILES[0][300:]  # only its pixels


def in_threads(function: Callable[[], Any]) -> list[Any]:
    return run_in_threads(lambda _: function(), THREADS)


def samples(batch: ndd.Batch) -> list[bytes]:
    return [np.asarray(sample).tobytes() for sample in batch]


def mirror(pixels: torch.Tensor) -> torch.Tensor:
    return ndd.flip(ndd.as_batch(pixels[None], layout="HWC")).torch()[0]


def run_operators() -> list[Any]:
    """Calls whose plans are learned, repeated, and learned again for other shapes and numbers of samples."""
    results = []
    for k in range(ROUNDS):
        dense = ndd.as_batch(torch.from_numpy(PIXELS[: 3 + k % 3]), layout="HWC")
        ragged = ndd.batch([torch.from_numpy(pixels) for pixels in RAGGED], layout="HWC")
        results += [
            samples(ndd.resize(dense, size=[8 + k % 4, 9])),
            samples(ndd.flip(dense, horizontal=k % 2)),
            samples(ndd.brightness(ragged, brightness=1.0 + k % 3 / 10)),
            samples(ndd.crop_mirror_normalize(ndd.resize(ragged, size=[20, 20]), crop=[8, 8], mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0])),
            samples(ndd.noise.gaussian(dense, stddev=3.0, rng=ndd.random.RNG(seed=k))),
            call_on_tensor(mirror, torch.from_numpy(PIXELS[k % 6]), (), {}).numpy().tobytes(),
        ]
    return results


def decode() -> list[Any]:
    return [samples(ndd.decoders.image(FILES)) for _ in range(ROUNDS)]


def test_operators_equal_those_of_a_single_thread() -> None:
    results = in_threads(run_operators)
    expected = run_operators()
    assert all(result == expected for result in results)


def test_decoders_equal_those_of_a_single_thread() -> None:
    results = in_threads(decode)
    expected = decode()
    assert all(result == expected for result in results)


def test_results_may_be_awaited_by_all_threads() -> None:
    for _ in range(ROUNDS):
        images = ndd.decoders.image(FILES)
        resized = ndd.resize(images, size=[30, 30])
        broken = ndd.resize(ndd.decoders.image([DAMAGED]), size=[8, 8])
        results = in_threads(lambda resized=resized: samples(resized))
        assert all(result == results[0] for result in results)

        def fail(broken: ndd.Batch = broken) -> str:
            with pytest.raises(RuntimeError, match="sample 0") as caught:
                broken.torch()
            return str(caught.value).split("\n")[0]

        assert len(set(in_threads(fail))) == 1


def test_loaders_deliver_the_same_in_each_thread(tmp_path: Path) -> None:
    for k, file in enumerate(FILES):
        (tmp_path / str(k % 2)).mkdir(exist_ok=True)
        (tmp_path / str(k % 2) / f"{k}.png").write_bytes(file)

    def load() -> list[Any]:
        reader = ndd.readers.File(file_root=str(tmp_path), random_shuffle=True, seed=5)
        loader = ndd.DataLoader(reader, lambda files, labels: (ndd.resize(ndd.decoders.image(files), size=[9, 9]), labels), batch_size=2, seed=1)
        return [[samples(images), samples(labels)] for _ in range(3) for images, labels in loader]

    results = in_threads(load)
    assert all(result == results[0] for result in results)
    assert len(results[0]) == 9


def test_threads_share_one_loop(tmp_path: Path) -> None:
    numbers = [np.array([k]) for k in range(200)]
    loader = ndd.DataLoader(ndd.readers.Dataset(numbers), lambda values: ndd.cast(values, dtype=torch.float32), batch_size=4, drop_last=False)
    loop = iter(loader)

    def take() -> list[int]:
        taken: list[int] = []
        while (batch := next(loop, None)) is not None:
            taken += batch.flatten().int().tolist()
        return taken

    assert sorted(number for taken in in_threads(take) for number in taken) == list(range(200))


def test_codecs_are_loaded_once() -> None:
    calls: list[int] = []

    @load_once
    def load() -> bool:
        calls.append(threading.get_ident())
        time.sleep(0.05)
        if len(calls) == 1:
            raise RuntimeError("not installed")
        return True

    with pytest.raises(RuntimeError, match="not installed"):
        load()
    assert in_threads(load) == [True] * THREADS
    assert len(calls) == 2


def test_calls_share_the_cache_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cache, "_caches", {})
    caches = in_threads(lambda: _cache._process_cache(1, 0, False, False))
    assert len({id(cache) for cache in caches}) == 1


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded Python")
def test_import_leaves_the_gil_disabled() -> None:
    code = "import sys, torch_ndd as ndd; ndd.flip(ndd.tensor([[[1]]], layout='HWC')).torch(); print(sys._is_gil_enabled())"
    run = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
