# SPDX-License-Identifier: Apache-2.0
"""Planes as inputs of image operators: masks ``HW`` become images ``HWC`` and their results masks again; a warning about ``CHW`` taken as ``HWC``."""

import sys
import warnings

import torch

from ..native.tracing import is_compiling
from ..values.batch import Batch, new_batch
from ..work.call_sites import is_own

_MANY_CHANNELS = 16  # more than images have
_warned: set[str] = set()


def image_layout(layouts: tuple[str, ...], value: Batch) -> str | None:
    """Return the layout in which an operator with these layouts takes planes; None if it takes them unchanged, or the value is not planes."""
    layout = value._layout
    if layout is None:
        layout = "HW" if value.ndim == 2 and not any(len(known) == 2 for known in layouts) else ""
    with_channels = layout + "C"
    return with_channels if layout.endswith("HW") and "C" not in layout and layout not in layouts and with_channels in layouts else None


def as_images(value: Batch, layout: str) -> Batch:
    """Return planes as images of one channel over the same memory."""
    if value.ragged_shapes is None:
        images = new_batch(value.buffer.unsqueeze(-1), None, layout, value.pending, value.caller_owned)
    else:
        shapes = torch.nn.functional.pad(value.ragged_shapes, (0, 1), value=1)
        shared_extents = (*(value.shared_extents or (None,) * value.ndim), 1)
        images = new_batch(value.buffer, shapes, layout, value.pending, value.caller_owned, shared_extents)
    images.sources, images.failures = value.sources, value.failures
    return images


def as_planes(out: Batch) -> Batch:
    """Return images of one channel as planes over the same memory; anything else unchanged."""
    axis = (out._layout or "").find("C")
    if axis < 0 or out.shared_extent(axis) != 1:
        return out
    layout = (out._layout or "").replace("C", "")
    if out.ragged_shapes is None:
        planes = new_batch(out.buffer.squeeze(1 + axis), None, layout, out.pending, out.caller_owned)
    else:
        kept = [k for k in range(out.ndim) if k != axis]
        shared_extents = None if out.shared_extents is None else tuple(out.shared_extents[k] for k in kept)
        planes = new_batch(out.buffer, out.ragged_shapes[:, kept], layout, out.pending, out.caller_owned, shared_extents)
    planes.sources, planes.failures = out.sources, out.failures
    return planes


def warn_about_planes(op: str, value: Batch) -> None:
    """Warn of an image without a layout that is taken as ``HWC`` and looks like ``CHW``: 3 rows and many channels."""
    if "planes" in _warned or is_compiling():
        return
    shape = value.buffer.shape[1:] if value.ragged_shapes is None else value.ragged_shapes[0].tolist() if len(value.ragged_shapes) else ()
    if len(shape) != 3 or shape[0] != 3 or shape[2] < _MANY_CHANNELS:
        return
    _warned.add("planes")
    rows, columns, channels = shape
    warnings.warn(
        f"{op}: an input of shape ({rows}, {columns}, {channels}) without a layout is taken as HWC, an image of 3 rows and {channels} channels. "
        'If it is CHW, write ndd.as_tensor(image, layout="CHW") or ndd.as_batch(images, layout="CHW"), and transpose(perm=[1, 2, 0]) for operators '
        'that take HWC only; with layout="HWC" this warning does not appear',
        UserWarning,
        stacklevel=_level(),
    )


def _level() -> int:
    """Return the stack level of the program's frame, for a warning that the caller issues."""
    frame, level = sys._getframe(1), 1
    while frame is not None and is_own(frame.f_code):
        frame, level = frame.f_back, level + 1
    return level
