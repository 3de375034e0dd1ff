# SPDX-License-Identifier: Apache-2.0
"""Weak collections and calls: objects that are available as long as another object holds them.

``weakref.WeakSet`` and ``WeakValueDictionary`` call a Python function when an object is destroyed. A KeyboardInterrupt may be raised in it, and
Python drops the exceptions of such functions, so the program would continue. Here no function is called; dead entries are dropped when the
collection grows.
"""

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
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
            # A copy of the items, since other threads may add entries.
            for gone in [key for key, reference in list(references.items()) if reference() is None]:
                references.pop(gone, None)
            # The next search comes when the entries have doubled, so its cost per entry is constant.
            self._room = max(_FEW, 2 * len(references))

    def get(self, key: int) -> T | None:
        """Return the value, or None if it no longer exists."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def pop(self, key: int) -> None:
        """Remove a value."""
        self._references.pop(key, None)

    def __iter__(self) -> Iterator[T]:
        """Return the values that still exist."""
        return iter([value for reference in list(self._references.values()) if (value := reference()) is not None])


class WeakCall(Generic[P, R]):
    """A method of an object that may hold this call: a method itself would hold the object, and neither would end before Python looks for cycles.

    Once the object no longer exists, the call raises CancelledError.
    """

    def __init__(self, method: Callable[P, R]) -> None:
        self._owner: weakref.ref[object] = weakref.ref(method.__self__)  # type: ignore[attr-defined]
        self._function = cast("Callable[Concatenate[object, P], R]", method.__func__)  # type: ignore[attr-defined]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        owner = self._owner()
        if owner is None:
            raise CancelledError
        return self._function(owner, *args, **kwargs)
