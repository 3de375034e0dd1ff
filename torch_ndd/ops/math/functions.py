# SPDX-License-Identifier: Apache-2.0
"""Element-wise mathematical functions, public as ``torch_ndd.math``.

All functions take a Tensor, a Batch, a number, a list or an array, and return a Batch if an operand is one, else a Tensor. Several operands are
broadcast and promoted as by ``+`` (:func:`torch_ndd.ops.math.arithmetic.arithmetic`). Functions of real numbers keep floating-point types and convert
integers to float32; float16 and bfloat16 are computed in float32. Angles are in radians. The result is NaN where a function is undefined.

Every function raises RuntimeError for bools where numbers are needed, and for shapes and layouts that do not fit together; ValueError for operands on
different devices or batches of different size; TypeError for non-numeric operands; OverflowError for an int beyond int32.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast, overload

from ..._core.values.batch import Batch
from ..._core.values.tensor import Tensor
from .arithmetic import arithmetic

T = TypeVar("T", Tensor, Batch)


class _Unary(Protocol):
    @overload
    def __call__(self, input: T) -> T: ...
    @overload
    def __call__(self, input: Any) -> Tensor: ...


def _unary(function: Callable[[Any], Any]) -> _Unary:
    return cast(_Unary, function)


@_unary
def sqrt(input: Any) -> Any:
    """Return the square root.

    >>> sqrt([4, 9]).torch()
    tensor([2., 3.])
    """
    return arithmetic("sqrt", input)


@_unary
def rsqrt(input: Any) -> Any:
    """Return 1 / sqrt(x); infinity at 0.

    >>> rsqrt([4.0, 0.0]).torch()
    tensor([0.5000,    inf])
    """
    return arithmetic("rsqrt", input)


@_unary
def cbrt(input: Any) -> Any:
    """Return the cube root, also of negative numbers.

    >>> cbrt([8, -27]).torch()
    tensor([ 2., -3.])
    """
    return arithmetic("cbrt", input)


@_unary
def exp(input: Any) -> Any:
    """Return e to the power of x.

    >>> exp([0.0, 1.0]).torch()
    tensor([1.0000, 2.7183])
    """
    return arithmetic("exp", input)


@_unary
def log(input: Any) -> Any:
    """Return the natural logarithm; -inf at 0.

    >>> log([1, 0]).torch()
    tensor([0., -inf])
    """
    return arithmetic("log", input)


@_unary
def log2(input: Any) -> Any:
    """Return the logarithm to base 2; -inf at 0.

    >>> log2([8, 0.5]).torch()
    tensor([ 3., -1.])
    """
    return arithmetic("log2", input)


@_unary
def log10(input: Any) -> Any:
    """Return the logarithm to base 10; -inf at 0.

    >>> log10([1000, 0.1]).torch()
    tensor([ 3., -1.])
    """
    return arithmetic("log10", input)


@_unary
def abs(input: Any) -> Any:
    """Return the absolute value, in the operand's type; that of the smallest integer is itself.

    >>> abs([-3, 3]).torch()
    tensor([3, 3], dtype=torch.int32)
    """
    return arithmetic("abs", input)


@_unary
def fabs(input: Any) -> Any:
    """Return the absolute value as a floating-point number.

    >>> fabs([-3, 3]).torch()
    tensor([3., 3.])
    """
    return arithmetic("fabs", input)


@_unary
def floor(input: Any) -> Any:
    """Return the largest integer not above x, as a floating-point number.

    >>> floor([1.5, -1.5]).torch()
    tensor([ 1., -2.])
    """
    return arithmetic("floor", input)


@_unary
def ceil(input: Any) -> Any:
    """Return the smallest integer not below x, as a floating-point number.

    >>> ceil([1.5, -1.5]).torch()
    tensor([ 2., -1.])
    """
    return arithmetic("ceil", input)


@_unary
def sin(input: Any) -> Any:
    """Return the sine.

    >>> sin([0, 1]).torch()
    tensor([0.0000, 0.8415])
    """
    return arithmetic("sin", input)


@_unary
def cos(input: Any) -> Any:
    """Return the cosine.

    >>> cos([0, 1]).torch()
    tensor([1.0000, 0.5403])
    """
    return arithmetic("cos", input)


@_unary
def tan(input: Any) -> Any:
    """Return the tangent.

    >>> tan([0, 1]).torch()
    tensor([0.0000, 1.5574])
    """
    return arithmetic("tan", input)


@_unary
def asin(input: Any) -> Any:
    """Return the arcsine, from -pi/2 to pi/2; NaN outside -1 to 1.

    >>> asin([0, 1]).torch()
    tensor([0.0000, 1.5708])
    """
    return arithmetic("asin", input)


@_unary
def acos(input: Any) -> Any:
    """Return the arccosine, from 0 to pi; NaN outside -1 to 1.

    >>> acos([0, 1]).torch()
    tensor([1.5708, 0.0000])
    """
    return arithmetic("acos", input)


@_unary
def atan(input: Any) -> Any:
    """Return the arctangent, from -pi/2 to pi/2.

    >>> atan([0, 1]).torch()
    tensor([0.0000, 0.7854])
    """
    return arithmetic("atan", input)


@_unary
def sinh(input: Any) -> Any:
    """Return the hyperbolic sine.

    >>> sinh([0, 1]).torch()
    tensor([0.0000, 1.1752])
    """
    return arithmetic("sinh", input)


@_unary
def cosh(input: Any) -> Any:
    """Return the hyperbolic cosine.

    >>> cosh([0, 1]).torch()
    tensor([1.0000, 1.5431])
    """
    return arithmetic("cosh", input)


@_unary
def tanh(input: Any) -> Any:
    """Return the hyperbolic tangent.

    >>> tanh([0, 1]).torch()
    tensor([0.0000, 0.7616])
    """
    return arithmetic("tanh", input)


@_unary
def asinh(input: Any) -> Any:
    """Return the inverse hyperbolic sine.

    >>> asinh([0, 1]).torch()
    tensor([0.0000, 0.8814])
    """
    return arithmetic("asinh", input)


@_unary
def acosh(input: Any) -> Any:
    """Return the inverse hyperbolic cosine; NaN below 1.

    >>> acosh([1, 2]).torch()
    tensor([0.0000, 1.3170])
    """
    return arithmetic("acosh", input)


@_unary
def atanh(input: Any) -> Any:
    """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.

    >>> atanh([0, 0.5]).torch()
    tensor([0.0000, 0.5493])
    """
    return arithmetic("atanh", input)


def min(left: Any, right: Any) -> Any:
    """Return the smaller operand: ``left < right ? left : right``, so NaN on the left returns the right operand.

    >>> min([1, 5], 3).torch()
    tensor([1, 3], dtype=torch.int32)
    """
    return arithmetic("min", left, right)


def max(left: Any, right: Any) -> Any:
    """Return the larger operand: ``left > right ? left : right``, so NaN on the left returns the right operand.

    >>> max([1, 5], 2.5).torch()
    tensor([2.5000, 5.0000])
    """
    return arithmetic("max", left, right)


def pow(base: Any, exponent: Any) -> Any:
    """Return ``base ** exponent``. Integers wrap around, and are 0 for a negative exponent.

    >>> pow(2, [3, -1]).torch()
    tensor([8, 0], dtype=torch.int32)
    """
    return arithmetic("pow", base, exponent)


def fpow(base: Any, exponent: Any) -> Any:
    """Return ``base ** exponent`` as a floating-point number.

    >>> fpow(2, [3, -1]).torch()
    tensor([8.0000, 0.5000])
    """
    return arithmetic("fpow", base, exponent)


def atan2(x: Any, y: Any) -> Any:
    """Return the arctangent of ``x / y`` in the quadrant of the point ``(y, x)``, from -pi to pi.

    >>> atan2([1, 0], [1, -1]).torch()
    tensor([0.7854, 3.1416])
    """
    return arithmetic("atan2", x, y)


def clamp(value: Any, lo: Any, hi: Any) -> Any:
    """Clamp ``value`` to at least ``lo`` and at most ``hi``; ``hi`` wins if they contradict each other. NaN stays, and is not a limit.

    >>> clamp([-1, 5, 12], 0, 10).torch()
    tensor([ 0,  5, 10], dtype=torch.int32)
    """
    return arithmetic("clamp", value, lo, hi)
