# SPDX-License-Identifier: Apache-2.0
"""``Pipeline``: a graph of operators, defined once and run batch by batch."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from .._core.context.device import gpu_count
from .._core.context.rng import RNG
from . import _checkpoint, types
from ._executor import Executor
from ._graph import Operation
from ._policies import OperatorConcurrency, StreamPolicy, checked_list, dtype_of, layout_of, ndim_of
from ._running import Api, Running
from .data_node import DataNode

_SEED_WORDS = 2  # 32 bits each


class Pipeline(Running):
    """A graph of operators that gives batches.

    A graph is defined in one of three ways: by a function with :func:`pipeline_def`; by calling operators in ``with pipeline:`` and
    :meth:`set_outputs`; by ``define_graph`` of a subclass.

    Args:
        batch_size: The largest number of samples in a batch; sources may give fewer.
        num_threads: CPU threads of this pipeline; by default those of :func:`torch_ndd.get_num_threads`.
        device_id: GPU of operators with ``device="gpu"`` or ``"mixed"``; by default the current one.
        seed: Seed of random operators that have none of their own; by default they differ in every run.
        exec_pipelined: False issues one iteration at a time.
        prefetch_queue_depth: Number of iterations issued ahead, or a dict with ``cpu_size`` and ``gpu_size``, of which the larger counts.
        enable_checkpointing: Make :meth:`checkpoint` possible.
        checkpoint: Result of :meth:`checkpoint`, at which to continue.
        py_num_workers, py_start_method, py_callback_pickler: Processes of parallel sources, see ``fn.external_source``.
        output_dtype, output_ndim, output_layout: What the outputs must have: one value for all or a list; None for anything.
        exec_async, bytes_per_sample, set_affinity, max_streams, default_cuda_stream_priority, enable_memory_stats, exec_dynamic,
            experimental_exec_dynamic, stream_policy, concurrency: Kept and not used.

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

    _node_type = DataNode
    _iterator_state: Any = None
    _is_pipeline_def = False

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
        py_start_method: str = "fork",
        py_callback_pickler: Any = None,
        output_dtype: Any = None,
        output_ndim: Any = None,
        output_layout: Any = None,
        exec_dynamic: bool | None = None,
        experimental_exec_dynamic: bool | None = None,
        stream_policy: Any = None,
        concurrency: Any = None,
    ) -> None:
        self._arguments: dict[str, Any] = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        for key, value in (("max_streams", max_streams), ("default_cuda_stream_priority", default_cuda_stream_priority)):
            if value is not None:
                warnings.warn(f"Pipeline: the argument {key!r} is deprecated and has no effect", DeprecationWarning, stacklevel=2)
        if experimental_exec_dynamic is not None:
            warnings.warn("Pipeline: the argument 'experimental_exec_dynamic' is deprecated; use 'exec_dynamic'", DeprecationWarning, stacklevel=2)
            exec_dynamic = experimental_exec_dynamic if exec_dynamic is None else exec_dynamic
        if seed is not None and seed < 0:
            warnings.warn(f"Pipeline: a seed must not be negative; {seed} counts as none", stacklevel=2)
            seed = None
        if isinstance(prefetch_queue_depth, Mapping):
            sizes = [prefetch_queue_depth["cpu_size"], prefetch_queue_depth["gpu_size"]]
        elif isinstance(prefetch_queue_depth, int):
            sizes = [prefetch_queue_depth, prefetch_queue_depth]
        else:
            raise TypeError(f"Pipeline: prefetch_queue_depth must be an int or a dict with cpu_size and gpu_size, got {prefetch_queue_depth!r}")
        if py_callback_pickler is not None and py_start_method == "fork":
            raise ValueError('Pipeline: py_callback_pickler is for py_start_method="spawn"')
        self._queue_sizes = sizes
        self._depth = max(sizes) if exec_pipelined else 1
        self._seed, self._exec_dynamic = int(seed) if isinstance(seed, bool) else seed, exec_dynamic
        self._output_dtype = checked_list("output_dtype", output_dtype, dtype_of)
        self._output_ndim = checked_list("output_ndim", output_ndim, ndim_of)
        self._output_layout = checked_list("output_layout", output_layout, layout_of)
        self._checkpoint = checkpoint
        self._branches = None
        self._numbers = 0
        self._made: list[Operation] = []  # every operation of the definition
        self._given_outputs: tuple[Any, ...] | None = None
        self._outputs: list[DataNode] = []
        self._sinks: list[DataNode] = []
        self._operations: list[Operation] = []  # those that are not pruned, once built
        self._executor: Executor | None = None
        self._building = False
        self._api = Api()

    def _configure(self, stored: Mapping[str, Any]) -> None:
        """Begin anew, with stored arguments of the constructor where its own are the default ones."""
        parameters = inspect.signature(Pipeline.__init__).parameters
        given = {key: value for key, value in self._arguments.items() if value != parameters[key].default}
        Pipeline.__init__(self, **{**stored, **given})

    # What was given.

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
        """Number of the GPU."""
        given = self._arguments["device_id"]
        return None if given == types.CPU_ONLY_DEVICE_ID else given

    @property
    def seed(self) -> int | None:
        """Seed of random operators; None for another one in each run."""
        return self._seed

    @property
    def exec_pipelined(self) -> bool:
        """Whether iterations are issued ahead."""
        return self._arguments["exec_pipelined"]

    @property
    def exec_async(self) -> bool:
        """The constructor's argument, which has no effect."""
        return self._arguments["exec_async"]

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
        """Number of iterations issued ahead, as given."""
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
    def set_affinity(self) -> bool:
        """The constructor's argument, which has no effect."""
        return self._arguments["set_affinity"]

    @property
    def max_streams(self) -> int:
        """The constructor's argument, which has no effect."""
        return -1 if self._arguments["max_streams"] is None else self._arguments["max_streams"]

    @property
    def default_cuda_stream_priority(self) -> int:
        """The constructor's argument, which has no effect."""
        return self._arguments["default_cuda_stream_priority"] or 0

    @property
    def enable_memory_stats(self) -> bool:
        """The constructor's argument, which has no effect."""
        return self._arguments["enable_memory_stats"]

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
        """How these processes start: ``"fork"`` or ``"spawn"``."""
        return self._arguments["py_start_method"]

    @property
    def stream_policy(self) -> StreamPolicy | None:
        """The constructor's argument, which has no effect."""
        return self._arguments["stream_policy"]

    @property
    def concurrency(self) -> OperatorConcurrency | None:
        """The constructor's argument, which has no effect."""
        return self._arguments["concurrency"]

    def __del__(self) -> None:
        """End the processes of parallel sources, and wait for their end, so that whoever looks for processes finds none."""
        pool = self.__dict__.get("_py_pool")
        if pool is not None and not pool.ended:
            pool.close_uninterrupted()

    # Building.

    def _gpu(self) -> int | None:
        """Return the GPU to use, if the graph needs one and there is one."""
        needed = any(one.device != "cpu" for one in self._operations)
        return self.device_id if needed and gpu_count() else None

    def build(self) -> None:
        """Check the graph, drop what no output needs, and start the readers. Optional: whatever runs the pipeline builds it.

        Raises:
            ValueError: no batch size, no outputs, or sizes that are not positive.
            TypeError: an output that is neither a node nor a constant, or a size that is no integer.
            RuntimeError: two operators of one name, a missing argument, or readers that find nothing.
        """
        if self._executor is not None or self._building:
            return
        self._building = True
        try:
            self._build()
        finally:
            self._building = False
        if self._checkpoint is not None:
            assert self._executor is not None
            self._iterator_state = _checkpoint.restore(self._executor, self.enable_checkpointing, self._checkpoint)

    def _build(self) -> None:
        self._check_sizes()
        self._define()
        self._seed_operations()
        for one in self._operations:
            one.prepare(self)
        self._executor = Executor(self, self._operations, self._outputs)
        if self.enable_checkpointing:
            self._executor.keep_states()

    def _check_sizes(self) -> None:
        size, threads = self.max_batch_size, self.num_threads
        for name, value in (("batch_size", size), ("num_threads", threads)):
            if value is not None and not hasattr(value, "__index__"):
                raise TypeError(f"Pipeline: {name} must be an int, got {value!r}")
        if size is None or size < 1:
            raise ValueError(f"Pipeline: batch_size must be positive, got {size}")
        if threads is not None and threads < 1:
            raise ValueError(f"Pipeline: num_threads must be positive, got {threads}")
        if min(self._queue_sizes) < 1:
            raise ValueError(f"Pipeline: prefetch_queue_depth must be positive, got {self.prefetch_queue_depth}")

    def _seed_operations(self) -> None:
        """Give random operators their seeds: by their places among all operators of the graph."""
        generator = RNG(self._seed) if self._seed is not None else RNG()
        for place, one in enumerate(self._operations):
            if not one.random or one.seed is not None:
                continue
            if one.twin is not None:
                one.seed = one.twin.seed
                continue
            low, high = generator.at(_SEED_WORDS * place).draw(_SEED_WORDS).tolist()
            one.seed = low | (high & 0x7FFFFFFF) << 32

    @property
    def num_outputs(self) -> int:
        """Number of outputs; builds the pipeline."""
        self.build()
        return len(self._outputs)

    def output_dtype(self) -> list[Any]:
        """Return the declared types of the outputs, None for undeclared ones; builds the pipeline."""
        return self._for_outputs(self._output_dtype)

    def output_ndim(self) -> list[Any]:
        """Return the declared numbers of dimensions of the outputs, None for undeclared ones; builds the pipeline."""
        return self._for_outputs(self._output_ndim)

    def output_layout(self) -> list[Any]:
        """Return the declared layouts of the outputs, None for undeclared ones; builds the pipeline."""
        return self._for_outputs(self._output_layout)

    def _for_outputs(self, given: Any) -> list[Any]:
        self.build()
        return list(given) if isinstance(given, list) else [given] * len(self._outputs)
