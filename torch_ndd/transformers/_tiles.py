# SPDX-License-Identifier: Apache-2.0
"""Processors that cut images into tiles: LLaVA-NeXT and OneVision, InternVL, Idefics 3 and SmolVLM, Gemma 3."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .._core.native.default_device import ignore_default_device
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.collect import fence
from .._core.values.tensor import Tensor, new_tensor
from .._core.work.pending import ALL_SAMPLES
from ..ops.geometry import slice as slices
from ..ops.geometry.sizes import canvas, fit
from ..ops.shape.patches import tiles
from . import _images
from ._translation import Translation

MAX_SIDE = 4096  # of Idefics 3, before tiling
PAN_AND_SCAN = ("pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops", "pan_and_scan_min_ratio_to_activate")


def regroup(images: Batch, counts: Sequence[int]) -> Batch:
    """Return images of equal shape as one sample for each group: ragged (n, ...), in the same memory."""
    shape = images.buffer.shape[1:]
    table = torch.tensor([[count, *shape] for count in counts], dtype=torch.int64).reshape(len(counts), 1 + len(shape))
    # The tiles of an image follow one another in the buffer already, so only the shapes change.
    return new_batch(images.buffer.reshape(-1), table, None, fence(images, ALL_SAMPLES)).densify()


def join(parts: Sequence[Any]) -> Batch:
    """Return samples of several batches as one batch."""
    return as_batch(list(parts))


def check_counts(images: Batch, counts: Iterable[Any]) -> list[int]:
    """Return the numbers of images of the samples. Raise ValueError unless they add up to the batch, and none is negative."""
    try:
        numbers = [int(count) for count in counts]
    except (TypeError, ValueError):
        raise ValueError(f"from_processor: counts must be the number of images of each sample, got {counts!r:.200}") from None
    if sum(numbers) != images.batch_size or min(numbers, default=0) < 0:
        raise ValueError(f"from_processor: counts={numbers!r:.200} are not those of {images.batch_size} images")
    return numbers


def require_no_crop(translation: Translation) -> None:
    """Raise ValueError for a processor of tiles that crops them."""
    if translation.settings.crops:
        raise translation.settings.make_error("do_center_crop", True, "tiles are not cropped")


class LlavaNext(Translation):
    """LLaVA-NeXT: the whole image squeezed into a tile, then the tiles of the canvas that suits it."""

    @property
    def tile(self) -> int:
        settings = self.settings
        crop, size = settings.sides("crop_size"), settings.size
        side = crop.get("height") or size.get("height") or size.get("shortest_edge")
        whole = size.get("height") or size.get("shortest_edge")
        if not side or side != whole or size.get("width", whole) != whole:
            raise settings.make_error("size", size, f"the tile and the whole image must have equal sides; crop_size is {crop}")
        return int(side)

    @property
    def canvases(self) -> list[list[int]]:
        return [list(sides) for sides in self.settings.get("image_grid_pinpoints", [])]

    def choose(self, extents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the size of the canvas in pixels, and that of the picture on it."""
        size, inner = canvas(extents, tile=1, canvases=self.canvases)
        return size.torch(), inner.torch()

    @property
    def divides(self) -> bool:
        """Whether all canvases consist of whole tiles."""
        return not any(side % self.tile for sides in self.canvases for side in sides)

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        extents = _images.extents_of(images)
        whole = _images.resize_to(images, [self.tile, self.tile], self.settings)
        pictures = self.cut(images, extents, counts)
        # The whole image is the first tile.
        groups = [[whole.tensors[k], *picture] for k, picture in enumerate(pictures)]
        prepared = self.normalize(join([tile for group in groups for tile in group]))
        nested = regroup(prepared, [len(group) for group in groups])
        return {"pixel_values": self.join_groups(nested), "image_sizes": _images.as_numbers(extents)}

    def join_groups(self, nested: Batch) -> Any:
        """Return the tiles of all images in one tensor, padded if the settings say so; a list where their numbers differ."""
        return nested.padded().values if self.settings.pads and nested.ragged_shapes is not None else self.stack(nested)

    def cut(self, images: Batch, extents: torch.Tensor, counts: Any) -> list[list[Tensor]]:
        """Return the tiles of each image, besides the whole one."""
        canvases, inner = self.choose(extents)
        padded = self.center(_images.resize_to(images, _images.as_sizes(inner), self.settings), inner, canvases)
        if not self.divides:
            return self.cut_with_edges(padded)
        parts, numbers = tiles(padded, tile=self.tile)
        ends = numbers.cumsum(0).tolist()
        samples = list(parts.tensors)
        return [samples[end - number : end] for end, number in zip(ends, numbers.tolist(), strict=True)]

    def cut_with_edges(self, canvases: Batch) -> list[list[Tensor]]:
        """Return the tiles of canvases whose last row or column is smaller: such a tile is resized like an image, and its center cut out."""
        axes, side = _images.image_axes("from_processor", canvases), self.tile
        groups: list[list[Tensor]] = []
        edges: list[tuple[int, int]] = []
        for k, (image, extents) in enumerate(zip(canvases.tensors, _images.extents_of(canvases).tolist(), strict=True)):
            groups.append([])
            for start in itertools.product(*(range(0, extent, side) for extent in extents)):
                key: list[slice] = [slice(None)] * 3
                for axis, begin, extent in zip(axes, start, extents, strict=True):
                    key[axis] = slice(begin, min(begin + side, extent))
                if any(begin + side > extent for begin, extent in zip(start, extents, strict=True)):
                    edges.append((k, len(groups[k])))
                groups[k].append(image[tuple(key)])
        if edges:
            small = join([groups[k][place] for k, place in edges])
            target = [side, side] if "height" in self.settings.size else fit(small, shortest=side)
            whole = _images.crop_center(self.resize(small, target), side, side, self.settings)
            for (k, place), tile in zip(edges, whole.tensors, strict=True):
                groups[k][place] = tile
        return groups

    def center(self, pictures: Batch, sizes: torch.Tensor, canvases: torch.Tensor, fill: Sequence[float] = (0.0,)) -> Batch:
        """Place pictures in the center of their canvases."""
        axes = list(_images.image_axes("from_processor", pictures))
        # Before the picture, by half of the padding; an odd pixel comes after it.
        start, shape = _images.as_sizes(-((canvases - sizes) // 2)), _images.as_sizes(canvases)
        return slices.slice(pictures, start=start, shape=shape, axes=axes, out_of_bounds_policy="pad", fill_values=list(fill))  # type: ignore[arg-type]

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        return ((self.choose(extents)[0] + self.tile - 1) // self.tile).prod(1) + 1

    def describe(self) -> list[str]:
        settings = self.settings
        if not self.divides and not (settings.resizes and ("height" in settings.size or settings.crops)):
            reason = f"canvases must consist of tiles of {self.tile} pixels unless tiles are resized and cropped to one size"
            raise settings.make_error("image_grid_pinpoints", self.canvases, reason)
        return [f"the whole image and its tiles of {self.tile} pixels on one of {len(self.canvases)} canvases ({self.describe_filter()})"]


class LlavaOneVision(LlavaNext):
    """LLaVA-OneVision: as LLaVA-NeXT for one image in a sample; several are padded to squares, one tile each."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        numbers = check_counts(images, [1] * images.batch_size if counts is None else counts)
        several = [number > 1 for number in numbers for _ in range(number)]
        single = [k for k, flag in enumerate(several) if not flag]
        extents = _images.extents_of(images)
        groups: list[list[Tensor]] = [[] for _ in several]
        if single:
            chosen = images.select(single)
            whole = _images.resize_to(chosen, [self.tile, self.tile], self.settings)
            for place, first, rest in zip(single, whole.tensors, self.cut(chosen, extents[single], None), strict=True):
                groups[place] = [first, *rest]
        if any(several):
            if not self.settings.resizes:
                raise self.settings.make_error("do_resize", False, "several images of a sample become squares of different sizes")
            places = [k for k, flag in enumerate(several) if flag]
            sizes = extents[places]
            squares = sizes.amax(1, keepdim=True).expand(-1, 2)
            # The color of the mean becomes zero when it is normalized.
            background = [float(int(mean * 255)) for mean in self.settings.mean]
            padded = self.center(images.select(places), sizes, squares, background)
            for place, tile in zip(places, self.resize(padded, [self.tile, self.tile]).tensors, strict=True):
                groups[place] = [tile]
        prepared = self.normalize(join([tile for group in groups for tile in group]))
        nested = regroup(prepared, [len(group) for group in groups])
        sizes = _images.as_numbers(extents)
        return {"pixel_values": self.join_groups(nested), "image_sizes": sizes, "batch_num_images": _images.as_numbers(numbers)}


class InternVL(Translation):
    """InternVL: the image squeezed onto the grid whose aspect ratio is nearest, cut into tiles; after them the whole one, if there are several."""

    @property
    def tile(self) -> tuple[int, int]:
        return self.settings.pair("size")

    @property
    def splits(self) -> bool:
        return bool(self.settings.get("crop_to_patches", False))

    def choose(self, extents: torch.Tensor) -> torch.Tensor:
        low, high = int(self.settings.get("min_patches", 1)), int(self.settings.get("max_patches", 12))
        return canvas(extents, tile=list(self.tile), min_tiles=low, max_tiles=high)[0].torch()

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        if not self.splits:
            values = self.stack(self.resize_and_normalize(images, list(self.tile)))
            return {"pixel_values": values, "num_patches": _images.as_numbers([1] * images.batch_size)}
        grid = self.choose(_images.extents_of(images))
        parts, numbers = tiles(_images.resize_to(images, _images.as_sizes(grid * torch.tensor(self.tile)), self.settings), tile=list(self.tile))
        whole = _images.resize_to(images, list(self.tile), self.settings)
        samples, ordered, end = list(parts.tensors), [], 0
        for number, thumbnail in zip(numbers.tolist(), whole.tensors, strict=True):
            ordered += samples[end : end + number] + ([thumbnail] if number > 1 else [])
            end += number
        totals = numbers + (numbers > 1)
        return {"pixel_values": self.normalize(join(ordered)).stack(), "num_patches": _images.as_numbers(totals)}

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        if not self.splits:
            return torch.ones(len(extents), dtype=torch.int64)
        numbers = self.choose(extents).prod(1)
        return numbers + (numbers > 1)

    def describe(self) -> list[str]:
        size = "{} x {}".format(*self.tile)
        require_no_crop(self)
        return [f"tiles of {size} and the whole image ({self.describe_filter()})" if self.splits else f"resize to {size} ({self.describe_filter()})"]


class Idefics3(Translation):
    """Idefics 3 and SmolVLM: resized twice, cut into tiles; after them the whole image squeezed into a tile. Samples may have several images."""

    @property
    def tile(self) -> int:
        return int(self.settings.sides("max_image_size")["longest_edge"])

    def normalize(self, images: Batch, layout: str = "CHW") -> Batch:
        # Torchvision's backend pads into floats even if it leaves out rescaling and normalization.
        dtype = torch.float32 if self.dtype is None and self.settings.pads and not self.settings.uses_pillow else self.dtype
        return _images.normalize(images, self.settings, layout, dtype)

    def sizes(self, extents: torch.Tensor) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return the sizes of both resizes of each image."""
        longest = self.settings.size.get("longest_edge")
        return [_idefics_sizes(height, width, longest if self.settings.resizes else None, self.tile) for height, width in extents.tolist()]

    @ignore_default_device
    def __call__(self, images: Any, *, counts: Any = None, return_row_col_info: bool = False) -> dict[str, Any]:
        """Return the outputs, with ``rows`` and ``cols`` of tiles if asked for; without ``counts`` all images belong to one sample."""
        outputs = super().__call__(images, counts=counts)
        info = {key: outputs.pop(key) for key in ("rows", "cols")}
        return {**outputs, **(info if return_row_col_info or self.settings.get("return_row_col_info", False) else {})}

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        numbers = check_counts(images, [images.batch_size] if counts is None else counts)
        side = self.tile
        first, second = (torch.tensor(list(sizes)) for sizes in zip(*self.sizes(_images.extents_of(images)), strict=True))
        # Two resizes, as in the processor: one from the first size differs in its pixels.
        resized = self.resize(images, _images.as_sizes(first))
        rows, columns, groups = [], [], []
        if self.settings.get("do_image_splitting", True):
            resized = _images.resize_to(resized, _images.as_sizes(second), self.settings)
            parts, counted = tiles(resized, tile=side)
            samples, end = list(parts.tensors), 0
            whole = _images.resize_to(resized, [side, side], self.settings)
            for number, thumbnail, (height, width) in zip(counted.tolist(), whole.tensors, second.tolist(), strict=True):
                splits = number > 1
                groups.append([*samples[end : end + number], *([thumbnail] if splits else [])])
                rows.append(height // side if splits else 0)
                columns.append(width // side if splits else 0)
                end += number
        else:
            groups = [[sample] for sample in _images.resize_to(resized, [side, side], self.settings).tensors]
            rows, columns = [0] * len(groups), [0] * len(groups)
        prepared = self.normalize(join([tile for group in groups for tile in group]))
        starts = [sum(numbers[:k]) for k in range(len(numbers) + 1)]
        totals = [sum(len(group) for group in groups[begin:end]) for begin, end in itertools.pairwise(starts)]
        values = regroup(prepared, totals)
        padded = values.padded().values if values.ragged_shapes is not None else values.stack()
        outputs: dict[str, Any] = {"pixel_values": padded}
        if self.settings.pads:
            mask = (torch.arange(max(totals)) < torch.tensor(totals)[:, None]).to(torch.int64)
            outputs["pixel_attention_mask"] = new_tensor(mask[:, :, None, None].expand(-1, -1, side, side).contiguous())
        spans = list(itertools.pairwise(starts))
        return {**outputs, "rows": [rows[a:b] for a, b in spans], "cols": [columns[a:b] for a, b in spans]}

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        if not self.settings.get("do_image_splitting", True):
            return torch.ones(len(extents), dtype=torch.int64)
        numbers = (torch.tensor([second for _, second in self.sizes(extents)]) // self.tile).prod(1)
        return numbers + (numbers > 1)

    def describe(self) -> list[str]:
        require_no_crop(self)
        longest = self.settings.size.get("longest_edge")
        if longest is None:
            raise self.settings.make_error("size", self.settings.size, "it must have longest_edge")
        return [f"resize the longer side to {longest}, cut tiles of {self.tile} pixels and the whole image ({self.describe_filter()})"]


def fit_longest_even(height: int, width: int, longest: int) -> tuple[int, int]:
    """Return the size with this longer side; the other side is made even, as Idefics 3 and SmolVLM do."""
    aspect = width / height
    if width >= height:
        shorter = int(longest / aspect)
        return max(1, shorter + shorter % 2), longest
    shorter = int(longest * aspect)
    return longest, max(1, shorter + shorter % 2)


def _idefics_sizes(height: int, width: int, longest: int | None, tile: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size after the first resize and the multiples of the tile after the second one."""
    if longest is not None:
        height, width = fit_longest_even(height, width, longest)
        aspect = width / height
        if width >= height and width > MAX_SIDE:
            width, height = MAX_SIDE, max(1, int(MAX_SIDE / aspect))
        elif height > width and height > MAX_SIDE:
            height, width = MAX_SIDE, max(1, int(MAX_SIDE * aspect))
    first, aspect = (height, width), width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        height = math.ceil(int(width / aspect) / tile) * tile
    else:
        height = math.ceil(height / tile) * tile
        width = math.ceil(int(height * aspect) / tile) * tile
    return first, (max(height, tile), max(width, tile))


class Gemma3(Translation):
    """Gemma 3: squeezed; with pan and scan also the parts of images that are much longer than wide."""

    def windows(self, height: int, width: int) -> list[tuple[int, int, int, int]]:
        """Return the parts of an image as first row, first column, height and width."""
        settings = self.settings
        if not settings.get("do_pan_and_scan", False):
            return []
        least, most, ratio = (float(settings.get(name, 0)) for name in PAN_AND_SCAN)
        longer, shorter = max(height, width), min(height, width)
        if longer / shorter < ratio:
            return []
        count = min(int(most), max(2, min(int(longer // least), math.floor(longer / shorter + 0.5))))
        step = math.ceil(longer / count)
        if min(step, shorter) < least:
            return []
        spans = [(k * step, min(step, longer - k * step)) for k in range(count)]
        return [(0, begin, height, length) if width >= height else (begin, 0, length, width) for begin, length in spans]

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        windows = [self.windows(height, width) for height, width in _images.extents_of(images).tolist()]
        if any(windows):
            first, second = _images.image_axes("from_processor", images)
            parts: list[Tensor] = []
            for image, cuts in zip(images.tensors, windows, strict=True):
                parts.append(image)
                for row, column, height, width in cuts:
                    key: list[slice] = [slice(None)] * 3
                    key[first], key[second] = slice(row, row + height), slice(column, column + width)
                    parts.append(image[tuple(key)])
            images = join(parts)
        size = list(self.settings.pair("size"))
        values = self.stack(self.resize_and_normalize(images, size))
        return {"pixel_values": values, "num_crops": _images.as_numbers([len(cuts) for cuts in windows])}

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1 + len(self.windows(height, width)) for height, width in extents.tolist()], dtype=torch.int64)

    def describe(self) -> list[str]:
        require_no_crop(self)
        scan = "; pan and scan" if self.settings.get("do_pan_and_scan", False) else ""
        for name in PAN_AND_SCAN if scan else ():
            if self.settings.get(name, None) is None:
                raise self.settings.make_error(name, None, "do_pan_and_scan needs a number")
        return ["resize to {} x {} ({}){}".format(*self.settings.pair("size"), self.describe_filter(), scan)]
