# SPDX-License-Identifier: Apache-2.0
"""From Pillow and NumPy to tensors and back."""

import warnings
from typing import Any

import torch
from torchvision.transforms import functional as pillow
from torchvision.transforms.v2 import functional as reference

from ...._core.values.batch import Batch, as_batch
from ...._core.values.tensor import Tensor as NddTensor
from ....ops.shape.reshape import transpose
from ... import tv_tensors
from ._dispatch import as_images
from ._dtypes import converted


def channels_first(images: Batch) -> Batch:
    """Return ``HWC`` as ``CHW`` and ``FHWC`` as ``FCHW``; others do not change."""
    images = as_images("to_image", images)
    layout = images.layout or ""
    if not layout.endswith("HWC"):
        return images
    n = len(layout)
    made = transpose(images, perm=[*range(n - 3), n - 1, n - 3, n - 2])
    return as_batch(made, layout=layout[:-3] + "CHW")


def _of_one(image: NddTensor) -> Batch:
    """Return a Tensor as a batch of one, with the channels first."""
    return channels_first(as_batch([image], layout=image.layout))


def to_image(inpt: Any) -> Any:
    """Return an ``Image`` ``(..., C, H, W)`` of a tensor, an array ``(H, W, C)`` or a PIL image; of a Batch one with the layout ``CHW``.

    >>> from PIL import Image
    >>> to_image(Image.new("RGB", (5, 4))).shape
    torch.Size([3, 4, 5])
    """
    if isinstance(inpt, Batch):
        made = channels_first(inpt)
        return inpt.over(made) if isinstance(inpt, tv_tensors.Image) else made
    if isinstance(inpt, NddTensor):
        return _of_one(inpt).select(0)
    return reference.to_image(inpt)


def pil_to_tensor(pic: Any) -> Any:
    """Return the pixels of a PIL image as a tensor ``(C, H, W)``; of a Batch one with the layout ``CHW``."""
    if isinstance(pic, NddTensor):
        return _of_one(pic).select(0)
    return channels_first(pic) if isinstance(pic, Batch) else reference.pil_to_tensor(pic)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """Return a PIL image of a tensor ``(C, H, W)`` or an array ``(H, W, C)``; of a Batch a list of them.

    >>> to_pil_image(torch.zeros(3, 4, 5)).size
    (5, 4)
    """
    if isinstance(pic, Batch):
        return [reference.to_pil_image(one.torch(), mode) for one in channels_first(pic).evaluate()]
    if isinstance(pic, NddTensor):
        return reference.to_pil_image(_of_one(pic).select(0).torch(), mode)
    return reference.to_pil_image(pic, mode)


def to_tensor(inpt: Any) -> Any:
    """Return pixels from 0 to 1 as float32 ``(C, H, W)``. Deprecated in torchvision: use :func:`to_image` and :func:`to_dtype`."""
    warnings.warn("to_tensor is deprecated in torchvision: use to_image, then to_dtype(dtype=torch.float32, scale=True)", stacklevel=2)
    return tensor_of(inpt)


def tensor_of(inpt: Any) -> Any:
    """Return pixels as a tensor ``(C, H, W)``: uint8 as float32 from 0 to 1, other types as they are."""
    if isinstance(inpt, Batch):
        images = channels_first(inpt)
        return converted(images, torch.float32, True) if images.dtype is torch.uint8 else images
    if isinstance(inpt, NddTensor):
        return tensor_of(_of_one(inpt)).select(0)
    return pillow.to_tensor(inpt)
