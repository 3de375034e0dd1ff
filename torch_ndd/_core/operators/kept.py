# SPDX-License-Identifier: Apache-2.0
"""Inputs that programs give as numbers or small arrays, such as the weights of a filter: kept as batches on their device, for repeated calls.

Without this each call would convert and copy them, and on a GPU upload them: ``filter`` of 16 images took the host 105 us, and takes 14.
They are looked up by their values, so that an array that the program overwrites is another one; a plan takes them like any other batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import native
from ..native import CPU
from ..values.batch import Batch, new_batch
from ..values.tensor import as_tensor

_MAX_BYTES = 1 << 10  # of a sample, whose bytes are part of the key
_MAX_REPEATED = 64 << 10  # of all samples: what the driver copies at the call
_MAX_KEPT = 256  # batches; more come from numbers that change with each call
_NUMBERS = frozenset((int, float, bool))

_kept: dict[Any, Batch] = {}
_of_graphs: dict[Any, Batch] = {}  # what captured CUDA graphs read, which may be replayed at any time: never dropped


def keep_input(value: Any, rows: int, target: torch.device, dtype: torch.dtype | None) -> Batch | None:
    """Return a number, a list or an array as a batch that repeats it; None for anything else, which the ordinary call converts.

    ``dtype``: the type of the batch, if it holds all numbers of the value.
    """
    key = _find_key(value)
    if key is None:
        return None
    found = _kept.get((rows, target, dtype, key))
    if found is None and (longest := _find_longest(key, value, rows, target, dtype)) is not None:
        with torch.inference_mode(False):
            found = new_batch(longest.buffer[:rows], None, longest.layout, longest.pending)
        _store((rows, target, dtype, key), found)
    if found is not None and target.type == "cuda" and torch.cuda.is_current_stream_capturing():
        _of_graphs[rows, target, dtype, key] = found
    return found


def _store(key: Any, kept: Batch) -> None:
    if len(_kept) >= _MAX_KEPT:
        _kept.clear()
    _kept[key] = kept


def _find_longest(key: Any, value: Any, rows: int, target: torch.device, dtype: torch.dtype | None) -> Batch | None:
    """Return a kept batch of at least so many samples, the first of which are those of a call with fewer: their number often changes."""
    longest = _kept.get((None, target, dtype, key))
    if longest is not None and longest.batch_size >= rows:
        return longest
    longest = _repeat(value, rows, target, dtype)
    if longest is not None:
        _store((None, target, dtype, key), longest)
    return longest


def _find_key(value: Any) -> Any:
    """Return the type and the bits of numbers; None if it is not known how to compare the value."""
    kind = type(value)
    if kind in _NUMBERS:
        return kind, value or str(value)
    if kind is np.ndarray:
        return None if value.nbytes > _MAX_BYTES or value.dtype.kind not in "biuf" else (value.dtype.str, value.shape, value.tobytes())
    if kind is torch.Tensor:
        if not value.is_cpu or value.nbytes > _MAX_BYTES or value.requires_grad or value.layout is not torch.strided:
            return None
        return value.dtype, value.shape, value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return _freeze(value) if kind is list or kind is tuple else None


def _freeze(values: Sequence[Any]) -> Any:
    """Return nested lists of numbers as tuples in which 1, 1.0 and True differ, and so do 0.0 and -0.0; None for lists of anything else."""
    if len(values) > _MAX_BYTES // 4:
        return None
    kinds = (*map(type, values),)
    if _NUMBERS.issuperset(kinds):
        return kinds, tuple(values) if 0 not in values else tuple(map(str, values))
    if not {list, tuple}.issuperset(kinds):
        return None
    frozen = [_freeze(part) for part in values]
    return None if None in frozen else tuple(frozen)


def _repeat(value: Any, rows: int, target: torch.device, dtype: torch.dtype | None) -> Batch | None:
    """Return at least so many samples with the value."""
    if target.type == "cuda" and torch.cuda.is_current_stream_capturing():  # memory of a graph is the graph's
        return None
    with torch.inference_mode(False):  # later calls may be outside of it
        try:
            tensor = as_tensor(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return None  # the ordinary call raises the error
        values = tensor.buffer
        most = _MAX_REPEATED // max(1, values.numel() * values.element_size())
        if rows > most:
            return None
        rows = min(1 << (rows - 1).bit_length(), most)  # a later call with more samples finds them
        if dtype is not None and values.dtype != dtype:
            converted = values.to(dtype)
            if not torch.equal(converted.to(values.dtype), values):
                return None
            values = converted
        copy = native.empty((rows, *values.shape), values.dtype, CPU).copy_(values)
        return new_batch(copy, None, tensor._layout).to_device(target)
