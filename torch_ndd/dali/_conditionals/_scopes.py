# SPDX-License-Identifier: Apache-2.0
"""Scopes: the samples of the batch on which the traced statement works, and the conversion of values between scopes.

The definition begins in the root scope, which has all samples. A condition splits a scope in two. A node belongs to the scope that created it;
an inner scope gets its part by a split. Where paths through the program meet again, the values of their scopes are merged in the original order.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import types as dali_types
from .._graph.graph import Branches
from ..data_node import DataNode, as_node
from ._operations import merge, split


class Undefined:
    """The type of :data:`UNDEFINED`, the value of unbound variables."""

    def __repr__(self) -> str:
        return "<undefined>"


UNDEFINED = Undefined()


class Parting:
    """A scope split in two by a condition, one truth value for each sample of the scope."""

    def __init__(self, scope: "Scope", condition: DataNode) -> None:
        self.scope = scope
        self.condition = trace.bring(condition, scope)
        self.sides = {True: Scope(self, True), False: Scope(self, False)}
        self._split: dict[int, tuple[DataNode, dict[bool, DataNode]]] = {}

    def split(self, node: DataNode, side: bool) -> DataNode:
        """Return the part of a node of the scope that one side has."""
        # One split for both sides and all uses of a node. The entry keeps the node alive, so its id is not reused.
        if id(node) not in self._split:
            with unscoped():
                parts = split(node, self.condition)
            self._split[id(node)] = node, dict(zip((True, False), parts, strict=True))
            # Both parts belong to their sides from now on; `bring` finds them there.
            for which, part in self._split[id(node)][1].items():
                trace.put(part, self.sides[which])
        return self._split[id(node)][1][side]


class Scope:
    """The samples that one side of a parting has; without a parting, all samples."""

    def __init__(self, parting: Parting | None = None, side: bool = True) -> None:
        self.parting = parting
        self.side = side

    @property
    def parent(self) -> "Scope | None":
        """The scope that was split."""
        return None if self.parting is None else self.parting.scope

    def path(self, ancestor: "Scope") -> "list[Scope]":
        """Return the scopes from the one below an ancestor to this one; RuntimeError for a scope that is not one."""
        found: list[Scope] = []
        scope: Scope | None = self
        while scope is not ancestor:
            if scope is None:
                raise RuntimeError("a value that was created in one branch of an `if` is used where that branch does not run")
            found.append(scope)
            scope = scope.parent
        return found[::-1]


class Trace(threading.local):
    """The state of tracing definitions in this thread."""

    def __init__(self) -> None:
        self.scope: Scope | None = None  # of the statement being traced; None outside definitions with conditionals
        self.raw = False  # inputs of operations are not split: they belong to several scopes
        self.owners: dict[int, tuple[DataNode, Scope]] = {}  # by id of the node, which it keeps alive; all others belong to the root
        self.root = Scope()
        self.changes: list[Any] = []  # the Changes of each branch that is being traced

    def put(self, node: DataNode, scope: Scope) -> None:
        """Record the scope of a node."""
        self.owners[id(node)] = node, scope

    def owner(self, node: DataNode) -> Scope:
        """Return the scope of a node."""
        return self.owners[id(node)][1] if id(node) in self.owners else self.root

    def bring(self, node: DataNode, scope: Scope) -> DataNode:
        """Return the part of a node that the samples of a scope have."""
        # Split step by step, from the scope that has the node down to the one that needs it.
        for inner in scope.path(self.owner(node)):
            assert inner.parting is not None
            node = inner.parting.split(node, inner.side)
        return node


trace = Trace()


class scope:
    """``with scope():`` around a definition whose conditions may be nodes."""

    def __enter__(self) -> None:
        # Definitions may nest: the outer one continues with its own scopes afterwards.
        self._before = dict(trace.__dict__)
        trace.__init__()  # type: ignore[misc]
        trace.scope = trace.root

    def __exit__(self, *error: object) -> None:
        trace.__dict__.update(self._before)


class unscoped:
    """``with unscoped():`` around operations whose inputs belong to several scopes."""

    def __enter__(self) -> None:
        self._before, trace.raw = trace.raw, True

    def __exit__(self, *error: object) -> None:
        trace.raw = self._before


class within:
    """``with within(scope):`` around operations of another scope than that of the statement."""

    def __init__(self, target: Scope) -> None:
        self._target = target

    def __enter__(self) -> None:
        self._before, trace.scope = trace.scope, self._target

    def __exit__(self, *error: object) -> None:
        trace.scope = self._before


class TracedBranches(Branches):
    """Assignment of operations to branches: each runs for the samples of the branch that is being traced."""

    def adapt(self, inputs: list[Any], arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the parts of an operation's nodes that the current scope has."""
        here = trace.scope
        if here is None or trace.raw:
            return inputs, dict(arguments)
        return [_bring_nested(value, here) for value in inputs], {key: _bring_nested(value, here) for key, value in arguments.items()}

    def register(self, outputs: Sequence[DataNode]) -> None:
        """Record the scope of new nodes. Operations without inputs run for all samples."""
        # Nodes of the root are not recorded: `owner` returns the root for unknown nodes, also for those of before the trace.
        here = trace.scope
        if here is None or trace.raw or here is trace.root or not outputs:
            return
        source = outputs[0].source
        # An operation without inputs, such as a constant, has all samples and is split where it is used.
        if source is not None and (source.inputs or source.arguments):
            for node in outputs:
                trace.put(node, here)


