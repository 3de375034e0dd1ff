# SPDX-License-Identifier: Apache-2.0
"""Records from TensorFlow's TFRecord files."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack, override

from .._core import native
from .._core.context.device import DeviceLike
from .._core.values.batch import Batch, new_batch
from ..tfrecord import Feature, string
from ._base import Reader
from ._options import LoaderOptions
from ._ranges.ranges import Path, Ranges, RecordRequest, Sources, as_paths, packed_batch
from ._ranges.records import TFRECORD, UNCHECKED_TFRECORD, columns, record_ranges, refuse
from ._ranges.remote import native_request

_DTYPES = (torch.int64, torch.uint8, torch.float32)


class TFRecord(Reader):
    """Read features of the Examples in TFRecord files: dicts of them, in the order of ``features``.

    Numbers are int64 or float32 in the feature's shape; a string is its bytes, uint8 (length,). A record is a bad sample if it is damaged, or if a
    feature has another type or number of elements than requested, or more than one string.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs`` and ``use_o_direct``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        path: The files, uncompressed.
        index_path: Their indices, written by ``tfrecord2idx`` or ``python -m torch_ndd.index tfrecord``. Without indices, the records are found by
            their lengths, in less than 1 us per record.
        verify_checksums: Treat a record whose length has a wrong checksum as an error. A checksum of zero means that none was written; the checksum
            of the content is not verified. False accepts any checksum, like DALI.
        features: Features by name, made by ``tfrecord.FixedLenFeature`` and ``tfrecord.VarLenFeature``.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        TypeError: an object that is not a feature.
        RuntimeError: at the first step, if a file or its index cannot be read; at any step, for a bad sample, with file and byte offset.

    >>> from torch_ndd import tfrecord
    >>> features = {"image": tfrecord.FixedLenFeature([], tfrecord.string, ""), "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)}
    >>> reader = TFRecord(path=["train.tfrecord"], features=features, random_shuffle=True)
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
        features: Mapping[str, Feature],
        index_path: Path | Sequence[Path] | None = None,
        use_o_direct: bool | None = None,
        verify_checksums: bool = True,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        for key, feature in features.items():
            if not isinstance(feature, Feature):
                raise TypeError(f'{self._op}: feature "{key}" must come from tfrecord.FixedLenFeature or VarLenFeature, got {feature!r}')
        self._features, self._verify = dict(features), bool(verify_checksums)
        self._paths, self._indices = as_paths(path), as_paths(index_path or [])
        self._spec = _Spec(self._features)
        self._ranges: Ranges | None = None
        self._damaged: dict[int, str] = {}

    @override
    def scan(self) -> int:
        if not self._features:
            raise RuntimeError(f"{self._op}: features is empty")
        for key, feature in self._features.items():
            if feature.dtype == string and (not feature.has_shape or feature.count != 1):
                raise RuntimeError(
                    f'{self._op}: feature "{key}": tensors of strings are not supported; FixedLenFeature([], tfrecord.string, "") is one'
                )
        if self._ranges is None:
            kind = TFRECORD if self._verify else UNCHECKED_TFRECORD
            self._ranges, self._damaged = record_ranges(self._op, kind, self._paths, self._indices, _index)
        return self._ranges.size

    def _source(self, sample: int) -> str:
        return self._found.place(sample)

    @override
    def start(self, samples: np.ndarray) -> Any:
        return native_request(lambda ranges, numbers: _ExampleRequest(ranges, numbers, self._spec, self._verify), self._found, samples)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> dict[str, Batch]:
        # Before waiting: the record of a damaged part does not exist, and its own reason is better than that of the parser.
        refuse(self._damaged, samples)
        request.wait()
        outputs = {}
        for k, (key, feature) in enumerate(self._features.items()):
            values, lengths = request.output(k)
            batch = _batch(values, lengths, feature)
            batch.sources = Sources(self._written_source, samples)
            outputs[key] = batch
        return outputs

    def _written_source(self, sample: int) -> str:
        return self._source(sample).replace(" at byte ", " at index ")  # DALI's wording

    @property
    def _found(self) -> Ranges:
        assert self._ranges is not None
        return self._ranges


def _batch(values: torch.Tensor, lengths: np.ndarray, feature: Feature) -> Batch:
    if feature.dtype == string:
        return packed_batch(values, lengths)
    values = values.view(_DTYPES[feature.dtype])
    if feature.has_shape:
        return new_batch(values.view(len(lengths), *feature.shape))
    # VarLenFeature: the shape is that of a row, and a sample has as many rows as its values fill.
    row = math.prod(feature.shape)
    rows = lengths // (values.dtype.itemsize * max(row, 1))
    if len(rows) and (rows == rows[0]).all():
        # Equal numbers of rows make a dense batch.
        return new_batch(values.view(len(rows), int(rows[0]), *feature.shape))
    # copy(), because broadcast_to returns a read-only view of one row.
    shapes = np.broadcast_to(np.array([0, *feature.shape]), (len(rows), 1 + len(feature.shape))).copy()
    shapes[:, 0] = rows
    return new_batch(values, torch.from_numpy(shapes), shared_extents=(None, *feature.shape))


class _Spec:
    """The features in the form that the native code takes."""

    def __init__(self, features: Mapping[str, Feature]) -> None:
        names, missing = [key.encode() for key in features], [feature.missing for feature in features.values()]
        self.names, self.missing = b"".join(names), b"".join(missing)
        self.name_offsets, self.missing_offsets = (np.cumsum([0, *map(len, column)], dtype=np.int64) for column in (names, missing))
        self.types = np.array([feature.dtype for feature in features.values()], np.int64)
        self.counts = np.array([feature.count for feature in features.values()], np.int64)
        self.rows = np.array([max(math.prod(feature.shape), 1) for feature in features.values()], np.int64)


class _ExampleRequest(RecordRequest):
    def __init__(self, ranges: Ranges, samples: np.ndarray, spec: _Spec, verify: bool) -> None:
        self._spec, self._verify = spec, verify
        super().__init__(ranges, samples)

    def _begin(self) -> int:
        spec = self._spec
        numbers = (column.ctypes.data for column in (spec.types, spec.counts, spec.rows))
        names, missing = (spec.names, spec.name_offsets.ctypes.data), (spec.missing, spec.missing_offsets.ctypes.data)
        return native.examples_start(*self._native_ranges(), *names, *missing, *numbers, len(spec.types), self._verify)


def _index(text: bytes, size: int) -> tuple[np.ndarray, np.ndarray]:
    table = columns(text, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
