# SPDX-License-Identifier: Apache-2.0
"""``Pipeline``: a graph of operators, defined once and run batch by batch."""

import inspect
import types as _types
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import Self

from ..._core.context.device import gpu_count
from ..._core.native.default_device import ignore_default_device
from ..._core.process.files import read_regular
from .. import tensors, types
from .._graph import dot
from .._graph.errors import wrap_error
from .._graph.graph import Graph, Settings, definitions
from .._graph.operations import ReaderOperation
from .._inputs.parallel import memory_statistics, start_pool
from .._inputs.sources import find_input
from .._inputs.worker_pool import StartMethod, WorkerPool
from .._run import checkpoint as checkpoints
from .._run.declarations import OutputDeclarations
from .._run.executor import Executor
from .._run.usage import Usage
from .._serialization import graphs
from ..data_node import DataNode, as_node
from ..types import PipelineAPIType


def _argument(name: str, description: str) -> Any:
    """Return a property that is an argument of the constructor."""
    return property(lambda pipeline: pipeline._arguments[name], doc=description)


class Pipeline:
    """A graph of operators that returns batches.

    A graph is defined in one of three ways: by a function with :func:`pipeline_def`; by calling operators in ``with pipeline:`` and
    :meth:`set_outputs`; by ``define_graph`` of a subclass.

    Args:
        batch_size: The largest number of samples in a batch; sources may give fewer.
        num_threads: CPU threads of this pipeline; by default those of :func:`torch_ndd.get_num_threads`.
        device_id: GPU of operators with ``device="gpu"`` or ``"mixed"``; by default the current one.
        seed: Seed of random operators without a ``seed``; by default the numbers differ in every run.
        exec_pipelined: False issues one iteration at a time.
        prefetch_queue_depth: Number of iterations issued ahead, or a dict with ``cpu_size`` and ``gpu_size``, of which the larger counts.
        enable_checkpointing: Make :meth:`checkpoint` possible.
        checkpoint: Result of :meth:`checkpoint`, after which to continue.
        py_num_workers, py_start_method, py_callback_pickler: Worker processes of parallel sources, see ``fn.external_source``.
        output_dtype, output_ndim, output_layout: Required properties of the outputs: one value for all or a list; None for anything.
        exec_async, bytes_per_sample, set_affinity, max_streams, default_cuda_stream_priority, enable_memory_stats, exec_dynamic,
            experimental_exec_dynamic, stream_policy, concurrency: Stored without effect.

    Raises:
        TypeError: an argument of another type.
        ValueError: a negative dimension, ``NO_TYPE``, or a pickler with ``py_start_method="fork"``.

    >>> from torch_ndd.dali import fn
    >>> pipe = Pipeline(batch_size=2, num_threads=1, seed=7)
    >>> with pipe:
    ...     pipe.set_outputs(fn.random.uniform(range=[0, 1], shape=[3]))
    >>> pipe.run()[0].shape()
    [(3,), (3,)]
    """

    _is_pipeline_def = False
    _graph_type: ClassVar[type[Graph]] = Graph

    def __init__(
        self,
        batch_size: int | None = None,
        num_threads: int | None = None,
        device_id: int | None = None,
        seed: int | None = None,
        exec_pipelined: bool = True,
        prefetch_queue_depth: int | Mapping[str, int] = 2,
        exec_async: bool = True,
        bytes_per_sample: int = 0,
        set_affinity: bool = False,
        max_streams: int | None = None,
        default_cuda_stream_priority: int | None = None,
        *,
        enable_memory_stats: bool = False,
        enable_checkpointing: bool = False,
        checkpoint: bytes | None = None,
        py_num_workers: int = 1,
        py_start_method: StartMethod = "fork",
        py_callback_pickler: Any = None,
        output_dtype: Any = None,
        output_ndim: Any = None,
        output_layout: Any = None,
        exec_dynamic: bool | None = None,
        experimental_exec_dynamic: bool | None = None,
        stream_policy: Any = None,
        concurrency: Any = None,
    ) -> None:
        # All arguments, for serialization and the properties below; locals() before any other variable exists.
        self._arguments: dict[str, Any] = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        for key, value in (("max_streams", max_streams), ("default_cuda_stream_priority", default_cuda_stream_priority)):
            if value is not None:
                warnings.warn(f"Pipeline: the argument {key!r} is deprecated and has no effect", DeprecationWarning, stacklevel=2)
        if experimental_exec_dynamic is not None:
            warnings.warn("Pipeline: the argument 'experimental_exec_dynamic' is deprecated; use 'exec_dynamic'", DeprecationWarning, stacklevel=2)
            exec_dynamic = experimental_exec_dynamic if exec_dynamic is None else exec_dynamic
        if seed is not None and seed < 0:
            warnings.warn(f"Pipeline: seed must not be negative; {seed} is ignored", stacklevel=2)
            seed = None
        if isinstance(prefetch_queue_depth, Mapping):
            sizes: list[Any] = [prefetch_queue_depth.get("cpu_size"), prefetch_queue_depth.get("gpu_size")]
        else:
            sizes = [prefetch_queue_depth, prefetch_queue_depth]
        if not all(isinstance(size, int) for size in sizes):
            raise TypeError(f"Pipeline: prefetch_queue_depth must be an int or a dict with cpu_size and gpu_size, got {prefetch_queue_depth!r}")
        if py_callback_pickler is not None and py_start_method == "fork":
            raise ValueError('Pipeline: py_callback_pickler is for py_start_method="spawn"')
        self._queue_sizes = sizes
        # With two queue sizes the larger one counts: all devices share a queue here.
        self._depth = max(sizes) if exec_pipelined else 1  # iterations issued ahead
        self._seed, self._exec_dynamic = int(seed) if isinstance(seed, bool) else seed, exec_dynamic
        self._declarations = OutputDeclarations(output_dtype, output_ndim, output_layout)
        self._graph = self._graph_type(Settings(self.max_batch_size, num_threads, self.device_id, self._seed, self.enable_checkpointing), self)
        self._output_values: tuple[Any, ...] | None = None  # of set_outputs: nodes and constants
        self._usage = Usage()
        self._py_pool: WorkerPool | None = None  # processes of parallel sources
        self._executor: Executor | None = None  # once built
        self._building = False
        self._checkpoint = checkpoint
        self._iterator_state: Any = None  # the place of an iterator in its epoch, from a checkpoint

    # The constructor's arguments.

    exec_pipelined = _argument("exec_pipelined", "Whether iterations are issued ahead.")
    exec_async = _argument("exec_async", "The constructor's argument, which has no effect.")
    set_affinity = _argument("set_affinity", "The constructor's argument, which has no effect.")
    enable_memory_stats = _argument("enable_memory_stats", "The constructor's argument, which has no effect.")
    stream_policy = _argument("stream_policy", "The constructor's argument, which has no effect.")
    concurrency = _argument("concurrency", "The constructor's argument, which has no effect.")

    @property
    def max_batch_size(self) -> int:
        """The largest number of samples in a batch."""
        return self._arguments["batch_size"]

    @property
    def batch_size(self) -> int:
        """Deprecated name of :attr:`max_batch_size`."""
        warnings.warn("Pipeline.batch_size is deprecated; use max_batch_size", DeprecationWarning, stacklevel=2)
        return self.max_batch_size

    @property
    def num_threads(self) -> int | None:
        """Number of CPU threads."""
        return self._arguments["num_threads"]

    @property
    def device_id(self) -> int | None:
        """Index of the GPU."""
        device = self._arguments["device_id"]
        return None if device == types.CPU_ONLY_DEVICE_ID else device

    @property
    def seed(self) -> int | None:
        """Seed of random operators; None for a different seed in each run."""
        return self._seed

    @property
    def exec_dynamic(self) -> bool | None:
        """The constructor's argument, which has no effect; by default True, or None if other execution options were given."""
        if self._exec_dynamic is not None:
            return bool(self._exec_dynamic)
        return True if self.exec_pipelined and self.exec_async and not self.exec_separated else None

    @property
    def exec_separated(self) -> bool:
        """Whether there are two queue sizes."""
        return isinstance(self._arguments["prefetch_queue_depth"], Mapping)

    @property
    def prefetch_queue_depth(self) -> int | Mapping[str, int]:
        """The constructor's argument: number of iterations issued ahead."""
        return self._arguments["prefetch_queue_depth"]

    @property
    def cpu_queue_size(self) -> int:
        """Number of iterations issued ahead."""
        return self._queue_sizes[0]

    @property
    def gpu_queue_size(self) -> int:
        """Number of iterations issued ahead."""
        return self._queue_sizes[1]

    @property
    def max_streams(self) -> int:
        """The constructor's argument, which has no effect."""
        return -1 if self._arguments["max_streams"] is None else self._arguments["max_streams"]

    @property
    def default_cuda_stream_priority(self) -> int:
        """The constructor's argument, which has no effect."""
        return self._arguments["default_cuda_stream_priority"] or 0

    @property
    def enable_checkpointing(self) -> bool:
        """Whether :meth:`checkpoint` is possible."""
        return bool(self._arguments["enable_checkpointing"])

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether the pipeline continues at a checkpoint."""
        return self._checkpoint is not None

    @property
    def py_num_workers(self) -> int:
        """Number of processes of parallel sources."""
        return self._arguments["py_num_workers"]

    @property
    def py_start_method(self) -> str:
        """Start method of these processes: ``"fork"`` or ``"spawn"``."""
        return self._arguments["py_start_method"]

    def __del__(self) -> None:
        """End the processes of parallel sources and wait for them, so a program that looks for its processes afterwards finds none."""
        pool = self.__dict__.get("_py_pool")  # the constructor may have failed
        if pool is not None and not pool.ended:
            pool.close_uninterrupted()

    # Definition.

    @staticmethod
    def current() -> "Pipeline | None":
        """Return the pipeline that is being defined in this thread."""
        return definitions.stack[-1].pipeline if definitions.stack else None

    @staticmethod
    def push_current(pipeline: "Pipeline") -> "Pipeline | None":
        """Make a pipeline the current one, and return the one before. ``with pipeline:`` does this and :meth:`pop_current`."""
        before = Pipeline.current()
        definitions.push(pipeline, pipeline._graph)
        return before

    @staticmethod
    def pop_current() -> None:
        """Make the pipeline before the current one the current one again."""
        definitions.stack.pop()

    def __enter__(self) -> Self:
        definitions.push(self, self._graph)
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: _types.TracebackType | None) -> None:
        Pipeline.pop_current()

    def define_graph(self) -> Any:
        """Define the graph and return its outputs: a node, or a tuple or list of nodes. For subclasses; called once, by :meth:`build`."""
        raise NotImplementedError("Pipeline: the graph is not defined: call set_outputs, override define_graph, or use pipeline_def")

    def set_outputs(self, *output_data_nodes: Any) -> None:
        """Set the outputs: nodes, or anything that ``types.Constant`` takes. A later call replaces them."""
        self._output_values = output_data_nodes

    def add_sink(self, edge: DataNode) -> None:
        """Run the operator of a node although nothing uses its results."""
        self._graph.sinks.append(edge)

    def _define(self) -> Graph:
        """Return the complete graph."""
        if self._graph.operations:
            return self._graph
        if self._output_values is None:
            with self:
                outputs = self.define_graph()
            self._output_values = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        if not self._output_values:
            raise ValueError("Pipeline: there are no outputs: call set_outputs or return nodes from the definition")
        with self:
            nodes = [as_node(value, f"Pipeline: output {k}") for k, value in enumerate(self._output_values)]
        for k, node in enumerate(nodes):
            if node.dtype in (types.DATA_TYPE, types.IMAGE_TYPE, types.INTERP_TYPE):
                raise TypeError(f"Pipeline: output {k} is a member of an enumeration; convert it to a number with fn.cast or int()")
        self._declarations.check_count(len(nodes))
        self._graph.complete(nodes)
        return self._graph

    # Building.

    def build(self) -> None:
        """Check the graph, drop what no output needs, and start the readers. Optional: every use builds the pipeline.

        Raises:
            ValueError: no batch size, no outputs, or sizes that are not positive.
            TypeError: an output that is neither a node nor a constant, or a size or ``device_id`` that is not an integer.
            RuntimeError: a ``device_id`` without a GPU of that number, two operators of one name, a missing argument, or readers that find nothing.
        """
        # Building may ask for something that builds, such as the number of outputs.
        if self._executor is not None or self._building:
            return
        self._building = True
        try:
            self._build()
        finally:
            self._building = False
        if self._checkpoint is not None:
            assert self._executor is not None
            self._iterator_state = checkpoints.restore(self._executor, self.enable_checkpointing, self._checkpoint)

    @ignore_default_device
    def _build(self) -> None:
        self._check_settings()
        graph = self._define()
        graph.seed_operations()
        self._start_pool()  # before readers start threads, which a forked process would lose
        for operation in graph.operations:
            operation.prepare(graph)
        self._executor = Executor(graph, self._depth)
        if self.enable_checkpointing:
            self._executor.keep_states()

    def _check_settings(self) -> None:
        size, threads, device = self.max_batch_size, self.num_threads, self.device_id
        for name, value in (("batch_size", size), ("num_threads", threads), ("device_id", device)):
            if value is not None and not hasattr(value, "__index__"):
                raise TypeError(f"Pipeline: {name} must be an int, got {value!r}")
        if size is None or size < 1:
            raise ValueError(f"Pipeline: batch_size must be positive, got {size}")
        if threads is not None and threads < 1:
            raise ValueError(f"Pipeline: num_threads must be positive, got {threads}")
        if device is not None and (device < 0 or 0 < gpu_count() <= device):
            raise RuntimeError(f"Pipeline: device_id must be the number of a GPU, from 0 to {max(gpu_count(), 1) - 1}, or None, got {device}")
        if min(self._queue_sizes) < 1:
            raise ValueError(f"Pipeline: prefetch_queue_depth must be positive, got {self.prefetch_queue_depth}")

    def _require_executor(self) -> Executor:
        self.build()
        assert self._executor is not None
        return self._executor

    @property
    def num_outputs(self) -> int:
        """Number of outputs; builds the pipeline."""
        self.build()
        return len(self._graph.outputs)

    def output_dtype(self) -> list[Any]:
        """Return the declared types of the outputs, None for undeclared ones; builds the pipeline."""
        return self._declarations.for_outputs("output_dtype", self.num_outputs)

    def output_ndim(self) -> list[Any]:
        """Return the declared numbers of dimensions of the outputs, None for undeclared ones; builds the pipeline."""
        return self._declarations.for_outputs("output_ndim", self.num_outputs)

    def output_layout(self) -> list[Any]:
        """Return the declared layouts of the outputs, None for undeclared ones; builds the pipeline."""
        return self._declarations.for_outputs("output_layout", self.num_outputs)

    # Iterations.

    def enable_api_check(self, enable: bool) -> None:
        """Allow or forbid mixing ``run``, ``schedule_run`` and iterators on one pipeline."""
        self._usage.checks = bool(enable)

    def _use_as(self, kind: PipelineAPIType) -> Usage:
        return self._usage.enter(kind)

    def _iter_setup_override(self) -> Any:
        return self.iter_setup if type(self).iter_setup is not Pipeline.iter_setup else None

    @ignore_default_device
    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[Any, ...]:
        """Run one iteration and return its outputs, a ``TensorListCPU`` or ``TensorListGPU`` each.

        Args:
            cuda_stream: Ignored.
            pipeline_inputs: Batches for inputs without a source, by their names; only with ``prefetch_queue_depth=1`` or ``exec_pipelined=False``.

        Raises:
            StopIteration: a source has no more data; every run raises it until :meth:`reset`.
            IndexError: an input was not fed.
            RuntimeError: data that an operator cannot handle. The next run returns the next iteration.
        """
        with self._use_as(PipelineAPIType.BASIC):
            executor = self._require_executor()
            if pipeline_inputs and self._depth > 1:
                raise RuntimeError("Pipeline.run: inputs can be given only with prefetch_queue_depth=1 or exec_pipelined=False; use feed_input")
            for name, data in pipeline_inputs.items():
                self.feed_input(name, data)
            executor.schedule(self._iter_setup_override())
            return self._deliver(executor)

    @ignore_default_device
    def schedule_run(self) -> None:
        """Issue an iteration; the first call issues as many as ``prefetch_queue_depth``. :meth:`share_outputs` returns the results."""
        with self._use_as(PipelineAPIType.SCHEDULED):
            self._require_executor().schedule(self._iter_setup_override())

    def _prefetch(self) -> None:
        """Issue the first iterations. Iterators of programs for older versions of DALI call it."""
        if self.empty():
            self.schedule_run()

    @ignore_default_device
    def share_outputs(self, cuda_stream: Any = None) -> tuple[Any, ...]:
        """Return the outputs of the oldest issued iteration. Raise StopIteration if there is none."""
        with self._use_as(PipelineAPIType.SCHEDULED):
            return self._deliver(self._require_executor())

    def release_outputs(self) -> None:
        """Do nothing but check how the pipeline is used: outputs keep their memory as long as they are referenced."""
        with self._use_as(PipelineAPIType.SCHEDULED):
            pass

    @ignore_default_device
    def outputs(self, cuda_stream: Any = None) -> tuple[Any, ...]:
        """Release the outputs of the last iteration, and return those of the oldest issued one."""
        self.release_outputs()
        return self.share_outputs()

    def _deliver(self, executor: Executor) -> tuple[Any, ...]:
        batches = executor.deliver()
        self._declarations.check(self._graph.outputs, batches)
        return tuple(tensors.as_tensor_list(batch) for batch in batches)

    def empty(self) -> bool:
        """Return whether all scheduled iterations were delivered."""
        return self._executor is None or self._executor.empty()

    def reset(self) -> None:
        """Begin a new epoch after the end of the data; before it, do nothing."""
        if self._executor is not None:
            self._executor.reset()

    def iter_setup(self) -> None:
        """Prepare an iteration before it is issued: subclasses may feed inputs here, or raise StopIteration to end the epoch."""

    # Inputs.

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
        find_input(self._graph, data_node).feed(data, layout)

    def input_feed_count(self, input_name: str) -> int:
        """Return how many batches an input needs before the first run."""
        self.build()
        return self._depth

    def start_py_workers(self) -> None:
        """Start the processes of parallel sources, before the program starts threads or uses a GPU. Otherwise building starts them."""
        if not self._graph.created:
            self.build()
        self._start_pool()

    def _start_pool(self) -> None:
        if self._py_pool is None:
            self._py_pool = start_pool(
                self,
                self._graph.operations or self._graph.created,
                self.max_batch_size,
                self.py_num_workers,
                self.py_start_method,
                self._arguments["py_callback_pickler"],
            )

    def external_source_shm_statistics(self) -> dict[str, Any]:
        """Return the sizes of the memory shared with worker processes."""
        return memory_statistics(self._py_pool)

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
        readers = {operation.name: operation for operation in self._graph.operations if isinstance(operation, ReaderOperation)}
        if name is None:
            return {key: operation.reader.get_metadata() for key, operation in readers.items()}
        if name not in readers:
            raise RuntimeError(f"Pipeline: there is no reader {name!r}; the readers are {', '.join(map(repr, readers)) or 'none'}")
        try:
            return readers[name].reader.get_metadata()
        except Exception as error:
            raise wrap_error(readers[name], error) from error

    # Statistics, which are empty.

    def executor_statistics(self) -> dict[str, Any]:
        """Return an empty dict: no statistics are kept."""
        return {}

    def output_stream(self) -> None:
        """Return None: outputs on a GPU are ready for the current stream."""

    # Checkpoints and files.

    def checkpoint(self, filename: str | None = None) -> bytes:
        """Return the state after the last delivered iteration, and write it to a file if one is given.

        ``Pipeline(..., checkpoint=...)`` of the same definition continues there. Raise RuntimeError without ``enable_checkpointing=True``.
        """
        return self._save_checkpoint(filename)

    def _save_checkpoint(self, filename: str | None = None, iterator: dict[str, Any] | None = None) -> bytes:
        if not self.enable_checkpointing:
            raise RuntimeError("Pipeline.checkpoint: checkpointing is not enabled; create the pipeline with enable_checkpointing=True")
        return checkpoints.save(self._require_executor(), filename, iterator)

    def serialize(self, define_graph: Any = None, filename: str | None = None) -> bytes:
        """Return the graph and the constructor's arguments as bytes for :meth:`deserialize`, and write them to a file if one is given.

        The pipeline need not be built: its readers' files are not opened. Raise RuntimeError for a graph with Python functions, operators that write
        files, or arguments that JSON cannot represent.
        """
        if define_graph is not None:
            with self:
                outputs = define_graph()
            self.set_outputs(*(outputs if isinstance(outputs, tuple | list) else (outputs,)))
        return graphs.save(self._define(), self._arguments, filename)

    @classmethod
    def deserialize(cls, serialized_pipeline: bytes | None = None, filename: str | None = None, **kwargs: Any) -> Self:
        """Return a built pipeline of a serialized graph; ``kwargs`` override the constructor's arguments.

        Raise ValueError unless either the bytes or a file is given, RuntimeError for anything else than a result of :meth:`serialize` and for a graph
        that cannot be built. Nothing in it is executed, and a graph that writes files is refused.
        """
        if (serialized_pipeline is None) == (filename is None):
            raise ValueError("Pipeline.deserialize: give either serialized_pipeline or filename")
        content = graphs.read(serialized_pipeline if filename is None else read_regular(filename))
        try:
            pipeline = cls(**{**graphs.read_arguments(content), **kwargs})
        except graphs.REFUSALS as error:
            # The user's own arguments may be the cause.
            cls(**kwargs)  # raises the user's error, if these arguments cause it
            raise graphs.argument_error("deserialize", error) from error
        pipeline._define_and_build(content, "deserialize")
        return pipeline

    def deserialize_and_build(self, serialized_pipeline: bytes) -> None:
        """Define this pipeline by a serialized graph, and build it.

        Arguments that the constructor was not given, or given with their default, are those that were stored.
        """
        content = graphs.read(serialized_pipeline)
        try:
            defaults = inspect.signature(Pipeline.__init__).parameters
            own = {key: value for key, value in self._arguments.items() if value != defaults[key].default}
            Pipeline.__init__(self, **{**graphs.read_arguments(content), **own})
        except graphs.REFUSALS as error:
            raise graphs.argument_error("deserialize_and_build", error) from error
        self._define_and_build(content, "deserialize_and_build")

    def _define_and_build(self, content: Mapping[str, Any], method: str) -> None:
        with self:
            outputs, self._graph.sinks = graphs.define(content)
        self.set_outputs(*outputs)
        try:
            self.build()
        except RuntimeError:
            raise
        except graphs.REFUSALS as error:
            raise RuntimeError(f"Pipeline.{method}: the pipeline cannot be built: {graphs.describe_error(error)}") from error

    def save_graph_to_dot_file(self, filename: Any, *, show_tensors: bool = False, show_ids: Any = None, use_colors: bool = False) -> None:
        """Write the graph to a file for Graphviz.

        Args:
            filename: The file.
            show_tensors: Draw the results of operators as nodes of their own.
            show_ids: Ignored.
            use_colors: Color operators by device.
        """
        self.build()
        dot.write(filename, self._graph.operations, self._graph.outputs, show_tensors, use_colors)
