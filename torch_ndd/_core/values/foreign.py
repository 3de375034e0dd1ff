# SPDX-License-Identifier: Apache-2.0
"""Conversion to torch tensors: Python numbers and lists, NumPy arrays, DLPack and CUDA's array interface."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ... import types
from ..native import CPU, empty
from ..native.transforms import check_values
from .operand import Operand

_FROM_BATCH = "a Tensor is one sample; as_tensor(batch) stacks the samples of a Batch"


def is_python(data: Any) -> bool:
    """Return whether data are Python numbers, which have no dtype of their own."""
    return isinstance(data, int | float | list | tuple | range) and not isinstance(data, np.generic)


def import_values(data: Any, wide: bool) -> tuple[torch.Tensor, bool]:
    """Return the values and whether the memory is the caller's, which may be overwritten at any time. ``wide``: keep the width of Python numbers."""
    if isinstance(data, torch.Tensor):
        return from_torch(data)
    # NumPy's numbers are also Python's in part: np.float64 is a float.
    if isinstance(data, np.ndarray):
        return from_numpy(data)
    if is_python(data):
        return from_python(data, wide), False
    if isinstance(data, np.generic):
        return from_numpy(np.asarray(data))[0], False
    if getattr(data, "_is_batch", False):
        raise TypeError(f"Unexpected element type Batch: {_FROM_BATCH}")
    if hasattr(data, "__dlpack_device__") or hasattr(data, "__cuda_array_interface__"):
        return _from_producer(data)
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):  # the second alone: images of Pillow
        return from_numpy(np.asarray(data))
    if isinstance(data, str | bytes):
        raise RuntimeError(
            f"{type(data).__name__} is not supported: a Tensor is created from numbers; np.frombuffer(data, np.uint8) has the "
            "bytes, and imread(path) decodes a file"
        )
    try:
        view = memoryview(data)
    except TypeError:
        if isinstance(data, Sequence):  # such as a deque of frames
            return from_python(list(data), wide), False
        raise TypeError(f"Unexpected element type {type(data).__name__}: a Tensor is created from numbers, lists and arrays") from None
    return from_numpy(np.asarray(view))


_LAYOUTS = {"Image": "CHW", "Video": "FCHW"}  # of torchvision's tv_tensors, which this module does not import


def layout_of(data: torch.Tensor) -> str | None:
    """Return the layout of an image or a video of torchvision, also of several in one tensor; None for other tensors."""
    kind = type(data)
    if kind is torch.Tensor or not kind.__module__.startswith("torchvision.tv_tensors"):
        return None
    layout = _LAYOUTS.get(kind.__name__, "")
    return {len(layout): layout, len(layout) + 1: "N" + layout}.get(data.dim()) if layout else None


