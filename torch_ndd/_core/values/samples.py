# SPDX-License-Identifier: Apache-2.0
"""The types of ``batch.tensors`` and ``batch.slice``."""

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np
from typing_extensions import Self

from ..native.tracing import is_compiling
from .indexing import PLAIN_BOUNDS, as_keys
from .operand import loop
from .tensor import Tensor


class Owner(Protocol):
    """The part of Batch that is used here."""

    @property
    def batch_size(self) -> int: ...
    def nth(self, i: int) -> Tensor: ...
    def select_samples(self, keys: Sequence[int]) -> Self: ...
    def _slice(self, keys: tuple[Any, ...]) -> Self: ...
    def copy_values(self) -> Self: ...


BatchT = TypeVar("BatchT", bound=Owner)


def sample_index(key: Any, size: int) -> int:
    """Return an index that may count from the end. Raise IndexError out of range, TypeError unless an integer."""
    index = operator.index(key)
    if not -size <= index < size:
        raise IndexError(f"sample {index} is out of range for a batch of {size}")
    return index % size


class Samples(Sequence[Tensor], Generic[BatchT]):
    """The samples of a batch, or some of them, as a list. Each Tensor is created once, on demand, and shares the batch's memory.

    >>> from torch_ndd import batch
    >>> samples = batch([[1], [2, 3], [4]]).tensors
    >>> len(samples), samples[-1].item(), samples[[2, 0]].as_batch().shape
    (3, 4, [(1,), (1,)])
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, owner: BatchT, indices: Sequence[int]) -> None:
        self._owner = owner
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, key: int) -> Tensor: ...
    @overload
    def __getitem__(self, key: "slice | list[int]") -> "Samples[BatchT]": ...
    @overload
    def __getitem__(self, key: EllipsisType) -> BatchT: ...
    def __getitem__(self, key: Any) -> "Tensor | Samples[BatchT] | BatchT":
        if key is Ellipsis:
            return self.as_batch()
        if isinstance(key, slice):
            return Samples(self._owner, self._indices[key])
        if isinstance(key, list) or (isinstance(key, np.ndarray) and key.ndim == 1):
            return Samples(self._owner, [self._indices[sample_index(k, len(self))] for k in key])
        return self._owner.nth(self._indices[sample_index(key, len(self))])

    def __contains__(self, value: Any) -> bool:
        # By identity: == of Tensors is elementwise.
        return any(sample is value for sample in self)

    def tolist(self) -> list[Tensor]:
        """Return an ordinary list."""
        return list(self)

    def select(self, key: Any) -> "Tensor | Samples[BatchT] | BatchT":
        """Return a Tensor for an int, a list for a slice or a list of ints, a Batch for ``...``, like indexing."""
        return self[key]

    def as_batch(self, copy: bool = False) -> BatchT:
        """Return these samples as a Batch: the batch itself if they are all of it. With ``copy`` in new memory."""
        batch = self._owner.select_samples(self._indices)
        return batch.copy_values() if copy else batch

    def __repr__(self) -> str:
        return f"<{len(self)} of the {self._owner.batch_size} samples of a Batch>"


class SampleSlicer(Generic[BatchT]):
    """The type of ``batch.slice``: indexing it indexes every sample."""

    def __init__(self, owner: BatchT) -> None:
        self._owner = owner

    def __getitem__(self, key: Any) -> BatchT:
        keys = as_keys(key)
        if (recorder := loop.recorder) is not None and not is_compiling():
            # A loop records keys that are the same in each iteration.
            plain = [_plain(part) for part in keys]
            if None not in plain:
                return recorder.call("Batch.slice", _perform, (self._owner, plain), {}, False)
        return self._owner._slice(keys)


def _plain(key: Any) -> tuple[Any, ...] | None:
    """Return the arguments of a slice, an index, or nothing for Ellipsis; None for a key that must be computed first."""
    if key is Ellipsis:
        return ()
    parts = (key.start, key.stop, key.step) if type(key) is slice else (key,)
    return parts if all(type(part) in PLAIN_BOUNDS for part in parts) else None


def _perform(inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    owner, plain = inputs
    return owner._slice(tuple(slice(*parts) if len(parts) == 3 else parts[0] if parts else Ellipsis for parts in plain))
