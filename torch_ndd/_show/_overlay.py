# SPDX-License-Identifier: Apache-2.0
"""Boxes and masks in images."""

from __future__ import annotations

import torch

# Colors that are told apart on photographs, also by most people with impaired color vision (after Okabe and Ito).
PALETTE = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))
_OPACITY = 0.55  # of a mask


def _in_color(image: torch.Tensor) -> torch.Tensor:
    return image[..., None].expand(*image.shape, 3).clone() if image.ndim == 2 else image[..., :3].clone()


def draw_boxes(image: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Return the image (uint8, HW or HWC) with the outlines of boxes, (boxes, 4): left, top, right, bottom."""
    if boxes.numel() == 0:
        return _in_color(image)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"show: the boxes of an image have the shape (boxes, 4), got {tuple(boxes.shape)}")
    out, (height, width) = _in_color(image), image.shape[:2]
    corners = boxes.double()
    # Boxes from 0 to 1 are relative to the image.
    if float(corners.max()) <= 1:
        corners = corners * torch.tensor([width, height, width, height])
    thick = max(1, min(height, width) // 80)
    for k, (left, top, right, bottom) in enumerate(corners.round().long().tolist()):
        color = torch.tensor(PALETTE[k % len(PALETTE)], dtype=torch.uint8)
        left, right = (min(max(x, 0), width - 1) for x in (left, right - 1))
        top, bottom = (min(max(y, 0), height - 1) for y in (top, bottom - 1))
        if right < left or bottom < top:
            continue
        out[top : top + thick, left : right + 1] = color
        out[max(0, bottom - thick + 1) : bottom + 1, left : right + 1] = color
        out[top : bottom + 1, left : left + thick] = color
        out[top : bottom + 1, max(0, right - thick + 1) : right + 1] = color
    return out


def _number_masks(masks: torch.Tensor) -> torch.Tensor:
    """Return one mask (H, W) of the numbers of objects, from 1; the last one is on top."""
    labels = torch.zeros(masks.shape[1:], dtype=torch.int64)
    for k, mask in enumerate(masks):
        labels[mask > 0] = k + 1
    return labels


def draw_mask(image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the image (uint8, HW or HWC) under a mask: one color per number but 0; or under masks (objects, H, W), one color per object."""
    if mask.ndim == 3 and tuple(mask.shape[1:]) == tuple(image.shape[:2]) != tuple(mask.shape[:2]):
        mask = _number_masks(mask)
    mask = mask.squeeze(-1) if mask.ndim == 3 and mask.shape[-1] == 1 else mask
    if tuple(mask.shape) != tuple(image.shape[:2]):
        raise ValueError(f"show: the mask of an image of {tuple(image.shape[:2])} pixels has the shape {tuple(mask.shape)}")
    if mask.is_floating_point():
        raise ValueError("show: masks are integers; cast them with .long()")
    out = _in_color(image)
    colors = torch.tensor(PALETTE, dtype=torch.float32)[(mask.long() - 1) % len(PALETTE)]
    mixed = (out.float() * (1 - _OPACITY) + colors * _OPACITY).round().to(torch.uint8)
    return torch.where((mask != 0)[..., None], mixed, out)
