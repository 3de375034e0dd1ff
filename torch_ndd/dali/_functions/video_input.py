# SPDX-License-Identifier: Apache-2.0
"""``fn.experimental.inputs.video``: videos that are fed as files and returned in batches of sequences."""

from collections import deque
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..._core.context.device import torch_device
from ..._core.native import CPU
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, new_batch
from ...decoders._video import Video
from .._graph.errors import wrap_error
from .._graph.graph import Graph, Operation, Step
from .._graph.operations import on_device, target_device
from .._inputs.feeding import import_batch
from ..data_node import DataNode, create
from .calls import device_of

LastSequencePolicy = Literal["partial", "pad"]
_BLACK = torch.zeros(3, dtype=torch.uint8, device="cpu")


class NotFedError(IndexError, RuntimeError):
    """All queued videos were read."""


class VideoInputOperation(Operation):
    """An input of encoded videos, which are decoded as far as the iterations need."""

    pulls = True
    fed = True
    frames: int
    pads: bool

    def prepare(self, graph: Graph) -> None:
        """Create the queue of videos."""
        self._size = graph.settings.max_batch_size
        self._target = target_device(self, graph)
        # Videos that were fed and not begun; `_video` is the one that is being read, from frame `_position` on.
        self._fed: deque[torch.Tensor] = deque()
        self._video: Video | None = None
        self._position = 0

    def feed(self, data: Any, layout: str | None = None, **hints: Any) -> None:
        """Queue a video: a batch of one sample, the bytes of the file."""
        video = import_batch(self.title, data, self._size, share=False)
        if video.batch_size < 1 or video.dtype is not torch.uint8:
            raise RuntimeError(f"{self.title}: a video is fed as a batch of one sample, the bytes of its file: uint8 (1, length)")
        self._fed.append(video.select(0).torch().reshape(-1))  # type: ignore[union-attr]

    def check(self, step: Step, wait: bool) -> None:
        """Raise IndexError if no video is queued."""
        if self._video is None and not self._fed:
            raise NotFedError(f"{self.title}: no video was fed to the input {self.name!r} for this iteration; use Pipeline.feed_input")

    def pull(self, step: Step) -> tuple[Batch, ...]:
        """Return the next sequences of the current video, or the first ones of the next."""
        try:
            if self._video is None:
                device = CPU if self._target is None else torch_device(self._target)
                self._video, self._position = Video(self._fed.popleft(), device=device), 0
            video, begin = self._video, self._position
            end = min(begin + self._size * self.frames, video.count)
            # Before decoding: a header may promise any number of pixels.
            video.check(end - begin)
            values, _ = video.frames(np.arange(begin, end), _BLACK)
        except Exception as error:
            self._video = None  # the next iteration begins the next video
            raise wrap_error(self, error) from error
        self._position = end
        if end == video.count:
            self._video = None
        return on_device((self._sequences(values),), self._target)

    def _sequences(self, values: torch.Tensor) -> Batch:
        count, size = len(values), values.shape[1:]
        sequences = -(-count // self.frames)
        missing = sequences * self.frames - count
        if missing and self.pads:
            values = torch.cat([values, values.new_zeros(missing, *size)])
            missing = 0
        if not missing:
            return new_batch(values.contiguous().view(sequences, self.frames, *size), None, "FHWC")
        # Only the last sequence is shorter, so the batch is ragged.
        lengths = torch.full((sequences, 1), self.frames, dtype=torch.int64)
        lengths[-1] -= missing
        shapes = torch.cat([lengths, torch.tensor([list(size)]).expand(sequences, -1)], 1)
        return new_batch(values.contiguous().view(-1), shapes, "FHWC", shared_extents=(None, *size)).densify()


def video(
    *,
    device: str | None = None,
    name: str | None = None,
    affine: bool = True,
    blocking: bool = False,
    bytes_per_sample_hint: Any = (0,),
    last_sequence_policy: LastSequencePolicy = "partial",
    no_copy: bool = False,
    preserve: bool = False,
    sequence_length: int,
) -> DataNode:
    """Return the sequences of frames of videos that are fed as files: uint8 (frames, H, W, 3), layout ``FHWC``.

    ``Pipeline.feed_input(name, batch)`` queues a video: a batch of one sample, the bytes of the file. Each iteration returns the next sequences, at
    most the pipeline's batch size; the last iteration of a video may have fewer. Then the next video begins.

    Args:
        device, name, preserve: See :mod:`torch_ndd.dali.fn`.
        affine, blocking, no_copy, bytes_per_sample_hint: Ignored.
        last_sequence_policy: ``"partial"``: the last sequence of a video may be shorter; ``"pad"``: it is filled with black frames.
        sequence_length: Number of frames of a sequence.

    Raises:
        ValueError: an unknown policy, or a length that is not positive.
        RuntimeError: when the pipeline runs, for a file that is not a video, or without a video.
    """
    title = "fn.experimental.inputs.video"
    check_choice(title, "last_sequence_policy", last_sequence_policy, get_args(LastSequencePolicy), ValueError)
    if isinstance(sequence_length, bool) or not isinstance(sequence_length, int) or sequence_length < 1:
        raise ValueError(f"{title}: sequence_length must be a positive int, got {sequence_length!r}")
    constants = {"sequence_length": sequence_length, "last_sequence_policy": last_sequence_policy}
    return create(
        *(VideoInputOperation, "Video", (), None, constants),
        schema="experimental.inputs.video",
        title=title,
        name=name,
        device=device_of(title, device, ()),
        preserve=preserve,
        frames=sequence_length,
        pads=last_sequence_policy == "pad",
    )[0]
