# SPDX-License-Identifier: Apache-2.0
"""The graph of a pipeline: operations, their results, and the definition that they are created in."""

import itertools
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import torch

from ..._core.context.rng import RNG
from ..._core.values.batch import Batch, new_batch
from ..._core.work.call_sites import Site, program_frame

# Output of an operation with inputs for an empty sub-batch: it has no samples, and its dtype means nothing.
EMPTY: Batch = new_batch(torch.empty(0, dtype=torch.uint8, device="cpu"), torch.empty((0, 0), dtype=torch.int64, device="cpu"))

DEVICES = ("cpu", "gpu", "mixed")
_SEED_WORDS = 2  # 32 bits each


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of a pipeline that its operations read."""

    max_batch_size: int
    num_threads: int | None
    device_id: int | None
    seed: int | None
    enable_checkpointing: bool


@dataclass(slots=True)
class Step:
    """One iteration of a pipeline.

    Attributes:
        number: Iterations since the pipeline was built. It never rewinds: random numbers follow from it.
        iteration: Iterations since the epoch began.
        epoch: Epochs that ended before.
        batch_size: Samples of this iteration: as many as the sources gave, else the pipeline's batch size.
    """

    number: int
    iteration: int
    epoch: int
    batch_size: int


class Node:
    """A result of an operation, as the graph and the executor know it: the base of ``DataNode``, which describes the attributes."""

    def __init__(
        self,
        name: str,
        device: str = "cpu",
        source: "Operation | None" = None,
        index: int = 0,
        ndim: int | None = None,
        dtype: Any = None,
        layout: str | None = None,
    ) -> None:
        self.name = name
        self.device = device
        self.source = source
        self.index = index
        self.ndim = ndim
        self.dtype = dtype
        self.layout = layout


class Branches:
    """Assignment of the nodes of each new operation to branches of conditions."""

    def adapt(self, inputs: list[Any], arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return nodes with only the samples of the current branch."""
        raise NotImplementedError

    def register(self, outputs: Sequence[Any]) -> None:
        """Record the branch of new nodes."""
        raise NotImplementedError


