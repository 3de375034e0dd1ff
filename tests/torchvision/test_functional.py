# SPDX-License-Identifier: Apache-2.0
"""Functionals of images equal torchvision's: on tensors, videos, masks, PIL images and ragged batches."""

from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from _torchvision import compare, image_batch, of_batch, of_torchvision, pictures, pixels
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference

import torch_ndd as ndd
from torch_ndd.torchvision import tv_tensors
from torch_ndd.torchvision.v2 import functional as F

START, END = [[0, 0], [40, 0], [40, 30], [0, 30]], [[3, 2], [38, 4], [35, 27], [1, 29]]
EXACT, WARP, SMOOTH = (0.0, 0.0), (1.0, 0.02), (1.0, 0.02)

try:
    reference.resize(torch.zeros(1, 4, 4), [2, 2], interpolation=reference.InterpolationMode.LANCZOS)
    LANCZOS = ("lanczos",)
except NotImplementedError:  # torch 2.11 has it for PIL alone
    LANCZOS = ()

# name, arguments, most and mean difference in levels of uint8; floats within 1e-5 times the range
CASES: list[tuple[str, dict[str, Any], tuple[float, float]]] = [
    ("horizontal_flip", {}, EXACT),
    ("vertical_flip", {}, EXACT),
    ("crop", {"top": 3, "left": 5, "height": 20, "width": 22}, EXACT),
    ("crop", {"top": -3, "left": 5, "height": 50, "width": 90}, EXACT),
    ("crop", {"top": 100, "left": 100, "height": 5, "width": 6}, EXACT),
    *[("center_crop", {"output_size": size}, EXACT) for size in (20, [30], [21, 30], [60, 33], [80, 81], [31, 29])],
    *[("pad", {"padding": p, "fill": f}, EXACT) for p, f in ((3, None), ([2], 7), ([1, 2], [10, 20, 30]), ([1, 2, 3, 4], 0.25), ([-2, 3, 1, -4], 5))],
    *[("pad", {"padding": [1, 2, 3, 4], "padding_mode": mode}, EXACT) for mode in ("edge", "reflect", "symmetric")],
    ("five_crop", {"size": [20, 17]}, EXACT),
    ("ten_crop", {"size": 15, "vertical_flip": True}, EXACT),
    *[("resize", {"size": s, "interpolation": i}, EXACT) for s in ([20, 33], 70, [31, 31]) for i in ("nearest", "nearest-exact")],
    *[("resize", {"size": s, "interpolation": "bilinear"}, (1.0, 0.02)) for s in ([20, 33], 70, 19, [37, 20])],
    *[("resize", {"size": s, "interpolation": i}, (1.0, 0.02)) for s in ([20, 33], 70) for i in ("bicubic", *LANCZOS)],
    *[("resize", {"size": [20, 33], "interpolation": i, "antialias": False}, (1.0, 0.02)) for i in ("bilinear", "bicubic")],
    ("resize", {"size": 40, "max_size": 45}, (1.0, 0.02)),
    ("resize", {"size": None, "max_size": 45}, (1.0, 0.02)),
    ("resized_crop", {"top": 3, "left": 4, "height": 20, "width": 21, "size": [15, 30]}, (1.0, 0.02)),
    ("resized_crop", {"top": -3, "left": 4, "height": 60, "width": 21, "size": [15, 30]}, (1.0, 0.02)),
    *[
        ("affine", {"angle": 17.3, "translate": [2, -3], "scale": 0.9, "shear": [5.0, 3.0], "interpolation": i, "fill": f}, WARP)
        for i in ("nearest", "bilinear")
        for f in (None, 0, [10, 20, 30])
    ],
    ("affine", {"angle": -40, "translate": [0, 0], "scale": 1.4, "shear": 8, "center": [3, 20]}, WARP),
    *[
        ("rotate", {"angle": a, "expand": e, "interpolation": i}, WARP)
        for a in (90, 33.7, 180, -90)
        for e in (False, True)
        for i in ("nearest", "bilinear")
    ],
    ("rotate", {"angle": 20, "center": [0, 0], "fill": 9, "interpolation": "bilinear"}, WARP),
    *[
        ("perspective", {"startpoints": START, "endpoints": END, "interpolation": i, "fill": f}, WARP)
        for i in ("nearest", "bilinear")
        for f in (None, 3.0)
    ],
    ("perspective", {"startpoints": None, "endpoints": None, "coefficients": [1, 0.1, -2, 0.05, 0.9, 1, 1e-3, 2e-3]}, WARP),
    ("rgb_to_grayscale", {}, EXACT),
    ("rgb_to_grayscale", {"num_output_channels": 3}, EXACT),
    ("grayscale_to_rgb", {}, EXACT),
    ("permute_channels", {"permutation": [2, 0, 1]}, EXACT),
    *[("adjust_brightness", {"brightness_factor": f}, EXACT) for f in (0.0, 0.3, 1.0, 1.7)],
    *[("adjust_contrast", {"contrast_factor": f}, SMOOTH) for f in (0.0, 0.3, 1.0, 1.7)],
    *[("adjust_saturation", {"saturation_factor": f}, SMOOTH) for f in (0.0, 0.3, 1.0, 1.7)],
    *[("adjust_hue", {"hue_factor": f}, SMOOTH) for f in (-0.5, -0.1, 0.0, 0.33)],
    *[("adjust_sharpness", {"sharpness_factor": f}, SMOOTH) for f in (0.0, 0.5, 1.0, 2.5)],
    *[("adjust_gamma", {"gamma": g, "gain": k}, SMOOTH) for g, k in ((0.5, 1), (2.2, 1.3), (0.0, 0.5))],
    *[("posterize", {"bits": b}, EXACT) for b in (0, 3, 8)],
    *[("solarize", {"threshold": t}, EXACT) for t in (0, 0.5, 1.0)],
    ("invert", {}, EXACT),
    ("autocontrast", {}, SMOOTH),
    ("equalize", {}, EXACT),
    *[("gaussian_blur", {"kernel_size": k, "sigma": s}, SMOOTH) for k, s in ((3, None), ([5, 3], [1.0, 2.0]), (23, 4.0))],
    ("to_dtype", {"dtype": torch.float32, "scale": True}, EXACT),
    ("to_dtype", {"dtype": torch.float64}, EXACT),
    ("to_dtype", {"dtype": torch.uint8, "scale": True}, EXACT),
    ("erase", {"i": 2, "j": 3, "h": 10, "w": 11, "v": torch.tensor([1.7, 2.0, 3.0])[:, None, None]}, EXACT),
    ("erase", {"i": 2, "j": 3, "h": 4, "w": 5, "v": torch.arange(60.0).reshape(3, 4, 5)}, EXACT),
]


