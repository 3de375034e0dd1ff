# SPDX-License-Identifier: Apache-2.0
"""The calls with unusual arguments of `benchmarks unusual` on parts of their images: the CPU kernel against the emulated CUDA kernel.

`make emulated-cuda` runs this with emulated_plugin.
"""

from typing import Any

import emulated_plugin
import numpy as np
import pytest

import torch_ndd as ndd
from benchmarks.cases import DATA
from benchmarks.cases.unusual import CASES
from torch_ndd import EvalMode

HEIGHT, WIDTH = 107, 161  # a part of most images, with rows that are not aligned
ROUNDINGS = 0.05  # elements that may be a level apart: the CPU resamples bytes with weights of 14 bits


def read_samples(name: str) -> list[np.ndarray]:
    """Return as many and as much of a case's samples as its arguments need: the emulator takes some microseconds for a byte."""
    data = CASES[name].data
    samples = list(DATA[data]())
    if "a sample" not in name and "a frame" not in name:
        samples = samples[:3]
    if name.startswith(("crop: to", "crop: a window", "slice: start", "debayer")):
        return samples[: 8 if "a window" in name else 2]
    if data == "unusual videos":
        return [np.ascontiguousarray(sample[:, :HEIGHT:2, :WIDTH:2]) for sample in samples]
    window: tuple[Any, ...] = (..., slice(HEIGHT), slice(WIDTH)) if data == "unusual CHW" else (slice(HEIGHT), slice(WIDTH))
    return [np.ascontiguousarray(sample[window] if sample.ndim == 3 else sample[:6000]) for sample in samples]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.data != "unusual 1281x853"])
def test_unusual_arguments_on_both(name: str) -> None:
    case = CASES[name]
    samples = read_samples(name)

    def run() -> list[np.ndarray]:
        ndd.random.set_seed(1)
        batch = ndd.batch(samples, layout=case.layout).evaluate()
        with EvalMode.sync_cpu:
            result: Any = case.ndd(ndd, ndd.types, batch)
        return [np.asarray(sample) for sample in result]

    with emulated_plugin.on_cpu():
        expected = run()
    before = sum(emulated_plugin.operators_run.values())
    found = run()
    if sum(emulated_plugin.operators_run.values()) == before:
        pytest.skip("no CUDA kernel was called")
    for theirs, ours in zip(found, expected, strict=True):
        assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape)
        if theirs.dtype.kind in "iub":
            away = np.abs(theirs.astype(np.int64) - ours.astype(np.int64))
            assert away.max(initial=0) <= 1
            assert (away > 0).mean() <= ROUNDINGS
        else:
            scale = max(1.0, float(np.nanmax(np.abs(ours.astype(np.float64)), initial=0.0)))
            tolerance = 2e-3 if theirs.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(theirs.astype(np.float64), ours.astype(np.float64), rtol=tolerance, atol=tolerance * scale)
