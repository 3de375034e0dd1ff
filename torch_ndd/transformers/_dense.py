# SPDX-License-Identifier: Apache-2.0
"""Processors that make one image of each: classifiers, detectors, SAM, depth, Pixtral."""

from typing import Any

import torch

from .._core.values.batch import Batch
from .._core.values.tensor import Tensor
from ..ops.generic.convert import cast
from ..ops.geometry.sizes import fit
from . import _images
from ._translation import Translation


class Plain(Translation):
    """Resize, crop, rescale and normalize, by the settings that all processors share."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        prepared = self.normalize(self.crop(self.resize(images, self.target(images))))
        return {"pixel_values": self.pad(prepared) if self.settings.pads else self.stack(prepared)}

    def pad(self, images: Batch) -> Tensor:
        """Return images padded to ``pad_size``, or to the largest."""
        return _images.join_padded(images, self.settings.pair("pad_size") if self.settings.get("pad_size", None) else None)

    def target(self, images: Batch) -> Any:
        """Return the size to which images are resized: one pair, or one for each."""
        return self.target_of(_images.extents_of(images)) if self.settings.resizes else None

    def target_of(self, extents: torch.Tensor) -> Any:
        settings = self.settings
        size = settings.size
        keys = set(size)
        if {"shortest_edge", "longest_edge"} <= keys:
            return fit(extents, shortest=size["shortest_edge"], longest=size["longest_edge"])
        if "shortest_edge" in keys:
            return fit(extents, shortest=size["shortest_edge"])
        if {"max_height", "max_width"} <= keys:
            return fit(extents, box=[size["max_height"], size["max_width"]])
        if keys >= {"height", "width"}:
            return [size["height"], size["width"]]
        raise settings.make_error("size", size)

    def crop(self, images: Batch) -> Batch:
        return _images.crop_center(images, *self.settings.pair("crop_size"), self.settings) if self.settings.crops else images

    def stack(self, images: Batch) -> Any:
        """Return one tensor, or the list of images where their sizes differ and transformers does not stack them."""
        if images.ragged_shapes is None or not images.batch_size:
            return images.stack()
        return list(images.tensors)

    def describe(self) -> list[str]:
        settings = self.settings
        steps = []
        if settings.resizes:
            self.target_of(torch.tensor([[64, 64]]))  # raises for a size that is not translated
            steps.append(f"resize to {settings.size} ({self.describe_filter()})")
        if settings.crops:
            steps.append("crop the center, {} x {}".format(*settings.pair("crop_size")))
        return steps

    def describe_output(self) -> list[str]:
        return [*super().describe_output(), *(["pad with zeros"] if self.settings.pads else [])]


class RescaledFirst(Plain):
    """DINOv3: rescale, resize in float32, normalize."""

    # torchvision's resize of float32 is up to 4e-6 away from that of float64, before it is divided by the standard deviation; ours 2e-7.
    tolerance = 1e-4

    def resize(self, images: Batch, size: Any) -> Batch:
        if self.dtype is torch.uint8:
            raise self.settings.make_error("dtype", self.dtype, "its images are resized as floats")
        values = cast(images, dtype=torch.float32)
        return super().resize(values * self.settings.factor if self.settings.rescales else values, size)

    def normalize(self, images: Batch, layout: str = "CHW") -> Batch:
        mean, std = (self.settings.mean, self.settings.std) if self.settings.normalizes else ([0.0], [1.0])
        return _images.crop_mirror_normalize(images, mean=mean, std=std, dtype=self.dtype or torch.float32, output_layout=layout)


class ConvNext(Plain):
    """Below 384 pixels the shorter side is ``size / crop_pct`` and the center is cut out; from there on images are squeezed."""

    def target_of(self, extents: torch.Tensor) -> Any:
        side = self.settings.size["shortest_edge"]
        if side >= 384:
            return [side, side]
        # int() as in transformers, which does not round here.
        return fit(extents, shortest=int(side / float(self.settings.get("crop_pct", 224 / 256))))

    def crop(self, images: Batch) -> Batch:
        side = self.settings.size["shortest_edge"]
        if self.settings.resizes and side < 384:
            images = _images.crop_center(images, side, side, self.settings)
        return super().crop(images)


class Detr(Plain):
    """DETR: padded images and the mask of their pixels."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        prepared = self.normalize(self.resize(images, self.target(images)))
        if not self.settings.pads:
            return {"pixel_values": self.stack(prepared)}
        values = self.pad(prepared)
        height, width = values.shape[-2:]
        return {"pixel_mask": _images.mask_of(_images.extents_of(prepared), height, width), "pixel_values": values}


class Sam(Plain):
    """SAM: the longer side is 1024 by rounding half up; the sizes before and after belong to the outputs."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        original = _images.extents_of(images)
        outputs = super().process(images, counts)
        resized = self.target_of(original).torch() if self.settings.resizes else original
        return {**outputs, "original_sizes": _images.as_numbers(original), "reshaped_input_sizes": _images.as_numbers(resized)}

    def target_of(self, extents: torch.Tensor) -> Any:
        if "longest_edge" not in self.settings.size:
            raise self.settings.make_error("size", self.settings.size, "it must have longest_edge")
        return fit(extents, longest=self.settings.size["longest_edge"], rounding="half_up")


class Dpt(Plain):
    """DPT and Depth-Anything: both sides become multiples; the scale is the one of the two that is nearer to 1."""

    def target_of(self, extents: torch.Tensor) -> Any:
        settings = self.settings
        if settings.pads:
            raise settings.make_error("do_pad", True)
        multiple = int(settings.get("ensure_multiple_of", 1))
        target = torch.tensor(settings.pair("size"), dtype=torch.float64)
        scales = target / extents
        if settings.get("keep_aspect_ratio", False):
            nearer_width = (1 - scales[:, 1]).abs() < (1 - scales[:, 0]).abs()
            scales = torch.where(nearer_width, scales[:, 1], scales[:, 0])[:, None].expand(-1, 2)
        sides = (scales * extents / multiple).round() * multiple
        return _images.as_sizes(sides.to(torch.int64))


class Pixtral(Plain):
    """Pixtral and Mistral 3: at most 1024 pixels long, then up to whole patches; padded after normalization."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        resized = self.resize(images, self.target(images))
        sizes = _images.as_numbers(_images.extents_of(resized))
        prepared = self.normalize(self.crop(resized))
        if self.packed:
            return {"pixel_values": prepared, "image_sizes": sizes}
        values = _images.join_padded(prepared) if self.settings.pads else list(prepared.tensors)
        return {"pixel_values": values, "image_sizes": sizes}

    def target_of(self, extents: torch.Tensor) -> Any:
        size, patch = self.settings.size, self.patch_size()
        longest = size.get("longest_edge", size.get("height"))
        if longest is None or ("width" in size and size["width"] != longest):
            raise self.settings.make_error("size", size, "it must have longest_edge, or equal height and width")
        return fit(extents, longest=longest, multiple_of=patch, enlarge=False)

    def patch_size(self) -> int:
        height, width = self.settings.pair("patch_size")
        if height != width:
            raise self.settings.make_error("patch_size", (height, width), "patches must be square")
        return height

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        sizes = self.target_of(extents).torch() if self.settings.resizes else extents
        return (sizes // self.patch_size()).prod(1)
