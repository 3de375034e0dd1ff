# SPDX-License-Identifier: Apache-2.0
"""Checks of the number of channels."""

import torch

from .._core.native.tracing import is_compiling
from .._core.values.batch import Batch
from ._columns import in_sample


def channels_of(images: Batch, axis: int = -1) -> list[int]:
    """Return the distinct numbers of channels of the samples; none if a compiled graph does not know them."""
    extent = images.shared_extent(axis) if images.ndim else 0
    if extent is not None:
        return [extent]
    return [] if is_compiling() or images.ragged_shapes is None else sorted(set(images.ragged_shapes[:, axis].tolist()))


def check_channels(op: str, images: Batch, wanted: int) -> None:
    """Raise RuntimeError for an image with another number of channels; the kernel checks what is unknown here."""
    for found in channels_of(images):
        if is_other(found, wanted):
            where = "" if images.ragged_shapes is None or is_compiling() else in_sample(images.ragged_shapes[:, -1] != found)
            raise RuntimeError(f"{op}: {where}the image must have {wanted} channel{'s'[: wanted > 1]}, got {found}")


def is_other(found: int, *wanted: int) -> bool:
    """Return whether a number is none of these. An unknown number in a graph is not; the graph checks it if only one is allowed."""
    if not is_compiling():
        return found not in wanted
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # imports sympy, 0.7 s

    # guard_or_false: only what the graph knows may count as another number; asking for more would fix the size in the graph.
    other = all(guard_or_false(found != count) for count in wanted)
    if not other and len(wanted) == 1:
        torch._check(found == wanted[0])
    return other
