# SPDX-License-Identifier: Apache-2.0
"""Samples of different shapes as one tensor: padded, packed or nested; the check of their shapes when they are loaded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..native import empty, kernel
from ..native.tracing import is_compiling
from ..work.pending import ALL_SAMPLES, SAME_SAMPLE
from .dispatch import output, run
from .operand import Operand
from .printing import shapes_text
from .tensor import Tensor, new_tensor, unusable

_stack_padded = kernel("stack_padded")


class Padded(NamedTuple):
    """The result of :meth:`Batch.padded`: the samples in one tensor, their extents, and a mask of the data."""

    values: Tensor
    lengths: Tensor
    mask: Tensor


class Packed(NamedTuple):
    """The result of :meth:`Batch.packed`: sequences one after the other, as attention over variable lengths takes them."""

    values: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    position_ids: Tensor
    sequence_ids: Tensor


def stack_padded(batch: Operand, shapes: torch.Tensor, value: float, layout: str | None) -> Tensor:
    """Return samples with these shapes as one Tensor, padded to the largest extents."""
    largest = shapes.amax(0).tolist() if len(shapes) else [0] * shapes.shape[1]
    out = output(empty, [len(shapes), *largest], batch.buffer.dtype, batch.buffer.device)
    pending = run(_stack_padded, (batch.buffer, shapes, value, out, None), [(batch, SAME_SAMPLE)], out)
    return new_tensor(out, layout, pending, ALL_SAMPLES)


def refuse_stacking(batch: Operand, shapes: Sequence[tuple[int, ...]], layout: str | None, late: bool) -> Tensor:
    """Raise ValueError for samples of different shapes: ``late``, when the Tensor that is returned is used."""
    error = ValueError(
        f"The batch has a non-uniform shape {shapes_text(shapes)}: pad=True pads the samples with zeros, .padded() also returns their "
        "lengths, .nested() keeps them as they are"
    )
    if not late:
        raise error
    return unusable(error, batch.dtype, len(shapes[0]) + 1, layout, batch.device)


def check_fill(op: str, value: float) -> float:
    """Return a fill value. Raise ValueError unless the kernel, which takes float32, gets it exactly."""
    if not isinstance(value, int | float) or (value == value and float(np.float32(value)) != value):
        raise ValueError(f"{op}: value must be a number that float32 holds exactly, got {value!r}")
    return float(value)


def describe_padding(values: Tensor, extents: torch.Tensor) -> Padded:
    """Return padded samples (N, ...) with their extents, int64 (N, ndim), and the mask of their data."""
    device = values.buffer.device
    inside = mask(extents, values.shape).to(device)
    return Padded(values, new_tensor(extents.contiguous().to(device)), new_tensor(inside, values.layout))


def mask(extents: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a mask of this shape (N, ...), True where samples with these extents (N, ...) have data."""
    if not is_compiling():  # one pass: those below took a third of the time of padded spectrograms
        inside = np.zeros(tuple(shape), np.bool_)
        for k, extent in enumerate(extents.tolist()):
            inside[(k, *map(slice, extent))] = True
        return torch.from_numpy(inside)
    inside = torch.ones(tuple(shape), dtype=torch.bool, device="cpu")
    for axis, largest_extent in enumerate(shape[1:]):
        along = torch.arange(largest_extent, device="cpu") < extents[:, axis : axis + 1]
        inside &= along.reshape(shape[0], *(largest_extent if k == axis else 1 for k in range(len(shape) - 1)))
    return inside


def join_sequences(values: torch.Tensor, shapes: torch.Tensor) -> torch.Tensor:
    """Return a view of a batch's buffer in which its samples are one sequence."""
    if shapes.shape[1] == 0 or bool((shapes[:, 1:] != shapes[:1, 1:]).any()):
        found = shapes_text([tuple(row) for row in shapes.tolist()])
        raise ValueError(f"packed: samples must be sequences that differ in their first extent only, got {found}")
    rest = shapes[0, 1:].tolist() if len(shapes) else list(values.shape[2:])
    return values.view(int(shapes[:, 0].sum()), *rest)


def pack(values: Tensor, lengths: torch.Tensor) -> Packed:
    """Return sequences that are one after the other, with the numbers that attention needs."""
    starts, total = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), values.shape[0]
    if total > torch.iinfo(torch.int32).max:
        raise ValueError(f"packed: {total} positions do not fit in the int32 numbers of cu_seqlens")
    sequences = torch.repeat_interleave(torch.arange(len(lengths), device="cpu"), lengths)
    positions = torch.arange(total, device="cpu") - starts[:-1][sequences]
    numbers = (new_tensor(column.to(values.buffer.device)) for column in (starts.to(torch.int32), positions, sequences))
    return Packed(values, next(numbers), int(lengths.max()) if len(lengths) else 0, *numbers)


# Nested tensors can only be combined if they have the same offsets object. Results of operators share the shapes object of their input.
_offsets = WeakIdKeyDictionary()


def nest(values: torch.Tensor, shapes: torch.Tensor | None, ndim: int) -> torch.Tensor:
    """Return a NestedTensor over a batch's buffer."""
    if ndim == 0:
        raise ValueError("nested: samples without dimensions cannot be nested; use .torch()")
    if shapes is None:
        # Equal shapes: the offsets are multiples of the extent.
        size, extent = values.shape[:2]
        return torch.nested.nested_tensor_from_jagged(values.flatten(0, 1), torch.arange(size + 1, device=values.device) * extent)
    ragged = [axis for axis in range(ndim) if len(shapes) and bool((shapes[:, axis] != shapes[0, axis]).any())]
    samples = [part.view(shape) for part, shape in zip(values.split(shapes.prod(1).tolist()), shapes.tolist(), strict=True)]
    # The jagged layout has a single ragged dimension.
    if len(ragged) > 1:
        return torch.nested.nested_tensor(samples, layout=torch.strided)
    axis = ragged[0] if ragged else 0
    offsets = _offsets.get(shapes)
    if offsets is None or offsets.device != values.device:
        offsets = torch.nn.functional.pad(shapes[:, axis].cumsum(0), (1, 0)).to(values.device)
        _offsets[shapes] = offsets
    outer = shapes[0, :axis].tolist() if len(shapes) else [0] * axis
    inner = shapes[0, axis + 1 :].tolist() if len(shapes) else [0] * (ndim - 1 - axis)
    # Samples follow one another in the buffer, which is their concatenation if the ragged dimension is the outermost.
    joined = values.view(*outer, -1, *inner) if all(extent == 1 for extent in outer) and 0 not in inner else torch.cat(samples, axis)
    return torch.nested.nested_tensor_from_jagged(joined, offsets, jagged_dim=axis + 1)


def check_saved_shapes(shapes: Any, values: torch.Tensor) -> torch.Tensor | None:
    """Return saved shapes, checked against the values: kernels and Python find the samples by them."""
    if shapes is None and values.dim():
        return None
    if isinstance(shapes, torch.Tensor) and (shapes.dtype, shapes.layout, shapes.dim(), values.dim()) == (torch.int64, torch.strided, 2, 1):
        # A copy: in a file, or in memory shared with another process, the shapes could be a view of the values, and kernels would change them.
        rows = shapes.detach().cpu().clone(memory_format=torch.contiguous_format)
        if not (rows < 0).any() and rows.numpy().prod(1, dtype=np.float64).sum() == values.numel():  # in 64 bits 2**32 * 2**32 is 0
            return rows
    raise ValueError(f"Batch: the saved shapes do not fit {values.numel()} values: {shapes!r:.200}")
