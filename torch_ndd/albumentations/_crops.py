# SPDX-License-Identifier: Apache-2.0
"""Crops and padding. Every crop draws a window, which may leave the image where it pads."""

import math
from typing import Any

import torch

from .._core.values.batch import Batch
from ..reductions import max as max_of
from ..torchvision._draws import Draws, real
from . import _pixels
from ._sample import OP, Rows, Sample
from ._step import Params, Step, limits, refuse


class Window(Step):
    """Keep a window of each image: ``window`` holds its left, top, right and bottom in pixels, int64 (N, 4)."""

    fill: Any = None
    fill_mask: Any = None

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return self.cut(images, params, self.fill)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return self.cut(masks, params, self.fill_mask)

    def cut(self, images: Batch, params: Params, fill: Any) -> Batch:
        """Return the windows of images or masks."""
        left, top, right, bottom = params["window"].unbind(1)
        return _pixels.crop(images, top, left, bottom - top, right - left, fill)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        height, width = map(rows.of, sample.sizes)
        left, top, right, bottom = params["window"].double()[rows.owners].unbind(1)
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        x0, x1 = ((x * width - left) / (right - left) for x in (x0, x1))
        y0, y1 = ((y * height - top) / (bottom - top) for y in (y0, y1))
        return rows.with_columns(x0, y0, x1, y1)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        left, top = params["window"].double()[rows.owners, :2].unbind(1)
        return rows.with_columns(rows.values[:, 0] - left, rows.values[:, 1] - top)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"crop_coords": tuple(params["window"][i].tolist())}


def _windows(left: torch.Tensor, top: torch.Tensor, width: Any, height: Any) -> Params:
    left, top = left.to(torch.int64), top.to(torch.int64)
    columns = torch.broadcast_tensors(left, top, left + torch.as_tensor(width), top + torch.as_tensor(height))
    return {"window": torch.stack([column.to(torch.int64) for column in columns], 1)}


class PaddedCrop(Window):
    """The base of crops with ``pad_if_needed``: ``pads`` holds what they add at the top, bottom, left and right."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        self.pads = bool(transform.pad_if_needed)
        self.border, self.position = transform.border_mode, transform.pad_position
        if self.pads:
            self.fill, self.fill_mask = _pixels.check_fill(transform.fill), _pixels.check_fill(transform.fill_mask)

    def pad_to(self, sample: Sample, draws: Draws, height: int, width: int) -> torch.Tensor:
        """Return the padding that makes images large enough, int64 (N, 4).

        Raises:
            ValueError: an image that is smaller than the crop, without ``pad_if_needed``.
        """
        heights, widths = sample.sizes
        missing_rows, missing_columns = (height - heights).clamp(min=0), (width - widths).clamp(min=0)
        # As the original, which raises for an image that is smaller than its crop.
        if not self.pads and bool(((missing_rows > 0) | (missing_columns > 0)).any()):
            i = int(((missing_rows > 0) | (missing_columns > 0)).nonzero()[0])
            raise ValueError(
                f"{OP}: {self.name}: the image of sample {i} has {int(heights[i])} rows and {int(widths[i])} columns, fewer than the crop of "
                f"{height} x {width}; set pad_if_needed=True or resize first"
            )
        return place_padding(missing_rows, missing_columns, self.position, draws)

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return self._pad_and_cut(images, params, sample, self.fill)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return self._pad_and_cut(masks, params, sample, self.fill_mask)

    def _pad_and_cut(self, images: Batch, params: Params, sample: Sample, fill: Any) -> Batch:
        if self.border == _pixels.CONSTANT or not bool(params["pads"].any()):
            return self.cut(images, params, fill)  # the window leaves the image
        padded = _pixels.pad(images, params["pads"], sample, self.border, fill)
        return self.cut(padded, {"window": params["window"] + params["pads"][:, [2, 0, 2, 0]]}, fill)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        if bool(params["pads"].any()):
            _pixels.refuse_reflection(self.name, self.border)
        return super().change_boxes(rows, params, sample)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        if bool(params["pads"].any()):
            _pixels.refuse_reflection(self.name, self.border)
        return super().change_points(rows, params, sample)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        pads = params["pads"][i].tolist()
        padding = dict(zip(("pad_top", "pad_bottom", "pad_left", "pad_right"), pads, strict=True)) if any(pads) else None
        # Albumentations counts from the corner of the padded image.
        window = (params["window"][i] + params["pads"][i, [2, 0, 2, 0]]).tolist()
        return {"crop_coords": tuple(window), "pad_params": padding}

    def place(self, sample: Sample, pads: torch.Tensor, width: int, height: int, across: torch.Tensor | None, down: torch.Tensor | None) -> Params:
        """Return windows of the padded images: ``across`` and ``down`` tell where, from 0 to 1; None is the middle."""
        heights, widths = sample.sizes
        # The room that the window has in the padded image, in pixels.
        room_x, room_y = widths + pads[:, 2] + pads[:, 3] - width, heights + pads[:, 0] + pads[:, 1] - height
        left = room_x // 2 if across is None else torch.floor((room_x + 1) * across).to(torch.int64)
        top = room_y // 2 if down is None else torch.floor((room_y + 1) * down).to(torch.int64)
        return {**_windows(left - pads[:, 2], top - pads[:, 0], width, height), "pads": pads}


class CenterCrop(PaddedCrop):
    """A.CenterCrop."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        height, width = self.original.height, self.original.width
        return self.place(sample, self.pad_to(sample, draws, height, width), width, height, None, None)


