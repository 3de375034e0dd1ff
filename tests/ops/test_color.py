# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from _cases import Case, Each, images

import torch_ndd as ndd


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Half away from zero, saturated."""
    if dtype.kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(values) + 0.5), values), limits.min, limits.max).astype(dtype)


def brightened(image: np.ndarray, brightness: float | list[float] = 1.0, brightness_shift: float = 0.0, dtype: str | None = None) -> np.ndarray:
    out = np.dtype({None: image.dtype, "f32": "float32", "i16": "int16"}[dtype])
    scale = np.reshape(np.float32(brightness), (-1, *(1,) * (image.ndim - 1))) if np.ndim(brightness) else np.float32(brightness)
    full = 1.0 if out.kind == "f" else np.iinfo(out).max
    return rounded(scale * image.astype(np.float32) + np.float32(brightness_shift) * np.float32(full), out)


YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])


def twisted(
    image: np.ndarray, brightness: float = 1.0, contrast: float = 1.0, hue: float = 0.0, saturation: float = 1.0, dtype: str | None = None
) -> np.ndarray:
    out = np.dtype({None: image.dtype, "f32": "float32", "i16": "int16"}[dtype])
    cos, sin = saturation * np.cos(np.radians(hue)), saturation * np.sin(np.radians(hue))
    matrix = np.linalg.inv(YIQ) @ np.array([[1, 0, 0], [0, cos, sin], [0, -sin, cos]]) @ YIQ
    middle = 0.5 if image.dtype.kind == "f" else 128
    return rounded(brightness * (middle + contrast * (image @ matrix.T - middle)), out)


CASES = [
    Case("brightness", "uint8", images("HWC", "uint8"), {"brightness": 1.5, "brightness_shift": -0.1}, "HWC", brightened),
    Case(
        "brightness",
        "each",
        images("HWC", "uint8"),
        {"brightness": Each([0.5, 1.0, 2.0]), "brightness_shift": Each([0.5, 0.0, -0.25])},
        "HWC",
        brightened,
    ),
    Case("brightness", "float32", images("HWC", "float32"), {"brightness": 0.3, "brightness_shift": 2.0}, "HWC", brightened, 1e-4),
    Case("brightness", "to float", images("HWC", "uint8"), {"brightness": 1.7, "dtype": "f32"}, "HWC", brightened, 1e-4),
    Case("brightness", "to int16", images("DHWC", "uint8"), {"brightness": -190.4, "dtype": "i16"}, "DHWC", brightened),
    Case("brightness", "formula", images("FHWC", "int32", low=-300), {"brightness": 0.7}, "FHWC"),
    Case("brightness", "frames formula", images("FHWC", "uint8"), {"brightness": Each([0.5, 1.0, 2.0])}, "FHWC"),
    Case("color_twist", "uint8", images("HWC"), {"brightness": 1.1, "contrast": 0.7, "hue": 50.0, "saturation": 1.4}, "HWC", twisted, 1),
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
        twisted,
        1,
    ),
    Case("color_twist", "float32", images("HWC", "float32"), {"contrast": 0.7, "hue": 50.0}, "HWC", twisted, 1e-3),
    Case("color_twist", "to float", images("DHWC"), {"contrast": 0.7, "saturation": 0.2, "dtype": "f32"}, "DHWC", twisted, 1e-3),
    Case("color_twist", "to int16", images("FHWC"), {"brightness": -9.0, "dtype": "i16"}, "FHWC", twisted, 1),
    Case("color_twist", "formula", images("FHWC"), {"brightness": 0.8, "hue": Each([20.0, 70.0, 200.0])}, "FHWC", tolerance=1),
]


@pytest.mark.parametrize("name", ["brightness", "color_twist"])
def test_frames(name: str) -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 12, 15, 3)).astype(np.uint8)
    values = [0.5, 1.0, 2.0]
    function = getattr(ndd, name)
    result = np.asarray(function(ndd.tensor(video, layout="FHWC"), brightness=ndd.tensor(values, layout="F")).evaluate())
    for frame, value, ours in zip(video, values, result, strict=True):
        assert np.array_equal(ours, np.asarray(function(ndd.tensor(frame, layout="HWC"), brightness=value).evaluate()))


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 10, 11, 17, 26])
def test_color_twist_of_any_width(width: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, width, 3)).astype(np.uint8)
    args = {"brightness": 1.3, "contrast": 1.2, "hue": 50.0, "saturation": 0.4}
    assert np.abs(np.asarray(ndd.color_twist(image, **args).evaluate()).astype(int) - twisted(image, **args)).max() <= 1
    identity = np.asarray(ndd.color_twist(image).evaluate())
    assert np.array_equal(identity, image)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_color_twist_wants_three_channels(channels: int) -> None:
    with pytest.raises(RuntimeError, match=r"color_twist.*channels"):
        ndd.color_twist(np.zeros((4, 5, channels), np.uint8))
