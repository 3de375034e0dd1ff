# SPDX-License-Identifier: Apache-2.0
"""The comparison of a translation with its processor, on small data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch
from .._core.values.tensor import Tensor

SIZES = ((40, 60), (61, 37), (33, 90))
PART = 1 << 20  # values compared together


def make_images(sizes: Sequence[tuple[int, int]] = SIZES) -> list[np.ndarray]:
    """Return images with gradients and noise, (H, W, 3) uint8."""
    generator = np.random.default_rng(0)
    images = []
    for height, width in sizes:
        y, x = np.mgrid[:height, :width]
        smooth = np.stack([255 * x / width, 255 * y / height, 255 * (x + y) / (width + height)], -1)
        images.append((0.7 * smooth + generator.uniform(0, 76, smooth.shape)).astype(np.uint8))
    return images


def check_images(processor: Any, translation: Any) -> None:
    """Raise RuntimeError unless both return the same for small images, and ValueError if the processor itself raises for any."""

    def prepare(sizes: Sequence[tuple[int, int]]) -> tuple[list[Any], Batch]:
        images = make_images(sizes)
        return images, as_batch(images, layout="HWC")

    _check(processor, translation, prepare, {})


def check_videos(processor: Any, translation: Any) -> None:
    """Raise RuntimeError unless both return the same for short videos, and ValueError if the processor itself raises for any."""
    # Choosing frames is a function of its own here, and the check passes all of them.
    options = {"do_sample_frames": False} if getattr(processor, "do_sample_frames", False) else {}

    def prepare(sizes: Sequence[tuple[int, int]]) -> tuple[list[Any], Batch]:
        videos = [np.stack([image, image[::-1], image[:, ::-1], image]) for image in make_images(sizes)]
        # VideoMAE's image processor takes the frames of a video as a list of images.
        as_tensors = hasattr(processor, "sample_frames")
        inputs = [torch.from_numpy(video).permute(0, 3, 1, 2) for video in videos] if as_tensors else [*map(list, videos)]
        return inputs, as_batch(videos, layout="FHWC")

    _check(processor, translation, prepare, options)


def _check(processor: Any, translation: Any, prepare: Callable[..., tuple[list[Any], Batch]], options: dict[str, Any]) -> None:
    # Without a resize or padding, some processors take samples of equal size only, or whole patches.
    multiple = translation.multiple
    equal = [(-(-40 // multiple) * multiple, -(-60 // multiple) * multiple)] * 2
    raised: Exception | None = None
    for sizes in (SIZES, equal):
        inputs, batch = prepare(sizes)
        for tensors in ("pt", None):  # outputs that differ in size cannot become tensors
            try:
                expected = processor(inputs, return_tensors=tensors, **options)
            except (ValueError, RuntimeError, TypeError) as error:
                raised = error
                continue
            return compare_outputs(translation.settings.name, expected, translation(batch), translation.tolerance)
    raise ValueError(f"from_processor: {translation.settings.name} raises with these settings: {raised}") from raised


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
        # Tuples of numbers beside images that cannot be stacked.
        if isinstance(found[key], Tensor) and len({part.shape for part in theirs}) == 1 < len(theirs):
            theirs = [np.stack(theirs)]
        if [(part.shape, part.dtype) for part in theirs] != [(part.shape, part.dtype) for part in ours]:
            raise RuntimeError(
                f"from_processor: {name}: {key} is {describe(ours)}, in transformers {describe(theirs)}: this version is not supported"
            )
        for their_part, our_part in zip(theirs, ours, strict=True):
            difference = measure_difference(their_part, our_part)
            # Written so that NaN raises as well.
            if not difference <= tolerance:
                raise RuntimeError(f"from_processor: {name}: {key} differs from transformers by {difference:.3g}: this version is not supported")


def measure_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference, relative for values above 1."""
    largest = 0.0
    theirs, ours = expected.reshape(-1), found.reshape(-1)
    # In parts: 64 photographs in tiles are 1.4 GB, and float64 copies of all of them 18 GB.
    for start in range(0, theirs.size, PART):
        values = theirs[start : start + PART].astype(np.float64)
        # np.maximum keeps NaN, which max() of Python may drop.
        largest = float(np.maximum(largest, (np.abs(values - ours[start : start + PART]) / np.maximum(np.abs(values), 1)).max()))
    return largest


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
