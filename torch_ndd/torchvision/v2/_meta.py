# SPDX-License-Identifier: Apache-2.0
"""Transforms of boxes and points only."""

from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch
from .._sample import batch_size_of, flatten, get_bounding_boxes, get_keypoints, kind_of, labels_of, sample_of, unflatten
from . import functional as F
from ._transform import Batched
from .functional._meta import kept_rows, valid_boxes, valid_points


class ConvertBoundingBoxFormat(Batched, reference.ConvertBoundingBoxFormat):
    """Change the format of boxes."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return F.convert_bounding_box_format(inpt, new_format=self.format)


class ClampBoundingBoxes(Batched, reference.ClampBoundingBoxes):
    """Limit boxes to their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Clamp a leaf."""
        return F.clamp_bounding_boxes(inpt, clamping_mode=self.clamping_mode)


class ClampKeyPoints(Batched, reference.ClampKeyPoints):
    """Limit points to the pixels of their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Clamp a leaf."""
        return F.clamp_keypoints(inpt)


class SetClampingMode(Batched, reference.SetClampingMode):
    """Set how later transforms limit boxes to their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Change a leaf."""
        if isinstance(inpt, Batch):
            return inpt.over(inpt.plain(), clamping_mode=self.clamping_mode)  # type: ignore[attr-defined]
        made = inpt.clone()
        made.clamping_mode = self.clamping_mode
        return made


class _Sanitizing(Batched):
    """A transform that removes rows of boxes or points, and of what belongs to them."""

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, given as one argument or several."""
        sample = sample_of(inputs)
        leaves, spec = flatten(sample)
        if batch_size_of(self._name, leaves) is None:
            return self._reference.forward(self, *inputs)
        labels = labels_of(sample) if self.labels_getter == "default" else self._labels_getter(sample)
        labels = [] if labels is None else [labels] if isinstance(labels, Batch) else list(labels)
        rows = self._rows(leaves)
        counts = [shape[0] for shape in rows.shape]
        for one in labels:
            if not isinstance(one, Batch):
                raise ValueError(f"{self._name}: the labels of a Batch must be a Batch or None, got {type(one).__name__}")
            if [shape[0] if shape else 1 for shape in one.shape] != counts:
                raise ValueError(f"{self._name}: the number of labels must be that of the {self._what}, got {one.shape} for {rows.shape}")
        valid = self._valid(rows)
        made = []
        for leaf in leaves:
            if leaf is rows or any(leaf is one for one in labels) or self._follows(leaf, counts):
                made.append(kept_rows(leaf, valid))
            else:
                made.append(leaf)
        return unflatten(made, spec)

    _reference: type
    _what: str
    labels_getter: Any
    _labels_getter: Any

    def _rows(self, leaves: list[Any]) -> Any:
        raise NotImplementedError

    def _valid(self, rows: Any) -> torch.Tensor:
        raise NotImplementedError

    def _follows(self, leaf: Any, counts: list[int]) -> bool:
        return False


class SanitizeBoundingBoxes(_Sanitizing, reference.SanitizeBoundingBoxes):
    """Remove boxes that are too small or leave their canvas, with their labels and masks."""

    _reference = reference.SanitizeBoundingBoxes
    _what = "boxes"
    min_size: float
    min_area: float

    def _rows(self, leaves: list[Any]) -> Any:
        return get_bounding_boxes(leaves)

    def _valid(self, rows: Any) -> torch.Tensor:
        return valid_boxes(rows, self.min_size, self.min_area)

    def _follows(self, leaf: Any, counts: list[int]) -> bool:
        return kind_of(leaf) is single.Mask and isinstance(leaf, Batch) and leaf.ndim == 3 and [shape[0] for shape in leaf.shape] == counts


class SanitizeKeyPoints(_Sanitizing, reference.SanitizeKeyPoints):
    """Remove points outside their canvas, with their labels; groups of points as a whole."""

    _reference = reference.SanitizeKeyPoints
    _what = "key points"

    def _rows(self, leaves: list[Any]) -> Any:
        return get_keypoints(leaves)

    def _valid(self, rows: Any) -> torch.Tensor:
        return valid_points(rows)
