# SPDX-License-Identifier: Apache-2.0
"""``experimental.torchvision``: DALI's names and parameters, torchvision's results. DALI's own cannot run without a GPU's driver."""

import importlib
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from _pipelines import real
from PIL import Image

import torch_ndd.dali.experimental.torchvision as ours

IMAGE = torch.arange(3 * 20 * 30).remainder(251).to(torch.uint8).reshape(3, 20, 30)
BATCH = torch.stack([IMAGE, IMAGE.flip(-1), 255 - IMAGE])


def names(module: Any) -> set[str]:
    return {name for name in vars(module) if not name.startswith("_") and not inspect.ismodule(getattr(module, name))}


def parameters(callable_: Any) -> list[str]:
    return [parameter for parameter in inspect.signature(callable_).parameters if parameter not in ("self", "args", "kwds")]


def test_names_and_parameters() -> None:
    real()
    theirs = importlib.import_module("nvidia.dali.experimental.torchvision")
    functions = importlib.import_module("nvidia.dali.experimental.torchvision.v2.functional")
    assert names(ours) == names(theirs)
    for name in sorted(names(theirs) - {"InterpolationMode"}):
        assert parameters(getattr(ours, name).__init__) == parameters(getattr(theirs, name).__init__), name
    assert sorted(ours.v2.functional.__all__) == sorted(functions.__all__)
    for name in functions.__all__:
        assert parameters(getattr(ours.v2.functional, name)) == parameters(getattr(functions, name)), name


@pytest.mark.parametrize("tensor", [IMAGE, BATCH], ids=["image", "batch"])
def test_transforms_of_tensors(tensor: torch.Tensor) -> None:
    from torchvision.transforms import v2

    steps = [
        ("Resize", {"size": 16}),
        ("CenterCrop", {"size": [10, 12]}),
        ("Pad", {"padding": 2, "fill": 7}),
        ("Grayscale", {"num_output_channels": 3}),
    ]
    result = ours.Compose([getattr(ours, name)(**arguments) for name, arguments in steps])(tensor)
    wanted = v2.Compose([getattr(v2, name)(**arguments) for name, arguments in steps])(tensor)
    assert result.dtype == wanted.dtype
    torch.testing.assert_close(result, wanted, rtol=0, atol=1)


def test_images_stay_images_unless_told() -> None:
    image = Image.fromarray(IMAGE.permute(1, 2, 0).numpy())
    cropped = ours.Compose([ours.CenterCrop(8)])(image)
    assert isinstance(cropped, Image.Image)
    np.testing.assert_array_equal(np.asarray(cropped), IMAGE[:, 6:14, 11:19].permute(1, 2, 0))
    torch.testing.assert_close(ours.Compose([ours.CenterCrop(8), ours.PILToTensor()])(image), IMAGE[:, 6:14, 11:19])
    output = ours.Compose([ours.ToPILImage()])(BATCH)
    assert [np.asarray(result).shape for result in output] == [(20, 30, 3)] * 3
    gray = ours.Compose([ours.RandomVerticalFlip(1.0)])(image.convert("L"))
    np.testing.assert_array_equal(np.asarray(gray), np.asarray(image.convert("L"))[::-1])


def test_samples_of_a_batch_draw_for_themselves() -> None:
    torch.manual_seed(3)
    flips = ours.Compose([ours.RandomApply([ours.RandomHorizontalFlip(1.0)], 0.5)], batch_size=64)(IMAGE.expand(64, -1, -1, -1))
    flipped = [torch.equal(flip, IMAGE.flip(-1)) for flip in flips]
    assert 10 < sum(flipped) < 54
    assert all(which or torch.equal(flip, IMAGE) for which, flip in zip(flipped, flips, strict=True))


def test_functionals_equal_torchvision() -> None:
    functional = ours.v2.functional
    torch.testing.assert_close(functional.crop(IMAGE, 1, 2, 3, 4, device="cpu"), IMAGE[:, 1:4, 2:6])
    torch.testing.assert_close(functional.normalize(input_data=IMAGE / 255, mean=[0.5] * 3, std=[0.5] * 3), IMAGE / 255 * 2 - 1)
    assert np.array_equal(np.asarray(functional.to_pil_image(IMAGE.permute(1, 2, 0), input_layout="HWC")), IMAGE.permute(1, 2, 0))
    assert functional.get_size(IMAGE) == [20, 30]


def test_invalid_transform_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match='Resize: device must be "cpu" or "gpu"'):
        ours.Resize(3, device="tpu")
    with pytest.raises(ValueError, match="GaussianBlur: a transform has no seed"):
        ours.GaussianBlur(3, seed=4)
    with pytest.raises(ValueError, match="3 samples are more than batch_size=2"):
        ours.Compose([ours.CenterCrop(3)], batch_size=2)(BATCH)
    for value in ("text", torch.zeros(3)):
        with pytest.raises(TypeError, match="Compose takes"):
            ours.Compose([ours.CenterCrop(3)])(value)
    with pytest.raises(TypeError, match="op_list"):
        ours.Compose(ours.CenterCrop(3))
