# SPDX-License-Identifier: Apache-2.0
"""``TensorCPU`` and ``TensorGPU``: one sample, over :class:`torch_ndd.Tensor`, and the base class that they share with tensor lists."""

import copy
import ctypes
from typing import Any, ClassVar

import numpy as np
import torch
from typing_extensions import Self

from ... import types as elements
from ..._core.values import foreign
from ..._core.values.batch import Batch
from ..._core.values.operand import PipelineValue, unwrap
from ..._core.values.tensor import Tensor, as_tensor, check_layout, new_tensor
from .. import types
from ._formatting import format_tensor


def is_capsule(data: Any) -> bool:
    """Return whether data is a DLPack capsule."""
    return type(data).__name__ == "PyCapsule"


def import_capsule(capsule: Any) -> Tensor:
    """Return a Tensor over the memory of a DLPack capsule, which can be used once. Read-only memory is copied."""
    read_only = foreign.is_read_only(capsule)
    try:
        values, shared = foreign.from_torch(torch.from_dlpack(capsule))
    except (RuntimeError, BufferError) as error:
        raise RuntimeError(f"this DLPack capsule cannot be used, or was used before: {error}") from None
    # A copy is not the caller's memory.
    return new_tensor(values.clone() if read_only and shared else values, caller_owned=shared and not read_only)


class Memory(PipelineValue):
    """The common base of tensors and tensor lists."""

    _device: ClassVar[str]  # "cpu" or "gpu"

    def _replace(self, value: Any) -> None:
        """Replace the Tensor or Batch."""
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
        # A new object: operators that have taken the old one keep its layout.
        relabeled = copy.copy(operand)
        relabeled.relabel(check_layout(f"{self._name()}.set_layout", layout, operand.ndim))
        self._replace(relabeled)

    def data_ptr(self) -> int:
        """Wait for the values and return their address."""
        return self._operand().export_buffer().data_ptr()

    def copy_to_external(self, ptr: Any, cuda_stream: Any = None, non_blocking: bool = False, use_copy_kernel: bool = False) -> None:
        """Copy the values, one sample after the other, to memory of the caller, which must have room for them.

        Args:
            ptr: The address, as an int or a ``ctypes.c_void_p``.
            cuda_stream: Ignored, like ``non_blocking`` and ``use_copy_kernel``: the copy is complete when this returns.

        Raises:
            TypeError: not an address.
        """
        address = ptr.value if isinstance(ptr, ctypes.c_void_p) else ptr
        if isinstance(address, bool) or not isinstance(address, int) or not address:
            raise TypeError(f"{self._name()}.copy_to_external: ptr must be an address, as an int or a ctypes.c_void_p, got {ptr!r}")
        values = self._operand().export_buffer()
        if values.device.type != "cpu":
            try:
                # Torch copies between devices through an object that describes the address.
                torch.as_tensor(_Address(address, values.nbytes), device=values.device).copy_(values.reshape(-1).view(torch.uint8))
                torch.cuda.synchronize(values.device)
                return
            except RuntimeError:  # the address is not GPU memory
                values = values.cpu()
        ctypes.memmove(address, values.data_ptr(), values.nbytes)

    def reinterpret(self, new_type: types.DALIDataType) -> None:
        """Change the element type and keep the bytes. Raise RuntimeError unless the new type has the same size."""
        if not isinstance(new_type, types.DALIDataType):
            raise TypeError(f"{self._name()}.reinterpret: new_type must be a DALIDataType, got {new_type!r}")
        operand, dtype = self._operand(), elements.to_dtype(elements.DALIDataType(new_type.value))
        if dtype.itemsize != operand.dtype.itemsize:
            raise RuntimeError(f"{self._name()}.reinterpret: {new_type} has another size than {self.dtype}")
        reinterpreted = copy.copy(operand)
        reinterpreted.buffer = operand.buffer.view(dtype)
        self._replace(reinterpreted)


