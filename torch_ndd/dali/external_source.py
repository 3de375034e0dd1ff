# SPDX-License-Identifier: Apache-2.0
"""``fn.external_source`` and ``ops.ExternalSource``: batches from the user's Python code, asked for or fed."""

import inspect
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core.batch import Batch
from ..readers._external_source import ExternalSource as Items
from . import types
from ._errors import UnknownArgumentError, wrapped
from ._feeding import Expected, as_fed
from ._graph import EMPTY, Operation, Step, create
from ._operators import on_device, target_device

if TYPE_CHECKING:
    from .data_node import DataNode
    from .pipeline import Pipeline

__all__ = ["ExternalSource", "external_source"]

_NOT_POSITIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_EVERYWHERE = ("preserve", "seed", "blocking")


@dataclass
class Source:
    """What the user gave as ``source``.

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
        return Items(iterable, cycle=cycle)._next_item
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

    def prepare(self, pipeline: "Pipeline") -> None:
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
            self._item = self.asked(step, size)
            self._step = step
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

    def prepare(self, pipeline: "Pipeline") -> None:
        """Check the declarations."""
        try:
            self._expected = Expected(self.title, self.layout, self.dtype, self.ndim)
        except RuntimeError as error:
            raise wrapped(self, error) from None
        self._most = pipeline.max_batch_size
        self._target = target_device(self, pipeline)
        self._fed: deque[Batch] = deque()
        self._arrived = threading.Condition()
        self._last: Batch | None = None
        if self.group is not None and self._is_first(pipeline):
            self.group.prepare(pipeline)

    def _is_first(self, pipeline: "Pipeline") -> bool:
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

    def check(self, step: Step) -> None:
        """Raise IndexError if nothing is fed, or wait for it if ``blocking``."""
        if self.group is not None or self._fed or (self.repeat_last and self._last is not None):
            return
        if not self.blocking:
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


def _of_output(title: str, argument: str, value: Any, index: int, several: bool) -> Any:
    """Return the value for one output; outputs beyond a list have none."""
    if several and isinstance(value, list | tuple):
        return value[index] if index < len(value) else None
    return value


def _check_declared(title: str, dtype: Any, ndim: Any) -> None:
    for one in dtype if isinstance(dtype, list | tuple) else (dtype,):
        if one is not None and not isinstance(one, types.DALIDataType):
            raise TypeError(f"{title}: dtype must be a DALIDataType or a list of them, got {one!r}")
    for one in ndim if isinstance(ndim, list | tuple) else (ndim,):
        if one is not None and not hasattr(one, "__index__"):
            raise ValueError(f"{title}: ndim must be an int or a list of them, got {one!r}")


_RUNTIME_ERROR_IF_TWICE = ("source", "layout", "dtype", "ndim", "cuda_stream", "use_copy_kernel")


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {key: value for key, value in options.items() if value is not None}


class ExternalSource:
    """A node of data from Python: asked of a source, or fed with ``Pipeline.feed_input``. See :func:`external_source` for the arguments.

    They are given here or to the call, which adds a node to the graph. ``batch`` is by default the contrary of ``parallel``.

    Raises:
        ValueError, RuntimeError: an argument given twice.
    """

    _title = "ops.ExternalSource"
    preserve = False

    def __init__(
        self,
        source: Any = None,
        num_outputs: int | None = None,
        *,
        cycle: bool | str | None = None,
        layout: Any = None,
        dtype: Any = None,
        ndim: Any = None,
        name: str | None = None,
        device: str = "cpu",
        cuda_stream: Any = None,
        use_copy_kernel: bool | None = None,
        batch: bool | None = None,
        parallel: bool | None = None,
        no_copy: bool | None = None,
        prefetch_queue_depth: int | None = None,
        bytes_per_sample_hint: int | None = None,
        batch_info: bool | None = None,
        repeat_last: bool = False,
        **kwargs: Any,
    ) -> None:
        if name is not None and num_outputs is not None:
            raise ValueError(f"{self._title}: num_outputs cannot be combined with a name: each output is a node with its own")
        self.device = device
        self._num_outputs = num_outputs
        self._given = _given(
            source=source,
            layout=layout,
            dtype=dtype,
            ndim=ndim,
            cuda_stream=cuda_stream,
            use_copy_kernel=use_copy_kernel,
            batch=batch,
            parallel=parallel,
            no_copy=no_copy,
            prefetch_queue_depth=prefetch_queue_depth,
            bytes_per_sample_hint=bytes_per_sample_hint,
            batch_info=batch_info,
        )
        self._name, self._cycle, self._repeat_last, self._more = name, cycle, bool(repeat_last), kwargs
        self._source = described(self._title, source, cycle)

    def __call__(
        self,
        *,
        source: Any = None,
        cycle: bool | str | None = None,
        name: str | None = None,
        layout: Any = None,
        dtype: Any = None,
        ndim: Any = None,
        cuda_stream: Any = None,
        use_copy_kernel: bool | None = None,
        batch: bool | None = None,
        parallel: bool | None = None,
        no_copy: bool | None = None,
        prefetch_queue_depth: int | None = None,
        bytes_per_sample_hint: int | None = None,
        batch_info: bool | None = None,
        repeat_last: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Add the source to the graph and return its node, or a list of them with ``num_outputs``."""
        now = _given(
            source=source,
            layout=layout,
            dtype=dtype,
            ndim=ndim,
            cuda_stream=cuda_stream,
            use_copy_kernel=use_copy_kernel,
            batch=batch,
            parallel=parallel,
            no_copy=no_copy,
            prefetch_queue_depth=prefetch_queue_depth,
            bytes_per_sample_hint=bytes_per_sample_hint,
            batch_info=batch_info,
        )
        if source is None and cycle is not None:
            raise ValueError(f"{self._title}: cycle belongs to an iterable source given in the same call; there is none")
        for key in now:
            if key in self._given:
                kind = RuntimeError if key in _RUNTIME_ERROR_IF_TWICE else ValueError
                raise kind(f"{self._title}: {key} was given to the constructor; give it once")
        if name is not None and self._num_outputs is not None:
            raise RuntimeError(f"{self._title}: num_outputs cannot be combined with a name: each output is a node with its own")
        made = self._source if source is None else described(self._title, source, cycle)
        if made is not None and (repeat_last or self._repeat_last):
            raise ValueError(f"{self._title}: repeat_last is for inputs that are fed, this one has a source")
        options = {**self._given, **now}
        options.pop("source", None)
        return _added(
            self._title,
            made,
            self._num_outputs,
            name if name is not None else self._name,
            self.device,
            repeat_last or self._repeat_last,
            options,
            {**self._more, **kwargs},
        )


