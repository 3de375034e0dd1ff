# SPDX-License-Identifier: Apache-2.0
"""Points that follow the transformations of an image."""

from collections.abc import Sequence
from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, PerSample, T, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._columns import extents_of, format_value, holds
from .._formulas import per_sample
from .._outputs import like

_AXES = "xyz"


def _flip_formula(
    points: torch.Tensor,
    center_x: torch.Tensor | float,
    center_y: torch.Tensor | float,
    center_z: torch.Tensor | float,
    flip_x: torch.Tensor | int,
    flip_y: torch.Tensor | int,
    flip_z: torch.Tensor | int,
    layout: str,
    *,
    dtype: torch.dtype,
) -> torch.Tensor:
    del dtype
    columns = []
    for k, axis in enumerate(layout or _AXES[: points.shape[-1]]):
        center, flipped = (center_x, center_y, center_z)[_AXES.index(axis)], (flip_x, flip_y, flip_z)[_AXES.index(axis)]
        center = per_sample(torch.as_tensor(center, dtype=torch.float32, device=points.device), 2)
        flipped = per_sample(torch.as_tensor(flipped, device=points.device), 2)
        columns.append(torch.where(flipped != 0, 2 * center - points[..., k], points[..., k]))
    return torch.stack(columns, -1)


@operator(formula=_flip_formula)
def coord_flip(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    center_x: PerSample[float] = 0.5,
    center_y: PerSample[float] = 0.5,
    center_z: PerSample[float] = 0.5,
    flip_x: PerSample[int] = 1,
    flip_y: PerSample[int] = 0,
    flip_z: PerSample[int] = 0,
    layout: str = "",
) -> T:
    """Mirror points like :func:`flip` mirrors their image: ``x`` becomes ``2 * center_x - x``.

    Args:
        input: float32 (points, dimensions) with one to three dimensions.
        center_x, center_y, center_z: the center of reflection, 0.5 for coordinates from 0 to 1.
        flip_x, flip_y, flip_z: mirror along this axis.
        layout: the order of the coordinates, such as "yx"; by default x is first.

    Raises:
        RuntimeError: points of another type or shape, or a layout that does not name each of their axes once.

    >>> coord_flip(torch.tensor([[0.25, 0.5], [1.0, 0.0]])).torch()
    tensor([[0.7500, 0.5000],
            [0.0000, 0.0000]])
    """
    op = "coord_flip"
    points: Batch = input  # type: ignore[assignment]
    if points.dtype is not torch.float32:
        raise RuntimeError(f"{op}: points must be float32, got {points.dtype}; cast them with cast(points, dtype=float32)")
    dims = _dimensions(op, points) if points.ndim == 2 else 0
    known = not isinstance(dims, torch.Tensor)  # false in the graph of ragged points; the kernel checks them
    if known and not 1 <= dims <= 3:
        raise RuntimeError(f"{op}: points must be a table with one to three columns, got the shapes {points.shape}")
    if not isinstance(layout, str):
        raise TypeError(f"{op}: layout must be a str, got {layout!r}")
    axes = _AXES[: dims if known else len(layout)]
    if layout and sorted(layout) != sorted(axes):
        raise RuntimeError(f"{op}: layout must name the axes {', '.join(axes)} once each, got {layout!r}")
    return launch(like(points), [center_x, center_y, center_z, flip_x, flip_y, flip_z, layout])


def _dimensions(op: str, points: Batch) -> Any:
    """Return the number of coordinates of a point: a number, or int64 (N,) in the graph of ragged points."""
    columns = points.shared_extent(-1)
    if columns is not None:
        return columns
    if is_compiling():
        return extents_of(points)[-1]
    if not points.batch_size:
        return 2
    raise RuntimeError(f"{op}: all points must have the same number of coordinates, got the shapes {points.shape}")


@operator(per_frame=True)
def coord_transform(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    M: PerSample[Sequence[float] | Sequence[Sequence[float]]] | None = None,
    MT: PerSample[Sequence[float] | Sequence[Sequence[float]]] | None = None,
    T: PerSample[Sequence[float]] | None = None,
    dtype: torch.dtype | None = torch.float32,
) -> Any:
    """Transform points by a matrix: ``out = M in + T``.

    ``transforms.of`` returns the matrix of a pixel operator, so keypoints follow their image.

    Args:
        input: points with their coordinates along the last dimension, of any type, with at least two dimensions; with frames ``F`` in front, matrices
            may be given per frame.
        M: the matrix, with one column per coordinate, as an array or row by row; or one number, a factor on all coordinates.
        T: the translation: one number, or one per coordinate of the result.
        MT: both in one matrix, whose last column is T.
        dtype: type of the result, by default float32; integers are rounded half away from zero and saturated.

    Raises:
        RuntimeError: ``MT`` together with ``M`` or ``T``, numbers that do not form a matrix, matrices for another number of frames, a single point.

    >>> coord_transform(torch.tensor([[1.0, 2.0]]), M=[0, 1, 1, 0], T=[10, 20]).torch()
    tensor([[12., 21.]])
    """
    op = "coord_transform"
    points: Batch = input  # type: ignore[assignment]
    if points.ndim < 2:
        raise RuntimeError(f"{op}: the input must have at least two dimensions, points and coordinates; got {points.ndim}")
    if MT is not None and (M is not None or T is not None):
        raise RuntimeError(f"{op}: MT is a matrix with its shift; give it or M and T")
    columns = _dimensions(op, points)
    rows = columns
    counts = {name: _numbers_and_frames(value) for name, value in (("M", M), ("MT", MT), ("T", T))}
    if MT is not None:
        rows = _matrix_rows(op, "MT", counts["MT"][0], columns + 1)
    elif M is not None and counts["M"][0] != 1:
        rows = _matrix_rows(op, "M", counts["M"][0], columns)
    if T is not None and not isinstance(rows, torch.Tensor) and counts["T"][0] not in (1, rows):
        raise RuntimeError(f"{op}: T must be one number or {rows}, got {counts['T'][0]}")
    has_frames = (points.layout or "").startswith("F") and points.ndim > 2
    for_frames = any(isinstance(value, torch.Tensor) and value.dim() > 2 for value in (M, MT, T))
    shape: list[Any] = list(extents_of(points))
    there = shape[0]
    shape[-1] = rows

    def output(frames: Any) -> Batch:
        if has_frames and frames is not None and not holds(frames == there):
            raise RuntimeError(f"{op}: the matrices are for {format_value(frames)} frames, the input has {format_value(there)}")
        # Points without frames are repeated for the matrices of the frames.
        repeated = for_frames and not has_frames
        extents = [frames, *shape] if repeated else shape
        return empty_batch(points.batch_size, extents, dtype or torch.float32, points.buffer.device, None if repeated else points.layout)

    frames = [count for _, count in counts.values()]
    return launch(output, [M, MT, T, *frames, has_frames or for_frames])


def _numbers_and_frames(value: Any) -> tuple[int, int]:
    """Return how many numbers an argument (rows, ...) has per frame, and for how many frames."""
    if value is None:
        return 0, 1
    total = value.numel() // max(1, len(value))
    # An argument without frames is flattened; one with frames has them in its second dimension.
    frames = value.shape[1] if value.dim() > 2 else 1
    return total // max(1, frames), frames


def _matrix_rows(op: str, name: str, count: int, columns: Any) -> Any:
    if isinstance(columns, torch.Tensor):
        return count // columns
    if columns == 0 or count % columns or not count:
        raise RuntimeError(f"{op}: {name} must be a matrix with {columns} columns, got {count} numbers")
    return count // columns
