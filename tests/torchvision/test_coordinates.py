# SPDX-License-Identifier: Apache-2.0
"""Boxes and points equal torchvision's, single ones and batches, in every format, type and clamping mode."""

from typing import Any

import pytest
import torch
from _torchvision import boxes_of, compare, join, points_of
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference

import torch_ndd as ndd
from torch_ndd.torchvision import tv_tensors
from torch_ndd.torchvision.v2 import functional as F

SIZES = ((37, 53), (64, 48), (31, 31))
START, END = [[0, 0], [40, 0], [40, 30], [0, 30]], [[3, 2], [38, 4], [35, 27], [1, 29]]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("horizontal_flip", {}),
    ("vertical_flip", {}),
    ("crop", {"top": 5, "left": -3, "height": 20, "width": 30}),
    ("center_crop", {"output_size": [20, 60]}),
    ("pad", {"padding": [1, 2, 3, 4]}),
    ("resize", {"size": [20, 25]}),
    ("resize", {"size": 70, "max_size": 90}),
    ("resized_crop", {"top": 5, "left": 3, "height": 20, "width": 30, "size": [15, 16]}),
    ("affine", {"angle": 20, "translate": [3, -4], "scale": 1.1, "shear": [5, 3]}),
    ("affine", {"angle": -70, "translate": [3, -4], "scale": 0.6, "shear": [5, 3], "center": [1, 2]}),
    ("rotate", {"angle": 33}),
    ("rotate", {"angle": 33, "expand": True}),
    ("rotate", {"angle": 120, "center": [4, 5]}),
    ("perspective", {"startpoints": START, "endpoints": END}),
]
NAMES = [f"{name}-{k}" for k, (name, _) in enumerate(CASES)]


def _same(ours: Any, theirs: Any, most: float, canvas: Any = None) -> None:
    assert type(ours) is type(theirs)
    assert tuple(ours.canvas_size) == (canvas or tuple(theirs.canvas_size))
    compare(ours.as_subclass(torch.Tensor), theirs.as_subclass(torch.Tensor), most)


def _check(name: str, arguments: dict[str, Any], samples: list[Any], most: float) -> None:
    theirs = [getattr(reference, name)(item, **arguments) for item in samples]
    canvases = [tuple(their.canvas_size) for their in theirs]
    if arguments.get("expand"):  # that of the image, which differs from torchvision's by a pixel
        canvases = [tuple(reference.rotate(torch.zeros(1, *size), **arguments).shape[-2:]) for size in SIZES]
    for sample, other, canvas in zip(samples, theirs, canvases, strict=True):
        before = sample.clone()
        _same(getattr(F, name)(sample, **arguments), other, most, canvas)
        assert torch.equal(sample, before)
    result = getattr(F, name)(join(samples), **arguments)
    assert type(result) is (tv_tensors.BoundingBoxes if isinstance(samples[0], single.BoundingBoxes) else tv_tensors.KeyPoints)
    assert result.canvas_size == canvases
    for sample, other in zip(result.evaluate(), theirs, strict=True):
        compare(sample.torch(), other.as_subclass(torch.Tensor), most)


@pytest.mark.parametrize("mode", ["soft", "hard", None])
@pytest.mark.parametrize("format", ["XYXY", "XYWH", "CXCYWH", "XYWHR", "CXCYWHR", "XYXYXYXY"])
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=NAMES)
def test_box_functionals_equal_torchvision(name: str, arguments: dict[str, Any], format: str, mode: Any) -> None:
    samples = [boxes_of(h, w, format, seed=k, count=k + 2) for k, (h, w) in enumerate(SIZES)]
    for sample in samples:
        sample.clamping_mode = mode
    _check(name, arguments, samples, 2e-3 if single.is_rotated_bounding_format(samples[0].format) else 2e-4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
@pytest.mark.parametrize("format", ["XYXY", "XYWH", "CXCYWH"])
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=NAMES)
def test_box_functionals_keep_other_dtypes(name: str, arguments: dict[str, Any], format: str, dtype: torch.dtype) -> None:
    samples = [boxes_of(h, w, format, dtype, seed=k, count=3) for k, (h, w) in enumerate(SIZES)]
    _check(name, arguments, samples, 1.0 if name in ("affine", "rotate", "perspective") and not dtype.is_floating_point else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 2, 2)])
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=NAMES)
def test_point_functionals_equal_torchvision(name: str, arguments: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    samples = [points_of(h, w, dtype, (shape[0] + k, *shape[1:]), seed=k) for k, (h, w) in enumerate(SIZES)]
    _check(name, arguments, samples, 1.0 if name in ("affine", "rotate", "perspective") and not dtype.is_floating_point else 2e-4)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=NAMES)
def test_functionals_accept_samples_without_boxes(name: str, arguments: dict[str, Any]) -> None:
    samples = [boxes_of(h, w, seed=k, count=k) for k, (h, w) in enumerate(SIZES)]
    result = getattr(F, name)(join(samples), **arguments)
    assert [shape[0] for shape in result.shape] == [0, 1, 2]


