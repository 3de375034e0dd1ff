# SPDX-License-Identifier: Apache-2.0
"""Resampling of pictures, sequences and volumes."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import types
from .._batch import Batch, new_batch
from .._operator import DeviceLike, Hint, Launch, Random, ShapeArg, T, operator
from .._random_crop import DEFAULT_AREA, DEFAULT_ASPECT_RATIO, Range, random_crop_windows
from ._outputs import resized
from ._resize_plan import plan_resize, spatial_axes

LAYOUTS = ("HWC", "FHWC", "CHW", "FCHW", "CFHW", "DHWC", "FDHWC", "CDHW", "FCDHW", "CFDHW")
_ARRAYS = (np.ndarray, np.generic)
_KERNEL = "Tensor? roi, Tensor min_filter, Tensor mag_filter, bool antialias, int first_spatial, int spatial"


@operator(layouts=LAYOUTS, kernel=_KERNEL)
def resize(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    antialias: bool = True,
    dtype: torch.dtype | None = None,
    image_type: Hint[types.DALIImageType | None] = None,
    interp_type: ShapeArg[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: ShapeArg[types.DALIInterpType] | None = None,
    max_size: float | Sequence[float] | None = None,
    min_filter: ShapeArg[types.DALIInterpType] | None = None,
    minibatch_size: Hint[int] = 32,
    mode: str | None = None,
    resize_longer: ShapeArg[float] | None = None,
    resize_shorter: ShapeArg[float] | None = None,
    resize_x: ShapeArg[float] | None = None,
    resize_y: ShapeArg[float] | None = None,
    resize_z: ShapeArg[float] | None = None,
    roi_end: ShapeArg[Sequence[float]] | None = None,
    roi_relative: bool = False,
    roi_start: ShapeArg[Sequence[float]] | None = None,
    save_attrs: bool = False,
    size: ShapeArg[Sequence[float]] | None = None,
    subpixel_scale: bool = True,
    temp_buffer_hint: Hint[int] = 0,
) -> T:
    """Resize images, sequences of images or volumes.

    ``out[o] = sum(weight[o, k] * in[k])`` along each spatial axis; pixel i covers [i, i + 1), borders are repeated, intermediate results are
    not rounded. A size of 0 (missing) follows from the others by ``mode``: "default" takes their mean scale, "stretch" leaves the extent,
    "not_larger" and "not_smaller" keep the aspect ratio within or around the given size. A negative size mirrors.

    Args:
        input: ``HWC``, ``CHW``, ``DHWC`` or ``CDHW``, with frames ``F`` in front or behind the channels.
        size: extents of the output, depth first, without channels and frames; a number for all axes.
        resize_x, resize_y, resize_z: the same, one by one.
        resize_shorter, resize_longer: extent of the shortest or longest axis, the aspect ratio kept.
        max_size: limit of the output's extents.
        mode: how missing sizes follow from given ones: "default", "stretch", "not_larger" or "not_smaller".
        roi_start, roi_end: source region in pixels (of 0 to 1 where ``roi_relative``); mirrored where the start lies behind the end.
        subpixel_scale: where the size must be rounded, take so much more or less of the source that the scale stays as asked.
        interp_type, min_filter, mag_filter: kernel, for both directions, for reduction (widened when ``antialias``), for enlargement.
        dtype: that of the input (default) or float32.
        save_attrs: also return the input's spatial extents, int32.
        image_type, minibatch_size, temp_buffer_hint: without effect.

    Raises:
        RuntimeError: no size or several ways to give it, a wrong number of elements, an unknown mode or kernel, another dtype.
        ValueError: a layout that is not among the above, a size that is not finite.

    >>> resize(torch.zeros(480, 640, 3), resize_shorter=256).shape
    (256, 341, 3)
    """
    images: Batch = input  # type: ignore[assignment]
    first, axes = spatial_axes(images._layout or "")
    extents = _extents(images, first, axes)
    if isinstance(max_size, torch.Tensor | np.ndarray | np.generic):
        max_size = max_size.tolist()
    plan = plan_resize(
        "resize",
        extents,
        size=size,
        resize_x=resize_x,
        resize_y=resize_y,
        resize_z=resize_z,
        resize_shorter=resize_shorter,
        resize_longer=resize_longer,
        mode=mode,
        max_size=max_size,
        roi_start=roi_start,
        roi_end=roi_end,
        roi_relative=roi_relative,
        subpixel_scale=subpixel_scale,
    )
    out = resized(images, range(first, first + axes), plan.extents, _result_type("resize", images.dtype, dtype))
    rows = images.batch_size
    filters = _filters("resize", interp_type, min_filter, mag_filter)
    also = (_attributes(images, extents),) if save_attrs else ()
    return Launch(out, [plan.roi(rows), *filters, bool(antialias), first, axes], also)  # type: ignore[return-value]


@operator(layouts=LAYOUTS[:5], kernel=_KERNEL)
def random_resized_crop(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    antialias: bool = True,
    dtype: torch.dtype | None = None,
    interp_type: ShapeArg[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: ShapeArg[types.DALIInterpType] | None = None,
    min_filter: ShapeArg[types.DALIInterpType] | None = None,
    minibatch_size: Hint[int] = 32,
    num_attempts: int = 10,
    random_area: Range = DEFAULT_AREA,
    random_aspect_ratio: Range = DEFAULT_ASPECT_RATIO,
    size: int | Sequence[int],
    temp_buffer_hint: Hint[int] = 0,
    rng: Random = None,
) -> T:
    """Cut a random window out of every image and resize it; all frames of a sequence have the same window.

    Args:
        input: ``HWC``, ``CHW``, ``FHWC``, ``FCHW`` or ``CFHW``.
        size: height and width of the output, or one number for both.
        random_area: smallest and largest area of the window, relative to the image's; uniform.
        random_aspect_ratio: smallest and largest width / height of the window; uniform on a logarithmic scale.
        num_attempts: how many windows to try before taking the largest one that the ranges allow.
        interp_type, min_filter, mag_filter, antialias: as in :func:`resize`.
        dtype: that of the input (default) or float32.
        minibatch_size, temp_buffer_hint: without effect.

    Raises:
        RuntimeError: an empty range, a wrong number of elements, a negative size, an unknown kernel, another dtype, an image without pixels.
        ValueError: a layout that is not among the above, an area or ratio that is not positive, no attempts.

    >>> random_resized_crop(torch.zeros(480, 640, 3), size=224).shape
    (224, 224, 3)
    """
    images: Batch = input  # type: ignore[assignment]
    first, _ = spatial_axes(images._layout or "")
    extents = _extents(images, first, 2)
    height, width = _height_and_width("random_resized_crop", size)
    compiling = torch.compiler.is_compiling()
    if images._shapes is None:
        shapes = torch.tensor([extents], dtype=torch.int64).expand(images.batch_size, 2)
        empty = not compiling and 0 in extents
    else:
        shapes = images._shapes[:, first : first + 2]
        empty = not compiling and not bool(shapes.all())
    if empty:
        raise RuntimeError("random_resized_crop: there is an image without pixels")
    words: Any = rng
    windows = random_crop_windows(shapes, words, random_area, random_aspect_ratio, num_attempts, op="random_resized_crop").to(torch.float32)
    windows[:, 2:] += windows[:, :2]  # starts, then ends
    out = resized(images, (first, first + 1), (height, width), _result_type("random_resized_crop", images.dtype, dtype))
    filters = _filters("random_resized_crop", interp_type, min_filter, mag_filter)
    return Launch(out, [windows, *filters, bool(antialias), first, 2])  # type: ignore[return-value]


def _extents(images: Batch, first: int, axes: int) -> list[Any]:
    """The spatial extents: numbers, or int64 (N,) with one for each sample."""
    if images._shapes is None:
        return list(images._values.shape[1 + first : 1 + first + axes])
    return list(images._shapes[:, first : first + axes].unbind(1))


def _result_type(op: str, given: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    if wanted is None or wanted == given or wanted == torch.float32:
        return wanted or given
    raise RuntimeError(f"{op}: dtype must be the input's ({types.dtype_name(given)}) or float32, got {types.dtype_name(wanted)}")


def _attributes(images: Batch, extents: Sequence[Any]) -> Batch:
    if images._shapes is None:
        values = torch.tensor([extents], dtype=torch.int32).repeat(images.batch_size, 1)
    else:
        values = torch.stack(tuple(extents), 1).to(torch.int32)
    return new_batch(values.to(images._values.device))


def _filters(op: str, interp_type: Any, min_filter: Any, mag_filter: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernels for reduction and enlargement, as int32 rows."""
    reduce = ("interp_type", interp_type) if min_filter is None else ("min_filter", min_filter)
    enlarge = ("interp_type", interp_type) if mag_filter is None else ("mag_filter", mag_filter)
    return _filter_rows(op, *reduce), _filter_rows(op, *enlarge)


