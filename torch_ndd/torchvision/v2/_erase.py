# SPDX-License-Identifier: Apache-2.0
"""Random erasing."""

from typing import Any

import torch
from torchvision.transforms import v2 as reference

from ..._core.values.batch import new_batch
from ...random import normal
from .._draws import Draws, check_range, to_int
from ._base import RandomTransform, draws_for, query_chw
from ._geometry import warn_of_passing


class RandomErasing(RandomTransform, reference.RandomErasing):
    """Overwrite a window of random area and aspect ratio, with the probability ``p``."""

    def _transform_sample(self, leaves: list[Any], size: int | None) -> list[Any] | None:
        if size is None or self.value is None:  # noise has a value per pixel: there is no window of one color
            return super()._transform_sample(leaves, size)
        needs = self._needs_transform_list(leaves)
        params = self.windows([leaf for leaf, wanted in zip(leaves, needs, strict=True) if wanted], size)
        return [self.transform(leaf, params) if wanted else leaf for leaf, wanted in zip(leaves, needs, strict=True)]

    def windows(self, flat_inputs: list[Any], size: int) -> dict[str, Any]:
        """Draw a window for each sample of a batch, with an area of 0 where the sample is not erased."""
        acts, params = Draws(size).happens(self.p), self.make_params(flat_inputs)
        return {**params, **{key: torch.where(acts, params[key], 0) for key in ("h", "w")}}

    def _call_kernel(self, functional: Any, inpt: Any, *args: Any, **kwargs: Any) -> Any:
        warn_of_passing(self._name, inpt)
        return super()._call_kernel(functional, inpt, *args, **kwargs)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a window and its values; ``v`` is None if no window fits."""
        draws = draws_for(flat_inputs)
        channels, height, width = query_chw(flat_inputs)
        if self.value is not None and len(self.value) not in (1, channels):
            raise ValueError(f"RandomErasing: value must have one number, or one for each of the {channels} channels, got {len(self.value)}")
        check_range("RandomErasing", "scale", self.scale)
        check_range("RandomErasing", "ratio", self.ratio, above=0)
        rows, columns = (torch.as_tensor(extent, dtype=torch.float64).expand(draws.count) for extent in (height, width))
        tries = 10  # as in torchvision; all are drawn, so the number of draws does not depend on the image
        area = (rows * columns)[:, None] * draws.parts(tries, self.scale)
        # Height first: torchvision defines the aspect ratio of RandomErasing as height over width, that of RandomResizedCrop the other way.
        h, w = (side.T for side in draws.sides(area, self.ratio))
        fits = (h < rows) & (w < columns)
        first, found = fits.to(torch.int8).argmax(0, keepdim=True), fits.any(0)
        h, w = h.gather(0, first)[0], w.gather(0, first)[0]
        places = draws.unit(2)
        i, j = torch.floor(places[:, 0] * (rows - h + 1)), torch.floor(places[:, 1] * (columns - w + 1))
        if draws.batch_size is None and not bool(found):
            return {"i": 0, "j": 0, "h": int(rows), "w": int(columns), "v": None}
        h, w = torch.where(found, h, 0), torch.where(found, w, 0)
        window = {key: draws.result(to_int(column), int) for key, column in (("i", i), ("j", j), ("h", h), ("w", w))}
        return {**window, "v": self._values(draws, channels, window["h"], window["w"])}

    def _values(self, draws: Draws, channels: Any, height: Any, width: Any) -> Any:
        if self.value is not None:
            return torch.tensor(self.value)[:, None, None]
        if draws.batch_size is None:
            return normal(shape=[channels, height, width]).torch()
        shapes = torch.stack([torch.as_tensor(extent).expand(draws.count) for extent in (channels, height, width)], 1)
        noise = normal(shape=new_batch(shapes), batch_size=draws.count)
        return [sample.torch() for sample in noise.evaluate()]
