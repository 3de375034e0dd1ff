# SPDX-License-Identifier: Apache-2.0
"""Steps of a translated transform that torchvision does not have: several transforms in one pass, and functions called for every sample."""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2.functional import pil_to_tensor

from ..._core.context.pools import get_num_threads
from ..._core.process.workers import Workers, is_here
from ..._core.values.batch import Batch, as_batch, new_batch
from ...decoders.image import image as decode
from ...decoders.image import image_slice
from ...decoders.peek import peek_image_shape
from ...ops.geometry._fill_windows import fill_windows, takes
from ...ops.geometry.crop import crop_mirror_normalize
from ...ops.shape.reshape import transpose
from .. import tv_tensors
from .._draws import Draws
from .._sample import batch_size_of, check_type, flatten, is_pure_tensor, kind_of, unflatten
from .._single_samples import call_per_sample
from ..v2.functional._crop import border_fill, window_of
from ..v2.functional._dispatch import as_images
from ..v2.functional._resize import PILLOW, Normalization, resize_center

_MOVING = (single.Mask, single.BoundingBoxes, single.KeyPoints)
_UPRIGHT = (single.BoundingBoxFormat.XYXY, single.BoundingBoxFormat.XYWH, single.BoundingBoxFormat.CXCYWH)


def is_encoded(leaf: Any) -> bool:
    """Return whether a leaf is a batch of encoded images."""
    return isinstance(leaf, Batch) and leaf.dtype == torch.uint8 and leaf.ndim == 1 and kind_of(leaf) is torch.Tensor


def _needs_early_flip(leaf: Any) -> bool:
    """Return whether a flip after the resize instead of before it changes a leaf: integer or rotated boxes, masks and points."""
    if not check_type(leaf, _MOVING):
        return False
    # Floating-point boxes commute with the flip; integers are rounded by the resize, and rotated boxes get other angles.
    return not (check_type(leaf, (single.BoundingBoxes,)) and leaf.dtype.is_floating_point and leaf.format in _UPRIGHT)


class FlipAfterResize:
    """Run ``late``, the steps with the flip after the resize, unless the sample has leaves for which the order matters."""

    def __init__(self, late: Sequence[Any], early: Sequence[Any]) -> None:
        self.late, self.early = late, early

    def __call__(self, sample: Any) -> Any:
        early = any(map(_needs_early_flip, flatten(sample)[0]))
        for step in self.early if early else self.late:
            sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return f"FlipAfterResize({', '.join(map(repr, self.late))})"


class ResizeCenterCrop:
    """Resize and CenterCrop in one call, which does not compute the pixels that the crop removes: a third of images of 500x375."""

    def __init__(self, resize: Any, crop: Any) -> None:
        self.resize, self.crop = resize, crop

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        indices = [k for k, wanted in enumerate(self.resize._needs_transform_list(leaves)) if wanted]
        outputs = [self._transform_leaf(leaves[k]) for k in indices]
        # One leaf that needs both steps separately decides for all, because they must be transformed alike.
        if any(output is None for output in outputs):
            return self.crop(self.resize(sample))
        for k, output in zip(indices, outputs, strict=True):
            leaves[k] = output
        return unflatten(leaves, spec)

    def _transform_leaf(self, leaf: Any, normalization: Normalization | None = None) -> Any:
        """Return the result for a leaf, None if the two transforms have to run separately."""
        if not isinstance(leaf, Batch) or kind_of(leaf) not in (torch.Tensor, single.Image):
            return None
        resize = self.resize
        antialias, rule = (True, PILLOW) if resize.uses_pillow_rule(leaf) else (resize.antialias, "torch")
        return resize_center(leaf, resize.size, resize.interpolation, resize.max_size, antialias, rule, self.crop.size, normalization)

    def normalize(self, leaf: Any, normalization: Normalization) -> Any:
        """Return a leaf resized, cropped and normalized in one call, None if that takes several."""
        return self._transform_leaf(leaf, normalization) if self.resize._needs_transform_list([leaf])[0] else None

    def __repr__(self) -> str:
        return f"ResizeCenterCrop({self.resize!r}, {self.crop!r})"


