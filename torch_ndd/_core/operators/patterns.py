# SPDX-License-Identifier: Apache-2.0
"""Patterns: what a recorded call has launched, apart from its batches. Two calls with equal patterns can be repeated by a plan (plans.py)."""

import weakref
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from ..values.batch import Batch
from ..values.native_plan import WHOLE
from .arguments import Role
from .definition import Also, Derivation, Record, Redraw

PLAIN = (float, int, bool, str, type(None), torch.dtype)  # compared by value
_MAX_COMPARED = 64  # elements of a tensor that two patterns compare by value


class Pattern(NamedTuple):
    """A record without the batches of its call."""

    kernel: Any
    arguments: list[Any]  # None in the places of operands, words and output
    # Argument, index in it if it is a list of tensors, else WHOLE, and operand tensor: values of operand k are tensor 2k, its shapes 2k + 1.
    places: list[tuple[int, int, int]]
    words_place: int | None  # argument that is the drawn words, or computed from them by `redraw`
    shape: tuple[int, ...]  # of the output
    dtype: torch.dtype
    layout: str | None
    may_draw: bool  # what the kernel gets besides the words may have been drawn
    derived: tuple[int, ...]  # arguments that `derivation` computes: the shapes of a packed output, then the tables
    is_packed: bool  # the output is
    mixes: bool  # a sample of the output depends on several of the input
    derivation: Derivation | None
    redraw: Redraw | None
    also_again: Also | None

    def agrees(self, other: "Pattern") -> bool:
        """Return whether two calls with equal batches have launched the same, so nothing was computed from the values of the batches."""
        return self[2:-3] == other[2:-3] and all(self._is_same(a, b) for a, b in zip(self.arguments, other.arguments, strict=True))

    def agrees_for_other_rows(self, other: "Pattern", rows: int, other_rows: int) -> bool:
        """Return whether two calls on batches of other numbers of samples have launched the same: nothing was computed from those numbers either."""
        resized = self._replace(shape=(other_rows, *self.shape[1:]))
        return self.shape[:1] == (rows,) and other.shape[:1] == (other_rows,) and self.kernel is other.kernel and other.agrees(resized)

    def without_large_tensors(self) -> "Pattern":
        """Return the pattern to keep until the next call. It must not keep memory alive that the body does not keep."""
        large = [weakref.ref(a) if type(a) is torch.Tensor and a.numel() > _MAX_COMPARED else a for a in self.arguments]
        return self._replace(arguments=large)

    def _is_same(self, a: Any, b: Any) -> bool:
        if type(b) is weakref.ref:
            return a is b()
        if a is b or type(a) is not type(b):
            return a is b
        if type(a) is list or type(a) is tuple:
            return len(a) == len(b) and all(map(self._is_same, a, b))
        if type(a) is torch.Tensor and not self.may_draw:  # numbers drawn in two calls may be equal by chance
            return a.dtype == b.dtype and a.shape == b.shape and a.numel() <= _MAX_COMPARED and a.is_cpu and _bytes(a) == _bytes(b)
        return type(a) in PLAIN and a == b


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def operand_tensors(operands: Sequence[Batch]) -> list[torch.Tensor | None]:
    """Return values and shapes of each operand, None as the shapes of a dense one."""
    return [tensor for operand in operands for tensor in (operand.buffer, operand.ragged_shapes)]


def find_pattern(record: Record, tensors: Sequence[torch.Tensor | None], names: Collection[str]) -> Pattern | None:
    """Return the pattern of a recorded call, or None if a repeated call could differ from it.

    Args:
        record: The record.
        tensors: The operands of the call: :func:`operand_tensors`.
        names: Arguments that are operands. Bodies read the values of those that do not go to the kernel unchanged.
    """
    op, launch, arguments = record.op, record.launch, list(record.arguments)
    derivation, shapes = launch.derivation, record.outputs[0].ragged_shapes
    derives = derivation is not None
    if not record.is_plain or (derives and (op.draws or record.inputs[0] is None)):
        return None
    if shapes is not None and not derives and (not tensors or shapes is not tensors[1]):
        return None
    roles = {(op.arguments.get(name) or op.positional[name]).role for name in names}
    if not roles <= ({Role.per_sample, Role.shape} if derives else {Role.per_sample}):
        return None
    if derivation is not None and not derivation.names <= set(names):
        return None  # a list, for instance, which is part of the key
    derived = _find_derived(record, derivation) if derivation is not None else ()
    places: list[tuple[int, int, int]] = []
    words_place = None
    output, arguments[-2] = arguments[-2], None
    for place in derived:
        arguments[place] = None
    for place in range(2) if op.variadic else ():
        # Both lists in the order of the inputs: of two inputs that are the same batch each has its own place.
        arguments[place] = [None if tensor is tensors[2 * k + place] else tensor for k, tensor in enumerate(arguments[place])]
        places += [(place, k, 2 * k + place) for k, tensor in enumerate(arguments[place]) if tensor is None]
    for place, argument in enumerate(arguments):
        if not isinstance(argument, torch.Tensor):
            # A number of a random operator may have been drawn, unless its kernel takes the function's own arguments: those come from the program.
            if op.draws and argument is not None and launch.redraw is None and op.automatic is None and not launch.only_words:
                return None
            continue
        if launch.redraw is not None and place == op.first_argument:
            words_place, arguments[place] = place, None
            continue
        # An input has its own place, also if another one is the same batch.
        own = place < min(len(tensors), op.first_argument) and tensors[place] is argument
        k = place if own else next((k for k, tensor in enumerate(tensors) if tensor is argument), None)
        if k is not None:
            places.append((place, WHOLE, k))
        elif argument is record.words:
            words_place = place
        else:
            continue  # a constant, if the next call has an equal one
        arguments[place] = None
    # What the derivation needs is derived again. Anything else that the kernel does not get may be in one of the constants.
    derived_names = frozenset() if derivation is None else derivation.names - derivation.passed
    derived_again = {2 * k for k, name in enumerate(names, len(record.inputs)) if name in derived_names}
    needed = {k for k, tensor in enumerate(tensors) if tensor is not None} - derived_again
    if not needed <= {k for *_, k in places} or (record.words is None) != (words_place is None):
        return None  # the kernel gets something computed from an operand or from the words
    shape, layout, packed = output.shape if shapes is None else (), record.layout, shapes is not None
    may_draw = op.draws and not launch.only_words
    return Pattern(
        *(op.kernel, arguments, places, words_place, shape, output.dtype, layout, may_draw, derived, packed, launch.mixes),
        *(derivation, launch.redraw, launch.also_again),
    )


def _find_derived(record: Record, derivation: Derivation) -> tuple[int, ...]:
    first = record.op.first_argument
    places = tuple(range(first, first + derivation.count))
    return places if record.outputs[0].ragged_shapes is None else (len(record.arguments) - 1, *places)