@pytest.mark.parametrize("format", ["XYXY", "CXCYWHR"])
def test_elastic_boxes_and_points_equal_torchvision(format: str) -> None:
    torch.manual_seed(0)
    samples = [boxes_of(h, w, format, seed=k, count=k + 2) for k, (h, w) in enumerate(SIZES)]
    if format in ("XYXY", "CXCYWHR"):  # torchvision moves a point from its pixel: at whole pixels the results are equal
        samples = [single.wrap(torch.cat([sample[:, :4].floor(), sample[:, 4:]], 1), like=sample) for sample in samples]
    fields = [torch.randn(1, h, w, 2) * 0.05 for h, w in SIZES]
    theirs = [reference.elastic(sample, field) for sample, field in zip(samples, fields, strict=True)]
    result = F.elastic(join(samples), ndd.batch([field[0] for field in fields]))
    for sample, field, value, other in zip(samples, fields, result.evaluate(), theirs, strict=True):
        _same(F.elastic(sample, field), other, 2e-3)
        compare(value.torch(), other.as_subclass(torch.Tensor), 2e-3)
    points = [points_of(h, w, seed=k) for k, (h, w) in enumerate(SIZES)]
    points = [single.wrap(point.floor(), like=point) for point in points]
    moved = F.elastic(join(points), ndd.batch([field[0] for field in fields]))
    for sample, field, value in zip(points, fields, moved.evaluate(), strict=True):
        other = reference.elastic(sample, field)
        _same(F.elastic(sample, field), other, 2e-4)
        compare(value.torch(), other.as_subclass(torch.Tensor), 2e-4)


@pytest.mark.parametrize("mode", ["soft", "hard", None, "auto"])
@pytest.mark.parametrize("format", ["XYXY", "XYWH", "CXCYWH", "XYWHR", "CXCYWHR", "XYXYXYXY"])
def test_clamping_boxes_equals_torchvision(format: str, mode: Any) -> None:
    samples = [boxes_of(2 * h, 2 * w, format, seed=k, count=k + 2) for k, (h, w) in enumerate(SIZES)]
    samples = [single.wrap(sample, like=sample, canvas_size=size, clamping_mode="hard") for sample, size in zip(samples, SIZES, strict=True)]
    result = F.clamp_bounding_boxes(join(samples), clamping_mode=mode)
    for sample, value in zip(samples, result.evaluate(), strict=True):
        theirs = reference.clamp_bounding_boxes(sample, clamping_mode=mode)
        compare(value.torch(), theirs.as_subclass(torch.Tensor), 1e-3)
        _same(F.clamp_bounding_boxes(sample, clamping_mode=mode), theirs, 1e-3)
        if mode != "auto":
            values = sample.as_subclass(torch.Tensor)
            compare(F.clamp_bounding_boxes(values, sample.format, sample.canvas_size, mode), theirs.as_subclass(torch.Tensor), 1e-3)


def test_clamping_points_equals_torchvision() -> None:
    samples = [single.wrap(points_of(2 * h, 2 * w, seed=k), like=points_of(h, w)) for k, (h, w) in enumerate(SIZES)]
    for sample, value in zip(samples, F.clamp_keypoints(join(samples)).evaluate(), strict=True):
        compare(value.torch(), reference.clamp_keypoints(sample).as_subclass(torch.Tensor))


UNROTATED, ROTATED = ("XYXY", "XYWH", "CXCYWH"), ("XYWHR", "CXCYWHR", "XYXYXYXY")


@pytest.mark.parametrize(("old", "new"), [(a, b) for group in (UNROTATED, ROTATED) for a in group for b in group])
def test_converting_box_formats_equals_torchvision(old: str, new: str) -> None:
    samples = [boxes_of(h, w, old, seed=k, count=k + 1) for k, (h, w) in enumerate(SIZES)]
    result = F.convert_bounding_box_format(join(samples), new_format=new)
    assert result.format.name == new
    for sample, value in zip(samples, result.evaluate(), strict=True):
        compare(value.torch(), reference.convert_bounding_box_format(sample, new_format=new).as_subclass(torch.Tensor))
    with pytest.raises(ValueError, match="rotated"):
        F.convert_bounding_box_format(join(samples), new_format="XYXY" if old in ROTATED else "XYWHR")


@pytest.mark.parametrize("format", [*UNROTATED, *ROTATED])
def test_sanitizing_boxes_equals_torchvision(format: str) -> None:
    samples = [boxes_of(2 * h, 2 * w, format, seed=k, count=9) for k, (h, w) in enumerate(SIZES)]
    samples = [single.wrap(sample, like=sample, canvas_size=size) for sample, size in zip(samples, SIZES, strict=True)]
    result, masks = F.sanitize_bounding_boxes(join(samples), min_size=3.0, min_area=20.0)
    for sample, value, mask in zip(samples, result.evaluate(), masks, strict=True):
        theirs, kept = reference.sanitize_bounding_boxes(sample, min_size=3.0, min_area=20.0)
        assert torch.equal(mask.torch(), kept)
        compare(value.torch(), theirs.as_subclass(torch.Tensor))


