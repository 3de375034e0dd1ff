# SPDX-License-Identifier: Apache-2.0
"""Conversion of dtypes, and from PIL images and arrays to tensors and back."""

import warnings
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms import functional as pillow
from torchvision.transforms.v2 import functional as reference

from ...._core.values.batch import Batch, as_batch, new_batch
from ...._core.values.tensor import Tensor as NddTensor
from ....ops.color.adjust import brightness
from ....ops.generic.convert import cast
from ....ops.shape.reshape import transpose
from ... import tv_tensors
from ._dispatch import add_kernel, as_images, dispatch, on_images

_BITS = {torch.uint8: 8, torch.int8: 7, torch.int16: 15, torch.uint16: 16, torch.int32: 31, torch.int64: 63}


def to_dtype(inpt: Any, dtype: torch.dtype = torch.float32, scale: bool = False) -> Any:
    """Change the dtype of the values.

    Args:
        inpt: images, videos, masks, boxes or points.
        dtype: the new dtype.
        scale: map the range of the old dtype (0 to the largest integer, or 0 to 1) to that of the new one; images and videos only. Floating-point
            numbers become integers by ``trunc(x * (largest + 0.999))``, integers become other integers by a shift.

    Raises:
        RuntimeError: ``scale`` from float32 to int32 or int64, or from float64 to int64, which cannot be exact.

    >>> to_dtype(torch.tensor([[[255]]], dtype=torch.uint8), scale=True)
    tensor([[[1.]]])
    """
    return dispatch(to_dtype, inpt, dtype=dtype, scale=scale)


def convert_dtype(images: Batch, dtype: torch.dtype, scale: bool) -> Batch:
    """Return images with another dtype."""
    old = images.dtype
    if old is torch.uint8 and images.ndim == 1:
        raise TypeError("to_dtype: images must have the layout HWC or CHW, got a Batch of encoded files; decode them first")
    if old == dtype:
        return images
    # To integers torch truncates where the operator would round, so only conversions to floats use it.
    if dtype.is_floating_point and (old.is_floating_point or (not scale and old in _BITS)):
        return cast(images, dtype=dtype)  # the operator converts like torch
    if scale and dtype is torch.float32 and old in (torch.uint8, torch.int8, torch.int16):
        # One pass of an operator, in which the channels do not matter.
        flat = new_batch(images.buffer, images.ragged_shapes, _ANY_LAYOUT[images.ndim], images.pending, images.caller_owned, images.shared_extents)
        scaled = brightness(flat, brightness=1.0 / torch.iinfo(old).max, dtype=dtype)
        return new_batch(scaled.buffer, scaled.ragged_shapes, images.layout, scaled.pending, shared_extents=images.shared_extents)
    # All other cases are computed by torch, whose rounding is torchvision's.
    values = convert_values(images.wait(), dtype) if scale else images.wait().to(dtype)
    return new_batch(values, images.ragged_shapes, images.layout, shared_extents=images.shared_extents)


_ANY_LAYOUT = {3: "HWC", 4: "FHWC"}


