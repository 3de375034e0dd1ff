# SPDX-License-Identifier: Apache-2.0
"""Transforms that rotate, warp and deform, and the crop for detectors."""

from typing import Any

import numpy as np
import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, new_batch
from ...augment._elastic import smooth_planes
from ...ops.shape.join import stack
from .. import tv_tensors
from .._draws import Column, Draws, real, rounded, to_int
from .._numbers import batch_of
from .._sample import get_bounding_boxes, has_all, has_any, is_pure_tensor, kind_of
from . import functional as F
from ._transform import Batched, RandomApplied, draws_for, query_size
from .functional._coordinates import of_batch
from .functional._matrices import solved_coefficients


class RandomRotation(Batched, reference.RandomRotation):
    """Rotate by a random angle."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw an angle."""
        draws = draws_for(flat_inputs)
        return {"angle": draws.result(draws.uniform(self.degrees[0], self.degrees[1]))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Rotate a leaf."""
        options = {"interpolation": self.interpolation, "expand": self.expand, "center": self.center, "fill": self._fill_for(inpt)}
        return self._call_kernel(F.rotate, inpt, **params, **options)


class RandomAffine(Batched, reference.RandomAffine):
    """Rotate, move, scale and shear by random numbers."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the arguments of :func:`functional.affine`."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        angle = draws.result(draws.uniform(self.degrees[0], self.degrees[1]))
        translate: tuple[Column, Column] = (0, 0)
        if self.translate is not None:
            most = self.translate[0] * real(width), self.translate[1] * real(height)
            x, y = (rounded(draws.uniform(-one, one)) for one in most)
            translate = draws.result(x, int), draws.result(y, int)
        scale: Column = 1.0
        if self.scale is not None:
            scale = draws.result(draws.uniform(self.scale[0], self.scale[1]))
        shear: tuple[Column, Column] = (0.0, 0.0)
        if self.shear is not None:
            along_x = draws.result(draws.uniform(self.shear[0], self.shear[1]))
            shear = (along_x, draws.result(draws.uniform(self.shear[2], self.shear[3])) if len(self.shear) == 4 else 0.0)
        return {"angle": angle, "translate": translate, "scale": scale, "shear": shear}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Warp a leaf."""
        return self._call_kernel(F.affine, inpt, **params, interpolation=self.interpolation, fill=self._fill_for(inpt), center=self.center)


class RandomPerspective(RandomApplied, reference.RandomPerspective):
    """Move the corners by random distances, with the probability ``p``."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the coefficients of :func:`functional.perspective`."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        far_y = to_int(self.distortion_scale * real(height // 2)) + 1
        far_x = to_int(self.distortion_scale * real(width // 2)) + 1
        end, start = [], []
        for right, low in ((False, False), (True, False), (True, True), (False, True)):
            x = draws.integers(width - far_x, width) if right else draws.integers(0, far_x)
            y = draws.integers(height - far_y, height) if low else draws.integers(0, far_y)
            corner = (width - 1 if right else 0, height - 1 if low else 0)
            end.append(torch.stack([x, y], 1))
            start.append(torch.stack([torch.as_tensor(one).expand(draws.count) for one in corner], 1))
        found = solved_coefficients(torch.stack(start, 1).to(torch.float64), torch.stack(end, 1).to(torch.float64))
        return {"coefficients": found[0].tolist() if draws.batch_size is None else new_batch(found)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Warp a leaf."""
        fill = self._fill_for(inpt)
        return self._call_kernel(F.perspective, inpt, None, None, fill=fill, interpolation=self.interpolation, **params)


class ElasticTransform(Batched, reference.ElasticTransform):
    """Move pixels by smooth random distances of about ``alpha`` half pixels."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a displacement: ``(1, H, W, 2)``, or a Batch ``(H, W, 2)``."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        return {"displacement": smooth_displacements(draws, height, width, self.alpha, self.sigma)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Deform a leaf."""
        return self._call_kernel(F.elastic, inpt, **params, fill=self._fill_for(inpt), interpolation=self.interpolation)


def smooth_displacements(draws: Draws, height: Column, width: Column, alpha: Any, sigma: Any) -> Any:
    """Return blurred uniform numbers from -1 to 1, times ``alpha`` and divided by width and height: a tensor, or a Batch."""
    sizes = torch.stack([torch.as_tensor(one).expand(draws.count) for one in (height, width)], 1).to(torch.int64)
    x, y = smooth_planes(sizes, (sigma[0], sigma[1]))
    scales = torch.as_tensor(list(alpha), dtype=torch.float64) / sizes.flip(1)
    made = stack(x * batch_of(scales[:, 0].float()), y * batch_of(scales[:, 1].float()), axis=2)
    return made.evaluate().select(0).torch()[None] if draws.batch_size is None else made


class RandomIoUCrop(Batched, reference.RandomIoUCrop):
    """Cut a random window out that holds enough of some bounding box, as for SSD.

    Boxes whose centers are outside become 0; :class:`SanitizeBoundingBoxes` removes them.
    """

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Raise TypeError unless there are images and boxes."""
        if not (has_all(flat_inputs, single.BoundingBoxes) and has_any(flat_inputs, PIL.Image.Image, single.Image, is_pure_tensor)):
            raise TypeError(
                f"{self._name}() requires input sample to contain tensor or PIL images and bounding boxes. Sample can also contain masks."
            )

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a window; an empty dict leaves the sample as it is."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        boxes = get_bounding_boxes(flat_inputs)
        if draws.batch_size is None:
            corners = F.convert_bounding_box_format(boxes.as_subclass(torch.Tensor), boxes.format, tv_tensors.BoundingBoxFormat.XYXY)
            return self._window(Draws(None), int(height), int(width), corners) or {}
        rows = of_batch(boxes)
        corners = F.convert_bounding_box_format(rows.values, boxes.format, tv_tensors.BoundingBoxFormat.XYXY)
        assert rows.owner is not None
        places = np.searchsorted(rows.owner.numpy(), np.arange(draws.count + 1))
        windows, inside = [], []
        for i in range(draws.count):
            h, w = (int(one[i]) if isinstance(one, torch.Tensor) else int(one) for one in (height, width))
            own = corners[places[i] : places[i + 1]]
            made = self._window(Draws(None), h, w, own) or {
                "top": 0,
                "left": 0,
                "height": h,
                "width": w,
                "is_within_crop_area": torch.ones(len(own), dtype=torch.bool),
            }
            windows.append([made[key] for key in ("top", "left", "height", "width")])
            inside.append(made["is_within_crop_area"])
        table = torch.tensor(windows, dtype=torch.int64)
        named = dict(zip(("top", "left", "height", "width"), table.unbind(1), strict=True))
        return {**named, "is_within_crop_area": torch.cat(inside)}

    def _window(self, draws: Draws, height: int, width: int, corners: torch.Tensor) -> dict[str, Any] | None:
        """Return a window for a sample, None to leave it as it is."""
        boxes = corners.to(torch.float64).numpy()
        while True:
            least = self.options[int(draws.integers(0, len(self.options)))]
            if least >= 1.0:
                return None
            made = self._first_window(draws.unit(self.trials, 4)[0].numpy(), height, width, boxes, least)
            if made is not None:
                return made

    def _first_window(self, numbers: np.ndarray, height: int, width: int, corners: np.ndarray, least: float) -> dict[str, Any] | None:
        """Return the window of the first trial that fits. All are tried at once: one by one they took 8 ms for each sample."""
        scales = self.min_scale + (self.max_scale - self.min_scale) * numbers[:, :2]
        new_w, new_h = _scaled(width, scales[:, 0]), _scaled(height, scales[:, 1])
        aspect = new_w / np.maximum(new_h, 1)
        fits = (new_w > 0) & (new_h > 0) & (self.min_aspect_ratio <= aspect) & (aspect <= self.max_aspect_ratio)
        left, top = _scaled(width - new_w, numbers[:, 2]), _scaled(height - new_h, numbers[:, 3])
        inside, overlap = _inside_and_overlap(corners, *(one[:, None] for one in (left, top, left + new_w, top + new_h)))
        found = np.flatnonzero(fits & inside.any(1) & (np.where(inside, overlap, -1.0).max(1, initial=-1.0) >= least))
        if not len(found):
            return None
        k = found[0]
        within = torch.from_numpy(inside[k].copy())
        return {"top": int(top[k]), "left": int(left[k]), "height": int(new_h[k]), "width": int(new_w[k]), "is_within_crop_area": within}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Crop a leaf."""
        if not params:
            return inpt
        made: Any = self._call_kernel(F.crop, inpt, **{key: params[key] for key in ("top", "left", "height", "width")})
        if kind_of(made) is not single.BoundingBoxes:
            return made
        if not isinstance(made, Batch):
            made[~params["is_within_crop_area"]] = 0
            return made
        boxes: Any = made
        values = boxes.wait().clone()
        values.reshape(-1, tv_tensors.box_columns(boxes.format))[~params["is_within_crop_area"]] = 0
        return boxes.over(new_batch(values, boxes.ragged_shapes, boxes.layout))


def _scaled(extent: Any, factors: np.ndarray) -> np.ndarray:
    """Return extents times factors, truncated; in float32, as torchvision does."""
    return (np.asarray(extent, np.float32) * factors.astype(np.float32)).astype(np.int64)


def _inside_and_overlap(corners: np.ndarray, left: Any, top: Any, right: Any, bottom: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return whether the centers of boxes are inside of windows, and intersection over union."""
    x1, y1, x2, y2 = corners.T
    x, y = 0.5 * (x1 + x2), 0.5 * (y1 + y2)
    w = np.maximum(np.minimum(x2, right) - np.maximum(x1, left), 0.0)
    h = np.maximum(np.minimum(y2, bottom) - np.maximum(y1, top), 0.0)
    union = (x2 - x1) * (y2 - y1) + (right - left) * (bottom - top) - w * h
    return (left < x) & (x < right) & (top < y) & (y < bottom), w * h / np.maximum(union, 1e-300)
