# SPDX-License-Identifier: Apache-2.0
"""Operations of conditions: splitting and merging batches, truth values."""

from collections.abc import Sequence

import numpy as np
import torch

from ... import types
from ..._core.values.batch import Batch, empty_packed, new_batch
from ..._core.values.collect import pack
from ..._core.values.dispatch import run
from ..._core.values.extents import find_lasting_extents
from ..._core.work.pending import ALL_SAMPLES
from .._graph.graph import Operation, Step
from ..data_node import DataNode, create


class _Split(Operation):
    """The samples for which a condition holds, and the others."""

    takes_empty = True

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        truth = to_truth_values(self.title, arguments["predicate"])
        values = inputs[0]
        if values.batch_size != len(truth):
            raise RuntimeError(f"{self.title}: the condition has {len(truth)} samples, but a value used in a branch has {values.batch_size}")
        return tuple(values.select_samples(np.flatnonzero(truth == side).tolist()) for side in (True, False))


class _Merge(Operation):
    """Samples of two batches in the order of a condition."""

    takes_empty = True

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        truth = to_truth_values(self.title, arguments["predicate"])
        first, second = inputs
        sizes = int(truth.sum()), int((~truth).sum())
        if (first.batch_size, second.batch_size) != sizes:
            raise RuntimeError(
                f"{self.title}: the branches gave {first.batch_size} and {second.batch_size} samples, but received {sizes[0]} and {sizes[1]}"
            )
        # The dtype of an empty batch means nothing, so it takes no part in the comparison below.
        if not second.batch_size:
            return (first,)
        if not first.batch_size:
            return (second,)
        for what, values in (
            ("types", [types.dtype_name(batch.dtype) for batch in inputs]),
            ("numbers of dimensions", [batch.ndim for batch in inputs]),
            ("layouts", [batch.layout or "" for batch in inputs]),
            ("devices", [batch.device.device_type for batch in inputs]),
        ):
            if values[0] != values[1]:
                raise RuntimeError(
                    f"{self.title}: the branches of an `if` give the same variable values of different {what}: {values[0]!r} where "
                    f"the condition holds, {values[1]!r} elsewhere"
                )
        return (interleave(first, second, truth),)


def interleave(first: Batch, second: Batch, truth: np.ndarray) -> Batch:
    """Merge the samples of two batches of one type: where the condition holds, the next sample of the first batch, elsewhere of the second.

    One launch copies all samples, whatever their shapes.
    """
    layout, dtype, device = first.layout, first.dtype, first.buffer.device
    shapes = np.empty((len(truth), first.ndim), np.int64)
    for side, batch in ((truth, first), (~truth, second)):
        shapes[side] = batch.sample_shapes().numpy()
    out = empty_packed(torch.from_numpy(shapes), dtype, device, layout, find_lasting_extents(shapes.tolist(), layout))
    sides = iter(_samples(first)), iter(_samples(second))
    # Samples of each side come in their order; the truth values tell from which side to take the next one.
    parts = [next(sides[0] if which else sides[1]) for which in truth.tolist()]
    if device.type == "cpu":
        out.pending = run(pack, (parts, out.buffer, out.ragged_shapes), [(first, ALL_SAMPLES), (second, ALL_SAMPLES)], out.buffer)
    else:
        first.wait()
        second.wait()
        torch.cat([batch.reshape(-1) for batch in parts], out=out.buffer.view(-1))
    if first.sources and second.sources:
        names = iter(first.sources), iter(second.sources)
        out.sources = tuple(next(names[0] if which else names[1]) for which in truth.tolist())
    return out


def _samples(batch: Batch) -> Sequence[torch.Tensor]:
    """Return the values of the samples."""
    return batch.buffer.unbind(0) if batch.ragged_shapes is None else batch.buffer.split(batch.ragged_shapes.prod(1).tolist())


class _Negation(Operation):
    """Logical negation of one value per sample."""

    takes_empty = True

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        return (new_batch(torch.from_numpy(~to_truth_values(self.title, inputs[0]))),)


class _Condition(Operation):
    """The condition of an `if`: a truth value per sample."""

    takes_empty = True

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        return (new_batch(torch.from_numpy(to_truth_values(self.title, inputs[0]))),)


class _Operand(Operation):
    """The operand of `and` or `or`: one bool per sample."""

    takes_empty = True

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        (values,) = inputs
        if values.batch_size and values.dtype != torch.bool:
            raise RuntimeError(
                f"{self.title}: the {self.constants['side']} operand must be bool, got {types.dtype_name(values.dtype)}; compare it with a number, "
                "for example `x != 0`"
            )
        return (new_batch(torch.from_numpy(to_truth_values(self.title, values))),)


def to_truth_values(title: str, values: Batch) -> np.ndarray:
    """Return one truth value per sample, bool (N,)."""
    if not values.batch_size:
        return np.zeros(0, np.bool_)
    if values.device.device_type != "cpu":
        raise RuntimeError(f"{title}: a condition must be in host memory, got a value on the GPU")
    if values.ndim:
        raise RuntimeError(
            f"{title}: a condition must be one number per sample (no dimensions), got samples of {values.ndim} dimensions, the first one of "
            f"the shape {values.shape[0]}. use fn.reductions or indexing to get a number"
        )
    tensor = values.torch()
    return (tensor if tensor.dtype == torch.bool else tensor != 0).numpy()


def split(node: DataNode, condition: DataNode) -> list[DataNode]:
    """Return the samples of a node for which the condition holds, and the others."""
    parts = create(
        _Split,
        "_conditional__Split",
        [node],
        {"predicate": condition},
        outputs=2,
        schema="_conditional.split",
        title="`if`",
        output_device=node.device,
    )
    for part in parts:
        # A part has the type of the whole, which arithmetic and indexing check at definition.
        part.ndim, part.dtype, part.layout = node.ndim, node.dtype, node.layout
    return parts


def merge(first: DataNode, second: DataNode, condition: DataNode) -> DataNode:
    """Return ``first`` where the condition holds, ``second`` elsewhere."""
    devices = {first.device, second.device}
    if len(devices) > 1:
        raise RuntimeError("the branches of an `if` give the same variable values on different devices: call .gpu() or .cpu() in one of them")
    nodes = create(
        _Merge,
        "_conditional__Merge",
        [first, second],
        {"predicate": condition},
        schema="_conditional.merge",
        title="`if`",
        output_device=first.device,
    )
    return nodes[0]


def negate(node: DataNode) -> DataNode:
    """Return a node of ``not node``."""
    return create(_Negation, "_conditional__Not", [node], schema="_conditional.negated", title="`not`")[0]


def as_condition(node: DataNode) -> DataNode:
    """Return the truth values of the condition of an `if`."""
    return create(_Condition, "_conditional__Condition", [node], schema="_conditional.condition", title="`if`")[0]


def check_operand(node: DataNode, name: str, side: str) -> DataNode:
    """Return the operand of a logical expression, which must be bool when the pipeline runs."""
    nodes: Sequence[DataNode] = create(
        _Operand, "_conditional__Operand", [node], constants={"name": name, "side": side}, schema="_conditional.operand", title=f"`{name}`"
    )
    return nodes[0]
