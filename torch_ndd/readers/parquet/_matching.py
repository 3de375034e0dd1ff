# SPDX-License-Identifier: Apache-2.0
"""Rows whose keys are compared in native code, as a batch: in 20 us instead of 120 for two columns."""

from array import array
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..._core import native
from ..._core.native import empty
from ..._core.values.batch import Batch, new_batch
from .._keys import Keys
from .._ranges.ranges import address_of, packed_batch
from ._groups import Group

_CPU = torch.device("cpu")


def read_matching(
    keys: Keys, column: str, names: Sequence[str], samples: np.ndarray, begins: np.ndarray, load: Callable[[int], Group]
) -> dict[str, Batch] | None:
    """Return the other columns of samples if all their keys are equal; None if one differs, or if this needs Arrow.

    Args:
        keys: what ``column`` should hold.
        column: the name of the column of keys.
        names: those of all columns.
        samples: int64; a negative one is missing.
        begins: the first sample of each row group, and the number of samples.
        load: returns a row group by number.
    """
    count, columns = len(samples), len(names)
    table = np.empty((3 + columns, count), np.int64)  # rows in their groups, places of the groups in the next row, groups; lengths by column
    totals = array("q", bytes(8 * columns))
    rows = address_of(table)
    places, distinct, lengths = (rows + 8 * count * k for k in (1, 2, 3))
    found = native.find_groups(address_of(samples), count, address_of(begins), len(begins) - 1, rows, places, distinct)
    if found <= 0:
        return None
    groups = [load(number) for number in table[2, :found].tolist()]
    fields = [group.fields for group in groups if group.fields is not None]
    dtypes = groups[0].dtypes
    key = names.index(column)
    if len(fields) < found or dtypes[key] is not (torch.int64 if keys.is_number else None):
        return None
    joined = b"".join(fields)
    content = keys.data.data_ptr(), keys.lengths.data_ptr()
    if not native.compare_rows(joined, columns, key, rows, places, count, *content, lengths, totals.buffer_info()[0]):
        return None
    outputs: dict[str, Batch] = {}
    outs = array("q", bytes(8 * columns))
    for k, name in enumerate(names):
        if k != key:
            values, dtype = empty([totals[k]], torch.uint8, _CPU), dtypes[k]
            outs[k] = values.data_ptr()
            outputs[name] = packed_batch(values, table[3 + k]) if dtype is None else new_batch(values.view(dtype))
    native.copy_rows(joined, columns, rows, places, count, lengths, outs.buffer_info()[0])
    return outputs
