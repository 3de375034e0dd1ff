# SPDX-License-Identifier: Apache-2.0
"""Resampling of images, sequences, volumes and other samples."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from ... import types
from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.operators.definition import Launch
from ..._core.operators.operator import Derivation, DeviceLike, Hint, PerSample, Random, ShapeArg, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, empty_batch, new_batch
from .._columns import as_hashable, choose, extent_of, extents_of, rows
from .._outputs import check_per_channel, columns_of, permute_layout, resized, result_type
from ..reductions import reduced_axes as reduced_axes
from ._axis_numbers import AxisNumbers
from ._crop_window import CropArguments, CropWindow, Rounding, pack_windows, window_in
from ._random_crop import DEFAULT_AREA, DEFAULT_ASPECT_RATIO, Range, check_ranges, draw_windows
from ._resize_plan import Mode, ResizePlan, SizeRounding, filters_of, plan_resize, spatial_axes, swap
from ._windows import ROUNDINGS

LAYOUTS = ("HWC", "FHWC", "CHW", "FCHW", "CFHW", "DHWC", "FDHWC", "CDHW", "FCDHW", "CFDHW")
Rule = Literal["dali", "torch", "pillow", "pillow_12"]
_RULES = native.numbers("resize.Rule")
_ARRAYS = (np.ndarray, np.generic)


@operator(layouts=LAYOUTS)
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
    mode: Mode | None = None,
    resize_longer: ShapeArg[float] | None = None,
    resize_shorter: ShapeArg[float] | None = None,
    resize_x: ShapeArg[float] | None = None,
    resize_y: ShapeArg[float] | None = None,
    resize_z: ShapeArg[float] | None = None,
    roi_end: ShapeArg[Sequence[float]] | None = None,
    roi_relative: bool = False,
    roi_start: ShapeArg[Sequence[float]] | None = None,
    rule: Rule = "dali",
    save_attrs: bool = False,
    size: ShapeArg[Sequence[float]] | None = None,
    size_rounding: SizeRounding = "round",
    subpixel_scale: bool = True,
    temp_buffer_hint: Hint[int] = 0,
) -> T:
    """Resize images, sequences of images or volumes.

    ``out[o] = sum(weight[o, k] * in[k])`` along each spatial axis; pixel i covers [i, i + 1), borders are repeated, intermediate results are not
    rounded. A size of 0 (missing) is derived from the others by ``mode``: "default" uses their mean scale, "stretch" keeps the extent, "not_larger"
    and "not_smaller" keep the aspect ratio within or around the given size. A negative size mirrors.

    Args:
        input: ``HWC``, ``CHW``, ``DHWC`` or ``CDHW``, with frames ``F`` before or after the channels.
        size: extents of the output, depth first, without channels and frames; or one number for all axes.
        resize_x, resize_y, resize_z: the extents separately.
        resize_shorter, resize_longer: extent of the shortest or longest axis, keeping the aspect ratio.
        max_size: limit of the output's extents.
        mode: how to derive missing sizes: "default", "stretch", "not_larger" or "not_smaller".
        roi_start, roi_end: source region in pixels (from 0 to 1 with ``roi_relative``); mirrored if the start is after the end.
        size_rounding: rounding of the extents: "round" (half up), "truncate" or "ceil"; they are at least 1.
        subpixel_scale: adjust the source region when the size is rounded, so the scale stays exact.
        interp_type, min_filter, mag_filter: kernel for both directions, for reduction (widened with ``antialias``), for enlargement.
        rule: ``"dali"``, as above; or ``"torch"``, the arithmetic of ``torch.nn.functional.interpolate`` and torchvision: weights outside the source
            region, which is whole pixels, are left out and the rest is normalized; uint8 is rounded after the width and again after the height; the
            cubic has a slope of -0.5 with ``antialias`` and of -0.75 without; ``INTERP_NN`` takes ``in[floor(o * scale)]``.
            Or ``"pillow"``: the same with the weights of Pillow's ``Image.resize``, of 22 bits for uint8 instead of 15; always with ``antialias``;
            the height first where it loses more than twice as many pixels as the width; ``INTERP_NN`` takes the pixel in the middle. Versions of
            Pillow before 13, ``"pillow_12"``, always begin with the width.
        dtype: type of the result: that of the input (default) or float32.
        save_attrs: also return the input's spatial extents, int32.
        image_type, minibatch_size, temp_buffer_hint: ignored.

    Raises:
        RuntimeError: no size or several forms of it, a wrong number of elements, an unknown mode, rounding or kernel, another dtype.
        ValueError: a layout other than the above, a size that is not finite, another ``rule``.

    >>> resize(torch.zeros(480, 640, 3), resize_shorter=256).shape
    (256, 341, 3)
    """
    sizes = {"size": size, "resize_x": resize_x, "resize_y": resize_y, "resize_z": resize_z}
    sizes |= {"resize_shorter": resize_shorter, "resize_longer": resize_longer, "max_size": max_size, "mode": mode}
    sizes |= {"roi_start": roi_start, "roi_end": roi_end, "roi_relative": roi_relative, "subpixel_scale": subpixel_scale}
    sizes["size_rounding"] = size_rounding
    return _launch_resize("resize", input, sizes, (interp_type, min_filter, mag_filter), antialias, rule, dtype, save_attrs)  # type: ignore[return-value]


@operator(layouts=LAYOUTS)
def resize_crop_mirror(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    antialias: bool = True,
    crop: ShapeArg[Sequence[float]] | None = None,
    crop_d: ShapeArg[float] | None = None,
    crop_h: ShapeArg[float] | None = None,
    crop_pos_x: ShapeArg[float] = 0.5,
    crop_pos_y: ShapeArg[float] = 0.5,
    crop_pos_z: ShapeArg[float] = 0.5,
    crop_w: ShapeArg[float] | None = None,
    dtype: torch.dtype | None = None,
    interp_type: ShapeArg[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: ShapeArg[types.DALIInterpType] | None = None,
    max_size: float | Sequence[float] | None = None,
    mean: PerSample[Sequence[float]] | None = None,
    min_filter: ShapeArg[types.DALIInterpType] | None = None,
    minibatch_size: Hint[int] = 32,
    mirror: ShapeArg[int] = 0,
    mode: Mode | None = None,
    output_layout: str | None = None,
    resize_longer: ShapeArg[float] | None = None,
    resize_shorter: ShapeArg[float] | None = None,
    resize_x: ShapeArg[float] | None = None,
    resize_y: ShapeArg[float] | None = None,
    resize_z: ShapeArg[float] | None = None,
    roi_end: ShapeArg[Sequence[float]] | None = None,
    roi_relative: bool = False,
    roi_start: ShapeArg[Sequence[float]] | None = None,
    rounding: Rounding = "round",
    rule: Rule = "dali",
    size: ShapeArg[Sequence[float]] | None = None,
    std: PerSample[Sequence[float]] | None = None,
    subpixel_scale: bool = True,
    temp_buffer_hint: Hint[int] = 0,
) -> T:
    """Resize, crop and mirror in one pass: only the window is computed. With a mean, a deviation or a layout, normalize it too.

    The result is that of :func:`torch_ndd.resize`, :func:`torch_ndd.crop` and :func:`torch_ndd.flip` in this order. If ``mean``, ``std`` or
    ``output_layout`` is given, :func:`torch_ndd.crop_mirror_normalize` follows with these arguments: ``out = (resized - mean) / std``, where
    ``resized`` is rounded to the type of the input.

    Args:
        input: ``HWC``, ``CHW``, ``DHWC`` or ``CDHW``, with frames ``F`` before or after the channels.
        size, resize_x, resize_y, resize_z, resize_shorter, resize_longer: as in :func:`torch_ndd.resize`.
        max_size, mode, roi_start, roi_end, roi_relative, subpixel_scale: as in :func:`torch_ndd.resize`.
        interp_type, min_filter, mag_filter, antialias: as in :func:`torch_ndd.resize`.
        dtype: as in :func:`torch_ndd.resize`; of a normalized result any type, by default float32.
        crop: height and width of the window, or depth, height and width, in pixels of the resized image; 0 means the whole axis. A window larger than
            the image repeats border pixels.
        crop_d, crop_h, crop_w: the sizes separately.
        crop_pos_x, crop_pos_y, crop_pos_z: relative position of the window, from 0 (first pixels) to 1 (last pixels).
        rounding: rounding of the window's start: "round" (half away from zero), "truncate" or "half_to_even" (torchvision's).
        rule: as in :func:`torch_ndd.resize`.
        mirror: sum of 1 for left and right, 2 for top and bottom, 4 for front and back.
        mean, std, output_layout: as in :func:`torch_ndd.crop_mirror_normalize`.
        minibatch_size, temp_buffer_hint: ignored.

    Raises:
        RuntimeError: the errors of ``resize``, ``crop`` and ``crop_mirror_normalize``.
        ValueError: a layout other than the above, a size that is not finite, another ``rule``.

    >>> resize_crop_mirror(torch.zeros(480, 640, 3), resize_shorter=256, crop=[224, 224], mirror=1).shape
    (224, 224, 3)
    >>> resize_crop_mirror(torch.full((4, 6, 3), 9), size=[2, 3], mean=[1, 2, 3], std=2).torch()[:, 0, 0]
    tensor([4.0000, 3.5000, 3.0000])
    """
    op = "resize_crop_mirror"
    images: Batch = input  # type: ignore[assignment]
    first, axes = spatial_axes(images.layout or "")
    extents = _extents(images, first, axes)
    sizes: dict[str, Any] = {"size": size, "resize_x": resize_x, "resize_y": resize_y, "resize_z": resize_z}
    sizes |= {"resize_shorter": resize_shorter, "resize_longer": resize_longer, "max_size": _plain_numbers(max_size), "mode": mode}
    sizes |= {"roi_start": roi_start, "roi_end": roi_end, "roi_relative": roi_relative, "subpixel_scale": subpixel_scale}
    plan = plan_resize(op, extents, **sizes)
    window = CropArguments(as_hashable(crop), crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y, crop_pos_z, rounding, "pad")
    number, filters = _rule(op, rule), (interp_type, min_filter, mag_filter)
    mirrored, part = _window_plan(op, plan, window, mirror, number)
    normalization = _normalization(op, images, mean, std, output_layout)
    dimensions = range(first, first + axes)
    launch = _launch_plan(op, images, mirrored, dimensions, filters, antialias, dtype, (), number, part, (None, *normalization))
    # What follows from numbers for each sample, or from the shapes of a ragged batch, is derived again in repeated calls.
    differs = images.ragged_shapes is not None or any(isinstance(value, torch.Tensor) for value in (*sizes.values(), *window, mirror))
    if is_compiling() or not differs or any(isinstance(kernel, torch.Tensor) for kernel in filters):
        return launch  # type: ignore[return-value]
    is_fixed = _has_fixed_shape(images, dimensions, mirrored.extents)
    if mirrored.whole:
        launch.any_shape = is_fixed
    elif is_fixed or not normalization[-1]:  # the shapes of windows that differ have the axes of the input
        launch.derivation = _derive_windows(plan, first, window, mirror, number, is_fixed)
    return launch  # type: ignore[return-value]


@operator()
def tensor_resize(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    alignment: ShapeArg[Sequence[float]] = 0.5,
    antialias: bool = True,
    axes: Any = None,
    axis_names: Any = None,
    dtype: torch.dtype | None = None,
    interp_type: ShapeArg[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: ShapeArg[types.DALIInterpType] | None = None,
    max_size: float | Sequence[float] | None = None,
    min_filter: ShapeArg[types.DALIInterpType] | None = None,
    minibatch_size: Hint[int] = 32,
    mode: Mode | None = None,
    roi_end: ShapeArg[Sequence[float]] | None = None,
    roi_relative: bool = False,
    roi_start: ShapeArg[Sequence[float]] | None = None,
    scales: ShapeArg[Sequence[float]] | None = None,
    size_rounding: SizeRounding = "round",
    sizes: ShapeArg[Sequence[float]] | None = None,
    subpixel_scale: bool = True,
    temp_buffer_hint: Hint[int] = 0,
) -> T:
    """Resample any dimensions of any samples.

    Each axis is resampled as in :func:`torch_ndd.resize`. At most three axes may change, or two with others in between.

    Args:
        input: any number of dimensions and numeric type.
        axes: the axes of the other arguments, in their order; negative axes count from the end. By default all.
        axis_names: the axes as letters of the layout.
        sizes: extents of the output, one per axis or one for all; 0 is derived from the others by ``mode``, a negative one mirrors.
        scales: output extents as multiples of the input's (also with a region), one per axis or one for all.
        size_rounding: rounding of the extents: "round", "truncate" or "ceil"; they are at least 1.
        alignment: point of the source that keeps its place when the extent is rounded, from 0, the start, to 1, the end.
        mode, max_size, roi_start, roi_end, roi_relative, subpixel_scale, interp_type, min_filter, mag_filter, antialias, dtype: as in
            :func:`torch_ndd.resize`.
        minibatch_size, temp_buffer_hint: ignored.

    Raises:
        RuntimeError: neither sizes nor scales or both, a wrong number of elements, an unknown mode, rounding or kernel, another dtype, a letter that
            is not in the layout, ``axes`` and ``axis_names`` together.
        IndexError: an axis out of range.
        ValueError: a repeated axis, too many axes, a size that is not finite.

    >>> tensor_resize(torch.tensor([0.0, 1.0]), scales=[2]).torch()
    tensor([0.0000, 0.2500, 0.7500, 1.0000])
    """
    op = "tensor_resize"
    samples: Batch = input  # type: ignore[assignment]
    if (sizes is None) == (scales is None):
        raise RuntimeError(f"{op}: give exactly one of sizes and scales")
    if axis_names is not None and not isinstance(axis_names, str):
        raise TypeError(f"{op}: axis_names must be letters of the layout, got {axis_names!r}")
    chosen = reduced_axes(op, samples, axes, axis_names)
    every = _extents(samples, 0, samples.ndim)
    extents = [every[axis] for axis in chosen]
    plan = plan_resize(
        op,
        extents,
        sizes=as_hashable(sizes),
        scales=as_hashable(scales),
        alignment=as_hashable(alignment),
        size_rounding=size_rounding,
        mode=mode,
        max_size=_plain_numbers(max_size),
        roi_start=as_hashable(roi_start),
        roi_end=as_hashable(roi_end),
        roi_relative=roi_relative,
        subpixel_scale=subpixel_scale,
    )
    filters = (interp_type, min_filter, mag_filter)
    # All kernels except the Gaussian keep an axis of the same extent unchanged.
    passes = not any(isinstance(kernel, torch.Tensor) or kernel == types.INTERP_GAUSSIAN for kernel in filters)
    kept = [axis for axis, extent in enumerate(extents) if passes and plan.is_kept(axis, extent)]
    return _launch_plan(op, samples, plan, chosen, filters, antialias, dtype, kept)  # type: ignore[return-value]


@operator(layouts=LAYOUTS[:5])
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
    mean: PerSample[Sequence[float]] | None = None,
    min_filter: ShapeArg[types.DALIInterpType] | None = None,
    minibatch_size: Hint[int] = 32,
    mirror: PerSample[int] = 0,
    num_attempts: int = 10,
    output_layout: str | None = None,
    random_area: Range = DEFAULT_AREA,
    random_aspect_ratio: Range = DEFAULT_ASPECT_RATIO,
    rule: Rule = "dali",
    size: int | Sequence[int],
    std: PerSample[Sequence[float]] | None = None,
    temp_buffer_hint: Hint[int] = 0,
    rng: Random = None,
) -> T:
    """Crop a random window of every image and resize it; all frames of a sequence have the same window. Mirror and normalize it in the same pass.

    If ``mean``, ``std`` or ``output_layout`` is given, :func:`crop_mirror_normalize` follows with these arguments: ``out = (resized - mean) / std``,
    where ``resized`` is rounded to the type of the input.

    Args:
        input: ``HWC``, ``CHW``, ``FHWC``, ``FCHW`` or ``CFHW``.
        size: height and width of the output, or one number for both.
        random_area: smallest and largest area of the window, relative to the image's; uniform.
        random_aspect_ratio: smallest and largest width / height of the window; uniform on a logarithmic scale.
        num_attempts: number of windows to try before taking the largest one that the ranges allow.
        interp_type, min_filter, mag_filter, antialias, rule: see :func:`resize`.
        mirror: mirror the window horizontally.
        mean, std, output_layout: as in :func:`crop_mirror_normalize`.
        dtype: type of the result: that of the input (default) or float32; of a normalized result any type, by default float32.
        minibatch_size, temp_buffer_hint: ignored.

    Raises:
        RuntimeError: an empty range, a wrong number of elements, a negative size, an unknown kernel, another dtype, an image without pixels.
        ValueError: a layout other than the above, an area or ratio that is not positive, no attempts, another ``rule``.

    >>> random_resized_crop(torch.zeros(480, 640, 3), size=224).shape
    (224, 224, 3)
    >>> random_resized_crop(torch.zeros(480, 640, 3), size=224, mean=[0.5], std=[0.25], dtype=torch.bfloat16).shape
    (3, 224, 224)
    """
    images: Batch = input  # type: ignore[assignment]
    op = "random_resized_crop"
    first, _ = spatial_axes(images.layout or "")
    # One size for all samples; only their channels may still differ.
    height, width = _height_and_width(op, size)
    ranges = check_ranges(op, random_area, random_aspect_ratio, num_attempts)
    compiling = is_compiling()
    if images.ragged_shapes is None:
        empty = not compiling and 0 in _extents(images, first, 2)
    else:
        empty = not compiling and not images.ragged_shapes[:, first : first + 2].numpy().all()
    if empty:
        raise RuntimeError(f"{op}: there is an image without pixels")

    # Called by repeated calls too, with their own images and the words that they have drawn.
    def windows(images: Batch, words: torch.Tensor) -> torch.Tensor:
        shapes = images.ragged_shapes
        if shapes is None:
            find = _equal_rows if compiling else _cached_equal_rows
            sizes = find(images.batch_size, *_extents(images, first, 2))
        else:
            sizes = shapes[:, first:] if first else shapes
        return draw_windows(sizes, words, ranges, ends=True)

    words: Any = rng
    if columns_of(mirror) != 1:
        raise RuntimeError(f"{op}: argument 'mirror' takes one number per sample, got {columns_of(mirror)}")
    normalization = _normalization(op, images, mean, std, output_layout)
    out = _output(op, images, (first, first + 1), (height, width), dtype, normalization)
    filters = filters_of(op, interp_type, min_filter, mag_filter)
    arguments = [windows(images, words), None, *filters, bool(antialias), _rule(op, rule), 3 << first, mirror, *normalization]
    return launch(out, arguments, any_shape=_has_fixed_shape(images, (first, first + 1), (height, width)), redraw=windows)


def _equal_rows(count: int, height: int, width: int) -> torch.Tensor:
    return torch.tensor([[height, width]], dtype=torch.int64).expand(count, 2)


_cached_equal_rows = functools.lru_cache(maxsize=256)(lambda *numbers: _equal_rows(*numbers).contiguous())


def _launch_resize(
    op: str, input: Any, sizes: dict[str, Any], filters: tuple[Any, Any, Any], antialias: bool, rule: str, dtype: Any, save_attrs: bool
) -> Launch:
    """Implement resize and its experimental twin. ``sizes`` are arguments of :func:`plan_resize`."""
    first, axes = spatial_axes(input.layout or "")
    extents = _extents(input, first, axes)
    sizes["max_size"] = _plain_numbers(sizes["max_size"])
    plan = plan_resize(op, extents, **sizes)
    dimensions = range(first, first + axes)
    launch = _launch_plan(op, input, plan, dimensions, filters, antialias, dtype, rule=_rule(op, rule))
    launch.also = (_attributes(input, extents),) if save_attrs else ()
    # With a fixed shape the plan of a repeated call has the output's; otherwise the sizes are derived again for each batch.
    is_fixed = _has_fixed_shape(input, dimensions, plan.extents)
    launch.any_shape = plan.whole and is_fixed
    if plan.packed is not None and not any(isinstance(kernel, torch.Tensor) for kernel in filters):
        launch.derivation = plan.packed.derive_regions(first, is_fixed)
    return launch


def _has_fixed_shape(input: Batch, dimensions: Sequence[int], extents: Sequence[Any]) -> bool:
    """Return whether the shape of the output follows from the arguments and from extents that all samples share, now and in repeated calls.

    The frames of videos may differ although these dimensions become equal.
    """
    # The axes that are not resized: frames and channels.
    others = [extent_of(input, axis) for axis in range(input.ndim) if axis not in dimensions]
    return not any(isinstance(extent, torch.Tensor) for extent in (*extents, *others))


def _rule(op: str, rule: str) -> int:
    check_choice(op, "rule", rule, _RULES, ValueError)
    return _RULES[rule]


def _launch_plan(
    op: str,
    input: Batch,
    plan: ResizePlan,
    dimensions: Sequence[int],
    filters: tuple[Any, Any, Any],
    antialias: bool,
    dtype: Any,
    kept: Any = (),
    rule: int = 0,
    part: torch.Tensor | None = None,
    more: tuple[Any, ...] = (),
) -> Launch:
    """Return the launch for a plan whose axes are these dimensions of the input, without the ``kept`` axes.

    ``part`` is the window that the plan's extents are of the resized image: its starts, then the extents of that image, int64 (1 or N, 2 * axes).
    ``more`` are the arguments of kernels that mirror and normalize.
    """
    out = _output(op, input, dimensions, plan.extents, dtype, more[1:])
    # Dynamo cannot trace the cache, and computes this once per graph.
    find = _find_changed if is_compiling() else _cached_find_changed
    changed, bits = find(op, tuple(dimensions), tuple(kept))
    # None: the kernel reads the whole sample, without a table of regions.
    roi = None if plan.whole else plan.roi(input.batch_size, changed)
    return launch(out, [roi, part, *filters_of(op, *filters), bool(antialias), rule, bits, *more])


def _normalization(op: str, images: Batch, mean: Any, std: Any, output_layout: Any) -> tuple[Any, Any, str, str]:
    """Return the arguments of the kernel that normalizes: mean, standard deviation, the input's layout and the output's, ``""`` to leave it out."""
    if mean is None and std is None and output_layout is None:
        return None, None, "", ""
    layout = images.layout or ""
    channels = extents_of(images)[layout.index("C")]
    for name, values in (("mean", mean), ("std", std)):
        if values is not None:
            check_per_channel(op, name, values, channels)
    return mean, std, layout, permute_layout(op, layout, output_layout)


def _output(op: str, input: Batch, dimensions: Sequence[int], extents: Sequence[Any], dtype: Any, normalization: tuple[Any, ...]) -> Batch:
    """Return the unfilled output, in another order of axes if it is normalized."""
    if not normalization or not normalization[-1]:
        return resized(input, dimensions, extents, result_type(op, input.dtype, dtype))
    layout, order = normalization[-2:]
    changes = dict(zip(dimensions, extents, strict=True))
    shape = [changes[axis] if axis in changes else extent_of(input, axis) for axis in map(layout.index, order)]
    return empty_batch(input.batch_size, shape, dtype or torch.float32, input.buffer.device, order)


def _find_changed(op: str, dimensions: tuple[int, ...], kept: tuple[int, ...]) -> tuple[list[int], int]:
    """Return which of the axes change, in the order of their dimensions, and these dimensions as bits."""
    # Axes between two that change are one more axis of the kernel, which has three.
    changed = sorted((d, axis) for axis, d in enumerate(dimensions) if axis not in kept)
    runs = len(changed) + sum(b - a > 1 for (a, _), (b, _) in itertools.pairwise(changed))
    if runs > 3:
        raise ValueError(f"{op}: at most three axes can change, or two with others in between; got the axes {[d for d, _ in changed]}")
    return [axis for _, axis in changed], sum(1 << d for d, _ in changed)


_cached_find_changed = functools.lru_cache(maxsize=1024)(_find_changed)


def _window_plan(op: str, plan: ResizePlan, window: CropArguments, mirror: Any, rule: int) -> tuple[ResizePlan, torch.Tensor | None]:
    """Return the plan for a mirrored window of another plan's output, and which window it is: None by DALI's rule, where it is a source region."""
    axes = len(plan.extents)
    shown = window_in(op, "DHW"[3 - axes :], tuple(plan.extents), window)
    # Mirroring exchanges start and end of the source region, so it costs nothing.
    flips = _flips(mirror, axes)
    whole = plan.whole and not isinstance(mirror, torch.Tensor) and not any(flips)
    start, end, part = plan.start, plan.end, None
    # By DALI's rule the window is a region of the source; by the others it consists of pixels of the resized image.
    if rule == 0:
        whole = whole and all(not isinstance(n, torch.Tensor) and n == size for n, size in zip(shown.extent, plan.extents, strict=True))
        start, end = _source_of(plan, shown)
    else:
        # A mirrored source region makes a mirrored image, whose window starts at the other end.
        mirrored = [torch.from_numpy(flip) if isinstance(flip, np.ndarray) else flip for flip in flips]
        sizes = zip(mirrored, shown.start, shown.extent, plan.extents, strict=True)
        part = rows([*(choose(flip, of - extent - first, first) for flip, first, extent, of in sizes), *plan.extents])
    return ResizePlan(_integers(shown.extent), *swap(flips, start, end), whole), part


def _derive_windows(plan: ResizePlan, first: int, window: CropArguments, mirror: Any, rule: int, is_fixed: bool) -> Derivation | None:
    """Return how to compute source regions and windows again; None for arguments that native code does not take."""
    sizes, axes = plan.pack(), pack_windows("DHW"[3 - len(plan.extents) :], window)
    if sizes is None or axes is None:
        return None
    flips = AxisNumbers(values=mirror, name="mirror") if isinstance(mirror, torch.Tensor) else AxisNumbers(mirror)
    limits = [limit for _, position, size in axes for limit in (position, size)]
    return sizes.derive_windows(first, limits, flips, ROUNDINGS[window.rounding], rule, is_fixed)


def _source_of(plan: ResizePlan, shown: CropWindow) -> tuple[list[Any], list[Any]]:
    """Return start and end of the source region of a window of the plan's output."""
    start, end = [], []
    for a, b, begin, extent, whole in zip(plan.start, plan.end, shown.start, shown.extent, plan.extents, strict=True):
        count = _array(whole)
        # An empty axis has no step.
        step = (b - a) / (count + (count == 0))
        start.append(a + _array(begin) * step)
        end.append(a + (_array(begin) + _array(extent)) * step)
    return start, end


