# SPDX-License-Identifier: Apache-2.0
"""The comparison of a translation with its processor, on small images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._core.values.batch import Batch, as_batch
from .._core.values.tensor import Tensor

SIZES = ((40, 60), (61, 37), (33, 90))
TOLERANCE = 2e-5


def make_images() -> list[np.ndarray]:
    """Return three images with gradients and noise, (H, W, 3) uint8."""
    generator = np.random.default_rng(0)
    images = []
    for height, width in SIZES:
        y, x = np.mgrid[:height, :width]
        smooth = np.stack([255 * x / width, 255 * y / height, 255 * (x + y) / (width + height)], -1)
        images.append((0.7 * smooth + generator.uniform(0, 76, smooth.shape)).astype(np.uint8))
    return images


def check_translation(processor: Any, translation: Any) -> None:
    """Raise RuntimeError unless both return the same for small images."""
    images = make_images()
    try:
        expected = processor(images, return_tensors="pt")
    except ValueError:  # outputs that differ in size cannot become tensors
        expected = processor(images)
    compare_outputs(translation.settings.name, expected, translation(as_batch(images, layout="HWC")))


def compare_outputs(name: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise RuntimeError for an output that is missing or differs."""
    if set(expected) != set(found):
        raise RuntimeError(f"from_processor: {name} returns {sorted(expected)}, its translation {sorted(found)}: this version is not supported")
    for key in expected:
        pairs = zip(as_arrays(expected[key]), as_arrays(found[key]), strict=False)
        if len(as_arrays(expected[key])) != len(as_arrays(found[key])):
            raise RuntimeError(f"from_processor: {name}: {key} has another length than in transformers")
        for theirs, ours in pairs:
            if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
                raise RuntimeError(
                    f"from_processor: {name}: {key} is {ours.dtype} {ours.shape}, in transformers {theirs.dtype} {theirs.shape}"
                )
            difference = np.abs(theirs.astype(np.float64) - ours).max(initial=0)
            if not difference <= TOLERANCE:
                raise RuntimeError(f"from_processor: {name}: {key} differs from transformers by {difference:.3g}: this version is not supported")


def as_arrays(value: Any) -> list[np.ndarray]:
    """Return a tensor, or each of a list of them, as arrays."""
    if isinstance(value, Batch):
        return [np.asarray(sample) for sample in value.tensors]
    if isinstance(value, Tensor) or not isinstance(value, list | tuple):
        return [np.asarray(value)]
    return [np.asarray(sample) for sample in value]
