# SPDX-License-Identifier: Apache-2.0
"""Sizes: resize and resized_crop."""

from typing import Any

import PIL
import torch
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat

from ...._core.values.batch import Batch
from ....ops.geometry.resize import Rule, resize_crop_mirror
from ....ops.geometry.resize import resize as resample
from ... import tv_tensors
from ..._draws import to_int
from ..._numbers import Number, first_failure, holds, number, numbers
from ._coordinates import Rows, numbers_of, of_tensor, on_coordinates
from ._crop import cropped_boxes, cropped_points, two_sizes, window_of
from ._dispatch import as_images, dispatched, on_images, on_masks, rows, size_of
from ._interpolation import FILTERS, InterpolationMode, interpolation_mode

# The order of Pillow's two passes, between which it rounds, depends on its version.
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
        ValueError: ``max_size`` with two sizes or not above ``size``; "lanczos" without ``antialias``; another interpolation.

    >>> resize(torch.zeros(3, 480, 640), 256).shape
    torch.Size([3, 256, 341])
    """
    return dispatched(resize, inpt, size=size, interpolation=interpolation, max_size=max_size, antialias=antialias)


def resized_size(height: Number, width: Number, size: Any, max_size: int | None, batch_size: int | None) -> tuple[Number, Number]:
    """Return the new height and width: numbers, or int64 (N,)."""
    if size is None:
        if not isinstance(max_size, int):
            raise ValueError(f"resize: max_size must be an integer when size is None, but got {max_size!r}")
        short, long = _sorted(height, width)
        return _oriented(height, width, _truncated(max_size, short, long), max_size)
    pair = None
    if isinstance(size, int | float):
        one: Number = int(size)
    elif isinstance(size, torch.Tensor | Batch):
        pair = numbers("resize", "size", size, 2, batch_size)
    elif len(size) == 1:
        one = number("resize", "size", size[0], batch_size)
    else:
        pair = numbers("resize", "size", size, 2, batch_size)
    if pair is not None:
        if max_size is not None:
            raise ValueError("resize: with max_size, size should be an int or a sequence of length 1, for the shorter side, or None")
        return to_int(pair[0]), to_int(pair[1])
    short, long = _sorted(height, width)
    new_short, new_long = one, _truncated(one, long, short)
    if max_size is not None:
        fits = max_size > new_short
        if not holds(fits):
            rule = "must be strictly greater than the requested size of the shorter side"
            raise ValueError(f"resize: {first_failure(fits)}max_size = {max_size} {rule}, {one}")
        above = new_long > max_size
        if isinstance(above, torch.Tensor):
            new_short = torch.where(above, _truncated(max_size, new_short, new_long), torch.as_tensor(new_short))
            new_long = torch.where(above, torch.as_tensor(max_size), new_long)
        elif above:
            new_short, new_long = _truncated(max_size, new_short, new_long), max_size
    return _oriented(height, width, new_short, new_long)


def _sorted(height: Number, width: Number) -> tuple[Number, Number]:
    if isinstance(height, torch.Tensor) or isinstance(width, torch.Tensor):
        h, w = torch.as_tensor(height), torch.as_tensor(width)
        return torch.minimum(h, w), torch.maximum(h, w)
    return min(height, width), max(height, width)


def _truncated(number: Number, by: Number, over: Number) -> Any:
    """Return ``int(number * by / over)``, in double."""
    product = number * by
    if isinstance(product, torch.Tensor):
        product = product.to(torch.float64)
    return to_int(product / (over.to(torch.float64) if isinstance(over, torch.Tensor) else over))


def _oriented(height: Number, width: Number, short: Number, long: Number) -> tuple[Any, Any]:
    lying = height < width
    if isinstance(lying, torch.Tensor):
        less, more = torch.as_tensor(short), torch.as_tensor(long)
        return torch.where(lying, less, more), torch.where(lying, more, less)
    return (short, long) if lying else (long, short)


def _filtered(interpolation: Any, antialias: bool | None) -> tuple[InterpolationMode, bool]:
    """Return the mode and whether to filter before reducing."""
    mode = interpolation_mode("resize", interpolation)
    smooth = bool(antialias) and mode in _SMOOTH
    if mode is InterpolationMode.LANCZOS and not smooth:
        raise ValueError("resize: interpolation 'lanczos' requires antialias=True")
    if mode not in FILTERS:
        raise NotImplementedError(f"resize: interpolation mode '{mode.value}' works on PIL images only")
    return mode, smooth


def _resampled(images: Batch, height: Number, width: Number, mode: InterpolationMode, antialias: bool, rule: Rule = "torch", **region: Any) -> Batch:
    rule = "dali" if mode is InterpolationMode.NEAREST_EXACT else rule
    return resample(images, size=rows(height, width), interp_type=FILTERS[mode], antialias=antialias, rule=rule, **region)


def _resized(
    images: Batch,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
    rule: Rule = "torch",
) -> Batch:
    mode, smooth = _filtered(interpolation, antialias)
    height, width = size_of(images)
    new = resized_size(height, width, size, max_size, images.batch_size)
    if not any(isinstance(one, torch.Tensor) for one in (height, width, *new)) and new == (height, width):
        return images
    return _resampled(images, *new, mode, smooth, rule)


def _unchanged(
    image: torch.Tensor, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool | None = True
) -> torch.Tensor | None:
    """Return the tensor itself if it has the size already, as torchvision does."""
    if image.dim() < 2 or isinstance(size, torch.Tensor | Batch):
        return None
    _filtered(interpolation, antialias)
    height, width = image.shape[-2:]
    return image if resized_size(height, width, size, max_size, 1) == (height, width) else None


resize_image, resize_video = on_images(resize, _resized, view=_unchanged)


def resized_by_pillow(inpt: Batch, size: Any, interpolation: Any, max_size: int | None = None) -> Batch:
    """Resize a Batch of images to the pixels of Pillow's ``Image.resize``, which always filters before reducing."""
    made = _resized(as_images("resize", inpt), size, interpolation, max_size, True, PILLOW)
    return inpt.over(made) if tv_tensors.is_typed(inpt) else made


