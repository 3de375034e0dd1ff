# SPDX-License-Identifier: Apache-2.0
"""Decoding videos."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

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
        frames: frame numbers, in any order, a list for all videos or one for each; instead of the other four.
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
    on_gpu = device.type == "cuda"
    check_encoded(op, files, "encoded videos")
    mode, fill = checked_pad_mode(op, pad_mode), fill_values(op, fill_value)
    _check(op, frames, start_frame, end_frame, sequence_length, stride)
    lists = _lists_of_frames(op, frames, files.batch_size)
    codec()
    encoded_files = [file.buffer for file in files]
    threads = min(get_num_threads(), MAX_GPU_THREADS) if on_gpu else get_num_threads()
    work = Work(op, max(1, threads // max(1, len(encoded_files))))
    max_bytes = checked_limit(op, max_sample_bytes)

    def choose(i: int, opened: Video) -> np.ndarray:
        """Return the frames of sample i; -1 for filled ones."""
        if frames is not None:
            wanted = np.array(sample_numbers(frames if lists is None else lists[i], i), np.int64)
            outside = wanted[(wanted < 0) | (wanted >= opened.count)]
            if mode == "none" and len(outside):
                raise RuntimeError(f"frame {outside[0]} is not among the {opened.count} of the video; another pad_mode allows it")
        else:
            wanted = _range(opened, *(sample_numbers(argument, i) for argument in (start_frame, end_frame, sequence_length, stride)))
        opened.check(len(wanted))
        return padded_frames(wanted, opened.count, mode)

    def with_name(i: int, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:  # torchcodec has several types
            kind = MemoryError if isinstance(error, MemoryError) else RuntimeError
            raise kind(f"{op}: {sample_name(files, i)}: {reason(error)}") from None

    def open_video(i: int) -> tuple[Video, np.ndarray]:
        # Few videos leave threads for FFmpeg, which decodes one video with several.
        opened = Video(encoded_files[i], bool(build_index), max(1, threads // len(encoded_files)), max_bytes, device)
        return opened, choose(i, opened)

    def decode(i: int) -> torch.Tensor:
        opened, wanted = videos.pop(i)  # freed after its last frame: FFmpeg keeps some frames of each video
        try:
            return opened.frames(wanted, fill, parts[i], allocated)[0]
        except EndsEarlyError as error:
            if error.count != opened.count:
                raise
            wanted = choose(i, opened)  # again, with the actual number of frames
            return opened.frames(wanted, fill, parts[i][: len(wanted) * opened.frame_bytes], allocated)[0]

    def decode_timed(i: int) -> torch.Tensor:
        with work.running():
            return decode(i)

    count = len(encoded_files)
    with Workers(threads, "decoders.video") if count > 1 and threads > 1 else nullcontext() as pool:
        run = map if pool is None else pool.map
        videos = dict(enumerate(run(lambda i: with_name(i, lambda: open_video(i)), range(count))))
        sizes = [opened.frame_bytes * len(wanted) for opened, wanted in videos.values()]
        # One buffer for all videos, each of which gets its part: no copy joins them.
        values = native.empty([sum(sizes)], torch.uint8, device)
        allocated = record_event(torch.cuda.current_stream(device)) if on_gpu else None
        parts = values.split(sizes)
        decoded: list[torch.Tensor] = list(run(lambda i: with_name(i, lambda: decode_timed(i)), range(count)))
    if sum(part.numel() for part in decoded) < len(values):  # some videos ended early
        values = torch.cat([part.reshape(-1) for part in decoded])
    shapes = np.array([part.shape for part in decoded], np.int64).reshape(count, 4)
    if count and (shapes == shapes[0]).all():
        out = new_batch(values.view(count, *shapes[0].tolist()), None, "FHWC")
    else:
        out = ragged_batch(values, shapes, "FHWC")
    out.sources = files.sources
    return out if on_gpu else launch((), also=(out,))  # type: ignore[return-value]


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
