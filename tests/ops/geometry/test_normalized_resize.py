# SPDX-License-Identifier: Apache-2.0
"""A resize that mirrors and normalizes in the same pass gives what the operators give one after the other."""

import itertools
from typing import Any

import pytest
import torch

import torch_ndd as ndd
from torch_ndd.random import RNG

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int32)


def make_images(layout: str = "HWC", dtype: torch.dtype = torch.uint8) -> ndd.Batch:
    generator = torch.Generator().manual_seed(1)

    def draw(k: int) -> torch.Tensor:
        extents = {"F": 2, "D": 4 + k, "H": 31 + 20 * k, "W": 44 - 9 * k, "C": 3}
        return torch.randint(0, 256, [extents[letter] for letter in layout], generator=generator).to(dtype)

    return ndd.as_batch([draw(k) for k in range(3)], layout=layout)


def assert_equal(ours: ndd.Batch, theirs: ndd.Batch) -> None:
    assert (ours.layout, ours.dtype, list(ours.shape)) == (theirs.layout, theirs.dtype, list(theirs.shape))
    for a, b in zip(ours.tensors, theirs.tensors, strict=True):
        assert torch.equal(a.torch(), b.torch())


@pytest.mark.parametrize("rule", ["dali", "torch", "pillow"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_normalized_window_equals_two_operators(rule: Any, dtype: torch.dtype) -> None:
    images = make_images()
    for output_layout, crop in itertools.product((None, "HWC", "WHC", ""), (None, [20, 17])):
        window: dict[str, Any] = {"resize_shorter": 24, "crop": crop, "mirror": ndd.batch([0, 1, 3]), "rule": rule}
        constants: dict[str, Any] = {"mean": MEAN, "std": STD, "output_layout": output_layout, "dtype": dtype}
        two = ndd.crop_mirror_normalize(ndd.resize_crop_mirror(images, **window), **constants)
        assert_equal(ndd.resize_crop_mirror(images, **window, **constants), two)


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "FCHW", "CFHW", "DHWC", "CDHW"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int16])
def test_any_layout_is_normalized(layout: str, dtype: torch.dtype) -> None:
    images = make_images(layout, dtype)
    size = [3, 12, 14] if "D" in layout else [12, 14]
    two = ndd.crop_mirror_normalize(ndd.resize_crop_mirror(images, size=size), mean=MEAN, std=STD)
    assert_equal(ndd.resize_crop_mirror(images, size=size, mean=MEAN, std=STD), two)


def test_large_images_and_empty_videos_are_normalized() -> None:
    images = make_images().select([0])
    two = ndd.crop_mirror_normalize(ndd.resize_crop_mirror(images, size=[1700, 1700]), mean=MEAN, std=STD)
    assert_equal(ndd.resize_crop_mirror(images, size=[1700, 1700], mean=MEAN, std=STD), two)
    video = ndd.as_batch([torch.zeros(0, 8, 9, 3, dtype=torch.uint8)], layout="FHWC")
    assert ndd.resize_crop_mirror(video, size=[4, 5], mean=MEAN, std=STD).evaluate().shape == [(0, 3, 4, 5)]


def test_only_a_layout_converts_to_float32_as_crop_mirror_normalize_does() -> None:
    images = make_images()
    assert_equal(
        ndd.resize_crop_mirror(images, size=[9, 8], output_layout="CHW"), ndd.crop_mirror_normalize(ndd.resize_crop_mirror(images, size=[9, 8]))
    )


@pytest.mark.parametrize("rule", ["dali", "torch"])
def test_random_window_is_mirrored_and_normalized(rule: Any) -> None:
    images, mirror = make_images(), ndd.batch([1, 0, 1])
    rng = RNG(seed=5)
    two = ndd.random_resized_crop(images, size=[20, 30], rule=rule, rng=rng.clone())
    two = ndd.crop_mirror_normalize(two, mirror=mirror, mean=MEAN, std=STD, dtype=torch.float16)
    ours = ndd.random_resized_crop(images, size=[20, 30], rule=rule, rng=rng, mirror=mirror, mean=MEAN, std=STD, dtype=torch.float16)
    for a, b in zip(ours.tensors, two.tensors, strict=True):
        # Weights of a mirrored region are summed from the other end: a byte may be rounded to its neighbor, 1 / 57 of a deviation away.
        torch.testing.assert_close(a.torch(), b.torch(), atol=0.02, rtol=0.0)


def test_repeated_calls_draw_new_windows_and_take_new_mirrors() -> None:
    images, rng, other = make_images(), RNG(seed=6), RNG(seed=6)
    for k in range(8):
        mirror = ndd.batch([k % 2, 1, k // 2 % 2])
        ours = ndd.random_resized_crop(images, size=16, rng=rng, mirror=mirror, mean=MEAN, std=STD)
        two = ndd.random_resized_crop(images, size=16, rng=other, mirror=mirror)
        assert_equal(ours, ndd.crop_mirror_normalize(two, mean=MEAN, std=STD))


@pytest.mark.slow
def test_normalized_resize_compiles() -> None:
    images = make_images()

    def augment(images: ndd.Batch) -> ndd.Batch:
        return ndd.resize_crop_mirror(images, size=[12, 14], mirror=1, mean=MEAN, std=STD, dtype=torch.float16)

    assert_equal(torch.compile(augment, fullgraph=True)(images), augment(images))
