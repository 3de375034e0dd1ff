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
from ..ops._columns import first_failure
from ..ops.generic.convert import cast
from ..ops.geometry import slice as slices
from ..ops.geometry.crop import crop_mirror_normalize
from ..ops.geometry.resize import resize, resize_crop_mirror
from ..ops.geometry.sizes import image_axes
from ..ops.math.functions import floor
from ..ops.shape.join import cat
from ._settings import FILTERS, Settings

OP = "from_processor"


def decode(images: Any, settings: Settings, device: DeviceLike | None) -> Batch:
    """Return images as a batch ``HWC`` or ``CHW``, decoded if they are files, with the channels that the processor sees."""
    samples, _ = as_samples(images)
    pillow = settings.uses_pillow
    if samples.ndim == 1 and samples.dtype is torch.uint8:
        # From the headers: an image without alpha is converted by its decoder, which is faster.
        channels = peek_image_shape(samples, image_type=types.ANY_DATA).torch()[:, 2]
        has_alpha = bool(((channels == 2) | (channels == 4)).any())
        kind = types.RGB if settings.converts_to_rgb and not has_alpha else types.ANY_DATA
        samples, pillow = decode_image(samples, output_type=kind, device=device), True
    if samples.layout not in (None, "HWC", "CHW") or samples.ndim != 3:
        raise ValueError(f'{OP}: needs encoded files, or images HWC or CHW, got the layout "{samples.layout}" and shape {samples.shape!r:.200}')
    require_pixels(samples, settings)
    if settings.converts_to_rgb:
        return convert_to_rgb(samples, pillow)
    if settings.uses_pillow and settings.resizes:
        _refuse_alpha(samples, settings)
    return samples


def require_pixels(samples: Batch, settings: Settings) -> None:
    """Raise ValueError for an image or a video without pixels: some rules of sizes would divide by zero, others would return it."""
    has_pixels = (samples.sample_shapes() > 0).all(1)
    if not has_pixels.all():
        sample = first_failure(has_pixels)
        raise ValueError(f"{OP}: {settings.name}: sample {sample} of shape {tuple(samples.sample_shapes()[sample].tolist())} has no pixels")


def _refuse_alpha(images: Batch, settings: Settings) -> None:
    """Raise ValueError for images with alpha, by which Pillow multiplies the colors before it resizes, and divides them afterwards."""
    counts = images.sample_shapes()[:, (images.layout or "HWC").index("C")].tolist()
    numbers = [k for k, count in enumerate(counts) if count in (2, 4)]
    if numbers:
        raise ValueError(
            f"{OP}: {settings.name} multiplies colors by alpha before it resizes, which is not supported: sample {numbers[0]} has "
            f"{counts[numbers[0]]} channels; convert it to RGB"
        )


def convert_to_rgb(images: Batch, pillow: bool) -> Batch:
    """Repeat gray as three channels, and blend images with alpha onto white, ``c * a + 1 - a`` of values from 0 to 1.

    Pillow rounds bytes to the nearest level; torchvision's conversion in float32 is a level away from it.
    """
    axis = (images.layout or "HWC").index("C")
    counts = images.sample_shapes()[:, axis].tolist()
    # Each number of channels has its own rule.
    if len(set(counts)) > 1:
        return as_batch([convert_to_rgb(images.select([k]), pillow).tensors[0] for k in range(len(counts))])
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
    values, opacity = cast(colors, dtype=torch.float32), cast(alpha, dtype=torch.float32)
    if images.dtype is not torch.uint8:
        return values * opacity + (1.0 - opacity)
    if pillow:
        return cast(floor((values * opacity + (65025.0 - opacity * 255.0)) / 255.0 + 0.5), dtype=torch.uint8)
    values, opacity = values * (1 / 255), opacity * (1 / 255)
    # torchvision converts a float to uint8 by truncating 255.999 times its value.
    return cast(floor((values * opacity + (1.0 - opacity)) * 255.999), dtype=torch.uint8)


def resize_to(images: Batch, size: Any, settings: Settings) -> Batch:
    """Resize to heights and widths, one pair for all images or one for each, with the filter and the rounding of the processor's backend."""
    if _passes_through_bytes(images, settings):
        return _resize_through_bytes(images, size, settings)
    return resize(images, size=size, **_filter_of(settings))


def _passes_through_bytes(images: Batch, settings: Settings) -> bool:
    return settings.uses_pillow and images.dtype.is_floating_point


def _resize_through_bytes(images: Batch, size: Any, settings: Settings) -> Batch:
    """Resize floats as transformers does for Pillow, which takes bytes: integers are levels, others are from 0 to 1 and truncated to levels."""
    levels, scales = [], []
    for k, sample in enumerate(images.tensors):
        values = sample.torch().cpu().double()
        whole = bool(torch.allclose(values, values.trunc(), rtol=1e-5, atol=1e-8))
        if not 0 <= float(values.min()) <= float(values.max()) <= (255 if whole else 1):
            raise ValueError(f"{OP}: sample {k} must have integers from 0 to 255, or values from 0 to 1, to be resized by Pillow's rule")
        levels.append((values if whole else (values * 255).float()).to(torch.uint8))
        scales.append(1.0 if whole else 1 / 255)
    batch = as_batch(levels, layout=images.layout).to_device(images.buffer.device)
    resized = resize(batch, size=size, **_filter_of(settings))
    if max(scales) == min(scales) == 1.0:
        return resized
    return as_batch([cast(sample, dtype=torch.float32) * scale for sample, scale in zip(resized.tensors, scales, strict=True)])


