# SPDX-License-Identifier: Apache-2.0
"""``flip``."""

import torch

from ..._core.operators.definition import Packed
from ..._core.operators.operator import DeviceLike, PerSample, T, launch, operator
from .._formulas import mirror_axis
from .._outputs import like
from ..color import _pixel_chain

_LAYOUTS = ("FDHWC", "FHWC", "DHWC", "HWC", "FCDHW", "FCHW", "CDHW", "CHW")


def _flip_formula(
    input: _pixel_chain.Images,
    depthwise: torch.Tensor | int,
    horizontal: torch.Tensor | int,
    vertical: torch.Tensor | int,
    layout: str,
    *,
    dtype: torch.dtype,
) -> torch.Tensor | None:
    del dtype
    if _pixel_chain.takes_flip(input, layout):
        return _pixel_chain.flip(input, horizontal, vertical)
    if isinstance(input, Packed) or _pixel_chain.is_native(input):
        return None
    for letter, argument in (("D", depthwise), ("H", vertical), ("W", horizontal)):
        if letter in layout:
            wanted = argument
            if isinstance(argument, torch.Tensor):
                wanted = argument.reshape(-1, argument.numel() // argument.shape[0], *(1,) * (input.dim() - 2))
            input = mirror_axis(input, 1 + layout.index(letter), wanted)
    return input


@operator(layouts=_LAYOUTS, formula=_flip_formula, ragged_formula=True)
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
        horizontal: mirror left and right, one value per sample or per frame.
        vertical: mirror top and bottom.
        depthwise: mirror front and back of a volume; ignored for images.

    >>> flip(torch.arange(6).reshape(2, 3, 1), vertical=1).torch().flatten().tolist()
    [5, 4, 3, 2, 1, 0]
    """
    return launch(like(input), (depthwise, horizontal, vertical, input.layout), any_shape=True)
