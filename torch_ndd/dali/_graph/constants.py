# SPDX-License-Identifier: Apache-2.0
"""Constants: numbers with an element type, and the tensors of constant nodes."""

import builtins
import enum
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..._core.values.python_operators import PythonOperators
from ...types import BOOL, FLOAT, FLOAT16, FLOAT64, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, DALIDataType, to_dtype, type_id
from .graph import Node


def to_dali_type(framework_type: Any) -> DALIDataType:
    """Return the element type of a NumPy or torch dtype, or of its name. Python's ``float`` is FLOAT, as for numbers.

    Raises:
        TypeError: not a type of tensors, or ``int``, which may be INT32 or INT64.

    >>> to_dali_type(np.float32), to_dali_type(torch.uint8), to_dali_type("int16")
    (<DALIDataType.FLOAT: 9>, <DALIDataType.UINT8: 0>, <DALIDataType.INT16: 5>)
    """
    if isinstance(framework_type, DALIDataType):
        return framework_type
    if framework_type is float:
        return DALIDataType.FLOAT
    if framework_type is int:
        raise TypeError("types.to_dali_type: int is not a type of tensors; write INT32 or INT64")
    try:
        dtype = framework_type if isinstance(framework_type, torch.dtype) else np.dtype(framework_type)
        member = type_id(dtype)
    except (TypeError, ValueError):
        member = None
    if member is None:
        raise TypeError(f"types.to_dali_type: {framework_type!r} is not a type of tensors")
    return member


# Element types of Python's numbers. The order matters: bool is a subclass of int.
_PYTHON_TYPES: dict[type, DALIDataType] = {builtins.bool: BOOL, builtins.int: INT32, builtins.float: FLOAT}
_NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.uint64): np.dtype(np.uint32), np.dtype(np.float64): np.dtype(np.float32)}


def _cast_to(dtype: DALIDataType) -> Callable[["ScalarConstant"], "ScalarConstant"]:
    """Return a method that gives a number another type."""

    def cast(self: "ScalarConstant") -> "ScalarConstant":
        return ScalarConstant(self.value, dtype)

    cast.__doc__ = f"Return the number as ``{dtype.name}``."
    return cast


class ScalarConstant(PythonOperators):
    """A number with an element type, as an operand of arithmetic: ``images + types.Constant(5).uint8()``.

    Args:
        value: The number.
        dtype: Its type; by default ``BOOL``, ``INT32`` or ``FLOAT`` for Python's numbers, of which np.float64 is one, and that of a NumPy scalar.

    Raises:
        TypeError: not a number, or not an element type.

    >>> ScalarConstant(5).uint8()
    5:DALIDataType.UINT8
    """

    # Makes NumPy return NotImplemented for `array + constant`, so __radd__ is called.
    __array_ufunc__ = None

    def __init__(self, value: Any, dtype: Any = None) -> None:
        self.shape: list[int] = []
        if isinstance(value, ScalarConstant):
            value, dtype = value.value, value.dtype if dtype is None else dtype
        if dtype is None:
            dtype = _type_of_number(value)
        elif not isinstance(dtype, DALIDataType):
            dtype = to_dali_type(dtype)
        if isinstance(value, np.generic | enum.Enum):
            value = value.value if isinstance(value, enum.Enum) else value.item()
        if not isinstance(value, numbers.Real):
            raise TypeError(f"types.ScalarConstant: the value must be a number, got {value!r}")
        self.dtype: DALIDataType = dtype
        self.value: Any = _convert_number(value, dtype)

    bool = _cast_to(BOOL)
    int8 = _cast_to(INT8)
    int16 = _cast_to(INT16)
    int32 = _cast_to(INT32)
    int64 = _cast_to(INT64)
    uint8 = _cast_to(UINT8)
    uint16 = _cast_to(UINT16)
    uint32 = _cast_to(UINT32)
    uint64 = _cast_to(UINT64)
    float16 = _cast_to(FLOAT16)
    float32 = _cast_to(FLOAT)
    float64 = _cast_to(FLOAT64)

    @property
    def is_float(self) -> builtins.bool:
        """Whether the type is one of floating-point numbers."""
        return to_dtype(self.dtype).is_floating_point

    def __bool__(self) -> builtins.bool:
        if self.dtype is not BOOL:
            raise TypeError(f"types.ScalarConstant: only a BOOL has a truth value, got {self!r}; use .bool() or .value")
        return builtins.bool(self.value)

    def __int__(self) -> int:
        if self.is_float:
            raise TypeError(f"types.ScalarConstant: {self!r} is not an integer; use .value")
        return int(self.value)

    def __float__(self) -> float:
        if not self.is_float:
            raise TypeError(f"types.ScalarConstant: {self!r} is not a floating-point number; use .value")
        return float(self.value)

    @staticmethod
    def _apply(operation: str, left: Any, right: Any) -> Any:
        if isinstance(left, Node) or isinstance(right, Node):
            return NotImplemented  # the reflected operator of the node creates the operation
        raise TypeError(f"types.ScalarConstant: {left!r} and {right!r} are both constants; one operand of {operation} must be a DataNode")

    _reflect = _apply

    def __str__(self) -> str:
        return f"{self.value}:DALIDataType.{self.dtype.name}"

    __repr__ = __str__


