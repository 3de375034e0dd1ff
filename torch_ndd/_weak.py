# SPDX-License-Identifier: Apache-2.0
"""Objects that are known as long as somebody else holds them.

``weakref.WeakSet`` and ``WeakValueDictionary`` have a function called when an object goes. Ctrl-C may fall into it, and Python drops the exceptions
of such functions: the program would go on. Here nothing is called; what is gone is left out now and then.
"""

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_FEW = 64


class WeakValues(Generic[T]):
    """Values by number."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}
        self._room = _FEW

    def __setitem__(self, key: int, value: T) -> None:
        references = self._references
        references[key] = weakref.ref(value)
        if len(references) > self._room:
            for gone in [key for key, reference in list(references.items()) if reference() is None]:
                references.pop(gone, None)
            self._room = max(_FEW, 2 * len(references))

    def get(self, key: int) -> T | None:
        """The value, or None where there is none any more."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def pop(self, key: int) -> None:
        """Forget a value."""
        self._references.pop(key, None)

    def __iter__(self) -> Iterator[T]:
        """The values that are left."""
        return iter([value for reference in list(self._references.values()) if (value := reference()) is not None])
