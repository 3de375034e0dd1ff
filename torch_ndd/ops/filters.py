# SPDX-License-Identifier: Apache-2.0
"""Convolutions with a window."""

from collections.abc import Sequence
from typing import Any, cast

import torch

from .. import types
from .._batch import Batch
from .._batch import batch as batch
from .._operator import DeviceLike, Launch, PerSample, T, operator
from ._columns import extents_of
from ._outputs import frames_of, like, resized


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
    first, spatial = filtered_axes("gaussian_blur", images)
    _check_elements("gaussian_blur", spatial, sigma=sigma, window_size=window_size)
    _check_dtype("gaussian_blur", images, dtype)
    return Launch(like(images, dtype), [sigma, window_size, first, spatial])  # type: ignore[return-value]


@operator(kernel="Tensor? scale, Tensor? smoothing_size, Tensor window_size, bool normalized_kernel, int first_spatial, int spatial")
def laplacian(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    normalized_kernel: bool = False,
    scale: PerSample[float | Sequence[float]] | None = None,
    smoothing_size: PerSample[int | Sequence[int]] | None = None,
    window_size: PerSample[int | Sequence[int]] = 3,
) -> T:
    """The sum of second derivatives along every axis but frames and channels.

    The derivative along an axis is a convolution with ``[1, -2, 1]``, widened to ``window_size`` by convolving it with ``[1, 2, 1]``, and with the
    binomial window of ``smoothing_size`` along all other axes. Borders are mirrored without repeating the border pixel; sums are made in float32.

    Args:
        input: any layout with one to three axes besides leading ``F`` and ``C`` and a trailing ``C``; without a layout, one to three dimensions,
            all of them filtered.
        window_size: of the derivatives, odd, from 3 to 31: one number or one per axis, outermost first; per sample or per frame.
        smoothing_size: of the smoothing, odd, from 1 (none) to 31, given like ``window_size``; by default each
            derivative is smoothed by windows of its own size.
        scale: factor of each derivative, by default 1, given like ``window_size``.
        normalized_kernel: scale each derivative by ``2 ** (axes + 2 - s)``, where ``s`` is the sum of the sizes of its windows.
        dtype: that of the input (default) or float32; integers are rounded half away from zero and saturated.

    Raises:
        RuntimeError: another layout or dtype, a wrong size or number of elements, ``scale`` together with ``normalized_kernel``.

    >>> laplacian(torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), window_size=5).torch()
    tensor([ 0.,  1.,  0., -2.,  0.,  1.,  0.])
    """
    images: Batch = input  # type: ignore[assignment]
    first, spatial = filtered_axes("laplacian", images)
    _check_elements("laplacian", spatial, scale=scale, smoothing_size=smoothing_size, window_size=window_size)
    _check_dtype("laplacian", images, dtype)
    if normalized_kernel and scale is not None:
        raise RuntimeError("laplacian: scale and normalized_kernel are mutually exclusive")
    return Launch(like(images, dtype), [scale, smoothing_size, window_size, normalized_kernel, first, spatial])  # type: ignore[return-value]


BORDERS = ("reflect_101", "reflect_1001", "clamp", "wrap", "constant")


