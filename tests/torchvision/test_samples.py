# SPDX-License-Identifier: Apache-2.0
"""Trees of leaves: what is transformed, what passes, mixing, and mistakes."""

import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from _torchvision import boxes_of, compare, image_batch, join, of_batch, pictures, pixels, points_of
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

import torch_ndd as ndd
from torch_ndd.torchvision import tv_tensors, v2

SIZES = ((37, 53), (64, 48))
Pair = namedtuple("Pair", ["image", "rest"])


def _images() -> ndd.Batch:
    return image_batch(pictures(sizes=SIZES))


def test_sample_structures_are_preserved() -> None:
    for sample in (
        [_images(), {"a": [ndd.batch([1, 2])], "b": "text"}],
        OrderedDict(image=_images(), n=3),
        Pair(_images(), (None, 4.5)),
    ):
        result = v2.CenterCrop(20)(sample)
        assert type(result) is type(sample)
    first, second = v2.CenterCrop(20)(_images(), "label")
    assert first.shape == [(20, 20, 3)] * 2
    assert second == "label"


def test_tensors_beside_images_pass_through() -> None:
    images, labels, scores = v2.Resize(20)(_images(), ndd.batch([1, 2]), torch.zeros(3, 40, 50))
    assert images.shape[0][:2] == (20, 28)
    assert labels.torch().tolist() == [1, 2]
    assert scores.shape == (3, 40, 50)


def test_first_tensor_is_the_image_without_marked_images() -> None:
    plain = ndd.batch(pictures(sizes=SIZES))
    result, others = v2.CenterCrop(20)(plain, ndd.batch([torch.zeros(3, 40, 40)] * 2))
    assert result.layout is None
    assert result.shape == [(3, 20, 20)] * 2
    assert others.shape == [(3, 40, 40)] * 2
    mask = tv_tensors.Mask(ndd.batch([torch.zeros(40, 40)] * 2))
    planes, image = v2.CenterCrop(20)(mask, plain)
    assert planes.shape == [(20, 20)] * 2
    assert image.shape == [(3, 20, 20)] * 2


SINGLE: list[Callable[[], Any]] = [
    lambda: (torch.zeros(3, 30, 40), torch.zeros(3, 30, 40)),
    lambda: {"a": torch.zeros(5), "image": single.Image(torch.zeros(3, 30, 40))},
    lambda: [PIL.Image.new("RGB", (40, 30)), torch.zeros(3, 30, 40)],
    lambda: (single.Mask(torch.zeros(30, 40)), torch.zeros(3, 30, 40)),
    lambda: (np.zeros((30, 40, 3)), single.Video(torch.zeros(2, 3, 30, 40))),
    lambda: (boxes_of(30, 40), points_of(30, 40), "x", None),
]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Resize", {"size": 20}),
        ("CenterCrop", {"size": 10}),
        ("RandomHorizontalFlip", {"p": 1}),
        ("Pad", {"padding": 2}),
        ("ToImage", {}),
        ("ToDtype", {"dtype": torch.float64}),
        ("ToPureTensor", {}),
        ("ClampBoundingBoxes", {}),
        ("Identity", {}),
        ("RandomInvert", {"p": 1}),
    ],
)
@pytest.mark.parametrize("make", SINGLE)
def test_single_samples_pass_the_same_leaves_through(make: Callable[[], Any], name: str, arguments: dict[str, Any]) -> None:
    if name == "ToDtype" and isinstance(make()[0] if not isinstance(make(), dict) else None, PIL.Image.Image):
        return
    ours, theirs = getattr(v2, name)(**arguments)(make()), getattr(reference, name)(**arguments)(make())
    assert type(ours) is type(theirs)
    flat = [item if not isinstance(item, dict) else list(item.values()) for item in (ours, theirs)]
    for value, other in zip(*flat, strict=True):
        assert type(value) is type(other)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.as_subclass(torch.Tensor), other.as_subclass(torch.Tensor))


def test_fill_may_differ_by_type() -> None:
    masks = tv_tensors.Mask(ndd.batch([torch.zeros(h, w, dtype=torch.uint8) for h, w in SIZES]))
    images, planes = v2.Pad(1, fill={single.Image: (9, 8, 7), "others": 5})(_images(), masks)
    assert images.select(0)[0, 0].torch().tolist() == [9, 8, 7]
    assert int(planes.select(0)[0, 0]) == 5


def test_dtype_may_differ_by_type() -> None:
    boxes = join([boxes_of(*size) for size in SIZES])
    images, rows, labels = v2.ToDtype({single.Image: torch.float32, "others": None}, scale=True)(_images(), boxes, ndd.batch([1, 2]))
    assert (images.dtype, rows.dtype, labels.dtype) == (torch.float32, torch.float32, torch.int32)
    assert float(images.torch(pad=True).max()) <= 1
    _, rows = v2.ToDtype({single.Image: torch.float32, single.BoundingBoxes: torch.int64})(_images(), boxes)
    assert rows.dtype is torch.int64
    assert rows.canvas_size == list(SIZES)
    with pytest.raises(ValueError, match="No dtype"):
        v2.ToDtype({single.Mask: torch.float32})(_images())


