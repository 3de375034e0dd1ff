# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs, Samples, images
from _warps import affine, on_a_sphere, on_water, perspective, perspective_of_input, remap, rotation, round_to, turn, warp

import torch_ndd as ndd
from torch_ndd import EvalMode, types


def with_maps(dtype: str = "uint8") -> Inputs:
    """Images and two maps for each, which point into the image and slightly outside."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        (pictures,) = images("HWC", dtype)(ragged)
        generator = np.random.default_rng(3)
        sizes = [(14 + 3 * k * ragged, 19 + k * ragged) for k in range(len(pictures))]
        pairs = list(zip(pictures, sizes, strict=True))
        x, y = ([generator.uniform(-3, value.shape[axis] + 3, size).astype(np.float32) for value, size in pairs] for axis in (1, 0))
        return pictures, x, y

    return make


def with_matrices(*matrices: list[list[float]]) -> Inputs:
    """Images, and matrices as the second input."""
    return lambda ragged: (*images("HWC")(ragged), [np.array(matrix, np.float32) for matrix in matrices])


def with_frames(inputs: Inputs, values: np.ndarray, *more: np.ndarray) -> Inputs:
    """Inputs, and some of the values for each as further inputs, one per resulting frame: two, or three, one and two."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        (samples,) = inputs(ragged)
        counts = ([3, 1, 2] if ragged else [2, 2, 2])[: len(samples)]
        return samples, *([value[:count] for count in counts] for value in (values, *more))

    return make


