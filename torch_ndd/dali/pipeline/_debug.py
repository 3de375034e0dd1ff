# SPDX-License-Identifier: Apache-2.0
"""Debug mode: the definition runs in every iteration, and each operator when the definition calls it, so nodes hold data."""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from ..._core.context.context import EvalContext
from ..._core.context.rng import RNG
from ..._core.values.batch import Batch
from ..._core.work.call_sites import fixed
from .. import tensors, types
from .._graph.errors import wrap_error
from .._graph.graph import Graph, Node, Operation, Settings, Step, draw_seed
from .._graph.operations import ReaderOperation
from .._inputs.feeding import import_batch, is_array, is_batch
from ..data_node import DataNode, as_node, create
from ._pipeline import Pipeline


class DataNodeDebug(DataNode):
    """A result of an operator in debug mode, with its data."""

    batch: Batch | None = None

    def get(self) -> Any:
        """Return the data: a ``TensorListCPU`` or ``TensorListGPU``."""
        return tensors.as_tensor_list(self.require_batch())

    def shape(self, *, dtype: Any = None, device: str = "cpu") -> Any:
        """Return the shapes of the samples, a list of tuples."""
        del dtype, device
        return self.require_batch().shape

    def require_batch(self) -> Batch:
        """Return the data as a Batch. Raise RuntimeError if the operator has not run."""
        if self.batch is None:
            raise RuntimeError(f"DataNode {self.name!r} has no data")
        return self.batch

    def __repr__(self) -> str:
        return f"DataNodeDebug(\n    name={self.name!r},\n    data={'none' if self.batch is None else self.get()})"

    __str__ = __repr__


