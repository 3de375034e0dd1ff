# SPDX-License-Identifier: Apache-2.0
"""Noise on images and other data. A call draws seven words from its generator; every sample has its own stream."""

from .._core.operators.operator import DeviceLike, PerSample, Random, T, launch, operator
from .._core.values.batch import Batch
from ._outputs import like


@operator(name="noise.gaussian")
def gaussian(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    mean: PerSample[float] = 0.0,
    stddev: PerSample[float] = 1.0,
    rng: Random = None,
    truncate: bool = False,
) -> T:
    """Add normal noise: ``out = in + mean + stddev * z`` with an independent standard normal z for every element.

    Args:
        input: anything. The result has its type; integers are rounded half away from zero and saturated.
        mean: mean of the noise.
        stddev: standard deviation of the noise.
        rng: random generator; by default this thread's.
        truncate: cut off the fraction of the noise before it is added to integers, as torchvision does.

    >>> import torch
    >>> gaussian(torch.full((2, 2), 100, dtype=torch.uint8), mean=3, stddev=0).torch()
    tensor([[103, 103],
            [103, 103]], dtype=torch.uint8)
    """
    return like(input)


@operator(name="noise.shot")
def shot(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    factor: PerSample[float] = 20.0,
    rng: Random = None,
) -> T:
    """Add shot noise: ``out = factor * Poisson(in / factor)``, where one event, such as a photon, adds ``factor`` to an element.

    The mean of the result is the input, its variance is ``factor * in``. Negative input and NaN count as 0.

    Args:
        input: anything. The result has its type; integers are rounded half away from zero and saturated.
        factor: contribution of one event; 0 keeps the input unchanged.
        rng: random generator; by default this thread's.

    Raises:
        RuntimeError: a negative or infinite factor.

    >>> import torch
    >>> shot(torch.zeros(3), factor=5).torch()
    tensor([0., 0., 0.])
    """
    return like(input)


@operator(name="noise.salt_and_pepper")
def salt_and_pepper(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    pepper_val: PerSample[float] | None = None,
    per_channel: bool = False,
    prob: PerSample[float] = 0.05,
    salt_val: PerSample[float] | None = None,
    salt_vs_pepper: PerSample[float] = 0.5,
    rng: Random = None,
) -> T:
    """Replace some pixels by salt or pepper values.

    Args:
        input: anything. Channels are the dimension C of its layout; without a layout, the last dimension.
        pepper_val: value of pepper, by default -1 for floating-point input and the smallest value of the type for integers. Like ``salt_val``
            it is rounded half away from zero and saturated.
        per_channel: decide per element instead of per pixel.
        prob: probability of replacing a pixel.
        salt_val: value of salt, by default 1 for floating-point input and the largest value of the type for integers.
        salt_vs_pepper: probability of salt for a replaced pixel.
        rng: random generator; by default this thread's.

    Raises:
        RuntimeError: a probability outside 0 to 1.

    >>> import torch
    >>> salt_and_pepper(torch.full((2, 2, 3), 100, dtype=torch.uint8), prob=1, salt_vs_pepper=1).torch().unique()
    tensor([255], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    # -1 means that each element is drawn on its own; without a layout the last axis has the channels.
    axis = (images.ndim - 1 if images.layout is None else images.layout.find("C")) if not per_channel else -1
    return launch(like(images), [prob, salt_vs_pepper, salt_val, pepper_val, axis, rng], only_words=True)
