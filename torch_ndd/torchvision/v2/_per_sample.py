# SPDX-License-Identifier: Apache-2.0
"""Transforms that know nothing of batches, called for each sample."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2.functional import pil_to_tensor

from .._sample import batch_size_of, flatten, is_pure_tensor, unflatten
from ._one_by_one import per_sample
from ._plan import Planar


class PerSample:
    """Calls a transform for every sample, with images as ``Image`` (C, H, W), and makes batches of its results.

    It runs in Python, one sample after the other; everything before it has to be computed first.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform

    def __call__(self, sample: Any) -> Any:
        size = batch_size_of("from_torchvision", flatten(sample)[0])
        if size is None:
            return self.transform(sample)
        return per_sample("from_torchvision", self._one, (Planar()(sample),), size)

    def _one(self, sample: Any) -> Any:
        given, _ = flatten(sample)
        made, spec = flatten(self.transform(sample))
        before = given if len(given) == len(made) else [None] * len(made)
        return unflatten([_tensor(one, was) for one, was in zip(made, before, strict=True)], spec)

    def __repr__(self) -> str:
        return f"PerSample({self.transform!r})"


def _tensor(value: Any, before: Any) -> Any:
    """Return a result as a tensor. Arithmetic on an ``Image`` makes a tensor without a meaning of it."""
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(value, pil.Image):
        return single.Image(pil_to_tensor(value))
    if isinstance(value, bool | int | float):
        return torch.tensor(value)
    if is_pure_tensor(value) and isinstance(before, single.Image | single.Video) and value.dim() == before.dim():
        return type(before)(value)
    return value
