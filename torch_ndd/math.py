# SPDX-License-Identifier: Apache-2.0
"""Element-wise mathematical functions: roots, logarithms, angles, rounding, extremes, powers."""

from .ops.math.functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    ceil,
    clamp,
    cos,
    cosh,
    exp,
    fabs,
    floor,
    fpow,
    log,
    log2,
    log10,
    max,
    min,
    pow,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

# fmt: off
__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clamp", "cos", "cosh", "exp", "fabs", "floor", "fpow",
    "log", "log2", "log10", "max", "min", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
]
# fmt: on