def mark_frames(operator: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Return the operator with all inputs but the first one as values per frame."""
    return lambda image, *values, **args: operator(image, *(ndd.per_frame(value) for value in values), **fixed, **args)


def each_frame(reference: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return a reference for an image and values per frame."""
    return lambda image, *values, **args: np.stack([reference(image, *value, **args) for value in zip(*values, strict=True)])


AFFINE = [[0.9, -0.3, 5.2, 0.25, 1.1, -3.7], [1.3, 0.1, -2.0, 0.0, 0.8, 1.3], [-1.0, 0.0, 20.2, 0.1, -0.9, 15.1]]
VOLUME = [0.9, -0.3, 0.1, 1.2, 0.25, 1.1, 0.2, -0.7, 0.1, -0.2, 0.8, 0.6]
HOMOGRAPHY = [[1.1, 0.1, -2.3, 0.05, 0.9, 1.7, 0.001, 0.002, 1.0], [0.7, 0.0, 3.0, 0.2, 1.4, -4.0, 0.0, 0.01, 1.1], [1, 0, 0.3, 0, 1, 0.6, 0, 0, 1]]
LINEAR, NEAREST, CUBIC, LANCZOS = types.INTERP_LINEAR, types.INTERP_NN, types.INTERP_CUBIC, types.INTERP_LANCZOS3
WAVES = ("ampl_x", "ampl_y", "freq_x", "freq_y", "phase_x", "phase_y")
PERSPECTIVE, REMAP = "experimental.warp_perspective", "experimental.remap"
CENTERED = {"inverse_map": False, "pixel_origin": "center", "size": Each([[20.0, 31.0], [7.0, 8.6], [40.0, 1.0]])}

CASES = [
    Case(REMAP, "fading", with_maps(), {"fill_value": Each([0.0, 9.0, 200.0]), "fade": True}, "HWC", tolerance=1),
    Case(REMAP, "relative", with_maps("float32"), {"relative": True, "fill_value": [1.0, 2.0, 3.0]}, "HWC", tolerance=1e-3),
    Case("rotate", "fading", images("HWC"), {"angle": 10.0, "keep_size": True, "fill_value": 50.0, "fade": True}, "HWC", tolerance=1),
    Case(
        "warp_affine",
        "fading",
        images("CHW", "float32"),
        {"matrix": [1, 0.1, 3.3, 0.2, 1, -2.6], "fill_value": 5.0, "fade": True},
        "CHW",
        tolerance=0.01,
    ),
    Case("rotate", "keep size", images("HWC", "float32"), {"angle": 33.0, "keep_size": True}, "HWC", turn, 0.01),
    Case("rotate", "each", images("HWC"), {"angle": Each([10.0, -60.0, 90.0]), "fill_value": Each([0.0, 7.0, 300.0])}, "HWC", tolerance=1),
    Case("rotate", "size", images("HWC"), {"angle": Each([10.0, -60.0, 91.0]), "size": [20, 31]}, "HWC", turn, 1),
    Case("rotate", "each size", images("HWC"), {"angle": 75.0, "size": Each([[20.0, 31.0], [7.0, 8.6], [40.0, 1.0]])}, "HWC", turn, 1),
    Case("rotate", "canvas", images("HWC"), {"angle": 40.0, "fill_value": 9.0, "interp_type": types.INTERP_NN}, "HWC"),
    Case("rotate", "frames", images("FHWC"), {"angle": -50.0}, "FHWC", tolerance=1),
    Case(
        "rotate", "volume", images("DHWC"), {"angle": 40.0, "axis": Each([[0.0, 0.0, 1.0], [1.0, 2.0, 0.5], [0.0, -1.0, 0.0]])}, "DHWC", tolerance=1
    ),
    Case("rotate", "volume size", images("DHWC", "float32"), {"angle": 40.0, "axis": [1.0, 0.2, 3.0], "keep_size": True}, "DHWC", turn, 0.02),
    Case("rotate", "planes", images("CHW"), {"angle": 40.0, "fill_value": [1.0, 2.0, 3.0]}, "CHW", tolerance=1),
    Case("warp_affine", "each", images(), {"matrix": Each(AFFINE), "fill_value": Each([0.0, 7.0, 300.0])}, "HWC", None, 1),
    Case("warp_affine", "matrix", images("HWC", "float32"), {"matrix": Each(AFFINE)}, "HWC", affine, 0.01),
    Case("warp_affine", "input", with_matrices(*np.reshape(AFFINE, (3, 2, 3)).tolist()), {}, "HWC", affine, 1),
    Case("warp_affine", "size", images(), {"matrix": AFFINE[0], "size": Each([[20.0, 31.0], [7.0, 8.6], [40.0, 1.0]])}, "HWC", affine, 1),
    Case("warp_affine", "forward", images(), {"matrix": AFFINE[1], "inverse_map": False, "fill_value": [9.0, 0.0, 80.0]}, "HWC", affine, 1),
    Case("warp_affine", "dtype", images("HWC", "int16"), {"matrix": AFFINE[1], "dtype": "f32"}, "HWC", affine, 0.01),
    Case("warp_affine", "volume", images("DHWC"), {"matrix": VOLUME, "fill_value": 3.0}, "DHWC", affine, 1),
    Case("warp_affine", "volume forward", images("DHWC", "float32"), {"matrix": VOLUME, "inverse_map": False}, "DHWC", affine, 0.02),
    Case("warp_affine", "planes", images("FCHW"), {"matrix": AFFINE[0], "interp_type": NEAREST}, "FCHW"),
    Case(
        "warp_affine",
        "frames of an image",
        with_frames(images(), np.float32(AFFINE).reshape(3, 2, 3)),
        {"fill_value": Each([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]), "size": Each([[20.0, 31.0], [7.0, 8.6], [40.0, 1.0]])},
        "HWC",
        each_frame(affine),
        1,
        "FHWC",
        call=mark_frames(ndd.warp_affine),
    ),
    Case(
        "warp_affine",
        "frames of planes",
        with_frames(images("CHW"), np.float32(AFFINE).reshape(3, 2, 3)),
        {"inverse_map": False, "fill_value": [1.0, 2.0, 3.0]},
        "CHW",
        None,
        1,
        "FCHW",
        call=mark_frames(ndd.warp_affine),
    ),
    Case(
        PERSPECTIVE,
        "frames of an image",
        with_frames(images(), np.float32(HOMOGRAPHY).reshape(3, 3, 3)),
        {},
        "HWC",
        each_frame(perspective_of_input),
        1,
        "FHWC",
        call=mark_frames(ndd.experimental.warp_perspective),
    ),
    Case(
        REMAP,
        "frames of an image",
        with_frames(images(), *np.random.default_rng(5).uniform(-3, 20, (2, 3, 9, 7)).astype(np.float32)),
        {},
        "HWC",
        each_frame(remap),
        1,
        "FHWC",
        call=mark_frames(ndd.experimental.remap),
    ),
    Case(PERSPECTIVE, "each", images("HWC", "float32"), {"matrix": Each(HOMOGRAPHY), "fill_value": Each([0.0, 7, 300])}, "HWC", perspective, 0.02),
    Case(PERSPECTIVE, "centered", images(), {"matrix": HOMOGRAPHY[0], "border_mode": "reflect", **CENTERED}, "HWC", perspective, 1),
    Case(PERSPECTIVE, "cubic", images(), {"matrix": HOMOGRAPHY[0], "interp_type": CUBIC, "border_mode": "wrap"}, "HWC", perspective, 1),
    Case(PERSPECTIVE, "fill", images(C=5), {"matrix": HOMOGRAPHY[1], "fill_value": [1.0, 2.0, 3.0, 4.0, 5.0]}, "HWC", perspective, 1),
    Case(PERSPECTIVE, "input", with_matrices(*np.reshape(HOMOGRAPHY, (3, 3, 3)).tolist()), {}, "HWC", perspective_of_input, 1),
    Case(PERSPECTIVE, "planes", images("FCHW"), {"matrix": HOMOGRAPHY[0], "fill_value": [1.0, 2.0, 3.0]}, "FCHW", tolerance=1),
    Case(REMAP, "linear", with_maps(), {}, "HWC", remap, 1),
    Case(REMAP, "cubic", with_maps("float32"), {"interp": CUBIC, "pixel_origin": "center"}, "HWC", remap, 0.02),
    Case(REMAP, "lanczos", with_maps("float32"), {"interp": LANCZOS}, "HWC", remap, 0.02),
    Case(REMAP, "nearest", with_maps("int32"), {"interp": NEAREST}, "HWC", remap),
    Case("water", "default", images(), {}, "HWC", on_water),
    Case("water", "linear", images("HWC", "float32"), {"interp_type": LINEAR, "fill_value": 30.0, "mask": Each([1, 0, 1])}, "HWC", on_water, 0.02),
    Case("water", "each", images(), {**{name: Each([0.1, 2.3, 3.7]) for name in WAVES}, "fill_value": Each([9.0, 1.0, 2.0])}, "HWC", on_water),
    Case("water", "frames", images("FHWC"), {"interp_type": LINEAR}, "FHWC", tolerance=1),
    Case("sphere", "default", images(), {"fill_value": Each([9.0, 1.0, 2.0])}, "HWC", on_a_sphere),
    Case("sphere", "linear", images("HWC", "float32"), {"interp_type": LINEAR, "mask": Each([1, 0, 1])}, "HWC", on_a_sphere, 0.02),
    Case("sphere", "planes", images("CHW"), {"fill_value": [5.0, 6.0, 7.0]}, "CHW"),
]


# Images of more than one tile of the CUDA kernels, with unaligned rows, in every type and number of channels that has its own code.
LARGE = {"H": 41, "W": 77}
CASES += [
    *(
        Case(
            "warp_affine",
            f"tiles {c} {dtype}",
            images("HWC", dtype, C=c, **LARGE),
            {"matrix": Each(AFFINE), **fill},
            "HWC",
            affine,
            near,
        )
        for c, dtype, fill, near in (
            (1, "uint8", {}, 1),
            (3, "uint8", {"fill_value": 100.0}, 1),
            (4, "uint8", {}, 1),
            (2, "uint8", {"fill_value": 7.0}, 1),
            (3, "float16", {"fill_value": 50.0}, 0.2),
            (4, "float16", {}, 0.2),
            (4, "float32", {"fill_value": 9.0}, 0.02),
        )
    ),
    Case("warp_affine", "tiles u8 f32", images("HWC", **LARGE), {"matrix": Each(AFFINE), "dtype": "f32"}, "HWC", affine, 0.02),
    Case("warp_affine", "tiles planes", images("CHW", **LARGE), {"matrix": Each(AFFINE), "fill_value": 5.0}, "CHW", None, 1),
    Case("rotate", "tiles nearest", images("HWC", **LARGE), {"angle": 180.0, "interp_type": NEAREST, "keep_size": True}, "HWC", turn),
    Case(PERSPECTIVE, "tiles", images("HWC", **LARGE), {"matrix": Each(HOMOGRAPHY), "border_mode": "reflect_101"}, "HWC", perspective, 1),
    Case(PERSPECTIVE, "tiles frames", images("FHWC", "float32", **LARGE), {"matrix": HOMOGRAPHY[0], "fill_value": 3.0}, "FHWC", None, 0.02),
    Case("water", "tiles", images("HWC", "float16", **LARGE), {"interp_type": LINEAR, "fill_value": 30.0}, "HWC", None, 0.25),
]


def check(data: np.ndarray, layout: str, degrees: float, fill: float | None, nearest: bool, **options: Any) -> None:
    interp = types.INTERP_NN if nearest else types.INTERP_LINEAR
    fills = {} if fill is None else {"fill_value": fill}
    tensor = ndd.tensor(data, layout=layout)
    result = np.asarray(ndd.rotate(tensor, angle=degrees, interp_type=interp, **fills, **options).evaluate())
    expected = warp(data, rotation(degrees, options.get("axis")), result.shape[:-1], fill=fill, nearest=nearest)
    difference = np.abs(result - round_to(expected, data.dtype))
    assert result.dtype == data.dtype
    if nearest:
        assert (difference > 0).mean() < 0.01  # points on the border of two pixels, in float32
    else:
        assert difference.max(initial=0) <= (1 if data.dtype.kind in "iu" else 0.02)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("fill", [None, 77.0])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_rotated_images_equal_the_reference(channels: int, dtype: str, fill: float | None, nearest: bool) -> None:
    generator = np.random.default_rng(channels)
    for degrees, shape in ((31.7, (40, 61)), (-140.2, (5, 90)), (77.0, (64, 1)), (12.0, (1, 1)), (3.0, (2, 600))):
        data = generator.integers(0, 256, (*shape, channels)).astype(dtype)
        check(data, "HWC", degrees, fill, nearest)
        check(data, "HWC", degrees, fill, nearest, keep_size=True)
        check(data, "HWC", degrees, fill, nearest, size=[33, 27])


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("fill", [None, 77.0])
def test_rotated_volumes_equal_the_reference(fill: float | None, nearest: bool) -> None:
    data = np.random.default_rng(0).integers(0, 256, (6, 11, 13, 2)).astype(np.uint8)
    for degrees, axis in ((31.7, (0.0, 0.0, 1.0)), (-140.2, (1.0, 2.0, -0.5)), (77.0, (0.0, -3.0, 0.0))):
        check(data, "DHWC", degrees, fill, nearest, axis=axis)


def test_quarter_turns_move_pixels() -> None:
    data = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    for turns in range(-4, 5):
        for interp in (types.INTERP_NN, types.INTERP_LINEAR):
            result = ndd.rotate(ndd.tensor(data, layout="HWC"), angle=90.0 * turns, interp_type=interp, fill_value=9.0)
            assert np.array_equal(np.asarray(result.evaluate()), np.rot90(data, turns))


def test_large_integers_stay_exact_when_nearest() -> None:
    data = np.random.default_rng(0).integers(-(2**31), 2**31, (9, 7, 1)).astype(np.int32)
    result = ndd.rotate(ndd.tensor(data, layout="HWC"), angle=180.0, interp_type=types.INTERP_NN)
    assert np.array_equal(np.asarray(result.evaluate()), data[::-1, ::-1])


def test_frames_have_their_own_angles_and_a_common_canvas() -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 20, 31, 3)).astype(np.uint8)
    angles = [10.0, -45.0, 80.0]
    result = np.asarray(ndd.rotate(ndd.tensor(video, layout="FHWC"), angle=ndd.tensor(angles, layout="F")).evaluate())
    canvases = [ndd.rotate(ndd.tensor(frame), angle=angle).shape for frame, angle in zip(video, angles, strict=True)]
    assert result.shape[1:] == (max(c[0] for c in canvases), max(c[1] for c in canvases), 3)
    for frame, angle, rotated in zip(video, angles, result, strict=True):
        same = np.asarray(ndd.rotate(ndd.tensor(frame), angle=angle, size=list(rotated.shape[:2])).evaluate())
        assert np.array_equal(same, rotated)


