# SPDX-License-Identifier: Apache-2.0
"""The affine map of a pixel operator, for boxes, keypoints and masks."""

from collections.abc import Callable
from typing import Any

import torch

from ..._core.native.default_device import ignore_default_device
from ..._core.operators.call import prepare_launch
from ..._core.operators.definition import Launch
from ..._core.operators.operator import OPERATORS, Operator
from ..._core.values.batch import Batch, new_batch
from ..._core.values.operand import unwrap
from ..._core.values.tensor import Tensor, as_tensor, new_tensor
from .._columns import extents_of, real

# A row for x and one for y, each with its factors of x and y and its offset: numbers or float64 (1 or N,).
_Rows = list[list[Any]]


@ignore_default_device
def of(operator: Callable[..., Any], images: Any, /, *more: Any, **arguments: Any) -> Any:
    """Return the map from the pixels of images to those of ``operator(images, **arguments)``, computed from the arguments and the shapes only.

    It maps points of the image: ``coord_transform(points, MT=matrix)``, ``bbox_transform(boxes, MT=matrix, ...)``. Coordinates are x, then y; pixel i
    covers [i, i + 1). ``combine`` composes several maps. ``warp_affine(images, matrix=matrix, inverse_map=False)`` applies the map to pixels. Not in
    DALI.

    Args:
        operator: ``resize``, ``resize_crop_mirror``, ``random_resized_crop``, ``tensor_resize``, ``crop``, ``crop_mirror_normalize``, ``slice``,
            ``paste``, ``flip``, ``rotate`` or ``warp_affine``.
        images: the operator's input, images or sequences.
        more: its other positional arguments.
        arguments: the arguments of the call. A random operator needs ``rng``, a generator in the same state as that of the call: ``rng.clone()``.

    Returns:
        float32 (2, 3), or a Batch of them.

    Raises:
        TypeError: another operator, or an argument that the operator does not take.
        ValueError: a random operator without ``rng``.
        RuntimeError: the operator's errors, volumes, arguments per frame.

    >>> of(ndd.resize, torch.zeros(100, 200, 3), size=[50, 50]).torch()
    tensor([[0.2500, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.0000]])
    """
    name = _name_of(operator)
    read = _READERS.get(name)
    if read is None:
        raise TypeError(f"transforms.of: {name or operator!r} must be one of {', '.join(sorted(_READERS))}")
    op = OPERATORS[name]
    if op.draws and arguments.get("rng") is None:
        raise ValueError(f"transforms.of: {name} is random; give it rng, a generator in the same state as that of the call: rng.clone()")
    value = unwrap(images)
    if not isinstance(value, Tensor | Batch):
        value = as_tensor(value)
    call, (batch, *_), launch = prepare_launch(op, (value, *more), arguments)
    assert batch is not None
    layout = batch.layout or {2: "HW", 3: "HWC"}.get(batch.ndim, "")
    if "H" not in layout or "W" not in layout or "D" in layout:
        raise RuntimeError(f"transforms.of: images must have a height and a width, got the layout {layout!r}")
    # Arguments may still be computed; the map is computed from them here.
    for pending, _ in call.reads:
        pending.wait()
    rows = read(op, batch, layout, launch)
    columns = [torch.as_tensor(entry, dtype=torch.float64).reshape(-1) for row in rows for entry in row]
    count = batch.batch_size if call.is_batch else 1
    matrices = torch.stack([column.expand(count) for column in columns], 1).reshape(count, 2, 3).to(torch.float32)
    return new_batch(matrices) if call.is_batch else new_tensor(matrices[0])


def _name_of(operator: Any) -> str:
    module, name = getattr(operator, "__module__", "") or "", getattr(operator, "__name__", "")
    return ".".join([*module.split(".")[1:], name])


def _extent(batch: Batch, layout: str, letter: str) -> Any:
    """Return the extent of an axis: a number, or float64 (N,)."""
    return real(extents_of(batch)[layout.index(letter)])


def _output(launch: Launch) -> Batch:
    assert isinstance(launch.out, Batch)
    return launch.out


def _column(op: Operator, name: str, value: torch.Tensor, k: int, columns: int) -> torch.Tensor:
    """Return a column of an argument (rows, columns) that holds for all frames."""
    flat = value.reshape(len(value), -1)
    if flat.shape[1] != columns:
        raise RuntimeError(f"transforms.of: {op.name}: {name} for each frame is not supported, got {flat.shape[1]} numbers")
    return flat[:, k].to(torch.float64)


