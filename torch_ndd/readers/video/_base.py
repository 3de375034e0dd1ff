# SPDX-License-Identifier: Apache-2.0
"""The base class of the video readers."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch

from ... import types
from ..._core.context.device import DeviceLike
from ..._core.process.weak import WeakCall
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import BadSample, UnreadableSamples
from ..._core.work.cuda_work import stream_work
from ...decoders._clips import MAX_GPU_THREADS, Clip, ClipDecoder, ClipRequest, Frames, VideoFacts, check_cache_bytes, join_frames
from ...decoders._video import codec, padded_frames, reason
from ...io._urls import is_url
from ...ops.color.space import color_space_conversion
from .._options import DecodingOptions, find_target
from .._threads import ThreadedReader, pack_samples
from ._index import Limits, Listed, VideoIndex, from_folder, from_list, sequences, spans, uniform_frames

Path = str | os.PathLike[str]
FrameNumbers = Literal["none", "scalar", "sequence"]
_FRAME_NUMBERS = {"none": "none", "scalar": "scalar", "sequence": "sequence", False: "none", True: "scalar"}


class SequenceOptions(DecodingOptions, total=False):
    """Options of every video reader; see :class:`readers.Video`."""

    cache_bytes: int | None
    enable_frame_num: FrameNumbers | bool | None
    enable_timestamps: bool | None
    file_list: Path | None
    file_root: Path | None
    filenames: Path | Sequence[Path] | None
    image_type: types.DALIImageType | None
    labels: Any
    scalar_labels: bool
    step: int | None
    stride: int | None


class VideoReader(ThreadedReader):
    """Base class of the video readers. Subclasses set the attributes they have arguments for."""

    _limits = Limits(frames=False, start_up=True, end_up=False)
    _pad_mode = "none"
    _fill = torch.zeros(1, dtype=torch.uint8)
    _uniform = False
    _dtype = torch.uint8
    _normalized = False
    _public_name = ""  # if it differs from that of the class

    def __init__(self, max_batch_size: int | None, device: DeviceLike, sequence_length: int, options: SequenceOptions) -> None:
        self._target = find_target(self._public_name or f"readers.{type(self).__name__}", device)
        super().__init__(max_batch_size, "cpu", options)
        self._op = self._public_name or self._op
        enable_frame_num, image_type = options.get("enable_frame_num"), options.get("image_type")
        if enable_frame_num is not None and enable_frame_num not in _FRAME_NUMBERS:
            raise RuntimeError(f"{self._op}: enable_frame_num must be one of {', '.join(get_args(FrameNumbers))}, got {enable_frame_num!r}")
        self._frame_numbers = _FRAME_NUMBERS[enable_frame_num or "none"]
        self._timestamps = bool(options.get("enable_timestamps"))
        self._image_type = types.RGB if image_type is None else image_type
        if self._image_type not in (types.RGB, types.YCbCr):
            raise RuntimeError(f"{self._op}: Invalid image type: {image_type!r}; it must be types.RGB or types.YCbCr")
        file_list, file_root, filenames, labels = (options.get(name) for name in ("file_list", "file_root", "filenames", "labels"))
        self._file_list = os.fspath(file_list) if file_list else None
        self._file_root = os.fspath(file_root) if file_root else None
        paths = [filenames] if isinstance(filenames, str | os.PathLike) else list(filenames or ())
        self._filenames = [os.fspath(path) for path in paths]
        if sum(map(bool, (self._file_list, self._file_root, self._filenames))) != 1:
            raise RuntimeError(f"{self._op}: one of file_list, file_root and filenames must be given, and only one")
        self._labels = None if labels is None else self._checked_labels(labels)
        self._scalar_labels = bool(options.get("scalar_labels"))
        stride = options.get("stride")
        self._frames, self._stride, self._advance = int(sequence_length), 1 if stride is None else int(stride), int(options.get("step") or -1)
        if self._frames < 1 or self._stride < 1:
            raise RuntimeError(f"{self._op}: sequence_length and stride must be positive, got {self._frames} and {self._stride}")
        # By default sequences follow each other without overlap.
        if self._advance < 1:
            self._advance = self._frames * self._stride
        self._index: VideoIndex | None = None
        self._cache_bytes = check_cache_bytes(self._op, options.get("cache_bytes"))
        self._clips = ClipDecoder(self._max_sample_bytes, self._cache_bytes, self._target)
        if self._target.type == "cuda":
            self._max_threads = MAX_GPU_THREADS

    def describe_bottleneck(self) -> tuple[str, str]:
        fewer = "read fewer frames (sequence_length, a larger step), store smaller videos with more key frames"
        return "frames to be decoded", f"{fewer}, or read further ahead (prefetch_queue_depth)"

    def _checked_labels(self, labels: Any) -> np.ndarray:
        values = np.asarray(labels)
        if not self._filenames or values.ndim != 1 or len(values) != len(self._filenames):
            raise RuntimeError(
                f"{self._op}: Number of provided files and labels should match: {len(self._filenames)} filenames and {values.size} labels"
            )
        return values.astype(np.int32)

    def scan(self) -> int:
        codec()
        if self._index is None:
            if self._file_list is not None:
                listed = from_list(self._op, self._file_list)
            elif self._file_root is not None:
                listed = from_folder(self._op, self._file_root)
            else:
                labels = [0] * len(self._filenames) if self._labels is None else self._labels.tolist()
                listed = [Listed(path, label) for path, label in zip(self._filenames, labels, strict=True)]
            found = spans(self._op, listed, self._limits, self._max_sample_bytes, self._cannot_open)
            # One sequence for each video, so an empty part gives none.
            if self._uniform:
                used = [span for span in found if span.end > span.start]
                columns = [np.array([span[k] for span in used], kind) for k, kind in enumerate((np.int32, np.int64, np.int64))]
            else:
                columns = list(sequences(found, self._frames, self._advance, self._stride, self._pad_mode != "none"))
                if found and not len(columns[0]):
                    longest = max(found, key=lambda span: span.end - span.start)
                    raise RuntimeError(
                        f"{self._op}: no samples found: a sequence of sequence_length={self._frames} and stride={self._stride} needs "
                        f'{(self._frames - 1) * self._stride + 1} frames, the longest video "{listed[longest.video].path}" has '
                        f"{longest.end - longest.start}"
                    )
            self._index = VideoIndex(listed, *columns)
            self._remote = any(is_url(entry.path) for entry in listed)
        return self._index.size

    def _cannot_open(self, path: str, reason: str) -> None:
        """Handle a video that cannot be opened. Its number of sequences is unknown, so it can only be left out."""
        if self._on_error == "raise":
            raise RuntimeError(f'{self._op}: "{path}" cannot be opened: {reason}; on_error="skip" leaves such files out')
        # Without a sample number: the video has none.
        self._errors.append(BadSample(-1, path, reason))

    def _source(self, sample: int) -> str:
        assert self._index is not None
        return self._index.source(sample)

    def _choose(self, sample: int, video: VideoFacts) -> np.ndarray:
        """Return the frame numbers of a sequence; -1 for filled ones."""
        index = self._index
        assert index is not None
        start, end = int(index.start[sample]), int(index.end[sample])
        video.check(self._frames, self._max_sample_bytes, self._dtype.itemsize)
        if self._uniform:
            return uniform_frames(start, end, self._frames)
        last = start + self._stride * (self._frames - 1)
        numbers = np.arange(start, last + 1, self._stride)
        return numbers if last < end else padded_frames(numbers, end, self._pad_mode)

    def start(self, samples: np.ndarray) -> ClipRequest:
        index = self._index
        assert index is not None
        choose, videos = WeakCall(self._choose), index.video[samples].tolist()  # the reader holds the request
        clips = [Clip(index.listed[video].path, partial(choose, sample)) for video, sample in zip(videos, samples.tolist(), strict=True)]
        return self._clips.start(clips, self._pool())

    def _other_outputs(self, samples: np.ndarray, clips: Sequence[Frames]) -> list[Batch]:
        """Return the batches that follow the frames."""
        index = self._index
        assert index is not None
        outputs = []
        # DALI returns labels unless files are given by name without labels.
        if self._labels is not None or not self._filenames:
            labels = np.array([index.listed[video].label for video in index.video[samples].tolist()])
            outputs.append(labels if self._scalar_labels else labels.astype(np.int32)[:, None])
        if self._frame_numbers == "scalar":
            outputs.append(index.start[samples].astype(np.int32)[:, None])
        elif self._frame_numbers == "sequence":
            outputs.append([clip.numbers.astype(np.int32) for clip in clips])
        if self._timestamps:
            outputs.append([clip.seconds for clip in clips])
        return [pack_samples([np.asarray(value) for value in output]) for output in outputs]

    def finish(self, request: ClipRequest, samples: np.ndarray) -> tuple[Batch, ...]:
        clips, reasons = [], {}
        for k, clip in enumerate(self._clips.finish(request, self._pool())):
            if isinstance(clip, Exception):
                reasons[k] = reason(clip)
            else:
                clips.append(clip)
        if reasons:
            raise UnreadableSamples(reasons)
        frames = join_frames(clips, self._fill, "FHWC", self._target)
        others = [values.to_device(self._target) for values in self._other_outputs(samples, clips)]
        frames.sources = tuple(map(self._source, samples.tolist()))
        # Kept, because operators return new batches without sources.
        sources = frames.sources
        if self._image_type == types.YCbCr:
            frames = color_space_conversion(frames, image_type=types.RGB, output_type=types.YCbCr)
        frames = self._resize(frames)
        if frames.dtype != self._dtype or self._normalized:
            # Waits, because torch's arithmetic needs the values now; on a GPU the stream waits, not the host.
            values = frames.wait().to(self._dtype)
            frames = new_batch(
                values / 255 if self._normalized else values, frames.ragged_shapes, frames.layout, shared_extents=frames.shared_extents
            )
            if self._target.type == "cuda":
                frames.pending = stream_work([frames.buffer])
        frames.sources = sources
        return frames, *others

    def _resize(self, frames: Batch) -> Batch:
        """Return the frames in the requested size."""
        return frames

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_clips": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._clips = ClipDecoder(self._max_sample_bytes, self._cache_bytes, self._target)
