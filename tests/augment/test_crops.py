# SPDX-License-Identifier: Apache-2.0
"""multi_crop and random_windows: several crops of each image."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd

SHAPES = [(60, 80, 3), (41, 67, 3), (90, 33, 3)]
SIZES = [24, [17, 9], 24, 40]


def make_images(ragged: bool = True, dtype: type = np.uint8) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [(generator.uniform(0, 255, shape)).astype(dtype) for shape in (SHAPES if ragged else SHAPES[:1] * 3)]


def make_windows(images: list[np.ndarray], count: int = 4) -> np.ndarray:
    generator = np.random.default_rng(1)
    windows = []
    for image in images:
        height, width = image.shape[:2]
        for _ in range(count):
            h, w = generator.integers(1, [height + 1, width + 1])
            windows.append([generator.integers(0, height - h + 1), generator.integers(0, width - w + 1), h, w])
    return np.array(windows).reshape(len(images), count, 4)


def cut(images: list[np.ndarray], windows: np.ndarray, k: int, layout: str = "HWC") -> ndd.Batch:
    """Return window k of each image as a batch of their own."""
    parts = [image[y : y + h, x : x + w] for image, (y, x, h, w) in zip(images, windows[:, k].tolist(), strict=True)]
    return ndd.batch([np.ascontiguousarray(part if layout == "HWC" else part.transpose(2, 0, 1)) for part in parts], layout=layout)


@pytest.mark.parametrize("interp_type", ["INTERP_LINEAR", "INTERP_CUBIC", "INTERP_NN"])
@pytest.mark.parametrize("rule", ["torch", "pillow"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_crops_equal_crop_and_resize(interp_type: str, rule: Any, layout: str, ragged: bool, dtype: type, device: str) -> None:
    images = make_images(ragged, dtype)
    windows = make_windows(images)
    arrays = images if layout == "HWC" else [np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images]
    batch = ndd.batch(arrays, layout=layout, device=device)
    how: dict[str, Any] = {"rule": rule, "interp_type": getattr(ndd.types, interp_type)}
    crops = ndd.multi_crop(batch, windows=windows, sizes=SIZES, **how)
    assert len(crops) == 4
    for k, crop in enumerate(crops):
        side = SIZES[k]
        expected = ndd.resize(cut(images, windows, k, layout), size=[side, side] if isinstance(side, int) else side, **how).stack()
        assert (crop.layout, crop.dtype) == (layout, batch.dtype)
        np.testing.assert_array_equal(np.asarray(crop.cpu()), np.asarray(expected))


@pytest.mark.parametrize("rule", ["torch", "pillow", "pillow_12"])
@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("threads", [1, 8])
def test_crops_of_an_image_share_its_rows(rule: Any, channels: int, threads: int) -> None:
    ndd.set_num_threads(threads)  # a task for all crops of an image, or for each crop
    generator = np.random.default_rng(2)
    images = [generator.integers(0, 256, (*extents, channels)).astype(np.uint8) for extents in [(211, 190), (16, 300), (15, 40), (97, 35)]]
    # The whole image, its last pixels, a few rows, a few columns, a high and a wide window, and windows that are enlarged and reduced a lot.
    windows = [
        [[0, 0, h, w], [h - 13, w - 9, 13, 9], [h // 3, 0, 3, w], [0, w // 3, h, 3], [0, w - 20, h, 20], [h - 8, 0, 8, w], [1, 1, h - 1, w - 1]]
        for h, w, _ in [image.shape for image in images]
    ]
    sizes = [[64, 48], 17, 24, [40, 33], [9, 30], [30, 19], [3, 16]]
    for interp_type, antialias in ((ndd.types.INTERP_CUBIC, True), (ndd.types.INTERP_LINEAR, False), (ndd.types.INTERP_LANCZOS3, True)):
        how: dict[str, Any] = {"rule": rule, "interp_type": interp_type, "antialias": antialias}
        crops = ndd.multi_crop(ndd.batch(images, layout="HWC"), windows=windows, sizes=sizes, **how)
        for k, size in enumerate(sizes):
            expected = ndd.resize(cut(images, np.array(windows), k), size=[size, size] if isinstance(size, int) else size, **how)
            np.testing.assert_array_equal(np.asarray(crops[k]), np.asarray(expected.stack()))


def test_dalis_rule_sees_the_pixels_around_a_window() -> None:
    images = make_images()
    windows = make_windows(images)
    crops = ndd.multi_crop(ndd.batch(images, layout="HWC"), windows=windows, sizes=SIZES, rule="dali")
    start, end = windows[:, 0, :2], windows[:, 0, :2] + windows[:, 0, 2:]
    region = {"roi_start": ndd.batch(start.astype(np.float32)), "roi_end": ndd.batch(end.astype(np.float32))}
    expected = ndd.resize(ndd.batch(images, layout="HWC"), size=[24, 24], **region)  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.asarray(crops[0]), np.asarray(expected.stack()))


def test_files_give_the_crops_of_their_images() -> None:
    files = []
    for image in make_images():
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    windows = make_windows(make_images())
    from_files = ndd.multi_crop(ndd.batch(files), windows=windows, sizes=SIZES)
    from_images = ndd.multi_crop(ndd.batch(make_images(), layout="HWC"), windows=ndd.batch(windows), sizes=SIZES)
    for a, b in zip(from_files, from_images, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    drawn = ndd.random_windows(ndd.batch(files), rng=ndd.random.RNG(3))
    assert drawn.torch().equal(ndd.random_windows([shape[:2] for shape in SHAPES], rng=ndd.random.RNG(3)).torch())


def test_crops_are_read_by_further_operators_while_they_are_pending() -> None:
    images = make_images()
    windows = make_windows(images)
    darker = ndd.brightness(ndd.batch(images, layout="HWC"), brightness=0.5)
    crops = ndd.multi_crop(darker, windows=windows, sizes=SIZES)
    flipped = [ndd.flip(crop, horizontal=1) for crop in crops]
    expected = ndd.multi_crop(darker.evaluate(), windows=windows, sizes=SIZES)
    for found, crop in zip(flipped, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(crop)[:, :, ::-1])


def test_a_single_image_has_single_crops() -> None:
    image = make_images()[0]
    windows = make_windows([image])
    crops = ndd.multi_crop(ndd.tensor(image, layout="HWC"), windows=windows[0], sizes=SIZES)
    assert [crop.shape for crop in crops] == [(24, 24, 3), (17, 9, 3), (24, 24, 3), (40, 40, 3)]
    batch = ndd.multi_crop(ndd.batch([image], layout="HWC"), windows=windows, sizes=SIZES)
    np.testing.assert_array_equal(np.asarray(crops[2]), np.asarray(batch[2])[0])
    assert ndd.random_windows(ndd.tensor(image, layout="HWC")).shape == (10, 4)


def test_an_empty_batch_has_empty_crops() -> None:
    crops = ndd.multi_crop(ndd.batch(np.zeros((0, 8, 8, 3), np.uint8), layout="HWC"), windows=np.zeros((0, 2, 4), np.int64), sizes=[4, 5])
    assert [np.asarray(crop).shape for crop in crops] == [(0, 4, 4, 3), (0, 5, 5, 3)]


def test_windows_have_the_areas_and_ratios_of_their_group() -> None:
    extents = np.random.default_rng(0).integers(400, 500, (300, 2))
    windows = ndd.random_windows(extents, scale=[(0.4, 1.0), (0.05, 0.4)], ratio=(0.75, 4 / 3), counts=(2, 8), rng=ndd.random.RNG(1)).torch().numpy()
    assert windows.shape == (300, 10, 4)
    assert windows.dtype == np.int64
    top, left, height, width = np.moveaxis(windows, -1, 0)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= extents[:, :1]).all()
    assert (left + width <= extents[:, 1:]).all()
    share = height * width / extents.prod(1, keepdims=True)
    # Rounding moves an area by a part of a side, 1 % of the smallest windows.
    assert (share[:, :2] > 0.39).all()
    assert share[:, :2].mean() == pytest.approx(0.64, abs=0.04)
    assert (share[:, 2:] > 0.048).all()
    assert (share[:, 2:] < 0.41).all()
    assert share[:, 2:].mean() == pytest.approx(0.225, abs=0.02)
    ratio = width / height
    assert ((ratio >= 0.75) & (ratio <= 4 / 3)).mean() > 0.98
    assert len(np.unique(windows.reshape(-1, 4), axis=0)) > 2900  # windows of an image differ, and those of images


def test_windows_follow_the_generator() -> None:
    draws = [ndd.random_windows([[300, 400]] * 4, rng=ndd.random.RNG(seed)).torch() for seed in (5, 5, 6)]
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"windows": [[[0, 0, 60, 80]], [[0, 0, 42, 10]], [[0, 0, 1, 1]]]}, "sample 1: window 0, top 0, left 0, height 42, width 10, .* 41 x 67"),
        ({"windows": [[[0, 0, 60, 80]], [[-1, 0, 4, 10]], [[0, 0, 1, 1]]]}, "sample 1: window 0"),
        ({"windows": [[[0, 0, 60, 80]], [[0, 0, 41, 10]], [[0, 0, 0, 1]]]}, "sample 2: window 0"),
        ({"windows": [[[2**63 - 1, 0, 60, 80]], [[0, 0, 41, 10]], [[0, 0, 2**63 - 1, 1]]]}, "sample 0: window 0"),
        ({"windows": np.zeros((3, 1, 4), np.float32)}, "integers of the shape"),
        ({"windows": np.ones((3, 2, 4), np.int64)}, r"\(3, 1, 4\)"),
        ({"windows": [[[0, 0, 1, 1]], [[0, 0]], [[0, 0, 1, 1]]]}, "windows must be"),
        ({"sizes": [0]}, "size"),
        ({"sizes": [], "windows": np.ones((3, 0, 4), np.int64)}, r"sizes must be a list with the size of each window, got \[\]"),
        ({"sizes": [[4, 4, 4]]}, "size"),
        ({"rule": "nearest"}, "rule"),
    ],
)
def test_multi_crop_rejects_wrong_arguments(change: dict[str, Any], text: str) -> None:
    arguments = {"windows": np.ones((3, 1, 4), np.int64), "sizes": [4]} | change
    with pytest.raises(ValueError, match=text):
        ndd.multi_crop(ndd.batch(make_images(), layout="HWC"), **arguments)


def test_multi_crop_rejects_other_data() -> None:
    with pytest.raises(ValueError, match="FHWC"):
        ndd.multi_crop(ndd.batch(np.zeros((1, 2, 8, 8, 3), np.uint8), layout="FHWC"), windows=np.ones((1, 1, 4), np.int64), sizes=[4])
    mixed = ndd.batch([np.zeros((8, 8, 1), np.uint8), np.zeros((8, 8, 3), np.uint8)], layout="HWC")
    with pytest.raises(ValueError, match="number of channels"):
        ndd.multi_crop(mixed, windows=np.ones((2, 1, 4), np.int64), sizes=[4])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"counts": (2,)}, "a range of scale for each"),
        ({"counts": (2, 0)}, "positive"),
        ({"counts": (2, 5000)}, "at most 1024"),
        ({"counts": 3}, "a range of scale for each"),
        ({"counts": "ab"}, "a range of scale for each"),
        ({"scale": 3}, "a range of scale for each"),
        ({"scale": [(0.4, 1.0), (-1.0, 0.4)]}, "random_windows: scale must be positive"),
        ({"scale": [(0.4, 1.0), "ab"]}, "random_windows: scale must be a number or two"),
        (
            {"scale": [(40, 100)], "counts": (2,)},
            r"scale is the area of a window relative to the image's, at most 1, got \(40, 100\)",
        ),
        ({"ratio": (0.0, 1.0)}, "random_windows: ratio must be positive"),
        ({"rng": 3}, "rng"),
    ],
)
def test_random_windows_rejects_wrong_arguments(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ndd.random_windows([[30, 40]], **change)
    with pytest.raises(ValueError, match="sample 1 has no pixels"):
        ndd.random_windows([[30, 40], [0, 40]])


def test_a_crop_of_a_damaged_file_names_it() -> None:
    files = ndd.batch([np.frombuffer(b"\xff\xd8\xff not a picture", np.uint8)])
    with pytest.raises((RuntimeError, ValueError)):
        ndd.multi_crop(files, windows=np.ones((1, 1, 4), np.int64), sizes=[4])[0].evaluate()


@pytest.mark.slow
def test_compiled_functions_take_crops_but_do_not_contain_them() -> None:
    with pytest.raises(Exception, match="before the compiled function"):
        torch.compile(lambda images: ndd.multi_crop(images, windows=np.ones((1, 1, 4), np.int64), sizes=[4]), fullgraph=True)(
            ndd.batch(np.zeros((1, 8, 8, 3), np.uint8), layout="HWC")
        )
