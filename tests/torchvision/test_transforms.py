# SPDX-License-Identifier: Apache-2.0
"""Transforms of batches: each sample is what torchvision makes of it with the numbers that were drawn for it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from _torchvision import boxes_of, compare, image_batch, join, of_batch, of_torchvision, pictures, pixels, points_of
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

import torch_ndd as ndd
from torch_ndd.torchvision import tv_tensors, v2

pytestmark = pytest.mark.filterwarnings(
    "ignore:The image decoding:DeprecationWarning", "ignore:.*currently passing through", "ignore:The transform `ToTensor"
)

RANDOM: list[tuple[str, dict[str, Any], tuple[float, float]]] = [
    ("RandomResizedCrop", {"size": (24, 30)}, (1.0, 0.02)),
    ("RandomResizedCrop", {"size": 24, "interpolation": "nearest"}, (0.0, 0.0)),
    ("RandomCrop", {"size": (30, 28)}, (0.0, 0.0)),
    ("RandomCrop", {"size": 60, "padding": [1, 2, 3, 4], "pad_if_needed": True, "fill": 7}, (0.0, 0.0)),
    ("RandomCrop", {"size": 20, "padding": 3, "padding_mode": "reflect"}, (0.0, 0.0)),
    ("RandomZoomOut", {"fill": [1, 2, 3]}, (0.0, 0.0)),
    ("ScaleJitter", {"target_size": (40, 50), "scale_range": (0.5, 1.5)}, (1.0, 0.02)),
    ("RandomShortestSize", {"min_size": [20, 40], "max_size": 50}, (1.0, 0.02)),
    ("RandomResize", {"min_size": 20, "max_size": 40}, (1.0, 0.02)),
    ("RandomRotation", {"degrees": 40, "interpolation": "bilinear"}, (1.0, 0.02)),
    ("RandomRotation", {"degrees": 40, "interpolation": "bilinear", "expand": True, "fill": 3}, (1.0, 0.02)),
    ("RandomAffine", {"degrees": 20, "translate": (0.1, 0.2), "scale": (0.5, 1.5), "shear": (1, 5, 2, 9), "interpolation": "bilinear"}, (1.0, 0.02)),
    ("RandomPerspective", {}, (1.0, 0.02)),
    ("ElasticTransform", {"sigma": 2.0, "alpha": 30.0}, (1.0, 0.02)),
    ("ColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.2}, (2.0, 0.05)),
    ("ColorJitter", {"contrast": 0.4}, (1.0, 0.02)),
    ("RandomPhotometricDistort", {}, (2.0, 0.05)),
    ("RandomChannelPermutation", {}, (0.0, 0.0)),
    ("GaussianBlur", {"kernel_size": (5, 7)}, (1.0, 0.02)),
    ("JPEG", {"quality": (10, 90)}, (0.0, 0.0)),
    ("RandomErasing", {"value": [10.0, 20.0, 30.0]}, (0.0, 0.0)),
    ("RandomErasing", {"value": "random", "scale": (0.1, 0.3)}, (0.0, 0.0)),
]


def _of_sample(value: Any, k: int, count: int) -> Any:
    """Return the numbers of a sample, in torchvision's form."""
    if isinstance(value, ndd.Batch):
        return value.select(k).torch().cpu()
    if isinstance(value, torch.Tensor) and value.dim() and len(value) == count:
        result = value[k].cpu()
        return result.item() if not result.dim() else result
    if isinstance(value, list | tuple):
        if len(value) == count and all(isinstance(element, torch.Tensor) and element.dim() == 3 for element in value):
            return value[k].cpu()
        return type(value)(_of_sample(element, k, count) for element in value)
    return value


