# SPDX-License-Identifier: Apache-2.0
"""Elastic deformations, random erasing, and the projective map of four points."""

from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import augment
from torch_ndd.augment import _elastic


def ramp(height: int, width: int) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([x, y, x + y], 2).float()


def test_elastic_moves_pixels_smoothly() -> None:
    images = ndd.batch([ramp(60, 80), ramp(50, 40)], layout="HWC")
    result, masks = augment.elastic(images, alpha=40.0, sigma=4.0, masks=images, rng=ndd.random.RNG(1))
    assert result.shape == images.shape == masks.shape
    for item, mask, image in zip(result, masks, images, strict=True):
        moved = (item.torch() - image.torch())[8:-8, 8:-8]
        assert 0.2 < moved[..., 0].std() < 4.0
        assert 0.2 < moved[..., 1].std() < 4.0
        assert abs(float(np.corrcoef(moved[..., 0].flatten(), moved[..., 1].flatten())[0, 1])) < 0.6
        assert moved[..., 0].diff(dim=0).abs().mean() < moved[..., 0].std() / 2  # neighbors move alike
        assert (mask.torch() - item.torch())[8:-8, 8:-8].abs().max() <= 2.0
    again = augment.elastic(images, alpha=40.0, sigma=4.0, rng=ndd.random.RNG(1))
    assert torch.equal(again.select(1).torch(), result.select(1).torch())
    still = augment.elastic(images, alpha=0.0)
    torch.testing.assert_close(still.select(0).torch(), images.select(0).torch())
    assert augment.elastic(ramp(9, 9), sigma=0.0).shape == (9, 9, 3)
    with pytest.raises(ValueError, match="elastic: alpha must be 0 or more"):
        augment.elastic(images, alpha=-1.0)


def test_elastic_draws_where_its_images_are(device: str) -> None:
    images = ndd.batch([ramp(30, 40)], layout="HWC")
    planes = _elastic.smooth_planes(torch.tensor([[30, 40]]), (3.0, 3.0), images.to_device(device).device, ndd.random.RNG(1))
    assert [str(plane.device).partition(":")[0] for plane in planes] == [device] * 2
    moved, expected = (augment.elastic(images.to_device(place), rng=ndd.random.RNG(1)).cpu().torch() for place in (device, "cpu"))
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-2)


def test_elastic_has_the_spread_of_torchvision() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    torch.manual_seed(0)
    x = ramp(80, 80)[..., :1]
    theirs = torch.stack([v2.ElasticTransform(60.0, 5.0)(x.permute(2, 0, 1))[0] for _ in range(12)])
    result = augment.elastic(ndd.batch([x] * 12, layout="HWC"), alpha=60.0, sigma=5.0, rng=ndd.random.RNG(2)).torch()[..., 0]
    spread = [float((value - x[..., 0])[:, 12:-12, 12:-12].std()) for value in (result, theirs)]
    assert 0.8 < spread[0] / spread[1] < 1.25


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("mode", ["constant", "random", "pixel"])
def test_random_erasing_overwrites_boxes(mode: str, layout: str) -> None:
    shape = (3, 24, 30) if layout == "CHW" else (24, 30, 3)
    images = ndd.batch(torch.full((200, *shape), 9.0), layout=layout)
    result, boxes = augment.random_erasing(
        images, mode=mode, count=2, probability=0.5, return_params=True, fill_value=[1.0, 2.0, 3.0], rng=ndd.random.RNG(4)
    )
    values = result.torch() if layout == "HWC" else result.torch().permute(0, 2, 3, 1)
    inside = torch.zeros(200, 24, 30, dtype=torch.bool)
    for k, sample in enumerate(boxes.tolist()):
        for top, left, height, width in sample:
            inside[k, top : top + height, left : left + width] = True
    assert torch.equal((values != 9.0).any(-1), inside)
    assert 70 < int((boxes[:, :, 2] > 0).any(1).sum()) < 130
    areas = (boxes[..., 2] * boxes[..., 3])[boxes[..., 2] > 0] / 720
    assert areas.min() > 0.005
    assert areas.max() < 0.18
    colors = values[inside]
    if mode == "constant":
        assert torch.equal(colors, torch.tensor([1.0, 2.0, 3.0]).expand_as(colors))
    else:
        assert abs(colors.mean()) < 0.2
        assert abs(colors.std() - 1) < 0.2
        first = values[0 if inside[0].any() else int(inside.flatten(1).any(1).int().argmax())]
        assert (len(first[(first != 9.0).any(-1)].unique(dim=0)) > 2) == (mode == "pixel")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "noise"}, "mode must be one of constant, random, pixel"),
        ({"area": (0.5, 0.1)}, "area must be two positive numbers"),
        ({"probability": 2.0}, "probability must be from 0 to 1"),
        ({"count": 0}, "count must be 1 or more"),
        ({"mode": "pixel"}, "needs floating-point images, got u8"),
    ],
)
def test_random_erasing_rejects_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        augment.random_erasing(torch.zeros(8, 8, 3, dtype=torch.uint8), **arguments)


