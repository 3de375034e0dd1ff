# SPDX-License-Identifier: Apache-2.0
"""Video processors: Qwen2-VL, Qwen3-VL, InternVL, SmolVLM, VideoMAE, and those without methods of their own."""

import math
from typing import Any, ClassVar

import numpy as np
import torch

from .._core.native.default_device import ignore_default_device
from .._core.values.batch import Batch
from .._core.values.tensor import new_tensor
from ..ops._arguments import as_samples
from ..ops.generic.convert import cast
from ..ops.geometry.sizes import budget
from ..ops.shape.join import cat
from . import _dense, _images
from ._settings import Settings
from ._tiles import MAX_SIDE, fit_longest_even
from ._tokens import QwenPatches
from ._translation import Translation


class Video(Translation):
    """A translated video processor: call it with a batch of videos ``FHWC`` or ``FCHW``."""

    takes: ClassVar[frozenset[str]] = frozenset({"dtype"})
    fewest_frames = 1  # of a video that is shorter than the distance of two frames

    @ignore_default_device
    def __call__(self, images: Any, *, counts: Any = None) -> dict[str, Any]:
        """Return the processor's outputs for videos that were decoded with :meth:`frames`."""
        videos, _ = as_samples(images)
        if videos.layout not in (None, "FHWC", "FCHW") or videos.ndim != 4:
            raise ValueError(f'from_processor: needs videos FHWC or FCHW, got the layout "{videos.layout}" and shape {videos.shape!r:.200}')
        _images.require_pixels(videos, self.settings)
        return self.process(convert_to_rgb(videos, self.settings) if self.settings.converts_to_rgb else videos, counts)

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
        require_frames(total, rate)
        count = self.count_frames(total, rate, fps, num_frames)
        if not 1 <= count <= total:
            raise ValueError(f"frames: {count} frames cannot be taken of {total}")
        return self.choose_frames(total, count)

    def count_frames(self, total: int, rate: float, fps: float | None, num_frames: int | None) -> int:
        number, rate_wanted = self.wanted_frames(fps, num_frames)
        if number is None and rate_wanted is not None:
            number = max(self.fewest_frames, int(total / rate * rate_wanted))
        return total if number is None else int(number)

    def wanted_frames(self, fps: float | None, num_frames: int | None) -> tuple[int | None, float | None]:
        """Return the number of frames and the rate to use: those of the call, else those of the settings."""
        # A rate given at the call also precedes a number in the settings.
        number = num_frames if num_frames is not None else (None if fps is not None else self.settings.get("num_frames", None))
        return number, fps if fps is not None else self.settings.get("fps", None)

    def choose_frames(self, total: int, count: int) -> list[int]:
        return [k * total // count for k in range(count)]

    def describe_input(self) -> list[str]:
        return ["convert to RGB, alpha onto white"] if self.settings.converts_to_rgb else []


class PlainVideo(Video, _dense.Plain):
    """Frames as images, by the settings that all processors share."""

    output = "pixel_values_videos"

    @property
    def pads(self) -> bool:
        return False  # videos of other sizes are returned in a list, whatever do_pad says

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        return {self.output: self.stack(self.prepare(images, "FCHW"))}


class VideoMae(PlainVideo):
    """VideoMAE: frames like CLIP's images."""

    output = "pixel_values"


class InternVLVideo(PlainVideo):
    """InternVL: frames are taken from the middle of equal parts of the video."""

    fewest_frames = 0  # which raises, here as there

    def wanted_frames(self, fps: float | None, num_frames: int | None) -> tuple[int | None, float | None]:
        # Here a number in the settings precedes a rate given at the call.
        number = num_frames if num_frames is not None else self.settings.get("num_frames", None)
        return number, fps if fps is not None else self.settings.get("fps", None)

    def choose_frames(self, total: int, count: int) -> list[int]:
        shift = self.settings.get("initial_shift", True)
        first = total / count / 2 if shift is True else float(shift)
        if not 0 <= first < total:
            raise ValueError(f"frames: initial_shift={shift} must be a frame of the video, which has {total}")
        return torch.arange(first, total, total / count).int().tolist()


class SmolVlmVideo(PlainVideo):
    """SmolVLM: frames resized twice, to the longer side and to a square; padded to the longest video."""

    output = "pixel_values"

    @property
    def crops(self) -> bool:
        # This class ignores do_center_crop.
        return False

    @property
    def pads(self) -> bool:
        return self.settings.pads

    @property
    def tile(self) -> int:
        """Return the side of the squares."""
        return int(self.settings.sides("max_image_size")["longest_edge"])

    def target_of(self, extents: torch.Tensor) -> Any:
        size = self.settings.size
        if size.get("longest_edge"):
            longest = min(size["longest_edge"], MAX_SIDE)
            return _images.as_sizes(torch.tensor([fit_longest_even(height, width, longest) for height, width in extents.tolist()]))
        if size.get("height") and size.get("width"):
            return [size["height"], size["width"]]
        raise self.settings.make_error("size", size, "it must have longest_edge, or height and width")

    def prepare(self, images: Batch, layout: str = "CHW") -> Batch:
        # Two resizes, as in the processor: one from the first size differs in its pixels.
        return self.resize_and_normalize(self.resize(images, self.target(images)), [self.tile, self.tile], layout)

    def process(self, images: Batch, counts: Any) -> dict[str, Any]:
        prepared = self.prepare(images, "FCHW")
        if not self.pads:
            return {self.output: self.stack(prepared)}
        values = _images.join_padded(prepared)
        frames, _, height, width = values.shape[1:]
        mask = _images.mask_of(_images.extents_of(prepared), height, width).torch()
        # The mask covers the padding of the sides only: added frames count as pixels, as in the processor.
        return {self.output: values, "pixel_attention_mask": new_tensor(mask[:, None].expand(-1, frames, -1, -1).contiguous())}

    def frames(self, total: int, rate: float, fps: float | None = None, num_frames: int | None = None) -> list[int]:
        """Return the numbers of the frames that the processor takes of a video: at most ``num_frames``, and at most ``fps`` per second.

        Args:
            total: number of frames of the video.
            rate: its frames per second.
            fps, num_frames: by default the processor's.

        Raises:
            ValueError: neither the call nor the processor has ``fps`` and ``num_frames``.
        """
        require_frames(total, rate)
        most = num_frames if num_frames is not None else self.settings.get("num_frames", None)
        wanted = fps if fps is not None else self.settings.get("fps", None)
        if most is None or wanted is None:
            raise ValueError(f"frames: {self.settings.name} needs both num_frames and fps, got num_frames={most} and fps={wanted}")
        duration, first, last = total / rate, 0, total - 1
        # A long video is taken without its first and its last second. The processor compares seconds with a product of frames and a rate.
        if duration - 2 > most * wanted:
            first, last = int(rate), min(int(total - rate), last)
        if first >= last:
            first, last = 0, total - 1
        count = max(min(round(wanted * duration), most), 1)
        return np.unique(np.linspace(first, last, count, dtype=int)).tolist()

    def describe_output(self) -> list[str]:
        squares = [f"resize to {self.tile} x {self.tile}"] if self.settings.resizes else []
        return [*squares, *super().describe_output()]


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
        size = _images.as_sizes(self.sizes(_images.extents_of(images), frames))
        tokens, grid = self.cut(self.resize_and_normalize(images, size, "FCHW"), self.temporal)
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

    def choose_frames(self, total: int, count: int) -> list[int]:
        # In float32, as the processor does: other frames than those of integers.
        return torch.arange(0, total, total / count).int().tolist()

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
        if frames < self.temporal:
            raise ValueError(f"from_processor: {self.settings.name}: a video has {frames} frames, fewer than the {self.temporal} of a token")
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


def convert_to_rgb(videos: Batch, settings: Settings) -> Batch:
    """Repeat gray as three channels, drop an alpha that is opaque, and blend others onto white: in floats from 0 to 255, which are not rounded."""
    axis = (videos.layout or "FHWC").index("C")
    counts = set(videos.sample_shapes()[:, axis].tolist())
    if counts == {3}:
        return videos
    if counts == {1}:
        return cat(videos, videos, videos, axis=axis)
    if counts != {4}:
        raise ValueError(f"from_processor: {settings.name}: all videos of a batch must have 1, 3 or 4 channels, got {sorted(counts)}")
    if not hasattr(settings.processor, "sample_frames"):
        # An image processor of lists of frames, which blends by the rule of images.
        raise ValueError(f"from_processor: {settings.name}: videos with alpha are not supported; convert them to RGB")
    colors, alpha = (videos.slice[:, :, :, :3], videos.slice[:, :, :, 3:]) if axis == 3 else (videos.slice[:, :3], videos.slice[:, 3:])
    opaque = {bool((part.torch() >= 255).all()) for part in alpha.tensors}
    if opaque == {True}:
        return colors
    if len(opaque) > 1:
        raise ValueError(f"from_processor: {settings.name}: some videos are opaque and others not; they need a batch each")
    share = cast(alpha, dtype=torch.float32) / 255.0
    return (1.0 - share) * 255.0 + share * colors


def require_frames(total: int, rate: float) -> None:
    """Raise ValueError unless a video has frames and a rate."""
    if total < 1 or not rate > 0:
        raise ValueError(f"frames: needs a video with frames and a rate, got total={total} and rate={rate}")