@pytest.mark.parametrize("shape", [(9,), (6, 2)])
def test_sanitizing_points_equals_torchvision(shape: tuple[int, ...]) -> None:
    samples = [
        single.KeyPoints(points_of(2 * h, 2 * w, shape=(shape[0] + k, *shape[1:]), seed=k), canvas_size=(h, w)) for k, (h, w) in enumerate(SIZES)
    ]
    result, masks = F.sanitize_keypoints(join(samples))
    for sample, value, mask in zip(samples, result.evaluate(), masks, strict=True):
        theirs, kept = reference.sanitize_keypoints(sample)
        assert torch.equal(mask.torch(), kept)
        compare(value.torch(), theirs.as_subclass(torch.Tensor))


@pytest.mark.parametrize("name", ["crop", "affine", "perspective", "resize", "rotate", "pad", "horizontal_flip", "center_crop", "resized_crop"])
def test_kernels_accept_torch_tensors(name: str) -> None:
    boxes, points = boxes_of(37, 53, seed=3), points_of(37, 53, seed=3)
    value = dict(next(source for item, source in CASES if item == name))
    for kind, sample in (("bounding_boxes", boxes), ("keypoints", points)):
        kernel = f"{name}_{kind}"
        more = {"canvas_size": sample.canvas_size} if name not in ("crop", "resized_crop") else {}
        if kind == "bounding_boxes":
            more["format"] = sample.format
        ours = getattr(F, kernel)(sample.as_subclass(torch.Tensor), **more, **value)
        theirs = getattr(reference, kernel)(sample.as_subclass(torch.Tensor), **more, **value)
        assert isinstance(ours, tuple) == isinstance(theirs, tuple)
        if isinstance(ours, tuple):
            assert tuple(ours[1]) == tuple(theirs[1])
            ours, theirs = ours[0], theirs[0]
        compare(ours, theirs, 2e-4)


def test_bounding_boxes_are_a_batch() -> None:
    samples = [boxes_of(h, w, seed=k, count=k + 1) for k, (h, w) in enumerate(SIZES)]
    boxes = join(samples)
    assert boxes.batch_size == 3
    assert [box.shape for box in boxes] == [(1, 4), (2, 4), (3, 4)]
    part = boxes.select([2, 0])
    assert type(part) is tv_tensors.BoundingBoxes
    assert part.canvas_size == [SIZES[2], SIZES[0]]
    assert part.select(0).shape == (3, 4)
    assert isinstance(samples[0], tv_tensors.BoundingBoxes)
    assert not isinstance(samples[0], tv_tensors.Mask)
    assert type(tv_tensors.BoundingBoxes(torch.zeros(1, 4), format="XYXY", canvas_size=(3, 4))) is single.BoundingBoxes
    images = ndd.batch([torch.zeros(h, w, 3) for h, w in SIZES], layout="HWC")
    assert tv_tensors.KeyPoints(ndd.batch([torch.zeros(1, 2)] * 3), canvas_size=images).canvas_size == list(SIZES)


def test_invalid_boxes_raise() -> None:
    rows = ndd.batch([torch.zeros(2, 4)] * 2)
    with pytest.raises(ValueError, match=r"canvas_size has 1 sizes for 2 samples"):
        tv_tensors.BoundingBoxes(rows, format="XYXY", canvas_size=[(3, 4)])
    with pytest.raises(ValueError, match=r"\(n, 5\)"):
        tv_tensors.BoundingBoxes(rows, format="XYWHR", canvas_size=(3, 4))
    with pytest.raises(ValueError, match="clamping_mode"):
        tv_tensors.BoundingBoxes(rows, format="XYXY", canvas_size=(3, 4), clamping_mode="firm")
    with pytest.raises(ValueError, match=r"format must be one of XYXY, .*got 'XYXZ'; did you mean 'XYXY'"):
        tv_tensors.BoundingBoxes(rows, format="xyxz", canvas_size=(3, 4))
    boxes = tv_tensors.BoundingBoxes(rows, format="xyxy", canvas_size=(3, 4))
    with pytest.raises(ValueError, match=r"convert_bounding_box_format: format must be one of XYXY, .*got 'WH'"):
        F.convert_bounding_box_format(boxes, new_format="wh")
    with pytest.raises(ValueError, match="floating-point"):
        tv_tensors.BoundingBoxes(ndd.batch([torch.zeros(2, 8, dtype=torch.int64)]), format="XYXYXYXY", canvas_size=(3, 4))
    with pytest.raises(ValueError, match=r"\(\.\.\., 2\)"):
        tv_tensors.KeyPoints(rows, canvas_size=(3, 4))
    with pytest.raises(ValueError, match="end in HWC or CHW"):
        tv_tensors.Image(rows)
