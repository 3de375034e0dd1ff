# SPDX-License-Identifier: Apache-2.0
"""Video processors: Qwen2-VL, Qwen3-VL, VideoMAE, and those without methods of their own."""

import math
from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch
from ..ops._arguments import as_samples
from ..ops.geometry.sizes import budget
from . import _dense, _images
from ._tokens import QwenPatches
from ._translation import Translation


class Video(Translation):
    """A translated video processor: call it with a batch of videos ``FHWC`` or ``FCHW``."""

    def __call__(self, images: Any, *, counts: Any = None) -> dict[str, Any]:
        """Return the processor's outputs for videos that were decoded with :meth:`frames`."""
        videos, _ = as_samples(images)
        if videos.layout not in (None, "FHWC", "FCHW") or videos.ndim != 4:
            raise ValueError(f'from_processor: needs videos FHWC or FCHW, got the layout "{videos.layout}" and shape {videos.shape!r:.200}')
        return self.process(videos, counts)

    def frames(self, total: int, rate: float, fps: float | None = None, num_frames: int | None = None) -> list[int]:
        """Return the numbers of the frames that the processor takes of a video, for ``decoders.video(frames=)``.

        Args:
            total: number of frames of the video.
            rate: its frames per second.
            fps: frames per second to take, by default the processor's.
            num_frames: number of frames to take, instead of ``fps``.

        Raises:
            ValueError: both ``fps`` and ``num_frames``, or more frames than there are.
        """
        if fps is not None and num_frames is not None:
            raise ValueError("frames: fps and num_frames are mutually exclusive")
        if total < 1 or not rate > 0:
            raise ValueError(f"frames: needs a video with frames and a rate, got total={total} and rate={rate}")
        count = self.count_frames(total, rate, fps, num_frames)
        if not 1 <= count <= total:
            raise ValueError(f"frames: {count} frames cannot be taken of {total}")
        return self.choose_frames(total, count)

    def count_frames(self, total: int, rate: float, fps: float | None, num_frames: int | None) -> int:
        number, rate_wanted = self.wanted_frames(fps, num_frames)
        if number is None and rate_wanted is not None:
            number = int(total / rate * rate_wanted)
        return total if number is None else int(number)

    def wanted_frames(self, fps: float | None, num_frames: int | None) -> tuple[int | None, float | None]:
        """Return the number of frames and the rate to use: those of the call, else those of the settings."""
        # A rate given at the call also precedes a number in the settings.
        number = num_frames if num_frames is not None else (None if fps is not None else self.settings.get("num_frames", None))
        return number, fps if fps is not None else self.settings.get("fps", None)

    def choose_frames(self, total: int, count: int) -> list[int]:
        return torch.arange(0, total, total / count).int().tolist()

    def describe_input(self) -> list[str]:
        return []


class PlainVideo(Video, _dense.Plain):
    """Frames as images, by the settings that all processors share."""

    output = "pixel_values_videos"

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        return {self.output: self.stack(self.normalize(self.crop(self.resize(images, self.target(images))), "FCHW"))}


class VideoMae(PlainVideo):
    """VideoMAE: frames like CLIP's images."""

    output = "pixel_values"


class QwenVideo(QwenPatches, Video):
    """Qwen2-VL: each video has one size, by the budget of a frame; patches of two frames."""

    def bounds(self, frames: int) -> tuple[int, int]:
        """Return the smallest and the largest area of a frame."""
        low, high = self.areas()
        if self.settings.get("cap_pixels_per_frame", False):
            total = int(int(self.settings.get("max_video_tokens", 128_000)) * self.factor**2 * 0.9)
            high = max(min(high, total * self.temporal // frames), int(low * 1.05))
        return low, high

    def sizes(self, extents: torch.Tensor, frames: list[int]) -> torch.Tensor:
        """Return the size of each video."""
        if not self.settings.resizes:
            return extents
        return torch.cat([self.size(extents[k : k + 1], count) for k, count in enumerate(frames)])

    def size(self, extents: torch.Tensor, frames: int) -> torch.Tensor:
        low, high = self.bounds(frames)
        return budget(extents, multiple_of=self.factor, min_pixels=low, max_pixels=high).torch()

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        frames = images.sample_shapes()[:, (images.layout or "FHWC").index("F")].tolist()
        resized = self.resize(images, _images.as_sizes(self.sizes(_images.extents_of(images), frames)))
        tokens, grid = self.cut(self.normalize(resized, "FCHW"), self.temporal)
        return {"pixel_values_videos": tokens.packed().values, "video_grid_thw": _images.as_numbers(grid.torch())}

    def count_frames(self, total: int, rate: float, fps: float | None, num_frames: int | None) -> int:
        number, rate_wanted = self.wanted_frames(fps, num_frames)
        if number is not None:
            return round(number / self.temporal) * self.temporal
        if rate_wanted is None:
            return total
        least, most = int(self.settings.get("min_frames", 4)), int(self.settings.get("max_frames", 768))
        highest = math.floor(min(most, total) / self.temporal) * self.temporal
        return math.floor(min(max(total / rate * rate_wanted, least), highest, total) / self.temporal) * self.temporal

    def tokens(self, extents: Any, frames: Any = None) -> torch.Tensor:
        """Return the tokens of each video, int64 (N,), from (frames, height, width) as integers (N, 3)."""
        numbers = torch.as_tensor(np.asarray(extents), dtype=torch.int64).reshape(-1, 3)
        sizes = self.sizes(numbers[:, 1:], numbers[:, 0].tolist())
        return (numbers[:, 0] + self.temporal - 1) // self.temporal * (sizes // self.factor).prod(1)


class Qwen3Video(QwenVideo):
    """Qwen3-VL: the budget is that of all frames together."""

    def bounds(self, frames: int) -> tuple[int, int]:
        low, high = self.areas()
        if self.settings.get("cap_pixels_per_frame", False):
            share = min(int(self.settings.get("max_video_tokens", 768)) * self.factor**2, high // frames)
            high = frames * max(share, int(low * 1.05))
        return low, high

    def size(self, extents: torch.Tensor, frames: int) -> torch.Tensor:
        low, high = self.bounds(frames)
        return budget(extents, multiple_of=self.factor, min_pixels=low, max_pixels=high, frames=frames, temporal=self.temporal).torch()

    def count_frames(self, total: int, rate: float, fps: float | None, num_frames: int | None) -> int:
        number, rate_wanted = self.wanted_frames(fps, num_frames)
        least, most = int(self.settings.get("min_frames", 4)), int(self.settings.get("max_frames", 768))
        if number is None and rate_wanted is not None:
            return min(max(int(total / rate * rate_wanted), least), most, total)
        return int(number) if number is not None else min(max(total, least), most)

    def choose_frames(self, total: int, count: int) -> list[int]:
        return np.linspace(0, total - 1, count).round().astype(int).tolist()
