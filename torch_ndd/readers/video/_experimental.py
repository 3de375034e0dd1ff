# SPDX-License-Identifier: Apache-2.0
"""Videos as sequences of frames, with several ways to pad the end of a video."""

from typing import Any, ClassVar, Literal, get_args

from typing_extensions import Unpack

from ..._core.context.device import DeviceLike
from ..._core.suggestions import check_choice
from ...decoders._video import PadMode, fill_values
from ...decoders._video import pad_mode as checked_pad_mode
from ._base import SequenceOptions, VideoReader
from ._index import Limits

ListFormat = Literal["timestamps", "frames"]
ListRounding = Literal["start_down_end_up", "start_up_end_down", "all_up", "all_down"]


class Video(VideoReader):
    """Read sequences of frames from videos like :class:`readers.Video`, with several ways to pad the end of a video.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: Where the outputs are. On a GPU its video decoder decodes, see :func:`decoders.video`.
        sequence_length, stride, step, enable_frame_num, enable_timestamps, filenames, file_root, labels, scalar_labels, image_type: See
            :class:`readers.Video`.
        file_list: Text file of lines ``path label [start [end]]``; ``end`` is exclusive.
        file_list_format: "timestamps", in seconds, or "frames"; negative frame numbers count from the end of the video.
        file_list_rounding: Which frame a time between two frames means: "start_down_end_up", "start_up_end_down", "all_up" or "all_down".
        file_list_include_end: Ignored, as in DALI 2.4.
        pad_mode: "none": all sequences are complete. Otherwise the last sequence of a video may be incomplete and is filled with ``fill_value``
            ("constant"), the last frame ("edge", "repeat"), or the mirrored frames with ("reflect_1001", "symmetric") or without ("reflect_101",
            "reflect") the last one.
        fill_value: One number, or one per channel.
        uniform_sample: One sequence per video: equidistant frames from its first to its last one.
        cache_bytes: Keep decoded frames up to this many bytes, for sequences that overlap or come again; by default none. Not in DALI.
        max_sample_bytes: The largest sample to decode, to guard against small files that declare large data; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        **options: Sharding, shuffling, padding, read-ahead and bad files, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: Arguments that contradict each other; at the first step, if a video cannot be opened; at any step, if it is damaged.

    Needs the package torchcodec and FFmpeg's libraries: ``pip install torch_ndd[video]``.
    """

    _public_name = "experimental.readers.Video"
    _ROUNDING: ClassVar[dict[ListRounding, tuple[bool, bool]]] = {  # whether the start and the end are rounded up
        "start_down_end_up": (False, True),
        "start_up_end_down": (True, False),
        "all_up": (True, True),
        "all_down": (False, False),
    }

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        file_list_format: ListFormat | None = None,
        file_list_include_end: bool | None = None,
        file_list_rounding: ListRounding | None = None,
        fill_value: Any = None,
        pad_mode: PadMode | None = None,
        sequence_length: int,
        uniform_sample: bool | None = None,
        **options: Unpack[SequenceOptions],
    ) -> None:
        super().__init__(max_batch_size, device, sequence_length, options)
        if file_list_format is not None:
            check_choice(self._op, "file_list_format", file_list_format, get_args(ListFormat))
        rounding = file_list_rounding or "start_down_end_up"
        check_choice(self._op, "file_list_rounding", rounding, self._ROUNDING)
        self._limits = Limits(file_list_format == "frames", *self._ROUNDING[rounding])
        self._pad_mode = checked_pad_mode(self._op, pad_mode or "none")
        self._fill = fill_values(self._op, (0,) if fill_value is None else fill_value)
        self._uniform = bool(uniform_sample)
