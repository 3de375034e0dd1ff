# SPDX-License-Identifier: Apache-2.0
import io

import numpy as np
import pytest
from _cases import Case, Each, images
from PIL import Image
from skimage import data

import torch_ndd as ndd


def compress_reference(image: np.ndarray, quality: int = 50) -> np.ndarray:
    """Written and read with Pillow, which has libjpeg-turbo."""
    if image.ndim == 4:
        return np.stack([compress_reference(frame, quality) for frame in image])
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(np.clip(quality, 1, 100)))
    return np.asarray(Image.open(file))


CASES = [
    Case("jpeg_compression_distortion", "default", images("HWC"), {}, "HWC", compress_reference),
    Case("jpeg_compression_distortion", "quality", images("HWC"), {"quality": Each([1, 60, 100])}, "HWC", compress_reference),
    Case("jpeg_compression_distortion", "frames", images("FHWC"), {"quality": Each([5, 30, 95])}, "FHWC", compress_reference),
    Case("jpeg_compression_distortion", "large", images("HWC", H=67, W=149), {"quality": 25}, "HWC", compress_reference),
]


def distort_reference(image: np.ndarray, **args: object) -> np.ndarray:
    return np.asarray(ndd.jpeg_compression_distortion(image, **args).evaluate())


@pytest.mark.parametrize("quality", [*range(1, 12), *range(12, 95, 7), 49, 50, 51, *range(95, 101), -3, 0, 101, 1000])
def test_photographs_equal_the_codec(quality: int) -> None:
    photo = data.astronaut()[:200, 100:331]
    np.testing.assert_array_equal(distort_reference(photo, quality=quality), compress_reference(photo, quality))


@pytest.mark.parametrize("quality", [1, 40, 97])
def test_every_small_size(quality: int) -> None:
    """Borders within a block, within a square of 16, and chroma that is too narrow for smoothing."""
    generator = np.random.default_rng(quality)
    for height in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33):
        for width in (*range(1, 10), 15, 16, 17, 31, 32, 33, 63, 64, 65):
            image = generator.integers(0, 256, (height, width, 3)).astype(np.uint8)
            np.testing.assert_array_equal(distort_reference(image, quality=quality), compress_reference(image, quality), str(image.shape))


@pytest.mark.parametrize("quality", [1, 2, 3, 10, 50, 90, 100])
def test_steepest_images(quality: int) -> None:
    """The largest possible coefficients, in 16 bits between the steps."""
    generator = np.random.default_rng(0)
    y, x = np.indices((48, 64))
    for mask in ((y + x) % 2, x % 2, y % 2, (x // 8 + y // 8) % 2, generator.integers(0, 2, y.shape), x == 9):
        image = np.stack([mask, 1 - mask, mask], -1).astype(np.uint8) * 255
        np.testing.assert_array_equal(distort_reference(image, quality=quality), compress_reference(image, quality))
    colors = generator.integers(0, 2, (48, 64, 3)).astype(np.uint8) * 255
    np.testing.assert_array_equal(distort_reference(colors, quality=quality), compress_reference(colors, quality))


def test_quality_of_every_frame() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3)).astype(np.uint8)
    videos = ndd.batch([frames, frames[:2, :15]], layout="FHWC")
    qualities = [np.array([1, 20, 50, 99, 7]), np.array([80, 3])]
    output = ndd.jpeg_compression_distortion(videos, quality=ndd.per_frame(ndd.batch(qualities)))
    for video, quality, result in zip(videos.tensors, qualities, output.tensors, strict=True):
        for frame, q, ours in zip(np.asarray(video), quality, np.asarray(result), strict=True):
            np.testing.assert_array_equal(ours, compress_reference(frame, int(q)))


def test_lower_quality_is_further_away() -> None:
    photo = data.astronaut()[:160, :160]
    errors = [np.square(distort_reference(photo, quality=quality).astype(float) - photo).mean() for quality in (100, 90, 50, 20, 5)]
    assert errors == sorted(errors)
    assert errors[0] < 20 < errors[-1]


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 4, 4, 3), (2, 0, 4, 3)])
def test_nothing_to_compress(shape: tuple[int, ...]) -> None:
    assert distort_reference(np.zeros(shape, np.uint8)).shape == shape


def test_wrong_images_and_qualities() -> None:
    for image in (
        np.zeros((8, 8), np.uint8),
        np.zeros((8, 8, 1), np.uint8),
        np.zeros((8, 8, 4), np.uint8),
        np.zeros((8, 8, 3), np.float32),
        np.zeros((8, 8, 3), np.int8),
    ):
        with pytest.raises(RuntimeError, match=r"jpeg_compression_distortion.*(channel|uint8)"):
            ndd.jpeg_compression_distortion(image)
    with pytest.raises(ValueError, match=r"jpeg_compression_distortion.*layout"):
        ndd.jpeg_compression_distortion(ndd.tensor(np.zeros((3, 8, 8), np.uint8), layout="CHW"))
    for quality in (50.5, [10, 20], "high"):
        with pytest.raises((TypeError, ValueError), match=r"jpeg_compression_distortion.*quality"):
            ndd.jpeg_compression_distortion(np.zeros((8, 8, 3), np.uint8), quality=quality)
    video = ndd.tensor(np.zeros((3, 8, 8, 3), np.uint8), layout="FHWC")
    with pytest.raises(RuntimeError, match="'quality' is for 2 frames, but input 0 has 3 frames"):
        ndd.jpeg_compression_distortion(video, quality=ndd.per_frame(np.array([1, 2])))
