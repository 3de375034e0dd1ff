# SPDX-License-Identifier: Apache-2.0
"""Resampling by dense matrices of weights: the reference of resize and its relatives."""

from collections.abc import Sequence

import numpy as np

FILTERS = ("NN", "LINEAR", "CUBIC", "LANCZOS3", "TRIANGULAR", "GAUSSIAN")
RADIUS = {"CUBIC": 2, "LANCZOS3": 3, "GAUSSIAN": 1, "TRIANGULAR": 1, "LINEAR": 1}


def kernel(name: str, x: np.ndarray) -> np.ndarray:
    """The Gaussian, tabulated every 1/32 and interpolated, as in DALI (off by up to 1e-3)."""
    knots = np.arange(4 * 32) / 32
    return np.interp(np.abs(x), knots, ideal_kernel(name, knots), right=0)


def ideal_kernel(name: str, x: np.ndarray) -> np.ndarray:
    if name == "CUBIC":
        return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0))
    if name == "LANCZOS3":
        return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
    if name == "GAUSSIAN":
        return np.where(x <= 1, np.exp(-4 * x * x), 0)
    return np.maximum(1 - x, 0)


def weights(n: int, out: int, start: float, end: float, name: str, antialias: bool = True) -> np.ndarray:
    """Return every output element of an axis as weights of source elements: (out, n)."""
    scale = (end - start) / out
    center = start + (np.arange(out) + 0.5) * scale
    if name == "NN":
        taps, mix = np.floor(center)[:, None], np.ones((out, 1))
    else:
        stretch = max(1.0, abs(scale)) if antialias else 1.0
        reach = RADIUS[name] * stretch
        taps = np.ceil(center - 0.5 - reach)[:, None] + np.arange(np.ceil(2 * reach))
        mix = kernel(name, (taps + 0.5 - center[:, None]) / stretch)
        mix /= mix.sum(1, keepdims=True)
    matrix = np.zeros((out, n))
    np.add.at(matrix, (np.arange(out)[:, None], np.clip(taps, 0, n - 1).astype(int)), mix)
    return matrix


def reference(
    image: np.ndarray, size: Sequence[int], interp: str = "LINEAR", antialias: bool = True, region: Sequence[Sequence[float]] | None = None
) -> np.ndarray:
    """Resample an HWC image by dense weight matrices in float64."""
    (top, left), (bottom, right) = region or ((0, 0), image.shape[:2])
    rows = weights(image.shape[0], size[0], top, bottom, interp, antialias)
    columns = weights(image.shape[1], size[1], left, right, interp, antialias)
    return np.einsum("yh,xw,hwc->yxc", rows, columns, image.astype(np.float64), optimize=True)
