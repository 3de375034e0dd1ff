# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: C408, E501 (tables of arguments)
"""``from_torchvision`` against torchvision itself, in a real torch ``DataLoader``."""

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photos import write_photos
from torch import nn

torchvision = pytest.importorskip("torchvision")

from torchvision import transforms as v1  # noqa: E402
from torchvision import tv_tensors  # noqa: E402
from torchvision.datasets import ImageFolder as TheirFolder  # noqa: E402
from torchvision.transforms import InterpolationMode, v2  # noqa: E402

import torch_ndd as ndd  # noqa: E402
from torch_ndd.torchvision import from_torchvision  # noqa: E402
from torch_ndd.torchvision import v2 as ours  # noqa: E402

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
NORMALIZED = [*FLOATS, v2.Normalize(MEAN, STD)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    write_photos(root, 12)
    return root


def both(folder: Path, transform: Any, batch_size: int = 12) -> tuple[Any, Any]:
    """Return all images through torch's loader and through ours, as tensors or lists."""
    dataset = TheirFolder(str(folder), transform)
    theirs = [dataset[k][0] for k in range(len(dataset))]
    fn = from_torchvision(transform)
    mine: list[Any] = []
    for images, labels in ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=batch_size):
        assert labels.dtype == torch.int64
        mine += list(images)
    return theirs, mine


def levels(theirs: Any, mine: Any, std: Any = None) -> tuple[float, float]:
    """Return the largest and the mean difference in levels of 255."""
    most, total = 0.0, 0.0
    for a, b in zip(theirs, mine, strict=True):
        a = torch.from_numpy(np.array(a)) if not isinstance(a, torch.Tensor) else a
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        scale = 255.0 if a.is_floating_point() else 1.0
        difference = (a.double() - b.double()).abs() * scale
        if std is not None:
            difference = difference * torch.tensor(std)[:, None, None]
        most, total = max(most, float(difference.max())), total + float(difference.mean())
    return most, total / len(mine)


DETERMINISTIC: dict[str, tuple[Any, Any, float, float]] = {
    "validation v2": (v2.Compose([v2.Resize(64), v2.CenterCrop(56), *NORMALIZED]), STD, 0.01, 0.001),
    "validation v1": (v1.Compose([v1.Resize(64), v1.CenterCrop(56), v1.ToTensor(), v1.Normalize(MEAN, STD)]), STD, 0.01, 0.001),
    "tensors first": (
        v2.Compose([v2.PILToTensor(), v2.Resize((60, 50)), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]),
        STD,
        1.01,
        0.3,
    ),
    "bicubic, within a container": (
        v2.Compose([v2.RandomApply([v2.Resize((70, 60), v2.InterpolationMode.BICUBIC)], p=1.0), *FLOATS]),
        None,
        0.01,
        0.001,
    ),
    "shortest size": (v2.Compose([v2.RandomShortestSize([77], max_size=200), v2.PILToTensor()]), None, 0, 0),
    "flip always": (v2.Compose([v2.RandomHorizontalFlip(1.0), *NORMALIZED]), STD, 0.01, 0.001),
    "flip never": (v1.Compose([v1.RandomHorizontalFlip(0.0), v1.ToTensor()]), None, 0.01, 0.001),
    "no normalization": (v2.Compose([v2.CenterCrop(40), *FLOATS]), None, 0.01, 0.001),
    "bytes": (v2.Compose([v2.CenterCrop((30, 700)), v2.PILToTensor()]), None, 0, 0),
    "PIL ends": (v2.CenterCrop(50), None, 0, 0),
    "list": ([v1.CenterCrop(50), v1.ToTensor()], None, 0.01, 0.001),
    "nested": (v1.Compose([v1.Compose([v1.CenterCrop(50)]), v1.Compose([v1.ToTensor()])]), None, 0.01, 0.001),
    "PIL in the middle": (v1.Compose([v1.PILToTensor(), v1.ToPILImage(), v1.CenterCrop(9), v1.ToTensor()]), None, 0.01, 0.001),
    "pad": (v1.Compose([v1.Pad(5, fill=(1, 2, 3)), v1.CenterCrop(600), v1.ToTensor()]), None, 0.01, 0.001),
    "colors": (v2.Compose([v2.Grayscale(3), v2.RandomInvert(1.0), v2.RandomPosterize(3, 1.0), v2.CenterCrop(99), *FLOATS]), None, 40, 2),
    "equalize": (v2.Compose([v2.CenterCrop(200), v2.RandomEqualize(1.0), v2.RandomSolarize(100, 1.0), *FLOATS]), None, 0.01, 0.001),
    "nearest exact": (v2.Compose([v2.PILToTensor(), v2.Resize((33, 44), InterpolationMode.NEAREST_EXACT)]), None, 0, 0),
    "five crops": (v2.Compose([v2.CenterCrop(60), v2.PILToTensor()]), None, 0, 0),
}


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_translated_transform_equals_torchvision(name: str, folder: Path) -> None:
    transform, std, most, mean = DETERMINISTIC[name]
    if isinstance(transform, list):
        theirs, _ = both(folder, v1.Compose(transform))
        fn = from_torchvision(transform)
        mine = [image for images, _ in ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=5) for image in images]
    else:
        theirs, mine = both(folder, transform)
    found = levels(theirs, mine, std)
    assert found[0] <= most, found
    assert found[1] <= mean, found


