# SPDX-License-Identifier: Apache-2.0
"""A Tensor of torch_ndd is one sample: every entry point that takes a Batch transforms it like a batch of one, or raises TypeError."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from _torchvision import pixels
from torch import nn
from torchvision import tv_tensors as single
from torchvision.models import ResNet18_Weights
from torchvision.transforms import v2 as reference

import torch_ndd as ndd
from torch_ndd import augment
from torch_ndd.torchvision import Mixup, from_timm, from_torchvision, tv_tensors, v2

HEIGHT, WIDTH = 37, 53
GIVEN: dict[str, tuple[Any, ...]] = {
    "CenterCrop": (8,),
    "ColorJitter": (0.4,),
    "ConvertImageDtype": (torch.float32,),
    "FiveCrop": (8,),
    "GaussianBlur": (3,),
    "JPEG": (50,),
    "Pad": (2,),
    "RandomAdjustSharpness": (2, 1.0),
    "RandomAffine": (10,),
    "RandomApply": ([v2.Resize(8)], 1.0),
    "RandomChoice": ([v2.Resize(8)],),
    "RandomOrder": ([v2.Resize(8)],),
    "Compose": ([v2.Resize(8)],),
    "RandomCrop": (8,),
    "RandomPosterize": (3, 1.0),
    "RandomResize": (8, 9),
    "RandomResizedCrop": (8,),
    "RandomRotation": (10,),
    "RandomShortestSize": (8,),
    "RandomSolarize": (10, 1.0),
    "Resize": (8,),
    "ScaleJitter": ((9, 9),),
    "TenCrop": (8,),
    "ToDtype": (torch.float32, True),
    **{f"Random{name}": (1.0,) for name in ("HorizontalFlip", "VerticalFlip", "Invert", "Autocontrast", "Equalize", "Grayscale")},
}
# These change nothing, call a function, need boxes, points or videos, or take whole batches.
OTHERS = {"Transform", "Identity", "Lambda", "Normalize", "LinearTransformation", "MixUp", "CutMix", "ConvertBoundingBoxFormat", "ClampBoundingBoxes"}
OTHERS |= {
    "ClampKeyPoints",
    "SetClampingMode",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "RandomIoUCrop",
    "ToPureTensor",
    "UniformTemporalSubsample",
}
OTHERS |= {"RandomZoomOut", "RandomPerspective", "RandomPhotometricDistort", "RandomErasing", "RGB", "ToPILImage"}
NAMES = sorted(name for name, value in vars(v2).items() if isinstance(value, type) and issubclass(value, nn.Module) and name not in OTHERS)


def _image() -> ndd.Tensor:
    return ndd.as_tensor(pixels(HEIGHT, WIDTH).permute(1, 2, 0).contiguous(), layout="HWC")


def _encode() -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(_image().torch().numpy()).save(file, "PNG")
    return file.getvalue()


def _file() -> ndd.Tensor:
    return ndd.as_tensor(np.frombuffer(_encode(), np.uint8))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_tensor_is_transformed_like_a_batch_of_one(name: str) -> None:
    transform, image = getattr(v2, name)(*GIVEN.get(name, ())), _image()
    ndd.random.set_seed(5)
    result = transform(image)
    ndd.random.set_seed(5)
    expected = transform(ndd.as_batch([image]))
    for value, other in zip(*((result, expected) if isinstance(result, tuple) else ((result,), (expected,))), strict=True):
        assert isinstance(value, ndd.Tensor)
        assert value.layout == other.layout
        assert torch.equal(value.torch(), other.torch()[0])
    with pytest.raises(TypeError, match=r"HWC or CHW|Found no image"):
        transform(_file())


def test_typed_tensors_beside_a_tensor_keep_their_type() -> None:
    boxes = single.BoundingBoxes(torch.tensor([[1.0, 2, 20, 30]]), format="XYXY", canvas_size=(HEIGHT, WIDTH))
    mask = single.Mask(torch.ones(HEIGHT, WIDTH, dtype=torch.uint8))
    sample = {"image": _image(), "boxes": boxes, "mask": mask, "label": 7, "name": "a"}
    result = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize((20, 30))])(sample)
    expected = reference.Compose([reference.RandomHorizontalFlip(1.0), reference.Resize((20, 30))])(boxes)
    assert isinstance(result["image"], ndd.Tensor)
    assert result["image"].shape == (20, 30, 3)
    assert isinstance(result["boxes"], single.BoundingBoxes)
    assert torch.allclose(result["boxes"], expected)
    assert isinstance(result["mask"], single.Mask)
    assert result["mask"].shape == (20, 30)
    assert (result["label"], result["name"]) == (7, "a")


def test_labels_pass_through() -> None:
    labels = ndd.as_tensor(torch.tensor([3, 1]))
    image, kept = v2.Resize(8)(_image(), labels)
    assert image.shape == (8, 11, 3)
    assert kept is labels


def test_tensor_beside_a_batch_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be combined with a Batch of 2"):
        v2.Resize(8)(_image(), ndd.as_batch([_image(), _image()]))
    labels = ndd.as_tensor(torch.tensor([3, 1]))
    assert v2.Resize(8)(ndd.as_batch([_image(), _image()]), labels)[1] is labels


def test_tensors_convert_to_pil_images() -> None:
    assert np.array_equal(np.asarray(v2.ToPILImage()(_image())), _image().torch().numpy())
    assert v2.functional.to_image(_image()).shape == (3, HEIGHT, WIDTH)


def _transforms() -> dict[str, Any]:
    size = {"crop_size": 32, "resize_size": 32}
    return {
        "preset": from_torchvision(ResNet18_Weights.DEFAULT.transforms(**size)),
        "compose": from_torchvision(reference.Compose([reference.Resize(8)])),
        "crop": from_torchvision(reference.Compose([reference.RandomResizedCrop(8), reference.ToImage()])),
        "own": from_torchvision(v2.Resize(8)),
        "timm": from_timm(16),
        "timm training": from_timm(16, is_training=True, auto_augment="rand-m9"),
    }


@pytest.mark.parametrize("name", _transforms())
def test_translated_transforms_accept_tensors(name: str) -> None:
    transform = _transforms()[name]
    for value in (_image(), _file()):
        ndd.random.set_seed(8)
        result = transform(value)
        ndd.random.set_seed(8)
        expected = transform(ndd.as_batch([value]))
        assert isinstance(result, ndd.Tensor)
        assert result.layout == expected.layout
        assert torch.equal(result.torch(), expected.torch()[0])
    image, label = transform(_file(), torch.tensor([4]))
    assert isinstance(image, ndd.Tensor)
    assert label.tolist() == [4]


@pytest.mark.parametrize("sample", [b"file", "file.jpg", [b"file"], np.zeros(9, np.uint8), 3, {"label": torch.zeros(3)}], ids=str)
def test_samples_without_an_image_are_refused(sample: Any) -> None:
    for transform in _transforms().values():
        with pytest.raises(TypeError, match="the sample has no image"):
            transform(sample)


def test_mixing_rejects_tensors() -> None:
    mix: Any
    function: Any
    for mix in (v2.MixUp(num_classes=3), v2.CutMix(num_classes=3), Mixup(num_classes=3)):
        with pytest.raises(TypeError, match="Batch"):
            mix(ndd.as_tensor(torch.zeros(2, 3, 4, 4)), torch.tensor([0, 1]))
    for function in (augment.mixup, augment.cutmix, augment.mixup_or_cutmix):
        with pytest.raises(TypeError, match="Batch"):
            function(_image())


def test_error_names_the_lambda() -> None:
    for transform in (reference.Lambda(lambda image: image), reference.Compose([reference.Resize(8), reference.Lambda(lambda image: image)])):
        with pytest.raises(TypeError, match=r"transform(\[1\])? is a Lambda.*per_sample"):
            from_torchvision(transform)
    result = from_torchvision(reference.Compose([reference.Lambda(lambda image: image + 1)]), unknown="per_sample")(_image())
    assert torch.equal(result.torch(), pixels(HEIGHT, WIDTH) + 1)


def test_images_and_videos_of_torchvision_have_its_layout() -> None:
    image, video = single.Image(torch.zeros(3, HEIGHT, WIDTH)), single.Video(torch.zeros(5, 3, HEIGHT, WIDTH))
    assert [ndd.as_tensor(value).layout for value in (image, image[None].as_subclass(single.Image), video)] == ["CHW", "NCHW", "FCHW"]
    assert [ndd.as_batch(values).layout for values in ([image, image[:, 1:].as_subclass(single.Image)], [video, video])] == ["CHW", "FCHW"]
    assert ndd.as_batch(single.Image(torch.zeros(2, 3, HEIGHT, WIDTH))).layout == "CHW"
    assert ndd.as_tensor(image, layout="HWC").layout == "HWC"
    assert ndd.as_tensor(single.Mask(torch.zeros(HEIGHT, WIDTH))).layout is None
    assert ndd.resize(image, size=[4, 5]).shape == (3, 4, 5)


@pytest.mark.parametrize("layout", ["HWC", "CHW", None])
def test_image_of_a_tensor_has_the_channels_first(layout: str | None) -> None:
    pixels = torch.arange(24, dtype=torch.uint8).reshape((2, 4, 3) if layout == "HWC" else (3, 2, 4))
    image = tv_tensors.Image(ndd.as_tensor(pixels, layout=layout))
    assert type(image) is single.Image
    assert torch.equal(image, pixels.movedim(-1, 0) if layout == "HWC" else pixels)
