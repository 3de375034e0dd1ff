# SPDX-License-Identifier: Apache-2.0
"""Sources of data in the user's Python code, and the operations that pull them or are fed."""

import inspect
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..._core.process.fork_locks import new_lock
from ..._core.values.batch import Batch
from ...readers._sources.external_source import ExternalSource as Items
from .. import types
from .._graph.errors import wrap_error
from .._graph.graph import EMPTY, Graph, Operation, Step
from .._graph.operations import MoveOperation, on_device, target_device
from ..data_node import DataNode
from .feeding import Expected, import_batch

_END: Any = object()  # in place of an item: the source has no more
_NOT_POSITIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass
class Source:
    """The argument ``source`` of an external source.

    Attributes:
        object: The argument.
        call: Returns the next item. With ``takes_argument`` its argument is the number or description of the item.
        takes_argument: Whether ``call`` has an argument.
        iterable: Whether the object is iterated over, rather than called for each item.
        cycle: What follows the end of an iterable.
    """

    object: Any
    call: Callable[..., Any]
    takes_argument: bool
    iterable: bool
    cycle: Any


def inspect_source(title: str, source: Any, cycle: Any) -> Source | None:
    """Return the description of a source; None if there is no source.

    Raises:
        TypeError: it is neither callable nor iterable, has other parameters than none or one positional, or is a generator with ``cycle``.
        ValueError: an unknown ``cycle``, or one for a callable.
    """
    if source is None:
        if cycle:
            raise ValueError(f"{title}: cycle is for iterable sources, but source is None")
        return None
    # A callable object may have a generator function as its __call__.
    function = source if inspect.isgeneratorfunction(source) else getattr(source, "__call__", None)  # noqa: B004
    if inspect.isgeneratorfunction(function):
        return Source(source, _iterate(title, function, cycle), False, True, cycle)
    if not isinstance(source, type) and (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
        return Source(source, _iterate(title, source, cycle), False, True, cycle)
    if not callable(source):
        raise TypeError(f"{title}: source must be a callable, an iterable or a generator function, got {type(source).__name__}")
    _iterate(title, (), cycle)  # raises for an unknown cycle
    if cycle is not None:
        raise ValueError(f"{title}: cycle is for iterable sources; a callable raises StopIteration itself")
    return Source(source, source, takes_argument(title, source), False, cycle)


def _iterate(title: str, iterable: Any, cycle: Any) -> Callable[[], Any]:
    try:
        return Items(iterable, cycle=cycle).next_item
    except (TypeError, ValueError) as error:
        raise type(error)(f"{title}: {str(error).removeprefix('ExternalSource: ')}") from None


def takes_argument(title: str, source: Callable[..., Any]) -> bool:
    """Return whether a source takes one positional argument rather than none. Raise TypeError for other parameters."""
    try:
        parameters = list(inspect.signature(source).parameters.values())
    except ValueError:  # no signature: a function written in C
        return False
    for parameter in parameters:
        if parameter.kind in _NOT_POSITIONAL:
            raise TypeError(f"{title}: source must take no argument or one positional one, but it has the parameter {parameter}")
    if len(parameters) > 1:
        raise TypeError(f"{title}: source must take no argument or one positional one, got {inspect.signature(source)}")
    return len(parameters) == 1


class Group:
    """A source, and the operations of its outputs. They share each of its items: it is called once for an iteration."""

    def __init__(self, title: str, source: Source, batch: bool, batch_info: bool, returns_tuple: bool) -> None:
        self.title, self.source, self.batch, self.batch_info, self.returns_tuple = title, source, batch, batch_info, returns_tuple
        self.operations: list[weakref.ref[InputOperation]] = []
        self._step: Step | None = None
        self._item: Any = None

    def prepare(self, graph: Graph) -> None:
        """Warn if the source cannot continue at a checkpoint. Called for the first of the operations."""
        if graph.settings.enable_checkpointing and not self.source.takes_argument:
            warnings.warn(
                f"{self.title}: a checkpoint does not hold the position of this source. Only a callable with an argument can continue, "
                "because the argument says which item it must return",
                UserWarning,
                stacklevel=5,
            )

    def item(self, step: Step, size: int) -> Any:
        """Return the source's data for an iteration: with ``batch`` its item, else a list of ``size`` items."""
        # Every output of the source needs the item of the same step, but the source is called once.
        # Compared by identity: each iteration has a Step object of its own.
        if self._step is not step:
            self._step, self._item = None, None  # also if the source raises: its next call is for the next iteration
            try:
                self._item = self.call(step, size)
            except StopIteration:
                self._item = _END
            self._step = step
        if self._item is _END:  # for every output, but the source is not called again
            raise StopIteration
        return self._item

    def call(self, step: Step, size: int) -> Any:
        """Call the source."""
        call, number = self.source.call, step.iteration
        if not self.source.takes_argument:
            return call() if self.batch else [call() for _ in range(size)]
        if self.batch:
            return call(self.batch_argument(number, step.epoch))
        return [call(types.SampleInfo(number * size + k, k, number, step.epoch)) for k in range(size)]

    def batch_argument(self, iteration: int, epoch: int) -> Any:
        """Return the argument of a source of batches."""
        return types.BatchInfo(iteration, epoch) if self.batch_info else iteration

    def output(self, item: Any, index: int) -> Any:
        """Return one output of an item."""
        if not self.returns_tuple:
            return item
        return self._select(item, index) if self.batch else [self._select(sample, index) for sample in item]

    def _select(self, item: Any, index: int) -> Any:
        try:
            return item[index]
        except IndexError:
            raise IndexError(f"{self.title}: the source returned {len(item)} outputs, but num_outputs={len(self.operations)}") from None

    def drop_item(self) -> None:
        """Drop the latest item."""
        self._step, self._item = None, None

    def close(self) -> None:
        """Release resources."""


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

    def prepare(self, graph: Graph) -> None:
        """Check the declarations."""
        try:
            self._expected = Expected(self.title, self.layout, self.dtype, self.ndim)
        except RuntimeError as error:
            raise wrap_error(self, error) from None
        self.fed = self.group is None
        self._max_samples = graph.settings.max_batch_size
        self._target = target_device(self, graph)
        self._fed: deque[Batch] = deque()
        self._arrived = threading.Condition(new_lock())  # with `blocking`, another thread feeds
        self._last: Batch | None = None
        if self.group is not None and self._is_first(graph):
            self.group.prepare(graph)

    def _is_first(self, graph: Graph) -> bool:
        """Return whether this is the first operation of its group in the graph; warn if others are missing."""
        assert self.group is not None
        operations = [operation() for operation in self.group.operations]
        used = [operation for operation in operations if operation is not None and any(operation is other for other in graph.operations)]
        if used and used[0] is not self:
            return False
        unused = [k for k, operation in enumerate(operations) if not any(operation is other for other in used)]
        if unused:
            numbers = ", ".join(map(str, unused))
            warnings.warn(f"{self.title}: of the {len(operations)} outputs of this source, these are not used: {numbers}", UserWarning, stacklevel=5)
        return True

    def feed(self, data: Any, layout: str | None = None, **hints: Any) -> None:
        """Queue a batch."""
        if self.group is not None:
            raise RuntimeError(f"{self.title}: the input {self.name!r} has a source and cannot be fed")
        del hints
        batch = import_batch(self.title, data, self._max_samples, share=self.no_copy)
        batch = self._expected.apply_layout(batch, layout, overrides=False)
        with self._arrived:
            self._fed.append(batch)
            self._arrived.notify_all()

    def check(self, step: Step, wait: bool) -> None:
        """Raise IndexError if nothing is fed. With ``blocking``, wait for it instead, but only if ``wait``: no result is left to deliver."""
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
            batch = self._last = self._fed.popleft() if self._fed else self._last
            # Keep no batch alive that will not be repeated.
            if not self.repeat_last:
                self._last = None
        else:
            item = self.group.output(self.group.item(step, self._max_samples), self.index)
            try:
                batch = self._expected.apply_layout(import_batch(self.title, item, self._max_samples, share=self.no_copy), None, overrides=True)
            except (RuntimeError, IndexError) as error:
                raise wrap_error(self, error) from error
        assert batch is not None
        try:
            batch = self._expected.check(batch)
        except RuntimeError as error:
            raise wrap_error(self, error) from None
        return (batch,) if batch is EMPTY else on_device((batch,), self._target)

    def reset(self) -> None:
        """Drop the item of an iteration that another source ended."""
        if self.group is not None:
            self.group.drop_item()

    def close(self) -> None:
        """End the processes of a parallel source."""
        if self.group is not None:
            self.group.close()


def find_input(graph: Graph, data_node: Any) -> Operation:
    """Return the operation that is fed by a node or a name.

    Raises:
        TypeError: neither a node nor a string.
        KeyError: the graph has no such operation.
    """
    operation = data_node.source if isinstance(data_node, DataNode) else None
    while isinstance(operation, MoveOperation):  # a copy on another device has the name of the input
        operation = operation.inputs[0].source
    name = operation.name if operation is not None else data_node
    if not isinstance(name, str):
        raise TypeError(f"Pipeline.feed_input takes a DataNode or its name, got {data_node!r}")
    if operation is None:
        operation = graph.find(name)
    if operation is None or operation not in graph.operations:
        raise KeyError(f"Pipeline.feed_input: the pipeline has no input {name!r}")
    return operation
