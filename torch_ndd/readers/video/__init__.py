# SPDX-License-Identifier: Apache-2.0
"""Videos as sequences of frames, optionally resized."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar, TypedDict

import torch
from typing_extensions import Unpack

from ... import types
from ..._core.context.device import DeviceLike
from ..._core.values.batch import Batch
from ...ops.geometry.resize import resize
from ._base import SequenceOptions, VideoReader
from ._index import Limits


class VideoOptions(SequenceOptions, total=False):
    """Options of :class:`Video` and :class:`VideoResize`."""

    additional_decode_surfaces: int | None
    channels: int | None
    dtype: Any
    file_list_frame_num: bool | None
    file_list_include_preceding_frame: bool | None
    normalized: bool | None
    pad_sequences: bool | None
    skip_vfr_check: bool | None


class Video(VideoReader):
    """Read sequences of frames from videos: (F, H, W, 3), layout ``FHWC``, followed by the requested labels, frame numbers and times.

    The videos are given by one of

    - ``filenames``: a list of paths or URLs, optionally with ``labels``;
    - ``file_root``: the videos in the subdirectories of a folder, which have the labels 0, 1, ... in the order of their names;
    - ``file_list``: a text file of lines ``path label [start [end]]``; start and end are in seconds, or frame numbers with ``file_list_frame_num``,
      negative ones counting from the end of the video; ``end`` is exclusive. If the list is at a URL, relative paths start there.

    In MPEG transport and program streams, and in AVI files with B-frames, frames are counted from the beginning: in random order, such a video is
    decoded up to the sequence each time.

    The labels, int32 (1,), or int64 () with ``scalar_labels``, are an output unless only ``filenames`` is given.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``, ``additional_decode_surfaces`` and ``skip_vfr_check``; accepted for compatibility with DALI.
        device: Where the outputs are. On a GPU its video decoder decodes, see :func:`decoders.video`.
        sequence_length: Frames per sequence.
        stride: Distance between consecutive frames of a sequence.
        step: Distance between the first frames of consecutive sequences; by default sequences do not overlap.
        pad_sequences: Deliver the incomplete last sequence of a video, padded with frames of zeros whose numbers and times are -1.
        enable_frame_num: Add the number of the first frame, int32 (1,) ("scalar" or True), or of each frame, (F,) ("sequence").
        enable_timestamps: Add the time of each frame in seconds, float64 (F,).
        file_list_frame_num: Start and end in ``file_list`` are frame numbers.
        file_list_include_preceding_frame: A start between two frames means the first one, an end the second one; otherwise the reverse.
        image_type: ``types.RGB`` or ``types.YCbCr``.
        dtype: uint8, or float32 from 0 to 255.
        normalized: Scale to float32 from 0 to 1.
        channels: 3.
        labels: One per file of ``filenames``.
        scalar_labels: Deliver labels as torch's losses take them: int64 (), so those of a batch are (N,). Not in DALI.
        cache_bytes: Keep decoded frames up to this many bytes, for sequences that overlap or come again; by default none. Not in DALI.
        max_sample_bytes: The largest sample to decode, to guard against small files that declare large data; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        **options: Sharding, shuffling, padding, read-ahead and bad files, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: Arguments that contradict each other; at the first step, if a video cannot be opened; at any step, if it is damaged.

    Needs the package torchcodec and FFmpeg's libraries: ``pip install torch_ndd[video]``.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        sequence_length: int,
        **options: Unpack[VideoOptions],
    ) -> None:
        paths, labels = options.get("filenames"), options.get("labels")
        # DALI numbers the files if `labels` is an empty list.
        if labels is not None and not len(labels):
            options["labels"] = range(1 if isinstance(paths, str | os.PathLike) else len(paths or ()))
        super().__init__(max_batch_size, device, sequence_length, options)
        channels, dtype, normalized = options.get("channels"), options.get("dtype"), bool(options.get("normalized"))
        if channels not in (None, 3):
            raise RuntimeError(f"{self._op}: channels must be 3, got {channels}")
        self._dtype = torch.float32 if normalized else torch.uint8
        if dtype is not None:
            self._dtype = types.to_dtype(dtype)
        if self._dtype not in (torch.uint8, torch.float32) or (normalized and self._dtype != torch.float32):
            raise RuntimeError(f"{self._op}: dtype must be uint8 or float32, and float32 where it is normalized; got {self._dtype}")
        self._normalized = normalized
        self._pad_mode = "constant" if options.get("pad_sequences") else "none"
        down = bool(options.get("file_list_include_preceding_frame"))
        self._limits = Limits(frames=bool(options.get("file_list_frame_num")), start_up=not down, end_up=down)


class ResizeOptions(TypedDict, total=False):
    """The arguments of :func:`resize` that :class:`VideoResize` passes on."""

    antialias: bool | None
    interp_type: types.DALIInterpType | None
    mag_filter: types.DALIInterpType | None
    max_size: float | Sequence[float] | None
    min_filter: types.DALIInterpType | None
    mode: str | None
    resize_longer: float | None
    resize_shorter: float | None
    resize_x: float | None
    resize_y: float | None
    resize_z: float | None
    roi_end: Sequence[float] | None
    roi_relative: bool | None
    roi_start: Sequence[float] | None
    size: float | Sequence[float] | None
    subpixel_scale: bool | None


class VideoResizeOptions(VideoOptions, ResizeOptions, total=False):
    """Options of :class:`VideoResize`."""

    minibatch_size: int | None
    temp_buffer_hint: int | None


class VideoResize(Video):
    """Read sequences of frames like :class:`Video` and resize them like :func:`resize`, whose arguments it also takes.

    Floating-point frames are not rounded to uint8: with ``dtype=float32`` the result of resizing keeps its fractions. A call may give the arguments
    in ``PER_SAMPLE`` for its batch only, also with a value per sample: ``reader(batch_size=8, size=sizes)``.
    """

    PER_SAMPLE: ClassVar[tuple[str, ...]] = (
        *("interp_type", "mag_filter", "min_filter", "resize_longer", "resize_shorter", "resize_x", "resize_y", "resize_z"),
        *("roi_end", "roi_start", "size"),
    )

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        sequence_length: int,
        **options: Unpack[VideoResizeOptions],
    ) -> None:
        super().__init__(max_batch_size, name, device, num_inputs, sequence_length=sequence_length, **options)
        self._resizing = {name: options.get(name) for name in ResizeOptions.__annotations__}
        self._now: dict[str, Any] = {}  # those of a call

    def __call__(self, *, batch_size: int | None = None, **arguments: Any) -> Any:
        """Return one batch or sample, resized by the arguments of the call."""
        for key in arguments:
            if key not in self.PER_SAMPLE:
                raise TypeError(f"{self._op}: got an unexpected keyword argument {key!r}")
            if self._resizing[key] is not None:
                raise ValueError(f"{self._op}: Keyword argument {key!r} cannot be passed both in the constructor and __call__.")
        # The lock keeps another thread's step from using these arguments.
        with self._lock:
            self._now = arguments
            try:
                return super().__call__(batch_size=batch_size)
            finally:
                self._now = {}

    def _resize(self, frames: Batch) -> Batch:
        return resize(frames, dtype=self._dtype, **{**self._resizing, **self._now})  # type: ignore[arg-type]
