# SPDX-License-Identifier: Apache-2.0
"""A blend of each image with another one of its batch in one pass, on the CPU: with arithmetic, mixup copies all partners first."""

import torch

from ..._core import native
from ..._core.values.batch import Batch, new_batch
from ..._core.values.dispatch import run
from ..._core.work.pending import ALL_SAMPLES, SAME_SAMPLE

_kernel = native.kernel("blend_batch", writes=(-1,))


def takes(images: Batch) -> bool:
    """Return whether the kernel takes these images: uint8 or float32 of equal shapes, on the CPU."""
    values = images.buffer
    dense = images.ragged_shapes is None and values.dtype in (torch.uint8, torch.float32) and values.device.type == "cpu" and values.is_contiguous()
    return dense and not torch.compiler.is_compiling()


def blend_batch(images: Batch, others: Batch, order: torch.Tensor, shares: torch.Tensor) -> Batch:
    """Return ``images[i] * shares[i, 0] + others[order[i]] * shares[i, 1]``, float32.

    Args:
        images, others: see :func:`takes`; of the same shape.
        order: int64 (N,).
        shares: float32 (N, 2).
    """
    out = native.empty(images.buffer.shape, torch.float32, images.buffer.device)
    arguments = (images.buffer, others.buffer, order, shares, out)
    return new_batch(out, None, images.layout, run(_kernel, arguments, [(images, SAME_SAMPLE), (others, ALL_SAMPLES)], out))
