# SPDX-License-Identifier: Apache-2.0
"""Mathematical functions of each element. Public as ``torch_ndd.math``.

All take a Tensor, a Batch, a number, a list or an array, and give a Batch where an operand is one, else a Tensor. Several operands are broadcast and
promoted as by ``+`` (:func:`torch_ndd.ops.arithmetic.arithmetic`). Functions of real numbers give floating-point types as they are and make float32
of integers; float16 and bfloat16 are computed in float32. Angles are in radians. Where a function has no value the result is NaN.

Every function raises RuntimeError for bools where numbers are needed, and for shapes and layouts that do not fit together; ValueError for operands on
different devices or batches of different size; TypeError for what is no number; OverflowError for an int beyond int32.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast, overload

from .._batch import Batch
from .._tensor import Tensor
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
    """The square root.

    >>> sqrt([4, 9]).torch()
    tensor([2., 3.])
    """
    return arithmetic("sqrt", input)


@_unary
def rsqrt(input: Any) -> Any:
    """1 / sqrt(x); infinite at 0.

    >>> rsqrt([4.0, 0.0]).torch()
    tensor([0.5000,    inf])
    """
    return arithmetic("rsqrt", input)


@_unary
def cbrt(input: Any) -> Any:
    """The cube root, also of negative numbers.

    >>> cbrt([8, -27]).torch()
    tensor([ 2., -3.])
    """
    return arithmetic("cbrt", input)


@_unary
def exp(input: Any) -> Any:
    """e to the power of x.

    >>> exp([0.0, 1.0]).torch()
    tensor([1.0000, 2.7183])
    """
    return arithmetic("exp", input)


@_unary
def log(input: Any) -> Any:
    """The natural logarithm; -inf at 0.

    >>> log([1, 0]).torch()
    tensor([0., -inf])
    """
    return arithmetic("log", input)


@_unary
def log2(input: Any) -> Any:
    """The logarithm to base 2; -inf at 0.

    >>> log2([8, 0.5]).torch()
    tensor([ 3., -1.])
    """
    return arithmetic("log2", input)


@_unary
def log10(input: Any) -> Any:
    """The logarithm to base 10; -inf at 0.

    >>> log10([1000, 0.1]).torch()
    tensor([ 3., -1.])
    """
    return arithmetic("log10", input)


@_unary
def abs(input: Any) -> Any:
    """The magnitude, of the operand's type. That of the smallest integer is itself.

    >>> abs([-3, 3]).torch()
    tensor([3, 3], dtype=torch.int32)
    """
    return arithmetic("abs", input)


@_unary
def fabs(input: Any) -> Any:
    """The magnitude, as a floating-point number.

    >>> fabs([-3, 3]).torch()
    tensor([3., 3.])
    """
    return arithmetic("fabs", input)


@_unary
def floor(input: Any) -> Any:
    """The largest whole number that is not above x, as a floating-point number.

    >>> floor([1.5, -1.5]).torch()
    tensor([ 1., -2.])
    """
    return arithmetic("floor", input)


@_unary
def ceil(input: Any) -> Any:
    """The smallest whole number that is not below x, as a floating-point number.

    >>> ceil([1.5, -1.5]).torch()
    tensor([ 2., -1.])
    """
    return arithmetic("ceil", input)


@_unary
def sin(input: Any) -> Any:
    """The sine.

    >>> sin([0, 1]).torch()
    tensor([0.0000, 0.8415])
    """
    return arithmetic("sin", input)


@_unary
def cos(input: Any) -> Any:
    """The cosine.

    >>> cos([0, 1]).torch()
    tensor([1.0000, 0.5403])
    """
    return arithmetic("cos", input)


@_unary
def tan(input: Any) -> Any:
    """The tangent.

    >>> tan([0, 1]).torch()
    tensor([0.0000, 1.5574])
    """
    return arithmetic("tan", input)


@_unary
def asin(input: Any) -> Any:
    """The angle from -pi/2 to pi/2 with this sine; NaN outside -1 to 1.

    >>> asin([0, 1]).torch()
    tensor([0.0000, 1.5708])
    """
    return arithmetic("asin", input)


@_unary
def acos(input: Any) -> Any:
    """The angle from 0 to pi with this cosine; NaN outside -1 to 1.

    >>> acos([0, 1]).torch()
    tensor([1.5708, 0.0000])
    """
    return arithmetic("acos", input)


@_unary
def atan(input: Any) -> Any:
    """The angle from -pi/2 to pi/2 with this tangent.

    >>> atan([0, 1]).torch()
    tensor([0.0000, 0.7854])
    """
    return arithmetic("atan", input)


@_unary
def sinh(input: Any) -> Any:
    """The hyperbolic sine.

    >>> sinh([0, 1]).torch()
    tensor([0.0000, 1.1752])
    """
    return arithmetic("sinh", input)


@_unary
def cosh(input: Any) -> Any:
    """The hyperbolic cosine.

    >>> cosh([0, 1]).torch()
    tensor([1.0000, 1.5431])
    """
    return arithmetic("cosh", input)


@_unary
def tanh(input: Any) -> Any:
    """The hyperbolic tangent.

    >>> tanh([0, 1]).torch()
    tensor([0.0000, 0.7616])
    """
    return arithmetic("tanh", input)


@_unary
def asinh(input: Any) -> Any:
    """The inverse of the hyperbolic sine.

    >>> asinh([0, 1]).torch()
    tensor([0.0000, 0.8814])
    """
    return arithmetic("asinh", input)


@_unary
def acosh(input: Any) -> Any:
    """The inverse of the hyperbolic cosine; NaN below 1.

    >>> acosh([1, 2]).torch()
    tensor([0.0000, 1.3170])
    """
    return arithmetic("acosh", input)


@_unary
def atanh(input: Any) -> Any:
    """The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN beyond.

    >>> atanh([0, 0.5]).torch()
    tensor([0.0000, 0.5493])
    """
    return arithmetic("atanh", input)


def min(left: Any, right: Any) -> Any:
    """The smaller operand: ``left < right ? left : right``, so NaN on the left gives the right one.

    >>> min([1, 5], 3).torch()
    tensor([1, 3], dtype=torch.int32)
    """
    return arithmetic("min", left, right)


def max(left: Any, right: Any) -> Any:
    """The larger operand: ``left > right ? left : right``, so NaN on the left gives the right one.

    >>> max([1, 5], 2.5).torch()
    tensor([2.5000, 5.0000])
    """
    return arithmetic("max", left, right)


def pow(base: Any, exponent: Any) -> Any:
    """``base ** exponent``. Integers wrap around, and are 0 for a negative exponent.

    >>> pow(2, [3, -1]).torch()
    tensor([8, 0], dtype=torch.int32)
    """
    return arithmetic("pow", base, exponent)


def fpow(base: Any, exponent: Any) -> Any:
    """``base ** exponent`` as a floating-point number.

    >>> fpow(2, [3, -1]).torch()
    tensor([8.0000, 0.5000])
    """
    return arithmetic("fpow", base, exponent)


def atan2(x: Any, y: Any) -> Any:
    """The angle from -pi to pi whose sine and cosine are to each other as ``x`` to ``y``.

    >>> atan2([1, 0], [1, -1]).torch()
    tensor([0.7854, 3.1416])
    """
    return arithmetic("atan2", x, y)


def clamp(value: Any, lo: Any, hi: Any) -> Any:
    """``value``, but at least ``lo`` and at most ``hi``; ``hi`` where the two contradict each other. NaN stays, and is no limit.

    >>> clamp([-1, 5, 12], 0, 10).torch()
    tensor([ 0,  5, 10], dtype=torch.int32)
    """
    return arithmetic("clamp", value, lo, hi)
