# SPDX-License-Identifier: Apache-2.0
"""The features that ``readers.TFRecord`` extracts from each record, named as in ``nvidia.dali.tfrecord``.

>>> FixedLenFeature([1], int64, -1).shape, VarLenFeature(float32, 0.0).shape
((1,), ())
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._core import native

__all__ = ["Feature", "FixedLenFeature", "VarLenFeature", "float32", "int64", "string"]

int64, string, float32 = (native.numbers("tfrecord.Type")[name] for name in ("int64", "string", "float32"))

_KINDS = {int64: "int64", string: "string", float32: "float32"}


@dataclass(frozen=True)
class Feature:
    """A feature of a record, made by :func:`FixedLenFeature` or :func:`VarLenFeature`."""

    shape: tuple[int, ...]
    dtype: int
    default_value: Any
    has_shape: bool  # otherwise `shape` is that of a row, and there are any number of rows

    @property
    def count(self) -> int:
        """Number of elements; -1 for any number."""
        return math.prod(self.shape) if self.has_shape else -1

    @property
    def missing(self) -> bytes:
        """Value for records without the feature."""
        if not self.has_shape:
            return b""
        if self.dtype == string:
            return self.default_value.encode() if isinstance(self.default_value, str) else bytes(self.default_value)
        return np.full(self.count, self.default_value, _KINDS[self.dtype]).tobytes()


def FixedLenFeature(shape: Sequence[int], dtype: int, default_value: Any) -> Feature:
    """Describe a feature of fixed shape: numbers of this shape, or one string of any length with shape ``[]`` or ``[1]``.

    Args:
        shape: Shape of each sample.
        dtype: :data:`int64`, :data:`float32` or :data:`string`.
        default_value: Value for records without the feature: of every element, or the string.

    Raises:
        TypeError: an invalid shape, a default value of another type.
        RuntimeError: another dtype.
    """
    return _feature(shape, dtype, default_value, True)


def VarLenFeature(*arguments: Any) -> Feature:
    """Describe a feature of any length: ``VarLenFeature(dtype, default_value)``, or ``VarLenFeature(row_shape, dtype, default_value)`` for rows.

    Samples have the shape (elements,), or ``(rows, *row_shape)``. Records without the feature have no elements.

    Raises:
        TypeError, RuntimeError: see :func:`FixedLenFeature`.
    """
    if len(arguments) not in (2, 3):
        raise TypeError(f"VarLenFeature takes a dtype and a default value, and may take the shape of a row before them, got {arguments!r}")
    return _feature(arguments[0] if len(arguments) == 3 else (), arguments[-2], arguments[-1], False)


def _feature(shape: Sequence[int], dtype: int, default_value: Any, has_shape: bool) -> Feature:
    extents = tuple(operator.index(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise TypeError(f"the shape of a feature must not have negative extents, got {list(extents)}")
    if isinstance(dtype, bool) or dtype not in _KINDS:
        raise RuntimeError(f"the type of a feature must be tfrecord.int64, tfrecord.float32 or tfrecord.string, got {dtype!r}")
    fits = {int64: isinstance(default_value, int), float32: isinstance(default_value, int | float), string: isinstance(default_value, str | bytes)}
    if not fits[dtype]:
        wanted = "a text or bytes" if dtype == string else f"one number, {_KINDS[dtype]}, for all elements"
        raise TypeError(f"the default value of a feature must be {wanted}, got {default_value!r:.200}")
    return Feature(extents, operator.index(dtype), default_value, has_shape)
