# SPDX-License-Identifier: Apache-2.0
"""Arithmetic operations: their numbers in the native library, the dtypes of their results, and the same in torch operations."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ... import types
from .. import native

# Python's names of operators that C++ reserves or spells out.
_NAMES = {
    **{"bit_and": "and", "bit_or": "or", "bit_xor": "xor", "shift_left": "lshift", "shift_right": "rshift"},
    **{"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "negate": "neg"},
}
_NATIVE = {_NAMES.get(name, name): number for name, number in native.numbers("arithmetic.Op").items() if not name.endswith(("_mixed", "_su", "_us"))}
_FUNCTIONS_OF_C = list(_NATIVE)[_NATIVE["sqrt"] :]
_SYMBOLS = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "neg": "-", "invert": "~"},
    **{"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<="},
}
_BITS = {"and", "or", "xor", "lshift", "rshift", "invert"}
_COMPARISONS = {"eq", "ne", "lt", "le"}
# Operations that are not defined on integers convert them to float32.
_REAL = {"truediv", "fpow", "atan2", "fabs", *_FUNCTIONS_OF_C}
# The native functions for integers and for floats, where they are not named after the operation.
_FUNCTIONS = {
    "truediv": ("divide", "divide"),
    "floordiv": ("quotient", "divide"),
    "mod": ("remainder", "fmod"),
    "pow": ("ipow", "fpow"),
    "fabs": ("abs", "abs"),
}

kernels_on_cpu = True  # the tests of the formulas turn it off


def on_cpu(input: Any) -> bool:
    """Return whether the graph is for the CPU, where some operators prefer their kernel to the formula."""
    return kernels_on_cpu and input.device.type == "cpu"


Formula = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Computation:
    """The computation of an operation on operands of given dtypes."""

    operation: int
    type: int  # that the operands are promoted to
    out: torch.dtype
    formula: Formula | None  # on dense operands; None if torch has no equal operation


_UNARY = {"neg", "invert", "logical_not", "copy", "abs", "fabs", *_FUNCTIONS_OF_C}


def operand_count(operation: str) -> int:
    """Return the number of operands of an operation. Raise ValueError for an unknown operation."""
    if operation not in _NATIVE and operation not in _FUNCTIONS:
        raise ValueError(f"unknown arithmetic operation {operation!r:.60}")
    return 1 if operation in _UNARY else 3 if operation == "clamp" else 2


def label(operation: str) -> str:
    """Return the beginning of error messages."""
    return f"arithmetic {_SYMBOLS[operation]}" if operation in _SYMBOLS else f"math.{operation}"


_computations: dict[tuple[Any, ...], Computation] = {}


def find_computation(operation: str, dtypes: Sequence[torch.dtype], compiling: bool) -> Computation:
    """Return the computation for operands of these dtypes. Raise RuntimeError if the operation does not support them."""
    if compiling:  # branches of torch.cond, for example, may not write to the table
        return _derive_computation(operation, dtypes)
    key = (operation, *dtypes)
    computation = _computations.get(key)
    # Deriving takes longer than many a kernel.
    if computation is None:
        computation = _computations[key] = _derive_computation(operation, dtypes)
    return computation


def _derive_computation(operation: str, dtypes: Sequence[torch.dtype]) -> Computation:
    dtype = functools.reduce(types.promote, dtypes)
    if operation in _BITS:
        if any(operand.is_floating_point for operand in dtypes):
            raise RuntimeError(f"{label(operation)}: the operands must be of integral type")
    elif dtype is torch.bool and operation != "mul" and operation not in _COMPARISONS:
        if len(dtypes) == 1:
            raise RuntimeError(f"{label(operation)}: the operand cannot be a boolean; use ~ or a numeric type")
        raise RuntimeError(
            f"{label(operation)}: the operands cannot be booleans (a boolean cannot be combined with a boolean); use &, |, ^ or a numeric type"
        )
    if operation in _REAL and not dtype.is_floating_point:
        dtype = torch.float32
    name = operation
    if operation in _FUNCTIONS:
        name = _FUNCTIONS[operation][int(dtype.is_floating_point)]  # torch 2.11 does not accept a bool here in a graph
    return Computation(_NATIVE[name], native.DTYPE_NUMBERS[dtype], torch.bool if operation in _COMPARISONS else dtype, _formula(name, dtype, dtypes))


def _where_less(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(a < b, a, b)


def _where_greater(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(a > b, a, b)


def _clamp(value: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    # In this order NaN passes, as in the kernel.
    limited = torch.where(value < low, low, value)
    return torch.where(limited > high, high, limited)


_FORMULAS: dict[str, Formula] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "divide": torch.true_divide,
    "fmod": torch.fmod,
    "fpow": torch.pow,
    "min": _where_less,
    "max": _where_greater,
    "clamp": _clamp,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "neg": torch.neg,
    "invert": torch.bitwise_not,
    "rsqrt": lambda a: 1 / torch.sqrt(a),
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "abs", "atan2")},
    **{name: getattr(torch, name) for name in _FUNCTIONS_OF_C if name not in ("rsqrt", "cbrt")},
}
# Torch has no arithmetic on these types; the lowest bits of the wider type are the same. float16 and bfloat16 are rounded once.
_COMPUTED = {
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
# That is enough for sums, products and bits of uint64.
_OF_UINT64 = {"add", "sub", "mul", "and", "or", "xor", "lshift", "eq", "ne", "neg", "invert"}


def _formula(name: str, dtype: torch.dtype, dtypes: Sequence[torch.dtype]) -> Formula | None:
    """Return None for what torch lacks, and for integer division, which in a compiled graph would end the process where the kernel raises."""
    function = _FORMULAS.get(name)
    if function is None or (dtype is torch.uint64 and name not in _OF_UINT64):
        return None
    if name in _COMPARISONS and torch.uint64 in dtypes and dtype is torch.int64:  # signed with unsigned compares by value
        return None
    computed, out = _COMPUTED.get(dtype, dtype), torch.bool if name in _COMPARISONS else dtype
    if name == "fmod" and dtype is torch.float32 and any(not operand.is_floating_point and operand.itemsize >= 4 for operand in dtypes):
        computed = torch.float64  # the remainder of a dividend rounded to float32 would be meaningless
    if name in ("lshift", "rshift"):
        if dtype.itemsize < 4:
            computed = torch.int32
        # Modulo 32 or 64, as in the kernel, which computes narrow types in int32.
        count = 63 if dtype.itemsize == 8 else 31
        return lambda a, b: function(a.to(computed), b.to(computed) & count).to(out)
    return lambda *operands: function(*(operand.to(computed) for operand in operands)).to(out)
