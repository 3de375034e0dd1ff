# SPDX-License-Identifier: Apache-2.0
"""How many channels images have."""

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from .._batch import Batch


def channels_of(images: Batch, axis: int = -1) -> list[int]:
    """The numbers of channels that the samples have, each number once; none where a compiled graph does not know them."""
    extent = images._extent(axis) if images.ndim else 0
    if extent is not None:
        return [extent]
    return [] if torch.compiler.is_compiling() or images._shapes is None else sorted(set(images._shapes[:, axis].tolist()))


def check_channels(op: str, images: Batch, wanted: int) -> None:
    """RuntimeError where an image has not as many channels as it should; the kernel checks again what is unknown here."""
    for found in channels_of(images):
        if is_other(found, wanted):
            raise RuntimeError(f"{op}: the image must have {wanted} channel{'s'[: wanted > 1]}, got {found}")


def is_other(found: int, *wanted: int) -> bool:
    """Whether a number is none of these. One that is not known before a graph runs is not; the graph checks it where only one is wanted."""
    if not torch.compiler.is_compiling():
        return found not in wanted
    other = all(guard_or_false(found != one) for one in wanted)
    if not other and len(wanted) == 1:
        torch._check(found == wanted[0])
    return other
