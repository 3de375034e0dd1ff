# SPDX-License-Identifier: Apache-2.0
"""Clips: the frames that the samples of a batch take from videos, decoded together."""

import math
import os
import resource
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from .._core import native
from .._core.process.fork_locks import new_lock
from .._core.process.workers import Workers
from .._core.values.batch import Batch, empty_packed, new_batch, ragged_batch
from .._core.values.extents import find_lasting_extents
from .._core.work.cuda_work import on_decode_stream, stream_work
from . import _frame_sources
from ._video import EndsEarlyError, Video, check_frames

MAX_OPEN = 16  # videos, for each thread
# On a GPU, where each takes tens of megabytes of its memory, in all; and threads, because a GPU has no more than some ten decoders.
MAX_OPEN_ON_GPU = 16
MAX_GPU_THREADS = 16
MAX_KEYS = 1 << 22  # key frames of the videos whose facts are kept: 32 MB
_SEEK = 4  # frames that could be decoded in the time of a seek
_MIN_WORK = 16  # frames that are worth a thread


class VideoFacts(NamedTuple):
    """What the choice of frames depends on."""

    count: int
    rate: float
    """Frames per second, on average."""
    height: int
    width: int
    keys: np.ndarray
    """The numbers of the key frames; none where a video is only decoded from its beginning."""
    frame: tuple[int, ...] = ()
    """The shape of a decoded frame, which differs from that in the header for rotated videos; empty as long as none has been decoded."""

    def check(self, count: int, max_bytes: int, item_bytes: int = 1) -> None:
        """Raise RuntimeError or MemoryError if this many frames are more than a sample may have."""
        check_frames(count, self.height, self.width, max_bytes, item_bytes)


class Clip(NamedTuple):
    """The frames that a sample takes from a video."""

    path: str
    choose: Callable[[VideoFacts], np.ndarray]
    """Return the frame numbers, int64; -1 for a frame that is filled. It raises RuntimeError if the video does not have them."""


class Frames(NamedTuple):
    """The frames of a clip."""

    numbers: np.ndarray
    pixels: Sequence[torch.Tensor | None] | torch.Tensor
    """(height, width, 3), uint8, on the decoder's device; the same tensor in all clips that share the frame, and None for a filled one. Or the
    frames together, (frames, height, width, 3), in the memory of a block, where filled ones have no values yet."""
    seconds: np.ndarray
    """The time of each frame, -1 for a filled one."""
    place: tuple["_Block", int] | None = None
    """The block that has the frames, and where they begin in it."""


_Frame = tuple[torch.Tensor, float]


