# SPDX-License-Identifier: Apache-2.0
"""Keys of samples: whole numbers, texts or bytes, as bytes one after the other."""

from typing import Any, NamedTuple

import numpy as np
import torch

from .._core.values.batch import Batch

_WHOLE = {torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64}


class Keys(NamedTuple):
    """Keys of some samples. Tensors, because native code needs no more than their addresses: NumPy took 40 us for a batch."""

    data: torch.Tensor  # uint8, contiguous
    lengths: torch.Tensor  # int64 (N,) or (N, 1), contiguous
    is_number: bool

    def text(self, k: int) -> str:
        """Return a key for messages."""
        content = self.content(k)
        return str(int.from_bytes(content, "little", signed=True)) if self.is_number else repr(content.decode(errors="backslashreplace"))

    def compare(self, chosen: np.ndarray, others: "Keys") -> np.ndarray:
        """Return whether each of the chosen keys equals its counterpart, bool."""
        if torch.equal(self.lengths.view(-1), others.lengths.view(-1)) and torch.equal(self.data.view(-1), others.data.view(-1)):  # nearly always
            return np.ones(len(chosen), bool)
        return np.array([self.content(k) == others.content(n) for n, k in enumerate(chosen.tolist())])

    def content(self, k: int) -> bytes:
        """Return the bytes of a key."""
        begin = int(self.lengths[:k].sum())
        return self.data.view(-1)[begin : begin + int(self.lengths[k])].numpy().tobytes()


def keys_of(op: str, what: str, column: Any) -> Keys:
    """Return the keys in a column: whole numbers, texts or bytes. Raise ValueError for other values."""
    if isinstance(column, Batch):
        values = column.wait()
        if not values.is_cpu:  # native code reads it, wherever a function of the source has put it
            values = values.cpu()
        # One-dimensional bytes are texts of different lengths, packed one after the other.
        if column.ndim == 1 and values.dtype == torch.uint8:
            shapes = column.ragged_shapes
            lengths = torch.full(values.shape[:1], values.shape[1], dtype=torch.int64) if shapes is None else shapes.contiguous()
            return Keys(values.contiguous(), lengths, False)
        if column.ragged_shapes is None and values.numel() == len(values) and values.dtype in _WHOLE:
            return _numbers(values.reshape(-1))
        kind = str(values.dtype).removeprefix("torch.")
        raise ValueError(f"{op}: {what}: keys must be whole numbers, texts or bytes, got {kind} with {column.ndim} dimensions")
    texts = [value.encode() if isinstance(value, str) else value for value in column]
    if not all(isinstance(value, bytes) for value in texts):
        raise ValueError(f"{op}: {what}: keys must be whole numbers, texts or bytes, got {type(column[0]).__name__}")
    joined = bytearray().join(texts)  # writable, as torch wants it
    return Keys(_bytes(joined), torch.tensor([len(value) for value in texts], dtype=torch.int64), False)


def _bytes(content: bytearray) -> torch.Tensor:
    return torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def _numbers(values: torch.Tensor) -> Keys:
    """Return numbers as keys of eight bytes, or of nine if they do not fit in int64: in eight they would equal negative ones."""
    wide = values.contiguous().view(torch.int64) if values.dtype == torch.uint64 else values.to(torch.int64).contiguous()
    lengths = torch.full(wide.shape, 8, dtype=torch.int64)
    data = wide.view(torch.uint8)
    if values.dtype == torch.uint64 and (large := wide < 0).any():
        padded = torch.zeros((len(wide), 9), dtype=torch.uint8)
        padded[:, :8] = data.view(-1, 8)
        kept = torch.ones(padded.shape, dtype=torch.bool)
        kept[:, 8] = large
        data, lengths = padded[kept], lengths + large
    return Keys(data, lengths, True)
