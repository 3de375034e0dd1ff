# SPDX-License-Identifier: Apache-2.0
"""Sizes of images, videos, masks and of the canvases of boxes and points."""

import warnings
from typing import Any

import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference

from ...._core.values.batch import Batch
from ... import tv_tensors
from ._dispatch import add_kernel, as_images, dispatch, extent, size_of


def get_dimensions(inpt: Any) -> Any:
    """Return channels, height and width of an image or video; for a Batch a list of them.

    >>> get_dimensions(torch.zeros(3, 4, 5))
    [3, 4, 5]
    """
    return dispatch(get_dimensions, inpt)


def get_dimensions_image(image: torch.Tensor) -> list[int]:
    """Return channels, height and width of a tensor ``(..., C, H, W)``."""
    if image.dim() < 2:
        raise TypeError(f"get_dimensions: an image must have two dimensions or more, got {image.dim()}")
    shape = list(image.shape[-3:])
    return shape if len(shape) == 3 else [1, *shape]


def get_dimensions_video(video: torch.Tensor) -> list[int]:
    """Return channels, height and width of a tensor ``(..., C, H, W)``."""
    return get_dimensions_image(video)


def get_num_channels(inpt: Any) -> Any:
    """Return the number of channels of an image or video; for a Batch a list of them."""
    return dispatch(get_num_channels, inpt)


def get_num_channels_image(image: torch.Tensor) -> int:
    """Return the number of channels of a tensor ``(..., C, H, W)``."""
    return get_dimensions_image(image)[0]


def get_num_channels_video(video: torch.Tensor) -> int:
    """Return the number of channels of a tensor ``(..., C, H, W)``."""
    return get_dimensions_image(video)[0]


get_image_num_channels = get_num_channels


def get_size(inpt: Any) -> Any:
    """Return height and width of an image, video or mask, or of the canvas of boxes or points; for a Batch a list of them.

    >>> get_size(torch.zeros(3, 4, 5))
    [4, 5]
    """
    return dispatch(get_size, inpt)


def get_size_image(image: torch.Tensor) -> list[int]:
    """Return height and width of a tensor ``(..., H, W)``."""
    if image.dim() < 2:
        raise TypeError(f"get_size: an image must have two dimensions or more, got {image.dim()}")
    return list(image.shape[-2:])


def get_size_video(video: torch.Tensor) -> list[int]:
    """Return height and width of a tensor ``(..., H, W)``."""
    return get_size_image(video)


def get_size_mask(mask: torch.Tensor) -> list[int]:
    """Return height and width of a tensor ``(..., H, W)``."""
    return get_size_image(mask)


def get_size_bounding_boxes(bounding_box: Any) -> list[int]:
    """Return height and width of the canvas."""
    return list(bounding_box.canvas_size)


def get_size_keypoints(keypoints: Any) -> list[int]:
    """Return height and width of the canvas."""
    return list(keypoints.canvas_size)


def get_num_frames(inpt: Any) -> Any:
    """Return the number of frames of a video; for a Batch a list of them."""
    return dispatch(get_num_frames, inpt)


def get_num_frames_video(video: torch.Tensor) -> int:
    """Return the number of frames of a tensor ``(..., T, C, H, W)``."""
    return video.shape[-4]


def _list_extents(inpt: Batch, letters: str) -> list[list[int]]:
    """Return the extents of the axes of each sample."""
    images = as_images("get_dimensions", inpt)
    layout = images.layout or ""
    return [[shape[layout.index(letter)] for letter in letters] for shape in images.shape]


# Sizes are read without kernels of images: no pixels are needed.
add_kernel(get_dimensions, torch.Tensor, single.Image, single.Video)(get_dimensions_image)
add_kernel(get_dimensions, Batch)(lambda inpt: _list_extents(inpt, "CHW"))
add_kernel(get_dimensions, PIL.Image.Image)(reference.get_dimensions)
add_kernel(get_num_channels, torch.Tensor, single.Image, single.Video)(get_num_channels_image)
add_kernel(get_num_channels, Batch)(lambda inpt: [extents[0] for extents in _list_extents(inpt, "C")])
add_kernel(get_num_channels, PIL.Image.Image)(reference.get_num_channels)
add_kernel(get_size, torch.Tensor, single.Image, single.Video, single.Mask)(get_size_image)
add_kernel(get_size, single.BoundingBoxes, single.KeyPoints)(get_size_bounding_boxes)
add_kernel(get_size, PIL.Image.Image)(reference.get_size)
add_kernel(get_size, Batch)(lambda inpt: _list_extents(inpt, "HW"))
add_kernel(get_size, tv_tensors.Mask)(lambda inpt: [list(shape[-2:]) for shape in inpt.shape])
add_kernel(get_size, tv_tensors.BoundingBoxes, tv_tensors.KeyPoints)(lambda inpt: [list(canvas) for canvas in inpt.canvas_size])
add_kernel(get_num_frames, torch.Tensor, single.Video)(get_num_frames_video)
add_kernel(get_num_frames, Batch)(lambda inpt: [shape[0] for shape in inpt.shape])


def size_columns(leaf: Any) -> tuple[Any, Any]:
    """Return height and width of a leaf: numbers, or int64 (N,) with one per sample."""
    if tv_tensors.is_batch_of(tv_tensors.BoundingBoxes, leaf) or tv_tensors.is_batch_of(tv_tensors.KeyPoints, leaf):
        sizes = torch.tensor(leaf.canvas_size, dtype=torch.int64).reshape(-1, 2)
        return sizes[:, 0], sizes[:, 1]
    if tv_tensors.is_batch_of(tv_tensors.Mask, leaf):
        # A number if all masks share the extent, else the column of the table of shapes.
        extents = [leaf.shared_extent(axis) for axis in (-2, -1)]
        return tuple(leaf.sample_shapes()[:, axis] if known is None else known for axis, known in zip((-2, -1), extents, strict=True))  # type: ignore[return-value]
    if isinstance(leaf, Batch):
        return size_of(as_images("get_size", leaf))
    height, width = get_size(leaf)
    return height, width


def channels_of(leaf: Any) -> Any:
    """Return the number of channels of a leaf: a number, or int64 (N,) with one per sample."""
    return extent(as_images("get_num_channels", leaf), "C") if isinstance(leaf, Batch) else get_num_channels(leaf)


def get_image_size(inpt: Any) -> list[int]:
    """Return width and height. Deprecated in torchvision: use :func:`get_size`, which returns height and width."""
    warnings.warn("get_image_size is deprecated in torchvision: use get_size, which returns [height, width]", stacklevel=2)
    size = get_size(inpt)
    return [extents[::-1] for extents in size] if isinstance(inpt, Batch) else size[::-1]
