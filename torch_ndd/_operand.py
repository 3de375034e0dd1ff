# SPDX-License-Identifier: Apache-2.0
"""What a tensor and a batch have in common: a buffer that may still be filled, and the arithmetic operators."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from typing_extensions import Self

from ._device import Device
from ._stream import Pending

# Inside the classes `torch` is a method.
TorchTensor: TypeAlias = torch.Tensor


class Operand:
    """A buffer that may still be filled, with the operators ``+ - * /`` and so on."""

    _values: TorchTensor
    _layout: str | None
    _pending: Pending | None
    _external: bool
    _sources: Sequence[str] = ()  # the file that each sample came from, if known
    __hash__ = None  # type: ignore[assignment]

    # Set by ops/arithmetic.py, which stands above this layer: arithmetic(operation, left, right).
    arithmetic: Callable[[str, Any, Any], Any]

    def __init__(self, values: torch.Tensor, layout: str | None, pending: Pending | None, external: bool) -> None:
        self._values = values
        self._layout = layout
        self._pending = pending
        self._external = external

    def _ready(self) -> torch.Tensor:
        """The values, once they are there. Raises the error of the call that should have made them."""
        pending = self._pending  # another thread may set it to None meanwhile
        if pending is not None:
            pending.wait()
            self._pending = None
        return self._values

    def evaluate(self) -> Self:
        """Wait until the values are there. Raises what went wrong on the way to them."""
        self._ready()
        return self

    def __getstate__(self) -> dict[str, Any]:
        self._ready()  # pending work stays in its process
        return dict(self.__dict__)

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
