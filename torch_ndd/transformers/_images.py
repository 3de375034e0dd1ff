# SPDX-License-Identifier: Apache-2.0
"""The steps that image processors of transformers share, on batches of images of any size."""

from typing import Any

import numpy as np
import torch

from .. import types
from .._core.context.device import DeviceLike
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.tensor import Tensor, new_tensor
from ..decoders.image import image as decode_image
from ..decoders.peek import peek_image_shape
from ..ops._arguments import as_samples
from ..ops.generic.convert import cast
from ..ops.geometry import slice as slices
from ..ops.geometry.crop import crop_mirror_normalize
from ..ops.geometry.resize import resize
from ..ops.geometry.sizes import image_axes
from ..ops.math.functions import floor
from ..ops.shape.join import cat
from ._settings import FILTERS, Settings

OP = "from_processor"


def decode(images: Any, settings: Settings, device: DeviceLike | None) -> Batch:
    """Return images as a batch ``HWC`` or ``CHW``, decoded if they are files, with the channels that the processor sees."""
    samples, _ = as_samples(images)
    if samples.ndim == 1 and samples.dtype is torch.uint8:
        # From the headers: an image without alpha is converted by its decoder, which is faster.
        channels = peek_image_shape(samples, image_type=types.ANY_DATA).torch()[:, 2]
        has_alpha = bool(((channels == 2) | (channels == 4)).any())
        kind = types.RGB if settings.converts_to_rgb and not has_alpha else types.ANY_DATA
        samples = decode_image(samples, output_type=kind, device=device)
    if samples.layout not in (None, "HWC", "CHW") or samples.ndim != 3:
        raise ValueError(f'{OP}: needs encoded files, or images HWC or CHW, got the layout "{samples.layout}" and shape {samples.shape!r:.200}')
    return convert_to_rgb(samples) if settings.converts_to_rgb else samples


def convert_to_rgb(images: Batch) -> Batch:
    """Repeat gray as three channels, and blend images with alpha onto white in float32: ``c * a + 1 - a`` of values from 0 to 1."""
    axis = (images.layout or "HWC").index("C")
    counts = images.sample_shapes()[:, axis].tolist()
    # Each number of channels has its own rule.
    if len(set(counts)) > 1:
        return as_batch([convert_to_rgb(images.select([k])).tensors[0] for k in range(len(counts))])
    if not counts or counts[0] == 3:
        return images
    if counts[0] == 1:
        return cat(images, images, images, axis=axis)
    if counts[0] not in (2, 4):
        raise ValueError(f"{OP}: images must have 1 to 4 channels, got {counts[0]}")
    last = counts[0] - 1
    colors, alpha = (images.slice[:, :, :last], images.slice[:, :, last:]) if axis == 2 else (images.slice[:last], images.slice[last:])
    if last == 1:
        colors = cat(colors, colors, colors, axis=axis)
    scale = 255.0 if images.dtype is torch.uint8 else 1.0
    opacity = cast(alpha, dtype=torch.float32) / scale
    blended = cast(colors, dtype=torch.float32) / scale * opacity + (1.0 - opacity)
    # torchvision converts a float to uint8 by truncating 255.999 times its value.
    return cast(floor(blended * 255.999), dtype=torch.uint8) if images.dtype is torch.uint8 else blended


def resize_to(images: Batch, size: Any, settings: Settings) -> Batch:
    """Resize to heights and widths, one pair for all images or one for each, with the filter and the rounding of the processor's backend."""
    pillow = settings.uses_pillow
    rule = "pillow" if pillow else "torch"
    if settings.filter == 0 and not pillow:
        rule = "dali"  # whose nearest pixel is that of NEAREST_EXACT, which torchvision takes for Pillow's filter 0
    return resize(images, size=size, rule=rule, interp_type=FILTERS[settings.filter])


def normalize(images: Batch, settings: Settings, layout: str, dtype: torch.dtype | None) -> Batch:
    """Rescale and normalize as the settings say, in one pass with the conversion to ``CHW`` or ``HWC``; ``dtype=torch.uint8`` leaves both out."""
    mean, std = [0.0], [1.0]
    if dtype is not torch.uint8:
        if settings.normalizes:
            # One multiplication instead of two: (x * factor - mean) / std is (x - mean / factor) / (std / factor).
            scale = 1 / settings.factor if settings.rescales else 1.0
            mean, std = [number * scale for number in settings.mean], [number * scale for number in settings.std]
        elif settings.rescales:
            std = [1 / settings.factor]
    if dtype is None:
        dtype = torch.float32 if settings.normalizes or settings.rescales else images.dtype
    return crop_mirror_normalize(images, mean=mean, std=std, dtype=dtype, output_layout=layout)


def crop_center(images: Batch, height: int, width: int, settings: Settings) -> Batch:
    """Cut the center out, padded with zeros where the image is smaller; of an odd padding the larger half is behind it, with Pillow before it."""
    axes = image_axes(OP, images)
    extents = images.sample_shapes()[:, list(axes)]
    target = torch.tensor([height, width])
    starts = (extents - target) // 2
    if not settings.uses_pillow:
        starts = torch.where(extents < target, -((target - extents) // 2), starts)
    window = {"start": new_batch(starts.contiguous(), None), "shape": [height, width], "axes": list(axes)}
    return slices.slice(images, out_of_bounds_policy="pad", **window)  # type: ignore[arg-type]


def join_padded(images: Batch, size: tuple[int, int] | None = None) -> Tensor:
    """Return images in one tensor (N, ...), padded with zeros below and on the right to the largest, or to a size."""
    if size is not None:
        images = slices.pad(images, axis_names="HW", shape=list(size))
    return images.padded().values if images.ragged_shapes is not None else images.stack()


def mask_of(extents: torch.Tensor, height: int, width: int) -> Tensor:
    """Return int64 (N, height, width): 1 for pixels of the image, 0 for padding."""
    mask = np.zeros((len(extents), height, width), np.int64)
    for row, (tall, wide) in zip(mask, extents.tolist(), strict=True):
        row[:tall, :wide] = 1
    return new_tensor(torch.from_numpy(mask))


def extents_of(images: Batch) -> torch.Tensor:
    """Return heights and widths, int64 (N, 2)."""
    return images.sample_shapes()[:, list(image_axes(OP, images))].contiguous()


def as_numbers(values: Any) -> Tensor:
    """Return integers as an int64 Tensor."""
    return new_tensor(torch.as_tensor(values, dtype=torch.int64))


def as_sizes(extents: torch.Tensor) -> Batch:
    """Return heights and widths as an argument with one pair per sample."""
    return new_batch(extents.contiguous(), None)
