# SPDX-License-Identifier: Apache-2.0
"""Resampling compared with DALI's; the cases avoid what known_differences.md lists."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types as ndd_types  # noqa: E402

LAYOUTS = ["HWC", "FHWC", "CHW", "FCHW", "CFHW", "DHWC", "FDHWC", "CDHW", "FCDHW", "CFDHW"]
FILTERS = ["NN", "LINEAR", "CUBIC", "LANCZOS3", "TRIANGULAR", "GAUSSIAN"]
EXTENT = {"F": 2, "C": 3, "D": 5, "H": 37, "W": 53}
ENUMS = {dali: dali_types, ndd: ndd_types}


def samples(layout: str, dtype: str, count: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    extents = [[EXTENT[axis] + i * (axis in "HW") * 9 for axis in layout] for i in range(count)]
    return [(rng.random(extent) * 255).astype(dtype) for extent in extents]


def run(module: ModuleType, inputs: list[np.ndarray], layout: str | None, options: dict[str, Any], op: str = "resize") -> list[np.ndarray]:
    def convert(name: str, value: object) -> object:
        if isinstance(value, np.ndarray):  # one row per sample
            return module.batch([*value])
        if name == "dtype":
            return getattr(torch if module is ndd else dali, str(value))
        return getattr(ENUMS[module], f"INTERP_{value}") if value in FILTERS else value

    out = getattr(module, op)(module.batch(inputs, layout=layout), **{name: convert(name, value) for name, value in options.items()})
    assert out.layout == layout
    return [np.asarray(sample) for sample in out.tensors]


def assert_same(inputs: list[np.ndarray], layout: str | None = "HWC", op: str = "resize", **options: Any) -> None:
    """Check integers within 1, with at most 4 in a hundred different; float32 within 2e-5 of the range."""
    ours, theirs = run(ndd, inputs, layout, options, op), run(dali, inputs, layout, options, op)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        error = np.abs(a.astype(np.float64) - b)
        if a.dtype == np.float32:
            assert error.max() <= 2e-5 * 255
        else:
            assert error.max() <= 1
            assert np.mean(error > 0) < 0.04


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
def test_layouts_and_dtypes(layout: str, dtype: str) -> None:
    size = {"D": 3.0, "H": 20.0, "W": 75.0}
    assert_same(samples(layout, dtype), layout, size=[size[axis] for axis in layout if axis in size])


@pytest.mark.parametrize("interp_type", FILTERS)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("size", [(11.0, 17.0), (70.0, 91.0), (16.0, 160.0), (37.0, 53.0)])
def test_every_filter_up_and_down(interp_type: str, antialias: bool, size: tuple[float, float]) -> None:
    for dtype in ("uint8", "float32"):
        assert_same(samples("HWC", dtype), interp_type=interp_type, antialias=antialias, size=size)


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_every_number_of_channels(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (90, 130, channels), dtype=np.uint8)
    assert_same([image], size=[31.0, 200.0], interp_type="CUBIC")


def test_strong_reduction() -> None:
    image = np.random.default_rng(0).integers(0, 256, (600, 1500, 3), dtype=np.uint8)
    for size in ([20.0, 40.0], [4.0, 4.0], [300.0, 3.0]):
        assert_same([image], size=size)


def test_a_filter_for_each_direction() -> None:
    assert_same(samples("HWC", "float32"), size=[20.0, 90.0], min_filter="CUBIC", mag_filter="LINEAR")
    assert_same(samples("HWC", "float32"), size=[20.0, 53.0], interp_type="LANCZOS3", mag_filter="CUBIC")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16"])
def test_float_output(dtype: str) -> None:
    assert_same(samples("HWC", dtype), size=[20.0, 90.0], dtype="float32")


@pytest.mark.parametrize("mode", ["default", "stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("size", [(20.0, 64.0), (0.0, 24.5), (31.5, 0.0), (-20.0, 41.5), (0.0, 0.0)])
@pytest.mark.parametrize("max_size", [None, 40.0, [25.0, 70.0]])
@pytest.mark.parametrize("subpixel_scale", [True, False])
def test_every_way_to_give_a_size(mode: str, size: tuple[float, float], max_size: object, subpixel_scale: bool) -> None:
    options: dict[str, Any] = {} if max_size is None else {"max_size": max_size}
    assert_same(samples("HWC", "float32", 2), size=list(size), mode=mode, subpixel_scale=subpixel_scale, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"resize_shorter": 21.0},
        {"resize_shorter": 60.0, "max_size": 70.0},
        {"resize_longer": 33.5},
        {"resize_x": 24.0},
        {"resize_y": -24.5},
        {"resize_x": 24.5, "resize_y": 91.0, "mode": "not_larger"},
    ],
)
def test_other_ways_to_give_the_size(options: dict[str, Any]) -> None:
    assert_same(samples("HWC", "float32", 3), **options)
    assert_same(samples("CFHW", "uint8", 3), "CFHW", **options)


def test_volumes_along_each_axis() -> None:
    assert_same(samples("DHWC", "uint8", 2), "DHWC", resize_z=9.0)
    assert_same(samples("CDHW", "float32", 2), "CDHW", resize_z=-2.0, resize_x=30.0, interp_type="CUBIC")


def test_regions_of_interest() -> None:
    start, end = [3.5, 40.0], [30.0, 12.25]
    for inputs in (samples("HWC", "uint8", 2), samples("HWC", "float32", 2)):
        assert_same(inputs, size=[24.0, 24.0], roi_start=start, roi_end=end)
        assert_same(inputs, size=[24.0, 24.0], roi_start=[-0.2, 0.9], roi_end=[0.6, 0.1], roi_relative=True, interp_type="LANCZOS3")
        assert_same(inputs, resize_shorter=19.0, roi_start=[5.0, 5.0], roi_end=[30.5, 40.0])
    assert_same(samples("HWC", "float32"), size=[2.0, 2.0], roi_start=[1.0, 2.0], roi_end=[1.0, 2.0])


def test_arguments_for_each_sample() -> None:
    inputs = samples("HWC", "uint8", 3)
    assert_same(inputs, size=np.array([[20, 30], [40, -25], [0, 33]], np.float32))
    assert_same(inputs, resize_shorter=np.array([20, 30, 40], np.float32))
    start = np.array([[0, 0], [0.1, 0.2], [0.5, 0.9]], np.float32)
    end = np.array([[1, 1], [0.7, 0.6], [0.9, 0.1]], np.float32)
    assert_same(inputs, size=[25.0, 25.0], roi_start=start, roi_end=end, roi_relative=True)


def test_extents_of_random_sizes() -> None:
    rng = np.random.default_rng(0)
    for i in range(300):
        image = np.zeros((*rng.integers(1, 200, 2), 1), np.uint8)
        options: dict[str, Any] = {"size": [float(v) for v in rng.integers(0, 160, 2) / 2]}
        options["mode"] = ["default", "stretch", "not_larger", "not_smaller"][i % 4]
        if i % 3 == 0:
            options["max_size"] = float(rng.integers(8, 60))
        assert run(ndd, [image], "HWC", options)[0].shape == run(dali, [image], "HWC", options)[0].shape, (image.shape, options)


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 3)])
def test_no_elements(shape: tuple[int, int, int]) -> None:
    for size in ([2.0, 2.0], [2.0, 0.0], [0.0, 0.0]):
        options: dict[str, Any] = {"size": size}
        image = np.zeros(shape, np.float32)
        assert run(ndd, [image], "HWC", options)[0].shape == run(dali, [image], "HWC", options)[0].shape


WINDOWED = {"op": "resize_crop_mirror", "size": [24.0, 40.0]}


@pytest.mark.parametrize("layout", ["HWC", "DHWC"])  # in other layouts DALI mirrors other axes
@pytest.mark.parametrize("mirror", range(8))
def test_resize_crop_mirror(mirror: int, layout: str) -> None:
    size, crop = ([4.0, 24.0, 40.0], [3.0, 11.0, 16.0]) if "D" in layout else ([24.0, 40.0], [11.0, 16.0])
    for dtype in ("uint8", "float32"):
        assert_same(samples(layout, dtype, 2), layout, op="resize_crop_mirror", size=size, crop=crop, mirror=mirror)


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "FCHW", "CFHW"])  # DALI has no windows of five dimensions
def test_resize_crop_mirror_layouts(layout: str) -> None:
    for dtype in ("uint8", "int16", "uint16", "float32"):
        assert_same(samples(layout, dtype, 2), layout, op="resize_crop_mirror", size=[24.0, 40.0], crop=[11.0, 16.0])


@pytest.mark.parametrize("position", [0.0, 0.3, 0.33, 0.5, 1.0])
@pytest.mark.parametrize("rounding", ["round", "truncate"])
def test_positions_of_windows(position: float, rounding: str) -> None:
    for crop in ([11.0, 16.0], [10.0, 7.0], [0.0, 5.0], [30.0, 50.0]):
        assert_same(samples("HWC", "float32"), **WINDOWED, crop=crop, crop_pos_x=position, crop_pos_y=1 - position, rounding=rounding)
    assert_same(samples("HWC", "uint8"), **WINDOWED, crop_w=11.7, crop_h=12.0, crop_pos_x=position, rounding=rounding)


@pytest.mark.parametrize(
    "options",
    [
        {"resize_shorter": 21.0},
        {"resize_longer": 33.5, "subpixel_scale": False},
        {"resize_x": 30.0},
        {"size": [-20.0, 30.0]},
        {"size": [20.0, 30.0], "roi_start": [5.0, 40.0], "roi_end": [30.0, 10.0]},
        {"size": [60.0, 70.0], "mode": "not_smaller", "max_size": 80.0, "interp_type": "CUBIC"},
        {"size": [20.0, 70.0], "min_filter": "LANCZOS3", "mag_filter": "CUBIC", "antialias": False, "dtype": "float32"},
    ],
)
def test_windows_of_every_resize(options: dict[str, Any]) -> None:
    for dtype in ("uint8", "float32"):
        assert_same(samples("HWC", dtype, 3), op="resize_crop_mirror", crop=[10.0, 12.0], mirror=1, **options)


def test_windows_for_each_sample() -> None:
    crops = {"crop": np.array([[10, 12], [20, 5], [24, 40]], np.float32), "mirror": np.array([1, 2, 0], np.int32)}
    positions = {"crop_pos_x": np.array([0.1, 0.5, 1.0], np.float32), "crop_pos_y": np.array([0.7, 0.0, 0.2], np.float32)}
    for dtype in ("uint8", "float32"):
        assert_same(samples("HWC", dtype, 3), **WINDOWED, **crops, **positions)


def arrays(*shape: int, count: int = 1, dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [(rng.random([n + (axis == 1) * i for axis, n in enumerate(shape)]) * 255).astype(dtype) for i in range(count)]


@pytest.mark.parametrize(
    "options",
    [
        {"sizes": [2.0, 3.0, 4.0]},
        {"sizes": 5.0},
        {"sizes": [2.0, 3.0], "axes": [0, 2]},
        {"sizes": [2.0, 3.0], "axes": [2, 0]},
        {"sizes": [-2.0], "axes": [-1]},
        {"sizes": [3.0], "axes": 1},
        {"sizes": [2.0, 0.0, 4.0]},
        {"sizes": [2.0, 0.0, 4.0], "mode": "stretch"},
        {"sizes": [3.0, 3.0, 3.0], "mode": "not_larger"},
        {"sizes": [5.5, 3.0, 3.0], "mode": "not_smaller", "max_size": 10.0},
        {"scales": [0.5, 1.5, 2.0]},
        {"scales": [0.6, 0.6, 0.6]},
        {"scales": [-0.5, 1.0, 1.3], "interp_type": "CUBIC"},
        {"scales": [2.0, 2.0, 2.0], "max_size": [5.0, 20.0, 20.0]},
        {"scales": [0.7, 0.8], "axes": [1, 2], "roi_start": [1.0, 7.0], "roi_end": [5.0, 2.0]},
        {"scales": [0.7, 0.8], "axes": [1, 2], "roi_start": [0.1, 0.7], "roi_end": [0.9, 0.2], "roi_relative": True, "alignment": [0.0, 1.0]},
        {"sizes": [3.0, 9.0, 5.0], "min_filter": "NN", "mag_filter": "LANCZOS3", "antialias": False},
    ],
)
def test_tensor_resize(options: dict[str, Any]) -> None:
    assert_same(arrays(4, 6, 8, count=3), None, op="tensor_resize", **options)
    assert_same(arrays(4, 6, 8, count=2, dtype="uint8"), "HWC", op="tensor_resize", **options)


@pytest.mark.parametrize("size_rounding", ["round", "truncate", "ceil"])
@pytest.mark.parametrize("alignment", [0.0, 0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("subpixel_scale", [True, False])
def test_alignment_of_tensor_resize(size_rounding: str, alignment: float, subpixel_scale: bool) -> None:
    more: dict[str, Any] = {"alignment": [alignment], "size_rounding": size_rounding, "subpixel_scale": subpixel_scale}
    for options in ({"scales": [0.66]}, {"scales": [-1.37]}, {"sizes": [4.4]}, {"scales": [0.66], "roi_start": [9.0], "roi_end": [2.0]}):
        assert_same(arrays(10), None, op="tensor_resize", **options, **more)


def test_any_axes() -> None:
    assert_same(arrays(5), None, op="tensor_resize", scales=[1.5])
    assert_same(arrays(5, 4, 3), "HWC", op="tensor_resize", sizes=[3.0, 7.0], axis_names="HW")
    assert_same(arrays(5, 4, 3, 2, 3), None, op="tensor_resize", sizes=[5.0, 4.0, 7.0, 9.0, 3.0])  # the first and last stay
    assert_same(arrays(5, 4, 3, 2), None, op="tensor_resize", sizes=[7.0, 5.0], axes=[1, 3])
    assert_same(arrays(5, 4, 3, count=2), None, op="tensor_resize", sizes=np.array([[3, 7], [8, 2]], np.float32), axes=[0, 1])
