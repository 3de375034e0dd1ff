# SPDX-License-Identifier: Apache-2.0
"""Common parts of the operators on bounding boxes: checks, and outputs with the remaining boxes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.values.batch import Batch, new_batch
from .._columns import extent_of

_map_boxes = native.kernel("map_boxes", writes=(-3, -2, -1))
_rotation_maps = native.kernel("rotation_maps", writes=(-1,))


_library = torch.library.Library("ndd", "FRAGMENT")


@torch.library.register_fake("ndd::kept_rows", lib=_library)
def _(rows: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    del kept
    return rows.new_empty([torch.library.get_ctx().new_dynamic_size(), *rows.shape[1:]])


def check_boxes(op: str, boxes: Batch, numbers: int = 4) -> None:
    """Raise RuntimeError unless the boxes are float32 and every sample has boxes of ``numbers`` numbers."""
    if boxes.dtype is not torch.float32:
        raise RuntimeError(f"{op}: boxes must be float32, got {boxes.dtype}; cast them with cast(boxes, dtype=float32)")
    if is_compiling():
        return
    volumes = boxes.buffer[0:1].numel() if boxes.ragged_shapes is None else boxes.ragged_shapes.prod(1)
    if bool(volumes % numbers) if isinstance(volumes, int) else bool((volumes % numbers).any()):
        raise RuntimeError(
            f"{op}: a box has {numbers} numbers, got samples of shape {boxes.shape[0] if boxes.ragged_shapes is None else boxes.shape}"
        )


def check_table(op: str, boxes: Batch, numbers: int = 4) -> None:
    """Check the boxes, and that every sample is a table with one row per box."""
    check_boxes(op, boxes, numbers)
    if boxes.ndim != 2 or not _has_rows_of(boxes, numbers):
        raise RuntimeError(f"{op}: boxes must be a table with a row of {numbers} numbers for each box, got the shapes {boxes.shape}")


def _has_rows_of(boxes: Batch, numbers: int) -> bool:
    found = boxes.shared_extent(1)
    return not boxes.batch_size or is_compiling() if found is None else found == numbers


def on_host(value: Batch) -> Batch:
    """Return values that the host can read."""
    host = value if value.buffer.device.type == "cpu" else value.cpu()
    host.wait()
    return host


def check_labels(op: str, boxes: Batch, labels: Batch) -> None:
    """Raise RuntimeError unless there is one row of labels per box."""
    if labels.ndim < 1:
        raise RuntimeError(f"{op}: labels must have a row for each box, got single numbers")
    if is_compiling():
        return
    equal = extent_of(labels, 0) == extent_of(boxes, 0)
    if not (bool(equal.all()) if isinstance(equal, torch.Tensor) else equal):
        raise RuntimeError(f"{op}: there must be as many labels as boxes, got the shapes {labels.shape} and {boxes.shape}")


class Kept:
    """The remaining boxes: a mask over all of them, and the count of each sample."""

    def __init__(self, boxes: Batch) -> None:
        total = boxes.buffer.numel() // boxes.buffer.shape[-1] if boxes.ragged_shapes is None and boxes.buffer.shape[-1] else 0
        if boxes.ragged_shapes is not None:
            total = int(boxes.ragged_shapes[:, 0].sum()) if not is_compiling() else boxes.buffer.shape[0] // 4
        self.mask = torch.empty(total, dtype=torch.bool)
        self.counts = torch.empty(boxes.batch_size, dtype=torch.int64)

    def of(self, values: torch.Tensor, like: Batch, device: torch.device) -> Batch:
        """Return the remaining rows of ``values``, which has those of all samples, with the shape and layout of ``like``, on a device."""
        trailing: Sequence[Any] = like.buffer.shape[2:] if like.ragged_shapes is None else like.ragged_shapes[0, 1:].tolist()
        if is_compiling() and like.ragged_shapes is not None:
            trailing = values.shape[1:]
        left = torch.ops.ndd.kept_rows.default(values.reshape(len(self.mask), *trailing), self.mask)
        if is_compiling():
            shapes = torch.stack([self.counts, *(torch.full_like(self.counts, extent) for extent in trailing)], 1)
            selected = new_batch(left.reshape(-1), shapes, shared_extents=(None, *trailing))
        # Usually all boxes remain, and the shapes need not be computed again.
        elif len(left) == len(self.mask):
            selected = new_batch(left.view(like.buffer.shape), like.ragged_shapes, shared_extents=like.shared_extents)
        else:
            rows = np.empty((len(self.counts), 1 + len(trailing)), np.int64)
            rows[:, 0], rows[:, 1:] = self.counts.numpy(), trailing
            selected = new_batch(left.view(-1), torch.from_numpy(rows), shared_extents=(None, *trailing)).densify()
        selected.relabel(like.layout)
        return selected if device.type == "cpu" else selected.to_device(device)


def rotation_maps(angles: torch.Tensor, planes: torch.Tensor, canvases: torch.Tensor) -> torch.Tensor:
    """Return the table of :func:`mapped_boxes` for rotations by degrees, (1 or N, 1), of images, (1 or N, 2), onto new ones; all float64."""
    table = angles.new_empty(max(len(angles), len(planes), len(canvases)), 10)
    _rotation_maps(angles.contiguous(), planes.contiguous(), canvases.contiguous(), table)
    return table


def mapped_boxes(
    boxes: Batch, labels: Batch | None, table: torch.Tensor, *, mode: int, normalized: bool, with_size: bool, cut: bool, threshold: float
) -> tuple[Batch, ...]:
    """Map boxes by affine maps; return them and the remaining labels.

    A row of ``table``, float64 (1 or N, 10), holds a map (2, 3) in pixels, then width and height of the old image and of the new one.
    """
    device = boxes.buffer.device
    host = on_host(boxes)
    kept, values = Kept(host), torch.empty_like(host.buffer)
    _map_boxes(host.buffer, host.ragged_shapes, table, mode, normalized, with_size, cut, threshold, values, kept.mask, kept.counts)
    out = (kept.of(values.reshape(-1, 4), host, device),)
    if labels is None:
        return out
    kept_labels = on_host(labels)
    return (*out, kept.of(kept_labels.buffer, kept_labels, device))
