# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from _cases import Case, Each, Inputs

import torch_ndd as ndd


def color_reference(image: np.ndarray, blue_position: tuple[int, int], algorithm: str = "bilinear_ocv") -> np.ndarray:
    """The reference, pixel by pixel: means of the neighbors that have the color."""
    if image.ndim == 3 and image.shape[-1] != 1:
        return np.stack([color_reference(frame, blue_position, algorithm) for frame in image])
    mosaic = image.reshape(image.shape[:2]).astype(int)
    height, width = mosaic.shape
    blue_y, blue_x = 1 - blue_position[0], 1 - blue_position[1]
    rows, columns = np.indices(mosaic.shape)
    colors = np.where((rows % 2 == blue_y) & (columns % 2 == blue_x), 2, np.where((rows % 2 != blue_y) & (columns % 2 != blue_x), 0, 1))
    out = np.zeros((height, width, 3))
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            for c in range(3):
                near = colors[y - 1 : y + 2, x - 1 : x + 2] == c
                out[y, x, c] = mosaic[y - 1 : y + 2, x - 1 : x + 2][near].mean() if colors[y, x] != c else mosaic[y, x]
            if algorithm == "edgeaware_ocv" and colors[y, x] != 1:
                up, down, left, right = mosaic[y - 1, x], mosaic[y + 1, x], mosaic[y, x - 1], mosaic[y, x + 1]
                out[y, x, 1] = (up + down) / 2 if abs(left - right) > abs(up - down) else (left + right) / 2
    out = np.pad(out[1:-1, 1:-1], ((1, 1), (1, 1), (0, 0)), "edge")
    if algorithm == "gray_ocv":
        out = (out @ np.array([4899, 9617, 1868]) / 2**14)[..., None]
    return np.floor(out + 0.5).astype(image.dtype)


def mosaics(*shape: int, dtype: str = "uint8") -> Inputs:
    """Images of even size, whose extents grow by two."""

    def make(ragged: bool) -> tuple[list[np.ndarray], ...]:
        generator = np.random.default_rng(7)
        high = np.iinfo(dtype).max
        first = len(shape) - 2
        sizes = [tuple(n + (4 * i - 2) * (ragged and i > 0 and d >= first) for d, n in enumerate(shape)) for i in range(3)]
        return ([generator.integers(0, high, size).astype(dtype) for size in sizes],)

    return make


CASES = [
    Case("debayer", "bilinear", mosaics(16, 22), {"blue_position": (0, 0)}, "HW", color_reference, out_layout="HWC"),
    Case("debayer", "each", mosaics(16, 22), {"blue_position": Each([(0, 1), (1, 0), (1, 1)])}, "HW", color_reference, out_layout="HWC"),
    Case("debayer", "frames", mosaics(3, 16, 22), {"blue_position": (1, 0)}, "FHW", color_reference, out_layout="FHWC"),
    Case("debayer", "uint16", mosaics(16, 22, dtype="uint16"), {"blue_position": (1, 1)}, "HW", color_reference, out_layout="HWC"),
    Case("debayer", "edges", mosaics(16, 22), {"blue_position": (0, 1), "algorithm": "edgeaware_ocv"}, "HW", color_reference, out_layout="HWC"),
    Case(
        "debayer",
        "gray",
        mosaics(16, 22, dtype="uint16"),
        {"blue_position": (1, 0), "algorithm": "gray_ocv"},
        "HW",
        color_reference,
        1,
        out_layout="HWC",
    ),
    Case("debayer", "gradients", mosaics(16, 22), {"blue_position": (1, 0), "algorithm": "vng_ocv"}, "HW", out_layout="HWC"),
]


@pytest.mark.parametrize("algorithm", ["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"])
@pytest.mark.parametrize("position", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_plain_colors_come_back(algorithm: str, position: tuple[int, int]) -> None:
    color = np.array([200, 120, 40])
    rows, columns = np.indices((12, 14))
    blue_row, blue_column = rows % 2 != position[0], columns % 2 != position[1]
    mosaic = np.where(blue_row & blue_column, color[2], np.where(~blue_row & ~blue_column, color[0], color[1])).astype(np.uint8)
    output = np.asarray(ndd.debayer(mosaic, blue_position=position, algorithm=algorithm).evaluate())
    assert np.abs(output - (color if output.shape[-1] == 3 else color @ [0.299, 0.587, 0.114])).max() <= 0.5


def test_gradients_follow_smooth_directions() -> None:
    """On gray stripes, means of all neighbors have more false colors than means along the stripes."""
    stripes = np.where(np.arange(32) // 4 % 2, 200, 40).astype(np.uint8)[None].repeat(32, 0)
    spread = {
        algorithm: np.ptp(np.asarray(ndd.debayer(stripes, blue_position=(0, 0), algorithm=algorithm).evaluate()).astype(int), axis=-1).mean()
        for algorithm in ("bilinear_ocv", "vng_ocv")
    }
    assert spread["vng_ocv"] < 0.8 * spread["bilinear_ocv"]


def test_positions_per_frame() -> None:
    video = np.random.default_rng(0).integers(0, 256, (2, 8, 10)).astype(np.uint8)
    output = np.asarray(ndd.debayer(ndd.tensor(video, layout="FHW"), blue_position=ndd.per_frame(np.array([[0, 1], [1, 1]]))).evaluate())
    for frame, position, ours in zip(video, [(0, 1), (1, 1)], output, strict=True):
        np.testing.assert_array_equal(ours, color_reference(frame, position))


@pytest.mark.parametrize("width", [32, 34, 64, 66, 68, 128, 130, 514, 578, 580])
@pytest.mark.parametrize("algorithm", ["bilinear_ocv", "edgeaware_ocv"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_any_width(width: int, algorithm: str, dtype: type) -> None:
    mosaic = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (4, width)).astype(dtype)
    output = np.asarray(ndd.debayer(mosaic, blue_position=(0, 1), algorithm=algorithm).evaluate())
    np.testing.assert_array_equal(output, color_reference(mosaic, (0, 1), algorithm))


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (2, 2), (2, 8), (8, 2)])
@pytest.mark.parametrize("algorithm", ["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"])
def test_small_mosaics(shape: tuple[int, int], algorithm: str) -> None:
    output = ndd.debayer(np.full(shape, 9, np.uint8), blue_position=(0, 0), algorithm=algorithm).evaluate()
    assert output.shape[:2] == shape
    assert not np.asarray(output).any()


def test_wrong_mosaics() -> None:
    mosaic = np.zeros((8, 8), np.uint8)
    for image, args in (
        (mosaic[:7], {}),
        (mosaic[..., None].repeat(3, -1), {}),
        (mosaic.astype(np.float32), {}),
        (mosaic.astype(np.uint16), {"algorithm": "vng_ocv"}),
        (mosaic, {"algorithm": "nonsense"}),
        (mosaic, {"algorithm": "default_npp"}),
        (mosaic, {"blue_position": (0, 0, 1)}),
        (mosaic, {"blue_position": 0}),
    ):
        with pytest.raises(RuntimeError, match="debayer"):
            ndd.debayer(image, **{"blue_position": (0, 0), **args})
    for position in ((0, 2), (-1, 0)):
        with pytest.raises(RuntimeError) as error:
            ndd.debayer(mosaic, blue_position=position).evaluate()
        assert "blue_position" in str(error.value)
    with pytest.raises(TypeError, match=r"debayer.*blue_position"):
        ndd.debayer(mosaic)
