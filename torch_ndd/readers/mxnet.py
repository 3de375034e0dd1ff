# SPDX-License-Identifier: Apache-2.0
"""Images of MXNet's RecordIO files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack

from .. import _native
from .._batch import Batch
from .._device import DeviceLike
from ._base import LoaderOptions, Reader
from ._ranges import Path, Ranges, RecordRequest, Sources, as_paths, packed_batch
from ._remote import native_request
from ._scan import RECORDIO, columns, record_ranges, refuse


class MXNet(Reader):
    """Reads the images of RecordIO files: tuples of their bytes, uint8 (length,), and labels, float32 (labels,).

    Args:
        max_batch_size: Batch size of :meth:`next_epoch` when the call gives none.
        name: Accepted for DALI's sake, as ``num_inputs``.
        device: ``"cpu"``.
        path: The files (``.rec``).
        index_path: Their indices (``.idx``), as ``im2rec``, ``rec2idx`` or ``python -m torch_ndd.index recordio`` write them: only the records in
            it are read, in the order of the file. Without, all are found by their headers.
        loader: What all readers take: :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, when a file or its index cannot be read; at any step, for a damaged record, with file and byte.

    >>> reader = MXNet(path=["train.rec"], index_path=["train.idx"], num_shards=2, shard_id=1)
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        path: Path | Sequence[Path],
        index_path: Path | Sequence[Path] | None = None,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._paths, self._indices = as_paths(path), as_paths(index_path or [])
        self._ranges: Ranges | None = None
        self._damaged: dict[int, str] = {}

    def _scan(self) -> int:
        if self._ranges is None:
            self._ranges, self._damaged = record_ranges(self._op, RECORDIO, self._paths, self._indices, _index)
        return self._ranges.size

    def _source(self, sample: int) -> str:
        return self._found.place(sample)

    def _start(self, samples: np.ndarray) -> Any:
        return native_request(_ImageRecordRequest, self._found, samples)

    def _finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, Batch]:
        refuse(self._damaged, samples)
        request.wait()
        images = packed_batch(*request.output(0))
        values, lengths = request.output(1)
        labels = packed_batch(values.view(torch.float32), lengths // 4)
        images._sources = Sources(self._written_source, samples)
        return images, labels

    def _written_source(self, sample: int) -> str:
        return self._source(sample).replace(" at byte ", " at index ")  # DALI's form

    @property
    def _found(self) -> Ranges:
        assert self._ranges is not None
        return self._ranges


class _ImageRecordRequest(RecordRequest):
    def _begin(self) -> int:
        return _native.image_records_start(*self._native_ranges())


def _index(text: bytes, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Lines of key and begin. A record ends where the next one begins at the latest."""
    begin = np.sort(columns(text, 2)[:, 1])
    return begin, np.append(begin[1:], max(size, *begin[-1:], 0)) - begin
