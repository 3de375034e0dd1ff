# SPDX-License-Identifier: Apache-2.0
"""``TensorCPU``, ``TensorGPU``, ``TensorListCPU`` and ``TensorListGPU``: what a pipeline returns, over :class:`torch_ndd.Tensor` and ``Batch``."""

import copy
import ctypes
import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from typing_extensions import Self

from .. import types as elements
from .._core import foreign
from .._core.batch import Batch, as_batch, repeated
from .._core.pending import ALL_SAMPLES
from .._core.samples import sample_index
from .._core.tensor import Tensor, as_tensor, check_layout, new_tensor
from . import types
from ._formatting import PipelineBatchAdapter, PipelineTensorAdapter, format_batch, format_tensor
from ._graph import EMPTY

__all__ = [
    "PipelineBatchAdapter",
    "PipelineTensorAdapter",
    "TensorCPU",
    "TensorGPU",
    "TensorListCPU",
    "TensorListGPU",
    "format_batch",
    "format_tensor",
]


def is_capsule(data: Any) -> bool:
    """Return whether data is a DLPack capsule."""
    return type(data).__name__ == "PyCapsule"


def from_capsule(capsule: Any) -> Tensor:
    """Return the memory of a DLPack capsule, which can be used once. Memory that must not be written to is copied."""
    read_only = foreign._is_read_only(capsule)
    try:
        values, shared = foreign.from_torch(torch.from_dlpack(capsule))
    except (RuntimeError, BufferError) as error:
        raise RuntimeError(f"this DLPack capsule cannot be used, or was used before: {error}") from None
    return new_tensor(values.clone() if read_only and shared else values, external=shared and not read_only)


class _Memory:
    """What tensors and tensor lists have in common."""

    _device: ClassVar[str]  # "cpu" or "gpu"

    def _operand(self) -> Any:
        """Return the Tensor or Batch."""
        raise NotImplementedError

    def _replace(self, made: Any) -> None:
        """Use another Tensor or Batch from now on."""
        raise NotImplementedError

    def _name(self) -> str:
        return type(self).__name__

    @property
    def dtype(self) -> types.DALIDataType:
        """Element type."""
        return types.DALIDataType(int(elements.type_id(self._operand().dtype)))  # type: ignore[arg-type]

    def layout(self) -> str:
        """Return the layout of a sample, one letter for each dimension; empty if there is none."""
        return self._operand().layout or ""

    def ndim(self) -> int:
        """Return the number of dimensions of a sample."""
        return self._operand().ndim

    def set_layout(self, layout: str | None) -> None:
        """Change the layout; an empty one removes it. Raise ValueError unless it has a letter for each dimension."""
        operand = self._operand()
        made = copy.copy(operand)
        made._layout = check_layout(f"{self._name()}.set_layout", layout, operand.ndim)
        self._replace(made)

    def data_ptr(self) -> int:
        """Return the address of the values, after waiting for them."""
        return self._operand()._shared().data_ptr()

    def copy_to_external(self, ptr: Any, cuda_stream: Any = None, non_blocking: bool = False, use_copy_kernel: bool = False) -> None:
        """Copy the values, one sample after the other, to memory of the caller, which must have room for them.

        Args:
            ptr: The address, as an int or a ``ctypes.c_void_p``.
            cuda_stream: Ignored, like ``non_blocking`` and ``use_copy_kernel``: the copy has ended when this returns.

        Raises:
            TypeError: not an address.
        """
        address = ptr.value if isinstance(ptr, ctypes.c_void_p) else ptr
        if isinstance(address, bool) or not isinstance(address, int) or not address:
            raise TypeError(f"{self._name()}.copy_to_external: ptr must be an address, as an int or a ctypes.c_void_p, got {ptr!r}")
        values = self._operand()._shared()
        if values.device.type != "cpu":
            try:
                torch.as_tensor(_Address(address, values.nbytes), device=values.device).copy_(values.reshape(-1).view(torch.uint8))
                torch.cuda.synchronize(values.device)
                return
            except RuntimeError:  # not memory of a GPU
                values = values.cpu()
        ctypes.memmove(address, values.data_ptr(), values.nbytes)

    def reinterpret(self, new_type: types.DALIDataType) -> None:
        """Change the element type and keep the bytes. Raise RuntimeError unless the new type has the same size."""
        if not isinstance(new_type, types.DALIDataType):
            raise TypeError(f"{self._name()}.reinterpret: new_type must be a DALIDataType, got {new_type!r}")
        operand, dtype = self._operand(), elements.to_dtype(elements.DALIDataType(new_type.value))
        if dtype.itemsize != operand.dtype.itemsize:
            raise RuntimeError(f"{self._name()}.reinterpret: {new_type} has another size than {self.dtype}")
        made = copy.copy(operand)
        made._values = operand._values.view(dtype)
        self._replace(made)


