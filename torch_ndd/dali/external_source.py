# SPDX-License-Identifier: Apache-2.0
"""``fn.external_source`` and ``ops.ExternalSource``: batches from the user's Python code, pulled from a source or fed."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from . import types
from ._graph.errors import UnknownArgumentError
from ._graph.graph import current_graph
from ._inputs.parallel import parallel_group
from ._inputs.sources import Group, InputOperation, Source, inspect_source
from .data_node import DataNode, create

__all__ = ["ExternalSource", "external_source"]

_EVERYWHERE = ("preserve", "seed", "blocking")


def _output_value(value: Any, index: int, returns_tuple: bool) -> Any:
    """Return the value of an argument for one output; outputs beyond the end of a list have None."""
    if returns_tuple and isinstance(value, list | tuple):
        return value[index] if index < len(value) else None
    return value


def _check_declarations(title: str, dtype: Any, ndim: Any) -> None:
    for value in dtype if isinstance(dtype, list | tuple) else (dtype,):
        if value is not None and not isinstance(value, types.DALIDataType):
            raise TypeError(f"{title}: dtype must be a DALIDataType or a list of them, got {value!r}")
    for value in ndim if isinstance(ndim, list | tuple) else (ndim,):
        if value is not None and not hasattr(value, "__index__"):
            raise ValueError(f"{title}: ndim must be an int or a list of them, got {value!r}")


# DALI raises different exceptions for arguments that are passed twice.
_RUNTIME_ERROR_IF_TWICE = ("source", "layout", "dtype", "ndim", "cuda_stream", "use_copy_kernel")


_OPTIONS = (
    *("source", "layout", "dtype", "ndim", "cuda_stream", "use_copy_kernel", "batch", "parallel", "no_copy", "prefetch_queue_depth"),
    *("bytes_per_sample_hint", "batch_info"),
)


def _pick_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options among the local variables of a call that are not None."""
    return {key: arguments[key] for key in _OPTIONS if arguments[key] is not None}