def _filter_rows(op: str, argument: str, given: Any) -> torch.Tensor:
    if not isinstance(given, torch.Tensor):
        return (_filter_constant if torch.compiler.is_compiling() else _cached_filter)(op, argument, int(given))
    if not torch.compiler.is_compiling():
        known = given.to(torch.float64)
        wrong = given[~((known >= 0) & (known <= 5))]
        if len(wrong):
            raise _unknown_filter(op, argument, wrong.flatten()[0].item())
    return given


def _filter_constant(op: str, argument: str, given: int) -> torch.Tensor:
    if not 0 <= given <= 5:
        raise _unknown_filter(op, argument, given)
    return torch.tensor([given], dtype=torch.int32)


_cached_filter = functools.cache(_filter_constant)


def _unknown_filter(op: str, argument: str, given: object) -> RuntimeError:
    return RuntimeError(f"{op}: {argument} is not one of the interpolation types 0 to 5: {given}")


def _height_and_width(op: str, size: Any) -> tuple[int, int]:
    given = size.tolist() if isinstance(size, _ARRAYS) else size
    numbers = list(given) if isinstance(given, list | tuple) else [given]
    for n in numbers:
        if isinstance(n, str):
            raise ValueError(f"{op}: size must be a number or two, got {size!r}")
        if not isinstance(n, int | float) or n != n // 1:
            raise TypeError(f"{op}: size must be a whole number or two, got {size!r}")
    if not 1 <= len(numbers) <= 2:
        raise RuntimeError(f"{op}: size must be a number or two, got {len(numbers)}")
    if min(numbers) < 0:
        raise RuntimeError(f"{op}: size must not be negative, got {size}")
    if max(numbers) >= 2**31:
        raise ValueError(f"{op}: size must be less than 2**31, got {size}")
    return int(numbers[0]), int(numbers[-1])
