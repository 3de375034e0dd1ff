# SPDX-License-Identifier: Apache-2.0
"""Attributes of objects and items of lists and dicts that branches assign: each branch begins with the old values, and the new ones are merged.

Numbers and strings that are assigned by a function which a branch calls are not merged, as in DALI: they count calls, or are names or seeds.
"""

import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..._core.work.call_sites import program_frame
from ..data_node import DataNode
from ._scopes import UNDEFINED, Arrival, trace

_MUTATORS = {
    list: {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "__setitem__", "__delitem__", "__iadd__"},
    dict: {"update", "pop", "popitem", "clear", "setdefault", "__setitem__", "__delitem__"},
    set: {"add", "discard", "remove", "pop", "clear", "update", "difference_update", "intersection_update", "symmetric_difference_update"},
}
# Values that are not followed in search of further objects.
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
_MAX_KNOWN, _MAX_DEPTH = 20_000, 4  # objects that are followed from the variables: a data set may hang on them


class Slot:
    """An attribute of an object, or an item of a list or dict; ``shared`` if other branches have the object too."""

    def __init__(self, holder: Any, kind: str, key: Any) -> None:
        self.holder = holder
        self.kind = kind
        self.key = key
        self.shared = is_known(holder)

    @property
    def identity(self) -> tuple[int, str, Any]:
        """Equal for two slots of the same place."""
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
    """The slots that a branch changed, with their old values, and the objects that existed before it."""

    def __init__(self, variables: Mapping[str, Any] | None = None) -> None:
        self.old: dict[Any, tuple[Slot, Any]] = {}
        self._frame, self._assigned_here = id(program_frame()), set[Any]()  # the function of the branch, and the slots that it assigns itself
        self.known: dict[int, Any] = {}
        for value in (variables or {}).values():
            self._add_known(value, 0)

    def _add_known(self, value: Any, depth: int) -> None:
        if isinstance(value, _OPAQUE) or value is None or id(value) in self.known or len(self.known) >= _MAX_KNOWN:
            return
        # By id, with the object as value, so the id stays valid.
        self.known[id(value)] = value
        if depth == _MAX_DEPTH:
            return
        if isinstance(value, dict):
            for item in value.values():
                self._add_known(item, depth + 1)
        elif isinstance(value, list | tuple | set):
            for item in value:
                self._add_known(item, depth + 1)
        elif isinstance(getattr(value, "__dict__", None), dict):
            for item in vars(value).values():
                self._add_known(item, depth + 1)

    def record_change(self, slot: Slot) -> None:
        """Store the value of a slot before it changes."""
        # Only the first change: the old value is that from before the branch.
        if slot.identity not in self.old:
            self.old[slot.identity] = slot, slot.get()
        if id(program_frame()) == self._frame:
            self._assigned_here.add(slot.identity)

    def _is_kept(self, slot: Slot, old: Any) -> bool:
        """Return whether the slot keeps its new value: only called functions have assigned it, and only numbers or strings."""
        return slot.identity not in self._assigned_here and isinstance(slot.get(), _PLAIN) and (old is UNDEFINED or isinstance(old, _PLAIN))

    def add_to(self, arrival: Arrival) -> None:
        """Add the present values of all changed slots to an arrival."""
        for identity, (slot, old) in self.old.items():
            if not self._is_kept(slot, old):
                arrival.changed.setdefault(identity, (slot, slot.get()))

    def undo(self) -> None:
        """Restore the old values."""
        for slot, value in self.old.values():
            if not self._is_kept(slot, value):
                slot.set(value)


def is_known(value: Any) -> bool:
    """Return whether an object existed before the traced branches, so others may have it too: variables lead to it."""
    return any(id(value) in changes.known for changes in trace.changes)


def record_change(slot: Slot) -> None:
    """Store the value of a slot before it changes, for all branches that are being traced."""
    for changes in trace.changes:
        changes.record_change(slot)


def assign_merged_slots(arrivals: list[Arrival], pick: Any) -> None:
    """Assign the merged values of all slots that the arrivals changed."""
    slots = {identity: slot for arrival in arrivals for identity, (slot, _) in arrival.changed.items()}
    merged = []
    for identity, slot in slots.items():
        before = slot.get()

        def value(arrival: Arrival, identity: Any = identity, before: Any = before) -> Any:
            return arrival.changed[identity][1] if identity in arrival.changed else before

        values = [value(arrival) for arrival in arrivals if value(arrival) is not UNDEFINED]
        shared = any(arrival.changed[identity][0].shared for arrival in arrivals if identity in arrival.changed)
        if len(values) < len(arrivals) and not shared:
            merged.append((slot, values[0] if values else UNDEFINED))  # the object was created in one of the branches
        else:
            merged.append((slot, pick(value, str(slot))))
    for slot, value in merged:
        # An outer branch must be able to undo the merged value too.
        record_change(slot)
        slot.set(value)


def refuse_mutation(function: Any) -> None:
    """Raise RuntimeError for a method that changes an object which other branches see too."""
    if not trace.changes:
        return
    holder = getattr(function, "__self__", None)
    for kind, names in _MUTATORS.items():
        if isinstance(holder, kind) and getattr(function, "__name__", "") in names and is_known(holder):
            raise RuntimeError(
                f"{kind.__name__}.{function.__name__} in a branch of an `if` on a DataNode would change the {kind.__name__} for all samples, also "
                f"for those in the other branch. Assign a new {kind.__name__} to the variable instead, of the same structure in both branches"
            )


class Items:
    """A list or dict whose items a branch assigns."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def _record_change(self, key: Any) -> None:
        if isinstance(key, slice):
            if is_known(self._holder):
                raise RuntimeError(
                    "a slice of a list cannot be assigned in a branch of an `if` on a DataNode: assign single items, or a new list to the variable"
                )
            return
        # -1 and len - 1 are the same slot.
        if isinstance(key, int) and isinstance(self._holder, list) and key < 0:
            key += len(self._holder)
        record_change(Slot(self._holder, "item", key))

    def __getitem__(self, key: Any) -> Any:  # for `+=`
        value = self._holder[key]
        return value.copy() if isinstance(value, list | dict | set) and is_known(value) else value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._record_change(key)
        self._holder[key] = value

    def __delitem__(self, key: Any) -> None:
        if isinstance(self._holder, list) and is_known(self._holder):
            raise RuntimeError("an item of a list cannot be deleted in a branch of an `if` on a DataNode: assign a new list to the variable")
        self._record_change(key)
        del self._holder[key]
