# SPDX-License-Identifier: Apache-2.0
"""timm's transforms of images, over whole batches."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch

from ..._core.values.batch import Batch, as_batch, new_batch
from ...ops.geometry._fill_windows import fill_windows, noise_windows, takes
from ...ops.geometry.paste import erase
from ...ops.random.distributions import normal
from .._draws import Draws, round_half_even
from .._sample import flatten, is_explicit_image, unflatten
from ..v2 import RandomResizedCrop, functional
from ..v2.functional._crop import PaddingMode
from ..v2.functional._resize import resize_by_pillow

EraseMode = Literal["const", "rand", "pixel"]
_RANDOM = ("bilinear", "bicubic")


class ImageTransform:
    """A transform of the images of a sample; its other parts stay."""

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        return unflatten([self.transform_images(leaf) if isinstance(leaf, Batch) and is_explicit_image(leaf) else leaf for leaf in leaves], spec)

    def transform_images(self, images: Batch) -> Batch:
        """Return the transformed images."""
        raise NotImplementedError

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_")
        return f"{type(self).__name__}({settings})"


def extents(images: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return heights and widths, int64 (N,)."""
    layout, table = images.layout or "", images.sample_shapes()
    return table[:, layout.index("H")], table[:, layout.index("W")]


def resize_batch(images: Batch, size: Any, interpolation: str) -> Batch:
    """Resize, with an interpolation drawn for each sample if it is "random"."""
    if interpolation != "random":
        return resize_by_pillow(images, size, interpolation)
    which = Draws(images.batch_size).integers(0, 2)
    samples: list[Any] = [None] * images.batch_size
    for k, mode in enumerate(_RANDOM):
        indices = torch.nonzero(which == k)[:, 0]
        if len(indices):
            own = as_batch(size[indices]) if isinstance(size, torch.Tensor) else size
            part = resize_by_pillow(images.select(indices.tolist()), own, mode)
            for place, sample in zip(indices.tolist(), part, strict=True):
                samples[place] = sample
    return as_batch(samples, layout=images.layout)


class RandomResizedCropAndInterpolation(ImageTransform):
    """``RandomResizedCrop`` whose interpolation may be drawn for each sample."""

    def __init__(
        self, size: Any, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3 / 4, 4 / 3), interpolation: str = "bilinear"
    ) -> None:
        self.size, self.scale, self.ratio, self.interpolation = _as_pair(size), tuple(scale), tuple(ratio), interpolation
        ranges: Any = {"scale": self.scale, "ratio": self.ratio}
        self._crop = RandomResizedCrop(self.size, **ranges)

    def make_params(self, leaves: list[Any]) -> dict[str, Any]:
        """Return a window for each sample."""
        return self._crop.make_params(leaves)

    def resize_windows(self, windows: Batch) -> Batch:
        """Resize windows to the final size."""
        return resize_batch(windows, list(self.size), self.interpolation)

    def transform_images(self, images: Batch) -> Batch:
        window = self.make_params([images])
        return self.resize_windows(functional.crop(images, **{name: window[name] for name in ("top", "left", "height", "width")}))