def _name(case: tuple[str, dict[str, Any], tuple[float, float]]) -> str:
    shown = [str(value) for value in case[1].values() if not isinstance(value, torch.Tensor)]
    return f"{case[0]}-{'-'.join(shown)}"


def _limits(case: tuple[str, dict[str, Any], tuple[float, float]], dtype: torch.dtype) -> tuple[float, float | None]:
    most, mean = case[2]
    if not dtype.is_floating_point or not most:
        return most, mean
    nearest = case[1].get("interpolation", "nearest" if case[0] in ("affine", "rotate") else "") == "nearest"
    fill = case[1].get("fill")
    if nearest:  # single pixels between two others
        return 1.0 if fill is None else 31.0, 1e-3
    scale = 1.0 if fill is None else float(np.max(fill)) + 1
    return 2e-5 * max(1.0, scale), None


def _nearest_limits(case: tuple[str, dict[str, Any], tuple[float, float]], most: float, mean: float | None) -> tuple[float, float | None]:
    """A warp by nearest pixels takes another pixel where the position is between two."""
    chosen = case[1].get("interpolation", "nearest")
    if case[0] in ("affine", "rotate", "perspective") and chosen == "nearest" and most:
        return 255.0, 0.05
    return most, mean


def _list(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("case", CASES, ids=_name)
def test_tensors_equal_torchvision(case: tuple[str, dict[str, Any], tuple[float, float]], dtype: torch.dtype, torch_device: torch.device) -> None:
    name, value, _ = case
    most, mean = _nearest_limits(case, *_limits(case, dtype))
    image = pixels(37, 53, 3, dtype)
    stack = torch.stack([pixels(48, 42, 3, dtype, k) for k in range(6)]).reshape(2, 3, 3, 48, 42)
    for inpt in (image, stack):
        before, own = inpt.clone(), inpt.to(torch_device)
        ours, theirs = getattr(F, name)(own, **value), getattr(reference, name)(inpt, **of_torchvision(value))
        for item, other in zip(_list(ours), _list(theirs), strict=True):
            assert item.device.type == torch_device.type
            compare(item, other, most, mean)
        assert torch.equal(own.cpu(), before)


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "erase"], ids=_name)
def test_channels_last_tensors_equal_torchvision(case: tuple[str, dict[str, Any], tuple[float, float]], torch_device: torch.device) -> None:
    name, value, _ = case
    most, mean = _nearest_limits(case, *_limits(case, torch.uint8))
    stack = torch.stack([pixels(48, 42, 3, torch.uint8, k) for k in range(2)]).contiguous(memory_format=torch.channels_last)
    for inpt in (stack, stack[1]):
        ours, theirs = getattr(F, name)(inpt.to(torch_device), **value), getattr(reference, name)(inpt, **of_torchvision(value))
        for item, other in zip(_list(ours), _list(theirs), strict=True):
            compare(item, other, most, mean)
            if item.dim() == 4 and item.shape[1] > 1 and "crop" not in name:
                assert item.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("fill", [0.5, 1.5, 2.5, [0.5, 1.5, 3.2]])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_halves_of_a_fill_round_to_even(interpolation: str, fill: Any) -> None:
    image = pixels(23, 31, 3)
    ours, theirs = (value.rotate(image, 30.0, reference.InterpolationMode(interpolation), fill=fill) for value in (F, reference))
    corner = torch.cat([value[:, :3, :3].flatten() for value in (ours, theirs)])
    assert torch.equal(corner[: len(corner) // 2], corner[len(corner) // 2 :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_normalize_of_other_floats_equals_torchvision(dtype: torch.dtype) -> None:
    image, values = pixels(23, 31, 3, torch.float64).to(dtype), {"mean": [0.1, 1 / 3, 2.0], "std": [0.7, 1.1, 3.0]}
    assert torch.equal(F.normalize(image, **values), reference.normalize(image, **values))
    result = F.normalize(image_batch([image, image[:, :5]], "HWC"), **values)
    assert torch.equal(of_batch(result)[1], reference.normalize(image[:, :5], **values))


@pytest.mark.parametrize(("mean", "std"), [([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]), ([0.5, 0.4], [0.2])])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalize_repeats_a_single_channel_as_torchvision(mean: list[float], std: list[float], layout: str, dtype: torch.dtype) -> None:
    gray = [pixels(23 + k, 31, 1, torch.float64).to(dtype) for k in range(2)]
    for output, image in zip(of_batch(F.normalize(image_batch(gray, layout), mean, std)), gray, strict=True):
        assert torch.equal(output, reference.normalize(image, mean, std))
        assert torch.equal(F.normalize(image, mean, std), reference.normalize(image, mean, std))
    with pytest.raises(RuntimeError):  # torchvision raises too: its output has no memory for more channels
        F.normalize(gray[0].clone(), [0.5, 0.4, 0.3], [0.2, 0.3, 0.4], inplace=True)
    for mean, std in (([0.5], [0.2, 0.3]), ([0.5, 0.4], [0.2, 0.3, 0.4])):  # torchvision raises RuntimeError
        with pytest.raises(ValueError, match="std must have one value, or one for each of the"):
            F.normalize(gray[0], mean, std)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("case", CASES, ids=_name)
def test_ragged_batches_equal_torchvision(
    case: tuple[str, dict[str, Any], tuple[float, float]], dtype: torch.dtype, layout: str, device: str
) -> None:
    name, value, _ = case
    most, mean = _nearest_limits(case, *_limits(case, dtype))
    samples = pictures(3, dtype)
    result = getattr(F, name)(image_batch(samples, layout, device), **value)
    theirs = [_list(getattr(reference, name)(sample, **of_torchvision(value))) for sample in samples]
    for k, batch in enumerate(_list(result)):
        assert isinstance(batch, ndd.Batch)
        assert batch.layout == layout
        for item, other in zip(of_batch(batch), [row[k] for row in theirs], strict=True):
            compare(item, other, most, mean)


@pytest.mark.parametrize("case", [case for case in CASES if case[0] not in ("five_crop", "ten_crop")], ids=_name)
def test_videos_equal_torchvision(case: tuple[str, dict[str, Any], tuple[float, float]], device: str) -> None:
    name, value, _ = case
    most, mean = _nearest_limits(case, *_limits(case, torch.uint8))
    samples = [torch.stack([pixels(h, w, 3, torch.uint8, 10 * k + f) for f in range(k + 1)]) for k, (h, w) in enumerate(((37, 53), (64, 48)))]
    result = getattr(F, name)(image_batch(samples, "FHWC", device), **value)
    assert result.layout == "FHWC"
    if not hasattr(reference, f"{name}_video"):
        theirs = [getattr(reference, name)(sample, **of_torchvision(value)) for sample in samples]
    else:
        theirs = [getattr(reference, f"{name}_video")(sample, **of_torchvision(value)) for sample in samples]
    for item, other in zip(of_batch(result), theirs, strict=True):
        compare(item, other, most, mean)


@pytest.mark.parametrize(
    "name",
    [
        "adjust_brightness",
        "adjust_contrast",
        "adjust_saturation",
        "adjust_hue",
        "autocontrast",
        "equalize",
        "invert",
        "rgb_to_grayscale",
        "grayscale_to_rgb",
        "adjust_sharpness",
        "horizontal_flip",
    ],
)
def test_gray_images_equal_torchvision(name: str) -> None:
    values = {"adjust_brightness": (1.3,), "adjust_contrast": (0.4,), "adjust_saturation": (0.3,), "adjust_hue": (0.2,), "adjust_sharpness": (2.0,)}
    image = pixels(23, 31, 1)
    compare(getattr(F, name)(image, *values.get(name, ())), getattr(reference, name)(image, *values.get(name, ())), 1.0, 0.02)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.float64])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("horizontal_flip", ()),
        ("crop", (1, 2, 10, 50)),
        ("pad", ([1, 2],)),
        ("center_crop", (20,)),
        ("resize", ([10, 12],)),
        ("invert", ()),
        ("solarize", (1,)),
        ("posterize", (2,)),
        ("rotate", (33.0,)),
        ("gaussian_blur", (3,)),
        ("rgb_to_grayscale", ()),
        ("adjust_brightness", (1.3,)),
        ("adjust_hue", (0.2,)),
    ],
)
def test_other_dtypes_equal_torchvision(name: str, arguments: tuple[Any, ...], dtype: torch.dtype, torch_device: torch.device) -> None:
    image = pixels(23, 31, 3, torch.float64) if dtype.is_floating_point else pixels(23, 31, 3).to(dtype)
    try:
        theirs = getattr(reference, name)(image, *arguments)
    except (RuntimeError, TypeError):
        with pytest.raises((RuntimeError, TypeError)):
            getattr(F, name)(image.to(torch_device), *arguments)
        return
    compare(getattr(F, name)(image.to(torch_device), *arguments), theirs, 1e-5 if dtype.is_floating_point else 1.0, 0.05)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint16, torch.int16, torch.int32, torch.int64])
