# SPDX-License-Identifier: Apache-2.0
"""Element types, the enumerations of ``nvidia.dali.types``, and the type promotion of arithmetic."""

import builtins
import enum
from typing import Any

import numpy as np
import torch

from ._core.suggestions import similar

# fmt: off
__all__ = [
    "ANY_DATA", "BGR", "BOOL", "DATA_TYPE", "FEATURE", "FLOAT", "FLOAT16", "FLOAT64", "GRAY", "IMAGE_TYPE", "INT8", "INT16", "INT32", "INT64",
    "INTERP_CUBIC", "INTERP_GAUSSIAN", "INTERP_LANCZOS3", "INTERP_LINEAR", "INTERP_NN", "INTERP_TRIANGULAR", "INTERP_TYPE", "NCHW", "NFCHW",
    "NFHWC", "NHWC", "NO_TYPE", "NUMERIC", "PYTHON_OBJECT", "RGB", "STRING", "TENSOR_LAYOUT", "UINT8", "UINT16", "UINT32", "UINT64",
    "DALIDataType", "DALIImageType", "DALIInterpType", "DType", "DataType", "ImageType", "InterpType", "YCbCr", "dtype", "dtype_name", "promote",
    "to_dtype", "type_id",
]
# fmt: on


class _Numbers(enum.IntEnum):
    """Numbers with names, which they are printed as: ``DALIDataType.FLOAT``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)


class DALIDataType(_Numbers):
    """DALI's numbers of the element types; every ``dtype=`` accepts them too."""

    NO_TYPE = -1
    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    UINT64 = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    FLOAT16 = 8
    FLOAT = 9
    FLOAT64 = 10
    BOOL = 11
    STRING = 12
    FEATURE = 17
    IMAGE_TYPE = 20
    DATA_TYPE = 21
    INTERP_TYPE = 22
    TENSOR_LAYOUT = 23
    PYTHON_OBJECT = 24


class DALIInterpType(_Numbers):
    """Interpolation of pixels between grid points."""

    INTERP_NN = 0
    INTERP_LINEAR = 1
    INTERP_CUBIC = 2
    INTERP_LANCZOS3 = 3
    INTERP_TRIANGULAR = 4
    INTERP_GAUSSIAN = 5


class DALIImageType(_Numbers):
    """Color channels of a decoded image."""

    RGB = 0
    BGR = 1
    GRAY = 2
    YCbCr = 3
    ANY_DATA = 4


NO_TYPE, STRING, FEATURE = DALIDataType.NO_TYPE, DALIDataType.STRING, DALIDataType.FEATURE
IMAGE_TYPE, DATA_TYPE, INTERP_TYPE = DALIDataType.IMAGE_TYPE, DALIDataType.DATA_TYPE, DALIDataType.INTERP_TYPE
TENSOR_LAYOUT, PYTHON_OBJECT = DALIDataType.TENSOR_LAYOUT, DALIDataType.PYTHON_OBJECT
UINT8, UINT16, UINT32, UINT64 = DALIDataType.UINT8, DALIDataType.UINT16, DALIDataType.UINT32, DALIDataType.UINT64
INT8, INT16, INT32, INT64 = DALIDataType.INT8, DALIDataType.INT16, DALIDataType.INT32, DALIDataType.INT64
FLOAT16, FLOAT, FLOAT64, BOOL = DALIDataType.FLOAT16, DALIDataType.FLOAT, DALIDataType.FLOAT64, DALIDataType.BOOL
INTERP_NN, INTERP_LINEAR, INTERP_CUBIC = DALIInterpType.INTERP_NN, DALIInterpType.INTERP_LINEAR, DALIInterpType.INTERP_CUBIC
INTERP_LANCZOS3, INTERP_TRIANGULAR = DALIInterpType.INTERP_LANCZOS3, DALIInterpType.INTERP_TRIANGULAR
INTERP_GAUSSIAN = DALIInterpType.INTERP_GAUSSIAN
NHWC, NCHW, NFHWC, NFCHW = "HWC", "CHW", "FHWC", "FCHW"  # layouts of a single sample
RGB, BGR, GRAY, YCbCr, ANY_DATA = DALIImageType.RGB, DALIImageType.BGR, DALIImageType.GRAY, DALIImageType.YCbCr, DALIImageType.ANY_DATA

