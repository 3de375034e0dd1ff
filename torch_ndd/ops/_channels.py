# SPDX-License-Identifier: Apache-2.0
"""How many channels images have."""

import torch

from .._batch import Batch


def channels_of(images: Batch, axis: int = -1) -> list[int]:
    """The numbers of channels that the samples have, each number once; none where a compiled graph does not know them."""
    if images._shapes is None:
        return [int(images._values.shape[1:][axis])] if images.ndim else [0]
    return [] if torch.compiler.is_compiling() else sorted(set(images._shapes[:, axis].tolist()))


def check_channels(op: str, images: Batch, wanted: int) -> None:
    """RuntimeError where an image has not as many channels as it should; the kernel checks again what is unknown here."""
    for found in channels_of(images):
        if found != wanted:
            raise RuntimeError(f"{op}: the image must have {wanted} channel{'s'[: wanted > 1]}, got {found}")
