# SPDX-License-Identifier: Apache-2.0
"""Runtime of rewritten functions: conditions, branches, logical expressions, returns and jumps. `_rewrite.py` shows the statements.

For a condition that is a DataNode both branches are traced, one after the other, each in its own scope and with the variables from before the
statement. A `return`, `break` or `continue` in such a branch is the arrival of some samples at a later place; the statement then raises Exit, which
ends the branch.
"""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ..data_node import DataNode, as_node
from ._operations import as_condition, check_operand, negate
from ._scopes import UNDEFINED, Arrival, Failed, Parting, Scope, meet, merge_values, trace
from ._slots import Changes, Items, Slot, assign_merged_slots, is_known, record_change

__all__ = ["Exit", "Frame", "Loop", "and_", "attribute_holder", "back", "elif_", "fresh", "globals", "here", "items", "load", "locals", "not_", "or_"]
__all__ += ["test", "undefined", "updated_attribute_holder"]

undefined = UNDEFINED
locals = builtins.locals  # called in the frame of the rewritten function
globals = builtins.globals


class Exit(BaseException):
    """No sample continues here: the rest of the branch is skipped. Not an Exception, so the program's handlers do not catch it."""


def load(value: Any) -> Any:
    """Return the value of a variable. Raise the error of a failed merge."""
    if value.__class__ is Failed:
        raise value.error
    return value


# --- Conditions ------------------------------------------------------------------------------------------------------------------------------------


class _Plain:
    """A condition that is a Python value: one branch runs."""

    # Tested by the rewritten statements: after a plain condition nothing is merged.
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
        # A branch of the chain that ended by Exit lets no sample go on after the statement.
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
        self._parting = Parting(self._scope, as_condition(condition))
        self._arrivals: list[Arrival] = []
        self._names: Sequence[str] = ()
        self._values: dict[str, Any] = {}
        self._side = True

    def begin(self, variables: dict[str, Any], names: Sequence[str]) -> None:
        """Store the variables before the statement."""
        self._names = names
        self._variables = dict(variables)  # before Python 3.13, locals() returns the same dict each time
        self._before = self._values = {name: variables[name] for name in names if name in variables}

    def branch(self, side: bool) -> "_Condition":
        self._side = side
        return self

    def __enter__(self) -> None:
        trace.scope = self._parting.sides[self._side]
        # Changes of attributes and items are recorded, so they can be undone for the other branch.
        self._changes = Changes(self._variables)
        trace.changes.append(self._changes)

    def __exit__(self, kind: Any, *_: object) -> bool:
        # Also the records of inner statements that an exception left behind.
        del trace.changes[trace.changes.index(self._changes) :]
        self._changes.undo()  # the other branch begins with the old values
        trace.scope = self._scope
        return kind is Exit

    def enter_else(self) -> None:
        self.branch(False).__enter__()

    def leave_else(self, inner: Any, variables: dict[str, Any]) -> None:
        if not inner.dead:
            self.reach_end(variables)
        self.__exit__(None)

    def reach_end(self, variables: dict[str, Any]) -> None:
        """Record the arrival at the end of a branch."""
        assert trace.scope is not None
        arrival = Arrival(trace.scope, {name: variables[name] for name in self._names if name in variables})
        self._changes.add_to(arrival)
        self._arrivals.append(arrival)

    def join(self) -> bool:
        """Continue after both branches. Return whether a sample arrived."""
        self.dead = not self._arrivals
        if not self.dead:
            self._values = _join_arrivals(self._scope, self._arrivals, self._names)
        return not self.dead

    def __getitem__(self, name: str) -> Any:
        """Return the merged value of a variable."""
        return self._values.get(name, UNDEFINED)


def _join_arrivals(below: Scope, arrivals: list[Arrival], names: Sequence[str]) -> dict[str, Any]:
    """Continue where several paths meet, and return the merged variables."""
    meeting = meet(below, arrivals)
    trace.scope = meeting.scope
    values = {}
    for name in names:
        if any(name in arrival.values for arrival in arrivals):
            try:
                values[name] = meeting.pick(lambda arrival, name=name: arrival.values.get(name, UNDEFINED), f"the variable {name!r}")
            # Stored as the value: a variable that is not read after the statement need not be mergeable.
            except (RuntimeError, ValueError, TypeError) as error:
                values[name] = Failed(error)
    assign_merged_slots(arrivals, meeting.pick)
    return values


def test(condition: Any) -> Any:
    """Return the condition of an `if` statement."""
    if isinstance(condition, DataNode) and trace.scope is not None:
        return _Condition(condition)
    return _PLAIN[bool(condition)]


def elif_(condition: Any) -> Any:
    """Return the condition of a member of an `elif` chain."""
    if isinstance(condition, DataNode) and trace.scope is not None:
        return _Condition(condition)
    return _PlainInChain(bool(condition))


def here() -> tuple[Scope | None, int]:
    """Return the present place of the trace."""
    return trace.scope, len(trace.changes)


def back(place: tuple[Scope | None, int]) -> None:
    """Return to a place after an exception."""
    trace.scope, depth = place
    while len(trace.changes) > depth:
        trace.changes.pop().undo()


# --- Returns and jumps -----------------------------------------------------------------------------------------------------------------------------


