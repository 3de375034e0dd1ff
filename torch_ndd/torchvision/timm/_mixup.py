# SPDX-License-Identifier: Apache-2.0
"""timm's Mixup: mixup and CutMix of a batch with its reverse, with label smoothing."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..._core.native.default_device import ignore_default_device
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, new_batch
from ...augment._mixing import blend, mix_labels, smooth_labels, soft_labels
from ...ops.geometry._paste_boxes import paste_boxes
from .._draws import Draws

Mode = Literal["batch", "pair", "elem"]


class Mixup:
    """Mix every image of a batch and its label with those at the mirrored position: the first with the last.

    The parameters, distributions and results are those of ``timm.data.Mixup``; images are a Batch, and in a batch of an odd number of samples the
    middle one is mixed with itself. New programs use :func:`torch_ndd.augment.mixup_or_cutmix`; this is timm's spelling of it.

    Args:
        mixup_alpha: parameter of the beta distribution of mixup; 0 switches it off.
        cutmix_alpha: that of CutMix.
        cutmix_minmax: smallest and largest side of CutMix's box relative to the image, instead of ``cutmix_alpha``.
        prob: probability of mixing, for the batch, or for every pair or sample.
        switch_prob: probability of CutMix where both are on.
        mode: draw once per "batch", "pair" or sample ("elem").
        correct_lam: weigh labels by the area of the clipped box.
        label_smoothing: part of a label that is spread over all classes.
        num_classes: number of classes.

    Raises:
        ValueError: another mode, fewer than 2 classes; at the call, images of different shapes or other labels.

    >>> images = batch(torch.rand(4, 3, 8, 8), layout="CHW")
    >>> images, targets = Mixup(mixup_alpha=0.8, num_classes=10)(images, torch.tensor([1, 2, 3, 4]))
    >>> images.shape[0], targets.torch().shape
    ((3, 8, 8), torch.Size([4, 10]))
    """

    def __init__(
        self,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 0.0,
        cutmix_minmax: Sequence[float] | None = None,
        prob: float = 1.0,
        switch_prob: float = 0.5,
        mode: Mode = "batch",
        correct_lam: bool = True,
        label_smoothing: float = 0.1,
        num_classes: int = 1000,
    ) -> None:
        check_choice("Mixup", "mode", mode, get_args(Mode), ValueError)
        if isinstance(num_classes, bool) or not isinstance(num_classes, Integral) or num_classes < 2:
            raise ValueError(f"Mixup: num_classes must be an integer from 2 on: labels of a single class are all equal; got {num_classes!r}")
        if cutmix_minmax is not None and len(cutmix_minmax) != 2:
            raise ValueError(f"Mixup: cutmix_minmax must be two numbers, got {cutmix_minmax!r}")
        self.mixup_alpha, self.cutmix_alpha = mixup_alpha, cutmix_alpha if cutmix_minmax is None else 1.0
        if self.mixup_alpha <= 0 and self.cutmix_alpha <= 0:
            raise ValueError("Mixup: mixup_alpha or cutmix_alpha must be positive, or cutmix_minmax given")
        self.cutmix_minmax = cutmix_minmax
        self.prob, self.switch_prob, self.mode, self.correct_lam = prob, switch_prob, mode, correct_lam
        self.label_smoothing, self.num_classes = label_smoothing, num_classes

    @ignore_default_device
    def __call__(self, images: Batch, labels: Any) -> tuple[Batch, Batch]:
        """Return the mixed images and soft labels, float32 (classes,).

        Args:
            images: a Batch ``CHW`` or ``HWC`` of floats, of equal shapes.
            labels: a class per sample, integers (N,) or (N, 1).

        Raises:
            ValueError: another layout, different shapes, labels that do not fit.
            TypeError: ``images`` that are not a Batch.
        """
        if not isinstance(images, Batch):
            raise TypeError(f"Mixup: images must be a Batch, got {type(images).__name__}; convert them with batch() or as_batch()")
        if images.ragged_shapes is not None or images.layout not in ("CHW", "HWC"):
            raise ValueError("Mixup: images must be a Batch CHW or HWC of equal shapes; resize or crop them first")
        size = images.batch_size
        soft = soft_labels("Mixup", labels, self.num_classes, size)
        assert soft is not None
        is_cutmix, share, boxes = self._draw(images)
        order = torch.arange(size).flip(0)
        mixed = paste_boxes(images, order, torch.from_numpy(boxes)) if is_cutmix.any() else images
        if bool((share[~is_cutmix] != 1.0).any()):
            mixed = blend(mixed, order, np.where(is_cutmix, 1.0, share), images)
        if self.label_smoothing:
            soft = smooth_labels("Mixup", soft, self.label_smoothing)
            assert soft is not None
        targets = mix_labels(soft, order, torch.from_numpy(share))
        return mixed, new_batch(targets)

    def _draw(self, images: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each sample whether it is CutMix's, the share of its own pixels, and the box: left, top, right, bottom."""
        size = images.batch_size
        height, width = (images.buffer.shape[1 + (images.layout or "").index(letter)] for letter in "HW")
        count = 1 if self.mode == "batch" else size // 2 if self.mode == "pair" else size
        draws = Draws(count)
        switches = self.mixup_alpha > 0 and self.cutmix_alpha > 0
        is_cutmix = draws.happens(self.switch_prob).numpy() if switches else np.full(count, self.cutmix_alpha > 0)
        lam = np.where(is_cutmix, self._draw_beta(draws, self.cutmix_alpha), self._draw_beta(draws, self.mixup_alpha))
        lam = np.where(draws.unit().numpy() < self.prob, lam, 1.0)
        is_cutmix = is_cutmix & (lam != 1.0)
        # Boxes are drawn for all rows, so the number of draws does not depend on the modes that were drawn.
        boxes = self._draw_boxes(draws, lam, height, width)
        boxes[~is_cutmix] = 0
        if self.correct_lam or self.cutmix_minmax is not None:
            area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
            lam = np.where(is_cutmix, 1.0 - area / max(1, height * width), lam)
        if self.mode == "elem":
            return is_cutmix, lam, boxes
        if not count:
            return np.zeros(size, bool), np.ones(size), np.zeros((size, 4), np.int64)
        # Both samples of a pair have its row.
        index = np.arange(size)
        rows = np.zeros(size, np.int64) if self.mode == "batch" else np.minimum(index, size - 1 - index).clip(max=count - 1)
        return is_cutmix[rows], lam[rows], boxes[rows]

    @staticmethod
    def _draw_beta(draws: Draws, alpha: float) -> np.ndarray:
        return draws.dirichlet(alpha, 2)[:, 0].numpy() if alpha > 0 else np.ones(draws.count)

    def _draw_boxes(self, draws: Draws, lam: np.ndarray, height: int, width: int) -> np.ndarray:
        if self.cutmix_minmax is not None:
            sides = []
            for extent in (height, width):
                low, high = (int(extent * limit) for limit in self.cutmix_minmax)
                cut = draws.integers(low, max(high, low + 1))
                start = draws.integers(0, extent - cut + 1)
                sides.append((start.numpy(), (start + cut).numpy()))
            (top, bottom), (left, right) = sides
            return np.stack([left, top, right, bottom], 1)
        # timm's box around a center, clipped to the image; correct_lam takes the clipped area.
        ratio = np.sqrt(1.0 - lam)
        edges = []
        for extent in (height, width):
            cut, center = (extent * ratio).astype(np.int64), draws.integers(0, extent).numpy()
            edges.append((np.clip(center - cut // 2, 0, extent), np.clip(center + (cut + 1) // 2, 0, extent)))
        (top, bottom), (left, right) = edges
        return np.stack([left, top, right, bottom], 1)
