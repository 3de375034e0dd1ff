# SPDX-License-Identifier: Apache-2.0
"""``Tensor``: one sample."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ... import types
from .. import native
from ..context.context import EvalMode, thread_state
from ..context.device import Device, DeviceLike, torch_device
from ..native.tracing import is_compiling
from ..work.call_sites import called_at, caller, traceback_of
from ..work.pending import Pending
from ..work.sources import UNKNOWN
from ..work.upload import copy_to_device
from . import foreign
from .arithmetic import Arithmetic
from .convert import truncate
from .dispatch import output, run
from .html import format_values
from .indexing import as_keys, bounds, is_varying, plain_keys, remaining_layout, take, takes_all, whole, window
from .operand import Operand, TorchTensor, unwrap
from .printing import format_tensor, printable


class Tensor(Arithmetic):
    """One sample: an array of one dtype, with an optional layout.

    Created by :func:`tensor` and :func:`as_tensor` and by operators, whose result may still be computed: access to the values waits for them and
    raises the error of the call that should have produced them. Shape, dtype, layout and device are known immediately.

    >>> t = tensor([[1, 2], [3, 4]], layout="HW")
    >>> t.shape, t.dtype, t.layout, (t + 1).torch().tolist()
    ((2, 2), torch.int32, 'HW', [[2, 3], [4, 5]])
    """

    def __init__(
        self, data: Any = None, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, *, copy: bool = False
    ) -> None:
        if data is None:
            raise ValueError("Tensor: the argument 'data' is missing")
        # Wrappers of pipelines and data sets hold a Tensor, a Batch or a tensor list.
        original, data = data, unwrap(data)
        # A tensor list of a pipeline is stacked; a Batch raises below, with advice.
        if data is not original and data._is_batch:
            data = data.stack(lazily=False)
        if isinstance(data, Tensor):
            data = data.settle()
            Operand.__init__(self, data.buffer, data._layout, data.pending, data.caller_owned)
            self._sample = data._sample
            self.sources = data.sources
        else:
            values, caller_owned = foreign.import_values(data, wide=dtype is not None)
            Operand.__init__(self, values, foreign.layout_of(data) if isinstance(data, torch.Tensor) else None, None, caller_owned)
            self._sample = 0
        if dtype is not None:
            self._convert(types.to_dtype(dtype), foreign.is_python(data))
        if device is not None and (target := torch_device(device)) != self.buffer.device:
            self.buffer, self.pending = copy_to_device(self.buffer, self.pending, self.caller_owned, target)
            self.caller_owned = False
        # Anything else was copied by its conversion.
        if copy and (self.caller_owned or isinstance(data, Tensor)):
            result = self.copy_values()
            self.buffer, self.pending, self._sample, self.caller_owned = result.buffer, result.pending, 0, False
        if layout is not None:
            self._layout = layout
        self._layout = check_layout("tensor", self._layout, self.buffer.dim())

    def _convert(self, dtype: torch.dtype, python: bool) -> None:
        """Convert Python numbers like NumPy, anything else like ``cast``."""
        if dtype == self.buffer.dtype:
            return
        if python:
            self.buffer = truncate(self.buffer, dtype)
            return
        # As a batch of one sample: kernels take nothing else.
        out, pending = convert_values(self, self.buffer[None], None, self._sample, dtype)
        self.buffer, self.pending, self._sample, self.caller_owned = out[0], pending, 0, False

    def _result(self, values: TorchTensor, shapes: TorchTensor | None, layout: str | None, pending: Pending | None, shared_extents: Any) -> "Tensor":
        del shapes, shared_extents
        return new_tensor(values[0], layout, pending)

    def _over(self, values: TorchTensor) -> "Tensor":
        return new_tensor(values, self._layout)

    def copy_values(self) -> "Tensor":
        self = self.settle()
        values = self.buffer
        shape, pending = [1, *values.shape], None
        # Nothing to wait for: no kernel is needed.
        if self.pending is None:
            out = native.empty(shape, values.dtype, values.device).copy_(values)
        else:
            out = output(native.empty, shape, values.dtype, values.device)
            pending = run(take, (values[None], None, None, *whole(values.dim()), out, None), [(self, self._sample)], out)
        return self.with_buffer(out[0], pending)

    def with_buffer(self, values: TorchTensor, pending: Pending | None, caller_owned: bool = False, sample: int = 0) -> "Tensor":
        result = new_tensor(values, self._layout, pending, sample, caller_owned)
        result.sources = self.sources
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents; known before the values."""
        return tuple(self.buffer.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.buffer.dim()

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.buffer.numel()

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.buffer.element_size()

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.buffer.numel() * self.buffer.element_size()

    def item(self) -> Any:
        """Return the only element as a Python number. Raise ValueError if there are several."""
        if self.size != 1:
            raise ValueError(f"Tensor has {self.size} elements, expected 1")
        return self.wait().item()

    def torch(self, copy: bool = False) -> TorchTensor:
        """Return the values as a torch tensor, which shares memory with this one unless ``copy``."""
        values = self.export_buffer()
        return values.clone() if copy else values

    def __getitem__(self, key: Any) -> "Tensor":
        """Index as in NumPy: ints, slices, one Ellipsis; numbers may be scalar Tensors. A Batch of numbers returns a Batch of parts.

        A contiguous part shares memory with this tensor, unless that memory belongs to the caller; any other is copied. Raise IndexError out of
        range, ValueError for too many keys or a step of zero, TypeError for other keys.
        """
        keys = as_keys(key)
        if takes_all(keys):
            return self
        # A Batch of numbers among the keys: its samples take different parts, which only a Batch can hold.
        for bound in bounds(keys):
            if is_varying(bound):
                return bound._parts_of(self, keys)
        self = self.settle()
        keys = plain_keys(keys, self.ndim, "Tensor", ValueError)
        part, layout = window(self.buffer.shape, keys), remaining_layout(self._layout, keys)
        view = part.view(self.buffer)
        if is_compiling() and view is not None:
            return new_tensor(view.contiguous(), layout)
        # A view of pending values is as pending as they are. The caller's memory is copied: the caller may overwrite it.
        if view is not None and view.is_contiguous() and not self.caller_owned:
            result = new_tensor(view, layout, self.pending, self._sample)
        else:
            out = output(native.empty, [1, *part.extents], self.buffer.dtype, self.buffer.device)
            starts, steps = torch.tensor([part.starts], device="cpu"), torch.tensor([part.steps], device="cpu")
            pending = run(take, (self.buffer[None], None, None, starts, steps, out, None), [(self, self._sample)], out)
            result = new_tensor(out[0], layout, pending)
        if self.sources is not UNKNOWN:
            result.sources = self.sources
        return result

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
            raise TypeError(f"cannot convert a Tensor with {self.size} elements to a number")
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.export_buffer()
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
        return self.export_buffer().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.buffer.__dlpack_device__()
        return int(kind), int(index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.buffer.device.type != "cuda":
            raise AttributeError("a Tensor in host memory has no __cuda_array_interface__")
        return self.export_buffer().__cuda_array_interface__  # type: ignore[return-value]

    def __copy__(self) -> "Tensor":
        return self.with_buffer(self.buffer, self.pending, self.caller_owned, self._sample)

    def __getstate__(self) -> dict[str, Any]:
        return {"values": unshare_memory(self.wait()), "layout": self._layout, "sources": tuple(self.sources)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        values, self.sources = load_values("Tensor", state)
        Operand.__init__(self, values, check_layout("Tensor", state["layout"], values.dim()), None, False)
        self._sample = 0

    def __repr__(self) -> str:
        return format_tensor(self)

    def _repr_html_(self) -> str:
        return format_values(self)


class Unusable(Tensor):
    """A result that cannot exist: whatever needs more than its dtype raises the reason, like failed queued work."""

    _error: Exception
    _called_at: str
    _known: tuple[torch.dtype, int, Device]

    @property
    def buffer(self) -> TorchTensor:  # type: ignore[override]
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
        """Device that the values would have."""
        return self._known[2]


def unusable(error: Exception, dtype: torch.dtype, ndim: int, layout: str | None, device: Device) -> Tensor:
    """Return a Tensor that raises the error, with the line of the call, when it is used. In the synchronous modes the call raises it."""
    if thread_state.mode >= EvalMode.sync_cpu:
        raise error
    result = Unusable.__new__(Unusable)
    site = caller()
    # The site is taken now: when the result is used, the program is elsewhere.
    result._error, result._called_at = error.with_traceback(traceback_of(site)), called_at(site)
    result._known = (dtype, ndim, device)
    result._layout, result.pending, result.caller_owned, result._sample = layout, None, False, 0
    return result


def unshare_memory(values: torch.Tensor) -> torch.Tensor:
    """Return the values in memory of their own if they are part of a larger tensor, which would be saved with them."""
    return values.clone() if values.untyped_storage().nbytes() > values.numel() * values.element_size() else values


def load_values(kind: str, state: dict[str, Any]) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Return the values and the sources of a saved Tensor or Batch. ``torch.load`` takes both from any file: raise ValueError for wrong ones."""
    if not isinstance(state, dict) or not {"values", "layout", "sources"} <= state.keys():
        raise ValueError(f"{kind}: not a valid saved {kind}")
    values, sources = state["values"], state["sources"]
    if not isinstance(values, torch.Tensor) or not isinstance(sources, tuple) or not all(isinstance(source, str) for source in sources):
        raise ValueError(f"{kind}: the saved values must be a torch tensor and the sources strings, got {type(values).__name__} and {sources!r:.100}")
    return foreign.from_torch(values)[0], sources


def convert_values(
    source: Operand, values: torch.Tensor, shapes: torch.Tensor | None, sample: int, dtype: torch.dtype
) -> tuple[torch.Tensor, Pending | None]:
    """Return the values of ``source``, as a batch with these shapes, converted like ``cast``, and the pending work."""
    out = output(native.empty, values.shape, dtype, values.device)
    return out, run(torch.ops.ndd.cast.default, (values, shapes, out, shapes), [(source, sample)], out)


def new_tensor(
    values: torch.Tensor, layout: str | None = None, pending: Pending | None = None, sample: int = 0, caller_owned: bool = False
) -> Tensor:
    """Create a Tensor over values that are valid."""
    result = Tensor.__new__(Tensor)
    result.buffer = values
    result._layout = layout
    result.pending = pending
    result.caller_owned = caller_owned
    result._sample = sample
    return result


def check_layout(op: str, layout: str | None, ndim: int) -> str | None:
    """Return the layout, None for an empty one. Raise ValueError unless it is a string with one letter per dimension."""
    if layout is None or layout == "":
        return None
    if not isinstance(layout, str):
        raise ValueError(f"{op}: Layout must be a string, got {layout!r}")
    if len(layout) != ndim:
        raise ValueError(f'{op}: layout "{layout}" has {len(layout)} letters for data with {ndim} dimensions')
    return layout


def tensor(data: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """Create a Tensor with its own memory, from numbers, nested lists, arrays, a Tensor or a Batch (see :func:`as_tensor`).

    Python ints become int32 (uint32 if necessary), floats float32; with ``dtype`` Python numbers are converted like NumPy, arrays like :func:`cast`.

    Raises:
        TypeError: data that is not numeric.
        RuntimeError: text, complex numbers, other unsupported types.
        OverflowError: an int that does not fit.
        ValueError: a ragged list or a wrong layout.

    >>> tensor([1, 2, 3], dtype="f32").torch()
    tensor([1., 2., 3.])
    """
    data = unwrap(data)
    result = as_tensor(data, dtype, device, layout, pad)
    if result.caller_owned or isinstance(data, Operand):
        return result.copy_values()
    if thread_state.mode >= EvalMode.sync_cpu:
        result.evaluate()
    return result


def as_tensor(data: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """Create a Tensor over ``data``, without a copy if possible: arrays and DLPack objects share memory.

    Python numbers, strided, read-only and big-endian arrays are copied, as is data that needs another dtype or device. A Batch is stacked, with ``N``
    in front of its layout; samples of different shapes raise ValueError, as late as other errors of queued work, unless ``pad`` pads them with zeros
    (:meth:`Batch.padded` also returns their lengths). Without ``layout``, an ``Image`` of torchvision has ``CHW`` and a ``Video`` ``FCHW``. Errors
    are those of :func:`tensor`.

    >>> import numpy as np
    >>> a = np.zeros(3, np.float32)
    >>> t = as_tensor(a)
    >>> a[0] = 7
    >>> t.torch()[0]
    tensor(7.)
    """
    data = unwrap(data)
    if isinstance(data, Operand) and data._is_batch:
        data = data.stack(pad)
        if isinstance(data, Unusable):
            return data
    return Tensor(data, dtype, device, layout)