def test_equalize_of_other_integers_goes_through_bytes(dtype: torch.dtype) -> None:
    levels = torch.randint(0, 128, (3, 23, 31), generator=torch.Generator().manual_seed(0)) * (torch.iinfo(dtype).max // 127)
    image = levels.to(dtype)
    expected = reference.equalize(image)
    assert not torch.equal(expected, image)
    assert torch.equal(F.equalize(image), expected)
    assert torch.equal(F.equalize(ndd.as_batch(image[None], layout="CHW")).torch()[0], expected)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resize", ([20, 30],)),
        ("rotate", (20,)),
        ("adjust_hue", (0.2,)),
        ("adjust_contrast", (0.5,)),
        ("crop", (-2, 3, 20, 50)),
        ("equalize", ()),
        ("pad", (3,)),
        ("gaussian_blur", (5,)),
        ("perspective", (START, END)),
        ("posterize", (3,)),
        ("jpeg", (40,)),
        ("five_crop", (10,)),
        ("elastic", (torch.full((1, 33, 47, 2), 0.1),)),
        ("erase", (1, 2, 3, 4, torch.zeros(3, 1, 1))),
    ],
)
def test_pil_images_equal_torchvision(name: str, arguments: tuple[Any, ...]) -> None:
    image = PIL.Image.fromarray(pixels(33, 47).permute(1, 2, 0).numpy())
    for value, other in zip(_list(getattr(F, name)(image, *arguments)), _list(getattr(reference, name)(image, *arguments)), strict=True):
        assert isinstance(value, PIL.Image.Image)
        assert np.array_equal(np.asarray(value), np.asarray(other))


