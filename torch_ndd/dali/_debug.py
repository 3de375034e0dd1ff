# SPDX-License-Identifier: Apache-2.0
"""Debug mode: the definition runs again in every iteration, each operator at once, so that nodes hold data."""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from .._core.context.context import EvalContext
from .._core.context.rng import RNG
from .._core.values.batch import Batch
from .._core.work.call_sites import fixed
from . import tensors, types
from ._conditionals import TracedBranches
from ._defined import defined
from ._errors import wrapped
from ._feeding import as_fed, is_array, is_list
from ._graph import Node, Operation, Step
from ._operators import ReaderOperation
from ._pipeline import Pipeline
from .data_node import DataNode, as_node, create

_SEED_WORDS = 2


class DataNodeDebug(DataNode):
    """A result of an operator in debug mode, with its data."""

    _batch: Batch | None = None

    def get(self) -> Any:
        """Return the data: a ``TensorListCPU`` or ``TensorListGPU``."""
        return tensors.of(self._data())

    def shape(self, *, dtype: Any = None, device: str = "cpu") -> Any:
        """Return the shapes of the samples, a list of tuples."""
        del dtype, device
        return self._data().shape

    def _data(self) -> Batch:
        if self._batch is None:
            raise RuntimeError(f"DataNode {self.name!r} has no data")
        return self._batch

    def __repr__(self) -> str:
        return f"DataNodeDebug(\n    name={self.name!r},\n    data={'none' if self._batch is None else self.get()})"

    __str__ = __repr__


