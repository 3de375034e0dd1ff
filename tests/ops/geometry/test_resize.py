# SPDX-License-Identifier: Apache-2.0
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, arrays, images
from _resampling import FILTERS, RADIUS, reference, weights
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

import torch_ndd as ndd
from torch_ndd import types
from torch_ndd.ops.geometry._resize_plan import plan_resize


def resize_by_formula(
    sample: np.ndarray,
    layout: str,
    size: Sequence[float] | None = None,
    resize_shorter: float | None = None,
    resize_longer: float | None = None,
    resize_x: float = 0,
    resize_y: float = 0,
    resize_z: float = 0,
    interp_type: int = 1,
    min_filter: int | None = None,
    mag_filter: int | None = None,
    roi_start: Sequence[float] | None = None,
    roi_end: Sequence[float] | None = None,
    dtype: str | None = None,
    antialias: bool = True,
    save_attrs: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Resample a sample of any layout, one axis after the other in float64."""
    axes = [k for k, letter in enumerate(layout) if letter in "DHW"]
    full = [sample.shape[axis] for axis in axes]
    start, end = [0.0] * len(axes) if roi_start is None else roi_start, full if roi_end is None else roi_end
    if resize_x:
        size = [resize_z, resize_y, resize_x][-len(axes) :]
    if size is None:  # as much of the exact size as the rounded one shows
        exact = [n * (resize_shorter / min(full) if resize_shorter else resize_longer / max(full)) for n in full]
        size = [np.floor(n + 0.5) for n in exact]
        shown = [n * rounded / real for n, rounded, real in zip(full, size, exact, strict=True)]
        start, end = [(n - s) / 2 for n, s in zip(full, shown, strict=True)], [(n + s) / 2 for n, s in zip(full, shown, strict=True)]
    out = sample.astype(np.float64)
    for axis, n, target, a, b in zip(axes, full, size, start, end, strict=True):
        chosen = min_filter if abs(b - a) > target else mag_filter
        mix = weights(n, int(target), a, b, FILTERS[interp_type if chosen is None else chosen], antialias)
        out = np.moveaxis(np.tensordot(mix, out, (1, axis)), 0, axis)
    if dtype != "f32" and sample.dtype.kind != "f":
        limits = np.iinfo(sample.dtype)
        out = np.floor(out + 0.5).clip(limits.min, limits.max)
    result = out.astype(np.float32 if dtype == "f32" else sample.dtype)
    return (result, np.array(full, np.int32)) if save_attrs else result


def of(layout: str) -> Callable[..., np.ndarray | tuple[np.ndarray, np.ndarray]]:
    """The reference for samples of a layout."""
    return functools.partial(resize_by_formula, layout=layout)


def window_reference(layout: str) -> Callable[..., np.ndarray]:
    """The reference of resize_crop_mirror."""

    def make_output(sample: np.ndarray, crop: Any = None, mirror: int = 0, **options: Any) -> np.ndarray:
        axes = [k for k, letter in enumerate(layout) if letter in "DHW"]
        separate = [options.pop(name, 0) for name in ("crop_d", "crop_h", "crop_w")][-len(axes) :]
        positions = [options.pop(f"crop_pos_{axis}", 0.5) for axis in "zyx"][-len(axes) :]
        whole = resize_by_formula(sample.astype(np.float32), layout, **options)
        assert isinstance(whole, np.ndarray)
        for axis, size, position, bit in zip(axes, separate if crop is None else crop, positions, (4, 2, 1)[-len(axes) :], strict=True):
            if size:
                start = int(np.floor(np.float32(position) * (whole.shape[axis] - size) + 0.5))
                whole = np.take(whole, np.arange(start, start + int(size)), axis)
            if mirror & bit:
                whole = np.flip(whole, axis)
        if sample.dtype.kind == "f":
            return whole
        return np.floor(whole + 0.5).clip(np.iinfo(sample.dtype).min, np.iinfo(sample.dtype).max).astype(sample.dtype)

    return make_output


def normalized_reference(sample: np.ndarray, mean: Any = 0.0, std: Any = 1.0, **options: Any) -> np.ndarray:
    """The reference of resize_crop_mirror with a mean and a deviation, of images HWC."""
    resized = window_reference("HWC")(sample, **options).astype(np.float64)
    return ((resized - mean) / std).transpose(2, 0, 1).astype(np.float32)


def tensor(
    sample: np.ndarray,
    sizes: Any = None,
    scales: Any = None,
    axes: Any = None,
    axis_names: str | None = None,
    alignment: Any = 0.5,
    interp_type: int = 1,
    min_filter: int | None = None,
    mag_filter: int | None = None,
    roi_start: Any = None,
    roi_end: Any = None,
) -> np.ndarray:
    """The reference of tensor_resize."""
    chosen = [0, 1] if axis_names else np.atleast_1d(axes).tolist()
    out = sample.astype(np.float64)
    for k, axis in enumerate(chosen):
        n = sample.shape[axis]
        exact = n * np.resize(scales, len(chosen))[k] if sizes is None else np.resize(sizes, len(chosen))[k]
        size = max(1, int(exact + 0.5))
        a, b = (0, n) if roi_start is None else (roi_start[k], roi_end[k])
        kept = a + (b - a) * np.resize(alignment, len(chosen))[k]
        a, b = kept + (a - kept) * size / exact, kept + (b - kept) * size / exact
        values = min_filter if abs(b - a) > size else mag_filter
        mix = weights(n, size, a, b, FILTERS[interp_type if values is None else values])
        out = np.moveaxis(np.tensordot(mix, out, (1, axis)), 0, axis)
    return out.astype(sample.dtype) if sample.dtype.kind == "f" else np.floor(out + 0.5).clip(0, 255).astype(sample.dtype)


KERNELS_EACH = {"min_filter": Each([1, 2, 4]), "mag_filter": Each([2, 1, 3])}
CROPS = [[7.0, 11.0], [9.0, 3.0], [20.0, 12.0]]
CROP_ONE_BY_ONE = {
    "crop_d": Each([2.0, 3.0, 1.0]),
    "crop_h": Each([5.0, 9.0, 3.0]),
    "crop_w": Each([4.0, 6.0, 8.0]),
    "crop_pos_z": Each([0.0, 1.0, 0.5]),
}
POSITIONS = {"crop_pos_x": Each([0.0, 0.31, 1.0]), "crop_pos_y": Each([0.9, 0.5, 0.17])}
SCALES = Each([[0.6, 1.7], [2.1, 0.3], [1.0, 1.4]])
SIZES = Each([[20.0, 30.0], [9.0, 41.0], [31.0, 12.0]])
START, END = Each([[0.5, 3.0], [10.0, 0.0], [2.0, 20.0]]), Each([[11.0, 20.0], [2.5, 20.0], [16.0, 4.5]])
ONE_BY_ONE = {"resize_x": Each([9.0, 25.0, 30.0]), "resize_y": Each([17.0, 9.0, 31.0]), "resize_z": Each([3.0, 5.0, 8.0])}
CASES = [
    Case("resize", "uint8", images("HWC", "uint8"), {"size": [11, 30]}, "HWC", of("HWC"), 1),
    Case("resize", "float32", images("HWC", "float32"), {"size": [30, 11]}, "HWC", of("HWC"), 5e-3),
    Case("resize", "nearest", images("HWC", "int16", low=-300), {"size": [11, 30], "interp_type": 0}, "HWC", of("HWC")),
    Case("resize", "cubic", images("CHW", "uint8"), {"size": [30, 37], "interp_type": 2}, "CHW", of("CHW"), 1),
    Case("resize", "kernels", images("HWC", "float32"), {"size": [30, 9], "interp_type": Each([2, 1, 3])}, "HWC", of("HWC"), 5e-3),
    Case("resize", "sizes", images("HWC", "uint8"), {"size": SIZES}, "HWC", of("HWC"), 1),
    Case("resize", "regions", images("HWC", "float32"), {"size": [8, 9], "roi_start": START, "roi_end": END}, "HWC", of("HWC"), 5e-3),
    Case("resize", "shorter", images("CFHW", "float32"), {"resize_shorter": 12.4}, "CFHW", of("CFHW"), 5e-2),
    Case("resize", "shorter each", images("HWC", "float32"), {"resize_shorter": Each([9.0, 12.4, 30.0])}, "HWC", of("HWC"), 5e-2),
    Case("resize", "longer each", images("HWC", "float32"), {"resize_longer": Each([9.0, 12.4, 30.0])}, "HWC", of("HWC"), 5e-2),
    Case("resize", "one by one", images("DHWC", "uint8"), ONE_BY_ONE, "DHWC", of("DHWC"), 1),
    Case("resize", "both kernels", images(), {"size": [30, 9], "min_filter": Each([1, 2, 4]), "mag_filter": Each([2, 1, 3])}, "HWC", of("HWC"), 1),
    Case("resize", "to float", images("FHWC", "uint8"), {"size": [8, 30], "dtype": "f32"}, "FHWC", of("FHWC"), 5e-3),
    Case("resize", "volume", images("DHWC", "uint8"), {"size": [7, 11, 30]}, "DHWC", of("DHWC"), 1),
    Case("resize", "volume planes", images("CDHW", "float32"), {"size": [3, 21, 12]}, "CDHW", of("CDHW"), 5e-3),
    # Several tiles of a GPU's blocks, with word-aligned and unaligned rows; then what no tile holds: reductions by hundreds, many channels.
    Case("resize", "tiles", images("HWC", "uint8", H=71, W=152), {"size": [67, 145]}, "HWC", of("HWC"), 1),
    Case("resize", "tiles of odd rows", images("HWC", "uint8", H=71, W=151), {"size": [45, 137], "dtype": "f32"}, "HWC", of("HWC"), 5e-3),
    Case("resize", "tiles of planes", images("CHW", "uint8", H=40, W=333), {"size": [35, 270], "interp_type": 3}, "CHW", of("CHW"), 1),
    Case("resize", "tiles of halves", images("HWC", "float16", H=40, W=61, C=4), {"size": [35, 139], "interp_type": 2}, "HWC", of("HWC"), 0.26),
    Case("resize", "tiles of int16", images("HWC", "int16", low=-300, H=40, W=61, C=1), {"size": [67, 139]}, "HWC", of("HWC"), 1),
    Case("resize", "tiles of neighbors", images("HWC", "uint8", H=40, W=61), {"size": [67, 139], "interp_type": 0}, "HWC", of("HWC")),
    Case("resize", "four neighbors", images("HWC", "uint8", C=4), {"size": [35, 40], "interp_type": 0}, "HWC", of("HWC")),
    Case("resize", "wide neighbors", images("CHW", "float32"), {"size": [35, 140], "interp_type": 0}, "CHW", of("CHW")),
    Case("resize", "two taps", images("HWC", "uint8", H=140, W=90), {"size": [70, 41], "antialias": False}, "HWC", of("HWC"), 1),
    Case("resize", "two taps of planes", images("CHW", "float16", H=30, W=90), {"size": [70, 41], "antialias": False}, "CHW", of("CHW"), 0.26),
    Case("resize", "two taps of a triangle", images(H=30, W=90), {"size": [70, 41], "antialias": False, "interp_type": 4}, "HWC", of("HWC"), 1),
    Case("resize", "two taps of four", images("HWC", "float32", C=4), {"size": [9, 11], "antialias": False}, "HWC", of("HWC"), 5e-3),
    Case("resize", "thumbnail", images("HWC", "uint8", H=9, W=3001), {"size": [7, 9]}, "HWC", of("HWC"), 1),
    Case("resize", "thumbnail of int16", images("HWC", "int16", low=-300, H=9, W=2001), {"size": [7, 9]}, "HWC", of("HWC"), 1),
    Case("resize", "many channels", images("HWC", "float32", C=120), {"size": [11, 30]}, "HWC", of("HWC"), 5e-3),
    Case(
        "resize_crop_mirror",
        "normalized",
        images(),
        {"size": SIZES, "mirror": Each([0, 1, 3]), "mean": Each([[5.0], [100.0], [7.0]]), "std": Each([[2.0], [50.0], [3.0]])},
        layout="HWC",
        out_layout="CHW",
        reference=normalized_reference,
        tolerance=0.51,
    ),
    Case("resize_crop_mirror", "each", images(), {"size": SIZES, "crop": Each(CROPS), "mirror": Each([0, 1, 3])}, "HWC", window_reference("HWC"), 1),
    Case(
        "resize_crop_mirror",
        "positions",
        images("HWC", "float32"),
        {"size": [20, 31], "crop": [7, 11], **POSITIONS},
        "HWC",
        window_reference("HWC"),
        5e-3,
    ),
    Case(
        "resize_crop_mirror",
        "planes",
        images("FCHW", "float32"),
        {"size": [20, 31], "crop": [7, 11], "mirror": 1},
        "FCHW",
        window_reference("FCHW"),
        5e-3,
    ),
    Case("resize_crop_mirror", "volume", images("DHWC"), {**ONE_BY_ONE, **CROP_ONE_BY_ONE, "mirror": 5}, "DHWC", window_reference("DHWC"), 1),
    Case(
        "resize_crop_mirror",
        "kernels",
        images(),
        {"size": [30, 9], **KERNELS_EACH, "interp_type": Each([1, 2, 3])},
        "HWC",
        window_reference("HWC"),
        1,
    ),
    Case("resize_crop_mirror", "shorter", images(), {"resize_shorter": Each([9.0, 12.4, 30.0]), "crop": [5, 6]}, "HWC", window_reference("HWC"), 1),
    Case("resize_crop_mirror", "longer", images(), {"resize_longer": Each([9.0, 12.4, 30.0]), "crop": [5, 6]}, "HWC", window_reference("HWC"), 1),
    Case("resize_crop_mirror", "regions", images(), {"size": [8, 9], "roi_start": START, "roi_end": END}, "HWC", window_reference("HWC"), 1),
    Case("tensor_resize", "sizes", images("HWC", "float32"), {"sizes": SIZES, "axes": [0, 1]}, "HWC", tensor, 5e-3),
    Case("tensor_resize", "one", images(), {"sizes": [7], "axes": 1}, "HWC", tensor, 1),
    Case("tensor_resize", "rows", arrays((45, 33, 3), "uint8"), {"sizes": [40], "axes": 0}, "HWC", tensor, 1),
    Case("tensor_resize", "columns", arrays((45, 33, 3), "float32"), {"sizes": [40], "axes": 1}, "HWC", tensor, 5e-3),
    Case("tensor_resize", "apart", arrays((4, 5, 6, 7), "float32"), {"sizes": [7, 3], "axes": [3, 0]}, None, tensor, 5e-3),
    Case("tensor_resize", "scales", images("HWC", "float32"), {"scales": SCALES, "axis_names": "HW"}, "HWC", tensor, 5e-3),
    Case("tensor_resize", "aligned", images(), {"scales": [0.61], "axes": [0, 1], "alignment": Each([[0.0], [0.3], [1.0]])}, "HWC", tensor, 1),
    Case("tensor_resize", "regions", images(), {"sizes": [8, 9], "axes": [0, 1], "roi_start": START, "roi_end": END}, "HWC", tensor, 1),
    Case("tensor_resize", "kernels", images(), {"sizes": [30, 9], "axes": [0, 1], **KERNELS_EACH, "interp_type": Each([1, 2, 3])}, "HWC", tensor, 1),
]


def resize_reference(image: np.ndarray, layout: str = "HWC", **options: Any) -> np.ndarray:
    return np.asarray(ndd.resize(ndd.as_tensor(image, layout=layout), **options))


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (48, 70, 3), dtype=np.uint8)


@pytest.mark.parametrize("interp", ["NN", *RADIUS])
@pytest.mark.parametrize("size", [(20, 33), (97, 141), (13, 200), (48, 70)])
@pytest.mark.parametrize("antialias", [True, False])
def test_filters_equal_the_reference(image: np.ndarray, interp: str, size: tuple[int, int], antialias: bool) -> None:
    if interp == "GAUSSIAN" and size == (48, 70):
        pytest.skip("taps exactly on the edge of the kernel")
    expected = reference(image, size, interp, antialias)
    interp_type = getattr(types, f"INTERP_{interp}")
    out = resize_reference(image.astype(np.float32), size=size, interp_type=interp_type, antialias=antialias)
    assert out.shape == (*size, 3)
    assert np.abs(out - expected).max() <= 5e-3
    assert np.abs(resize_reference(image, size=size, interp_type=interp_type, antialias=antialias) - expected.clip(0, 255)).max() <= 1


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_any_number_of_channels(channels: int) -> None:
    source = np.random.default_rng(0).integers(0, 256, (90, 130, channels), dtype=np.uint8)
    assert np.abs(resize_reference(source, size=(41, 200)) - reference(source, (41, 200))).max() <= 1


@pytest.mark.parametrize("interp", ["LINEAR", "CUBIC", "LANCZOS3"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 17])
def test_rows_that_become_longer(channels: int, interp: str) -> None:
    draw = np.random.default_rng(0)
    options: dict[str, Any] = {"interp_type": getattr(types, f"INTERP_{interp}"), "roi_relative": True}
    for height, width in ((48, 70), (1, 20), (33, 1), (5, 6), (7, 33)):
        source = (255 * draw.integers(0, 2, (height, width, channels))).astype(np.uint8)  # filters overshoot
        for size in ((height, width + 1), (2 * height + 1, 3 * width), (max(1, height // 2), 41)):
            for start, end in (([0.0, 0.0], [1.0, 1.0]), ([0.8, 0.9], [0.1, 0.2]), ([-0.3, -0.4], [1.4, 1.2])):
                options |= {"size": size, "roi_start": start, "roi_end": end}
                assert np.abs(resize_reference(source, **options) - resize_reference(source.astype(np.float32), **options).clip(0, 255)).max() <= 0.75


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "FCHW", "CFHW"])
def test_layouts_of_pictures(image: np.ndarray, layout: str) -> None:
    letters = layout.replace("F", "")
    plane = image.transpose(["HWC".index(axis) for axis in letters])
    frames = np.stack([plane, plane[..., ::-1]], layout.index("F")) if "F" in layout else plane
    out = resize_reference(np.ascontiguousarray(frames), layout, size=(20, 33))
    if "F" in layout:
        out = out.take(0, layout.index("F"))
    assert np.array_equal(out.transpose([letters.index(axis) for axis in "HWC"]), resize_reference(image, size=(20, 33)))


@pytest.mark.parametrize("ragged", [False, True])
def test_many_small_images(ragged: bool) -> None:  # more tiles than a GPU runs at a time: blocks take several and keep weights
    draw = np.random.default_rng(0)
    photos = [draw.integers(0, 256, (9 + ragged * i % 3, 11, 3), dtype=np.uint8) for i in range(600)]
    output = ndd.resize(ndd.batch(photos, layout="HWC"), size=(40, 8))
    for photo, value in list(zip(photos, output, strict=True))[::7]:
        assert np.abs(np.asarray(value).astype(int) - resize_reference(photo, size=(40, 8))).max() <= 1
    assert np.abs(np.asarray(output.select(599)) - reference(photos[599], (40, 8))).max() <= 1


def test_volumes_equal_the_reference() -> None:
    volume = np.random.default_rng(0).random((7, 20, 30, 2), np.float32)
    depth = weights(7, 12, 0, 7, "LINEAR")
    expected = reference(np.einsum("zd,dhwc->hwzc", depth, volume).reshape(20, 30, -1), (9, 41)).reshape(9, 41, 12, 2)
    assert np.allclose(resize_reference(volume, "DHWC", size=(12, 9, 41)), expected.transpose(2, 0, 1, 3), atol=1e-5)


def test_more_columns_lost_than_rows_gained() -> None:
    wide = np.random.default_rng(0).integers(0, 256, (8, 900, 3), dtype=np.uint8)  # resampled along columns first
    assert np.abs(resize_reference(wide, size=(300, 8)) - reference(wide, (300, 8))).max() <= 1


def test_thumbnails_of_large_photographs() -> None:
    photo = np.random.default_rng(0).integers(0, 256, (500, 1300, 3), dtype=np.uint8)  # beyond and within the taps of the integer path
    for size in ((10, 60), (4, 5)):
        assert np.abs(resize_reference(photo, size=size) - reference(photo, size)).max() <= 1


def test_constant_stays() -> None:
    for value in (0, 1, 127, 255):
        flat = np.full((64, 90, 3), value, np.uint8)
        for interp in ("LINEAR", "CUBIC", "LANCZOS3", "GAUSSIAN"):
            assert (resize_reference(flat, size=(23, 140), interp_type=getattr(types, f"INTERP_{interp}")) == value).all()


def test_negative_size_mirrors(image: np.ndarray) -> None:
    assert np.abs(resize_reference(image, size=(-20, 33)).astype(int) - resize_reference(image, size=(20, 33))[::-1]).max() <= 1


def test_regions_equal_the_reference(image: np.ndarray) -> None:
    region = ((10.25, 60.0), (40.0, 12.5))
    out = resize_reference(image.astype(np.float32), size=(30, 31), roi_start=region[0], roi_end=region[1])
    assert np.allclose(out, reference(image, (30, 31), region=region), atol=5e-3)


def test_region_outside_shows_the_border(image: np.ndarray) -> None:
    out = resize_reference(image, size=(4, 5), roi_start=(100.0, 200.0), roi_end=(120.0, 230.0))
    assert (out == image[-1, -1]).all()


def test_fractional_size_keeps_the_scale(image: np.ndarray) -> None:
    out = resize_reference(image.astype(np.float32), resize_x=24.4)  # 24 columns at the scale of 24.4
    width, height = 70 * 24 / 24.4, 48 * 17 / (48 * 24.4 / 70)
    region = ((24 - height / 2, 35 - width / 2), (24 + height / 2, 35 + width / 2))
    assert np.allclose(out, reference(image, (17, 24), region=region), atol=5e-3)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"resize_shorter": 24}, (24, 35)),
        ({"resize_longer": 35}, (24, 35)),
        ({"resize_shorter": 96, "max_size": 70}, (48, 70)),
        ({"resize_y": 24}, (24, 35)),
        ({"resize_y": 24, "mode": "stretch"}, (24, 70)),
        ({"size": 20}, (20, 20)),
        ({"size": (24, 70), "mode": "not_larger"}, (24, 35)),
        ({"size": (24, 70), "mode": "not_smaller"}, (48, 70)),
        ({"size": (0, 0)}, (48, 70)),
        ({"size": (0.2, 10)}, (1, 10)),
    ],
)
def test_sizes_follow_the_options(image: np.ndarray, options: dict[str, Any], shape: tuple[int, int]) -> None:
    assert resize_reference(image, **options).shape == (*shape, 3)


def test_no_elements() -> None:
    assert resize_reference(np.zeros((0, 5, 3), np.uint8), size=(4, 4)).shape == (0, 4, 3)
    assert resize_reference(np.zeros((4, 5, 0), np.uint8), size=(7, 8)).shape == (7, 8, 0)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, RuntimeError, "exactly one of size"),
        ({"size": (4, 4), "resize_x": 3}, RuntimeError, "exactly one of size"),
        ({"resize_shorter": 4, "resize_longer": 4}, RuntimeError, "exactly one of size"),
        ({"size": (4, 4, 4)}, RuntimeError, "size has 3 elements"),
        ({"size": [4]}, RuntimeError, "size has 1 elements"),
        ({"size": ndd.as_tensor([4.0])}, RuntimeError, "size has 1 elements"),
        ({"size": (4, float("nan"))}, ValueError, "size must be finite"),
        ({"size": "large"}, ValueError, "size"),
        ({"size": (4, 4), "mode": "fit"}, RuntimeError, "mode must be one of .*got 'fit'"),
        ({"resize_longer": 4, "mode": "stretch"}, RuntimeError, "mode"),
        ({"size": (4, 4), "max_size": (4, 4, 4)}, RuntimeError, "max_size"),
        ({"size": (4, 4), "roi_start": (0, 0)}, RuntimeError, "roi_start and roi_end"),
        ({"size": (4, 4), "roi_start": (0,), "roi_end": (4,)}, RuntimeError, "roi_start"),
        ({"size": (4, 4), "interp_type": 9}, RuntimeError, "interp_type"),
        ({"size": (4, 4), "min_filter": ndd.as_tensor(-1)}, RuntimeError, "min_filter"),
        ({"size": (4, 4), "dtype": torch.int32}, RuntimeError, "dtype"),
        ({"size": (4, 4), "sise": 4}, TypeError, "did you mean 'size'"),
    ],
)
def test_bad_arguments(image: np.ndarray, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"resize.*{text}"):
        resize_reference(image, **options)


def test_bad_layout() -> None:
    with pytest.raises(ValueError, match="resize"):
        resize_reference(np.zeros((4, 5), np.uint8), "WH", size=(2, 2))


def test_extents_of_the_input() -> None:
    ragged = ndd.batch([np.zeros((2, 4, 5, 3), np.uint8), np.zeros((1, 6, 7, 3), np.uint8)], layout="FHWC")
    for batch, extents in ((ragged, [[4, 5], [6, 7]]), (ndd.batch([ragged.select(0)] * 2), [[4, 5]] * 2)):
        out, attributes = ndd.resize(batch, size=(2, 3), save_attrs=True)
        assert out.shape == [(s[0], 2, 3, 3) for s in batch.shape]
        assert attributes.torch().tolist() == extents
        assert attributes.dtype == torch.int32
        assert attributes.layout is None


def test_equal_sizes_make_a_dense_batch(image: np.ndarray) -> None:
    ragged = ndd.batch([image, image[:30]], layout="HWC")
    assert ndd.resize(ragged, size=(20, 30)).torch().shape == (2, 20, 30, 3)
    assert ndd.resize(ragged, size=ndd.batch([[20.0, 30.0]] * 2)).torch().shape == (2, 20, 30, 3)
    assert ndd.resize(ragged, resize_shorter=20).shape == [(20, 29, 3), (20, 47, 3)]


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_equal_sizes_make_a_dense_batch_in_a_graph(image: np.ndarray, layout: str) -> None:
    planes = [np.ascontiguousarray(value.transpose(["HWC".index(axis) for axis in layout])) for value in (image, image[:30])]
    ragged = ndd.batch(planes, layout=layout)
    graph = torch.compile(lambda batch: ndd.resize(batch, size=(20, 30)).torch() * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(graph(ragged), ndd.resize(ragged, size=(20, 30)).torch() * 2)
    mixed = ndd.batch([planes[0], np.zeros((5, 5, 5), np.uint8)], layout=layout)
    with pytest.raises(RuntimeError, match="channels"):
        graph(mixed)
    empty = ndd.batch([planes[0], planes[1][:0] if layout == "HWC" else planes[1][:, :0]], layout=layout)
    with pytest.raises(RuntimeError, match="sample 1 has no pixels"):
        graph(empty)


@pytest.mark.parametrize("size", [np.array([20, 33]), np.float32(20), ndd.as_tensor([20, 33.0]), ndd.as_tensor(20), [20.0, 33], 20])
def test_ways_to_write_a_size(image: np.ndarray, size: object) -> None:
    expected = (20, 20) if np.ndim(np.asarray(size)) == 0 else (20, 33)
    assert np.array_equal(resize_reference(image, size=size), resize_reference(image, size=expected))


def test_one_plan_for_numbers_arrays_and_graphs() -> None:
    """Sizes and regions are bitwise equal for dense, ragged and single samples."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        extents = generator.integers(1, 400, (3, 2))
        size = [float(v) for v in generator.integers(-300, 300, 2) / 4]
        options: dict[str, Any] = {"size": size, "mode": generator.choice(["default", "stretch", "not_larger", "not_smaller"])}
        options["max_size"] = float(generator.integers(10, 90)) if generator.random() < 0.5 else None
        if generator.random() < 0.5:
            options |= {"roi_start": [0.1, 0.7], "roi_end": [0.8, 0.2], "roi_relative": True}
        together = plan_resize("resize", list(torch.tensor(extents).unbind(1)), **options)
        for i, extent in enumerate(extents.tolist()):
            alone = plan_resize("resize", extent, **options)
            assert [e if isinstance(e, int) else e[i].item() for e in together.extents] == list(alone.extents)
            assert together.whole == alone.whole
            if not alone.whole:
                assert torch.equal(together.roi(3)[i], alone.roi(1)[0])


def test_one_size_for_each_sample_of_a_tensor(image: np.ndarray) -> None:
    out = ndd.resize(ndd.as_tensor(image, layout="HWC"), size=ndd.batch([20.0, 30.0]))
    assert out.shape == [(20, 20, 3), (30, 30, 3)]


def test_a_window_beyond_the_image_shows_the_border() -> None:
    ramp = np.arange(4, dtype=np.float32).reshape(4, 1, 1)
    output = ndd.resize_crop_mirror(ndd.tensor(ramp), size=[4, 1], crop=[8, 1], interp_type=types.INTERP_NN)
    assert np.asarray(output).ravel().tolist() == [0, 0, 0, 1, 2, 3, 3, 3]


def test_sizes_of_any_axes() -> None:
    data = np.zeros((4, 6, 8), np.uint8)
    for options, shape in (
        ({"scales": [0.6]}, (2, 4, 5)),
        ({"scales": [0.6, 0.0, 1.0]}, (2, 5, 8)),
        ({"scales": 0.6, "size_rounding": "truncate"}, (2, 3, 4)),
        ({"scales": 0.6, "size_rounding": "ceil"}, (3, 4, 5)),
        ({"scales": 0.01}, (1, 1, 1)),
        ({"sizes": [2, 3], "axes": [2, 0]}, (3, 6, 2)),
        ({"sizes": [], "axes": []}, (4, 6, 8)),
    ):
        assert ndd.tensor_resize(data, **options).shape == shape
    many = np.random.default_rng(0).random((2, 3, 4, 5, 3)).astype(np.float32)
    assert ndd.tensor_resize(many, sizes=[2, 6, 2, 9, 3]).shape == (2, 6, 2, 9, 3)
    assert np.array_equal(np.asarray(ndd.tensor_resize(many, scales=[1.0])), many)
    gauss = np.asarray(ndd.tensor_resize(many[0, 0, 0], scales=[1.0], interp_type=types.INTERP_GAUSSIAN))
    assert np.abs(gauss - many[0, 0, 0]).max() > 0.01  # it blurs at any scale


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (RuntimeError, "sizes and scales", lambda x: ndd.tensor_resize(x)),
        (RuntimeError, "sizes and scales", lambda x: ndd.tensor_resize(x, sizes=[1], scales=[1])),
        (RuntimeError, "size_rounding", lambda x: ndd.tensor_resize(x, sizes=[1], size_rounding="floor")),
        (RuntimeError, "mode", lambda x: ndd.tensor_resize(x, scales=[1], mode="not_larger")),
        (RuntimeError, "axes and axis_names", lambda x: ndd.tensor_resize(x, sizes=[1], axes=[0], axis_names="H")),
        (IndexError, "out of range", lambda x: ndd.tensor_resize(x, sizes=[1], axes=[3])),
        (ValueError, "Duplicate", lambda x: ndd.tensor_resize(x, sizes=[1], axes=[1, 1])),
        (ValueError, "at most three axes", lambda x: ndd.tensor_resize(np.zeros((2, 2, 2, 2)), sizes=[3])),
        (RuntimeError, "rounding", lambda x: ndd.resize_crop_mirror(x, size=[2, 2], rounding="ceil")),
        (RuntimeError, "crop_pos_x", lambda x: ndd.resize_crop_mirror(x, size=[2, 2], crop=[1, 1], crop_pos_x=1.5)),
        (RuntimeError, "crop_h", lambda x: ndd.resize_crop_mirror(x, size=[2, 2], crop_w=1)),
        (RuntimeError, "size", lambda x: ndd.resize_crop_mirror(x, crop=[1, 1])),
    ],
)
def test_errors_of_the_others(error: type[Exception], words: str, call: Callable[[Any], Any]) -> None:
    with pytest.raises(error, match=words):
        call(np.zeros((3, 4, 5), np.uint8))


