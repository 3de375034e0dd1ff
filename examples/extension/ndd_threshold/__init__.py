# SPDX-License-Identifier: Apache-2.0
"""An operator outside of torch_ndd, with a kernel in C++ and CUDA that is compiled at the first import."""

from pathlib import Path

from torch_ndd import extension
from torch_ndd.extension import DeviceLike, PerSample, T, like, operator

extension.load("threshold", [Path(__file__).with_name("threshold.cu")])


@operator(layouts=("HWC", "FHWC", "CHW", "HW"))
def threshold(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    at: PerSample[float],
    below: PerSample[float] = 0.0,
) -> T:
    """Replace values below a level: ``value if value >= at else below``.

    Args:
        input: images or frames of any numeric type.
        at: the level, one number per sample.
        below: what replaces values below it, one number per sample.

    >>> import torch
    >>> threshold(torch.arange(12.0).reshape(2, 2, 3), at=9.5).torch().flatten().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 11.0]
    """
    return like(input)