def _filter_of(settings: Settings) -> dict[str, Any]:
    pillow = settings.uses_pillow
    rule = "pillow" if pillow else "torch"
    if settings.filter == 0 and not pillow:
        rule = "dali"  # whose nearest pixel is that of NEAREST_EXACT, which torchvision takes for Pillow's filter 0
    return {"rule": rule, "interp_type": FILTERS[settings.filter]}


def normalize(images: Batch, settings: Settings, layout: str, dtype: torch.dtype | None) -> Batch:
    """Rescale and normalize as the settings say, in one pass with the conversion to ``CHW`` or ``HWC``; ``dtype=torch.uint8`` leaves both out."""
    images = repeat_gray(images, settings, dtype)
    constants = _constants_of(images, settings, dtype)
    if _normalizes_levels(images, settings, dtype):
        images, constants = _normalize_levels(images, settings), {**constants, "mean": [0.0], "std": [1.0]}
    return crop_mirror_normalize(images, output_layout=layout, **constants)


def resize_and_normalize(images: Batch, size: Any, settings: Settings, layout: str, dtype: torch.dtype | None) -> Batch:
    """Return :func:`resize_to`, then :func:`normalize`, in one pass."""
    if _normalizes_levels(images, settings, dtype) or _passes_through_bytes(images, settings):
        return normalize(resize_to(images, size, settings), settings, layout, dtype)
    images = repeat_gray(images, settings, dtype)
    constants = _constants_of(images, settings, dtype)
    return resize_crop_mirror(images, size=size, output_layout=layout, **_filter_of(settings), **constants)


def repeat_gray(images: Batch, settings: Settings, dtype: torch.dtype | None) -> Batch:
    """Repeat images of one channel for each number of the mean, as torchvision's normalization does for float32.

    transformers normalizes other dtypes in place, and raises for them; so does its backend for Pillow.
    """
    channels = max(len(settings.mean), len(settings.std))
    if not settings.normalizes or channels == 1 or dtype is torch.uint8:
        return images
    axis = (images.layout or "HWC").index("C")
    shared = images.shared_extent(axis)
    gray = [shared == 1] * images.batch_size if shared is not None else (images.sample_shapes()[:, axis] == 1).tolist()
    if not any(gray):
        return images
    if settings.uses_pillow or images.dtype is not torch.float32:
        raise ValueError(
            f"{OP}: {settings.name}: sample {gray.index(True)} has one channel, for which the mean and std of {channels} must be one number; "
            "set do_convert_rgb=True, or pass RGB"
        )
    if all(gray):
        return cat(*[images] * channels, axis=axis)
    return as_batch(
        [cat(*[sample] * channels, axis=axis) if one_channel else sample for sample, one_channel in zip(images.tensors, gray, strict=True)]
    )


def _constants_of(images: Batch, settings: Settings, dtype: torch.dtype | None) -> dict[str, Any]:
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
    return {"mean": mean, "std": std, "dtype": dtype}


def _normalizes_levels(images: Batch, settings: Settings, dtype: torch.dtype | None) -> bool:
    return settings.normalizes and not settings.rescales and dtype is not torch.uint8 and not images.dtype.is_floating_point


def _normalize_levels(images: Batch, settings: Settings) -> Batch:
    """Normalize levels from 0 to 255 as transformers does: a difference and a quotient. One multiplication and addition would be 6e-5 away."""
    channels = [1] * images.ndim
    channels[(images.layout or "HWC").index("C")] = -1
    mean, std = (
        torch.tensor(numbers, dtype=torch.float32, device=images.buffer.device).reshape(channels) for numbers in (settings.mean, settings.std)
    )
    return (cast(images, dtype=torch.float32) - mean) / std


def crop_center(images: Batch, height: int, width: int, settings: Settings) -> Batch:
    """Cut the center out, padded with zeros where the image is smaller; of an odd padding the larger half comes after it, with Pillow before it."""
    axes = image_axes(OP, images)
    extents = images.sample_shapes()[:, list(axes)]
    target = torch.tensor([height, width])
    starts = (extents - target) // 2
    if not settings.uses_pillow:
        starts = torch.where(extents < target, -((target - extents) // 2), starts)
    window = {"start": new_batch(starts.contiguous(), None), "shape": [height, width], "axes": list(axes)}
    return slices.slice(images, out_of_bounds_policy="pad", **window)  # type: ignore[arg-type]


def pad_around(images: Batch, multiple: int) -> Batch:
    """Pad images with zeros on all sides to multiples of a number; if the padding is odd, the larger half comes after the image."""
    axes = list(image_axes(OP, images))
    extents = images.sample_shapes()[:, axes]
    target = -(-extents // multiple) * multiple
    starts = -((target - extents) // 2)
    return slices.slice(images, start=as_sizes(starts), shape=as_sizes(target), axes=axes, out_of_bounds_policy="pad")


def join_padded(images: Batch, size: tuple[int, int] | None = None) -> Tensor:
    """Return images in one tensor (N, ...), padded with zeros below and on the right to the largest, or to a size."""
    if size is not None:
        extents = extents_of(images)
        fits = (extents <= torch.tensor(size)).all(1)
        if not fits.all():
            sample = first_failure(fits)
            raise ValueError(f"{OP}: sample {sample} of {extents[sample].tolist()} pixels is larger than pad_size {list(size)}")
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
