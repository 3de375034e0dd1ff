# SPDX-License-Identifier: Apache-2.0
"""Runtime of rewritten functions: conditions, branches, logical expressions, returns and jumps. `_rewrite.py` shows the statements.

A condition that is a DataNode has both branches traced, one after the other, each in its own scope and with the variables of before. A `return`,
`break` or `continue` in such a branch is the arrival of some samples at a place further on; the statement then raises Exit, which ends the branch.
"""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ..data_node import DataNode, as_node
from ._operations import checked, condition_of, negated
from ._scopes import UNDEFINED, Arrival, Failed, Parting, Scope, merged, met, trace
from ._slots import Changes, Items, Slot, assign_merged, changing, is_known

__all__ = ["Exit", "Frame", "Loop", "and_", "attribute", "attribute_updated", "back", "elif_", "fresh", "globals", "here", "items", "ld"]
__all__ += ["locals", "not_", "or_", "test", "undefined"]

undefined = UNDEFINED
locals = builtins.locals  # called in the frame of the rewritten function
globals = builtins.globals


class Exit(BaseException):
    """No sample goes on from here: the rest of the branch is skipped."""


def ld(value: Any) -> Any:
    """Return the value of a variable, or raise why it has none."""
    if value.__class__ is Failed:
        raise value.error
    return value


# --- Conditions ------------------------------------------------------------------------------------------------------------------------------------


class _Plain:
    """A condition that is a Python value: one branch runs."""

    node = dead = False

    def __init__(self, truth: bool) -> None:
        self.first = truth
        self.second = not truth

    def branch(self, side: bool) -> "_Plain":
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


_PLAIN = {True: _Plain(True), False: _Plain(False)}


class _PlainInChain(_Plain):
    """A condition of an `elif` chain that is a Python value."""

    def __exit__(self, kind: Any, *_: object) -> bool:
        self.dead = kind is Exit
        return self.dead

    def enter_else(self) -> None:
        pass

    def leave_else(self, inner: Any, variables: dict[str, Any]) -> None:
        del variables
        self.dead = inner.dead


class _Condition:
    """A condition that is a DataNode: both branches are traced."""

    node = first = second = True
    dead = False

    def __init__(self, condition: DataNode) -> None:
        assert trace.scope is not None
        self._scope = trace.scope
        self._parting = Parting(self._scope, condition_of(condition))
        self._arrivals: list[Arrival] = []
        self._names: Sequence[str] = ()
        self._values: dict[str, Any] = {}
        self._side = True

    def begin(self, variables: dict[str, Any], names: Sequence[str]) -> None:
        """Keep the variables of before."""
        self._names = names
        self._variables = dict(variables)  # before Python 3.13, locals() returns the same dict each time
        self._before = self._values = {name: variables[name] for name in names if name in variables}

    def branch(self, side: bool) -> "_Condition":
        self._side = side
        return self

    def __enter__(self) -> None:
        trace.scope = self._parting.sides[self._side]
        self._changes = Changes(self._variables)
        trace.changes.append(self._changes)

    def __exit__(self, kind: Any, *_: object) -> bool:
        del trace.changes[trace.changes.index(self._changes) :]
        self._changes.undo()
        trace.scope = self._scope
        return kind is Exit

    def enter_else(self) -> None:
        self.branch(False).__enter__()

    def leave_else(self, inner: Any, variables: dict[str, Any]) -> None:
        if not inner.dead:
            self.fell(variables)
        self.__exit__(None)

    def fell(self, variables: dict[str, Any]) -> None:
        """Record that the end of a branch was reached."""
        assert trace.scope is not None
        arrival = Arrival(trace.scope, {name: variables[name] for name in self._names if name in variables})
        self._changes.news(arrival)
        self._arrivals.append(arrival)

    def join(self) -> bool:
        """Go on after both branches. Return whether a sample does."""
        self.dead = not self._arrivals
        if not self.dead:
            self._values = _gone_on(self._scope, self._arrivals, self._names)
        return not self.dead

    def __getitem__(self, name: str) -> Any:
        """Return the value that a variable has next."""
        return self._values.get(name, UNDEFINED)


