# SPDX-License-Identifier: Apache-2.0
"""``flip``."""

import torch

from .._operator import DeviceLike, Launch, PerSample, T, operator
from ._outputs import like

_LAYOUTS = ("FDHWC", "FHWC", "DHWC", "HWC", "FCDHW", "FCHW", "CDHW", "CHW")


def _flip_formula(
    input: torch.Tensor, depthwise: torch.Tensor, horizontal: torch.Tensor, vertical: torch.Tensor, layout: str, *, dtype: torch.dtype
) -> torch.Tensor:
    del dtype
    for letter, argument in (("D", depthwise), ("H", vertical), ("W", horizontal)):
        if letter in layout:
            frames = argument.numel() // argument.shape[0]
            wanted = argument.reshape(-1, frames, *(1,) * (input.dim() - 2)).to(input.device) != 0
            input = torch.where(wanted, input.flip(1 + layout.index(letter)), input)
    return input


@operator(layouts=_LAYOUTS, formula=_flip_formula, kernel="Tensor depthwise, Tensor horizontal, Tensor vertical, str layout")
def flip(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    depthwise: PerSample[int] = 0,
    horizontal: PerSample[int] = 1,
    vertical: PerSample[int] = 0,
) -> T:
    """Mirror images, sequences or volumes: ``out[..., x, :] = in[..., width - 1 - x, :]``.

    Args:
        input: ``HWC``, ``CHW``, ``DHWC`` or ``CDHW``, with or without frames ``F`` in front; any type.
        horizontal: whether left and right change places, one per sample or per frame.
        vertical: whether top and bottom do.
        depthwise: whether front and back of a volume do; without effect where there is no depth.

    >>> flip(torch.arange(6).reshape(2, 3, 1), vertical=1).torch().flatten().tolist()
    [5, 4, 3, 2, 1, 0]
    """
    return Launch(like(input), (depthwise, horizontal, vertical, input._layout))  # type: ignore[return-value]