_OF_DALI = {
    UINT8: torch.uint8,
    UINT16: torch.uint16,
    UINT32: torch.uint32,
    UINT64: torch.uint64,
    INT8: torch.int8,
    INT16: torch.int16,
    INT32: torch.int32,
    INT64: torch.int64,
    FLOAT16: torch.float16,
    FLOAT: torch.float32,
    FLOAT64: torch.float64,
    BOOL: torch.bool,
}
# Also element types; such numbers are int32 here, because the members are ints.
_ENUMERATIONS = (DALIDataType, DALIImageType, DALIInterpType)
_NUMBER_OF = {DALIDataType: DATA_TYPE, DALIImageType: IMAGE_TYPE, DALIInterpType: INTERP_TYPE}
_SHORT = {
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
}
_NAME = {dtype: name for name, dtype in _SHORT.items()}
_SHORT.update(DataType=torch.int32, ImageType=torch.int32, InterpType=torch.int32)
_LONG = {str(dtype).removeprefix("torch."): dtype for dtype in _NAME}
_ID = {dtype: number for number, dtype in _OF_DALI.items()}
# The element types of kernels; complex, quantized and 8-bit float tensors are not supported.
NUMERIC = frozenset(_NAME)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of an element type: ``u8``, ``f32``, ``bool``."""
    return _NAME.get(dtype) or str(dtype).removeprefix("torch.")


def to_dtype(value: Any) -> torch.dtype:
    """Return the torch dtype of a torch or NumPy dtype, a DALI number, a name, or Python's ``bool`` and ``float``.

    >>> to_dtype("u8"), to_dtype("float32"), to_dtype(FLOAT), to_dtype(np.int16)
    (torch.uint8, torch.float32, torch.float32, torch.int16)
    """
    if isinstance(value, torch.dtype):
        found = value
    elif isinstance(value, DALIDataType):
        if value not in _OF_DALI and value not in _NUMBER_OF.values():
            raise TypeError(f"{value!r} is not an element type of tensors")
        found = _OF_DALI.get(value, torch.int32)
    elif isinstance(value, str):
        if value not in _SHORT and value not in _LONG:
            names = f"the names are {', '.join(_NAME.values())}, and those of torch (float32)"
            raise ValueError(f"unknown element type {value!r} ({names}){similar(value, [*_SHORT, *_LONG])}")
        found = _SHORT[value] if value in _SHORT else _LONG[value]
    elif isinstance(value, type) and value in _ENUMERATIONS:
        found = torch.int32
    elif value is builtins.bool:
        found = torch.bool
    elif value is builtins.float:
        found = torch.float32
    elif value is None or value is builtins.int:
        raise TypeError(f"{value!r} is not an element type; write int32 or int64")
    elif getattr(value, "__name__", getattr(value, "name", None)) == "bfloat16":  # from ml_dtypes
        found = torch.bfloat16
    else:
        try:
            found = torch.from_numpy(np.empty(0, value)).dtype
        except TypeError:
            raise TypeError(f"{value!r} is not an element type of tensors") from None
    if found not in NUMERIC:
        raise TypeError(f"tensors of type {found} are not supported")
    return found


# Public names: torch's dtypes are DTypes, and the numbers of enumerations are int32.
DType = torch.dtype
DataType, ImageType, InterpType = DALIDataType, DALIImageType, DALIInterpType
dtype = to_dtype


def type_id(dtype: Any) -> DALIDataType | None:
    """Return DALI's number of an element type; None for bfloat16, which has none. Raise ValueError for other values.

    >>> type_id(torch.float32), type_id("u8")
    (<DALIDataType.FLOAT: 9>, <DALIDataType.UINT8: 0>)
    """
    if isinstance(dtype, DALIDataType):
        return dtype
    if isinstance(dtype, type) and dtype in _ENUMERATIONS:
        return _NUMBER_OF[dtype]
    try:
        return _ID.get(to_dtype(dtype))
    except (TypeError, ValueError):
        raise ValueError(f"Invalid dtype: {dtype!r}") from None


def promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """Return the dtype of ``a op b``.

    Float beats integer, the wider of two floats or of equal signedness wins, mixed signedness gives the signed type that holds the unsigned one (at
    most int64), and bool takes the other type.

    >>> promote(torch.uint8, torch.int8), promote(torch.int64, torch.float32), promote(torch.bool, torch.uint8)
    (torch.int16, torch.float32, torch.uint8)
    """
    return _PROMOTED[a, b]


def _promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    if a is b or b is torch.bool:
        return a
    if a is torch.bool:
        return b
    if a.is_floating_point and b.is_floating_point:
        return torch.promote_types(a, b)
    if a.is_floating_point or b.is_floating_point:
        return a if a.is_floating_point else b
    if a.is_signed == b.is_signed:
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    wanted = max(signed.itemsize, min(8, 2 * unsigned.itemsize))
    return {2: torch.int16, 4: torch.int32, 8: torch.int64}[wanted]


_PROMOTED = {(a, b): _promote(a, b) for a in NUMERIC for b in NUMERIC}
