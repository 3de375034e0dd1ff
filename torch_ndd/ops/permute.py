# SPDX-License-Identifier: Apache-2.0
"""Order of the samples of a batch."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .._batch import Batch, empty_batch, empty_packed
from .._operator import DeviceLike, Launch, Random, Sequence, ShapeArg, T, operator
from ._outputs import like


def _of_a_batch(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a batch, which nothing but its argument tells the size of."""

    @functools.wraps(function)
    def call(*inputs: Any, **given: Any) -> Any:
        if not inputs and given.get("batch_size") is None:
            raise ValueError(f"{function.__name__}: batch_size must be given")
        return function(*inputs, **given)

    return call


@_of_a_batch
@operator
def batch_permutation(
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    allow_repetitions: bool = False,
    no_fixed_points: bool = False,
    rng: Random = None,
) -> Any:
    """Random numbers of samples: an int32 number from 0 to ``batch_size - 1`` for each sample, all permutations equally likely.

    Args:
        batch_size: how many; needed.
        allow_repetitions: draw each number by itself instead.
        no_fixed_points: sample i does not get i; without effect for a batch of one.
        rng: the generator, by default that of the thread.

    Raises:
        ValueError: without ``batch_size``.

    >>> sorted(batch_permutation(batch_size=4).torch().tolist())
    [0, 1, 2, 3]
    """
    return empty_batch(batch_size, [], torch.int32, device)  # type: ignore[arg-type]


@operator(kernel="Tensor indices")
def permute_batch(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    indices: ShapeArg[int | Sequence[int]],
) -> T:
    """Take samples in another order: ``out[i] = in[indices[i]]``. Samples may be left out and taken several times.

    Args:
        input: anything.
        indices: a list with a number for each sample, or a Batch of numbers; or one number, whose sample then takes all places.

    Raises:
        RuntimeError: a number that is not from 0 to ``batch_size - 1``, or not as many numbers as samples.

    >>> from torch_ndd import batch
    >>> permute_batch(batch([[1, 2], [3]]), indices=[1, 0]).shape
    [(1,), (2,)]
    """
    samples: Batch = input  # type: ignore[assignment]
    numbers = _numbers(samples.batch_size, indices)
    if samples._shapes is None:
        return Launch(like(samples), [numbers], mixes=True)  # type: ignore[return-value]
    rows = samples._shapes[numbers.expand(samples.batch_size).to(torch.int64)]
    return Launch(empty_packed(rows, samples.dtype, samples._values.device, samples.layout, samples._fixed), [numbers], mixes=True)  # type: ignore[return-value]


def _numbers(batch_size: int, indices: Any) -> torch.Tensor:
    if isinstance(indices, torch.Tensor):
        numbers = indices.reshape(-1) if len(indices) == 1 else indices.reshape(len(indices), -1)
        if numbers.dim() == 2 and numbers.shape[1] != 1:
            raise RuntimeError(f"permute_batch: argument 'indices' takes one number for each sample, got {numbers.shape[1]}")
        numbers = numbers.reshape(-1)
    else:
        numbers = torch.tensor(list(indices) if isinstance(indices, list | tuple) else [indices], dtype=torch.int64)
        if numbers.dim() != 1:
            raise RuntimeError(f"permute_batch: argument 'indices' takes one number for each sample, got {indices}")
    if len(numbers) not in (1, batch_size) or (isinstance(indices, list | tuple) and len(numbers) != batch_size):
        raise RuntimeError(f"permute_batch: argument 'indices' has {len(numbers)} numbers for {batch_size} samples")
    if not torch.compiler.is_compiling() and batch_size > 0 and bool(((numbers < 0) | (numbers >= batch_size)).any()):
        raise RuntimeError(f"permute_batch: indices must be from 0 to {batch_size - 1}, got {numbers.tolist()}")
    return numbers