def find_branch_size() -> list[DataNode]:
    """Return a list with a node that has the samples of the current branch; an empty list outside branches."""
    here = trace.scope
    if here is None or trace.raw or here.parting is None:
        return []
    # The truth values of this side: a node that has exactly the samples of the branch.
    return [here.parting.split(here.parting.condition, here.side)]


def _bring_nested(value: Any, here: Scope) -> Any:
    if isinstance(value, DataNode):
        return trace.bring(value, here)
    if isinstance(value, list | tuple) and any(isinstance(item, DataNode) for item in value):
        return type(value)(_bring_nested(item, here) for item in value)
    return value


# --- Merging ---------------------------------------------------------------------------------------------------------------------------------------


def _is_constant(value: Any) -> bool:
    # Strings must be equal on both sides: no node can hold them.
    if isinstance(value, str | bytes):
        return False
    if isinstance(value, bool | int | float | np.ndarray | np.generic | torch.Tensor | dali_types.ScalarConstant):
        return True
    return isinstance(value, dali_types.DALIDataType | dali_types.DALIInterpType | dali_types.DALIImageType)


def _to_node(value: Any, target: Scope) -> DataNode:
    if not isinstance(value, DataNode):
        with unscoped():
            value = as_node(value, "a value assigned in a branch")
    return trace.bring(value, target)


def _are_equal(a: Any, b: Any) -> bool:
    """Return whether two Python values are equal and of one type, so they need not become nodes."""
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, bool | int | float | str | bytes | np.generic) and bool(a == b)


def merge_values(values: Sequence[Any], scopes: Sequence[Scope], condition: DataNode, target: Scope, what: str, names: Sequence[str]) -> Any:
    """Return the value in ``target`` that is ``values[0]`` where the condition holds, else ``values[1]``. Values may be nested.

    Raise:
        RuntimeError: one of the values is undefined.
        ValueError: they are nested in different ways, or one is None.
        TypeError: one of them is, or contains, something that cannot be a value of a graph.
    """
    a, b = values
    # Equal values need no merge, and stay Python values.
    if a is b or (not isinstance(a, DataNode) and not isinstance(b, DataNode) and _are_equal(a, b)):
        return a
    for value, name in zip(values, names, strict=True):
        if isinstance(value, Failed):
            raise value.error
        if value is UNDEFINED:
            raise RuntimeError(
                f"{what} is assigned on one path through an `if` statement but not on the other: it must also be assigned in {name}, "
                "or before the statement"
            )
    if isinstance(a, DataNode) or isinstance(b, DataNode) or (_is_constant(a) and _is_constant(b)):
        for value, name in zip(values, names, strict=True):
            if not isinstance(value, DataNode) and not _is_mergeable(value):
                raise _error_type(a, b)(
                    f"Divergent data: {what} is a DataNode on one path through an `if` statement, but {_describe(value)} in {name}. Both must be "
                    "nodes, numbers or arrays, or be nested in the same way"
                )
        parts = [_to_node(value, where) for value, where in zip(values, scopes, strict=True)]
        with unscoped():
            result = merge(parts[0], parts[1], condition)
        trace.put(result, target)
        return result
    if type(a) is type(b) and isinstance(a, list | tuple):
        if len(a) != len(b):
            raise _error_type(a, b)(f"Divergent data: {what} has {len(a)} elements in one branch of an `if` statement and {len(b)} in the other")
        parts = [merge_values(pair, scopes, condition, target, f"{what}[{k}]", names) for k, pair in enumerate(zip(a, b, strict=True))]
        return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
    if type(a) is type(b) and isinstance(a, dict):
        if a.keys() != b.keys():
            raise _error_type(a, b)(f"Divergent data: {what} has the keys {list(a)} in one branch of an `if` statement and {list(b)} in the other")
        result = {key: merge_values((a[key], b[key]), scopes, condition, target, f"{what}[{key!r}]", names) for key in a}
        return result if type(a) is dict else type(a)(result)
    raise _error_type(a, b)(
        f"Divergent data: {what} is {_describe(a)} in one branch of an `if` statement and {_describe(b)} in the other. Both must be nodes, "
        "numbers or arrays, or be nested in the same way"
    )


def _error_type(*values: Any) -> type[Exception]:
    """Return the class of the error for values that cannot be merged."""
    return TypeError if any(map(_is_foreign, values)) else ValueError


