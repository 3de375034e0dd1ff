# SPDX-License-Identifier: Apache-2.0
"""Casts and lookup tables."""

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.definition import Packed
from ..._core.operators.operator import DeviceLike, T, launch, operator
from ..._core.values.batch import Batch
from .._formulas import on_cpu, saturate
from .._outputs import like, output_type
from ..color import _pixel_chain


def _cast_formula(input: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor | None:
    if torch.uint64 in (input.dtype, dtype) and input.dtype is not dtype:
        return None  # torch has no arithmetic for this type
    if dtype is torch.bool and input.dtype is not dtype and on_cpu(input):
        return None  # like comparisons in arithmetic.py
    return saturate(input, dtype)


@operator(formula=_cast_formula)
def cast(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, dtype: torch.dtype) -> T:
    """Convert to another dtype.

    Floating-point numbers are rounded half away from zero and saturated when converted to integers; NaN becomes the smallest integer. A bool is True
    where the rounded value is not zero. Integers are converted exactly.

    Args:
        input: anything.
        dtype: type of the result.

    >>> cast(torch.tensor([-3.0, 2.5, 254.6, 300.0]), dtype=torch.uint8).torch()
    tensor([  0,   3, 255, 255], dtype=torch.uint8)
    """
    return like(input, dtype)


def _cast_like_formula(input_0: torch.Tensor, input_1: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor | None:
    del input_1
    return _cast_formula(input_0, dtype=dtype)


@operator(formula=_cast_like_formula)
def cast_like(input_0: T, input_1: Any, /, *, batch_size: int | None = None, device: DeviceLike | None = None) -> T:
    """Convert the first input to the dtype of the second one, like ``cast``.

    Args:
        input_0: anything.
        input_1: anything; only its dtype is used.

    >>> cast_like(torch.tensor([-3.0, 2.5, 254.6, 300.0]), torch.zeros(1, dtype=torch.uint8)).torch()
    tensor([  0,   3, 255, 255], dtype=torch.uint8)
    """
    return like(input_0, input_1.dtype)


_LARGEST_KEY = 65535


def _numbers(name: str, value: Any, kind: type | tuple[type, ...]) -> tuple[Any, ...]:
    """Return a number or a list of numbers as a tuple."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    numbers = () if listed is None else tuple(listed) if isinstance(listed, list | tuple | range) else (listed,)
    for number in numbers:
        if not isinstance(number, kind):
            raise TypeError(f"lookup_table: argument {name!r} must be {'integers' if kind is int else 'numbers'}, got {value!r}")
    return numbers


def _table(keys: tuple[int, ...], values: tuple[float, ...], default_value: float) -> torch.Tensor:
    """Return the values of all keys up to the largest one given. The last value of a repeated key counts."""
    if len(keys) != len(values):
        raise RuntimeError(f"lookup_table: there must be as many keys as values, got {len(keys)} keys and {len(values)} values")
    if keys and not 0 <= min(keys) <= max(keys) <= _LARGEST_KEY:
        raise RuntimeError(f"lookup_table: keys must be 0 to {_LARGEST_KEY}, got {min(keys)} to {max(keys)}")
    table = [default_value] * (max(keys, default=-1) + 1)
    for key, value in zip(keys, values, strict=True):
        table[key] = value
    return torch.tensor(table, dtype=torch.float32)[None]


_cached_table = functools.lru_cache(64)(_table)


@_pixel_chain.by_level
def _looked_up(input: torch.Tensor, table: torch.Tensor, default_value: float, *, dtype: torch.dtype) -> torch.Tensor:
    outside = torch.full((1,), default_value, dtype=torch.float32, device=input.device)
    # The default value follows the table, and all other keys are sent there: one lookup instead of a choice.
    table = torch.cat([table[0].to(input.device), outside])
    size = len(table) - 1
    key = input.long()
    return saturate(table[torch.where((key < 0) | (key >= size), size, key)], dtype)


def _lookup_formula(input: _pixel_chain.Images, table: torch.Tensor, default_value: float, *, dtype: torch.dtype) -> torch.Tensor | None:
    if torch.uint64 in (input.dtype, dtype):
        return None  # torch has no arithmetic for this type
    if (isinstance(input, Packed) or on_cpu(input)) and not (_pixel_chain.takes(input) and dtype is torch.uint8):
        return None  # not vectorized: 5 ms where the kernel takes 0.14
    return _looked_up(input, table, default_value, dtype=dtype)


@operator(formula=_lookup_formula, ragged_formula=True)
def lookup_table(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    default_value: float = 0.0,
    dtype: torch.dtype | None = torch.float32,
    keys: int | Sequence[int] | None = None,
    output_dtype: Any = None,
    values: float | Sequence[float] | None = None,
) -> T:
    """Look up every element in a table: ``out = values[k]`` where ``keys[k] == in``, else ``default_value``.

    Args:
        input: integers or bool of any shape and layout.
        default_value: value of elements that are not a key.
        dtype: type of the result, by default float32; the values are converted to it like ``cast``.
        keys: integers from 0 to 65535; the last value of a repeated key counts.
        output_dtype: deprecated name of ``dtype``.
        values: one number per key.

    Raises:
        RuntimeError: different numbers of keys and values, a key out of range, or floating-point input.

    >>> lookup_table(torch.tensor([1, 5, 7], dtype=torch.uint8), keys=[1, 7], values=[0.5, -2], default_value=9).torch()
    tensor([ 0.5000,  9.0000, -2.0000])
    """
    elements: Batch = input  # type: ignore[assignment]
    if elements.dtype.is_floating_point:
        raise RuntimeError(f"lookup_table: the input must be of an integer type, got {elements.dtype}")
    if output_dtype is not None:
        warnings.warn("lookup_table: output_dtype is deprecated, use dtype", DeprecationWarning, stacklevel=4)
        dtype = output_type("lookup_table", None, output_dtype)
    make = _table if is_compiling() else _cached_table
    table = make(_numbers("keys", keys, int), _numbers("values", values, (int, float)), default_value)
    return launch(like(elements, dtype), [table, default_value], any_shape=True)
