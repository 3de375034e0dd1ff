# SPDX-License-Identifier: Apache-2.0
"""Sizes: resize and resized_crop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import PIL
import torch
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.native.tracing import is_compiling
from ...._core.values.batch import Batch
from ....ops.geometry.resize import Rule, resize_crop_mirror
from ....ops.geometry.resize import resize as resample
from ... import tv_tensors
from ..._draws import to_int
from ..._numbers import Number, first_failure, holds, number, numbers
from ._coordinates import Rows, of_tensor, on_coordinates
from ._crop import as_height_width, crop_box_rows, crop_point_rows, window_of
from ._dispatch import as_images, dispatch, on_images, on_masks, rows, size_of
from ._interpolation import FILTERS, InterpolationMode, interpolation_mode

# The order of Pillow's two passes depends on its version, and it rounds between them.
PILLOW = "pillow" if int(PIL.__version__.partition(".")[0]) >= 13 else "pillow_12"
_SMOOTH = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, InterpolationMode.LANCZOS)


def resize(inpt: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool | None = True) -> Any:
    """Change the size.

    Args:
        inpt: images, videos, masks, boxes or points.
        size: height and width, for a Batch also one such pair per sample; or one number for the shorter side, which keeps the aspect ratio; or None
            with ``max_size`` for the longer side.
        interpolation: "nearest", "nearest-exact", "bilinear", "bicubic" or "lanczos"; an ``InterpolationMode``. Masks are always nearest.
        max_size: the longest side when ``size`` is one number.
        antialias: filter before reducing, which "nearest" never does.

    Raises:
        TypeError: a fraction as ``size``.
        ValueError: ``max_size`` with two sizes or not above ``size``; "lanczos" without ``antialias``; another interpolation.
        RuntimeError: images of a new size without pixels.

    >>> resize(torch.zeros(3, 480, 640), 256).shape
    torch.Size([3, 256, 341])
    """
    return dispatch(resize, inpt, size=size, interpolation=interpolation, max_size=max_size, antialias=antialias)


def output_size(height: Number, width: Number, size: Any, max_size: int | None, batch_size: int | None) -> tuple[Number, Number]:
    """Return the new height and width: numbers, or int64 (N,)."""
    if size is None:
        if not isinstance(max_size, int):
            raise ValueError(f"resize: max_size must be an integer if size is None, got {max_size!r}")
        short, long = _sort_sides(height, width)
        return _orient(height, width, _truncate_ratio(max_size, short, long), max_size)
    pair = None
    if isinstance(size, float | np.floating):
        raise TypeError(f"resize: size must be a whole number, or height and width, got {size!r}")
    if isinstance(size, int | np.integer):
        shorter: Number = int(size)
    elif isinstance(size, torch.Tensor | Batch):
        pair = numbers("resize", "size", size, 2, batch_size)
    elif len(size) == 1:
        shorter = number("resize", "size", size[0], batch_size)
    else:
        pair = numbers("resize", "size", size, 2, batch_size)
    if pair is not None:
        if max_size is not None:
            raise ValueError("resize: with max_size, size must be an int or a sequence of length 1, for the shorter side, or None")
        return to_int(pair[0]), to_int(pair[1])
    short, long = _sort_sides(height, width)
    # The longer side is truncated, and so is the shorter one if max_size limits the longer one.
    new_short, new_long = shorter, _truncate_ratio(shorter, long, short)
    if max_size is not None:
        fits = max_size > new_short
        if not holds(fits):
            rule = "must be strictly greater than the requested size of the shorter side"
            raise ValueError(f"resize: {first_failure(fits)}max_size = {max_size} {rule}, {shorter}")
        above = new_long > max_size
        if isinstance(above, torch.Tensor):
            # Limiting the longer side shortens the other in proportion; torchvision truncates again.
            new_short = torch.where(above, _truncate_ratio(max_size, new_short, new_long), torch.as_tensor(new_short))
            new_long = torch.where(above, torch.as_tensor(max_size), new_long)
        elif above:
            new_short, new_long = _truncate_ratio(max_size, new_short, new_long), max_size
    return _orient(height, width, new_short, new_long)


def _sort_sides(height: Number, width: Number) -> tuple[Number, Number]:
    if isinstance(height, torch.Tensor) or isinstance(width, torch.Tensor):
        h, w = torch.as_tensor(height), torch.as_tensor(width)
        return torch.minimum(h, w), torch.maximum(h, w)
    return min(height, width), max(height, width)


def _truncate_ratio(number: Number, numerator: Number, denominator: Number) -> Any:
    """Return ``int(number * numerator / denominator)``, in double."""
    product = number * numerator
    if isinstance(product, torch.Tensor):
        product = product.to(torch.float64)
    return to_int(product / (denominator.to(torch.float64) if isinstance(denominator, torch.Tensor) else denominator))


def _orient(height: Number, width: Number, short: Number, long: Number) -> tuple[Any, Any]:
    """Return the new height and width from the new shorter and longer side."""
    landscape = height < width
    if isinstance(landscape, torch.Tensor):
        less, more = torch.as_tensor(short), torch.as_tensor(long)
        return torch.where(landscape, less, more), torch.where(landscape, more, less)
    return (short, long) if landscape else (long, short)


def _resolve_mode(interpolation: Any, antialias: bool | None) -> tuple[InterpolationMode, bool]:
    """Return the mode and whether to filter before reducing."""
    mode = interpolation_mode("resize", interpolation)
    smooth = bool(antialias) and mode in _SMOOTH
    if mode is InterpolationMode.LANCZOS and not smooth:
        raise ValueError("resize: interpolation 'lanczos' requires antialias=True")
    if mode not in FILTERS:
        raise NotImplementedError(f"resize: interpolation mode '{mode.value}' works on PIL images only")
    return mode, smooth


def _check_extents(height: Number, width: Number) -> None:
    # The operators take 0 for "by the aspect ratio", and a size that comes out as 0 is one that max_size or a small scale has left nothing of.
    for name, extent in (("height", height), ("width", width)):
        has_pixels = extent > 0
        if not holds(has_pixels):
            found = int(extent.min()) if isinstance(extent, torch.Tensor) else extent
            raise RuntimeError(f"resize: {first_failure(has_pixels)}the new {name} must be positive, got {found}; give a larger size or max_size")


def _resample(images: Batch, height: Number, width: Number, mode: InterpolationMode, antialias: bool, rule: Rule = "torch", **region: Any) -> Batch:
    _check_extents(height, width)
    rule = "dali" if mode is InterpolationMode.NEAREST_EXACT else rule  # whose nearest pixels are at centers
    return resample(images, size=rows(height, width), interp_type=FILTERS[mode], antialias=antialias, rule=rule, **region)


def _resize(
    images: Batch,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
    rule: Rule = "torch",
) -> Batch:
    mode, smooth = _resolve_mode(interpolation, antialias)
    height, width = size_of(images)
    new = output_size(height, width, size, max_size, images.batch_size)
    if not any(isinstance(extent, torch.Tensor) for extent in (height, width, *new)) and new == (height, width):
        return images  # as torchvision does, whatever the interpolation
    return _resample(images, *new, mode, smooth, rule)


def _view_if_same_size(
    image: torch.Tensor, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool | None = True
) -> torch.Tensor | None:
    """Return the tensor itself if it already has the size, as torchvision does."""
    if image.dim() < 2 or isinstance(size, torch.Tensor | Batch):
        return None
    _resolve_mode(interpolation, antialias)
    height, width = image.shape[-2:]
    return image if output_size(height, width, size, max_size, 1) == (height, width) else None


resize_image, resize_video = on_images(resize, _resize, view=_view_if_same_size)


# The arguments with which resize_crop_mirror normalizes as well. A function, because it draws which images are mirrored.
Normalization = Callable[[], dict[str, Any]]


def resize_by_pillow(inpt: Batch, size: Any, interpolation: Any, max_size: int | None = None) -> Batch:
    """Resize a Batch of images to the pixels of Pillow's ``Image.resize``, which always filters before reducing."""
    output = _resize(as_images("resize", inpt), size, interpolation, max_size, True, PILLOW)
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output


