# SPDX-License-Identifier: Apache-2.0
"""The policies' augmentations in one call: the results are those of the operators one after the other."""

import random
from typing import Any

import pytest
import torch
from torchvision.transforms.v2 import functional as theirs

import torch_ndd as ndd
from torch_ndd.augment._spaces import FACTORS
from torch_ndd.torchvision import v2
from torch_ndd.torchvision.v2._auto_augment import _KINDS

_LARGEST = {"translate_x": 20.7, "translate_y": 13.2, "rotate": 40.0, "posterize": 7.0, "solarize": 1.0}
_ONE_SIDED = ("posterize", "solarize")


def _images(layout: str, ragged: bool, channels: int) -> ndd.Batch:
    chosen = random.Random(1)
    results = []
    for _ in range(30):
        height, width = (chosen.randrange(3, 90), chosen.randrange(3, 90)) if ragged else (64, 71)
        shape = (height, width, channels) if layout == "HWC" else (channels, height, width)
        results.append(torch.randint(0, 256, shape, dtype=torch.uint8))
    return ndd.as_batch(results, layout=layout)


def _draw_steps(seed: int) -> list[tuple[str, float]]:
    chosen = random.Random(seed)
    results = []
    for _ in range(30):
        name = chosen.choice(list(_KINDS))
        magnitude = chosen.random() * _LARGEST.get(name, 0.8)
        magnitude = -magnitude if name not in _ONE_SIDED and chosen.random() < 0.5 else magnitude
        results.append((name, 1.0 + magnitude if name in FACTORS else magnitude))
    return results


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("fill", [None, 0, 77, [10, 20, 30]])
def test_fused_steps_equal_separate_steps(layout: str, ragged: bool, channels: int, interpolation: str, fill: Any) -> None:
    policy: Any = v2.RandAugment(interpolation=interpolation, fill=fill[:channels] if isinstance(fill, list) else fill)
    images = _images(layout, ragged, channels)
    turns = [_draw_steps(seed) for seed in range(3)]
    expected = images
    for steps in turns:
        expected = policy._apply_by_groups(expected, steps, policy._fill_for(images))
    for value, other in zip(policy._apply(images, *turns), expected, strict=True):
        torch.testing.assert_close(value.torch(), other.torch(), rtol=0, atol=0)


@pytest.mark.parametrize("fill", [None, 0, 55])
def test_translated_rows_equal_torchvision(fill: Any) -> None:
    chosen = random.Random(2)
    for turn in range(60):
        image = torch.randint(0, 256, (3, 50, 61), dtype=torch.uint8)
        move = [chosen.randrange(-70, 70), chosen.randrange(-60, 60)]
        shear = [0.0, 0.0] if turn % 2 else [chosen.uniform(-15, 15), 0.0]
        result = v2.functional.affine(ndd.as_batch(image[None], layout="CHW"), 0.0, move, 1.0, shear, fill=fill).torch()[0]
        torch.testing.assert_close(result, theirs.affine(image, 0.0, move, 1.0, shear, fill=fill), rtol=0, atol=0)


def test_floats_and_videos_use_the_operators() -> None:
    for images in (ndd.as_batch(torch.rand(4, 3, 20, 30), layout="CHW"), ndd.as_batch(torch.zeros(2, 5, 8, 9, 3, dtype=torch.uint8), layout="FHWC")):
        result = v2.RandAugment()(images)
        assert (result.shape, result.dtype, result.layout) == (images.shape, images.dtype, images.layout)
