# SPDX-License-Identifier: Apache-2.0
"""Columns: Python numbers that hold for every sample, or tensors with one element per sample.

Arithmetic works alike on both, so the same lines serve a dense batch, a ragged one and the tracing of a graph.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from .._core.native.tracing import is_compiling
from .._core.operators.arguments import round_half_away
from .._core.values.batch import Batch

Column = Any  # int | float | torch.Tensor (N,)


def extents_of(input: Batch) -> tuple[Column, ...]:
    """Return the extents of a batch's samples, one column per axis: a number where they are known to be equal."""
    if input.ragged_shapes is None:
        return tuple([extent if type(extent) is int else _column_of(input, extent) for extent in input.buffer.shape[1:]])
    columns, shared_extents = input.ragged_shapes.unbind(1), input.shared_extents
    return columns if shared_extents is None else tuple([c if n is None else n for c, n in zip(columns, shared_extents, strict=True)])


def extent_of(input: Batch, axis: int) -> Column:
    """Return one extent of a batch's samples: a number if it is known to be equal."""
    if input.ragged_shapes is None:
        return _column_of(input, input.buffer.shape[axis + 1])
    known = None if input.shared_extents is None else input.shared_extents[axis]
    return input.ragged_shapes[:, axis] if known is None else known


def _column_of(input: Batch, extent: "int | torch.SymInt") -> Column:
    """Return an extent of a dense batch. One that an exported program leaves open is a tensor: the program has no branches that depend on it."""
    if type(extent) is torch.SymInt and torch.compiler.is_exporting():
        return torch.full((input.batch_size,), extent, dtype=torch.int64)  # type: ignore[arg-type]
    return extent


def holds(condition: bool | torch.Tensor) -> bool:
    """Return whether a condition holds for every sample; values of a graph that is being traced are unknown."""
    if isinstance(condition, torch.Tensor):
        return is_compiling() or bool(condition.all())
    return condition


def first_failure(condition: bool | torch.Tensor) -> int:
    """Return the first sample for which a condition does not hold."""
    return 0 if isinstance(condition, bool) else int((~condition).to(torch.int8).argmax())


def in_sample(condition: bool | torch.Tensor) -> str:
    """Return the words of a message that name the first sample for which a condition does not hold; none if all samples share it."""
    return f"sample {first_failure(condition)}: " if isinstance(condition, torch.Tensor) and len(condition) > 1 else ""


def at_sample(column: Column, sample: int) -> Any:
    """Return the number of one sample."""
    return column[sample if len(column) > 1 else 0].item() if isinstance(column, torch.Tensor) else column


def sample_shape(columns: Sequence[Column], sample: int) -> tuple[Any, ...]:
    """Return the shape of one sample."""
    return tuple(at_sample(column, sample) for column in columns)


def product(columns: Sequence[Column]) -> Column:
    """Return the product: the volume of a shape."""
    total: Column = 1
    for column in columns:
        total = total * column
    return total


def choose(condition: bool | torch.Tensor, a: Column, b: Column) -> Column:
    """Return ``a`` where the condition holds, else ``b``."""
    if isinstance(condition, torch.Tensor):
        # Equal numbers stay a number: the result is then known to be equal for all samples.
        return a if type(a) is int and type(b) is int and a == b else torch.where(condition, a, b)
    return a if condition else b


def smaller(a: Column, b: Column) -> Column:
    """Return the minimum of two columns."""
    return choose(a < b, a, b)


def larger(a: Column, b: Column) -> Column:
    """Return the maximum of two columns."""
    return choose(a > b, a, b)


def real(x: Column) -> Column:
    """Convert to double."""
    return x.to(torch.float64) if isinstance(x, torch.Tensor) else float(x)


def whole(x: Column) -> Column:
    """Truncate to an integer."""
    return x.to(torch.int64) if isinstance(x, torch.Tensor) else int(x)


def nearest(x: Column) -> Column:
    """Round to an integer, half away from zero."""
    if isinstance(x, torch.Tensor):
        return round_half_away(x)
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def nearest_even(x: Column) -> Column:
    """Round to an integer, half to the even one."""
    return x.round().to(torch.int64) if isinstance(x, torch.Tensor) else round(x)


def float32(x: Column) -> Column:
    """Round to float32: 0.3 of 5 pixels is then more than a half, as in DALI."""
    if isinstance(x, torch.Tensor):
        return x.to(torch.float32).to(torch.float64)
    high = x * 536870913.0  # 2^29 + 1 keeps 24 of a double's 53 bits
    # Veltkamp's splitting: the high part of a double, without a conversion by torch or NumPy.
    return high - (high - x)


def rows(columns: Sequence[Column]) -> torch.Tensor:
    """Stack columns side by side, int64 (1 or N, columns)."""
    tensors = [c for c in columns if isinstance(c, torch.Tensor)]
    if not tensors:
        return torch.tensor([columns], dtype=torch.int64)
    lengths = [len(c) for c in tensors]
    count = max(lengths) if min(lengths) else 0  # a batch may be empty
    return torch.stack([c.expand(count) if isinstance(c, torch.Tensor) else torch.full((count,), c, dtype=torch.int64) for c in columns], 1)


def column_list(value: Any) -> list[Column]:
    """Return an argument as columns: a number is one column, a list one per number, a tensor (rows, columns) one for each of its columns."""
    if isinstance(value, torch.Tensor):
        return list((value.flatten(1) if value.dim() > 1 else value[:, None]).unbind(1))
    return list(value) if isinstance(value, Sequence) else [value]


def as_hashable(value: Any) -> Any:
    """Convert a list to a tuple, which a cache can hash."""
    return tuple(value) if isinstance(value, list) else value


def format_value(value: Any) -> str:
    """Format an argument's value for a message."""
    return str(value.tolist()) if isinstance(value, torch.Tensor) else repr(value)
