# SPDX-License-Identifier: Apache-2.0
"""Processors that make sequences of patches: Qwen-VL, SigLIP 2, Gemma 4."""

from typing import Any, ClassVar

import numpy as np
import torch

from .._core.values.batch import Batch
from .._core.values.tensor import new_tensor
from ..ops.geometry.sizes import budget, patches
from ..ops.shape.patches import patch_positions, patchify
from . import _images
from ._translation import Translation


class QwenPatches(Translation):
    """What Qwen-VL's processors of images and videos share: multiples and areas of sizes, patches."""

    @property
    def patch(self) -> int:
        return int(self.settings.get("patch_size", 14))

    @property
    def merge(self) -> int:
        return int(self.settings.get("merge_size", 2))

    @property
    def temporal(self) -> int:
        return int(self.settings.get("temporal_patch_size", 2))

    @property
    def factor(self) -> int:
        return self.patch * self.merge

    @property
    def multiple(self) -> int:  # type: ignore[override]
        return self.factor

    def areas(self) -> tuple[int, int]:
        """Return the smallest and the largest area, which have the names of edges."""
        size = self.settings.size
        if not size.get("shortest_edge") or not size.get("longest_edge"):
            raise self.settings.make_error("size", size, "it must have shortest_edge and longest_edge, which are areas")
        return size["shortest_edge"], size["longest_edge"]

    def cut(self, images: Batch, temporal: int) -> tuple[Batch, Batch]:
        """Return the patches of each image or video, and its grid."""
        return patchify(images, patch_size=self.patch, merge_size=self.merge, temporal=temporal)

    def describe(self) -> list[str]:
        if not self.settings.resizes:
            return []
        low, high = self.areas()
        return [f"resize to multiples of {self.factor} with {low} to {high} pixels ({self.describe_filter()})"]


class QwenVL(QwenPatches):
    """Qwen2-VL, Qwen2.5-VL and Qwen3-VL: the patches of all images together, and the grid of each."""

    takes: ClassVar[frozenset[str]] = QwenPatches.takes | {"repeat_temporal"}

    def __init__(self, *arguments: Any, repeat_temporal: bool = True, **options: Any) -> None:
        self.repeat_temporal = repeat_temporal
        super().__init__(*arguments, **options)
        # The Pillow backend of this class returns floats even if it leaves out rescaling and normalization.
        if self.dtype is None and self.settings.uses_pillow:
            self.dtype = torch.float32

    @property
    def frames_of_token(self) -> int:
        """How often a token holds its still image."""
        return self.temporal if self.repeat_temporal else 1

    def sizes(self, extents: torch.Tensor) -> torch.Tensor:
        if not self.settings.resizes:
            return extents
        low, high = self.areas()
        return budget(extents, multiple_of=self.factor, min_pixels=low, max_pixels=high).torch()

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        prepared = self.resize_and_normalize(images, _images.as_sizes(self.sizes(_images.extents_of(images))))
        tokens, grid = self.cut(prepared, self.frames_of_token)
        return {"pixel_values": tokens.packed().values, "image_grid_thw": _images.as_numbers(grid.torch())}

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        return (self.sizes(extents) // self.factor).prod(1)

    def describe_output(self) -> list[str]:
        return [*super().describe_output(), f"patches of {self.frames_of_token} x {self.patch} x {self.patch}, merged by {self.merge}"]


class PatchSequence(Translation):
    """Patches of each image as (y, x, channel), padded to one length."""

    takes: ClassVar[frozenset[str]] = Translation.takes | {"packed"}

    @property
    def patch(self) -> int:
        return int(self.settings.get("patch_size", 16))

    @property
    def multiple(self) -> int:  # type: ignore[override]
        return self.patch

    def sizes(self, extents: torch.Tensor) -> torch.Tensor:
        """Return the sizes to which images of these heights and widths are resized."""
        raise NotImplementedError

    def cut(self, images: Batch) -> tuple[Batch, Batch]:
        """Return the patches of each image, and its grid."""
        size = _images.as_sizes(self.sizes(_images.extents_of(images)))
        return patchify(self.resize_and_normalize(images, size, "HWC"), patch_size=self.patch, order="HWC")


class Siglip2(PatchSequence):
    """SigLIP 2 NaFlex: at most 256 patches of an image, padded to as many."""

    @property
    def length(self) -> int:
        return int(self.settings.get("max_num_patches", 256))

    def sizes(self, extents: torch.Tensor) -> torch.Tensor:
        return patches(extents, patch_size=self.patch, max_patches=self.length).torch() if self.settings.resizes else extents

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        tokens, grid = self.cut(images)
        shapes = grid.torch()[:, 1:]
        if self.packed:
            return {"pixel_values": tokens.packed(), "spatial_shapes": _images.as_numbers(shapes)}
        mask = np.arange(self.length) < shapes.prod(1).numpy()[:, None]
        return {
            "pixel_values": self.pad_sequences(tokens, self.length),
            "pixel_attention_mask": new_tensor(torch.from_numpy(mask.astype(np.int32))),
            "spatial_shapes": _images.as_numbers(shapes),
        }

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        return (self.sizes(extents) // self.patch).prod(1)

    def describe(self) -> list[str]:
        return [f"resize to at most {self.length} patches of {self.patch} pixels ({self.describe_filter()})"] if self.settings.resizes else []

    def describe_output(self) -> list[str]:
        return [*super().describe_output(), f"patches of {self.patch} x {self.patch}, padded to {self.length}"]


class Gemma4(PatchSequence):
    """Gemma 4: the largest size within the budget, patches with their positions, padded."""

    @property
    def pool(self) -> int:
        return int(self.settings.get("pooling_kernel_size", 3))

    @property
    def length(self) -> int:
        return int(self.settings.get("max_soft_tokens", 280)) * self.pool**2

    def sizes(self, extents: torch.Tensor) -> torch.Tensor:
        if not self.settings.resizes:
            return extents
        return budget(extents, multiple_of=self.patch * self.pool, max_pixels=self.length * self.patch**2, fill=True).torch()

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        tokens, grid = self.cut(images)
        positions = patch_positions(grid, order="xy")
        soft = _images.as_numbers(grid.torch().prod(1) // self.pool**2)
        if self.packed:
            return {"pixel_values": tokens.packed(), "image_position_ids": positions.packed(), "num_soft_tokens_per_image": soft}
        return {
            "pixel_values": self.pad_sequences(tokens, self.length),
            "image_position_ids": self.pad_sequences(positions, self.length, -1),
            "num_soft_tokens_per_image": soft,
        }

    def count_tokens(self, extents: torch.Tensor) -> torch.Tensor:
        return (self.sizes(extents) // self.patch).prod(1) // self.pool**2

    def describe(self) -> list[str]:
        within = f"resize to multiples of {self.patch * self.pool} within {self.length} patches of {self.patch} pixels"
        return [f"{within} ({self.describe_filter()})"] if self.settings.resizes else []

    def describe_output(self) -> list[str]:
        return [*super().describe_output(), f"patches of {self.patch} x {self.patch} with positions, padded to {self.length}"]
