# SPDX-License-Identifier: Apache-2.0
"""Transforms that rotate, warp and deform."""

from typing import Any

import torch
from torchvision.transforms import v2 as reference

from ..._core.values.batch import new_batch
from ...augment._elastic import smooth_planes
from ...ops.shape.join import stack
from .._draws import Column, Draws, check_range, real, round_half_even, to_int
from .._numbers import batch_of
from . import functional as F
from ._base import Batched, RandomTransform, draws_for, query_size
from .functional._matrices import solve_coefficients


class RandomRotation(Batched, reference.RandomRotation):
    """Rotate by a random angle."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw an angle."""
        check_range("RandomRotation", "degrees", self.degrees)
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
        shears = () if self.shear is None else (self.shear[:2], self.shear[2:4])
        for name, limits in (("degrees", self.degrees), ("scale", self.scale), *(("shear", limits) for limits in shears)):
            if limits:
                check_range("RandomAffine", name, limits)
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        angle = draws.result(draws.uniform(self.degrees[0], self.degrees[1]))
        translate: tuple[Column, Column] = (0, 0)
        if self.translate is not None:
            # Relative to the image; the offset is in whole pixels, as torchvision rounds it.
            limits = self.translate[0] * real(width), self.translate[1] * real(height)
            x, y = (round_half_even(draws.uniform(-limit, limit)) for limit in limits)
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


class RandomPerspective(RandomTransform, reference.RandomPerspective):
    """Move the corners by random distances, with the probability ``p``."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the coefficients of :func:`functional.perspective`."""
        draws = draws_for(flat_inputs)
        height, width = query_size(flat_inputs)
        # Corners move at most by half the side times the distortion.
        max_y = to_int(self.distortion_scale * real(height // 2)) + 1
        max_x = to_int(self.distortion_scale * real(width // 2)) + 1
        end, start = [], []
        # Every corner of the image moves inwards; the coefficients follow from the four pairs of points.
        for right, low in ((False, False), (True, False), (True, True), (False, True)):
            x = draws.integers(width - max_x, width) if right else draws.integers(0, max_x)
            y = draws.integers(height - max_y, height) if low else draws.integers(0, max_y)
            corner = (width - 1 if right else 0, height - 1 if low else 0)
            end.append(torch.stack([x, y], 1))
            start.append(torch.stack([torch.as_tensor(coordinate).expand(draws.count) for coordinate in corner], 1))
        coefficients = solve_coefficients(torch.stack(start, 1).to(torch.float64), torch.stack(end, 1).to(torch.float64))
        return {"coefficients": coefficients[0].tolist() if draws.batch_size is None else new_batch(coefficients)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Warp a leaf."""
        fill = self._fill_for(inpt)
        return self._call_kernel(F.perspective, inpt, None, None, fill=fill, interpolation=self.interpolation, **params)


class ElasticTransform(Batched, reference.ElasticTransform):
    """Move pixels by smooth random distances of about ``alpha / 2`` pixels."""

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
    # The noise is drawn and blurred as two planes per sample, x first.
    sizes = torch.stack([torch.as_tensor(extent).expand(draws.count) for extent in (height, width)], 1).to(torch.int64)
    x, y = smooth_planes(sizes, (sigma[0], sigma[1]), "cpu")
    scales = torch.as_tensor(list(alpha), dtype=torch.float64) / sizes.flip(1)
    displacement = stack(x * batch_of(scales[:, 0].float()), y * batch_of(scales[:, 1].float()), axis=2)
    return displacement.evaluate().select(0).torch()[None] if draws.batch_size is None else displacement
