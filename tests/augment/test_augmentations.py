# SPDX-License-Identifier: Apache-2.0
"""Each augmentation separately, at given magnitudes, against torchvision v2 and PIL's definitions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import AutoAugment, AutoAugmentPolicy, InterpolationMode, RandAugment, TrivialAugmentWide
from torchvision.transforms.v2 import functional as F

import torch_ndd as ndd
from torch_ndd import augment
from torch_ndd.augment import _spaces
from torch_ndd.augment._augmentations import CUSTOM_POLICY, in_space
from torch_ndd.augment._spaces import POLICIES

IMAGE_NET = in_space(_spaces.IMAGE_NET)


def photo(height: int, width: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    """Smooth images with a little noise."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    planes = [127 + 100 * np.sin(x / 17 + c) * np.cos(y / 13 + 2 * c) + generator.normal(0, 6, (height, width)) for c in range(channels)]
    return np.clip(0.8 * np.stack(planes, -1) + 10, 0, 255).astype(np.uint8)


def torchvision(name: str, p: float, image: torch.Tensor, interpolation: InterpolationMode = InterpolationMode.BILINEAR) -> torch.Tensor:
    """The same augmentation of one CHW image."""
    white = 1.0 if image.is_floating_point() else 255.0
    there: dict[str, Any] = {"interpolation": interpolation, "fill": 0.5 if image.is_floating_point() else 128.0}
    still: dict[str, Any] = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
    height, width = image.shape[-2:]
    degrees = math.degrees(math.atan(p))
    functions = {
        "identity": lambda: image,
        "shear_x": lambda: F.affine(image, **{**still, "shear": [degrees, 0.0]}, center=[0, 0], **there),
        "shear_y": lambda: F.affine(image, **{**still, "shear": [0.0, degrees]}, center=[0, 0], **there),
        "translate_x": lambda: F.affine(image, **{**still, "translate": [int(p * width), 0]}, **there),
        "translate_y": lambda: F.affine(image, **{**still, "translate": [0, int(p * height)]}, **there),
        "rotate": lambda: F.rotate(image, p, **there),
        "brightness": lambda: F.adjust_brightness(image, p),
        "color": lambda: F.adjust_saturation(image, p),
        "contrast": lambda: F.adjust_contrast(image, p),
        "sharpness": lambda: F.adjust_sharpness(image, p),
        "posterize": lambda: F.posterize(image, round(p)),
        "solarize": lambda: F.solarize(image, white * p),
        "auto_contrast": lambda: F.autocontrast(image),
        "equalize": lambda: F.equalize(image),
        "invert": lambda: F.invert(image),
    }
    return functions[name]()


# Levels of 255 by which results may differ. torchvision truncates where we round, and rounds gray before blending.
TOLERANCE = {"brightness": 1, "contrast": 1, "color": 2, "sharpness": 1, "auto_contrast": 1}
MOVES = ("shear_x", "shear_y", "rotate")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("magnitude", [0, 4, 9])
@pytest.mark.parametrize("name", [value.name for value in CUSTOM_POLICY if value.name != "equalize"])
def test_augmentation_equals_torchvision(name: str, magnitude: int, dtype: torch.dtype) -> None:
    pixels = torch.from_numpy(photo(70, 90))
    image = pixels if dtype is torch.uint8 else pixels.to(dtype) / 255
    for seed in (0, 3):  # one to each side
        result, done = augment.auto_augment(image, policy=[[(name, 1.0, magnitude)]], return_params=True, rng=ndd.random.RNG(seed))
        assert [value for value, _ in done] == [name]
        expected = torchvision(name, done[0][1], image.permute(2, 0, 1)).permute(1, 2, 0)
        assert result.dtype == dtype
        difference = (result.torch().double() - expected.double()).abs() * (1 if dtype is torch.uint8 else 255)
        if name in MOVES:  # at the image's border we blend a pixel with the fill value, where torchvision takes it or not
            assert (difference > 1.01).double().mean() < 0.03
            assert difference.quantile(0.97) <= 1.01
        elif name == "sharpness":  # torchvision leaves the border as it is
            assert difference[1:-1, 1:-1].max() <= 1.01
        else:
            assert difference.max() <= TOLERANCE.get(name, 0) + 0.01


@pytest.mark.parametrize("name", MOVES)
def test_nearest_neighbor_moves_equal_torchvision(name: str) -> None:
    image = torch.from_numpy(photo(70, 90))
    nearest = ndd.types.INTERP_NN
    for magnitude in (4, 9):
        result, done = augment.rand_augment(
            image, n=1, m=magnitude, num_magnitude_bins=10, augmentations=[name], interp_type=nearest, return_params=True, rng=ndd.random.RNG(1)
        )
        expected = torchvision(name, done[0][1], image.permute(2, 0, 1), InterpolationMode.NEAREST).permute(1, 2, 0)
        assert (result.torch() != expected).double().mean() < 0.01  # where a point lies between two pixels


def test_equalize_equals_the_operator() -> None:
    image = torch.from_numpy(photo(70, 90))
    result = augment.rand_augment(image, n=1, augmentations=["equalize"])
    assert torch.equal(result.torch(), ndd.equalize(ndd.as_tensor(image, layout="HWC")).torch())
    difference = (result.torch().int() - F.equalize(image.permute(2, 0, 1)).permute(1, 2, 0).int()).abs()
    assert difference.max() <= 8  # PIL truncates the size of a step, here 24.7 pixels
    floats = augment.rand_augment(image / 255, n=1, augmentations=["equalize"])
    np.testing.assert_allclose(floats.torch() * 255, result.torch(), atol=1e-3)