@pytest.mark.parametrize("shape", [(3, 0, 5), (3, 4, 0), (0, 4, 5), (2, 3, 0, 0)])
def test_blur_of_images_without_pixels_returns_them(shape: tuple[int, ...]) -> None:
    image = torch.zeros(shape)
    assert F.gaussian_blur(image, 3).shape == reference.gaussian_blur(image, 3).shape == shape
    with pytest.raises(ValueError, match="odd"):
        F.gaussian_blur(image, 4)


def test_blur_of_a_batch_with_one_image_without_pixels() -> None:
    images = [pixels(9, 7), torch.zeros(3, 0, 5, dtype=torch.uint8), pixels(8, 11)]
    batch = ndd.batch(images, layout="CHW")
    for sample, image in zip(F.gaussian_blur(batch, 5).tensors, images, strict=True):
        compare(sample.torch(), reference.gaussian_blur(image, 5), *SMOOTH)
    with pytest.raises(RuntimeError, match="sample 0: half the kernel"):
        F.gaussian_blur(batch, 15)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_hue_of_integers_without_colors_or_pixels_does_not_change(dtype: torch.dtype) -> None:
    """In colors they are not exact in float32."""
    for shape in ((1, 4, 5), (3, 0, 5), (2, 1, 4, 5)):
        image = torch.randint(0, 1000, shape, dtype=dtype)
        assert torch.equal(F.adjust_hue(image, 0.2), image)
        assert torch.equal(reference.adjust_hue(image, 0.2), image)
    for wrong in (lambda functional: functional(torch.zeros(1, 4, 5, dtype=dtype), 0.7), lambda functional: functional(torch.zeros(1, 0, 5), 0.7)):
        for functional in (F.adjust_hue, reference.adjust_hue):
            with pytest.raises(ValueError, match="hue_factor"):
                wrong(functional)
    ragged = ndd.batch([torch.ones(1, 4, 5, dtype=dtype), torch.ones(3, 4, 0, dtype=dtype)], layout="CHW")
    assert torch.equal(F.adjust_hue(ragged, 0.2).tensors[0].torch(), torch.ones(1, 4, 5, dtype=dtype))
    for color in (torch.ones(3, 4, 5, dtype=dtype), ndd.batch([torch.ones(3, 4, 5, dtype=dtype), torch.ones(1, 2, 2, dtype=dtype)], layout="CHW")):
        with pytest.raises(RuntimeError, match="cannot be computed safely"):
            F.adjust_hue(color, 0.2)


