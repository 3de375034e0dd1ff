# SPDX-License-Identifier: Apache-2.0
"""CUDA streams."""

import ctypes
import operator
from typing import Any, ClassVar

import torch

from .. import native
from .device import Device, cuda_problem

_LEGACY = (0, 1)  # both mean CUDA's legacy default stream
_cuda_stream = native.c_function("ndd_cuda_stream")


def new_torch_stream(device: torch.device | int | None) -> torch.cuda.Stream:
    """Return one of the library's own streams of a GPU, which ``torch.cuda.graph()`` never captures (csrc/ndd/stream/cuda_streams.cpp).

    Raises:
        RuntimeError: CUDA creates no stream, or graphs are being captured on all of the library's.
    """
    with torch.cuda.device(device):
        index = torch.cuda.current_device()  # starts CUDA
        handle = ctypes.c_void_p()
        problem = _cuda_stream(index, ctypes.byref(handle))
        if problem is not None:
            raise RuntimeError(f"no CUDA stream on GPU {index} can be used: {problem.decode()}")
        # A build without CUDA only copies to GPUs.
        return torch.cuda.Stream() if handle.value is None else torch.cuda.ExternalStream(handle.value, index)


class Stream:
    """A CUDA stream: a new one, or one of another library. Prefer :func:`stream` to the constructor.

    Args:
        stream: A torch stream, an object with ``__cuda_stream__``, a handle as an int, or ``Stream.create_new``. A wrapped object is kept alive;
            a stream given as a handle must exist as long as results of its work are used.
        device_id: The GPU; by default that of ``stream`` if it is known, else the current device.

    Raises:
        ValueError: None, or a stream on another GPU than ``device_id``.
        TypeError: an object that is not a stream.
        RuntimeError: no usable GPU.
    """

    create_new: ClassVar[Any] = type("create_new", (), {"__repr__": lambda self: "Stream.create_new"})()

    def __init__(self, *, stream: Any = create_new, device_id: int | None = None) -> None:
        if stream is None:
            raise ValueError("Stream: stream must not be None; leave it out for a new stream")
        # Before the question whether there is a GPU, so a wrong argument raises the same error on every machine.
        known = None if stream is self.create_new else _handle_and_device(stream)
        if (problem := cuda_problem()) is not None:
            raise RuntimeError(f"Stream: no GPU can be used: {problem}")
        found = None if known is None else known[1]
        if device_id is not None:
            device_id = Device("gpu", device_id).device_id
            if found is not None and found != device_id:
                raise ValueError(f"the stream is on GPU {found}, but device_id={device_id}")
        if found is None:
            found = Device.current().device_id if device_id is None else device_id
            if found is None:  # the CPU is the current device
                found = torch.cuda.current_device()
        self._device_id = found
        # Keeps the stream of another library from being destroyed.
        self._owner = stream
        if known is None:
            self._torch = new_torch_stream(found)
            self._handle = self._torch.cuda_stream
        else:
            self._handle = known[0]
            self._torch = _torch_stream(stream, self._handle, found)
        # For launches: an attribute, because a call of a property takes 5 us with cold caches.
        self.both = self._handle, self._torch

    @property
    def handle(self) -> int:
        """CUDA's handle of the stream."""
        return self._handle

    @property
    def device_id(self) -> int:
        """The GPU of the stream."""
        return self._device_id

    @property
    def torch(self) -> torch.cuda.Stream:
        """The same stream as a torch stream."""
        return self._torch

    def synchronize(self) -> None:
        """Wait until everything queued on the stream is done."""
        self._torch.synchronize()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self._handle == other
        try:
            handle, device_id = _handle_and_device(other)
        except TypeError:
            return NotImplemented
        return self._handle == handle and (device_id is None or device_id == self._device_id)

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        return f"Stream(handle=0x{self._handle:x}, device_id={self._device_id})"


def _handle_and_device(stream: Any) -> tuple[int, int | None]:
    """Return CUDA's handle, and the GPU if the object provides it. Raise TypeError for an object that is not a stream."""
    if isinstance(stream, Stream):
        return stream.handle, stream.device_id
    if isinstance(stream, torch.cuda.Stream):
        return stream.cuda_stream, stream.device_index
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # A method today; in early versions of the protocol it was a property.
        pair: Any = protocol() if callable(protocol) else protocol
        found = getattr(stream, "device_id", None)
        return int(pair[1]), found if isinstance(found, int) and found >= 0 else None
    try:
        return operator.index(stream), None
    except TypeError:
        raise TypeError(f"{stream!r} is not a CUDA stream: it must be a torch stream, an object with __cuda_stream__ or a handle") from None


def _torch_stream(stream: Any, handle: int, device_id: int) -> torch.cuda.Stream:
    if isinstance(stream, Stream):
        return stream.torch
    if isinstance(stream, torch.cuda.Stream):
        return stream
    return torch.cuda.default_stream(device_id) if handle in _LEGACY else torch.cuda.ExternalStream(handle, device_id)


def stream(*, stream: Any = Stream.create_new, device_id: int | None = None) -> Stream | None:
    """Return a new CUDA stream, or the given one as a :class:`Stream`; None for None.

    Args:
        stream: A Stream, which is returned unchanged, or anything that :class:`Stream` takes.
        device_id: The GPU of a new stream, by default the current device; the GPU of a given stream is checked.

    Raises:
        ValueError: the stream is on another GPU.
        TypeError: an object that is not a stream.
        RuntimeError: no usable GPU.

    >>> stream(stream=None) is None
    True
    """
    if stream is None:
        return None
    if isinstance(stream, Stream):
        if device_id is not None and stream.device_id != device_id:
            raise ValueError(f"the stream is on GPU {stream.device_id}, but device_id={device_id}")
        return stream
    return Stream(stream=stream, device_id=device_id)
