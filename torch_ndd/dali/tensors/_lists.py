# SPDX-License-Identifier: Apache-2.0
"""``TensorListCPU`` and ``TensorListGPU``: samples of one type, over :class:`torch_ndd.Batch`."""

import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from typing_extensions import Self

from ... import types as elements
from ..._core.values.batch import Batch, as_batch, repeat_sample
from ..._core.values.operand import unwrap
from ..._core.values.samples import sample_index
from ..._core.values.tensor import Tensor, check_layout, new_tensor
from ..._core.work.pending import ALL_SAMPLES
from .. import types
from .._graph.graph import EMPTY
from ._formatting import format_batch
from ._single import Memory, SampleTensor, TensorCPU, TensorGPU, describe_type, import_tensor, is_capsule


class _TensorList(Memory):
    """Samples of one type and number of dimensions."""

    _sample_class: ClassVar[type[SampleTensor]]
    _batch: Batch

    @classmethod
    def _wrap(cls, batch: Batch) -> Self:
        """Wrap a Batch, without waiting for it."""
        tensors = cls.__new__(cls)
        tensors._batch = batch
        return tensors

    def _operand(self) -> Batch:
        return self._batch

    def _replace(self, batch: Batch) -> None:
        self._batch = batch

    @classmethod
    def _import(cls, data: Any, layout: str | None) -> Batch:
        name, data = cls.__name__, unwrap(data)
        if isinstance(data, Batch):
            batch = data
        elif isinstance(data, list | tuple):
            batch = cls._join([import_tensor(f"sample {i} of a {name}", sample) for i, sample in enumerate(data)])
        else:
            array = import_tensor(name, data)
            if not array.ndim:
                raise RuntimeError(f"{name}: the first dimension of an array counts samples, but this one has no dimensions")
            batch = as_batch(array)
            # The letter of the first dimension is dropped with it; an empty layout removes the rest.
            return as_batch(batch, layout=check_layout(name, layout, batch.ndim) or "")
        return as_batch(batch, layout=check_layout(name, layout, batch.ndim)) if layout else batch

    @classmethod
    def _join(cls, parts: list[Tensor]) -> Batch:
        """Return a batch of tensors of one type, number of dimensions and layout."""
        if not parts:
            return EMPTY
        first = parts[0]
        for i, sample in enumerate(parts):
            if _describe(sample) != _describe(first):
                raise TypeError(f"{cls.__name__}: sample {i} has {_describe(sample)}, but sample 0 has {_describe(first)}: they must agree")
        return as_batch(parts)

    @classmethod
    def from_dlpack_list(cls, list_of_objects: Sequence[Any], layout: str | None = None, stream: Any = None, contiguous: bool = False) -> Self:
        """Return a list with the values of objects with ``__dlpack__`` or of DLPack capsules.

        Args:
            list_of_objects: The samples.
            layout: One letter for each dimension of a sample.
            stream: Ignored: the current one.
            contiguous: Ignored: the samples are copied into one buffer, unless they lie one after the other.

        Raises:
            TypeError: another object, or samples of different types.
            ValueError: a layout that does not fit.
        """
        for i, sample in enumerate(list_of_objects):
            if not is_capsule(sample) and not hasattr(sample, "__dlpack__"):
                raise TypeError(
                    f"{cls.__name__}.from_dlpack_list: sample {i}, {describe_type(sample)}, is not a DLPack capsule and has no __dlpack__"
                )
        return cls._wrap(cls._import(list(list_of_objects), layout))

    @classmethod
    def broadcast(cls, tensor: Any, num_samples: int) -> Self:
        """Return a list of ``num_samples`` copies of a tensor."""
        if num_samples < 0:
            raise ValueError(f"{cls.__name__}.broadcast: num_samples must not be negative, got {num_samples}")
        return cls._wrap(repeat_sample(import_tensor(cls.__name__, tensor), num_samples))

    @property
    def dtype(self) -> types.DALIDataType:
        """Element type; ``NO_TYPE`` of a list that has had no samples."""
        return types.NO_TYPE if self._batch is EMPTY else super().dtype

    def __len__(self) -> int:
        return self._batch.batch_size

    def __getitem__(self, i: Any) -> Any:
        """Return a sample over the memory of this list, or for a slice the list of those samples. Raise IndexError out of range."""
        if isinstance(i, slice):
            return self._wrap(self._batch.select(i))
        return self._sample_class._wrap(self._batch.select(sample_index(i, len(self))))

    def shape(self) -> list[tuple[int, ...]]:
        """Return the shape of each sample."""
        return self._batch.shape

    def is_dense_tensor(self) -> bool:
        """Return whether all samples have one shape."""
        return self._batch.densify().ragged_shapes is None

    def as_tensor(self) -> Any:
        """Return the samples as one tensor (N, ...) over the memory of this list, with ``N`` in front of its layout.

        Raises:
            RuntimeError: the samples have different shapes.
        """
        return self._sample_class._wrap(self._require_uniform("as_tensor").stack())

    def _require_uniform(self, method: str) -> Batch:
        batch = self._batch.densify()
        if batch.ragged_shapes is not None and len(batch.ragged_shapes):
            raise RuntimeError(
                f"{self._name()}.{method}: the samples have different shapes, from {batch.shape[0]} to {batch.shape[-1]}; use single samples, or "
                "pad them with fn.pad"
            )
        return batch

    def as_reshaped_tensor(self, new_shape: Sequence[int]) -> Any:
        """Return the values of all samples, one after the other, as one tensor of a shape, over the memory of this list.

        Raises:
            RuntimeError: the shape has another number of elements.
        """
        batch, extents = self._batch, [int(extent) for extent in new_shape]
        if any(extent < 0 for extent in extents) or math.prod(extents) != batch.buffer.numel():
            raise RuntimeError(f"{self._name()}.as_reshaped_tensor: {batch.buffer.numel()} elements cannot have the shape {extents}")
        return self._sample_class._wrap(new_tensor(batch.buffer.view(extents), None, batch.pending, ALL_SAMPLES, batch.caller_owned))

    def as_cpu(self) -> "TensorListCPU":
        """Return this list in host memory: itself if it is there."""
        return self if isinstance(self, TensorListCPU) else TensorListCPU._wrap(self._batch.cpu())

    def reset(self) -> None:
        """Remove all samples."""
        self._batch = EMPTY

    def __str__(self) -> str:
        return format_batch(self)

    def __repr__(self) -> str:
        return format_batch(self, show_data=False)


