# SPDX-License-Identifier: Apache-2.0
"""Erasing."""

from typing import Any

import torch
from torchvision import tv_tensors as single

from ...._core.native.tracing import is_compiling
from ...._core.values.batch import Batch, batch
from ....ops.geometry import paste
from ... import tv_tensors
from ..._numbers import Number, batch_of, number
from ._dispatch import add_kernel, dispatch, on_images, rows


def erase(inpt: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
    """Overwrite a window: ``out[..., i : i + h, j : j + w] = v``.

    Args:
        inpt: images or videos.
        i, j: upper left corner of the window; for a Batch one number, or one per sample.
        h, w: its size, likewise.
        v: the values, ``(channels or 1, h or 1, w or 1)``; for a Batch also a list with one array per sample.
        inplace: write into the memory of a torch tensor; a Batch is never changed.

    >>> erase(torch.ones(1, 2, 2), 0, 1, 2, 1, torch.zeros(1, 1, 1)).flatten()
    tensor([1., 0., 1., 0.])
    """
    return dispatch(erase, inpt, i=i, j=j, h=h, w=w, v=v, inplace=inplace)


def _erase(images: Batch, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Batch:
    size = images.batch_size
    top, left, height, width = (number("erase", name, value, size) for name, value in (("i", i), ("j", j), ("h", h), ("w", w)))
    if not isinstance(v, list | tuple):
        value = torch.as_tensor(v)
        if value.dim() == 0 or value.numel() == value.shape[0]:  # one color, or one number: the operator fills windows with it
            values = value.reshape(-1)
            if not images.dtype.is_floating_point:  # assignment to integers truncates, the operator would round
                values = values.to(images.dtype)
            values = values.to(torch.float32)
            fill = batch_of(values.expand(size, -1)) if is_compiling() else values.tolist()  # a graph has no numbers to list
            return paste.erase(images, anchor=rows(top, left), shape=rows(height, width), axis_names="HW", fill_value=fill)
        v = [value] * size
    return _erase_with_arrays(images, top, left, height, width, v)


def _erase_with_arrays(images: Batch, top: Number, left: Number, height: Number, width: Number, v: Any) -> Batch:
    """Overwrite the window of each sample with an array."""
    output = batch(images).evaluate()
    layout = output.layout or ""
    # Positions of the axes C, H, W; other axes, such as frames, stay in front.
    order = [layout.index(letter) for letter in "CHW"]
    rest = [axis for axis in range(len(layout)) if axis not in order]
    # Noise differs in size from sample to sample: it is written window by window.
    for k, sample in enumerate(output):
        y, x, h, w = (int(n[k]) if isinstance(n, torch.Tensor) else int(n) for n in (top, left, height, width))
        if h and w and v[k] is not None:
            pixels = sample.torch().permute(*rest, *order)
            pixels[..., y : y + h, x : x + w] = v[k]
    return output


erase_image, erase_video = on_images(erase, _erase)
_out_of_place = erase_image


def _erase_tensor(image: torch.Tensor, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> torch.Tensor:
    if inplace:
        image[..., i : i + h, j : j + w] = v
        return image
    return _out_of_place(image, i, j, h, w, v)


def erase_image(image: torch.Tensor, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> torch.Tensor:
    """Apply :func:`erase` to a torch tensor ``(..., C, H, W)``."""
    return _erase_tensor(image, i, j, h, w, v, inplace)


def erase_video(video: torch.Tensor, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> torch.Tensor:  # noqa: F811
    """Apply :func:`erase` to a torch tensor ``(..., C, H, W)``."""
    return _erase_tensor(video, i, j, h, w, v, inplace)


def _erase_typed(inpt: Any, *args: Any, **kwargs: Any) -> Any:
    return tv_tensors.wrap(_erase_tensor(inpt.as_subclass(torch.Tensor), *args, **kwargs), like=inpt)


add_kernel(erase, torch.Tensor)(_erase_tensor)
add_kernel(erase, single.Image, single.Video)(_erase_typed)