def _is_foreign(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return any(map(_is_foreign, value.values() if isinstance(value, dict) else value))
    return value is not None and not isinstance(value, DataNode) and not _is_constant(value)


def _is_mergeable(value: Any) -> bool:
    if _is_constant(value):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, bool | int | float) for item in value)


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}" if isinstance(value, DataNode | list | tuple | dict) else f"{value!r}"


class Failed:
    """The value of a variable that could not be merged: its first use raises the error, so unused variables do no harm."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise self.error

    __call__ = __bool__ = __iter__ = __len__ = __getitem__ = __int__ = __float__ = __index__ = __getattr__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _raise


class Arrival:
    """The end of a path through the program, at a place where paths meet.

    Attributes:
        scope: The samples that take the path.
        values: Variables by name, or the value of a ``return``.
        changed: Attributes and items that the path changed, by slot.
    """

    def __init__(self, scope: Scope, values: dict[str, Any]) -> None:
        self.scope = scope
        self.values = values
        self.changed: dict[Any, Any] = {}


class Meeting:
    """Paths through the program that have met.

    Attributes:
        scope: The samples of all paths.
        mask: Node that is true for these samples of the common scope; None if these are all of its samples.
        pick: ``pick(get, what)`` returns the merged value of ``get(arrival)``; ``what`` is its name for messages.
    """

    def __init__(self, scope: Scope, mask: DataNode | None, pick: Callable[[Callable[[Arrival], Any], str], Any]) -> None:
        self.scope = scope
        self.mask = mask
        self.pick = pick


def meet(below: Scope, arrivals: Iterable[Arrival], everything: bool = False) -> Meeting:
    """Join paths whose scopes are inside a common one; ``everything`` if together they have all of its samples."""
    # Paths are grouped by the condition that separated them first. Inside a group the sides are joined recursively, then the groups with each other.
    groups: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        path = arrival.scope.path(below)
        # All samples of `below` have arrived by one path.
        if not path:
            return Meeting(below, None, lambda get, what, arrival=arrival: get(arrival))
        groups.setdefault(id(path[0].parting), []).append(arrival)
    meetings = [_meet_sides(below, group) for group in groups.values()]
    result = meetings[0]
    for k, other in enumerate(meetings[1:], 2):
        result = _meet_partings(below, result, other, everything and k == len(meetings))
    return result


def _meet_sides(below: Scope, group: list[Arrival]) -> Meeting:
    """Join paths of one parting."""
    parting = group[0].scope.path(below)[0].parting
    assert parting is not None
    sides = {side: [arrival for arrival in group if arrival.scope.path(below)[0].side is side] for side in (True, False)}
    meetings = {side: meet(parting.sides[side], arrivals) for side, arrivals in sides.items() if arrivals}
    if len(meetings) == 1:
        ((side, only),) = meetings.items()
        return Meeting(only.scope, _lift_mask(parting, side, only.mask), only.pick)
    # No mask means all samples of a side: both sides are complete, and the condition selects between them.
    if all(arrival.mask is None for arrival in meetings.values()):
        return Meeting(below, None, _make_picker(meetings[True], meetings[False], parting.condition, below))
    masks = [True if meetings[side].mask is None else meetings[side].mask for side in (True, False)]
    mask = merge_values(masks, list(parting.sides.values()), parting.condition, below, "a mask", ("", ""))
    # Only some samples have arrived: they get a scope of their own, split off by the mask.
    target = Parting(below, mask).sides[True]
    condition = trace.bring(parting.condition, target)
    return Meeting(target, mask, _make_picker(meetings[True], meetings[False], condition, target))


def _lift_mask(parting: Parting, side: bool, mask: DataNode | None) -> DataNode:
    """Convert a mask of one side, None for all of it, to a mask of the scope that was split."""
    # The samples of the other side have not arrived.
    masks = [mask if mask is not None else True, False][:: 1 if side else -1]
    return merge_values(masks, list(parting.sides.values()), parting.condition, parting.scope, "a mask", ("", ""))


def _meet_partings(below: Scope, first: Meeting, second: Meeting, everything: bool) -> Meeting:
    assert first.mask is not None
    assert second.mask is not None
    if everything:
        return Meeting(below, None, _make_picker(first, second, first.mask, below))
    with within(below):
        mask = first.mask | second.mask
    target = Parting(below, mask).sides[True]
    return Meeting(target, mask, _make_picker(first, second, trace.bring(first.mask, target), target))


def _make_picker(first: Meeting, second: Meeting, condition: DataNode, target: Scope) -> Callable[[Callable[[Arrival], Any], str], Any]:
    def pick(get: Callable[[Arrival], Any], what: str) -> Any:
        values = first.pick(get, what), second.pick(get, what)
        return merge_values(values, (first.scope, second.scope), condition, target, what, ("the first branch (`if`)", "the other branch (`else`)"))

    return pick