def test_an_axis_that_is_too_long() -> None:
    with pytest.raises(RuntimeError) as raised:
        ndd.tensor_resize(np.zeros(5_000_000, np.uint8), sizes=[7]).evaluate()
    assert "tensor_resize: sample 0 has an axis of 5000000 elements" in str(raised.value)


@pytest.mark.parametrize("rule", ["torch", "pillow", "pillow_12"])
def test_region_between_pixels_stays_inside_the_image(rule: Any) -> None:
    # The exact height is 65.54 rows, so the 66 rows of the output are those of -0.25 to 71.25 of the image.
    image = torch.randint(0, 256, (71, 26, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    guarded = torch.cat([image, torch.full_like(image, 255)])[:71]  # the memory behind the image is not black
    expected = ndd.resize(image, size=[66, 24], rule=rule).torch()
    assert torch.equal(ndd.resize(guarded, resize_shorter=24, rule=rule).torch(), expected)


@pytest.mark.parametrize("end", [3e38, -3e38])
def test_region_beyond_float32_is_limited(end: float) -> None:
    images = ndd.batch([np.full((20 + k, 30, 3), 7, np.uint8) for k in range(2)], layout="HWC")
    resized = ndd.resize(images, size=[4, 5], roi_start=[0, 0], roi_end=[end, end], roi_relative=True)
    assert (np.asarray(resized.torch()) == 7).all()


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("interpolation", [2, 3])
@pytest.mark.parametrize(("size", "to"), [((1001, 200), (1000, 200)), ((1000, 200), (1001, 201)), ((90, 100), (89, 99)), ((300, 70), (100, 69))])
def test_weights_near_one_are_exact(size: tuple[int, int], to: tuple[int, int], interpolation: int, channels: int) -> None:
    """Weights of 16 bits, above 32,639 of 32,768 here, are a sum of three signed bytes, and smaller ones of two."""
    image = torch.randint(0, 256, (*size, channels), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    interp_type = types.INTERP_LINEAR if interpolation == 2 else types.INTERP_CUBIC
    pillow = Image.fromarray(image.numpy(), "RGB" if channels == 3 else "CMYK").resize((to[1], to[0]), Image.Resampling(interpolation))
    assert np.array_equal(ndd.resize(image, size=[*to], interp_type=interp_type, rule="pillow").torch(), np.asarray(pillow))
    mode = InterpolationMode.BILINEAR if interpolation == 2 else InterpolationMode.BICUBIC
    expected = functional.resize(image.permute(2, 0, 1), [*to], mode, antialias=True).permute(1, 2, 0)
    assert torch.equal(ndd.resize(image, size=[*to], interp_type=interp_type, rule="torch").torch(), expected)