def test_equal_canvases_stay_dense() -> None:
    batch = ndd.batch(np.zeros((4, 20, 30, 3), np.uint8), layout="HWC")
    assert ndd.rotate(batch, angle=90).ragged_shapes is None
    assert ndd.rotate(batch, angle=90).shape == [(30, 20, 3)] * 4


@pytest.mark.parametrize(
    ("error", "word", "options"),
    [
        (RuntimeError, "angle", {"angle": float("nan")}),
        (RuntimeError, "angle", {"angle": float("inf"), "keep_size": True}),
        (TypeError, "angle", {"angle": [1.0, 2.0]}),
        (RuntimeError, "size", {"angle": 3.0, "size": [1, 2, 3]}),
        (RuntimeError, "size", {"angle": 3.0, "size": 4}),
        (RuntimeError, "size", {"angle": 3.0, "size": [0, 4]}),
        (RuntimeError, "interp_type", {"angle": 3.0, "interp_type": types.INTERP_CUBIC}),
        (TypeError, "output_dtype", {"angle": 3.0, "dtype": "f32", "output_dtype": "f32"}),
    ],
)
def test_wrong_arguments(error: type[Exception], word: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=rf"rotate.*{word}"):
        ndd.rotate(np.zeros((5, 8, 3), np.uint8), **options)


