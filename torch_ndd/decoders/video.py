# SPDX-License-Identifier: Apache-2.0
"""Decoding videos."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from .._core import native
from .._core.context.pools import get_num_threads
from .._core.native.tracing import is_compiling
from .._core.operators.arguments import VaryingShape
from .._core.operators.operator import DeviceLike, Hint, ShapeArg, T, launch
from .._core.process.limits import max_sample_bytes as checked_limit
from .._core.process.workers import Workers
from .._core.values.batch import Batch, new_batch, ragged_batch
from .._core.work.cuda_work import record_event
from .._core.work.diagnosis import Work
from ._clips import MAX_GPU_THREADS
from ._files import check_encoded, decoder, sample_name, sample_numbers
from ._video import EndsEarlyError, PadMode, Video, codec, fill_values, padded_frames, reason
from ._video import pad_mode as checked_pad_mode


@decoder(name="decoders.video", kernel=None, host_inputs=True)
def video(
    encoded: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    affine: Hint[bool] = True,
    build_index: bool = True,
    end_frame: ShapeArg[int] | None = None,
    fill_value: Any = (0,),
    frames: VaryingShape[Sequence[int]] | None = None,
    max_sample_bytes: int | None = None,
    pad_mode: PadMode = "constant",
    sequence_length: ShapeArg[int] | None = None,
    start_frame: ShapeArg[int] | None = None,
    stride: ShapeArg[int] | None = None,
) -> T:
    """Decode videos: bytes of MP4, MKV, WebM, AVI and other files to RGB frames (F, H, W, 3), uint8, layout ``FHWC``.

    By default all frames. They are decoded at the call, because the number of frames of a video is not known before: each video by one thread, or a
    single video by all threads.

    With ``device="gpu"`` the files stay in host memory, and NVDEC, the video decoder of the GPU, decodes them through torchcodec: H.264, HEVC, VP8,
    VP9, AV1 and MPEG-4 of 8 to 12 bits, as far as the GPU has them. Other videos are decoded on the CPU and copied to the GPU, with one warning that
    says why. The pixels are the CPU's within one level if the codec is exact, as all of these but MPEG-4 are.

    Args:
        encoded: contents of the files, uint8 (length,), in host memory; ``io.file.read`` reads files. A path, a URL or ``bytes`` makes a Tensor, a
            list of them a Batch.
        start_frame, end_frame, stride: the frames ``start_frame``, ``start_frame + stride``, ... before ``end_frame``.
        sequence_length: number of frames, instead of ``end_frame``.
        frames: frame numbers, in any order, a list for all videos or one for each; instead of the other four. A number outside the video, also -1, is
            padded.
        pad_mode: how to pad beyond the end: "constant" with ``fill_value``, "edge" (or "repeat") with the last frame, "reflect_1001" ("symmetric")
            and "reflect_101" ("reflect") with the reversed video including and excluding the last frame; with "none" the result is shorter.
        fill_value: one number, or one per channel.
        build_index: scan the whole file first for exact frame numbers; False trusts the header, except on a GPU.
        max_sample_bytes: the largest result to decode, a guard against small files that claim a lot of data; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.

    Raises:
        RuntimeError: a file that is not a video or is damaged, a result larger than ``max_sample_bytes``, a start beyond the end of the video,
            numbers that contradict each other. The message names the sample and the file.
        ValueError: ``max_sample_bytes`` that is not positive.

    Needs the package torchcodec and FFmpeg's libraries: ``pip install torch_ndd[video]``.

    >>> file = np.fromfile("holiday.mp4", np.uint8)  # doctest: +SKIP
    >>> video(file, start_frame=30, sequence_length=8, stride=2).shape  # doctest: +SKIP
    (8, 720, 1280, 3)
    """
    op, files = "decoders.video", encoded
    assert isinstance(files, Batch)
    if is_compiling():
        raise TypeError(f"{op} cannot be part of a compiled graph: it runs in Python")
    assert isinstance(device, torch.device)
    check_encoded(op, files, "encoded videos")
    mode, fill = checked_pad_mode(op, pad_mode), fill_values(op, fill_value)
    _check(op, frames, start_frame, end_frame, sequence_length, stride)
    lists = _lists_of_frames(op, frames, files.batch_size)
    codec()
    wanted = _Frames(frames, lists, start_frame, end_frame, sequence_length, stride, mode)
    out = _Videos(op, files, wanted, fill, bool(build_index), checked_limit(op, max_sample_bytes), device).decode()
    return out if device.type == "cuda" else launch((), also=(out,))  # type: ignore[return-value]


class _Frames(NamedTuple):
    """The frames that are wanted of each video: the arguments of the operator."""

    frames: Any
    lists: Sequence[Sequence[int]] | None  # frames, if they are a list for each video
    start: Any
    end: Any
    length: Any
    stride: Any
    pad_mode: str

    def choose(self, i: int, video: Video) -> np.ndarray:
        """Return the frame numbers of sample i; -1 for filled ones."""
        if self.frames is not None:
            wanted = np.array(sample_numbers(self.frames if self.lists is None else self.lists[i], i), np.int64)
            outside = wanted[(wanted < 0) | (wanted >= video.count)]
            if self.pad_mode == "none" and len(outside):
                raise RuntimeError(f"frame {outside[0]} is not among the {video.count} of the video; another pad_mode allows it")
        else:
            wanted = _range(video, *(sample_numbers(argument, i) for argument in (self.start, self.end, self.length, self.stride)))
        video.check(len(wanted))
        return padded_frames(wanted, video.count, self.pad_mode)


class _Videos:
    """The videos of a batch, from their files to one buffer of frames."""

    def __init__(self, op: str, files: Batch, wanted: _Frames, fill: Any, build_index: bool, max_bytes: int, device: torch.device) -> None:
        self.op, self.files, self.wanted, self.fill = op, files, wanted, fill
        self.build_index, self.max_bytes, self.device = build_index, max_bytes, device
        self.encoded = [file.buffer for file in files]
        self.on_gpu = device.type == "cuda"
        self.threads = min(get_num_threads(), MAX_GPU_THREADS) if self.on_gpu else get_num_threads()
        # Few videos leave threads for FFmpeg, which decodes one video with several.
        self.threads_of_each = max(1, self.threads // max(1, len(self.encoded)))
        self.work = Work(op, self.threads_of_each)

    def decode(self) -> Batch:
        """Return the frames: a dense batch if all videos give the same shape."""
        count = len(self.encoded)
        with Workers(self.threads, self.op) if count > 1 and self.threads > 1 else nullcontext() as pool:
            run = map if pool is None else pool.map
            opened = list(run(self._open, range(count)))
            sizes = [video.frame_bytes * len(wanted) for video, wanted in opened]
            # One buffer for all videos, each of which gets its part: no copy joins them.
            values = native.empty([sum(sizes)], torch.uint8, self.device)
            allocated = record_event(torch.cuda.current_stream(self.device)) if self.on_gpu else None
            parts = values.split(sizes)
            videos = dict(enumerate(opened))
            del opened  # each is freed after its last frame: FFmpeg keeps some frames of each video
            decoded: list[torch.Tensor] = list(run(lambda i: self._decode(i, *videos.pop(i), parts[i], allocated), range(count)))
        if sum(part.numel() for part in decoded) < len(values):  # some videos ended early
            values = torch.cat([part.reshape(-1) for part in decoded])
        shapes = np.array([part.shape for part in decoded], np.int64).reshape(count, 4)
        if count and (shapes == shapes[0]).all():
            out = new_batch(values.view(count, *shapes[0].tolist()), None, "FHWC")
        else:
            out = ragged_batch(values, shapes, "FHWC")
        out.sources = self.files.sources
        return out

    def _open(self, i: int) -> tuple[Video, np.ndarray]:
        """Return a video and the numbers of its frames."""
        with self._naming(i):
            opened = Video(self.encoded[i], self.build_index, self.threads_of_each, self.max_bytes, self.device)
            return opened, self.wanted.choose(i, opened)

    def _decode(self, i: int, video: Video, wanted: np.ndarray, part: torch.Tensor, allocated: torch.cuda.Event | None) -> torch.Tensor:
        """Decode a video into its part of the buffer and return the frames, which are fewer if the video ends before its header says."""
        with self._naming(i), self.work.running():
            try:
                return video.frames(wanted, self.fill, part, allocated)[0]
            except EndsEarlyError as error:
                if error.count != video.count:
                    raise
                wanted = self.wanted.choose(i, video)  # again, with the actual number of frames
                return video.frames(wanted, self.fill, part[: len(wanted) * video.frame_bytes], allocated)[0]

    @contextmanager
    def _naming(self, i: int) -> Iterator[None]:
        """Add the operator, the sample and its file to an error."""
        try:
            yield
        except Exception as error:  # torchcodec has several types
            kind = MemoryError if isinstance(error, MemoryError) else RuntimeError
            raise kind(f"{self.op}: {sample_name(self.files, i)}: {reason(error)}") from None


def _check(op: str, frames: Any, start: Any, end: Any, length: Any, stride: Any) -> None:
    values = {"start_frame": start, "end_frame": end, "sequence_length": length, "stride": stride}
    names = [name for name, value in values.items() if value is not None]
    if frames is not None and names:
        raise RuntimeError(f"{op}: Cannot specify both `frames` and {', '.join(names)}")
    if end is not None and length is not None:
        raise RuntimeError(f"{op}: Cannot specify both `sequence_length` and `end_frame` arguments")
    for name, least in (("sequence_length", 0), ("stride", 1)):
        value = values[name]
        if value is not None and int(torch.as_tensor(value).min()) < least:
            raise RuntimeError(f"{op}: {name} must be at least {least}, got {torch.as_tensor(value).tolist()}")


def _lists_of_frames(op: str, frames: Any, videos: int) -> Sequence[Sequence[int]] | None:
    """Return the frames if they are a list for each video; None if they are in another form. Raise ValueError for another number of lists."""
    if not isinstance(frames, Sequence) or not any(isinstance(numbers, Sequence) for numbers in frames):
        return None
    if len(frames) != videos or not all(isinstance(numbers, Sequence) for numbers in frames):
        raise ValueError(f"{op}: frames must be a list of numbers, or one for each of the {videos} videos, got {frames!r:.200}")
    return frames


def _range(video: Video, start: list[int] | None, end: list[int] | None, length: list[int] | None, stride: list[int] | None) -> np.ndarray:
    first, step, count = start[0] if start else 0, stride[0] if stride else 1, video.count
    if first >= count:
        raise RuntimeError(f"start_frame {first} is out of bounds, expected range [0, {count})")
    if length:
        video.check(length[0])
        return first + step * np.arange(length[0], dtype=np.int64)
    last = end[0] if end else count
    if last <= first:
        raise RuntimeError(f"end_frame ({last}) must be greater than start_frame ({first})")
    return np.arange(first, last, step, dtype=np.int64)
