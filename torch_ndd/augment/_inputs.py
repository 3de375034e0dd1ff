# SPDX-License-Identifier: Apache-2.0
"""Conversion of images, boxes, masks and numbers to batches with checks, and the random numbers of a call."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from .. import types
from .._core.context.rng import RNG
from .._core.native.default_device import ignore_default_device
from .._core.native.dynamo import disable
from .._core.values.batch import Batch, as_batch
from .._core.values.operand import layout_error, unwrap
from .._core.values.tensor import Tensor, as_tensor
from ..ops.random.distributions import uniform
from ..ops.shape.reshape import expand_dims, squeeze

F = TypeVar("F", bound=Callable[..., Any])


def exclude_from_compilation(function: F) -> F:
    """Keep a function out of the graphs of ``torch.compile``, and from torch's default device; with ``fullgraph=True`` it raises."""
    return disable(ignore_default_device(function), "it reads the random numbers that it draws: call it before the compiled function")


def check_rng(op: str, rng: Any) -> None:
    """Raise ValueError unless ``rng`` is a generator or None."""
    if rng is not None and not isinstance(rng, RNG):
        raise ValueError(f"{op}: rng must be an instance of random.RNG, but got {type(rng).__name__}")


def draw_numbers(op: str, rng: Any, samples: int, count: int) -> np.ndarray:
    """Return ``count`` numbers from 0 to 1 per sample, float64 (samples, count); those of sample i depend on the generator and on i only."""
    check_rng(op, rng)
    # max: the generator advances even for count 0, so later draws do not depend on it.
    numbers = uniform(range=(0.0, 1.0), shape=[max(1, count)], batch_size=samples, rng=rng)
    return numbers.wait().numpy().astype(np.float64)