def test_color_keeps_gray_images() -> None:
    image = torch.from_numpy(photo(20, 30, channels=1))
    assert torch.equal(augment.rand_augment(image, n=1, m=30, augmentations=["color"]).torch(), image)
    two = torch.from_numpy(photo(20, 30, channels=2))
    result, [(_, factor)] = augment.rand_augment(two, n=1, m=15, augmentations=["contrast"], return_params=True)
    expected = two * factor + two.double().mean() * (1 - factor)
    assert (result.torch() - expected.clamp(0, 255)).abs().max() <= 0.51


def test_solarize_add_shifts_dark_pixels() -> None:
    image = torch.tensor([[[0], [100], [127], [128], [255]]], dtype=torch.uint8)
    found = {value.name: value for value in IMAGE_NET}
    result = augment.rand_augment(image, n=1, m=30, augmentations=[found["solarize_add"]])
    assert result.torch().flatten().tolist() == [110, 210, 237, 128, 255]
    result = augment.rand_augment(image / 255, n=1, m=30, augmentations=[found["solarize_add"]])
    np.testing.assert_allclose(result.torch().flatten() * 255, [110, 210, 237, 128, 255], atol=1e-3)


def test_solarize_thresholds_at_the_limits() -> None:
    image = torch.arange(256, dtype=torch.uint8).view(16, 16, 1)
    found = {value.name: value for value in IMAGE_NET}
    for position, above in ((0, 0), (5, 128), (10, 256)):
        result = augment.rand_augment(image, n=1, m=position, num_magnitude_bins=11, augmentations=[found["solarize"]])
        assert torch.equal(result.torch(), torch.where(image.int() >= above, 255 - image, image))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_floating_point_images_stay_in_range(dtype: torch.dtype) -> None:
    image = torch.from_numpy(photo(20, 30)).to(dtype) / 255
    for value in (*augment.TRIVIAL_AUGMENT_WIDE, *IMAGE_NET):
        result = augment.rand_augment(image, n=1, m=30, augmentations=[value], rng=ndd.random.RNG(0)).torch()
        assert result.dtype == dtype
        assert 0 <= result.min() <= result.max() <= 1


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 5, 3), (2, 1, 3), (0, 4, 3)])
def test_augmentations_accept_tiny_images(shape: tuple[int, ...]) -> None:
    for value in (*CUSTOM_POLICY, *IMAGE_NET):
        result = augment.rand_augment(torch.full(shape, 50, dtype=torch.uint8), n=1, m=9, augmentations=[value]).torch()
        assert result.shape == shape


def test_flat_images_are_unchanged() -> None:
    image = torch.full((5, 6, 3), 77, dtype=torch.uint8)
    for name in ("auto_contrast", "equalize", "contrast", "color", "sharpness"):
        assert torch.equal(augment.rand_augment(image, n=1, augmentations=[name]).torch(), image)


# --- The spaces ---

NAMES = {value.name: value.name.replace("_", "") for value in CUSTOM_POLICY}


@pytest.mark.parametrize(("ours", "theirs"), [(augment.RAND_AUGMENT, RandAugment), (augment.TRIVIAL_AUGMENT_WIDE, TrivialAugmentWide)])
def test_search_spaces_equal_torchvision(ours: tuple[augment.Augmentation, ...], theirs: Any) -> None:
    space = {name.lower(): entry for name, entry in theirs()._AUGMENTATION_SPACE.items()}
    assert sorted(NAMES[our.name] for our in ours) == sorted(space)
    for item in ours:
        function, signed = space[NAMES[item.name]]
        magnitudes = function(31, 331, 331)
        if magnitudes is None:
            assert item.range == (0, 0)
            continue
        assert item.signed == signed
        mine = np.array([item.parameter(k / 30) for k in range(31)])
        if item.name in ("brightness", "color", "contrast", "sharpness"):
            mine -= 1
        if item.name == "posterize":
            mine = np.rint(mine)
        if item.name.startswith("translate") and theirs is RandAugment:
            mine *= 331
        np.testing.assert_allclose(mine, magnitudes.numpy(), atol=1e-4)
        assert item.parameter(1.0, other_side=True) == pytest.approx(2 * item.range[0] - item.range[1] if signed else item.range[1])


@pytest.mark.parametrize(("ours", "theirs"), [("reduced_image_net", "IMAGENET"), ("cifar10", "CIFAR10"), ("svhn", "SVHN")])
def test_sub_policies_equal_torchvision(ours: str, theirs: str) -> None:
    expected = AutoAugment()._get_policies(AutoAugmentPolicy[theirs])
    found = [[(NAMES[name], p, m) for name, p, m in pair] for pair in POLICIES[ours][0]]
    assert found == [[(name.lower(), p, m or 0) for name, p, m in pair if p] for pair in expected]  # those of probability 0 are left out
    assert POLICIES[ours][2] == 10


def test_policy_magnitudes_equal_torchvision() -> None:
    space = {name.lower(): entry for name, entry in AutoAugment()._AUGMENTATION_SPACE.items()}
    for value in CUSTOM_POLICY:
        magnitudes = space[NAMES[value.name]][0](10, 331, 331) if value.name != "identity" else None
        if magnitudes is not None:
            mine = np.array([value.parameter(k / 9) for k in range(10)]) * (331 if value.name.startswith("translate") else 1)
            mine = np.rint(mine) if value.name == "posterize" else mine - (value.range[0] == 1 and value.signed)
            np.testing.assert_allclose(mine, magnitudes.numpy(), atol=1e-4)