def _describe(sample: Tensor) -> str:
    return f'{elements.dtype_name(sample.dtype)}, {sample.ndim} dimensions and the layout "{sample.layout or ""}"'


class TensorListCPU(_TensorList):
    """Samples in host memory: an output of a pipeline.

    Args:
        tl_object: An array, whose first dimension counts samples, a DLPack capsule, a list of :class:`TensorCPU`, or another TensorListCPU. Their
            memory is shared.
        layout: One letter for each dimension of a sample.
        is_pinned: Ignored.

    Raises:
        TypeError: another object, or samples of different types.
        ValueError: a layout that does not fit.

    >>> samples = TensorListCPU(np.arange(6, dtype=np.int32).reshape(2, 3), layout="W")
    >>> len(samples), samples.shape(), samples.at(1), samples.as_array().sum()
    (2, [(3,), (3,)], array([3, 4, 5], dtype=int32), np.int64(15))
    """

    _device = "cpu"
    _sample_class = TensorCPU

    def __init__(self, tl_object: Any, layout: str | None = "", is_pinned: bool = False) -> None:
        self._batch = self._import(tl_object, layout)
        if self._batch.buffer.device.type != "cpu":
            raise TypeError("TensorListCPU takes host memory, but this object is on a GPU; call as_cpu()")

    def at(self, i: int) -> np.ndarray:
        """Return a sample as an array over the memory of this list. Raise RuntimeError out of range."""
        return np.asarray(_at(self, i)._value)

    def as_array(self) -> np.ndarray:
        """Return the samples as one array (N, ...), over the memory of this list. Raise RuntimeError if the shapes differ."""
        return self._require_uniform("as_array").export_buffer().numpy()


class TensorListGPU(_TensorList):
    """Samples in GPU memory: an output of a pipeline. See :class:`TensorListCPU`.

    Args:
        object: An object with ``__cuda_array_interface__`` or a DLPack capsule, whose first dimension counts samples, a list of :class:`TensorGPU`,
            or another TensorListGPU. Their memory is shared.
        layout: One letter for each dimension of a sample.
        device_id: Ignored: the memory determines the GPU.
    """

    _device = "gpu"
    _sample_class = TensorGPU

    def __init__(self, object: Any, layout: str | None = "", device_id: int = -1) -> None:
        self._batch = self._import(object, layout)
        if self._batch is not EMPTY and self._batch.buffer.device.type == "cpu":
            raise TypeError("TensorListGPU takes GPU memory, but this object is in host memory")

    def at(self, i: int) -> TensorGPU:
        """Return a sample. Raise RuntimeError out of range."""
        return _at(self, i)

    def device_id(self) -> int:
        """Return the index of the GPU."""
        return int(self._batch.buffer.device.index or 0)

    @property
    def stream(self) -> Any:
        """The CUDA stream on which the values are ready."""
        return torch.cuda.current_stream(self._batch.buffer.device)


def _at(samples: _TensorList, i: Any) -> Any:
    index = operator.index(i)
    if not 0 <= index < len(samples):
        raise RuntimeError(f"{samples._name()}.at: index {index} is out of range for {len(samples)} samples")
    return samples[index]


def as_tensor_list(batch: Batch) -> "TensorListCPU | TensorListGPU":
    """Wrap a Batch as the tensor list for its device, without waiting for it."""
    return (TensorListCPU if batch.buffer.device.type == "cpu" else TensorListGPU)._wrap(batch)
