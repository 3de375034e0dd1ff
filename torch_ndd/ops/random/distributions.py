# SPDX-License-Identifier: Apache-2.0
"""Random numbers. A call draws seven words from its generator; every sample has its own stream, derived from them and its index."""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import AsGiven, DeviceLike, Kept, PerSample, Random, ShapeArg, T, Varying, launch, operator
from ..._core.values.batch import Batch, empty_batch, empty_packed, new_batch
from ..._core.values.tensor import as_tensor
from .._arguments import INTEGERS
from .._columns import extents_of


@operator(name="random.uniform")
def uniform(
    shape_like: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    range: PerSample[Sequence[float]] = (-1.0, 1.0),
    values: AsGiven[Any] = None,
    shape: ShapeArg[int | Sequence[int] | None] = None,
    dtype: torch.dtype | None = None,
    rng: Random = None,
) -> Any:
    """Draw random numbers, uniform in an interval or from given values.

    Sample i depends on the generator and on i only: not on the number of samples, and a longer sample begins like a shorter one.

    Args:
        shape_like: the result has the shapes of this Tensor or Batch.
        range: start and end of the interval, ``start <= x < end``.
        values: choose among these numbers, each equally likely, instead of ``range``.
        shape: shape of a sample, by default a scalar; with a Batch, a shape per sample.
        dtype: type of the result, by default float32; for integers the numbers are rounded half away from zero and saturated.
        rng: random generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: the end is not above the start, a negative shape, or both ``shape`` and ``shape_like``.

    >>> uniform(range=[2, 3], shape=[2, 2], batch_size=5).shape[4]
    (2, 2)
    """
    chosen = None if values is None else _choices("random.uniform", values)
    out = _empty_output("random.uniform", shape_like, shape, dtype or torch.float32, batch_size, device)
    return launch(out, [range, chosen, rng])


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
    """Draw 1 with a given probability, else 0.

    Args:
        shape_like: the result has the shapes of this Tensor or Batch.
        probability: probability of a 1, from 0 to 1.
        shape: shape of a sample, by default a scalar; with a Batch, a shape per sample.
        dtype: type of the result, by default int32.
        rng: random generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: a probability outside 0 to 1, a negative shape, or both ``shape`` and ``shape_like``.

    >>> coin_flip(probability=1, batch_size=3).torch()
    tensor([1, 1, 1], dtype=torch.int32)
    """
    return _empty_output("random.coin_flip", shape_like, shape, dtype or torch.int32, batch_size, device)


@operator(name="random.normal")
def normal(
    shape_like: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    mean: PerSample[float] = 0.0,
    shape: ShapeArg[int | Sequence[int] | None] = None,
    stddev: PerSample[float] = 1.0,
    rng: Random = None,
) -> Any:
    """Draw normally distributed random numbers.

    Sample i depends on the generator and on i only: not on the number of samples, and a longer sample begins like a shorter one. The numbers are
    quantiles of uniform numbers with 32 bits, which end at 6.3 standard deviations, or with 53 bits (8.2 standard deviations) for float64 and for
    integers of 4 and 8 bytes; CPU and GPU results are bitwise equal.

    Args:
        shape_like: the result has the shapes of this Tensor or Batch.
        dtype: type of the result, by default float32; for integers the numbers are rounded half away from zero and saturated.
        mean: mean of the distribution.
        shape: shape of a sample, by default a scalar; with a Batch, a shape per sample.
        stddev: standard deviation of the distribution.
        rng: random generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: a negative shape, or both ``shape`` and ``shape_like``.

    >>> normal(mean=5, stddev=0, shape=[2], batch_size=3).shape
    [(2,), (2,), (2,)]
    """
    return launch(_empty_output("random.normal", shape_like, shape, dtype or torch.float32, batch_size, device), [mean, stddev, rng])


@operator(name="random.beta")
def beta(
    shape_like: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    alpha: PerSample[float] = 1.0,
    beta: PerSample[float] = 1.0,
    dtype: torch.dtype | None = None,
    shape: ShapeArg[int | Sequence[int] | None] = None,
    rng: Random = None,
) -> Any:
    """Draw beta-distributed random numbers, with the density ``x^(alpha - 1) (1 - x)^(beta - 1) / B(alpha, beta)`` on [0, 1]; see ``mixup``.

    Element k of sample i depends on the generator, i and k only.

    Args:
        shape_like: the result has the shapes of this Tensor or Batch.
        alpha: positive; the mean is ``alpha / (alpha + beta)``.
        beta: positive.
        dtype: float32 by default, or float64.
        shape: shape of a sample, by default a scalar; with a Batch, a shape per sample.
        rng: random generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: ``alpha`` or ``beta`` that is not positive or not finite, an integer ``dtype``, a negative shape, or both ``shape`` and
            ``shape_like``.

    >>> beta(alpha=0.4, beta=0.4, batch_size=3).shape
    [(), (), ()]
    """
    result = dtype or torch.float32
    if not result.is_floating_point:
        raise RuntimeError(f"random.beta: argument 'dtype' must be a floating-point type, got {dtype}")
    return _empty_output("random.beta", shape_like, shape, result, batch_size, device)