@pytest.mark.parametrize("name", ["ResNet18_Weights", "MobileNet_V3_Large_Weights", "ViT_B_16_Weights"])
def test_presets_of_weights_equal_torchvision(name: str, folder: Path) -> None:
    weights = getattr(torchvision.models, name).DEFAULT
    theirs, mine = both(folder, weights.transforms())
    assert levels(theirs, mine, STD)[0] <= 0.01


def test_other_presets_equal_torchvision(folder: Path) -> None:
    from torchvision.transforms import _presets

    segmentation = _presets.SemanticSegmentation(resize_size=40)
    theirs, mine = both(folder, segmentation)
    assert levels(theirs, mine, STD)[0] <= 1.01
    theirs, mine = both(folder, _presets.ObjectDetection())
    assert levels(theirs, mine)[0] < 0.01
    video = _presets.VideoClassification(crop_size=(20, 24), resize_size=(32, 40))
    frames = torch.randint(0, 256, (2, 3, 50, 60, 3), dtype=torch.uint8)
    result = from_torchvision(video)(ndd.batch(frames, layout="FHWC"))
    assert result.layout == "CFHW"
    expected = video(frames.permute(0, 1, 4, 2, 3))
    assert ((result.torch() - expected).abs() * torch.tensor(video.std)[:, None, None, None] * 255).max() < 1.01
    flow = _presets.OpticalFlow()
    pair = [torch.randint(0, 256, (2, 8, 9, 3), dtype=torch.uint8) for _ in range(2)]
    result = from_torchvision(flow)(*(ndd.batch(value, layout="HWC") for value in pair))
    for item, other in zip(result, flow(*(value.permute(0, 3, 1, 2) for value in pair)), strict=True):
        torch.testing.assert_close(item.torch(), other)


