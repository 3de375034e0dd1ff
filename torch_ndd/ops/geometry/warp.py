# SPDX-License-Identifier: Apache-2.0
"""Geometric warps: a map gives the source position of every output pixel."""

import math
import warnings
from collections.abc import Collection, Sequence
from typing import Any, Literal, get_args

import torch

from ... import types
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import Derivation, DeviceLike, PerSample, ShapeArg, Shared, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch
from .._borders import BorderMode, border_number
from .._columns import extents_of, holds, in_sample
from .._outputs import frames_of, like, output_type, resized
from ._canvas import derive_rotated_canvases, rotated_canvas, rotated_canvas_of_frames
from ._resize_plan import columns, single, spatial_axes

LAYOUTS = ("HWC", "FHWC", "DHWC", "FDHWC", "CHW", "FCHW", "CDHW", "FCDHW")
PLANE_LAYOUTS = ("HWC", "FHWC", "HW", "FHW", "CHW", "FCHW")

PixelOrigin = Literal["corner", "center"]
_NEAREST_OR_LINEAR = {types.INTERP_NN: "INTERP_NN", types.INTERP_LINEAR: "INTERP_LINEAR"}
_UP_TO_CUBIC = {**_NEAREST_OR_LINEAR, types.INTERP_CUBIC: "INTERP_CUBIC"}
_UP_TO_LANCZOS = {**_UP_TO_CUBIC, types.INTERP_LANCZOS3: "INTERP_LANCZOS3"}


