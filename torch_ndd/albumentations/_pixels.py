# SPDX-License-Identifier: Apache-2.0
"""Crops, resizing and warps with OpenCV's constants and rules."""

from typing import Any

import torch

from .. import types
from .._core.values.batch import Batch
from ..ops._borders import Border, BorderMode
from ..ops.generic.convert import cast
from ..ops.geometry import slice as slices
from ..ops.geometry.resize import resize
from ..ops.geometry.warp import warp_perspective
from ._sample import OP, Sample
from ._step import per_sample, refuse

# OpenCV's numbers, so OpenCV is not needed.
NEAREST, LINEAR, CUBIC, AREA, LANCZOS4, LINEAR_EXACT, NEAREST_EXACT = range(7)
CONSTANT, REPLICATE, REFLECT, WRAP, REFLECT_101 = range(5)
REFLECTING = (REFLECT, REFLECT_101)

_FILTERS = {
    NEAREST: types.INTERP_NN,
    LINEAR: types.INTERP_LINEAR,
    CUBIC: types.INTERP_CUBIC,
    LINEAR_EXACT: types.INTERP_LINEAR,
    NEAREST_EXACT: types.INTERP_NN,
}
_WARP_FILTERS = {number: _FILTERS[number] for number in (NEAREST, LINEAR, CUBIC)}
_BORDERS: dict[int, BorderMode] = {CONSTANT: "constant", REPLICATE: "replicate", REFLECT: "reflect", WRAP: "wrap", REFLECT_101: "reflect_101"}
_POLICIES: dict[int, Border] = {CONSTANT: "constant", REPLICATE: "edge", REFLECT: "reflect", WRAP: "wrap", REFLECT_101: "reflect_101"}


def check_filter(transform: Any, warps: bool = False) -> None:
    """Raise ValueError for an interpolation that no operator has."""
    known = _WARP_FILTERS if warps else _FILTERS
    for setting in ("interpolation", "mask_interpolation"):
        if (number := getattr(transform, setting, LINEAR)) not in known:
            name = {AREA: "INTER_AREA", LANCZOS4: "INTER_LANCZOS4"}.get(number, str(number))
            raise refuse(transform, f"{setting}={name}", "only nearest, linear and cubic interpolation have OpenCV's results")
    if getattr(transform, "area_for_downscale", None) is not None:
        raise refuse(transform, f"area_for_downscale={transform.area_for_downscale!r}", "INTER_AREA has no operator with OpenCV's results")


def check_fill(fill: Any) -> Any:
    """Return a fill value as one number or one per channel."""
    return [float(number) for number in fill] if isinstance(fill, tuple | list) else float(fill)


def crop(
    images: Batch, top: torch.Tensor, left: torch.Tensor, height: torch.Tensor, width: torch.Tensor, fill: Any = None, border: int = CONSTANT
) -> Batch:
    """Return a window of each image; where it leaves the image, there is a border, or an error if ``fill`` is None."""
    start, shape = (torch.stack(pair, 1).to(torch.int64) for pair in ((top, left), (height, width)))
    options: dict[str, Any] = {} if fill is None else {"out_of_bounds_policy": _POLICIES[border], "fill_values": fill}
    return slices.slice(images, start=per_sample(start, torch.int32), shape=_shared(shape), axes=[0, 1], **options)


def resize_window(images: Batch, window: torch.Tensor | None, size: torch.Tensor, interpolation: int) -> Batch:
    """Resize images, or a window (top, left, bottom, right) of each, to ``size`` (N, 2) as ``cv2.resize`` does."""
    options: dict[str, Any] = {"size": _shared(size), "interp_type": _FILTERS[interpolation], "antialias": False}
    options["rule"] = "pillow" if interpolation == NEAREST_EXACT else "torch"
    if window is not None:
        options.update(roi_start=per_sample(window[:, :2]), roi_end=per_sample(window[:, 2:]))
    if interpolation != CUBIC or images.dtype is not torch.uint8:
        return resize(images, **options)
    # In float32: bytes would clip the overshoot of the cubic filter.
    return cast(resize(images, dtype=torch.float32, **options), dtype=torch.uint8)


def warp(images: Batch, matrices: torch.Tensor, size: torch.Tensor, interpolation: int, border: int, fill: Any) -> Batch:
    """Warp images by maps from input to output, float64 (N, 3, 3), as ``cv2.warpPerspective`` does."""
    inverse = torch.linalg.inv(matrices)
    options: dict[str, Any] = {"interp_type": _WARP_FILTERS[interpolation], "border_mode": _BORDERS[border], "pixel_origin": "center"}
    return warp_perspective(images, matrix=per_sample(inverse), size=_shared(size), fill_value=fill, **options)


def pad(images: Batch, sides: torch.Tensor, sample: Sample, border: int, fill: Any) -> Batch:
    """Pad images by (top, bottom, left, right) pixels, int64 (N, 4)."""
    height, width = sample.sizes
    top, bottom, left, right = sides.unbind(1)
    return crop(images, -top, -left, height + top + bottom, width + left + right, fill, border)


def translation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the matrices of translations, float64 (N, 3, 3)."""
    ones, zeros = torch.ones_like(x), torch.zeros_like(x)
    return matrices_of(ones, zeros, x, zeros, ones, y)


def matrices_of(*numbers: torch.Tensor) -> torch.Tensor:
    """Return affine matrices of six columns of numbers, float64 (N, 3, 3)."""
    zero = torch.zeros_like(numbers[0])
    return torch.stack([*numbers, zero, zero, zero + 1.0], 1).reshape(-1, 3, 3)


def _shared(shapes: torch.Tensor) -> Any:
    """Return extents that all samples share as plain numbers, which makes a dense batch; otherwise one row per sample."""
    if len(shapes) and bool((shapes == shapes[0]).all()):
        return shapes[0].tolist()
    return per_sample(shapes, torch.int32)


def refuse_reflection(name: str, border: int) -> None:
    """Raise ValueError for boxes or points where the border reflects the image: Albumentations adds their reflections."""
    if border in REFLECTING:
        raise ValueError(
            f"{OP}: {name} with a reflecting border adds boxes and points of the reflections, which is not translated; use another border_mode"
        )
