# SPDX-License-Identifier: Apache-2.0
"""The canvases of rotated images, and those of rotated and pasted images in repeated calls."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._core import native
from ..._core.operators.operator import Derivation
from ..._core.values.batch import Batch
from .._columns import choose, float32
from ._axis_numbers import SIZE, AxisNumbers, Template, pack_shapes
from ._resize_plan import single

_find_paste_canvases, _find_rotated_canvases = native.c_function("ndd_paste_canvases"), native.c_function("ndd_rotated_canvases")


def rotated_canvas(size: Sequence[Any], angle: Any, axis: Sequence[Any] | None = None) -> list[Any]:
    """Return the smallest canvas that holds rotated images, per spatial axis, x first; numbers, or tensors that broadcast.

    A side keeps the parity of the input side that contributes most to it, so pixel centers stay pixel centers. ``angle`` is in degrees.

    >>> rotated_canvas([640, 480], 90.0)
    [480, 640]
    """
    # In float32, like DALI: near 45 degrees the rounding decides which of two sides is larger.
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
                shown, most = choose(larger, size[k], shown), choose(larger, weight, most)
        # Minus 0.01: rounding must not add a pixel to a rotation by 90 degrees.
        whole = (extent - 0.01).ceil().long() if isinstance(extent, torch.Tensor) else math.ceil(extent - 0.01)
        canvas.append(whole + (whole + shown) % 2)
    return canvas


def _volume_weights(cos: Any, sin: Any, axis: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the absolute values of a rotation matrix, rounded to float32 after every operation."""
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


def derive_paste_canvases(ratio: Any, min_canvas_size: Any, paste_y: Any, paste_x: Any) -> Derivation | None:
    """Return how to compute again where :func:`paste` begins to read, and the canvases; None for an argument that native code does not take."""
    values = {"ratio": ratio, "min_canvas_size": min_canvas_size, "paste_y": paste_y, "paste_x": paste_x}
    if (template := _pack_numbers(values)) is None:
        return None

    def compute(images: Batch, values: Mapping[str, torch.Tensor]) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        size = images.batch_size
        starts, shapes = torch.empty(2, size, 3, dtype=torch.int64).unbind(0)
        if not _find_paste_canvases(template.fill(values), *pack_shapes(images), size, starts.data_ptr(), shapes.data_ptr()):
            raise ValueError("wrong canvases")
        return (starts,), shapes

    return Derivation(compute, 1, template.names)


def derive_rotated_canvases(first: int, angle: Any) -> Derivation | None:
    """Return how to compute the canvases of images that grow again; their height is the axis ``first``."""
    if (template := _pack_numbers({"angle": angle})) is None:
        return None

    def compute(images: Batch, values: Mapping[str, torch.Tensor]) -> tuple[tuple[()], torch.Tensor]:
        size, ndim = images.batch_size, images.ndim
        shapes = torch.empty(size, ndim, dtype=torch.int64)
        if not _find_rotated_canvases(template.fill(values), *pack_shapes(images), size, ndim, first, shapes.data_ptr()):
            raise ValueError("wrong angles")
        return (), shapes

    return Derivation(compute, 0, template.names, passed=template.names)


def _pack_numbers(arguments: Mapping[str, Any]) -> Template | None:
    """Return arguments, each a number or a tensor with one for each sample, as native code takes them."""
    numbers = [AxisNumbers(values=v, name=name) if isinstance(v, torch.Tensor) else AxisNumbers(float32(v)) for name, v in arguments.items()]
    packed = [number.pack() for number in numbers]
    if any(number.values is not None and number.values.numel() != len(number.values) for number in numbers):
        return None
    return None if None in packed else Template(b"".join(p for p in packed if p is not None), [(k * SIZE, n) for k, n in enumerate(numbers)])