RANDOM: list[Any] = [
    v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ColorJitter(0.4, 0.4, 0.4, 0.1), v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomErasing(0.5)]),
    v2.Compose([v2.RandomResizedCrop(32, antialias=True), v2.RandAugment(), *NORMALIZED, v2.RandomErasing(0.5, value="random")]),
    v2.Compose([v2.Resize(40), v2.RandomCrop(32, padding=4), v2.TrivialAugmentWide(), *NORMALIZED]),
    v1.Compose([v1.RandomResizedCrop(32), v1.AutoAugment(), v1.ToTensor()]),
    v2.Compose([v2.RandomResizedCrop(32), v2.AugMix(), *FLOATS]),
    v1.Compose([v1.Resize((32, 32)), v1.RandomApply([v1.ColorJitter(0.5), v1.GaussianBlur(3)], 0.5), v1.RandomGrayscale(0.2), v1.ToTensor()]),
    v2.Compose([v2.Resize((32, 32)), v2.RandomChoice([v2.RandomInvert(1.0), v2.Grayscale(3), v1.RandomPosterize(2, p=1.0)], p=[1, 2, 1]), *FLOATS]),
    v1.Compose([v1.Resize((32, 32)), v1.RandomOrder([v1.RandomRotation(20), v1.RandomAffine(5, (0.1, 0.1), (0.9, 1.1), 3)]), v1.ToTensor()]),
    v2.Compose([v2.Resize((32, 32)), v2.RandomPerspective(), v2.ElasticTransform(), v2.RandomAdjustSharpness(2), v2.RandomAutocontrast(), *FLOATS]),
    v2.Compose([v2.Resize((32, 32)), v2.RandomPhotometricDistort(), v2.RandomVerticalFlip(), v2.JPEG(50), *FLOATS, v2.GaussianNoise()]),
    nn.Sequential(v2.RandomResizedCrop(32), v2.ToImage(), v2.RandomZoomOut(fill={torchvision.tv_tensors.Image: 9, "others": 0}), v2.Resize((32, 32)), *FLOATS[1:]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_random_transforms_have_the_distribution_of_torchvision(number: int, folder: Path) -> None:
    """The shapes, the types, the mean over many draws, and results that repeat."""
    transform = RANDOM[number]
    torch.manual_seed(0)
    dataset = TheirFolder(str(folder), transform)
    theirs = torch.stack([dataset[k % 12][0] for k in range(96)])
    fn = from_torchvision(transform)
    loaders = [ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=6, seed=5, prefetch=prefetch) for prefetch in (0, 2)]
    runs = [torch.cat([images for _ in range(8) for images, _ in loader]) for loader in loaders]
    assert torch.equal(*runs)
    mine = runs[0]
    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    spread = theirs.mean((1, 2, 3)).std() + theirs.std()
    assert abs(mine.mean() - theirs.mean()) < 0.2 * spread
    assert abs(mine.std() - theirs.std()) < 0.2 * spread
    assert not torch.equal(mine[:12], mine[12:24])


