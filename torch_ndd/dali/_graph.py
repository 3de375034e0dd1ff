# SPDX-License-Identifier: Apache-2.0
"""The graph of a pipeline: operations, how they are made, and which pipeline is being defined."""

import itertools
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

import torch

from .._core.values.batch import Batch, new_batch
from .._core.work.call_sites import Site, program_frame

# What an operation with inputs gives for an empty sub-batch: no samples, and a dtype that means nothing.
EMPTY: Batch = new_batch(torch.empty(0, dtype=torch.uint8), torch.empty((0, 0), dtype=torch.int64))

DEVICES = ("cpu", "gpu", "mixed")


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
        """Return the parts of the nodes that the current branch has."""
        raise NotImplementedError

    def register(self, outputs: Sequence[Any]) -> None:
        """Record the branch of new nodes."""
        raise NotImplementedError


class Graph:
    """A pipeline as operations, sources and the executor know it. ``Pipeline`` is one."""

    max_batch_size: int
    num_threads: int | None
    device_id: int | None
    enable_checkpointing: bool
    py_num_workers: int
    py_start_method: str
    _arguments: dict[str, Any]  # of the constructor
    _depth: int  # iterations issued ahead
    _made: "list[Operation]"  # every operation of the definition
    _operations: "list[Operation]"  # those that are not pruned, once built
    _node_type: type[Any]
    _at_once: bool = False  # debug mode: operators run when the definition calls them
    _branches: Branches | None = None  # with enable_conditionals

    def build(self) -> None:
        """Build the pipeline."""
        raise NotImplementedError

    @property
    def _consumed(self) -> Mapping[str, Any]:
        """The state after the last delivered iteration."""
        raise NotImplementedError

    def _gpu(self) -> int | None:
        """Return the GPU to use, if the graph needs one and there is one."""
        raise NotImplementedError

    def _given(self, title: str, value: Any) -> Any:
        """Return an input or a per-sample argument of an operator; in debug mode a node of it, if it is a batch."""
        raise NotImplementedError

    def _next_number(self) -> int:
        """Return the number of an operation in this graph."""
        raise NotImplementedError

    def _created(self, operation: "Operation") -> None:
        """Note an operation of the definition."""
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
        site: The frames of the definition that made it.
        serial: Number in the order of creation.
        twin: The first of several operations with the same random numbers, made by one call for several input sets.
    """

    pulls: ClassVar[bool] = False  # pull() gives the outputs; issue() is never called
    always_kept: ClassVar[bool] = False  # not pruned although nothing uses its results
    takes_empty: ClassVar[bool] = False  # issue() is called for empty sub-batches too
    fed: bool = False  # pull() takes what was fed, and is not called when a source has ended
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
    seed: int | None = None  # of random numbers: given by the user, or by the pipeline at build
    own_seed: int | None = None  # the one that the user gave
    _pipeline: "weakref.ref[Graph] | None" = None  # not held: it holds its operations

    @property
    def pipeline(self) -> "Graph | None":
        """The pipeline in whose definition the operation was made; None if there was none, or it is gone."""
        return None if self._pipeline is None else self._pipeline()

    @property
    def of_pipeline(self) -> bool:
        """Whether the operation was made in the definition of a pipeline, which may be gone."""
        return self._pipeline is not None

    def prepare(self, pipeline: "Graph") -> None:
        """Get ready to run in a pipeline. Called once, when it is built."""

    def check(self, step: Step, wait: bool) -> None:
        """Raise IndexError if nothing was fed for an iteration. Called for all sources before any of them is asked."""

    def pull(self, step: Step) -> tuple[Batch, ...]:
        """Return the outputs of a source. Called in the thread of the user, who may let it raise StopIteration."""
        raise NotImplementedError

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Queue the work of one iteration and return the outputs. Called in the pipeline's thread, in the order of the graph."""
        raise NotImplementedError

    def run(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Call :meth:`issue`, except for an empty sub-batch, whose results are empty."""
        if not self.takes_empty:
            for one in inputs:
                if not one.batch_size:
                    return (EMPTY,) * len(self.outputs)
            for one in arguments.values():
                if not one.batch_size:
                    return (EMPTY,) * len(self.outputs)
        return self.issue(step, inputs, arguments)

    def feed(self, data: Any, layout: str | None = None, **hints: Any) -> None:
        """Queue a batch for an input without a source."""
        raise RuntimeError(f"{self.title}: {self.name!r} is not an input that can be fed")

    def reset(self) -> None:
        """Begin a new epoch. Called by :meth:`Pipeline.reset` after the end of the data."""

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state after the latest iteration in JSON's types; None if there is none."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state before the first iteration. Raise ValueError for anything else than a result of :meth:`state_dict`."""

    def close(self) -> None:
        """Release what the operation holds: the pipeline has failed and will not run again."""

    def __repr__(self) -> str:
        return f"<{self.title} {self.name!r}>"


class _Definitions(threading.local):
    """The pipelines being defined in this thread, each with the frame of the program that began the definition."""

    def __init__(self) -> None:
        self.stack: list[tuple[Graph, FrameType | None]] = []

    def push(self, pipeline: "Graph") -> None:
        """Begin a definition in the frame of the program that called."""
        self.stack.append((pipeline, program_frame()))

    def push_function(self, pipeline: "Graph") -> None:
        """Begin a definition by a function that the caller will call: its frames are all above the caller's."""
        self.stack.append((pipeline, sys._getframe(1)))


definitions = _Definitions()
_foreign_numbers = itertools.count()


def current() -> "Graph | None":
    """Return the pipeline being defined in this thread; None outside definitions."""
    return definitions.stack[-1][0] if definitions.stack else None


def checked_device(title: str, given: Any) -> str:
    """Return the device of an operator. Raise ValueError for anything else."""
    if given not in DEVICES:
        raise ValueError(f'{title}: device must be "cpu", "gpu" or "mixed", got {given!r}')
    return given


def default_name(kind: str, pipeline: "Graph | None") -> str:
    """Return the name of an operation without one of its own."""
    return f"__{kind}_detached_{next(_foreign_numbers)}" if pipeline is None else f"__{kind}_{pipeline._next_number()}"


def reachable(roots: Sequence[Node], kept: Sequence[Operation]) -> list[Operation]:
    """Return the operations that the roots need and those that are kept, in the order of creation, which is one of dependency."""
    found: dict[int, Operation] = {}
    open_ = [node.source for node in roots] + list(kept)
    while open_:
        operation = open_.pop()
        if operation is None or operation.serial in found:
            continue
        found[operation.serial] = operation
        open_ += [node.source for node in (*operation.inputs, *operation.arguments.values())]
    return [found[serial] for serial in sorted(found)]
