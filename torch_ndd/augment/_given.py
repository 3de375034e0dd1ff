# SPDX-License-Identifier: Apache-2.0
"""Checking the user's images, boxes and masks and converting them to batches; drawing the random numbers of a call."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from .. import types
from .._core.context.rng import RNG
from .._core.native.dynamo import disable
from .._core.values.batch import Batch, as_batch
from .._core.values.pipeline_values import unwrap
from .._core.values.tensor import Tensor, as_tensor
from ..ops.random.distributions import uniform
from ..ops.shape.reshape import expand_dims, squeeze

F = TypeVar("F", bound=Callable[..., Any])


def uncompiled(function: F) -> F:
    """Exclude a function from compilation."""
    return disable(function, "it reads the random numbers that it draws: call it before the compiled function")


def check_rng(op: str, rng: Any) -> None:
    """Raise ValueError unless this is a generator or None."""
    if rng is not None and not isinstance(rng, RNG):
        raise ValueError(f"{op}: rng must be an instance of random.RNG, but got {type(rng).__name__}")


def numbers(op: str, rng: Any, samples: int, count: int) -> np.ndarray:
    """Draw ``count`` numbers from 0 to 1 per sample, float64 (samples, count). Sample i depends on the generator and on i only."""
    check_rng(op, rng)
    drawn = uniform(range=(0.0, 1.0), shape=[max(1, count)], batch_size=samples, rng=rng)  # the generator advances even for count 0
    return drawn.torch().numpy().astype(np.float64)


def one_per_sample(op: str, name: str, given: Any, samples: int) -> list[float]:
    """Return a number for every sample, from one number or a Batch, Tensor, array or sequence with one each."""
    values = given.torch() if isinstance(given, Batch | Tensor) else given
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{op}: {name} must be a number, or a Batch of them, got {given!r}") from None
    if array.ndim and array.size != samples:
        raise ValueError(f"{op}: {name} has {array.size} numbers for {samples} samples; give one number, or one for each sample in ndd.batch(...)")
    return np.broadcast_to(array.reshape(-1), samples).tolist()


def images_of(op: str, given: Any) -> tuple[Batch, bool]:
    """Return images ``HWC`` or videos ``FHWC`` as a batch, and whether they were one: a single image becomes a batch of one."""
    given = unwrap(given)
    if isinstance(given, Batch):
        images, is_batch = given, True
    elif isinstance(given, Tensor | torch.Tensor | np.ndarray):
        single = as_tensor(given)
        if single.ndim != 3 and single.layout != "FHWC":
            raise ValueError(
                f"{op}: an image has three dimensions, HWC, got {single.ndim}; a Batch of images is made by as_batch(images, layout='HWC'), "
                "a video by as_tensor(frames, layout='FHWC')"
            )
        images, is_batch = as_batch([single]), False
    else:
        raise TypeError(f"{op}: images must be a Batch or one image, got {type(given).__name__}")
    if images.layout is None and images.ndim == 3:
        images = as_batch(images, layout="HWC")
    if images.layout not in ("HWC", "FHWC"):
        raise ValueError(f'{op}: The layout "{images.layout or ""}" does not match any of the allowed layouts: HWC, FHWC')
    if images.dtype is not torch.uint8 and not images.dtype.is_floating_point:
        raise ValueError(f"{op}: images must be uint8 or floating-point numbers from 0 to 1, got {types.dtype_name(images.dtype)}")
    if len({shape[-1] for shape in images.shape}) > 1:
        raise ValueError(f"{op}: all images must have the same number of channels, got {sorted({shape[-1] for shape in images.shape})}")
    return images, is_batch


def belonging(op: str, name: str, given: Any, images: Batch, is_batch: bool) -> Batch:
    """Return data with one item per image as a batch."""
    made = as_batch(given) if is_batch else as_batch([as_tensor(given)])
    if made.batch_size != images.batch_size:
        raise ValueError(f"{op}: Inconsistent batch size: {images.batch_size} images, but {made.batch_size} {name}")
    return made


def boxes_of(op: str, given: Any, images: Batch, is_batch: bool) -> Batch | None:
    """Return boxes (M, 4) of every image, floating-point: left, top, right, bottom in pixels."""
    if given is None:
        return None
    made = belonging(op, "boxes", given, images, is_batch)
    for i, shape in enumerate(made.shape):
        if len(shape) != 2 or shape[1] != 4:
            raise ValueError(f"{op}: boxes must have the shape (M, 4), got {shape} in sample {i}; an image without boxes has (0, 4)")
    return made if made.dtype.is_floating_point else as_batch(made, torch.float32)


def masks_of(op: str, given: Any, images: Batch, is_batch: bool) -> Batch | None:
    """Return the masks of every image, with or without channels, and with frames if the images have them; masks of objects (M, H, W) as ``CHW``."""
    if given is None:
        return None
    made, allowed = belonging(op, "masks", given, images, is_batch), {images.ndim: images.layout, images.ndim - 1: (images.layout or "")[:-1]}
    if _are_of_objects(made, images):
        allowed[3] = made.layout if (made.layout or "").endswith("HW") else "CHW"
    if made.ndim not in allowed or made.layout not in (None, allowed[made.ndim]):
        known = " or ".join(map(str, allowed.values()))
        raise ValueError(f"{op}: masks must be {known}, or (objects, H, W), got {made.ndim} dimensions and the layout {made.layout!r}")
    layout = allowed[made.ndim] or ""
    first = layout.find("HW")
    for i, (mask, image) in enumerate(zip(made.shape, images.shape, strict=True)):
        leading = image[:-1] if first == images.ndim - 3 else image[-3:-1]
        if mask[first - len(leading) + 2 : first + 2] != leading:
            raise ValueError(f"{op}: masks must have the height and width of their images, but in sample {i} {mask} meets {image}")
    return as_batch(made, layout="CHW" if layout.endswith("HW") and made.ndim == images.ndim else layout)


def _are_of_objects(masks: Batch, images: Batch) -> bool:
    """Return whether each mask of an image (H, W, C) is a stack of masks, one for each object; without a layout by the shapes."""
    if masks.ndim != 3 or images.ndim != 3:
        return False
    if masks.layout is not None:
        return masks.layout.endswith("HW")
    pairs = list(zip(masks.shape, images.shape, strict=True))
    return all(mask[1:] == image[:2] for mask, image in pairs) and not all(mask[:2] == image[:2] for mask, image in pairs)


def with_channels(masks: Batch, images: Batch) -> Batch:
    """Return masks with a channel dimension."""
    return masks if masks.ndim == images.ndim else as_batch(expand_dims(masks, axes=[masks.ndim]), layout=images.layout)


def as_given(made: Batch, masks: Batch) -> Batch:
    """Return masks without their channel dimension."""
    return made if made.ndim == masks.ndim else as_batch(squeeze(made, axes=[masks.ndim]), layout=masks.layout)


def results(is_batch: bool, values: Sequence[Any]) -> Any:
    """Return the requested results: a single one unchanged, several as a tuple."""
    kept = [one for one in values if one is not None]
    if not is_batch:
        kept = [one.select(0) if isinstance(one, Batch) else one[0] for one in kept]
    return kept[0] if len(kept) == 1 else tuple(kept)