class DataOperation(Operation):
    """A batch that the definition passes in place of a node: a list of arrays, or a tensor list."""

    takes_empty = True
    batch: Batch

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Return the batch."""
        return (self.batch,)


class DebugGraph(Graph):
    """A graph whose operations run when the definition creates them.

    Operations are matched across iterations by their place, the number of the call in the definition. :attr:`operations` has the operation of each
    place: sources and readers are those of the first iteration, because they have a position in their data; all others are the latest ones.

    Attributes:
        step: The current iteration.
    """

    node_type = DataNodeDebug
    runs_immediately = True

    def __init__(self, settings: Settings, pipeline: Any) -> None:
        super().__init__(settings, pipeline)
        self.step = Step(0, 0, 0, 0)
        self._seeds = RNG(settings.seed)
        self._place = 0
        self._size: int | None = None  # samples of this iteration, once an operation has determined them
        self._fed: dict[str, list[tuple[Any, Any]]] = {}  # before the first iteration: inputs do not exist yet

    def begin(self) -> None:
        """Begin an iteration."""
        self._place, self._size = 0, None
        self.restart_numbers()
        self.step.batch_size = self.settings.max_batch_size

    def end(self) -> None:
        """Check that the iteration called as many operators as the first one."""
        if self._place != len(self.operations):
            self._refuse(f"{self._place} operators were called")

    def feed(self, name: str, data: Any, layout: str | None) -> None:
        """Queue a batch for an input that the first iteration will define."""
        self._fed.setdefault(name, []).append((data, layout))

    def _refuse(self, problem: str) -> NoReturn:
        raise RuntimeError(f"Debug mode: the definition must call the same operators in the same order in every run, but {problem}")

    def add(self, operation: Operation) -> None:
        """Run an operation, and store the results in its nodes."""
        # The operators of the first run are the reference: a source or reader is found again only by its place.
        # The operators of the first run are the list that later runs are compared with.
        new = self._place == len(self.operations)
        if new and self.step.number:
            self._refuse(f"{operation.title} is called in addition to the {self._place} operators of the first run")
        before = operation if new else self.operations[self._place]
        if before.schema != operation.schema or len(before.outputs) != len(operation.outputs):
            self._refuse(f"call {self._place} is {operation.title} instead of {before.title}")
        # Sources and readers go on from the last run, so the operation of the first run runs again; others are new in each run.
        keeps_position = operation.pulls or isinstance(operation, ReaderOperation)
        runs = before if keeps_position else operation
        if operation.random and operation.seed is None:
            operation.seed = operation.twin.seed if operation.twin is not None else draw_seed(self._seeds, self._place)
        if new or not keeps_position:
            runs.prepare(self)
        if new:
            self.operations.append(operation)
            for data, layout in self._fed.pop(operation.name, []):
                operation.feed(data, layout)
        else:
            self.operations[self._place] = runs
        self._place += 1
        for node, batch in zip(operation.outputs, self._run(operation, runs), strict=True):
            assert isinstance(node, DataNodeDebug)
            node.batch = batch
            node.dtype, node.ndim, node.layout = types.to_dali_type(batch.dtype), batch.ndim, batch.layout

    def adopt(self, title: str, value: Any) -> Any:
        """Return a node of a batch, and for a list of tensor lists, which are input sets, a list of nodes; other values unchanged."""
        if isinstance(value, list | tuple) and value and all(is_batch(item) for item in value):
            return [self.adopt(title, item) for item in value]
        if not is_batch(value) and not (isinstance(value, list | tuple) and value and all(is_array(item) for item in value)):
            # Anything else becomes a constant, or is rejected, as in other pipelines.
            return value
        if self.branches is not None:
            raise ValueError(
                f"{title}: with enable_conditionals=True, debug mode takes no data in place of nodes, because a branch has only a part of the "
                "samples; give it the DataNode itself, or the data as an external_source"
            )
        batch = import_batch(title, value, self.settings.max_batch_size, share=False)
        device = "cpu" if batch.buffer.device.type == "cpu" else "gpu"
        return create(DataOperation, "Data", schema="data", title=f"a batch given to {title}", device=device, batch=batch)[0]

    def _check_size(self, operation: Operation, batch: Batch) -> None:
        """Take the batch size of this iteration from its first batch. Raise RuntimeError for a batch of another size."""
        if self._size is None:
            self._size = self.step.batch_size = batch.batch_size
        elif batch.batch_size != self._size:
            raise RuntimeError(
                f"Batch size clash: an earlier operator gave {self._size} samples in this iteration, and {operation.name!r} gives {batch.batch_size}"
            )

    def _run(self, operation: Operation, runs: Operation) -> tuple[Batch, ...]:
        """Return the results of an operation, computed by the operation that ``runs`` at its place."""
        if operation.pulls:
            runs.check(self.step, wait=True)
            batches = runs.pull(self.step)
            for batch in batches:
                self._check_size(operation, batch)
            return batches
        if isinstance(operation, DataOperation):
            self._check_size(operation, operation.batch)
        inputs = [_get_batch(node) for node in operation.inputs]
        arguments = {key: _get_batch(node) for key, node in operation.arguments.items()}
        # Errors of work that runs later name the definition.
        fixed.site = operation.site
        try:
            batches = runs.run(self.step, inputs, arguments)
            for batch in batches:
                batch.wait()  # errors belong to this call, and printing a node must not wait
        except Exception as error:
            raise wrap_error(operation, error) from error
        finally:
            fixed.site = None
        # An operation without inputs has used the largest size, which the others must now match.
        if not inputs and not arguments:
            self._size = self.step.batch_size
        return batches


def _get_batch(node: Node) -> Batch:
    if not isinstance(node, DataNodeDebug):
        raise RuntimeError(f"DataNode {node.name!r} was created outside the definition, so it has no data in debug mode")
    return node.require_batch()


class PipelineDebug(Pipeline):
    """A pipeline that runs its definition in every iteration.

    Operators are matched by the order of their calls: sources and readers continue where the operator at the same place stopped, and random operators
    keep their seed. The order must therefore be the same in every iteration.

    Operators take data in place of nodes: a list of arrays or tensors, one for each sample, and a ``TensorListCPU`` or ``TensorListGPU``.
    """

    _graph_type = DebugGraph
    _graph: DebugGraph

    def __init__(self, definition: Callable[[Pipeline], Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._definition = definition
        self._ended = False
        self._context: EvalContext | None = None
        self._results: deque[tuple[Any, ...]] = deque()
        self._first_outputs: tuple[Any, ...] | None = None  # of the first iteration, if something ran it before `run`
        self._error: Exception | None = None

    def build(self) -> None:
        """Check the arguments. The definition runs with the iterations."""
        if self._context is None:
            self._check_settings()
            if self.enable_checkpointing:
                raise RuntimeError("Pipeline: there are no checkpoints in debug mode")
            self._context = EvalContext(num_threads=self.num_threads)

    # --- One iteration

    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[Any, ...]:
        """Run the definition and return its outputs, see :meth:`Pipeline.run`."""
        for name, data in pipeline_inputs.items():
            self.feed_input(name, data)
        # An iteration that ran only to define the readers is delivered first.
        if self._first_outputs is not None:
            outputs, self._first_outputs = self._first_outputs, None
            return outputs
        return self._run_definition()

    def _run_definition(self) -> tuple[Any, ...]:
        self.build()
        if self._error is not None:
            # An error may have left sources at different positions, so the pipeline does not go on.
            raise self._error
        if self._ended:
            raise StopIteration
        assert self._context is not None
        graph = self._graph
        graph.begin()
        try:
            with self._context:
                values = self._definition(self)
                with self:
                    nodes = [as_node(value, f"Pipeline: output {k}") for k, value in enumerate(values if isinstance(values, tuple) else (values,))]
            graph.end()
        except StopIteration:
            self._ended = True
            raise
        except Exception as error:
            self._error = error
            raise
        graph.outputs = nodes
        graph.step = Step(graph.step.number + 1, graph.step.iteration + 1, graph.step.epoch, self.max_batch_size)
        if not all(isinstance(node, DataNodeDebug) for node in nodes):
            raise RuntimeError("Pipeline: an output was created outside the definition, so it has no data in debug mode")
        batches = [_get_batch(node) for node in nodes]
        self._declarations.check(nodes, batches)
        return tuple(tensors.as_tensor_list(batch) for batch in batches)

    # --- Other uses

    def schedule_run(self) -> None:
        """Run an iteration; :meth:`share_outputs` returns its results."""
        with contextlib.suppress(StopIteration):
            self._results.append(self.run())

    def share_outputs(self, cuda_stream: Any = None) -> tuple[Any, ...]:
        """Return the outputs of the oldest iteration. Raise StopIteration if there is none."""
        if not self._results:
            raise StopIteration
        return self._results.popleft()

    def empty(self) -> bool:
        """Return whether all scheduled iterations were delivered."""
        return not self._results

    def reset(self) -> None:
        """Begin a new epoch after the end of the data; before it, do nothing."""
        if self._ended:
            self._ended = False
            step = self._graph.step
            self._graph.step = Step(step.number, 0, step.epoch + 1, self.max_batch_size)
            for operation in self._graph.operations:
                operation.reset()

    def feed_input(self, data_node: Any, data: Any, layout: str | None = None, cuda_stream: Any = None, use_copy_kernel: bool = False) -> None:
        """Queue a batch for an external source that was defined without a source, see :meth:`Pipeline.feed_input`."""
        self.build()
        name = data_node.name if isinstance(data_node, DataNode) else data_node
        if not isinstance(name, str):
            raise TypeError(f"Pipeline.feed_input takes a DataNode or its name, got {data_node!r}")
        # Before the first run no input exists; the data waits for the operation with this name.
        if self._graph.find(name) is None and not self._graph.step.number:
            self._graph.feed(name, data, layout)
            return
        super().feed_input(name, data, layout)

    def input_feed_count(self, input_name: str) -> int:
        """Return 1: nothing runs ahead."""
        del input_name
        return 1

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """Return the sizes and shards of readers, see :meth:`Pipeline.reader_meta`. The first iteration runs for it."""
        if not self._graph.step.number:
            self._first_outputs = self._run_definition()
        return super().reader_meta(name)

    def checkpoint(self, filename: str | None = None) -> bytes:
        """Raise RuntimeError: there are no checkpoints in debug mode."""
        raise RuntimeError("Pipeline: there are no checkpoints in debug mode")

    def serialize(self, define_graph: Any = None, filename: str | None = None) -> bytes:
        """Raise RuntimeError: there is no graph in debug mode."""
        raise RuntimeError("Pipeline: a pipeline in debug mode cannot be serialized: it has no graph")
