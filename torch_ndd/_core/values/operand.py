# SPDX-License-Identifier: Apache-2.0
"""The base of Tensor and Batch: a buffer that may still be filled. The tensors and tensor lists of pipelines hold one, or convert to one."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import torch
from torch.compiler import is_dynamo_compiling
from typing_extensions import Self

from ..context.device import Device, DeviceLike, torch_device
from ..native.tracing import is_compiling
from ..work import upload
from ..work.bad_samples import BadSample, Failures
from ..work.cuda_work import StreamWork
from ..work.pending import SAME_SAMPLE, Pending
from ..work.sources import UNKNOWN

# Inside the classes `torch` is a method.
TorchTensor: TypeAlias = torch.Tensor


class _Loop(threading.local):
    """The recorder of this thread, to which operators pass their calls: of a captured loop (capture.py), or of a function (functions.py).

    It is active as long as its owner lives, so leaving a loop needs no ``finally``, in which a KeyboardInterrupt could be lost. The recorder
    itself may live longer: tracebacks of errors in the body hold it.
    """

    latest: Any = None  # the recorder, or one whose loop has ended

    @property
    def recorder(self) -> Any:
        """The recorder of the loop whose body runs; None outside such loops."""
        if self.latest is not None and self.latest.owner() is None:
            self.latest = None
        return self.latest

    @recorder.setter
    def recorder(self, recorder: Any) -> None:
        self.latest = recorder


loop = _Loop()


class Operand:
    """A buffer that may still be filled, one sample or a batch of them."""

    _is_batch: ClassVar[bool] = False

    buffer: TorchTensor
    _layout: str | None
    pending: Pending | None
    caller_owned: bool
    recorded_on: int | None = None  # handle of a stream for which torch's allocator keeps the buffer
    _sample: int = SAME_SAMPLE  # the index of this sample in the pending work, or which of its samples it has
    sources: Sequence[str] = UNKNOWN  # of each sample
    holds_places: bool = False  # the bytes are places of files, which the operator opens itself
    failures: Failures | None = None  # of the decoder that returned this
    _row: TorchTensor | None = None  # of a number in arithmetic: its value as a batch of one sample
    _on_gpus: Mapping[torch.device, "Operand"] = MappingProxyType({})  # copies of such a number
    _origin: Any = None  # used by capture.py
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: torch.Tensor, layout: str | None, pending: Pending | None, caller_owned: bool) -> None:
        self.buffer = values
        self._layout = layout
        self.pending = pending
        self.caller_owned = caller_owned

    def wait(self) -> torch.Tensor:
        """Wait for the values and return them. Raise the error of the call that should have produced them."""
        pending = self.pending  # another thread may set it to None meanwhile
        if pending is not None:
            if is_dynamo_compiling():
                waited = torch.ops.ndd.behind if pending.stays else torch.ops.ndd.waited_for
                return waited.default(self.buffer, pending.handle)
            pending.wait()
            if not pending.stays:
                self.pending = None
        return self.buffer

    def _pending_work(self) -> Pending | None:
        """Return the work that a kernel reading this depends on; None if it has ended, or is on a GPU and issued: the CUDA stream waits here."""
        pending = self.pending
        if pending is None:
            return None
        if isinstance(pending, StreamWork):
            return pending.find_unissued()
        if pending.done():
            self.pending = None
            return None
        return pending

    def _result(self, values: TorchTensor, shapes: TorchTensor | None, layout: str | None, pending: Pending | None, shared_extents: Any) -> "Operand":
        """Return a result of arithmetic with this operand as a batch: of one sample if no operand is a batch."""
        del shapes, shared_extents
        return Operand(values[0], layout, pending, False)

    def stack(self, pad: bool = False, value: float = 0, lazily: bool = True) -> "Operand":
        """Return the samples of a batch as one."""
        raise NotImplementedError

    def settle(self) -> Self:
        """Return this operand or, while a graph is traced, its values after waiting: in the graph if they are an input of it, else now."""
        if self.pending is None or not is_compiling():
            return self
        return self._over(self.wait())

    def _over(self, values: TorchTensor) -> Self:
        """Return the same shapes over other values."""
        raise NotImplementedError

    def copy_values(self) -> Self:
        """Return the same values in memory of their own.

        :meta private:
        """
        raise NotImplementedError

    def with_buffer(self, values: TorchTensor, pending: Pending | None, caller_owned: bool = False) -> Self:
        """Return the same value in other memory.

        :meta private:
        """
        raise NotImplementedError

    def to_device(self, device: DeviceLike, force_copy: bool = False) -> Self:
        """Return this value on a device: itself if it is already there and no copy is forced."""
        target = torch_device(device)
        if target == self.buffer.device:
            return self.copy_values() if force_copy else self
        self = self.settle()
        return self.with_buffer(*upload.copy_to_device(self.buffer, self.pending, self.caller_owned, target))

    def cpu(self) -> Self:
        """Return this value in host memory."""
        return self.to_device("cpu")

    def gpu(self, index: int | None = None) -> Self:
        """Return this value on a GPU, by default the current one."""
        return self.to_device(Device("gpu", index))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy_values().evaluate()

    def export_buffer(self) -> torch.Tensor:
        """Wait for the values and return them to a caller that may write to them."""
        values = self.wait()
        if not is_compiling():
            if (recorder := loop.recorder) is not None and recorder.counts_writes and not values.is_inference():
                torch.autograd.graph.increment_version(values)  # NumPy and DLPack do not count their writes
            if values.device.type == "cpu" and upload.has_reads():
                upload.note_exposed(values)
        return values

    def evaluate(self) -> Self:
        """Wait for the values, and raise the errors on the way to them."""
        self.wait()
        return self

    @property
    def errors(self) -> list[BadSample]:
        """The samples that a decoder with ``on_error="skip"`` or ``"replace"`` could not decode: (index in its input, source, reason). Waits.

        They belong to the decoder's own result; operators do not pass them on.
        """
        self.wait()
        return self.failures.list() if self.failures else []

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions of a sample."""
        return self.buffer.dim()

    def relabel(self, layout: str | None) -> None:
        """Set the layout of a new value that the program does not have yet."""
        self._layout = layout

    @property
    def layout(self) -> str | None:
        """One letter per dimension of a sample, such as ``HWC``; None if unknown."""
        return self._layout

    @property
    def device(self) -> Device:
        """Device of the values."""
        device = self.buffer.device
        return Device("cpu") if device.type == "cpu" else Device("gpu", device.index)