def test_random_erasing_accepts_ragged_uint8() -> None:
    images = ndd.batch([torch.full((20, 30, 1), 7, dtype=torch.uint8), torch.full((40, 10, 1), 7, dtype=torch.uint8)], layout="HWC")
    result, boxes = augment.random_erasing(images, probability=1.0, return_params=True)
    for item, box in zip(result, boxes[:, 0].tolist(), strict=True):
        assert int((item.torch() == 0).sum()) == box[2] * box[3] > 0


def test_perspective_moves_points() -> None:
    source, target = [[0, 0], [30, 2], [28, 20], [1, 19]], [[3, 1], [27, 0], [30, 22], [0, 20]]
    matrix = ndd.transforms.perspective(source=source, target=target).torch().double()
    points = torch.cat([torch.tensor(source), torch.ones(4, 1)], 1).double() @ matrix.T
    torch.testing.assert_close(points[:, :2] / points[:, 2:], torch.tensor(target, dtype=torch.float64), atol=1e-4, rtol=0)
    several = ndd.transforms.perspective(source=ndd.batch(torch.tensor([source, target])), target=target)
    torch.testing.assert_close(several.torch()[0].double(), matrix)
    torch.testing.assert_close(several.torch()[1], torch.eye(3), atol=1e-5, rtol=0)
    for wrong, message in (([[0, 0], [1, 1], [2, 2], [0, 5]], "sample 0 three points are on a line"), ([[0, 0]], "must be four finite points")):
        with pytest.raises(ValueError, match=message):
            ndd.transforms.perspective(source=wrong, target=target)
        with pytest.raises(ValueError, match=message):
            ndd.transforms.perspective(source=source, target=wrong)
    lines = [
        [[0.1, 0.7], [0.2, 0.8], [9, 4], [1.1, 1.7]],
        [[7, 7], [0, 0], [7, 7], [9, 1]],
        [[1e9, 3], [1e9 + 1, 4], [0, 0], [1e9 + 2, 5]],
        [[2, 2]] * 4,
    ]
    for wrong in lines:
        with pytest.raises(ValueError, match="sample 1 three points are on a line"):
            ndd.transforms.perspective(source=ndd.batch(torch.tensor([source, wrong], dtype=torch.float64)), target=target)
    assert torch.isfinite(ndd.transforms.perspective(source=[[0, 0], [1e-9, 0], [1e-9, 1e-9], [0, 1e-9]], target=target).torch()).all()
    with pytest.raises(ValueError, match="takes \\(0, 0\\) to infinity"):  # (x, y) -> ((x + 2 y + 3) / x, (y + 1) / x)
        ndd.transforms.perspective(source=[[1, 0], [2, 0], [1, 1], [2, 2]], target=[[4, 1], [2.5, 0.5], [6, 2], [4.5, 1.5]])
    assert ndd.transforms.perspective(source=torch.zeros(0, 4, 2), target=target).shape == []


def test_perspective_equals_torchvision() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    source, target = [[0, 0], [39, 0], [39, 29], [0, 29]], [[4, 2], [35, 1], [37, 28], [2, 25]]
    image = (ramp(30, 40) * 3).to(torch.uint8)
    matrix = ndd.transforms.perspective(source=source, target=target)
    result = ndd.experimental.warp_perspective(image, matrix=matrix, inverse_map=False).torch()
    expected = v2.functional.perspective(image.permute(2, 0, 1), source, target, fill=None).permute(1, 2, 0)
    assert (result.int() - expected.int()).abs()[6:-6, 6:-6].max() <= 1
