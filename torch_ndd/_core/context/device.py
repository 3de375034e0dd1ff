# SPDX-License-Identifier: Apache-2.0
"""Devices: where data is, and whether a GPU can be used."""

import operator
import threading
from typing import Any, ClassVar, TypeAlias, overload

import torch

from ..native import CPU
from ..native.dynamo import assume_constant_result


@assume_constant_result  # Dynamo traces torch.cuda's functions differently in each version: with torch 2.11 every process seemed forked
def gpu_count() -> int:
    """Return how many GPUs this process can use: none in a process forked from one that had used CUDA."""
    return 0 if torch.cuda._is_in_bad_fork() or not torch.cuda.is_available() else torch.cuda.device_count()


@assume_constant_result
def cuda_problem() -> str | None:
    """Return why no GPU can be used, in one sentence without a full stop; None if one can."""
    if torch.cuda._is_in_bad_fork():
        return (
            "this process was forked from one that had already used CUDA, which CUDA does not allow; "
            'operators work on the CPU here; start the process with the "spawn" method to use the GPU'
        )
    if gpu_count():
        return None
    if torch.version.cuda is None:
        return f"the installed torch {torch.__version__} is a build without CUDA"
    # Initialization fails with the driver's reason, which is_available() hides.
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"torch says: {str(error).splitlines()[0].partition('. ')[0].rstrip('.')}"
    return "this machine has no GPU"


class _Local(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[Device, torch.cuda.device | None]] = []  # the entered device, and what restores CUDA's previous one


class Device:
    """A device: ``cpu``, or ``gpu`` with a number. Prefer :func:`device` to the constructor.

    As a context manager it becomes :meth:`current` for the calling thread; a GPU also becomes CUDA's current device until the exit. The current
    device determines contexts, streams and a plain ``"gpu"``, not where operators run: they run where their inputs are.

    Args:
        name: ``"cpu"``, ``"gpu"`` or ``"cuda"``, the latter two optionally with a number: ``"gpu:1"``.
        device_id: The number of the GPU, if the name has none; by default CUDA's current device.

    Raises:
        ValueError: an unknown name, a GPU that does not exist, a number for the CPU or two numbers.
        RuntimeError: ``"gpu"`` without a usable GPU.

    >>> Device("cpu") == Device.CPU, str(Device("cpu"))
    (True, 'cpu')
    """

    __slots__ = ("__weakref__", "device_id", "device_type")

    CPU: ClassVar["Device"]

    def __init__(self, name: str, device_id: int | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a Device must be a str, got {name!r}")
        # "cuda" is torch's name, and "gpu" that of the operators.
        kind, colon, number = name.partition(":")
        if kind not in ("cpu", "gpu", "cuda"):
            raise ValueError(f'Invalid device type "{kind}": it must be "cpu", "gpu" or "cuda"')
        if colon:
            if device_id is not None:
                raise ValueError(f'Invalid device name "{name}": the device id is specified twice')
            try:
                device_id = int(number)
            except ValueError:
                raise ValueError(f'Invalid device name "{name}": "{number}" is not a device id') from None
        self.device_type = "cpu" if kind == "cpu" else "gpu"
        if self.device_type == "cpu":
            if device_id is not None:
                raise ValueError(f"Invalid device id {device_id} for the CPU. Must be `None`")
            self.device_id = None
        else:
            self.device_id = _current_gpu(name) if device_id is None else _check_gpu(device_id)

    @staticmethod
    def current() -> "Device":
        """Return the innermost device entered in this thread, else CUDA's current device if there is a GPU, else the CPU."""
        if _local.stack:
            return _local.stack[-1][0]
        return new_device(torch.cuda.current_device()) if gpu_count() else Device.CPU

    @staticmethod
    def default_device_id(device_type: str) -> int | None:
        """Return None for ``"cpu"``, CUDA's current device for ``"gpu"``. Raise ValueError for any other name."""
        if device_type not in ("cpu", "gpu"):
            raise ValueError(f'Invalid device type "{device_type}": it must be "cpu" or "gpu"')
        return None if device_type == "cpu" else _current_gpu(device_type)

    @staticmethod
    def type_from_dlpack(dev_type: int) -> str:
        """Return the name of DLPack's device type: 1 is ``"cpu"``, 2 ``"gpu"``. Raise ValueError for others."""
        kinds = {1: "cpu", 2: "gpu"}
        if int(dev_type) not in kinds:
            raise ValueError(f"Unsupported DLPack device type {int(dev_type)}: only 1 (CPU) and 2 (CUDA) are")
        return kinds[int(dev_type)]

    @staticmethod
    def from_dlpack(dlpack_device: Any) -> "Device":
        """Return the device of an object with ``__dlpack_device__``.

        >>> Device.from_dlpack(torch.zeros(2))
        Device(device_type='cpu')
        """
        dev_type, number = dlpack_device.__dlpack_device__()
        kind = Device.type_from_dlpack(dev_type)
        return Device(kind, None if kind == "cpu" else int(number))

    def __enter__(self) -> "Device":
        guard = None
        if self.device_id is not None:
            guard = torch.cuda.device(self.device_id)  # set_device() would create a context on GPU 0 on exit, on most threads
            guard.__enter__()
        _local.stack.append((self, guard))
        return self

    def __exit__(self, *error: object) -> None:
        _, guard = _local.stack.pop()
        # A forked child inherits the entered devices, and CUDA's functions would raise in it.
        if guard is not None and not torch.cuda._is_in_bad_fork():
            guard.__exit__(None, None, None)

    def __str__(self) -> str:
        return "cpu" if self.device_id is None else f"gpu:{self.device_id}"

    def __repr__(self) -> str:
        number = "" if self.device_id is None else f", device_id={self.device_id}"
        return f"Device(device_type={self.device_type!r}{number})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.device_type == other.device_type and self.device_id == other.device_id

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))


