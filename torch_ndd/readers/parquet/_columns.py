# SPDX-License-Identifier: Apache-2.0
"""Arrow columns as batches."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..._core import native
from ..._core.process.limits import MAX_SAMPLE_BYTES, check_sample
from ..._core.values.batch import Batch, new_batch, ragged_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import is_url, leaves_folder, read_all, reason_of
from .._ranges.ranges import packed_batch


def is_bytes(kind: Any, types: Any) -> bool:
    """Return whether a type holds bytes or text."""
    tests = (types.is_binary, types.is_large_binary, types.is_string, types.is_large_string, types.is_fixed_size_binary)
    return any(test(kind) for test in tests) or _is_view_of_bytes(kind, types)


def _is_view_of_bytes(kind: Any, types: Any) -> bool:
    return _is_any(kind, types, "is_string_view", "is_binary_view")


def _is_any(kind: Any, types: Any, *tests: str) -> bool:
    """Return whether one of the tests holds; pyarrow 15 lacks some of them, and the types."""
    return any(getattr(types, test)(kind) for test in tests if hasattr(types, test))


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # of a decoded value, by the type in a Parquet file; 8 bytes or an offset for all others


def promised_bytes(group: Any, fields: Sequence[str]) -> tuple[int, int]:
    """Return the bytes that the metadata of a row group promise for some fields, and the most that one value of its dictionaries may have."""
    total = longest = 0
    for k in range(group.num_columns):
        column = group.column(k)
        path = column.path_in_schema.split(".")  # the name of a field may have dots, too
        if not any(".".join(path[:depth]) in fields for depth in range(1, len(path) + 1)):
            continue
        width = _WIDTHS.get(column.physical_type, 8)
        total += max(column.total_uncompressed_size, width * max(column.num_values, 0))
        if column.physical_type.endswith("BYTE_ARRAY") and any("DICTIONARY" in encoding for encoding in column.encodings):
            longest = max(longest, column.total_uncompressed_size)
    # At least a byte per row: a column of nulls promises nothing but becomes a batch all the same.
    return max(total, group.num_rows), longest


def is_list(kind: Any, types: Any) -> bool:
    """Return whether a type is a list type."""
    return _is_any(kind, types, "is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")


def number_type(kind: Any, types: Any) -> np.dtype | None:
    """Return the NumPy dtype of numbers, booleans, dates and times; None for other types."""
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    if types.is_decimal(kind):  # torch has no such type; databases write amounts and measured values as decimals
        return np.dtype(np.float64)
    if types.is_temporal(kind) and kind.bit_width in (32, 64):
        return np.dtype(np.int64 if kind.bit_width == 64 else np.int32)
    return None


def to_numpy(array: Any, arrow: Any) -> np.ndarray:
    """Return numbers, booleans, dates and times, perhaps in Arrow's memory; missing numbers become NaN."""
    types, kind = arrow.types, array.type
    if types.is_temporal(kind):
        # Dates and times become their integers; a view, because NumPy's datetime64 is not a tensor dtype.
        array = array.view(arrow.int64() if kind.bit_width == 64 else arrow.int32())
    elif types.is_decimal(kind):
        array = array.cast(arrow.float64())
    return array.to_numpy(zero_copy_only=False)


def is_unsupported(kind: Any, types: Any) -> bool:
    """Return whether values of this type cannot become a batch."""
    is_inside = is_list(kind, types)
    while is_list(kind, types):
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    return number_type(kind, types) is None and (is_inside or not is_bytes(kind, types))


def to_batch(array: Any, arrow: Any) -> Batch:
    """Convert a column: numbers to scalars, lists to arrays, bytes and text to uint8. Raise UnreadableSamples for missing or irregular values."""
    types = arrow.types
    if types.is_dictionary(array.type):
        if is_bytes(array.type.value_type, types):
            # A dictionary holds a text once for any number of rows, so a small file may decode to huge values.
            size = arrow.compute.sum(arrow.compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0
            native.check_memory(size, "the values of a column that its file holds once")
        array = array.dictionary_decode()
    if is_bytes(array.type, types):
        return _bytes(array, arrow)
    if is_list(array.type, types):
        return _lists(array, arrow)
    return new_batch(_own(_numbers(array, arrow, np.arange(len(array)))))


class Column:
    """The origin of the values of a column: a field (``inner`` is empty), a field of a structure, or (``inner`` is None) a file in a structure."""

    def __init__(self, name: str, field: str, inner: str | None) -> None:
        self.name, self.field, self.inner = name, field, inner

    def whole(self, column: Any, arrow: Any) -> Any:
        """Return all rows, without files that are stored as a path."""
        field = "bytes" if self.inner is None else self.inner
        array = _join_chunks(column, arrow)
        if not field:
            return array
        # The function respects missing structures, and takes twenty times as long.
        return arrow.compute.struct_field(array, field) if array.null_count else array.field(field)

    def of(self, column: Any, rows: Any, arrow: Any) -> Any:
        """Return the chosen rows."""
        array = _join_chunks(column.take(rows), arrow)
        return arrow.compute.struct_field(array, self.inner) if self.inner else array


def _join_chunks(column: Any, arrow: Any) -> Any:
    """Return a column as one array of its storage type."""
    array = column
    if isinstance(column, arrow.ChunkedArray):  # combine_chunks copies, also a single chunk
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, arrow.ChunkedArray):  # no chunk, or more bytes than one array can have
        array = array.chunk(0) if array.num_chunks else arrow.array([], array.type)
    return array.storage if isinstance(array.type, arrow.BaseExtensionType) else array


