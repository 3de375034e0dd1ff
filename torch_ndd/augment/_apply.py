# SPDX-License-Identifier: Apache-2.0
"""Applying the steps of every sample of a batch: all of them in one kernel, or one operator call for all samples that share an augmentation."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.tensor import Tensor
from ..ops._borders import BorderMode
from ..ops.color._byte_steps import KINDS, NUMBERS, can_filter, takes, with_steps
from ..ops.geometry.warp import warp_affine, warp_perspective
from ..ops.shape.reshape import copy
from ._augmentations import Augmentation, EncodedValues
from ._inputs import add_channels, restore_channels

# A step on a sample: an augmentation and its parameter.
Step = tuple[Augmentation, float]


def apply_steps(
    op: str,
    images: Batch,
    steps: Sequence[Sequence[Step]],
    boxes: Batch | None,
    masks: Batch | None,
    fill_value: Any,
    mask_fill_value: float,
    interp_type: types.DALIInterpType,
) -> tuple[Batch, Batch | None, Batch | None]:
    """Return images, boxes and masks after the steps of every sample; None for ``fill_value`` extends the border of moved images."""
    sizes = [shape[-3:-1] for shape in images.shape]
    warps = _find_warps(op, steps, sizes)
    if boxes is not None:
        boxes = copy(boxes)
        for warp in warps.values():
            boxes = _move_boxes(boxes, warp.samples, warp.matrices, sizes)
    if masks is not None:
        mask_samples = list(add_channels(masks, images))
        for warp in warps.values():
            part = _select(mask_samples, warp.samples)
            part = warp_affine(part, matrix=_float_batch(warp.inverses), fill_value=mask_fill_value, interp_type=types.INTERP_NN)
            _replace(mask_samples, warp.samples, part)
        masks = restore_channels(_join(mask_samples, add_channels(masks, images)), masks)
    return _change_images(op, images, steps, warps, fill_value, interp_type), boxes, masks


@dataclass(frozen=True)
class _Warps:
    """The samples whose pixels move in a turn, with the matrices of their motion."""

    samples: list[int]
    matrices: np.ndarray
    inverses: np.ndarray


def _find_warps(op: str, steps: Sequence[Sequence[Step]], sizes: Sequence[Sequence[int]]) -> dict[int, _Warps]:
    """Return the warps of every turn that has some."""
    # The matrices of all turns together: NumPy takes 20 us to invert any number of them.
    samples: dict[int, list[int]] = {}
    moves = []
    for turn in range(max(map(len, steps), default=0)):
        moving = [i for i, row in enumerate(steps) if turn < len(row) and row[turn][0].matrix is not None]
        if moving:
            samples[turn] = moving
            moves += [(*steps[i][turn], sizes[i][0], sizes[i][1]) for i in moving]
    if not moves:
        return {}
    matrices = _find_matrices(op, moves)
    inverses = _invert_matrices(op, matrices)
    ends = list(itertools.accumulate(map(len, samples.values()), initial=0))
    return {
        turn: _Warps(moving, matrices[begin:end], inverses[begin:end])
        for (turn, moving), begin, end in zip(samples.items(), ends, ends[1:], strict=False)
    }


def _change_images(
    op: str, images: Batch, steps: Sequence[Sequence[Step]], warps: dict[int, _Warps], fill_value: Any, interp_type: types.DALIInterpType
) -> Batch:
    """Return the images after their steps."""
    if takes(images, interp_type) and interp_type in (types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC):
        fill, table = _as_fill(fill_value, images), _encode_steps(images, steps, warps)
        if fill is not None and table is not None:
            return with_steps(images, table, interp_type, fill, "replicate" if fill_value is None else "constant")
    samples = list(images)
    for turn in range(max(map(len, steps), default=0)):
        # Warps of all kinds are one call, since each sample has its own matrix.
        if turn in warps:
            moving, inverses = warps[turn].samples, _float_batch(warps[turn].inverses)
            _replace(samples, moving, _warp(_select(samples, moving), inverses, fill_value, interp_type))
        for augmentation, indices in _group_values(steps, turn):
            part = _select(samples, indices)
            output = augmentation.values(part, _float_batch([steps[i][turn][1] for i in indices]))  # type: ignore[misc]
            if not isinstance(output, Batch) or output.shape != part.shape or output.dtype != part.dtype:
                raise ValueError(f"{op}: the augmentation {augmentation.name!r} must keep the shapes and the type of the images")
            _replace(samples, indices, output)
    output = _join(samples, images)
    output.sources = images.sources
    return output


def _encode_steps(images: Batch, steps: Sequence[Sequence[Step]], warps: dict[int, _Warps]) -> torch.Tensor | None:
    """Return the steps of every sample as numbers for :func:`with_steps`, float64 (N, turns, NUMBERS); None if some are only operators."""
    channels, refused = images.shared_extent(-1) or 0, None if can_filter(images) else KINDS["filter"]
    turns = max([1, *map(len, steps)])
    numbers = [0.0] * (len(steps) * turns * NUMBERS)  # a list, because NumPy takes 0.2 us to store a number
    for i, row in enumerate(steps):
        for turn, (augmentation, parameter) in enumerate(row):
            if isinstance(augmentation.values, EncodedValues):
                step = augmentation.values.encode(np.float32(parameter), channels)
                if step is None or step[0] == refused:
                    return None
                at = (i * turns + turn) * NUMBERS
                numbers[at] = step[0]
                numbers[at + 1 : at + 1 + len(step[1])] = step[1]
            elif augmentation.values is not None:
                return None
    table = np.array(numbers, np.float64).reshape(len(steps), turns, NUMBERS)
    for turn, warp in warps.items():
        table[warp.samples, turn, 0] = KINDS["warp"]
        # Rounded as an argument of warp_affine is.
        table[warp.samples, turn, 1:7] = warp.inverses.astype(np.float32).reshape(-1, 6)
    return torch.from_numpy(table)


def _as_fill(fill_value: Any, images: Batch) -> Sequence[float] | None:
    """Return the fill value as numbers for :func:`with_steps`; None if the operators have to check it."""
    if fill_value is None:
        return (0.0,)
    if not isinstance(fill_value, int | float | list | tuple | np.ndarray):
        return None
    numbers = np.asarray(fill_value)
    if numbers.dtype.kind not in "biuf" or numbers.ndim > 1 or numbers.size not in (1, images.shared_extent(-1)):
        return None
    return numbers.reshape(-1).tolist()


def _warp(images: Batch, inverses: Batch, fill_value: Any, interp_type: types.DALIInterpType) -> Batch:
    if interp_type != types.INTERP_CUBIC:
        return warp_affine(images, matrix=inverses, fill_value=fill_value, interp_type=interp_type)
    # Only the projective warp interpolates cubically.
    rows = inverses.torch()
    projective = torch.cat([rows, torch.tensor([0.0, 0.0, 1.0]).expand(len(rows), 1, 3)], 1)
    border: BorderMode = "replicate" if fill_value is None else "constant"
    return warp_perspective(images, matrix=new_batch(projective), border_mode=border, fill_value=fill_value, interp_type=interp_type)


def _group_values(steps: Sequence[Sequence[Step]], turn: int) -> list[tuple[Augmentation, list[int]]]:
    """Return the samples whose values change in a turn, by augmentation."""
    groups: dict[int, tuple[Augmentation, list[int]]] = {}
    for i, row in enumerate(steps):
        if turn < len(row) and row[turn][0].values is not None:
            groups.setdefault(id(row[turn][0]), (row[turn][0], []))[1].append(i)
    return list(groups.values())


def _select(samples: Sequence[Tensor], indices: Sequence[int]) -> Batch:
    return as_batch([samples[i] for i in indices])


def _join(samples: Sequence[Tensor], original: Batch) -> Batch:
    """Return all samples as a batch that does not share the memory of the original."""
    joined = as_batch(samples) if samples else original
    return copy(joined) if joined.buffer.data_ptr() == original.buffer.data_ptr() else joined


def _replace(samples: list[Tensor], indices: Sequence[int], values: Batch) -> None:
    for i, sample in zip(indices, values, strict=True):
        samples[i] = sample


def _float_batch(values: Any) -> Batch:
    return new_batch(torch.from_numpy(np.ascontiguousarray(values, np.float32)))


def _find_matrices(op: str, steps: Sequence[tuple[Augmentation, float, int, int]]) -> np.ndarray:
    """Return the matrices of steps on images of these heights and widths, float64 (steps, 2, 3)."""
    rows = [augmentation.matrix(parameter, height, width) for augmentation, parameter, height, width in steps]  # type: ignore[misc]
    try:
        matrices = np.array(rows, np.float64)
    except ValueError:  # different shapes
        matrices = np.empty(0)
    if matrices.shape != (len(rows), 2, 3) or not np.isfinite(matrices).all():
        for (augmentation, *_), row in zip(steps, rows, strict=True):
            matrix = np.asarray(row, np.float64)
            if matrix.shape != (2, 3) or not np.isfinite(matrix).all():
                wanted = f"the matrix of augmentation {augmentation.name!r} must be two rows of three finite numbers"
                raise ValueError(f"{op}: {wanted}, got {matrix.tolist()}")
    return matrices


def _invert_matrices(op: str, matrices: np.ndarray) -> np.ndarray:
    try:
        linear = np.linalg.inv(matrices[:, :, :2])
    except np.linalg.LinAlgError:
        raise ValueError(f"{op}: an augmentation has a matrix without an inverse") from None
    return np.concatenate([linear, -linear @ matrices[:, :, 2:]], 2)


def _move_boxes(boxes: Batch, moving: Sequence[int], matrices: np.ndarray, sizes: Sequence[Sequence[int]]) -> Batch:
    """Return the smallest boxes around the moved ones, clipped to their images; boxes of other samples do not change."""
    values = boxes.wait()
    device, old = values.device, values.reshape(-1, 4)
    matrix_index = np.full(len(sizes), len(moving))  # the last matrix is for all samples that stay
    matrix_index[list(moving)] = np.arange(len(moving))
    owner = torch.from_numpy(np.repeat(matrix_index, [shape[0] for shape in boxes.shape])).to(device)
    all_matrices = torch.from_numpy(np.concatenate([matrices, np.eye(2, 3)[None]])).to(device)
    limits = torch.tensor([sizes[i] for i in moving] + [(0, 0)], dtype=torch.float64).to(device)[:, [1, 0, 1, 0]]
    corners = old[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2).double()
    moved = corners @ all_matrices[owner][:, :, :2].transpose(1, 2) + all_matrices[owner][:, None, :, 2]
    enclosing = torch.cat([moved.amin(1), moved.amax(1)], 1)
    enclosing = torch.minimum(enclosing.clamp(min=0), limits[owner]).to(old.dtype)
    output = torch.where((owner < len(moving))[:, None], enclosing, old)
    return new_batch(output.reshape(values.shape), boxes.ragged_shapes, boxes.layout, shared_extents=boxes.shared_extents)
