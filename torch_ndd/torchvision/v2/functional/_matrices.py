# SPDX-License-Identifier: Apache-2.0
"""Affine and projective maps as tuples of numbers, each of them one number or one per sample."""

import math
from typing import Any, TypeAlias

import numpy as np
import torch

from ...._core.native.tracing import is_compiling
from ....ops._columns import float32
from ..._numbers import Number, numbers

Matrix: TypeAlias = "tuple[Number, Number, Number, Number, Number, Number]"  # x' = a x + b y + c, y' = d x + e y + f


def _call(name: str, x: Number) -> Any:
    return getattr(torch, name)(x) if isinstance(x, torch.Tensor) else getattr(math, name)(x)


def _radians(degrees: Number) -> Any:
    return torch.deg2rad(degrees.to(torch.float64)) if isinstance(degrees, torch.Tensor) else math.radians(degrees)


def affine_matrix(
    center: tuple[Number, Number], angle: Number, translate: tuple[Number, Number], scale: Number, shear: tuple[Number, Number], inverse: bool
) -> Matrix:
    """Return ``T(translate) C R(angle) scale ShearY ShearX C^-1``, where C moves the center to the origin; or its inverse.

    The angle is clockwise, in degrees.
    """
    turn, sx, sy = _radians(angle), _radians(shear[0]), _radians(shear[1])
    (cx, cy), (tx, ty) = center, translate
    # Product of the rotation and both shears, written out: no matrices of single samples are multiplied.
    a = _call("cos", turn - sy) / _call("cos", sy)
    b = -(a * _call("tan", sx) + _call("sin", turn))
    c = _call("sin", turn - sy) / _call("cos", sy)
    d = _call("cos", turn) - c * _call("tan", sx)
    # The order of torchvision: shear along x, then along y, then rotation. The determinant without the scale is 1.
    if inverse:
        a, b, c, d = d / scale, -b / scale, -c / scale, a / scale
        return (a, b, cx - a * (cx + tx) - b * (cy + ty), c, d, cy - c * (cx + tx) - d * (cy + ty))
    a, b, c, d = a * scale, b * scale, c * scale, d * scale
    return (a, b, cx + tx - a * cx - b * cy, c, d, cy + ty - c * cx - d * cy)


def about_centers(matrix: Matrix, source: tuple[Number, Number], target: tuple[Number, Number]) -> Matrix:
    """Convert a map between coordinates relative to the centers of target and source to one relative to their upper left corners.

    The sizes are height and width.
    """
    a, b, c, d, e, f = matrix
    x, y = target[1] * 0.5, target[0] * 0.5
    return (a, b, c + source[1] * 0.5 - a * x - b * y, d, e, f + source[0] * 0.5 - d * x - e * y)


_TOLERANCE = 1e-4  # of the corners, in pixels: torchvision truncates to it, so rounding errors do not add a pixel


def rotated_size(matrix: Matrix, height: Number, width: Number) -> tuple[Any, Any]:
    """Return height and width of the smallest canvas that holds the image after the map, in float32 like torchvision."""
    if not any(isinstance(number, torch.Tensor) for number in (*matrix, height, width)):
        return _rotated_number_size(matrix, height, width)
    columns = [torch.as_tensor(number, dtype=torch.float32) for number in matrix]
    h, w = (torch.as_tensor(extent).to(torch.float32) * 0.5 for extent in (height, width))
    a, b, c, d, e, f = columns
    corners = [(sx * w, sy * h) for sx, sy in ((-1, -1), (-1, 1), (1, 1), (1, -1))]
    extents = []
    for p, q, r, half in ((d, e, f, h), (a, b, c, w)):
        at = torch.stack(torch.broadcast_tensors(*[p * x + q * y + r for x, y in corners]))
        low, high = at.amin(0) + half, at.amax(0) + half
        steps = 1.0 / _TOLERANCE
        top = torch.ceil(torch.trunc(high * steps) * _TOLERANCE)
        bottom = torch.floor(torch.trunc(low * steps) * _TOLERANCE)
        extents.append((top - bottom).to(torch.int64))
    return extents[0], extents[1]