@operator(kernel="Tensor anchor, int border, bool valid, int first_spatial, int spatial")
def filter(
    data: T,
    filter: Any,
    fill_value: Any = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    anchor: PerSample[int | Sequence[int]] = -1,
    border: str = "reflect_101",
    dtype: torch.dtype | None = None,
    mode: str = "same",
) -> T:
    """Correlate images or volumes with weights: ``out[y, x] = sum of filter[i, j] * in[y + i - anchor_y, x + j - anchor_x]``.

    Sums are made in float32. Weights of 0 take no part, not even with infinite pixels.

    Args:
        data: two or three axes besides leading ``F`` and ``C`` and a trailing ``C``; without a layout two or three dimensions, all of them filtered.
        filter: the weights, any numeric type, with two or three dimensions as the data have; one for all samples, one for each, or one for each
            frame with :func:`per_frame`, which makes so many frames of an image.
        fill_value: the pixels beyond a "constant" border, by default 0: a number for all, for each sample, or for each frame.
        anchor: which of the weights meets the output's own pixel, one number or one per axis; -1 is the middle, ``size // 2``.
        border: pixels beyond the border: "reflect_101" ``(cb|abc|ba)``, "reflect_1001" ``(ba|abc|cb)``, "wrap" ``(bc|abc|ab)``, "clamp"
            ``(aa|abc|cc)`` or "constant".
        mode: "same" keeps the size; "valid" makes those outputs alone whose window lies within the data, ``size - filter + 1``, and has no anchor.
        dtype: that of the data (default) or float32; integers are rounded half away from zero and saturated.

    Raises:
        RuntimeError: another layout or dtype, dimensions that do not fit, an anchor outside the filter, a filter without weights, an unknown border
            or mode, a filter larger than the data in mode "valid".

    >>> filter(torch.tensor([[1.0, 2.0, 4.0]]), [[-1.0, 1.0]]).torch()
    tensor([[-1.,  1.,  2.]])
    """
    images, weights, fill = cast(Batch, data), cast(Batch, filter), cast("Batch | None", fill_value)
    first, spatial = filtered_axes("filter", images, fewest=2)
    _check_elements("filter", spatial, anchor=anchor)
    _check_dtype("filter", images, dtype)
    outer = 1 if (weights._layout or "").startswith("F") else 0
    made = frames_of(images, weights)
    frames = made is not None or (images._layout or "").startswith("F")
    if weights.ndim != spatial + outer:
        raise RuntimeError(f"filter: data with {spatial} spatial dimensions take a filter with as many, got one with {weights.ndim - outer}")
    if fill is not None and fill.ndim > (1 if frames and (fill._layout or "").startswith("F") else 0):
        raise RuntimeError(f"filter: fill_value must be a number, or one for each frame, got an array with {fill.ndim} dimensions")
    if border not in BORDERS:
        raise RuntimeError(f'filter: unknown border "{border}", the known ones are {", ".join(BORDERS)}')
    if mode not in ("same", "valid"):
        raise RuntimeError(f'filter: unknown mode "{mode}", the known ones are same and valid')
    extents = extents_of(images)[first : first + spatial]
    if mode == "valid":
        inner = [extents[a] - extents_of(weights)[outer + a] + 1 for a in range(spatial)]
        extents = [torch.clamp(n, min=0) if isinstance(n, torch.Tensor) else max(0, n) for n in inner]
    out = like(images, dtype) if mode == "same" and made is None else resized(images, range(first, first + spatial), extents, dtype, made)
    return Launch(out, [anchor, BORDERS.index(border), mode == "valid", first, spatial])  # type: ignore[return-value]


def _check_elements(op: str, spatial: int, **arguments: Any) -> None:
    for name, argument in arguments.items():
        elements = argument.shape[-1] if argument is not None and argument.dim() > 1 else 1
        if elements not in (1, spatial):
            raise RuntimeError(f"{op}: {name} must have 1 or {spatial} elements, got {elements}")


def _check_dtype(op: str, images: Batch, dtype: torch.dtype | None) -> None:
    if dtype not in (None, images.dtype, torch.float32):
        raise RuntimeError(f"{op}: dtype must be the input's ({types.dtype_name(images.dtype)}) or float32, got {types.dtype_name(dtype)}")


def filtered_axes(op: str, images: Batch, fewest: int = 1) -> tuple[int, int]:
    """Position of the first filtered dimension and how many there are: every letter but leading F and C and a trailing C.

    >>> filtered_axes("", batch([torch.zeros(2, 3, 4, 3)], layout="FHWC")), filtered_axes("", batch([torch.zeros(2, 3)]))
    ((1, 2), (0, 2))
    """
    layout, ndim = images._layout, images.ndim
    axes, first, last = "?" * ndim, 0, ndim
    if layout is not None:
        first = len(layout) - len(layout.lstrip("FC"))
        last = ndim - (layout.endswith("C") and first < ndim)
        axes = layout[first:last]
    if not fewest <= len(axes) <= 3 or "F" in axes or "C" in axes:
        count = "one" if fewest == 1 else "two"
        raise RuntimeError(
            f"{op}: {count} to three axes besides F and C are needed, channels first or last; "
            f'the input has the layout "{layout or ""}" and {ndim} dimensions'
        )
    return first, len(axes)
