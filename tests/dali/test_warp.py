# SPDX-License-Identifier: Apache-2.0
"""Warps against DALI's. Known differences: where a point falls exactly between two pixels (quarter turns between sizes of unlike parity), nearest
takes the higher one everywhere, while DALI's choice follows its rounding noise; a fractional size is rounded as documented, while DALI truncates it
unless it is a literal."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types as ndd_types  # noqa: E402

MODULES = ((dali, dali_types), (ndd, ndd_types))


def image(shape: tuple[int, ...], dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(dtype)


def rotate(data: np.ndarray, layout: str, *, interp: str = "LINEAR", dtype: str | None = None, **options: Any) -> list[np.ndarray]:
    def run(module: ModuleType, types: ModuleType) -> np.ndarray:
        out_dtype = {} if dtype is None else {"dtype": getattr(module, dtype)}
        tensor = module.tensor(data, layout=layout)
        return np.asarray(module.rotate(tensor, interp_type=getattr(types, "INTERP_" + interp), **out_dtype, **options).evaluate())

    ours, theirs = (run(*module) for module in reversed(MODULES))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    return [ours.astype(np.float64), theirs.astype(np.float64)]


def assert_close(ours: np.ndarray, theirs: np.ndarray, *, integer: bool) -> None:
    # Coordinates are float32 on both sides: a few 1e-5 of a pixel, times steps of up to 255.
    difference = np.abs(ours - theirs)
    assert difference.max(initial=0) <= (1 if integer else 0.05)
    assert (difference > 0.05).mean() < 0.02


@pytest.mark.parametrize("fill", [None, 42.0, 300.0, -7.5, 1.5])
@pytest.mark.parametrize(
    ("source", "target"), [("uint8", "uint8"), ("uint8", "float32"), ("float32", "uint8"), ("int16", "int16"), ("int32", "float32")]
)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_linear_rotations(source: str, target: str, channels: int, fill: float | None) -> None:
    options = {} if fill is None else {"fill_value": fill}
    for angle, shape in ((30.0, (37, 52)), (-77.25, (64, 9)), (201.5, (1, 40)), (90.0, (33, 20))):
        assert_close(*rotate(image((*shape, channels), source), "HWC", angle=angle, dtype=target, **options), integer=target != "float32")


@pytest.mark.parametrize("fill", [None, 42.0])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_nearest_rotations(dtype: str, channels: int, fill: float | None) -> None:
    options = {} if fill is None else {"fill_value": fill}
    for angle, shape in ((30.0, (37, 52)), (-77.25, (64, 9)), (201.5, (1, 40)), (90.0, (33, 20))):
        ours, theirs = rotate(image((*shape, channels), dtype), "HWC", interp="NN", angle=angle, **options)
        assert (ours != theirs).mean() < 1e-3


@pytest.mark.parametrize("interp", ["NN", "LINEAR"])
def test_rotated_volumes(interp: str) -> None:
    for seed, axis in enumerate([(0, 0, 2), (1, 0, 0), (0, -1, 0), (1, 2, -3), (0.5, 0.1, 0.7)]):
        for fill in ({}, {"fill_value": 9.0}):
            options = dict(angle=17.0 + 50 * seed, axis=[float(a) for a in axis], **fill)
            ours, theirs = rotate(image((7, 12, 9, 2), seed=seed), "DHWC", interp=interp, **options)
            assert_close(ours, theirs, integer=True)


@pytest.mark.parametrize("options", [{"keep_size": True}, {"size": [20, 31]}, {"size": [20.4, 31.0]}, {"size": [5, 7], "keep_size": True}])
def test_canvas_options(options: dict[str, Any]) -> None:
    assert_close(*rotate(image((25, 30, 3)), "HWC", angle=33.0, **options), integer=True)


def canvases(module: ModuleType, images: list[np.ndarray], layout: str, **options: list[np.ndarray]) -> list[tuple[int, ...]]:
    arguments = {name: module.batch(values) for name, values in options.items()}
    return [tuple(shape) for shape in module.rotate(module.batch(images, layout=layout), **arguments).evaluate().shape]


def test_canvas_size() -> None:
    generator = np.random.default_rng(7)
    sizes = generator.integers(1, 40, (500, 2))
    angles = np.where(generator.random(500) < 0.5, generator.integers(-40, 40, 500) * 15.0, generator.uniform(-400, 400, 500)).astype(np.float32)
    images = [np.zeros((*size, 1), np.uint8) for size in sizes]
    ours, theirs = (canvases(module, images, "HWC", angle=list(angles)) for module in (ndd, dali))
    assert ours == theirs


def test_canvas_size_of_volumes() -> None:
    generator = np.random.default_rng(8)
    sizes = generator.integers(1, 14, (200, 3))
    options = {"angle": list(generator.uniform(-400, 400, 200).astype(np.float32)), "axis": list(generator.normal(size=(200, 3)).astype(np.float32))}
    images = [np.zeros((*size, 1), np.uint8) for size in sizes]
    ours, theirs = (canvases(module, images, "DHWC", **options) for module in (ndd, dali))
    assert ours == theirs


@pytest.mark.parametrize("layout", ["FHWC", "FDHWC"])
def test_canvas_of_frames_has_the_parity_of_most(layout: str) -> None:
    generator = np.random.default_rng(9)
    counts = generator.integers(1, 7, 60)
    options = {"angle": [generator.uniform(-180, 180, n).astype(np.float32) for n in counts]}
    if layout == "FDHWC":
        options["axis"] = [generator.normal(size=(n, 3)).astype(np.float32) for n in counts]
    videos = [np.zeros((n, *generator.integers(1, 14, len(layout) - 2), 1), np.uint8) for n in counts]
    ours, theirs = (
        [
            tuple(t.shape)
            for t in m.rotate(m.batch(videos, layout=layout), **{k: m.per_frame(m.batch(v)) for k, v in options.items()}).evaluate().tensors
        ]
        for m in (ndd, dali)
    )
    assert ours == theirs


def test_angles_per_frame() -> None:
    video = image((3, 20, 31, 3))
    assert_close(*rotate(video, "FHWC", angle=25.0), integer=True)
    ours, theirs = (
        np.asarray(module.rotate(module.tensor(video, layout="FHWC"), angle=module.per_frame([10.0, -40.0, 80.0])).evaluate()).astype(np.float64)
        for module in (ndd, dali)
    )
    assert_close(ours, theirs, integer=True)


def test_ragged_batch() -> None:
    images = [image((10 + i, 31 - 2 * i, 3), seed=i) for i in range(4)]
    angles = [np.float32(a) for a in (0.0, 45.0, -120.0, 333.0)]
    results = [
        [np.asarray(t) for t in module.rotate(module.batch(images, layout="HWC"), angle=module.batch(angles), fill_value=0.0).evaluate().tensors]
        for module in (ndd, dali)
    ]
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours.astype(np.float64), theirs.astype(np.float64), integer=True)


# No point falls on the border of two pixels.
MATRIX = np.array([[0.9137, -0.2971, 5.2313], [0.2519, 1.1073, -3.7177]], np.float32)
VOLUME_MATRIX = np.array([[0.9137, -0.2971, 0.1079, 1.2313], [0.2519, 1.1073, 0.2029, -0.7177], [0.1013, -0.1987, 0.8111, 0.6073]], np.float32)
HOMOGRAPHY = np.array([[1.1, 0.1, -2.3], [0.05, 0.9, 1.7], [0.001, 0.002, 1.0]], np.float32)


def both(name: str, *inputs: Any, **options: Any) -> list[list[np.ndarray]]:
    """The samples that torch_ndd and DALI make. Inputs and options may be functions of (module, types); arrays are given as they are."""

    def of(value: Any, module: ModuleType, types: ModuleType) -> Any:
        return value(module, types) if callable(value) else value

    results = []
    for module, types in reversed(MODULES):
        function = module
        for part in name.split("."):
            function = getattr(function, part)
        result = function(
            *(of(item, module, types) for item in inputs), **{key: of(value, module, types) for key, value in options.items()}
        ).evaluate()
        results.append([np.asarray(value) for value in (result.tensors if hasattr(result, "batch_size") else [result])])
    ours, theirs = results
    assert [(a.shape, a.dtype) for a in ours] == [(a.shape, a.dtype) for a in theirs]
    return [[sample.astype(np.float64) for sample in samples] for samples in (ours, theirs)]


def make_batch(*samples: np.ndarray, layout: str | None = None) -> Any:
    return lambda module, types: module.batch(list(samples), layout=layout)


def interpolation(name: str) -> Any:
    return lambda module, types: getattr(types, "INTERP_" + name)


def make_ragged(dtype: str, channels: int = 3) -> list[np.ndarray]:
    return [image((*shape, channels), dtype, seed=k) for k, shape in enumerate([(37, 52), (64, 9), (20, 31)])]


def assert_all_close(results: list[list[np.ndarray]], *, integer: bool) -> None:
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs, integer=integer)


def assert_same_pixels(results: list[list[np.ndarray]]) -> None:
    for ours, theirs in zip(*results, strict=True):
        assert (ours != theirs).mean() < 2e-3  # points on the border of two pixels, in float32


@pytest.mark.parametrize("fill", [None, 42.0, 300.0, -7.5])
@pytest.mark.parametrize(
    ("source", "target"), [("uint8", "uint8"), ("uint8", "float32"), ("float32", "uint8"), ("int16", "int16"), ("int32", "int32")]
)
@pytest.mark.parametrize("inverse", [True, False])
def test_warp_affine(source: str, target: str, fill: float | None, inverse: bool) -> None:
    options: dict[str, Any] = {} if fill is None else {"fill_value": fill}
    matrices = make_batch(MATRIX, MATRIX * np.float32(1.3), np.float32([[1, 0, 0.3], [0, -1, 20.2]]))
    options |= {"matrix": matrices, "inverse_map": inverse, "dtype": lambda module, types: getattr(module, target)}
    images = make_batch(*make_ragged(source), layout="HWC")
    assert_all_close(both("warp_affine", images, **options), integer=target != "float32")
    options["size"] = make_batch(*np.float32([[20, 31], [40, 7], [3, 90]]))
    assert_all_close(both("warp_affine", images, **options), integer=target != "float32")
    assert_same_pixels(both("warp_affine", images, interp_type=interpolation("NN"), **options))


def test_warp_affine_takes_the_matrix_in_every_form() -> None:
    data = image((20, 31, 3))
    tensor = lambda module, types: module.tensor(data, layout="HWC")  # noqa: E731
    matrix = np.array([[1.5, 0.25, -3.5], [0.125, 0.75, 2.0]], np.float32)
    forms = [both("warp_affine", tensor, matrix=matrix), both("warp_affine", tensor, matrix), both("warp_affine", tensor, make_batch(matrix))]
    for results in forms:
        assert_all_close(results, integer=True)
    # DALI accepts a list only as a literal.
    written = dali.warp_affine(dali.tensor(data, layout="HWC"), matrix=[1.5, 0.25, -3.5, 0.125, 0.75, 2.0]).evaluate()
    ours = np.asarray(ndd.warp_affine(ndd.tensor(data, layout="HWC"), matrix=matrix.ravel().tolist()).evaluate())
    assert_close(ours.astype(np.float64), np.asarray(written).astype(np.float64), integer=True)


@pytest.mark.parametrize("interp", ["NN", "LINEAR"])
@pytest.mark.parametrize("inverse", [True, False])
def test_warp_affine_of_volumes(interp: str, inverse: bool) -> None:
    volumes = make_batch(image((7, 12, 9, 2)), image((5, 8, 14, 2), seed=1), layout="DHWC")
    for options in ({}, {"fill_value": 9.0}, {"size": [6, 10, 11]}):
        results = both("warp_affine", volumes, matrix=VOLUME_MATRIX, inverse_map=inverse, interp_type=interpolation(interp), **options)
        assert_all_close(results, integer=True) if interp == "LINEAR" else assert_same_pixels(results)


@pytest.mark.parametrize("positional", [False, True])
def test_warp_affine_of_frames(positional: bool) -> None:
    videos = make_batch(image((3, 20, 31, 3)), image((2, 20, 31, 3), seed=1), layout="FHWC")
    per_frame = lambda module, types: module.per_frame(module.batch([np.stack([MATRIX] * 2 + [2 * MATRIX]), np.stack([-MATRIX, MATRIX])]))  # noqa: E731
    assert_all_close(both("warp_affine", videos, per_frame) if positional else both("warp_affine", videos, matrix=per_frame), integer=True)
    assert_all_close(both("warp_affine", videos, matrix=MATRIX), integer=True)


# DALI's CPU operator is OpenCV's, which may round points to 1/32 of a pixel and weights to 2^-15, and stops repeating an image far outside of it.
@pytest.mark.parametrize("border", ["constant", "replicate", "reflect", "reflect_101", "wrap"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("interp", ["NN", "LINEAR", "CUBIC"])
def test_warp_perspective(interp: str, dtype: str, border: str) -> None:
    x, y = np.meshgrid(np.arange(64), np.arange(64))
    smooth = [(128 + 100 * np.sin(x / (7 + c)) * np.cos(y / 9))[:h, :w] for c, (h, w) in enumerate([(37, 52), (64, 29), (20, 31)])]
    images = make_batch(*(np.stack([value, value / 2, 255 - value], -1).astype(dtype) for value in smooth), layout="HWC")
    for options in ({"matrix": HOMOGRAPHY}, {"matrix": HOMOGRAPHY, "pixel_origin": "center", "inverse_map": False, "size": [30, 41]}):
        fill = {"fill_value": [10.0, 20.0, 30.0]} if border == "constant" else {}
        results = both("experimental.warp_perspective", images, border_mode=border, interp_type=interpolation(interp), **fill, **options)
        for ours, theirs in zip(*results, strict=True):
            difference = np.abs(ours - theirs)
            if interp == "NN":
                assert (difference > 0).mean() < 0.02
            else:
                assert difference.mean() < 0.3
                assert (difference > 1).mean() < 0.04


@pytest.mark.parametrize("layout", ["HW", "HWC", "CHW", "FHWC", "FCHW"])
def test_warp_perspective_layouts(layout: str) -> None:
    shape = tuple({"F": 2, "H": 23, "W": 31, "C": 3}[letter] for letter in layout)
    data = (128 + 100 * np.sin(np.arange(np.prod(shape)) / 17)).reshape(shape).astype(np.float32)
    tensor = lambda module, types: module.tensor(data, layout=layout)  # noqa: E731
    for matrix in (
        HOMOGRAPHY,
        *([lambda module, types: module.per_frame(np.stack([HOMOGRAPHY, np.eye(3, dtype=np.float32)]))] if "F" in layout else []),
    ):
        positional = [] if layout == "FCHW" else [both("experimental.warp_perspective", tensor, matrix)]  # DALI fails
        for results in (both("experimental.warp_perspective", tensor, matrix=matrix), *positional):
            assert np.abs(results[0][0] - results[1][0]).mean() < 0.3


@pytest.mark.parametrize("operator", ["water", "sphere"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("interp", ["NN", "LINEAR"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_water_and_sphere(operator: str, dtype: str, interp: str, channels: int) -> None:
    images = make_batch(*make_ragged(dtype, channels), layout="HWC")
    waves = {"ampl_x": 4.5, "ampl_y": 7.0, "freq_x": 0.2, "freq_y": 0.13, "phase_x": 0.4, "phase_y": -1.2}
    for options in ({}, {"fill_value": 30.0, **(waves if operator == "water" else {})}, {"mask": make_batch(*np.int32([1, 0, 1]))}):
        results = both(operator, images, interp_type=interpolation(interp), **options)
        assert_all_close(results, integer=dtype == "uint8") if interp == "LINEAR" else assert_same_pixels(results)
