# SPDX-License-Identifier: Apache-2.0
"""The part of ``Pipeline`` that runs it: iterations, inputs, epochs, checkpoints and files."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import Self

from .._core.values.batch import Batch
from ..types import type_id
from . import _checkpoint, _dot, _serialize, tensors, types
from ._defining import Defining
from ._errors import wrapped
from ._executor import Executor
from ._graph import Operation
from ._operators import MoveOperation, ReaderOperation
from ._parallel_source import shm_statistics, start_workers
from .data_node import DataNode

PipelineAPIType = types.PipelineAPIType


class Api:
    """The kind of use of a pipeline; a context manager for one use by ``entering``."""

    def __init__(self) -> None:
        self._kind: PipelineAPIType | None = None
        self._depth = 0
        self.checks = True

    def entering(self, kind: PipelineAPIType) -> "Api":
        """Check that the pipeline is not used in two ways. Uses inside others do not count."""
        if not self._depth:
            if self._kind is None:
                self._kind = kind
            elif self._kind is not kind and self.checks:
                raise RuntimeError(
                    f"Mixing pipeline API type. Currently used: {self._kind}, but trying to use: {kind}; "
                    "use either run(), or schedule_run() with share_outputs(), or an iterator"
                )
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1


class Running(Defining):
    """Execution of a pipeline."""

    _api: Api
    _executor: Executor | None
    exec_pipelined: bool

    def _iter_setup(self) -> Any:
        return self.iter_setup if type(self).iter_setup is not Running.iter_setup else None

    def _built(self) -> Executor:
        self.build()
        assert self._executor is not None
        return self._executor

    def _used_as(self, kind: PipelineAPIType) -> Api:
        return self._api.entering(kind)

    def enable_api_check(self, enable: bool) -> None:
        """Turn the check on or off that forbids to mix ``run``, ``schedule_run`` and iterators on one pipeline."""
        self._api.checks = bool(enable)

    # Iterations.

    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[Any, ...]:
        """Run one iteration and return its outputs, a ``TensorListCPU`` or ``TensorListGPU`` each.

        Args:
            cuda_stream: Ignored.
            pipeline_inputs: Batches for inputs without a source, by their names; only with ``prefetch_queue_depth=1`` or ``exec_pipelined=False``.

        Raises:
            StopIteration: a source has no more data; again and again, until :meth:`reset`.
            IndexError: an input was not fed.
            RuntimeError: data that an operator cannot handle. The next run returns the next iteration.
        """
        with self._used_as(PipelineAPIType.BASIC):
            executor = self._built()
            if pipeline_inputs and self._depth > 1:
                raise RuntimeError("Pipeline.run: inputs can be given only with prefetch_queue_depth=1 or exec_pipelined=False; use feed_input")
            for name, data in pipeline_inputs.items():
                self.feed_input(name, data)
            executor.schedule(self._iter_setup())
            return self._deliver(executor)

    def schedule_run(self) -> None:
        """Issue an iteration; the first call issues as many as ``prefetch_queue_depth``. :meth:`share_outputs` returns the results."""
        with self._used_as(PipelineAPIType.SCHEDULED):
            self._built().schedule(self._iter_setup())

    def _prefetch(self) -> None:
        """Issue the first iterations. Iterators of programs for older versions of DALI call it."""
        if self.empty():
            self.schedule_run()

    def share_outputs(self, cuda_stream: Any = None) -> tuple[Any, ...]:
        """Return the outputs of the oldest issued iteration. Raise StopIteration if there is none."""
        with self._used_as(PipelineAPIType.SCHEDULED):
            return self._deliver(self._built())

    def release_outputs(self) -> None:
        """Do nothing but check how the pipeline is used: outputs keep their memory as long as they are used."""
        with self._used_as(PipelineAPIType.SCHEDULED):
            pass

    def outputs(self, cuda_stream: Any = None) -> tuple[Any, ...]:
        """Release the outputs of the last iteration, and return those of the oldest issued one."""
        with self._used_as(PipelineAPIType.SCHEDULED):
            self.release_outputs()
            return self._deliver(self._built())

    def _deliver(self, executor: Executor) -> tuple[Any, ...]:
        batches = executor.deliver()
        if self._output_dtype is not None or self._output_ndim is not None or self._output_layout is not None:
            self._check_outputs(batches)
        return tuple(tensors.of(batch) for batch in batches)

    def _check_outputs(self, batches: list[Batch]) -> None:
        """Raise RuntimeError unless the outputs are as declared."""
        for k, batch in enumerate(batches):
            found = {"output_dtype": type_id(batch.dtype), "output_ndim": batch.ndim, "output_layout": batch.layout or ""}
            for what, value in found.items():
                given = getattr(self, f"_{what}")
                wanted = given[k] if isinstance(given, list) else given
                if wanted is not None and wanted != value and batch.batch_size:
                    raise RuntimeError(
                        f"Pipeline: {what} of output {k} ({self._outputs[k].name!r}) is declared as {wanted}, but the data has {value}"
                    )

    def empty(self) -> bool:
        """Return whether nothing is scheduled that was not delivered."""
        return self._executor is None or self._executor.empty()

    def reset(self) -> None:
        """Begin a new epoch after the end of the data; before it, do nothing."""
        if self._executor is not None:
            self._executor.reset()

    def iter_setup(self) -> None:
        """Prepare an iteration before it is issued: subclasses may feed inputs here, or raise StopIteration to end the epoch."""

    # Inputs.

    def _operation(self, name: str) -> Operation | None:
        return next((one for one in self._operations if one.name == name), None)

    def feed_input(self, data_node: Any, data: Any, layout: str | None = None, cuda_stream: Any = None, use_copy_kernel: bool = False) -> None:
        """Queue a batch for an external source that was defined without a source.

        Args:
            data_node: The node, or its name.
            data: The batch: an array with samples along the first dimension, or a list of arrays.
            layout: Layout of a sample.
            cuda_stream, use_copy_kernel: Ignored.

        Raises:
            KeyError: no operator has this name.
            RuntimeError: the input has a source, or the batch is too large.
        """
        self.build()
        operation = data_node.source if isinstance(data_node, DataNode) else None
        while isinstance(operation, MoveOperation):  # an input's values on another device have its name
            operation = operation.inputs[0].source
        name = operation.name if operation is not None else data_node
        if not isinstance(name, str):
            raise TypeError(f"Pipeline.feed_input takes a DataNode or its name, got {data_node!r}")
        if operation is None:
            operation = self._operation(name)
        if operation is None or operation not in self._operations:
            raise KeyError(f"Pipeline.feed_input: the pipeline has no input {name!r}")
        operation.feed(data, layout)

    def input_feed_count(self, input_name: str) -> int:
        """Return how many batches an input needs before the first run."""
        self.build()
        return self._depth

    # Readers.

    def epoch_size(self, name: str | None = None) -> Any:
        """Return the number of samples of an epoch of a reader, padding included; without a name those of all readers, by name."""
        if name is not None:
            return self.reader_meta(name)["epoch_size_padded"]
        return {key: meta["epoch_size_padded"] for key, meta in self.reader_meta().items()}

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """Return the sizes and shards of a reader; without a name those of all readers, by name.

        The keys are ``epoch_size``, ``epoch_size_padded``, ``number_of_shards``, ``shard_id``, ``pad_last_batch`` and ``stick_to_shard``. Raise
        RuntimeError if there is no reader of this name.
        """
        self.build()
        found = {one.name: one for one in self._operations if isinstance(one, ReaderOperation)}
        if name is None:
            return {key: one.reader.get_metadata() for key, one in found.items()}
        if name not in found:
            raise RuntimeError(f"Pipeline: there is no reader {name!r}; the readers are {', '.join(map(repr, found)) or 'none'}")
        try:
            return found[name].reader.get_metadata()
        except Exception as error:
            raise wrapped(found[name], error) from error

    # Statistics, which are empty.

    def executor_statistics(self) -> dict[str, Any]:
        """Return an empty dict: no statistics are kept."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, Any]:
        """Return the sizes of the memory shared with worker processes."""
        return shm_statistics(self)

    def output_stream(self) -> None:
        """Return None: outputs on a GPU are ready for the current stream."""

    def start_py_workers(self) -> None:
        """Start the processes of parallel sources, before the program starts threads or uses a GPU. Otherwise building starts them."""
        start_workers(self)

    # Checkpoints and files.

    def checkpoint(self, filename: str | None = None) -> bytes:
        """Return the state after the last delivered iteration, and write it to a file if one is given.

        ``Pipeline(..., checkpoint=...)`` of the same definition continues there. Raise RuntimeError without ``enable_checkpointing=True``.
        """
        return _checkpoint.save(self, filename)

    @property
    def _consumed(self) -> Mapping[str, Any]:
        return self._built().state_dict()

    def _restore(self, state: dict[str, Any]) -> None:
        """Continue after the iteration at which :attr:`_consumed` was taken. Raise RuntimeError for a state of another graph."""
        self._built().load_state_dict(state)

    def serialize(self, define_graph: Any = None, filename: str | None = None) -> bytes:
        """Return the graph and the constructor's arguments as bytes for :meth:`deserialize`, and write them to a file if one is given."""
        return _serialize.save(self, define_graph, filename)

    @classmethod
    def deserialize(cls, serialized_pipeline: bytes | None = None, filename: str | None = None, **kwargs: Any) -> Self:
        """Return a built pipeline of a serialized graph; ``kwargs`` override the constructor's arguments.

        Raise ValueError unless either the bytes or a file is given, RuntimeError for anything else than a result of :meth:`serialize` and for a graph
        that cannot be built. Nothing in it is executed, and a graph that writes files is refused.
        """
        return _serialize.load(cls, serialized_pipeline, filename, kwargs)

    def deserialize_and_build(self, serialized_pipeline: bytes) -> None:
        """Define this pipeline by a serialized graph, and build it."""
        _serialize.load_into(self, serialized_pipeline)

    def save_graph_to_dot_file(self, filename: Any, *, show_tensors: bool = False, show_ids: Any = None, use_colors: bool = False) -> None:
        """Write the graph to a file for Graphviz.

        Args:
            filename: The file.
            show_tensors: Draw the results of operators as nodes of their own.
            show_ids: Ignored.
            use_colors: Color operators by device.
        """
        self.build()
        _dot.write(filename, self._operations, self._outputs, show_tensors, use_colors)
