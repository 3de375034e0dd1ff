# SPDX-License-Identifier: Apache-2.0
"""A row group in memory, and rows of several as one batch."""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core import native
from ..._core.values.batch import Batch, empty, new_batch, ragged_batch
from ..._core.work.bad_samples import UnreadableSamples
from .._ranges.ranges import address_of, packed_batch
from ._columns import Column, is_bytes, is_list, number_type, split_lists, to_numpy


class Arrays(NamedTuple):
    """Bytes, texts or lists of a column, one after the other in memory."""

    ends: np.ndarray
    """Where they begin and end, in bytes of ``content``: int32 or int64, (rows + 1,)."""
    content: np.ndarray
    """Bytes of Arrow's memory, which it keeps."""
    dtype: torch.dtype
    shapes: np.ndarray | None
    """Of lists: int64, (rows, depth)."""


class Group:
    """A row group, and for columns whose values are contiguous in memory where they are: a batch then copies them without Arrow."""

    def __init__(self, table: Any, columns: Sequence[Column], arrow: Any) -> None:
        self.table = table
        # Once per row group: what Arrow does per column takes 20 us, more than the copy of a batch.
        self.values: dict[str, Arrays | np.ndarray | None] = {}
        # With what is not in the table's memory: numbers of which missing ones have become NaN, booleans as bytes, ends and shapes of lists.
        self.bytes = table.nbytes
        for column in columns:
            chunks = table.column(column.field)
            values = self.values[column.name] = _find_values(column, chunks, arrow)
            self.bytes += _count_copied(values, chunks)
        self.is_contiguous = all(values is not None for values in self.values.values())
        self.row_bytes = self.bytes // max(table.num_rows, 1)
        # For csrc/readers/table_rows.cpp, three numbers for each column; None unless all are texts or scalars.
        self.fields: bytes | None = None
        self.dtypes = [_to_torch(values.dtype) if isinstance(values, np.ndarray) else None for values in self.values.values()]
        """Of numbers; None for texts."""
        fields = [_describe(values) for values in self.values.values()]
        if all(fields):
            self.fields = struct.pack(f"{3 * len(fields)}q", *chain.from_iterable(filter(None, fields)))


def _count_copied(values: Arrays | np.ndarray | None, chunks: Any) -> int:
    """Return the bytes of values that are not in the memory of their column."""
    if isinstance(values, Arrays) and values.shapes is None:  # texts never are
        return 0
    buffers = [buffer for chunk in chunks.chunks for buffer in chunk.buffers() if buffer is not None]
    arrays = [array for array in (values if isinstance(values, Arrays) else (values,)) if isinstance(array, np.ndarray)]
    return sum(array.nbytes for array in arrays if not any(0 <= address_of(array) - buffer.address < buffer.size for buffer in buffers))


@cache
def _to_torch(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


class Rows(NamedTuple):
    """Samples of a batch, one row group after the other."""

    groups: Sequence[Group]
    counts: Sequence[int]  # how many samples are of each
    rows: np.ndarray  # numbers of the rows in their groups, int64
    places: np.ndarray  # of the samples in the batch, int64

    @property
    def span(self) -> slice | None:
        """The rows if they follow each other in one row group, in the order of the batch."""
        rows, count = self.rows, len(self.rows)
        if len(self.groups) != 1 or rows.item(-1) - rows.item(0) != count - 1 or (rows[1:] - rows[:-1] != 1).any():
            return None
        return slice(rows.item(0), rows.item(0) + count)  # places are then in order, because sorting by row groups was stable

    def split(self) -> Iterator[tuple[Group, np.ndarray, np.ndarray]]:
        """Yield each group with its rows and their places."""
        end = 0
        for group, count in zip(self.groups, self.counts, strict=True):
            begin, end = end, end + count
            yield group, self.rows[begin:end], self.places[begin:end]


def _describe(values: Arrays | np.ndarray | None) -> tuple[int, int, int] | None:
    """Return what csrc/readers/table_rows.cpp reads texts or scalars by; None for others."""
    if isinstance(values, Arrays):
        return (address_of(values.ends), values.ends.itemsize, address_of(values.content)) if values.shapes is None else None
    return (0, values.itemsize, address_of(values)) if values is not None and values.ndim == 1 and values.flags.c_contiguous else None


def _find_values(column: Column, chunks: Any, arrow: Any) -> Arrays | np.ndarray | None:
    """Return where the values of a column are, or its numbers; None for values that need a look at each sample, such as missing ones."""
    array, types = column.whole(chunks, arrow), arrow.types
    if is_bytes(array.type, types) and not types.is_fixed_size_binary(array.type):
        # A missing value of a column of files may be stored as a path.
        return None if array.null_count and column.inner is None else _find_texts(array, types)
    if is_list(array.type, types):
        return _find_lists(array, arrow)
    dtype = number_type(array.type, types)
    if types.is_dictionary(array.type) or dtype is None or (array.null_count and dtype.kind != "f"):
        return None
    values = to_numpy(array, arrow)
    return values if values.dtype == dtype else None


def _find_texts(array: Any, types: Any) -> Arrays | None:
    _, offsets, data = array.buffers()
    if offsets is None or data is None:
        return None
    wide = types.is_large_binary(array.type) or types.is_large_string(array.type)
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]
    # Offsets come from the file, and native code follows them: refuse any that point outside the buffer.
    if len(ends) != len(array) + 1 or ends[0] < 0 or ends[-1] > data.size or (ends[1:] < ends[:-1]).any():
        return None
    # A missing text is empty.
    if array.null_count and (ends[1:] - ends[:-1])[~np.asarray(array.is_valid())].any():
        return None
    return Arrays(ends, np.frombuffer(data, np.uint8), torch.uint8, None)


