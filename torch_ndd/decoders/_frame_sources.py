# SPDX-License-Identifier: Apache-2.0
"""Open videos as torchcodec gives them: frames decoded on the CPU, and frames decoded on a GPU by NVDEC.

NVDEC through torchcodec's decoder of packets rather than PyNvVideoCodec: the index of the file, and so the number of each frame, is the CPU's; it
reads URLs, says the colors of each frame, and can be imported without a driver.
"""

import bisect
import ctypes
import importlib
import re
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from .._core import native
from .._core.process.fork_locks import new_lock
from .._core.values.dispatch import submit

# Why no video can be decoded by NVDEC, and what to do about it.
_NO_PACKETS = ("this torchcodec cannot return frames as NVDEC writes them", "pip install -U torchcodec")
_NO_NVCUVID = ("NVIDIA's driver has no libnvcuvid.so.1 here", "start containers with NVIDIA_DRIVER_CAPABILITIES=compute,utility,video")
NO_MORE_FRAMES = "no more frames"
"""Part of the errors of a video that has ended, torchcodec's and ours."""
_SEEK = 4  # frames that could be decoded in the time of a seek
_MAX_REFUSALS = 1024


def codec() -> Any:
    """Import torchcodec.decoders. Raise RuntimeError with the package to install if it is missing."""
    try:
        return importlib.import_module("torchcodec.decoders")
    except ImportError:
        raise RuntimeError("videos need the package torchcodec: pip install torch_ndd[video]") from None
    except RuntimeError as error:  # raised at import if FFmpeg's libraries are missing
        raise RuntimeError(
            "videos need FFmpeg's libraries, which torchcodec does not find.\nInstall FFmpeg: apt-get install ffmpeg, or conda install ffmpeg"
        ) from error


def reason(error: Exception) -> str:
    """Return torchcodec's message without the location in its sources."""
    return re.sub(r"^\w+, \S+\.cpp:\d+, ", "", str(error).strip()) or type(error).__name__


def decodes_on_device(device: torch.device) -> bool:
    """Return whether a device has a decoder of its own."""
    return device.type == "cuda"


class FrameSource(Protocol):
    """An open video. Frames are uint8 (height, width, 3); times are in seconds."""

    count: int
    """Frames, according to the index of the file."""
    rate: float
    """Frames per second, on average."""
    height: int
    width: int
    begin: float
    """The time at which the video begins."""
    frames_per_call: int
    """How many frames :meth:`decode_several` should return."""

    def find_keys(self) -> np.ndarray:
        """Return the numbers of the key frames."""
        ...

    def decode_at(self, number: int) -> tuple[torch.Tensor, float]:
        """Return a frame, found by its time in the index, and its actual time."""
        ...

    def decode_several(self, numbers: np.ndarray) -> tuple[torch.Tensor, list[float]]:
        """Return frames with increasing numbers, (frames, height, width, 3), and their actual times."""
        ...

    def decode_next(self) -> tuple[torch.Tensor, float, float]:
        """Return the frame that the decoder returns next, its time and duration."""
        ...


# Of the frames that torchcodec returns together. Threads that decode take the GIL once for each call; frames that do not stay in the processor's
# cache until they are copied are slower: of 640x480, many in one call take 1.2 times as long as one by one.
_BYTES_PER_CALL = 3 << 18


