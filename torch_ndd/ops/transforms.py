# SPDX-License-Identifier: Apache-2.0
"""Affine maps as matrices of shape (D, D + 1), whose last column is the offset."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from .._core.operators.definition import Launch
from .._core.operators.operator import DeviceLike, PerSample, T, launch, operator
from .._core.values.batch import Batch, empty_batch

_MAX_DIMENSIONS = 6


@operator(name="transforms.translation", per_frame=True)
def translation(
    input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    offset: PerSample[Sequence[float]],
    reverse_order: bool = False,
) -> T:
    """Return the translation ``x -> x + offset``.

    Args:
        input: another map, applied first.
        offset: D numbers, per sample or per frame.
        reverse_order: apply the other map last.

    Returns:
        float32 (D, D + 1), or (F, D, D + 1) for frames.

    Raises:
        RuntimeError: more than six dimensions, an input of another dimension or for another number of frames than the arguments.

    >>> translation(offset=[3, 5]).torch()
    tensor([[1., 0., 3.],
            [0., 1., 5.]])
    """
    op = "transforms.translation"
    maps = _Maps(op, input, {"offset": offset}, batch_size, device)
    return maps.launch(_elements(offset, False), [offset], [], reverse_order)  # type: ignore[return-value]


@operator(name="transforms.scale", per_frame=True)
def scale(
    input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    center: PerSample[Sequence[float]] | None = None,
    ndim: int | None = None,
    reverse_order: bool = False,
    scale: PerSample[Sequence[float]],
) -> T:
    """Return the scaling ``x -> scale * (x - center) + center``.

    Args:
        input: another map, applied first.
        scale: D numbers, or one for all axes; per sample or per frame.
        center: the fixed point, D numbers or one; by default the origin.
        ndim: D, if ``scale`` is one number and there is no input.
        reverse_order: apply the other map last.

    Returns:
        float32 (D, D + 1), or (F, D, D + 1) for frames.

    Raises:
        RuntimeError: more than six dimensions, a center or an input of another dimension, an input for another number of frames.

    >>> scale(scale=[2, 3], center=[10, 20]).torch()
    tensor([[  2.,   0., -10.],
            [  0.,   3., -40.]])
    """
    op = "transforms.scale"
    if ndim is not None and (isinstance(ndim, bool) or not isinstance(ndim, int)):
        raise TypeError(f"{op}: ndim must be an int, got {ndim!r}")
    maps = _Maps(op, input, {"scale": scale, "center": center}, batch_size, device)
    dims = _elements(scale, False)
    if dims == 1:
        dims = maps.given_dims or ndim or 1
    return maps.launch(dims, [scale, center], [], reverse_order)  # type: ignore[return-value]


@operator(name="transforms.rotation", per_frame=True)
def rotation(
    input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    angle: PerSample[float],
    axis: PerSample[Sequence[float]] | None = None,
    center: PerSample[Sequence[float]] | None = None,
    reverse_order: bool = False,
) -> T:
    """Return the rotation by ``angle`` in the plane, from the first axis to the second, or right-handed about ``axis`` in space.

    Args:
        input: another map, applied first.
        angle: degrees, per sample or per frame.
        axis: three numbers, the direction of the axis, of any length.
        center: the fixed point, D numbers or one; by default the origin.
        reverse_order: apply the other map last.

    Returns:
        float32 (2, 3), or (3, 4) with an axis; with F in front for frames.

    Raises:
        RuntimeError: an axis that is zero or not three numbers, a center or an input of another dimension, an input for another number of frames.

    >>> rotation(angle=180).torch().round().abs()
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    op = "transforms.rotation"
    maps = _Maps(op, input, {"angle": angle, "axis": axis, "center": center}, batch_size, device)
    if axis is not None and _elements(axis, False) != 3:
        raise RuntimeError(f"{op}: axis must have 3 elements, got {_elements(axis, False)}")
    return maps.launch(2 if axis is None else 3, [angle, axis, center], [], reverse_order)  # type: ignore[return-value]


