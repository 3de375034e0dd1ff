# SPDX-License-Identifier: Apache-2.0
"""Overwrite a window of each image in place, on the CPU: :func:`erase` would copy all images, although random erasing changes only some."""

from collections.abc import Sequence

import torch

from ..._core import native
from ..._core.context.rng import WORDS_PER_CALL, get_default_rng
from ..._core.native.tracing import is_compiling
from ..._core.values.batch import Batch
from ..._core.values.dispatch import run
from ..._core.work.pending import SAME_SAMPLE

_kernel, _noise = native.kernel("fill_windows", writes=(0,)), native.kernel("noise_windows", writes=(0,))


def takes(images: Batch) -> bool:
    """Return whether the kernel takes these images: HWC or CHW, on the CPU."""
    return images.layout in ("HWC", "CHW") and images.buffer.device.type == "cpu" and not is_compiling()


def fill_windows(images: Batch, windows: torch.Tensor, values: Sequence[float]) -> None:
    """Overwrite a window of each image with a value, or with one for each channel.

    Args:
        images: see :func:`takes`. Their memory must be unaliased: it is modified in place.
        windows: int64 (N, 4): top, left, height, width; without area where an image stays as it is.
        values: one number, or one for each channel.
    """
    arguments = (images.buffer, images.ragged_shapes, windows, torch.tensor(values, dtype=torch.float32), images.layout == "CHW")
    images.pending = run(_kernel, arguments, [(images, SAME_SAMPLE)], images.buffer)


def noise_windows(images: Batch, windows: torch.Tensor) -> None:
    """Overwrite a window of each image with numbers of :func:`torch_ndd.random.normal`, drawn window by window.

    Args:
        images: float32; as for :func:`fill_windows`.
        windows: as for :func:`fill_windows`.
    """
    count = windows[:, 2] * windows[:, 3] * (images.shared_extent((images.layout or "").index("C")) or 1)
    # Windows have consecutive parts of one sequence of numbers.
    rows = torch.cat([windows, (count.cumsum(0) - count)[:, None]], 1)
    arguments = (images.buffer, images.ragged_shapes, rows, get_default_rng().draw(WORDS_PER_CALL), images.layout == "CHW")
    images.pending = run(_noise, arguments, [(images, SAME_SAMPLE)], images.buffer)