class RandomCrop(PaddedCrop):
    """A.RandomCrop."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        height, width = self.original.height, self.original.width
        return self.place(sample, self.pad_to(sample, draws, height, width), width, height, draws.unit(), draws.unit())


class Crop(PaddedCrop):
    """A.Crop."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        pads = self.pad_to(sample, draws, t.y_max, t.x_max)
        # All that is missing is added at the bottom and right, whatever is added at the top and left.
        pads[:, 1], pads[:, 3] = pads[:, :2].sum(1), pads[:, 2:].sum(1)
        return {**_windows(t.x_min - pads[:, 2], t.y_min - pads[:, 0], t.x_max - t.x_min, t.y_max - t.y_min), "pads": pads}


class RandomCropFromBorders(Window):
    """A.RandomCropFromBorders."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        height, width = sample.sizes

        def edges(extent: torch.Tensor, before: float, after: float) -> tuple[torch.Tensor, torch.Tensor]:
            first = draws.integers(0, (before * real(extent)).to(torch.int64) + 1)
            least = torch.maximum(first + 1, ((1 - after) * real(extent)).to(torch.int64))
            return first, draws.integers(least, extent + 1)

        (left, right), (top, bottom) = edges(width, t.crop_left, t.crop_right), edges(height, t.crop_top, t.crop_bottom)
        return {"window": torch.stack([left, top, right, bottom], 1)}


class CropNonEmptyMaskIfExists(Window):
    """A.CropNonEmptyMaskIfExists: a window that contains a pixel of the mask."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.ignore_values or transform.ignore_channels:
            raise refuse(transform, "ignore_values, ignore_channels", "only whole masks are searched")

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        if "mask" not in sample.masks:
            raise ValueError(f"{OP}: {self.name} needs a mask; pass mask=")
        height, width = sample.sizes
        # A pixel is drawn among those that are not zero; with one row of the table for each, the draw needs no loop.
        masks = sample.masks["mask"]
        shapes = masks.sample_shapes().to(torch.int64)
        filled = _filled_pixels(masks)
        owners = torch.repeat_interleave(torch.arange(sample.count), shapes[:, 0] * shapes[:, 1])[filled]
        counts = torch.bincount(owners, minlength=sample.count)
        starts = counts.cumsum(0) - counts
        chosen = (starts + torch.floor(draws.unit() * counts).to(torch.int64)).clamp(max=max(len(filled) - 1, 0))
        # The number of a pixel within its sample, from that within the batch.
        volumes = shapes[:, 0] * shapes[:, 1]
        place = filled[chosen] - (volumes.cumsum(0) - volumes) if len(filled) else torch.zeros(sample.count, dtype=torch.int64)
        # The window must contain the pixel and stay within the image.
        room_x, room_y = width - t.width, height - t.height
        if bool(((room_x < 0) | (room_y < 0)).any()):
            raise ValueError(f"{OP}: {self.name}: an image is smaller than the crop of {t.height} x {t.width}; pad it first")
        x, y = place % width - draws.integers(0, t.width), place // width - draws.integers(0, t.height)
        zero = torch.zeros_like(room_x)
        x, y = torch.minimum(torch.maximum(x, zero), room_x), torch.minimum(torch.maximum(y, zero), room_y)
        empty = counts == 0
        x, y = torch.where(empty, draws.integers(0, room_x + 1), x), torch.where(empty, draws.integers(0, room_y + 1), y)
        return _windows(x, y, t.width, t.height)