@operator(name="transforms.shear", per_frame=True)
def shear(
    input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    angles: PerSample[Sequence[float] | Sequence[Sequence[float]]] | None = None,
    center: PerSample[Sequence[float]] | None = None,
    reverse_order: bool = False,
    shear: PerSample[Sequence[float] | Sequence[Sequence[float]]] | None = None,
) -> T:
    """Return the shear ``x -> S (x - center) + center``, where S has a diagonal of ones.

    Args:
        input: another map, applied first.
        shear: the off-diagonal elements of S, row by row: xy and yx, or xy, xz, yx, yz, zx and zy; per sample or per frame.
        angles: the same elements as angles in degrees; their tangents are used.
        center: the fixed point, D numbers or one; by default the origin.
        reverse_order: apply the other map last.

    Returns:
        float32 (2, 3) or (3, 4), with F in front for frames.

    Raises:
        RuntimeError: neither ``shear`` nor ``angles`` or both, a number of values other than 2 or 6, a center or an input of another dimension, an
            input for another number of frames.

    >>> shear(shear=[2, 3]).torch()
    tensor([[1., 2., 0.],
            [3., 1., 0.]])
    """
    op = "transforms.shear"
    if (shear is None) == (angles is None):
        raise RuntimeError(f"{op}: give one of shear and angles")
    maps = _Maps(op, input, {"shear": shear, "angles": angles, "center": center}, batch_size, device)
    count = _elements(shear if angles is None else angles, False)
    if count not in (2, 6):
        raise RuntimeError(f"{op}: {'shear' if angles is None else 'angles'} must have 2 or 6 elements, got {count}")
    return maps.launch({2: 2, 6: 3}[count], [shear, angles, center], [], reverse_order)  # type: ignore[return-value]


@operator(name="transforms.crop", per_frame=True)
def crop(
    input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    absolute: bool = False,
    from_end: PerSample[Sequence[float]] = 1.0,
    from_start: PerSample[Sequence[float]] = 0.0,
    reverse_order: bool = False,
    to_end: PerSample[Sequence[float]] = 1.0,
    to_start: PerSample[Sequence[float]] = 0.0,
) -> T:
    """Return the map of one box to another: ``from_start`` to ``to_start`` and ``from_end`` to ``to_end``, along each axis.

    Args:
        input: another map, applied first.
        from_start, from_end, to_start, to_end: corners of the boxes, D numbers or one for all axes; per sample or per frame.
        absolute: swap starts and ends that are in the wrong order, so nothing is mirrored.
        reverse_order: apply the other map last.

    Returns:
        float32 (D, D + 1), or (F, D, D + 1) for frames. Infinite if the first box is empty.

    Raises:
        RuntimeError: corners of different dimensions or more than six, an input of another dimension or for another number of frames.

    >>> crop(from_start=[0, 1], from_end=[1, 2], to_end=[4, 2]).torch()
    tensor([[ 4., 0., 0.],
            [ 0., 2., -2.]])
    """
    op = "transforms.crop"
    corners = {"from_start": from_start, "from_end": from_end, "to_start": to_start, "to_end": to_end}
    maps = _Maps(op, input, corners, batch_size, device)
    dims = max(_elements(corner, False) for corner in corners.values())
    return maps.launch(dims, [*corners.values()], [bool(absolute)], reverse_order)  # type: ignore[return-value]


