# SPDX-License-Identifier: Apache-2.0
"""The settings of an image processor of transformers, in the terms of our operators."""

from collections.abc import Mapping
from typing import Any

from .. import types

# Pillow's numbers of filters, which transformers uses for both of its backends.
FILTERS = {0: types.INTERP_NN, 1: types.INTERP_LANCZOS3, 2: types.INTERP_LINEAR, 3: types.INTERP_CUBIC}
FILTER_NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
OTHER_FILTERS = {4: "box", 5: "hamming"}


class Settings:
    """What a processor does to each image: attributes of the processor, with defaults where it has none."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.name = type(processor).__name__
        self.uses_pillow = getattr(processor, "backend", "torchvision") == "pil"
        self.resizes = bool(self.get("do_resize", False))
        self.crops = bool(self.get("do_center_crop", False))
        self.rescales = bool(self.get("do_rescale", False))
        self.normalizes = bool(self.get("do_normalize", False))
        self.pads = bool(self.get("do_pad", False))
        self.converts_to_rgb = bool(self.get("do_convert_rgb", False))
        self._set_factor(self.get("rescale_factor", 1 / 255))
        self.mean = self._channels("image_mean", 0.0)
        self.std = self._channels("image_std", 1.0)
        self.size = self.sides("size")
        self.filter = self._filter()
        # transformers raises at the first call, before it looks whether the processor crops at all.
        if self.crops and not self.sides("crop_size"):
            raise self.make_error("do_center_crop", True, "crop_size is missing")
        if self.normalizes and (self.get("image_mean", None) is None or self.get("image_std", None) is None):
            raise self.make_error("do_normalize", True, "image_mean or image_std is missing")

    def get(self, name: str, default: Any) -> Any:
        """Return a setting; the default where it is missing or None."""
        value = getattr(self.processor, name, None)
        return default if value is None else value

    def _set_factor(self, factor: Any) -> None:
        """Store the factor of rescaling."""
        self.factor = float(factor)
        # torch multiplies bytes by a Python int to bytes. NumPy's levels become floats.
        if self.rescales and isinstance(factor, int) and not self.uses_pillow:
            if factor == 1:
                self.rescales = False
            elif not self.normalizes:
                raise self.make_error("rescale_factor", factor, "an int leaves images uint8, whose levels wrap around; set a float")

    def sides(self, name: str) -> dict[str, int]:
        """Return a size as a dict of the sides that are set."""
        value = self.get(name, {})
        if isinstance(value, int):
            return {"height": value, "width": value}
        # Some versions have a class in place of the dict.
        pairs = value if isinstance(value, Mapping) else dict(value)
        return {key: int(side) for key, side in pairs.items() if side is not None}

    def pair(self, name: str) -> tuple[int, int]:
        """Return height and width of a size that must have both."""
        sides = self.sides(name)
        if set(sides) != {"height", "width"}:
            raise self.make_error(name, sides, "it must have height and width")
        return sides["height"], sides["width"]

    def make_error(self, name: str, value: Any, reason: str = "") -> ValueError:
        """Return the error about a setting that is not translated."""
        return ValueError(f"from_processor: {self.name} with {name}={value!r} is not supported{': ' + reason if reason else ''}")

    def _channels(self, name: str, default: float) -> list[float]:
        value = self.get(name, default)
        return [float(value)] if isinstance(value, int | float) else [float(number) for number in value]

    def _filter(self) -> int:
        number = int(self.get("resample", 2))
        if self.resizes and number not in FILTERS:
            supported = ", ".join(f"{key} ({text})" for key, text in FILTER_NAMES.items())
            raise self.make_error("resample", number, f"the filter is {OTHER_FILTERS.get(number, 'unknown')}; supported are {supported}")
        return number
