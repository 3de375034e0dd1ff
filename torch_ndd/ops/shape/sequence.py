# SPDX-License-Identifier: Apache-2.0
"""Reordering and extracting frames of sequences."""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.arguments import NO_VALUE
from ..._core.operators.operator import DeviceLike, T, VaryingShape, launch, operator
from ..._core.values.batch import Batch, empty_batch, new_batch
from .._columns import Column, extents_of, first_failure, format_value, holds


def _check_sequence(op: str, input: Batch) -> None:
    if input.layout and input.layout[0] != "F":
        raise RuntimeError(f'{op}: the input must be a sequence, with a layout that starts with F, not "{input.layout}"')
    if input.ndim < 2:
        raise RuntimeError(f"{op}: the input must have at least two dimensions, frames and what they are made of; got {input.ndim}")


@operator()
def sequence_rearrange(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    new_order: VaryingShape[Sequence[int]],
) -> T:
    """Reorder the frames of a sequence: ``out[k] = in[new_order[k]]``. Frames may be repeated or left out.

    Args:
        input: a sequence, with frames outermost; any type.
        new_order: frame indices, one per frame of the result; in a Batch their number may differ between samples.

    Raises:
        RuntimeError: a frame out of range, an empty order, or an input that is not a sequence.

    >>> sequence_rearrange(torch.tensor([[1, 1], [2, 2]]), new_order=[1, 0, 1]).torch().tolist()
    [[2, 2], [1, 1], [2, 2]]
    """
    op, arrays = "sequence_rearrange", input
    assert isinstance(arrays, Batch)
    _check_sequence(op, arrays)
    order: Any = new_order
    if isinstance(order, list) and not any(isinstance(frame, tuple) for frame in order):
        order = torch.tensor([order], dtype=torch.int64).reshape(1, -1)
    if not isinstance(order, torch.Tensor) or order.dim() != 2:
        raise RuntimeError(f"{op}: new_order takes a list of frames for each sample, got {format_value(new_order)}")
    table = order
    counts = (table != NO_VALUE).sum(1)
    if not holds(counts > 0):
        raise RuntimeError(f"{op}: sample {first_failure(counts > 0)}: an empty new_order is not allowed")
    extents = extents_of(arrays)
    if not is_compiling():
        _check_frames(op, "new_order", table, extents[0])
    count: Column = table.shape[1] if len(table) == 1 or is_compiling() or bool((counts == table.shape[1]).all()) else counts
    out = empty_batch(arrays.batch_size, [count, *extents[1:]], arrays.dtype, arrays.buffer.device, arrays.layout)
    return launch(out, (table,))


def _check_frames(op: str, argument: str, table: torch.Tensor, frames: Column) -> None:
    limit = frames[:, None] if isinstance(frames, torch.Tensor) else frames
    right = ((table == NO_VALUE) | ((table >= 0) & (table < limit))).all(1)
    if not bool(right.all()):
        sample = first_failure(right)
        most = int(frames[sample]) if isinstance(frames, torch.Tensor) else frames
        row = [frame for frame in table[sample if len(table) > 1 else 0].tolist() if frame != NO_VALUE]
        raise RuntimeError(f"{op}: argument {argument!r}: sample {sample} has {most} frames, not all of {row}")


@operator()
def element_extract(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, element_map: Any) -> T | tuple[T, ...]:
    """Extract single frames of a sequence: ``out_k = in[element_map[k]]``.

    Args:
        input: a sequence, with frames outermost; any type.
        element_map: frame indices.

    Returns:
        One Tensor or Batch per index: a tuple for several, the value itself for one.

    Raises:
        RuntimeError: a frame out of range, no indices, or an input that is not a sequence.

    >>> first, last = element_extract(torch.tensor([[1, 1], [2, 2], [3, 3]]), element_map=[0, 2])
    >>> last.torch()
    tensor([3, 3])
    """
    op, arrays = "element_extract", input
    assert isinstance(arrays, Batch)
    _check_sequence(op, arrays)
    elements = list(element_map) if isinstance(element_map, list | tuple | range) else [element_map]
    if any(not isinstance(element, int) or isinstance(element, bool) for element in elements):
        raise TypeError(f"{op}: element_map must be ints, got {element_map!r}")
    if not elements:
        raise RuntimeError(f"{op}: element_map must not be empty")
    count, extents = arrays.batch_size, extents_of(arrays)
    table = torch.tensor([elements], dtype=torch.int64)
    frames = extents[0]
    if not isinstance(frames, torch.Tensor) and not all(0 <= element < frames for element in elements):
        raise RuntimeError(f"{op}: argument 'element_map': the samples have {frames} frames, not all of {elements}")
    if isinstance(frames, torch.Tensor) and not is_compiling():
        _check_frames(op, "element_map", table, frames)
    layout = arrays.layout[1:] if arrays.layout else None
    each: list[Column] = [extent.repeat(len(elements)) if isinstance(extent, torch.Tensor) else extent for extent in extents[1:]]
    out = empty_batch(len(elements) * count, each, arrays.dtype, arrays.buffer.device, layout)
    return launch(out, (table,), views=tuple(_part(out, k, count) for k in range(len(elements))))


def _part(whole: Batch, k: int, count: int) -> Batch:
    """Return views of samples k * count to (k + 1) * count. All these parts have equal shapes."""
    if whole.ragged_shapes is None:
        return new_batch(whole.buffer[k * count : (k + 1) * count], None, whole.layout)
    parts = whole.batch_size // count if count else 1
    length = whole.buffer.shape[0] // parts
    return new_batch(
        whole.buffer[k * length : (k + 1) * length],
        whole.ragged_shapes[k * count : (k + 1) * count],
        whole.layout,
        shared_extents=whole.shared_extents,
    )
