# SPDX-License-Identifier: Apache-2.0
"""Planes such as masks, ``HW``, given to operators of images, ``HWC``: they are images of one channel, and so are their results planes."""

import torch

from ..values.batch import Batch, new_batch


def image_layout(layouts: tuple[str, ...], value: Batch) -> str | None:
    """Return the layout in which an operator with these layouts takes planes; None if it takes them as they are, or these are none."""
    layout = value._layout
    if layout is None:
        layout = "HW" if value.ndim == 2 and not any(len(one) == 2 for one in layouts) else ""
    with_channels = layout + "C"
    return with_channels if layout.endswith("HW") and "C" not in layout and layout not in layouts and with_channels in layouts else None


def as_images(value: Batch, layout: str) -> Batch:
    """Return planes as images of one channel over the same memory."""
    if value._shapes is None:
        made = new_batch(value._values.unsqueeze(-1), None, layout, value._pending, value._external)
    else:
        shapes = torch.nn.functional.pad(value._shapes, (0, 1), value=1)
        fixed = (*(value._fixed or (None,) * value.ndim), 1)
        made = new_batch(value._values, shapes, layout, value._pending, value._external, fixed)
    made._sources, made._failures = value._sources, value._failures
    return made


def as_planes(out: Batch) -> Batch:
    """Return images of one channel as planes over the same memory; anything else unchanged."""
    axis = (out._layout or "").find("C")
    if axis < 0 or out._extent(axis) != 1:
        return out
    layout = (out._layout or "").replace("C", "")
    if out._shapes is None:
        made = new_batch(out._values.squeeze(1 + axis), None, layout, out._pending, out._external)
    else:
        kept = [k for k in range(out.ndim) if k != axis]
        fixed = None if out._fixed is None else tuple(out._fixed[k] for k in kept)
        made = new_batch(out._values, out._shapes[:, kept], layout, out._pending, out._external, fixed)
    made._sources, made._failures = out._sources, out._failures
    return made
