# SPDX-License-Identifier: Apache-2.0
"""Repeating the calls of an operator on batches: without its body, and without checking what was checked for batches of the same shapes.

A pipeline's thread has cold caches whenever it issues an iteration, because the threads that decode use them: each function of Python that is not
called saves 5 to 10 us. ``crop_mirror_normalize`` of 64 images took 175 us, repeated 70; ``resize`` 165 and 70; ``random_resized_crop``, whose
windows are drawn anew, 170 and 120.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from .arguments import Role
from .batch import Batch, new_batch
from .dispatch import submit
from .native import CPU, empty
from .replay import PLAIN, Drawn, Launched, recorded

_MOST = 1000  # shapes; more of them come from batches that are never alike


class _Template(NamedTuple):
    """A call with batches as its inputs and arguments."""

    kernel: Any
    arguments: list[Any]  # with None in the places of what differs
    places: list[tuple[int, int]]  # of the values of operand k, 2k, or of its shapes, 2k + 1
    words: int | None  # place of what a random operator has drawn, or of what `drawn` makes of it
    shape: tuple[int, ...]  # of the result
    dtype: torch.dtype
    layout: str | None
    drawn: Drawn | None

    def agrees(self, other: "_Template") -> bool:
        """Return whether two calls with equal batches have launched the same, so that nothing was computed from the values of the batches."""
        same = all(a is b or (type(a) is type(b) and type(a) in PLAIN and a == b) for a, b in zip(self.arguments, other.arguments, strict=True))
        return same and self[2:-1] == other[2:-1]


class Repeated:
    """The calls of an operator with the same constants, repeated for batches like those of two earlier calls.

    What a kernel takes besides the values of the batches is then an object that both calls had, a constant or one that the body keeps, or an equal
    number. A random operator must not have numbers of its own there, which might have been drawn, unless :attr:`Launch.drawn` says what was.
    """

    __slots__ = ("_confirmed", "_of_any_shape", "_seen")

    def __init__(self) -> None:
        self._confirmed: dict[Any, _Template] = {}
        self._seen: dict[Any, _Template | None] = {}  # by one call so far; None for calls that cannot be repeated
        self._of_any_shape = True  # until a call has shown that shapes matter

    def key(self, operands: Sequence[Batch], names: Iterable[str], batch_size: int | None) -> Any:
        """Return what a call depends on besides values; None for a call that is not repeated."""
        key: list[Any] = [batch_size, *names]
        for one in operands:
            values, shapes = one._values, one._shapes
            if one._external or values.device != CPU or not values.is_contiguous():
                return None
            if shapes is None:
                key += (one._layout, values.dtype, values.shape)
            elif self._of_any_shape and shapes.numpy().all():
                key += (one._layout, values.dtype, shapes.shape, one._fixed)
            else:
                return None
        return tuple(key)

    def again(self, key: Any, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None) -> Batch | None:
        """Return the result of a call that can be repeated."""
        plan = self._confirmed.get(key)
        if plan is None:
            return None
        arguments = plan.arguments.copy()
        for place, k in plan.places:
            operand = operands[k >> 1]
            arguments[place] = operand._shapes if k & 1 else operand._values
        if plan.words is not None:
            arguments[plan.words] = words if plan.drawn is None or words is None else plan.drawn(operands[0]._shapes, words)
        out = arguments[-2] = empty(plan.shape, plan.dtype, CPU)
        reads = [(pending, one._sample) for one in operands if (pending := one._unfinished()) is not None]
        return new_batch(out, None, plan.layout, submit(plan.kernel, arguments, reads, False, operands[0]._sources if inputs else ()))

    def recorded(self, key: Any, operands: Sequence[Batch], names: Iterable[str], words: torch.Tensor | None, call: Callable[[], Any]) -> Any:
        """Return what a call makes, and remember what it launches."""
        if key in self._seen and self._seen[key] is None:
            return call()
        made, launched = recorded(call)
        if len(self._seen) >= _MOST:
            self._seen.clear()
            self._confirmed.clear()
        first = self._seen.get(key)
        ragged = any(operand._shapes is not None for operand in operands)
        if ragged and not all(one is not None and one.any_shape for one in launched):
            self._of_any_shape = False
            return made
        self._seen[key] = found = _template(launched, made, operands, names, words)
        if first is not None and found is not None:
            if found.agrees(first):
                self._confirmed[key] = found
            self._seen[key] = None
        return made


def _template(
    launched: list[Launched | None], made: Any, operands: Sequence[Batch], names: Iterable[str], words: torch.Tensor | None
) -> _Template | None:
    one = launched[0] if len(launched) == 1 else None
    if one is None or type(made) is not Batch or made._values is not one.arguments[-2] or made._shapes is not None:
        return None
    if any((one.op.arguments.get(name) or one.op.positional[name]).role is not Role.per_sample for name in names):
        return None  # the body reads the values
    tensors = [tensor for operand in operands for tensor in (operand._values, operand._shapes)]
    arguments: list[Any] = [*one.arguments]
    places: list[tuple[int, int]] = []
    drawn = None
    arguments[-2] = None
    for place, given in enumerate(arguments):
        if not isinstance(given, torch.Tensor):
            if one.op.draws and given is not None and one.drawn is None:
                return None
            continue
        if one.drawn is not None and place == 2 * one.op.inputs:  # the first argument after the inputs
            drawn, arguments[place] = place, None
            continue
        k = next((k for k, one_given in enumerate(tensors) if one_given is given), None)
        if k is not None:
            places.append((place, k))
        elif given is words:
            drawn = place
        else:
            continue
        arguments[place] = None
    if {k for _, k in places} != {k for k, tensor in enumerate(tensors) if tensor is not None} or (words is None) != (drawn is None):
        return None  # something was computed of them, or drawn otherwise
    return _Template(one.op.kernel, arguments, places, drawn, made._values.shape, made._values.dtype, made._layout, one.drawn)
