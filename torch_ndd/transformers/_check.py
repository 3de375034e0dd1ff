# SPDX-License-Identifier: Apache-2.0
"""The comparison of a translation with its processor, on small data."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch
from .._core.values.tensor import Tensor

SIZES = ((40, 60), (61, 37), (33, 90))


def make_images() -> list[np.ndarray]:
    """Return three images with gradients and noise, (H, W, 3) uint8."""
    generator = np.random.default_rng(0)
    images = []
    for height, width in SIZES:
        y, x = np.mgrid[:height, :width]
        smooth = np.stack([255 * x / width, 255 * y / height, 255 * (x + y) / (width + height)], -1)
        images.append((0.7 * smooth + generator.uniform(0, 76, smooth.shape)).astype(np.uint8))
    return images


def check_images(processor: Any, translation: Any) -> None:
    """Raise RuntimeError unless both return the same for small images."""
    images = make_images()
    try:
        expected = processor(images, return_tensors="pt")
    except ValueError:  # outputs that differ in size cannot become tensors
        expected = processor(images)
    compare_outputs(translation.settings.name, expected, translation(as_batch(images, layout="HWC")), translation.tolerance)


def check_videos(processor: Any, translation: Any) -> None:
    """Raise RuntimeError unless both return the same for short videos."""
    videos = [np.stack([image, image[::-1], image[:, ::-1], image]) for image in make_images()]
    # Choosing frames is a function of its own here, and the check passes all of them.
    options = {"do_sample_frames": False} if getattr(processor, "do_sample_frames", False) else {}
    expected = processor([torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos], return_tensors="pt", **options)
    compare_outputs(translation.settings.name, expected, translation(as_batch(videos, layout="FHWC")), translation.tolerance)


def check_sounds(processor: Any, translation: Any) -> None:
    """Raise RuntimeError unless both return the same for two short sounds."""
    generator = np.random.default_rng(0)
    # Noise that swells: bands of a steady tone are constant, and normalizing them would magnify rounding.
    sounds = [(generator.standard_normal(n) * np.linspace(0.01, 0.3, n)).astype(np.float32) for n in (8000, 5777)]
    expected = processor(sounds, sampling_rate=translation.rate, return_tensors="pt", return_attention_mask=True)
    compare_outputs(translation.settings.name, expected, translation(as_batch(sounds)), translation.tolerance)


def compare_outputs(name: str, expected: Mapping[str, Any], found: Mapping[str, Any], tolerance: float = 2e-5) -> None:
    """Raise RuntimeError for an output that is missing or differs."""
    if not isinstance(expected, Mapping):
        raise RuntimeError(f"from_processor: {name} returns {type(expected).__name__}, not a dict: it is not supported")
    if set(expected) != set(found):
        raise RuntimeError(f"from_processor: {name} returns {sorted(expected)}, its translation {sorted(found)}: this version is not supported")
    for key in expected:
        theirs, ours = as_arrays(expected[key]), as_arrays(found[key])
        if [(part.shape, part.dtype) for part in theirs] != [(part.shape, part.dtype) for part in ours]:
            raise RuntimeError(
                f"from_processor: {name}: {key} is {describe(ours)}, in transformers {describe(theirs)}: this version is not supported"
            )
        difference = max((measure_difference(*pair) for pair in zip(split(theirs), split(ours), strict=True)), default=0.0)
        # Written so that NaN raises as well.
        if not difference <= tolerance:
            raise RuntimeError(f"from_processor: {name}: {key} differs from transformers by {difference:.3g}: this version is not supported")


def measure_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference, relative for values above 1."""
    values = expected.astype(np.float64)
    return float((np.abs(values - found) / np.maximum(np.abs(values), 1)).max(initial=0))


def split(arrays: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the samples of arrays of several: in doubles a batch of large images would take gigabytes."""
    for array in arrays:
        yield from array if array.ndim > 2 else (array,)


def describe(arrays: list[np.ndarray]) -> str:
    """Return types and shapes for a message."""
    return ", ".join(f"{array.dtype} {array.shape}" for array in arrays[:3]) + (" ..." if len(arrays) > 3 else "")


def as_arrays(value: Any) -> list[np.ndarray]:
    """Return a tensor, or each of a list of them, as arrays."""
    if isinstance(value, Batch):
        return [np.asarray(sample) for sample in value.tensors]
    if isinstance(value, Tensor) or not isinstance(value, list | tuple):
        return [np.asarray(value)]
    return [np.asarray(sample) for sample in value]