def test_typed_batches_are_recognized() -> None:
    video = image_batch([torch.stack([pixels(20, 30)] * 2)] * 2, "FHWC")
    assert v2.UniformTemporalSubsample(4)(video).shape == [(4, 20, 30, 3)] * 2
    image = tv_tensors.Image(ndd.batch(pictures(sizes=SIZES)))
    result = v2.Compose([v2.Resize(20), v2.RandomInvert(1), v2.ToDtype(torch.float32, scale=True)])(image)
    assert type(result) is tv_tensors.Image
    assert result.layout == "CHW"
    pure = v2.ToPureTensor()(result)
    assert type(pure) is ndd.Batch
    copied = pickle.loads(pickle.dumps(join([boxes_of(*size) for size in SIZES])))
    assert type(copied) is tv_tensors.BoundingBoxes
    assert copied.canvas_size == list(SIZES)


def test_empty_batches_are_unchanged() -> None:
    batch = ndd.batch(torch.zeros(0, 8, 8, 3, dtype=torch.uint8), layout="HWC")
    transform = v2.Compose([v2.RandomHorizontalFlip(), v2.RandAugment(), v2.RandomErasing(), v2.ColorJitter(0.2)])
    assert transform(batch).batch_size == 0


# --- mixing ---


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_mixing_equals_torchvision(name: str, layout: str) -> None:
    samples = [pixels(20, 30, dtype=torch.float32, seed=k) for k in range(4)]
    ours = getattr(v2, name)(num_classes=5)
    ndd.random.set_seed(2)
    images, labels = ours(image_batch(samples, layout), ndd.batch([0, 1, 4, 2]))
    ndd.random.set_seed(2)
    alone, weights = ours(torch.stack(samples), torch.tensor([0, 1, 4, 2]))
    assert images.layout == layout
    for sample, other in zip(of_batch(images), alone, strict=True):
        compare(sample, other, 1e-6)
    assert labels.dtype is torch.float32
    assert torch.equal(labels.torch(), weights)
    assert torch.allclose(weights.sum(1), torch.ones(4))
    ndd.random.set_seed(2)
    params = ours.make_params([torch.stack(samples)])
    theirs = getattr(reference, name)(num_classes=5)
    expected = theirs.transform(torch.stack(samples), {**params, "labels": None, "batch_size": 4})
    compare(alone, expected, 1e-6)


def test_mixing_rejects_invalid_samples() -> None:
    images = image_batch([pixels(8, 8, dtype=torch.float32)] * 2)
    with pytest.raises(ValueError, match="num_classes"):
        v2.MixUp()(images, ndd.batch([0, 1]))
    with pytest.raises(RuntimeError, match="floating-point"):
        v2.MixUp(num_classes=2)(image_batch([pixels(8, 8)] * 2), ndd.batch([0, 1]))
    with pytest.raises(ValueError, match="same shape"):
        v2.CutMix(num_classes=2)(image_batch(pictures(3, torch.float32, SIZES)), ndd.batch([0, 1]))
    with pytest.raises(ValueError, match="masks"):
        v2.CutMix(num_classes=2)(images, ndd.batch([0, 1]), tv_tensors.Mask(ndd.batch([torch.zeros(8, 8)] * 2)))
    with pytest.raises(ValueError, match="labels"):
        v2.CutMix(num_classes=2)(images, "label")
    with pytest.raises(ValueError, match="4 dims"):
        v2.CutMix(num_classes=2)(torch.zeros(3, 8, 8), torch.tensor([0, 1]))


# --- mistakes ---

F = v2.functional