class _Address:
    """Memory of a GPU at an address, for torch."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def imported(name: str, data: Any) -> Tensor:
    """Return a Tensor over the memory of an object. Raise TypeError for lists, numbers, text and tensor lists, RuntimeError for what is no number."""
    if isinstance(data, _Tensor):
        return data._value
    if is_capsule(data):
        return from_capsule(data)
    if isinstance(data, bytes | bytearray):
        data = np.frombuffer(data, np.uint8)
    if isinstance(data, _Memory | Batch | str) or foreign.is_python(data) or data is None:
        raise TypeError(f"{name} is made from an array, a buffer or a DLPack capsule, not from {_article(data)}")
    if hasattr(data, "__array_interface__") and not hasattr(data, "__array__"):
        data = np.asarray(data)
    return as_tensor(data)


def _article(data: Any) -> str:
    return "None" if data is None else f"an object of type {type(data).__name__}"


class _Tensor(_Memory):
    """One sample."""

    _value: Tensor

    @classmethod
    def _of(cls, value: Tensor) -> Self:
        """Return a Tensor in this form, without waiting for it."""
        made = cls.__new__(cls)
        made._value = value
        return made

    def _operand(self) -> Tensor:
        return self._value

    def _replace(self, made: Tensor) -> None:
        self._value = made

    def shape(self) -> list[int]:
        """Return the extents."""
        return list(self._value.shape)

    def as_cpu(self) -> "TensorCPU":
        """Return this tensor in host memory: itself if it is there."""
        return self if isinstance(self, TensorCPU) else TensorCPU._of(self._value.cpu())

    def squeeze(self, dim: int | None = None) -> bool:
        """Remove all dimensions of extent 1 and their letters, or only dimension ``dim``. Return whether there were any.

        Raises:
            RuntimeError: no such dimension.
        """
        shape, layout = self._value.shape, self._value.layout
        if dim is None:
            gone = {axis for axis, extent in enumerate(shape) if extent == 1}
        else:
            if not -len(shape) <= dim < len(shape):
                raise RuntimeError(f"{self._name()}.squeeze: dim={dim} is out of range for {len(shape)} dimensions")
            gone = {dim % len(shape)} & {axis for axis, extent in enumerate(shape) if extent == 1}
        if gone:
            made = copy.copy(self._value)
            made._values = self._value._values.view([extent for axis, extent in enumerate(shape) if axis not in gone])
            made._layout = "".join(letter for axis, letter in enumerate(layout or "") if axis not in gone) or None
            self._value = made
        return bool(gone)

    def source_info(self) -> str:
        """Return where the sample comes from, such as the name of its file; empty if that is unknown."""
        return next(iter(self._value._sources), "")

    def get_property(self, key: str) -> Any:
        """Return ``"source_info"`` or ``"layout"``; None for other names, and for what is unknown."""
        return {"source_info": self.source_info(), "layout": self.layout()}.get(key) or None

    def __dlpack__(self, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        if self._device == "cpu":
            stream = None
        return self._value.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def __str__(self) -> str:
        return format_tensor(self)

    def __repr__(self) -> str:
        return format_tensor(self, show_data=False)


def _laid_out(name: str, value: Tensor, layout: str | None) -> Tensor:
    """Return the same memory with a layout, or without one."""
    made = copy.copy(value)
    made._layout = check_layout(name, layout, value.ndim)
    return made


class TensorCPU(_Tensor):
    """One sample in host memory.

    Args:
        b: An array or another object with a buffer, whose memory is shared if it is contiguous and writable, else copied; a torch tensor; a DLPack
            capsule; or another TensorCPU.
        layout: One letter for each dimension.
        is_pinned: Ignored.

    Raises:
        TypeError: a list or another object without a buffer.
        ValueError: a layout that does not fit.
        RuntimeError: elements that are no numbers.

    >>> tensor = TensorCPU(np.zeros((2, 3), np.float32), layout="HW")
    >>> tensor.shape(), tensor.layout(), tensor.dtype, np.array(tensor).sum()
    ([2, 3], 'HW', <DALIDataType.FLOAT: 9>, np.float32(0.0))
    """

    _device = "cpu"

    def __init__(self, b: Any, layout: str | None = "", is_pinned: bool = False) -> None:
        made = imported("TensorCPU", b)
        if made._values.device.type != "cpu":
            raise TypeError("TensorCPU is made from host memory; this object is on a GPU: see as_cpu()")
        self._value = _laid_out("TensorCPU", made, layout)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return np.asarray(self._value).__array_interface__


class TensorGPU(_Tensor):
    """One sample in the memory of a GPU.

    Args:
        object: An object with ``__cuda_array_interface__`` or a DLPack capsule, whose memory is shared, or another TensorGPU.
        layout: One letter for each dimension.
        device_id: Ignored: the memory tells where it is.

    Raises:
        TypeError: an object without memory of a GPU.
        ValueError: a layout that does not fit.
    """

    _device = "gpu"

    def __init__(self, object: Any, layout: str | None = "", device_id: int = -1) -> None:
        made = imported("TensorGPU", object)
        if made._values.device.type == "cpu":
            raise TypeError("TensorGPU is made from memory of a GPU; this object is in host memory")
        self._value = _laid_out("TensorGPU", made, layout)

    def device_id(self) -> int:
        """Return the number of the GPU."""
        return int(self._value._values.device.index or 0)

    @property
    def stream(self) -> Any:
        """The CUDA stream with which the values are in order."""
        return torch.cuda.current_stream(self._value._values.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._value.__cuda_array_interface__


class _TensorList(_Memory):
    """Samples of one type and number of dimensions."""

    _one: ClassVar[type[_Tensor]]
    _batch: Batch

    @classmethod
    def _of(cls, batch: Batch) -> Self:
        """Return a Batch in this form, without waiting for it."""
        made = cls.__new__(cls)
        made._batch = batch
        return made

    def _operand(self) -> Batch:
        return self._batch

    def _replace(self, made: Batch) -> None:
        self._batch = made

    @classmethod
    def _imported(cls, data: Any, layout: str | None) -> Batch:
        name = cls.__name__
        if isinstance(data, _TensorList):
            batch = data._batch
        elif isinstance(data, Batch):
            batch = data
        elif isinstance(data, list | tuple):
            batch = cls._joined([imported(f"sample {i} of a {name}", one) for i, one in enumerate(data)])
        else:
            array = imported(name, data)
            if not array.ndim:
                raise RuntimeError(f"{name}: the first dimension of an array counts samples, but this one has no dimensions")
            batch = as_batch(array)
            return as_batch(batch, layout=check_layout(name, layout, batch.ndim) or "")
        return as_batch(batch, layout=check_layout(name, layout, batch.ndim)) if layout else batch

    @classmethod
    def _joined(cls, parts: list[Tensor]) -> Batch:
        """Return a batch with the values of tensors of one type, number of dimensions and layout."""
        if not parts:
            return EMPTY
        first = parts[0]
        for i, one in enumerate(parts):
            if _kind(one) != _kind(first):
                raise TypeError(f"{cls.__name__}: sample {i} has {_kind(one)}, but sample 0 has {_kind(first)}: all samples must agree in these")
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
        for i, one in enumerate(list_of_objects):
            if not is_capsule(one) and not hasattr(one, "__dlpack__"):
                raise TypeError(f"{cls.__name__}.from_dlpack_list: sample {i}, {_article(one)}, has no __dlpack__ and is no DLPack capsule")
        return cls._of(cls._imported(list(list_of_objects), layout))

    @classmethod
    def broadcast(cls, tensor: Any, num_samples: int) -> Self:
        """Return a list of ``num_samples`` copies of a tensor."""
        if num_samples < 0:
            raise ValueError(f"{cls.__name__}.broadcast: num_samples must not be negative, got {num_samples}")
        return cls._of(repeated(imported(cls.__name__, tensor), num_samples))

    @property
    def dtype(self) -> types.DALIDataType:
        """Element type; ``NO_TYPE`` of a list that has had no samples."""
        return types.NO_TYPE if self._batch is EMPTY else super().dtype

    def __len__(self) -> int:
        return self._batch.batch_size

    def __getitem__(self, i: Any) -> Any:
        """Return a sample over the memory of this list, or for a slice the list of those samples. Raise IndexError out of range."""
        if isinstance(i, slice):
            return self._of(self._batch.select(i))
        return self._one._of(self._batch.select(sample_index(i, len(self))))

    def shape(self) -> list[tuple[int, ...]]:
        """Return the shape of each sample."""
        return self._batch.shape

    def is_dense_tensor(self) -> bool:
        """Return whether all samples have one shape."""
        return self._batch.densified()._shapes is None

    def as_tensor(self) -> Any:
        """Return the samples as one tensor (N, ...) over the memory of this list, with ``N`` in front of its layout.

        Raises:
            RuntimeError: the samples have different shapes.
        """
        return self._one._of(self._uniform("as_tensor")._stacked())

    def _uniform(self, method: str) -> Batch:
        batch = self._batch.densified()
        if batch._shapes is not None and len(batch._shapes):
            raise RuntimeError(
                f"{self._name()}.{method}: the samples have different shapes, from {batch.shape[0]} to {batch.shape[-1]}; use them one by one, or "
                "pad them with fn.pad"
            )
        return batch

    def as_reshaped_tensor(self, new_shape: Sequence[int]) -> Any:
        """Return the values of all samples, one after the other, as one tensor of a shape, over the memory of this list.

        Raises:
            RuntimeError: the shape has another number of elements.
        """
        batch, extents = self._batch, [int(extent) for extent in new_shape]
        if any(extent < 0 for extent in extents) or math.prod(extents) != batch._values.numel():
            raise RuntimeError(f"{self._name()}.as_reshaped_tensor: {batch._values.numel()} elements cannot have the shape {extents}")
        return self._one._of(new_tensor(batch._values.view(extents), None, batch._pending, ALL_SAMPLES, batch._external))

    def as_cpu(self) -> "TensorListCPU":
        """Return this list in host memory: itself if it is there."""
        return self if isinstance(self, TensorListCPU) else TensorListCPU._of(self._batch.cpu())

    def reset(self) -> None:
        """Remove all samples."""
        self._batch = EMPTY

    def __str__(self) -> str:
        return format_batch(self)

    def __repr__(self) -> str:
        return format_batch(self, show_data=False)


def _kind(one: Tensor) -> str:
    return f'{elements.dtype_name(one.dtype)}, {one.ndim} dimensions and the layout "{one.layout or ""}"'


class TensorListCPU(_TensorList):
    """Samples in host memory, what a pipeline returns.

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
    _one = TensorCPU

    def __init__(self, tl_object: Any, layout: str | None = "", is_pinned: bool = False) -> None:
        self._batch = self._imported(tl_object, layout)
        if self._batch._values.device.type != "cpu":
            raise TypeError("TensorListCPU is made from host memory; this object is on a GPU: see as_cpu()")

    def at(self, i: int) -> np.ndarray:
        """Return a sample as an array over the memory of this list. Raise RuntimeError out of range."""
        return np.asarray(_at(self, i)._value)

    def as_array(self) -> np.ndarray:
        """Return the samples as one array (N, ...), over the memory of this list. Raise RuntimeError if the shapes differ."""
        return self._uniform("as_array")._shared().numpy()


