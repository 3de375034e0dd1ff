# SPDX-License-Identifier: Apache-2.0
"""Steps that were drawn for each uint8 image of a batch, all in one call of the kernel ``byte_steps``.

One operator call for all images that share a step copies each image for every step and takes 0.1 ms of Python, most of the time of a policy of 14
augmentations. Here an image goes through all of its steps while it is in the second-level cache; on a GPU, step k of all images takes up to three
launches.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.values.batch import Batch
from ..._core.values.dispatch import output as allocate_output
from ..._core.values.dispatch import run
from ..._core.work.pending import SAME_SAMPLE
from ...types import INTERP_CUBIC
from .._borders import BORDERS

_kernel = native.kernel("byte_steps")
KINDS = native.numbers("byte_steps.Kind")
"""The number of each kind of step."""
NUMBERS = 10
"""Numbers of a step: its kind, and its parameter, the six numbers of a matrix from output to input, or the nine weights of a filter."""


_MAX_GPU_CHANNELS = 16
"""Their histograms fill the shared memory of a block."""


def takes(images: Batch, interp_type: int) -> bool:
    """Return whether the kernel takes these images with this interpolation of warps: uint8, HWC, FHWC or CHW; on a GPU not cubic interpolation."""
    if images.dtype != torch.uint8 or images.layout not in ("HWC", "FHWC", "CHW") or is_compiling():
        return False
    channels, on_cpu = images.shared_extent(images.layout.index("C")) or 0, images.buffer.device.type == "cpu"
    return channels > 0 and (on_cpu or (channels <= _MAX_GPU_CHANNELS and interp_type != INTERP_CUBIC))


def can_filter(images: Batch) -> bool:
    """Return whether the kernel takes steps of the kind ``filter`` where the images are: not on a GPU."""
    return images.buffer.device.type == "cpu"


def with_steps(
    images: Batch,
    steps: torch.Tensor,
    interp_type: int,
    fill: Sequence[float] = (0.0,),
    border: Literal["constant", "replicate"] = "constant",
    fade: bool = False,
) -> Batch:
    """Return the images after their steps.

    The results are those of :func:`warp_affine`, :func:`color_jitter`, :func:`sharpness`, :func:`posterize`, :func:`solarize`, :func:`autocontrast`,
    :func:`equalize`, :func:`invert` and :func:`filter`, and of the augmentations of ``augment/_augmentations.py``.

    Args:
        images: see :func:`takes`.
        steps: float64 (N, steps, NUMBERS).
        interp_type: of warps, a :class:`torch_ndd.types.DALIInterpType`.
        fill: outside of warped images with a constant border, one number or one per channel.
        border: of warped images.
        fade: mix the fill value with the pixels at the border as in :func:`warp_affine`.
    """
    images = images.settle()
    output = images.with_buffer(allocate_output(native.empty, images.buffer.shape, torch.uint8, images.buffer.device), None)
    arguments: tuple[Any, ...] = (
        images.buffer,
        images.ragged_shapes,
        steps,
        torch.tensor(fill, dtype=torch.float32),
        int(interp_type),
        BORDERS[border],
        fade,
        images.layout == "CHW",
        output.buffer,
        output.ragged_shapes,
    )
    output.pending = run(_kernel, arguments, [(images, SAME_SAMPLE)], output.buffer)
    return output