def normalize_resized(inpt: Batch, size: Any, interpolation: Any, normalization: Normalization) -> Batch:
    """Return :func:`resize_by_pillow` normalized."""
    images = as_images("resize", inpt)
    mode, smooth = _resolve_mode(interpolation, True)
    new = output_size(*size_of(images), size, None, images.batch_size)
    _check_extents(*new)
    rule = "dali" if mode is InterpolationMode.NEAREST_EXACT else PILLOW
    return resize_crop_mirror(images, size=rows(*new), interp_type=FILTERS[mode], antialias=smooth, rule=rule, **normalization())


def resize_center(
    inpt: Batch,
    size: Any,
    interpolation: Any,
    max_size: int | None,
    antialias: bool | None,
    rule: Rule,
    crop: Any,
    normalization: Normalization | None = None,
) -> Any:
    """Resize a Batch of images and crop the window in the middle, computing only its pixels. None if an image is smaller than the window."""
    images = as_images("resize", inpt)
    mode, smooth = _resolve_mode(interpolation, antialias)
    new, window = output_size(*size_of(images), size, max_size, images.batch_size), as_height_width(crop)
    if mode is InterpolationMode.NEAREST_EXACT or not all(holds(to >= extent) for to, extent in zip(new, window, strict=True)):
        return None
    _check_extents(*new)
    filters = {"interp_type": FILTERS[mode], "antialias": smooth, "rule": rule}
    arguments = filters if normalization is None else filters | normalization()
    output = resize_crop_mirror(images, size=rows(*new), crop=list(window), rounding="half_to_even", **arguments)
    if normalization is not None:
        return output
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output