class ToChannelsFirst:
    """Convert HWC images to CHW."""

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        return unflatten(list(map(self._transform_leaf, leaves)), spec)

    def _transform_leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, Batch) or not (leaf.layout or "").endswith("HWC"):
            return leaf
        frames = list(range(leaf.ndim - 3))
        # Frames stay in front; height, width, channels become channels, height, width.
        return transpose(leaf, perm=[*frames, *(len(frames) + axis for axis in (2, 0, 1))])


class FlipNormalize:
    """Flip with a probability, convert to float32 from 0 to 1, normalize and convert to CHW, in one pass over uint8 images; erase in the result."""

    def __init__(self, flip: Any, scale: Any, normalize: Any, planar: bool, erasing: Any = None) -> None:
        self.flip, self.scale, self.normalize, self.planar, self.erasing = flip, scale, normalize, planar, erasing
        mean, std = (normalize.mean, normalize.std) if normalize is not None else ([0.0], [1.0])
        # In levels of uint8, so the conversion to 0 to 1 is part of the normalization.
        self._mean, self._std = [255.0 * value for value in mean], [255.0 * value for value in std]

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        images = [k for k, leaf in enumerate(leaves) if _is_image(leaf)]
        # Floats, or no marked image: the single steps are correct for every input.
        if not images or any(leaves[k].dtype != torch.uint8 for k in images):
            return self._run_separately(sample)
        size = leaves[images[0]].batch_size
        mirror: Any = 0
        if self.flip is not None:
            if any(check_type(leaf, _MOVING) for leaf in leaves):  # the same samples have to be flipped in all leaves
                leaves, spec = flatten(self.flip(sample))
            else:
                mirror = new_batch(Draws(size).happens(self.flip.p).to(torch.int32))
        for k in images:
            leaves[k] = self._normalize(leaves[k], mirror)
        if self.erasing is None:
            return unflatten(leaves, spec)
        # In place only for a single image without boxes or masks; the transform itself handles the others.
        if len(images) > 1 or any(check_type(leaf, _MOVING) for leaf in leaves) or not takes(leaves[images[0]]):
            return self.erasing(unflatten(leaves, spec))
        output = leaves[images[0]]  # new and unaliased: it is modified in place
        params = self.erasing.windows([output], size)
        fill_windows(output, torch.stack([params[key] for key in ("i", "j", "h", "w")], 1), params["v"].flatten().tolist())
        return unflatten(leaves, spec)

    def _normalize(self, images: Batch, mirror: Any) -> Batch:
        # Without a crop the operator takes whole images, ragged ones too.
        output = crop_mirror_normalize(images, mirror=mirror, **self._constants(images))
        output.sources = images.sources
        return output

    def _constants(self, images: Batch) -> dict[str, Any]:
        layout = images.layout or ""
        return {"mean": self._mean, "std": self._std, "output_layout": None if self.planar or layout.endswith("CHW") else layout}

    def normalization_of(self, leaf: Any) -> Normalization | None:
        """Return the arguments with which a resize of a leaf, the only image of its sample, normalizes it too. None if more is to be done."""
        if not isinstance(leaf, Batch) or leaf.dtype != torch.uint8 or self.erasing is not None:
            return None

        def draw_arguments() -> dict[str, Any]:
            mirror = 0 if self.flip is None else new_batch(Draws(leaf.batch_size).happens(self.flip.p).to(torch.int32))
            return {"mirror": mirror, **self._constants(leaf)}

        return draw_arguments

    def _run_separately(self, sample: Any) -> Any:
        for step in (self.flip, ToChannelsFirst() if self.planar else None, self.scale, self.normalize, self.erasing):
            if step is not None:
                sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return f"FlipNormalize({', '.join(repr(step) for step in (self.flip, self.scale, self.normalize, self.erasing) if step is not None)})"


