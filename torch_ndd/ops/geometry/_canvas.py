# SPDX-License-Identifier: Apache-2.0
"""The canvas of a rotated image."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from .._columns import choose
from ._resize_plan import single


def rotated_canvas(size: Sequence[Any], angle: Any, axis: Sequence[Any] | None = None) -> list[Any]:
    """Return the smallest canvas that holds rotated images, per spatial axis, x first; numbers, or tensors that broadcast.

    A side keeps the parity of the input side that contributes most to it, so that pixel centers stay pixel centers. ``angle`` is in degrees.

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
