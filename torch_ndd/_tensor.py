# SPDX-License-Identifier: Apache-2.0
"""``Tensor``: one sample."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from . import types
from ._device import Device, DeviceLike, torch_device
from ._operand import Operand, TorchTensor
from ._stream import EvalMode, Pending, current_mode

# Which sample of pending work a value reads: its number, or one of these (csrc/ndd/scheduler.h).
SAME_SAMPLE, ALL_SAMPLES = -1, -2


class Tensor(Operand):
    """One sample: numbers of one type in a grid, with an optional layout.

    Made by :func:`tensor` and :func:`as_tensor` and by operators, whose result may still be computed: whatever needs the values waits for them
    and raises the error of the call that should have made them.

    >>> t = tensor([[1, 2], [3, 4]], layout="HW")
    >>> t.shape, t.dtype, t.layout, (t + 1).torch().tolist()
    ((2, 2), torch.int32, 'HW', [[2, 3], [4, 5]])
    """

    # Which sample of the pending work this is, or ALL_SAMPLES.
    _sample: int

    def __init__(self, data: Any = None, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, copy: bool = False) -> None:
        if data is None:
            raise ValueError("Tensor: data must be given")
        values, own_layout, pending, sample, external = _import(data, wide=dtype is not None)
        if dtype is not None or device is not None:
            values, pending, external = _converted(values, pending, external, dtype, device, saturate=not isinstance(data, _PYTHON))
        if copy and external:
            values, external = values.clone(), False
        Operand.__init__(self, values, check_layout("tensor", own_layout if layout is None else layout, values.dim()), pending, external)
        self._sample = sample

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; known before the values are."""
        return tuple(self._values.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._values.dim()

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._values.numel()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._values.element_size()

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._values.numel() * self._values.element_size()

    def item(self) -> Any:
        """The only element as a Python number; ValueError when there are several."""
        if self.size != 1:
            raise ValueError(f"Tensor has {self.size} elements, expected 1")
        return self._ready().item()

    def torch(self, copy: bool = False) -> TorchTensor:
        """The values as a torch tensor, which shares memory with this one unless ``copy``."""
        values = self._ready()
        return values.clone() if copy else values

    def to_device(self, device: DeviceLike, force_copy: bool = False) -> "Tensor":
        """This tensor on a device: itself when it is there already and no copy is forced."""
        target = torch_device(device)
        if target == self._values.device and not force_copy:
            return self
        return new_tensor(self._ready().to(target, copy=force_copy, non_blocking=True), self._layout)

    def cpu(self) -> "Tensor":
        """This tensor in host memory."""
        return self.to_device("cpu")

    def gpu(self, index: int | None = None) -> "Tensor":
        """This tensor on a GPU, by default the current one."""
        return self.to_device(Device("gpu", index))

    def __getitem__(self, key: Any) -> "Tensor":
        keys = plain_keys(key if isinstance(key, tuple) else (key,))
        values, layout = sliced(self._ready(), self._layout, keys)
        return self if values is self._values else new_tensor(values, layout)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d Tensor")
        return self.shape[0]

    def __iter__(self) -> "Iterator[Tensor]":
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self._ready()
        if values.device.type != "cpu":
            raise TypeError("a Tensor on the GPU cannot become a NumPy array; call .cpu() first")
        array = values.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"changing the type from {array.dtype} to {dtype} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self._ready().__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._ready().__dlpack_device__()
        return int(kind), int(index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._ready().__cuda_array_interface__  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"Tensor({described(printable(self), self)}, shape={self.shape})"


def printable(value: Tensor) -> np.ndarray:
    """The contents as NumPy shows them, which has no bfloat16."""
    one = value.cpu()
    return one._ready().float().numpy() if one.dtype == torch.bfloat16 else np.asarray(one)


def described(text: Any, value: Operand) -> str:
    """Contents, type, layout and device, as ``repr`` shows them."""
    layout = f', layout="{value.layout}"' if value.layout else ""
    return f'\n{text},\ndtype={types.dtype_name(value.dtype)}{layout}, device="{value.device}"'


def new_tensor(values: torch.Tensor, layout: str | None = None, pending: Pending | None = None, sample: int = 0, external: bool = False) -> Tensor:
    """A Tensor over values that are right already."""
    made = Tensor.__new__(Tensor)
    made._values = values
    made._layout = layout
    made._pending = pending
    made._external = external
    made._sample = sample
    return made


def check_layout(op: str, layout: str | None, ndim: int) -> str | None:
    """The layout, None for an empty one. ValueError unless it is a string with a letter for each dimension."""
    if layout is None or layout == "":
        return None
    if not isinstance(layout, str):
        raise ValueError(f"{op}: Layout must be a string, got {layout!r}")
    if len(layout) != ndim:
        raise ValueError(f'{op}: layout "{layout}" has {len(layout)} letters for data with {ndim} dimensions')
    return layout


def plain_keys(keys: tuple[Any, ...], number: Callable[[Any], Any] = lambda key: key) -> tuple[Any, ...]:
    """Keys with Python ints for scalar Tensors and NumPy ints, also as bounds of slices. ``number`` converts anything else."""

    def plain(key: Any) -> Any:
        return key.item() if isinstance(key, Tensor) else int(key) if isinstance(key, np.integer) else number(key)

    return tuple(slice(plain(k.start), plain(k.stop), plain(k.step)) if isinstance(k, slice) else plain(k) for k in keys)


def sliced(values: torch.Tensor, layout: str | None, keys: tuple[Any, ...]) -> tuple[torch.Tensor, str | None]:
    """NumPy's basic indexing, negative steps included, and the letters of the dimensions that are left."""
    if sum(k is Ellipsis for k in keys) > 1:
        raise ValueError("Only one Ellipsis is allowed.")
    given = sum(k is not Ellipsis for k in keys)
    if given > values.dim():
        raise ValueError(f"Number of ranges ({given}) is greater than the number of dimensions ({values.dim()})")
    if given < len(keys):
        at = next(k for k, one in enumerate(keys) if one is Ellipsis)
        keys = keys[:at] + (slice(None),) * (values.dim() - given) + keys[at + 1 :]
    letters = list(layout) if layout else []
    for axis in reversed(range(len(keys))):
        key, size = keys[axis], values.shape[axis]
        if isinstance(key, slice):
            start, stop, step = key.indices(size)
            if step > 0:
                if (start, stop, step) != (0, size, 1):
                    values = values[(slice(None),) * axis + (slice(start, max(start, stop), step),)]
            else:
                values = values.index_select(axis, torch.arange(start, stop, step, device=values.device))
        elif isinstance(key, int):
            if not -size <= key < size:
                raise IndexError(f"Index {key} is out of bounds for dimension {axis} with size {size}")
            values = values.select(axis, key)
            if letters:
                del letters[axis]
        else:
            raise TypeError(f"a Tensor is indexed with ints, slices and Ellipsis, not {type(key).__name__}")
    return values, "".join(letters) or None


_PYTHON = (int, float, bool, list, tuple, range)


def _import(data: Any, wide: bool) -> tuple[torch.Tensor, str | None, Pending | None, int, bool]:
    """Values, layout, pending work, sample, and whether the memory is the caller's. ``wide``: keep Python numbers as wide as they are."""
    if isinstance(data, Tensor):
        return data._values, data._layout, data._pending, data._sample, data._external
    if isinstance(data, torch.Tensor):
        if data.requires_grad:
            raise RuntimeError("a torch tensor that requires grad cannot become a Tensor; call .detach() first")
        types.to_dtype(data.dtype)
        if data.layout != torch.strided or data.is_meta:
            raise TypeError(f"a {data.device.type} tensor with the memory layout {data.layout} cannot become a Tensor")
        values = data.contiguous()
        return values, None, None, 0, values is data
    if isinstance(data, np.ndarray | np.generic):
        values, shared = from_numpy(np.asarray(data))
        return values, None, None, 0, shared
    if isinstance(data, _PYTHON):
        return from_python(data, wide), None, None, 0, False
    if hasattr(data, "__dlpack_device__"):
        try:
            return torch.from_dlpack(data).contiguous(), None, None, 0, True
        except (BufferError, TypeError):
            if not hasattr(data, "__array__"):
                raise
    if hasattr(data, "__array__"):
        values, shared = from_numpy(np.asarray(data))
        return values, None, None, 0, shared
    raise TypeError(f"Unexpected element type {type(data).__name__}: a Tensor is made from numbers, lists and arrays")


def from_numpy(array: np.ndarray) -> tuple[torch.Tensor, bool]:
    """The array as a torch tensor and whether they share memory; strided, read-only and big-endian ones are copied."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"arrays of {array.dtype} are not supported")
    usable = array.dtype.isnative and array.flags.c_contiguous and array.flags.writeable
    if not usable:
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    return torch.from_numpy(array), usable


def from_python(data: Any, wide: bool = False) -> torch.Tensor:
    """Numbers and nested lists: int32, uint32 when only that holds them, float32 or bool, or as ``wide`` as NumPy has them. OverflowError beyond."""
    if isinstance(data, list | tuple) and any(isinstance(one, Operand | torch.Tensor) for one in data):
        data = [np.asarray(one) if isinstance(one, Tensor) else one for one in data]
    array = np.asarray(data)
    kind = array.dtype.kind
    if kind in "iu" or (kind == "O" and all(isinstance(x, int) for x in array.flat)):
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if kind in "iu" and (wide or array.itemsize <= 4):
            pass
        elif low >= -(2**31) and high < 2**31:
            array = array.astype(np.int32)
        elif low < 0:
            raise OverflowError(f"{low if low < -(2**31) else high} is out of range for int32")
        elif high < 2**32:
            array = array.astype(np.uint32)
        else:
            raise OverflowError(f"{high} is out of range for uint32")
    elif kind == "f":
        array = array.astype(np.float32) if array.itemsize > 4 and not wide else array
    elif kind != "b":
        raise TypeError(f"Unexpected element type in {data!r}: a Tensor is made from numbers")
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def _converted(
    values: torch.Tensor, pending: Pending | None, external: bool, dtype: Any, device: DeviceLike | None, saturate: bool
) -> tuple[torch.Tensor, Pending | None, bool]:
    wanted = values.dtype if dtype is None else types.to_dtype(dtype)
    target = values.device if device is None else torch_device(device)
    if wanted == values.dtype and target == values.device:
        return values, pending, external
    if pending is not None:
        pending.wait()
    if wanted != values.dtype:
        values = saturated(values, wanted) if saturate else truncated(values, wanted)
    return values.to(target, non_blocking=True), None, False


_BELOW_2_63 = math.nextafter(2.0**63, 0)


def saturated(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The conversion of ``cast``: floats are rounded half away from zero, and what does not fit becomes the nearest limit."""
    if values.dtype == dtype:
        return values
    if dtype.is_floating_point:
        return values.to(dtype)
    if dtype is torch.bool:
        return values.abs() >= 0.5 if values.dtype.is_floating_point else values != 0
    if values.dtype is torch.bool:
        return values.to(dtype)
    if torch.uint64 in (values.dtype, dtype):  # torch has no arithmetic for it
        return torch.from_numpy(_saturated_array(values.cpu(), dtype)).to(values.device)
    limits = torch.iinfo(dtype)
    if not values.dtype.is_floating_point:
        return values.to(torch.int64).clamp(limits.min, limits.max).to(dtype)
    rounded = _rounded(values)
    whole = torch.nan_to_num(rounded, nan=float(limits.min)).clamp(float(limits.min), min(float(limits.max), _BELOW_2_63))
    return torch.where(rounded >= float(limits.max), limits.max, whole.to(torch.int64)).to(dtype)


def _rounded(values: torch.Tensor) -> torch.Tensor:
    """Half away from zero, as float64."""
    wide = values.double()
    return torch.trunc(wide + torch.copysign(torch.full_like(wide, 0.49999999999999994), wide))


def _saturated_array(values: torch.Tensor, dtype: torch.dtype) -> np.ndarray:
    target = torch.empty(0, dtype=dtype).numpy().dtype
    limits = np.iinfo(target)
    if not values.dtype.is_floating_point:
        array = values.numpy()
        given = np.iinfo(array.dtype)
        return array.clip(max(limits.min, int(given.min)), min(limits.max, int(given.max))).astype(target)
    rounded = np.nan_to_num(_rounded(values).numpy(), nan=float(limits.min))
    whole = rounded.clip(float(limits.min), np.nextafter(float(limits.max), 0)).astype(target)
    return np.where(rounded >= float(limits.max), target.type(limits.max), whole)


def truncated(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """NumPy's conversion of Python numbers: fractions are cut off, and an integer that does not fit is an OverflowError."""
    if not dtype.is_floating_point and dtype is not torch.bool and values.numel():
        limits, low, high = torch.iinfo(dtype), values.numpy().min().item(), values.numpy().max().item()
        if math.trunc(low) < limits.min or math.trunc(high) > limits.max:
            raise OverflowError(f"{high if high > limits.max else low} is out of range for {dtype}")
    return values.to(dtype)


def tensor(data: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """A Tensor with memory of its own, from numbers, nested lists, arrays, a Tensor or a Batch (see :func:`as_tensor`).

    Python ints become int32 (uint32 when they need it), floats float32. Raises TypeError for what is no number, OverflowError for ints that do
    not fit, ValueError for a ragged list or a wrong layout.

    >>> tensor([1, 2, 3], dtype="f32").torch()
    tensor([1., 2., 3.])
    """
    made = as_tensor(data, dtype, device, layout, pad)
    if made._external or isinstance(data, Operand):
        return new_tensor(made._ready().clone(), made._layout)
    if current_mode() >= EvalMode.sync_cpu:
        made.evaluate()
    return made


def as_tensor(data: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """A Tensor over ``data``, without a copy where that is possible: arrays and DLPack objects share memory.

    A Batch is stacked, with ``N`` before its layout; samples of different shape raise ValueError unless ``pad`` fills them up with zeros.

    >>> import numpy as np
    >>> a = np.zeros(3, np.float32)
    >>> t = as_tensor(a)
    >>> a[0] = 7
    >>> t.torch()[0]
    tensor(7.)
    """
    stack = getattr(data, "_stacked", None)  # a Batch, which stands above this layer
    if stack is not None:
        data = stack(pad)
    return Tensor(data, dtype, device, layout)