def _with_scale(transform: Any, *scale: float) -> Any:
    transform.scale = scale  # torchvision's constructor warns of such a range
    return transform


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: v2.Resize(20)(_images(), ndd.batch([1, 2, 3])), ValueError, "Resize.*same size"),
    (lambda: v2.Resize(20)(_images(), single.Mask(torch.zeros(3, 3))), TypeError, "Mask.*combined with a Batch"),
    (lambda: v2.Resize(20)(_images(), PIL.Image.new("RGB", (3, 3))), TypeError, "combined with a Batch"),
    (lambda: v2.RandomRotation(20)(ndd.batch([1, 2])), TypeError, "rotate.*layout"),
    (lambda: v2.RandomCrop(60)(_images()), ValueError, "RandomCrop: sample 0"),
    (lambda: v2.FiveCrop(50)(_images()), ValueError, "five_crop: sample 0"),
    (lambda: v2.RandAugment()(_images(), _images()), TypeError, "one image"),
    (lambda: v2.AutoAugment()("x"), TypeError, "no image"),
    (lambda: v2.Normalize([0.5], [0.5])(_images()), TypeError, "floating-point"),
    (lambda: v2.Normalize([0.5], [0.0])(image_batch(pictures(3, torch.float32))), ValueError, "std"),
    (lambda: v2.RandomResizedCrop(20)(_images(), join([boxes_of(5, 5)] * 2)), ValueError, "Found multiple"),
    (lambda: v2.RandomIoUCrop()(_images()), TypeError, "bounding boxes"),
    (lambda: F.crop(_images(), 0, 0, [1, 2, 3], 5), ValueError, "height has 3 values for 2 samples"),
    (lambda: F.crop(_images(), 0, 0, "a", 5), TypeError, "height"),
    (lambda: F.crop(_images(), -2, -3, -5, 6), RuntimeError, "^crop: the height of the result must not be negative, got -5"),
    (lambda: F.crop(_images(), 0, 0, 5, [6, -1]), RuntimeError, "^crop: sample 1: the width of the result must not be negative, got -1"),
    (lambda: F.crop(torch.zeros(3, 8, 8), 0, 0, 5, -6), RuntimeError, "^crop: the width of the result"),
    (lambda: v2.CenterCrop(-4)(_images()), RuntimeError, "^center_crop: the height of the result"),
    (lambda: F.pad(_images(), -99), RuntimeError, "^pad: sample 0: the height of the result"),
    (lambda: F.pad(_images(), -99, padding_mode="reflect"), RuntimeError, "^pad: sample 0: the height of the result"),
    (lambda: F.adjust_brightness(_images(), [1.0, -1.0]), ValueError, "sample 1"),
    (lambda: F.adjust_hue(_images(), 0.7), ValueError, "hue_factor"),
    (lambda: F.adjust_contrast(ndd.batch([torch.zeros(8, 8, 2)], layout="HWC"), 0.7), TypeError, "channels"),
    (lambda: F.posterize(_images(), 9), TypeError, "bits"),
    (lambda: F.solarize(_images(), 256), TypeError, "threshold"),
    (lambda: F.resize(_images(), 20.5), TypeError, "^resize: size must be a whole number, or height and width, got 20.5"),
    (lambda: F.resize(_images(), torch.tensor(5)), ValueError, "^resize: size must be 2 numbers per sample"),
    (lambda: F.resize(_images(), [5, 6], max_size=9), ValueError, "max_size"),
    (lambda: F.resize(_images(), 9, max_size=9), ValueError, "max_size"),
    (lambda: F.resize(_images(), 9, interpolation="lanczos", antialias=False), ValueError, "antialias"),
    (lambda: F.resize(_images(), 9, interpolation="box"), NotImplementedError, "PIL"),
    (lambda: F.resize(_images(), 9, interpolation="cubic"), ValueError, "interpolation"),
    (lambda: F.rotate(_images(), 9, interpolation="bicubic"), ValueError, "bicubic"),
    (lambda: F.rotate(_images(), 9, fill=[1, 2]), ValueError, "fill must have one value"),
    (lambda: F.affine(_images(), 0, [0, 0], 0.0, [0, 0]), ValueError, "scale"),
    (lambda: F.affine(torch.zeros(3, 8, 8), 0, 3, 1.0, [0, 0]), TypeError, "translate"),
    (lambda: F.perspective(_images(), None, None), ValueError, "coefficients"),
    (lambda: F.perspective(_images(), None, None, coefficients=[1, 2]), ValueError, "coefficients"),
    (lambda: F.elastic(_images(), torch.zeros(1, 3, 3, 2)), ValueError, "displacement"),
    (lambda: F.elastic(_images(), "x"), TypeError, "displacement"),
    (lambda: F.pad(_images(), [1, 2, 3]), ValueError, "padding"),
    (lambda: F.pad(_images(), 1, padding_mode="wrap"), ValueError, "padding_mode"),
    (lambda: F.pad(_images(), 99, padding_mode="reflect"), RuntimeError, "sample 0.*reflect"),
    (lambda: F.pad(_images(), 1, fill=[1, 2, 3], padding_mode="edge"), ValueError, "fill"),
    (lambda: F.pad(tv_tensors.Mask(ndd.batch([torch.zeros(3, 3)])), 1, fill=[1, 2]), ValueError, "mask"),
    (lambda: F.gaussian_blur(_images(), 4), ValueError, "odd"),
    (lambda: F.gaussian_blur(_images(), 3, [1.0, 0.0]), ValueError, "sigma"),
    (lambda: F.gaussian_blur(_images(), 99), RuntimeError, "sample 0"),
    (lambda: F.gaussian_noise(ndd.batch([torch.zeros(3, 3, 3, dtype=torch.int32)], layout="HWC")), ValueError, "uint8"),
    (lambda: F.gaussian_noise(PIL.Image.new("RGB", (3, 3))), ValueError, "PIL"),
    (lambda: F.jpeg(image_batch(pictures(3, torch.float32)), 50), RuntimeError, "uint8"),
    (lambda: F.jpeg(_images(), 0), ValueError, "^jpeg: quality must be from 1 to 100, got 0"),
    (lambda: F.jpeg(_images(), [50, 101]), ValueError, "^jpeg: sample 1: quality must be from 1 to 100"),
    (lambda: F.permute_channels(_images(), [0, 1]), ValueError, "permutation"),
    (lambda: F.rgb_to_grayscale(_images(), 2), ValueError, "num_output_channels"),
    (lambda: F.adjust_brightness(join([boxes_of(5, 5)]), 1.0), TypeError, "BoundingBoxes"),
    (lambda: F.adjust_brightness("x", 1.0), TypeError, "str"),
    (lambda: F.convert_bounding_box_format(join([boxes_of(5, 5)])), TypeError, "new_format"),
    (lambda: F.clamp_bounding_boxes(join([boxes_of(5, 5)]), format="XYXY"), ValueError, "format"),
    (lambda: v2.CenterCrop("a")(_images()), TypeError, "^center_crop: output_size must be one number or two, got .*'a'"),
    (
        lambda: _with_scale(v2.RandomResizedCrop(5), 1, 0.5)(_images()),
        RuntimeError,
        "^RandomResizedCrop: scale must be the lowest",
    ),
    (lambda: v2.RandomResizedCrop(5, ratio=(0, 1))(_images()), RuntimeError, "^RandomResizedCrop: ratio must be .*above 0, got 0 and 1"),
    (lambda: _with_scale(v2.RandomErasing(1.0), 0.5, 0.1)(_images()), RuntimeError, "^RandomErasing: scale must be"),
    (lambda: v2.RandomRotation((10, -10))(_images()), RuntimeError, "^RandomRotation: degrees must be .*got 10.* and -10"),
    (lambda: v2.RandomAffine(0, scale=(2, 1))(_images()), RuntimeError, "^RandomAffine: scale must be"),
    (lambda: v2.RandomAffine(0, shear=(0, 1, 3, 2))(_images()), RuntimeError, "^RandomAffine: shear must be .*got 3.* and 2"),
    (lambda: v2.RandomPhotometricDistort(hue=(0.1, 0))(_images()), RuntimeError, "^RandomPhotometricDistort: hue must be"),
    (lambda: v2.RandomResize(10, 10)(_images()), RuntimeError, "^RandomResize: min_size must be less than max_size"),
    (lambda: v2.RandomChoice([v2.Identity()] * 2, p=[-1, 2])(_images()), RuntimeError, "^RandomChoice: p must not be negative"),
    (lambda: v2.TrivialAugmentWide(0)(_images()), RuntimeError, "^TrivialAugmentWide: num_magnitude_bins must be positive"),
    (lambda: v2.RandomInvert(2.0), ValueError, "p"),
    (lambda: v2.Compose([]), ValueError, "at least one"),
    (lambda: v2.Compose(3), TypeError, "sequence"),
    (lambda: v2.RandomChoice([v2.Identity()], p=[1, 2]), ValueError, "Length"),
]