class ResizeNormalize:
    """A resize and the FlipNormalize after it in one call, for samples of one image: on a GPU one launch, on the CPU without a batch in between."""

    def __init__(self, resize: Any, tail: FlipNormalize) -> None:
        self.resize, self.tail = resize, tail

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        images = [k for k, leaf in enumerate(leaves) if _is_image(leaf)]
        alone = len(images) == 1 and not any(check_type(leaf, _MOVING) for leaf in leaves)
        normalization = self.tail.normalization_of(leaves[images[0]]) if alone else None
        output = None if normalization is None else self.resize.normalize(leaves[images[0]], normalization)
        if output is None:
            return self.tail(self.resize(sample))
        output.sources = leaves[images[0]].sources
        leaves[images[0]] = output
        return unflatten(leaves, spec)

    def __repr__(self) -> str:
        return f"ResizeNormalize({self.resize!r}, {self.tail!r})"


class ResizeWindows:
    """Resize windows that :class:`CropDecoder` has decoded for a random resized crop: leaf number ``place`` of the sample."""

    def __init__(self, crop: Any, place: int) -> None:
        self.crop, self.place = crop, place

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        leaves[self.place] = self.crop.resize_windows(leaves[self.place])
        return unflatten(leaves, spec)

    def normalize(self, leaf: Any, normalization: Normalization) -> Any:
        """Return windows resized and normalized in one call."""
        return self.crop.normalize_windows(leaf, normalization)


def _is_image(leaf: Any) -> bool:
    return isinstance(leaf, Batch) and issubclass(kind_of(leaf), single.Image | single.Video)


def decode_files(files: Batch, device: Any, adjust_orientation: bool) -> Batch:
    """Return the images of encoded files, HWC."""
    return decode(files, device=device, adjust_orientation=adjust_orientation)


class CropDecoder:
    """Decode only the windows of a random resized crop, and resize them, unless a :class:`ResizeNormalize` does."""

    def __init__(self, crop: Any, resizes: bool = True) -> None:
        self.crop, self.resizes = crop, resizes

    def __call__(self, files: Batch, device: Any, adjust_orientation: bool) -> Batch:
        shapes = peek_image_shape(files, adjust_orientation=adjust_orientation).torch()
        # The crop needs only the sizes of its images, so a batch without pixels will do.
        sizes = new_batch(torch.empty(0, dtype=torch.uint8), shapes.contiguous(), "HWC")
        window = self.crop.make_params([sizes])
        # Numbers that all samples share are expanded, because `image_slice` needs a window for each.
        top, left, height, width = (torch.as_tensor(window[name]).expand(len(shapes)) for name in ("top", "left", "height", "width"))
        start, shape = (as_batch(torch.stack(pair, 1).to(torch.int64)) for pair in ((top, left), (height, width)))
        windows = image_slice(files, start=start, shape=shape, axes=[0, 1], device=device, adjust_orientation=adjust_orientation)
        return self.crop.resize_windows(windows) if self.resizes else windows


class ZoomCrop:
    """RandomZoomOut and RandomIoUCrop in one call, with the same draws and without the canvas, which has up to 16 times the image's pixels."""

    def __init__(self, zoom: Any, crop: Any) -> None:
        self.zoom, self.crop = zoom, crop

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        images = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Batch) and issubclass(kind_of(leaf), single.Image)]
        boxes = [leaf for leaf in leaves if check_type(leaf, (single.BoundingBoxes,))]
        # Several images, no boxes or single samples: the two transforms in sequence.
        if len(images) != 1 or not boxes or any(not isinstance(leaf, Batch) for leaf in leaves if isinstance(leaf, torch.Tensor)):
            return self.crop(self.zoom(sample))
        image: Any = leaves[images[0]]
        needs = self.zoom._needs_transform_list(leaves)
        self.zoom.check_inputs(leaves)
        self.crop.check_inputs(leaves)
        # The draws and their order are those of the two transforms, so a seed gives the same results.
        acts = Draws(image.batch_size).happens(self.zoom.p)
        padding = self.zoom.make_params([leaf for leaf, wanted in zip(leaves, needs, strict=True) if wanted])["padding"]
        others = [k for k, wanted in enumerate(needs) if wanted and k != images[0]]
        for k in others:
            leaves[k] = self.zoom.pad_where(acts, leaves[k], padding)
        window = self.crop.make_params([leaves[k] for k in others])
        for k in others:
            leaves[k] = self.crop.transform(leaves[k], window)
        # Where the sample is not zoomed, the window is relative to the image itself.
        left, top = (torch.where(acts, column, 0) for column in padding[:2])
        plain = as_images("crop", image)
        fill = border_fill(plain, self.zoom._fill_for(image))
        output = window_of(plain, window["top"] - top, window["left"] - left, window["height"], window["width"], fill)
        leaves[images[0]] = image.over(output) if tv_tensors.is_typed(image) else output
        return unflatten(leaves, spec)

    def __repr__(self) -> str:
        return f"ZoomCrop({self.zoom!r}, {self.crop!r})"


