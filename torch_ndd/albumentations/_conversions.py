# SPDX-License-Identifier: Apache-2.0
"""Changes of type and layout, compression, and resolution."""

from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch
from ..ops.color.jpeg import jpeg_compression_distortion
from ..ops.geometry.crop import crop_mirror_normalize
from ..ops.geometry.warp import warp_perspective
from ..ops.random.permute import permute_channels
from ..ops.shape.reshape import transpose
from ..reductions import max as max_of
from ..reductions import mean as mean_of
from ..reductions import min as min_of
from ..reductions import std_dev
from ..torchvision._draws import Draws, real
from ..types import INTERP_NN
from . import _pixels
from ._sample import OP, Sample
from ._step import Params, Step, limits, per_sample, refuse

_EPSILON = 1e-4
_BYTE = 255.0


class Normalize(Step):
    """A.Normalize, and A.ToTensorV2 after it if ``planar``."""

    converts = True
    planar = False

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        t = self.original
        if t.normalization == "standard" or not images.batch_size:  # an empty batch has no statistics
            scale = float(t.max_pixel_value)
            mean: Any = [float(number) * scale for number in np.ravel(t.mean)]
            std: Any = [float(number) * scale for number in np.ravel(t.std)]
        else:
            mean, std = (per_sample(column) for column in self._statistics(images))
        return crop_mirror_normalize(images, mean=mean, std=std, output_layout="CHW" if self.planar else "HWC")

    def _statistics(self, images: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is subtracted from each image, or channel, and by what the rest is divided."""
        channels = self.original.normalization.endswith("_per_channel")
        axes = [0, 1] if channels else [0, 1, 2]

        def read(values: Batch) -> torch.Tensor:
            return real(values.torch().reshape(images.batch_size, -1))

        if self.original.normalization.startswith("image"):
            mean = mean_of(images, axes=axes, keep_dims=True)
            return read(mean), read(std_dev(images, mean, axes=axes)) + _EPSILON
        low, high = read(min_of(images, axes=axes)), read(max_of(images, axes=axes))
        return low, high - low + _EPSILON

    def __repr__(self) -> str:
        return f"{self.original!r}, ToTensorV2()" if self.planar else super().__repr__()


class ToFloat(Step):
    """A.ToFloat."""

    converts = True

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        self._scale = transform.max_value

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        if self._scale is None and images.dtype is not torch.uint8:
            raise TypeError(f"{OP}: {self.name} has a default max_value for uint8 only, got {images.dtype}; pass max_value")
        return crop_mirror_normalize(images, std=[float(self._scale or _BYTE)], output_layout="HWC")


class FromFloat(Step):
    """A.FromFloat to uint8."""

    converts = True

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.dtype != "uint8":
            raise refuse(transform, f"dtype={transform.dtype!r}", "images become uint8")

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return crop_mirror_normalize(images, std=[1.0 / float(self.original.max_value or _BYTE)], dtype=torch.uint8, output_layout="HWC")


class ToTensorV2(Step):
    """A.ToTensorV2: ``CHW``."""

    converts = True

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return transpose(images, perm=[2, 0, 1])

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        return transpose(masks, perm=[2, 0, 1]) if self.original.transpose_mask else masks


class ImageCompression(Step):
    """A.ImageCompression to JPEG. Albumentations hands RGB to OpenCV, which takes it for BGR: red and blue are exchanged for the artifacts."""

    only_bytes = True

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.compression_type != "jpeg":
            raise refuse(transform, f"compression_type={transform.compression_type!r}", "only the artifacts of JPEG have an operator")

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = self.original.quality_range
        return {"quality": draws.integers(low, high + 1)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        if sample.channels != 3:
            raise ValueError(f"{OP}: {self.name} takes images of three channels, got {sample.channels}")
        swapped = permute_channels(images, permutation=[2, 1, 0])
        return permute_channels(jpeg_compression_distortion(swapped, quality=per_sample(params["quality"], torch.int32)), permutation=[2, 1, 0])

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"quality": int(params["quality"][i]), "image_type": ".jpg"}


class Downscale(Step):
    """A.Downscale."""

    only_bytes = True

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if any(number != _pixels.NEAREST for number in transform.interpolation_pair.values()):
            raise refuse(transform, f"interpolation_pair={transform.interpolation_pair}", "resizing twice adds the differences of other filters")

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"scale": draws.uniform(*limits(self.original.scale_range))}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        scale, sizes = params["scale"], torch.stack(sample.sizes, 1)
        small = torch.round(real(sizes) * scale[:, None]).clamp(min=1)
        # OpenCV keeps the factor when it rounds the size; a warp that only scales does so too. It takes the pixel at the upper left corner, and the
        # margin is for rounding where the corner is on a pixel.
        factor, zero = 1.0 / scale, torch.zeros_like(scale)
        shift = 1e-4 - 0.5 * factor
        matrices = _pixels.matrices_of(factor, zero, shift, zero, factor, shift)
        options: dict[str, Any] = {"interp_type": INTERP_NN, "border_mode": "replicate", "size": per_sample(small, torch.int32)}
        return _pixels.resize_window(warp_perspective(images, matrix=per_sample(matrices), **options), None, sizes, _pixels.NEAREST)
