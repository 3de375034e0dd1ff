# SPDX-License-Identifier: Apache-2.0
"""Texts and scalars of rows, found by their keys, compared and copied by native code."""

from array import array
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..._core import native
from ..._core.native import empty
from ..._core.values.batch import Batch, new_batch
from .._key_table import KeyTable
from .._keys import Keys
from .._ranges.ranges import address_of
from ._groups import Group

_CPU = torch.device("cpu")

Outputs = dict[str, Batch]


class LocatedRows:
    """Samples of a batch, each in its row group.

    Args:
        samples: int64; a negative one is missing.
        begins: the first sample of each row group, and the number of samples.
        columns: how many columns the row groups have.
    """

    def __init__(self, samples: np.ndarray, begins: np.ndarray, columns: int) -> None:
        samples = np.ascontiguousarray(samples, np.int64)
        self._table = table = _Table(len(samples), columns)
        found = native.find_groups(address_of(samples), len(samples), address_of(begins), len(begins) - 1, table.rows, table.places, table.extra)
        self.groups: list[int] = table.extra_numbers(max(found, 0)).tolist()
        """The numbers of the row groups; none if a sample is missing."""

    def copy(self, groups: Sequence[Group], names: Sequence[str], keys: Keys | None = None, column: str = "") -> Outputs | None:
        """Return the columns of the samples, without the one of ``keys``; None if that differs, or if this needs Arrow.

        Args:
            groups: those of ``self.groups``.
            names: those of all columns.
            keys: what ``column`` should hold; None copies all columns.
            column: the name of the column of keys.
        """
        table, columns, dtypes = self._table, len(names), groups[0].dtypes
        fields = [group.fields for group in groups if group.fields is not None]
        key = -1 if keys is None else names.index(column)
        if len(fields) < len(groups) or (keys is not None and dtypes[key] is not _dtype_of(keys)):
            return None
        content = (0, 0) if keys is None else (keys.data.data_ptr(), keys.lengths.data_ptr())
        joined = fields[0] if len(fields) == 1 else b"".join(fields)
        if not native.compare_rows(joined, columns, key, table.rows, table.places, table.count, *content, table.lengths, table.sizes):
            return None
        return table.copy(joined, names, dtypes, key)


class WholeTable:
    """All row groups of a reader, in memory together: native code finds the rows of keys without asking which row groups there are.

    Args:
        groups: the row groups by number, with fields of equal types; None for those without rows.
        begins: the first sample of each row group, and the number of samples.
        names: those of all columns.
    """

    def __init__(self, groups: Sequence[Group | None], begins: np.ndarray, names: Sequence[str]) -> None:
        self._groups, self._begins, self._names = groups, begins, names  # the groups own the memory of the fields
        self._dtypes = next(group.dtypes for group in groups if group is not None)
        no_rows = bytes(_FIELD_BYTES * len(names))
        self._fields = b"".join(no_rows if group is None else group.fields or no_rows for group in groups)
        self._arguments = address_of(begins), len(groups), self._fields, len(names)

    def match(self, keys: Keys, column: str, table: KeyTable) -> "tuple[Outputs, array[int]] | None":
        """Return the other columns of the samples whose ``column`` has these keys, and the samples; None if a key has none."""
        key = self._names.index(column)
        if self._dtypes[key] is not _dtype_of(keys):
            return None
        found = _Table(keys.lengths.numel(), len(self._names))
        content = keys.data.data_ptr(), keys.lengths.data_ptr(), found.count
        addresses = found.extra, found.rows, found.places, found.lengths, found.sizes
        if not native.match_rows(*content, *table.arguments, *self._arguments, key, *addresses):
            return None
        return found.copy(self._fields, self._names, self._dtypes, key), found.extra_numbers(found.count)


_FIELD_BYTES = 24  # of a column of a row group: see Group.fields


class _Table:
    """What native code notes of the samples of a batch: rows, places of row groups, a third number, and lengths by column.

    An array of Python: one of NumPy or torch takes 10 to 15 us beside a reader of photographs, whose batches fill the caches of the CPU.
    """

    def __init__(self, count: int, columns: int) -> None:
        self.count = count
        # At the end, for each column the sum of the lengths, and the length of all or -1.
        self._numbers = array("q", bytes(8 * ((3 + columns) * count + 2 * columns)))
        begin, size = self._numbers.buffer_info()[0], 8 * count
        self.rows, self.places, self.extra, self.lengths = begin, begin + size, begin + 2 * size, begin + 3 * size
        self.sizes = self.lengths + columns * size

    def extra_numbers(self, count: int) -> "array[int]":
        """Return the first of the third numbers."""
        return self._numbers[2 * self.count : 2 * self.count + count]

    def copy(self, fields: bytes, names: Sequence[str], dtypes: Sequence[torch.dtype | None], key: int) -> Outputs:
        """Return the columns, whose lengths are known, without column ``key``."""
        outputs: Outputs = {}
        count, sizes = self.count, self._numbers[-2 * len(names) :]
        outs = array("q", bytes(16 * len(names)))
        for k, name in enumerate(names):
            if k == key:
                continue
            total, common = sizes[2 * k : 2 * k + 2]
            shapes = None
            if (dtype := dtypes[k]) is not None:
                values = empty([count], dtype, _CPU)
            elif common >= 0:
                values = empty([count, common], torch.uint8, _CPU)
            else:
                values, shapes = empty([total], torch.uint8, _CPU), empty([count, 1], torch.int64, _CPU)
                outs[2 * k + 1] = shapes.data_ptr()
            outs[2 * k] = values.data_ptr()
            outputs[name] = new_batch(values, shapes)
        native.copy_rows(fields, len(names), self.rows, self.places, count, self.lengths, outs.buffer_info()[0])
        return outputs


def _dtype_of(keys: Keys) -> torch.dtype | None:
    """Return the dtype of a column of such keys; None is that of texts."""
    return torch.int64 if keys.is_number else None


def read_matching(
    keys: Keys, column: str, names: Sequence[str], samples: np.ndarray, begins: np.ndarray, load: Callable[[int], Group]
) -> tuple[Outputs, np.ndarray] | None:
    """Return the other columns of samples, and the samples, if all their keys are equal; None if one differs, or if this needs Arrow.

    ``load`` returns a row group by number; for the other arguments see :class:`LocatedRows`.
    """
    rows = LocatedRows(samples, begins, len(names))
    outputs = rows.copy([load(number) for number in rows.groups], names, keys, column) if rows.groups else None
    return None if outputs is None else (outputs, samples)
