# SPDX-License-Identifier: Apache-2.0
"""Inputs of all kinds, and what torchvision makes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference

import torch_ndd as ndd
from torch_ndd.torchvision import tv_tensors

SIZES = ((37, 53), (64, 48), (31, 31), (52, 70))


def pixels(height: int, width: int, channels: int = 3, dtype: torch.dtype = torch.uint8, seed: int = 0) -> torch.Tensor:
    """Return a picture with smooth parts, edges and noise, (C, H, W)."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    planes = [127 + 90 * np.sin(x / (5 + c) + seed) * np.cos(y / (7 - c)) + random.normal(0, 20, (height, width)) for c in range(channels)]
    values = np.clip(np.stack(planes), 0, 255)
    values[:, height // 4 : height // 2, width // 3 : width // 2] = 240
    if dtype.is_floating_point:
        return torch.from_numpy(values / 255).to(dtype)
    return torch.from_numpy(values).to(torch.uint8).to(dtype)


def pictures(channels: int = 3, dtype: torch.dtype = torch.uint8, sizes: Sequence[tuple[int, int]] = SIZES) -> list[torch.Tensor]:
    """Return pictures of several sizes."""
    return [pixels(h, w, channels, dtype, k) for k, (h, w) in enumerate(sizes)]


def image_batch(samples: Sequence[torch.Tensor], layout: str = "HWC", device: str = "cpu") -> ndd.Batch:
    """Return a batch of pictures (C, H, W) or videos (F, C, H, W) in a layout."""
    moved = [sample.movedim(-3, -1).contiguous() if layout.endswith("HWC") else sample for sample in samples]
    return ndd.batch(moved, layout=layout, device=device)


def of_batch(images: ndd.Batch) -> list[torch.Tensor]:
    """Return the samples of a batch of images as (..., C, H, W)."""
    last = (images.layout or "").endswith("HWC")
    return [value.torch().movedim(-1, -3) if last else value.torch() for value in images.evaluate()]


def boxes_of(height: int, width: int, format: str = "XYXY", dtype: torch.dtype = torch.float32, count: int = 4, seed: int = 0) -> Any:
    """Return torchvision's boxes within a canvas."""
    random = np.random.default_rng(seed)
    x1, x2 = np.sort(random.uniform(0, width, (2, count)), axis=0)
    y1, y2 = np.sort(random.uniform(0, height, (2, count)), axis=0)
    corners = torch.tensor(np.stack([x1, y1, x2, y2], 1))
    kind = single.BoundingBoxFormat[format]
    if single.is_rotated_bounding_format(kind):
        rows = torch.stack(
            [
                (corners[:, 0] + corners[:, 2]) / 2,
                (corners[:, 1] + corners[:, 3]) / 2,
                corners[:, 2] - corners[:, 0],
                corners[:, 3] - corners[:, 1],
                torch.tensor(random.uniform(-80, 80, count)),
            ],
            1,
        )
        values = reference.convert_bounding_box_format(rows, single.BoundingBoxFormat.CXCYWHR, kind)
        return single.BoundingBoxes(values.to(dtype if dtype.is_floating_point else torch.float32), format=kind, canvas_size=(height, width))
    values = reference.convert_bounding_box_format(corners.to(dtype), single.BoundingBoxFormat.XYXY, kind)
    return single.BoundingBoxes(values, format=kind, canvas_size=(height, width))


def points_of(height: int, width: int, dtype: torch.dtype = torch.float32, shape: Sequence[int] = (5,), seed: int = 0) -> Any:
    """Return torchvision's points within a canvas."""
    random = np.random.default_rng(seed)
    values = random.uniform(0, 1, (*shape, 2)) * [width - 1, height - 1]
    return single.KeyPoints(torch.tensor(values).to(dtype), canvas_size=(height, width))


def join(samples: Sequence[Any]) -> Any:
    """Return torchvision's boxes or points of several samples as one of torch_ndd's."""
    first = samples[0]
    result = ndd.batch([sample.as_subclass(torch.Tensor) for sample in samples])
    sizes = [sample.canvas_size for sample in samples]
    if isinstance(first, single.BoundingBoxes):
        return tv_tensors.BoundingBoxes(result, format=first.format, canvas_size=sizes, clamping_mode=first.clamping_mode)
    return tv_tensors.KeyPoints(result, canvas_size=sizes)


def of_torchvision(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments for every torchvision: those of torch 2.11 take no names of interpolations."""
    return {key: reference.InterpolationMode(value) if key == "interpolation" else value for key, value in arguments.items()}


def compare(ours: torch.Tensor, theirs: torch.Tensor, most: float = 0.0, mean: float | None = None) -> None:
    """Assert equal types and shapes, and values within a largest and a mean difference."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    difference = (ours.cpu().double() - theirs.cpu().double()).abs()
    if difference.numel():
        assert difference.max().item() <= most, f"differs by {difference.max().item()}, {difference.mean().item()} in the mean"
        assert mean is None or difference.mean().item() <= mean, f"differs by {difference.mean().item()} in the mean"
