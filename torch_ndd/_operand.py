# SPDX-License-Identifier: Apache-2.0
"""What a tensor and a batch have in common: a buffer that may still be filled, and the arithmetic operators."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from typing_extensions import Self

from . import _native, _upload
from ._device import Device
from ._failures import BadSample, Failures
from ._stream import Pending

# Inside the classes `torch` is a method.
TorchTensor: TypeAlias = torch.Tensor


class _Loop(threading.local):
    """What _capture.py does in this thread. The recorder of a loop goes on as long as its owner lives, so that no ``finally`` is needed where a loop
    is left, which a Ctrl-C could get lost in. The recorder itself may live longer: tracebacks of errors in the body hold it."""

    _recorder: Any = None

    @property
    def recorder(self) -> Any:
        """The recorder of the loop whose body runs; None outside of such loops."""
        if self._recorder is not None and self._recorder.owner() is None:
            self._recorder = None
        return self._recorder

    @recorder.setter
    def recorder(self, recorder: Any) -> None:
        self._recorder = recorder


loop = _Loop()


class Operand:
    """A buffer that may still be filled, with the operators ``+ - * / // % ** & | ^ ~ << >>``, comparisons and ``abs``.

    Between a Tensor and a Batch they give a Batch.
    """

    _values: TorchTensor
    _layout: str | None
    _pending: Pending | None
    _external: bool
    _sources: Sequence[str] = ()  # the file that each sample came from, if known
    _failures: Failures | None = None  # of the decoder that made this
    _origin: Any = None  # what _capture.py knows about it
    __hash__ = None  # type: ignore[assignment]

    # Set by ops/arithmetic.py, which stands above this layer: arithmetic(operation, *operands).
    arithmetic: Callable[..., Any]

    def __init__(self, values: torch.Tensor, layout: str | None, pending: Pending | None, external: bool) -> None:
        self._values = values
        self._layout = layout
        self._pending = pending
        self._external = external

    def _ready(self) -> torch.Tensor:
        """The values, once they are there. Raises the error of the call that should have made them."""
        pending = self._pending  # another thread may set it to None meanwhile
        if pending is not None:
            if torch.compiler.is_compiling():
                waited = torch.ops.ndd.behind if pending.stays else torch.ops.ndd.waited_for
                return waited.default(self._values, pending.handle)
            pending.wait()
            if not pending.stays:
                self._pending = None
        return self._values

    def _settled(self) -> Self:
        """This, or where a graph is being traced and this was pending when it was given to it, the same once it is there."""
        if self._pending is None or not torch.compiler.is_compiling():
            return self
        return self._over(self._ready())

    def _over(self, values: TorchTensor) -> Self:
        """The same shapes over other values."""
        raise NotImplementedError

    def _shared(self) -> torch.Tensor:
        """The values, once they are there, for somebody who may write to them."""
        values = self._ready()
        if not torch.compiler.is_compiling():
            if loop.recorder is not None and not values.is_inference():
                torch.autograd.graph.increment_version(values)  # NumPy and DLPack do not tell when they write
            if _native.pinned_sizes and values.device.type == "cpu":
                _upload.shown(values)
        return values

    def evaluate(self) -> Self:
        """Wait until the values are there. Raises what went wrong on the way to them."""
        self._ready()
        return self

    @property
    def errors(self) -> list[BadSample]:
        """What a decoder with ``on_error="skip"`` or ``"replace"`` could not decode: (index in its input, source, reason). It waits for the values.

        They belong to the decoder's own result; operators on it do not hand them on.
        """
        self._ready()
        return self._failures.list() if self._failures else []

    def __getstate__(self) -> dict[str, Any]:
        self._ready()  # pending work stays in its process
        return {name: value for name, value in self.__dict__.items() if name != "_origin"}

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self._values.dtype

    @property
    def layout(self) -> str | None:
        """One letter for each dimension of a sample, such as ``HWC``; None when unknown."""
        return self._layout

    @property
    def device(self) -> Device:
        """Where the values are."""
        device = self._values.device
        return Device("cpu") if device.type == "cpu" else Device("gpu", device.index)

    def __add__(self, other: Any) -> Self:
        return Operand.arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return Operand.arithmetic("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return Operand.arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return Operand.arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> Self:
        return Operand.arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return Operand.arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> Self:
        return Operand.arithmetic("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return Operand.arithmetic("truediv", other, self)

    def __floordiv__(self, other: Any) -> Self:
        return Operand.arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return Operand.arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> Self:
        return Operand.arithmetic("mod", self, other)

    def __rmod__(self, other: Any) -> Self:
        return Operand.arithmetic("mod", other, self)

    def __pow__(self, other: Any) -> Self:
        return Operand.arithmetic("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return Operand.arithmetic("pow", other, self)

    def __and__(self, other: Any) -> Self:
        return Operand.arithmetic("and", self, other)

    def __rand__(self, other: Any) -> Self:
        return Operand.arithmetic("and", other, self)

    def __or__(self, other: Any) -> Self:
        return Operand.arithmetic("or", self, other)

    def __ror__(self, other: Any) -> Self:
        return Operand.arithmetic("or", other, self)

    def __xor__(self, other: Any) -> Self:
        return Operand.arithmetic("xor", self, other)

    def __rxor__(self, other: Any) -> Self:
        return Operand.arithmetic("xor", other, self)

    def __lshift__(self, other: Any) -> Self:
        return Operand.arithmetic("lshift", self, other)

    def __rlshift__(self, other: Any) -> Self:
        return Operand.arithmetic("lshift", other, self)

    def __rshift__(self, other: Any) -> Self:
        return Operand.arithmetic("rshift", self, other)

    def __rrshift__(self, other: Any) -> Self:
        return Operand.arithmetic("rshift", other, self)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return Operand.arithmetic("eq", self, other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return Operand.arithmetic("ne", self, other)

    def __lt__(self, other: Any) -> Self:
        return Operand.arithmetic("lt", self, other)

    def __le__(self, other: Any) -> Self:
        return Operand.arithmetic("le", self, other)

    def __gt__(self, other: Any) -> Self:
        return Operand.arithmetic("lt", other, self)

    def __ge__(self, other: Any) -> Self:
        return Operand.arithmetic("le", other, self)

    def __neg__(self) -> Self:
        return Operand.arithmetic("neg", self)

    def __pos__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        return Operand.arithmetic("invert", self)

    def __abs__(self) -> Self:
        return Operand.arithmetic("abs", self)