class PerSample:
    """Call a transform for every sample, with images as ``Image`` (C, H, W), and make batches of its results.

    A transform with one parameter is called with the image, and the other parts stay; one with several is called with all parts, as by torchvision's
    ``Compose``. It runs in Python, on as many threads as operators; the steps before it have to end first.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self._pool: Workers | None = None

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        size = batch_size_of("from_torchvision", leaves)
        if isinstance(sample, tuple) and not self._takes_parts(len(sample)):
            image = next((k for k, leaf in enumerate(leaves) if issubclass(kind_of(leaf), single.Image | single.Video)), 0)
            leaves[image] = self._call_transform(leaves[image], size)
            return unflatten(leaves, spec)
        return self._call_transform(sample, size)

    def _takes_parts(self, count: int) -> bool:
        """Return whether the transform has a parameter for each of ``count`` parts of a sample."""
        try:
            parameters = inspect.signature(getattr(self.transform, "forward", self.transform)).parameters.values()
        except (TypeError, ValueError):  # written in C
            return False
        positional = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
        required = sum(parameter.default is parameter.empty for parameter in positional)
        return required == count or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)

    def _call_transform(self, sample: Any, size: int | None) -> Any:
        if size is None:
            return self.transform(*sample) if isinstance(sample, tuple) else self.transform(sample)
        return call_per_sample("from_torchvision", self._transform_sample, (ToChannelsFirst()(sample),), size, self._map)

    def _map(self, function: Callable[[int], Any], numbers: range) -> list[Any]:
        threads = min(get_num_threads(), len(numbers))
        if threads < 2:
            return list(map(function, numbers))
        # A forked process inherits the object but not its threads.
        if not is_here(self._pool) or self._pool.max_workers < threads:
            self._pool = Workers(get_num_threads(), "from_torchvision", self)
        futures = [self._pool.submit(function, number) for number in numbers]
        return [future.result() for future in futures]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _transform_sample(self, sample: Any) -> Any:
        inputs, _ = flatten(sample)
        outputs, spec = flatten(self.transform(*sample) if isinstance(sample, tuple) else self.transform(sample))
        # Results are matched to the inputs by position only if there are equally many.
        if len(inputs) != len(outputs):
            inputs = [None] * len(outputs)
        return unflatten(list(map(_as_tensor, outputs, inputs)), spec)

    def __repr__(self) -> str:
        return f"PerSample({self.transform!r})"


def _as_tensor(value: Any, before: Any) -> Any:
    """Return a result as a tensor, and as an image where it was one before: arithmetic on an ``Image`` returns a plain tensor."""
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(value, pil.Image):
        return single.Image(pil_to_tensor(value))
    if isinstance(value, bool | int | float):
        return torch.tensor(value)
    if is_pure_tensor(value) and isinstance(before, single.Image | single.Video) and value.dim() == before.dim():
        return type(before)(value)
    return value


class ChannelsBeforeFrames:
    """Convert FCHW videos to CFHW, the order of torchvision's video models."""

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        outputs = [transpose(leaf, perm=[1, 0, 2, 3]) if isinstance(leaf, Batch) and leaf.layout == "FCHW" else leaf for leaf in leaves]
        return unflatten(outputs, spec)
