# SPDX-License-Identifier: Apache-2.0
"""Processors that make one image of each: classifiers, detectors, SAM, depth, Pixtral."""

from typing import Any, ClassVar

import torch

from .._core.values.batch import Batch
from .._core.values.tensor import Tensor
from ..ops._columns import first_failure
from ..ops.generic.convert import cast
from ..ops.geometry.sizes import fit
from . import _images
from ._translation import Translation


class Plain(Translation):
    """Resize, crop, rescale and normalize, by the settings that all processors share."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        prepared = self.prepare(images)
        return {"pixel_values": self.pad(prepared) if self.pads else self.stack(prepared)}

    def prepare(self, images: Batch, layout: str = "CHW") -> Batch:
        """Return images resized, cropped and normalized."""
        size = self.target(images)
        return self.normalize(self.crop(self.resize(images, size)), layout) if self.crops else self.resize_and_normalize(images, size, layout)

    @property
    def crops(self) -> bool:
        """Whether images are cropped after the resize."""
        return self.settings.crops

    @property
    def pads(self) -> bool:
        """Whether images are padded to one size."""
        return self.settings.pads

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

    def describe(self) -> list[str]:
        settings = self.settings
        steps = []
        if settings.resizes:
            self.target_of(torch.tensor([[64, 64]]))  # raises for a size that is not translated
            steps.append(f"resize to {settings.size} ({self.describe_filter()})")
        if settings.crops and self.crops:
            steps.append("crop the center, {} x {}".format(*settings.pair("crop_size")))
        return steps

    def describe_output(self) -> list[str]:
        return [*super().describe_output(), *(["pad with zeros"] if self.pads else [])]


class RescaledFirst(Plain):
    """DINOv3: rescale, resize in float32, normalize."""

    # torchvision's resize of float32 is up to 4e-6 away from that of float64, before it is divided by the standard deviation; ours 2e-7.
    tolerance = 1e-4

    @property
    def pads(self) -> bool:
        return False  # this class ignores do_pad

    def resize(self, images: Batch, size: Any) -> Batch:
        if self.dtype is torch.uint8:
            raise self.settings.make_error("dtype", self.dtype, "its images are resized as floats")
        return super().resize(cast(images, dtype=torch.float32) * self.settings.factor if self.settings.rescales else images, size)

    def normalize(self, images: Batch, layout: str = "CHW") -> Batch:
        if not self.settings.rescales:
            return super().normalize(images, layout)
        images = _images.repeat_gray(images, self.settings, self.dtype)
        mean, std = (self.settings.mean, self.settings.std) if self.settings.normalizes else ([0.0], [1.0])
        return _images.crop_mirror_normalize(images, mean=mean, std=std, dtype=self.dtype or torch.float32, output_layout=layout)

    def resize_and_normalize(self, images: Batch, size: Any, layout: str = "CHW") -> Batch:
        return self.normalize(self.resize(images, size), layout)

    def describe(self) -> list[str]:
        if self.settings.normalizes and not self.settings.rescales:
            raise self.settings.make_error("do_rescale", False, "transformers normalizes floats only")
        return super().describe()


class ConvNext(Plain):
    """Below 384 pixels the shorter side is ``size / crop_pct`` and the center is cut out; from there on images are squeezed."""

    @property
    def pads(self) -> bool:
        return False  # this class ignores do_pad

    def target_of(self, extents: torch.Tensor) -> Any:
        side = self.settings.size["shortest_edge"]
        if side >= 384:
            return [side, side]
        # int() as in transformers, which does not round here.
        return fit(extents, shortest=int(side / float(self.settings.get("crop_pct", 224 / 256))))

    @property
    def crops(self) -> bool:
        return self.settings.crops or (self.settings.resizes and self.settings.size["shortest_edge"] < 384)

    def crop(self, images: Batch) -> Batch:
        side = self.settings.size["shortest_edge"]
        if self.settings.resizes and side < 384:
            images = _images.crop_center(images, side, side, self.settings)
        return super().crop(images)


class Detr(Plain):
    """DETR: padded images and the mask of their pixels."""

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        prepared = self.resize_and_normalize(images, self.target(images))
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

    def pad(self, images: Batch) -> Any:
        """Return images in the center of sizes that are multiples of ``size_divisor``."""
        divisor = self.settings.get("size_divisor", None)
        return self.stack(images if divisor is None else _images.pad_around(images, int(divisor)))

    @property
    def crops(self) -> bool:
        # The Pillow backend of this class ignores do_center_crop.
        return self.settings.crops and not self.settings.uses_pillow

    def describe(self) -> list[str]:
        settings = self.settings
        divisor = settings.get("size_divisor", None)
        # Without a divisor the Pillow backend does not pad, and torchvision's raises.
        if settings.pads and (not settings.uses_pillow if divisor is None else divisor < 1):
            raise settings.make_error("size_divisor", divisor, "do_pad=True needs a positive number")
        return super().describe()

    def target_of(self, extents: torch.Tensor) -> Any:
        settings = self.settings
        multiple = int(settings.get("ensure_multiple_of", 1))
        target = torch.tensor(settings.pair("size"), dtype=torch.float64)
        scales = target / extents
        if settings.get("keep_aspect_ratio", False):
            nearer_width = (1 - scales[:, 1]).abs() < (1 - scales[:, 0]).abs()
            scales = torch.where(nearer_width, scales[:, 1], scales[:, 0])[:, None].expand(-1, 2)
        sides = (scales * extents / multiple).round() * multiple
        fits = (sides >= 1).all(1)
        if not fits.all():
            sample = first_failure(fits)
            raise ValueError(f"from_processor: {settings.name}: sample {sample} of {extents[sample].tolist()} pixels would be resized to nothing")
        return _images.as_sizes(sides.to(torch.int64))


class Pixtral(Plain):
    """Pixtral and Mistral 3: at most 1024 pixels long, then up to whole patches; padded after normalization."""

    takes: ClassVar[frozenset[str]] = Plain.takes | {"packed"}

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        resized = self.resize(images, self.target(images))
        cropped = self.crop(resized)
        # transformers counts the pixels before the crop with torchvision, after it with Pillow.
        extents = _images.extents_of(cropped if self.settings.uses_pillow else resized)
        if self.crops and self.pads and not self.packed and not self.settings.uses_pillow and bool((extents != extents[0]).any()):
            raise self.settings.make_error(
                "do_center_crop", True, "images are padded by their sizes before the crop, which must be equal; set do_pad=False"
            )
        sizes = _images.as_numbers(extents)
        prepared = self.normalize(cropped)
        if self.packed:
            return {"pixel_values": prepared, "image_sizes": sizes}
        values = _images.join_padded(prepared) if self.settings.pads else self.stack(prepared)
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
