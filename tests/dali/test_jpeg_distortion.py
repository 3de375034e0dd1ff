# SPDX-License-Identifier: Apache-2.0
"""jpeg_compression_distortion compared with DALI's, which encodes and decodes: bitwise equal."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_raises, assert_same, dali, evaluate
from _raises import Raises, raising
from skimage import data

import torch_ndd as ndd

PHOTO = data.astronaut()


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("quality", [None, 1, 2, 5, 10, 25, 49, 50, 51, 75, 90, 95, 99, 100, 0, -5, 101, 1000])
def test_every_quality(quality: int | None) -> None:
    args = {} if quality is None else {"quality": quality}
    samples = [PHOTO[:133, :201], PHOTO[200:300, 100:260], noise(31, 47, 3), noise(64, 64, 3)]
    samples = [np.ascontiguousarray(sample) for sample in samples]
    assert_same(lambda m: m.jpeg_compression_distortion(m.batch(samples, layout="HWC"), **args))


@pytest.mark.parametrize("quality", [3, 50, 98])
def test_sizes_around_a_block(quality: int) -> None:
    for height in (1, 2, 7, 8, 9, 16, 17, 33):
        samples = [noise(height, width, 3, seed=width) for width in (1, 2, 3, 4, 5, 6, 8, 9, 15, 16, 17, 31, 33, 40)]
        assert_same(lambda m, samples=samples: m.jpeg_compression_distortion(m.batch(samples, layout="HWC"), quality=quality))


def test_quality_of_every_sample() -> None:
    samples = [noise(20 + 3 * i, 30 - i, 3, seed=i) for i in range(4)]
    qualities = [np.int32(q) for q in (1, 30, 77, 100)]
    assert_same(lambda m: m.jpeg_compression_distortion(m.batch(samples, layout="HWC"), quality=m.batch(qualities)))


@pytest.mark.parametrize("same", [True, False])
def test_frames_of_sequences(same: bool) -> None:
    samples = [noise(2 if same else 2 + i, 20, 30 if same else 30 + i, 3, seed=i) for i in range(3)]
    assert_same(lambda m: m.jpeg_compression_distortion(m.batch(samples, layout="FHWC"), quality=m.batch([np.int32(q) for q in (5, 50, 90)])))


@pytest.mark.parametrize(
    "program",
    [
        raising(RuntimeError, lambda m: m.jpeg_compression_distortion(np.zeros((8, 8, 1), np.uint8))),
        raising(RuntimeError, lambda m: m.jpeg_compression_distortion(np.zeros((8, 8, 4), np.uint8))),
        raising(RuntimeError, lambda m: m.jpeg_compression_distortion(np.zeros((8, 8, 3), np.float32))),
        raising(ValueError, lambda m: m.jpeg_compression_distortion(m.tensor(np.zeros((3, 8, 8), np.uint8), layout="CHW"))),
        raising(ValueError, lambda m: m.jpeg_compression_distortion(np.zeros((8, 8, 3), np.uint8), quality="high")),
    ],
)
def test_wrong_input_is_rejected(program: Any, raises: Raises | None) -> None:
    assert_raises(program, raises)


def test_planes_are_images_of_one_channel_which_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"dimensions|layout"):
        dali.jpeg_compression_distortion(np.zeros((8, 8), np.uint8)).evaluate()
    with pytest.raises(RuntimeError, match="3 channels"):
        ndd.jpeg_compression_distortion(np.zeros((8, 8), np.uint8)).evaluate()


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.jpeg_compression_distortion(m.tensor(noise(3, 8, 8, 3), layout="FHWC"), quality=m.per_frame(np.array([1, 50, 99], np.int32))),
        lambda m: m.jpeg_compression_distortion(np.zeros((0, 8, 3), np.uint8)),
    ],
)
def test_known_differences(program: Any) -> None:
    """Input that DALI rejects."""
    evaluate(program, ndd)
    with pytest.raises(RuntimeError):
        evaluate(program, dali)