@operator(name="random.choice")
def choice(
    a: Kept[T],
    shape_like: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    p: Varying[Sequence[float]] | None = None,
    shape: ShapeArg[int | Sequence[int] | None] = None,
    rng: Random = None,
) -> Any:
    """Choose random elements of an array, or random integers, independently and with replacement.

    Args:
        a: an array, whose elements along its first dimension are chosen; or an integer n, for the numbers from 0 to n - 1. The result has its type.
        shape_like: the choices have the shapes of this Tensor or Batch.
        p: probability of each element, by default equal for all. They add up to 1.
        shape: shape of the choices, by default a single one; with a Batch, a shape per sample.
        rng: random generator, by default :func:`get_default_rng`.

    Raises:
        RuntimeError: nothing to choose from, a single number that is not an integer, a number of probabilities other than that of the elements,
            probabilities that are negative or do not add up to 1, a negative shape, or both ``shape`` and ``shape_like``.

    >>> choice([5, 7, 9], p=[0, 0, 1], shape=[4]).torch()
    tensor([9, 9, 9, 9], dtype=torch.int32)
    """
    elements: Batch = a  # type: ignore[assignment]
    size, ndim, where = elements.batch_size, elements.ndim, elements.buffer.device
    if ndim == 0 and elements.dtype not in INTEGERS:
        raise RuntimeError(f"random.choice: a single number must be an integer, got {elements.dtype}")
    if ndim > 0 and elements.ragged_shapes is None and elements.buffer.shape[1] == 0:
        raise RuntimeError("random.choice: there is nothing to choose from: input 0 is empty")
    out = _empty_output("random.choice", shape_like, shape, elements.dtype, size, where)
    if ndim > 1:
        out = _join(out, elements)
    letters = elements.layout
    if letters is not None:
        letters = letters if out.ndim == ndim else letters[1:] if out.ndim == ndim - 1 else None
        out.relabel(letters or None)
    return launch(out, [p, rng], only_words=True)


def _join(choices: Batch, elements: Batch) -> Batch:
    """Return an unfilled batch with the shapes of the choices followed by those of an element."""
    return empty_batch(choices.batch_size, [*extents_of(choices), *extents_of(elements)[1:]], choices.dtype, choices.buffer.device)


def _empty_output(op: str, shape_like: Any, shape: Any, dtype: torch.dtype, batch_size: Any, device: Any) -> Batch:
    if shape_like is not None:
        if shape is not None:
            raise RuntimeError(f'{op}: argument "shape" cannot be combined with an input whose shape is taken')
        return new_batch(native.empty(shape_like.buffer.shape, dtype, device), shape_like.ragged_shapes, shared_extents=shape_like.shared_extents)
    if isinstance(shape, torch.Tensor):
        if shape.ndim > 2:
            raise RuntimeError(f"{op}: a shape must have one dimension, got an array with {shape.ndim - 1}")
        rows = shape.reshape(len(shape), -1).to(torch.int64)
        # In a graph the numbers are data: they can be neither checked nor found equal.
        if not is_compiling():
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
    """Return float32 rows, one for all samples or one per sample: the count, then the numbers. None if there are none."""
    if isinstance(values, int | float):
        values = [values]
    if isinstance(values, list | tuple) and all(isinstance(sample, int | float) for sample in values):
        return torch.tensor([[len(values), *values]], dtype=torch.float32) if values else None
    try:
        samples = list(values) if isinstance(values, Batch) else [as_tensor(values)]
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{op}: argument 'values': {error}") from None
    rows = [sample.cpu().wait().reshape(-1).to(torch.float32) for sample in samples]
    if not rows or min(len(row) for row in rows) == 0:
        return None
    longest = max(len(row) for row in rows)
    # Rows of different lengths are padded with zeros, which the count excludes.
    return torch.stack([torch.cat([row.new_tensor([len(row)]), row, row.new_zeros(longest - len(row))]) for row in rows])