@pytest.mark.parametrize("kind", [single.Image, single.Mask])
@pytest.mark.parametrize(
    ("old", "new"), [(torch.uint8, torch.uint8), (torch.float32, torch.float64), (torch.uint8, torch.float32), (torch.float32, torch.uint8)]
)
def test_convert_image_dtype_returns_the_types_of_torchvision(kind: Any, old: torch.dtype, new: torch.dtype) -> None:
    image = kind(pixels(4, 5).to(old) / 255 if old.is_floating_point else pixels(4, 5))
    result, expected = F.convert_image_dtype(image, new), reference.convert_image_dtype(image, new)
    assert type(result) is type(expected)
    assert torch.equal(result, expected)


MASKS: list[tuple[str, dict[str, Any]]] = [
    ("horizontal_flip", {}),
    ("vertical_flip", {}),
    ("crop", {"top": -1, "left": 2, "height": 20, "width": 90}),
    ("center_crop", {"output_size": [20, 60]}),
    ("pad", {"padding": [1, 2, 3, 4], "fill": 2}),
    ("resize", {"size": [20, 25]}),
    ("resize", {"size": [20, 25], "interpolation": "nearest-exact"}),
    ("resized_crop", {"top": 1, "left": 2, "height": 20, "width": 15, "size": [9, 30]}),
    ("affine", {"angle": 20, "translate": [1, 2], "scale": 1.1, "shear": [3, 4], "fill": 1}),
    ("rotate", {"angle": 33, "expand": True}),
    ("perspective", {"startpoints": START, "endpoints": END}),
]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
@pytest.mark.parametrize(("name", "arguments"), MASKS, ids=[f"{name}-{k}" for k, (name, _) in enumerate(MASKS)])
def test_masks_equal_torchvision(name: str, arguments: dict[str, Any], dtype: torch.dtype) -> None:
    samples = [(pixels(h, w, n, seed=n) > 120).to(dtype) for n, (h, w) in ((1, (37, 53)), (4, (64, 48)))]
    theirs = [getattr(reference, name)(single.Mask(sample), **arguments) for sample in samples]
    flat = [getattr(reference, name)(single.Mask(sample[0]), **arguments) for sample in samples]
    warped = name in ("affine", "rotate", "perspective")
    ours = [getattr(F, name)(single.Mask(sample), **arguments) for sample in samples]
    result = getattr(F, name)(tv_tensors.Mask(ndd.batch(samples)), **arguments)
    planes = getattr(F, name)(tv_tensors.Mask(ndd.batch([sample[0] for sample in samples], layout="HW")), **arguments)
    assert type(result) is tv_tensors.Mask
    for our, batched, other, plane, expected in zip(ours, result.evaluate(), theirs, planes.evaluate(), flat, strict=True):
        assert type(our) is single.Mask
        compare(our.as_subclass(torch.Tensor), other.as_subclass(torch.Tensor), float(warped), 0.02)
        compare(batched.torch(), other.as_subclass(torch.Tensor), float(warped), 0.02)
        compare(plane.torch(), expected.as_subclass(torch.Tensor), float(warped), 0.02)


