# SPDX-License-Identifier: Apache-2.0
"""The part of ``Pipeline`` that defines its graph: the operations of the definition, its outputs, and which operations they need."""

import types as _types
from collections.abc import Mapping
from typing import Any, cast

from typing_extensions import Self

from . import types
from ._graph import Graph, Operation, current, definitions, reachable
from .data_node import DataNode, as_node


class Defining(Graph):
    """The definition of a pipeline."""

    _outputs: list[DataNode]
    _sinks: list[DataNode]
    _given_outputs: tuple[Any, ...] | None
    _numbers: int
    _output_dtype: Any
    _output_ndim: Any
    _output_layout: Any

    def _configure(self, stored: Mapping[str, Any]) -> None:
        """Begin anew, with stored arguments of the constructor where its own are the default ones."""
        raise NotImplementedError

    @staticmethod
    def current() -> "Defining | None":
        """Return the pipeline that is being defined in this thread."""
        return cast("Defining | None", current())

    @staticmethod
    def push_current(pipeline: "Defining") -> "Defining | None":
        """Make a pipeline the current one, and return the one before. ``with pipeline:`` does this and :meth:`pop_current`."""
        before = Defining.current()
        definitions.push(pipeline)
        return before

    @staticmethod
    def pop_current() -> None:
        """Make the pipeline before the current one the current one again."""
        definitions.stack.pop()

    def __enter__(self) -> Self:
        definitions.push(self)
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: _types.TracebackType | None) -> None:
        Defining.pop_current()

    def define_graph(self) -> Any:
        """Define the graph and return its outputs: a node, or a tuple or list of nodes. For subclasses; called once, by :meth:`build`."""
        raise NotImplementedError("Pipeline: the graph is not defined: call set_outputs, override define_graph, or use pipeline_def")

    def set_outputs(self, *output_data_nodes: Any) -> None:
        """Define what the pipeline gives: nodes, or anything that ``types.Constant`` takes. A later call replaces the outputs."""
        self._given_outputs = output_data_nodes

    def add_sink(self, edge: DataNode) -> None:
        """Run the operator of a node although nothing uses its results."""
        self._sinks.append(edge)

    def _given(self, title: str, value: Any) -> Any:
        """Return an input or a per-sample argument of an operator; in debug mode a node of it, if it is a batch."""
        return value

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    def _created(self, operation: Operation) -> None:
        """Note an operation of the definition."""
        self._made.append(operation)

    def _define(self) -> None:
        """Find the operations that are not pruned."""
        if self._operations:
            return
        self._outputs = self._defined_outputs()
        kept = [one for one in self._made if one.preserve or one.always_kept or not one.outputs]
        self._operations = reachable([*self._outputs, *self._sinks], kept)
        self._check_operations()

    def _defined_outputs(self) -> list[DataNode]:
        if self._given_outputs is None:
            with self:
                made = self.define_graph()
            self._given_outputs = tuple(made) if isinstance(made, tuple | list) else (made,)
        if not self._given_outputs:
            raise ValueError("Pipeline: there are no outputs: call set_outputs or return nodes from the definition")
        with self:
            outputs = [as_node(one, f"Pipeline: output {k}") for k, one in enumerate(self._given_outputs)]
        for k, node in enumerate(outputs):
            if node.dtype in (types.DATA_TYPE, types.IMAGE_TYPE, types.INTERP_TYPE):
                raise TypeError(f"Pipeline: output {k} is a member of an enumeration; use fn.cast or int() to make a number of it")
        for what, given in (("output_dtype", self._output_dtype), ("output_ndim", self._output_ndim), ("output_layout", self._output_layout)):
            if isinstance(given, list) and len(given) != len(outputs):
                raise RuntimeError(f"Pipeline: {what} has {len(given)} values, but there are {len(outputs)} outputs")
        return outputs

    def _check_operations(self) -> None:
        names: set[str] = set()
        for one in self._operations:
            if one.pipeline is not self:
                if self.enable_checkpointing:
                    raise RuntimeError(f"Pipeline: the operator {one.name!r} was defined outside the pipeline scope, so that it has no checkpoint")
                if one.pipeline is None and one.always_kept:
                    raise RuntimeError(f"{one.title}: Current Pipeline not set: define it inside the pipeline")
                if one.of_pipeline:
                    owner = "which is gone" if one.pipeline is None else repr(one.pipeline)
                    raise RuntimeError(
                        f"Pipeline: {one!r} was defined in another pipeline, {owner}, and is used in {self!r}. An operator belongs to one pipeline: "
                        "define it in this one too"
                    )
            if one.name in names:
                raise RuntimeError(f"Pipeline: there are two operators with the name {one.name!r}")
            names.add(one.name)