class ResizeKeepRatio(ImageTransform):
    """Resize so that the image covers a size (``longest`` 0) or fits into it (1), with random changes of scale and aspect ratio."""

    def __init__(
        self,
        size: Any,
        longest: float = 0.0,
        interpolation: str = "bilinear",
        random_scale_prob: float = 0.0,
        random_scale_range: Sequence[float] = (0.85, 1.05),
        random_scale_area: bool = False,
        random_aspect_prob: float = 0.0,
        random_aspect_range: Sequence[float] = (0.9, 1.11),
    ) -> None:
        self.size, self.longest, self.interpolation = _as_pair(size), float(longest), interpolation
        self.random_scale_prob, self.random_scale_range, self.random_scale_area = random_scale_prob, tuple(random_scale_range), random_scale_area
        self.random_aspect_prob, self.random_aspect_range = random_aspect_prob, tuple(random_aspect_range)

    def transform_images(self, images: Batch) -> Batch:
        height, width = (column.to(torch.float64) for column in extents(images))
        # How many times the image is larger than the target, along each axis.
        over_h, over_w = height / self.size[0], width / self.size[1]
        # `longest` interpolates between covering the size (0) and fitting into it (1).
        ratio = torch.maximum(over_h, over_w) * self.longest + torch.minimum(over_h, over_w) * (1.0 - self.longest)
        draws = Draws(images.batch_size)
        scale = aspect = torch.ones(images.batch_size, dtype=torch.float64)
        if self.random_scale_prob > 0:
            factor = draws.uniform(*self.random_scale_range)
            scale = torch.where(draws.happens(self.random_scale_prob), 1.0 / factor.sqrt() if self.random_scale_area else factor, scale)
        if self.random_aspect_prob > 0:
            # The square root of the aspect ratio: one side is multiplied by it, the other divided.
            drawn = torch.exp(0.5 * draws.uniform(*(math.log(limit) for limit in self.random_aspect_range)))
            aspect = torch.where(draws.happens(self.random_aspect_prob), drawn, aspect)
        size = torch.stack([round_half_even(height * scale / aspect / ratio), round_half_even(width * scale * aspect / ratio)], 1)
        return resize_batch(images, size if self.interpolation == "random" else as_batch(size), self.interpolation)


class CenterCropOrPad(ImageTransform):
    """Crop the center, after padding smaller images."""

    def __init__(self, size: Any, fill: Any = 0, padding_mode: PaddingMode = "constant") -> None:
        self.size, self.fill = _as_pair(size), fill
        self.padding_mode: PaddingMode = padding_mode

    def transform_images(self, images: Batch) -> Batch:
        height, width = extents(images)
        missing_h, missing_w = (torch.clamp(to - extent, min=0) for to, extent in zip(self.size, (height, width), strict=True))
        if bool((missing_h + missing_w).any()):
            left, top = missing_w // 2, missing_h // 2
            images = functional.pad(images, [left, top, missing_w - left, missing_h - top], fill=self.fill, padding_mode=self.padding_mode)
        return functional.center_crop(images, list(self.size))


class RandomCropOrPad(ImageTransform):
    """Crop a random window; place smaller images at random in it."""

    def __init__(self, size: Any, fill: Any = 0, padding_mode: PaddingMode = "constant") -> None:
        self.size, self.fill = _as_pair(size), fill
        self.padding_mode: PaddingMode = padding_mode

    def transform_images(self, images: Batch) -> Batch:
        draws = Draws(images.batch_size)
        starts, before, after = [], [], []
        # For height, then width: how much of the image is left over, or how much of the window.
        for to, extent in zip(self.size, extents(images), strict=True):
            spare = extent - to
            # Positive: where the window starts in the image; negative: where the image starts in the window.
            offset = draws.integers(0, spare.abs() + 1) * spare.sign()
            starts.append(torch.clamp(offset, min=0))
            before.append(torch.clamp(-offset, min=0))
            after.append(torch.clamp(offset + to - extent, min=0))
        if bool((torch.stack(before) + torch.stack(after)).any()):
            sides = [before[1], before[0], after[1], after[0]]
            images = functional.pad(images, sides, fill=self.fill, padding_mode=self.padding_mode)
        return functional.crop(images, starts[0], starts[1], *self.size)


class TrimBorder(ImageTransform):
    """Remove a border of some pixels."""

    def __init__(self, border_size: int) -> None:
        self.border_size = border_size

    def transform_images(self, images: Batch) -> Batch:
        height, width = extents(images)
        top, left = (torch.clamp(extent, max=self.border_size) for extent in (height, width))
        return functional.crop(images, top, left, *(torch.clamp(extent - 2 * self.border_size, min=0) for extent in (height, width)))