def without_views(table: Any, arrow: Any) -> Any:
    """Return a table whose columns of text and bytes, also those in structures, have no view types: Arrow cannot take rows of these.

    Lists of them stay, which are refused, and so do views of lists, which Arrow 26 takes correctly but casts to lists that lack values.
    """
    types = arrow.types

    def plain(kind: Any) -> Any:
        if _is_any(kind, types, "is_string_view"):
            return arrow.large_string()
        if _is_any(kind, types, "is_binary_view"):
            return arrow.large_binary()
        if types.is_struct(kind):
            fields = [kind.field(k) for k in range(kind.num_fields)]
            return arrow.struct([field.with_type(plain(field.type)) for field in fields])
        return kind

    for k, field in enumerate(table.schema):
        kind = plain(field.type)
        if kind != field.type:
            table = table.set_column(k, field.with_type(kind), table.column(k).cast(kind))
    return table


def known_columns(schema: Any, arrow: Any) -> dict[str, tuple[Column, Any]]:
    """Return the columns of a schema and their types, by name."""
    types, columns = arrow.types, []
    for field in schema:
        if types.is_struct(field.type):
            inner = {field.type.field(k).name: field.type.field(k).type for k in range(field.type.num_fields)}
            # Hugging Face stores files as a structure of bytes and a path; they become one column of contents.
            if inner.keys() == {"bytes", "path"} and all(is_bytes(kind, types) or types.is_null(kind) for kind in inner.values()):
                columns.append((Column(field.name, field.name, None), arrow.binary()))
            else:
                columns += [(Column(f"{field.name}.{inner_name}", field.name, inner_name), kind) for inner_name, kind in inner.items()]
        else:
            kind = field.type.storage_type if isinstance(field.type, arrow.BaseExtensionType) else field.type
            columns.append((Column(field.name, field.name, ""), kind))
    return {column.name: (column, kind) for column, kind in columns}


def select_columns(op: str, schema: Any, names: Sequence[str] | None, arrow: Any) -> list[Column]:
    """Return the columns with these names, by default all. Raise RuntimeError for those that cannot become batches, with what there is."""
    columns = _select_columns(op, schema, names, arrow)
    for column in columns:
        if len(schema.get_all_field_indices(column.field)) > 1:
            raise RuntimeError(f"{op}: several columns are named {column.field!r}; rename them in the file, or name others in columns=[...]")
    return columns


def _select_columns(op: str, schema: Any, names: Sequence[str] | None, arrow: Any) -> list[Column]:
    types, known = arrow.types, known_columns(schema, arrow)
    if names is None:
        usable = [name for name, (_, kind) in known.items() if not is_unsupported(kind, types)]
        others = ", ".join(f"{name!r} ({kind})" for name, (_, kind) in known.items() if name not in usable)
        if not usable:
            raise RuntimeError(f"{op}: none of the columns can be converted to samples: {others}")
        if others:
            raise RuntimeError(f"{op}: cannot convert to samples: {others}; choose among the other columns: columns={usable}")
        names = usable
    if not names:
        raise RuntimeError(f"{op}: columns is an empty list")
    for name in names:
        if name not in known:
            raise RuntimeError(f"{op}: column {name!r} not found; available: {', '.join(known)}")
        if is_unsupported(known[name][1], types):
            raise RuntimeError(f"{op}: cannot convert column {name!r} to samples: its type is {known[name][1]}")
    return [known[name][0] for name in names]


def with_files(array: Any, folders: Sequence[str], arrow: Any, max_bytes: int = MAX_SAMPLE_BYTES, advice: str | None = None) -> Any:
    """Return the contents of files that are stored inline or as a path, which may be relative to the folder of its sample.

    Raise UnreadableSamples for files that cannot be read, for local ones of more than ``max_bytes``, and for paths that leave the folder, unless
    ``advice``, the end of that message, is None.
    """
    contents, paths = arrow.compute.struct_field(array, "bytes"), arrow.compute.struct_field(array, "path")
    if not contents.null_count:
        return contents
    values, reasons = contents.to_pylist(), {}
    for k in np.flatnonzero(~np.asarray(contents.is_valid())).tolist():
        path = paths[k].as_py()
        if path is not None:
            path, folder = os.fsdecode(path), str(folders[k])
            if advice is not None and leaves_folder(path, folder):
                reasons[k] = f"the path {path!r} does not lead to a file in {folder or 'the current folder'}{advice}"
                continue
            full = path if is_url(path) or os.path.isabs(path) or not folder else f"{folder}/{path}"
            try:
                if not is_url(full):
                    check_sample("the file has", os.path.getsize(full), max_bytes)
                values[k] = read_all(full)
            except (OSError, RuntimeError, MemoryError) as error:
                reasons[k] = f"{full}: {reason_of(error)}"
    if reasons:
        raise UnreadableSamples(reasons)
    return arrow.array(values, arrow.large_binary())


