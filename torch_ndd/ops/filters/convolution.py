# SPDX-License-Identifier: Apache-2.0
"""Convolutions."""

from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import torch

from ..._core.operators.operator import DeviceLike, Double, Kept, PerSample, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch
from ..._core.values.batch import batch as batch
from .._borders import Border, border_number
from .._columns import extents_of
from .._outputs import frames_of, like, resized, result_type


@operator()
def gaussian_blur(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    exact: bool = False,
    sigma: PerSample[float | Sequence[float]] = 0.0,
    window_size: PerSample[int | Sequence[int]] = 0,
) -> T:
    """Blur with normalized weights ``exp(-k**2 / (2 sigma**2))`` along every axis except frames and channels.

    Borders are reflected without repeating the border pixel. Intermediate results are not rounded to the input's type.

    Args:
        input: any layout with one to three axes besides leading ``F`` and ``C`` and a trailing ``C``; without a layout, one to three dimensions, all
            of which are blurred.
        sigma: standard deviation in pixels, one number or one per axis, outermost first; per sample or per frame. 0 derives it from the window: ``0.3
            * ((window_size - 1) / 2 - 1) + 0.8``.
        window_size: odd number of weights, given like ``sigma``. 0 derives it from sigma: ``2 * ceil(3 * sigma) + 1``.
        exact: sum uint8 in float32, too: results differ by one level in some of 100,000 values instead of 1 to 2 in 100, in twice the time. A GPU
            always does.
        dtype: that of the input (default) or float32.

    Raises:
        RuntimeError: another layout or dtype, a wrong number of elements, a negative value, an even window, neither sigma nor window size.

    >>> gaussian_blur(torch.tensor([[0.0, 4.0, 0.0]]), window_size=[1, 3], sigma=0.6).torch()
    tensor([[1.3310, 2.6690, 1.3310]])
    """
    images: Batch = input  # type: ignore[assignment]
    first, spatial = filtered_axes("gaussian_blur", images)
    _check_elements("gaussian_blur", spatial, sigma=sigma, window_size=window_size)
    dtype = result_type("gaussian_blur", images.dtype, dtype)
    return launch(like(images, dtype), [sigma, window_size, exact, first, spatial])