class RandomErasing(ImageTransform):
    """Overwrite random boxes of normalized images: with 0 ("const"), a random color ("rand") or noise ("pixel").

    With ``in_place``, images are modified; the caller guarantees that nothing else uses their memory.
    """

    def __init__(
        self,
        probability: float = 0.5,
        min_area: float = 0.02,
        max_area: float = 1 / 3,
        min_aspect: float = 0.3,
        max_aspect: float | None = None,
        mode: EraseMode = "const",
        min_count: int = 1,
        max_count: int | None = None,
        num_splits: int = 0,
        in_place: bool = False,
    ) -> None:
        self.probability, self.min_area, self.max_area, self.mode = probability, min_area, max_area, mode
        self.min_aspect, self.max_aspect = min_aspect, max_aspect or 1 / min_aspect
        self.min_count, self.max_count, self.num_splits = min_count, max_count or min_count, num_splits
        self._in_place = in_place

    def transform_images(self, images: Batch) -> Batch:
        draws = Draws(images.batch_size)
        acts = draws.unit() <= self.probability
        if self.num_splits > 1:  # the first part of the batch stays clean
            acts[: images.batch_size // self.num_splits] = False
        count = draws.integers(self.min_count, self.max_count + 1)
        output = images
        # A box per round for the samples whose count is not reached: all samples share the call.
        for k in range(self.max_count):
            output = self._erase_box(output, draws, acts & (count > k), count)
        return output

    def _erase_box(self, images: Batch, draws: Draws, acts: torch.Tensor, count: torch.Tensor) -> Batch:
        tries = 10  # as in timm
        height, width = extents(images)
        area = (height * width / count)[:, None] * (self.min_area + draws.unit(tries) * (self.max_area - self.min_area))
        h, w = draws.sides(area, (self.min_aspect, self.max_aspect))
        fits = (h < height[:, None]) & (w < width[:, None])
        # The first of the tries that fits, as a sequence of tries would find it.
        first = fits.to(torch.int8).argmax(1, keepdim=True)
        acts = acts & fits.any(1)
        h, w = (torch.where(acts, side.gather(1, first)[:, 0], torch.zeros(())).to(torch.int64) for side in (h, w))
        top, left = draws.integers(0, height - h + 1), draws.integers(0, width - w + 1)
        # Kernels that fill only the windows; erase would copy the batch.
        in_place = self._in_place and takes(images) and not images.caller_owned
        if in_place and self.mode == "const":
            fill_windows(images, torch.stack((top, left, h, w), 1), [0.0])
            return images
        if in_place and self.mode == "pixel" and images.dtype is torch.float32:
            noise_windows(images, torch.stack((top, left, h, w), 1))
            return images
        if self.mode == "pixel":
            return self._erase_with_noise(images, top, left, h, w)
        channels = images.shared_extent((images.layout or "").index("C"))
        fill: Any = 0.0
        if self.mode == "rand":
            fill = normal(shape=[channels], batch_size=images.batch_size)
        pairs = [new_batch(torch.stack(pair, 1)) for pair in ((top, left), (h, w))]
        return erase(images, anchor=pairs[0], shape=pairs[1], axis_names="HW", fill_value=fill)

    def _erase_with_noise(self, images: Batch, top: torch.Tensor, left: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> Batch:
        channels = images.shared_extent((images.layout or "").index("C")) or 1
        sizes = (channels * h * w).tolist()
        # One draw for all boxes, split to their sizes.
        values = normal(shape=[max(1, sum(sizes))]).torch()
        parts = torch.split(values[: sum(sizes)], sizes)
        boxes = [part.reshape(channels, a, b) for part, a, b in zip(parts, h.tolist(), w.tolist(), strict=True)]
        return functional.erase(images, top, left, h, w, boxes)


def _as_pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int | float):
        return int(size), int(size)
    sides = [int(extent) for extent in size]
    if len(sides) not in (1, 2):
        raise ValueError(f"from_timm: a size must be one number, or height and width, got {size!r}")
    return sides[0], sides[-1]
