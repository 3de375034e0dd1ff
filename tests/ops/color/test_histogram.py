# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from _cases import Case, images

import torch_ndd as ndd


def equalized_channel(levels: np.ndarray) -> np.ndarray:
    below = np.cumsum(np.bincount(levels.reshape(-1), minlength=256))
    darkest = below[levels.min()]
    if darkest == levels.size:
        return levels
    table = np.float32(below - darkest) * np.float32(255 / np.float32(levels.size - darkest))
    return np.rint(np.clip(table, 0, 255)).astype(np.uint8)[levels]


def equalize_reference(layout: str, image: np.ndarray) -> np.ndarray:
    """The reference: every two-dimensional plane separately."""
    planes = np.moveaxis(image, -1, 0) if layout.endswith("C") else image
    flat = planes.reshape(-1, *planes.shape[-2:]) if not layout.startswith("F") or layout == "FHW" or "CH" in layout else planes
    if layout == "FHWC":
        return np.stack([equalize_reference("HWC", frame) for frame in image])
    result = np.stack([equalized_channel(plane) for plane in flat]).reshape(planes.shape)
    return np.moveaxis(result, 0, -1) if layout.endswith("C") else result


def limit_reference(image: np.ndarray, tiles_x: int, tiles_y: int, clip_limit: float, luma_only: bool = True) -> np.ndarray:
    """The reference: pixel by pixel, over the tables of all tiles."""
    assert image.shape[-1] == 1 or not luma_only
    return np.stack([limited_channel(image[..., c], tiles_y, tiles_x, clip_limit) for c in range(image.shape[-1])], -1)


