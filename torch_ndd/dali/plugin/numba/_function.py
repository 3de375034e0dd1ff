# SPDX-License-Identifier: Apache-2.0
"""An operator whose outputs are filled by a function that Numba compiles, on the CPU."""

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numba import typed

from ...._core.values.batch import Batch, empty_packed
from ....types import to_dtype
from ..._graph.graph import Graph, Operation, Step, current_graph
from ...data_node import as_node, create

_MAX_OPERANDS = 6  # inputs and outputs
_list: Any = typed.List


class NumbaOperation(Operation):
    """A compiled function as an operator."""

    always_kept = True
    run_fn: Callable[..., None]
    setup_fn: Callable[..., None] | None
    out_types: Sequence[Any]
    in_types: Sequence[Any]
    outs_ndim: Sequence[int]
    ins_ndim: Sequence[int]
    batch_processing: bool

    def prepare(self, graph: Graph) -> None:
        """Wrap the functions; Numba compiles them in the first iteration, for its types."""
        self._run = numba.njit(self.run_fn)
        self._setup = None if self.setup_fn is None else numba.njit(self.setup_fn)

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Wait for the inputs, find the shapes of the outputs, and fill them."""
        for k, batch in enumerate(inputs):
            if batch.dtype != to_dtype(self.in_types[k]) or batch.ndim != self.ins_ndim[k]:
                raise RuntimeError(
                    f"input {k} has {batch.dtype} with {batch.ndim} dimensions; expected {to_dtype(self.in_types[k])} with {self.ins_ndim[k]}"
                )
        outputs = [self._output(k, shapes) for k, shapes in enumerate(self._shapes(inputs))]
        input_arrays = [[np.asarray(batch) for batch in values] for values in inputs]
        output_arrays = [[np.asarray(batch) for batch in values] for values in outputs]
        if self.batch_processing:
            self._run(*(_list(batch) for batch in (*output_arrays, *input_arrays)))
        else:
            for row in zip(*output_arrays, *input_arrays, strict=True):
                self._run(*row)
        return tuple(outputs)

    def _output(self, index: int, shapes: np.ndarray) -> Batch:
        import torch

        return empty_packed(torch.from_numpy(shapes), to_dtype(self.out_types[index]), torch.device("cpu"))

    def _shapes(self, inputs: list[Batch]) -> list[np.ndarray]:
        """Return the shapes of the outputs, int64 (samples, dimensions)."""
        input_shapes = [np.ascontiguousarray(batch.sample_shapes().numpy()) for batch in inputs]
        if self._setup is None:
            # Without setup_fn outputs have the shapes of the inputs.
            return [shapes.copy() for shapes in input_shapes[: len(self.out_types)]]
        output_shapes = [np.zeros((inputs[0].batch_size, ndim), np.int64) for ndim in self.outs_ndim]
        # The function writes the shapes into the arrays.
        self._setup(_list(output_shapes), _list(input_shapes))
        return output_shapes


class NumbaFunction:
    """The class form of :func:`numba_function`."""

    _title = "plugin.numba.NumbaFunction"

    def __init__(
        self,
        run_fn: Callable[..., None],
        out_types: Sequence[Any],
        in_types: Sequence[Any],
        outs_ndim: Sequence[int],
        ins_ndim: Sequence[int],
        setup_fn: Callable[..., None] | None = None,
        device: str = "cpu",
        batch_processing: bool = False,
        blocks: Any = None,
        threads_per_block: Any = None,
        **arguments: Any,
    ) -> None:
        if device != "cpu":
            raise ValueError(f'{self._title}: device must be "cpu", got {device!r}: GPU kernels of Numba are not supported')
        del blocks, threads_per_block
        for name, types, ndims in (("out", out_types, outs_ndim), ("in", in_types, ins_ndim)):
            if len(types) != len(ndims) or not 1 <= len(types) <= _MAX_OPERANDS:
                raise ValueError(f"{self._title}: {name}_types and {name}s_ndim must have equal lengths of 1 to {_MAX_OPERANDS}")
        if setup_fn is None and list(outs_ndim) != list(ins_ndim)[: len(outs_ndim)]:
            raise ValueError(f"{self._title}: without setup_fn outputs have the shapes of the inputs, so ins_ndim must begin with outs_ndim")
        self._name = arguments.get("name")
        self._attributes: dict[str, Any] = {
            **{"run_fn": run_fn, "setup_fn": setup_fn, "out_types": list(out_types), "in_types": list(in_types)},
            **{"outs_ndim": list(outs_ndim), "ins_ndim": list(ins_ndim), "batch_processing": bool(batch_processing)},
        }

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the operator to the graph and return its node, or a list of nodes."""
        if current_graph() is None:
            raise RuntimeError(f"{self._title}: Current Pipeline not set: it must be called in the definition of a pipeline")
        if len(inputs) != len(self._attributes["in_types"]):
            raise ValueError(f"{self._title}: in_types describes {len(self._attributes['in_types'])} inputs, got {len(inputs)}")
        nodes = create(
            NumbaOperation,
            "NumbaFunction",
            [as_node(value, f"{self._title}: input {k}") for k, value in enumerate(inputs)],
            schema="numba_function",
            title=self._title,
            outputs=len(self._attributes["out_types"]),
            name=arguments.get("name", self._name),
            preserve=True,
            **self._attributes,
        )
        return nodes[0] if len(nodes) == 1 else nodes


def numba_function(*inputs: Any, run_fn: Callable[..., None], device: str | None = None, **arguments: Any) -> Any:
    """Fill outputs with a function that Numba compiles.

    Args:
        inputs: Nodes, up to 6.
        run_fn: Called as ``run_fn(out0, ..., in0, ...)`` with the arrays of a sample, or with ``batch_processing`` with lists of them.
        device: ``"cpu"``.
        arguments: ``out_types``, ``in_types``: element types of the outputs and the inputs. ``outs_ndim``, ``ins_ndim``: their numbers of dimensions.
            ``setup_fn(outs, ins)``: called for each batch; writes the shape of sample ``i`` of output ``k`` to ``outs[k][i]``; without it the outputs
            have the shapes of the inputs. ``batch_processing``, ``name``.

    Raises:
        ValueError: numbers of types, dimensions and inputs that do not agree, or a GPU.

    >>> from torch_ndd.dali import Pipeline, types
    >>> def double(out, values):
    ...     out[:] = 2 * values
    >>> pipe = Pipeline(batch_size=2)
    >>> with pipe:
    ...     node = types.Constant([1, 2, 3])
    ...     pipe.set_outputs(
    ...         numba_function(node, run_fn=double, out_types=[types.INT32], in_types=[types.INT32], outs_ndim=[1], ins_ndim=[1])
    ...     )
    >>> pipe.run()[0].as_array().tolist()
    [[2, 4, 6], [2, 4, 6]]
    """
    return NumbaFunction(run_fn, device=device or "cpu", **arguments)(*inputs)