def convert_values(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return values with another dtype, scaled to its range."""
    old = values.dtype
    if old.is_floating_point:
        if (old is torch.float32 and dtype in (torch.int32, torch.int64)) or (old is torch.float64 and dtype is torch.int64):
            raise RuntimeError(f"to_dtype: the conversion from {old} to {dtype} cannot be performed safely, because not all integers are exact")
        # Nearly largest + 1, so the truncated levels are equally wide and 1.0 is the largest.
        return values.mul(float(_largest(dtype)) + 1.0 - 1e-3).to(dtype)
    if dtype.is_floating_point:
        return values.to(dtype).mul_(1.0 / _largest(old))
    for integer_type in (old, dtype):
        if integer_type not in _BITS:
            raise TypeError(f"to_dtype: dtypes must be integer or floating-point, got {integer_type}")
    # A shift by the difference of value bits; torch has no shifts of uint16.
    shift = _BITS[old] - _BITS[dtype]
    if shift > 0:
        return (values.to(torch.int32) if old is torch.uint16 else values).bitwise_right_shift(shift).to(dtype)
    if dtype is torch.uint16:
        return (values.to(torch.int32) << -shift).to(dtype)
    return values.to(dtype).bitwise_left_shift(-shift)


def _largest(dtype: torch.dtype) -> int:
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def _to_dtype(images: Batch, dtype: torch.dtype = torch.float32, scale: bool = False) -> Batch:
    return convert_dtype(images, dtype, scale)


to_dtype_image, to_dtype_video = on_images(to_dtype, _to_dtype, pil=False)


def _to_dtype_tensor(inpt: torch.Tensor, dtype: torch.dtype = torch.float32, scale: bool = False) -> torch.Tensor:
    if inpt.dtype == dtype:
        return inpt
    if not scale:
        return inpt.to(dtype)
    if inpt.dim() < 2:  # not an image for the operators
        both_float = inpt.dtype.is_floating_point and dtype.is_floating_point
        return inpt.to(dtype) if both_float else convert_values(inpt, dtype)
    return to_dtype_image(inpt, dtype, scale)


add_kernel(to_dtype, torch.Tensor)(_to_dtype_tensor)
add_kernel(to_dtype, single.Mask, single.BoundingBoxes, single.KeyPoints)(lambda inpt, dtype, scale=False: inpt.to(dtype))


def _to_dtype_typed(inpt: Any, dtype: torch.dtype = torch.float32, scale: bool = False) -> Any:
    return inpt.over(convert_dtype(inpt.plain(), dtype, False))


add_kernel(to_dtype, tv_tensors.Mask, tv_tensors.BoundingBoxes, tv_tensors.KeyPoints)(_to_dtype_typed)


def _to_dtype_batch(inpt: Batch, dtype: torch.dtype = torch.float32, scale: bool = False) -> Batch:
    output = convert_dtype(inpt.plain() if tv_tensors.is_typed(inpt) else inpt, dtype, scale)
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output


add_kernel(to_dtype, Batch)(_to_dtype_batch)


def convert_image_dtype(image: Any, dtype: torch.dtype = torch.float32) -> Any:
    """Return :func:`to_dtype` with ``scale``. Deprecated in torchvision.

    As there, a ``TVTensor`` keeps its type where the values do not change: from a dtype to itself, and from floats to floats.
    """
    if isinstance(image, Batch):
        return to_dtype(image, dtype=dtype, scale=True)
    if isinstance(image, single.TVTensor) and (image.dtype == dtype or (image.is_floating_point() and dtype.is_floating_point)):
        return image.to(dtype)
    return to_dtype_image(image, dtype=dtype, scale=True)


def channels_first(images: Batch) -> Batch:
    """Convert ``HWC`` to ``CHW`` and ``FHWC`` to ``FCHW``; other layouts do not change."""
    images = as_images("to_image", images)
    layout = images.layout or ""
    if not layout.endswith("HWC"):
        return images
    n = len(layout)
    transposed = transpose(images, perm=[*range(n - 3), n - 1, n - 3, n - 2])
    return as_batch(transposed, layout=layout[:-3] + "CHW")


def _as_channels_first(image: NddTensor) -> Batch:
    """Return a Tensor as a batch of size 1, with the channels first."""
    return channels_first(as_batch([image], layout=image.layout))


def to_image(inpt: Any) -> Any:
    """Convert a tensor, an array ``(H, W, C)`` or a PIL image to an ``Image`` ``(..., C, H, W)``; a Batch to the layout ``CHW``.

    >>> from PIL import Image
    >>> to_image(Image.new("RGB", (5, 4))).shape
    torch.Size([3, 4, 5])
    """
    if isinstance(inpt, Batch):
        output = channels_first(inpt)
        return inpt.over(output) if isinstance(inpt, tv_tensors.Image) else output
    if isinstance(inpt, NddTensor):
        return _as_channels_first(inpt).select(0)
    return reference.to_image(inpt)


def pil_to_tensor(pic: Any) -> Any:
    """Return the pixels of a PIL image as a tensor ``(C, H, W)``; convert a Batch to the layout ``CHW``."""
    if isinstance(pic, NddTensor):
        return _as_channels_first(pic).select(0)
    return channels_first(pic) if isinstance(pic, Batch) else reference.pil_to_tensor(pic)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """Convert a tensor ``(C, H, W)`` or an array ``(H, W, C)`` to a PIL image; a Batch to a list of PIL images.

    >>> to_pil_image(torch.zeros(3, 4, 5)).size
    (5, 4)
    """
    if isinstance(pic, Batch):
        return [reference.to_pil_image(image.torch(), mode) for image in channels_first(pic).evaluate()]
    if isinstance(pic, NddTensor):
        return reference.to_pil_image(_as_channels_first(pic).select(0).torch(), mode)
    return reference.to_pil_image(pic, mode)


def to_tensor(inpt: Any) -> Any:
    """Return pixels from 0 to 1 as float32 ``(C, H, W)``. Deprecated in torchvision: use :func:`to_image` and :func:`to_dtype`."""
    warnings.warn("to_tensor is deprecated in torchvision: use to_image, then to_dtype(dtype=torch.float32, scale=True)", stacklevel=2)
    return tensor_of(inpt)


def tensor_of(inpt: Any) -> Any:
    """Return pixels as a tensor ``(C, H, W)``: uint8 as float32 from 0 to 1, other dtypes unchanged."""
    if isinstance(inpt, Batch):
        images = channels_first(inpt)
        return convert_dtype(images, torch.float32, True) if images.dtype is torch.uint8 else images
    if isinstance(inpt, NddTensor):
        return tensor_of(_as_channels_first(inpt)).select(0)
    return pillow.to_tensor(inpt)