class _Address:
    """Memory of a GPU at an address, for torch."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def import_tensor(name: str, data: Any) -> Tensor:
    """Return a Tensor over the memory of an object. Raise TypeError for lists, numbers, strings and tensor lists, RuntimeError for
    elements that are not numbers."""
    unwrapped = unwrap(data)
    if isinstance(unwrapped, Tensor):
        return unwrapped
    if is_capsule(data):
        return import_capsule(data)
    if isinstance(data, bytes | bytearray):
        data = np.frombuffer(data, np.uint8)
    if isinstance(unwrapped, Batch | str) or foreign.is_python(data) or data is None:
        raise TypeError(f"{name} takes an array, a buffer or a DLPack capsule, got {describe_type(data)}")
    # NumPy accepts objects that have only this older protocol.
    if hasattr(data, "__array_interface__") and not hasattr(data, "__array__"):
        data = np.asarray(data)
    return as_tensor(data)


def describe_type(data: Any) -> str:
    """Name the type of an object for a message."""
    return "None" if data is None else f"an object of type {type(data).__name__}"


class SampleTensor(Memory):
    """One sample."""

    _value: Tensor

    @classmethod
    def _wrap(cls, value: Tensor) -> Self:
        """Wrap a Tensor, without waiting for it."""
        tensor = cls.__new__(cls)
        tensor._value = value
        return tensor

    def _operand(self) -> Tensor:
        return self._value

    def _replace(self, value: Tensor) -> None:
        self._value = value

    def shape(self) -> list[int]:
        """Return the extents."""
        return list(self._value.shape)

    def as_cpu(self) -> "TensorCPU":
        """Return this tensor in host memory: itself if it is there."""
        return self if isinstance(self, TensorCPU) else TensorCPU._wrap(self._value.cpu())

    def squeeze(self, dim: int | None = None) -> bool:
        """Remove all dimensions of extent 1 and their letters, or only dimension ``dim``. Return whether there were any.

        Raises:
            RuntimeError: no such dimension.
        """
        shape, layout = self._value.shape, self._value.layout
        if dim is None:
            removed = {axis for axis, extent in enumerate(shape) if extent == 1}
        else:
            if not -len(shape) <= dim < len(shape):
                raise RuntimeError(f"{self._name()}.squeeze: dim={dim} is out of range for {len(shape)} dimensions")
            removed = {dim % len(shape)} & {axis for axis, extent in enumerate(shape) if extent == 1}
        if removed:
            squeezed = copy.copy(self._value)
            squeezed.buffer = self._value.buffer.view([extent for axis, extent in enumerate(shape) if axis not in removed])
            squeezed.relabel("".join(letter for axis, letter in enumerate(layout or "") if axis not in removed) or None)
            self._value = squeezed
        return bool(removed)

    def source_info(self) -> str:
        """Return the origin of the sample, such as the name of its file; empty if it is unknown."""
        return next(iter(self._value.sources), "")

    def get_property(self, key: str) -> Any:
        """Return ``"source_info"`` or ``"layout"``; None for other names and unknown values."""
        return {"source_info": self.source_info(), "layout": self.layout()}.get(key) or None

    def __dlpack__(self, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        # DALI's callers pass a stream also for host memory, where torch refuses it.
        if self._device == "cpu":
            stream = None
        return self._value.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def __str__(self) -> str:
        return format_tensor(self)

    def __repr__(self) -> str:
        return format_tensor(self, show_data=False)


def with_layout(name: str, value: Tensor, layout: str | None) -> Tensor:
    """Return a Tensor over the same memory with a layout, or without one."""
    relabeled = copy.copy(value)
    relabeled.relabel(check_layout(name, layout, value.ndim))
    return relabeled


class TensorCPU(SampleTensor):
    """One sample in host memory.

    Args:
        b: An array or another object with a buffer, whose memory is shared if it is contiguous and writable, else copied; a torch tensor; a DLPack
            capsule; or another TensorCPU.
        layout: One letter for each dimension.
        is_pinned: Ignored.

    Raises:
        TypeError: a list or another object without a buffer.
        ValueError: a layout that does not fit.
        RuntimeError: elements that are not numbers.

    >>> tensor = TensorCPU(np.zeros((2, 3), np.float32), layout="HW")
    >>> tensor.shape(), tensor.layout(), tensor.dtype, np.array(tensor).sum()
    ([2, 3], 'HW', <DALIDataType.FLOAT: 9>, np.float32(0.0))
    """

    _device = "cpu"

    def __init__(self, b: Any, layout: str | None = "", is_pinned: bool = False) -> None:
        tensor = import_tensor("TensorCPU", b)
        if tensor.buffer.device.type != "cpu":
            raise TypeError("TensorCPU takes host memory, but this object is on a GPU; call as_cpu()")
        self._value = with_layout("TensorCPU", tensor, layout)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return np.asarray(self._value).__array_interface__


class TensorGPU(SampleTensor):
    """One sample in GPU memory.

    Args:
        object: An object with ``__cuda_array_interface__`` or a DLPack capsule, whose memory is shared, or another TensorGPU.
        layout: One letter for each dimension.
        device_id: Ignored: the memory determines the GPU.

    Raises:
        TypeError: an object without GPU memory.
        ValueError: a layout that does not fit.
    """

    _device = "gpu"

    def __init__(self, object: Any, layout: str | None = "", device_id: int = -1) -> None:
        tensor = import_tensor("TensorGPU", object)
        if tensor.buffer.device.type == "cpu":
            raise TypeError("TensorGPU takes GPU memory, but this object is in host memory")
        self._value = with_layout("TensorGPU", tensor, layout)

    def device_id(self) -> int:
        """Return the index of the GPU."""
        return int(self._value.buffer.device.index or 0)

    @property
    def stream(self) -> Any:
        """The CUDA stream on which the values are ready."""
        return torch.cuda.current_stream(self._value.buffer.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._value.__cuda_array_interface__
