# SPDX-License-Identifier: Apache-2.0
"""Convolutions with a window."""

from collections.abc import Sequence
from typing import Any

import torch

from .. import types
from .._batch import Batch
from .._operator import DeviceLike, Launch, PerSample, T, operator
from ._outputs import like


@operator(kernel="Tensor sigma, Tensor window_size, int first_spatial, int spatial")
def gaussian_blur(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    sigma: PerSample[float | Sequence[float]] = 0.0,
    window_size: PerSample[int | Sequence[int]] = 0,
) -> T:
    """Blur with normalised weights ``exp(-k**2 / (2 sigma**2))`` along every axis but frames and channels.

    Borders are mirrored without repeating the border pixel. Intermediate results are not rounded to the input's type.

    Args:
        input: any layout with one to three axes besides leading ``F`` and ``C`` and a trailing ``C``; without a layout, one to three dimensions,
            all of them blurred.
        sigma: standard deviation in pixels, one number or one per axis, outermost first; per sample or per frame. 0 follows from the window:
            ``0.3 * ((window_size - 1) / 2 - 1) + 0.8``.
        window_size: odd number of weights, given like ``sigma``. 0 follows from it: ``2 * ceil(3 * sigma) + 1``.
        dtype: that of the input (default) or float32.

    Raises:
        RuntimeError: another layout or dtype, a wrong number of elements, a negative value, an even window, neither sigma nor window.

    >>> gaussian_blur(torch.tensor([[0.0, 4.0, 0.0]]), window_size=[1, 3], sigma=0.6).torch()
    tensor([[1.3310, 2.6690, 1.3310]])
    """
    images: Batch = input  # type: ignore[assignment]
    first, spatial = blurred_axes(images._layout, images.ndim)
    given: dict[str, Any] = {"sigma": sigma, "window_size": window_size}
    for name, argument in given.items():
        elements = argument.shape[-1] if argument.dim() > 1 else 1
        if elements not in (1, spatial):
            raise RuntimeError(f"gaussian_blur: {name} must have 1 or {spatial} elements, got {elements}")
    if dtype not in (None, images.dtype, torch.float32):
        raise RuntimeError(f"gaussian_blur: dtype must be the input's ({types.dtype_name(images.dtype)}) or float32, got {types.dtype_name(dtype)}")
    return Launch(like(images, dtype), [sigma, window_size, first, spatial])  # type: ignore[return-value]


def blurred_axes(layout: str | None, ndim: int) -> tuple[int, int]:
    """Position of the first blurred dimension and how many there are: every letter but leading F and C and a trailing C.

    >>> blurred_axes("FHWC", 4), blurred_axes("CDHW", 4), blurred_axes(None, 2)
    ((1, 2), (1, 3), (0, 2))
    """
    axes, first, last = "?" * ndim, 0, ndim
    if layout is not None:
        first = len(layout) - len(layout.lstrip("FC"))
        last = ndim - (layout.endswith("C") and first < ndim)
        axes = layout[first:last]
    if not 1 <= len(axes) <= 3 or "F" in axes or "C" in axes:
        raise RuntimeError(
            f'gaussian_blur: one to three axes besides F and C are needed, channels first or last; the input has the layout "{layout or ""}" '
            f"and {ndim} dimensions"
        )
    return first, len(axes)
