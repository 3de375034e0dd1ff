# SPDX-License-Identifier: Apache-2.0
"""``Tensor``: one sample."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from . import _import, _native, types
from ._convert import saturated as saturated
from ._convert import truncated
from ._device import Device, DeviceLike, torch_device
from ._indexing import bounds, is_varying, layout_left, plain_keys, take, takes_all, whole, window
from ._operand import Operand, TorchTensor
from ._printing import of_tensor, printable
from ._queue import launch
from ._stream import EvalMode, Pending, _site, _traceback, called_at, current_mode
from ._upload import moved

# Which sample of pending work a value reads: its number, or one of these (csrc/ndd/scheduler.h).
SAME_SAMPLE, ALL_SAMPLES = -1, -2


class Tensor(Operand):
    """One sample: numbers of one type in a grid, with an optional layout.

    Made by :func:`tensor` and :func:`as_tensor` and by operators, whose result may still be computed: whatever needs the values waits for them
    and raises the error of the call that should have made them. Shape, type, layout and device are known at once.

    >>> t = tensor([[1, 2], [3, 4]], layout="HW")
    >>> t.shape, t.dtype, t.layout, (t + 1).torch().tolist()
    ((2, 2), torch.int32, 'HW', [[2, 3], [4, 5]])
    """

    # Which sample of the pending work this is, or ALL_SAMPLES.
    _sample: int

    def __init__(
        self, data: Any = None, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, *, copy: bool = False
    ) -> None:
        if data is None:
            raise ValueError("Tensor: data must be given")
        if isinstance(data, Tensor):
            data = data._settled()
            Operand.__init__(self, data._values, data._layout, data._pending, data._external)
            self._sample = data._sample
            self._sources = data._sources
        else:
            values, external = _import.imported(data, wide=dtype is not None)
            Operand.__init__(self, values, None, None, external)
            self._sample = 0
        if dtype is not None:
            self._convert(types.to_dtype(dtype), _import.is_python(data))
        if device is not None and (target := torch_device(device)) != self._values.device:
            self._values, self._pending = moved(self._values, self._pending, self._external, target)
            self._external = False
        if copy and (self._external or isinstance(data, Tensor)):
            made = self._copied()
            self._values, self._pending, self._sample, self._external = made._values, made._pending, 0, False
        if layout is not None:
            self._layout = layout
        self._layout = check_layout("tensor", self._layout, self._values.dim())

    def _convert(self, dtype: torch.dtype, python: bool) -> None:
        """Python numbers as NumPy converts them, anything else as ``cast``."""
        if dtype == self._values.dtype:
            return
        if python:
            self._values = truncated(self._values, dtype)
            return
        out, pending = converted(self, self._values[None], None, self._sample, dtype)
        self._values, self._pending, self._sample, self._external = out[0], pending, 0, False

    def _over(self, values: TorchTensor) -> "Tensor":
        return new_tensor(values, self._layout)

    def _copied(self) -> "Tensor":
        self = self._settled()
        values = self._values
        out, pending = _native.empty([1, *values.shape], values.dtype, values.device), None
        if self._pending is None:
            out.copy_(values)
        else:
            pending = launch(take, (values[None], None, None, *whole(values.dim()), out, None), [(self, self._sample)], out)
        made = new_tensor(out[0], self._layout, pending)
        made._sources = self._sources
        return made

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
        values = self._shared()
        return values.clone() if copy else values

    def to_device(self, device: DeviceLike, force_copy: bool = False) -> "Tensor":
        """This tensor on a device: itself when it is there already and no copy is forced."""
        target = torch_device(device)
        if target == self._values.device:
            return self._copied() if force_copy else self
        self = self._settled()
        values, pending = moved(self._values, self._pending, self._external, target)
        made = new_tensor(values, self._layout, pending)
        made._sources = self._sources
        return made

    def cpu(self) -> "Tensor":
        """This tensor in host memory."""
        return self.to_device("cpu")

    def gpu(self, index: int | None = None) -> "Tensor":
        """This tensor on a GPU, by default the current one."""
        return self.to_device(Device("gpu", index))

    def __getitem__(self, key: Any) -> "Tensor":
        """A part, as in NumPy: ints, slices, one Ellipsis; numbers may be Tensors without dimensions. A Batch of numbers gives a Batch of parts.

        A part that is in one piece shares memory with this tensor, unless that is the memory of somebody else; any other is copied. Raises
        IndexError outside the tensor, ValueError for too many keys or a step of zero, TypeError for other keys.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if takes_all(keys):
            return self
        for one in bounds(keys):
            if is_varying(one):
                return one._parts_of(self, keys)
        self = self._settled()
        keys = plain_keys(keys, self.ndim, "Tensor", ValueError)
        part, layout = window(self._values.shape, keys), layout_left(self._layout, keys)
        view = part.view(self._values)
        if torch.compiler.is_compiling() and view is not None:
            return new_tensor(view.contiguous(), layout)
        if view is not None and view.is_contiguous() and not self._external:
            return new_tensor(view, layout, self._pending, self._sample)
        out = _native.empty([1, *part.extents], self._values.dtype, self._values.device)
        starts, steps = torch.tensor([part.starts]), torch.tensor([part.steps])
        pending = launch(take, (self._values[None], None, None, starts, steps, out, None), [(self, self._sample)], out)
        return new_tensor(out[0], layout, pending)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d Tensor")
        return self.shape[0]

    def __iter__(self) -> "Iterator[Tensor]":
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(printable(self) == (printable(value) if isinstance(value, Tensor) else value)))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"The truth value of a Tensor with {self.size} elements is ambiguous")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._number())

    def __float__(self) -> float:
        return float(self._number())

    def __index__(self) -> int:
        if self.ndim or self.dtype.is_floating_point:
            raise TypeError(f"only a 0-d Tensor of integers is an index, not {types.dtype_name(self.dtype)} of shape {self.shape}")
        return int(self.item())

    def _number(self) -> Any:
        if self.size != 1:
            raise TypeError(f"only a Tensor with one element is a number, not one with {self.size}")
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self._shared()
        if values.device.type != "cpu":
            raise TypeError("a Tensor on the GPU cannot become a NumPy array; call .cpu() first")
        if values.dtype == torch.bfloat16:
            raise TypeError("NumPy has no bfloat16; cast the Tensor to float32 first, or use .torch()")
        array = values.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"changing the type from {array.dtype} to {dtype} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return self._shared().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._values.__dlpack_device__()
        return int(kind), int(index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._values.device.type != "cuda":
            raise AttributeError("a Tensor in host memory has no __cuda_array_interface__")
        return self._shared().__cuda_array_interface__  # type: ignore[return-value]

    def __copy__(self) -> "Tensor":
        made = new_tensor(self._values, self._layout, self._pending, self._sample, self._external)
        made._sources = self._sources
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        return self._copied().evaluate()

    def __getstate__(self) -> dict[str, Any]:
        return {"values": own_memory(self._ready()), "layout": self._layout, "sources": tuple(self._sources)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Operand.__init__(self, state["values"], state["layout"], None, False)
        self._sample = 0
        self._sources = state["sources"]

    def __repr__(self) -> str:
        return of_tensor(self)


class Unusable(Tensor):
    """In the place of a result that cannot be: whatever needs more than its type raises why, as for queued work that failed."""

    _error: Exception
    _called_at: str
    _known: tuple[torch.dtype, int, Device]

    @property
    def _values(self) -> TorchTensor:  # type: ignore[override]
        raise type(self._error)(f"{self._error}{self._called_at}") from self._error

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self._known[0]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._known[1]

    @property
    def device(self) -> Device:
        """Where the values would be."""
        return self._known[2]


def unusable(error: Exception, dtype: torch.dtype, ndim: int, layout: str | None, device: Device) -> Tensor:
    """A Tensor that raises the error, with the line of the call, when it is used. In the synchronous modes the call raises it."""
    if current_mode() >= EvalMode.sync_cpu:
        raise error
    made = Unusable.__new__(Unusable)
    site = _site()
    made._error, made._called_at = error.with_traceback(_traceback(site)), called_at(site)
    made._known = (dtype, ndim, device)
    made._layout, made._pending, made._external, made._sample = layout, None, False, 0
    return made


def own_memory(values: torch.Tensor) -> torch.Tensor:
    """Values that are not part of something larger, which would be saved with them."""
    return values.clone() if values.untyped_storage().nbytes() > values.numel() * values.element_size() else values


def converted(
    source: Operand, values: torch.Tensor, shapes: torch.Tensor | None, sample: int, dtype: torch.dtype
) -> tuple[torch.Tensor, Pending | None]:
    """The values of ``source``, as a batch with these shapes, converted as by ``cast``, and the work that does it."""
    out = _native.empty(values.shape, dtype, values.device)
    return out, launch(torch.ops.ndd.cast.default, (values, shapes, out, shapes), [(source, sample)], out)


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


def tensor(data: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """A Tensor with memory of its own, from numbers, nested lists, arrays, a Tensor or a Batch (see :func:`as_tensor`).

    Python ints become int32 (uint32 when they need it), floats float32; with ``dtype`` Python numbers are converted as in NumPy, arrays as by
    :func:`cast`.

    Raises:
        TypeError: what is no number.
        RuntimeError: text, complex numbers, other types that a Tensor cannot have.
        OverflowError: an int that does not fit.
        ValueError: a ragged list or a wrong layout.

    >>> tensor([1, 2, 3], dtype="f32").torch()
    tensor([1., 2., 3.])
    """
    made = as_tensor(data, dtype, device, layout, pad)
    if made._external or isinstance(data, Operand):
        return made._copied()
    if current_mode() >= EvalMode.sync_cpu:
        made.evaluate()
    return made


def as_tensor(data: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """A Tensor over ``data``, without a copy where that is possible: arrays and DLPack objects share memory.

    Copied are Python numbers, strided, read-only and big-endian arrays, and what another type or device needs. A Batch is stacked, with ``N``
    before its layout; samples of different shape raise ValueError, as late as other errors of queued work, unless ``pad`` fills them up with
    zeros (:meth:`Batch.padded` has their lengths as well). Errors are those of :func:`tensor`.

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
        if isinstance(data, Unusable):
            return data
    return Tensor(data, dtype, device, layout)
