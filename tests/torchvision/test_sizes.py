# SPDX-License-Identifier: Apache-2.0
"""Sizes that transforms compute equal torchvision's to the pixel; ranges without width leave nothing to chance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _torchvision import image_batch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference
from torchvision.transforms.v2 import functional as R

import torch_ndd as ndd
from torch_ndd._core.values.batch import new_batch
from torch_ndd.torchvision import tv_tensors, v2
from torch_ndd.torchvision.v2 import functional as F

SIZES = [(int(h), int(w)) for h, w in np.random.default_rng(7).integers(4, 700, (1500, 2))]
TRANSFORMS: list[tuple[tuple[str, ...], Callable[[Any], Any]]] = [
    (("size",), lambda m: m.RandomShortestSize(70, max_size=90)),
    (("size",), lambda m: m.RandomShortestSize(800, max_size=1333)),
    (("size",), lambda m: m.RandomShortestSize(70)),
    (("size",), lambda m: m.ScaleJitter((640, 480), (1.0, 1.0))),
    (("size",), lambda m: m.ScaleJitter((640, 480), (0.7, 0.7))),
    (("padding",), lambda m: m.RandomZoomOut(side_range=(1.7, 1.7))),
    (("height", "width"), lambda m: m.RandomResizedCrop(8, scale=(0.3, 0.3), ratio=(1.0, 1.0))),
    (("h", "w"), lambda m: m.RandomErasing(scale=(0.001, 0.001), ratio=(1.0, 1.0))),
]


def _size(params: dict[str, Any], keys: tuple[str, ...], k: int | None = None) -> list[int]:
    """Return the numbers of a sample; of borders the sums, because where the image lies is drawn."""
    numbers = [value for key in keys for value in (params[key] if isinstance(params[key], list | tuple) else [params[key]])]
    row = [int(number if k is None or not isinstance(number, torch.Tensor) else number[k]) for number in numbers]
    return [row[0] + row[2], row[1] + row[3]] if keys == ("padding",) else row


@pytest.mark.parametrize(("keys", "make"), TRANSFORMS)
def test_drawn_sizes_equal_torchvision(keys: tuple[str, ...], make: Callable[[Any], Any]) -> None:
    ours, theirs = make(v2), make(reference)
    expected = [_size(theirs.make_params([torch.empty(3, h, w, device="meta")]), keys) for h, w in SIZES]
    assert [_size(ours.make_params([torch.empty(3, h, w, device="meta")]), keys) for h, w in SIZES[:300]] == expected[:300]
    shapes = torch.tensor([(h, w, 3) for h, w in SIZES])
    result = ours.make_params([new_batch(torch.empty(0, dtype=torch.uint8), shapes, "HWC")])
    assert [_size(result, keys, k) for k in range(len(SIZES))] == expected


@pytest.mark.parametrize("arguments", [{"size": 70}, {"size": [70], "max_size": 90}, {"size": None, "max_size": 80}])
def test_resized_sizes_equal_torchvision(arguments: dict[str, Any]) -> None:
    sizes = SIZES[:200]
    points: list[Any] = [single.KeyPoints(torch.zeros(1, 2), canvas_size=size) for size in sizes]
    resized: list[Any] = [R.resize(point, **arguments) for point in points]
    expected = [tuple(value.canvas_size) for value in resized]
    assert [tuple(F.resize(point, **arguments).canvas_size) for point in points] == expected
    batch = tv_tensors.KeyPoints(ndd.as_batch(torch.zeros(len(sizes), 1, 2)), canvas_size=sizes)
    assert F.resize(batch, **arguments).canvas_size == expected


@pytest.mark.parametrize("angle", [45, 90, 180, -30, 12.5, 333])
@pytest.mark.parametrize("center", [None, [3, 4]])
@pytest.mark.parametrize("format", ["XYXY", "CXCYWHR"])
def test_coordinates_have_the_canvas_of_the_rotated_image(angle: float, center: Any, format: str) -> None:
    sizes = [(32, 48), (37, 53), (31, 31), (40, 17)]
    numbers = len(format) if format == "CXCYWHR" else 4
    options = {"angle": angle, "expand": True, "center": center}
    canvases = [tuple(R.rotate(torch.zeros(1, h, w), **options).shape[-2:]) for h, w in sizes]
    rows = torch.ones(len(sizes), 2, 5 if numbers == 7 else 4)
    for count in (2, 0):
        boxes = tv_tensors.BoundingBoxes(ndd.as_batch(rows[:, :count]), format=format, canvas_size=sizes)
        assert F.rotate(boxes, **options).canvas_size == canvases
        value = single.BoundingBoxes(rows[0, :count], format=format, canvas_size=sizes[0])
        assert tuple(F.rotate(value, **options).canvas_size) == canvases[0]
    points = tv_tensors.KeyPoints(ndd.as_batch(torch.ones(len(sizes), 1, 2)), canvas_size=sizes)
    assert F.rotate(points, **options).canvas_size == canvases


@pytest.mark.parametrize("format", ["XYXY", "XYWH", "CXCYWH", "CXCYWHR", "XYWHR", "XYXYXYXY"])
def test_elastic_without_displacement_moves_nothing(format: str) -> None:
    corners = torch.tensor([[1.3, 2.7, 20.5, 30.2], [0.0, 0.0, 48.0, 32.0]])
    boxes = corners
    if format != "XYXY":
        rotated = format in ("CXCYWHR", "XYWHR", "XYXYXYXY")
        boxes = R.convert_bounding_box_format(corners, single.BoundingBoxFormat.XYXY, single.BoundingBoxFormat.CXCYWH)
        old = single.BoundingBoxFormat.CXCYWHR if rotated else single.BoundingBoxFormat.CXCYWH
        boxes = torch.cat([boxes, torch.zeros(2, 1)], 1) if rotated else boxes
        boxes = R.convert_bounding_box_format(boxes, old, single.BoundingBoxFormat[format])
    field = torch.zeros(1, 32, 48, 2)
    value = single.BoundingBoxes(boxes, format=format, canvas_size=(32, 48))
    assert torch.allclose(F.elastic(value, field), boxes, atol=1e-5)
    batch = tv_tensors.BoundingBoxes(ndd.as_batch(boxes[None]), format=format, canvas_size=(32, 48))
    assert torch.allclose(F.elastic(batch, field).torch()[0], boxes, atol=1e-5)
    points = torch.tensor([[1.3, 2.7], [47.9, 31.5]])
    assert torch.equal(F.elastic(single.KeyPoints(points, canvas_size=(32, 48)), field), points)
    whole = torch.tensor([[1, 2, 48, 32]])
    assert torch.equal(F.elastic(single.BoundingBoxes(whole, format="XYXY", canvas_size=(32, 48)), field), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [True, False])
def test_noise_keeps_the_type(dtype: torch.dtype, clip: bool) -> None:
    noisy = v2.GaussianNoise(mean=0.25, sigma=0.1, clip=clip)
    value = noisy(torch.full((3, 20, 20), 0.5, dtype=dtype))
    batch = noisy(image_batch([torch.full((3, 20, 20), 0.5, dtype=dtype)] * 2, "CHW"))
    assert value.dtype == batch.dtype == dtype
    assert abs(float(value.double().mean()) - 0.75) < 0.02
    assert abs(float(batch.torch().double().std()) - 0.1) < 0.02


def test_mixup_weight_of_a_small_alpha_is_never_one() -> None:
    ndd.random.set_seed(3)
    torch.manual_seed(3)
    ours, theirs = (m.MixUp(alpha=0.05, num_classes=2) for m in (v2, reference))
    result, expected = (np.array([value.make_params([])["lam"] for _ in range(1500)]) for value in (ours, theirs))
    assert result.min() > 0
    assert result.max() == expected.max() == np.nextafter(np.float32(1), np.float32(0))
    assert abs(np.mean(result == result.max()) - np.mean(expected == expected.max())) < 0.07