def _added(
    title: str,
    source: Source | None,
    num_outputs: int | None,
    name: str | None,
    device: str,
    repeat_last: bool,
    given: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Any:
    """Add an external source to the graph."""
    for key in more:
        if key not in _EVERYWHERE:
            raise UnknownArgumentError(f"{title} got an unexpected argument {key!r}")
    if device not in ("cpu", "gpu"):
        raise ValueError(f'{title}: device must be "cpu" or "gpu", got {device!r}')
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{title}: name must be a str, got {name!r}")
    parallel = bool(given.get("parallel"))
    batch = bool(given.get("batch", not parallel))
    several = num_outputs is not None
    count = 1
    if num_outputs is not None:
        if isinstance(num_outputs, bool) or not hasattr(num_outputs, "__index__"):
            raise TypeError(f"{title}: num_outputs must be an int, got {num_outputs!r}")
        if num_outputs < 1:
            raise ValueError(f"{title}: num_outputs must be positive, got {num_outputs}")
        count = int(num_outputs)
    _check_declared(title, given.get("dtype"), given.get("ndim"))
    group: Group | None = None
    if parallel:
        from ._parallel_source import parallel_group

        group = parallel_group(title, source, batch, several, given)
    else:
        for key in ("prefetch_queue_depth", "bytes_per_sample_hint"):
            if key in given:
                raise ValueError(f"{title}: {key} is for parallel sources; add parallel=True")
        if source is not None:
            group = Group(title, source, batch, bool(given.get("batch_info")), several)
    nodes: list[DataNode] = []
    for index in range(count):
        declared = {key: _of_output(title, key, given.get(key), index, several) for key in ("layout", "dtype", "ndim")}
        attributes = {
            **declared,
            "no_copy": bool(given.get("no_copy")) and not parallel,  # workers use their memory again
            "repeat_last": repeat_last,
            "blocking": bool(more.get("blocking")),
        }
        (node,) = create(
            InputOperation,
            "ExternalSource",
            constants={key: value for key, value in attributes.items() if value is not None},
            schema="external_source",
            title=title,
            name=name,
            device=device,
            preserve=bool(more.get("preserve")),
            group=group,
            index=index,
            **attributes,
        )
        node.layout, node.ndim = declared["layout"] or None, declared["ndim"]
        node.dtype = declared["dtype"]
        if group is not None:
            assert isinstance(node.source, InputOperation)
            group.operations.append(weakref.ref(node.source))
        nodes.append(node)
    return nodes if several else nodes[0]


class _Function(ExternalSource):
    _title = "fn.external_source"


def external_source(
    source: Any = None,
    num_outputs: int | None = None,
    *,
    cycle: bool | str | None = None,
    name: str | None = None,
    device: str = "cpu",
    layout: str | Sequence[str] | None = None,
    dtype: Any = None,
    ndim: int | Sequence[int] | None = None,
    cuda_stream: Any = None,
    use_copy_kernel: bool | None = None,
    blocking: bool | None = None,
    batch: bool | None = True,
    repeat_last: bool = False,
    parallel: bool | None = None,
    no_copy: bool | None = None,
    prefetch_queue_depth: int | None = None,
    bytes_per_sample_hint: int | None = None,
    batch_info: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Return a node of data from Python: asked of ``source``, or fed with ``Pipeline.feed_input``.

    A batch is an array whose first dimension counts samples, a list of arrays, which may have different shapes, or a ``TensorListCPU``; a sample is
    an array. Arrays are of NumPy or torch, ``TensorCPU``, or DLPack capsules. Batches may differ in size, up to the pipeline's ``batch_size``.

    Args:
        source: A callable, an iterable, or a generator function without parameters. A callable takes no argument or one: with ``batch`` the number of
            the batch in the epoch, or a ``BatchInfo``, else a ``SampleInfo``. StopIteration ends the epoch. None for an input that is fed.
        num_outputs: Number of outputs: the source then gives a tuple of so many, and the result is a list of nodes.
        cycle: What follows the end of an iterable. None, False, ``"no"``: StopIteration from then on. True, ``"quiet"``: it starts again.
            ``"raise"``: StopIteration once, then it starts again.
        name: Name of the input for ``feed_input``; not with ``num_outputs``.
        device: ``"cpu"`` or ``"gpu"``.
        layout, dtype, ndim: Of the samples; one, or a list with one for each output. What the source gives is checked.
        cuda_stream, use_copy_kernel: Ignored.
        blocking: Wait for a batch to be fed, by another thread, instead of raising IndexError.
        batch: Whether the source gives batches rather than samples.
        repeat_last: Use the batch that was fed last again when no new one is there.
        parallel: Call the source in ``py_num_workers`` processes. It must be a callable with an argument or, with ``batch``, an iterable or a
            generator function, which runs in one of them.
        no_copy: Use the memory that is fed as it is; it must not change until the iteration has run. Parallel sources always do.
        prefetch_queue_depth: Batches that parallel workers compute ahead; by default 1.
        bytes_per_sample_hint: Expected size of a sample, for the shared memory of parallel workers.
        batch_info: Pass a ``BatchInfo`` rather than a number.

    Raises:
        TypeError: a source that is none of these, or does not suit ``parallel``.
        ValueError: arguments that contradict one another.

    When the pipeline runs: what the source raises; RuntimeError for data that are no batch or not as declared; IndexError if nothing was fed.

    >>> import numpy as np
    >>> from torch_ndd.dali import Pipeline
    >>> pipe = Pipeline(batch_size=2)
    >>> with pipe:
    ...     pipe.set_outputs(external_source(lambda info: np.float32([info.idx_in_epoch]), batch=False) + 1)
    >>> [pipe.run()[0].as_array().tolist() for _ in range(2)]
    [[[1.0], [2.0]], [[3.0], [4.0]]]
    """
    if num_outputs is not None and source is None:
        raise ValueError("fn.external_source: num_outputs is for sources; make a node for each input that is fed")
    if num_outputs is not None and name is not None:
        raise RuntimeError("fn.external_source: num_outputs cannot be combined with a name: each output is a node with its own")
    made = _Function(
        source,
        num_outputs,
        cycle=cycle,
        name=name,
        device=device,
        layout=layout,
        dtype=dtype,
        ndim=ndim,
        cuda_stream=cuda_stream,
        use_copy_kernel=use_copy_kernel,
        batch=True if batch is None else batch,
        parallel=parallel,
        no_copy=no_copy,
        prefetch_queue_depth=prefetch_queue_depth,
        bytes_per_sample_hint=bytes_per_sample_hint,
        batch_info=batch_info,
        repeat_last=repeat_last,
        blocking=blocking,
        **kwargs,
    )
    return made()
