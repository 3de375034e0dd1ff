# SPDX-License-Identifier: Apache-2.0
"""Frames of videos for the decoder and the readers: selecting frame numbers and getting the frames from torchcodec."""

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._core.files import check_regular
from ..io._url_files import RemoteFile
from ..io._urls import is_url, reason_of

PAD_MODES = {
    "none": "none",
    "constant": "constant",
    "edge": "edge",
    "repeat": "edge",
    "reflect_1001": "reflect_1001",
    "symmetric": "reflect_1001",
    "reflect_101": "reflect_101",
    "reflect": "reflect_101",
}
"""All names of each padding mode."""


def pad_mode(op: str, name: Any) -> str:
    """Return the canonical name of a padding mode. Raise RuntimeError for an unknown one."""
    if not isinstance(name, str):
        raise TypeError(f"{op}: argument 'pad_mode' must be a str, got {name!r}")
    if name not in PAD_MODES:
        raise RuntimeError(f"{op}: Invalid pad_mode: {name!r}; it must be one of {', '.join(PAD_MODES)}")
    return PAD_MODES[name]


def padded_frames(frames: np.ndarray, count: int, mode: str) -> np.ndarray:
    """Map frame numbers that may lie outside a video of ``count`` frames to its frames; -1 for frames filled with a constant.

    >>> padded_frames(np.arange(3, 8), 5, "reflect_101").tolist(), padded_frames(np.arange(3, 8), 5, "reflect_1001").tolist()
    ([3, 4, 3, 2, 1], [3, 4, 4, 3, 2])
    """
    outside = (frames < 0) | (frames >= count)
    if mode == "none":
        return frames[~outside]
    if mode == "constant" or not outside.any():
        return np.where(outside, -1, frames)
    if mode == "edge":
        return frames.clip(0, count - 1)
    period = 2 * count if mode == "reflect_1001" else max(2 * count - 2, 1)
    frames = frames % period
    return np.where(frames < count, frames, period - frames - (mode == "reflect_1001"))


def fill_values(op: str, given: Any) -> torch.Tensor:
    """Return a checked ``fill_value``, uint8 with one number or three."""
    values = np.atleast_1d(np.asarray(given))
    if values.dtype.kind not in "iufb":
        raise TypeError(f"{op}: argument 'fill_value' must be a number or one for each channel, got {given!r}")
    if values.ndim != 1 or values.dtype.kind not in "iu" or ((values < 0) | (values > 255)).any():
        raise RuntimeError(f"{op}: fill_value must be in range [0, 255]: a number or one for each channel, got {given!r}")
    if len(values) not in (1, 3):
        raise RuntimeError(f"{op}: Fill value size must be 1 or equal to the number of channels, 3; got {len(values)}")
    return torch.from_numpy(values.astype(np.uint8))


def reason(error: Exception) -> str:
    """Return torchcodec's message without the location in its sources."""
    return re.sub(r"^\w+, \S+\.cpp:\d+, ", "", str(error).strip()) or type(error).__name__


class Video:
    """An open video: RGB frames, uint8 (height, width, 3)."""

    def __init__(self, source: torch.Tensor | str | Path, exact: bool = True, threads: int = 1) -> None:
        self._remote = RemoteFile(os.fspath(source)) if not isinstance(source, torch.Tensor) and is_url(source) else None
        if isinstance(source, str | Path) and self._remote is None:
            try:  # FFmpeg takes "pipe:0" and "concat:a|b" for addresses, and waits for pipes
                check_regular(source)
            except OSError as error:
                raise RuntimeError(reason_of(error)) from None
        options = {"dimension_order": "NHWC", "num_ffmpeg_threads": threads, "seek_mode": "exact" if exact else "approximate"}
        with self._reading():
            self._decoder = codec().VideoDecoder(source if self._remote is None else self._remote, **options)
        metadata = self._decoder.metadata
        self.count = int(metadata.num_frames or 0)
        self.height, self.width = int(metadata.height or 0), int(metadata.width or 0)
        if self.count < 1 or self.height < 1 or self.width < 1:
            raise RuntimeError("it has no frames")

    def frames(self, numbers: np.ndarray, fill: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
        """Return some frames in the given order and the time of each in seconds; -1 is a frame of ``fill``, at -1 s."""
        seconds = np.full(len(numbers), -1.0)
        real = numbers >= 0
        if real.all() and len(numbers):
            return self._get(numbers, seconds, real), seconds
        # A decoded frame tells the size; the header's differs in a rotated video.
        decoded = self._get(numbers[real], seconds, real) if real.any() else self._get(np.zeros(1, np.int64), np.zeros(1), np.ones(1, bool))
        made = fill.expand(len(numbers), *decoded.shape[1:3], 3).clone()
        if real.any():
            made[torch.from_numpy(real)] = decoded
        return made, seconds

    def _get(self, numbers: np.ndarray, seconds: np.ndarray, where: np.ndarray) -> torch.Tensor:
        with self._reading():
            batch = self._decoder.get_frames_at(indices=numbers.tolist())
        seconds[where] = batch.pts_seconds.numpy()
        return batch.data

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise the error of a failed request, which explains why FFmpeg reports the end of the file."""
        try:
            yield
        except Exception as error:
            raise (self._remote and self._remote.error) or error from None
        if self._remote is not None and self._remote.error is not None:
            raise self._remote.error

    def frame_at(self, seconds: float, up: bool) -> int:
        """Return the frame that begins at a time, else the last one before it or, with ``up``, the first one after it, maybe past the end."""
        slack = 1e-6  # times in text have fewer digits than a frame's
        low, high = 0, self.count  # the first frame that begins at the time or, without ``up``, after it
        while low < high:
            middle = (low + high) // 2
            with self._reading():
                begin = self._decoder.get_frame_at(middle).pts_seconds
            if begin >= seconds - slack if up else begin > seconds + slack:
                high = middle
            else:
                low = middle + 1
        return low if up else max(low - 1, 0)


def codec() -> Any:
    """Import torchcodec.decoders. Raise RuntimeError that says what to install."""
    try:
        return importlib.import_module("torchcodec.decoders")
    except ImportError:
        raise RuntimeError("videos need the package torchcodec: pip install torch_ndd[video]") from None
    except RuntimeError as error:  # raised at import if FFmpeg's libraries are missing
        raise RuntimeError(
            "videos need FFmpeg's libraries, which torchcodec does not find.\nInstall FFmpeg: apt-get install ffmpeg, or conda install ffmpeg"
        ) from error
