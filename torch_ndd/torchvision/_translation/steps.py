# SPDX-License-Identifier: Apache-2.0
"""Steps of a translated transform that are not torchvision's: several transforms in one pass, and functions called for every sample."""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2.functional import pil_to_tensor

from ..._core.context.pools import get_num_threads
from ..._core.process.workers import Workers
from ..._core.values.batch import Batch, as_batch, new_batch
from ...decoders.image import image as decode
from ...decoders.image_window import image_slice
from ...decoders.peek import peek_image_shape
from ...ops.geometry._fill_windows import fill_windows, takes
from ...ops.geometry.crop import crop_mirror_normalize
from ...ops.shape.reshape import transpose
from .. import tv_tensors
from .._draws import Draws
from .._sample import batch_size_of, check_type, flatten, is_pure_tensor, kind_of, unflatten
from .._single_samples import per_sample
from ..v2.functional._crop import border_fill, window_of
from ..v2.functional._dispatch import as_images
from ..v2.functional._resize import PILLOW, resized_by_pillow, resized_center

_MOVING = (single.Mask, single.BoundingBoxes, single.KeyPoints)
_UPRIGHT = (single.BoundingBoxFormat.XYXY, single.BoundingBoxFormat.XYWH, single.BoundingBoxFormat.CXCYWH)


def is_encoded(leaf: Any) -> bool:
    """Return whether a leaf is a batch of encoded images."""
    return isinstance(leaf, Batch) and leaf.dtype == torch.uint8 and leaf.ndim == 1 and kind_of(leaf) is torch.Tensor


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
        outputs = [self._one(leaves[k]) for k in chosen]
        if any(output is None for output in outputs):
            return self.crop(self.resize(sample))
        for k, output in zip(chosen, outputs, strict=True):
            leaves[k] = output
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
        self._mean, self._std = [255.0 * value for value in mean], [255.0 * value for value in std]

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
        output = leaves[images[0]]  # nobody else has it yet
        params = self.erasing.windows([output], size)
        fill_windows(output, torch.stack([params[key] for key in ("i", "j", "h", "w")], 1), params["v"].flatten().tolist())
        return unflatten(leaves, spec)

    def _image(self, images: Batch, mirror: Any) -> Batch:
        layout = images.layout or ""
        # Without a crop the operator takes whole images, ragged ones too.
        output = crop_mirror_normalize(
            images, mirror=mirror, mean=self._mean, std=self._std, output_layout=None if self.planar or layout.endswith("CHW") else layout
        )
        output.sources = images.sources
        return output

    def _one_by_one(self, sample: Any) -> Any:
        for step in (self.flip, Planar() if self.planar else None, self.scale, self.normalize, self.erasing):
            if step is not None:
                sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return f"Normalized({', '.join(repr(step) for step in (self.flip, self.scale, self.normalize, self.erasing) if step is not None)})"


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
        left, top = (torch.where(acts, column, 0) for column in padding[:2])
        plain = as_images("crop", image)
        fill = border_fill(plain, self.zoom._fill_for(image))
        output = window_of(plain, window["top"] - top, window["left"] - left, window["height"], window["width"], fill)
        leaves[images[0]] = image.over(output) if tv_tensors.is_typed(image) else output
        return unflatten(leaves, spec)

    def __repr__(self) -> str:
        return f"ZoomedCrop({self.zoom!r}, {self.crop!r})"


class PerSample:
    """Calls a transform for every sample, with images as ``Image`` (C, H, W), and makes batches of its results.

    A transform of one argument gets the image, and what comes with it stays; one of several gets all parts, as in torchvision's ``Compose``. It runs
    in Python, on as many threads as operators; everything before it has to be computed first.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self._pool: Workers | None = None
        self._process = 0

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        size = batch_size_of("from_torchvision", leaves)
        if isinstance(sample, tuple) and not self._takes(len(sample)):
            image = next((k for k, leaf in enumerate(leaves) if issubclass(kind_of(leaf), single.Image | single.Video)), 0)
            leaves[image] = self._called(leaves[image], size)
            return unflatten(leaves, spec)
        return self._called(sample, size)

    def _takes(self, count: int) -> bool:
        """Return whether the transform takes so many parts of a sample, each as an argument of its own."""
        try:
            parameters = inspect.signature(getattr(self.transform, "forward", self.transform)).parameters.values()
        except (TypeError, ValueError):  # written in C
            return False
        needed = [
            parameter
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and parameter.default is parameter.empty
        ]
        return len(needed) == count or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)

    def _called(self, sample: Any, size: int | None) -> Any:
        if size is None:
            return self.transform(*sample) if isinstance(sample, tuple) else self.transform(sample)
        return per_sample("from_torchvision", self._one, (Planar()(sample),), size, self._map)

    def _map(self, function: Callable[[int], Any], numbers: range) -> list[Any]:
        threads = min(get_num_threads(), len(numbers))
        if threads < 2:
            return list(map(function, numbers))
        if self._pool is None or self._process != os.getpid() or self._pool.max_workers < threads:
            self._pool, self._process = Workers(get_num_threads(), "from_torchvision", self), os.getpid()
        futures = [self._pool.submit(function, number) for number in numbers]
        return [future.result() for future in futures]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _one(self, sample: Any) -> Any:
        inputs, _ = flatten(sample)
        outputs, spec = flatten(self.transform(*sample) if isinstance(sample, tuple) else self.transform(sample))
        if len(inputs) != len(outputs):
            inputs = [None] * len(outputs)
        return unflatten(list(map(_as_tensor, outputs, inputs)), spec)

    def __repr__(self) -> str:
        return f"PerSample({self.transform!r})"


def _as_tensor(value: Any, before: Any) -> Any:
    """Return a result as a tensor. Arithmetic on an ``Image`` makes a tensor without a meaning of it."""
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(value, pil.Image):
        return single.Image(pil_to_tensor(value))
    if isinstance(value, bool | int | float):
        return torch.tensor(value)
    if is_pure_tensor(value) and isinstance(before, single.Image | single.Video) and value.dim() == before.dim():
        return type(before)(value)
    return value


class FramesInside:
    """Makes CFHW of FCHW videos, the order of torchvision's video models."""

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        outputs = [transpose(leaf, perm=[1, 0, 2, 3]) if isinstance(leaf, Batch) and leaf.layout == "FCHW" else leaf for leaf in leaves]
        return unflatten(outputs, spec)
