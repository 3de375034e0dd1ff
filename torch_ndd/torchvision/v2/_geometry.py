# SPDX-License-Identifier: Apache-2.0
"""Transforms that flip, crop, pad and resize, and select frames."""

import warnings
from typing import Any, cast

import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.native.tracing import is_compiling
from ..._core.values.batch import Batch
from .._draws import Column, Draws, check_range, real, to_int
from .._numbers import first_failure, holds
from .._sample import check_type, has_any, kind_of
from . import functional as F
from ._base import Batched, RandomTransform, draws_for, query_size, transform_where
from .functional._flip import flip_where
from .functional._resize import Normalization, normalize_resized, resize_by_pillow, resize_crop_by_pillow


class RandomHorizontalFlip(RandomTransform, reference.RandomHorizontalFlip):
    """Mirror left and right with the probability ``p``."""

    def _transform_where(self, acts: torch.Tensor, leaves: list[Any]) -> list[Any]:
        return flip_leaves_where(self, acts, leaves, 0)


class RandomVerticalFlip(RandomTransform, reference.RandomVerticalFlip):
    """Mirror top and bottom with the probability ``p``."""

    def _transform_where(self, acts: torch.Tensor, leaves: list[Any]) -> list[Any]:
        return flip_leaves_where(self, acts, leaves, 1)


def flip_leaves_where(transform: RandomTransform, acts: torch.Tensor, leaves: list[Any], axis: int) -> list[Any]:
    """Flip those samples of all leaves for which ``acts`` is true, along x (0) or y (1)."""
    needs = transform._needs_transform_list(leaves)
    return [flip_where(leaf, acts, axis) if wanted else leaf for leaf, wanted in zip(leaves, needs, strict=True)]


class Resizing(Batched):
    """A transform that resizes; :func:`from_torchvision` sets ``by_pillow`` where torchvision has PIL images."""

    by_pillow = False

    def uses_pillow_rule(self, inpt: Any) -> bool:
        """Return whether to resize a leaf by Pillow's rule."""
        return self.by_pillow and isinstance(inpt, Batch) and kind_of(inpt) in (torch.Tensor, single.Image)


class Resize(Resizing, reference.Resize):
    """Resize to ``size``: see :func:`functional.resize`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Resize a leaf."""
        if self.uses_pillow_rule(inpt):
            return resize_by_pillow(inpt, self.size, self.interpolation, self.max_size)
        return self._call_kernel(F.resize, inpt, self.size, interpolation=self.interpolation, max_size=self.max_size, antialias=self.antialias)


class CenterCrop(Batched, reference.CenterCrop):
    """Crop the window in the middle: see :func:`functional.center_crop`."""


class RandomResizedCrop(Resizing, reference.RandomResizedCrop):
    """Crop a window of random area and aspect ratio, and resize it to ``size``."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a window."""
        draws = draws_for(flat_inputs)
        rows, columns = query_size(flat_inputs)
        top, left, height, width = random_window(draws, rows, columns, self.scale, self.ratio)
        return {key: draws.result(column, int) for key, column in (("top", top), ("left", left), ("height", height), ("width", width))}

    def resize_windows(self, windows: Batch) -> Batch:
        """Resize windows that were decoded alone, by Pillow's rule."""
        return resize_by_pillow(windows, self.size, self.interpolation)

    def normalize_windows(self, windows: Batch, normalization: Normalization) -> Batch:
        """Do the same in one call with a normalization."""
        return normalize_resized(windows, self.size, self.interpolation, normalization)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Crop and resize a leaf."""
        if self.uses_pillow_rule(inpt):
            return resize_crop_by_pillow(inpt, params, self.size, self.interpolation)
        return self._call_kernel(F.resized_crop, inpt, **params, size=self.size, interpolation=self.interpolation, antialias=self.antialias)


def random_window(
    draws: Draws, height: Column, width: Column, scale: Any, ratio: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return top, left, height and width of a window: the first of ten attempts that fits, else the largest window in the middle."""
    check_range("RandomResizedCrop", "scale", scale)
    check_range("RandomResizedCrop", "ratio", ratio, above=0)
    rows, columns = (torch.as_tensor(extent, dtype=torch.float64).expand(draws.count) for extent in (height, width))
    tries = 10  # as in torchvision; all are drawn, so the number of draws does not depend on the image
    area = (rows * columns)[:, None] * draws.parts(tries, scale)
    w, h = (side.T for side in draws.sides(area, ratio))
    fits = (w > 0) & (w <= columns) & (h > 0) & (h <= rows)
    # argmax finds the first True.
    first = fits.to(torch.int8).argmax(0, keepdim=True)
    found = fits.any(0)
    h, w = h.gather(0, first)[0], w.gather(0, first)[0]
    places = draws.unit(2)
    top, left = torch.floor(places[:, 0] * (rows - h + 1)), torch.floor(places[:, 1] * (columns - w + 1))
    # No attempt fits: the middle of the image, as large as the limits of the ratio allow.
    shape = columns / rows
    narrow, wide = shape < min(ratio), shape > max(ratio)
    mid_h = torch.where(narrow, torch.round(columns / min(ratio)), rows)
    mid_w = torch.where(wide, torch.round(rows * max(ratio)), columns)
    h, w = torch.where(found, h, mid_h), torch.where(found, w, mid_w)
    top = torch.where(found, top, torch.floor((rows - h) / 2))
    left = torch.where(found, left, torch.floor((columns - w) / 2))
    return tuple(column.to(torch.int64) for column in (top, left, h, w))  # type: ignore[return-value]


