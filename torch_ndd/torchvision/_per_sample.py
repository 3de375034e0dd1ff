# SPDX-License-Identifier: Apache-2.0
"""Transforms that know nothing of batches, called for each sample."""

from collections.abc import Callable
from typing import Any

import torch
from torchvision import tv_tensors as single

from .._core.batch import Batch, as_batch
from ..readers._items import mapped, prepared, together
from ._sample import batch_size_of, flatten, kind_of, unflatten


class PerSample:
    """Calls a transform for every sample, with images as ``Image`` (C, H, W), and makes batches of its results.

    It runs in Python, one sample after the other; everything before it has to be computed first.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        size = batch_size_of("from_torchvision", leaves)
        if size is None:
            return self.transform(sample)
        made = []
        for k in range(size):
            one = unflatten([_single(leaf, k, size) for leaf in leaves], spec)
            made.append(prepared(self.transform(one)))
        return mapped(_as_image, together(made, "the results"))

    def __repr__(self) -> str:
        return f"PerSample({self.transform!r})"


def _single(leaf: Any, k: int, size: int) -> Any:
    """Return a sample of a leaf as torchvision has it."""
    if not isinstance(leaf, Batch):
        return leaf[k] if isinstance(leaf, list) and len(leaf) == size else leaf
    values, kind = leaf._nth(k).torch(), kind_of(leaf)
    if kind is single.Image or kind is single.Video:
        values = values.movedim(-1, -3) if (leaf.layout or "").endswith("HWC") else values
        return kind(values.contiguous())
    if kind is single.Mask:
        return single.Mask(values)
    if kind is single.BoundingBoxes:
        given: Any = leaf
        return single.BoundingBoxes(values, format=given.format, canvas_size=given.canvas_size[k], clamping_mode=given.clamping_mode)  # type: ignore[call-overload]
    if kind is single.KeyPoints:
        given = leaf
        return single.KeyPoints(values, canvas_size=given.canvas_size[k])  # type: ignore[call-overload]
    return values


def _as_image(leaf: Any) -> Any:
    """Return a batch of (C, H, W) as images."""
    plain = isinstance(leaf, Batch) and leaf.layout is None and leaf.ndim == 3 and kind_of(leaf) is torch.Tensor
    return as_batch(leaf, layout="CHW") if plain else leaf