def from_torch(data: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return a torch tensor as one block of memory, and whether the memory is the same."""
    if data.is_nested:
        raise TypeError("a nested tensor holds several samples and cannot become a Tensor; as_batch(nested.unbind()) has them")
    data = check_values(data)
    if data.dtype not in types.NUMERIC:
        raise RuntimeError(f"tensors of type {data.dtype} are not supported")
    if data.layout != torch.strided or data.is_meta:
        raise TypeError(f"a {data.device.type} tensor with the memory layout {data.layout} cannot become a Tensor")
    values = data.resolve_neg().contiguous()
    return values, values is data


def from_numpy(array: np.ndarray) -> tuple[torch.Tensor, bool]:
    """Return the array as a torch tensor and whether they share memory; strided, read-only and big-endian ones are copied."""
    dtype, flags = array.dtype, array.flags
    if dtype.kind == "V" and dtype.name == "bfloat16":  # from ml_dtypes, which JAX uses; NumPy has none
        values, shared = from_numpy(array.view(np.int16))
        return values.view(torch.bfloat16), shared
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise RuntimeError(f"arrays of type {dtype} are not supported")
    if dtype.char in "qQ":  # long long, another name of int64 that torch does not know
        array = array.view(dtype.str)
    usable = dtype.isnative and flags.c_contiguous and flags.writeable and flags.aligned and min(array.strides, default=0) >= 0
    if not usable:
        array = array.astype(dtype.newbyteorder("="), order="C", copy=True)
    return torch.from_numpy(array), usable


def stack_arrays(samples: Sequence[Any]) -> torch.Tensor | None:
    """Return NumPy arrays of one type and shape as one tensor; None for other samples. 32 arrays take 20 us, one by one 130."""
    first = samples[0]
    if type(first) is not np.ndarray or set(map(type, samples)) != {np.ndarray}:
        return None
    dtype, shape = first.dtype, first.shape
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative or not first.size:
        return None
    if any(sample.shape != shape or sample.dtype != dtype for sample in samples):
        return None
    out = empty((len(samples), *shape), torch.from_numpy(np.empty(0, dtype.str)).dtype, CPU)
    np.stack(samples, out=out.numpy())
    return out


# Elements that torch copies on the calling thread, half of its grain. It divides a larger copy among threads and waits for them: 15 ms for 1.6 MB
# while all cores decode.
_STACKED = 1 << 14


def stack_tensors(samples: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return small dense tensors of one type and shape in host memory as one tensor; None for others. 64 take 35 us, each looked at alone 300.

    The samples are of one class, which may be a subclass of ``torch.Tensor`` without storage of its own.
    """
    first, count = samples[0], len(samples)
    with torch._C.DisableTorchFunctionSubclass():  # each property of a subclass would take a microsecond
        if first.is_nested:  # which has no shape
            return None
        shape, dtype, size = first.shape, first.dtype, first.numel()
        # Most ragged samples differ here, and an error takes longer than this look.
        if size > _STACKED or shape != samples[-1].shape or first.layout is not torch.strided or not first.is_cpu:
            return None
        if any(sample.requires_grad or sample.dtype is not dtype for sample in samples):
            return None
        out, step = empty((count, *shape), dtype, CPU), max(1, _STACKED // max(1, size))
        for begin in range(0, count, step):
            part = samples[begin : begin + step]
            if part[0].shape != shape:  # torch.stack compares the others with it
                return None
            try:
                torch.stack(part, out=out[begin : begin + step])  # type: ignore[arg-type]
            except (RuntimeError, TypeError):  # of other shapes, layouts or devices
                return None
    return out


def from_python(data: Any, wide: bool = False) -> torch.Tensor:
    """Convert numbers and nested lists to int32, uint32 if necessary, float32 or bool, or as ``wide`` as in NumPy. Raise OverflowError beyond."""
    # NumPy would convert the elements one number at a time.
    if isinstance(data, list | tuple) and any(isinstance(element, Operand | torch.Tensor) for element in data):
        if any(_on_gpu(element) for element in data):
            return torch.stack([element.wait() if isinstance(element, Operand) else torch.as_tensor(element) for element in data])
        if any(isinstance(element, Operand) and element._is_batch for element in data):
            raise TypeError(f"Unexpected element type Batch in a list: {_FROM_BATCH}")
        data = [np.asarray(element) if isinstance(element, Operand) else element for element in data]
    array = np.asarray(data)
    kind = array.dtype.kind
    if kind in "iu" or (kind == "O" and all(isinstance(x, int) for x in array.flat)):
        return _to_tensor(_narrow(array, wide))
    if kind == "f":
        if array.itemsize == 8 and array.size and np.abs(array).max() >= 2.0**63:
            exact = np.asarray(data, dtype=object)  # NumPy converts [-1, 2**63] to floats
            if all(isinstance(x, int) for x in exact.flat):
                return _to_tensor(_narrow(exact, wide))
        if array.itemsize > 8 or (array.itemsize > 4 and not wide):
            with np.errstate(over="ignore"):
                array = array.astype(np.float64 if wide else np.float32)
    elif kind in "US":
        raise RuntimeError(f"strings are not supported: a Tensor is created from numbers, not from {_shorten(data)}")
    elif kind != "b":
        is_open = any(callable(getattr(value, "read", None)) for value in array.flat)
        hint = "; of an open file, pass the contents: file.read()" if is_open else ""
        raise TypeError(f"Unexpected element type in {_shorten(data)}: a Tensor is created from numbers{hint}")
    return _to_tensor(array)


def _to_tensor(array: np.ndarray) -> torch.Tensor:
    return from_numpy(array)[0]


def _shorten(data: Any) -> str:
    text = repr(data)
    return text if len(text) < 80 else text[:77] + "..."


def _on_gpu(element: Any) -> bool:
    values = element.buffer if isinstance(element, Operand) else element
    return isinstance(values, torch.Tensor) and values.device.type != "cpu"


def _narrow(array: np.ndarray, wide: bool) -> np.ndarray:
    if array.dtype.kind != "O" and (wide or array.itemsize <= 4):
        return array
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low >= -(2**31) and high < 2**31:
        return array.astype(np.int32)
    if wide and low >= 0 and high < 2**64:
        return array.astype(np.uint64)
    if low < 0:
        raise OverflowError(f"{low if low < -(2**31) else high} is out of range for int32")
    if high >= 2**32:
        raise OverflowError(f"{high} is out of range for uint32")
    return array.astype(np.uint32)


# --- DLPack ---

_CPU, _CUDA, _PINNED = 1, 2, 3


def _from_producer(data: Any) -> tuple[torch.Tensor, bool]:
    kind = _CUDA if not hasattr(data, "__dlpack_device__") else int(data.__dlpack_device__()[0])
    if kind not in (_CPU, _CUDA, _PINNED):
        raise ValueError(f"Unsupported device type {kind} of a {type(data).__name__}: a Tensor is in memory of the CPU or of an NVIDIA GPU")
    if kind != _PINNED and hasattr(data, "__dlpack__"):
        # Not for pinned memory, which torch does not import through DLPack.
        try:
            values, read_only = _from_dlpack(data, kind)
            tensor, shared = from_torch(values)
            # Torch has no read-only tensors.
            return (tensor.clone(), False) if read_only and shared else (tensor, shared)
        except (BufferError, TypeError):
            if not hasattr(data, "__array__") and not hasattr(data, "__cuda_array_interface__"):
                raise
    if kind == _CUDA and hasattr(data, "__cuda_array_interface__"):
        return from_torch(torch.as_tensor(data, device="cuda"))
    if hasattr(data, "__array__"):
        return from_numpy(np.asarray(data))
    raise TypeError(f"a {type(data).__name__} names a device but has neither a working __dlpack__ nor __array__")


def _from_dlpack(data: Any, kind: int) -> tuple[torch.Tensor, bool]:
    """Return the producer's memory as a torch tensor, and whether the producer forbids writing to it."""
    options: dict[str, Any] = {}
    if kind == _CUDA:
        options["stream"] = torch.cuda.current_stream(data.__dlpack_device__()[1]).cuda_stream or 1  # 1 is the legacy default stream
    for keywords in ({"max_version": (1, 0), **options}, options, {}):  # older producers know fewer keywords
        try:
            capsule = data.__dlpack__(**keywords)
            break
        except TypeError:
            if not keywords:
                raise
    read_only = is_read_only(capsule)
    return torch.from_dlpack(capsule), read_only


class _Versioned(ctypes.Structure):
    """The beginning of DLManagedTensorVersioned in dlpack.h, version 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


_READ_ONLY = 1
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def is_read_only(capsule: Any) -> bool:
    """Return whether a DLPack capsule forbids writing. Torch ignores the flag."""
    name = b"dltensor_versioned"
    return bool(_is_valid(capsule, name)) and bool(_Versioned.from_address(_pointer(capsule, name)).flags & _READ_ONLY)
