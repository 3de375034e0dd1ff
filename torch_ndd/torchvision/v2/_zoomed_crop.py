# SPDX-License-Identifier: Apache-2.0
"""The step that places images on a larger canvas and cuts a window with enough of some box out, without making the canvas."""

from collections.abc import Sequence
from typing import Any

import torch
from torchvision import tv_tensors as single

from ..._core.values.batch import Batch
from .. import tv_tensors
from .._draws import Draws
from .._sample import check_type, flatten, kind_of, unflatten
from .functional._crop import border_fill, window_of
from .functional._dispatch import as_images


def without_canvases(steps: Sequence[Any]) -> list[Any]:
    """Return steps with each pair of RandomZoomOut and RandomIoUCrop as one."""
    made: list[Any] = []
    for step in steps:
        if made and type(step).__name__ == "RandomIoUCrop" and type(made[-1]).__name__ == "RandomZoomOut" and hasattr(made[-1], "padded_where"):
            made[-1] = ZoomedCrop(made[-1], step)
        else:
            made.append(step)
    return made


class ZoomedCrop:
    """Does the work of RandomZoomOut and RandomIoUCrop with the same draws: a canvas has up to 16 times the pixels of its image."""

    def __init__(self, zoom: Any, crop: Any) -> None:
        self.zoom, self.crop = zoom, crop

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        images = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Batch) and issubclass(kind_of(leaf), single.Image)]
        boxes = [leaf for leaf in leaves if check_type(leaf, (single.BoundingBoxes,))]
        if len(images) != 1 or not boxes or any(not isinstance(leaf, Batch) for leaf in leaves if isinstance(leaf, torch.Tensor)):
            return self.crop(self.zoom(sample))
        image: Any = leaves[images[0]]
        needs = self.zoom._needs_transform_list(leaves)
        self.zoom.check_inputs(leaves)
        self.crop.check_inputs(leaves)
        acts = Draws(image.batch_size).happens(self.zoom.p)
        padding = self.zoom.make_params([leaf for leaf, wanted in zip(leaves, needs, strict=True) if wanted])["padding"]
        others = [k for k, wanted in enumerate(needs) if wanted and k != images[0]]
        for k in others:
            leaves[k] = self.zoom.padded_where(acts, leaves[k], padding)
        window = self.crop.make_params([leaves[k] for k in others])
        for k in others:
            leaves[k] = self.crop.transform(leaves[k], window)
        left, top = (torch.where(acts, one, 0) for one in padding[:2])
        plain = as_images("crop", image)
        fill = border_fill(plain, self.zoom._fill_for(image))
        made = window_of(plain, window["top"] - top, window["left"] - left, window["height"], window["width"], fill)
        leaves[images[0]] = image.over(made) if tv_tensors.is_typed(image) else made
        return unflatten(leaves, spec)

    def __repr__(self) -> str:
        return f"ZoomedCrop({self.zoom!r}, {self.crop!r})"
