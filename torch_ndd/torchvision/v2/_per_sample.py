# SPDX-License-Identifier: Apache-2.0
"""Transforms that know nothing of batches, called for each sample."""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2.functional import pil_to_tensor

from ..._core.context.pools import get_num_threads
from ..._core.process.workers import Workers
from .._sample import batch_size_of, flatten, is_pure_tensor, kind_of, unflatten
from ._one_by_one import per_sample
from ._plan import Planar


class PerSample:
    """Calls a transform for every sample, with images as ``Image`` (C, H, W), and makes batches of its results.

    A transform of one argument gets the image, and what comes with it stays; one of several gets all parts, as in torchvision's ``Compose``. It runs
    in Python, on as many threads as operators; everything before it has to be computed first.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self._pool: Workers | None = None
        self._process = 0

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        size = batch_size_of("from_torchvision", leaves)
        if isinstance(sample, tuple) and not self._takes(len(sample)):
            image = next((k for k, leaf in enumerate(leaves) if issubclass(kind_of(leaf), single.Image | single.Video)), 0)
            leaves[image] = self._called(leaves[image], size)
            return unflatten(leaves, spec)
        return self._called(sample, size)

    def _takes(self, count: int) -> bool:
        """Return whether the transform takes so many parts of a sample, each as an argument of its own."""
        try:
            parameters = inspect.signature(getattr(self.transform, "forward", self.transform)).parameters.values()
        except (TypeError, ValueError):  # written in C
            return False
        needed = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty]
        return len(needed) == count or any(one.kind is one.VAR_POSITIONAL for one in parameters)

    def _called(self, sample: Any, size: int | None) -> Any:
        if size is None:
            return self.transform(*sample) if isinstance(sample, tuple) else self.transform(sample)
        return per_sample("from_torchvision", self._one, (Planar()(sample),), size, self._map)

    def _map(self, function: Callable[[int], Any], numbers: range) -> list[Any]:
        threads = min(get_num_threads(), len(numbers))
        if threads < 2:
            return list(map(function, numbers))
        if self._pool is None or self._process != os.getpid() or self._pool.max_workers < threads:
            self._pool, self._process = Workers(get_num_threads(), "from_torchvision", self), os.getpid()
        futures = [self._pool.submit(function, number) for number in numbers]
        return [future.result() for future in futures]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _one(self, sample: Any) -> Any:
        given, _ = flatten(sample)
        made, spec = flatten(self.transform(*sample) if isinstance(sample, tuple) else self.transform(sample))
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
