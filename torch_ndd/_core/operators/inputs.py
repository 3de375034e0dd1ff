# SPDX-License-Identifier: Apache-2.0
"""The inputs of a call: any values of the program as batches of one size, on one device, with an allowed layout."""

import numbers
from collections.abc import Sequence
from typing import Any

import torch

from .. import native
from ..context.device import DeviceLike, torch_device
from ..native import CPU
from ..values.batch import Batch, new_batch
from ..values.operand import Operand
from ..values.pipeline_values import unwrap
from ..values.tensor import Tensor, as_tensor
from ..work.sources import UNKNOWN
from .arguments import Call
from .definition import Operator
from .planes import as_images, image_layout
from .traps import warn_about_planes


def as_input(op: str, position: int, value: Any, required: bool) -> Tensor | Batch | None:
    """Return an input as a Tensor, or as a Batch if it is a tensor list of a pipeline."""
    if value is None:
        if required:
            raise TypeError(f"{op}: input {position} must be a Tensor, a Batch or an array, got None")
        return None
    try:
        unwrapped = unwrap(value)
        return unwrapped if isinstance(unwrapped, Batch) else as_tensor(unwrapped)
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{op}: input {position}: {error}") from None


def convert_input(op: Operator, value: Any) -> Any:
    """Convert a first input that is neither a Tensor nor a Batch as the operator's option says, such as a path to the contents of its file."""
    assert op.options.converts is not None
    try:
        converted = op.options.converts(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{op.name}: input 0: {error}") from None
    return value if converted is None else converted


def set_batch_size(call: Call, batch_size: Any) -> None:
    """Set the batch size of a call."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise TypeError(f"{call.name}: batch_size must be an int, got {batch_size!r}")
    if batch_size < 0:
        raise ValueError(f"{call.name}: batch_size must not be negative, got {batch_size}")
    native.check_samples(call.name, int(batch_size))
    if call.is_batch and call.batch_size != batch_size:
        raise ValueError(
            f"{call.name}: Inconsistent batch size: batch_size={batch_size}, but another argument is a Batch of {call.batch_size} samples"
        )
    call.is_batch, call.batch_size = True, int(batch_size)


def check_on_host(op: Operator, values: Sequence[Operand | None]) -> None:
    """Raise RuntimeError unless the inputs are in host memory."""
    for value in values:
        if value is not None and value.buffer.device != CPU:
            raise RuntimeError(f"{op.name}: the input must be in host memory even if the output is on a GPU, but it is on {value.buffer.device}")


def target_device(op: str, values: Sequence[Operand | None], device: DeviceLike | None) -> torch.device:
    """Return the requested device, by default that of the inputs."""
    if device is not None:
        try:
            target = torch_device(device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise type(error)(f"{op}: {error}") from None
        return target
    target = CPU
    for value in values:
        if value is not None and value.buffer.device != CPU:
            if target != CPU and value.buffer.device != target:
                raise RuntimeError(f"{op}: Got inputs with different device ids: {target} and {value.buffer.device}; move one with .gpu(index)")
            target = value.buffer.device
    return target


def to_batch(call: Call, value: Operand, target: torch.device, copies: bool) -> Batch:
    """Return an input in the body's form: a Batch with the call's number of samples, on the call's device."""
    call.external = call.external or value.caller_owned
    if value.buffer.device != target:
        value = value.to_device(target)  # type: ignore[attr-defined]
    if call.compiling and value.pending is not None:
        value = value.settle()
    call.read(value)
    if isinstance(value, Batch):
        return value
    values = value.buffer
    if call.is_batch:
        value.wait()
        batch = new_batch(_repeat(call, values) if copies else values.expand(call.batch_size, *values.shape), None, value._layout)
    else:
        batch = new_batch(values[None], None, value._layout)
    if value.sources is not UNKNOWN and not call.compiling:
        batch.sources = tuple(value.sources) * call.batch_size
    batch.pending = value.pending
    return batch


def _repeat(call: Call, values: torch.Tensor) -> torch.Tensor:
    try:
        return native.empty((call.batch_size, *values.shape), values.dtype, values.device).copy_(values)
    except MemoryError as error:
        raise MemoryError(f"{call.name}: {error}") from None


def match_layout(op: str, layouts: tuple[str, ...], value: Batch) -> Batch:
    """Return a Batch whose layout is allowed; without a layout it gets the allowed one with its number of dimensions; planes become images."""
    if value._layout is not None and value._layout in layouts:
        return value
    dimensions = value.ndim
    if (value._layout is not None or dimensions == 2) and (of_images := image_layout(layouts, value)) is not None:
        return as_images(value, of_images)
    if value._layout is not None:
        raise ValueError(f'{op}: The layout "{value._layout}" does not match any of the allowed layouts: {", ".join(layouts)}')
    layout = next((known for known in layouts if len(known) == dimensions), None)
    if layout is None:
        raise ValueError(f"{op}: The number of dimensions {dimensions} does not match any of the allowed layouts: {', '.join(layouts)}")
    if layout == "HWC":
        warn_about_planes(op, value)
    labeled = new_batch(value.buffer, value.ragged_shapes, layout, value.pending, value.caller_owned, value.shared_extents)
    if not torch.compiler.is_compiling():
        labeled.sources = value.sources
    return labeled