def _rotated_number_size(matrix: Matrix, height: Number, width: Number) -> tuple[int, int]:
    """Return :func:`rotated_size` of numbers; a compiled graph keeps numbers only if tensors are avoided."""
    # Rounded to float32 after each step, as torch does for tensors.
    a, b, c, d, e, f = (float32(float(number)) for number in matrix)
    h, w = float32(height * 0.5), float32(width * 0.5)  # type: ignore[arg-type]  # numbers here; tensors go to the function above
    extents = []
    for p, q, r, half in ((d, e, f, h), (a, b, c, w)):
        at = [float32(float32(float32(p * sx * w) + float32(q * sy * h)) + r) for sx, sy in ((-1, -1), (-1, 1), (1, 1), (1, -1))]
        low, high = (math.trunc(float32(float32(corner + half) * (1.0 / _TOLERANCE))) for corner in (min(at), max(at)))
        extents.append(math.ceil(float32(high * float32(_TOLERANCE))) - math.floor(float32(low * float32(_TOLERANCE))))
    return extents[0], extents[1]


def projective_coefficients(startpoints: Any, endpoints: Any, coefficients: Any, batch_size: int | None) -> tuple[Number, ...]:
    """Return the eight coefficients of the map from the output to the input.

    Raises:
        ValueError: neither points nor coefficients, or both, or another count.
    """
    if coefficients is not None:
        if startpoints is not None and endpoints is not None:
            raise ValueError("perspective: pass startpoints and endpoints, or coefficients, not both")
        return numbers("perspective", "coefficients", coefficients, 8, batch_size)
    if startpoints is None or endpoints is None:
        raise ValueError("perspective: pass startpoints and endpoints, or coefficients")
    start, end = _points("startpoints", startpoints, batch_size), _points("endpoints", endpoints, batch_size)
    solved = solve_coefficients(start, end)
    if is_compiling():  # in a graph numbers of a tensor stay in it
        return tuple(solved.expand(batch_size or 1, 8).unbind(1))
    return tuple(solved.unbind(1)) if len(solved) > 1 else tuple(solved[0].tolist())


def _points(name: str, value: Any, batch_size: int | None) -> torch.Tensor:
    values = value.torch() if hasattr(value, "torch") else value
    table = torch.as_tensor(np.asarray(values), dtype=torch.float64) if not isinstance(values, torch.Tensor) else values.to(torch.float64)
    table = table[None] if table.dim() == 2 else table  # the same points for all samples
    if table.dim() != 3 or table.shape[1:] != (4, 2) or (len(table) > 1 and len(table) != batch_size):
        raise ValueError(f"perspective: {name} must be four points (x, y), got the shape {tuple(table.shape)}")
    return table


def solve_coefficients(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """Return float32 coefficients (N, 8) that map ``end`` (N, 4, 2) to ``start``, by least squares in double."""
    count = max(len(start), len(end))
    start, end = start.expand(count, 4, 2), end.expand(count, 4, 2)
    # Two equations per point: x (g u + h v + 1) = a u + b v + c, and alike for y.
    ones, zero = torch.ones_like(end[..., :1]), torch.zeros_like(end)
    plane = torch.cat([end, ones], 2)
    nothing = torch.cat([zero, zero[..., :1]], 2)
    for_x = torch.cat([plane, nothing, -start[..., :1] * end], 2)
    for_y = torch.cat([nothing, plane, -start[..., 1:] * end], 2)
    system = torch.stack([for_x, for_y], 2).reshape(count, 8, 8)
    # torchvision solves by least squares. Graphs do not support that; in double, the difference is below float32's precision.
    if is_compiling():
        return torch.linalg.solve(system, start.reshape(count, 8, 1))[..., 0].to(torch.float32).to(torch.float64)
    return torch.linalg.lstsq(system, start.reshape(count, 8, 1), driver="gels").solution[..., 0].to(torch.float32).to(torch.float64)


def inverse_coefficients(c: tuple[Number, ...]) -> tuple[Number, ...]:
    """Return the coefficients of the inverse map.

    Raises:
        RuntimeError: a map without an inverse.
    """
    determinant = c[0] * c[4] - c[1] * c[3]
    if bool((determinant == 0).any() if isinstance(determinant, torch.Tensor) else determinant == 0):
        raise RuntimeError(f"perspective: the coefficients {c} are not invertible")
    # The inverse of a 3x3 matrix up to a factor, divided so that its last entry is 1.
    adjugate = (
        c[4] - c[5] * c[7],
        -c[1] + c[2] * c[7],
        c[1] * c[5] - c[2] * c[4],
        -c[3] + c[5] * c[6],
        c[0] - c[2] * c[6],
        -c[0] * c[5] + c[2] * c[3],
        -c[4] * c[6] + c[3] * c[7],
        -c[0] * c[7] + c[1] * c[6],
    )
    return tuple(number / determinant for number in adjugate)
