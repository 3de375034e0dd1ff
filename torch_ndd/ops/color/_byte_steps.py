# SPDX-License-Identifier: Apache-2.0
"""Steps that were drawn for each uint8 image of a batch, all in one call of the kernel ``byte_steps`` on the CPU.

One operator call for all images that share a step copies each image for every step and takes 0.1 ms of Python, most of the time of a policy of 14
augmentations. Here an image goes through all of its steps while it is in the second-level cache.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core import native
from ..._core.values.batch import Batch
from ..._core.values.dispatch import run
from ..._core.work.pending import SAME_SAMPLE

_kernel = native.kernel("byte_steps")
KINDS = native.numbers("byte_steps.Kind")
"""The number of each kind of step."""
NUMBERS = 7
"""Numbers of a step: its kind, and its parameter or the six numbers of a matrix from output to input."""


def takes(images: Batch) -> bool:
    """Return whether the kernel takes these images: uint8, HWC or CHW, of one or three channels, on the CPU."""
    if images.dtype != torch.uint8 or images.layout not in ("HWC", "CHW") or images.buffer.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return images.shared_extent((images.layout or "").index("C")) in (1, 3)


def with_steps(images: Batch, steps: torch.Tensor, interp_type: int, fill: Sequence[float] | None) -> Batch:
    """Return the images after their steps.

    The results are those of :func:`warp_affine`, :func:`color_jitter`, :func:`sharpness`, :func:`posterize`, :func:`solarize`, :func:`autocontrast`,
    :func:`equalize` by Pillow's rule, and :func:`invert`.

    Args:
        images: see :func:`takes`.
        steps: float64 (N, steps, NUMBERS).
        interp_type: of warps, a :class:`torch_ndd.types.DALIInterpType`.
        fill: outside of warped images; None is 0 and blends with the border.
    """
    images = images.settle()
    output = images.with_buffer(native.empty(images.buffer.shape, torch.uint8, images.buffer.device), None)
    fills = torch.tensor(fill or [0.0], dtype=torch.float32)
    planar = images.layout == "CHW"
    arguments: tuple[Any, ...] = (
        images.buffer,
        images.ragged_shapes,
        steps,
        fills,
        int(interp_type),
        fill is not None,
        planar,
        output.buffer,
        output.ragged_shapes,
    )
    output.pending = run(_kernel, arguments, [(images, SAME_SAMPLE)], output.buffer)
    return output