class _Place:
    """A later place, at which the samples of a scope arrive in one or several groups."""

    def __init__(self) -> None:
        self.scope = trace.scope
        self.arrivals: list[Arrival] = []
        self._changes = Changes()  # samples that arrive later may change objects that the earlier ones have
        trace.changes.append(self._changes)

    def is_partial(self) -> bool:
        """Return whether only some of the samples are on this path."""
        return trace.scope is not self.scope

    def arrive(self, values: dict[str, Any]) -> None:
        """Record the arrival of the samples that are on this path."""
        assert trace.scope is not None
        arrival = Arrival(trace.scope, values)
        for changes in trace.changes[trace.changes.index(self._changes) :][::-1]:
            changes.add_to(arrival)
        self.arrivals.append(arrival)

    def leave(self) -> None:
        """Return to the scope of the beginning."""
        if self._changes in trace.changes:
            del trace.changes[trace.changes.index(self._changes) :]
        # The changes belong to the samples that have arrived; those that continue see the old values.
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
        # All samples of the frame return here: a plain return.
        if not self._end.is_partial():
            return value
        self._end.arrive({"": value})
        raise Exit

    def reach_end(self) -> None:
        """Record the arrival at the end of the function."""
        if self._end.is_partial():
            self._end.arrive({"": None})

    def result(self) -> Any:
        """Return the merged return value of all samples."""
        arrivals, scope = self._end.arrivals, self._end.scope
        if not arrivals:
            return None
        assert scope is not None
        nothing = [arrival.values[""] is None for arrival in arrivals]
        if any(nothing) and not all(nothing):
            raise RuntimeError("the function returns a value on one path through an `if` on a DataNode, so it must return a value on every path")
        meeting = meet(scope, arrivals, everything=True)
        value = meeting.pick(lambda arrival: arrival.values[""], "the returned value")
        assign_merged_slots(arrivals, meeting.pick)
        return value


class Loop:
    """A loop with `break` or `continue` in branches."""

    dead = False  # no sample continues after the loop
    jumped = False  # the paths through the body meet at its end

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

    def _pick_variables(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {name: variables[name] for name in self._names if name in variables}

    def leave(self, ends: bool, variables: dict[str, Any]) -> None:
        """Do nothing before a jump of all samples; if only some jump, end the branch."""
        if self._next.is_partial():
            (self._end if ends else self._next).arrive(self._pick_variables(variables))
            raise Exit
        # All remaining samples of the iteration break: they meet those that have left the loop before.
        if ends and self._end.is_partial():
            self._end.arrive(self._pick_variables(variables))
            self._runs = False

    def reach_end(self, variables: dict[str, Any]) -> None:
        """Record the arrival at the end of the body."""
        if self._next.is_partial():
            self.jumped = True
            self._next.arrive(self._pick_variables(variables))

    def join(self) -> bool:
        """Continue with the next iteration. Return whether a sample does."""
        self._runs = bool(self._next.arrivals)
        if self._runs:
            assert self._next.scope is not None
            self._values = _join_arrivals(self._next.scope, self._next.arrivals, self._names)
        return self._runs

    def close(self, variables: dict[str, Any]) -> bool:
        """Continue after the loop. Return whether variables have other values than those of the last iteration."""
        arrivals = self._end.arrivals
        # The loop ended normally for the samples that did not break.
        if arrivals and self._runs:
            self._end.arrive(self._pick_variables(variables))
        if not arrivals:
            self.dead = not self._runs
            # No sample broke, so the record of the loop was never needed.
            trace.changes.remove(self._end._changes)
            return False
        self._end.leave()
        assert self._end.scope is not None
        self._values = _join_arrivals(self._end.scope, arrivals, self._names)
        return True

    def __getitem__(self, name: str) -> Any:
        """Return the merged value of a variable."""
        return self._values.get(name, UNDEFINED)


# --- Logical expressions ---------------------------------------------------------------------------------------------------------------------------


def _logical(name: str, left: DataNode, right: Callable[[], Any], side: bool) -> DataNode:
    """Return ``left and right()`` (side True) or ``left or right()`` (side False): the right side is computed for the samples
    that the left one does not decide."""
    scope = trace.scope
    assert scope is not None
    parting = Parting(scope, check_operand(left, name, "left"))
    place = here()
    changes = Changes()
    try:
        trace.scope = parting.sides[side]
        trace.changes.append(changes)
        other = right()
        if not isinstance(other, DataNode):
            other = as_node(other, f"the right side of `{name}`")
        other = check_operand(other, name, "right")
    finally:
        back(place)
    # For `and`, where the left side holds the result is the right side, elsewhere False; for `or` the other way round.
    values, scopes = [other, not side], [parting.sides[side], parting.sides[not side]]
    order = 1 if side else -1
    return merge_values(values[::order], scopes[::order], parting.condition, scope, f"the result of `{name}`", ("", ""))


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
        return negate(value)
    return not value


# --- Assignments in branches -----------------------------------------------------------------------------------------------------------------------


def attribute_holder(holder: Any, name: str) -> Any:
    """Record the attribute that is assigned next, and return its object."""
    if trace.changes and not isinstance(holder, DataNode):
        record_change(Slot(holder, "attribute", name))
    return holder


def updated_attribute_holder(holder: Any, name: str) -> Any:
    """Record the attribute that is updated next, as by ``+=``, and return its object."""
    if trace.changes and not isinstance(holder, DataNode):
        record_change(Slot(holder, "attribute", name))
        # The object is replaced by a copy, so the augmented assignment does not change the one that other branches have.
        value = getattr(holder, name)
        if fresh(value) is not value:
            setattr(holder, name, fresh(value))
    return holder


def items(holder: Any) -> Any:
    """Return an object that records the item that is assigned next."""
    return Items(holder) if trace.changes and isinstance(holder, list | dict) else holder


def fresh(value: Any) -> Any:
    """Return the value of a variable that is updated next: a copy if other branches have the object too."""
    value = load(value)
    return value.copy() if trace.changes and isinstance(value, list | dict | set) and is_known(value) else value
