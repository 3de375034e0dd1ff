# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd

GAP, TEXT = 4, 16


def tile(picture: Image.Image, row: int, column: int, height: int, width: int, text: int = 0) -> np.ndarray:
    top, left = GAP + row * (height + GAP + text), GAP + column * (width + GAP)
    return np.asarray(picture)[top : top + height, left : left + width]


def test_bytes_are_shown_as_they_are(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (5, 100, 120, 3), dtype=torch.uint8)
    picture = ndd.show(images, tmp_path / "grid.png", columns=2)
    with Image.open(tmp_path / "grid.png") as written:
        assert np.array_equal(np.asarray(written), np.asarray(picture))
    assert picture.size == (2 * 124 + 4, 3 * 104 + 4)
    for i in range(5):
        assert np.array_equal(tile(picture, i // 2, i % 2, 100, 120), images[i])
    assert (tile(picture, 2, 1, 100, 120) == 255).all()


def test_floats_are_scaled_over_the_whole_batch(tmp_path: Path) -> None:
    images = torch.full((2, 3, 96, 96), -2.0)
    images[0, 0] = 3.0
    images[1] = 0.5
    picture = ndd.show(images, tmp_path / "grid.png")
    assert (tile(picture, 0, 0, 96, 96) == [255, 0, 0]).all()
    assert (np.abs(tile(picture, 0, 1, 96, 96).astype(int) - 127.5) <= 0.5).all()


def test_a_constant_float_image_is_black(tmp_path: Path) -> None:
    assert (tile(ndd.show(torch.ones(1, 3, 96, 96), tmp_path / "grid.png"), 0, 0, 96, 96) == 0).all()


def test_ragged_batch_with_labels(tmp_path: Path) -> None:
    samples = [np.full((100 + 10 * i, 130 - 10 * i, 3), 50 * i, np.uint8) for i in range(3)]
    batch = ndd.batch(samples, layout="HWC")
    labels = ndd.batch([np.array([i], np.int32) for i in range(3)])
    picture = ndd.show(batch, tmp_path / "grid.png", labels=labels, columns=3)
    assert picture.size == (3 * 134 + 4, 120 + TEXT + 2 * GAP)
    for i, sample in enumerate(samples):
        assert np.array_equal(tile(picture, 0, i, 120, 130, TEXT)[: sample.shape[0], : sample.shape[1]], sample)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_the_layout_decides_where_the_shape_does_not(tmp_path: Path, layout: str) -> None:
    pixels = np.arange(3 * 100 * 3, dtype=np.uint8).reshape(3, 100, 3)
    picture = ndd.show(ndd.batch([pixels], layout=layout), tmp_path / "grid.png")
    expected = pixels if layout == "HWC" else pixels.transpose(1, 2, 0)
    assert np.array_equal(tile(picture, 0, 0, *expected.shape[:2]), expected)


@pytest.mark.parametrize("shape", [(100, 120), (100, 120, 1), (1, 100, 120)])
def test_grey_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    image = torch.randint(0, 256, shape, dtype=torch.uint8)
    picture = ndd.show([image], tmp_path / "grid.png")
    expected = image.reshape(100, 120, 1).expand(100, 120, 3)
    assert np.array_equal(tile(picture, 0, 0, 100, 120), expected)


def test_single_tensor(tmp_path: Path) -> None:
    image = np.arange(100 * 120 * 3, dtype=np.uint8).reshape(100, 120, 3)
    picture = ndd.show(ndd.tensor(image, layout="HWC"), tmp_path / "grid.png")
    assert np.array_equal(tile(picture, 0, 0, 100, 120), image)


@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        ([], {}, "no image"),
        (torch.zeros(2, 8, 8, 3), {"labels": ["one"]}, "1 labels for 2 images"),
        (torch.zeros(2, 8, 8, 3), {"columns": 0}, "columns"),
        (torch.zeros(2, 8, 8, 7), {}, "channels"),
        (torch.zeros(5), {}, "HWC, CHW or HW"),
    ],
)
def test_mistakes(tmp_path: Path, images: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"show: .*{message}"):
        ndd.show(images, tmp_path / "grid.png", **arguments)
