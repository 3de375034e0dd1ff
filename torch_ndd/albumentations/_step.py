# SPDX-License-Identifier: Apache-2.0
"""The base class of translated transforms."""

from typing import Any, ClassVar

import torch

from .._core.values.batch import Batch, as_batch
from ..torchvision._draws import Draws
from ._sample import OP, Rows, Sample, transform_where

Params = dict[str, torch.Tensor]
"""What a step draws: for each name one number or row per sample."""


class Step:
    """One translated transform: it draws parameters, one per sample, and changes the targets by them.

    Subclasses override :meth:`change_images`, and the methods of the other targets if those move with the image. :meth:`arguments` says with which
    keyword arguments ``apply`` of the original does the same to one image: the check at translation and the tests compare by it.
    """

    only_bytes: ClassVar[bool] = False
    """Whether images must be uint8."""
    random_pixels: ClassVar[bool] = False
    """Whether every pixel is random, so the results cannot equal the original's."""
    converts: ClassVar[bool] = False
    """Whether the results have another type or layout."""

    def __init__(self, transform: Any) -> None:
        self.original = transform
        self.name = type(transform).__name__
        self.p = float(transform.p)

    def __call__(self, sample: Sample, draws: Draws, forced: bool = False) -> Sample:
        """Transform each sample with the probability ``p``; all of them if ``forced``, as by OneOf. A probability of 0 is never forced."""
        if self.p <= 0:
            return sample
        if forced or self.p >= 1:
            return self.transform_all(sample, draws)
        acts = draws.happens(self.p)
        neutral = self.neutral_params()
        if neutral is None:
            return transform_where(acts, sample, lambda part: self.transform_all(part, draws.for_samples(part.count)))
        params = self.draw(sample, draws)
        for name, value in neutral.items():
            drawn = params[name]
            params[name] = torch.where(acts.reshape(-1, *[1] * (drawn.dim() - 1)), drawn, torch.as_tensor(value, dtype=drawn.dtype))
        return self.change(sample, params)

    def convert_empty(self, sample: Sample) -> Sample:
        """Give a sample without images the type and the layout that others would have. There is nothing to draw for."""
        return self.change(sample, {}) if self.converts and self.p > 0 else sample

    def transform_all(self, sample: Sample, draws: Draws) -> Sample:
        """Transform all samples."""
        return self.change(sample, self.draw(sample, draws))

    def change(self, sample: Sample, params: Params) -> Sample:
        """Change all targets by these parameters."""
        if self.only_bytes and (found := next((image.dtype for image in sample.images.values() if image.dtype is not torch.uint8), None)):
            raise TypeError(f"{OP}: {self.name} takes uint8 images, got {found}; put it in front of Normalize and ToFloat")
        # The axes of most steps are numbers, which would be other axes of planes.
        if any(image.layout == "CHW" for image in sample.images.values()):
            raise TypeError(f"{OP}: {self.name} takes HWC images; put it in front of ToTensorV2")
        return Sample(
            {name: self.change_images(images, params, sample) for name, images in sample.images.items()},
            {name: self.change_masks(masks, params, sample) for name, masks in sample.masks.items()},
            {name: self.change_boxes(rows, params, sample) for name, rows in sample.boxes.items()},
            {name: self.change_points(rows, params, sample) for name, rows in sample.points.items()},
        )

    # --- for subclasses ---

    def neutral_params(self) -> dict[str, Any] | None:
        """Return parameters that change nothing, for samples that ``p`` leaves out; None if the batch has to be split."""
        return None

    def draw(self, sample: Sample, draws: Draws) -> Params:
        """Return the parameters of all samples."""
        return {}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        """Return the changed images."""
        raise NotImplementedError

    def change_masks(self, masks: Batch, params: Params, sample: Sample) -> Batch:
        """Return the changed masks."""
        return masks

    def change_boxes(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        """Return the changed boxes."""
        return rows

    def change_points(self, rows: Rows, params: Params, sample: Sample) -> Rows:
        """Return the changed points."""
        return rows

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        """Return the keyword arguments of the original's ``apply`` that correspond to the parameters of sample ``i``."""
        return {name: value[i].tolist() for name, value in params.items()}

    def __repr__(self) -> str:
        return repr(self.original)


def per_sample(numbers: torch.Tensor, dtype: torch.dtype = torch.float32) -> Batch:
    """Return numbers as a per-sample argument of an operator."""
    return as_batch(numbers.to(dtype).contiguous())


def limits(value: Any) -> tuple[float, float]:
    """Return a range of Albumentations, which may be a single number."""
    return (float(value[0]), float(value[1])) if isinstance(value, tuple | list) else (float(value), float(value))


def refuse(transform: Any, setting: str, reason: str) -> ValueError:
    """Return the error for a setting that is not translated."""
    return ValueError(f"{OP}: {type(transform).__name__}({setting}) is not translated: {reason}")