@pytest.mark.parametrize("axis", [None, [0.0, 0.0, 0.0], [1.0], [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("keep_size", [False, True])
def test_wrong_axis(axis: list[float] | None, keep_size: bool) -> None:
    volume = np.zeros((4, 5, 8, 3), np.uint8)
    for value in (axis, None if axis is None else ndd.tensor(axis)):
        with pytest.raises(RuntimeError) as error:
            ndd.rotate(ndd.tensor(volume, layout="DHWC"), angle=3.0, axis=value, keep_size=keep_size).evaluate()
        assert "axis" in str(error.value)


def test_angles_for_other_frames() -> None:
    video = ndd.tensor(np.zeros((3, 5, 8, 3), np.uint8), layout="FHWC")
    with pytest.raises(RuntimeError, match=r"angle.*2 frames"):
        ndd.rotate(video, angle=ndd.tensor([1.0, 2.0], layout="F"))


def test_output_dtype_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="output_dtype"):
        result = ndd.rotate(np.zeros((5, 8, 3), np.uint8), angle=3.0, output_dtype="f32")
    assert result.dtype == ndd.float32


def fill_reference(value: Any, dtype: str = "uint8", shape: tuple[int, ...] = (4, 5, 3)) -> ndd.Tensor:
    return ndd.tensor(np.full(shape, value, dtype), layout="HWC")


IDENTITY = [1.0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect", "reflect_101", "wrap"])
@pytest.mark.parametrize("interp", [NEAREST, LINEAR, CUBIC])
@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 40, 1), (37, 3, 4), (17, 23, 2), (9, 20, 7)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "uint16"])
def test_borders_equal_the_reference(dtype: str, shape: tuple[int, ...], interp: int, border: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    matrix = [2.1, 0.3, -31.3, -0.2, 1.9, -24.7, 0.001, -0.002, 1.0]  # far outside on every side
    options = {"matrix": matrix, "border_mode": border, "fill_value": 77.0, "interp_type": interp, "size": [45, 50]}
    result = np.asarray(ndd.experimental.warp_perspective(ndd.tensor(data, layout="HWC"), **options).evaluate())
    difference = np.abs(result - perspective(data, **options).astype(np.float64))
    if interp == NEAREST:
        assert (difference > 0).mean() < 0.01
    else:
        assert difference.max() <= (0.05 if dtype == "float32" else 1)


@pytest.mark.parametrize("interp", [NEAREST, LINEAR])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_mask_of_zero_copies(dtype: str, interp: int) -> None:
    data = np.array([[1, 2, 3], [4, 5, 6]], dtype)[..., None]
    if dtype == "float32":
        data[0, 0] = np.nan
    for function in (ndd.water, ndd.sphere):
        np.testing.assert_array_equal(np.asarray(function(ndd.tensor(data), mask=0, interp_type=interp).evaluate()), data)


def test_a_matrix_for_each_frame() -> None:
    videos = [np.random.default_rng(k).integers(0, 256, (2 + k, 9, 11, 3)).astype(np.uint8) for k in range(2)]
    matrices = [np.reshape(AFFINE[:1] * 2, (2, 2, 3)).astype(np.float32), np.reshape(AFFINE, (3, 2, 3)).astype(np.float32)]
    batch = ndd.batch(videos, layout="FHWC")
    for result in (
        ndd.warp_affine(batch, matrix=ndd.per_frame(ndd.batch(matrices))),
        ndd.warp_affine(batch, ndd.per_frame(ndd.batch(matrices))),
    ):
        for video, transform, sample in zip(videos, matrices, result.tensors, strict=True):
            for frame, matrix, warped_frame in zip(video, transform, np.asarray(sample), strict=True):
                assert np.array_equal(np.asarray(ndd.warp_affine(ndd.tensor(frame), matrix=matrix).evaluate()), warped_frame)


def test_planes_are_channels() -> None:
    data = np.random.default_rng(0).integers(0, 256, (3, 9, 11)).astype(np.uint8)
    for function, options in (
        (ndd.warp_affine, {"matrix": AFFINE[0], "fill_value": [1.0, 2.0, 3.0], "size": [7, 13]}),
        (ndd.rotate, {"angle": 33.0}),
        (ndd.experimental.warp_perspective, {"matrix": HOMOGRAPHY[0], "fill_value": [1.0, 2.0, 3.0]}),
        (ndd.sphere, {}),
        (ndd.water, {"fill_value": [1.0, 2.0, 3.0]}),
    ):
        planes = np.asarray(function(ndd.tensor(data, layout="CHW"), **options).evaluate())
        pixels = np.asarray(function(ndd.tensor(data.transpose(1, 2, 0).copy(), layout="HWC"), **options).evaluate())
        assert np.abs(planes.transpose(1, 2, 0).astype(int) - pixels).max() <= 1


def test_a_map_for_all_frames_or_one_for_each() -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 9, 11, 2)).astype(np.uint8)
    x, y = (np.random.default_rng(k).uniform(0, 9, (3, 5, 6)).astype(np.float64) for k in range(2))
    tensor = ndd.tensor(video, layout="FHWC")
    each = np.asarray(ndd.experimental.remap(tensor, ndd.per_frame(x), ndd.per_frame(y)).evaluate())
    array = np.asarray(ndd.experimental.remap(tensor, x[1], y[1][..., None]).evaluate())
    for k in range(3):
        frame = ndd.tensor(video[k], layout="HWC")
        assert np.array_equal(each[k], np.asarray(ndd.experimental.remap(frame, x[k], y[k]).evaluate()))
        assert np.array_equal(array[k], np.asarray(ndd.experimental.remap(frame, x[1], y[1]).evaluate()))