def limited_channel(image: np.ndarray, tiles_y: int, tiles_x: int, clip_limit: float) -> np.ndarray:
    height, width = image.shape
    whole = image
    if height % tiles_y or width % tiles_x:
        whole = np.pad(image, ((0, tiles_y - height % tiles_y), (0, tiles_x - width % tiles_x)), "reflect")
    h, w = whole.shape[0] // tiles_y, whole.shape[1] // tiles_x
    limit = max(int(clip_limit * h * w / 256), 1)
    tables = np.zeros((tiles_y, tiles_x, 256), np.float32)
    for j, i in np.ndindex(tiles_y, tiles_x):
        counts = np.bincount(whole[j * h : (j + 1) * h, i * w : (i + 1) * w].reshape(-1), minlength=256)
        if clip_limit > 0:
            share, rest = divmod(int(np.maximum(counts - limit, 0).sum()), 256)
            counts = np.minimum(counts, limit) + share
            if rest:
                counts[np.arange(rest) * (256 // rest)] += 1
        tables[j, i] = np.rint(np.cumsum(counts) * np.float32(255 / (h * w)))
    (y, y2, dy), (x, x2, dx) = near(height, h, tiles_y), near(width, w, tiles_x)
    dy = dy[:, None]
    upper = tables[y[:, None], x, image] * (1 - dx) + tables[y[:, None], x2, image] * dx
    lower = tables[y2[:, None], x, image] * (1 - dx) + tables[y2[:, None], x2, image] * dx
    return np.rint(upper * (1 - dy) + lower * dy).astype(np.uint8)


def near(size: int, tile: int, tiles: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    at = np.arange(size, dtype=np.float32) / np.float32(tile) - np.float32(0.5)
    below = np.floor(at).astype(int)
    return np.maximum(below, 0), np.minimum(below + 1, tiles - 1), at - below


CASES = [
    *(
        Case("equalize", layout, images(layout, low=40, high=180), {}, layout, lambda image, layout=layout: equalize_reference(layout, image))
        for layout in ("HW", "HWC", "CHW", "FHW", "FHWC", "FCHW")
    ),
    Case("equalize", "5 channels", images("HWC", C=5, high=99), {}, "HWC", lambda image: equalize_reference("HWC", image)),
    Case("equalize", "20 channels", images("HWC", C=20, high=99), {}, "HWC", lambda image: equalize_reference("HWC", image)),
    Case("clahe", "large tiles", images("HWC", C=1, H=75, W=133), {"tiles_x": 2, "tiles_y": 2, "clip_limit": 1.3}, "HWC", limit_reference, 1),
    Case("clahe", "gray", images("HWC", C=1, H=40, W=66), {"tiles_x": 3, "tiles_y": 4, "clip_limit": 2.0}, "HWC", limit_reference, 1),
    Case("clahe", "small tiles", images("HWC", C=1), {"tiles_x": 8, "tiles_y": 8, "clip_limit": 3.5}, "HWC", limit_reference, 1),
    Case("clahe", "no limit", images("HWC", C=1, high=70), {"tiles_x": 2, "tiles_y": 1, "clip_limit": 0.0}, "HWC", limit_reference, 1),
    Case("clahe", "channels", images("HWC"), {"tiles_x": 2, "tiles_y": 3, "clip_limit": 2.0, "luma_only": False}, "HWC", limit_reference, 1),
    Case("clahe", "lightness", images("HWC"), {"tiles_x": 2, "tiles_y": 3, "clip_limit": 2.0}, "HWC"),
]


@pytest.mark.parametrize("size", [(1, 1), (1, 64), (63, 1), (8, 130), (16, 200)])
@pytest.mark.parametrize("tiles", [(1, 1), (8, 8), (2, 100)])
@pytest.mark.parametrize("clip_limit", [-1.0, 1e-9, 2.0, np.inf])
def test_clahe_of_any_size(size: tuple[int, int], tiles: tuple[int, int], clip_limit: float) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 1)).astype(np.uint8)
    ours = np.asarray(ndd.clahe(image, tiles_y=tiles[0], tiles_x=tiles[1], clip_limit=clip_limit).evaluate())
    finite = -1.0 if clip_limit == np.inf else clip_limit  # no count exceeds an infinite limit
    assert np.abs(ours.astype(int) - limit_reference(image, tiles[1], tiles[0], finite)).max() <= 1


def test_clahe_of_gray_colors_is_that_of_gray() -> None:
    """R = G = B stays gray, and no tile changes the order of the levels."""
    levels = np.random.default_rng(0).integers(20, 90, (32, 48, 1)).astype(np.uint8)
    output = np.asarray(ndd.clahe(levels.repeat(3, -1), tiles_x=1, tiles_y=1, clip_limit=3).evaluate()).astype(int)
    assert np.ptp(output, axis=-1).max() <= 2
    order = np.argsort(levels, axis=None, kind="stable")
    assert (np.diff(output[..., 1].reshape(-1)[order]) >= 0).all()
    assert np.ptp(output) > 2 * np.ptp(levels)


def test_lightness_keeps_colors() -> None:
    """Without contrast to gain, the conversion to L*a*b* and back changes no level by more than three."""
    levels = np.arange(256, dtype=np.uint8)
    image = np.stack(np.meshgrid(levels[::5], levels[::5], levels[::5], indexing="ij"), -1).reshape(52, -1, 3)
    light = 0.2126 * (image[..., 0] / 255) ** 2.2 + 0.7152 * (image[..., 1] / 255) ** 2.2 + 0.0722 * (image[..., 2] / 255) ** 2.2
    output = np.asarray(ndd.clahe(image, tiles_x=1, tiles_y=1, clip_limit=1).evaluate())
    other = 0.2126 * (output[..., 0] / 255) ** 2.2 + 0.7152 * (output[..., 1] / 255) ** 2.2 + 0.0722 * (output[..., 2] / 255) ** 2.2
    assert np.corrcoef(light.reshape(-1), other.reshape(-1))[0, 1] > 0.95


@pytest.mark.parametrize("name", ["equalize", "clahe"])
def test_no_pixels(name: str) -> None:
    args = {"tiles_x": 2, "tiles_y": 2, "clip_limit": 1} if name == "clahe" else {}
    for shape in ((0, 5, 3), (5, 0, 1), (0, 0, 3)):
        assert getattr(ndd, name)(np.zeros(shape, np.uint8), **args).evaluate().shape == shape


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (7, 9), (20, 63), (64, 129)])
@pytest.mark.parametrize("channels", [1, 3])
def test_equalize_of_any_size(size: tuple[int, int], channels: int) -> None:
    image = np.random.default_rng(0).integers(30, 220, (*size, channels)).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(ndd.equalize(image).evaluate()), equalize_reference("HWC", image))


def test_equalize_one_level() -> None:
    for level in (0, 7, 255):
        assert (np.asarray(ndd.equalize(np.full((4, 5, 3), level, np.uint8)).evaluate()) == level).all()


def test_wrong_inputs() -> None:
    args = {"tiles_x": 2, "tiles_y": 2, "clip_limit": 1.0}
    image = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(RuntimeError, match=r"equalize.*uint8"):
        ndd.equalize(image.astype(np.float32))
    with pytest.raises(ValueError, match=r"clahe.*uint8"):
        ndd.clahe(image.astype(np.float32), **args)
    for wrong in (image[..., :2], ndd.batch([image, image[:3, :, :2]])):
        with pytest.raises(ValueError, match=r"clahe.*channels"):
            ndd.clahe(wrong, **args)
    for name, value in (("tiles_x", 0), ("tiles_y", -1), ("tiles_x", 2**30), ("clip_limit", np.nan)):
        with pytest.raises(ValueError, match=rf"clahe.*{name}"):
            ndd.clahe(image, **{**args, name: value})
    with pytest.raises(TypeError, match=r"clahe.*tiles_x"):
        ndd.clahe(image, tiles_y=1, clip_limit=1.0)