@operator(layouts=LAYOUTS)
def rotate(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    angle: ShapeArg[float],
    axis: ShapeArg[Sequence[float]] | None = None,
    dtype: torch.dtype | None = None,
    fade: bool = False,
    fill_value: PerSample[float | Sequence[float]] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    keep_size: bool = False,
    output_dtype: Any = None,
    size: ShapeArg[Sequence[float]] | None = None,
) -> T:
    """Rotate images counter-clockwise by ``angle``, or volumes about ``axis``.

    ``out[p] = in[R (p - center(out)) + center(in)]``; pixel i covers [i, i + 1). The canvas grows to hold the whole result, unless ``size`` or
    ``keep_size`` is given; a side keeps the parity of the input side that contributes most to it.

    Args:
        input: images or volumes, channels last or first, with or without frames in front.
        angle: degrees, one per sample or per frame; the frames of a sequence share the largest canvas.
        axis: direction (x, y, z) of the axis, of any length, for volumes only; a volume rotates counter-clockwise as seen from the axis' tip.
        size: extents of the output, depth first, rounded half up.
        keep_size: keep the input's extents.
        fill_value: value outside the input, one number or one per channel; by default the nearest border pixel.
        fade: mix the fill value with the pixels at the border as torchvision does, by warping a mask along: with linear interpolation
            ``m (v - fill) + fill``, where v is the value with 0 outside the input and m the weight of its pixels. Otherwise the fill value is a
            neighbor like any other.
        interp_type: ``INTERP_LINEAR`` or ``INTERP_NN``.
        dtype: type of the output, by default the input's.
        output_dtype: deprecated name of ``dtype``.

    Raises:
        RuntimeError: a volume without an axis, or with one that is zero or not three numbers; another ``interp_type``; a size of the wrong length or
            not positive; an angle that is not finite; angles for another number of frames; fill values for another number of channels.
        ValueError: a layout other than the above.
        TypeError: both ``dtype`` and ``output_dtype``.

    >>> rotate(torch.tensor([[[1], [2]]], dtype=torch.uint8), angle=90).torch().flatten()
    tensor([2, 1], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    first, spatial, frames = _space(images)
    extents = _extents(images, first, spatial)
    _check_angle(angle, images, frames)
    if spatial == 3 and axis is None:
        raise RuntimeError("rotate: volumes need the argument axis")
    turn_axis = None if spatial == 2 else _checked_axis(axis)
    if size is not None:
        canvas = _given_size("rotate", size, spatial)
    elif keep_size:
        canvas = extents
    else:
        canvas = _canvas(extents, angle, turn_axis, images.frame_counts() if frames else 1)
    out = resized(images, range(first, first + spatial), canvas, _result_type("rotate", images.dtype, dtype, output_dtype))
    interpolation = _interpolation("rotate", interp_type, _NEAREST_OR_LINEAR)
    arguments = [_row(angle, 1), None if turn_axis is None else _row(turn_axis, 3), fill_value, interpolation, fade, first, spatial, frames]
    derivation = None
    varies = isinstance(angle, torch.Tensor) or images.ragged_shapes is not None
    if varies and size is None and spatial == 2 and not frames and not is_compiling():
        derivation = derive_rotated_canvases(first, angle, keep_size)
    return launch(out, arguments, derivation=derivation)


@operator(layouts=LAYOUTS)
def warp_affine(
    data: T,
    mtx: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    fade: bool = False,
    fill_value: PerSample[float | Sequence[float]] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    inverse_map: bool = True,
    matrix: PerSample[Sequence[float] | Sequence[Sequence[float]]] | None = None,
    output_dtype: Any = None,
    size: ShapeArg[Sequence[float]] | None = None,
) -> T:
    """Warp images or volumes by an affine map.

    ``out[x, y] = in[m00 x + m01 y + m02, m10 x + m11 y + m12]``, where (0, 0) is the corner of the first pixel: pixel i covers [i, i + 1).

    Args:
        data: images or volumes, channels last or first, with or without frames in front.
        mtx: the matrix as an input, which may be on the GPU. Matrices per frame, marked with :func:`per_frame`, expand an image to that many frames.
        matrix: the matrix as an argument: (2, 3), for volumes (3, 4), or its numbers row by row; per sample or per frame. x is first.
        inverse_map: the matrix maps the output to the input, as in the formula; False for a matrix from the input to the output.
        size: extents of the output, depth first, rounded half up; by default those of the input.
        fill_value: value outside the input, one number or one per channel; by default the nearest border pixel.
        fade: mix the fill value with the pixels at the border as in :func:`rotate`.
        interp_type: ``INTERP_LINEAR`` or ``INTERP_NN``.
        dtype: type of the output, by default the input's.
        output_dtype: deprecated name of ``dtype``.

    Raises:
        RuntimeError: no matrix or two of them, one of another shape, not finite, or for another number of frames; another ``interp_type``; a size of
            the wrong length or not positive; fill values for another number of channels.
        ValueError: a layout other than the above, ``inverse_map=False`` and a singular matrix.
        TypeError: both ``dtype`` and ``output_dtype``.

    >>> warp_affine(torch.tensor([[[1], [2], [3]]], dtype=torch.uint8), matrix=[1, 0, 1, 0, 1, 0]).torch().flatten()
    tensor([2, 3, 3], dtype=torch.uint8)
    """
    images: Batch = data  # type: ignore[assignment]
    first, spatial, frames = _space(images)
    _check_matrix("warp_affine", images, mtx, matrix, (spatial, spatial + 1), frames)
    canvas = _extents(images, first, spatial) if size is None else _given_size("warp_affine", size, spatial)
    frame_count = frames_of(images, mtx)  # type: ignore[arg-type]
    out = resized(images, range(first, first + spatial), canvas, _result_type("warp_affine", images.dtype, dtype, output_dtype), frame_count)
    interpolation = _interpolation("warp_affine", interp_type, _NEAREST_OR_LINEAR)
    arguments = [matrix, fill_value, interpolation, bool(inverse_map), fade, first, spatial, frames or frame_count is not None]
    keeps_shapes = mtx is None and size is None and not frames and not is_compiling()
    # Nothing is computed, but a ragged output has the shapes of each call's input.
    derivation = Derivation(lambda images, values: ((), images.ragged_shapes), 0) if keeps_shapes and images.ragged_shapes is not None else None
    return launch(out, arguments, derivation=derivation)


@operator(name="experimental.warp_perspective", layouts=PLANE_LAYOUTS)
def warp_perspective(
    input: T,
    matrix_input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    border_mode: BorderMode = "constant",
    fade: bool = False,
    fill_value: PerSample[float | Sequence[float]] = 0.0,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    inverse_map: bool = True,
    matrix: PerSample[Sequence[float] | Sequence[Sequence[float]]] | None = None,
    pixel_origin: PixelOrigin = "corner",
    size: ShapeArg[Sequence[float]] | None = None,
) -> T:
    """Warp images by a projective map.

    ``out[x, y] = in[u / w, v / w]`` with ``(u, v, w) = matrix (x, y, 1)``. If ``w`` is zero, the point is at infinity.

    Args:
        input: images, channels last, first or none, with or without frames in front.
        matrix_input: the matrix as an input, which may be on the GPU. Matrices per frame, marked with :func:`per_frame`, expand an image to that many
            frames.
        matrix: the matrix as an argument: (3, 3), or its numbers row by row; per sample or per frame.
        inverse_map: the matrix maps the output to the input, as in the formula; False for a matrix from the input to the output.
        pixel_origin: the position of (0, 0): "corner", the corner of the first pixel, or "center", its center, as in OpenCV.
        size: height and width of the output, or one number for both, rounded half up; by default those of the input.
        border_mode: values outside the input: "constant" (``fill_value``), "replicate" (aaa|abcd|ddd), "reflect" (cba|abcd|dcb), "reflect_101"
            (dcb|abcd|cba) or "wrap" (bcd|abcd|abc).
        fill_value: one number, or one per channel.
        fade: mix the fill value with the pixels at the border as in :func:`torch_ndd.rotate`; not with ``INTERP_CUBIC``.
        interp_type: ``INTERP_LINEAR``, ``INTERP_NN`` or ``INTERP_CUBIC``, the cubic with a slope of -0.75 as in OpenCV.

    Raises:
        RuntimeError: no matrix or two of them, one of another shape, not finite, or for another number of frames; another ``interp_type``,
            ``border_mode`` or ``pixel_origin``; a size of the wrong length or not positive; fill values for another number of channels.
        ValueError: a layout other than the above, ``inverse_map=False`` and a singular matrix.

    >>> warp_perspective(torch.tensor([[[1], [2], [3]]], dtype=torch.uint8), matrix=[1, 0, 1, 0, 1, 0, 0, 0, 1]).torch().flatten()
    tensor([2, 3, 0], dtype=torch.uint8)
    """
    op = "experimental.warp_perspective"
    images: Batch = input  # type: ignore[assignment]
    first, _, frames = _space(images)
    _check_matrix(op, images, matrix_input, matrix, (3, 3), frames)
    border, centered = border_number(op, "border_mode", border_mode, get_args(BorderMode)), _is_centered(op, pixel_origin)
    canvas = _extents(images, first, 2) if size is None else _given_size(op, size, 2, broadcast=True)
    frame_count = frames_of(images, matrix_input)  # type: ignore[arg-type]
    out = resized(images, (first, first + 1), canvas, frames=frame_count)
    interpolation = _interpolation(op, interp_type, _UP_TO_CUBIC)
    arguments = [matrix, fill_value, border, interpolation, bool(inverse_map), centered, fade, first, frames or frame_count is not None]
    return launch(out, arguments)


# Copying one pair of maps for 16 samples took as long as the rest: 43 ms for 16 VGA images.
@operator(name="experimental.remap", layouts=PLANE_LAYOUTS)
def remap(
    input: T,
    mapx: Shared[T],
    mapy: Shared[T],
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    fade: bool = False,
    fill_value: PerSample[float | Sequence[float]] = 0.0,
    interp: types.DALIInterpType = types.INTERP_LINEAR,
    pixel_origin: PixelOrigin = "corner",
    relative: bool = False,
) -> T:
    """Sample every output pixel at a given point of the input: ``out[x, y] = in[mapx[x, y], mapy[x, y]]``.

    The output has the size of the maps. It is ``fill_value`` outside the input, and where a map is NaN.

    Args:
        input: images, channels last, first or none, with or without frames in front.
        mapx, mapy: coordinates of any type, (height, width), or one map per frame; maps marked with :func:`per_frame` expand an image to that many
            frames.
        relative: the maps hold the distance of the point from the output pixel: ``out[x, y] = in[x + mapx[x, y], y + mapy[x, y]]``.
        fill_value: value outside the input, one number or one per channel.
        fade: mix the fill value with the pixels at the border as in :func:`torch_ndd.rotate`; only with ``INTERP_LINEAR``.
        interp: ``INTERP_LINEAR``, ``INTERP_NN``, ``INTERP_CUBIC`` (with a slope of -0.75) or ``INTERP_LANCZOS3``.
        pixel_origin: the position of (0, 0): "corner", the corner of the first pixel, or "center", its center, as in OpenCV.

    Raises:
        RuntimeError: maps of different shapes, or for another number of frames; another ``interp`` or ``pixel_origin``.
        ValueError: a layout other than the above.

    >>> image = torch.tensor([[[1], [2], [3]]], dtype=torch.uint8)
    >>> remap(image, torch.tensor([[2.0, 0.0, 9.0]]), torch.zeros(1, 3), pixel_origin="center").torch().flatten()
    tensor([3, 1, 0], dtype=torch.uint8)
    """
    op = "experimental.remap"
    images, xs, ys = (value for value in (input, mapx, mapy))
    assert isinstance(images, Batch)
    assert isinstance(xs, Batch)
    assert isinstance(ys, Batch)
    first, _, frames = _space(images)
    heights, widths = _map_extents(op, "mapx", xs, images, frames)
    for a, b in zip((heights, widths), _map_extents(op, "mapy", ys, images, frames), strict=True):
        if not is_compiling() and not _equal(a, b):
            raise RuntimeError(f"{op}: mapx and mapy must have the same shape, got {xs.shape} and {ys.shape}")
    centered = _is_centered(op, pixel_origin)
    frame_count = frames_of(images, xs)
    if frame_count is None:
        frame_count = frames_of(images, ys)
    # The maps alone decide the size of the output; an image may have any.
    out = resized(images, (first, first + 1), (heights, widths), frames=frame_count)
    interpolation = _interpolation(op, interp, _UP_TO_LANCZOS, "interp")
    return launch(out, [fill_value, interpolation, centered, relative, fade, first, frames or frame_count is not None])


@operator(layouts=PLANE_LAYOUTS)
def water(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    ampl_x: PerSample[float] = 10.0,
    ampl_y: PerSample[float] = 10.0,
    fill_value: PerSample[float | Sequence[float]] = 0.0,
    freq_x: PerSample[float] = 0.04908738521,
    freq_y: PerSample[float] = 0.04908738521,
    interp_type: types.DALIInterpType = types.INTERP_NN,
    mask: PerSample[int] = 1,
    phase_x: PerSample[float] = 0.0,
    phase_y: PerSample[float] = 0.0,
) -> T:
    """Distort images with waves, like a water surface.

    ``out[x, y] = in[x + ampl_x sin(freq_x y + phase_x), y + ampl_y cos(freq_y x + phase_y)]``, where x and y are the output pixel's indices but the
    input's pixel i covers [i, i + 1): as in DALI, linear interpolation shifts an image by half a pixel even without waves.

    Args:
        input: images, channels last, first or none, with or without frames in front.
        ampl_x, ampl_y: amplitudes in pixels.
        freq_x, freq_y: radians per pixel, by default one wave per 128 pixels.
        phase_x, phase_y: radians.
        mask: 0 keeps a sample unchanged.
        fill_value: value outside the input, one number or one per channel.
        interp_type: ``INTERP_NN`` or ``INTERP_LINEAR``.

    Raises:
        RuntimeError: another ``interp_type``; fill values for another number of channels.
        ValueError: a layout other than the above.

    >>> water(torch.tensor([[[1], [2], [3]]], dtype=torch.uint8), ampl_x=1.5, ampl_y=0, phase_x=1.5708).torch().flatten()
    tensor([2, 3, 0], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    first, _, frames = _space(images)
    interpolation = _interpolation("water", interp_type, _NEAREST_OR_LINEAR)
    arguments = [ampl_x, ampl_y, fill_value, freq_x, freq_y, interpolation, mask, phase_x, phase_y, first, frames]
    return launch(like(images), arguments)


@operator(layouts=PLANE_LAYOUTS)
def sphere(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    fill_value: PerSample[float | Sequence[float]] = 0.0,
    interp_type: types.DALIInterpType = types.INTERP_NN,
    mask: PerSample[int] = 1,
) -> T:
    """Distort images as if projected onto a sphere.

    ``out[p] = in[c + d |d| / r]`` with the image's center ``c``, ``d = p - c``, and the radius ``r``, half of the longer side, truncated to whole
    pixels; pixel i covers [i, i + 1).

    Args:
        input: images, channels last, first or none, with or without frames in front.
        mask: 0 keeps a sample unchanged.
        fill_value: value outside the input, one number or one per channel.
        interp_type: ``INTERP_NN`` or ``INTERP_LINEAR``.

    Raises:
        RuntimeError: another ``interp_type``; fill values for another number of channels.
        ValueError: a layout other than the above.

    >>> sphere(torch.tensor([[[1], [2], [3], [4], [5], [6]]], dtype=torch.uint8)).torch().flatten()
    tensor([1, 3, 3, 4, 4, 6], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    first, _, frames = _space(images)
    return launch(like(images), [fill_value, _interpolation("sphere", interp_type, _NEAREST_OR_LINEAR), mask, first, frames])


def _space(images: Batch) -> tuple[int, int, bool]:
    """Return the first spatial dimension, the number of spatial dimensions, and whether the first dimension counts frames."""
    layout = images.layout or ""
    return (*spatial_axes(layout), layout.startswith("F"))


def _extents(images: Batch, first: int, spatial: int) -> list[Any]:
    """Return the spatial extents: numbers, or int64 (N,) with one per sample."""
    return list(extents_of(images)[first : first + spatial])


def _check_matrix(op: str, images: Batch, matrix_input: Any, argument: Any, shape: tuple[int, int], frames: bool) -> None:
    if matrix_input is None and argument is None:
        raise RuntimeError(f"{op}: needs the argument matrix")
    if matrix_input is not None and argument is not None:
        raise RuntimeError(f"{op}: matrix is given as an input and as an argument; give one of them")
    if argument is not None:
        # An argument has a row per sample, or one for all, in front of its own dimensions.
        known: Sequence[Any] = argument.shape[1:]
        samples, marked = argument.shape[0], len(known) > 2  # only marked arguments have more dimensions than a matrix
    else:
        assert isinstance(matrix_input, Batch)
        samples, marked = matrix_input.batch_size, (matrix_input.layout or "").startswith("F")
        known = matrix_input.buffer.shape[1:] if matrix_input.ragged_shapes is None else [-1, *shape]
        if matrix_input.ragged_shapes is not None:
            # Ragged matrices differ in their number of frames only.
            right = matrix_input.ragged_shapes.shape[1] == 2 + marked
            if not is_compiling():
                right = (
                    right and bool((matrix_input.ragged_shapes[:, -2:] == torch.tensor(shape)).all()) and bool((matrix_input.ragged_shapes > 0).all())
                )
            if not right:
                raise RuntimeError(_wrong_matrix(op, shape, matrix_input.shape))
    # An empty batch has no matrix whose shape could be wrong.
    if not samples:
        return
    count = shape[0] * shape[1]
    if marked:
        fits = len(known) == 3 and tuple(known[1:]) == shape and known[0] != 0
    else:
        # Also as a flat list of numbers.
        fits = tuple(known) == shape or (len(known) < 2 and math.prod(known) == count)
    if not fits:
        raise RuntimeError(_wrong_matrix(op, shape, tuple(known)))
    # Frames of ragged batches are counted by the call; here their numbers are not known as Python numbers.
    if frames and marked and images.ragged_shapes is None and known[0] not in (-1, 1, images.buffer.shape[1]):
        raise RuntimeError(f"{op}: matrix is given for {known[0]} frames, but the sequence has {images.buffer.shape[1]}")


def _wrong_matrix(op: str, shape: tuple[int, int], found: Any) -> str:
    return (
        f"{op}: matrix must be {shape[0]} by {shape[1]}, or {shape[0] * shape[1]} numbers, per sample; or {shape[0]} by {shape[1]} for each frame, "
        f"marked with per_frame; got the shape {found}"
    )


def _map_extents(op: str, name: str, maps: Batch, images: Batch, frames: bool) -> list[Any]:
    """Return height and width of a map: (H, W), optionally with a last dimension of 1, with frames in front, or both."""
    layout, ndim = maps.layout or "", maps.ndim
    # Without a layout four dimensions can only be frames, height, width and 1.
    has_frames = layout.startswith("F") or (frames and not layout and ndim == 4)
    trailing = ndim - 2 - has_frames
    sizes: Any = extents_of(maps)
    if trailing not in (0, 1) or (trailing and not is_compiling() and not _equal(sizes[-1], 1)):
        raise RuntimeError(
            f"{op}: {name} must be height by width, for each frame where it is marked with per_frame, got {ndim} dimensions, layout {layout!r}"
        )
    if has_frames and frames and maps.ragged_shapes is None and images.ragged_shapes is None and sizes[0] not in (1, images.buffer.shape[1]):
        raise RuntimeError(f"{op}: {name} is given for {sizes[0]} frames, but the sequence has {images.buffer.shape[1]}")
    return list(sizes[has_frames : has_frames + 2])


def _equal(a: Any, b: Any) -> bool:
    return bool((a == b).all()) if isinstance(a, torch.Tensor) else bool((b == a).all()) if isinstance(b, torch.Tensor) else a == b


def _choice(op: str, argument: str, value: Any, choices: Collection[str]) -> Any:
    check_choice(op, argument, value, choices, RuntimeError if isinstance(value, str) else TypeError)
    return value


def _is_centered(op: str, pixel_origin: str) -> bool:
    return _choice(op, "pixel_origin", pixel_origin, get_args(PixelOrigin)) == "center"


def _check_angle(angle: Any, images: Batch, sequence: bool) -> None:
    if isinstance(angle, torch.Tensor):
        frames = angle.numel() // max(1, angle.shape[0])
        if sequence and images.ragged_shapes is None and frames not in (1, images.buffer.shape[1]):
            raise RuntimeError(f"rotate: angle is given for {frames} frames, but the sequence has {images.buffer.shape[1]}")
        finite: bool | torch.Tensor = is_compiling() or torch.isfinite(angle.to(torch.float32)).reshape(len(angle), -1).all(1)
    else:
        # The largest float32: beyond it the kernel would get infinity.
        finite = abs(angle) < 3.4e38
    if not holds(finite):
        raise RuntimeError(f"rotate: {in_sample(finite)}angle must be finite")


def _interpolation(op: str, value: Any, allowed: dict[Any, str], argument: str = "interp_type") -> int:
    names = " or ".join(allowed.values())
    if not isinstance(value, int):
        raise TypeError(f"{op}: {argument} must be {names}, got {value!r}")
    if value not in allowed:
        raise RuntimeError(f"{op}: {argument} must be {names}, got {value!r}")
    return int(value)


def _result_type(op: str, input_type: torch.dtype, dtype: torch.dtype | None, output_dtype: Any) -> torch.dtype:
    result = output_type(op, dtype, output_dtype)
    if output_dtype is not None and not is_compiling():
        warnings.warn(f"{op}: output_dtype is deprecated, use dtype", DeprecationWarning, stacklevel=5)
    return result or input_type


def _row(value: Any, width: int) -> torch.Tensor:
    """Return a shape argument in the kernel's form."""
    return value if isinstance(value, torch.Tensor) else torch.tensor([value], dtype=torch.float32).reshape(1, width)


def _given_size(op: str, size: Any, spatial: int, broadcast: bool = False) -> list[Any]:
    if not isinstance(size, torch.Tensor):
        size = size if isinstance(size, list) else [size]
        if broadcast and len(size) == 1:
            size = size * spatial
        if len(size) != spatial:
            raise RuntimeError(f"{op}: size has {len(size)} elements, but there are {spatial} spatial axes")
        if not all(isinstance(s, int | float) and 0 < s < 2**31 for s in size):
            raise RuntimeError(f"{op}: size must be positive and less than 2**31, got {size}")
        # Halves are rounded up, as for resize; a canvas has a pixel at least.
        return [max(1, math.floor(s + 0.5)) for s in size]
    # One number per sample, for all of its axes.
    if broadcast and size.numel() == size.shape[0]:
        size = size.reshape(-1, 1).expand(-1, spatial)
    if size.numel() != size.shape[0] * spatial:
        raise RuntimeError(f"{op}: size has {size.numel() // max(1, size.shape[0])} elements, but there are {spatial} spatial axes")
    fits = ((size.double() > 0) & (size.double() < 2**31)).reshape(len(size), -1).all(1)
    if not is_compiling() and not bool(fits.all()):
        raise RuntimeError(f"{op}: {in_sample(fits)}size must be positive and less than 2**31, got {size.tolist()}")
    rounded = (size.reshape(-1, spatial).double() + 0.5).floor().clamp(min=1).long()
    # Sizes that all samples share become Python numbers, so the output is dense.
    return list(rounded.unbind(1)) if len(rounded) != 1 or is_compiling() else rounded[0].tolist()


def _canvas(extents: Sequence[Any], angle: Any, axis: Any, counts: Any) -> list[Any]:
    """Return the extents of the canvas, outermost first: numbers if everything is known, else int64 (N,)."""
    tensors = any(isinstance(value, torch.Tensor) for value in (*extents, angle, axis))
    sizes: list[Any] = list(reversed(extents))
    if not tensors:
        return [*reversed(rotated_canvas(sizes, angle, axis))]
    # In float32, as on the host alone: the canvas must not depend on how the angle was given.
    turn = angle.to(torch.float32).reshape(angle.shape[0], -1) if isinstance(angle, torch.Tensor) else torch.tensor([[angle]], dtype=torch.float32)
    parts: Any = axis
    if isinstance(axis, torch.Tensor):
        parts = axis.to(torch.float32).reshape(axis.shape[0], -1, 3).unbind(-1)
    sizes = [s[:, None] if isinstance(s, torch.Tensor) else torch.tensor([[s]]) for s in sizes]
    return [*reversed(rotated_canvas_of_frames(sizes, turn, parts, counts))]


def _checked_axis(axis: Any) -> Any:
    """Return three Python numbers rounded to float32, or the tensor."""
    if isinstance(axis, torch.Tensor):
        elements = axis.shape[-1] if axis.dim() > 1 else 1
        zero = not is_compiling() and not bool((axis != 0).any(-1).all())
    else:
        elements = len(axis) if isinstance(axis, list) else 1
        zero = isinstance(axis, list) and not any(axis)
    if elements != 3:
        raise RuntimeError(f"rotate: axis must have 3 elements, got {elements}")
    if zero:
        raise RuntimeError("rotate: axis must not be zero")
    return axis if isinstance(axis, torch.Tensor) else [single(part) for part in columns("rotate", "axis", axis, 3)]
