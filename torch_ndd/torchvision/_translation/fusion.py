# SPDX-License-Identifier: Apache-2.0
"""Rewriting of the steps of a translated transform, so that one step does the work of several."""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import torch
from torchvision.transforms import InterpolationMode

from .steps import ImagesAlone, Normalized, Planar, ResizedCenter, ZoomedCrop

_SYMMETRIC = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, "bilinear", "bicubic")


def for_pillow(steps: Sequence[Any]) -> list[Any]:
    """Return steps for files and HWC images, which are Pillow's in torchvision: they are resized by its rule until a step makes tensors of them."""
    output: list[Any] = []
    pillow = True
    for step in steps:
        pillow = not _named(step, "ToImage", "PILToTensor", "ToDtype", "ConvertImageDtype") and (pillow or _named(step, "ToPILImage"))
        changed = {"by_pillow": True} if hasattr(step, "by_pillow") else {}
        if isinstance(getattr(step, "transforms", None), list | tuple):
            changed = {"transforms": for_pillow(step.transforms)}
        if pillow and changed:
            step = copy(step)
            step.__dict__.update(changed)
        output.append(step)
    return output


def planned(steps: Sequence[Any]) -> list[Any]:
    """Return steps with the same result on batches of uint8 images, of which some do the work of several.

    Images stay HWC as long as possible: what makes CHW of them moves into the normalization, or to the end. So do horizontal flips before a resize,
    where nothing else in the sample turns with the images but boxes of floats.
    """
    steps = without_canvases(steps)
    whole, resized_first = _planned(steps), _with_flips_last(steps)
    if resized_first is None:
        return whole
    shorter, same = _planned(resized_first), 0
    while same < min(len(whole), len(shorter)) and whole[same] is shorter[same]:
        same += 1
    return [*whole[:same], ImagesAlone(shorter[same:], whole[same:])]


def _with_flips_last(steps: Sequence[Any]) -> list[Any] | None:
    """Return the steps with a flip after the resize that followed it: it mirrors fewer pixels, or none by itself. None if there is no such pair."""
    for k, (flip, resize) in enumerate(pairwise(steps)):
        if _named(flip, "RandomHorizontalFlip") and _named(resize, "Resize") and _is_symmetric(resize):
            return [*steps[:k], resize, flip, *steps[k + 2 :]]
    return None


def _is_symmetric(resize: Any) -> bool:
    """Return whether a resized mirror image is the mirror of the resized image: not with torch's nearest pixels."""
    return bool(resize.antialias) and resize.interpolation in _SYMMETRIC


def _planned(steps: Sequence[Any]) -> list[Any]:
    output: list[Any] = []
    waiting = False  # a conversion to CHW
    converted = False  # to floats
    k = 0
    while k < len(steps):
        step = steps[k]
        if _named(step, "ToImage", "PILToTensor"):
            waiting, k = True, k + 1
            continue
        if _named(step, "ToPILImage") and k + 1 < len(steps):  # PIL images in the middle have the same pixels
            if converted:
                raise TypeError("from_torchvision: ToPILImage after a conversion to floats is not supported: convert to floats at the end")
            waiting, k = False, k + 1
            continue
        tail = None if converted else _tail(steps, k)
        if tail is not None:
            (flip, scale, normalize, planar), k = tail
            planar, waiting, converted = planar or waiting, False, True
            erasing = None
            if k < len(steps) and _named(steps[k], "RandomErasing") and getattr(steps[k], "value", None) is not None and hasattr(steps[k], "windows"):
                erasing, k = steps[k], k + 1
            output.append(Normalized(flip, scale, normalize, planar, erasing))
            continue
        if _named(step, "Resize") and hasattr(step, "by_pillow") and k + 1 < len(steps) and _named(steps[k + 1], "CenterCrop"):
            output.append(ResizedCenter(step, steps[k + 1]))
            k += 2
            continue
        converted |= _named(step, "ToDtype", "ConvertImageDtype")
        waiting = waiting and not _named(step, "PerSample")  # which takes and returns CHW
        output.append(step)
        k += 1
    return [*output, Planar()] if waiting else output


def _named(step: Any, *names: str) -> bool:
    return type(step).__name__ in names


def _tail(steps: Sequence[Any], k: int) -> "tuple[tuple[Any, Any, Any, bool], int] | None":
    """Return flip, conversion and normalization that begin at step k, whether they make CHW, and where they end."""
    flip = normalize = None
    planar = False

    def conversions(k: int) -> int:
        nonlocal planar
        while k < len(steps) and _named(steps[k], "ToImage", "PILToTensor"):
            planar, k = True, k + 1
        return k

    if _named(steps[k], "RandomHorizontalFlip"):
        flip, k = steps[k], k + 1
    k = conversions(k)
    if k == len(steps) or not _to_floats(steps[k]):
        return None
    scale, k = steps[k], conversions(k + 1)
    if k < len(steps) and _named(steps[k], "Normalize"):
        normalize, k = steps[k], k + 1
    k = conversions(k)
    return (flip, scale, normalize, planar), k


def _to_floats(step: Any) -> bool:
    plain = getattr(step, "dtype", None) is torch.float32
    return plain and (_named(step, "ConvertImageDtype") or (_named(step, "ToDtype") and bool(step.scale)))


def without_canvases(steps: Sequence[Any]) -> list[Any]:
    """Return steps with each pair of RandomZoomOut and RandomIoUCrop as one."""
    output: list[Any] = []
    for step in steps:
        if output and type(step).__name__ == "RandomIoUCrop" and type(output[-1]).__name__ == "RandomZoomOut" and hasattr(output[-1], "padded_where"):
            output[-1] = ZoomedCrop(output[-1], step)
        else:
            output.append(step)
    return output