def _integers(extents: Sequence[Any]) -> list[Any]:
    return [n if isinstance(n, torch.Tensor) else int(n) for n in extents]


def _flips(mirror: Any, axes: int) -> list[Any]:
    """Return for each axis whether it is mirrored: booleans, or arrays of one per sample."""
    bits = mirror if not isinstance(mirror, torch.Tensor) else _array(mirror.to(torch.int64).flatten())
    return [(bits & bit) != 0 for bit in (4, 2, 1)[3 - axes :]]


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) and not is_compiling() else value


def _plain_numbers(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value


def _extents(images: Batch, first: int, axes: int) -> list[Any]:
    """Return the spatial extents: numbers, or int64 (N,) with one per sample: arrays, and tensors while a graph is traced."""
    if is_compiling():
        return list(extents_of(images)[first : first + axes])
    if images.ragged_shapes is None:
        return list(images.buffer.shape[1 + first : 1 + first + axes])
    # NumPy, because each operation of torch on so few numbers takes microseconds.
    table, known = images.ragged_shapes.numpy(), images.shared_extents or (None,) * images.ndim
    return [table[:, axis] if known[axis] is None else known[axis] for axis in range(first, first + axes)]


def _attributes(images: Batch, extents: Sequence[Any]) -> Batch:
    if images.ragged_shapes is None:
        # All samples have the same extents.
        values = torch.tensor([extents], dtype=torch.int32).repeat(images.batch_size, 1)
    else:
        columns = [torch.from_numpy(extent) if isinstance(extent, np.ndarray) else extent for extent in extents]
        values = rows(columns).to(torch.int32).expand(images.batch_size, len(extents)).contiguous()
    return new_batch(values.to(images.buffer.device))


def _height_and_width(op: str, size: Any) -> tuple[int, int]:
    value = size.tolist() if isinstance(size, _ARRAYS) else size
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    for n in numbers:
        if isinstance(n, str):
            raise ValueError(f"{op}: size must be a number or two, got {size!r}")
        if not isinstance(n, int | float) or n != n // 1:
            raise TypeError(f"{op}: size must be an integer or two, got {size!r}")
    if not 1 <= len(numbers) <= 2:
        raise RuntimeError(f"{op}: size must be a number or two, got {len(numbers)}")
    if min(numbers) < 0:
        raise RuntimeError(f"{op}: size must not be negative, got {size}")
    if max(numbers) >= 2**31:
        raise ValueError(f"{op}: size must be less than 2**31, got {size}")
    return int(numbers[0]), int(numbers[-1])
