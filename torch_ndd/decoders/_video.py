# SPDX-License-Identifier: Apache-2.0
"""Frames of videos for the decoder and the readers: selecting frame numbers and getting the frames from torchcodec."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from .._core import native
from .._core.context.cuda import new_torch_stream
from .._core.process.files import check_regular, open_regular
from .._core.process.limits import check_sample, max_sample_bytes
from .._core.suggestions import check_choice
from .._core.work.cuda_work import record_event
from ..io._url_files import RemoteFile
from ..io._urls import is_url, reason_of
from . import _frame_sources
from ._frame_sources import NO_MORE_FRAMES, DeviceFrames, FrameSource, HostFrames, RefusedError, codec, reason, warn_of_refusal

__all__ = ["EndsEarlyError", "PadMode", "Video", "check_frames", "codec", "fill_values", "pad_mode", "padded_frames", "reason"]

PadMode = Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"]
PAD_MODES: dict[PadMode, str] = {
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
    check_choice(op, "pad_mode", name, PAD_MODES)
    return PAD_MODES[name]  # type: ignore[index]


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
    # "reflect_1001" repeats the frame at the edge, "reflect_101" does not.
    period = 2 * count if mode == "reflect_1001" else max(2 * count - 2, 1)
    frames = frames % period
    return np.where(frames < count, frames, period - frames - (mode == "reflect_1001"))


def fill_values(op: str, value: Any) -> torch.Tensor:
    """Return a checked ``fill_value``, uint8 with one number or three."""
    values = np.atleast_1d(np.asarray(value))
    if values.dtype.kind not in "iufb":
        raise TypeError(f"{op}: argument 'fill_value' must be a number or one for each channel, got {value!r}")
    if values.ndim != 1 or values.dtype.kind not in "iu" or ((values < 0) | (values > 255)).any():
        raise RuntimeError(f"{op}: fill_value must be in range [0, 255]: a number or one for each channel, got {value!r}")
    if len(values) not in (1, 3):
        raise RuntimeError(f"{op}: Fill value size must be 1 or equal to the number of channels, 3; got {len(values)}")
    return torch.from_numpy(values.astype(np.uint8))


# The first bytes of files in which FFmpeg finds a frame by its time: ISO (MP4, MOV, 3GP), Matroska and WebM, FLV, WMV, Ogg, GIF, AVI.
_ISO = (b"ftyp", b"styp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
_OTHERS = (b"\x1a\x45\xdf\xa3", b"FLV", b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", b"OggS", b"GIF8", b"RIFF")
_BEGINNING = 512  # bytes that identify a format
_VIDEOS = ("video", "MP4", "Matroska", "WMV", "Ogg file", "GIF")
_BARE = re.compile(r"the '(\w+)' format does not support seeking")  # of torchcodec
_NO_LENGTH = "pts value in seconds is unknown"  # of torchcodec
_NO_TIME = 1e12  # seconds; a frame without a time has a larger one, of either sign


def _name_kind(error: Exception, begin: bytes) -> Exception:
    """Return the error of a file that cannot be opened, naming the kind of a file that is not a video."""
    kind, text = native.file_kind(begin), reason(error)
    if not begin:
        return RuntimeError("the file is empty")
    if isinstance(error, json.JSONDecodeError):  # torchcodec's description of the video has an infinite rate
        return RuntimeError("the times of its frames do not increase")
    if "video stream is unknown" in text:
        return RuntimeError(f"it has no video{kind and f': it is {kind}'}")
    if bare := _BARE.search(text):
        return RuntimeError(f"it is a bare {bare[1]} stream, whose frames have no times; write it into a container: ffmpeg -i FILE FILE.mp4")
    if kind and not any(name in kind for name in _VIDEOS):
        return RuntimeError(f"it is {kind}, not a video ({text})")
    return error


class EndsEarlyError(RuntimeError):
    """The video has fewer frames than the index of the file claims."""

    def __init__(self, count: int, promised: int) -> None:
        super().__init__(f"the video is damaged: it ends after {count} of {promised} frames")
        self.count = count


class Video:
    """An open video: RGB frames, uint8 (height, width, 3), decoded on ``device``: a GPU's by NVDEC or, with a warning, on the CPU.

    A GPU decodes on a stream of its own for each video; :meth:`finish` waits for it.

    FFmpeg seeks to a frame by its time. In MPEG transport and program streams that fails: torchcodec returns a frame of the next group of pictures.
    In AVI files with B-frames the times in the file are not those of the frames, and laced frames of Matroska have none. Such videos are decoded in
    order, counting frames.
    """

    def __init__(
        self,
        source: torch.Tensor | str | Path,
        exact: bool = True,
        threads: int = 1,
        max_bytes: int | None = None,
        device: torch.device = native.CPU,
    ) -> None:
        self._remote = RemoteFile(os.fspath(source)) if not isinstance(source, torch.Tensor) and is_url(source) else None
        if isinstance(source, str | Path) and self._remote is None:
            try:  # FFmpeg interprets "pipe:0" and "concat:a|b" as addresses, and waits for pipes
                check_regular(source)
            except OSError as error:
                raise RuntimeError(reason_of(error)) from None
        self._max_bytes = max_sample_bytes("video", max_bytes)
        begin = self._beginning(source)
        has_times = begin[4:8] in _ISO or begin.startswith(_OTHERS)
        # None for AVI: it is decided at the first frame.
        self._in_order: bool | None = None if begin.startswith(b"RIFF") else not has_times
        self._promises = has_times and not begin.startswith(b"RIFF")
        self._source = source if self._remote is None else self._remote
        self._exact, self._threads, self._device = exact or not has_times, threads, device
        self._stream = new_torch_stream(device) if device.type == "cuda" else None
        self._decodes_on_device = _frame_sources.decodes_on_device(device)
        try:
            self._reopen()
        except (IndexError, RuntimeError, ValueError) as error:
            if self._exact or _NO_LENGTH not in str(error):
                raise _name_kind(error, begin) from None
            # A header without the length, as browsers record WebM: only the index has the number of frames.
            self._exact = True
            self._reopen()
        decoder = self._decoder
        if self._in_order is False and abs(decoder.begin) >= _NO_TIME:
            self._in_order = True  # frames that lack times, such as laced ones of Matroska, have no place in the index
        self.count, self.rate = decoder.count, decoder.rate  # frames, and frames per second
        self.height, self.width = decoder.height, decoder.width
        lost = 0 if self._in_order is None or not self._exact else self._count_lost(decoder.find_keys())
        self.count -= lost
        # Frames of the file's index before the first one that can be decoded. Those that are decoded in order do not count them.
        self._lost = 0 if self._in_order else lost
        if self.count < 1 or self.height < 1 or self.width < 1:
            raise RuntimeError("it has no frames that can be decoded")
        # One frame is always decoded, for its size.
        self.check(1)

    def _count_lost(self, keys: np.ndarray) -> int:
        """Return how many frames lie before the first key frame, so they cannot be decoded: the video was cut out of another one."""
        if not len(keys):
            return self.count if self._in_order else 0
        if not keys[0]:
            return 0
        # The index is sorted by time. Among frames with equal times, or without any, the key frame may have a later place than in the file.
        try:
            with self._reading(), self._on_stream():
                _, time, _ = self._decoder.decode_next()
        except (IndexError, RuntimeError):  # decoding the first frame raises it again
            return int(keys[0])
        begin = self._decoder.begin
        self._reopen()
        return int(keys[0]) if abs(time) < _NO_TIME and abs(begin) < _NO_TIME and time > begin + 1e-6 else 0

    def check(self, count: int, item_bytes: int = 1) -> None:
        """Raise RuntimeError or MemoryError if this many frames are more than a sample may have."""
        check_frames(count, self.height, self.width, self._max_bytes, item_bytes)

    def find_keys(self) -> np.ndarray:
        """Return the numbers of the key frames, increasing; none where frames are counted from the beginning."""
        if self._in_order is not False:
            return np.zeros(0, np.int64)
        return self._decoder.find_keys() - self._lost

    @property
    def frame_bytes(self) -> int:
        """Bytes of a decoded frame."""
        return 3 * self.height * self.width

    def _beginning(self, source: Any) -> bytes:
        if isinstance(source, torch.Tensor):
            return source[:_BEGINNING].numpy().tobytes()
        if self._remote is None:
            with open_regular(source) as file:
                return file.read(_BEGINNING)
        with self._reading():
            begin = self._remote.read(_BEGINNING)
        self._remote.seek(0)
        return begin

    def _reopen(self) -> None:
        self._decoder = self._open()
        self._next, self._time = 0, 0.0  # number and time of the next frame

    def _open(self) -> FrameSource:
        refusal: Exception | None = None
        if self._decodes_on_device:
            try:
                with self._reading(), self._on_stream():
                    return DeviceFrames(self._rewind, self._device)
            except (IndexError, RuntimeError, ValueError) as error:
                # The CPU's path also names what is wrong with a file that is not a video.
                refusal = error
        with self._reading():
            frames = HostFrames(self._rewind(), self._exact, self._threads)
        if refusal is not None:
            self._decodes_on_device = False
            warn_of_refusal(str(refusal) if isinstance(refusal, RefusedError) else f"torchcodec cannot open some: {reason(refusal)}")
        return frames

    def _rewind(self) -> Any:
        """Return what torchcodec reads, from its beginning."""
        if self._remote is not None:
            self._remote.seek(0)
        return self._source

    def _on_stream(self) -> AbstractContextManager[Any]:
        """Make the video's stream torch's current one, on a GPU."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def finish(self) -> None:
        """Wait until a GPU has decoded the frames returned so far, whose memory belongs to the stream of the video."""
        if self._stream is not None:
            self._stream.synchronize()

    def frames(
        self, numbers: np.ndarray, fill: torch.Tensor, out: torch.Tensor | None = None, after: torch.cuda.Event | None = None
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Return some frames in the given order and the time of each in seconds; -1 is a frame of ``fill``, at -1 s.

        ``out`` is memory for them, on a GPU usable ``after`` an event. Raise EndsEarlyError if there are fewer frames than the file's index says.
        """
        try:
            return self._join(numbers, fill, out, after)
        finally:  # also after an error: the caller may free the memory
            self.finish()

    def _join(
        self, numbers: np.ndarray, fill: torch.Tensor, out: torch.Tensor | None, after: torch.cuda.Event | None
    ) -> tuple[torch.Tensor, np.ndarray]:
        seconds = np.full(len(numbers), -1.0)
        # Each frame is decoded once, in increasing order; `order` and `bounds` give the places of each in the result.
        real = np.flatnonzero(numbers >= 0)
        wanted, place = np.unique(numbers[real], return_inverse=True)
        order = np.argsort(place, kind="stable")
        bounds = np.searchsorted(place[order], np.arange(len(wanted) + 1))
        output = torch.empty(0)
        # The size comes from a decoded frame: that in the header differs for rotated videos. So one is decoded even if all are filled.
        for first, frames, times in self.decode(wanted if len(wanted) else np.zeros(1, np.int64)):
            if out is None:
                out = native.empty([len(numbers) * self.frame_bytes], torch.uint8, self._device)
            output = out.view(len(numbers), *frames.shape[1:])
            if self._stream is not None and first == 0:
                self._stream.wait_event(after or record_event(torch.cuda.current_stream(self._device)))
            if not len(wanted):
                break
            for k, (frame, time) in enumerate(zip(frames, times, strict=True), first):
                targets = real[order[bounds[k] : bounds[k + 1]]]
                self._copy(frame, output, targets)
                seconds[targets] = time
        if len(real) < len(numbers):
            filling = fill.expand(*output.shape[1:]).contiguous()
            with self._on_stream():
                self._copy(filling.to(self._device), output, np.flatnonzero(numbers < 0))
        return output, seconds

    def _copy(self, frame: torch.Tensor, output: torch.Tensor, targets: np.ndarray) -> None:
        if self._stream is None:
            output.numpy()[targets] = frame.numpy()  # torch would split the copy among threads, which wait for each other
            return
        with self._on_stream():
            for target in targets.tolist():
                output[target].copy_(frame)

    def decode(self, wanted: np.ndarray) -> Iterator[tuple[int, torch.Tensor, list[float]]]:
        """Decode increasing frame numbers: yield the position of the first of some, their frames (n, height, width, 3), and their times in seconds.

        torchcodec decodes each group of pictures once, from its key frame to the last frame wanted, and converts only the frames wanted to RGB.

        Raise EndsEarlyError if there are fewer frames than the index of the file says, RuntimeError for a frame of another size.
        """
        for k, frames, times in self._decode_in_order(wanted, 0) if self._decodes_in_order() else self._decode_by_number(wanted):
            # The size of the output was computed from the first frames.
            if frames[0].numel() != self.frame_bytes:
                size = f"{frames.shape[1]}x{frames.shape[2]}"
                raise RuntimeError(f"a frame has {size} pixels, and the first ones have {self.height}x{self.width}")
            if self._stream is not None:
                with self._on_stream():
                    frames = frames.to(self._device)
            yield k, frames, times

    def _decode_by_number(self, wanted: np.ndarray) -> Iterator[tuple[int, torch.Tensor, list[float]]]:
        k, most = 0, self._decoder.frames_per_call
        while k < len(wanted):
            numbers = wanted[k : k + most]
            try:
                with self._reading(), self._on_stream():
                    frames, times = self._decoder.decode_several(numbers + self._lost)
            except (IndexError, RuntimeError) as error:
                if NO_MORE_FRAMES in str(error):
                    self._in_order = True  # the index of the file is wrong: decode in order from now on
                    self._reopen()
                    yield from self._decode_in_order(wanted, k)
                    return
                if len(numbers) == 1:
                    raise
                most = 1  # the frames before the damaged one are good
                self._reopen()
                continue
            yield k, frames, times
            k += len(numbers)

    def _decodes_in_order(self) -> bool:
        in_order = self._in_order
        if in_order is None:  # an AVI file: with B-frames, the first frame has a time after the beginning
            try:
                with self._reading(), self._on_stream():
                    _, time = self._decoder.decode_at(0)
                in_order = time - self._decoder.begin > 1e-6
            except (IndexError, RuntimeError):
                in_order = True
            self._in_order = in_order
            if in_order:
                self._reopen()
        return in_order

    def _decode_in_order(self, wanted: np.ndarray, first: int) -> Iterator[tuple[int, torch.Tensor, list[float]]]:
        # Frames come in one direction only; an earlier one needs a new beginning.
        if self._next > wanted[first]:
            self._reopen()
        for k in range(first, len(wanted)):
            frame, time = self._decode_next()
            while self._next <= wanted[k]:
                frame, time = self._decode_next()
            yield k, frame[None], [time]

    def _decode_next(self) -> tuple[torch.Tensor, float]:
        """Return the frame that comes next and its time."""
        try:
            with self._reading(), self._on_stream():
                frame, time, duration = self._decoder.decode_next()
        except (IndexError, RuntimeError) as error:
            if NO_MORE_FRAMES not in str(error):
                raise
            promised, self._in_order = self.count, True
            if self._next and not self._promises:
                self.count = self._next
            raise EndsEarlyError(self._next, promised) from None
        # A frame without a time follows the one before.
        seconds = time if abs(time) < _NO_TIME else self._time
        self._next += 1
        self._time = seconds + max(duration, 0.0)
        return frame, seconds

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise the error of a failed request instead of FFmpeg's, which only reports the end of the file."""
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
        if self._decodes_in_order():
            for number, _, (begin,) in self._decode_in_order(np.arange(high), 0):
                if begin >= seconds - slack if up else begin > seconds + slack:
                    high = number
                    break
            return high if up else max(high - 1, 0)
        # A binary search: the times of frames increase.
        while low < high:
            middle = (low + high) // 2
            with self._reading(), self._on_stream():
                _, begin = self._decoder.decode_at(middle + self._lost)
            if begin >= seconds - slack if up else begin > seconds + slack:
                high = middle
            else:
                low = middle + 1
        return low if up else max(low - 1, 0)


def check_frames(count: int, height: int, width: int, max_bytes: int, item_bytes: int = 1) -> None:
    """Raise RuntimeError or MemoryError if this many frames are more than a sample may have."""
    size = f"{height}x{width}"
    what = f"{count} frames of {size} have" if count > 1 else f"a frame of {size} has"
    check_sample(what, count * item_bytes * 3 * height * width, max_bytes)
