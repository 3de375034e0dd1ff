# SPDX-License-Identifier: Apache-2.0
"""Unfilled outputs that several operators have."""

from collections.abc import Sequence
from typing import Any

import torch

from .._batch import Batch, empty_batch, new_batch
from .._native import empty


def like(input: Any, dtype: torch.dtype | None = None) -> Any:
    """An unfilled batch with the shapes and layout of another one."""
    values = input._values
    return new_batch(empty(values.shape, dtype or values.dtype, values.device), input._shapes, input._layout)


def resized(input: Batch, axes: Sequence[int], extents: Sequence["int | torch.Tensor"], dtype: torch.dtype | None = None) -> Batch:
    """An unfilled batch like another one but with other extents of some axes: numbers, or int64 (N,) with one for each sample."""
    shape: list[int | torch.Tensor] = list(input._values.shape[1:]) if input._shapes is None else list(input._shapes.unbind(1))
    for axis, extent in zip(axes, extents, strict=True):
        shape[axis] = extent
    return empty_batch(input.batch_size, shape, dtype or input.dtype, input._values.device, input._layout)