def to_sample_values(op: str, name: str, value: Any, samples: int) -> list[float]:
    """Return a number for every sample, from one number or a Batch, Tensor, array or sequence with one each."""
    if type(value) is float or type(value) is int:
        return [float(value)] * samples
    try:
        array = np.asarray(value.torch() if isinstance(value, Batch | Tensor) else value, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{op}: {name} must be a number, or a Batch of numbers, got {value!r}") from None
    if array.ndim and array.size != samples:
        raise ValueError(f"{op}: {name} has {array.size} numbers for {samples} samples; give one number, or one for each sample in ndd.batch(...)")
    return np.broadcast_to(array.reshape(-1), samples).tolist()


def as_images(op: str, value: Any) -> tuple[Batch, bool]:
    """Return images ``HWC`` or videos ``FHWC`` as a batch, and whether they were a batch: a single image becomes a batch of size 1."""
    value = unwrap(value)
    if isinstance(value, Batch):
        images, is_batch = value, True
    elif isinstance(value, Tensor | torch.Tensor | np.ndarray):
        image = as_tensor(value)
        if image.ndim != 3 and image.layout != "FHWC":
            raise ValueError(
                f"{op}: an image must have three dimensions, HWC, got {image.ndim}; make a Batch of images with as_batch(images, layout='HWC'), "
                "a video with as_tensor(frames, layout='FHWC')"
            )
        images, is_batch = as_batch([image]), False
    else:
        raise TypeError(f"{op}: images must be a Batch or one image, got {type(value).__name__}")
    if images.layout is None and images.ndim == 3:
        images = as_batch(images, layout="HWC")
    if images.layout not in ("HWC", "FHWC"):
        raise layout_error(op, images, ("HWC", "FHWC"))
    if images.dtype is not torch.uint8 and not images.dtype.is_floating_point:
        raise ValueError(f"{op}: images must be uint8 or floating-point numbers from 0 to 1, got {types.dtype_name(images.dtype)}")
    if len({shape[-1] for shape in images.shape}) > 1:
        raise ValueError(f"{op}: all images must have the same number of channels, got {sorted({shape[-1] for shape in images.shape})}")
    return images, is_batch


def as_batch_beside(op: str, name: str, value: Any, images: Batch, is_batch: bool) -> Batch:
    """Return data with one item per image as a batch."""
    items = as_batch(value) if is_batch else as_batch([as_tensor(value)])
    if items.batch_size != images.batch_size:
        raise ValueError(f"{op}: Inconsistent batch size: {images.batch_size} images, but {items.batch_size} {name}")
    return items


def as_boxes(op: str, value: Any, images: Batch, is_batch: bool) -> Batch | None:
    """Return boxes (M, 4) of every image, floating-point: left, top, right, bottom in pixels."""
    if value is None:
        return None
    boxes = as_batch_beside(op, "boxes", value, images, is_batch)
    for i, shape in enumerate(boxes.shape):
        if len(shape) != 2 or shape[1] != 4:
            raise ValueError(f"{op}: boxes must have the shape (M, 4), got {shape} in sample {i}; an image without boxes has (0, 4)")
    return boxes if boxes.dtype.is_floating_point else as_batch(boxes, torch.float32)


def as_masks(op: str, value: Any, images: Batch, is_batch: bool) -> Batch | None:
    """Return the masks of every image, with or without channels, and with frames if the images have them; masks of objects (M, H, W) as ``CHW``."""
    if value is None:
        return None
    masks = as_batch_beside(op, "masks", value, images, is_batch)
    layouts = {images.ndim: images.layout, images.ndim - 1: (images.layout or "")[:-1]}
    if _are_of_objects(masks, images):
        layouts[3] = masks.layout if (masks.layout or "").endswith("HW") else "CHW"
    if masks.ndim not in layouts or masks.layout not in (None, layouts[masks.ndim]):
        allowed = " or ".join(map(str, layouts.values()))
        raise ValueError(f"{op}: masks must be {allowed}, or (objects, H, W), got {masks.ndim} dimensions and the layout {masks.layout!r}")
    layout = layouts[masks.ndim] or ""
    first = layout.find("HW")
    for i, (mask, image) in enumerate(zip(masks.shape, images.shape, strict=True)):
        # With frames, masks have as many as their video.
        leading = image[:-1] if first == images.ndim - 3 else image[-3:-1]
        if mask[first - len(leading) + 2 : first + 2] != leading:
            raise ValueError(f"{op}: masks must have the height and width of their images, but sample {i} has masks {mask} and an image {image}")
    return as_batch(masks, layout="CHW" if layout.endswith("HW") and masks.ndim == images.ndim else layout)


def _are_of_objects(masks: Batch, images: Batch) -> bool:
    """Return whether each mask of an image (H, W, C) is a stack of masks, one for each object; without a layout by the shapes."""
    if masks.ndim != 3 or images.ndim != 3:
        return False
    if masks.layout is not None:
        return masks.layout.endswith("HW")
    # Shapes that fit both are taken for masks with channels, (H, W, C).
    pairs = list(zip(masks.shape, images.shape, strict=True))
    return all(mask[1:] == image[:2] for mask, image in pairs) and not all(mask[:2] == image[:2] for mask, image in pairs)


def add_channels(masks: Batch, images: Batch) -> Batch:
    """Return masks with a channel axis."""
    return masks if masks.ndim == images.ndim else as_batch(expand_dims(masks, axes=[masks.ndim]), layout=images.layout)


def restore_channels(output: Batch, masks: Batch) -> Batch:
    """Return output masks without the channel axis that :func:`add_channels` added to ``masks``."""
    return output if output.ndim == masks.ndim else as_batch(squeeze(output, axes=[masks.ndim]), layout=masks.layout)


def as_results(is_batch: bool, values: Sequence[Any]) -> Any:
    """Return the values that are not None, of the only sample unless ``is_batch``: a single value as it is, several as a tuple."""
    results = [value for value in values if value is not None]
    if not is_batch:
        # Images, boxes and masks are Batches; parameters are lists or tensors with an entry for each sample.
        results = [value.select(0) if isinstance(value, Batch) else value[0] for value in results]
    return results[0] if len(results) == 1 else tuple(results)