class TensorListGPU(_TensorList):
    """Samples in the memory of a GPU, what a pipeline returns for outputs there. See :class:`TensorListCPU`.

    Args:
        object: An object with ``__cuda_array_interface__`` or a DLPack capsule, whose first dimension counts samples, a list of :class:`TensorGPU`,
            or another TensorListGPU. Their memory is shared.
        layout: One letter for each dimension of a sample.
        device_id: Ignored: the memory tells where it is.
    """

    _device = "gpu"
    _one = TensorGPU

    def __init__(self, object: Any, layout: str | None = "", device_id: int = -1) -> None:
        self._batch = self._imported(object, layout)
        if self._batch is not EMPTY and self._batch._values.device.type == "cpu":
            raise TypeError("TensorListGPU is made from memory of a GPU; this object is in host memory")

    def at(self, i: int) -> TensorGPU:
        """Return a sample. Raise RuntimeError out of range."""
        return _at(self, i)

    def device_id(self) -> int:
        """Return the number of the GPU."""
        return int(self._batch._values.device.index or 0)

    @property
    def stream(self) -> Any:
        """The CUDA stream with which the values are in order."""
        return torch.cuda.current_stream(self._batch._values.device)


def _at(samples: _TensorList, i: Any) -> Any:
    index = operator.index(i)
    if not 0 <= index < len(samples):
        raise RuntimeError(f"{samples._name()}.at: there is no sample {index}, the list has {len(samples)}")
    return samples[index]


def of(batch: Batch) -> "TensorListCPU | TensorListGPU":
    """Return a Batch as the tensor list for its device, without waiting for it."""
    return (TensorListCPU if batch._values.device.type == "cpu" else TensorListGPU)._of(batch)
