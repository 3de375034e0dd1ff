# SPDX-License-Identifier: Apache-2.0
"""Slices, layers and reductions of sizes around those of a tile, at every alignment: the CPU kernel against the emulated CUDA kernel, bit by bit.

`make emulated-cuda` runs this with emulated_plugin. The cases of the operators are smaller than a tile.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import emulated_plugin
import numpy as np
import pytest

import torch_ndd as ndd
from torch_ndd import EvalMode

DTYPES = ["uint8", "uint8", "uint8", "uint16", "float32", "float16", "int64"]


def assert_same(call: Callable[[], Any], relative: float = 0.0) -> None:
    with EvalMode.sync_cpu:
        found = [np.array(value) for value in call()]
        with emulated_plugin.on_cpu():
            expected = [np.array(value) for value in call()]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if relative == 0.0:
            np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=relative, atol=1e-6)


def images(rng: random.Random, dtype: str, channels: int, size: tuple[int, int]) -> Any:
    """Return a batch of up to four random images, dense or ragged."""
    ragged = rng.random() < 0.4

    def draw() -> np.ndarray:
        shape = tuple(rng.randint(20, extent) for extent in size) if ragged else size
        return np.random.default_rng(rng.randint(0, 1 << 30)).integers(0, 255, (*shape, channels)).astype(dtype)

    return ndd.batch([draw() for _ in range(rng.randint(1, 4))], layout="HWC")


def positions(rng: random.Random, count: int) -> Any:
    return ndd.batch([np.float32(rng.random()) for _ in range(count)])


@pytest.mark.parametrize("seed", range(16))
def test_slices_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    dtype, channels = rng.choice(DTYPES), rng.choice([1, 2, 3, 3, 4, 5])
    height, width = rng.randint(33, 110), rng.randint(33, 200)
    x = images(rng, dtype, channels, (height, width))
    for order in ([1, 0, 2], [2, 0, 1], [2, 1, 0]):
        assert_same(lambda order=order: ndd.transpose(x, perm=order))
    assert_same(lambda: ndd.flip(x, horizontal=1))
    assert_same(lambda: ndd.flip(x, horizontal=0, vertical=1))
    assert_same(lambda: ndd.cat(x, x, axis=1))
    assert_same(lambda: ndd.full_like(x, 7))
    assert_same(lambda: ndd.pad(x, axis_names="HW", shape=[height + 7, width + 11], fill_value=5))
    window = {"crop": [rng.randint(17, 60), rng.choice([16, 32, 48, rng.randint(17, 90)])], "out_of_bounds_policy": "pad"}
    window |= {f"crop_pos_{axis}": positions(rng, x.batch_size) for axis in "xy"}
    for fill in (7, list(range(1, channels + 1))):
        assert_same(lambda fill=fill: ndd.crop(x, fill_values=fill, **window))
    if dtype not in ("uint8", "float32", "float16"):
        return
    mirror = ndd.batch([np.int32(rng.randint(0, 1)) for _ in range(x.batch_size)])
    for layout in ("CHW", "HWC"):
        for out in (ndd.float32, ndd.float16, ndd.uint8):
            assert_same(
                lambda out=out, layout=layout: ndd.crop_mirror_normalize(
                    x, dtype=out, output_layout=layout, mirror=mirror, mean=[3.0 + c for c in range(channels)], std=[2.0] * channels, **window
                )
            )


@pytest.mark.parametrize("seed", range(8))
def test_layers_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    dtype, channels, count = rng.choice(DTYPES), rng.choice([1, 3, 3, 4, 5]), rng.choice([1, 5, 40])
    height, width = rng.randint(33, 100), rng.randint(33, 400)
    x = images(rng, dtype, channels, (height, width))

    def numbers(most: float) -> Sequence[float]:
        return [rng.random() * most for _ in range(2 * count)]

    regions = {"anchor": numbers(0.9), "shape": numbers(0.7), "normalized_anchor": True, "normalized_shape": True, "axis_names": "HW"}
    for fill in (7.0, [c + 1.0 for c in range(channels)]):
        assert_same(lambda fill=fill: ndd.erase(x, fill_value=fill, **regions))
    size = [height // 2, width // 3]
    parts = ndd.batch([np.full((height, width, channels), k + 1, dtype) for k in range(4)], layout="HWC")
    anchors, targets = ndd.tensor([[1, 2], [3, 1], [5, 7]]), ndd.tensor([[0, 3], [4, 8], [11, 1]])
    assert_same(
        lambda: ndd.multi_paste(
            parts, in_ids=[0, 3, 2], output_size=[height, width + 5], shapes=ndd.tensor([size] * 3), in_anchors=anchors, out_anchors=targets
        )
    )


@pytest.mark.parametrize("seed", range(12))
def test_reductions_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    dtype, channels = rng.choice(DTYPES), rng.choice([1, 2, 3, 3, 4, 17])
    x = images(rng, dtype, channels, rng.choice([(rng.randint(20, 60), rng.randint(20, 300)), (64, 128)]))
    exact = dtype in ("uint8", "uint16")  # the others are added in another order
    relative = 0.0 if exact else 2e-3 if dtype == "float16" else 2e-7
    for axes in ([0, 1], [2], [1], [0], [0, 1, 2], [0, 2], [1, 2]):
        for name in rng.sample(["mean", "sum", "max", "min", "mean_square", "rms"], 3):
            assert_same(lambda name=name, axes=axes: getattr(ndd.reductions, name)(x, axes=axes), relative)
