# SPDX-License-Identifier: Apache-2.0
"""Steps of a translated transform that do the work of several: they decode only the crop, and flip, convert and normalize in one pass."""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms import InterpolationMode

from ..._core.values.batch import Batch, as_batch, new_batch
from ...decoders.image import image as decode
from ...decoders.image import image_slice
from ...decoders.peek import peek_image_shape
from ...ops.geometry._fill_windows import fill_windows, takes
from ...ops.geometry.crop import crop_mirror_normalize
from ...ops.shape.reshape import transpose
from .._draws import Draws
from .._sample import check_type, flatten, kind_of, unflatten
from ._zoomed_crop import without_canvases
from .functional._resize import PILLOW, resized_by_pillow, resized_center

_MOVING = (single.Mask, single.BoundingBoxes, single.KeyPoints)
_UPRIGHT = (single.BoundingBoxFormat.XYXY, single.BoundingBoxFormat.XYWH, single.BoundingBoxFormat.CXCYWH)
_SYMMETRIC = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, "bilinear", "bicubic")


def is_encoded(leaf: Any) -> bool:
    """Return whether a leaf is a batch of encoded images."""
    return isinstance(leaf, Batch) and leaf.dtype == torch.uint8 and leaf.ndim == 1 and kind_of(leaf) is torch.Tensor


def for_pillow(steps: Sequence[Any]) -> list[Any]:
    """Return steps for files and HWC images, which are Pillow's in torchvision: they are resized by its rule until a step makes tensors of them."""
    made: list[Any] = []
    pillow = True
    for step in steps:
        pillow = not _named(step, "ToImage", "PILToTensor", "ToDtype", "ConvertImageDtype") and (pillow or _named(step, "ToPILImage"))
        changed = {"by_pillow": True} if hasattr(step, "by_pillow") else {}
        if isinstance(getattr(step, "transforms", None), list | tuple):
            changed = {"transforms": for_pillow(step.transforms)}
        if pillow and changed:
            step = copy(step)
            step.__dict__.update(changed)
        made.append(step)
    return made


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
    made: list[Any] = []
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
            made.append(Normalized(flip, scale, normalize, planar, erasing))
            continue
        if _named(step, "Resize") and hasattr(step, "by_pillow") and k + 1 < len(steps) and _named(steps[k + 1], "CenterCrop"):
            made.append(ResizedCenter(step, steps[k + 1]))
            k += 2
            continue
        converted |= _named(step, "ToDtype", "ConvertImageDtype")
        waiting = waiting and not _named(step, "PerSample")  # which takes and returns CHW
        made.append(step)
        k += 1
    return [*made, Planar()] if waiting else made


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


def _differs_flipped_late(leaf: Any) -> bool:
    """Return whether a leaf differs when it is flipped after a resize instead of before: boxes of whole numbers or rotated ones, masks, points."""
    if not check_type(leaf, _MOVING):
        return False
    return not (check_type(leaf, (single.BoundingBoxes,)) and leaf.dtype.is_floating_point and leaf.format in _UPRIGHT)


class ImagesAlone:
    """Runs the shorter steps on images, and on boxes of floats; all steps where points or masks move with them."""

    def __init__(self, shorter: Sequence[Any], whole: Sequence[Any]) -> None:
        self.shorter, self.whole = shorter, whole

    def __call__(self, sample: Any) -> Any:
        moving = any(map(_differs_flipped_late, flatten(sample)[0]))
        for step in self.whole if moving else self.shorter:
            sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return f"ImagesAlone({', '.join(map(repr, self.shorter))})"


class ResizedCenter:
    """Does the work of Resize and CenterCrop: of images of 500x375 a third of the pixels is not made that the crop cuts off."""

    def __init__(self, resize: Any, crop: Any) -> None:
        self.resize, self.crop = resize, crop

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        chosen = [k for k, wanted in enumerate(self.resize._needs_transform_list(leaves)) if wanted]
        made = [self._one(leaves[k]) for k in chosen]
        if any(one is None for one in made):
            return self.crop(self.resize(sample))
        for k, one in zip(chosen, made, strict=True):
            leaves[k] = one
        return unflatten(leaves, spec)

    def _one(self, leaf: Any) -> Any:
        if not isinstance(leaf, Batch) or kind_of(leaf) not in (torch.Tensor, single.Image):
            return None
        resize = self.resize
        pillow = resize._pillow_has(leaf)
        antialias, rule = (True, PILLOW) if pillow else (resize.antialias, "torch")
        return resized_center(leaf, resize.size, resize.interpolation, resize.max_size, antialias, rule, self.crop.size)

    def __repr__(self) -> str:
        return f"ResizedCenter({self.resize!r}, {self.crop!r})"