class Operation:
    """One operator of the graph. Subclasses say what runs, in :meth:`issue` or :meth:`pull`.

    Attributes:
        kind: Class name, the middle of a default name: ``__Resize_3``.
        schema: Name under which the operator is found again: ``resize``, ``readers.file``, ``arithmetic.add``.
        title: Name in messages: ``fn.resize``, ``ops.Resize``, ``math.sqrt``.
        name: The user's name, or the default one.
        named: Whether the name is the user's.
        inputs: Nodes given by position.
        arguments: Nodes given by keyword: one value per sample.
        constants: The other arguments.
        outputs: Nodes of the results.
        device: ``"cpu"``, ``"gpu"`` or ``"mixed"``.
        preserve: Keep the operation although nothing uses its results.
        site: The frames of the definition that created it.
        serial: Number in the order of creation.
        twin: The first of several operations with the same random numbers, created by one call for several input sets.
    """

    pulls: ClassVar[bool] = False  # a source: pull() returns the outputs, issue() is not called
    always_kept: ClassVar[bool] = False  # not pruned although nothing uses its results
    takes_empty: ClassVar[bool] = False  # issue() is called for empty sub-batches too
    fed: bool = False  # pull() takes a batch that was fed, and is not called when a source has ended
    random: bool = False  # needs a seed

    kind: str
    schema: str
    title: str
    name: str
    named: bool
    inputs: Sequence[Node]
    arguments: Mapping[str, Node]
    constants: dict[str, Any]
    outputs: Sequence[Node]
    device: str
    preserve: bool
    site: Site
    serial: int
    twin: "Operation | None" = None
    seed: int | None = None  # of random numbers: the user's, or one that the graph derives when it is built
    own_seed: int | None = None  # the user's, which is serialized
    graph_reference: "weakref.ref[Graph] | None" = None  # weak: the graph holds its operations

    @property
    def graph(self) -> "Graph | None":
        """The graph in whose definition the operation was created; None if there was none, or its pipeline was deleted."""
        return None if self.graph_reference is None else self.graph_reference()

    @property
    def belongs_to_pipeline(self) -> bool:
        """Whether the operation was created in the definition of a pipeline, which may have been deleted."""
        return self.graph_reference is not None

    def prepare(self, graph: "Graph") -> None:
        """Bind what is the same in every iteration. Called once, when the pipeline is built."""

    def check(self, step: Step, wait: bool) -> None:
        """Raise IndexError if nothing was fed for an iteration. Called for all sources before any of them is pulled."""

    def pull(self, step: Step) -> tuple[Batch, ...]:
        """Return the outputs of a source, or raise StopIteration. Called on the thread of the user."""
        raise NotImplementedError

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Submit the work of one iteration and return the outputs. Called on the executor's thread, in the order of the graph."""
        raise NotImplementedError

    def run(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Call :meth:`issue`, except for an empty sub-batch, whose results are empty."""
        # A branch of a condition may have no samples. Operators reject empty batches, whose dtype and dimensions mean nothing.
        if not self.takes_empty:
            for batch in inputs:
                if not batch.batch_size:
                    return (EMPTY,) * len(self.outputs)
            for batch in arguments.values():
                if not batch.batch_size:
                    return (EMPTY,) * len(self.outputs)
        return self.issue(step, inputs, arguments)

    def feed(self, data: Any, layout: str | None = None, **hints: Any) -> None:
        """Queue a batch for an input without a source."""
        raise RuntimeError(f"{self.title}: {self.name!r} is not an input that can be fed")

    def pass_over(self, step: Step) -> None:
        """Leave out the batch of a reader in an iteration that failed elsewhere: all readers stay in step."""

    def reset(self) -> None:
        """Begin a new epoch. Called by :meth:`Pipeline.reset` after the end of the data."""

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state after the latest iteration in JSON's types; None if there is none."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state before the first iteration. Raise ValueError for anything else than a result of :meth:`state_dict`."""

    def close(self) -> None:
        """Release resources: the pipeline has failed and will not run again."""

    def __repr__(self) -> str:
        return f"<{self.title} {self.name!r}>"


class Graph:
    """The operations of a pipeline.

    A definition adds operations; :meth:`complete` finds those that the outputs need, which are the ones that run.

    Attributes:
        settings: Arguments of the pipeline.
        pipeline: Weak reference to the pipeline.
        branches: Assignment of operations to branches, with ``enable_conditionals``.
        created: Every operation of the definition.
        outputs: Nodes that an iteration returns.
        sinks: Nodes that are computed although nothing uses them.
        operations: The operations that run, in an order of dependency; empty until the graph is complete.
    """

    runs_immediately: ClassVar[bool] = False  # debug mode: operations run when the definition creates them
    node_type: ClassVar[type[Any] | None] = None  # of results; None for DataNode

    def __init__(self, settings: Settings, pipeline: Any) -> None:
        self.settings = settings
        self.pipeline = weakref.ref(pipeline)  # weak: the pipeline holds its graph
        self.branches: Branches | None = None
        self.created: list[Operation] = []
        self.outputs: list[Any] = []
        self.sinks: list[Any] = []
        self.operations: list[Operation] = []
        self._numbers = itertools.count()

    def next_number(self) -> int:
        """Return the number for the default name of a new operation."""
        return next(self._numbers)

    def restart_numbers(self) -> None:
        """Number the operations from 0, for a definition that runs again."""
        self._numbers = itertools.count()

    def add(self, operation: "Operation") -> None:
        """Add an operation of the definition."""
        self.created.append(operation)

    def adopt(self, title: str, value: Any) -> Any:
        """Return an input or a per-sample argument of an operator; in debug mode a node of it, if it is a batch."""
        return value

    def find(self, name: str) -> "Operation | None":
        """Return the operation of a name among those that run."""
        return next((operation for operation in self.operations if operation.name == name), None)

    def complete(self, outputs: "Sequence[Node]") -> None:
        """Set the outputs, and prune the operations that neither they nor the sinks need.

        Raises:
            RuntimeError: two operators of one name, or an operator of another pipeline.
        """
        # Results that nothing uses are still computed if the program asked for it, or if they are side effects.
        kept = [operation for operation in self.created if operation.preserve or operation.always_kept or not operation.outputs]
        operations = _find_reachable([*outputs, *self.sinks], kept)
        self._check(operations)  # before they are stored: a refused graph must not be built by the next attempt
        self.outputs, self.operations = list(outputs), operations

    def _check(self, operations: "list[Operation]") -> None:
        names: set[str] = set()
        for operation in operations:
            # Nodes that were created outside any definition may be used in any pipeline, as in DALI: only their checkpoints would be ambiguous.
            if operation.graph is not self:
                if self.settings.enable_checkpointing:
                    raise RuntimeError(f"Pipeline: the operator {operation.name!r} was defined outside the pipeline scope, so it has no checkpoint")
                # A Python function has an effect, so it must know its pipeline.
                if operation.graph is None and operation.always_kept:
                    raise RuntimeError(f"{operation.title}: Current Pipeline not set: define it inside the pipeline")
                if operation.belongs_to_pipeline:
                    owner = "which was deleted" if operation.graph is None else repr(operation.graph.pipeline())
                    raise RuntimeError(
                        f"Pipeline: {operation!r} was defined in another pipeline, {owner}, and is used in {self.pipeline()!r}. An operator belongs "
                        "to one pipeline: define it in this one too"
                    )
            if operation.name in names:
                raise RuntimeError(f"Pipeline: there are two operators with the name {operation.name!r}")
            names.add(operation.name)

    def seed_operations(self) -> None:
        """Give random operators without a seed one that follows from the pipeline's seed and their place in the graph."""
        generator = RNG(self.settings.seed)
        # By place, not by name: pipelines with the same operators draw the same numbers whatever their names are.
        for place, operation in enumerate(self.operations):
            if operation.random and operation.seed is None:
                operation.seed = operation.twin.seed if operation.twin is not None else draw_seed(generator, place)


def draw_seed(generator: RNG, place: int) -> int:
    """Return the seed of the operation at a place of the graph, 63 bits."""
    # Positions in the generator are counted by words, so each place has words of its own.
    low, high = generator.at(_SEED_WORDS * place).draw(_SEED_WORDS).tolist()
    return low | (high & 0x7FFFFFFF) << 32


class Definition(NamedTuple):
    """A pipeline that is being defined.

    Attributes:
        pipeline: The pipeline.
        graph: Its graph.
        base: The frame of the program that began the definition: call sites of operations end there.
    """

    pipeline: Any
    graph: Graph
    base: FrameType | None


class _Definitions(threading.local):
    """The pipelines that are being defined in this thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Definition] = []

    def push(self, pipeline: Any, graph: Graph) -> None:
        """Begin a definition in the frame of the program that called."""
        self.stack.append(Definition(pipeline, graph, program_frame()))

    def push_function(self, pipeline: Any, graph: Graph) -> None:
        """Begin a definition by a function that the caller will call: its frames are all above the caller's."""
        self.stack.append(Definition(pipeline, graph, sys._getframe(1)))


definitions = _Definitions()
_detached_numbers = itertools.count()


def current_graph() -> Graph | None:
    """Return the graph of the pipeline that is being defined in this thread; None outside definitions."""
    return definitions.stack[-1].graph if definitions.stack else None


def check_device(title: str, device: Any) -> str:
    """Return the device of an operator. Raise ValueError for anything else."""
    if device not in DEVICES:
        raise ValueError(f'{title}: device must be "cpu", "gpu" or "mixed", got {device!r}')
    return device


def default_name(kind: str, graph: Graph | None) -> str:
    """Return the name of an operation for which the user gave none."""
    return f"__{kind}_detached_{next(_detached_numbers)}" if graph is None else f"__{kind}_{graph.next_number()}"


def _find_reachable(roots: Sequence[Node], kept: Sequence[Operation]) -> list[Operation]:
    """Return the operations that the roots need and those that are kept, in the order of creation, which is one of dependency."""
    found: dict[int, Operation] = {}
    pending = [node.source for node in roots] + list(kept)  # no recursion: a graph may be thousands of operations deep
    while pending:
        operation = pending.pop()
        if operation is None or operation.serial in found:
            continue
        found[operation.serial] = operation
        pending += [node.source for node in (*operation.inputs, *operation.arguments.values())]
    return [found[serial] for serial in sorted(found)]
