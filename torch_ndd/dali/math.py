# SPDX-License-Identifier: Apache-2.0
"""Element-wise mathematical functions of nodes, with the rules of :mod:`torch_ndd.math`: types, broadcasting and errors.

Operands are nodes, numbers, ``types.Constant`` and arrays; at least one is a node or an array (otherwise ValueError; TypeError for other objects).

>>> from torch_ndd.dali import pipeline_def, types
>>> @pipeline_def(batch_size=2)
... def roots():
...     return sqrt(types.Constant([4.0, 9.0]))
>>> roots().run()[0].as_array().tolist()
[[2.0, 3.0], [2.0, 3.0]]
"""

from typing import Any

from .data_node import DataNode, arithmetic

# fmt: off
__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "clamp",
    "cos",
    "cosh",
    "exp",
    "fabs",
    "floor",
    "fpow",
    "log",
    "log2",
    "log10",
    "max",
    "min",
    "pow",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
# fmt: on


def _call(name: str, *operands: Any) -> DataNode:
    return arithmetic(name, *operands, title=f"math.{name}")


def sqrt(input: Any) -> DataNode:
    """Return the square root."""
    return _call("sqrt", input)


def rsqrt(input: Any) -> DataNode:
    """Return 1 / sqrt(x)."""
    return _call("rsqrt", input)


def cbrt(input: Any) -> DataNode:
    """Return the cube root."""
    return _call("cbrt", input)


def exp(input: Any) -> DataNode:
    """Return e ** x."""
    return _call("exp", input)


def log(input: Any) -> DataNode:
    """Return the natural logarithm."""
    return _call("log", input)


def log2(input: Any) -> DataNode:
    """Return the logarithm to base 2."""
    return _call("log2", input)


def log10(input: Any) -> DataNode:
    """Return the logarithm to base 10."""
    return _call("log10", input)


def abs(input: Any) -> DataNode:
    """Return the absolute value."""
    return _call("abs", input)


def fabs(input: Any) -> DataNode:
    """Return the absolute value as a float."""
    return _call("fabs", input)


def floor(input: Any) -> DataNode:
    """Round down."""
    return _call("floor", input)


def ceil(input: Any) -> DataNode:
    """Round up."""
    return _call("ceil", input)


def pow(base: Any, exponent: Any) -> DataNode:
    """Return ``base ** exponent``; integers stay integers."""
    return _call("pow", base, exponent)


def fpow(base: Any, exponent: Any) -> DataNode:
    """Return ``base ** exponent`` as a float."""
    return _call("fpow", base, exponent)


def min(left: Any, right: Any) -> DataNode:
    """Return the smaller operand."""
    return _call("min", left, right)


def max(left: Any, right: Any) -> DataNode:
    """Return the larger operand."""
    return _call("max", left, right)


def clamp(value: Any, lo: Any, hi: Any) -> DataNode:
    """Limit to ``lo`` and ``hi``."""
    return _call("clamp", value, lo, hi)


def sin(input: Any) -> DataNode:
    """Return the sine of an angle in radians."""
    return _call("sin", input)


def cos(input: Any) -> DataNode:
    """Return the cosine of an angle in radians."""
    return _call("cos", input)


def tan(input: Any) -> DataNode:
    """Return the tangent of an angle in radians."""
    return _call("tan", input)


def asin(input: Any) -> DataNode:
    """Return the angle with this sine, in radians."""
    return _call("asin", input)


def acos(input: Any) -> DataNode:
    """Return the angle with this cosine, in radians."""
    return _call("acos", input)


def atan(input: Any) -> DataNode:
    """Return the angle with this tangent, in radians."""
    return _call("atan", input)


def atan2(x: Any, y: Any) -> DataNode:
    """Return the angle of ``x / y`` in radians, in its quadrant."""
    return _call("atan2", x, y)


def sinh(input: Any) -> DataNode:
    """Return the hyperbolic sine."""
    return _call("sinh", input)


def cosh(input: Any) -> DataNode:
    """Return the hyperbolic cosine."""
    return _call("cosh", input)


def tanh(input: Any) -> DataNode:
    """Return the hyperbolic tangent."""
    return _call("tanh", input)


def asinh(input: Any) -> DataNode:
    """Return the inverse hyperbolic sine."""
    return _call("asinh", input)


def acosh(input: Any) -> DataNode:
    """Return the inverse hyperbolic cosine."""
    return _call("acosh", input)


def atanh(input: Any) -> DataNode:
    """Return the inverse hyperbolic tangent."""
    return _call("atanh", input)