def _gone_on(below: Scope, arrivals: list[Arrival], names: Sequence[str]) -> dict[str, Any]:
    """Go on where several ways meet, and return their variables."""
    meeting = met(below, arrivals)
    trace.scope = meeting.scope
    values = {}
    for name in names:
        if any(name in one.values for one in arrivals):
            try:
                values[name] = meeting.pick(lambda one, name=name: one.values.get(name, UNDEFINED), f"the variable {name!r}")
            except (RuntimeError, ValueError, TypeError) as error:
                values[name] = Failed(error)
    assign_merged(arrivals, meeting.pick)
    return values


def test(condition: Any) -> Any:
    """Return what decides an `if` statement."""
    if isinstance(condition, DataNode) and trace.scope is not None:
        return _Condition(condition)
    return _PLAIN[bool(condition)]


def elif_(condition: Any) -> Any:
    """Return what decides one of several conditions in a chain."""
    if isinstance(condition, DataNode) and trace.scope is not None:
        return _Condition(condition)
    return _PlainInChain(bool(condition))


def here() -> tuple[Scope | None, int]:
    """Return where the trace is."""
    return trace.scope, len(trace.changes)


def back(place: tuple[Scope | None, int]) -> None:
    """Return to a place after an exception."""
    trace.scope, depth = place
    while len(trace.changes) > depth:
        trace.changes.pop().undo()


# --- Returns and jumps -----------------------------------------------------------------------------------------------------------------------------


class _Place:
    """A place further on, at which the samples of a scope arrive in one or several groups."""

    def __init__(self) -> None:
        self.scope = trace.scope
        self.arrivals: list[Arrival] = []
        self._changes = Changes()  # those that are still on the way can change what the others have
        trace.changes.append(self._changes)

    def inside(self) -> bool:
        """Return whether only some of the samples are on this way."""
        return trace.scope is not self.scope

    def arrive(self, values: dict[str, Any]) -> None:
        """Record the arrival of the samples that are on this way."""
        assert trace.scope is not None
        arrival = Arrival(trace.scope, values)
        for changes in trace.changes[trace.changes.index(self._changes) :][::-1]:
            changes.news(arrival)
        self.arrivals.append(arrival)

    def leave(self) -> None:
        """Return to the scope of the beginning."""
        if self._changes in trace.changes:
            del trace.changes[trace.changes.index(self._changes) :]
        if self.arrivals:
            self._changes.undo()
        trace.scope = self.scope


class Frame:
    """The call of a function that returns from a branch."""

    def __enter__(self) -> None:
        self._end = _Place()

    def __exit__(self, kind: Any, *_: object) -> bool:
        self._end.leave()
        return kind is Exit

    def leave(self, value: Any = None) -> Any:
        """Return the value for a `return` statement; if only some samples return here, end the branch."""
        if not self._end.inside():
            return value
        self._end.arrive({"": value})
        raise Exit

    def fell(self) -> None:
        """Record that the end of the function was reached."""
        if self._end.inside():
            self._end.arrive({"": None})

    def result(self) -> Any:
        """Return what all samples return together."""
        arrivals, scope = self._end.arrivals, self._end.scope
        if not arrivals:
            return None
        assert scope is not None
        nothing = [one.values[""] is None for one in arrivals]
        if any(nothing) and not all(nothing):
            raise RuntimeError("the function returns a value on one way through an `if` on a DataNode, so that it must return a value on every way")
        meeting = met(scope, arrivals, everything=True)
        made = meeting.pick(lambda one: one.values[""], "the returned value")
        assign_merged(arrivals, meeting.pick)
        return made