def _type_of_number(value: Any) -> DALIDataType:
    if isinstance(value, np.generic) and not isinstance(value, builtins.float):  # np.float64 is a Python float
        return to_dali_type(value.dtype)
    for kind, dtype in _PYTHON_TYPES.items():
        if isinstance(value, kind):
            return dtype
    raise TypeError(f"types.Constant: a number was expected, got {type(value).__name__}")


def _convert_number(value: Any, dtype: DALIDataType) -> Any:
    """Convert a number to the Python type of an element type."""
    if dtype is BOOL:
        return builtins.bool(value)
    return float(value) if to_dtype(dtype).is_floating_point else int(value)


def is_number(value: Any) -> builtins.bool:
    """Return whether a value is a number of Python or NumPy, or a ScalarConstant."""
    return isinstance(value, builtins.bool | builtins.int | builtins.float | np.generic | ScalarConstant)


def constant_tensor(value: Any, dtype: Any = None, shape: Any = None) -> torch.Tensor:
    """Return the value of a constant node as a tensor. Numbers are rounded and saturated if their type cannot hold them.

    Raises:
        TypeError: a value of another type, or a list in a list.
        OverflowError: an array of 64-bit integers that do not fit into 32 bits, and no ``dtype``.
        RuntimeError: a number of values that does not fit ``shape``.
    """
    wanted = None if dtype is None else to_dtype(dtype)
    if isinstance(value, enum.Enum) and isinstance(value, builtins.int):
        tensor = _saturate(np.array(builtins.int(value)), wanted or torch.int32)
    elif is_number(value):
        number = value if isinstance(value, ScalarConstant) else ScalarConstant(value)
        tensor = _saturate(np.array(number.value), to_dtype(number.dtype) if wanted is None else wanted)
    elif isinstance(value, list | tuple | range):
        tensor = _list_tensor(list(value), wanted)
    else:
        tensor = _array_tensor(value, wanted)
    if shape is not None:
        extents = [builtins.int(n) for n in ([shape] if isinstance(shape, builtins.int) else shape)]
        if tensor.numel() == 1:
            tensor = tensor.reshape(()).expand(extents)
        elif tensor.numel() != np.prod(extents, dtype=np.int64):
            raise RuntimeError(f"types.Constant: {tensor.numel()} values do not fill the shape {extents}")
        tensor = tensor.reshape(extents)
    return tensor.contiguous()


def _saturate(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers as a tensor of a type; integer types round and saturate."""
    if dtype.is_floating_point or dtype is torch.bool:
        return torch.from_numpy(np.atleast_1d(values).copy()).to(dtype).reshape(values.shape)
    # In Python's integers, which have no overflow.
    info = torch.iinfo(dtype)
    plain = [min(max(round(value), info.min), info.max) for value in values.ravel().tolist()]
    return torch.from_numpy(np.array(plain, str(dtype).removeprefix("torch.")).reshape(values.shape))


def _list_tensor(values: list[Any], dtype: torch.dtype | None) -> torch.Tensor:
    for value in values:
        if not is_number(value):
            raise TypeError(f"types.Constant: a list must contain numbers, got {type(value).__name__}; use np.array for more dimensions")
    plain = [value.value if isinstance(value, ScalarConstant) else value for value in values]
    if dtype is None:
        integers = all(isinstance(value, builtins.int | np.integer) for value in plain)
        flags = all(isinstance(value, builtins.bool | np.bool_) for value in plain)
        # DALI's types of constants: float unless all values are integers or all are booleans.
        dtype = torch.float32 if not plain or not (integers or flags) else torch.bool if flags else torch.int32
    return _saturate(np.array(plain), dtype)


def _array_tensor(value: Any, dtype: torch.dtype | None) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().clone()
        return tensor if dtype is None or dtype is tensor.dtype else _saturate(tensor.numpy(), dtype)
    if not hasattr(value, "__array__") and not hasattr(value, "__array_interface__"):
        raise TypeError(f"types.Constant: expected a number, a list of numbers or an array, got {type(value).__name__}")
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"types.Constant: an array of {array.dtype} is not numeric")
    if dtype is not None:
        return _saturate(array, dtype)
    # NumPy's default types have 64 bits; constants have 32, as in DALI.
    narrow = _NARROW.get(array.dtype)
    if narrow is None:
        return torch.from_numpy(array.copy())
    if narrow.kind != "f" and array.size:
        info = np.iinfo(narrow)
        if array.min() < info.min or array.max() > info.max:
            raise OverflowError(f"types.Constant: an array of {array.dtype} does not fit into {narrow}; give a dtype")
    return torch.from_numpy(array.astype(narrow))