def _params_of(name: str, params: dict[str, Any], k: int, count: int) -> dict[str, Any]:
    results = {key: _of_sample(value, k, count) for key, value in params.items()}
    if name == "ElasticTransform":
        results["displacement"] = results["displacement"][None]
    if name == "RandomPerspective":
        results["coefficients"] = results["coefficients"].tolist()
    return results


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize(("name", "args", "limits"), RANDOM, ids=[f"{name}-{k}" for k, (name, _, _) in enumerate(RANDOM)])
def test_random_transforms_equal_their_functionals(name: str, args: dict[str, Any], limits: tuple[float, float], layout: str, device: str) -> None:
    ndd.random.set_seed(11)
    samples = pictures(sizes=((37, 53), (64, 48), (31, 31), (52, 70), (52, 70)))
    batch = image_batch(samples, layout, device)
    ours, theirs = getattr(v2, name)(**args), getattr(reference, name)(**of_torchvision(args))
    params = ours.make_params([batch])
    result = ours.transform(batch, params)
    assert result.layout == layout
    for k, (item, sample) in enumerate(zip(of_batch(result), samples, strict=True)):
        compare(item, theirs.transform(sample, _params_of(name, params, k, len(samples))), *limits)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        (name, value)
        for name, value, _ in RANDOM
        if name not in ("ColorJitter", "RandomErasing", "JPEG", "RandomPhotometricDistort", "RandomChannelPermutation", "GaussianBlur", "RandomCrop")
    ],
)
def test_boxes_points_and_masks_follow_the_image(name: str, args: dict[str, Any]) -> None:
    ndd.random.set_seed(12)
    sizes = ((37, 53), (64, 48), (31, 31))
    boxes, points = (
        [boxes_of(h, w, seed=k, count=k + 1) for k, (h, w) in enumerate(sizes)],
        [points_of(h, w, seed=k) for k, (h, w) in enumerate(sizes)],
    )
    if name == "ElasticTransform":  # torchvision moves a point from its pixel: at whole pixels the results are equal
        boxes, points = ([single.wrap(row.floor(), like=row) for row in rows] for rows in (boxes, points))
    masks = [single.Mask((pixels(h, w, 2) > 120).to(torch.uint8)) for h, w in sizes]
    sample = {"image": image_batch(pictures(sizes=sizes)), "boxes": join(boxes), "points": join(points), "n": ndd.batch([1, 2, 3])}
    sample["masks"] = tv_tensors.Mask(ndd.batch([mask.as_subclass(torch.Tensor) for mask in masks]))
    if "fill" in args:
        args = {**args, "fill": {single.Image: args["fill"], "others": 0}}
    ours, theirs = getattr(v2, name)(**args), getattr(reference, name)(**of_torchvision(args))
    params = ours.make_params([value for key, value in sample.items() if key != "n"])
    moved = {key: ours.transform(value, params) for key, value in sample.items() if key != "n"}
    for k in range(3):
        own = _params_of(name, params, k, 3)
        expected = {"boxes": theirs.transform(boxes[k], own), "points": theirs.transform(points[k], own), "masks": theirs.transform(masks[k], own)}
        expands = args.get("expand", False)  # the canvas is the image's, which differs from torchvision's, to which boxes are clamped, by a pixel
        canvas = moved["image"].shape[k][:2] if expands else tuple(expected["boxes"].canvas_size)
        assert moved["boxes"].canvas_size[k] == moved["points"].canvas_size[k] == canvas
        compare(moved["boxes"].select(k).torch(), expected["boxes"].as_subclass(torch.Tensor), 1.0 if expands else 0.02)
        compare(moved["points"].select(k).torch(), expected["points"].as_subclass(torch.Tensor), 0.02)
        compare(moved["masks"].select(k).torch(), expected["masks"].as_subclass(torch.Tensor), 1.0, 0.02)
    assert moved["image"].shape[0][:2] == moved["boxes"].canvas_size[0]


DETERMINISTIC: list[Callable[[Any], Any]] = [
    lambda m: m.Resize(20),
    lambda m: m.Resize((20, 33), interpolation=reference.InterpolationMode.BICUBIC),
    lambda m: m.Resize(None, max_size=30),
    lambda m: m.CenterCrop(40),
    lambda m: m.Pad([1, 2, 3, 4], fill=(1, 2, 3)),
    lambda m: m.Pad(2, padding_mode="symmetric"),
    lambda m: m.Grayscale(3),
    lambda m: m.Grayscale(),
    lambda m: m.RGB(),
    lambda m: m.ToDtype(torch.float32, scale=True),
    lambda m: m.ConvertImageDtype(torch.float32),
    lambda m: m.Identity(),
    lambda m: m.ToImage(),
    lambda m: m.RandomHorizontalFlip(1),
    lambda m: m.RandomVerticalFlip(1),
    lambda m: m.RandomInvert(1),
    lambda m: m.RandomPosterize(3, 1),
    lambda m: m.RandomSolarize(100, 1),
    lambda m: m.RandomEqualize(1),
    lambda m: m.RandomAutocontrast(1),
    lambda m: m.RandomAdjustSharpness(2, 1),
    lambda m: m.RandomGrayscale(1),
    lambda m: m.RandomInvert(0),
    lambda m: m.Compose([m.Resize(30), m.CenterCrop(24), m.ToImage(), m.ToDtype(torch.float32, scale=True), m.Normalize([0.5] * 3, [0.2] * 3)]),
    lambda m: m.RandomChoice([m.Resize(20), m.RandomInvert(1)], p=[0, 1]),
    lambda m: m.RandomApply([m.Resize(20)], p=1.0),
]