def _mirror_row(row: list[Any], wanted: torch.Tensor, extent: Any) -> list[Any]:
    """Mirror, where wanted, the row of a map into an axis of this extent."""
    x, y, shift = (torch.as_tensor(entry, dtype=torch.float64) for entry in row)
    return [torch.where(wanted, -x, x), torch.where(wanted, -y, y), torch.where(wanted, extent - shift, shift)]


def _read_resize(op: Operator, batch: Batch, layout: str, launch: Launch) -> _Rows:
    roi, part, changed, out = launch.args[0], launch.args[1], launch.args[6], _output(launch)
    dimensions = [d for d in range(batch.ndim) if changed >> d & 1]
    rows: _Rows = []
    for letter in "WH":
        extent, to, d = _extent(batch, layout, letter), _extent(out, out.layout or layout, letter), layout.index(letter)
        start, end = 0.0, extent
        if roi is not None and d in dimensions:
            k = dimensions.index(d)
            start, end = roi[:, k].to(torch.float64), roi[:, k + len(dimensions)].to(torch.float64)
        first, whole = 0.0, to
        if part is not None and d in dimensions:  # the output is a window of the resized image
            k = dimensions.index(d)
            first, whole = part[:, k].to(torch.float64), part[:, k + len(dimensions)].to(torch.float64)
        scale = whole / (end - start) if d in dimensions else 1.0
        # "0.0 -", because a minus sign would make -0.0 of 0.
        shift = 0.0 - start * scale - first
        rows.append([scale, 0.0, shift] if letter == "W" else [0.0, scale, shift])
    if op.name == "random_resized_crop":
        rows[0] = _mirror_row(rows[0], _column(op, "mirror", launch.args[7], 0, 1) != 0, _extent(out, out.layout or layout, "W"))
    return rows


def _read_crop(op: Operator, batch: Batch, layout: str, launch: Launch) -> _Rows:
    x, y = (0.0 - launch.args[0][:, layout.index(letter)].to(torch.float64) for letter in "WH")
    rows = [[1.0, 0.0, x], [0.0, 1.0, y]]
    if op.name == "crop_mirror_normalize":
        out = _output(launch)
        rows[0] = _mirror_row(rows[0], _column(op, "mirror", launch.args[3], 0, 1) != 0, _extent(out, out.layout or layout, "W"))
    return rows


def _read_flip(op: Operator, batch: Batch, layout: str, launch: Launch) -> _Rows:
    _, horizontal, vertical, _ = launch.args
    x, y = (_column(op, name, value, 0, 1) != 0 for name, value in (("horizontal", horizontal), ("vertical", vertical)))
    return [_mirror_row([1.0, 0.0, 0.0], x, _extent(batch, layout, "W")), _mirror_row([0.0, 1.0, 0.0], y, _extent(batch, layout, "H"))]


def _read_rotate(op: Operator, batch: Batch, layout: str, launch: Launch) -> _Rows:
    angle = _column(op, "angle", launch.args[0], 0, 1) * (torch.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    width, height, columns, rows = (_extent(images, layout, letter) / 2 for images in (batch, _output(launch)) for letter in "WH")
    return [[cos, sin, columns - cos * width - sin * height], [-sin, cos, rows + sin * width - cos * height]]


def _read_warp(op: Operator, batch: Batch, layout: str, launch: Launch) -> _Rows:
    if launch.args[0] is None:
        raise TypeError("transforms.of: give warp_affine its matrix by name")
    a, b, x, c, d, y = (_column(op, "matrix", launch.args[0], k, 6) for k in range(6))
    if not launch.args[3]:  # it already maps the input to the output
        return [[a, b, x], [c, d, y]]
    determinant = a * d - b * c
    if bool((determinant == 0).any()):
        raise RuntimeError("transforms.of: warp_affine: the matrix is singular: points of the image have no position in the output")
    a, b, c, d = d / determinant, -b / determinant, -c / determinant, a / determinant
    return [[a, b, -(a * x + b * y)], [c, d, -(c * x + d * y)]]


_READERS: dict[str, Callable[[Operator, Batch, str, Launch], _Rows]] = {
    "resize": _read_resize,
    "resize_crop_mirror": _read_resize,
    "random_resized_crop": _read_resize,
    "tensor_resize": _read_resize,
    "crop": _read_crop,
    "crop_mirror_normalize": _read_crop,
    "slice": _read_crop,
    "paste": _read_crop,
    "flip": _read_flip,
    "rotate": _read_rotate,
    "warp_affine": _read_warp,
}