@operator()
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
    """Sum the second derivatives along every axis except frames and channels.

    The derivative along an axis is a convolution with ``[1, -2, 1]``, widened to ``window_size`` by convolving it with ``[1, 2, 1]``, and with the
    binomial window of ``smoothing_size`` along all other axes. Borders are reflected without repeating the border pixel; sums are computed in
    float32.

    Args:
        input: any layout with one to three axes besides leading ``F`` and ``C`` and a trailing ``C``; without a layout, one to three dimensions, all
            of which are filtered.
        window_size: window of the derivatives, odd, from 3 to 31: one number or one per axis, outermost first; per sample or per frame.
        smoothing_size: window of the smoothing, odd, from 1 (none) to 31, given like ``window_size``; by default each derivative is smoothed by
            windows of its own size.
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
    dtype = result_type("laplacian", images.dtype, dtype)
    if normalized_kernel and scale is not None:
        raise RuntimeError("laplacian: scale and normalized_kernel are mutually exclusive")
    return launch(like(images, dtype), [scale, smoothing_size, window_size, normalized_kernel, first, spatial])


@operator(layouts=("HW", "HWC", "CHW", "FHW", "FHWC", "FCHW"))
def sharpness(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, sharpness: PerSample[Double]) -> T:
    """Sharpen or smooth images: ``out = sharpness * in + (1 - sharpness) * smooth``.

    ``smooth`` is the mean of 3 x 3 pixels, where the middle one counts five times; the outermost pixels of an image are not smoothed. Values are
    limited to 0 to 1, integers to 0 to the largest value of their type. Means of integers are rounded, fractions of results are cut off. Images of
    one or two rows or columns do not change. The results equal those of torchvision's ``adjust_sharpness``.

    Args:
        input: ``HW``, ``HWC``, ``CHW``, ``FHW``, ``FHWC`` or ``FCHW`` with any number of channels, any numeric type.
        sharpness: 0 returns the smooth image, 1 the input; not negative, one per sample or per frame.

    Raises:
        ValueError: a negative ``sharpness``.

    >>> sharpness(torch.tensor([[10, 10, 10], [10, 75, 10], [10, 10, 10]], dtype=torch.uint8), sharpness=2).torch()
    tensor([[ 10,  10,  10],
            [ 10, 115,  10],
            [ 10,  10,  10]], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    return launch(like(images), [sharpness, (images.layout or "").index("H")])


Mode = Literal["same", "valid"]


@operator()
def filter(
    data: T,
    filter: Kept[Any],
    fill_value: Kept[Any] = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    anchor: PerSample[int | Sequence[int]] = -1,
    border: Border = "reflect_101",
    dtype: torch.dtype | None = None,
    mode: Mode = "same",
) -> T:
    """Correlate images or volumes with weights: ``out[y, x] = sum of filter[i, j] * in[y + i - anchor_y, x + j - anchor_x]``.

    Sums are computed in float32. Weights of 0 are skipped, even for infinite pixels.

    Args:
        data: two or three axes besides leading ``F`` and ``C`` and a trailing ``C``; without a layout two or three dimensions, all of which are
            filtered.
        filter: the weights, any numeric type, with as many dimensions as the filtered axes; one filter for all samples, one per sample, or one per
            frame with :func:`per_frame`, which expands an image to that many frames.
        fill_value: value of pixels beyond a constant border, by default 0: one number, one per sample, or one per frame.
        anchor: the weight applied to the output's own pixel, one number or one per axis; -1 is the middle, ``size // 2``.
        border: pixels beyond the border: "reflect_101", "reflect101" or "101" ``(cb|abc|ba)``, "reflect_1001", "reflect1001", "1001" or "reflect"
            ``(ba|abc|cb)``, "wrap" ``(bc|abc|ab)``, "clamp" or "edge" ``(aa|abc|cc)``, "constant", "pad" or "fill" with ``fill_value``.
        mode: "same" keeps the size; "valid" computes only the outputs whose window lies within the data, ``size - filter + 1``, and has no anchor.
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
    dtype = result_type("filter", images.dtype, dtype)
    outer = 1 if (weights.layout or "").startswith("F") else 0
    frame_count = frames_of(images, weights)
    frames = frame_count is not None or (images.layout or "").startswith("F")
    if weights.ndim != spatial + outer:
        raise RuntimeError(f"filter: data with {spatial} spatial dimensions take a filter with as many, got one with {weights.ndim - outer}")
    if fill is not None and fill.ndim > (1 if frames and (fill.layout or "").startswith("F") else 0):
        raise RuntimeError(f"filter: fill_value must be a number, or one for each frame, got an array with {fill.ndim} dimensions")
    outside = border_number("filter", "border", border)
    check_choice("filter", "mode", mode, get_args(Mode))
    extents = extents_of(images)[first : first + spatial]
    if mode == "valid":
        # The positions at which the filter lies inside of the image; none if it is larger.
        inner = [extents[a] - extents_of(weights)[outer + a] + 1 for a in range(spatial)]
        extents = [torch.clamp(n, min=0) if isinstance(n, torch.Tensor) else max(0, n) for n in inner]
    out = (
        like(images, dtype) if mode == "same" and frame_count is None else resized(images, range(first, first + spatial), extents, dtype, frame_count)
    )
    return launch(out, [anchor, outside, mode == "valid", first, spatial], any_shape=mode == "same" and not frames)


def _check_elements(op: str, spatial: int, **arguments: Any) -> None:
    for name, argument in arguments.items():
        elements = argument.shape[-1] if argument is not None and argument.dim() > 1 else 1
        if elements not in (1, spatial):
            raise RuntimeError(f"{op}: {name} must have 1 or {spatial} elements, got {elements}")


def filtered_axes(op: str, images: Batch, fewest: int = 1) -> tuple[int, int]:
    """Return the first filtered dimension and their number: every letter except leading F and C and a trailing C.

    >>> filtered_axes("", batch([torch.zeros(2, 3, 4, 3)], layout="FHWC")), filtered_axes("", batch([torch.zeros(2, 3)]))
    ((1, 2), (0, 2))
    """
    layout, ndim = images.layout, images.ndim
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
