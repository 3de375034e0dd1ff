# SPDX-License-Identifier: Apache-2.0
"""Transforms that mix the samples of a batch and their labels."""

import math
from typing import Any

import numpy as np
import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, as_batch, new_batch
from ...augment._mixing import blend, mix_labels
from ...ops.geometry._paste_boxes import paste_boxes
from .. import tv_tensors
from .._draws import Draws
from .._sample import batch_size_of, check_type, flatten, has_any, is_pure_tensor, labels_of, sample_of, unflatten
from ._base import Batched, query_size
from .functional._dispatch import as_images

# torch.distributions.Beta never returns 0 or 1. With a small alpha, float32 often rounds to them.
_MIN_WEIGHT, _MAX_WEIGHT = np.finfo(np.float32).tiny, np.nextafter(np.float32(1), np.float32(0))


class _Mixing(Batched):
    """A transform that mixes each image of a batch and its label with the previous one, with one draw for the batch."""

    _takes_tensors = False
    num_classes: int | None
    alpha: float

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        super().__init__(alpha=alpha, num_classes=num_classes, labels_getter=labels_getter)  # type: ignore[call-arg]
        if labels_getter == "default":  # torchvision's function does not accept a Batch
            self._labels_getter = labels_of

    def forward(self, *inputs: Any) -> Any:
        """Mix a batch: images ``(N, C, H, W)`` or a Batch of equal shapes, and labels ``(N,)`` or ``(N, classes)``."""
        sample = sample_of(inputs)
        leaves, spec = flatten(sample)
        # Only for its check: all Batches of the sample must have one size.
        batch_size_of(self._name, leaves)
        if has_any(leaves, PIL.Image.Image, single.BoundingBoxes, single.Mask, single.KeyPoints):
            raise ValueError(f"{self._name}() does not support PIL images, bounding boxes, keypoints and masks.")
        original = self._labels_getter(sample)
        labels = self._as_label_tensor(original)
        needs = self._needs_transform_list(leaves)
        params = self.make_params([leaf for leaf, wanted in zip(leaves, needs, strict=True) if wanted])
        params |= {"labels": original, "batch_size": len(labels)}
        outputs = []
        for leaf, wanted in zip(leaves, needs, strict=True):
            if leaf is original:
                mixed = _mix_labels(labels, params["lam_adjusted"] if "lam_adjusted" in params else params["lam"], self.num_classes)
                # Labels keep their form, a Batch or a tensor.
                outputs.append(new_batch(mixed) if isinstance(leaf, Batch) else mixed)
            else:
                outputs.append(self.transform(leaf, params) if wanted else leaf)
        return unflatten(outputs, spec)

    def _as_label_tensor(self, value: Any) -> torch.Tensor:
        """Return the labels as a tensor (N,) or (N, classes)."""
        labels = value
        if isinstance(value, Batch):
            if value.ragged_shapes is not None:
                raise ValueError(f"{self._name}: all labels of a Batch must have the same shape, got {value.shape}")
            labels = value.wait()
            if labels.dim() == 2 and labels.shape[1] == 1 and not labels.dtype.is_floating_point:  # readers return (1,)
                labels = labels[:, 0]
        if not isinstance(labels, torch.Tensor):
            raise ValueError(f"The labels must be a tensor, but got {type(labels)} instead.")
        if labels.ndim not in (1, 2):
            raise ValueError(f"{self._name}: labels have the shape (batch_size,) or (batch_size, num_classes), got {tuple(labels.shape)}")
        if labels.ndim == 2 and self.num_classes is not None and labels.shape[-1] != self.num_classes:
            raise ValueError(f"{self._name}: labels have {labels.shape[-1]} classes, but num_classes is {self.num_classes}; leave it None")
        if labels.ndim == 1 and self.num_classes is None:
            raise ValueError("num_classes must be passed if the labels are index-based (1D)")
        return labels

    def _images(self, inpt: Any, batch_size: int) -> Batch:
        """Return the images of a leaf as a Batch."""
        if isinstance(inpt, Batch):
            if inpt.ragged_shapes is not None:
                raise ValueError(f"{self._name}: all images of a Batch must have the same shape, got {inpt.shape[:4]}")
            return as_images(self._name, inpt)
        ndim = 5 if isinstance(inpt, single.Video) else 4
        if inpt.ndim != ndim:
            raise ValueError(f"Expected a batched input with {ndim} dims, but got {inpt.ndim} dimensions instead.")
        if inpt.shape[0] != batch_size:
            raise ValueError(f"The batch size of the image or video does not match the batch size of the labels: {inpt.shape[0]} != {batch_size}.")
        return as_batch(inpt.as_subclass(torch.Tensor), layout="FCHW" if ndim == 5 else "CHW")

    def _restore_kind(self, mixed: Batch, inpt: Any) -> Any:
        """Return mixed images with the kind of the input."""
        if isinstance(inpt, Batch):
            plain = as_batch(mixed, layout=inpt.layout)
            return inpt.over(plain) if tv_tensors.is_typed(inpt) else plain
        values = mixed.torch()
        return values if is_pure_tensor(inpt) else tv_tensors.wrap(values, like=inpt)

    def _draw_weight(self) -> float:
        draws = Draws(None)
        a, b = float(draws.gamma(self.alpha)), float(draws.gamma(self.alpha))
        # Beta(alpha, alpha) by two draws of the gamma distribution; for tiny alphas both may be 0.
        weight = np.float32(a / (a + b) if a + b > 0 else 0.5)
        return float(np.clip(weight, _MIN_WEIGHT, _MAX_WEIGHT))


