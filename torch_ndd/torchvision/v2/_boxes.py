# SPDX-License-Identifier: Apache-2.0
"""Transforms of boxes and points, and the crop that depends on boxes."""

from typing import Any

import numpy as np
import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, new_batch
from .. import tv_tensors
from .._draws import Draws
from .._sample import (
    batch_size_of,
    flatten,
    get_bounding_boxes,
    get_keypoints,
    has_all,
    has_any,
    is_pure_tensor,
    kind_of,
    labels_of,
    sample_of,
    unflatten,
)
from . import functional as F
from ._base import Batched, draws_for, query_size
from .functional._boxes import find_valid_boxes, find_valid_points, keep_rows
from .functional._coordinates import of_batch


class ConvertBoundingBoxFormat(Batched, reference.ConvertBoundingBoxFormat):
    """Change the format of boxes."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return F.convert_bounding_box_format(inpt, new_format=self.format)


class ClampBoundingBoxes(Batched, reference.ClampBoundingBoxes):
    """Limit boxes to their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Clamp a leaf."""
        return F.clamp_bounding_boxes(inpt, clamping_mode=self.clamping_mode)  # type: ignore[arg-type]


class ClampKeyPoints(Batched, reference.ClampKeyPoints):
    """Limit points to the pixels of their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Clamp a leaf."""
        return F.clamp_keypoints(inpt)


class SetClampingMode(Batched, reference.SetClampingMode):
    """Set the mode in which later transforms clamp boxes to their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Change a leaf."""
        if isinstance(inpt, Batch):
            return inpt.over(inpt.plain(), clamping_mode=self.clamping_mode)  # type: ignore[attr-defined]
        output = inpt.clone()
        output.clamping_mode = self.clamping_mode
        return output


class _Sanitizing(Batched):
    """A transform that removes rows of boxes or points, and the corresponding rows of labels and masks."""

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, passed as one argument or several."""
        sample = sample_of(inputs)
        leaves, spec = flatten(sample)
        if batch_size_of(self._name, leaves) is None:
            return self._reference.forward(self, *inputs)
        labels = labels_of(sample) if self.labels_getter == "default" else self._labels_getter(sample)
        labels = [] if labels is None else [labels] if isinstance(labels, Batch) else list(labels)
        # The rows that are valid are found once, then taken from all leaves that belong to them.
        rows = self._rows(leaves)
        counts = [shape[0] for shape in rows.shape]
        for label in labels:
            if not isinstance(label, Batch):
                raise ValueError(f"{self._name}: the labels of a Batch must be a Batch or None, got {type(label).__name__}")
            if [shape[0] if shape else 1 for shape in label.shape] != counts:
                raise ValueError(f"{self._name}: labels must have one row for each of the {self._what}, got {label.shape} for {rows.shape}")
        valid = self._valid(rows)
        outputs = []
        for leaf in leaves:
            # Labels are compared by identity: equal labels elsewhere in the sample are other data.
            if leaf is rows or any(leaf is label for label in labels) or self._follows(leaf, counts):
                outputs.append(keep_rows(leaf, valid))
            else:
                outputs.append(leaf)
        return unflatten(outputs, spec)

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
    """Remove boxes that are too small or exceed their canvas, with their labels and masks."""

    _reference = reference.SanitizeBoundingBoxes
    _what = "boxes"
    min_size: float
    min_area: float

    def _rows(self, leaves: list[Any]) -> Any:
        return get_bounding_boxes(leaves)

    def _valid(self, rows: Any) -> torch.Tensor:
        return find_valid_boxes(rows, self.min_size, self.min_area)

    def _follows(self, leaf: Any, counts: list[int]) -> bool:
        return kind_of(leaf) is single.Mask and isinstance(leaf, Batch) and leaf.ndim == 3 and [shape[0] for shape in leaf.shape] == counts


class SanitizeKeyPoints(_Sanitizing, reference.SanitizeKeyPoints):
    """Remove points outside their canvas, with their labels; groups of points as a whole."""

    _reference = reference.SanitizeKeyPoints
    _what = "key points"

    def _rows(self, leaves: list[Any]) -> Any:
        return get_keypoints(leaves)

    def _valid(self, rows: Any) -> torch.Tensor:
        return find_valid_points(rows)