def _find_lists(array: Any, arrow: Any) -> Arrays | np.ndarray | None:
    try:
        values, shapes = split_lists(array, arrow)
    except (UnreadableSamples, ValueError):  # of some samples only: each batch finds its own
        return None
    if len(shapes) and (shapes == shapes[0]).all():
        return values.reshape(len(shapes), *shapes[0].tolist())
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(shapes.prod(1) * values.itemsize)])
    return Arrays(ends, values.view(np.uint8), _to_torch(values.dtype), shapes)


def gather(name: str, chosen: Rows, span: slice | None) -> Batch | None:
    """Return a column of a batch with one copy; None if its values are not contiguous in each row group. ``span`` is that of ``chosen``."""
    found: list[Any] = [group.values[name] for group in chosen.groups]
    first = found[0]
    if all(isinstance(values, Arrays) for values in found):
        if len({(values.dtype, values.shapes is None) for values in found}) > 1:
            return None
        return _gather_arrays(found, chosen) if span is None else _copy_arrays(first, span)
    if not all(isinstance(values, np.ndarray) and values.shape[1:] == first.shape[1:] for values in found):
        return None
    if span is not None:
        return new_batch(torch.from_numpy(first[span].copy()))
    numbers = np.empty((len(chosen.rows), *first.shape[1:]), first.dtype)
    for values, (_, rows, places) in zip(found, chosen.split(), strict=True):
        numbers[places] = values[rows]
    return new_batch(torch.from_numpy(numbers))


def _copy_arrays(values: Arrays, span: slice) -> Batch:
    ends = values.ends[span.start : span.stop + 1]
    content = values.content[ends.item(0) : ends.item(-1)]
    data = empty([len(content)], torch.uint8, torch.device("cpu"))
    data.numpy()[:] = content
    return _to_batch(data, (ends[1:] - ends[:-1]).astype(np.int64), values.dtype, None if values.shapes is None else values.shapes[span])


def _gather_arrays(found: Sequence[Arrays], chosen: Rows) -> Batch:
    count = len(chosen.rows)
    tables = [(address_of(values.ends), values.ends.itemsize, address_of(values.content), n) for values, n in zip(found, chosen.counts, strict=True)]
    arrays, (begins, lengths) = np.array(tables, np.int64), np.empty((2, count), np.int64)
    addresses = [address_of(array) for array in (chosen.rows, chosen.places, begins, lengths)]
    data = empty([native.find_texts(address_of(arrays), len(arrays), *addresses)], torch.uint8, torch.device("cpu"))
    native.gather(None, 1, *addresses[2:], count, data.data_ptr())
    shapes = None
    if found[0].shapes is not None:
        shapes = np.empty((count, found[0].shapes.shape[1]), np.int64)
        for values, (_, rows, places) in zip(found, chosen.split(), strict=True):
            shapes[places] = values.shapes[rows]  # type: ignore[index]
    return _to_batch(data, lengths, found[0].dtype, shapes)


def _to_batch(data: torch.Tensor, lengths: np.ndarray, dtype: torch.dtype, shapes: np.ndarray | None) -> Batch:
    if shapes is None:
        return packed_batch(data, lengths)
    values = data.view(dtype)
    if (shapes == shapes[0]).all():
        return new_batch(values.view(shapes.shape[0], *shapes[0].tolist()))
    return ragged_batch(values, shapes)