@operator(name="transforms.combine", per_frame=True)
def combine(input_0: T, input_1: T, /, *inputs: T, batch_size: int | None = None, device: DeviceLike | None = None, reverse_order: bool = False) -> T:
    """Compose maps into a single one: the product of the matrices.

    Args:
        input_0, input_1, inputs: maps (D, D + 1), or (F, D, D + 1) for frames; the first one is applied first.
        reverse_order: apply the first one last.

    Returns:
        float32, of the same shape.

    Raises:
        RuntimeError: matrices of different shapes or more than six dimensions, different numbers of frames.

    >>> combine(translation(offset=[1, 2]), scale(scale=[2, 3])).torch()
    tensor([[2., 0., 2.],
            [0., 3., 6.]])
    """
    op = "transforms.combine"
    maps: list[Batch] = [input_0, input_1, *inputs]  # type: ignore[list-item]
    dims = [_dims_of(op, matrix) for matrix in maps]
    if len(set(dims)) != 1 or len({matrix.dtype for matrix in maps}) != 1:
        raise RuntimeError(f"{op}: the maps must have one shape and type, got {[(matrix.shape[:1], matrix.dtype) for matrix in maps]}")
    # The output is allocated once the call knows the number of frames, on which inputs and arguments have to agree.
    return launch(partial(_empty_output, dims[0], maps[0].batch_size, maps[0].buffer.device), [bool(reverse_order)])


class _Maps:
    """The other map, and the arguments with values per frame."""

    def __init__(self, op: str, value: Any, arguments: dict[str, Any], batch_size: Any, device: Any) -> None:
        self.op, self.value, self.arguments = op, value, arguments
        self.batch_size, self.device = batch_size, device
        self.given_dims = None if value is None else _dims_of(op, value)

    def launch(self, dims: int, values: list[Any], more: list[Any], reverse_order: bool) -> Launch:
        if not 1 <= dims <= _MAX_DIMENSIONS:
            raise RuntimeError(f"{self.op}: maps of {dims} dimensions are not supported, at most {_MAX_DIMENSIONS}")
        if self.given_dims not in (None, dims):
            raise RuntimeError(f"{self.op}: the input is a map of {self.given_dims} dimensions, the arguments make one of {dims}")
        # Bits by the position of an argument: those with values for each frame, and those with a single number for all axes.
        frames = single = 0
        for k, (name, value) in enumerate(self.arguments.items()):
            if value is None:
                continue
            scalar = name == "angle"
            count = _elements(value, scalar)
            # The others have been checked by their operators, because their number of elements decides the dimensions.
            if name not in ("angle", "axis", "shear", "angles") and count not in (1, dims):
                raise RuntimeError(f"{self.op}: {name} must have 1 or {dims} elements, got {count}")
            single |= (count == 1) << k
            frames |= (value.dim() == 3 or (scalar and value.dim() == 2)) << k
        return launch(partial(_empty_output, dims, self.batch_size, self.device), [*values, *more, frames, single, bool(reverse_order)])


def _elements(value: Any, scalar: bool) -> int:
    return 1 if value is None or scalar or value.dim() == 1 else value.shape[-1]


def _dims_of(op: str, matrices: Batch) -> int:
    shape: Any = matrices.buffer.shape[1:] if matrices.ragged_shapes is None else tuple(matrices.ragged_shapes[:1].expand(1, -1)[0].tolist())
    if matrices.ndim not in (2, 3) or shape[-1] != shape[-2] + 1 or not 1 <= shape[-2] <= _MAX_DIMENSIONS:
        raise RuntimeError(f"{op}: an affine map is a matrix of D by D + 1 numbers, D at most {_MAX_DIMENSIONS}, got the shape {tuple(shape)}")
    if matrices.ragged_shapes is not None and bool((matrices.ragged_shapes[:, -2:] != matrices.ragged_shapes[:1, -2:]).any()):
        raise RuntimeError(f"{op}: the maps of a batch must have one shape, got {matrices.shape}")
    if (matrices.ndim == 3) != (matrices.layout or "").startswith("F"):
        raise RuntimeError(f"{op}: a map for each frame needs a layout that starts with F, see per_frame; got {matrices.layout or ''!r}")
    return shape[-2]


def _empty_output(dims: int, batch_size: int, device: Any, frames: Any) -> Batch:
    """Return the result, for the number of frames that inputs and arguments agree on."""
    shape = [dims, dims + 1] if frames is None else [frames, dims, dims + 1]
    return empty_batch(batch_size, shape, torch.float32, device, "**" if frames is None else "F**")