class ExternalSource:
    """A node of data from Python: pulled from a source, or fed with ``Pipeline.feed_input``. See :func:`external_source` for the arguments.

    They are passed here or to the call, which adds a node to the graph. ``batch`` is by default the opposite of ``parallel``.

    Raises:
        ValueError, RuntimeError: an argument that is passed twice.
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
            raise ValueError(f"{self._title}: num_outputs cannot be combined with a name: each output is a node with a name of its own")
        self.device = device
        self._num_outputs = num_outputs
        # locals() holds the arguments of this call.
        self._options = _pick_options(locals())
        self._name, self._cycle, self._repeat_last, self._more = name, cycle, bool(repeat_last), kwargs
        self._source = inspect_source(self._title, source, cycle)

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
        own = _pick_options(locals())
        if source is None and cycle is not None:
            raise ValueError(f"{self._title}: cycle needs an iterable source in the same call")
        for key in own:
            if key in self._options:
                kind = RuntimeError if key in _RUNTIME_ERROR_IF_TWICE else ValueError
                raise kind(f"{self._title}: {key} was passed to the constructor too; pass it once")
        if name is not None and self._num_outputs is not None:
            raise RuntimeError(f"{self._title}: num_outputs cannot be combined with a name: each output is a node with a name of its own")
        described = self._source if source is None else inspect_source(self._title, source, cycle)
        if described is not None and (repeat_last or self._repeat_last):
            raise ValueError(f"{self._title}: repeat_last is for inputs that are fed, but this one has a source")
        options = {**self._options, **own}
        options.pop("source", None)
        return _create_nodes(
            self._title,
            described,
            self._num_outputs,
            name if name is not None else self._name,
            self.device,
            repeat_last or self._repeat_last,
            options,
            {**self._more, **kwargs},
        )


def _create_nodes(
    title: str,
    source: Source | None,
    num_outputs: int | None,
    name: str | None,
    device: str,
    repeat_last: bool,
    options: Mapping[str, Any],
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
    parallel = bool(options.get("parallel"))
    batch = bool(options.get("batch", not parallel))
    returns_tuple = num_outputs is not None
    count = 1
    if num_outputs is not None:
        if isinstance(num_outputs, bool) or not hasattr(num_outputs, "__index__"):
            raise TypeError(f"{title}: num_outputs must be an int, got {num_outputs!r}")
        if num_outputs < 1:
            raise ValueError(f"{title}: num_outputs must be positive, got {num_outputs}")
        count = int(num_outputs)
    _check_declarations(title, options.get("dtype"), options.get("ndim"))
    group: Group | None = None
    if parallel:
        group = parallel_group(title, source, batch, returns_tuple, options)
        graph = current_graph()
        if graph is not None and graph.runs_immediately:  # nothing runs ahead: workers would save no time
            group = Group(title, group.source, batch, group.batch_info, returns_tuple)
    else:
        for key in ("prefetch_queue_depth", "bytes_per_sample_hint"):
            if key in options:
                raise ValueError(f"{title}: {key} is for parallel sources; add parallel=True")
        if source is not None:
            group = Group(title, source, batch, bool(options.get("batch_info")), returns_tuple)
    nodes: list[DataNode] = []
    for index in range(count):
        declared = {key: _output_value(options.get(key), index, returns_tuple) for key in ("layout", "dtype", "ndim")}
        attributes = {
            **declared,
            "no_copy": bool(options.get("no_copy")) and not parallel,  # workers write to their memory again
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
            # Weak: the operations hold their group.
            group.operations.append(weakref.ref(node.source))
        nodes.append(node)
    return nodes if returns_tuple else nodes[0]


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
    """Return a node of data from Python: pulled from ``source``, or fed with ``Pipeline.feed_input``.

    A batch is an array whose first dimension counts samples, a list of arrays, which may have different shapes, or a ``TensorListCPU``; a sample is
    an array. Arrays are of NumPy or torch, ``TensorCPU``, or DLPack capsules. Batches may differ in size, up to the pipeline's ``batch_size``.

    Args:
        source: A callable, an iterable, or a generator function without parameters. A callable takes no argument or one: with ``batch`` the number of
            the batch in the epoch, or a ``BatchInfo``, else a ``SampleInfo``. StopIteration ends the epoch. None for an input that is fed.
        num_outputs: Number of outputs: the source returns a tuple of this length, and the result is a list of nodes.
        cycle: What follows the end of an iterable. None, False, ``"no"``: StopIteration from then on. True, ``"quiet"``: it starts again.
            ``"raise"``: StopIteration once, then it starts again.
        name: Name of the input for ``feed_input``; not with ``num_outputs``.
        device: ``"cpu"`` or ``"gpu"``.
        layout, dtype, ndim: Of the samples; one value, or a list with one for each output. The data is checked.
        cuda_stream, use_copy_kernel: Ignored.
        blocking: Wait for a batch to be fed, by another thread, instead of raising IndexError.
        batch: Whether the source returns batches rather than samples.
        repeat_last: Repeat the last batch when no other one was fed.
        parallel: Call the source in ``py_num_workers`` processes. It must be a callable with an argument or, with ``batch``, an iterable or a
            generator function, which runs in one of them.
        no_copy: Use the fed memory without a copy; it must not change until the iteration has run. Parallel sources never copy.
        prefetch_queue_depth: Batches that parallel workers compute ahead; by default 1.
        bytes_per_sample_hint: Expected size of a sample, for the shared memory of parallel workers.
        batch_info: Pass a ``BatchInfo`` rather than a number.

    Raises:
        TypeError: another source, or one that cannot run in parallel.
        ValueError: arguments that contradict one another.

    When the pipeline runs: the exceptions of the source; RuntimeError for data that is not a batch or not as declared; IndexError if nothing was fed.

    >>> import numpy as np
    >>> from torch_ndd.dali import Pipeline
    >>> pipe = Pipeline(batch_size=2)
    >>> with pipe:
    ...     pipe.set_outputs(external_source(lambda info: np.float32([info.idx_in_epoch]), batch=False) + 1)
    >>> [pipe.run()[0].as_array().tolist() for _ in range(2)]
    [[[1.0], [2.0]], [[3.0], [4.0]]]
    """
    if num_outputs is not None and source is None:
        raise ValueError("fn.external_source: num_outputs is for sources; create a node for each input that is fed")
    if num_outputs is not None and name is not None:
        raise RuntimeError("fn.external_source: num_outputs cannot be combined with a name: each output is a node with a name of its own")
    # locals() before any other variable exists: the arguments of this call. The class checks them; only its messages name the function.
    arguments = {**locals(), "batch": batch is None or batch}
    more = arguments.pop("kwargs")
    return _Function(**arguments, **more)()