class _Block:
    """The memory of a batch's clips, one after the other, to which threads copy each frame while it is in their caches, and the times of the frames.

    Args:
        shapes: The shape of each clip, (frames, height, width, 3).
        numbers: The frames of each clip.
        paths: The video of each clip.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], numbers: Sequence[np.ndarray], paths: Sequence[str]) -> None:
        self._shapes, self._numbers, self._sizes = shapes, numbers, {path: shape[1:] for path, shape in zip(paths, shapes, strict=True)}
        counts = [shape[0] for shape in shapes]
        self._first = np.cumsum([0, *counts]).tolist()  # frames before each clip
        self._begins = np.cumsum([0, *map(math.prod, shapes)]).tolist()
        self.values = native.empty([self._begins[-1]], torch.uint8, native.CPU)
        self.seconds = np.full(self._first[-1], -1.0)
        # For all clips together: NumPy takes longer to start an operation than to handle the few frames of a clip.
        names = {path: k for k, path in enumerate(self._sizes)}
        videos = np.repeat([names[path] for path in paths], counts)
        sizes = np.repeat([math.prod(shape[1:]) for shape in shapes], counts)
        wanted, places = np.concatenate(numbers), np.cumsum(sizes) - sizes
        # By video, increasing frame numbers, and the places of each in values and in seconds. Lists, with which put() takes 70 us for ten frames of
        # 128x128 beside a decoder, whose data fill the caches; NumPy's searches and differences made it 130.
        self._targets: dict[str, tuple[list[int], list[int], list[int]]] = {}
        for path, k in names.items():
            rows = np.flatnonzero(videos == k)
            rows = rows[np.argsort(wanted[rows], kind="stable")]
            self._targets[path] = wanted[rows].tolist(), places[rows].tolist(), rows.tolist()

    def put(self, path: str, numbers: Sequence[int], frames: torch.Tensor, times: Sequence[float]) -> None:
        """Copy frames with increasing numbers to all clips that have them. Raise RuntimeError if they have another size than the first ones."""
        shape = tuple(frames.shape[1:])
        if shape != self._sizes[path]:
            height, width, _ = self._sizes[path]
            raise RuntimeError(f"a frame has {shape[0]}x{shape[1]} pixels, and the first ones have {height}x{width}")
        wanted, places, rows = self._targets[path]
        size, values, pixels = math.prod(shape), self.values.numpy(), frames.numpy()
        runs: list[list[int]] = []  # first frame, place, and number of frames that follow each other here and there
        k, end = bisect_left(wanted, numbers[0]), len(wanted)
        for i, (number, time) in enumerate(zip(numbers, times, strict=True)):
            while k < end and wanted[k] <= number:
                if wanted[k] == number:  # frames between them may be in the cache
                    self.seconds[rows[k]] = time
                    first, place, count = runs[-1] if runs else (0, 0, 0)
                    if count and i == first + count and places[k] == place + count * size:
                        runs[-1][2] += 1
                    else:
                        runs.append([i, places[k], 1])
                k += 1
        for first, place, count in runs:
            values[place : place + count * size].reshape(count, *shape)[:] = pixels[first : first + count]

    def list_clips(self) -> list[Frames]:
        """Return the clips, which have been copied."""
        if len(set(self._shapes)) == 1:  # one call: 33 us for 64 clips, instead of 1.8 for each
            parts: Sequence[torch.Tensor] = self.values.view(len(self._shapes), *self._shapes[0]).unbind()
        else:
            sizes = [end - begin for begin, end in pairwise(self._begins)]
            parts = [part.view(shape) for part, shape in zip(self.values.split(sizes), self._shapes, strict=True)]
        return [
            Frames(numbers, pixels, self.seconds[first:after], (self, begin))
            for numbers, pixels, (first, after), begin in zip(self._numbers, parts, pairwise(self._first), self._begins[:-1], strict=True)
        ]


@dataclass
class _Piece:
    """The result of one call of a thread: frames of a video."""

    chosen: dict[int, np.ndarray | Exception] = field(default_factory=dict)  # frame numbers of a clip, where the thread has chosen them
    frames: dict[int, _Frame] = field(default_factory=dict)  # unless they are in the block only
    errors: dict[int, Exception] = field(default_factory=dict)


@dataclass
class ClipRequest:
    """Clips that are being decoded."""

    clips: Sequence[Clip]
    process: int
    pieces: list[tuple[str, Future[_Piece]]]
    chosen: dict[int, np.ndarray | Exception]
    cached: dict[tuple[str, int], _Frame]
    block: _Block | None = None


class ClipDecoder:
    """Decode the clips of batches on threads.

    The frames wanted of a video are sorted, and each is decoded once, however many clips share it. They are divided among the threads between
    groups of pictures, so each group is decoded once, from its key frame to the last frame wanted. Videos stay open, the latest 16 for each
    thread, and decoded frames stay in memory up to ``cache_bytes``.

    Args:
        max_bytes: The largest sample, see :class:`Video`.
        cache_bytes: Bytes of decoded frames to keep for later batches, in the memory of the device.
        device: Where the frames are decoded.
    """

    def __init__(self, max_bytes: int, cache_bytes: int = 0, device: torch.device = native.CPU) -> None:
        self._max_bytes, self._cache_bytes, self._device = max_bytes, cache_bytes, device
        self._lock = new_lock()
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._max_idle = MAX_OPEN
        self._facts: OrderedDict[str, VideoFacts] = OrderedDict()
        self._keys = 0  # of all facts
        self._idle: OrderedDict[Video, str] = OrderedDict()  # open videos that no thread uses
        self._cache: OrderedDict[tuple[str, int], _Frame] = OrderedDict()
        self._cached_bytes = 0

    def start(self, clips: Sequence[Clip], pool: Workers) -> ClipRequest:
        """Start decoding on the threads of ``pool`` without waiting."""
        with self._lock:
            if self._process != os.getpid():  # a decoder belongs to the process that has opened it
                self._reset()
            # A quarter of the files that the process may have open, which leaves some to readers and the program.
            most = MAX_OPEN_ON_GPU if _frame_sources.decodes_on_device(self._device) else MAX_OPEN * pool.max_workers
            self._max_idle = min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        request = ClipRequest(clips, os.getpid(), [], {}, {})
        clips_of: dict[str, list[int]] = {}
        for i, clip in enumerate(clips):
            clips_of.setdefault(clip.path, []).append(i)
        parts: list[tuple[str, np.ndarray, np.ndarray, np.ndarray]] = []  # path, frames, the work for each, and where a seek is needed
        for path, numbers in clips_of.items():
            with self._lock:
                facts = self._facts.get(path)
            # The first clip of a video is chosen by the thread that opens it, since its number of frames is not known before.
            if facts is None:
                request.pieces.append((path, pool.submit(self._open_and_decode, path, {i: clips[i] for i in numbers})))
                continue
            chosen = {i: _choose(clips[i], facts) for i in numbers}
            request.chosen |= chosen
            wanted = self._take_cached(path, _sort_frames(chosen), request.cached)
            if len(wanted):
                parts.append((path, wanted, *_estimate_work(wanted, facts.keys)))
        if not request.pieces:
            request.block = self._allocate(clips, request.chosen)
        # Two parts per thread, so one long part does not keep the others waiting at the end.
        share = max(_MIN_WORK, sum(int(work.sum()) for _, _, work, _ in parts) // (2 * pool.max_workers))
        for path, wanted, work, seeks in parts:
            bounds = _divide(work, seeks, share)
            for begin, end in pairwise(bounds):
                request.pieces.append((path, pool.submit(self._decode, path, wanted[begin:end], request.block)))
        return request

    def finish(self, request: ClipRequest, pool: Workers) -> list[Frames | Exception]:
        """Wait for the frames; a clip that cannot be decoded yields its error."""
        if request.process != os.getpid():  # a fork inherits no threads
            request = self.start(request.clips, pool)
        found = dict(request.cached)
        errors: dict[tuple[str, int], Exception] = {}
        if request.block is not None:
            for (path, number), (pixels, time) in request.cached.items():
                try:
                    request.block.put(path, [number], pixels[None], [time])
                except RuntimeError as error:
                    errors[path, number] = error
        chosen = dict(request.chosen)
        failed: dict[str, Exception] = {}
        for path, future in request.pieces:
            try:
                piece = future.result()
            except Exception as error:  # the video cannot be opened
                failed[path] = error
                continue
            chosen |= piece.chosen
            errors |= {(path, number): error for number, error in piece.errors.items()}
            if request.block is None:
                found |= {(path, number): frame for number, frame in piece.frames.items()}
        copied = None if request.block is None else request.block.list_clips()
        clips: list[Frames | Exception] = []
        for i, clip in enumerate(request.clips):
            numbers = failed.get(clip.path) or chosen[i]
            # The first frame with an error.
            if not isinstance(numbers, Exception) and errors:
                numbers = next((errors[clip.path, number] for number in numbers.tolist() if (clip.path, number) in errors), numbers)
            if isinstance(numbers, Exception):
                clips.append(numbers)
            else:
                clips.append(_gather(numbers, clip.path, found) if copied is None else copied[i])
        return clips

    def _allocate(self, clips: Sequence[Clip], chosen: dict[int, np.ndarray | Exception]) -> _Block | None:
        """Return memory for all clips; None if the size of one is not known, or on a GPU, which copies without the host."""
        shapes: list[tuple[int, ...]] = []
        numbers: list[np.ndarray] = []
        with self._lock:
            for i, clip in enumerate(clips):
                facts, wanted = self._facts.get(clip.path), chosen[i]
                if facts is None or not facts.frame or isinstance(wanted, Exception):
                    return None
                shapes.append((len(wanted), *facts.frame))
                numbers.append(wanted)
        return None if self._device.type == "cuda" or not clips else _Block(shapes, numbers, [clip.path for clip in clips])

    def _open_and_decode(self, path: str, clips: dict[int, Clip]) -> _Piece:
        """Choose the frames of a video that was not open before, and decode them."""
        with self._lend(path) as video:
            facts = VideoFacts(video.count, video.rate, video.height, video.width, video.find_keys())
        with self._lock:
            # Two threads may have opened the same video.
            if path not in self._facts:
                self._facts[path] = facts
                self._keys += len(facts.keys)
            while self._keys > MAX_KEYS:
                self._keys -= len(self._facts.popitem(last=False)[1].keys)
        chosen = {i: _choose(clip, facts) for i, clip in clips.items()}
        piece = self._decode(path, _sort_frames(chosen), None)
        piece.chosen = chosen
        frame = next(iter(piece.frames.values()), None)
        with self._lock:
            if frame is not None and path in self._facts:
                self._facts[path] = self._facts[path]._replace(frame=tuple(frame[0].shape))
        return piece

    def _decode(self, path: str, wanted: np.ndarray, block: _Block | None) -> _Piece:
        piece, done, all_numbers = _Piece(), 0, wanted.tolist()
        # One damaged frame must not take the rest of the video with it.
        while done < len(wanted):
            begin = done
            try:
                with self._lend(path) as video:
                    try:
                        for k, frames, times in video.decode(wanted[begin:]):
                            numbers = all_numbers[begin + k : begin + k + len(times)]
                            if block is not None:
                                block.put(path, numbers, frames, times)
                            if self._cache_bytes or block is None:
                                pixels: Iterable[torch.Tensor] = frames
                                if self._cache_bytes and len(times) > 1:  # a cached frame must not keep the memory of the others
                                    pixels = [torch.from_numpy(frame.numpy().copy()) for frame in frames]
                                piece.frames |= zip(numbers, zip(pixels, times, strict=True), strict=True)
                            done = begin + k + len(times)
                    finally:
                        video.finish()
            except EndsEarlyError as error:  # raised at the first frame that is missing
                piece.errors |= dict.fromkeys(all_numbers[done:], error)
                done = len(wanted)
            except Exception as error:  # torchcodec has several types; the frames after a damaged one may be good
                piece.errors[all_numbers[done]] = error
                done += 1
        self._keep(path, piece)
        return piece

    @contextmanager
    def _lend(self, path: str) -> Iterator[Video]:
        """Lend an open video to the calling thread. After an error it is not used again."""
        with self._lock:
            # The one used last: its decoder is nearest to the frames wanted next.
            video = next((video for video, its_path in reversed(self._idle.items()) if its_path == path), None)
            if video is not None:
                del self._idle[video]
        if video is None:
            video = Video(path, max_bytes=self._max_bytes, device=self._device)
        # Without `finally`: a decoder that has raised an error may be in any state.
        yield video
        surplus = []  # freed without the lock: closing takes time
        with self._lock:
            self._idle[video] = path
            while len(self._idle) > self._max_idle:
                surplus.append(self._idle.popitem(last=False))

    def _take_cached(self, path: str, wanted: np.ndarray, found: dict[tuple[str, int], _Frame]) -> np.ndarray:
        """Copy frames from the cache to ``found``. Return the numbers of the others."""
        if not self._cache:
            return wanted
        missing = []
        with self._lock:
            for number in wanted.tolist():
                frame = self._cache.get((path, number))
                if frame is None:
                    missing.append(number)
                else:
                    self._cache.move_to_end((path, number))
                    found[path, number] = frame
        return np.array(missing, np.int64)

    def _keep(self, path: str, piece: _Piece) -> None:
        if not self._cache_bytes:
            return
        with self._lock:
            for number, frame in piece.frames.items():
                if (path, number) in self._cache:
                    continue
                self._cache[path, number] = frame
                self._cached_bytes += frame[0].nbytes
            while self._cached_bytes > self._cache_bytes:
                _, (pixels, _) = self._cache.popitem(last=False)
                self._cached_bytes -= pixels.nbytes


def join_frames(clips: Sequence[Frames], fill: torch.Tensor, layout: str, device: torch.device = native.CPU) -> Batch:
    """Join the frames of clips to a batch on their device: their block, or copies. ``layout`` is ``FHWC``, or ``HWC`` for clips of one frame."""
    shapes, filling = [], fill.numpy()
    is_filled = (np.concatenate([clip.numbers for clip in clips]) < 0).any()  # of all together: 7 us for 64 clips, instead of 1.1 for each
    for clip in clips:
        if isinstance(clip.pixels, torch.Tensor):
            size = clip.pixels.shape[1:]
            if is_filled:
                clip.pixels.numpy()[clip.numbers < 0] = filling
        else:
            (size,) = {pixels.shape for pixels in clip.pixels if pixels is not None}  # of one video
        shapes.append((*([len(clip.numbers)] if layout == "FHWC" else []), *size))
    if (values := _find_block(clips)) is not None:
        if len(set(shapes)) == 1:
            return new_batch(values.view(len(clips), *shapes[0]), None, layout)
        return ragged_batch(values, np.array(shapes, np.int64), layout)
    table, lasting = torch.tensor(shapes, dtype=torch.int64), find_lasting_extents(shapes, layout)
    if device.type == "cuda":
        with on_decode_stream(device):
            output = empty_packed(table, torch.uint8, device, layout, lasting)
            _copy_on_gpu(clips, fill, shapes, output.buffer.view(-1))
            output.pending = stream_work([output.buffer])
        return output
    output = empty_packed(table, torch.uint8, device, layout, lasting)
    # By NumPy: torch splits a copy among threads, which wait for each other while all cores decode.
    array, at = output.buffer.view(-1).numpy(), 0
    for clip, shape in zip(clips, shapes, strict=True):
        size = int(np.prod(shape[-3:]))
        for pixels in clip.pixels:
            array[at : at + size].reshape(shape[-3:])[:] = filling if pixels is None else pixels.numpy()
            at += size
    return output


def _find_block(clips: Sequence[Frames]) -> torch.Tensor | None:
    """Return the memory of clips that follow each other in a block; None if they do not."""
    block: _Block | None = None
    begin = end = 0
    for clip in clips:
        if clip.place is None or not isinstance(clip.pixels, torch.Tensor):
            return None
        if block is None:
            block, begin = clip.place
            end = begin
        if clip.place != (block, end):
            return None
        end += clip.pixels.numel()
    return None if block is None else block.values[begin:end]


def _copy_on_gpu(clips: Sequence[Frames], fill: torch.Tensor, shapes: Sequence[tuple[int, ...]], values: torch.Tensor) -> None:
    """Copy the frames of clips, which have been decoded, one after the other on torch's current stream."""
    stream, at = torch.cuda.current_stream(values.device), 0
    for clip, shape in zip(clips, shapes, strict=True):
        size, filling = int(np.prod(shape[-3:])), None
        for pixels in clip.pixels:
            if pixels is None:
                filling = fill.expand(shape[-3:]).contiguous().to(values.device) if filling is None else filling
                values[at : at + size].view(shape[-3:]).copy_(filling)
            else:
                values[at : at + size].view(shape[-3:]).copy_(pixels)
                pixels.record_stream(stream)  # its memory belongs to the stream on which the video was decoded
            at += size


