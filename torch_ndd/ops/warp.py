# SPDX-License-Identifier: Apache-2.0
"""Geometric warps: every output pixel asks a map where it comes from."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from .. import types
from .._batch import Batch
from .._operator import DeviceLike, Launch, PerSample, ShapeArg, T, operator
from ._outputs import resized
from ._resize_plan import columns, single

LAYOUTS = ("HWC", "FHWC", "DHWC", "FDHWC")


@operator(layouts=LAYOUTS, kernel="Tensor angle, Tensor? axis, Tensor? fill_value, int interp_type, int spatial")
def rotate(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    angle: ShapeArg[float],
    axis: ShapeArg[Sequence[float]] | None = None,
    dtype: torch.dtype | None = None,
    fill_value: PerSample[float] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    keep_size: bool = False,
    output_dtype: Any = None,
    size: ShapeArg[Sequence[float]] | None = None,
) -> T:
    """Rotate images counter-clockwise by ``angle``, or volumes about ``axis``.

    ``out[p] = in[R (p - centre(out)) + centre(in)]``; pixel i covers [i, i + 1). The canvas grows to hold the whole result, unless ``size`` or
    ``keep_size`` says otherwise; a side keeps the parity of the input's side that it mostly shows.

    Args:
        input: ``HWC``, ``FHWC``, ``DHWC`` or ``FDHWC``.
        angle: degrees, one per sample or per frame; the frames of a sequence share the largest canvas.
        axis: direction (x, y, z) of the axis, of any length, for volumes only; a volume turns counter-clockwise seen from the axis' tip.
        size: extents of the output, depth first, rounded half up.
        keep_size: the output has the input's extents.
        fill_value: what shows outside the input; by default the nearest border pixel.
        interp_type: ``INTERP_LINEAR`` or ``INTERP_NN``.
        dtype: of the output, by default the input's.
        output_dtype: deprecated name of ``dtype``.

    Raises:
        RuntimeError: no axis for a volume, or one that is zero or not three numbers; another ``interp_type``; a size of the wrong length or not
            positive; an angle that is not finite; angles for another number of frames.
        ValueError: a layout that is not among the above.
        TypeError: both ``dtype`` and ``output_dtype``.

    >>> rotate(torch.tensor([[[1], [2]]], dtype=torch.uint8), angle=90).torch().flatten()
    tensor([2, 1], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    layout = images._layout or ""
    first, spatial = layout.startswith("F"), 3 if "D" in layout else 2
    shape = images._values.shape[1:] if images._shapes is None else images._shapes.unbind(1)
    extents: Sequence[Any] = shape[first : first + spatial]
    _check(angle, images, first)
    if spatial == 3 and axis is None:
        raise RuntimeError("rotate: volumes need the argument axis")
    turn_axis = None if spatial == 2 else _checked_axis(axis)
    if size is not None:
        canvas = _given_size(size, spatial)
    elif keep_size:
        canvas = extents
    else:
        canvas = _canvas(extents, angle, turn_axis)
    out = resized(images, range(first, first + spatial), canvas, _result_type(images.dtype, dtype, output_dtype))
    arguments = [_row(angle, 1), None if turn_axis is None else _row(turn_axis, 3), fill_value, _interpolation(interp_type), spatial]
    return Launch(out, arguments)  # type: ignore[return-value]


def _check(angle: Any, images: Batch, sequence: bool) -> None:
    if isinstance(angle, torch.Tensor):
        frames = angle.numel() // max(1, angle.shape[0])
        if sequence and images._shapes is None and frames not in (1, images._values.shape[1]):
            raise RuntimeError(f"rotate: angle is given for {frames} frames, but the sequence has {images._values.shape[1]}")
        finite = torch.compiler.is_compiling() or bool(torch.isfinite(angle.to(torch.float32)).all())
    else:
        finite = abs(angle) < 3.4e38
    if not finite:
        raise RuntimeError("rotate: angle must be finite")


def _interpolation(interp_type: Any) -> int:
    if not isinstance(interp_type, int):
        raise TypeError(f"rotate: interp_type must be INTERP_NN or INTERP_LINEAR, got {interp_type!r}")
    if interp_type not in (types.INTERP_NN, types.INTERP_LINEAR):
        raise RuntimeError(f"rotate: interp_type must be INTERP_NN or INTERP_LINEAR, got {interp_type!r}")
    return int(interp_type)


def _result_type(given: torch.dtype, dtype: torch.dtype | None, output_dtype: Any) -> torch.dtype:
    if output_dtype is None:
        return dtype or given
    if dtype is not None:
        raise TypeError("rotate: output_dtype is the deprecated name of dtype; give only dtype")
    try:
        result = types.to_dtype(output_dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"rotate: output_dtype: {error}") from None
    if not torch.compiler.is_compiling():
        warnings.warn("rotate: output_dtype is deprecated, use dtype", DeprecationWarning, stacklevel=4)
    return result


def _row(value: Any, width: int) -> torch.Tensor:
    """A shape argument as the kernel takes it."""
    return value if isinstance(value, torch.Tensor) else torch.tensor([value], dtype=torch.float32).reshape(1, width)


def _given_size(size: Any, spatial: int) -> list[Any]:
    if not isinstance(size, torch.Tensor):
        size = size if isinstance(size, list) else [size]
        if len(size) != spatial:
            raise RuntimeError(f"rotate: size has {len(size)} elements, but there are {spatial} spatial axes")
        if not all(isinstance(s, int | float) and 0 < s < 2**31 for s in size):
            raise RuntimeError(f"rotate: size must be positive and less than 2**31, got {size}")
        return [max(1, math.floor(s + 0.5)) for s in size]
    if size.numel() != size.shape[0] * spatial:
        raise RuntimeError(f"rotate: size has {size.numel() // max(1, size.shape[0])} elements, but there are {spatial} spatial axes")
    if not torch.compiler.is_compiling() and not bool(((size.double() > 0) & (size.double() < 2**31)).all()):
        raise RuntimeError(f"rotate: size must be positive and less than 2**31, got {size.tolist()}")
    rounded = (size.reshape(-1, spatial).double() + 0.5).floor().clamp(min=1).long()
    return list(rounded.unbind(1)) if len(rounded) != 1 or torch.compiler.is_compiling() else rounded[0].tolist()


def _canvas(extents: Sequence[Any], angle: Any, axis: Any) -> list[Any]:
    """Extents of the canvas, outermost first: numbers where everything is known, else int64 (N,)."""
    tensors = any(isinstance(value, torch.Tensor) for value in (*extents, angle, axis))
    sizes: list[Any] = list(reversed(extents))
    if not tensors:
        return [*reversed(rotated_canvas(sizes, angle, axis))]
    turn = angle.to(torch.float32).reshape(angle.shape[0], -1) if isinstance(angle, torch.Tensor) else torch.tensor([[angle]], dtype=torch.float32)
    parts: Any = axis
    if isinstance(axis, torch.Tensor):
        parts = axis.to(torch.float32).reshape(axis.shape[0], -1, 3).unbind(-1)
    sizes = [s[:, None] if isinstance(s, torch.Tensor) else torch.tensor([[s]]) for s in sizes]
    return [extent.amax(1) for extent in reversed(rotated_canvas(sizes, turn, parts))]


def _checked_axis(axis: Any) -> Any:
    """Three Python numbers in float32, or the tensor."""
    if isinstance(axis, torch.Tensor):
        elements = axis.shape[-1] if axis.dim() > 1 else 1
        zero = not torch.compiler.is_compiling() and not bool((axis != 0).any(-1).all())
    else:
        elements = len(axis) if isinstance(axis, list) else 1
        zero = isinstance(axis, list) and not any(axis)
    if elements != 3:
        raise RuntimeError(f"rotate: axis must have 3 elements, got {elements}")
    if zero:
        raise RuntimeError("rotate: axis must not be zero")
    return axis if isinstance(axis, torch.Tensor) else [single(part) for part in columns("rotate", "axis", axis, 3)]


def rotated_canvas(size: Sequence[Any], angle: Any, axis: Sequence[Any] | None = None) -> list[Any]:
    """The smallest canvas that holds rotated images, per spatial axis, x first; numbers, or tensors that broadcast.

    A side keeps the parity of the input side that it mostly shows: pixel centres stay pixel centres. ``angle`` is in degrees.

    >>> rotated_canvas([640, 480], 90.0)
    [480, 640]
    """
    # In float32, as DALI has it: near 45 degrees the rounding decides which of two sides is the larger.
    turn = single(single(angle) * single(math.pi / 180))
    wide = turn.double() if isinstance(turn, torch.Tensor) else turn
    cos, sin = (wide.cos(), wide.sin()) if isinstance(wide, torch.Tensor) else (math.cos(wide), math.sin(wide))
    if axis is None:
        weights, tie = [(abs(cos), abs(sin)), (abs(sin), abs(cos))], 0.0
    else:
        weights, tie = _volume_weights(cos, sin, axis), 6e-8
    canvas = []
    for i, row in enumerate(weights):
        shown, most = size[i], row[i] + tie
        extent = row[0] * size[0]
        for k, weight in enumerate(row):
            if k > 0:
                extent = extent + weight * size[k] if axis is None else single(extent + single(weight * size[k]))
            if k != i:
                larger = weight > most
                shown, most = _choose(larger, size[k], shown), _choose(larger, weight, most)
        whole = (extent - 0.01).ceil().long() if isinstance(extent, torch.Tensor) else math.ceil(extent - 0.01)
        canvas.append(whole + (whole + shown) % 2)
    return canvas


def _volume_weights(cos: Any, sin: Any, axis: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The absolute values of a rotation matrix, rounded to float32 after every operation."""
    f = single
    cos, sin = (cos.float(), sin.float()) if isinstance(cos, torch.Tensor) else (f(cos), f(sin))
    x, y, z = axis
    length = f(f(f(f(x * x) + f(y * y)) + f(z * z)) ** 0.5)
    x, y, z = f(x / length), f(y / length), f(z / length)
    rest = f(1 - cos)

    def entry(a: Any, b: Any, turn: Any) -> Any:
        return abs(f(f(f(rest * a) * b) + turn))

    xs, ys, zs = f(sin * x), f(sin * y), f(sin * z)
    return [
        (entry(x, x, cos), entry(x, y, -zs), entry(x, z, ys)),
        (entry(x, y, zs), entry(y, y, cos), entry(y, z, -xs)),
        (entry(x, z, -ys), entry(y, z, xs), entry(z, z, cos)),
    ]


def _choose(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, a, b)
    return a if condition else b