def _mask_mode(interpolation: Any) -> InterpolationMode:
    # Mixed labels would be meaningless: torchvision resizes masks by nearest neighbor whatever the mode.
    mode = interpolation_mode("resize", interpolation)
    return mode if mode is InterpolationMode.NEAREST_EXACT else InterpolationMode.NEAREST


def _resize_mask(masks: Batch, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None) -> Batch:
    return _resize(masks, size, _mask_mode(interpolation), max_size)


resize_mask = on_masks(resize, _resize_mask)


def _scale(rows: Rows, new: tuple[Number, Number]) -> torch.Tensor:
    """Return x, y, x, y, ... scaled to a new canvas."""
    output = rows.real.clone()
    for k, (to, old) in enumerate(((new[1], rows.canvas[1]), (new[0], rows.canvas[0]))):
        # In double, where torch would divide integers in float32.
        to, old = (extent.to(torch.float64) if isinstance(extent, torch.Tensor) else extent for extent in (to, old))
        ratio = rows.of(to / old)
        if not isinstance(ratio, torch.Tensor):  # torchvision multiplies boxes of a single sample by a float32 tensor
            ratio = torch.tensor(ratio, dtype=torch.float32)
        output[:, k::2] *= ratio[:, None] if ratio.dim() else ratio
    return output


def _resize_boxes(rows: Rows, size: Any, max_size: int | None = None) -> Rows:
    new = output_size(*rows.canvas, size, max_size, rows.batch_size)
    if rows.owner is None and new == tuple(rows.canvas):
        return rows
    # Rotated boxes do not stay rectangles if the aspect ratio changes: torchvision has rules for them.
    if rows.rotated:

        def resize_rows(values: torch.Tensor, canvas: Any, h: Any, w: Any) -> Any:
            return reference.resize_bounding_boxes(values, canvas, size=[int(h), int(w)], format=rows.format, clamping_mode=rows.mode)

        return rows.each(resize_rows, *new)
    return rows.with_values(_scale(rows, new), new)


def _resize_points(rows: Rows, size: Any, max_size: int | None = None) -> Rows:
    new = output_size(*rows.canvas, size, max_size, rows.batch_size)
    if rows.owner is None and new == tuple(rows.canvas):
        return rows
    return rows.with_values(_scale(rows, new), new)


on_coordinates(resize, _resize_boxes, _resize_points, drops=("interpolation", "antialias"))


