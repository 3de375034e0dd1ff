# SPDX-License-Identifier: Apache-2.0
"""``Checkpoint``: the states of several readers and generators as one string."""

import json
import os
import re
import string
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..process.files import read_regular, text_of, write_whole
from .states import check_state, equal, format_value, keys, or_none, parse_state, text
from .streams import context_stream

_VERSION = 2
_ANONYMOUS = "__op_"


class _Entry(NamedTuple):
    state: Any
    type: str | None  # the class of the operator that the state belongs to


class Checkpoint:
    """States of readers, generators and other objects with ``get_state(cuda_stream=)`` and ``set_state``.

    :meth:`register` the operators, :meth:`collect` their states and :meth:`save` them; later :meth:`load` them and register the operators in the same
    order or under the same names, which restores each immediately.

    >>> import torch_ndd as ndd
    >>> rng, checkpoint = ndd.random.RNG(seed=5), ndd.checkpoint.Checkpoint()
    >>> checkpoint.register(rng, "augmentation")
    'augmentation'
    >>> checkpoint.collect()
    >>> later = ndd.checkpoint.Checkpoint()
    >>> later.deserialize(checkpoint.serialize())
    >>> fresh = ndd.random.RNG(seed=0)
    >>> later.register(fresh, "augmentation"), fresh() == rng()
    ('augmentation', True)
    """

    def __init__(self) -> None:
        self._next: int | None = None  # number of the next file, once known
        self.clear()

    def clear(self) -> None:
        """Drop all operators and states."""
        self._ops: dict[str, Any] = {}
        self._states: dict[str, _Entry] = {}
        self._dirty: set[str] = set()  # states that are not restored yet
        self._complete = self._loaded = False

    @property
    def is_complete(self) -> bool:
        """Whether the states were collected."""
        return self._complete

    @property
    def is_loaded(self) -> bool:
        """Whether the states come from a text or a file."""
        return self._loaded

    @property
    def names(self) -> tuple[str, ...]:
        """Keys of the registered operators."""
        return tuple(self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __contains__(self, name: object) -> bool:
        return name in self._ops

    def register(self, op: Any, name: str | None = None) -> str:
        """Register an operator and return its key; a loaded state with this key is restored immediately.

        Args:
            op: A reader, an RNG, or an object with the same two methods.
            name: Its key; by default ``__op_<n>``, where n operators were registered before.

        Raises:
            ValueError: an empty name, or one that begins with ``__op_``.
            RuntimeError: a new operator after :meth:`collect`, an operator that has another name, or a reader that has started without checkpointing
                (NotImplementedError, a kind of RuntimeError, after ``next_epoch(capture=True)``).
            KeyError: the loaded checkpoint has no state with this name.
            TypeError: the name or the state belongs to an operator of another class.
        """
        if name is not None and (not name or name.startswith(_ANONYMOUS)):
            raise ValueError(f'the name of an operator in a checkpoint must not be empty nor begin with "{_ANONYMOUS}", got {name!r}')
        # An operator may be registered again, with an equal name or without one: the program then need not remember its key.
        known = next((key for key, registered in self._ops.items() if registered is op), None)
        if known is not None:
            if name is not None and name != known:
                raise RuntimeError(f"the operator is registered in this checkpoint as {known!r}; it cannot be {name!r} as well")
            return known
        # Without a name the key is the position, so the same program registers its operators under the same keys after a restart.
        key = f"{_ANONYMOUS}{len(self._ops)}" if name is None else name
        if key in self._ops:
            before, after = type(self._ops[key]).__qualname__, type(op).__qualname__
            # The object of a restarted loop may replace its predecessor; one of another class cannot have its state.
            if type(self._ops[key]) is not type(op):
                raise TypeError(f"Cannot replace operator {key!r} of type {before!r} with one of type {after!r}")
        elif self._complete:
            raise RuntimeError(f"the checkpoint is completed: {key!r} comes too late; clear() begins a new one")
        elif self._loaded and key not in self._states:
            raise KeyError(f"Loaded checkpoint has no state for {key!r}; it has {sorted(self._states)}")
        # Before _enable_checkpointing, so an operator of the wrong type stays as it was.
        if key in self._dirty:
            self._check_type(key, op)
        if (enable := getattr(op, "_enable_checkpointing", None)) is not None:
            enable()
        if key in self._dirty:
            self._apply(key, op)
        self._ops[key] = op
        return key

    def _check_type(self, key: str, op: Any) -> None:
        stored, actual = self._states[key].type, type(op).__qualname__
        if stored is not None and stored != actual:
            raise TypeError(f"Type mismatch: the state of {key!r} belongs to an operator of type {stored!r}, not {actual!r}")

    def _apply(self, key: str, op: Any) -> None:
        self._check_type(key, op)
        op.set_state(self._states[key].state)
        self._dirty.discard(key)

    def _check_ops(self) -> None:
        extra = sorted(key for key in self._states if key not in self._ops)
        if extra:
            raise RuntimeError(f"the checkpoint has states with no corresponding registered ops: {', '.join(extra)}")

    def collect(self) -> None:
        """Get the state of every operator. Raise RuntimeError if there are states of unregistered operators."""
        self._check_ops()
        stream = context_stream()
        self._states = {key: _Entry(op.get_state(cuda_stream=stream), type(op).__qualname__) for key, op in self._ops.items()}
        self._dirty.clear()
        self._complete, self._loaded = True, False

    def restore(self) -> None:
        """Restore the operators' states that are not restored yet.

        Raise RuntimeError if operators and states do not match, ValueError for an invalid state of a reader or generator; all operators then stay
        unchanged.
        """
        if not self._states:
            return
        self._check_ops()
        lacking = sorted(key for key in self._ops if key not in self._states)
        if lacking:
            raise RuntimeError(f"the checkpoint is incomplete: the state of {', '.join(lacking)} is missing")
        waiting = {key: op for key, op in self._ops.items() if key in self._dirty}
        # All states are checked before the first operator changes.
        for key, op in waiting.items():
            self._check_type(key, op)
            if (check := getattr(op, "_check_state", None)) is not None:
                check(self._states[key].state)
        for key, op in waiting.items():
            self._apply(key, op)

    def get_state(self, name: str) -> Any:
        """Return the state of a registered operator, as text after loading; None if there is none. Raise KeyError for an unknown name."""
        if name not in self._ops:
            raise KeyError(name)
        return self._states[name].state if name in self._states else None

    def set_state(self, name: str, value: Any, op_type: type | str | None = None) -> None:
        """Store a state for :meth:`restore`, or for an operator that is registered later.

        Args:
            name: The operator's key.
            value: The state.
            op_type: The operator's class or its ``__qualname__``, which is then checked.

        Raises:
            TypeError: ``op_type`` is neither.
            KeyError: an unknown name after :meth:`collect`.
        """
        if not (op_type is None or isinstance(op_type, type | str)):
            raise TypeError(f"op_type must be a class, a str or None, got {op_type!r}")
        if self._complete and name not in self._ops:
            raise KeyError(name)
        self._states[name] = _Entry(value, op_type.__qualname__ if isinstance(op_type, type) else op_type)
        self._dirty.add(name)

    def serialize(self) -> str:
        """Return all states as JSON. Raise RuntimeError if there are none."""
        if not self._states:
            raise RuntimeError("the checkpoint is empty: register operators and call collect() first")
        states = {key: {"state": str(entry.state), "type": entry.type} for key, entry in self._states.items()}
        return json.dumps({"version": _VERSION, "states": states})

    def deserialize(self, text: str) -> None:
        """Replace all states by those of a text of :meth:`serialize`. Raise ValueError for any other text, keeping the current states."""
        self._states = check_state("Checkpoint", _CHECKPOINT, parse_state("Checkpoint", text))["states"]
        self._dirty = set(self._states)
        self._loaded, self._complete = True, False

    def save(self, pattern: str) -> str:
        """Write the states to a new file, numbered after the existing ones, and return its path.

        ``pattern`` is the path with ``{seq}``, or for example ``{seq:04d}``, for the number. Raise ValueError without it. Folders are created.
        Processes that save at the same time write a file each; a file is complete whenever it can be seen, and never overwritten.
        """
        text, family = self.serialize(), _Family(pattern)
        # The folder is listed for the first file only. Later numbers follow, and existing files are skipped.
        number = family.highest() + 1 if self._next is None else self._next
        while True:
            path = family.path(number)
            number += 1
            if os.path.lexists(path):
                continue
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # of another process that saves too
                write_whole(path, text, replace=False)
                self._next = number
                return path

    def load(self, pattern: str) -> str:
        """Read the file with the highest number and return its path. Raise FileNotFoundError if there is none, ValueError without ``{seq}``."""
        family = _Family(pattern)
        number = family.highest()
        if number < 0:
            raise FileNotFoundError(f"no checkpoint matches {pattern!r}")
        self.deserialize(text_of(read_regular(family.path(number))).decode())
        self._next = number + 1
        return family.path(number)


_ENTRY = keys({"type": or_none(text)}, state=text)


def _entries(value: Any, name: str) -> dict[str, _Entry]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a dict, got {format_value(value)}")
    found = {key: _ENTRY(entry, f"{name}: {key!r}") for key, entry in value.items()}
    return {key: _Entry(entry["state"], entry.get("type")) for key, entry in found.items()}


_CHECKPOINT = keys(version=equal(_VERSION), states=_entries)


class _Family:
    """The files of a pattern."""

    def __init__(self, pattern: str) -> None:
        fields = [(name, spec) for _, name, spec, _ in string.Formatter().parse(pattern) if name is not None]
        if [name for name, _ in fields] != ["seq"]:
            raise ValueError(f"the pattern of a checkpoint's path must have the field {{seq}} once and no other, got {pattern!r}")
        self._pattern = pattern

    def path(self, number: int) -> str:
        return self._pattern.format(seq=number)

    def highest(self) -> int:
        """Return the largest number of an existing file, -1 if there is none."""
        # The number may have any format, so its text is found by formatting a mark that no path can contain.
        before, after = self._pattern.format(seq=_Mark()).split(_Mark.text)
        folder, prefix = os.path.split(before)
        rest = after.split(os.sep, 1)
        # Spaces for formats that pad with them; more digits than the format has match as well.
        name = re.compile(re.escape(prefix) + r"\s*(\d+)" + re.escape(rest[0]))
        try:
            found = (name.fullmatch(entry) for entry in os.listdir(folder or "."))
            numbers = [int(match[1]) for match in found if match]
        except FileNotFoundError:
            return -1
        return max((n for n in numbers if os.path.isfile(self.path(n))), default=-1)


class _Mark:
    """Placeholder of the number in any format."""

    text = "\0"

    def __format__(self, spec: str) -> str:
        return self.text