class _SeveralCrops(Batched):
    """A transform that returns several windows of each image."""

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Raise TypeError for boxes and masks."""
        if has_any(flat_inputs, single.BoundingBoxes, single.Mask):
            raise TypeError(f"BoundingBoxes'es and Mask's are not supported by {self._name}()")

    def _call_kernel(self, functional: Any, inpt: Any, *args: Any, **kwargs: Any) -> Any:
        warn_of_passing(self._name, inpt)
        return super()._call_kernel(functional, inpt, *args, **kwargs)


def warn_of_passing(name: str, inpt: Any) -> None:
    """Warn about boxes, points and masks that a transform does not change."""
    for kind in (single.BoundingBoxes, single.KeyPoints, single.Mask):
        if check_type(inpt, (kind,)):
            warnings.warn(f"{name}() is currently passing through inputs of type tv_tensors.{kind.__name__}.", stacklevel=2)


class FiveCrop(_SeveralCrops, reference.FiveCrop):
    """Return the windows in the four corners and in the middle, as a tuple."""


class TenCrop(_SeveralCrops, reference.TenCrop):
    """Return the windows of :class:`FiveCrop`, and those of the flipped image, as a tuple."""


class Pad(Batched, reference.Pad):
    """Add borders: see :func:`functional.pad`."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Pad a leaf."""
        return self._call_kernel(F.pad, inpt, padding=self.padding, fill=self._fill_for(inpt), padding_mode=self.padding_mode)


class RandomZoomOut(RandomTransform, reference.RandomZoomOut):
    """Place the image on a larger canvas, with the probability ``p``."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw borders."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        ratio = draws.uniform(self.side_range[0], self.side_range[1])  # one ratio for both sides
        canvas_width, canvas_height = scaled_in_float32(width, ratio), scaled_in_float32(height, ratio)
        places = draws.unit(2)  # relative to the spare width and height
        left = scaled_in_float32(canvas_width - width, places[:, 0])
        top = scaled_in_float32(canvas_height - height, places[:, 1])
        borders = (left, top, canvas_width - (left + width), canvas_height - (top + height))
        return {"padding": [draws.result(border, int) for border in borders]}

    def _transform_where(self, acts: torch.Tensor, leaves: list[Any]) -> list[Any]:
        needs = self._needs_transform_list(leaves)
        padding = self.make_params([leaf for leaf, wanted in zip(leaves, needs, strict=True) if wanted])["padding"]
        return [self.pad_where(acts, leaf, padding) if wanted else leaf for leaf, wanted in zip(leaves, needs, strict=True)]

    def pad_where(self, acts: torch.Tensor, leaf: Any, padding: list[torch.Tensor]) -> Any:
        """Pad those samples of a Batch for which ``acts`` is true; images in one call, with borders of 0 for the others."""
        if not check_type(leaf, (single.BoundingBoxes, single.KeyPoints)):
            return self.transform(leaf, {"padding": [torch.where(acts, border, 0) for border in padding]})
        chosen = {"padding": [border[acts] for border in padding]}  # a border of 0 would still clamp boxes of the others
        if is_compiling() or bool(acts.any()):
            return transform_where(self._name, acts, [leaf], lambda leaves: [self.transform(leaves[0], chosen)])[0]
        return leaf

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Pad a leaf."""
        return self._call_kernel(F.pad, inpt, **params, fill=self._fill_for(inpt))


