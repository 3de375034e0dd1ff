# SPDX-License-Identifier: Apache-2.0
"""The base of translated processors: functions of a loader that return what the processor returns."""

from typing import Any, ClassVar

import torch

from .._core.context.device import DeviceLike
from .._core.native.default_device import ignore_default_device
from .._core.values.batch import Batch
from .._core.values.tensor import Tensor
from ..ops.geometry.sizes import extents_table
from ..ops.geometry.slice import pad
from . import _images
from ._settings import FILTER_NAMES, Settings


class Translation:
    """A translated image processor: call it with a batch of encoded files or images.

    Attributes:
        steps: the steps in words, with sizes and constants.
        tolerance: the largest difference from transformers, relative for values above 1.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"device", "dtype"})
    """The options of ``from_processor`` that change what this class does."""
    tolerance = 2e-5
    multiple = 1  # of the sides of images that are not resized

    def __init__(self, processor: Any, device: DeviceLike | None = None, dtype: torch.dtype | None = None, packed: bool = False) -> None:
        self.settings = Settings(processor)
        self.device, self.dtype, self.packed = device, dtype, packed
        # Computed here, because describing raises for settings that are not translated.
        self.steps = [*self.describe_input(), *self.describe(), *self.describe_output()]

    @ignore_default_device
    def __call__(self, images: Any, *, counts: Any = None) -> dict[str, Any]:
        """Return the processor's outputs for a batch: a dict of Tensors, or of lists where samples cannot be stacked.

        Args:
            images: encoded files, which are decoded with their EXIF orientation, or images ``HWC`` or ``CHW``; a Batch, a Tensor or a list.
            counts: images of each sample, for processors of nested images.
        """
        decoded = _images.decode(images, self.settings, self.device)
        if not decoded.batch_size:
            raise ValueError(f"from_processor: {self.settings.name} needs at least one image")
        return self.process(decoded, counts)

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        """Return the outputs for decoded images."""
        raise NotImplementedError

    def tokens(self, extents: Any) -> torch.Tensor:
        """Return how many tokens of each image reach the model, int64 (N,), from heights and widths alone.

        Args:
            extents: images, the result of :func:`torch_ndd.peek_image_shape`, or integers (N, 2).
        """
        return self.count_tokens(extents_table("tokens", extents)[0])

    tokens.takes_sizes = True  # type: ignore[attr-defined]  # as a cost of batches it needs from_headers

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        """Return the tokens of images of these heights and widths, int64 (N, 2)."""
        raise TypeError(f"from_processor: {self.settings.name} does not determine the number of tokens; the patch size belongs to its model")

    def describe_input(self) -> list[str]:
        return ["decode, apply the EXIF orientation"] + (["convert to RGB, alpha onto white"] if self.settings.converts_to_rgb else [])

    def describe(self) -> list[str]:
        """Return the steps between decoding and normalization."""
        return []

    def describe_output(self) -> list[str]:
        settings = self.settings
        steps = []
        if self.dtype is torch.uint8:
            return ["leave uint8"]
        if settings.rescales:
            steps.append(f"multiply by {settings.factor:.6g}")
        if settings.normalizes:
            steps.append(f"normalize: mean {_numbers(settings.mean)}, std {_numbers(settings.std)}")
        return steps

    def describe_filter(self) -> str:
        """Return the filter in words."""
        return f"{FILTER_NAMES[self.settings.filter]}, {'Pillow' if self.settings.uses_pillow else 'torchvision'}'s rounding"

    def normalize(self, images: Batch, layout: str = "CHW") -> Batch:
        return _images.normalize(images, self.settings, layout, self.dtype)

    def resize(self, images: Batch, size: Any) -> Batch:
        return _images.resize_to(images, size, self.settings) if self.settings.resizes else images

    def resize_and_normalize(self, images: Batch, size: Any, layout: str = "CHW") -> Batch:
        """Resize, then normalize; in one pass unless a translation has steps of its own."""
        if not self.settings.resizes:
            return self.normalize(images, layout)
        return _images.resize_and_normalize(images, size, self.settings, layout, self.dtype)

    def stack(self, images: Batch) -> Any:
        """Return one tensor, or the list of images where their sizes differ and transformers does not stack them."""
        if images.ragged_shapes is None or not images.batch_size:
            return images.stack()
        return list(images.tensors)

    def pad_sequences(self, tokens: Batch, length: int, value: float = 0) -> Tensor:
        """Return sequences in one tensor (N, length, ...)."""
        return pad(tokens, axes=[0], shape=[length], fill_value=value).stack()

    def __repr__(self) -> str:
        return f"{self.settings.name}: {'; '.join(self.steps)}"


def _numbers(values: list[float]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
