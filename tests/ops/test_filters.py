# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from _cases import Case, Each, images

import torch_ndd as ndd


def blurred(data: np.ndarray, axes: list[int], sigma: list[float], window: list[int]) -> np.ndarray:
    result = data.astype(np.float64)
    for axis, s, w in zip(axes, sigma, window, strict=True):
        radius = (w - 1) // 2 if w else math.ceil(3 * s)
        s = s or (radius - 1) * 0.3 + 0.8
        taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / s) ** 2)
        padding = [(radius, radius) if a == axis else (0, 0) for a in range(data.ndim)]
        padded = np.pad(result, padding, mode="reflect" if data.shape[axis] > 1 else "edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1, axis=axis)
        result = windows @ (taps / taps.sum())
    return result


def smoothed(image: np.ndarray, sigma: float | list[float] = 0.0, window_size: int | list[int] = 0, dtype: str | None = None) -> np.ndarray:
    axes = range(image.ndim - 1)
    sigmas, windows = (list(v) if isinstance(v, list) else [v for _ in axes] for v in (sigma, window_size))
    result = blurred(image, list(axes), sigmas, windows)
    if dtype or image.dtype.kind == "f":
        return result.astype(np.float32)
    return np.copysign(np.floor(np.abs(result) + 0.5), result).astype(image.dtype)


CASES = [
    Case("gaussian_blur", "uint8", images("HWC"), {"sigma": 1.5}, "HWC", smoothed, 1),
    Case("gaussian_blur", "float32", images("HWC", "float32"), {"window_size": 5}, "HWC", smoothed, 1e-3),
    Case("gaussian_blur", "each", images("HWC", "int16"), {"sigma": Each([0.5, 1.0, 3.0]), "window_size": Each([0, 3, 7])}, "HWC", smoothed, 1),
    Case("gaussian_blur", "axes", images("DHWC"), {"sigma": Each([[1.0, 2.0, 0.5]] * 3), "dtype": "f32"}, "DHWC", smoothed, 1e-3),
    Case("gaussian_blur", "frames", images("FHWC"), {"sigma": 2.0}, "FHWC"),
]


def check(data: np.ndarray, layout: str, axes: list[int], sigma: list[float], window: list[int]) -> None:
    tensor = ndd.tensor(data, layout=layout)
    result = np.asarray(ndd.gaussian_blur(tensor, sigma=sigma, window_size=window).evaluate())
    expected = blurred(data, axes, sigma, window)
    assert result.dtype == data.dtype
    if data.dtype.kind == "f":
        assert np.abs(result - expected).max() <= 1e-3
    else:
        assert np.abs(result - np.copysign(np.floor(np.abs(expected) + 0.5), expected)).max() <= 1


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
@pytest.mark.parametrize(
    ("layout", "axes"), [("HWC", [0, 1]), ("CHW", [1, 2]), ("HW", [0, 1]), ("FHWC", [1, 2]), ("DHWC", [0, 1, 2]), ("FCDHW", [2, 3, 4]), ("CW", [1])]
)
def test_layouts(layout: str, axes: list[int], dtype: str) -> None:
    sizes = {"F": 2, "C": 3, "D": 5, "H": 17, "W": 40}
    data = np.random.default_rng(0).integers(0, 256, tuple(sizes[letter] for letter in layout)).astype(dtype)
    for sigma, window in (([1.5] * 3, [0] * 3), ([0.0] * 3, [3, 7, 5]), ([0.3, 2.0, 5.0], [0, 9, 0]), ([1.0] * 3, [1, 3, 1])):
        check(data, layout, axes, sigma[: len(axes)], window[: len(axes)])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("sigma", [4.0, 10.6, 11.0, 25.0])  # windows below and above the limit of the fixed-point path
def test_windows_larger_than_the_image(sigma: float, dtype: str) -> None:
    for shape in ((9, 70, 1), (1, 30, 3), (3, 1, 4), (1, 1, 2)):
        check(np.random.default_rng(0).integers(0, 256, shape).astype(dtype), "HWC", [0, 1], [sigma, sigma], [0, 0])


@pytest.mark.parametrize("sigma", [0.4, 1.5, 4.7, 10.6, 12.0])
def test_a_constant_stays_constant(sigma: float) -> None:
    for level in (0, 1, 100, 127, 254, 255):
        data = np.full((6, 7, 8, 1), level, np.uint8)
        result = ndd.gaussian_blur(ndd.tensor(data, layout="DHWC"), sigma=sigma)
        assert np.array_equal(np.asarray(result.evaluate()), data)


@pytest.mark.parametrize("sigma", [[1.0, 2.0, 3.0], [[1.0, 0.5], [2.0, 1.0], [0.4, 3.0]]])
@pytest.mark.parametrize("count", [2, 3])  # of frames; two are also two axes
def test_frames(sigma: list[float] | list[list[float]], count: int) -> None:
    video = np.random.default_rng(0).integers(0, 256, (count, 12, 15, 3)).astype(np.uint8)
    given = ndd.tensor(sigma[:count], layout="F" if np.ndim(sigma) == 1 else "FX")
    result = np.asarray(ndd.gaussian_blur(ndd.tensor(video, layout="FHWC"), sigma=given).evaluate())
    for k in range(count):
        same = np.asarray(ndd.gaussian_blur(ndd.tensor(video[k], layout="HWC"), sigma=sigma[k]).evaluate())
        assert np.array_equal(result[k], same)


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("sigma", {}),
        ("sigma", {"sigma": -1.0}),
        ("sigma", {"sigma": [1.0, 2.0, 3.0]}),
        ("window_size", {"window_size": 4}),
        ("window_size", {"window_size": -3}),
        ("dtype", {"sigma": 1.0, "dtype": "i8"}),
    ],
)
def test_wrong_arguments(word: str, options: dict[str, object]) -> None:
    with pytest.raises(RuntimeError) as error:
        ndd.gaussian_blur(ndd.tensor(np.zeros((5, 8, 3), np.uint8), layout="HWC"), **options).evaluate()
    message = str(error.value.__cause__ or error.value)
    assert "gaussian_blur" in message
    assert word in message


@pytest.mark.parametrize("layout", ["HCW", "HFWC", "FC", None])
def test_wrong_layouts(layout: str | None) -> None:
    data = np.zeros((5,) * len(layout or "1234"), np.uint8)
    with pytest.raises(RuntimeError, match="gaussian_blur"):
        ndd.gaussian_blur(ndd.tensor(data, layout=layout), sigma=1.0)