def resized_center(inpt: Batch, size: Any, interpolation: Any, max_size: int | None, antialias: bool | None, rule: Rule, crop: Any) -> Any:
    """Resize a Batch of images and cut the window in the middle out, of which alone pixels are computed. None where an image is smaller than it."""
    images = as_images("resize", inpt)
    mode, smooth = _filtered(interpolation, antialias)
    new, window = resized_size(*size_of(images), size, max_size, images.batch_size), two_sizes(crop)
    if mode is InterpolationMode.NEAREST_EXACT or not all(holds(to >= one) for to, one in zip(new, window, strict=True)):
        return None
    filters = {"interp_type": FILTERS[mode], "antialias": smooth, "rule": rule}
    made = resize_crop_mirror(images, size=rows(*new), crop=list(window), rounding="half_to_even", **filters)
    return inpt.over(made) if tv_tensors.is_typed(inpt) else made


def _mask_mode(interpolation: Any) -> InterpolationMode:
    mode = interpolation_mode("resize", interpolation)
    return mode if mode is InterpolationMode.NEAREST_EXACT else InterpolationMode.NEAREST


def _resized_mask(masks: Batch, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None) -> Batch:
    return _resized(masks, size, _mask_mode(interpolation), max_size)


resize_mask = on_masks(resize, _resized_mask)


def _scaled(rows: Rows, new: tuple[Number, Number]) -> torch.Tensor:
    """Return x, y, x, y, ... scaled to a new canvas."""
    made = rows.real.clone()
    for k, (to, old) in enumerate(((new[1], rows.canvas[1]), (new[0], rows.canvas[0]))):
        to, old = (one.to(torch.float64) if isinstance(one, torch.Tensor) else one for one in (to, old))
        ratio = rows.of(to / old)
        if not isinstance(ratio, torch.Tensor):
            ratio = torch.tensor(ratio, dtype=torch.float32)
        made[:, k::2] *= ratio[:, None] if ratio.dim() else ratio
    return made


def _resized_boxes(rows: Rows, size: Any, max_size: int | None = None) -> Rows:
    new = resized_size(*rows.canvas, size, max_size, numbers_of(rows))
    if rows.owner is None and new == tuple(rows.canvas):
        return rows
    if rows.rotated:

        def one(values: torch.Tensor, canvas: Any, h: Any, w: Any) -> Any:
            return reference.resize_bounding_boxes(values, canvas, size=[int(h), int(w)], format=rows.format, clamping_mode=rows.mode)

        return rows.each(one, *new)
    return rows.changed(_scaled(rows, new), new)


