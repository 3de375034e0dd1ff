# SPDX-License-Identifier: Apache-2.0
import itertools
import math

import numpy as np
import pytest
from _cases import Case, Each, images

import torch_ndd as ndd
from torch_ndd import types


def warped(image: np.ndarray, matrix: np.ndarray, size: tuple[int, ...], *, fill: float | None, nearest: bool) -> np.ndarray:
    """Samples `image` at matrix @ (output - its centre) + the image's centre; x first in the matrix."""
    axes = len(size)
    centred = [np.arange(n) + 0.5 - n / 2 for n in size]
    grid = np.stack(np.meshgrid(*centred, indexing="ij")[::-1], axis=-1)
    points = (grid @ matrix.T)[..., ::-1] + np.array(image.shape[:axes]) / 2 - (0 if nearest else 0.5)
    low = np.floor(points).astype(int)
    result = np.zeros((*size, image.shape[-1]))
    for corner in itertools.product((0,) if nearest else (0, 1), repeat=axes):
        index = low + corner
        last = np.array(image.shape[:axes]) - 1
        tap = image[tuple(np.moveaxis(np.clip(index, 0, last), -1, 0))].astype(np.float64)
        if fill is not None:
            tap = np.where(np.all((index >= 0) & (index <= last), axis=-1, keepdims=True), tap, fill)
        weight = 1.0 if nearest else np.where(corner, points - low, 1 - (points - low)).prod(-1, keepdims=True)
        result += weight * tap
    return result


def rotation(degrees: float, axis: tuple[float, ...] | None) -> np.ndarray:
    """From output to input, x first."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if axis is None:
        return np.array([[cos, -sin], [sin, cos]])
    x, y, z = np.array(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) * cos - sin * cross + (1 - cos) * np.outer((x, y, z), (x, y, z))


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if not np.issubdtype(dtype, np.integer):
        return values
    info = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(values) + 0.5), values), info.min, info.max)


def turned(
    image: np.ndarray,
    angle: float,
    size: list[float] | None = None,
    keep_size: bool = False,
    axis: list[float] | None = None,
    fill_value: float | None = None,
    interp_type: int = types.INTERP_LINEAR,
) -> np.ndarray:
    assert keep_size or size is not None
    extents = image.shape[:-1] if size is None else tuple(int(s + 0.5) for s in size)
    matrix = rotation(angle, None if axis is None else tuple(axis))
    result = warped(image, matrix, extents, fill=fill_value, nearest=interp_type == types.INTERP_NN)
    return rounded(result, image.dtype).astype(image.dtype)


CASES = [
    Case("rotate", "keep size", images("HWC", "float32"), {"angle": 33.0, "keep_size": True}, "HWC", turned, 0.01),
    Case("rotate", "each", images("HWC"), {"angle": Each([10.0, -60.0, 90.0]), "fill_value": Each([0.0, 7.0, 300.0])}, "HWC"),
    Case("rotate", "size", images("HWC"), {"angle": Each([10.0, -60.0, 91.0]), "size": [20, 31]}, "HWC", turned, 1),
    Case("rotate", "each size", images("HWC"), {"angle": 75.0, "size": Each([[20.0, 31.0], [7.0, 8.6], [40.0, 1.0]])}, "HWC", turned, 1),
    Case("rotate", "canvas", images("HWC"), {"angle": 40.0, "fill_value": 9.0, "interp_type": types.INTERP_NN}, "HWC"),
    Case("rotate", "frames", images("FHWC"), {"angle": -50.0}, "FHWC"),
    Case("rotate", "volume", images("DHWC"), {"angle": 40.0, "axis": Each([[0.0, 0.0, 1.0], [1.0, 2.0, 0.5], [0.0, -1.0, 0.0]])}, "DHWC"),
    Case("rotate", "volume size", images("DHWC", "float32"), {"angle": 40.0, "axis": [1.0, 0.2, 3.0], "keep_size": True}, "DHWC", turned, 0.02),
]


def check(data: np.ndarray, layout: str, degrees: float, fill: float | None, nearest: bool, **options: object) -> None:
    interp = types.INTERP_NN if nearest else types.INTERP_LINEAR
    fills = {} if fill is None else {"fill_value": fill}
    tensor = ndd.tensor(data, layout=layout)
    result = np.asarray(ndd.rotate(tensor, angle=degrees, interp_type=interp, **fills, **options).evaluate())
    expected = warped(data, rotation(degrees, options.get("axis")), result.shape[:-1], fill=fill, nearest=nearest)  # type: ignore[arg-type]
    difference = np.abs(result - rounded(expected, data.dtype))
    assert result.dtype == data.dtype
    if nearest:
        assert (difference > 0).mean() < 0.01  # points on the border of two pixels, in float32
    else:
        assert difference.max(initial=0) <= (1 if data.dtype.kind in "iu" else 0.02)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("fill", [None, 77.0])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_images(channels: int, dtype: str, fill: float | None, nearest: bool) -> None:
    generator = np.random.default_rng(channels)
    for degrees, shape in ((31.7, (40, 61)), (-140.2, (5, 90)), (77.0, (64, 1)), (12.0, (1, 1)), (3.0, (2, 600))):
        data = generator.integers(0, 256, (*shape, channels)).astype(dtype)
        check(data, "HWC", degrees, fill, nearest)
        check(data, "HWC", degrees, fill, nearest, keep_size=True)
        check(data, "HWC", degrees, fill, nearest, size=[33, 27])


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("fill", [None, 77.0])
def test_volumes(fill: float | None, nearest: bool) -> None:
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
    assert ndd.rotate(batch, angle=90)._shapes is None
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
def test_wrong_arguments(error: type[Exception], word: str, options: dict[str, object]) -> None:
    with pytest.raises(error, match=rf"rotate.*{word}"):
        ndd.rotate(np.zeros((5, 8, 3), np.uint8), **options)


@pytest.mark.parametrize("axis", [None, [0.0, 0.0, 0.0], [1.0], [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("keep_size", [False, True])
def test_wrong_axis(axis: list[float] | None, keep_size: bool) -> None:
    volume = np.zeros((4, 5, 8, 3), np.uint8)
    for given in (axis, None if axis is None else ndd.tensor(axis)):
        with pytest.raises(RuntimeError) as error:
            ndd.rotate(ndd.tensor(volume, layout="DHWC"), angle=3.0, axis=given, keep_size=keep_size).evaluate()
        assert "axis" in str(error.value) or "axis" in str(error.value.__cause__)


def test_angles_for_other_frames() -> None:
    video = ndd.tensor(np.zeros((3, 5, 8, 3), np.uint8), layout="FHWC")
    with pytest.raises(RuntimeError, match=r"angle.*2 frames"):
        ndd.rotate(video, angle=ndd.tensor([1.0, 2.0], layout="F"))


def test_output_dtype_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="output_dtype"):
        result = ndd.rotate(np.zeros((5, 8, 3), np.uint8), angle=3.0, output_dtype="f32")
    assert result.dtype == ndd.float32