class HostFrames:
    """Frames decoded by FFmpeg on the CPU."""

    def __init__(self, source: Any, exact: bool, threads: int) -> None:
        seek_mode = "exact" if exact else "approximate"
        self._decoder = codec().VideoDecoder(source, dimension_order="NHWC", num_ffmpeg_threads=threads, seek_mode=seek_mode, device="cpu")
        metadata = self._decoder.metadata
        self.count = int(metadata.num_frames or 0)
        self.rate = float(metadata.average_fps or 0.0)
        self.height, self.width = int(metadata.height or 0), int(metadata.width or 0)
        self.begin = float(metadata.begin_stream_seconds or 0.0)
        self.frames_per_call = max(1, _BYTES_PER_CALL // max(1, 3 * self.height * self.width))

    def find_keys(self) -> np.ndarray:
        """See :class:`FrameSource`."""
        return np.unique(np.asarray(self._decoder._get_key_frame_indices(), np.int64))

    def decode_at(self, number: int) -> tuple[torch.Tensor, float]:
        """See :class:`FrameSource`."""
        frame = self._decoder.get_frame_at(number)
        return frame.data, frame.pts_seconds

    def decode_several(self, numbers: np.ndarray) -> tuple[torch.Tensor, list[float]]:
        """See :class:`FrameSource`."""
        if len(numbers) == 1:  # torchcodec copies frames of several to one tensor, unless their width is a multiple of 32
            frame, time = self.decode_at(int(numbers[0]))
            return frame[None], [time]
        first, last = int(numbers[0]), int(numbers[-1])
        step = (last - first) // (len(numbers) - 1)
        if last - first == len(numbers) - 1 or (np.diff(numbers) == step).all():  # for ten frames of 128x128 this takes 0.93 of the time
            frames = self._decoder.get_frames_in_range(first, last + 1, step)
        else:
            frames = self._decoder.get_frames_at(torch.from_numpy(numbers))
        return frames.data, frames.pts_seconds.tolist()

    def decode_next(self) -> tuple[torch.Tensor, float, float]:
        """See :class:`FrameSource`."""
        frame, time, duration = torch.ops.torchcodec_ns.get_next_frame(self._decoder._decoder)
        return frame, float(time), float(duration)


def find_nvdec_problem() -> tuple[str, str] | None:
    """Return why no video can be decoded by NVDEC, and what to do; None if torchcodec and the driver can. Raise the errors of :func:`codec`."""
    if not hasattr(codec(), "Demuxer"):
        return _NO_PACKETS
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        return _NO_NVCUVID
    return None


class RefusedError(RuntimeError):
    """NVDEC or torchcodec cannot decode a video on the GPU."""


class DeviceFrames:
    """Frames decoded by NVDEC, whose planes are converted to RGB on the GPU, on torch's current stream.

    torchcodec reads the file and its index as for the CPU, so frames have the same numbers.

    Args:
        open_source: Returns what torchcodec reads, from its beginning.
        device: A GPU.

    Raises:
        RefusedError: The video has to be decoded on the CPU.
    """

    frames_per_call = 1  # NVDEC decodes the next ones meanwhile

    def __init__(self, open_source: Callable[[], Any], device: torch.device) -> None:
        demuxer = _open_demuxer(open_source())
        if _check_support(open_source, demuxer.streams[0].metadata, device):
            demuxer = _open_demuxer(open_source())
        self._demuxer, self._stream, self._device = demuxer, demuxer.streams[0], device
        self._index = self._stream.scan()
        self._times: list[float] = self._index.pts_seconds.tolist()
        self._keys: list[int] = self._index.key_frame_indices.tolist()
        self.count = len(self._times)
        self.rate = float(self._index.average_fps_from_content) if self.count else 0.0
        self.height, self.width = int(self._stream.metadata.height or 0), int(self._stream.metadata.width or 0)
        self.begin = self._times[0] if self.count else 0.0
        self._decoder: Any = None  # created for the first frame: it takes tens of megabytes of the GPU's memory
        self._ready: deque[Any] = deque()  # decoded frames that have not been returned
        self._next = 0  # number of the frame that the decoder returns next
        self._ended = False

    def find_keys(self) -> np.ndarray:
        """See :class:`FrameSource`."""
        return np.array(self._keys, np.int64)

    def decode_several(self, numbers: np.ndarray) -> tuple[torch.Tensor, list[float]]:
        """See :class:`FrameSource`."""
        frames, seconds = zip(*map(self.decode_at, numbers.tolist()), strict=True)
        return (frames[0][None] if len(frames) == 1 else torch.stack(frames)), [*seconds]

    def decode_at(self, number: int) -> tuple[torch.Tensor, float]:
        """See :class:`FrameSource`. Raise RuntimeError if the decoder leaves the frame out."""
        place = bisect.bisect_right(self._keys, number)
        key = self._keys[place - 1] if place else 0
        if self._next <= number and key <= self._next + _SEEK:
            crosses_key = self._next < key
            try:
                return self._decode_until(number)
            except RuntimeError:
                if not crosses_key:
                    raise
                # The frames before the key frame may be damaged, on which this frame does not depend.
                self._decoder = None
        self._seek(number, key)
        return self._decode_until(number)

    def _seek(self, number: int, key: int) -> None:
        """Continue from a frame's key frame."""
        self._demuxer.seek(self._index.key_frame_seconds_for(self._times[number]))
        if self._decoder is not None:
            self._decoder.reset()
        self._ready.clear()
        self._next, self._ended = key, False

    def _decode_until(self, number: int) -> tuple[torch.Tensor, float]:
        while True:
            frame = self._take()
            found = self._find_number(frame.pts_seconds)
            # Pictures before a key frame may refer to others that were not decoded; their numbers are smaller.
            if found is None or found < number:
                self._next = self._next if found is None else max(self._next, found + 1)
                continue
            if found > number:
                raise RuntimeError(f"frame {number} cannot be decoded: frame {found} follows the one before it")
            self._next = number + 1
            return convert_to_rgb(frame), frame.pts_seconds

    def decode_next(self) -> tuple[torch.Tensor, float, float]:
        """See :class:`FrameSource`."""
        frame = self._take()
        self._next += 1
        return convert_to_rgb(frame), frame.pts_seconds, frame.duration_seconds

    def _take(self) -> Any:
        """Return the planes of the next frame. Raise RuntimeError at the end of the file."""
        if self._decoder is None:
            self._decoder = self._stream.make_decoder(str(self._device))
        while not self._ready:
            if self._ended:
                raise RuntimeError(NO_MORE_FRAMES)
            packet = next(self._demuxer, None)
            self._ended = packet is None
            self._ready.extend(self._decoder.drain() if packet is None else self._decoder.decode(packet))
        return self._ready.popleft()

    def _find_number(self, seconds: float) -> int | None:
        """Return the number of the frame with a time; None if the index has no such frame."""
        # Of frames with equal times, the next one.
        if self._next < self.count and self._times[self._next] == seconds:
            return self._next
        number = bisect.bisect_left(self._times, seconds)
        return number if number < self.count and self._times[number] == seconds else None


def _open_demuxer(source: Any) -> Any:
    decoders = codec()
    if not hasattr(decoders, "Demuxer"):
        raise RefusedError(": ".join(_NO_PACKETS))
    return decoders.Demuxer(source)


# Why NVDEC does not decode a kind of video on a device, and None for those that it decodes; finding out means opening the video again.
_refusals: dict[tuple[Any, ...], str | None] = {}


def _check_support(open_source: Callable[[], Any], metadata: Any, device: torch.device) -> bool:
    """Raise RefusedError unless NVDEC decodes this kind of video. Return whether that was not known, so the source has been read."""
    kind = (str(device), metadata.codec, metadata.pixel_format, metadata.height, metadata.width)
    is_new = kind not in _refusals
    if is_new:
        if len(_refusals) >= _MAX_REFUSALS:
            _refusals.clear()
        _refusals[kind] = _find_refusal(open_source, kind)
    refusal = _refusals[kind]
    if refusal is not None:
        raise RefusedError(refusal)
    return is_new


def _find_refusal(open_source: Callable[[], Any], kind: tuple[Any, ...]) -> str | None:
    """Return why NVDEC does not decode this kind of video, or None. Raise RefusedError if this file is to blame."""
    # The decoder of packets falls back to the CPU without saying so, and the decoder of videos says so.
    device, name, pixel_format, *_ = kind
    try:
        with codec().set_cuda_backend("nvdec"):
            fallback = codec().VideoDecoder(open_source(), device=device, seek_mode="approximate").cpu_fallback
    except Exception as error:  # torchcodec has several types: it was built without CUDA, or the driver is too old
        try:
            HostFrames(open_source(), exact=False, threads=1)
        except Exception:  # it is the file, which says nothing about others of its kind
            raise RefusedError(f"torchcodec cannot open some: {reason(error)}") from None
        return f"torchcodec cannot decode on {device}: {reason(error)}"
    if not fallback:
        return None
    if "NVcuvid" in str(fallback):
        return ": ".join(_NO_NVCUVID)
    return f"NVDEC of this GPU does not decode {name} in {pixel_format}, or not of this size"  # the same words for all sizes: one warning


_warned: set[str] = set()
_lock = new_lock()


def warn_of_refusal(why: str) -> None:
    """Warn that videos are decoded on the CPU instead of the GPU, once for each reason."""
    with _lock:
        if why in _warned or len(_warned) >= _MAX_REFUSALS:
            return
        _warned.add(why)
    warnings.warn(f'videos with device="gpu" are decoded on the CPU and copied to the GPU: {why}', RuntimeWarning, stacklevel=2)


# --- RGB from the planes of decoded frames ---

_yuv_kernel = native.kernel("yuv_to_rgb", writes=(-1,))
_MATRICES = native.numbers("yuv_to_rgb.Matrix")
_SPACES = {"bt709": "bt709", "fcc": "fcc", "smpte240m": "smpte240m", "bt2020nc": "bt2020", "bt2020c": "bt2020"}
"""The matrix of each of FFmpeg's color spaces; all others have that of BT.601, as in libswscale."""


def convert_to_rgb(frame: Any) -> torch.Tensor:
    """Return the pixels of a ``torchcodec.decoders.RawFrame``, uint8 (height, width, 3), on its device and, on a GPU, on torch's current stream.

    The pixels are those of torchcodec's own conversion on the CPU. Raise RuntimeError for a format that is not YUV.
    """
    name = frame.pixel_format
    if not name.startswith(("yuv", "nv12", "p01")) or len(frame.planes) != 3:
        raise RuntimeError(f"frames in FFmpeg's pixel format {name} are not supported")
    luma, blue, red = frame.planes
    # P010 has its samples in the highest bits, yuv420p10 in the lowest.
    bits = 16 if name.startswith("p01") else frame.bit_depth
    matrix = _MATRICES[_SPACES.get(frame.color_space, "bt601")]
    output = torch.empty((*luma.shape, 3), dtype=torch.uint8, device=luma.device)
    # Synchronous on the CPU, because the planes belong to the codec.
    submit(_yuv_kernel, (luma, blue, red, bits, matrix, frame.color_range == "pc", output), [], True)
    turns = round(frame.rotation / 90) % 4
    return torch.rot90(output, turns, (0, 1)).contiguous() if turns else output
