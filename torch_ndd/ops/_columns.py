# SPDX-License-Identifier: Apache-2.0
"""Columns: Python numbers that hold for every sample, or tensors with one element a sample. Arithmetic works alike on them, so the same lines serve
a dense batch, a ragged one and the tracing of a graph.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from .._batch import Batch

Column = Any  # int | float | torch.Tensor (N,)


def extents_of(input: Batch) -> tuple[Column, ...]:
    """The extents of a batch's samples, one column an axis: a number where they are known to share it."""
    if input._shapes is None:
        return tuple(input._values.shape[1:])
    columns, fixed = input._shapes.unbind(1), input._fixed
    return columns if fixed is None else tuple([c if n is None else n for c, n in zip(columns, fixed, strict=True)])


def holds(condition: bool | torch.Tensor) -> bool:
    """Whether it holds for every sample; values of a graph that is being traced are not known."""
    if isinstance(condition, torch.Tensor):
        return torch.compiler.is_compiling() or bool(condition.all())
    return condition


def first_failure(condition: bool | torch.Tensor) -> int:
    """The first sample for which it does not hold."""
    return 0 if isinstance(condition, bool) else int((~condition).to(torch.int8).argmax())


def at_sample(column: Column, sample: int) -> Any:
    """The number of one sample."""
    return column[sample if len(column) > 1 else 0].item() if isinstance(column, torch.Tensor) else column


def sample_shape(columns: Sequence[Column], sample: int) -> tuple[Any, ...]:
    """The shape of one sample."""
    return tuple(at_sample(column, sample) for column in columns)


def product(columns: Sequence[Column]) -> Column:
    """Their product: the volume of a shape."""
    made: Column = 1
    for column in columns:
        made = made * column
    return made


def choose(condition: bool | torch.Tensor, a: Column, b: Column) -> Column:
    """Where the condition holds ``a``, else ``b``."""
    if isinstance(condition, torch.Tensor):
        return a if type(a) is int and type(b) is int and a == b else torch.where(condition, a, b)
    return a if condition else b


def smaller(a: Column, b: Column) -> Column:
    """The minimum of two columns."""
    return choose(a < b, a, b)


def larger(a: Column, b: Column) -> Column:
    """The maximum of two columns."""
    return choose(a > b, a, b)


def real(x: Column) -> Column:
    """As double."""
    return x.to(torch.float64) if isinstance(x, torch.Tensor) else float(x)


def whole(x: Column) -> Column:
    """As an integer, the fraction cut off."""
    return x.to(torch.int64) if isinstance(x, torch.Tensor) else int(x)


def nearest(x: Column) -> Column:
    """To an integer, half away from zero."""
    if isinstance(x, torch.Tensor):
        return (torch.sign(x) * (abs(x) + 0.5).floor()).to(torch.int64)
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def float32(x: float) -> float:
    """Rounded to float32: 0.3 of 5 pixels is more than a half then, as in DALI."""
    high = x * 536870913.0  # 2^29 + 1 keeps 24 of a double's 53 bits
    return high - (high - x)


def rows(columns: Sequence[Column]) -> torch.Tensor:
    """The columns side by side, int64 (1 or N, columns)."""
    tensors = [c for c in columns if isinstance(c, torch.Tensor)]
    if not tensors:
        return torch.tensor([columns], dtype=torch.int64)
    lengths = [len(c) for c in tensors]
    count = max(lengths) if min(lengths) else 0  # a batch may be empty
    return torch.stack([c.expand(count) if isinstance(c, torch.Tensor) else torch.full((count,), c, dtype=torch.int64) for c in columns], 1)


def column_list(value: Any) -> list[Column]:
    """An argument's values: a number is one column, a list one for each number, a tensor (rows, columns) one for each of its columns."""
    if isinstance(value, torch.Tensor):
        return list((value.flatten(1) if value.dim() > 1 else value[:, None]).unbind(1))
    return list(value) if isinstance(value, Sequence) else [value]


def shown(value: Any) -> str:
    """An argument's value as a message has it."""
    return str(value.tolist()) if isinstance(value, torch.Tensor) else repr(value)
