# SPDX-License-Identifier: Apache-2.0
"""Tiles and labels on one canvas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from PIL.Image import Image

# Smaller tiles are enlarged by an integer factor to about this many pixels, so labels fit below them.
_CELL = 96
_GAP = 4
_TEXT = 16


def grid(tiles: list[torch.Tensor], labels: Any, columns: int | None) -> Image:
    """Return the tiles (uint8, HW or HWC) in rows, each above its label."""
    from PIL import Image, ImageDraw

    texts = None if labels is None else _texts(labels)
    if texts is not None and len(texts) != len(tiles):
        raise ValueError(f"show: {len(texts)} labels for {len(tiles)} images")
    if columns is None:
        columns = math.ceil(math.sqrt(len(tiles)))
    elif columns < 1:
        raise ValueError(f"show: columns must be at least 1, not {columns}")

    longest = max(max(tile.shape[:2]) for tile in tiles)
    scale = max(1, _CELL // longest)
    height = max(tile.shape[0] for tile in tiles) * scale + _GAP + (_TEXT if texts else 0)
    width = max(tile.shape[1] for tile in tiles) * scale + _GAP
    rows = math.ceil(len(tiles) / columns)
    canvas = Image.new("RGB", (min(columns, len(tiles)) * width + _GAP, rows * height + _GAP), "white")
    draw = ImageDraw.Draw(canvas)
    for i, pixels in enumerate(tiles):
        left, top = _GAP + i % columns * width, _GAP + i // columns * height
        tile = Image.fromarray(pixels.contiguous().numpy()).convert("RGB")
        canvas.paste(tile.resize((tile.width * scale, tile.height * scale), Image.Resampling.NEAREST), (left, top))
        if texts:
            draw.text((left, top + height - _GAP - _TEXT), _fitting(texts[i], draw, width - _GAP), fill="black")
    return canvas


def _texts(labels: Any) -> list[str]:
    if hasattr(labels, "torch"):
        labels = labels.torch()
    if isinstance(labels, torch.Tensor):
        labels = labels.flatten().tolist()
    return [str(label) for label in labels]


def _fitting(text: str, draw: Any, width: int) -> str:
    """Return `text`, truncated if it is wider than the tile above it."""
    while len(text) > 1 and draw.textlength(text) > width:
        text = text[:-1]
    return text
