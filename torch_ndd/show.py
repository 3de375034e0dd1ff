# SPDX-License-Identifier: Apache-2.0
"""A batch of images as one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from PIL.Image import Image

    from ._core.batch import Batch
    from ._core.tensor import Tensor

    Images = Batch | Tensor | torch.Tensor | Sequence[torch.Tensor]

# Smaller images are enlarged by an integer factor to about this many pixels, so that labels fit below them.
_CELL = 96
_GAP = 4
_TEXT = 16


def show(batch: Images, path: str | PathLike[str], labels: Any = None, columns: int | None = None) -> Image:
    """Write the images of a batch as a labeled grid to the image file `path`, and return the picture.

    >>> import tempfile, torch, torch_ndd as ndd
    >>> images = torch.rand(6, 3, 32, 48)
    >>> ndd.show(images, tempfile.mkdtemp() + "/batch.png", labels=["cat", "dog", "cat", "owl", "owl", "dog"]).size
    (304, 172)

    Args:
        batch: a Batch (dense or ragged), a Tensor, a torch tensor (one image or a batch of them) or a sequence of images. An image is HWC, CHW or HW,
            with 1, 3 or 4 channels; without a layout, the axis of such a length is the channel. uint8 is shown unchanged; floats (normalized images,
            for example) are scaled so that the smallest value of the whole batch is black and the largest white.
        path: the file to write; its extension determines the format.
        labels: one text or number per image, written below it: a sequence, a torch tensor or a Batch.
        columns: images per row; by default the grid is about square.

    Raises:
        ImportError: Pillow is not installed (``pip install torch_ndd[demo]``).
        ValueError: there are no images, something is not an image, or the number of labels is not that of the images.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ImportError("show needs Pillow: pip install torch_ndd[demo]") from error

    images = _as_bytes(_samples(batch))
    texts = None if labels is None else _texts(labels)
    if texts is not None and len(texts) != len(images):
        raise ValueError(f"show: {len(texts)} labels for {len(images)} images")
    if columns is None:
        columns = math.ceil(math.sqrt(len(images)))
    elif columns < 1:
        raise ValueError(f"show: columns must be at least 1, not {columns}")

    longest = max(max(image.shape[:2]) for image in images)
    scale = max(1, _CELL // longest)
    height = max(image.shape[0] for image in images) * scale + _GAP + (_TEXT if texts else 0)
    width = max(image.shape[1] for image in images) * scale + _GAP
    rows = math.ceil(len(images) / columns)
    grid = Image.new("RGB", (min(columns, len(images)) * width + _GAP, rows * height + _GAP), "white")
    draw = ImageDraw.Draw(grid)
    for i, image in enumerate(images):
        left, top = _GAP + i % columns * width, _GAP + i // columns * height
        tile = Image.fromarray(image.numpy()).convert("RGB")
        grid.paste(tile.resize((tile.width * scale, tile.height * scale), Image.Resampling.NEAREST), (left, top))
        if texts:
            draw.text((left, top + height - _GAP - _TEXT), _fitting(texts[i], draw, width - _GAP), fill="black")
    grid.save(path)
    return grid


def _samples(batch: Any) -> list[torch.Tensor]:
    """Return the images as uint8 or float torch tensors, HWC or HW."""
    if hasattr(batch, "tensors"):  # a Batch
        samples, layout = [sample.torch() for sample in batch.tensors], batch.layout
    elif hasattr(batch, "torch"):  # a Tensor
        whole = batch.torch()
        samples, layout = (list(whole) if whole.ndim == 4 else [whole]), batch.layout
    elif isinstance(batch, torch.Tensor):
        samples, layout = (list(batch) if batch.ndim == 4 else [batch]), None
    else:
        samples, layout = [torch.as_tensor(sample) for sample in batch], None
    if not samples:
        raise ValueError("show: there is no image in the batch")
    return [_channels_last(sample.detach().cpu(), (layout or "")[-3:]) for sample in samples]


def _channels_last(image: torch.Tensor, layout: str) -> torch.Tensor:
    channels = (1, 3, 4)
    if image.ndim == 3 and (layout == "CHW" or (layout != "HWC" and image.shape[2] not in channels)):
        image = image.permute(1, 2, 0)
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in channels) or image.numel() == 0:
        raise ValueError(f"show: an image is HWC, CHW or HW with 1, 3 or 4 channels; got the shape {tuple(image.shape)}")
    return image.squeeze(2) if image.ndim == 3 and image.shape[2] == 1 else image


def _as_bytes(images: list[torch.Tensor]) -> list[torch.Tensor]:
    """Keep uint8; map other numbers from the range of the whole batch to 0..255."""
    if all(image.dtype == torch.uint8 for image in images):
        return images
    floats = [image.float() for image in images]
    least = min(float(image.min()) for image in floats)
    spread = max(float(image.max()) for image in floats) - least
    return [((image - least) * (255 / (spread or 1.0))).round().to(torch.uint8) for image in floats]


def _texts(labels: Any) -> list[str]:
    if hasattr(labels, "torch"):
        labels = labels.torch()
    if isinstance(labels, torch.Tensor):
        labels = labels.flatten().tolist()
    return [str(label) for label in labels]


def _fitting(text: str, draw: Any, width: int) -> str:
    """Return `text`, truncated if it is wider than the image above it."""
    while len(text) > 1 and draw.textlength(text) > width:
        text = text[:-1]
    return text