def resize_bounding_boxes(
    bounding_boxes: torch.Tensor,
    canvas_size: tuple[int, int],
    size: Any,
    max_size: int | None = None,
    format: BoundingBoxFormat = BoundingBoxFormat.XYXY,
    clamping_mode: Any = "soft",
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes of a resized image, and its size."""
    output = _resize_boxes(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), size, max_size)
    return output.values.reshape(bounding_boxes.shape), output.canvas


def resize_keypoints(
    keypoints: torch.Tensor, size: Any, canvas_size: tuple[int, int], max_size: int | None = None
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points of a resized image, and its size."""
    output = _resize_points(of_tensor(keypoints, canvas_size), size, max_size)
    return output.values.reshape(keypoints.shape), output.canvas


# --- resized_crop ---


def resized_crop(
    inpt: Any,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """Crop a window and resize it: :func:`crop`, then :func:`resize`.

    >>> resized_crop(torch.zeros(3, 48, 64), 8, 8, 32, 32, [16, 16]).shape
    torch.Size([3, 16, 16])
    """
    return dispatch(resized_crop, inpt, top=top, left=left, height=height, width=width, size=size, interpolation=interpolation, antialias=antialias)


def _resized_crop(
    images: Batch,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
    rule: Rule = "torch",
) -> Batch:
    named = (("top", top), ("left", left), ("height", height), ("width", width))
    y, x, h, w = (number("resized_crop", name, value, images.batch_size) for name, value in named)
    image_height, image_width = size_of(images)
    compiling = is_compiling()
    inside = not compiling and all(holds(condition) for condition in (y >= 0, x >= 0, h > 0, w > 0, y + h <= image_height, x + w <= image_width))
    # A window within the image is read in place; one that exceeds it is cropped first, because its border is 0.
    if not inside:
        return _resize(window_of(images, y, x, h, w), size, interpolation, None, antialias, rule)
    mode, smooth = _resolve_mode(interpolation, antialias)
    new = output_size(h, w, size, None, images.batch_size)
    if not any(isinstance(extent, torch.Tensor) for extent in (h, w, *new)) and new == (h, w):
        return window_of(images, y, x, h, w)
    return _resample(images, *new, mode, smooth, rule, roi_start=rows(y, x), roi_end=rows(y + h, x + w))


resized_crop_image, resized_crop_video = on_images(resized_crop, _resized_crop)


def resize_crop_by_pillow(inpt: Batch, window: dict[str, Any], size: Any, interpolation: Any) -> Batch:
    """Crop a window of a Batch of images and resize it: :func:`resize_by_pillow`."""
    output = _resized_crop(as_images("resized_crop", inpt), **window, size=size, interpolation=interpolation, rule=PILLOW)
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output


def _resized_crop_mask(masks: Batch, top: Any, left: Any, height: Any, width: Any, size: Any) -> Batch:
    return _resized_crop(masks, top, left, height, width, size, InterpolationMode.NEAREST)


resized_crop_mask = on_masks(resized_crop, _resized_crop_mask)


def _resized_crop_boxes(rows: Rows, top: Any, left: Any, height: Any, width: Any, size: Any) -> Rows:
    return _resize_boxes(crop_box_rows(rows, top, left, height, width), size)


def _resized_crop_points(rows: Rows, top: Any, left: Any, height: Any, width: Any, size: Any) -> Rows:
    return _resize_points(crop_point_rows(rows, top, left, height, width), size)


on_coordinates(resized_crop, _resized_crop_boxes, _resized_crop_points, drops=("interpolation", "antialias"))


def resized_crop_bounding_boxes(
    bounding_boxes: torch.Tensor, format: BoundingBoxFormat, top: Any, left: Any, height: Any, width: Any, size: Any, clamping_mode: Any = "soft"
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes of a resized window, and its size."""
    output = _resized_crop_boxes(of_tensor(bounding_boxes, (height, width), format, clamping_mode), top, left, height, width, size)
    return output.values.reshape(bounding_boxes.shape), output.canvas


def resized_crop_keypoints(keypoints: torch.Tensor, top: Any, left: Any, height: Any, width: Any, size: Any) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points of a resized window, and its size."""
    output = _resized_crop_points(of_tensor(keypoints, (height, width)), top, left, height, width, size)
    return output.values.reshape(keypoints.shape), output.canvas