class GivenOperation(Operation):
    """A batch from the definition itself: a list of arrays, or a tensor list."""

    takes_empty = True
    batch: Batch

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Return the batch."""
        return (self.batch,)


class PipelineDebug(Pipeline):
    """A pipeline that runs its definition in every iteration.

    Operators are matched by the order of their calls: sources and readers go on where the operator at the same place stood, and random operators with
    the same seed. The order must therefore be the same in every iteration.

    Operators take data in place of nodes: a list of arrays or tensors, one for each sample, and a ``TensorListCPU`` or ``TensorListGPU``.
    """

    _node_type = DataNodeDebug
    _at_once = True

    def __init__(self, definition: Callable[[Pipeline], Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._definition = definition
        self._seeds = RNG() if self._seed is None else RNG(self._seed)
        self._places: list[Operation] = []  # what runs at each place of the definition
        self._place = 0
        self._size: int | None = None  # samples of this iteration, once a source gave them
        self._step = Step(0, 0, 0, 0)
        self._ended = False
        self._context: EvalContext | None = None
        self._results: deque[tuple[Any, ...]] = deque()
        self._ahead: tuple[Any, ...] | None = None
        self._fed: dict[str, list[tuple[Any, Any]]] = {}
        self._error: Exception | None = None

    def build(self) -> None:
        """Check the arguments. The definition runs with the iterations."""
        if self._context is None:
            self._check_sizes()
            if self.enable_checkpointing:
                raise RuntimeError("Pipeline: there are no checkpoints in debug mode")
            self._context = EvalContext(num_threads=self.num_threads)

    # --- One iteration

    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[Any, ...]:
        """Run the definition and return its outputs, see :meth:`Pipeline.run`."""
        for name, data in pipeline_inputs.items():
            self.feed_input(name, data)
        if self._ahead is not None:
            result, self._ahead = self._ahead, None
            return result
        return self._run()

    def _run(self) -> tuple[Any, ...]:
        self.build()
        if self._error is not None:
            raise self._error
        if self._ended:
            raise StopIteration
        assert self._context is not None
        self._place, self._size, self._numbers = 0, None, 0
        self._step.batch_size = self.max_batch_size
        try:
            with self._context:
                made = self._definition(self)
                with self:
                    nodes = [as_node(one, f"Pipeline: output {k}") for k, one in enumerate(made if isinstance(made, tuple) else (made,))]
            if self._place != len(self._places):
                self._refuse(f"{self._place} operators were called")
        except StopIteration:
            self._ended = True
            raise
        except Exception as error:
            self._error = error
            raise
        self._outputs = nodes
        self._step = Step(self._step.number + 1, self._step.iteration + 1, self._step.epoch, self.max_batch_size)
        batches = [node._data() for node in nodes if isinstance(node, DataNodeDebug)]
        if len(batches) != len(nodes):
            raise RuntimeError("Pipeline: an output was made outside the definition, so that it has no data in debug mode")
        self._check_outputs(batches)
        return tuple(tensors.of(batch) for batch in batches)

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(f"Debug mode: the definition must call the same operators in the same order in every run, but {what}")

    def _created(self, operation: Operation) -> None:
        """Run an operation at once."""
        new = self._place == len(self._places)
        if new and self._step.number:
            self._refuse(f"{operation.title} is called in addition to the {self._place} operators of the first run")
        before = operation if new else self._places[self._place]
        if before.schema != operation.schema or len(before.outputs) != len(operation.outputs):
            self._refuse(f"call {self._place} is {operation.title} instead of {before.title}")
        keeps_state = operation.pulls or isinstance(operation, ReaderOperation)
        runs = before if keeps_state else operation
        if operation.random and operation.seed is None:
            twin = operation.twin
            low, high = self._seeds.at(_SEED_WORDS * self._place).draw(_SEED_WORDS).tolist()
            operation.seed = twin.seed if twin is not None else low | (high & 0x7FFFFFFF) << 32
        if new or not keeps_state:
            runs.prepare(self)
        if new:
            self._places.append(operation)
            self._operations.append(operation)
            for data, layout in self._fed.pop(operation.name, []):
                operation.feed(data, layout)
        elif not keeps_state:
            self._places[self._place] = self._operations[self._place] = operation
        self._place += 1
        for node, batch in zip(operation.outputs, self._done(operation, runs), strict=True):
            assert isinstance(node, DataNodeDebug)
            node._batch = batch
            node.dtype, node.ndim, node.layout = types.to_dali_type(batch.dtype), batch.ndim, batch.layout

    def _given(self, title: str, value: Any) -> Any:
        """Return a node of a batch, and for a list of tensor lists, which are input sets, a list of nodes; other values as they are."""
        if isinstance(value, list | tuple) and value and all(is_list(one) for one in value):
            return [self._given(title, one) for one in value]
        if not is_list(value) and not (isinstance(value, list | tuple) and value and all(is_array(one) for one in value)):
            return value
        if self._branches is not None:
            raise ValueError(
                f"{title}: with enable_conditionals=True, debug mode takes no data in place of nodes, because a branch has only a part of the "
                "samples; give it the DataNode itself, or the data as an external_source"
            )
        batch = as_fed(title, value, self.max_batch_size, share=False)
        device = "cpu" if batch.buffer.device.type == "cpu" else "gpu"
        return create(GivenOperation, "Data", schema="data", title=f"a batch given to {title}", device=device, batch=batch)[0]

    def _sized(self, operation: Operation, batch: Batch) -> None:
        """Take the size of this iteration's batches from the first one. Raise RuntimeError if it differs from that of the others."""
        if self._size is None:
            self._size = self._step.batch_size = batch.batch_size
        elif batch.batch_size != self._size:
            raise RuntimeError(
                f"Batch size clash: an earlier operator gave {self._size} samples in this iteration, and {operation.name!r} gives {batch.batch_size}"
            )

    def _done(self, operation: Operation, runs: Operation) -> tuple[Batch, ...]:
        """Return the results of an operation."""
        step = self._step
        if operation.pulls:
            runs.check(step, wait=True)
            made = runs.pull(step)
            for batch in made:
                self._sized(operation, batch)
            return made
        if isinstance(operation, GivenOperation):
            self._sized(operation, operation.batch)
        inputs, arguments = [self._value(one) for one in operation.inputs], {key: self._value(one) for key, one in operation.arguments.items()}
        fixed.site = operation.site
        try:
            made = runs.run(step, inputs, arguments)
            for batch in made:
                batch.wait()
        except Exception as error:
            raise wrapped(operation, error) from error
        finally:
            fixed.site = None
        if not inputs and not arguments:
            self._size = step.batch_size
        return made

    def _value(self, node: Node) -> Batch:
        if not isinstance(node, DataNodeDebug):
            raise RuntimeError(f"DataNode {node.name!r} was made outside the definition, so that it has no data in debug mode")
        return node._data()

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

    def outputs(self, cuda_stream: Any = None) -> tuple[Any, ...]:
        """Return the outputs of the oldest iteration. Raise StopIteration if there is none."""
        return self.share_outputs()

    def empty(self) -> bool:
        """Return whether nothing is scheduled that was not delivered."""
        return not self._results

    def reset(self) -> None:
        """Begin a new epoch after the end of the data; before it, do nothing."""
        if self._ended:
            self._ended = False
            self._step = Step(self._step.number, 0, self._step.epoch + 1, self.max_batch_size)
            for one in self._places:
                one.reset()

    def feed_input(self, data_node: Any, data: Any, layout: str | None = None, cuda_stream: Any = None, use_copy_kernel: bool = False) -> None:
        """Queue a batch for an external source that was defined without a source, see :meth:`Pipeline.feed_input`."""
        self.build()
        name = data_node.name if isinstance(data_node, DataNode) else data_node
        if not isinstance(name, str):
            raise TypeError(f"Pipeline.feed_input takes a DataNode or its name, got {data_node!r}")
        if self._operation(name) is None and not self._step.number:
            self._fed.setdefault(name, []).append((data, layout))
            return
        super().feed_input(name, data, layout)

    def input_feed_count(self, input_name: str) -> int:
        """Return 1: nothing runs ahead."""
        del input_name
        return 1

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """Return the sizes and shards of readers, see :meth:`Pipeline.reader_meta`. The first iteration runs for it."""
        if not self._step.number:
            self._ahead = self._run()
        return super().reader_meta(name)

    def checkpoint(self, filename: str | None = None) -> bytes:
        """Raise RuntimeError: there are no checkpoints in debug mode."""
        raise RuntimeError("Pipeline: there are no checkpoints in debug mode")

    def serialize(self, define_graph: Any = None, filename: str | None = None) -> bytes:
        """Raise RuntimeError: there is no graph in debug mode."""
        raise RuntimeError("Pipeline: a pipeline in debug mode cannot be serialized: it has no graph")


def pipeline(
    function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], arguments: Mapping[str, Any], enable_conditionals: bool
) -> PipelineDebug:
    """Return a pipeline that runs a definition in every iteration."""
    made = PipelineDebug(lambda pipeline: defined(pipeline, function, args, kwargs), **arguments)
    made._branches = TracedBranches() if enable_conditionals else None
    return made
