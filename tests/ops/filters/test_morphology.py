# SPDX-License-Identifier: Apache-2.0
"""dilate, erode and median_blur. DALI has them on the GPU only, so the references are OpenCV and plain NumPy."""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from _cases import Case, Each, images

import torch_ndd as ndd

_MODES = {"reflect_101": "reflect", "reflect": "symmetric", "replicate": "edge", "wrap": "wrap", "constant": "constant"}


def pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, list) else [value, value]


def windows(image: np.ndarray, size: list[int], at: list[int], border: str, fill: float = 0.0) -> np.ndarray:
    """Return the pixels of a rectangle, x and y, around every pixel of HWC, in a new axis."""
    padding = [(at[1], size[1] - 1 - at[1]), (at[0], size[0] - 1 - at[0]), (0, 0)]
    padded = np.pad(image.astype(np.float64), padding, mode=_MODES[border], **({"constant_values": fill} if border == "constant" else {}))
    return np.lib.stride_tricks.sliding_window_view(padded, size[::-1], axis=(0, 1)).reshape(*image.shape, -1)


def extreme(image: np.ndarray, maximum: bool, mask_size: Any = 3, anchor: Any = -1, iterations: int = 1, border_mode: str = "constant") -> np.ndarray:
    size = [3 if n < 0 else n for n in pair(mask_size)]
    at = [n // 2 if a < 0 else a for n, a in zip(size, pair(anchor), strict=True)]
    size, at = [(n - 1) * iterations + 1 for n in size], [a * iterations for a in at]
    view = windows(image, size, at, border_mode, -np.inf if maximum else np.inf)
    return (view.max(-1) if maximum else view.min(-1)).astype(image.dtype)


def dilate_reference(image: np.ndarray, **args: Any) -> np.ndarray:
    return extreme(image, True, **args)


def erode_reference(image: np.ndarray, **args: Any) -> np.ndarray:
    return extreme(image, False, **args)


def median(image: np.ndarray, window_size: Any = 3) -> np.ndarray:
    size = pair(window_size)
    view = np.sort(windows(image, size, [n // 2 for n in size], "replicate"), -1)
    return view[..., size[0] * size[1] // 2].astype(image.dtype)


_EACH = {"mask_size": Each([[5, 3], [1, 4], [9, 9]]), "anchor": Each([[0, 2], [-1, 0], [8, 3]])}

CASES = [
    Case("experimental.dilate", "uint8", images("HWC"), {}, "HWC", dilate_reference),
    Case("experimental.dilate", "each", images("HWC", "float32", low=-100), _EACH, "HWC", dilate_reference),
    Case(
        "experimental.dilate",
        "reflected",
        images("HWC", "int16", low=-100),
        {"mask_size": [7, 5], "border_mode": "reflect_101"},
        "HWC",
        dilate_reference,
    ),
    Case("experimental.dilate", "frames", images("FHWC"), {"mask_size": [4, 6], "iterations": 2}, "FHWC"),
    Case("experimental.erode", "uint8", images("HWC"), {"iterations": 3}, "HWC", erode_reference),
    Case("experimental.erode", "each", images("HWC", "float32", low=-100), _EACH, "HWC", erode_reference),
    Case("experimental.erode", "wrapped", images("HWC", "int16", low=-100), {"mask_size": [7, 5], "border_mode": "wrap"}, "HWC", erode_reference),
    # Several tiles of the CUDA kernels, unaligned rows, masks and windows that no tile holds.
    Case("experimental.dilate", "tiles", images("HWC", H=69, W=131), {"mask_size": Each([[3, 3], [5, 17], [20, 1]])}, "HWC", dilate_reference),
    Case(
        "experimental.erode",
        "tiles",
        images("HWC", "int8", low=-100, high=100, H=69, W=131),
        {"mask_size": 5, "border_mode": "reflect_101"},
        "HWC",
        erode_reference,
    ),
    Case("experimental.erode", "tiles of floats", images("HWC", "float16", H=35, W=201, C=1), {"mask_size": [3, 4]}, "HWC", erode_reference),
    Case("experimental.erode", "many steps", images("HWC", H=8000, W=3, C=1), {"mask_size": [3, 40]}, "HWC", erode_reference),
    Case("experimental.dilate", "no tile", images("HWC", "float64", H=151, W=2), {"mask_size": [1, 300]}, "HWC", dilate_reference),
    Case("experimental.median_blur", "tiles", images("HWC", H=69, W=131), {"window_size": Each([3, 5, 4])}, "HWC", median),
    Case("experimental.median_blur", "tiles of floats", images("HWC", "float32", low=-100, H=35, W=201, C=1), {"window_size": 3}, "HWC", median),
    Case(
        "experimental.median_blur",
        "many rows",
        images("HWC", "int16", low=-100, H=37, W=17, C=2),
        {"window_size": Each([[3, 18], [5, 5], [1, 33]])},
        "HWC",
        median,
    ),
    Case(
        "experimental.median_blur",
        "no tile",
        images("HWC", "float64", H=2, W=2, C=1),
        {"window_size": Each([[1, 3], [100, 100], [5, 5]])},
        "HWC",
        median,
    ),
    Case("experimental.median_blur", "uint8", images("HWC"), {}, "HWC", median),
    Case("experimental.median_blur", "5", images("HWC", "float32", low=-100), {"window_size": 5}, "HWC", median),
    Case("experimental.median_blur", "each", images("HWC", "int16", low=-100), {"window_size": Each([[3, 3], [5, 1], [7, 4]])}, "HWC", median),
    Case("experimental.median_blur", "planes", images("FCHW"), {"window_size": [9, 5]}, "FCHW"),
]

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    low = 0 if dtype[0] in "ub" else -100
    return np.asarray(np.random.default_rng(0).integers(low, 2 if dtype == "bool" else 101, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(11, 40, 3), (3, 2, 1), (1, 1, 2), (2, 70, 4)])
def test_any_type(dtype: str, shape: tuple[int, ...]) -> None:
    image = numbers(dtype, shape)
    tensor = ndd.tensor(image, layout="HWC")
    for size in ([3, 3], [5, 5], [4, 1], [9, 7], [1, 17]):
        assert np.array_equal(np.asarray(ndd.experimental.median_blur(tensor, window_size=size).evaluate()), median(image, size))
        assert np.array_equal(np.asarray(ndd.experimental.dilate(tensor, mask_size=size).evaluate()), dilate_reference(image, mask_size=size))
        assert np.array_equal(np.asarray(ndd.experimental.erode(tensor, mask_size=size).evaluate()), erode_reference(image, mask_size=size))


@pytest.mark.parametrize("border", list(_MODES))
def test_masks_far_larger_than_the_image(border: str) -> None:
    image = numbers("uint8", (4, 5, 2))
    for size in ([3, 12], [31, 1], [40, 41]):
        result = np.asarray(ndd.experimental.dilate(ndd.tensor(image, layout="HWC"), mask_size=size, border_mode=border).evaluate())
        assert np.array_equal(result, dilate_reference(image, mask_size=size, border_mode=border))
    huge = ndd.experimental.erode(ndd.tensor(image, layout="HWC"), mask_size=2**31 - 1, iterations=1000, border_mode=border)
    assert np.array_equal(np.asarray(huge.evaluate()), np.broadcast_to(image.min((0, 1)), image.shape))


@pytest.mark.parametrize("size", [(3, 3), (7, 3), (2, 5), (31, 31)])
@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("centered", [True, False])
def test_as_opencv(size: tuple[int, int], iterations: int, centered: bool) -> None:
    image = numbers("uint8", (40, 60, 3))
    anchor = (-1, -1) if centered else (size[0] - 1, 0)
    mask, tensor = np.ones(size[::-1], np.uint8), ndd.tensor(image, layout="HWC")
    for ours, theirs in ((ndd.experimental.dilate, cv2.dilate), (ndd.experimental.erode, cv2.erode)):
        result = ours(tensor, mask_size=list(size), anchor=list(anchor), iterations=iterations)
        assert np.array_equal(np.asarray(result.evaluate()), theirs(image, mask, anchor=anchor, iterations=iterations))


@pytest.mark.parametrize("size", [3, 5, 7, 21])
def test_median_as_opencv(size: int) -> None:
    image = numbers("uint8", (40, 60, 3))
    assert np.array_equal(
        np.asarray(ndd.experimental.median_blur(ndd.tensor(image, layout="HWC"), window_size=size).evaluate()), cv2.medianBlur(image, size)
    )


@pytest.mark.parametrize("layout", ["HW", "CHW", "FHWC", "FCHW"])
def test_layouts_equal_the_reference(layout: str) -> None:
    shape = tuple({"F": 2, "C": 3, "H": 9, "W": 12}[letter] for letter in layout)
    image = numbers("uint8", shape)
    order = sorted(range(len(layout)), key=lambda k: "FCHW".index(layout[k]))
    planes = image.transpose(order).reshape(-1, 9, 12)
    for function, reference, name in (
        (ndd.experimental.dilate, dilate_reference, "mask_size"),
        (ndd.experimental.erode, erode_reference, "mask_size"),
        (ndd.experimental.median_blur, median, "window_size"),
    ):
        expected = np.stack([reference(plane[..., None], **{name: [5, 3]})[..., 0] for plane in planes]).reshape([shape[k] for k in order])
        result = np.asarray(function(ndd.tensor(image, layout=layout), **{name: [5, 3]}).evaluate())
        assert np.array_equal(result.transpose(order), expected)


def test_a_value_for_each_frame() -> None:
    video = numbers("uint8", (2, 8, 9, 3))
    sizes = [[3, 1], [2, 5]]
    for function, name in ((ndd.experimental.dilate, "mask_size"), (ndd.experimental.median_blur, "window_size")):
        result = np.asarray(function(ndd.tensor(video, layout="FHWC"), **{name: ndd.per_frame(sizes)}).evaluate())
        for k in range(2):
            assert np.array_equal(result[k], np.asarray(function(ndd.tensor(video[k], layout="HWC"), **{name: sizes[k]}).evaluate()))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_is_ignored(dtype: Any) -> None:
    row = np.array([[1, np.nan, 3, np.nan, np.nan, np.nan, -np.inf]], dtype)
    results = [
        np.asarray(function(row, **{name: [3, 1]}).evaluate())[0]
        for function, name in (
            (ndd.experimental.dilate, "mask_size"),
            (ndd.experimental.erode, "mask_size"),
            (ndd.experimental.median_blur, "window_size"),
        )
    ]
    np.testing.assert_array_equal(results[0], [1, 3, 3, 3, np.nan, -np.inf, -np.inf])
    np.testing.assert_array_equal(results[1], [1, 1, 3, 3, np.nan, -np.inf, -np.inf])
    np.testing.assert_array_equal(results[2], [1, 3, np.nan, np.nan, np.nan, np.nan, -np.inf])


@pytest.mark.parametrize("shape", [(0, 3, 1), (3, 0, 1), (3, 3, 0)])
def test_empty_images(shape: tuple[int, ...]) -> None:
    image = ndd.tensor(np.zeros(shape, np.uint8), layout="HWC")
    for function in (ndd.experimental.dilate, ndd.experimental.erode, ndd.experimental.median_blur):
        assert function(image).evaluate().shape == shape


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("mask_size", lambda x: ndd.experimental.dilate(x, mask_size=0)),
        ("mask_size", lambda x: ndd.experimental.dilate(x, mask_size=[3, -2])),
        ("mask_size", lambda x: ndd.experimental.erode(x, mask_size=[3, 3, 3])),
        ("anchor", lambda x: ndd.experimental.dilate(x, anchor=3)),
        ("border_mode", lambda x: ndd.experimental.erode(x, border_mode="clamp")),
        ("iterations", lambda x: ndd.experimental.erode(x, iterations=0)),
        ("window_size", lambda x: ndd.experimental.median_blur(x, window_size=0)),
        ("window_size", lambda x: ndd.experimental.median_blur(x, window_size=[3, 1025])),
        ("window_size", lambda x: ndd.experimental.median_blur(x, window_size=[3, 3, 3])),
    ],
)
def test_wrong_arguments(word: str, call: Callable[[ndd.Tensor], ndd.Tensor]) -> None:
    with pytest.raises(RuntimeError) as error:
        call(ndd.tensor(np.zeros((5, 8, 3), np.uint8), layout="HWC")).evaluate()
    assert word in str(error.value)
    assert "experimental." in str(error.value)