# --- Values of pipelines, which are accepted wherever a Tensor or a Batch is, and keep their layouts ---

# Those of torch_ndd.dali hold a Tensor or a Batch. NVIDIA's own share their memory through DLPack or an array interface; they are recognized by the
# names of their classes, so their package need not be installed.
_NVIDIA = "nvidia.dali."  # tensors or backend_impl, whichever was imported first
LISTS = ("TensorListCPU", "TensorListGPU")
_NAMES = ("TensorCPU", "TensorGPU", *LISTS)


class PipelineValue:
    """A tensor or a tensor list of a pipeline."""

    def _operand(self) -> Operand:
        """Return the Tensor or the Batch that this holds."""
        raise NotImplementedError


_importer: Callable[[Any], Operand] | None = None


def import_with(importer: Callable[[Any], Operand]) -> None:
    """Set the function that makes a Tensor or a Batch of an object of NVIDIA's package. Those classes are defined above this module."""
    global _importer
    _importer = importer


def unwrap(value: Any) -> Any:
    """Return the Tensor or the Batch of a pipeline's tensor or tensor list, and anything else unchanged.

    Raises:
        RuntimeError: elements that are not numbers.
    """
    if is_compiling():
        return value
    if isinstance(value, PipelineValue):
        return value._operand()
    kind = type(value)
    # By name, so NVIDIA's package need not be imported.
    if kind.__name__ in _NAMES and kind.__module__.startswith(_NVIDIA):
        assert _importer is not None
        return _importer(value)
    return value


def layout_error(op: str, value: Any, allowed: Iterable[str]) -> ValueError:
    """Return the error for a Batch or a Tensor whose layout an operator does not take."""
    shape = f"{value.shape!r:.200}"
    return ValueError(
        f'{op}: The layout "{value.layout or ""}" does not match any of the allowed layouts: {", ".join(allowed)}; the shape is {shape}'
    )
