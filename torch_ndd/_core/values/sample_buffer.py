# SPDX-License-Identifier: Apache-2.0
"""The base of Batch: samples in one buffer, their shapes, and their values as torch tensors."""

from typing import NamedTuple

import numpy as np
import torch

from ..native import empty, kernel
from ..work.pending import ALL_SAMPLES, SAME_SAMPLE
from . import ragged
from .arithmetic import Arithmetic
from .dispatch import output, run
from .extents import Fixed
from .operand import TorchTensor
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


class SampleBuffer(Arithmetic):
    """N samples in one buffer: dense (N, ...) if their shapes are equal, otherwise packed, one after the other."""

    _is_batch = True
    ragged_shapes: TorchTensor | None  # int64 on the CPU (N, ndim), or None if the buffer is dense
    shared_extents: Fixed | None  # of a ragged batch: see extents.py

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return (self.buffer if self.ragged_shapes is None else self.ragged_shapes).shape[0]

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """Shape of every sample; known before the values."""
        if self.ragged_shapes is None:
            return [tuple(self.buffer.shape[1:])] * self.buffer.shape[0]
        rows = [tuple(row) for row in self.ragged_shapes.tolist()]
        if self.shared_extents is not None and torch.compiler.is_compiling():  # a constant in the graph, which need not be read
            rows = [tuple(n if known is None else known for n, known in zip(row, self.shared_extents, strict=True)) for row in rows]
        return rows

    @property
    def ndim(self) -> int:
        """Number of dimensions of a sample."""
        return self.buffer.dim() - 1 if self.ragged_shapes is None else self.ragged_shapes.shape[1]

    def shared_extent(self, axis: int) -> int | None:
        """Return the extent that all samples share along an axis, or None if they differ, or if it is unknown before a compiled graph runs."""
        if self.ragged_shapes is None:
            return self.buffer.shape[1:][axis]
        if self.shared_extents is not None and (extent := self.shared_extents[axis]) is not None:
            return extent
        if torch.compiler.is_compiling() or not len(self.ragged_shapes):
            return None
        column = self.ragged_shapes.numpy()[:, axis]
        return int(column[0]) if (column == column[0]).all() else None

    def frame_counts(self) -> "int | TorchTensor":
        """Return the first extent of the samples: a number if the batch is dense, else int64 (N,) with one per sample."""
        return self.buffer.shape[1] if self.ragged_shapes is None else self.ragged_shapes[:, 0]

    def sample_shapes(self) -> TorchTensor:
        """Return the shapes of the samples, int64 (N, ndim), dense or not."""
        if self.ragged_shapes is not None:
            return self.ragged_shapes
        return torch.tensor([self.buffer.shape[1:]], dtype=torch.int64).reshape(1, -1).expand(self.buffer.shape[0], -1)

    def part(self, i: int) -> TorchTensor:
        """Return the values of one sample of a ragged batch."""
        begin, end = self._offsets()[i : i + 2]
        return self.buffer[begin:end]

    def _offsets(self) -> list[int]:
        assert self.ragged_shapes is not None
        offsets = self.__dict__.get("_begins")
        if offsets is None:
            offsets = self.__dict__["_begins"] = [0, *self.ragged_shapes.prod(1).cumsum(0).tolist()]
        return offsets

    def torch(self, copy: bool | None = None, pad: bool = False) -> TorchTensor:
        """Return all samples as one torch tensor (N, ...), which shares memory with this batch if possible.

        Args:
            copy: True always copies; False raises ValueError if a copy is needed.
            pad: Pad samples of different shapes with zeros (:meth:`padded` also returns their lengths); without it they raise ValueError.
        """
        if self.ragged_shapes is not None and copy is False:
            raise ValueError("The batch cannot be converted to a tensor without a copy.")
        values = self.export_buffer()  # raises the error of the call that made this batch, not of the padding
        if self.ragged_shapes is not None:
            return self.stack(pad, lazily=False).wait()
        return values.clone() if copy and values is self.buffer else values

    def stack(self, pad: bool = False, value: float = 0, lazily: bool = True) -> Tensor:
        """Return all samples as one Tensor. If their shapes differ, raise ValueError: when the result is used or, not ``lazily``, immediately."""
        self = self.settle()
        layout = "N" + (self._layout or "") if self._layout or self.ndim == 0 else None
        if self.ragged_shapes is None:
            return new_tensor(self.buffer, layout, self.pending, ALL_SAMPLES, self.caller_owned)
        if not pad and self.batch_size:
            error = ValueError(
                f"The batch has a non-uniform shape {shapes_text(self.shape)}: pad=True pads the samples with zeros, .padded() also returns their "
                "lengths, .nested() keeps them as they are"
            )
            if not lazily or self.caller_owned or torch.compiler.is_compiling():
                raise error
            return unusable(error, self.dtype, self.ndim + 1, layout, self.device)
        out = output(empty, [self.batch_size, *ragged.largest(self.ragged_shapes)], self.buffer.dtype, self.buffer.device)
        pending = run(_stack_padded, (self.buffer, self.ragged_shapes, value, out, None), [(self, SAME_SAMPLE)], out)
        return new_tensor(out, layout, pending, ALL_SAMPLES)

    def padded(self, value: float = 0) -> Padded:
        """Pad all samples with ``value`` to the largest extents, in one Tensor, and return it with lengths and a mask.

        Args:
            value: A number that float32 represents exactly; it is saturated if the dtype is smaller.

        Returns:
            ``values`` (N, ...); ``lengths``, the extents of each sample, int64 (N, ndim); ``mask``, bool of the shape of ``values``, True for data.
            On the device of this batch.

        >>> from torch_ndd import batch
        >>> values, lengths, mask = batch([[1, 2], [3]]).padded(-1)
        >>> values.torch().tolist(), lengths.torch().tolist(), mask.torch().tolist()
        ([[1, 2], [3, -1]], [[2], [1]], [[True, True], [True, False]])
        """
        if not isinstance(value, int | float) or (value == value and float(np.float32(value)) != value):
            raise ValueError(f"padded: value must be a number that float32 holds exactly, got {value!r}")
        values, extents, device = self.stack(True, float(value)), self.sample_shapes(), self.buffer.device
        mask = ragged.mask(extents, values.shape).to(device)
        return Padded(values, new_tensor(extents.contiguous().to(device)), new_tensor(mask, values.layout))

    def packed(self) -> Packed:
        """Join sequences of different lengths along their first axis, without a copy: for attention with ``cu_seqlens``.

        Returns:
            ``values`` (T, ...), which share this batch's memory and may be pending; ``cu_seqlens`` int32 (N + 1), where each sequence begins and
            the last one ends; ``max_seqlen``, the largest length; ``position_ids`` int64 (T,), positions within the sequence; ``sequence_ids`` int64
            (T,), the number of the sequence. On the device of this batch.

        Raises:
            ValueError: samples without dimensions, or that differ in another extent than the first.

        >>> from torch_ndd import batch
        >>> values, cu_seqlens, longest, positions, sequences = batch([[5, 6], [7]]).packed()
        >>> values.torch().tolist(), cu_seqlens.torch().tolist(), longest, positions.torch().tolist(), sequences.torch().tolist()
        ([5, 6, 7], [0, 2, 3], 2, [0, 1, 0], [0, 0, 1])
        """
        self = self.settle()
        shapes, values = self.sample_shapes(), self.buffer
        if self.ndim == 0 or bool((shapes[:, 1:] != shapes[:1, 1:]).any()):
            raise ValueError(f"packed: samples must be sequences that differ in their first extent only, got {shapes_text(self.shape)}")
        lengths, rest = shapes[:, 0], shapes[0, 1:].tolist() if len(shapes) else list(values.shape[2:])
        starts, total = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), int(lengths.sum())
        if total > torch.iinfo(torch.int32).max:
            raise ValueError(f"packed: {total} positions do not fit in the int32 numbers of cu_seqlens")
        sequences = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        positions = torch.arange(total) - starts[:-1][sequences]
        joined = new_tensor(values.view(total, *rest), None, self.pending, ALL_SAMPLES, self.caller_owned)
        numbers = (new_tensor(column.to(values.device)) for column in (starts.to(torch.int32), positions, sequences))
        return Packed(joined, next(numbers), int(lengths.max()) if len(lengths) else 0, *numbers)

    def nested(self) -> TorchTensor:
        """Return all samples as one NestedTensor: in torch's jagged layout if at most one dimension differs, else in its strided one.

        It shares memory with this batch if the dimension that differs is the first one. Raise ValueError for samples without dimensions.

        >>> from torch_ndd import batch
        >>> batch([[1, 2], [3]]).nested().unbind()
        (tensor([1, 2], dtype=torch.int32), tensor([3], dtype=torch.int32))
        """
        return ragged.nest(self.export_buffer(), self.ragged_shapes, self.ndim)