@pytest.mark.parametrize("make", DETERMINISTIC)
def test_deterministic_transforms_equal_torchvision(make: Callable[[Any], Any], device: str, torch_device: torch.device) -> None:
    samples = pictures()
    result = make(v2)(image_batch(samples, device=device))
    alone = [make(v2)(sample.to(torch_device)) for sample in samples]
    for item, by_itself, sample in zip(of_batch(result), alone, samples, strict=True):
        expected = make(reference)(single.Image(sample)).as_subclass(torch.Tensor)
        most, mean = (1e-5, None) if expected.dtype.is_floating_point and "Normalize" not in repr(make(v2)) else (1.0, 0.02)
        compare(item, expected, most, mean)
        compare(by_itself.as_subclass(torch.Tensor), make(reference)(sample).as_subclass(torch.Tensor), most, mean)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("RandomHorizontalFlip", {}),
        ("RandomVerticalFlip", {}),
        ("RandomInvert", {}),
        ("RandomPosterize", {"bits": 2}),
        ("RandomSolarize", {"threshold": 100}),
        ("RandomEqualize", {}),
        ("RandomAutocontrast", {}),
        ("RandomAdjustSharpness", {"sharpness_factor": 3.0}),
        ("RandomGrayscale", {}),
        ("RandomPerspective", {}),
        ("RandomZoomOut", {}),
        ("RandomErasing", {}),
    ],
)
@pytest.mark.parametrize("p", [0.3, 0.8])
def test_probability_is_per_sample(name: str, args: dict[str, Any], p: float) -> None:
    ndd.random.set_seed(5)
    sample = pixels(24, 25)
    count = 300
    batch = image_batch([sample] * count)
    result = of_batch(getattr(v2, name)(**args, p=p)(batch))
    changed = sum(item.shape != sample.shape or not torch.equal(item, sample) for item in result)
    assert abs(changed - p * count) < 5 * (count * p * (1 - p)) ** 0.5
    if name != "RandomPerspective":  # others draw more than whether
        whole = getattr(reference, name)(**args, p=1.0)
        same = [item for item in result if item.shape == sample.shape and torch.equal(item, sample)]
        assert len(same) == count - changed
        if name not in ("RandomZoomOut", "RandomErasing"):
            expected = whole(sample)
            assert all((item.float() - expected.float()).abs().max() <= 1 for item in result if not torch.equal(item, sample))


def test_flips_with_a_probability_move_everything_together() -> None:
    ndd.random.set_seed(4)
    sizes = ((37, 53), (64, 48), (31, 31)) * 10
    samples = pictures(sizes=sizes)
    boxes, points = [boxes_of(h, w, seed=k) for k, (h, w) in enumerate(sizes)], [points_of(h, w, seed=k) for k, (h, w) in enumerate(sizes)]
    masks = tv_tensors.Mask(ndd.batch([sample[:1] for sample in samples]))
    images, moved, dots, planes = v2.RandomHorizontalFlip(0.5)(image_batch(samples), join(boxes), join(points), masks)
    flips = 0
    for k, item in enumerate(of_batch(images)):
        flipped = not torch.equal(item, samples[k])
        flips += flipped
        assert torch.equal(item, samples[k].flip(-1) if flipped else samples[k])
        assert torch.equal(planes.select(k).torch(), item[:1])
        expected = (
            (reference.functional.horizontal_flip(boxes[k]), reference.functional.horizontal_flip(points[k])) if flipped else (boxes[k], points[k])
        )
        compare(moved.select(k).torch(), expected[0].as_subclass(torch.Tensor), 1e-4)
        compare(dots.select(k).torch(), expected[1].as_subclass(torch.Tensor), 1e-4)
    assert 5 < flips < 25


def test_seed_repeats_without_torch_generator() -> None:
    transform = v2.Compose([v2.RandomResizedCrop(20), v2.RandAugment(), v2.RandomErasing(), v2.RandomApply([v2.ElasticTransform()])])
    samples = image_batch(pictures())
    state = torch.get_rng_state()
    results = []
    for seed in (1, 1, 2):
        ndd.random.set_seed(seed)
        results.append((transform(samples).torch(), transform(pictures()[0])))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[2][0])


