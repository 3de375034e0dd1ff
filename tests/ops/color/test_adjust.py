# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _cases import Case, Each, images

import torch_ndd as ndd
from torch_ndd import types


def round_reference(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Half away from zero, saturated."""
    if dtype.kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(values) + 0.5), values), limits.min, limits.max).astype(dtype)


def brighten(image: np.ndarray, brightness: float | list[float] = 1.0, brightness_shift: float = 0.0, dtype: str | None = None) -> np.ndarray:
    out = np.dtype({None: image.dtype, "f32": "float32", "i16": "int16"}[dtype])
    scale = np.reshape(np.float32(brightness), (-1, *(1,) * (image.ndim - 1))) if np.ndim(brightness) else np.float32(brightness)
    full = 1.0 if out.kind == "f" else np.iinfo(out).max
    return round_reference(scale * image.astype(np.float32) + np.float32(brightness_shift) * np.float32(full), out)


YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])


def twist(
    image: np.ndarray, brightness: float = 1.0, contrast: float = 1.0, hue: float = 0.0, saturation: float = 1.0, dtype: str | None = None
) -> np.ndarray:
    out = np.dtype({None: image.dtype, "f32": "float32", "i16": "int16"}[dtype])
    cos, sin = saturation * np.cos(np.radians(hue)), saturation * np.sin(np.radians(hue))
    matrix = np.linalg.inv(YIQ) @ np.array([[1, 0, 0], [0, cos, sin], [0, -sin, cos]]) @ YIQ
    middle = 0.5 if image.dtype.kind == "f" else 128
    return round_reference(brightness * (middle + contrast * (image @ matrix.T - middle)), out)


def apply_contrast(
    image: np.ndarray,
    contrast: float | list[float] = 1.0,
    contrast_center: float | None = None,
    brightness: float = 1.0,
    brightness_shift: float = 0.0,
    dtype: str | None = None,
) -> np.ndarray:
    out = np.dtype({None: image.dtype, "f32": "float32", "i16": "int16"}[dtype])
    center = contrast_center if contrast_center is not None else 0.5 if image.dtype.kind == "f" else (np.iinfo(image.dtype).max + 1) / 2
    full = 1.0 if out.kind == "f" else np.iinfo(out).max
    return round_reference(brightness_shift * full + brightness * (center + contrast * (image.astype(np.float64) - center)), out)


def twist_hsv(image: np.ndarray, hue: float = 0.0, saturation: float = 1.0, value: float = 1.0, dtype: str = "uint8") -> np.ndarray:
    return round_reference(twist(image.astype(np.float64), value, 1.0, hue, saturation), np.dtype({"f32": "float32"}.get(dtype, dtype)))


def posterize_reference(image: np.ndarray, bits: int | list[int]) -> np.ndarray:
    """With shifts of the bits."""
    kept = np.reshape(bits, (-1, *(1,) * (image.ndim - 1))) if np.ndim(bits) else np.int64(bits)
    if image.dtype.kind == "f":
        return (np.minimum(np.floor(image.astype(np.float64) * 2**kept), 2**kept - 1).clip(0) / 2**kept).astype(image.dtype)
    dropped = np.maximum(np.iinfo(image.dtype).max.bit_length() - kept, 0)
    return (image.astype(np.int64) >> dropped << dropped).astype(image.dtype)


KR, KG, KB = 0.299, 0.587, 0.114  # ITU-R BT.601


def convert_space(image: np.ndarray, image_type: int, output_type: int) -> np.ndarray:
    """A matrix over R, G and B, written out."""
    full = (1.0 if image.dtype.kind == "f" else np.iinfo(image.dtype).max) / 255
    planes = [image[..., c].astype(np.float64) / full for c in range(image.shape[-1])]
    if image_type == types.YCbCr:
        luma, blue, red = (planes[0] - 16) / 219, (planes[1] - 128) / 112, (planes[2] - 128) / 112
        r, b = luma + (1 - KR) * red, luma + (1 - KB) * blue
        planes = [255 * r, 255 * (luma - KR * r - KB * b) / KG, 255 * b]
    elif image_type == types.GRAY:
        planes = planes * 3
    elif image_type == types.BGR:
        planes = planes[::-1]
    r, g, b = planes
    luma = KR * r + KG * g + KB * b
    out = {
        types.RGB: [r, g, b],
        types.BGR: [b, g, r],
        types.GRAY: [luma],
        types.YCbCr: [16 + 219 * luma / 255, 128 + 112 * (b - luma) / (1 - KB) / 255, 128 + 112 * (r - luma) / (1 - KR) / 255],
    }[output_type]
    return round_reference(np.stack(out, -1) * full, image.dtype)


SPACES = {"RGB": types.RGB, "BGR": types.BGR, "GRAY": types.GRAY, "YCbCr": types.YCbCr}

CASES = [
    Case("brightness", "uint8", images("HWC", "uint8"), {"brightness": 1.5, "brightness_shift": -0.1}, "HWC", brighten),
    Case(
        "brightness",
        "each",
        images("HWC", "uint8"),
        {"brightness": Each([0.5, 1.0, 2.0]), "brightness_shift": Each([0.5, 0.0, -0.25])},
        "HWC",
        brighten,
    ),
    Case("brightness", "float32", images("HWC", "float32"), {"brightness": 0.3, "brightness_shift": 2.0}, "HWC", brighten, 1e-4),
    Case("brightness", "to float", images("HWC", "uint8"), {"brightness": 1.7, "dtype": "f32"}, "HWC", brighten, 1e-4),
    Case("brightness", "to int16", images("DHWC", "uint8"), {"brightness": -190.4, "dtype": "i16"}, "DHWC", brighten),
    Case("brightness", "formula", images("FHWC", "int32", low=-300), {"brightness": 0.7}, "FHWC"),
    Case("brightness", "frames formula", images("FHWC", "uint8"), {"brightness": Each([0.5, 1.0, 2.0])}, "FHWC"),
    Case("posterize", "uint8", images("HWC", "uint8"), {"bits": 3}, "HWC", posterize_reference),
    Case("posterize", "each", images("CHW", "uint8"), {"bits": Each([0, 4, 8])}, "CHW", posterize_reference),
    Case("posterize", "int16", images("HWC", "int16", low=-300), {"bits": Each([1, 9, 20])}, "HWC", posterize_reference),
    Case("posterize", "float32", images("HWC", "float32"), {"bits": Each([1, 2, 7])}, "HWC", posterize_reference),
    Case("posterize", "frames", images("FHWC", "uint8"), {"bits": 5}, "FHWC", posterize_reference),
    Case("color_twist", "uint8", images("HWC"), {"brightness": 1.1, "contrast": 0.7, "hue": 50.0, "saturation": 1.4}, "HWC", twist, 1),
    Case(
        "color_twist",
        "each",
        images("HWC"),
        {
            "brightness": Each([0.5, 1.0, 2.0]),
            "contrast": Each([1.0, 0.5, 3.0]),
            "hue": Each([0.0, -120.0, 45.0]),
            "saturation": Each([0.0, 1.0, 3.0]),
        },
        "HWC",
        twist,
        1,
    ),
    Case("color_twist", "float32", images("HWC", "float32"), {"contrast": 0.7, "hue": 50.0}, "HWC", twist, 1e-3),
    Case("color_twist", "to float", images("DHWC"), {"contrast": 0.7, "saturation": 0.2, "dtype": "f32"}, "DHWC", twist, 1e-3),
    Case("color_twist", "to int16", images("FHWC"), {"brightness": -9.0, "dtype": "i16"}, "FHWC", twist, 1),
    Case("color_twist", "several tiles", images("HWC", H=61, W=83), {"contrast": 0.7, "hue": 50.0}, "HWC", twist, 1),
    Case("color_twist", "several tiles to float", images("HWC", H=61, W=83), {"contrast": 0.7, "hue": 50.0, "dtype": "f32"}, "HWC", twist, 1e-3),
    Case("contrast", "uint8", images("HWC"), {"contrast": 1.5}, "HWC", apply_contrast),
    Case("contrast", "each", images("HWC"), {"contrast": Each([0.5, -1.0, 3.0]), "contrast_center": Each([100.0, 0.0, 30.0])}, "HWC", apply_contrast),
    Case("contrast", "float32", images("HWC", "float32", high=1), {"contrast": 0.3}, "HWC", apply_contrast, 1e-6),
    Case("contrast", "to float", images("DHWC", "int16", low=-300), {"contrast": 0.25, "dtype": "f32"}, "DHWC", apply_contrast, 1e-2),
    Case("contrast", "frames formula", images("FHWC"), {"contrast": Each([0.5, 1.0, 2.0])}, "FHWC"),
    Case("brightness_contrast", "uint8", images("HWC"), {"brightness": 0.75, "contrast": 1.5, "brightness_shift": 0.2}, "HWC", apply_contrast),
    Case(
        "brightness_contrast",
        "each",
        images("HWC"),
        {
            "brightness": Each([0.5, 1.0, 2.0]),
            "brightness_shift": Each([0.0, 0.2, -0.4]),
            "contrast": Each([2.0, 0.0, -0.5]),
            "contrast_center": Each([0.0, 99.0, 255.0]),
        },
        "HWC",
        apply_contrast,
    ),
    Case("brightness_contrast", "float32", images("FHWC", "float32", high=1), {"brightness": 1.3, "contrast": 0.3}, "FHWC", apply_contrast, 1e-6),
    Case(
        "brightness_contrast",
        "to int16",
        images("DHWC"),
        {"brightness": 3.0, "contrast": 4.0, "contrast_center": 10.0, "dtype": "i16"},
        "DHWC",
        apply_contrast,
    ),
    Case("hsv", "uint8", images("HWC"), {"hue": 50.0, "saturation": 1.4, "value": 0.8}, "HWC", twist_hsv, 1),
    Case(
        "hsv",
        "each",
        images("HWC"),
        {"hue": Each([0.0, -120.0, 45.0]), "saturation": Each([0.0, 1.0, 3.0]), "value": Each([0.5, 1.5, 1.0])},
        "HWC",
        twist_hsv,
        1,
    ),
    Case("hsv", "float32 to uint8", images("HWC", "float32", high=300), {"hue": 70.0}, "HWC", twist_hsv, 1),
    Case("hsv", "to float", images("DHWC"), {"value": 2.0, "saturation": 0.2, "dtype": "f32"}, "DHWC", twist_hsv, 1e-3),
    Case("hsv", "formula", images("FHWC"), {"value": 0.8, "hue": Each([20.0, 70.0, 200.0])}, "FHWC", tolerance=1),
    Case("hue", "uint8", images("HWC"), {"hue": Each([50.0, 0.0, 300.0])}, "HWC", twist, 1),
    Case("hue", "to float", images("FHWC"), {"hue": 33.0, "dtype": "f32"}, "FHWC", twist, 1e-3),
    Case("saturation", "uint8", images("HWC"), {"saturation": Each([0.0, 1.0, 4.0])}, "HWC", twist, 1),
    Case("saturation", "to int16", images("DHWC"), {"saturation": -3.0, "dtype": "i16"}, "DHWC", twist, 1),
    *(
        Case(
            "color_space_conversion",
            f"{source} to {target}",
            images("HWC", C=1 if source == "GRAY" else 3),
            {"image_type": SPACES[source], "output_type": SPACES[target]},
            "HWC",
            convert_space,
            1,
        )
        for source in SPACES
        for target in SPACES
    ),
    *(
        Case(
            "color_space_conversion",
            f"{dtype} to {target}, several tiles",
            images("HWC", dtype, H=61, W=83),
            {"image_type": types.RGB, "output_type": SPACES[target]},
            "HWC",
            convert_space,
            1,
        )
        for dtype in ("uint8", "float32")
        for target in ("BGR", "GRAY")
    ),
    Case(
        "color_space_conversion",
        "uint16",
        images("FHWC", "uint16", high=65536),
        {"image_type": types.YCbCr, "output_type": types.RGB},
        "FHWC",
        convert_space,
        1,
    ),
    Case(
        "color_space_conversion",
        "float32",
        images("DHWC", "float32", high=1),
        {"image_type": types.RGB, "output_type": types.YCbCr},
        "DHWC",
        convert_space,
        1e-5,
    ),
    Case("color_twist", "formula", images("FHWC"), {"brightness": 0.8, "hue": Each([20.0, 70.0, 200.0])}, "FHWC", tolerance=1),
]


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("brightness", "brightness"),
        ("contrast", "contrast_center"),
        ("brightness_contrast", "contrast"),
        ("color_twist", "brightness"),
        ("hsv", "value"),
        ("hue", "hue"),
        ("saturation", "saturation"),
    ],
)
def test_arguments_per_frame(name: str, argument: str) -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 12, 15, 3)).astype(np.uint8)
    values = [0.5, 1.0, 80.0]
    other = {"contrast": 1.5} if name == "contrast" else {}
    function = getattr(ndd, name)
    result = np.asarray(function(ndd.tensor(video, layout="FHWC"), **{argument: ndd.tensor(values, layout="F")}, **other).evaluate())
    for frame, value, ours in zip(video, values, result, strict=True):
        assert np.array_equal(ours, np.asarray(function(ndd.tensor(frame, layout="HWC"), **{argument: value}, **other).evaluate()))
    assert not np.array_equal(result[2], video[2])


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 10, 11, 17, 26])
def test_color_twist_of_any_width(width: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, width, 3)).astype(np.uint8)
    args = {"brightness": 1.3, "contrast": 1.2, "hue": 50.0, "saturation": 0.4}
    assert np.abs(np.asarray(ndd.color_twist(image, **args).evaluate()).astype(int) - twist(image, **args)).max() <= 1
    identity = np.asarray(ndd.color_twist(image).evaluate())
    assert np.array_equal(identity, image)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("name", ["color_twist", "hsv", "hue", "saturation"])
def test_three_channels_are_wanted(name: str, channels: int) -> None:
    function = getattr(ndd, name)
    with pytest.raises(RuntimeError, match=rf"{name}.*channels"):
        function(np.zeros((4, 5, channels), np.uint8))
    with pytest.raises(RuntimeError, match=rf"{name}.*channels"):
        function(ndd.batch([np.zeros((4, 5, 3), np.uint8), np.zeros((4, 6, channels), np.uint8)])).evaluate()


@pytest.mark.parametrize(
    "args", [{"hue": 20.0, "value": 0.9}, {"hue": 100.0, "saturation": 2.5}, {"value": -3.9}, {"saturation": 0.0}, {"value": 9.0}]
)
def test_whole_numbers_are_as_good_as_floats(args: dict[str, float]) -> None:
    """Products of bytes are computed in 16 bits: the error before rounding is at most 0.03."""
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    exact = np.asarray(ndd.hsv(image, dtype=ndd.float32, **args).evaluate()).clip(0, 255)
    assert np.abs(np.asarray(ndd.hsv(image, **args).evaluate()) - exact).max() < 0.53


@pytest.mark.parametrize("value", [1e30, -1e30, np.nan, np.inf, 3e6, 1.0])
def test_many_pixels_as_each_alone(value: float) -> None:
    """Vectors and single pixels are computed by different code."""
    image = np.random.default_rng(0).integers(0, 256, (1, 100, 3)).astype(np.uint8)
    for changed in (
        lambda x: ndd.hsv(x, value=value, hue=30),
        lambda x: ndd.brightness(x, brightness=value),
        lambda x: ndd.contrast(x, contrast=value),
    ):
        whole = np.asarray(changed(image.repeat(20, 1)).evaluate())
        each = np.concatenate([np.asarray(changed(image[:, k : k + 1]).evaluate()) for k in range(100)], 1)
        np.testing.assert_array_equal(whole, each.repeat(20, 1))


@pytest.mark.parametrize("width", [1, 2, 9, 10, 11, 21, 22, 23, 39])
@pytest.mark.parametrize(("source", "target"), [("RGB", "GRAY"), ("GRAY", "YCbCr"), ("YCbCr", "GRAY"), ("GRAY", "GRAY"), ("YCbCr", "BGR")])
def test_color_spaces_of_any_width(source: str, target: str, width: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, width, 1 if source == "GRAY" else 3)).astype(np.uint8)
    args = {"image_type": SPACES[source], "output_type": SPACES[target]}
    ours = np.asarray(ndd.color_space_conversion(image, **args).evaluate())
    assert np.abs(ours.astype(int) - convert_space(image, **args)).max() <= 1


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float32", "int32", "uint64", "float64"])
@pytest.mark.parametrize("width", [1, 4, 15, 16, 17, 33, 63, 64, 85, 150])
def test_copied_channels_are_exact(dtype: str, width: int) -> None:
    generator = np.random.default_rng(0)
    image = generator.integers(0, 2, (3, width, 3)) if dtype == "bool" else generator.integers(0, 256, (3, width, 3)) * (2**23 + 1)
    image = image.astype(dtype)
    swapped = ndd.color_space_conversion(image, image_type=types.RGB, output_type=types.BGR).evaluate()
    np.testing.assert_array_equal(np.asarray(swapped), image[..., ::-1])
    spread = ndd.color_space_conversion(image[..., :1], image_type=types.GRAY, output_type=types.RGB).evaluate()
    np.testing.assert_array_equal(np.asarray(spread), image[..., :1].repeat(3, -1))


def test_color_spaces_there_and_back() -> None:
    """The rounded YCbCr values keep RGB within two levels."""
    image = np.random.default_rng(0).integers(0, 256, (50, 60, 3)).astype(np.uint8)
    there = ndd.color_space_conversion(image, image_type=types.RGB, output_type=types.YCbCr)
    back = ndd.color_space_conversion(there, image_type=types.YCbCr, output_type=types.RGB)
    assert np.abs(np.asarray(back.evaluate()).astype(int) - image).max() <= 2


def test_wrong_color_spaces() -> None:
    image = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(RuntimeError, match=r"color_space_conversion.*channel"):
        ndd.color_space_conversion(image, image_type=types.GRAY, output_type=types.RGB)
    with pytest.raises(RuntimeError, match=r"color_space_conversion.*channel"):
        ndd.color_space_conversion(ndd.batch([image, image[:, :3, :1]]), image_type=types.RGB, output_type=types.GRAY).evaluate()
    for name in ("image_type", "output_type"):
        for wrong in (types.ANY_DATA, 17):
            with pytest.raises(RuntimeError, match=rf"color_space_conversion.*{name}"):
                ndd.color_space_conversion(image, **{"image_type": types.RGB, "output_type": types.BGR, name: wrong})


@pytest.mark.parametrize("name", ["contrast", "brightness_contrast"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"])
def test_the_middle_stays(name: str, dtype: str) -> None:
    middle = 0.5 if dtype.startswith("float") else (np.iinfo(dtype).max + 1) // 2
    image = np.full((1, 1, 1), middle, dtype)
    assert np.asarray(getattr(ndd, name)(image, contrast=0.25).evaluate()) == image


@pytest.mark.parametrize("name", ["brightness", "contrast", "hsv", "saturation"])
@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (1, 1, 3)])
def test_small_images(name: str, shape: tuple[int, ...]) -> None:
    assert getattr(ndd, name)(np.zeros(shape, np.uint8)).evaluate().shape == shape


def test_arguments_that_are_not_finite() -> None:
    image = np.array([[[0, 1, 255]]], np.uint8)
    for value in (np.nan, np.inf, -np.inf):
        assert np.isin(np.asarray(ndd.contrast(image, contrast=value).evaluate()), [0, 255]).all()
        assert np.isin(np.asarray(ndd.hsv(image, hue=value, value=value).evaluate()), [0, 255]).all()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("bits", [0, 1, 5, 8])
def test_posterize_is_that_of_torchvision(dtype: str, bits: int) -> None:
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16)
    image = levels if dtype == "uint8" else levels.float() / 255
    torch.testing.assert_close(ndd.posterize(ndd.tensor(image, layout="CHW"), bits=bits).torch(), functional.posterize(image, bits))


def test_posterize_bad_arguments() -> None:
    image = np.zeros((2, 3, 1), np.uint8)
    for bits in (-1, 33):
        with pytest.raises(ValueError, match="posterize: sample 1: bits must be from 0 to 32"):
            ndd.posterize(ndd.batch([image, image]), bits=ndd.batch([1, bits])).evaluate()
    with pytest.raises(RuntimeError, match="posterize: the input must be of 8 or 16 bits"):
        ndd.posterize(image.astype(np.int64), bits=2)