def table_to_batches(table: Any, columns: Sequence[Column], arrow: Any) -> dict[str, Batch]:
    """Return all rows of a table. Raise UnreadableSamples for rows with missing or irregular values."""
    table = without_views(table, arrow)

    def convert(column: Column) -> Batch:
        values = table.column(column.field)
        if column.inner is None:
            return to_batch(with_files(_join_chunks(values, arrow), [""] * len(table), arrow), arrow)
        return to_batch(column.whole(values, arrow), arrow)

    return convert_columns(columns, len(table), convert)


def convert_columns(columns: Sequence[Column], count: int, convert: Callable[[Column], Batch]) -> dict[str, Batch]:
    """Return the batches of some columns. Raise UnreadableSamples with the column and, where they are known, only the samples that are bad."""
    outputs, reasons = {}, {}
    for column in columns:
        try:
            outputs[column.name] = convert(column)
        except UnreadableSamples as bad:
            reasons |= {k: f"column {column.name!r}: {reason}" for k, reason in bad.reasons.items()}
        except Exception as error:  # pyarrow has several types
            raise UnreadableSamples(dict.fromkeys(range(count), f"column {column.name!r}: {reason_of(error)}")) from None
    if reasons:
        raise UnreadableSamples(reasons)
    return outputs


def _bytes(array: Any, arrow: Any) -> Batch:
    large = array.cast(arrow.large_binary()) if not arrow.types.is_large_binary(array.type) else array
    if large.null_count:
        large = large.fill_null(b"")  # a null of a fixed size has bytes
    _, offsets, data = large.buffers()
    ends = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1] if offsets is not None else np.zeros(1, np.int64)
    lengths = np.diff(ends)
    content = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None and len(lengths) else np.zeros(0, np.uint8)
    if (lengths < 0).any() or lengths.sum() != len(content):
        raise ValueError("a column of bytes is damaged")
    return packed_batch(torch.from_numpy(content.copy()), lengths)


def _numbers(array: Any, arrow: Any, sample: np.ndarray) -> np.ndarray:
    """Return the values, which may be in Arrow's memory; ``sample`` holds the sample of each one."""
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    dtype = number_type(array.type, arrow.types)
    assert dtype is not None
    if array.null_count and dtype.kind != "f":
        missing = sample[~np.asarray(array.is_valid())]
        raise UnreadableSamples(dict.fromkeys(missing.tolist(), "a number is missing (null)"))
    return np.asarray(to_numpy(array, arrow), dtype)


def _own(values: np.ndarray) -> torch.Tensor:
    """Return numbers that may share Arrow's memory as a tensor that may be written."""
    return torch.from_numpy(np.require(values, requirements=["C", "W", "O"]))


def split_lists(array: Any, arrow: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers in lists, perhaps in Arrow's memory, and the shape of each sample, int64 (samples, depth).

    Raise UnreadableSamples for missing or irregular lists.
    """
    count = len(array)
    sample = np.arange(count)
    if array.null_count:
        missing = np.flatnonzero(~np.asarray(array.is_valid()))
        raise UnreadableSamples(dict.fromkeys(missing.tolist(), "a list is missing (null)"))
    extents: list[np.ndarray] = []  # of each dimension, per sample
    rows = np.ones(count, np.int64)  # lists per sample at this depth
    while is_list(array.type, arrow.types):
        if array.null_count:
            missing = sample[~np.asarray(array.is_valid())]
            raise UnreadableSamples(dict.fromkeys(missing.tolist(), "a list is missing (null)"))
        if arrow.types.is_fixed_size_list(array.type):
            lengths = np.full(len(array), array.type.list_size, np.int64)
        else:
            lengths = np.asarray(arrow.compute.list_value_length(array)).astype(np.int64)
        # The first list of each sample determines the extent; all others of the sample must equal it.
        first = np.minimum(np.cumsum(rows) - rows, max(len(lengths) - 1, 0))
        # Samples without lists at this depth have extent 0.
        extent = np.where(rows > 0, lengths[first] if len(lengths) else 0, 0)
        ragged = np.flatnonzero(lengths != np.repeat(extent, rows))
        if len(ragged):
            raise UnreadableSamples(dict.fromkeys(sample[ragged].tolist(), "its lists are of different lengths"))
        extents.append(extent)
        sample = np.repeat(sample, lengths)
        rows = rows * extent
        # flatten() respects the offset of a sliced array, unlike `values`.
        array = array.flatten()
    values, shapes = _numbers(array, arrow, sample), np.stack(extents, 1)
    if len(values) != shapes.prod(1).sum():
        raise ValueError("a column of lists is damaged")
    return values, shapes


def _lists(array: Any, arrow: Any) -> Batch:
    numbers, shapes = split_lists(array, arrow)
    values = _own(numbers)
    if len(shapes) and (shapes == shapes[0]).all():
        return new_batch(values.view(len(shapes), *shapes[0].tolist()))
    return ragged_batch(values, shapes)