def test_samples_draw_independently() -> None:
    ndd.random.set_seed(8)
    batch = image_batch([pixels(40, 40)] * 16)
    for transform in (v2.RandomResizedCrop(20), v2.RandomRotation(50), v2.ColorJitter(0.5), v2.TrivialAugmentWide(), v2.AugMix(), v2.GaussianNoise()):
        result = of_batch(transform(batch))
        assert len({item.numpy().tobytes() for item in result}) >= 8


def test_containers_draw_per_sample() -> None:
    ndd.random.set_seed(9)
    samples = pictures() * 10
    result = v2.RandomApply([v2.Resize((20, 20))], p=0.5)(image_batch(samples))
    sizes = [sample.shape[-2:] == (20, 20) for sample in of_batch(result)]
    assert 8 < sum(sizes) < 32
    for item, sample, resized in zip(of_batch(result), samples, sizes, strict=True):
        assert resized or torch.equal(item, sample)
    result = v2.RandomOrder([v2.Pad(1), v2.CenterCrop(20)])(image_batch(samples))
    assert {tuple(sample.shape[-2:]) for sample in of_batch(result)} == {(20, 20), (22, 22)}
    result = v2.RandomChoice([v2.CenterCrop(20), v2.CenterCrop(10)], p=[3, 1])(image_batch(samples))
    assert 20 < sum(sample.shape[-1] == 20 for sample in of_batch(result)) < 40
    with pytest.raises(RuntimeError, match="ToDtype"):
        v2.RandomApply([v2.ToDtype(torch.float32)])(image_batch(samples))


def test_five_crops_are_tuples_of_batches() -> None:
    result = v2.TenCrop(20)(image_batch(pictures()))
    assert isinstance(result, tuple)
    for k, part in enumerate(result):
        for item, sample in zip(of_batch(part), pictures(), strict=True):
            compare(item, reference.TenCrop(20)(sample)[k])


def test_linear_transformation_equals_torchvision() -> None:
    samples = [pixels(5, 6, dtype=torch.float32, seed=k) for k in range(3)]
    matrix, mean = torch.randn(90, 90), torch.randn(90)
    for layout in ("HWC", "CHW"):
        for item, sample in zip(of_batch(v2.LinearTransformation(matrix, mean)(image_batch(samples, layout))), samples, strict=True):
            compare(item, reference.LinearTransformation(matrix, mean)(sample), 1e-4)
    with pytest.raises(ValueError, match="same shape"):
        v2.LinearTransformation(matrix, mean)(image_batch(pictures(3, torch.float32)))


def test_sanitizing_removes_labels_and_masks() -> None:
    sizes = ((37, 53), (64, 48))
    boxes = [single.wrap(boxes_of(2 * h, 2 * w, count=5 + k, seed=k), like=boxes_of(h, w)) for k, (h, w) in enumerate(sizes)]
    boxes = [single.wrap(box, like=box, canvas_size=size) for box, size in zip(boxes, sizes, strict=True)]
    labels = [torch.arange(len(box)) for box in boxes]
    masks = [torch.stack([torch.full(size, k) for k in range(len(box))]) for box, size in zip(boxes, sizes, strict=True)]
    sample = {
        "image": image_batch(pictures(sizes=sizes)),
        "boxes": join(boxes),
        "labels": ndd.batch(labels),
        "masks": tv_tensors.Mask(ndd.batch(masks)),
    }
    result = v2.SanitizeBoundingBoxes()(sample)
    for k in range(2):
        alone = {"boxes": boxes[k], "labels": labels[k], "masks": single.Mask(masks[k])}
        expected = reference.SanitizeBoundingBoxes()(alone)
        for key in alone:
            assert torch.equal(result[key].select(k).torch(), expected[key].as_subclass(torch.Tensor))


def test_custom_classes_are_called_per_sample() -> None:
    seen = []

    class Mine(v2.Transform):
        def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
            seen.append([type(item) for item in flat_inputs])
            return {"n": len(seen)}

        def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
            return v2.functional.crop(inpt, 0, 0, 10 + params["n"], 12) if isinstance(inpt, single.Image | single.BoundingBoxes) else inpt

    sizes = ((37, 53), (64, 48))
    boxes = join([boxes_of(h, w) for h, w in sizes])
    images, moved, labels = Mine()(image_batch(pictures(sizes=sizes)), boxes, ndd.batch([3, 4]))
    assert seen == [[single.Image, single.BoundingBoxes]] * 2
    assert images.shape == [(11, 12, 3), (12, 12, 3)]
    assert images.layout == "HWC"
    assert moved.canvas_size == [(11, 12), (12, 12)]
    assert labels.torch().tolist() == [3, 4]
    assert Mine()(single.Image(pictures()[0])).shape == (3, 13, 12)