class Planar:
    """Makes CHW of HWC images."""

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        return unflatten([self._one(leaf) for leaf in leaves], spec)

    def _one(self, leaf: Any) -> Any:
        if not isinstance(leaf, Batch) or not (leaf.layout or "").endswith("HWC"):
            return leaf
        frames = list(range(leaf.ndim - 3))
        return transpose(leaf, perm=[*frames, *(len(frames) + axis for axis in (2, 0, 1))])


class Normalized:
    """Flips with a probability, converts to float32 from 0 to 1, normalizes and makes CHW, in one pass over uint8 images; erases in the result."""

    def __init__(self, flip: Any, scale: Any, normalize: Any, planar: bool, erasing: Any = None) -> None:
        self.flip, self.scale, self.normalize, self.planar, self.erasing = flip, scale, normalize, planar, erasing
        mean, std = (normalize.mean, normalize.std) if normalize is not None else ([0.0], [1.0])
        self._mean, self._std = [255.0 * one for one in mean], [255.0 * one for one in std]

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        images = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Batch) and issubclass(kind_of(leaf), single.Image | single.Video)]
        if not images or any(leaves[k].dtype != torch.uint8 for k in images):
            return self._one_by_one(sample)
        size = leaves[images[0]].batch_size
        mirror: Any = 0
        if self.flip is not None:
            if any(check_type(leaf, _MOVING) for leaf in leaves):  # they turn with the images
                leaves, spec = flatten(self.flip(sample))
            else:
                mirror = new_batch(Draws(size).happens(self.flip.p).to(torch.int32))
        for k in images:
            leaves[k] = self._image(leaves[k], mirror)
        if self.erasing is None:
            return unflatten(leaves, spec)
        if len(images) > 1 or any(check_type(leaf, _MOVING) for leaf in leaves) or not takes(leaves[images[0]]):
            return self.erasing(unflatten(leaves, spec))
        made = leaves[images[0]]  # nobody else has it yet
        params = self.erasing.windows([made], size)
        fill_windows(made, torch.stack([params[key] for key in ("i", "j", "h", "w")], 1), params["v"].flatten().tolist())
        return unflatten(leaves, spec)

    def _image(self, images: Batch, mirror: Any) -> Batch:
        layout = images.layout or ""
        # Without a crop the operator takes whole images, ragged ones too.
        made = crop_mirror_normalize(
            images, mirror=mirror, mean=self._mean, std=self._std, output_layout=None if self.planar or layout.endswith("CHW") else layout
        )
        made.sources = images.sources
        return made

    def _one_by_one(self, sample: Any) -> Any:
        for step in (self.flip, Planar() if self.planar else None, self.scale, self.normalize, self.erasing):
            if step is not None:
                sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return f"Normalized({', '.join(repr(one) for one in (self.flip, self.scale, self.normalize, self.erasing) if one is not None)})"


def decoded(files: Batch, device: Any, adjust_orientation: bool) -> Batch:
    """Return the images of encoded files, HWC."""
    return decode(files, device=device, adjust_orientation=adjust_orientation)


class CropDecoder:
    """Decodes only the windows that a random resized crop takes, and resizes them."""

    def __init__(self, crop: Any) -> None:
        self.crop = crop

    def __call__(self, files: Batch, device: Any, adjust_orientation: bool) -> Batch:
        shapes = peek_image_shape(files, adjust_orientation=adjust_orientation).torch()
        sizes = new_batch(torch.empty(0, dtype=torch.uint8), shapes.contiguous(), "HWC")  # without values: only sizes are asked for
        window = self.crop.make_params([sizes])
        top, left, height, width = (torch.as_tensor(window[name]).expand(len(shapes)) for name in ("top", "left", "height", "width"))
        start, shape = (as_batch(torch.stack(pair, 1).to(torch.int64)) for pair in ((top, left), (height, width)))
        windows = image_slice(files, start=start, shape=shape, axes=[0, 1], device=device, adjust_orientation=adjust_orientation)
        return self.crop.resized(windows) if hasattr(self.crop, "resized") else _resized(windows, self.crop)


def _resized(windows: Batch, crop: Any) -> Batch:
    return resized_by_pillow(windows, crop.size, crop.interpolation)
