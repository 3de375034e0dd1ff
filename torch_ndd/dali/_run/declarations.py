# SPDX-License-Identifier: Apache-2.0
"""``output_dtype``, ``output_ndim`` and ``output_layout`` of a pipeline, and the check of its outputs against them."""

from collections.abc import Callable, Sequence
from typing import Any

from ..._core.values.batch import Batch
from ...types import NO_TYPE, DALIDataType, type_id
from .._graph.graph import Node


class OutputDeclarations:
    """Declared properties of the outputs: one value for all of them, or a list with one for each; None declares nothing.

    Raises:
        TypeError: a value of another type.
        ValueError: ``NO_TYPE``, or a negative number of dimensions.
    """

    def __init__(self, dtype: Any, ndim: Any, layout: Any) -> None:
        self._declared = {
            "output_dtype": _check_all("output_dtype", dtype, _check_dtype),
            "output_ndim": _check_all("output_ndim", ndim, _check_ndim),
            "output_layout": _check_all("output_layout", layout, _check_layout),
        }
        self._any = any(value is not None for value in self._declared.values())

    def for_outputs(self, argument: str, count: int) -> list[Any]:
        """Return the declared value of each of ``count`` outputs."""
        declared = self._declared[argument]
        return list(declared) if isinstance(declared, list) else [declared] * count

    def check_count(self, count: int) -> None:
        """Raise RuntimeError if a list has another length than there are outputs."""
        for argument, declared in self._declared.items():
            if isinstance(declared, list) and len(declared) != count:
                raise RuntimeError(f"Pipeline: {argument} has {len(declared)} values, but there are {count} outputs")

    def check(self, nodes: Sequence[Node], batches: Sequence[Batch]) -> None:
        """Raise RuntimeError unless the outputs of an iteration are as declared. Empty batches always are: their dtype means nothing."""
        if not self._any:
            return
        for k, batch in enumerate(batches):
            actual = {"output_dtype": type_id(batch.dtype), "output_ndim": batch.ndim, "output_layout": batch.layout or ""}
            for argument, value in actual.items():
                declared = self.for_outputs(argument, len(batches))[k]
                if declared is not None and declared != value and batch.batch_size:
                    raise RuntimeError(f"Pipeline: {argument} of output {k} ({nodes[k].name!r}) is declared as {declared}, but the data has {value}")


def _check_all(argument: str, value: Any, check: Callable[[str, Any], Any]) -> Any:
    if isinstance(value, list | tuple):
        return [None if declared is None else check(argument, declared) for declared in value]
    return None if value is None else check(argument, value)


def _check_dtype(argument: str, value: Any) -> DALIDataType:
    if not isinstance(value, DALIDataType):
        raise TypeError(f"Pipeline: {argument} takes members of DALIDataType, got {value!r}")
    if value is NO_TYPE:
        raise ValueError(f"Pipeline: {argument} must not be NO_TYPE; None declares nothing")
    return value


def _check_ndim(argument: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"Pipeline: {argument} takes ints, got {value!r}")
    if value < 0:
        raise ValueError(f"Pipeline: {argument} must not be negative, got {value}")
    return value


def _check_layout(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Pipeline: {argument} takes strings, got {value!r}")
    return value
