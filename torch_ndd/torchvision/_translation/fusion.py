# SPDX-License-Identifier: Apache-2.0
"""Rewriting the steps of a translated transform, so one step does the work of several.

Transforms are recognized by the names of their classes, because subclasses of the user may behave differently.
"""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import torch
from torchvision.transforms import InterpolationMode

from .steps import FlipAfterResize, FlipNormalize, ResizeCenterCrop, ResizeNormalize, ToChannelsFirst, ZoomCrop

_SYMMETRIC = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, "bilinear", "bicubic")


def use_pillow_rules(steps: Sequence[Any]) -> list[Any]:
    """Return steps for files and HWC images, which torchvision has as PIL images: they are resized by Pillow's rule until a step converts them."""
    output: list[Any] = []
    pillow = True  # whether torchvision has a PIL image at this step
    for step in steps:
        # From ToImage on torchvision resizes tensors, which rounds differently from Pillow.
        pillow = not _is_named(step, "ToImage", "PILToTensor", "ToDtype", "ConvertImageDtype") and (pillow or _is_named(step, "ToPILImage"))
        changed = {"by_pillow": True} if hasattr(step, "by_pillow") else {}
        if isinstance(getattr(step, "transforms", None), list | tuple):
            changed = {"transforms": use_pillow_rules(step.transforms)}
        if pillow and changed:
            step = copy(step)  # the steps for tensors keep theirs
            step.__dict__.update(changed)
        output.append(step)
    return output


def fuse_steps(steps: Sequence[Any]) -> list[Any]:
    """Return fewer steps with the same result on batches of uint8 images.

    Images stay HWC as long as possible: the conversion to CHW moves into the normalization, or to the end. Horizontal flips move after a resize,
    unless masks, points or boxes of integers are in the sample.
    """
    steps = fuse_zoom_and_crop(steps)
    fused, reordered = _fuse(steps), _move_flip_back(steps)
    if reordered is None:
        return fused
    # Both orders share their first steps, which then run once, before the sample decides between them.
    flip_late, same = _fuse(reordered), 0
    while same < min(len(fused), len(flip_late)) and fused[same] is flip_late[same]:
        same += 1
    return [*fused[:same], FlipAfterResize(flip_late[same:], fused[same:])]


def _move_flip_back(steps: Sequence[Any]) -> list[Any] | None:
    """Return the steps with a flip after the resize that follows it, where it mirrors fewer pixels or fuses. None without such a pair."""
    for k, (flip, resize) in enumerate(pairwise(steps)):
        if _is_named(flip, "RandomHorizontalFlip") and _is_named(resize, "Resize") and _is_symmetric(resize):
            return [*steps[:k], resize, flip, *steps[k + 2 :]]
    return None


def _is_symmetric(resize: Any) -> bool:
    """Return whether resizing and mirroring commute: not with torch's nearest pixels, which it takes from the left."""
    return bool(resize.antialias) and resize.interpolation in _SYMMETRIC


def _fuse(steps: Sequence[Any]) -> list[Any]:
    output: list[Any] = []
    planar_pending = False  # a conversion to CHW is still to be made
    is_float = False
    k = 0
    while k < len(steps):
        step = steps[k]
        if _is_named(step, "ToImage", "PILToTensor"):
            planar_pending, k = True, k + 1
            continue
        if _is_named(step, "ToPILImage") and k + 1 < len(steps):  # in the middle it changes no pixels
            if is_float:
                raise TypeError("from_torchvision: ToPILImage after a conversion to floats is not supported: convert to floats at the end")
            planar_pending, k = False, k + 1
            continue
        # The last steps of most transforms are one pass over the pixels: flip, scale to floats, normalize.
        tail = None if is_float else _find_tail(steps, k)
        if tail is not None:
            (flip, scale, normalize, planar), k = tail
            planar, planar_pending, is_float = planar or planar_pending, False, True
            erasing = None
            # timm's class of this name has no windows; with random values the windows are not of one color.
            if k < len(steps) and _is_named(steps[k], "RandomErasing") and hasattr(steps[k], "windows") and steps[k].value is not None:
                erasing, k = steps[k], k + 1
            last = FlipNormalize(flip, scale, normalize, planar, erasing)
            output = [*output[:-1], ResizeNormalize(output[-1], last)] if output and isinstance(output[-1], ResizeCenterCrop) else [*output, last]
            continue
        if _is_named(step, "Resize") and hasattr(step, "by_pillow") and k + 1 < len(steps) and _is_named(steps[k + 1], "CenterCrop"):
            output.append(ResizeCenterCrop(step, steps[k + 1]))
            k += 2
            continue
        is_float |= _is_named(step, "ToDtype", "ConvertImageDtype")
        planar_pending = planar_pending and not _is_named(step, "PerSample")  # which takes and returns CHW
        output.append(step)
        k += 1
    return [*output, ToChannelsFirst()] if planar_pending else output


def _is_named(step: Any, *names: str) -> bool:
    return type(step).__name__ in names


def _find_tail(steps: Sequence[Any], k: int) -> "tuple[tuple[Any, Any, Any, bool], int] | None":
    """Return the flip, conversion and normalization that begin at step k, whether they convert to CHW, and the index after them."""
    flip = normalize = None
    planar = False

    def skip_conversions(k: int) -> int:
        nonlocal planar
        while k < len(steps) and _is_named(steps[k], "ToImage", "PILToTensor"):
            planar, k = True, k + 1
        return k

    if _is_named(steps[k], "RandomHorizontalFlip"):
        flip, k = steps[k], k + 1
    k = skip_conversions(k)
    if k == len(steps) or not _is_float_conversion(steps[k]):
        # Only a conversion to floats makes the pass worth it.
        return None
    scale, k = steps[k], skip_conversions(k + 1)
    if k < len(steps) and _is_named(steps[k], "Normalize"):
        normalize, k = steps[k], k + 1
    k = skip_conversions(k)
    return (flip, scale, normalize, planar), k


def _is_float_conversion(step: Any) -> bool:
    scales = _is_named(step, "ConvertImageDtype") or (_is_named(step, "ToDtype") and bool(step.scale))
    return scales and step.dtype is torch.float32


def fuse_zoom_and_crop(steps: Sequence[Any]) -> list[Any]:
    """Return steps with each pair of RandomZoomOut and RandomIoUCrop as one."""
    output: list[Any] = []
    for step in steps:
        # Only ours: the method pad_where identifies the class.
        if output and _is_named(step, "RandomIoUCrop") and _is_named(output[-1], "RandomZoomOut") and hasattr(output[-1], "pad_where"):
            output[-1] = ZoomCrop(output[-1], step)
        else:
            output.append(step)
    return output
