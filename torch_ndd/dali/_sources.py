# SPDX-License-Identifier: Apache-2.0
"""Sources of data from the user's Python code, and the operations of a graph that ask them or are fed."""

import inspect
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._core.process.fork_locks import new_lock
from .._core.values.batch import Batch
from ..readers._sources.external_source import ExternalSource as Items
from . import types
from ._errors import wrapped
from ._feeding import Expected, as_fed
from ._graph import EMPTY, Graph, Operation, Step
from ._operators import on_device, target_device

_OVER: Any = object()  # in place of an item: the source has no more
_NOT_POSITIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass
class Source:
    """The object that the user gave as ``source``.

    Attributes:
        given: The object.
        ask: Returns the next item; takes the number or information of what is wanted if ``takes_argument``.
        takes_argument: Whether it does.
        iterable: Whether the object is iterated over, rather than called for each item.
        cycle: How iterating goes on after the end.
    """

    given: Any
    ask: Callable[..., Any]
    takes_argument: bool
    iterable: bool
    cycle: Any


def described(title: str, source: Any, cycle: Any) -> Source | None:
    """Return what a source is; None if there is none.

    Raises:
        TypeError: it is neither callable nor iterable, its parameters are not none or one positional, or it is a generator with ``cycle``.
        ValueError: an unknown ``cycle``, or one for a callable.
    """
    if source is None:
        if cycle:
            raise ValueError(f"{title}: cycle is for iterable sources, but there is no source")
        return None
    function = source if inspect.isgeneratorfunction(source) else getattr(source, "__call__", None)  # noqa: B004
    if inspect.isgeneratorfunction(function):
        return Source(source, _items(title, function, cycle), False, True, cycle)
    if not isinstance(source, type) and (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
        return Source(source, _items(title, source, cycle), False, True, cycle)
    if not callable(source):
        raise TypeError(f"{title}: source must be a callable, an iterable or a generator function, got {type(source).__name__}")
    _items(title, (), cycle)  # raises for an unknown cycle
    if cycle is not None:
        raise ValueError(f"{title}: cycle is for iterable sources; a callable decides itself when it raises StopIteration")
    return Source(source, source, takes_argument(title, source), False, cycle)


def _items(title: str, iterable: Any, cycle: Any) -> Callable[[], Any]:
    try:
        return Items(iterable, cycle=cycle).next_item
    except (TypeError, ValueError) as error:
        raise type(error)(f"{title}: {str(error).removeprefix('ExternalSource: ')}") from None


def takes_argument(title: str, source: Callable[..., Any]) -> bool:
    """Return whether a source takes one positional argument rather than none. Raise TypeError for other parameters."""
    try:
        parameters = list(inspect.signature(source).parameters.values())
    except ValueError:  # written in C
        return False
    for one in parameters:
        if one.kind in _NOT_POSITIONAL:
            raise TypeError(f"{title}: source must take no argument or one positional one, but it has the parameter {one}, which is not positional")
    if len(parameters) > 1:
        raise TypeError(f"{title}: source must take no argument or one positional one, got {inspect.signature(source)}")
    return len(parameters) == 1


class Group:
    """A source, and the operations of its outputs, which share each of its items."""

    def __init__(self, title: str, source: Source, batch: bool, batch_info: bool, several: bool) -> None:
        self.title, self.source, self.batch, self.batch_info, self.several = title, source, batch, batch_info, several
        self.operations: list[weakref.ref[InputOperation]] = []
        self._step: Step | None = None
        self._item: Any = None

    def prepare(self, pipeline: Graph) -> None:
        """Get ready. Called for the first of the operations."""
        if pipeline.enable_checkpointing and not self.source.takes_argument:
            warnings.warn(
                f"{self.title}: a checkpoint does not hold the position of this source. Only a callable with an argument can continue, "
                "because it is told what is wanted",
                UserWarning,
                stacklevel=5,
            )

    def item(self, step: Step, size: int) -> Any:
        """Return what the source gives for an iteration: with ``batch`` its item, else a list of ``size`` items."""
        if self._step is not step:
            self._step, self._item = None, None
            try:
                self._item = self.asked(step, size)
            except StopIteration:
                self._item = _OVER
            self._step = step
        if self._item is _OVER:  # for each of the outputs, without asking again
            raise StopIteration
        return self._item

    def asked(self, step: Step, size: int) -> Any:
        """Ask the source."""
        ask, number = self.source.ask, step.iteration
        if not self.source.takes_argument:
            return ask() if self.batch else [ask() for _ in range(size)]
        if self.batch:
            return ask(self.batch_argument(number, step.epoch))
        return [ask(types.SampleInfo(number * size + k, k, number, step.epoch)) for k in range(size)]

    def batch_argument(self, iteration: int, epoch: int) -> Any:
        """Return the argument for a batch."""
        return types.BatchInfo(iteration, epoch) if self.batch_info else iteration

    def output(self, item: Any, index: int) -> Any:
        """Return one output of an item."""
        if not self.several:
            return item
        return self._part(item, index) if self.batch else [self._part(one, index) for one in item]

    def _part(self, item: Any, index: int) -> Any:
        try:
            return item[index]
        except IndexError:
            raise IndexError(f"{self.title}: the source gave {len(item)} outputs where num_outputs={len(self.operations)} are expected") from None

    def forget(self) -> None:
        """Drop the latest item."""
        self._step, self._item = None, None

    def close(self) -> None:
        """Release what the group holds."""


class InputOperation(Operation):
    """One output of a source, or an input that is fed."""

    pulls = True
    group: Group | None = None
    index = 0
    layout: str | None = None
    dtype: Any = None
    ndim: int | None = None
    no_copy = False
    repeat_last = False
    blocking = False

    def prepare(self, pipeline: Graph) -> None:
        """Check the declarations."""
        try:
            self._expected = Expected(self.title, self.layout, self.dtype, self.ndim)
        except RuntimeError as error:
            raise wrapped(self, error) from None
        self.fed = self.group is None
        self._most = pipeline.max_batch_size
        self._target = target_device(self, pipeline)
        self._fed: deque[Batch] = deque()
        self._arrived = threading.Condition(new_lock())
        self._last: Batch | None = None
        if self.group is not None and self._is_first(pipeline):
            self.group.prepare(pipeline)

    def _is_first(self, pipeline: Graph) -> bool:
        """Return whether this is the first operation of its group in the pipeline; warn if others are missing."""
        assert self.group is not None
        here = [one() for one in self.group.operations]
        used = [one for one in here if one is not None and any(one is other for other in pipeline._operations)]
        if used and used[0] is not self:
            return False
        unused = [k for k, one in enumerate(here) if not any(one is other for other in used)]
        if unused:
            numbers = ", ".join(map(str, unused))
            warnings.warn(f"{self.title}: of the {len(here)} outputs of this source, these are not used: {numbers}", UserWarning, stacklevel=5)
        return True

    def feed(self, data: Any, layout: str | None = None, **hints: Any) -> None:
        """Queue a batch."""
        if self.group is not None:
            raise RuntimeError(f"{self.title}: the input {self.name!r} has a source and cannot be fed")
        del hints
        made = as_fed(self.title, data, self._most, share=self.no_copy)
        made = self._expected.laid_out(made, layout, overrides=False)
        with self._arrived:
            self._fed.append(made)
            self._arrived.notify_all()

    def check(self, step: Step, wait: bool) -> None:
        """Raise IndexError if nothing is fed; wait for it instead if ``blocking`` and ``wait``: no result is left to deliver."""
        if self.group is not None or self._fed or (self.repeat_last and self._last is not None):
            return
        if not (self.blocking and wait):
            raise IndexError(
                f"{self.title}: nothing was fed to the input {self.name!r} for this iteration. Add more elements with Pipeline.feed_input: "
                "prefetch_queue_depth of them before the first run, and one before each later one"
            )
        with self._arrived:
            while not self._fed:
                self._arrived.wait(0.1)  # lets Ctrl-C through

    def pull(self, step: Step) -> tuple[Batch, ...]:
        """Return the next batch."""
        if self.group is None:
            made = self._last = self._fed.popleft() if self._fed else self._last
            if not self.repeat_last:
                self._last = None
        else:
            item = self.group.output(self.group.item(step, self._most), self.index)
            try:
                made = self._expected.laid_out(as_fed(self.title, item, self._most, share=self.no_copy), None, overrides=True)
            except (RuntimeError, IndexError) as error:
                raise wrapped(self, error) from error
        assert made is not None
        try:
            made = self._expected.check(made)
        except RuntimeError as error:
            raise wrapped(self, error) from None
        return (made,) if made is EMPTY else on_device((made,), self._target)

    def reset(self) -> None:
        """Forget what the source gave for an iteration that another source ended."""
        if self.group is not None:
            self.group.forget()

    def close(self) -> None:
        """End the processes of a parallel source."""
        if self.group is not None:
            self.group.close()
