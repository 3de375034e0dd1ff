# SPDX-License-Identifier: Apache-2.0
"""Attributes of objects and items of lists and dicts that branches assign: each branch begins with the old values, and the new ones are merged.

Numbers and texts that a function assigns which a branch calls stay what they are, as in DALI: they count calls, or make names or seeds.
"""

import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..._core.work.call_sites import program_frame
from ..data_node import DataNode
from ._scopes import UNDEFINED, Arrival, trace

_CONTAINERS = (list, dict, set, bytearray)
_MUTATORS = {
    list: {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "__setitem__", "__delitem__", "__iadd__"},
    dict: {"update", "pop", "popitem", "clear", "setdefault", "__setitem__", "__delitem__"},
    set: {"add", "discard", "remove", "pop", "clear", "update", "difference_update", "intersection_update", "symmetric_difference_update"},
}
_OPAQUE = (
    DataNode,
    str,
    bytes,
    int,
    float,
    np.ndarray,
    np.generic,
    torch.Tensor,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
)
_PLAIN = (int, float, complex, str, bytes, np.generic, type(None))
_MOST_KNOWN, _DEEPEST = 20_000, 4


class Slot:
    """An attribute of an object, or an item of a list or dict; ``shared`` if other branches have the object too."""

    def __init__(self, holder: Any, kind: str, key: Any) -> None:
        self.holder = holder
        self.kind = kind
        self.key = key
        self.shared = is_known(holder)

    @property
    def identity(self) -> tuple[int, str, Any]:
        """What two slots of the same place have in common."""
        return id(self.holder), self.kind, self.key

    def get(self) -> Any:
        """Return the value, or UNDEFINED."""
        if self.kind == "attribute":
            return getattr(self.holder, self.key, UNDEFINED)
        try:
            return self.holder[self.key]
        except (KeyError, IndexError):
            return UNDEFINED

    def set(self, value: Any) -> None:
        """Set the value; UNDEFINED deletes it."""
        if value is UNDEFINED:
            if self.get() is not UNDEFINED:
                delattr(self.holder, self.key) if self.kind == "attribute" else self.holder.__delitem__(self.key)
        elif self.kind == "attribute":
            setattr(self.holder, self.key, value)
        else:
            self.holder[self.key] = value

    def __str__(self) -> str:
        place = type(self.holder).__name__
        return f"the attribute {self.key!r} of a {place}" if self.kind == "attribute" else f"the item [{self.key!r}] of a {place}"


class Changes:
    """The slots that a branch has changed, with their old values, and the objects that existed before it."""

    def __init__(self, variables: Mapping[str, Any] | None = None) -> None:
        self.old: dict[Any, tuple[Slot, Any]] = {}
        self._frame, self._in_branch = id(program_frame()), set[Any]()  # the function of the branch, and what it assigns itself
        self.known: dict[int, Any] = {}
        for value in (variables or {}).values():
            self._know(value, 0)

    def _know(self, value: Any, depth: int) -> None:
        if isinstance(value, _OPAQUE) or value is None or id(value) in self.known or len(self.known) >= _MOST_KNOWN:
            return
        self.known[id(value)] = value
        if depth == _DEEPEST:
            return
        if isinstance(value, dict):
            for one in value.values():
                self._know(one, depth + 1)
        elif isinstance(value, list | tuple | set):
            for one in value:
                self._know(one, depth + 1)
        elif isinstance(getattr(value, "__dict__", None), dict):
            for one in vars(value).values():
                self._know(one, depth + 1)

    def changing(self, slot: Slot) -> None:
        """Keep the value of a slot that is about to change."""
        if slot.identity not in self.old:
            self.old[slot.identity] = slot, slot.get()
        if id(program_frame()) == self._frame:
            self._in_branch.add(slot.identity)

    def _stays(self, slot: Slot, old: Any) -> bool:
        """Return whether only called functions have assigned the slot, and no more than numbers or texts."""
        return slot.identity not in self._in_branch and isinstance(slot.get(), _PLAIN) and (old is UNDEFINED or isinstance(old, _PLAIN))

    def news(self, arrival: Arrival) -> None:
        """Give an arrival the present values of all changed slots."""
        for identity, (slot, old) in self.old.items():
            if not self._stays(slot, old):
                arrival.changed.setdefault(identity, (slot, slot.get()))

    def undo(self) -> None:
        """Restore the old values."""
        for slot, value in self.old.values():
            if not self._stays(slot, value):
                slot.set(value)


def is_known(value: Any) -> bool:
    """Return whether an object existed before the outermost branch that is being traced, as far as variables lead to it."""
    return any(id(value) in one.known for one in trace.changes)


def changing(slot: Slot) -> None:
    """Keep the value of a slot that is about to change, for all branches that are being traced."""
    for one in trace.changes:
        one.changing(slot)


def assign_merged(arrivals: list[Arrival], pick: Any) -> None:
    """Assign the merged values of all slots that the arrivals changed."""
    slots = {identity: slot for one in arrivals for identity, (slot, _) in one.changed.items()}
    made = []
    for identity, slot in slots.items():
        before = slot.get()

        def value(arrival: Arrival, identity: Any = identity, before: Any = before) -> Any:
            return arrival.changed[identity][1] if identity in arrival.changed else before

        given = [value(one) for one in arrivals if value(one) is not UNDEFINED]
        shared = any(one.changed[identity][0].shared for one in arrivals if identity in one.changed)
        if len(given) < len(arrivals) and not shared:
            made.append((slot, given[0] if given else UNDEFINED))  # the object belongs to one of the branches
        else:
            made.append((slot, pick(value, str(slot))))
    for slot, value in made:
        changing(slot)
        slot.set(value)


def refuse_mutation(function: Any) -> None:
    """Raise RuntimeError for a method that changes an object which other branches have too."""
    if not trace.changes:
        return
    holder = getattr(function, "__self__", None)
    for kind, names in _MUTATORS.items():
        if isinstance(holder, kind) and getattr(function, "__name__", "") in names and is_known(holder):
            raise RuntimeError(
                f"{kind.__name__}.{function.__name__} in a branch of an `if` on a DataNode would change the {kind.__name__} for all samples, also "
                f"for those that take the other branch. Assign a new {kind.__name__} to the variable instead, of the same structure in both branches"
            )


class Items:
    """A list or dict whose items a branch assigns."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def _changing(self, key: Any) -> None:
        if isinstance(key, slice):
            if is_known(self._holder):
                raise RuntimeError(
                    "a slice of a list cannot be assigned in a branch of an `if` on a DataNode: assign single items, or a new list to the variable"
                )
            return
        if isinstance(key, int) and isinstance(self._holder, list) and key < 0:
            key += len(self._holder)
        changing(Slot(self._holder, "item", key))

    def __getitem__(self, key: Any) -> Any:  # of `+=`
        value = self._holder[key]
        return value.copy() if isinstance(value, list | dict | set) and is_known(value) else value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._changing(key)
        self._holder[key] = value

    def __delitem__(self, key: Any) -> None:
        if isinstance(self._holder, list) and is_known(self._holder):
            raise RuntimeError("an item of a list cannot be deleted in a branch of an `if` on a DataNode: assign a new list to the variable")
        self._changing(key)
        del self._holder[key]
