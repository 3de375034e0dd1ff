# SPDX-License-Identifier: Apache-2.0
"""Arguments for single axes in the form of native code that computes windows and sizes (csrc/ops/geometry/axis_numbers.h)."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core import native
from ..._core.operators.operator import Derivation, NativeDerivation
from ..._core.values.batch import Batch

# Other types are rare and left to Python.
_TAKEN = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)
_DTYPES = {dtype: native.DTYPE_NUMBERS[dtype] for dtype in _TAKEN}
_INT64 = _DTYPES[torch.int64]
RELATIVE = native.numbers("axis.Relative")


class AxisNumbers(NamedTuple):
    """An argument for one axis: one number, or the number of each sample in a column of a tensor (1 or N, ...)."""

    number: float = 0.0
    values: torch.Tensor | None = None
    column: int = 0
    relative: int = False  # to the extent of the axis; RELATIVE says how the product is rounded
    name: str = ""  # of the argument

    def pack(self) -> bytes | None:
        """Return the argument in its native form; None if it has none. Its values must outlive the form."""
        if (values := self.values) is None:
            return struct.pack("Pqqdq", 0, 0, 0, self.number, self.relative)
        dtype = _DTYPES.get(values.dtype)
        if dtype is None or not values.is_contiguous():
            return None
        address = values.data_ptr() + self.column * values.element_size()
        return struct.pack("Pqqdq", address, dtype, 0 if len(values) == 1 else _columns(values), 0.0, self.relative)

    def is_equal(self, length: "int | np.ndarray | torch.Tensor") -> bool:
        """Return whether it is the same number of elements in samples of this extent."""
        return self.values is None and not (self.relative and isinstance(length, np.ndarray | torch.Tensor))


def pack_numbers(numbers: Iterable[AxisNumbers]) -> bytes | None:
    """Return arguments in their native form, ``SIZE`` bytes each; None if one of them has none."""
    packed = []
    for number in numbers:
        if (form := number.pack()) is None:
            return None
        packed.append(form)
    return b"".join(packed)


SIZE = struct.calcsize("Pqqdq")
_STRIDE = struct.Struct("q")
_STRIDE_AT = struct.calcsize("Pq")


def derive_natively(
    function: Any,
    packed: bytes,
    numbers: Sequence[tuple[int, AxisNumbers]],
    options: Sequence[int],
    count: int,
    is_fixed: bool = False,
    passed: bool = False,
) -> Derivation:
    """Return how native code computes again what follows from packed arguments and the shapes of the samples.

    Args:
        function: The C function (csrc/ndd/derive.h).
        packed: Its arguments.
        numbers: Those in ``packed``, with their places. Where they have a value for each sample, those of each call replace them.
        options: Integers for the function.
        count: The number of tables that it fills.
        is_fixed: Whether the shape of the output follows from constants.
        passed: Whether the kernel gets the arguments as well.
    """
    arguments, places = bytearray(packed), []
    for offset, axis in numbers:
        if (values := axis.values) is not None:
            places.append((offset, axis.name, axis.column * values.element_size()))
            _STRIDE.pack_into(arguments, offset + _STRIDE_AT, _columns(values))  # one sample is packed with a stride of 0, later calls have several
    names = frozenset(name for _, name, _ in places)
    return Derivation(NativeDerivation(function, bytes(arguments), places, options, is_fixed), count, names, names if passed else frozenset())


def _columns(values: torch.Tensor) -> int:
    return values.numel() // max(1, len(values))


def pack_extents(extents: "int | np.ndarray") -> bytes:
    """Return extents, one number or int64 (N,), in the same form."""
    if isinstance(extents, np.ndarray):
        return struct.pack("Pqqdq", extents.__array_interface__["data"][0], _INT64, extents.strides[0] // 8, 0.0, False)
    return struct.pack("Pqqdq", 0, 0, 0, extents, False)


def pack_shapes(input: Batch) -> tuple[bytes | int, int]:
    """Return the shapes of samples as rows of int64 numbers, and the distance of two rows: 0 where all samples have one shape."""
    if (table := input.ragged_shapes) is not None:
        return table.data_ptr(), table.stride(0)
    return struct.pack(f"{input.ndim}q", *input.buffer.shape[1:]), 0
