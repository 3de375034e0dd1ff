# SPDX-License-Identifier: Apache-2.0
"""Images from MXNet's RecordIO files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack, override

from .._core import native
from .._core.context.device import DeviceLike
from .._core.values.batch import Batch
from ._base import Reader
from ._labels import scalar_labels
from ._options import LoaderOptions
from ._ranges.ranges import Path, Ranges, RecordRequest, Sources, as_paths, packed_batch
from ._ranges.records import RECORDIO, columns, record_ranges, refuse
from ._ranges.remote import native_request


class MXNet(Reader):
    """Read the images of RecordIO files: tuples of their bytes, uint8 (length,), and labels, float32 (labels,), or int64 ()
    with ``scalar_labels``.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        path: The files (``.rec``).
        index_path: Their indices (``.idx``), written by ``im2rec``, ``rec2idx`` or ``python -m torch_ndd.index recordio``: only the records listed
            there are read, in file order. Without an index, all records are found by their headers.
        scalar_labels: Deliver labels as torch's losses take them: int64 (), so that those of a batch are (N,). Not in DALI.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, if a file or its index cannot be read; at any step, for a damaged record, with file and byte offset.

    >>> reader = MXNet(path=["train.rec"], index_path=["train.idx"], num_shards=2, shard_id=1)
    """

    _combines_shuffles = True

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        path: Path | Sequence[Path],
        index_path: Path | Sequence[Path] | None = None,
        scalar_labels: bool = False,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._paths, self._indices = as_paths(path), as_paths(index_path or [])
        self._scalar_labels = bool(scalar_labels)
        self._ranges: Ranges | None = None
        self._damaged: dict[int, str] = {}

    @override
    def scan(self) -> int:
        if self._ranges is None:
            self._ranges, self._damaged = record_ranges(self._op, RECORDIO, self._paths, self._indices, _index)
        return self._ranges.size

    def _source(self, sample: int) -> str:
        return self._found.place(sample)

    @override
    def start(self, samples: np.ndarray) -> Any:
        return native_request(_ImageRecordRequest, self._found, samples)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, Batch]:
        refuse(self._damaged, samples)
        request.wait()
        images = packed_batch(*request.output(0))
        values, lengths = request.output(1)
        # Four bytes each: the parser returns float32 labels as bytes.
        numbers, counts = values.view(torch.float32), lengths // 4
        labels = scalar_labels(numbers.numpy(), counts) if self._scalar_labels else packed_batch(numbers, counts)
        images.sources = Sources(self._written_source, samples)
        return images, labels

    def _written_source(self, sample: int) -> str:
        return self._source(sample).replace(" at byte ", " at index ")  # DALI's wording

    @property
    def _found(self) -> Ranges:
        assert self._ranges is not None
        return self._ranges


class _ImageRecordRequest(RecordRequest):
    def _begin(self) -> int:
        return native.image_records_start(*self._native_ranges())


def _index(text: bytes, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and offsets in the lines of an index. A record ends at the latest where the next one begins."""
    # Index files list records by key; sorted offsets give their ends.
    begin = np.sort(columns(text, 2)[:, 1])
    return begin, np.append(begin[1:], max(size, *begin[-1:], 0)) - begin