def _previous_samples(batch_size: int) -> torch.Tensor:
    """Return the index of the previous sample for each, int64 (N,); for the first it is the last."""
    return torch.arange(batch_size).roll(1)


def _mix_labels(labels: torch.Tensor, weight: float, classes: int | None) -> torch.Tensor:
    """Return one-hot labels, each mixed with the previous one."""
    if labels.ndim == 1:
        labels = torch.nn.functional.one_hot(labels.long(), num_classes=classes or -1)
    soft = labels if labels.dtype.is_floating_point else labels.float()
    return mix_labels(soft, _previous_samples(len(soft)), torch.full((len(soft),), weight, dtype=torch.float64))


class MixUp(_Mixing, reference.MixUp):
    """torchvision's spelling of :func:`torch_ndd.augment.mixup`: blend each image and label with the previous one, by one random weight."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the weight."""
        return {"lam": self._draw_weight()}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Blend the images of a leaf."""
        if not check_type(inpt, (single.Image, single.Video, is_pure_tensor)):
            return inpt
        images = self._images(inpt, params["batch_size"])
        if not images.dtype.is_floating_point:
            raise RuntimeError(
                f"MixUp: images must be of a floating-point type, got {images.dtype}; convert them with ToDtype(torch.float32, scale=True)"
            )
        size = images.batch_size
        return self._restore_kind(blend(images, _previous_samples(size), np.full(size, params["lam"]), dtype=images.dtype), inpt)


class CutMix(_Mixing, reference.CutMix):
    """torchvision's spelling of :func:`torch_ndd.augment.cutmix`: paste a random window of the previous image, and mix the labels by its area."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the window."""
        weight, draws = self._draw_weight(), Draws(None)
        height, width = query_size(flat_inputs)
        if isinstance(height, torch.Tensor) or isinstance(width, torch.Tensor):
            raise ValueError("CutMix: all images of a Batch must have the same shape")
        x, y = int(draws.integers(0, width)), int(draws.integers(0, height))
        # The window is clipped to the image, so the weight of the labels follows from its area.
        half = 0.5 * math.sqrt(1.0 - weight)
        w, h = int(half * width), int(half * height)
        x1, y1, x2, y2 = max(x - w, 0), max(y - h, 0), min(x + w, width), min(y + h, height)
        return {"box": (x1, y1, x2, y2), "lam_adjusted": 1.0 - (x2 - x1) * (y2 - y1) / (width * height)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Paste into the images of a leaf."""
        if not check_type(inpt, (single.Image, single.Video, is_pure_tensor)):
            return inpt
        images = self._images(inpt, params["batch_size"])
        boxes = torch.tensor([params["box"]]).expand(images.batch_size, 4).contiguous()
        return self._restore_kind(paste_boxes(images, _previous_samples(images.batch_size), boxes), inpt)