def _filled_pixels(masks: Batch) -> torch.Tensor:
    """Return the indices of pixels that are not zero in all masks one after the other."""
    packed = max_of(masks, axes=[2]).wait().reshape(-1)
    return packed.nonzero().flatten().to(torch.int64)


class AtLeastOneBBoxRandomCrop(Window):
    """A.AtLeastOneBBoxRandomCrop: a window that contains a part of one box."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        heights, widths = map(real, sample.sizes)
        room_x, room_y = widths - t.width, heights - t.height
        if bool(((room_x < 0) | (room_y < 0)).any()):
            raise ValueError(f"{OP}: {self.name}: an image is smaller than the crop of {t.height} x {t.width}; pad it first")
        boxes, found = _pick_boxes(sample, draws)
        kept = 1.0 - t.erosion_factor

        def place(first: torch.Tensor, last: torch.Tensor, extent: torch.Tensor, size: int, room: torch.Tensor) -> torch.Tensor:
            first, last = first * extent, last * extent
            eroded = (last - first) * kept
            zero = torch.zeros_like(room)
            low = torch.where(found, torch.minimum(torch.maximum(first + eroded - size, zero), room), zero)
            high = torch.where(found, torch.minimum(torch.maximum(last - eroded, zero), room), room)
            return torch.trunc(low + draws.unit() * (high - low))

        left, top = place(boxes[:, 0], boxes[:, 2], widths, t.width, room_x), place(boxes[:, 1], boxes[:, 3], heights, t.height, room_y)
        return _windows(left, top, t.width, t.height)


def _pick_boxes(sample: Sample, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one box of each sample, float64 (N, 4), and whether it has one."""
    rows = _boxes_of(sample)
    unit = draws.unit()
    if rows is None or not len(rows.owners):
        return torch.zeros(sample.count, 4, dtype=torch.float64), torch.zeros(sample.count, dtype=torch.bool)
    counts = torch.bincount(rows.owners, minlength=sample.count)
    chosen = (counts.cumsum(0) - counts + torch.floor(unit * counts).to(torch.int64)).clamp(max=len(rows.owners) - 1)
    return rows.values[chosen, :4], counts > 0


def _boxes_of(sample: Sample) -> Rows | None:
    return sample.boxes.get("bboxes")


class SizedWindow(Window):
    """A window that is resized to ``size``."""

    def __init__(self, transform: Any, size: tuple[int, int]) -> None:
        super().__init__(transform)
        _pixels.check_filter(transform)
        self.size = size

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return self._resize(images, params, self.original.interpolation)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return self._resize(masks, params, self.original.mask_interpolation)

    def _resize(self, images: Batch, params: Params, interpolation: int) -> Batch:
        size = torch.tensor([self.size]).expand(images.batch_size, 2)
        return _pixels.resize_window(images, params["window"][:, [1, 0, 3, 2]], size, interpolation)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        left, top, right, bottom = params["window"].double()[rows.owners].unbind(1)
        return scale_points(super().change_points(rows, params, sample), self.size[1] / (right - left), self.size[0] / (bottom - top))


