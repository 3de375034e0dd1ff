# SPDX-License-Identifier: Apache-2.0
"""Arguments with one value per frame of a sequence."""

from typing import Any

from ..._core.context.device import DeviceLike
from ..._core.native.tracing import is_compiling
from ..._core.values.batch import Batch, new_batch
from ..._core.values.operand import unwrap
from ..._core.values.tensor import Tensor, as_tensor, new_tensor


def per_frame(input: Any, /, *, batch_size: int | None = None, device: DeviceLike | None = None, replace: bool = False) -> Any:
    """Mark the outermost dimension of an argument as frames: ``rotate(video, angle=per_frame([0, 5, 10]))``.

    Without the mark a vector is one value for all frames. Nothing is computed or copied; the layout becomes ``F`` followed by ``*`` for every further
    dimension.

    Args:
        input: a list, an array, a Tensor or a Batch with at least one dimension.
        replace: also accept an input whose layout does not start with ``F``, and replace its first letter.

    Raises:
        RuntimeError: a scalar, or another layout without ``replace``.

    >>> per_frame([1.0, 2.0, 3.0]).layout, per_frame([[1.0], [2.0]]).layout
    ('F', 'F*')
    """
    value = unwrap(input)
    if not isinstance(value, Tensor | Batch):
        value = as_tensor(value)
    if batch_size is not None and isinstance(value, Tensor):
        value = Batch.broadcast(value, batch_size)
    if device is not None:
        value = value.to_device(device)
    if value.ndim == 0:
        raise RuntimeError("per_frame: input must have at least one dimension, got a number")
    layout = value.layout or "F" + "*" * (value.ndim - 1)
    if layout[0] != "F":
        if not replace:
            raise RuntimeError(f'per_frame: the layout "{layout}" does not start with F; replace=True replaces its first letter')
        layout = "F" + layout[1:]
    if isinstance(value, Batch):
        marked = new_batch(value.buffer, value.ragged_shapes, layout, value.pending, value.caller_owned, value.shared_extents)
    else:
        marked = new_tensor(value.buffer, layout, value.pending, value._sample, value.caller_owned)
    if not is_compiling():
        marked.sources = value.sources
    return marked
