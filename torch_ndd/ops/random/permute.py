# SPDX-License-Identifier: Apache-2.0
"""Permutations of the samples of a batch, and of the channels of a sample."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import Derivation, DeviceLike, PerSample, Random, ShapeArg, T, launch, operator
from ..._core.values.batch import Batch, empty_batch, empty_packed
from ..._core.work.sources import select_sources
from .._channels import channels_of
from .._outputs import like


def _of_a_batch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function of a batch whose size comes from its argument only."""

    @functools.wraps(function)
    def call(*inputs: Any, **keywords: Any) -> Any:
        if not inputs and keywords.get("batch_size") is None:
            raise ValueError(f"{function.__name__}: batch_size must be given")
        return function(*inputs, **keywords)

    return call


@_of_a_batch
@operator()
def batch_permutation(
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    allow_repetitions: bool = False,
    no_fixed_points: bool = False,
    rng: Random = None,
) -> Any:
    """Draw random sample indices: an int32 from 0 to ``batch_size - 1`` for each sample, all permutations equally likely.

    Args:
        batch_size: number of samples; required.
        allow_repetitions: draw each index independently instead.
        no_fixed_points: sample i does not get i; ignored for a batch of one.
        rng: random generator; by default this thread's.

    Raises:
        ValueError: without ``batch_size``.

    >>> sorted(batch_permutation(batch_size=4).torch().tolist())
    [0, 1, 2, 3]
    """
    return empty_batch(batch_size, [], torch.int32, device)  # type: ignore[arg-type]


@operator()
def permute_batch(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    indices: ShapeArg[int | Sequence[int]],
) -> T:
    """Permute samples: ``out[i] = in[indices[i]]``. Samples may be left out or repeated.

    Args:
        input: anything.
        indices: a list with one index per sample, or a Batch of indices; or one index, whose sample is then repeated.

    Raises:
        RuntimeError: an index outside 0 to ``batch_size - 1``, or a number of indices other than the number of samples.

    >>> from torch_ndd import batch
    >>> permute_batch(batch([[1, 2], [3]]), indices=[1, 0]).shape
    [(1,), (2,)]
    """
    samples: Batch = input  # type: ignore[assignment]
    numbers = _numbers(samples.batch_size, indices)
    if samples.ragged_shapes is None:
        out = like(samples)
    else:
        rows = samples.ragged_shapes[numbers.expand(samples.batch_size).to(torch.int64)]
        out = empty_packed(rows, samples.dtype, samples.buffer.device, samples.layout, samples.shared_extents)
    if is_compiling():
        return launch(out, [numbers], mixes=True)
    out.sources = select_sources(samples.sources, numbers.expand(samples.batch_size))
    return launch(out, [numbers], mixes=True, derivation=_derive_permutation(indices))


def _derive_permutation(indices: Any) -> Derivation:
    """Return how to check other numbers, and to find the shapes of the samples that they choose."""

    def compute(samples: Batch, values: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        numbers = _numbers(samples.batch_size, values.get("indices", indices)).clone()  # the program may overwrite its own
        if samples.ragged_shapes is None:
            return [numbers], None
        return [numbers], samples.ragged_shapes[numbers.expand(samples.batch_size).to(torch.int64)]

    return Derivation(compute, 1, frozenset({"indices"} if isinstance(indices, torch.Tensor) else ()), selects=True)


def _numbers(batch_size: int, indices: Any) -> torch.Tensor:
    if isinstance(indices, torch.Tensor):
        numbers, rows = indices.reshape(-1), len(indices)
        if rows > 1 and len(numbers) != rows:
            raise RuntimeError(f"permute_batch: argument 'indices' takes one number for each sample, got {len(numbers) // rows}")
    else:
        numbers = torch.tensor(list(indices) if isinstance(indices, list | tuple) else [indices], dtype=torch.int64)
        if numbers.dim() != 1:
            raise RuntimeError(f"permute_batch: argument 'indices' takes one number for each sample, got {indices}")
    if len(numbers) not in (1, batch_size) or (isinstance(indices, list | tuple) and len(numbers) != batch_size):
        raise RuntimeError(f"permute_batch: argument 'indices' has {len(numbers)} numbers for {batch_size} samples")
    # NumPy, because with cold caches each operator of torch takes 30 to 60 us.
    if not is_compiling() and batch_size > 0 and not (numbers.numpy().min() >= 0 and numbers.numpy().max() < batch_size):
        raise RuntimeError(f"permute_batch: indices must be from 0 to {batch_size - 1}, got {numbers.tolist()}")
    return numbers


@operator(layouts=("HWC", "CHW", "FHWC", "FCHW", "DHWC"))
def permute_channels(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, permutation: PerSample[Sequence[int]]) -> T:
    """Reorder the channels: channel ``c`` of the result is channel ``permutation[c]`` of the input.

    Args:
        input: ``HWC``, ``CHW``, ``FHWC``, ``FCHW`` or ``DHWC``, any type.
        permutation: a number for each channel, per sample. A channel may occur several times.

    Raises:
        ValueError: another number of numbers than channels, or a channel that does not exist.

    >>> permute_channels(torch.tensor([[[1, 2, 3]]], dtype=torch.uint8), permutation=[2, 0, 1]).torch().flatten()
    tensor([3, 1, 2], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    axis = (images.layout or "").index("C")
    # The kernel has a fast loop for pixels of three interleaved channels.
    pixels_of_three = axis == images.ndim - 1 and channels_of(images) == [3]
    return launch(like(images), [permutation, axis, pixels_of_three])