class RandomResizedCrop(SizedWindow):
    """A.RandomResizedCrop: of ten windows the first that fits, otherwise the largest one in the middle."""

    attempts = 10

    def __init__(self, transform: Any) -> None:
        super().__init__(transform, transform.size)

    def draw(self, sample: Sample, draws: Draws) -> Params:
        (low, high), ratio = self.original.scale, self.original.ratio
        height, width = sample.sizes
        area = real(height * width)[:, None] * (low + draws.unit(self.attempts) * (high - low))
        exponents = math.log(ratio[0]) + draws.unit(self.attempts) * (math.log(ratio[1]) - math.log(ratio[0]))
        aspect = torch.exp(exponents)
        wide, tall = torch.round(torch.sqrt(area * aspect)).to(torch.int64), torch.round(torch.sqrt(area / aspect)).to(torch.int64)
        fits = (wide > 0) & (wide <= width[:, None]) & (tall > 0) & (tall <= height[:, None])
        first = fits.to(torch.int64).argmax(1, keepdim=True)
        found, wide, tall = fits.any(1), wide.gather(1, first)[:, 0], tall.gather(1, first)[:, 0]
        image_ratio = real(width) / real(height)
        largest_wide = torch.where(image_ratio > ratio[1], torch.round(real(height) * ratio[1]).to(torch.int64), width)
        largest_tall = torch.where(image_ratio < ratio[0], torch.round(real(width) / ratio[0]).to(torch.int64), height)
        wide, tall = torch.where(found, wide, largest_wide), torch.where(found, tall, largest_tall)
        room_x, room_y = width - wide, height - tall
        left = torch.where(found, torch.floor((room_x + 1) * draws.unit()).to(torch.int64), room_x // 2)
        top = torch.where(found, torch.floor((room_y + 1) * draws.unit()).to(torch.int64), room_y // 2)
        return _windows(left, top, wide, tall)


class RandomSizedCrop(SizedWindow):
    """A.RandomSizedCrop."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform, transform.size)

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = self.original.min_max_height
        height, width = sample.sizes
        tall = draws.integers(low, high + 1)
        wide = torch.minimum((real(tall) * self.original.w2h_ratio).to(torch.int64), width)
        tall = torch.minimum(tall, height)
        return _windows(torch.floor((width - wide + 1) * draws.unit()), torch.floor((height - tall + 1) * draws.unit()), wide, tall)


def _safe_windows(sample: Sample, draws: Draws, erosion_rate: float) -> Params:
    """Return windows around all boxes of a sample; without boxes, of the image's aspect ratio."""
    height, width = sample.sizes
    least = (real(height) * (1.0 - erosion_rate)).to(torch.int64)
    tall = torch.where(least >= height, height, draws.integers(least, height + 1)).clamp(min=1)
    wide = (real(tall) * real(width) / real(height)).to(torch.int64).clamp(min=1)
    left, top = torch.floor((width - wide + 1) * draws.unit()), torch.floor((height - tall + 1) * draws.unit())
    free = _windows(left, top, wide, tall)["window"]
    units = draws.unit(4)
    rows = _boxes_of(sample)
    if rows is None or not len(rows.owners):
        return {"window": free}
    owners = rows.owners[:, None].expand(-1, 2)
    low = torch.full((sample.count, 2), math.inf, dtype=torch.float64).scatter_reduce(0, owners, rows.values[:, :2], "amin")
    high = torch.full((sample.count, 2), -math.inf, dtype=torch.float64).scatter_reduce(0, owners, rows.values[:, 2:4], "amax")
    counts = torch.bincount(rows.owners, minlength=sample.count)
    # Albumentations does not erode a single box.
    eroded = (high - low) * (erosion_rate * 0.5) * (counts > 1).double()[:, None]
    usable = (counts > 0) & (erosion_rate < 1) & ((counts == 1) | ((high - low - 2 * eroded).abs() >= 1e-6).all(1))
    low, high = (low + eroded).clamp(0, 1), (high - eroded).clamp(0, 1)
    extents = torch.stack([width, height], 1).double()
    start = torch.trunc(low * units[:, :2] * extents)
    end = torch.trunc((high + (1 - high) * units[:, 2:]) * extents)
    around = torch.cat([start, end], 1)
    return {"window": torch.where(usable[:, None], around.nan_to_num(0, 0, 0).to(torch.int64), free)}


class BBoxSafeRandomCrop(Window):
    """A.BBoxSafeRandomCrop."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return _safe_windows(sample, draws, self.original.erosion_rate)


class RandomSizedBBoxSafeCrop(SizedWindow):
    """A.RandomSizedBBoxSafeCrop."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform, (transform.height, transform.width))

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return _safe_windows(sample, draws, self.original.erosion_rate)


# --- padding ---


def place_padding(rows: torch.Tensor, columns: torch.Tensor, position: str, draws: Draws) -> torch.Tensor:
    """Return how rows and columns of padding are divided between top, bottom, left and right, int64 (N, 4)."""
    if position == "random":
        top, left = draws.integers(0, rows + 1), draws.integers(0, columns + 1)
    else:
        # The image is at the named place, so the padding is on the other sides.
        top = rows // 2 if position == "center" else rows * int(position.startswith("bottom"))
        left = columns // 2 if position == "center" else columns * int(position.endswith("right"))
    return torch.stack([top, rows - top, left, columns - left], 1)


class Pad(Step):
    """A.Pad: ``pads`` holds what is added at the top, bottom, left and right."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        self.fill, self.fill_mask = _pixels.check_fill(transform.fill), _pixels.check_fill(transform.fill_mask)

    def neutral_params(self) -> dict[str, Any] | None:
        return {"pads": 0}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        padding = self.original.padding
        sides = [padding] * 4 if not isinstance(padding, tuple | list) else [*padding, *padding] if len(padding) == 2 else list(padding)
        left, top, right, bottom = map(int, sides)
        return {"pads": torch.tensor([[top, bottom, left, right]]).expand(sample.count, 4).clone()}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return _pixels.pad(images, params["pads"], sample, self.original.border_mode, self.fill)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return _pixels.pad(masks, params["pads"], sample, self.original.border_mode, self.fill_mask)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        _pixels.refuse_reflection(self.name, self.original.border_mode)
        height, width = map(rows.of, sample.sizes)
        top, bottom, left, right = params["pads"].double()[rows.owners].unbind(1)
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        x0, x1 = ((x * width + left) / (width + left + right) for x in (x0, x1))
        y0, y1 = ((y * height + top) / (height + top + bottom) for y in (y0, y1))
        return rows.with_columns(x0, y0, x1, y1)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        _pixels.refuse_reflection(self.name, self.original.border_mode)
        top, _, left, _ = params["pads"].double()[rows.owners].unbind(1)
        return rows.with_columns(rows.values[:, 0] + left, rows.values[:, 1] + top)

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return dict(zip(("pad_top", "pad_bottom", "pad_left", "pad_right"), params["pads"][i].tolist(), strict=True))


class PadIfNeeded(Pad):
    """A.PadIfNeeded."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original

        def missing(extent: torch.Tensor, least: int | None, divisor: int | None) -> torch.Tensor:
            return (least - extent).clamp(min=0) if least is not None else -extent % divisor  # type: ignore[operator]

        height, width = sample.sizes
        rows, columns = missing(height, t.min_height, t.pad_height_divisor), missing(width, t.min_width, t.pad_width_divisor)
        return {"pads": place_padding(rows, columns, t.position, draws)}


class CropAndPad(Step):
    """A.CropAndPad: ``sides`` holds what is added at the top, right, bottom and left, or cut off where negative."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        _pixels.check_filter(transform)
        if isinstance(transform.fill, tuple | list) or isinstance(transform.fill_mask, tuple | list):
            raise refuse(transform, "fill", "a random fill is drawn from several numbers")
        if transform.percent is None:
            self._whole, value = True, transform.px
        else:
            self._whole, value = False, transform.percent
        pairs = [value] * 4 if isinstance(value, int | float) or len(value) == 2 else list(value)
        self._ranges = [limits(pair) for pair in pairs]
        if any(isinstance(pair, tuple | list) and len(pair) != 2 for pair in pairs):
            raise refuse(transform, "px, percent", "a choice among several numbers")
        # The ends of a range of pixels exclude the last one, single numbers do not.
        self._ends = [int(isinstance(pair, int | float)) for pair in pairs]
        self._together = not transform.sample_independently and not isinstance(value, int | float) and len(value) == 2

    def draw(self, sample: Sample, draws: Draws) -> Params:
        height, width = sample.sizes
        columns = []
        for (low, high), end in zip(self._ranges, self._ends, strict=True):
            columns.append(real(draws.integers(int(low), int(high) + end)) if self._whole else low + draws.unit() * (high - low))
        sides = torch.stack([columns[0]] * 4 if self._together else columns, 1)
        if not self._whole:
            sides = torch.trunc(sides * torch.stack([height, width, height, width], 1).double())
        sides = sides.to(torch.int64)
        cut = (-sides).clamp(min=0)
        if bool((cut[:, 0] + cut[:, 2] >= height).any()) or bool((cut[:, 1] + cut[:, 3] >= width).any()):
            raise ValueError(f"{OP}: {self.name} cuts off a whole image; use smaller numbers")
        return {"sides": sides, "height": height, "width": width}

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        top, right, bottom, left = params["sides"][i].tolist()
        cut = [-min(left, 0), -min(top, 0), int(params["width"][i]) + min(right, 0), int(params["height"][i]) + min(bottom, 0)]
        added = [max(side, 0) for side in (top, bottom, left, right)]
        size = (cut[3] - cut[1] + added[0] + added[1], cut[2] - cut[0] + added[2] + added[3])
        cuts = cut != [0, 0, int(params["width"][i]), int(params["height"][i])]
        parts = {"crop_params": cut if cuts else None, "pad_params": added if any(added) else None}
        return {**parts, "result_shape": size, "fill": self.original.fill, "fill_mask": self.original.fill_mask}

    def _new_sizes(self, params: Params, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
        height, width = sample.sizes
        top, right, bottom, left = params["sides"].unbind(1)
        return height + top + bottom, width + left + right

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return self._change(images, params, sample, self.original.fill, self.original.interpolation)

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return self._change(masks, params, sample, self.original.fill_mask, self.original.mask_interpolation)

    def _change(self, images: Batch, params: Params, sample: Sample, fill: float, interpolation: int) -> Batch:
        top, right, bottom, left = params["sides"].unbind(1)
        height, width = self._new_sizes(params, sample)
        cut = [(-side).clamp(min=0) for side in (top, right, bottom, left)]
        added = torch.stack([side.clamp(min=0) for side in (top, bottom, left, right)], 1)
        rows, columns = sample.sizes
        if self.original.border_mode == _pixels.CONSTANT:
            images = _pixels.crop(images, -top, -left, height, width, float(fill))
        else:
            inner = _pixels.crop(images, cut[0], cut[3], rows - cut[0] - cut[2], columns - cut[1] - cut[3])
            images = _pixels.pad(inner, added, Sample({"image": inner}), self.original.border_mode, float(fill))
        if not self.original.keep_size:
            return images
        return _pixels.resize_window(images, None, torch.stack(sample.sizes, 1), interpolation)

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        height, width = map(rows.of, sample.sizes)
        new_height, new_width = map(rows.of, self._new_sizes(params, sample))
        top, _, _, left = params["sides"].double()[rows.owners].unbind(1)
        x0, y0, x1, y1 = rows.values[:, :4].unbind(1)
        x0, x1 = ((x * width + left) / new_width for x in (x0, x1))
        y0, y1 = ((y * height + top) / new_height for y in (y0, y1))
        return rows.with_columns(x0, y0, x1, y1)

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        top, _, _, left = params["sides"].double()[rows.owners].unbind(1)
        moved = rows.with_columns(rows.values[:, 0] + left, rows.values[:, 1] + top)
        if not self.original.keep_size:
            return moved
        height, width = map(rows.of, sample.sizes)
        new_height, new_width = map(rows.of, self._new_sizes(params, sample))
        # Where nothing is added or cut off, Albumentations scales nothing.
        return scale_points(moved, width / new_width, height / new_height)


def scale_points(rows: Rows, x: torch.Tensor, y: torch.Tensor) -> Rows:
    """Multiply coordinates of points, and their scales by the larger factor."""
    values = rows.values
    return rows.with_columns(values[:, 0] * x, values[:, 1] * y, values[:, 2], values[:, 3] * torch.maximum(x, y))