@pytest.mark.parametrize("mode", EvalMode)
def test_a_map_for_all_samples_or_one_for_each(mode: EvalMode) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 11, 2)).astype(np.uint8)
    x, y = (np.random.default_rng(k).uniform(0, 9, (3, 5, 6)).astype(np.float64) for k in range(2))
    batch, image = ndd.batch(list(images), layout="HWC"), ndd.tensor(images[1], layout="HWC")
    with mode:
        mixed = ndd.experimental.remap(batch, ndd.tensor(x[1]) + 0, ndd.batch(list(y)))
        one_image = ndd.experimental.remap(image, ndd.batch(list(x)), ndd.tensor(y[1]))
    for k in range(3):
        assert np.array_equal(mixed.select(k), ndd.experimental.remap(batch.select(k), x[1], y[k]))
        assert np.array_equal(one_image.select(k), ndd.experimental.remap(image, x[k], y[1]))


@pytest.mark.parametrize("interp", [NEAREST, LINEAR, CUBIC, LANCZOS])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1e30])
def test_points_that_are_nowhere(value: float, interp: int) -> None:
    x, y = np.float32([[value, 0.5]]), np.float32([[0.5, value]])
    result = ndd.experimental.remap(fill_reference(9, shape=(4, 5, 1)), x, y, interp=interp)
    assert np.asarray(result.evaluate()).ravel().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (RuntimeError, "matrix", lambda: ndd.warp_affine(fill_reference(1))),
        (RuntimeError, "input and as an argument", lambda: ndd.warp_affine(fill_reference(1), np.float32([[1, 0, 0], [0, 1, 0]]), matrix=IDENTITY)),
        (RuntimeError, "2 by 3", lambda: ndd.warp_affine(fill_reference(1), matrix=[1.0] * 9)),
        (RuntimeError, "2 by 3", lambda: ndd.warp_affine(fill_reference(1), matrix=np.ones((3, 2)))),
        (RuntimeError, "2 by 3", lambda: ndd.warp_affine(fill_reference(1), np.ones((2, 2, 3), np.float32))),
        (RuntimeError, "finite.*sample 0", lambda: ndd.warp_affine(fill_reference(1), matrix=[float("nan")] * 6)),
        (ValueError, "singular.*sample 0", lambda: ndd.warp_affine(fill_reference(1), matrix=[1.0, 2, 0, 2, 4, 0], inverse_map=False)),
        (RuntimeError, "size", lambda: ndd.warp_affine(fill_reference(1), matrix=IDENTITY, size=[0, 2])),
        (RuntimeError, "interp_type", lambda: ndd.warp_affine(fill_reference(1), matrix=IDENTITY, interp_type=CUBIC)),
        (RuntimeError, "fill_value has 2", lambda: ndd.warp_affine(fill_reference(1), matrix=IDENTITY, fill_value=[1.0, 2.0])),
        (RuntimeError, "no pixels", lambda: ndd.warp_affine(fill_reference(1, shape=(0, 5, 1)), matrix=IDENTITY, size=[2, 2])),
        (RuntimeError, "3 by 3", lambda: ndd.experimental.warp_perspective(fill_reference(1), matrix=IDENTITY)),
        (RuntimeError, "border_mode", lambda: ndd.experimental.warp_perspective(fill_reference(1), matrix=[1.0] * 9, border_mode="mirror")),
        (RuntimeError, "pixel_origin", lambda: ndd.experimental.warp_perspective(fill_reference(1), matrix=[1.0] * 9, pixel_origin="middle")),
        (ValueError, "singular", lambda: ndd.experimental.warp_perspective(fill_reference(1), matrix=[1.0] * 9, inverse_map=False)),
        (RuntimeError, "same shape", lambda: ndd.experimental.remap(fill_reference(1), np.zeros((2, 3)), np.zeros((3, 2)))),
        (RuntimeError, "height by width", lambda: ndd.experimental.remap(fill_reference(1), np.zeros(3), np.zeros(3))),
        (RuntimeError, "interp", lambda: ndd.experimental.remap(fill_reference(1), np.zeros((2, 3)), np.zeros((2, 3)), interp=types.INTERP_GAUSSIAN)),
        (RuntimeError, "interp_type", lambda: ndd.water(fill_reference(1), interp_type=CUBIC)),
    ],
)
def test_wrong_warps(error: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(error) as raised:
        call().evaluate()
    text = str(raised.value)
    assert re.search(words, text, re.DOTALL), text


def test_images_without_pixels() -> None:
    for function, options in ((ndd.warp_affine, {"matrix": IDENTITY}), (ndd.sphere, {}), (ndd.water, {})):
        assert function(fill_reference(1, shape=(0, 5, 3)), **options).evaluate().shape == (0, 5, 3)
        assert function(fill_reference(1, shape=(4, 5, 0)), **options).evaluate().shape == (4, 5, 0)
    assert np.asarray(ndd.sphere(fill_reference(7, shape=(1, 1, 1))).evaluate()).item() == 7


def test_a_size_is_the_same_however_it_is_given() -> None:
    image = np.zeros((8, 9, 3), np.uint8)
    written = [7.5, 6.25]
    arrays = [np.float32(written), np.float64(written), torch.tensor(written), ndd.tensor(np.float32(written))]
    for size in (written, tuple(written), [np.float32(7.5), 6.25], *arrays):
        assert ndd.warp_affine(image, matrix=[1, 0, 0, 0, 1, 0], size=size).shape == (8, 6, 3)
        assert ndd.rotate(image, angle=3.0, size=size).shape == (8, 6, 3)
        assert ndd.experimental.warp_perspective(image, matrix=np.eye(3), size=size).shape == (8, 6, 3)
    sizes = ndd.batch([np.float32([7.5, 6.25]), np.float32([2.4, 3.6])])
    assert ndd.warp_affine(image, matrix=[1, 0, 0, 0, 1, 0], size=sizes).shape == [(8, 6, 3), (2, 4, 3)]


def test_wrong_matrices_for_frames() -> None:
    image, video = np.zeros((8, 9, 3), np.uint8), ndd.tensor(np.zeros((3, 8, 9, 3), np.uint8), layout="FHWC")
    affine = np.float32(AFFINE).reshape(3, 2, 3)
    for operator in (ndd.warp_affine, ndd.experimental.warp_perspective):
        for matrices in (affine, affine[:1, None], affine.reshape(3, 6), ndd.batch([affine, affine[:2]]), ndd.per_frame(affine[:0])):
            for data in (image, video):
                with pytest.raises(RuntimeError, match="for each frame, marked with per_frame"):
                    operator(data, matrices)
                with pytest.raises(RuntimeError, match=r"per_frame|samples of different shape|has no values|is for 0 frames"):
                    operator(data, matrix=matrices)
    with pytest.raises(RuntimeError, match="matrix is given for 2 frames, but the sequence has 3"):
        ndd.warp_affine(video, ndd.per_frame(affine[:2]))
    ragged = ndd.batch([np.zeros((3, 8, 9, 3), np.uint8), np.zeros((2, 8, 9, 3), np.uint8)], layout="FHWC")
    with pytest.raises(RuntimeError) as error:
        ndd.warp_affine(ragged, ndd.per_frame(affine)).evaluate()
    assert "matrix is for 3 frames, but there are 2, sample 1" in str(error.value) + str(error.value.__cause__)
    with pytest.raises(RuntimeError, match="argument 'matrix' takes a matrix per sample"):
        ndd.warp_affine(image, matrix=ndd.per_frame(affine))
    maps = np.zeros((2, 8, 9), np.float32)
    with pytest.raises(RuntimeError, match="for each frame where it is marked with per_frame"):
        ndd.experimental.remap(image, maps, maps)
    with pytest.raises(RuntimeError) as error:
        ndd.experimental.remap(image, ndd.per_frame(maps), ndd.per_frame(np.zeros((3, 8, 9), np.float32))).evaluate()
    assert "mapy is for 3 frames, but there are 2" in str(error.value) + str(error.value.__cause__)