class Loop:
    """A loop with `break` or `continue` in branches."""

    dead = False  # no sample goes on after the loop
    jumped = False  # the ways through the body meet at its end

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._end = _Place()  # of the loop: for `break`
        self._values: dict[str, Any] = {}
        self._runs = True

    def iteration(self) -> "Loop":
        """Begin an iteration."""
        self._next = _Place()  # the end of the body: for `continue`
        self.jumped = False
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *_: object) -> bool:
        self._next.leave()
        self.jumped = self.jumped or kind is Exit
        return kind is Exit

    def _kept(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {name: variables[name] for name in self._names if name in variables}

    def leave(self, ends: bool, variables: dict[str, Any]) -> None:
        """Do nothing before a jump of all samples; if only some jump, end the branch."""
        if self._next.inside():
            (self._end if ends else self._next).arrive(self._kept(variables))
            raise Exit
        if ends and self._end.inside():
            self._end.arrive(self._kept(variables))
            self._runs = False

    def fell(self, variables: dict[str, Any]) -> None:
        """Record that the end of the body was reached."""
        if self._next.inside():
            self.jumped = True
            self._next.arrive(self._kept(variables))

    def join(self) -> bool:
        """Go on with the next iteration. Return whether a sample does."""
        self._runs = bool(self._next.arrivals)
        if self._runs:
            assert self._next.scope is not None
            self._values = _gone_on(self._next.scope, self._next.arrivals, self._names)
        return self._runs

    def close(self, variables: dict[str, Any]) -> bool:
        """Go on after the loop. Return whether variables have other values than those of the last iteration."""
        arrivals = self._end.arrivals
        if arrivals and self._runs:
            self._end.arrive(self._kept(variables))
        if not arrivals:
            self.dead = not self._runs
            trace.changes.remove(self._end._changes)
            return False
        self._end.leave()
        assert self._end.scope is not None
        self._values = _gone_on(self._end.scope, arrivals, self._names)
        return True

    def __getitem__(self, name: str) -> Any:
        """Return the value that a variable has next."""
        return self._values.get(name, UNDEFINED)


# --- Logical expressions ---------------------------------------------------------------------------------------------------------------------------


def _logical(name: str, left: DataNode, right: Callable[[], Any], side: bool) -> DataNode:
    """Return ``left and right()`` (side True) or ``left or right()`` (side False): the right side is computed where the left one does not decide."""
    scope = trace.scope
    assert scope is not None
    parting = Parting(scope, checked(left, name, "left"))
    place = here()
    changes = Changes()
    try:
        trace.scope = parting.sides[side]
        trace.changes.append(changes)
        other = right()
        if not isinstance(other, DataNode):
            other = as_node(other, f"the right side of `{name}`")
        other = checked(other, name, "right")
    finally:
        back(place)
    values, scopes = [other, not side], [parting.sides[side], parting.sides[not side]]
    order = 1 if side else -1
    return merged(values[::order], scopes[::order], parting.condition, scope, f"the result of `{name}`", ("", ""))


def and_(left: Any, right: Callable[[], Any]) -> Any:
    """Return ``left and right()``."""
    if isinstance(left, DataNode) and trace.scope is not None:
        return _logical("and", left, right, True)
    return left and right()


def or_(left: Any, right: Callable[[], Any]) -> Any:
    """Return ``left or right()``."""
    if isinstance(left, DataNode) and trace.scope is not None:
        return _logical("or", left, right, False)
    return left or right()


def not_(value: Any) -> Any:
    """Return ``not value``."""
    if isinstance(value, DataNode) and trace.scope is not None:
        return negated(value)
    return not value


# --- Assignments in branches -----------------------------------------------------------------------------------------------------------------------


def attribute(holder: Any, name: str) -> Any:
    """Return an object one of whose attributes is assigned next."""
    if trace.changes and not isinstance(holder, DataNode):
        changing(Slot(holder, "attribute", name))
    return holder


def attribute_updated(holder: Any, name: str) -> Any:
    """Return an object one of whose attributes is updated next, as by ``+=``."""
    if trace.changes and not isinstance(holder, DataNode):
        changing(Slot(holder, "attribute", name))
        value = getattr(holder, name)
        if fresh(value) is not value:
            setattr(holder, name, fresh(value))
    return holder


def items(holder: Any) -> Any:
    """Return an object one of whose items is assigned next."""
    return Items(holder) if trace.changes and isinstance(holder, list | dict) else holder


def fresh(value: Any) -> Any:
    """Return the value of a variable that is updated next: a copy of what other branches have too."""
    value = ld(value)
    return value.copy() if trace.changes and isinstance(value, list | dict | set) and is_known(value) else value