@pytest.mark.parametrize(("call", "error", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_transforms_reject_invalid_samples(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_custom_kernels_are_called() -> None:
    class Depth(single.TVTensor):
        pass

    assert v2.RandomInvert(1)(single.wrap(torch.zeros(2).as_subclass(Depth), like=torch.zeros(2).as_subclass(Depth))).tolist() == [0, 0]

    @F.register_kernel("invert", Depth)
    def invert(inpt: Any) -> Any:
        return (1 - inpt.as_subclass(torch.Tensor)).as_subclass(Depth)

    assert v2.RandomInvert(1)(torch.zeros(2).as_subclass(Depth)).tolist() == [1, 1]
    with pytest.raises(ValueError, match="already"):
        F.register_kernel(F.invert, Depth)(invert)
    with pytest.raises(ValueError, match="builtin"):
        F.register_kernel(F.invert, single.Image)
    with pytest.raises(ValueError, match="Could not find"):
        F.register_kernel("inverted", Depth)


def test_torchvision_transforms_compose_with_ours() -> None:
    class Theirs(reference.Transform):
        def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
            return reference.functional.invert(inpt)

    image = single.Image(pixels(20, 30))
    assert torch.equal(v2.Compose([v2.CenterCrop(10), Theirs()])(image), 255 - reference.functional.center_crop(image, 10))
    assert torch.equal(reference.Compose([v2.CenterCrop(10), Theirs()])(image), 255 - reference.functional.center_crop(image, 10))
