# SPDX-License-Identifier: Apache-2.0
"""The reader of ``fn.readers.sequence``: sequences of frames that are image files."""

import os
import re
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack

from ... import decoders
from ..._core.context.device import DeviceLike
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import list_names
from ...readers._base import Reader
from ...readers._options import LoaderOptions
from ...readers._ranges.file_lists import whole_files
from ...readers._ranges.ranges import Path, Ranges, Sources, pack_paths
from .. import types

_ALL = re.compile(b"")


class Sequence(Reader):
    """Read sequences of image files: uint8 (frames, H, W, C), layout ``FHWC``.

    Every subfolder of ``file_root`` is a video; its files, sorted by name, are the frames.

    Args:
        max_batch_size: Batch size.
        name: Ignored, like ``num_inputs``.
        device: ``"cpu"``.
        file_root: The folder.
        sequence_length: Number of frames of a sequence.
        image_type: ``types.RGB``, ``BGR``, ``GRAY`` or ``YCbCr``.
        step: Distance between the first frames of consecutive sequences.
        stride: Distance between consecutive frames of a sequence.
        **loader: Sharding, shuffling, padding, read-ahead and bad files, see :class:`torch_ndd.readers.LoaderOptions`.

    Raises:
        RuntimeError: at the first step, for numbers that are not positive or a folder without a sequence; at any step, for a file that cannot be
            read or decoded, or frames of different sizes.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        file_root: Path,
        sequence_length: int,
        image_type: types.DALIImageType = types.RGB,
        step: int = 1,
        stride: int = 1,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._root = os.fsencode(file_root)
        self._per_sequence, self._distance, self._stride, self._image_type = sequence_length, step, stride, image_type
        self._frames: Ranges | None = None
        self._begins = np.empty(0, np.int64)  # index of the first frame of each sequence

    def scan(self) -> int:
        for what, value in (("sequence_length", self._per_sequence), ("step", self._distance), ("stride", self._stride)):
            if value < 1:
                raise RuntimeError(f"{self._op}: {what} must be positive, got {value}")
        names: list[bytes] = []
        begins = []
        try:
            for folder in sorted(list_names(self._root, _ALL, True)):
                paths = [os.path.join(folder, name) for name in sorted(list_names(os.path.join(self._root, folder), _ALL, False))]
                # Only complete sequences: the last one begins where all of its frames still exist.
                begins.append(len(names) + np.arange(0, max(0, len(paths) - (self._per_sequence - 1) * self._stride), self._distance))
                names += paths
        except OSError as error:
            raise RuntimeError(f'{self._op}: file_root "{os.fsdecode(error.filename)}" cannot be opened: {error.strerror}') from None
        self._begins = np.concatenate([np.empty(0, np.int64), *begins]).astype(np.int64)
        self._frames = whole_files(self._root, *pack_paths(names)) if names else None
        return len(self._begins)

    def _numbers(self, samples: np.ndarray) -> np.ndarray:
        """Return the indices of the frames of sequences, int64 (sequences * frames,)."""
        return (self._begins[samples][:, None] + np.arange(self._per_sequence) * self._stride).ravel()

    def _source(self, sample: int) -> str:
        assert self._frames is not None
        return self._frames.place(int(self._begins[sample]))

    def start(self, samples: np.ndarray) -> Any:
        assert self._frames is not None
        return self._frames.start(self._numbers(samples))

    def finish(self, request: Any, samples: np.ndarray) -> tuple[Batch]:
        assert self._frames is not None
        try:
            files = request.finish()
        except UnreadableSamples as bad:
            # Frames are requested in one row; `//` maps a frame to its sequence.
            raise UnreadableSamples({frame // self._per_sequence: reason for frame, reason in bad.reasons.items()}) from None
        files.sources = Sources(self._frames.path, self._numbers(samples))
        images = decoders.image(files, output_type=self._image_type).evaluate()
        # All frames of the batch have one size.
        if images.ragged_shapes is None:
            frames = new_batch(images.buffer.view(len(samples), self._per_sequence, *images.buffer.shape[1:]), None, "FHWC")
        else:
            sizes = images.ragged_shapes.view(len(samples), self._per_sequence, 3)
            different = (sizes != sizes[:, :1]).any(2).any(1)
            if bool(different.any()):
                raise UnreadableSamples({int(k): "its frames have different sizes" for k in torch.nonzero(different).ravel()})
            length = torch.full((len(samples), 1), self._per_sequence, dtype=torch.int64)
            frames = new_batch(
                images.buffer, torch.cat([length, sizes[:, 0]], 1), "FHWC", shared_extents=(self._per_sequence, None, None, images.shared_extent(2))
            )
        frames.sources = Sources(self._source, samples)
        return (frames,)