@pytest.mark.parametrize("flips", [[], [v2.RandomHorizontalFlip(0.5)]], ids=["plain", "flipped"])
def test_only_the_random_crop_is_decoded(flips: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same draws the fused decoder, whose windows are normalized in the resize, gives what the transform gives of whole images."""
    transform = v2.Compose([v2.RandomResizedCrop(48), *flips, *FLOATS])
    fn = from_torchvision(transform)
    files = [ndd.io.file.read(ndd.batch([list(str(path).encode())], dtype=ndd.uint8)).select(0) for path, _ in ndd.ImageFolder(folder).samples]
    encoded = ndd.as_batch(files)
    ndd.random.set_seed(1)
    alone = fn(encoded).torch()
    whole = ndd.decoders.image(encoded, adjust_orientation=False)
    called: list[Any] = []
    from torch_ndd.torchvision._translation import steps

    real = steps.image_slice
    monkeypatch.setattr(steps, "image_slice", lambda *value, **options: called.append(1) or real(*value, **options))
    ndd.random.set_seed(1)
    assert torch.equal(fn(whole).torch(), alone)
    assert not called
    fn(encoded)
    assert called


def test_flip_conversion_and_normalization_are_fused() -> None:
    names = [type(value).__name__ for value in from_torchvision(RANDOM[0])._fused]
    assert names == ["RandomResizedCrop", "RandomHorizontalFlip", "ColorJitter", "FlipNormalize"]
    fused = from_torchvision(v1.Compose([v1.RandomResizedCrop(9), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]))
    assert [type(value).__name__ for value in fused._fused] == ["RandomResizedCrop", "FlipNormalize"]
    assert [type(transform).__name__ for transform in fused.transforms] == [
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "ToImage",
        "ToDtype",
        "Normalize",
    ]
    assert "FlipNormalize(RandomHorizontalFlip" in repr(fused)


def test_flip_is_fused_behind_a_resize() -> None:
    steps = [v2.RandomHorizontalFlip(1.0), v2.Resize((6, 8), antialias=True), *FLOATS]
    fn = from_torchvision(v2.Compose(steps))
    assert [type(value).__name__ for value in fn._fused] == ["FlipAfterResize"]
    assert "Resize" in repr(fn)
    images = torch.randint(0, 256, (2, 3, 13, 17), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    result = fn(ndd.as_batch(images.permute(0, 2, 3, 1).contiguous(), layout="HWC")).torch()
    torch.testing.assert_close(result, v2.Compose(steps)(images), atol=1.01 / 255, rtol=0)
    assert (result - v2.Compose(steps)(images)).abs().mean() < 0.01 / 255
    nearest = from_torchvision(v2.Compose([steps[0], v2.Resize((6, 8), interpolation=InterpolationMode.NEAREST), *FLOATS]))
    assert [type(value).__name__ for value in nearest._fused] == ["RandomHorizontalFlip", "Resize", "FlipNormalize"]


def test_masks_are_flipped_before_they_are_resized() -> None:
    from torch_ndd.torchvision import tv_tensors

    steps = [v2.RandomHorizontalFlip(1.0), v2.Resize((2, 3), antialias=True), *FLOATS]
    image, mask = torch.arange(4 * 5 * 3, dtype=torch.uint8).reshape(3, 4, 5), torch.arange(20, dtype=torch.uint8).reshape(1, 4, 5)
    expected = v2.Compose(steps)(torchvision.tv_tensors.Image(image), torchvision.tv_tensors.Mask(mask))
    images = ndd.as_batch(image.permute(1, 2, 0)[None].contiguous(), layout="HWC")
    result = from_torchvision(v2.Compose(steps))(images, tv_tensors.Mask(ndd.as_batch(mask[None])))
    assert torch.equal(result[1].torch()[0], expected[1])
    torch.testing.assert_close(result[0].torch()[0], expected[0].as_subclass(torch.Tensor), atol=1.01 / 255, rtol=0)


def detection_sample(dtype: torch.dtype = torch.float32) -> tuple[ndd.Batch, dict[str, Any]]:
    """Images of different sizes, each with two boxes and a number for each box."""
    from torch_ndd.torchvision import tv_tensors

    generator = torch.Generator().manual_seed(0)
    pixels = [torch.randint(0, 256, (20 + k, 30 + 2 * k, 3), dtype=torch.uint8, generator=generator) for k in range(12)]
    images = ndd.batch(pixels, layout="HWC")
    corners = [torch.tensor([[1, 2, 12 + k, 15], [10, 3, 25, 18 + k]], dtype=dtype) for k in range(12)]
    boxes = tv_tensors.BoundingBoxes(ndd.batch(corners), format="XYXY", canvas_size=images)
    return images, {"boxes": boxes, "labels": ndd.batch([torch.tensor([k, k + 1]) for k in range(12)])}


@pytest.mark.parametrize("fill", [0, 7.9, [1, 2, 3]])
def test_zoom_out_and_iou_crop_are_fused(fill: Any) -> None:
    zoom, crop = v2.RandomZoomOut(fill=fill), v2.RandomIoUCrop()
    fn = from_torchvision(v2.Compose([zoom, crop]))
    assert [type(item).__name__ for item in fn._fused] == ["ZoomCrop"]
    assert "RandomZoomOut" in repr(fn)
    ndd.random.set_seed(4)
    images, target = fn(*detection_sample())
    ndd.random.set_seed(4)
    zoomed = ours.RandomZoomOut(fill=fill)(*detection_sample())
    expected, boxes = ours.RandomIoUCrop()(*zoomed)
    assert zoomed[0].shape != detection_sample()[0].shape
    assert images.shape == expected.shape != zoomed[0].shape
    for value, other in zip([*images, *target["boxes"], *target["labels"]], [*expected, *boxes["boxes"], *boxes["labels"]], strict=True):
        assert torch.equal(value.torch(), other.torch())
    assert target["boxes"].canvas_size == boxes["boxes"].canvas_size


def test_zoom_out_and_iou_crop_accept_single_images() -> None:
    fn = from_torchvision(v2.Compose([v2.RandomZoomOut(p=1.0), v2.RandomIoUCrop()]))
    image = torchvision.tv_tensors.Image(torch.zeros(3, 20, 30, dtype=torch.uint8))
    boxes = torchvision.tv_tensors.BoundingBoxes([[2, 3, 12, 15]], format="XYXY", canvas_size=(20, 30))
    result, moved = fn(image, boxes)
    assert moved.canvas_size == tuple(result.shape[-2:])


@pytest.mark.parametrize(("dtype", "late"), [(torch.float32, True), (torch.int64, False)])
def test_floating_point_boxes_are_flipped_after_the_resize(dtype: torch.dtype, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [v2.RandomHorizontalFlip(1.0), v2.Resize((6, 8), antialias=True), *FLOATS]
    fn = from_torchvision(v2.Compose(steps))
    (alone,) = fn._fused_for_pillow
    called: list[bool] = []
    first = alone.late[0]
    monkeypatch.setattr(alone, "late", [lambda sample: called.append(True) or first(sample), *alone.late[1:]])
    images, target = fn(*detection_sample(dtype))
    assert bool(called) is late
    for k, (image, boxes) in enumerate(zip(*(lambda sample: (sample[0], sample[1]["boxes"]))(detection_sample(dtype)), strict=True)):
        pixels = torchvision.tv_tensors.Image(image.torch().permute(2, 0, 1))
        own = torchvision.tv_tensors.BoundingBoxes(boxes.torch(), format="XYXY", canvas_size=pixels.shape[-2:])
        expected = v2.Compose(steps)(pixels, own)
        torch.testing.assert_close(images.select(k).torch(), expected[0].as_subclass(torch.Tensor), atol=1.01 / 255, rtol=0)
        torch.testing.assert_close(target["boxes"].select(k).torch(), expected[1].as_subclass(torch.Tensor), atol=1e-5, rtol=1e-5)


def test_boxes_and_masks_move_with_the_image() -> None:
    from torch_ndd.torchvision import tv_tensors

    fn = from_torchvision(v2.Compose([v2.RandomHorizontalFlip(1.0), *FLOATS, v2.SanitizeBoundingBoxes()]))
    images = ndd.batch([torch.arange(2 * w * 3, dtype=torch.uint8).reshape(2, w, 3) for w in (4, 5)], layout="HWC")
    boxes = tv_tensors.BoundingBoxes(ndd.batch([[[0.0, 0, 1, 2]], [[1.0, 0, 3, 2]]]), format="XYXY", canvas_size=images)
    masks = tv_tensors.Mask(ndd.batch([torch.tensor([[[1, 0, 0, 0]] * 2]), torch.tensor([[[0, 1, 1, 0, 0]] * 2])]))
    result, target = fn(images, {"boxes": boxes, "masks": masks, "labels": ndd.batch([[3], [4]])})
    assert result.layout == "CHW"
    for k in range(2):
        torch.testing.assert_close(result.select(k).torch() * 255, images.select(k).torch().flip(1).permute(2, 0, 1).float())
    assert [box.torch().tolist() for box in target["boxes"]] == [[[3, 0, 4, 2]], [[2, 0, 4, 2]]]
    assert [mask.torch()[0, 0].tolist() for mask in target["masks"]] == [[0, 0, 0, 1], [0, 0, 1, 1, 0]]
    assert [label.torch().tolist() for label in target["labels"]] == [[3], [4]]


def test_tensors_without_a_layout_are_images() -> None:
    fn = from_torchvision(v2.Compose([v2.CenterCrop(2), v2.ToDtype(torch.float32, scale=True)]))
    result, labels = fn(ndd.batch(torch.full((3, 3, 6, 8), 255, dtype=torch.uint8)), ndd.batch([1, 2, 3]))
    assert result.torch().shape == (3, 3, 2, 2)
    assert result.torch().max() == 1
    assert labels.torch().tolist() == [1, 2, 3]


class Custom:
    def __call__(self, image: Any) -> Any:
        return image


class Preset(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transforms = v2.Compose([v2.CenterCrop(3)])

    def forward(self, image: Any) -> Any:
        return self.transforms(image)


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (v1.Compose([v1.CenterCrop(3), Custom()]), r"transform\[1\] \(Custom of .*\) is not a transform of torchvision; .*per_sample"),
        (v2.Compose([v2.RandomApply([v2.Lambda(abs)])]), r"transform\[0\]\[0\] is a Lambda"),
        (Preset(), r"transform \(Preset of .*give its attribute transforms, a Compose"),
        ([v2.CenterCrop(3), 7], r"transform\[1\] must be a transform, got a value of type int"),
        (lambda image: image, r"transform \(<lambda> of"),
    ],
)
def test_untranslatable_transforms_raise(transform: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"from_torchvision: {words}"):
        from_torchvision(transform)


def test_unknown_transforms_are_called_per_sample(folder: Path) -> None:
    seen: list[Any] = []

    def darker(image: Any) -> Any:
        seen.append(type(image).__name__)
        return image // 2

    transform = v2.Compose([v2.ToImage(), v2.CenterCrop(40), darker, Custom(), v2.ToDtype(torch.float32, scale=True)])
    dataset = TheirFolder(str(folder), transform)
    theirs = [dataset[k][0] for k in range(12)]
    seen.clear()
    fn = from_torchvision(transform, "per_sample")
    mine = [
        image for images, _ in ndd.DataLoader(ndd.ImageFolder(folder), lambda files, labels: (fn(files), labels), batch_size=5) for image in images
    ]
    assert levels(theirs, mine)[0] < 0.01
    assert seen == ["Image"] * 12
    to_pil = from_torchvision(lambda image: v2.functional.to_pil_image(image), "per_sample")
    images = ndd.batch(torch.randint(0, 256, (2, 4, 5, 3), dtype=torch.uint8), layout="HWC")
    assert torch.equal(to_pil(images).torch(), images.torch().permute(0, 3, 1, 2))
    with pytest.raises(ValueError, match="unknown must be"):
        from_torchvision(transform, "ignore")


def test_ndd_transforms_and_single_samples_are_accepted(folder: Path) -> None:
    mixed = from_torchvision(v2.Compose([ours.CenterCrop(40), v2.ToImage(), ours.ToDtype(torch.float32, scale=True)]))
    assert [type(transform).__module__.startswith("torch_ndd.") for transform in mixed.transforms] == [True] * 3
    image = TheirFolder(str(folder))[0][0]
    assert torch.equal(mixed(image), v2.Compose([v2.CenterCrop(40), *FLOATS])(image))
    assert from_torchvision(mixed).transforms == mixed.transforms


def every_class() -> list[tuple[str, Callable[[], Any]]]:
    """Return an object of every class of v2 with arguments unlike the defaults."""
    arguments: dict[str, tuple[Any, ...] | dict[str, Any]] = {
        "AugMix": dict(severity=2, mixture_width=2, chain_depth=1, alpha=0.5, all_ops=False, interpolation=InterpolationMode.NEAREST, fill=3),
        "AutoAugment": dict(policy=v2.AutoAugmentPolicy.CIFAR10, fill=[1, 2, 3]),
        "CenterCrop": (7,),
        "ClampBoundingBoxes": ("hard",),
        "ColorJitter": dict(brightness=0.1, contrast=(0.2, 0.9), hue=0.1),
        "ConvertBoundingBoxFormat": ("CXCYWH",),
        "ConvertImageDtype": (torch.float64,),
        "CutMix": dict(alpha=0.5, num_classes=4),
        "ElasticTransform": dict(alpha=[3.0, 4.0], sigma=2.0, fill=5),
        "FiveCrop": (5,),
        "GaussianBlur": (3, (0.5, 0.6)),
        "GaussianNoise": dict(mean=0.1, sigma=0.2, clip=False),
        "Grayscale": (3,),
        "JPEG": ((3, 9),),
        "LinearTransformation": (torch.eye(12), torch.ones(12)),
        "MixUp": dict(alpha=0.3, num_classes=7),
        "Normalize": ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
        "Pad": ([1, 2], 3, "edge"),
        "RandAugment": dict(num_ops=3, magnitude=4, num_magnitude_bins=11, fill=1),
        "RandomAdjustSharpness": (2, 0.3),
        "RandomAffine": dict(degrees=(1, 9), translate=(0.1, 0.2), scale=(0.5, 0.6), shear=(1, 2, 3, 4), fill=2, center=(1, 2)),
        "RandomApply": ([v2.RandomInvert(1.0)], 0.3),
        "RandomChoice": ([v2.RandomInvert(1.0), v2.CenterCrop(3)], [0.3, 0.7]),
        "RandomCrop": dict(size=(3, 4), padding=(1, 2), pad_if_needed=True, fill=7, padding_mode="reflect"),
        "RandomErasing": dict(p=0.4, scale=(0.1, 0.2), ratio=(0.5, 0.6), value="random"),
        "RandomIoUCrop": dict(min_scale=0.2, max_scale=0.9, min_aspect_ratio=0.4, max_aspect_ratio=3, sampler_options=[0.2, 1.0], trials=5),
        "RandomOrder": ([v2.RandomInvert(1.0)],),
        "RandomPerspective": (0.3, 0.4, InterpolationMode.NEAREST, 5),
        "RandomPhotometricDistort": dict(brightness=(0.5, 0.6), contrast=(0.7, 0.8), saturation=(0.9, 1.0), hue=(-0.1, 0.1), p=0.2),
        "RandomPosterize": (3, 0.2),
        "RandomResize": (5, 9),
        "RandomResizedCrop": dict(size=(5, 6), scale=(0.1, 0.2), ratio=(0.5, 0.6), interpolation=InterpolationMode.BICUBIC, antialias=False),
        "RandomRotation": dict(degrees=(3, 9), interpolation=InterpolationMode.BILINEAR, expand=True, fill=4),
        "RandomShortestSize": ([3, 4], 9),
        "RandomSolarize": (100, 0.3),
        "RandomZoomOut": (5, (1.0, 2.0), 0.3),
        "Resize": dict(size=9, interpolation=InterpolationMode.NEAREST, max_size=20, antialias=False),
        "SanitizeBoundingBoxes": dict(min_size=3, min_area=2, labels_getter=None),
        "SanitizeKeyPoints": dict(labels_getter=None),
        "ScaleJitter": ((5, 6), (0.3, 0.4)),
        "SetClampingMode": ("hard",),
        "TenCrop": (5, True),
        "ToDtype": (torch.float16, True),
        "TrivialAugmentWide": dict(num_magnitude_bins=7, fill=1),
        "UniformTemporalSubsample": (3,),
    }
    left_out = {"Compose", "Lambda", "Transform", "ToTensor", "ToPILImage", "functional"}
    results: list[tuple[str, Callable[[], Any]]] = []
    for name in dir(v2):
        cls = getattr(v2, name)
        if name in left_out or not (isinstance(cls, type) and issubclass(cls, v2.Transform)):
            continue
        value = arguments.get(name, ())
        results.append((name, (lambda cls=cls, source=value: cls(**source) if isinstance(source, dict) else cls(*source))))
    return results


@pytest.mark.parametrize(("name", "make"), every_class(), ids=lambda value: value if isinstance(value, str) else "")
def test_translation_keeps_parameters(name: str, make: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = make()
        (mine,) = from_torchvision(theirs).transforms
    assert type(mine) is getattr(ours, name)
    for key, value in vars(theirs).items():
        if key.startswith(("_", "training", "transforms")):
            continue
        found = getattr(mine, key)
        same = (
            torch.equal(found, value)
            if isinstance(value, torch.Tensor)
            else list(found) == list(value)
            if isinstance(value, list | tuple)
            else found == value
        )
        assert same, f"{key}: {found!r} and {value!r}"


def test_resnet_predictions_equal_torchvision(folder: Path) -> None:
    """A network with random weights has the same top-1 choices on images of both loaders."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=20)
    model.train()  # fill the statistics of batch normalization with real images
    transform = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    theirs = torch.utils.data.DataLoader(TheirFolder(str(folder), transform), batch_size=6)
    mine = ndd.DataLoader(ndd.ImageFolder(folder), from_torchvision(transform), batch_size=6)
    with torch.no_grad():
        for images, _ in theirs:
            model(images)
        model.eval()
        model.fc.bias -= torch.cat([model(images) for images, _ in theirs]).mean(0)  # or all images have the same choice
        choices = [torch.cat([model(images).argmax(1) for images, _ in loader]) for loader in (theirs, mine)]
    assert torch.equal(*choices)
    assert len(choices[0]) == 12
    assert len(choices[0].unique()) > 1


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("value", [[7.0], [7.0, 8.0, 9.0]])
def test_fused_erasing_overwrites_only_the_windows(ragged: bool, value: list[float]) -> None:
    sizes = [(20 + k if ragged else 20, 30) for k in range(40)]
    images = ndd.as_batch([torch.randint(0, 256, (*size, 3), dtype=torch.uint8) for size in sizes], layout="HWC")
    plain = from_torchvision(v2.Compose(NORMALIZED))(images)
    fn = from_torchvision(v2.Compose([*NORMALIZED, v2.RandomErasing(0.5, value=value)]))
    assert "RandomErasing" in repr(fn)
    erased = 0
    for item, other in zip(fn(images), plain, strict=True):
        result, before = item.torch(), other.torch()
        changed = (result != before).all(0)
        assert torch.equal(result[:, ~changed], before[:, ~changed])
        assert (result[:, changed] == torch.tensor(value)[:, None]).all()
        rows, columns = changed.any(1).nonzero(), changed.any(0).nonzero()
        if len(rows):
            erased += 1
            window = changed[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
            assert window.all()
            assert 0.01 < window.numel() / changed.numel() < 0.4
    assert 8 <= erased <= 32


def test_per_sample_function_is_called_with_the_image() -> None:
    images, labels = ndd.batch(torch.arange(96, dtype=torch.uint8).reshape(4, 2, 4, 3), layout="HWC"), ndd.batch(torch.arange(4))
    values: list[Any] = []

    def invert(image: Any, strength: float = 1.0) -> Any:
        values.append(type(image))
        return 255 - image

    inverted, kept = from_torchvision(invert, "per_sample")(images, labels)
    assert set(values) == {tv_tensors.Image}
    assert torch.equal(inverted.torch(), 255 - images.torch().movedim(-1, 1) if inverted.layout == "CHW" else 255 - images.torch())
    assert kept.torch().tolist() == [0, 1, 2, 3]
    swapped = from_torchvision(lambda image, label: (label * 2, image), "per_sample")(images, labels)
    assert swapped[0].torch().tolist() == [0, 2, 4, 6]


def test_per_sample_functions_run_on_threads_in_order() -> None:
    together = threading.Barrier(2, timeout=20)  # broken unless two calls run at the same time

    def function(image: Any) -> Any:
        together.wait()
        return image + 1

    images = ndd.batch(torch.arange(96, dtype=torch.uint8).reshape(4, 2, 4, 3), layout="HWC")
    before = ndd.get_num_threads()
    try:
        ndd.set_num_threads(2)
        result = from_torchvision(function, "per_sample")(images)
    finally:
        ndd.set_num_threads(before)
    assert torch.equal(result.torch().flatten().sort().values, (images.torch() + 1).flatten().sort().values)
    assert result.torch()[:, 0, 0, 0].tolist() == [1, 25, 49, 73]