class RandomIoUCrop(Batched, reference.RandomIoUCrop):
    """Crop a random window that contains enough of some bounding box, as for SSD.

    Boxes whose centers are outside become 0; :class:`SanitizeBoundingBoxes` removes them.
    """

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Raise TypeError unless there are images and boxes."""
        if not (has_all(flat_inputs, single.BoundingBoxes) and has_any(flat_inputs, PIL.Image.Image, single.Image, is_pure_tensor)):
            raise TypeError(
                f"{self._name}() requires input sample to contain tensor or PIL images and bounding boxes. Sample can also contain masks."
            )

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a window; an empty dict leaves the sample unchanged."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        boxes = get_bounding_boxes(flat_inputs)
        if draws.batch_size is None:
            corners = F.convert_bounding_box_format(boxes.as_subclass(torch.Tensor), boxes.format, tv_tensors.BoundingBoxFormat.XYXY)
            return self._window(Draws(None), int(height), int(width), corners) or {}
        rows = of_batch(boxes)
        corners = F.convert_bounding_box_format(rows.values, boxes.format, tv_tensors.BoundingBoxFormat.XYXY)
        assert rows.owner is not None
        # Rows of a sample are between its first and the next one's: owners are sorted.
        bounds = np.searchsorted(rows.owner.numpy(), np.arange(draws.count + 1))
        windows, inside = [], []
        for i in range(draws.count):
            h, w = (int(extent[i]) if isinstance(extent, torch.Tensor) else int(extent) for extent in (height, width))
            own = corners[bounds[i] : bounds[i + 1]]
            # The window of a sample that stays unchanged.
            whole = {"top": 0, "left": 0, "height": h, "width": w, "is_within_crop_area": torch.ones(len(own), dtype=torch.bool)}
            window = self._window(Draws(None), h, w, own) or whole
            windows.append([window[key] for key in ("top", "left", "height", "width")])
            inside.append(window["is_within_crop_area"])
        table = torch.tensor(windows, dtype=torch.int64)
        named = dict(zip(("top", "left", "height", "width"), table.unbind(1), strict=True))
        return {**named, "is_within_crop_area": torch.cat(inside)}

    def _window(self, draws: Draws, height: int, width: int, corners: torch.Tensor) -> dict[str, Any] | None:
        """Return a window for a sample, None to leave it unchanged."""
        boxes = corners.to(torch.float64).numpy()
        while True:  # as in torchvision, until a window fits or an option of 1 or more is drawn
            min_overlap = self.options[int(draws.integers(0, len(self.options)))]
            if min_overlap >= 1.0:
                return None
            window = self._first_window(draws.unit(self.trials, 4)[0].numpy(), height, width, boxes, min_overlap)
            if window is not None:
                return window

    def _first_window(self, numbers: np.ndarray, height: int, width: int, corners: np.ndarray, min_overlap: float) -> dict[str, Any] | None:
        """Return the window of the first trial that fits."""
        # All trials are computed together: in sequence they took 8 ms per sample.
        scales = self.min_scale + (self.max_scale - self.min_scale) * numbers[:, :2]
        new_w, new_h = _scale_in_float32(width, scales[:, 0]), _scale_in_float32(height, scales[:, 1])
        aspect = new_w / np.maximum(new_h, 1)
        fits = (new_w > 0) & (new_h > 0) & (self.min_aspect_ratio <= aspect) & (aspect <= self.max_aspect_ratio)
        left, top = _scale_in_float32(width - new_w, numbers[:, 2]), _scale_in_float32(height - new_h, numbers[:, 3])
        inside, overlap = _measure_overlap(corners, *(edge[:, None] for edge in (left, top, left + new_w, top + new_h)))
        found = np.flatnonzero(fits & inside.any(1) & (np.where(inside, overlap, -1.0).max(1, initial=-1.0) >= min_overlap))
        if not len(found):
            return None
        # The first trial that fits, as a loop over them would find it.
        k = found[0]
        within = torch.from_numpy(inside[k].copy())
        return {"top": int(top[k]), "left": int(left[k]), "height": int(new_h[k]), "width": int(new_w[k]), "is_within_crop_area": within}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Crop a leaf."""
        if not params:
            return inpt
        output: Any = self._call_kernel(F.crop, inpt, **{key: params[key] for key in ("top", "left", "height", "width")})
        if kind_of(output) is not single.BoundingBoxes:
            return output
        # Boxes that are not in the window are set to 0; torchvision leaves it to SanitizeBoundingBoxes to remove them.
        if not isinstance(output, Batch):
            output[~params["is_within_crop_area"]] = 0
            return output
        boxes: Any = output
        values = boxes.wait().clone()
        values.reshape(-1, tv_tensors.box_columns(boxes.format))[~params["is_within_crop_area"]] = 0
        return boxes.over(new_batch(values, boxes.ragged_shapes, boxes.layout))


def _scale_in_float32(extent: Any, factors: np.ndarray) -> np.ndarray:
    """Return extents times factors, truncated, in float32 like torchvision: in double some windows differ by a pixel."""
    return (np.asarray(extent, np.float32) * factors.astype(np.float32)).astype(np.int64)


def _measure_overlap(corners: np.ndarray, left: Any, top: Any, right: Any, bottom: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return whether the centers of boxes are inside the windows, and intersection over union, (windows, boxes)."""
    x1, y1, x2, y2 = corners.T
    x, y = 0.5 * (x1 + x2), 0.5 * (y1 + y2)
    w = np.maximum(np.minimum(x2, right) - np.maximum(x1, left), 0.0)
    h = np.maximum(np.minimum(y2, bottom) - np.maximum(y1, top), 0.0)
    union = (x2 - x1) * (y2 - y1) + (right - left) * (bottom - top) - w * h
    return (left < x) & (x < right) & (top < y) & (y < bottom), w * h / np.maximum(union, 1e-300)
