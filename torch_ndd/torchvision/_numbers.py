# SPDX-License-Identifier: Apache-2.0
"""Arguments that are one number for all samples, or one for each sample."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from .._core.native.tracing import is_compiling
from .._core.values.batch import Batch, new_batch
from .._core.values.tensor import Tensor as NddTensor

Number: TypeAlias = "int | float | torch.Tensor"  # one number, or a tensor (N,)


def batch_of(values: torch.Tensor) -> Batch:
    """Return a dense Batch of numbers or rows, one per sample."""
    return new_batch(values.contiguous())


def as_argument(value: Number) -> Any:
    """Return a number as the argument of an operator: the number, or a Batch with one per sample."""
    return batch_of(value) if isinstance(value, torch.Tensor) and value.dim() else value


def number(op: str, name: str, value: Any, batch_size: int | None) -> Any:
    """Return an argument as a number, or as a tensor with one per sample.

    Raises:
        TypeError: a value that is not numeric.
        ValueError: another count than the batch size.
    """
    if isinstance(value, bool | int | float):  # the usual case
        return value
    if isinstance(value, np.number):
        return value.item()
    if isinstance(value, Batch | NddTensor):
        value = value.torch()
    elif isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    elif isinstance(value, list | tuple):
        try:
            value = torch.tensor(value, dtype=torch.int64 if all(isinstance(element, int) for element in value) else torch.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{op}: {name} must be numbers, got {value!r}") from None
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{op}: {name} must be a number, or a sequence or Batch with one per sample, got {type(value).__name__}")
    if value.dim() == 0:
        return value.item()
    # A Batch of numbers may have the shape (N,) or (N, 1).
    flat = value.reshape(-1)
    if batch_size is None or len(flat) != batch_size:
        raise ValueError(f"{op}: {name} has {len(flat)} values for {'one sample' if batch_size is None else f'{batch_size} samples'}")
    return flat if not flat.dtype.is_floating_point else flat.to(torch.float64)


def numbers(op: str, name: str, value: Any, count: int, batch_size: int | None) -> tuple[Any, ...]:
    """Return an argument of several numbers: ``count`` of them, or ``count`` tensors with one per sample.

    ``value`` is a sequence of numbers, a sequence with such a sequence per sample, an array or a Batch (N, count), or ``count`` columns.

    Raises:
        TypeError, ValueError: another kind of value, or another count.
    """
    if isinstance(value, Batch | NddTensor):
        value = value.torch()
    elif isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        # A row of ``count`` numbers is for all samples, even if the batch has as many samples.
        if value.dim() == 1 and len(value) == count:
            return tuple(value.tolist())
        table = value.reshape(value.shape[0], -1) if value.dim() > 1 else value.reshape(-1, 1)
        if batch_size is not None and tuple(table.shape) == (batch_size, count):
            return tuple(column.to(torch.float64) if column.dtype.is_floating_point else column for column in table.unbind(1))
        raise ValueError(f"{op}: {name} must be {count} numbers per sample, got an array of shape {tuple(value.shape)}")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"{op}: {name} should be a sequence of {count} numbers, got {value!r}")
    if len(value) == count and not any(isinstance(element, list | tuple) for element in value):
        # Elements that are tensors are columns, with a number for each sample.
        return tuple(element if isinstance(element, int | float) else number(op, name, element, batch_size) for element in value)
    if batch_size is not None and len(value) == batch_size and all(isinstance(row, list | tuple) and len(row) == count for row in value):
        return numbers(op, name, torch.tensor([list(row) for row in value]), count, batch_size)
    raise ValueError(f"{op}: {name} should be a sequence of {count} numbers, got {value!r}")


def holds(condition: Any) -> bool:
    """Return whether a condition holds for every sample."""
    if isinstance(condition, torch.Tensor):
        # While a graph is traced, the values are unknown and the check is left out.
        return is_compiling() or bool(condition.all())
    return bool(condition)


def first_failure(condition: Any) -> str:
    """Return the prefix of a message that names the first sample that fails; an empty string if the condition is shared by all samples."""
    if isinstance(condition, torch.Tensor) and condition.dim():
        return f"sample {int((~condition).to(torch.int8).argmax())}: "
    return ""