def _current_gpu(name: str) -> int:
    if (problem := cuda_problem()) is not None:
        raise RuntimeError(f'device "{name}": no GPU can be used: {problem}; without device= or with device="cpu" the same runs on the CPU')
    return torch.cuda.current_device()


def _check_gpu(device_id: int) -> int:
    number = operator.index(device_id)
    count = gpu_count()
    if not 0 <= number < count:
        known = f"this process sees {count} GPU{'s' * (count > 1)}" if count else f"no GPU can be used: {cuda_problem()}"
        raise ValueError(f"Invalid device id {number}: {known}")
    return number


def new_device(device_id: int | None) -> Device:
    """Return a Device that is known to exist; None means the CPU."""
    if device_id is None:
        return Device.CPU
    # Without __init__, which would ask CUDA whether the GPU exists.
    new = Device.__new__(Device)
    new.device_type, new.device_id = "gpu", device_id
    return new


_local = _Local()
Device.CPU = Device("cpu")

DeviceLike: TypeAlias = str | torch.device | Device


@overload
def device(obj: None, id: int | None = None) -> None: ...
@overload
def device(obj: DeviceLike, id: int | None = None) -> Device: ...
def device(obj: DeviceLike | None, id: int | None = None) -> Device | None:
    """Return the Device of a name, a torch device or a Device; None for None.

    Args:
        obj: The object to convert.
        id: The number of the GPU, for a name without one.

    Raises:
        TypeError: any other object.
        ValueError: the errors of :class:`Device`, and an ``id`` without a name.

    >>> device("cpu") is device(torch.device("cpu")) is Device.CPU
    True
    """
    if obj is None:
        return None
    if isinstance(obj, str):
        # The most frequent argument needs no parsing.
        return Device.CPU if obj == "cpu" and id is None else Device(obj, id)
    if not isinstance(obj, Device | torch.device):
        raise TypeError(f"Cannot convert {type(obj)} to Device")
    if id is not None:
        raise ValueError(f"Cannot specify id={id} with {obj!r}: the id goes with a name")
    if isinstance(obj, Device):
        return obj
    if obj.type == "cpu":
        return Device.CPU
    return Device(obj.type, obj.index)


def torch_device(device_: DeviceLike, op: str | None = None) -> torch.device:
    """Return the torch device of a name, a ``Device`` or a torch device.

    Raise :func:`device`'s errors, RuntimeError without a usable GPU; they name ``op`` if it is given.
    """
    if op is not None:
        try:
            return torch_device(device_)
        except (TypeError, ValueError, RuntimeError) as error:
            raise type(error)(f"{op}: {error}") from None
    # Devices that torch knows without CUDA.
    if isinstance(device_, torch.device) and device_.type in ("cpu", "meta"):
        return device_ if device_.type == "meta" else CPU
    if device_ is None:
        raise TypeError("Cannot convert None to Device")
    number = device(device_).device_id
    return CPU if number is None else torch.device("cuda", number)
