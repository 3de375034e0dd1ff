# SPDX-License-Identifier: Apache-2.0
"""The canvases of rotated images, and those of rotated and pasted images in repeated calls."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._core import native
from ..._core.operators.operator import Derivation
from .._columns import choose, float32
from ._axis_numbers import SIZE, AxisNumbers, derive_natively, pack_numbers
from ._resize_plan import single

_find_paste_canvases, _find_rotated_canvases = native.c_function("ndd_paste_canvases"), native.c_function("ndd_rotated_canvases")


def rotated_canvas(size: Sequence[Any], angle: Any, axis: Sequence[Any] | None = None) -> list[Any]:
    """Return the smallest canvas that holds rotated images, per spatial axis, x first; numbers, or tensors that broadcast.

    A side keeps the parity of the input side that contributes most to it, so pixel centers stay pixel centers. ``angle`` is in degrees.

    >>> rotated_canvas([640, 480], 90.0)
    [480, 640]
    """
    return [least + (least + parity) % 2 for least, parity in _least_canvas(size, angle, axis)]


def rotated_canvas_of_frames(size: Sequence[Any], angle: torch.Tensor, axis: Sequence[Any] | None, counts: Any) -> list[torch.Tensor]:
    """Return the canvases of rotated sequences, per spatial axis, x first, int64 (N,); what is (N, frames) differs from frame to frame.

    A side holds every frame and has the parity that more than half of the frames prefer, which is even in a tie. ``counts``: the frames of each
    sequence, a number or int64 (N,); values beyond them repeat the last one.
    """
    canvas = []
    for least, parity in _least_canvas(size, angle, axis):
        shown = (torch.arange(least.shape[1]) < (counts[:, None] if isinstance(counts, torch.Tensor) else counts)).expand_as(least)
        whole, odd = least.amax(1), 2 * (parity % 2 * shown).sum(1) > shown.sum(1)
        canvas.append(whole + (whole + odd) % 2)
    return canvas


def _least_canvas(size: Sequence[Any], angle: Any, axis: Sequence[Any] | None) -> list[tuple[Any, Any]]:
    """Return the least extent that holds the image along each axis, and an extent of the image whose parity it should have."""
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
        canvas.append((whole, shown))
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
    return _derive(_find_paste_canvases, values, (), 1, False)


def derive_rotated_canvases(first: int, angle: Any, keep_size: bool) -> Derivation | None:
    """Return how to check the angles of images again, whose height is the axis ``first``, and to compute their canvases."""
    return _derive(_find_rotated_canvases, {"angle": angle}, (first, keep_size), 0, True)


def _derive(function: Any, arguments: Mapping[str, Any], options: Sequence[int], count: int, passed: bool) -> Derivation | None:
    """Return the derivation of a function of arguments, each a number or a tensor with one for each sample; None if it does not take them."""
    numbers = [AxisNumbers(values=v, name=name) if isinstance(v, torch.Tensor) else AxisNumbers(float32(v)) for name, v in arguments.items()]
    packed = pack_numbers(numbers)
    if packed is None or any(number.values is not None and number.values.numel() != len(number.values) for number in numbers):
        return None
    return derive_natively(function, packed, [(k * SIZE, n) for k, n in enumerate(numbers)], options, count, passed=passed)
