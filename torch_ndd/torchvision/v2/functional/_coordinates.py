# SPDX-License-Identifier: Apache-2.0
"""Boxes and points as rows, of a single sample or of all samples of a batch: one arithmetic serves both."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference
from torchvision.tv_tensors import BoundingBoxFormat, is_rotated_bounding_format

from ...._core.native.tracing import is_compiling
from ...._core.values.batch import new_batch
from ...._core.values.tv_tensors import as_box_format
from ... import tv_tensors
from ..._numbers import Number
from ._dispatch import add_kernel


@dataclass(frozen=True)
class Rows:
    """Boxes ``(R, 4)``, ``(R, 5)`` or ``(R, 8)``, or points ``(R, 2)``.

    Attributes:
        values: the coordinates.
        canvas: height and width: numbers, or int64 (N,) with one per sample.
        owner: the sample of each row, None for a single sample.
        format: of boxes; None for points.
        mode: clamping mode of boxes.
    """

    values: torch.Tensor
    canvas: tuple[Any, Any]
    owner: torch.Tensor | None = None
    format: Any = None
    mode: Any = "soft"

    @property
    def rotated(self) -> bool:
        """Whether these are rotated boxes."""
        return self.format is not None and is_rotated_bounding_format(self.format)

    @property
    def batch_size(self) -> int | None:
        """Number of samples, None for a single sample."""
        height = self.canvas[0]
        return len(height) if self.owner is not None and isinstance(height, torch.Tensor) else None

    def of(self, column: Number) -> Any:
        """Return a number for each row from a number per sample, in a dtype that preserves that of floating-point rows."""
        if not isinstance(column, torch.Tensor):
            return column
        # From one number per sample to one per row.
        if self.owner is not None and len(column) > 1:
            column = column[self.owner.to(column.device)]
        # One number for all rows.
        elif self.owner is not None or column.dim():
            column = column.expand(len(self.values))
        column = column.to(self.values.device)
        return column if not column.dtype.is_floating_point else column.to(self.real.dtype)

    @property
    def real(self) -> torch.Tensor:
        """The coordinates as floating-point numbers."""
        return self.values if self.values.dtype.is_floating_point else self.values.float()

    def with_values(self, values: torch.Tensor, canvas: tuple[Any, Any] | None = None) -> "Rows":
        """Return rows with other values, converted to this dtype."""
        return replace(self, values=values.to(self.values.dtype), canvas=self.canvas if canvas is None else canvas)

    def corners(self) -> torch.Tensor:
        """Return unrotated boxes as x1, y1, x2, y2, floating-point."""
        return _convert_format(self.real, self.format, BoundingBoxFormat.XYXY)

    def from_corners(self, corners: torch.Tensor) -> torch.Tensor:
        """Return x1, y1, x2, y2 in the format of these boxes."""
        return _convert_format(corners, BoundingBoxFormat.XYXY, self.format)

    def clamp_to_canvas(self) -> "Rows":
        """Clamp unrotated boxes to the canvas, unless the clamping mode is None."""
        if self.mode is None:
            return self
        return self.with_values(self.from_corners(self.within(self.corners(), 0)))

    def within(self, corners: torch.Tensor, margin: int) -> torch.Tensor:
        """Clamp coordinates x, y, x, y, ... to 0 and the width and height minus a margin."""
        height, width = self.canvas
        output = corners.clone()
        # Columns 0, 2, ... are x, limited by the width; 1, 3, ... are y.
        for k, limit in ((0, width), (1, height)):
            bound = torch.as_tensor(self.of(limit), device=output.device).to(output.dtype) - margin
            output[:, k::2] = torch.minimum(output[:, k::2].clamp(min=0), bound[:, None] if bound.dim() else bound)
        return output

    def each(self, kernel: Callable[..., Any], *columns: Number) -> "Rows":
        """Apply a kernel of torchvision to every sample: ``kernel(rows, canvas, *numbers)`` returns rows, or rows and their canvas."""
        if self.owner is None:
            output = kernel(self.values, self.canvas, *columns)
            rows, canvas = output if isinstance(output, tuple) else (output, self.canvas)
            return replace(self, values=rows, canvas=canvas)
        # Sample by sample: torchvision's kernels take one canvas.
        count = next(len(column) for column in (*self.canvas, self.owner) if isinstance(column, torch.Tensor))
        parts, canvases = [], []
        for i in range(count):
            numbers = [_select_sample(column, i) for column in columns]
            canvas = (int(_select_sample(self.canvas[0], i)), int(_select_sample(self.canvas[1], i)))
            output = kernel(self.values[self.owner == i], canvas, *numbers)
            rows, canvas = output if isinstance(output, tuple) else (output, canvas)
            parts.append(rows)
            canvases.append(canvas)
        table = torch.tensor(canvases, dtype=torch.int64)
        return replace(self, values=torch.cat(parts), canvas=(table[:, 0], table[:, 1]))


def enclosing_boxes(points: torch.Tensor) -> torch.Tensor:
    """Return the smallest boxes x1, y1, x2, y2 around points (R, 2 k)."""
    x, y = points[:, 0::2], points[:, 1::2]
    return torch.stack([x.amin(1), y.amin(1), x.amax(1), y.amax(1)], 1)


def four_corners(boxes: torch.Tensor) -> torch.Tensor:
    """Return the corners of boxes x1, y1, x2, y2 as points (R, 8)."""
    return boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]]


def _select_sample(column: Any, i: int) -> Any:
    if isinstance(column, torch.Tensor) and column.dim():
        return column[i if len(column) > 1 else 0].item()
    if isinstance(column, tuple | list):
        return [_select_sample(element, i) for element in column]
    return column


def _convert_format(values: torch.Tensor, old: BoundingBoxFormat | None, new: BoundingBoxFormat | None) -> torch.Tensor:
    assert old is not None
    assert new is not None
    return values if old == new else reference.convert_bounding_box_format(values, old, new)


def of_batch(inpt: Any) -> Rows:
    """Return the rows of a Batch of boxes or points."""
    values = inpt.wait()
    sizes = torch.tensor(inpt.canvas_size, dtype=torch.int64).reshape(-1, 2)
    format, columns = getattr(inpt, "format", None), 2
    if format is not None:
        columns = tv_tensors.box_columns(format)
    # A dense batch has equally many rows per sample; a ragged one states their shapes.
    if inpt.ragged_shapes is None:
        per_sample = values[0:1].numel() // columns
        counts = torch.full((inpt.batch_size,), per_sample, dtype=torch.int64)
    else:
        counts = inpt.ragged_shapes.prod(1) // columns
    return Rows(values.reshape(-1, columns), (sizes[:, 0], sizes[:, 1]), _row_owners(counts), format, getattr(inpt, "clamping_mode", None))


def _row_owners(counts: torch.Tensor) -> torch.Tensor:
    if is_compiling():
        return torch.repeat_interleave(torch.arange(len(counts)), counts)
    # NumPy, because torch divides even 16 numbers among its threads and waits for a core: 14 ms while all of them decode.
    return torch.from_numpy(np.arange(len(counts)).repeat(counts.numpy()))


def to_batch(output: Rows, inpt: Any, **changed: Any) -> Any:
    """Return rows as a Batch of the kind and layout of ``inpt``."""
    height, width = (
        extent.tolist() if isinstance(extent, torch.Tensor) and extent.dim() else [int(extent)] * inpt.batch_size for extent in output.canvas
    )
    values = new_batch(output.values.reshape(inpt.buffer.shape), inpt.ragged_shapes, inpt.layout, shared_extents=inpt.shared_extents)
    return inpt.over(values, canvas_size=[(int(h), int(w)) for h, w in zip(height, width, strict=True)], **changed)


def of_tensor(values: torch.Tensor, canvas_size: Any, format: Any = None, mode: Any = "soft") -> Rows:
    """Return the rows of boxes or points in a torch tensor."""
    if format is not None:
        format = as_box_format("boxes", format)
    columns = 2 if format is None else tv_tensors.box_columns(format)
    return Rows(values.as_subclass(torch.Tensor).reshape(-1, columns), tuple(canvas_size), None, format, mode)  # type: ignore[arg-type]


def on_coordinates(functional: Callable[..., Any], boxes: Callable[..., Rows], points: Callable[..., Rows], drops: tuple[str, ...] = ()) -> None:
    """Register functions of :class:`Rows` as the kernels of a functional for boxes and points, single samples and Batches.

    ``drops`` are parameters of the functional that apply to images only.
    """

    def filter_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in kwargs.items() if key not in drops}

    def single_kernel(core: Callable[..., Rows]) -> Callable[..., Any]:
        def kernel(inpt: Any, *args: Any, **kwargs: Any) -> Any:
            input_rows = of_tensor(inpt, inpt.canvas_size, getattr(inpt, "format", None), getattr(inpt, "clamping_mode", None))
            output = core(input_rows, *args, **filter_arguments(kwargs))
            canvas = (int(output.canvas[0]), int(output.canvas[1]))
            return tv_tensors.wrap(output.values.reshape(inpt.shape), like=inpt, canvas_size=canvas)

        return kernel

    def batch_kernel(core: Callable[..., Rows]) -> Callable[..., Any]:
        def kernel(inpt: Any, *args: Any, **kwargs: Any) -> Any:
            return to_batch(core(of_batch(inpt), *args, **filter_arguments(kwargs)), inpt)

        return kernel

    add_kernel(functional, single.BoundingBoxes)(single_kernel(boxes))
    add_kernel(functional, single.KeyPoints)(single_kernel(points))
    add_kernel(functional, tv_tensors.BoundingBoxes)(batch_kernel(boxes))
    add_kernel(functional, tv_tensors.KeyPoints)(batch_kernel(points))