@pytest.mark.parametrize("fill", [None, 0, [10.0, 20.0, 30.0]])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_elastic_equals_torchvision(interpolation: str, fill: Any) -> None:
    samples = pictures()
    fields = [torch.from_numpy(np.random.default_rng(k).normal(0, 0.1, (*sample.shape[1:], 2))).float() for k, sample in enumerate(samples)]
    result = F.elastic(image_batch(samples), ndd.batch(fields), interpolation, fill)
    for item, batched, field in zip(samples, of_batch(result), fields, strict=True):
        theirs = reference.elastic(item, field[None], interpolation, fill)
        most, mean = (255.0, 0.05) if interpolation == "nearest" else WARP
        compare(batched, theirs, most, mean)
        compare(F.elastic(item, field[None], interpolation, fill), theirs, most, mean)


NUMBERS: list[tuple[str, dict[str, list[Any]]]] = [
    ("crop", {"top": [0, 1, 2, -3], "left": [3, 2, 1, 0], "height": [20, 21, 22, 23], "width": [9, 8, 7, 60]}),
    ("rotate", {"angle": [10.0, -20.0, 90.0, 0.0]}),
    ("adjust_brightness", {"brightness_factor": [0.5, 1.0, 1.5, 2.0]}),
    ("adjust_contrast", {"contrast_factor": [0.5, 1.0, 1.5, 2.0]}),
    ("adjust_hue", {"hue_factor": [0.1, 0.0, -0.2, 0.5]}),
    ("adjust_saturation", {"saturation_factor": [0.5, 1.0, 1.5, 2.0]}),
    ("adjust_sharpness", {"sharpness_factor": [0.5, 1.0, 1.5, 2.0]}),
    ("adjust_gamma", {"gamma": [0.5, 1.0, 1.5, 2.0]}),
    ("posterize", {"bits": [1, 2, 3, 8]}),
    ("solarize", {"threshold": [10, 128, 255, 0]}),
    ("jpeg", {"quality": [10, 50, 90, 100]}),
]


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize(("name", "arguments"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_arguments_accept_a_number_per_sample(name: str, arguments: dict[str, list[Any]]) -> None:
    samples = pictures()
    theirs = [getattr(reference, name)(sample, **{key: values[k] for key, values in arguments.items()}) for k, sample in enumerate(samples)]
    most, mean = (255.0, 0.05) if name == "rotate" else (1.0, 0.02)
    for form in (lambda values: values, lambda values: ndd.batch(values), torch.tensor):
        result = getattr(F, name)(image_batch(samples), **{key: form(values) for key, values in arguments.items()})
        for item, other in zip(of_batch(result), theirs, strict=True):
            compare(item, other, most, mean)


def test_arguments_accept_rows_per_sample() -> None:
    samples, batch = pictures(), image_batch(pictures())
    sizes = [(20, 30), (31, 8), (9, 9), (60, 60)]
    for sample, picture, size in zip(of_batch(F.resize(batch, sizes)), samples, sizes, strict=True):
        compare(sample, reference.resize(picture, list(size)), 1.0, 0.02)
    result = F.affine(batch, 10.0, [[1, 2], [3, 4], [5, 6], [7, 8]], [1.0, 1.1, 1.2, 1.3], [[0, 0], [5, 0], [0, 5], [5, 5]], interpolation="bilinear")
    for k, (sample, picture) in enumerate(zip(of_batch(result), samples, strict=True)):
        shear = [[0, 0], [5, 0], [0, 5], [5, 5]][k]
        compare(sample, reference.affine(picture, 10.0, [2 * k + 1, 2 * k + 2], 1.0 + 0.1 * k, shear, interpolation="bilinear"), *WARP)
    result = F.gaussian_blur(batch, 5, [0.5, 1.0, 1.5, 2.0])
    for k, (sample, picture) in enumerate(zip(of_batch(result), samples, strict=True)):
        compare(sample, reference.gaussian_blur(picture, 5, 0.5 + 0.5 * k), *SMOOTH)


def test_normalize_and_conversion_equal_torchvision() -> None:
    samples = pictures(3, torch.float32)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    for layout in ("HWC", "CHW"):
        for item, picture in zip(of_batch(F.normalize(image_batch(samples, layout), mean, std)), samples, strict=True):
            compare(item, reference.normalize(picture, mean, std), 1e-5)
    image = samples[0].clone()
    assert F.normalize(image, mean, std, inplace=True) is image
    compare(image, reference.normalize(samples[0], mean, std), 1e-5)
    result = F.to_image(image_batch(pictures()))
    assert result.layout == "CHW"
    assert all(torch.equal(sample, other) for sample, other in zip(of_batch(result), pictures(), strict=True))
    images = F.to_pil_image(image_batch(pictures()))
    assert [image.size for image in images] == [(w, h) for _, h, w in (p.shape for p in pictures())]


@pytest.mark.parametrize("old", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64])
@pytest.mark.parametrize("new", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [True, False])
def test_to_dtype_equals_torchvision(old: torch.dtype, new: torch.dtype, scale: bool) -> None:
    samples = [pixels(5 + k, 7, 3, torch.float64) if old.is_floating_point else pixels(5 + k, 7, 3) // 2 for k in range(2)]
    samples = [item.to(old) for item in samples]
    try:
        theirs = [reference.to_dtype(item, new, scale) for item in samples]
    except RuntimeError:
        with pytest.raises(RuntimeError, match="safely"):
            F.to_dtype(image_batch(samples), new, scale)
        return
    for sample, other in zip(of_batch(F.to_dtype(image_batch(samples), new, scale)), theirs, strict=True):
        compare(sample, other)
    compare(F.to_dtype(samples[0], new, scale), theirs[0])


def test_noise_has_its_mean_and_deviation() -> None:
    images = [torch.full((3, 60, 50), 0.5), torch.full((3, 40, 70), 0.5)]
    ndd.random.set_seed(3)
    result = of_batch(F.gaussian_noise(image_batch(images), mean=0.1, sigma=[0.05, 0.1]))
    for item, sigma in zip(result, (0.05, 0.1), strict=True):
        assert abs(item.mean().item() - 0.6) < 0.01
        assert abs(item.std().item() - sigma) < 0.01
    levels = F.gaussian_noise(torch.full((3, 100, 100), 100, dtype=torch.uint8), sigma=0.05)
    assert levels.dtype is torch.uint8
    assert abs(levels.float().std().item() - 12.75) < 0.5
    assert abs(levels.float().mean().item() - 100) < 0.3
    wrapped = F.gaussian_noise(torch.full((1, 50, 50), 250, dtype=torch.uint8), mean=0.1, sigma=0.0, clip=False)
    assert int(wrapped[0, 0, 0]) == (250 + 25) % 256
    assert torch.equal(F.gaussian_noise(torch.full((1, 2, 2), 0.99), mean=0.5, sigma=0.0), torch.ones(1, 2, 2))


@pytest.mark.parametrize("size", [(9, 14), (10, 15), (11, 13), (12, 12)])
def test_operator_options_equal_torchvision(size: tuple[int, int]) -> None:
    """What operators need to give torchvision's results: the words of the table in docs/migrate."""
    image = pixels(31, 47, seed=3)
    batch = ndd.batch([image, pixels(30, 44, seed=4)], layout="CHW")
    cropped = ndd.crop(batch, crop=list(size), rounding="half_to_even")
    resized = ndd.resize(batch, resize_shorter=size[0], rule="torch", size_rounding="truncate", subpixel_scale=False)
    for value, other, sample in zip(cropped, resized, batch, strict=True):
        assert torch.equal(value.torch(), reference.center_crop(sample.torch(), list(size)))
        expected = reference.resize(sample.torch(), [size[0]])
        assert other.shape == tuple(expected.shape)
        assert (other.torch().int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize("arguments", [{"size": [24, 36]}, {"size": 24}, {"size": None, "max_size": 36}], ids=str)
def test_resize_returns_a_tensor_of_the_same_size(arguments: dict[str, Any]) -> None:
    for shape in ((3, 24, 36), (2, 3, 24, 36), (24, 36)):
        image = torch.zeros(shape)
        assert F.resize(image, **arguments) is image
        assert reference.resize(image[None], **arguments).shape == image[None].shape
    assert F.resize(torch.zeros(3, 24, 36), [24, 35]).shape == (3, 24, 35)
    wrongs: list[dict[str, Any]] = [{"interpolation": "lanczos", "antialias": False}, {"interpolation": "cubist"}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"lanczos|cubist"):
            F.resize(torch.zeros(3, 24, 36), **arguments, **wrong)


@pytest.mark.parametrize("arguments", [{"size": [0, 5]}, {"size": 1, "max_size": 10}, {"size": None, "max_size": 10}], ids=str)
@pytest.mark.parametrize("interpolation", ["nearest", "nearest-exact", "bilinear"])
def test_resize_to_no_pixels_is_refused_as_in_torchvision(arguments: dict[str, Any], interpolation: str) -> None:
    narrow = pixels(100, 2)
    with pytest.raises(RuntimeError):
        reference.resize(narrow, interpolation=reference.InterpolationMode(interpolation), **arguments)
    for images in (narrow, narrow.float(), image_batch([pixels(2, 2), narrow]), image_batch([narrow, narrow], "CHW")):
        with pytest.raises(RuntimeError, match=r"resize: (sample [01]: )?the new (height|width) must be positive, got 0"):
            F.resize(images, interpolation=interpolation, **arguments)


def test_resize_names_the_sample_that_would_have_no_pixels() -> None:
    with pytest.raises(RuntimeError, match="resize: sample 1: the new width must be positive"):
        F.resize(image_batch([pixels(9, 9), pixels(100, 2)]), 1, max_size=10)


def test_center_crop_refuses_three_numbers() -> None:
    for images in (pixels(9, 9), image_batch([pixels(9, 9)])):
        with pytest.raises(ValueError, match=r"center_crop: output_size must be one number or two, got \[1, 2, 3\]"):
            F.center_crop(images, [1, 2, 3])
