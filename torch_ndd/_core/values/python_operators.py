# SPDX-License-Identifier: Apache-2.0
"""The methods of ``+ - * / // % ** & | ^ << >>`` and of comparisons, once for all classes of operands."""

from collections.abc import Callable
from typing import Any, ClassVar

from typing_extensions import Self


class PythonOperators:
    """A class with operators of two operands. It defines ``_apply(operation, left, right)``, by names such as ``"add"``."""

    __slots__ = ()
    # == is an operation on elements, so operands cannot be keys.
    __hash__ = None  # type: ignore[assignment]

    _apply: ClassVar[Callable[..., Any]]
    _reflect: ClassVar[Callable[..., Any]]  # the same, for an operand of another class on the left

    def __add__(self, other: Any) -> Self:
        return self._apply("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return self._reflect("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return self._apply("sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self._reflect("sub", other, self)

    def __mul__(self, other: Any) -> Self:
        return self._apply("mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return self._reflect("mul", other, self)

    def __truediv__(self, other: Any) -> Self:
        return self._apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._reflect("truediv", other, self)

    def __floordiv__(self, other: Any) -> Self:
        return self._apply("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._reflect("floordiv", other, self)

    def __mod__(self, other: Any) -> Self:
        return self._apply("mod", self, other)

    def __rmod__(self, other: Any) -> Self:
        return self._reflect("mod", other, self)

    def __pow__(self, other: Any) -> Self:
        return self._apply("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return self._reflect("pow", other, self)

    def __and__(self, other: Any) -> Self:
        return self._apply("and", self, other)

    def __rand__(self, other: Any) -> Self:
        return self._reflect("and", other, self)

    def __or__(self, other: Any) -> Self:
        return self._apply("or", self, other)

    def __ror__(self, other: Any) -> Self:
        return self._reflect("or", other, self)

    def __xor__(self, other: Any) -> Self:
        return self._apply("xor", self, other)

    def __rxor__(self, other: Any) -> Self:
        return self._reflect("xor", other, self)

    def __lshift__(self, other: Any) -> Self:
        return self._apply("lshift", self, other)

    def __rlshift__(self, other: Any) -> Self:
        return self._reflect("lshift", other, self)

    def __rshift__(self, other: Any) -> Self:
        return self._apply("rshift", self, other)

    def __rrshift__(self, other: Any) -> Self:
        return self._reflect("rshift", other, self)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._apply("eq", self, other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._apply("ne", self, other)

    def __lt__(self, other: Any) -> Self:
        return self._apply("lt", self, other)

    def __le__(self, other: Any) -> Self:
        return self._apply("le", self, other)

    # The kernels have no "greater": the operands change places.
    def __gt__(self, other: Any) -> Self:
        return self._apply("lt", other, self)

    def __ge__(self, other: Any) -> Self:
        return self._apply("le", other, self)
