# SPDX-License-Identifier: Apache-2.0
"""References of the warps in NumPy, pixel by pixel."""

import itertools
import math
from typing import Any

import numpy as np

from torch_ndd import types


def border_index(i: np.ndarray, n: int, border: str) -> np.ndarray:
    """Return the source pixel of each pixel; -1 for the fill value."""
    if border == "constant":
        return np.where((i >= 0) & (i < n), i, -1)
    if border == "replicate" or n == 1:
        return i.clip(0, n - 1)
    mirrored = {"wrap": range(n), "reflect": [*range(n), *reversed(range(n))], "reflect_101": [*range(n), *range(n - 2, 0, -1)]}[border]
    return np.array(mirrored)[i % len(mirrored)]


def cubic(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.75
    return np.where(x < 1, (a + 2) * x**3 - (a + 3) * x**2 + 1, np.where(x < 2, a * (x**3 - 5 * x**2 + 8 * x - 4), 0))


def lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


KERNELS = {types.INTERP_LINEAR: (1, lambda x: 1 - np.abs(x)), types.INTERP_CUBIC: (2, cubic), types.INTERP_LANCZOS3: (3, lanczos)}


def sample(image: np.ndarray, points: np.ndarray, border: str, fill: Any = 0.0, interp: int = types.INTERP_LINEAR) -> np.ndarray:
    """Return the values of `image`, channels last, at `points`, whose last dimension is (x, y, ...)."""
    axes = image.ndim - 1
    radius, kernel = KERNELS.get(interp, (0, np.ones_like))
    points = points[..., ::-1] - (0.5 if radius else 0)
    low = np.floor(points).astype(int)
    taps = np.arange(1 - radius, radius + 1) if radius else np.array([0])
    weights = kernel(low[..., None] + taps - points[..., None])
    if interp == types.INTERP_LANCZOS3:
        weights /= weights.sum(-1, keepdims=True)
    result = np.zeros((*points.shape[:-1], image.shape[-1]))
    for corner in itertools.product(range(len(taps)), repeat=axes):
        index = [border_index(low[..., axis] + taps[k], image.shape[axis], border) for axis, k in enumerate(corner)]
        outside = np.any([i < 0 for i in index], axis=0)[..., None]
        weight = np.prod([weights[..., axis, k] for axis, k in enumerate(corner)], axis=0)[..., None]
        result += weight * np.where(outside, fill, image[tuple(index)].astype(np.float64))
    return result


def centers(size: tuple[int, ...]) -> np.ndarray:
    """Return the pixel centers of an image or volume of this size, (*size, axes), x first."""
    return np.stack(np.meshgrid(*(np.arange(n) + 0.5 for n in size), indexing="ij")[::-1], axis=-1)


def warp(image: np.ndarray, matrix: np.ndarray, size: tuple[int, ...], *, fill: float | None, nearest: bool) -> np.ndarray:
    """Sample `image` at matrix @ (output - its center) + the image's center; x first in the matrix."""
    points = (centers(size) - np.array(size[::-1]) / 2) @ matrix.T + np.array(image.shape[len(size) - 1 :: -1]) / 2
    interp = types.INTERP_NN if nearest else types.INTERP_LINEAR
    return sample(image, points, "replicate" if fill is None else "constant", 0.0 if fill is None else fill, interp)


def rotation(degrees: float, axis: tuple[float, ...] | None) -> np.ndarray:
    """Return the map from output to input, x first."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if axis is None:
        return np.array([[cos, -sin], [sin, cos]])
    x, y, z = np.array(axis) / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) * cos - sin * cross + (1 - cos) * np.outer((x, y, z), (x, y, z))


def round_to(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if not np.issubdtype(dtype, np.integer):
        return values
    info = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(values) + 0.5), values), info.min, info.max)


def turn(
    image: np.ndarray,
    angle: float,
    size: list[float] | None = None,
    keep_size: bool = False,
    axis: list[float] | None = None,
    fill_value: float | None = None,
    interp_type: int = types.INTERP_LINEAR,
) -> np.ndarray:
    assert keep_size or size is not None
    extents = image.shape[:-1] if size is None else tuple(int(s + 0.5) for s in size)
    matrix = rotation(angle, None if axis is None else tuple(axis))
    result = warp(image, matrix, extents, fill=fill_value, nearest=interp_type == types.INTERP_NN)
    return round_to(result, image.dtype).astype(image.dtype)


def affine(
    image: np.ndarray,
    mtx: np.ndarray | None = None,
    matrix: Any = None,
    inverse_map: bool = True,
    size: list[float] | None = None,
    fill_value: Any = None,
    interp_type: int = types.INTERP_LINEAR,
    dtype: str | None = None,
) -> np.ndarray:
    axes = image.ndim - 1
    square = np.vstack([np.reshape(matrix if mtx is None else mtx, (axes, axes + 1)), [0] * axes + [1]]).astype(np.float64)
    square = square if inverse_map else np.linalg.inv(square)
    points = centers(image.shape[:-1] if size is None else tuple(int(s + 0.5) for s in size)) @ square[:axes, :axes].T + square[:axes, axes]
    result = sample(image, points, "replicate" if fill_value is None else "constant", 0.0 if fill_value is None else fill_value, interp_type)
    target = np.dtype("float32" if dtype == "f32" else image.dtype)
    return round_to(result, target).astype(target)


def perspective(
    image: np.ndarray,
    matrix: Any = None,
    inverse_map: bool = True,
    size: list[float] | None = None,
    fill_value: Any = 0.0,
    border_mode: str = "constant",
    pixel_origin: str = "corner",
    interp_type: int = types.INTERP_LINEAR,
) -> np.ndarray:
    square = np.reshape(matrix, (3, 3)).astype(np.float64)
    square = square if inverse_map else np.linalg.inv(square)
    shift = 0.5 if pixel_origin == "center" else 0.0
    to = centers(image.shape[:2] if size is None else tuple(int(s + 0.5) for s in size)) - shift
    points = np.concatenate([to, np.ones((*to.shape[:-1], 1))], -1) @ square.T
    return round_to(sample(image, points[..., :2] / points[..., 2:] + shift, border_mode, fill_value, interp_type), image.dtype).astype(image.dtype)


def perspective_of_input(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return perspective(image, matrix)


def remap(image: np.ndarray, x: np.ndarray, y: np.ndarray, interp: int = types.INTERP_LINEAR, pixel_origin: str = "corner") -> np.ndarray:
    points = np.stack([x, y], -1).astype(np.float64) + (0.5 if pixel_origin == "center" else 0.0)
    return round_to(sample(image, points, "constant", 0.0, interp), image.dtype).astype(image.dtype)


def on_water(
    image: np.ndarray,
    ampl_x: float = 10.0,
    ampl_y: float = 10.0,
    freq_x: float = 2 * math.pi / 128,
    freq_y: float = 2 * math.pi / 128,
    phase_x: float = 0.0,
    phase_y: float = 0.0,
    fill_value: Any = 0.0,
    interp_type: int = types.INTERP_NN,
    mask: int = 1,
) -> np.ndarray:
    x, y = np.moveaxis(centers(image.shape[:2]) - 0.5, -1, 0)
    points = np.stack([x + ampl_x * np.sin(freq_x * y + phase_x), y + ampl_y * np.cos(freq_y * x + phase_y)], -1)
    result = sample(image, points, "constant", fill_value, interp_type) if mask else image
    return round_to(result, image.dtype).astype(image.dtype)


def on_a_sphere(image: np.ndarray, fill_value: Any = 0.0, interp_type: int = types.INTERP_NN, mask: int = 1) -> np.ndarray:
    center = np.array(image.shape[1::-1]) / 2
    offset = centers(image.shape[:2]) - center
    points = center + offset * np.linalg.norm(offset, axis=-1, keepdims=True) / (max(image.shape[:2]) // 2)
    result = sample(image, points, "constant", fill_value, interp_type) if mask else image
    return round_to(result, image.dtype).astype(image.dtype)
