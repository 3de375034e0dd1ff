# SPDX-License-Identifier: Apache-2.0
"""Random numbers. A call draws seven words from its generator; every sample has a stream of its own that follows from them and its number."""

from typing import Any

import torch

from .. import _native
from .._batch import Batch, empty_batch, empty_packed, new_batch
from .._operator import DeviceLike, Launch, PerSample, Random, Sequence, ShapeArg, T, operator
from .._tensor import as_tensor


@operator(name="random.uniform", kernel="Tensor range, Tensor? values, Tensor rng")
def uniform(
    shape_like: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    range: PerSample[Sequence[float]] = (-1.0, 1.0),
    values: Any = None,
    shape: ShapeArg[int | Sequence[int] | None] = None,
    dtype: torch.dtype | None = None,
    rng: Random = None,
) -> Any:
    """Random numbers, uniform in an interval or among given ones.

    Sample i depends on the generator and on i alone: not on the number of samples, and a longer sample begins like a shorter one.

    Args:
        shape_like: the result has the shapes of this Tensor or Batch.
        range: start and end of the interval, ``start <= x < end``.
        values: choose among these numbers, each equally likely, instead of from ``range``.
        shape: shape of a sample, by default that of a number; for each sample its own with a Batch.
        dtype: type of the result, by default float32; for integers the numbers are rounded half away from zero and saturated.
        rng: the generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: the end is not above the start, a negative shape, or both ``shape`` and ``shape_like``.

    >>> uniform(range=[2, 3], shape=[2, 2], batch_size=5).shape[4]
    (2, 2)
    """
    chosen = None if values is None else _choices("random.uniform", values)
    out = _unfilled("random.uniform", shape_like, shape, dtype or torch.float32, batch_size, device)
    return Launch(out, [range, chosen, rng])


@operator(name="random.coin_flip")
def coin_flip(
    shape_like: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    probability: PerSample[float] = 0.5,
    shape: ShapeArg[int | Sequence[int] | None] = None,
    dtype: torch.dtype | None = None,
    rng: Random = None,
) -> Any:
    """1 with a probability, else 0.

    Args:
        shape_like: the result has the shapes of this Tensor or Batch.
        probability: of a 1, from 0 to 1.
        shape: shape of a sample, by default that of a number; for each sample its own with a Batch.
        dtype: type of the result, by default int32.
        rng: the generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: a probability outside 0 to 1, a negative shape, or both ``shape`` and ``shape_like``.

    >>> coin_flip(probability=1, batch_size=3).torch()
    tensor([1, 1, 1], dtype=torch.int32)
    """
    return _unfilled("random.coin_flip", shape_like, shape, dtype or torch.int32, batch_size, device)


def _unfilled(op: str, shape_like: Any, shape: Any, dtype: torch.dtype, batch_size: Any, device: Any) -> Batch:
    if shape_like is not None:
        if shape is not None:
            raise RuntimeError(f'{op}: argument "shape" cannot be combined with an input whose shape is taken')
        return new_batch(_native.empty(shape_like._values.shape, dtype, device), shape_like._shapes)
    if isinstance(shape, torch.Tensor):
        if shape.ndim > 2:
            raise RuntimeError(f"{op}: a shape must have one dimension, got an array with {shape.ndim - 1}")
        rows = shape.reshape(len(shape), -1).to(torch.int64)
        if not torch.compiler.is_compiling():
            if bool((rows < 0).any()):
                raise RuntimeError(f"{op}: a shape must not be negative, got {rows.tolist()}")
            if len(rows) == 1:
                return empty_batch(batch_size, rows[0].tolist(), dtype, device)
        return empty_packed(rows.expand(batch_size, -1).contiguous(), dtype, device)
    extents = [] if shape is None else list(shape) if isinstance(shape, list | tuple) else [shape]
    if any(isinstance(extent, list | tuple) for extent in extents):
        raise RuntimeError(f"{op}: a shape must have one dimension, got {shape}")
    if any(extent < 0 for extent in extents):
        raise RuntimeError(f"{op}: a shape must not be negative, got {shape}")
    return empty_batch(batch_size, [int(extent) for extent in extents], dtype, device)


def _choices(op: str, values: Any) -> torch.Tensor | None:
    """float32 rows, one for all samples or one for each: how many numbers there are, and the numbers. None when there are none."""
    if isinstance(values, int | float):
        values = [values]
    if isinstance(values, list | tuple) and all(isinstance(one, int | float) for one in values):
        return torch.tensor([[len(values), *values]], dtype=torch.float32) if values else None
    try:
        samples = list(values) if isinstance(values, Batch) else [as_tensor(values)]
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{op}: argument 'values': {error}") from None
    rows = [one.cpu()._ready().reshape(-1).to(torch.float32) for one in samples]
    if not rows or min(len(row) for row in rows) == 0:
        return None
    longest = max(len(row) for row in rows)
    return torch.stack([torch.cat([row.new_tensor([len(row)]), row, row.new_zeros(longest - len(row))]) for row in rows])
