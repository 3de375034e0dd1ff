# SPDX-License-Identifier: Apache-2.0
"""The projective map that moves four points to four others."""

from typing import Any

import numpy as np
import torch

from ..._core.values.batch import Batch, new_batch
from ..._core.values.operand import Operand
from ..._core.values.tensor import Tensor, new_tensor
from .._columns import first_failure, holds


def perspective(*, source: Any, target: Any) -> Any:
    """Return the projective map that takes four points to four others.

    ``warp_perspective(images, matrix=matrix, inverse_map=False)`` moves the pixels of images accordingly: the pixel at ``source`` appears at
    ``target``. torchvision's ``perspective(image, startpoints, endpoints)`` is this with ``source=startpoints, target=endpoints``. Not in DALI.

    Args:
        source, target: four points (x, y), no three of them on a line; for a Batch of maps an array or Batch (N, 4, 2).

    Returns:
        float32 (3, 3), or a Batch of them.

    Raises:
        ValueError: another shape, points that are not finite, different numbers of samples, three points on a line, or a
            map that takes (0, 0) to infinity: its matrix has no 1 in its corner.

    >>> corners = [[0, 0], [4, 0], [4, 4], [0, 4]]
    >>> perspective(source=corners, target=[[1, 0], [5, 0], [5, 4], [1, 4]]).torch().round()
    tensor([[1., 0., 1.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    first, second = _points("source", source), _points("target", target)
    several = first.dim() == 3 or second.dim() == 3
    count = next((len(points) for points in (first, second) if points.dim() == 3), 1)
    for name, points in (("source", first), ("target", second)):
        if points.dim() == 3 and len(points) != count:
            raise ValueError(f"transforms.perspective: source and target must have as many samples, but {name} has {len(points)} of {count}")
    apart = ~(_on_a_line(first) | _on_a_line(second)).expand(count)
    if not holds(apart):
        raise ValueError(f"transforms.perspective: in sample {first_failure(apart)} three points are on a line: there is no such map")
    x, y = first.expand(count, 4, 2).unbind(2)
    u, v = second.expand(count, 4, 2).unbind(2)
    ones, zeros = torch.ones_like(x), torch.zeros_like(x)
    # Two rows for each point: u (g x + h y + 1) = a x + b y + c, and v alike. Eight numbers a sample, for which torch's solver is as good as any.
    rows = torch.cat(
        [torch.stack([x, y, ones, zeros, zeros, zeros, -u * x, -u * y], 2), torch.stack([zeros, zeros, zeros, x, y, ones, -v * x, -v * y], 2)], 1
    )
    # solve() would raise for the whole batch without naming the sample.
    solved, failed = torch.linalg.solve_ex(rows, torch.cat([u, v], 1)[..., None])
    finite = (failed == 0) & torch.isfinite(solved).all(1)[:, 0]
    if not holds(finite):
        raise ValueError(f"transforms.perspective: in sample {first_failure(finite)} the map takes (0, 0) to infinity: move the points")
    matrices = torch.cat([solved[..., 0], torch.ones(count, 1, dtype=torch.float64)], 1).reshape(count, 3, 3).to(torch.float32)
    return new_batch(matrices) if several else new_tensor(matrices[0])


def _on_a_line(points: torch.Tensor) -> torch.Tensor:
    """Return for each four points whether three of them are on a line, to 1e-12 of the square of their extent.

    The solver cannot decide: whether a pivot is exactly zero depends on the processor, on which LAPACK chooses its order of operations.
    """
    extent = (points.amax(-2) - points.amin(-2)).amax(-1, keepdim=True)
    first, second, third = (points[..., [0, 0, 0, 1], :], points[..., [1, 1, 2, 2], :], points[..., [2, 3, 3, 3], :])
    (ax, ay), (bx, by) = (second - first).unbind(-1), (third - first).unbind(-1)
    return ((ax * by - ay * bx).abs() <= 1e-12 * extent**2).any(-1)


def _points(name: str, value: Any) -> torch.Tensor:
    """Return points in double, (4, 2) or (N, 4, 2)."""
    if isinstance(value, Batch):
        if value.ragged_shapes is not None:
            raise ValueError(f"transforms.perspective: {name} must be four points (x, y), got {value.shape}")
        values = value.wait()
    elif isinstance(value, Operand):
        values = Tensor(value).torch()
    else:
        values = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value, np.float64))
    values = values.to("cpu", torch.float64)
    if values.dim() not in (2, 3) or tuple(values.shape[-2:]) != (4, 2) or not bool(torch.isfinite(values).all()):
        raise ValueError(f"transforms.perspective: {name} must be four finite points (x, y), got the shape {tuple(values.shape)}")
    return values
