# SPDX-License-Identifier: Apache-2.0
"""Color steps and level tables for Albumentations: the CPU kernels against the emulated CUDA kernels. `make emulated-cuda` runs this."""

from collections.abc import Callable
from typing import Any

import emulated_plugin
import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd.ops.color._opencv_colors import KINDS, NUMBERS, with_color_steps, with_level_tables

# A chain for each sample: kinds with their numbers. A contrast may be anywhere, and needs the mean of what the steps before it make.
CHAINS: list[list[tuple[Any, ...]]] = [
    [("scale", 1.2), ("contrast", 0.7), ("saturation", 1.4), ("hsv", 9.0)],
    [("hsv", -30.7, 20.0, -13.0), ("saturation", 0.2), ("contrast", 1.9), ("scale", 0.6)],
    [("contrast", -0.4), ("none",), ("hsv", 179.0, -255.0, 40.0), ("none",)],
    [("mix", 0.393, 0.769, 0.189, 0.349, 0.686, 0.168, 0.272, 0.534, 0.131), ("none",), ("none",), ("scale", 2.5)],
    [("none",)] * 4,
]
SIZES = ((33, 70), (1, 1), (64, 64), (7, 5), (16, 16))


def make_steps() -> torch.Tensor:
    steps = torch.zeros(len(CHAINS), len(CHAINS[0]), NUMBERS, dtype=torch.float64)
    for i, chain in enumerate(CHAINS):
        for k, (kind, *numbers) in enumerate(chain):
            steps[i, k, : 1 + len(numbers)] = torch.tensor([KINDS[kind], *numbers], dtype=torch.float64)
    return steps


def make_images(channels: int, ragged: bool) -> ndd.Batch:
    generator = np.random.default_rng(4)
    sizes = SIZES if ragged else SIZES[:1] * len(SIZES)
    return ndd.as_batch([generator.integers(0, 256, (*size, channels), np.uint8) for size in sizes], layout="HWC")


def assert_equal_on_both(name: str, change: Callable[[], ndd.Batch]) -> None:
    with emulated_plugin.on_cpu(), EvalMode.sync_cpu:
        expected = [np.asarray(sample) for sample in change().evaluate().tensors]
    before = emulated_plugin.operators_run.get(name, 0)
    found = [np.asarray(sample) for sample in change().evaluate().tensors]
    assert emulated_plugin.operators_run.get(name, 0) > before
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("channels", [1, 3])
def test_color_steps_equal_the_cpu(channels: int, ragged: bool) -> None:
    images, steps = make_images(channels, ragged), make_steps()
    assert_equal_on_both("opencv_colors", lambda: with_color_steps(images, steps))


def test_color_steps_of_images_that_are_never_aligned_with_their_result_equal_the_cpu() -> None:
    count, pixels = len(CHAINS), 33 * 70 * 3
    levels = torch.randint(0, 256, (count * pixels + 1,), dtype=torch.uint8)[1:].reshape(count, 33, 70, 3)
    images = ndd.as_batch(levels, layout="HWC")
    assert images.torch().data_ptr() % 16 == 1
    assert_equal_on_both("opencv_colors", lambda: with_color_steps(images, make_steps()))


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize(("channels", "tables"), [(3, 1), (3, 3), (1, 1), (20, 20)])
def test_level_tables_equal_the_cpu(channels: int, tables: int, ragged: bool) -> None:
    images = make_images(channels, ragged)
    levels = torch.randint(0, 256, (len(SIZES), tables, 256), dtype=torch.uint8)
    assert_equal_on_both("level_tables", lambda: with_level_tables(images, levels))


def test_two_contrasts_are_refused() -> None:
    steps = torch.zeros(len(SIZES), 2, NUMBERS, dtype=torch.float64)
    steps[..., 0], steps[..., 1] = KINDS["contrast"], 0.5
    with pytest.raises(RuntimeError, match="at most one contrast on a GPU, sample 0"):
        with_color_steps(make_images(3, False), steps).evaluate()
