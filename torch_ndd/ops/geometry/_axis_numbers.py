# SPDX-License-Identifier: Apache-2.0
"""Arguments for single axes in the form of native code that computes windows and sizes (csrc/ops/geometry/axis_numbers.h)."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ..._core import native
from ..._core.values.batch import Batch

# Other types are rare and left to Python.
_DTYPES = {dtype: number for number, dtype in native.DTYPES.items() if dtype in (torch.float32, torch.float64, torch.int32, torch.int64)}
_INT64 = _DTYPES[torch.int64]


class AxisNumbers(NamedTuple):
    """An argument for one axis: one number, or the number of each sample in a column of a tensor (1 or N, ...)."""

    number: float = 0.0
    values: torch.Tensor | None = None
    column: int = 0
    relative: bool = False  # to the extent of the axis
    name: str = ""  # of the argument

    def pack(self) -> bytes | None:
        """Return the argument in its native form; None if it has none. Its values must outlive the form."""
        if (values := self.values) is None:
            return struct.pack("PqqdQ", 0, 0, 0, self.number, self.relative)
        dtype = _DTYPES.get(values.dtype)
        if dtype is None or not values.is_contiguous():
            return None
        address = values.data_ptr() + self.column * values.element_size()
        return struct.pack("PqqdQ", address, dtype, 0 if len(values) == 1 else values.stride(0), 0.0, self.relative)

    def is_equal(self, length: "int | np.ndarray | torch.Tensor") -> bool:
        """Return whether it is the same number of elements in samples of this extent."""
        return self.values is None and not (self.relative and isinstance(length, np.ndarray | torch.Tensor))


SIZE = struct.calcsize("PqqdQ")
_ADDRESS = struct.Struct("P")


class Template:
    """Packed arguments, some of them with a value for each sample, which other values of the same types and shapes replace.

    Args:
        packed: The arguments.
        places: The offsets of those in ``packed``.
    """

    def __init__(self, packed: bytes, places: Sequence[tuple[int, AxisNumbers]]) -> None:
        self._packed = packed
        self._places = [
            (offset, numbers.name, numbers.column * numbers.values.element_size()) for offset, numbers in places if numbers.values is not None
        ]

    @property
    def names(self) -> frozenset[str]:
        """The arguments with a value for each sample."""
        return frozenset(name for _, name, _ in self._places)

    def fill(self, values: Mapping[str, torch.Tensor]) -> bytes:
        """Return the arguments with other values, which must outlive the result and be contiguous."""
        packed = bytearray(self._packed)
        for offset, name, position in self._places:
            _ADDRESS.pack_into(packed, offset, values[name].data_ptr() + position)
        return bytes(packed)


def pack_extents(extents: "int | np.ndarray") -> bytes:
    """Return extents, one number or int64 (N,), in the same form."""
    if isinstance(extents, np.ndarray):
        return struct.pack("PqqdQ", extents.__array_interface__["data"][0], _INT64, extents.strides[0] // 8, 0.0, False)
    return struct.pack("PqqdQ", 0, 0, 0, extents, False)


def pack_shapes(input: Batch) -> tuple[bytes | int, int]:
    """Return the shapes of samples as rows of int64 numbers, and the distance of two rows: 0 where all samples have one shape."""
    if (table := input.ragged_shapes) is not None:
        return table.data_ptr(), table.stride(0)
    return struct.pack(f"{input.ndim}q", *input.buffer.shape[1:]), 0