def _choose(clip: Clip, facts: VideoFacts) -> np.ndarray | Exception:
    try:
        return clip.choose(facts)
    except Exception as error:
        return error


def _sort_frames(chosen: dict[int, np.ndarray | Exception]) -> np.ndarray:
    """Return the frames of all clips, increasing, each once."""
    # An empty array first, because there may be none.
    numbers = [np.zeros(0, np.int64), *(numbers for numbers in chosen.values() if not isinstance(numbers, Exception))]
    wanted = np.unique(np.concatenate(numbers))
    return wanted[wanted >= 0]


def _estimate_work(wanted: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each frame wanted, the frames to decode, from its key frame or the frame wanted before, and whether that begins with a seek.

    >>> work, seeks = _estimate_work(np.array([3, 4, 9, 25]), np.array([0, 8, 20]))
    >>> work.tolist(), seeks.tolist()
    ([8, 1, 6, 10], [True, False, True, True])
    """
    if not len(keys):
        return np.diff(wanted, prepend=-1), np.zeros(len(wanted), bool)
    key = keys[np.maximum(np.searchsorted(keys, wanted, "right") - 1, 0)]
    # A decoder that was not used before is at no frame: -2 is next to none.
    before = np.concatenate([[-2], wanted[:-1]])
    # From the frame before, or from the key frame in between, whichever is nearer.
    seeks = (before < key) & (wanted != before + 1)
    return np.where(seeks, wanted - key + 1 + _SEEK, wanted - before), seeks


def _divide(work: np.ndarray, seeks: np.ndarray, share: int) -> list[int]:
    """Return the bounds of parts of at least ``share``, which begin with a seek; the last one may be smaller.

    >>> _divide(np.array([8, 1, 6, 10, 1, 7]), np.array([True, False, True, True, False, True]), 9)
    [0, 2, 5, 6]
    """
    bounds, total = [0], 0
    for k, (frames, seek) in enumerate(zip(work.tolist(), seeks.tolist(), strict=True)):
        if seek and total >= share:
            bounds.append(k)
            total = 0
        total += frames
    return [*bounds, len(work)]


def _gather(numbers: np.ndarray, path: str, found: dict[tuple[str, int], _Frame]) -> Frames:
    """Return the frames of a clip, all of which have been decoded."""
    frames = [found[path, number] if number >= 0 else (None, -1.0) for number in numbers.tolist()]
    return Frames(numbers, [pixels for pixels, _ in frames], np.array([time for _, time in frames], np.float64))


def check_cache_bytes(op: str, value: int | None) -> int:
    """Return a reader's argument ``cache_bytes``; 0 for None. Raise ValueError if it is negative."""
    if value is not None and value < 0:
        raise ValueError(f"{op}: cache_bytes must not be negative, got {value}")
    return int(value or 0)
