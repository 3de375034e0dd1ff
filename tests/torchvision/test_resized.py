# SPDX-License-Identifier: Apache-2.0
"""Resizes in ``from_torchvision``: Pillow's bits where torchvision has Pillow's images, and with the crop that follows as one step."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("torchvision")

from torchvision.transforms import InterpolationMode, v2

import torch_ndd as ndd
from torch_ndd.torchvision import from_torchvision, tv_tensors

FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(("size", "crop"), [(24, 20), ([20, 31], None), ([31, 20], [31, 12]), (15, 18)], ids=str)
def test_resized_files_equal_pillow(interpolation: str, size: Any, crop: Any) -> None:
    """Also where Pillow begins with the height, and where a resize and the crop in the middle are one step."""
    mode = InterpolationMode(interpolation)
    steps = [v2.Resize(size, interpolation=mode), *([] if crop is None else [v2.CenterCrop(crop)]), v2.PILToTensor()]
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (*shape, 3), np.uint8) for shape in ((40, 30), (30, 40), (90, 16), (16, 90), (25, 24), (24, 24), (60, 35))]
    fn = from_torchvision(v2.Compose(steps))
    result = fn(ndd.batch(pixels, layout="HWC"))
    for k, pixel in enumerate(pixels):
        assert torch.equal(result.select(k).torch(), v2.Compose(steps)(Image.fromarray(pixel))), pixel.shape


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_resize_and_center_crop_are_fused_with_the_normalization(probability: float) -> None:
    steps = [v2.Resize(24), v2.CenterCrop(20)]
    fn = from_torchvision(v2.Compose([*steps, v2.RandomHorizontalFlip(probability), *FLOATS]))
    assert [type(value).__name__ for value in fn._fused] == ["ResizeNormalize"]
    assert "CenterCrop" in repr(fn)
    planes = [torch.arange(3 * 30 * w, dtype=torch.uint8).reshape(3, 30, w) for w in (40, 50)]
    images, target = fn(ndd.batch(planes, layout="CHW"), ndd.batch([1, 2]))
    assert images.layout == "CHW"
    for k, plane in enumerate(planes):
        expected = v2.Compose(steps)(plane).float() / 255
        torch.testing.assert_close(images.select(k).torch(), expected.flip(-1) if probability else expected, atol=1e-6, rtol=0)
    assert target.torch().tolist() == [1, 2]
    boxes = tv_tensors.BoundingBoxes(ndd.batch([[[0.0, 0, 15, 15]]] * 2), format="XYXY", canvas_size=(30, 40))
    _, moved = from_torchvision(v2.Compose(steps))(ndd.batch([torch.zeros(3, 30, 40)] * 2, layout="CHW"), boxes)  # in two steps
    assert moved.canvas_size == [(20, 20)] * 2
    assert moved.select(0).torch().tolist() == [[0, 0, 6, 10]]