def _resized_points(rows: Rows, size: Any, max_size: int | None = None) -> Rows:
    new = resized_size(*rows.canvas, size, max_size, numbers_of(rows))
    if rows.owner is None and new == tuple(rows.canvas):
        return rows
    return rows.changed(_scaled(rows, new), new)


on_coordinates(resize, _resized_boxes, _resized_points, drops=("interpolation", "antialias"))


def resize_bounding_boxes(
    bounding_boxes: torch.Tensor,
    canvas_size: tuple[int, int],
    size: Any,
    max_size: int | None = None,
    format: BoundingBoxFormat = BoundingBoxFormat.XYXY,
    clamping_mode: Any = "soft",
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes of a resized image, and its size."""
    made = _resized_boxes(of_tensor(bounding_boxes, canvas_size, format, clamping_mode), size, max_size)
    return made.values.reshape(bounding_boxes.shape), made.canvas


def resize_keypoints(
    keypoints: torch.Tensor, size: Any, canvas_size: tuple[int, int], max_size: int | None = None
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points of a resized image, and its size."""
    made = _resized_points(of_tensor(keypoints, canvas_size), size, max_size)
    return made.values.reshape(keypoints.shape), made.canvas


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
    """Cut a window out and resize it: :func:`crop`, then :func:`resize`.

    >>> resized_crop(torch.zeros(3, 48, 64), 8, 8, 32, 32, [16, 16]).shape
    torch.Size([3, 16, 16])
    """
    return dispatched(resized_crop, inpt, top=top, left=left, height=height, width=width, size=size, interpolation=interpolation, antialias=antialias)


def _window_resized(
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
    rows_of, columns_of = size_of(images)
    compiling = torch.compiler.is_compiling()
    inside = not compiling and all(holds(one) for one in (y >= 0, x >= 0, h > 0, w > 0, y + h <= rows_of, x + w <= columns_of))
    if not inside:
        return _resized(window_of(images, y, x, h, w), size, interpolation, None, antialias, rule)
    mode, smooth = _filtered(interpolation, antialias)
    new = resized_size(h, w, size, None, images.batch_size)
    if not any(isinstance(one, torch.Tensor) for one in (h, w, *new)) and new == (h, w):
        return window_of(images, y, x, h, w)
    return _resampled(images, *new, mode, smooth, rule, roi_start=rows(y, x), roi_end=rows(y + h, x + w))


resized_crop_image, resized_crop_video = on_images(resized_crop, _window_resized)


def resized_crop_by_pillow(inpt: Batch, window: dict[str, Any], size: Any, interpolation: Any) -> Batch:
    """Cut a window out of a Batch of images and resize it: :func:`resized_by_pillow`."""
    made = _window_resized(as_images("resized_crop", inpt), **window, size=size, interpolation=interpolation, rule=PILLOW)
    return inpt.over(made) if tv_tensors.is_typed(inpt) else made


def _window_mask(masks: Batch, top: Any, left: Any, height: Any, width: Any, size: Any) -> Batch:
    return _window_resized(masks, top, left, height, width, size, InterpolationMode.NEAREST)


resized_crop_mask = on_masks(resized_crop, _window_mask)


def _window_boxes(rows: Rows, top: Any, left: Any, height: Any, width: Any, size: Any) -> Rows:
    return _resized_boxes(cropped_boxes(rows, top, left, height, width), size)


def _window_points(rows: Rows, top: Any, left: Any, height: Any, width: Any, size: Any) -> Rows:
    return _resized_points(cropped_points(rows, top, left, height, width), size)


on_coordinates(resized_crop, _window_boxes, _window_points, drops=("interpolation", "antialias"))


def resized_crop_bounding_boxes(
    bounding_boxes: torch.Tensor, format: BoundingBoxFormat, top: Any, left: Any, height: Any, width: Any, size: Any, clamping_mode: Any = "soft"
) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return boxes of a resized window, and its size."""
    made = _window_boxes(of_tensor(bounding_boxes, (height, width), format, clamping_mode), top, left, height, width, size)
    return made.values.reshape(bounding_boxes.shape), made.canvas


def resized_crop_keypoints(keypoints: torch.Tensor, top: Any, left: Any, height: Any, width: Any, size: Any) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return points of a resized window, and its size."""
    made = _window_points(of_tensor(keypoints, (height, width)), top, left, height, width, size)
    return made.values.reshape(keypoints.shape), made.canvas