class RandomCrop(Batched, reference.RandomCrop):
    """Crop a window of ``size`` at a random position, after padding."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the position of the window."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        left, right, top, bottom = cast("list[int]", self.padding or [0, 0, 0, 0])
        crop_height, crop_width = cast("list[int]", self.size)
        height, width = height + top + bottom, width + left + right
        if self.pad_if_needed:
            # torchvision adds the missing amount to both sides, so the padded image is larger than the crop.
            more_y, more_x = _at_least_zero(crop_height - height), _at_least_zero(crop_width - width)
            left, right, top, bottom = left + more_x, right + more_x, top + more_y, bottom + more_y
            height, width = height + 2 * more_y, width + 2 * more_x
        fits_y, fits_x = height >= crop_height, width >= crop_width
        for fits in (fits_y, fits_x):
            if not holds(fits):
                raise ValueError(
                    f"RandomCrop: {first_failure(fits)}the crop size {(crop_height, crop_width)} is larger than the "
                    f"{'padded ' if self.padding is not None else ''}input of size {(height, width)}"
                )
        padding = [left, top, right, bottom]
        y = draws.result(draws.integers(0, height - crop_height + 1), int)
        x = draws.result(draws.integers(0, width - crop_width + 1), int)
        return {
            # A crop of the whole image is left out, unless a graph cannot know the sizes.
            "needs_crop": is_compiling() or not (holds(height == crop_height) and holds(width == crop_width)),
            "top": y,
            "left": x,
            "height": crop_height,
            "width": crop_width,
            "needs_pad": any(isinstance(border, torch.Tensor) or border != 0 for border in padding),
            "padding": padding,
        }

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Pad and crop a leaf."""
        if params["needs_pad"]:
            fill = self._fill_for(inpt)
            inpt = self._call_kernel(F.pad, inpt, padding=params["padding"], fill=fill, padding_mode=self.padding_mode)
        if params["needs_crop"]:
            window = {key: params[key] for key in ("top", "left", "height", "width")}
            inpt = self._call_kernel(F.crop, inpt, **window)
        return inpt


def _at_least_zero(column: Column) -> Any:
    return column.clamp(min=0) if isinstance(column, torch.Tensor) else max(column, 0)


class _RandomSizeResize(Resizing):
    """A transform that draws a size."""

    interpolation: Any
    antialias: Any

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Resize a leaf."""
        if self.uses_pillow_rule(inpt):
            return resize_by_pillow(inpt, params["size"], self.interpolation)
        return self._call_kernel(F.resize, inpt, size=params["size"], interpolation=self.interpolation, antialias=self.antialias)


class ScaleJitter(_RandomSizeResize, reference.ScaleJitter):
    """Resize to ``target_size`` within the aspect ratio, times a random factor."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a size."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        factor = draws.uniform(self.scale_range[0], self.scale_range[1]).to(torch.float32)
        # torchvision divides its second number, the width, by the height.
        ratio = torch.minimum(_divide(self.target_size[1], real(height)), _divide(self.target_size[0], real(width)))
        ratio = ratio.to(torch.float32) * factor
        return {"size": tuple(draws.result(scaled_in_float32(extent, ratio), int) for extent in (height, width))}


def scaled_in_float32(extent: Column, factor: torch.Tensor) -> torch.Tensor:
    """Return ``int(extent * factor)`` in float32, as torchvision with a number from ``torch.rand``; in double some sizes differ by a pixel."""
    return to_int(torch.as_tensor(extent).to(torch.float32) * factor.to(torch.float32))


def _divide(number: float, divisor: torch.Tensor) -> torch.Tensor:
    """Return ``number / divisor`` as Python computes it; torch multiplies by the reciprocal, which makes some sizes a pixel smaller."""
    return torch.full_like(divisor, number) / divisor


class RandomShortestSize(_RandomSizeResize, reference.RandomShortestSize):
    """Resize the shorter side to one of several sizes, the longer to at most ``max_size``."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a size."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        chosen = torch.tensor(self.min_size, dtype=torch.float64)[draws.integers(0, len(self.min_size))]
        rows, columns = real(height), real(width)
        ratio = chosen / torch.minimum(rows, columns)
        if self.max_size is not None:
            ratio = torch.minimum(ratio, _divide(self.max_size, torch.maximum(rows, columns)))
        return {"size": (draws.result(to_int(rows * ratio), int), draws.result(to_int(columns * ratio), int))}


class RandomResize(_RandomSizeResize, reference.RandomResize):
    """Resize the shorter side to a random size from ``min_size`` up to, not including, ``max_size``."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a size."""
        if not self.min_size < self.max_size:
            raise RuntimeError(f"RandomResize: min_size must be less than max_size, got {self.min_size} and {self.max_size}")
        draws = draws_for(flat_inputs)
        return {"size": [draws.result(draws.integers(self.min_size, self.max_size), int)]}


class UniformTemporalSubsample(Batched, reference.UniformTemporalSubsample):
    """Select evenly spaced frames of videos."""
