# SPDX-License-Identifier: Apache-2.0
"""The scale at which a JPEG is decoded: a whole, a half, a quarter or an eighth."""

from typing import Any

import torch

from .._core import native
from .._core.native.tracing import is_compiling

# In eighths. libjpeg-turbo also supports 3, 5, 6 and 7, but without vector instructions: 4000x3000 pixels, 4:2:0, take 15 ms at 1, 17 at 2, 25 at
# 3, 21 at 4, 44 at 5, 54 at 6, 74 at 7 and 29 whole.
_SCALES = (1, 2, 4)
WHOLE = 8

# The kinds of files that `image_shapes` returns (csrc/decoders/image.cpp).
BY_PYTHON = 1  # JPEG 2000, GIF, AVIF, HEIC
SCALABLE = 2


def min_extents(op: str, at_least: Any, samples: int) -> torch.Tensor:
    """Convert ``at_least`` to heights and widths, int64 (N, 2). Raise ValueError for negative numbers or unless there are one or two."""
    extents = at_least if isinstance(at_least, torch.Tensor) else torch.tensor(at_least)[None]
    extents = extents.reshape(extents.shape[0], -1)
    if extents.shape[1] not in (1, 2) or extents.shape[0] not in (1, samples):
        raise ValueError(f"{op}: at_least takes a height and a width, or one number for both, got {extents.shape[1]} numbers")
    extents = extents.to(torch.int64)
    if not is_compiling() and bool((extents < 0).any()):
        raise ValueError(f"{op}: at_least must not be negative, got {extents.min().item()}")
    return extents.expand(samples, 2)


def scale_extents(extents: torch.Tensor, eighths: torch.Tensor) -> torch.Tensor:
    """Return the extents (N, 2) of images at these scales (N, 1)."""
    return (extents * eighths + WHOLE - 1) // WHOLE


def whole_windows(shapes: torch.Tensor, kinds: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Return y, x, height, width and eighths (N, 5) of whole images of these shapes (N, 3) at the smallest scales that are not below ``least``."""
    extents = shapes[:, :2].clamp(min=1)
    # ceil(extent * k / 8) >= least where extent * k > 8 (least - 1)
    eighths = _find_smallest_scale(torch.div(WHOLE * (least - 1), extents, rounding_mode="floor") + 1, kinds)
    return torch.cat([torch.zeros_like(extents), scale_extents(extents, eighths), eighths], 1)


def scaled_windows(windows: torch.Tensor, shapes: torch.Tensor, kinds: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Return windows (N, 4) in the image as windows and eighths (N, 5) in the scaled image, rounded to its pixels."""
    start, extents = windows[:, :2], windows[:, 2:].clamp(min=1)
    # round(extent * k / 8) >= least where 2 extent * k + 8 >= 16 least
    eighths = _find_smallest_scale(-torch.div(WHOLE // 2 - WHOLE * least, extents, rounding_mode="floor"), kinds)
    size = _round_scaled(extents, eighths).clamp(min=1)
    # A window at the edge must not leave the scaled image by rounding.
    begin = torch.minimum(_round_scaled(start, eighths), scale_extents(shapes[:, :2], eighths) - size)
    return torch.cat([begin, size, eighths], 1)


def _round_scaled(pixels: torch.Tensor, eighths: torch.Tensor) -> torch.Tensor:
    return (2 * pixels * eighths + WHOLE) // (2 * WHOLE)


def _find_smallest_scale(needed: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
    """Return the smallest scale (N, 1) that is at least the numbers of eighths (N, 2) that the two axes need."""
    needed = needed.amax(1, keepdim=True)
    eighths = torch.full_like(needed, WHOLE)
    for scale in reversed(_SCALES):
        eighths = torch.where(needed <= scale, scale, eighths)
    # Only JPEG files can be decoded at a scale.
    return torch.where(kinds[:, None] == SCALABLE, eighths, WHOLE)


def libjpeg_version() -> str | None:
    """Return name and version of the library for scaled decoding; None if the build has none."""
    version = dict(line.split(" ", 1) for line in native.build_info().decode().splitlines())["jpeg"]
    return None if version == "none" else version
