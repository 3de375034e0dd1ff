# SPDX-License-Identifier: Apache-2.0
"""Outputs of several readers as those of one batch."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.extents import find_lasting_extents
from .dataset._items import OF_NUMPY, fields_of, is_dataclass, parts_of, with_entries, with_fields, with_parts

_MANY_BYTES = 4 << 20


def merge_outputs(outputs: Sequence[Any], order: np.ndarray) -> Any:
    """Merge equal structures of Batches: sample k of the result is sample ``order[k]`` of all samples, one output after the other."""
    first = outputs[0]
    if isinstance(first, Batch):
        return _merge_batches(outputs, order)
    if isinstance(first, Mapping):
        return with_entries(first, {key: merge_outputs([output[key] for output in outputs], order) for key in first})
    if is_dataclass(first):
        return with_fields(first, {name: merge_outputs([fields_of(output)[name] for output in outputs], order) for name in fields_of(first)})
    if parts_of(first):
        parts = [merge_outputs(column, order) for column in zip(*outputs, strict=True)]
        return tuple(parts) if type(first) is tuple else with_parts(first, parts)
    values = list(chain.from_iterable(outputs))  # texts, or other values, one per sample
    chosen = [values[k] for k in order.tolist()]
    return tuple(chosen) if isinstance(first, tuple) else chosen


def _merge_batches(batches: Sequence[Batch], order: np.ndarray) -> Batch:
    # Three ways, by cost: native copies, one indexed copy of equal shapes, or a packed copy with a table of shapes.
    first = batches[0]
    # Native threads copy each sample as soon as it is there. For little data that takes longer: 3 us of Python for each.
    if any(batch.pending is not None for batch in batches) or sum(batch.buffer.nbytes for batch in batches) > _MANY_BYTES:
        samples = [sample for batch in batches for sample in batch.tensors]
        merged = as_batch([samples[k] for k in order.tolist()], layout=first.layout)
    elif all(batch.ragged_shapes is None and batch.buffer.shape[1:] == first.buffer.shape[1:] for batch in batches):
        merged = new_batch(_join([batch.buffer for batch in batches], order), None, first.layout)
    else:
        merged = _merge_unequal(batches, order)
    # Batches of boxes and key points are rebuilt around the merged values, with the canvas of each sample.
    over = getattr(first, "over", None)  # of batches with a meaning, such as boxes
    if over is None:
        return merged
    if not hasattr(first, "canvas_size"):
        return over(merged)
    sizes = [size for batch in batches for size in batch.canvas_size]  # type: ignore[attr-defined]
    return over(merged, canvas_size=[sizes[k] for k in order.tolist()])


def _merge_unequal(batches: Sequence[Batch], order: np.ndarray) -> Batch:
    shapes = torch.cat([batch.sample_shapes() for batch in batches])
    layout = batches[0].layout
    values = _join([batch.buffer.reshape(-1) for batch in batches])
    return new_batch(values, shapes, layout, shared_extents=find_lasting_extents(shapes.tolist(), layout)).select_samples(order.tolist())


# Of as many bytes as any type, such as bfloat16, which NumPy does not have.
_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def _join(tensors: Sequence[torch.Tensor], order: np.ndarray | None = None) -> torch.Tensor:
    """Return tensors one after the other, or rows of that.

    By NumPy: torch divides the copy among threads of OpenMP, for which a forked child waits forever.
    """
    dtype = tensors[0].dtype
    if not all(tensor.is_cpu and tensor.dtype is dtype for tensor in tensors):
        rows = torch.cat([*tensors])
        return rows if order is None else rows[torch.from_numpy(order)]
    numbers = np.concatenate([_as_numbers(tensor) for tensor in tensors])
    joined = torch.from_numpy(numbers if order is None else numbers[order])
    return joined if joined.dtype is dtype else joined.view(dtype)


def _as_numbers(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype in OF_NUMPY and not tensor.requires_grad:  # one call of torch, not three, for each output of each source of a batch
        return tensor.numpy()
    return tensor.detach().view(_NUMBERS[tensor.dtype.itemsize]).numpy()
