# SPDX-License-Identifier: Apache-2.0
"""Applying to every sample of a batch what was chosen for it, with one operator call for all samples that share it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.tensor import Tensor
from ..ops.geometry.warp import warp_affine, warp_perspective
from ..ops.shape.reshape import copy
from ._augmentations import Augmentation
from ._given import as_given, with_channels

# A step on a sample: an augmentation and its parameter.
Step = tuple[Augmentation, float]


def applied(
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
    samples = list(images)
    boxes = None if boxes is None else copy(boxes)
    mask_samples = None if masks is None else list(with_channels(masks, images))
    for turn in range(max(map(len, steps), default=0)):
        moves, groups = _groups(steps, turn)
        if moves:
            matrices = np.stack([_matrix(op, *steps[i][turn], *sizes[i]) for i in moves])
            back = _floats(_inverse(op, matrices))
            _replace(samples, moves, _warped(_part(samples, moves), back, fill_value, interp_type))
            if mask_samples is not None:
                moved = warp_affine(_part(mask_samples, moves), matrix=back, fill_value=mask_fill_value, interp_type=types.INTERP_NN)
                _replace(mask_samples, moves, moved)
            if boxes is not None:
                boxes = _moved(boxes, moves, matrices, sizes)
        for augmentation, indices in groups:
            chosen = _part(samples, indices)
            made = augmentation.values(chosen, _floats([steps[i][turn][1] for i in indices]))  # type: ignore[misc]
            if not isinstance(made, Batch) or made.shape != chosen.shape or made.dtype != chosen.dtype:
                raise ValueError(f"{op}: the augmentation {augmentation.name!r} must keep the shapes and the type of the images")
            _replace(samples, indices, made)
    made = _whole(samples, images)
    made.sources = images.sources
    if masks is not None and mask_samples is not None:
        masks = as_given(_whole(mask_samples, with_channels(masks, images)), masks)
    return made, boxes, masks


def _warped(images: Batch, back: Batch, fill_value: Any, interp_type: types.DALIInterpType) -> Batch:
    if interp_type != types.INTERP_CUBIC:
        return warp_affine(images, matrix=back, fill_value=fill_value, interp_type=interp_type)
    rows = back.torch()
    projective = torch.cat([rows, torch.tensor([0.0, 0.0, 1.0]).expand(len(rows), 1, 3)], 1)
    return warp_perspective(images, matrix=new_batch(projective), fill_value=fill_value, interp_type=interp_type)


def _groups(steps: Sequence[Sequence[Step]], turn: int) -> tuple[list[int], list[tuple[Augmentation, list[int]]]]:
    """Return the samples that are moved in a turn, all by one warp, and those whose values change, by augmentation."""
    moves: list[int] = []
    groups: dict[int, tuple[Augmentation, list[int]]] = {}
    for i, made in enumerate(steps):
        if turn < len(made):
            augmentation = made[turn][0]
            if augmentation.matrix is not None:
                moves.append(i)
            elif augmentation.values is not None:
                groups.setdefault(id(augmentation), (augmentation, []))[1].append(i)
    return moves, list(groups.values())


def _part(samples: Sequence[Tensor], indices: Sequence[int]) -> Batch:
    return as_batch([samples[i] for i in indices])


def _whole(samples: Sequence[Tensor], given: Batch) -> Batch:
    """Return all samples, in their own memory."""
    made = _part(samples, range(len(samples))) if samples else given
    return copy(made) if made.buffer.data_ptr() == given.buffer.data_ptr() else made


def _replace(samples: list[Tensor], indices: Sequence[int], made: Batch) -> None:
    for i, one in zip(indices, made, strict=True):
        samples[i] = one


def _floats(values: Any) -> Batch:
    return new_batch(torch.from_numpy(np.ascontiguousarray(values, np.float32)))


def _matrix(op: str, augmentation: Augmentation, parameter: float, height: int, width: int) -> np.ndarray:
    assert augmentation.matrix is not None
    made = np.asarray(augmentation.matrix(parameter, height, width), np.float64)
    if made.shape != (2, 3) or not np.isfinite(made).all():
        raise ValueError(f"{op}: the matrix of the augmentation {augmentation.name!r} must be two rows of three finite numbers, got {made.tolist()}")
    return made


def _inverse(op: str, matrices: np.ndarray) -> np.ndarray:
    try:
        turned = np.linalg.inv(matrices[:, :, :2])
    except np.linalg.LinAlgError:
        raise ValueError(f"{op}: an augmentation has a matrix without an inverse") from None
    return np.concatenate([turned, -turned @ matrices[:, :, 2:]], 2)


def _moved(boxes: Batch, moves: Sequence[int], matrices: np.ndarray, sizes: Sequence[Sequence[int]]) -> Batch:
    """Return the smallest boxes around the moved ones, clipped to their images; boxes of other samples do not change."""
    values = boxes.wait()
    device, old = values.device, values.reshape(-1, 4)
    place = np.full(len(sizes), len(moves))  # the last matrix is for all samples that stay
    place[list(moves)] = np.arange(len(moves))
    owner = torch.from_numpy(np.repeat(place, [shape[0] for shape in boxes.shape])).to(device)
    all_matrices = torch.from_numpy(np.concatenate([matrices, np.eye(2, 3)[None]])).to(device)
    limits = torch.tensor([sizes[i] for i in moves] + [(0, 0)], dtype=torch.float64).to(device)[:, [1, 0, 1, 0]]
    corners = old[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2).double()
    turned = corners @ all_matrices[owner][:, :, :2].transpose(1, 2) + all_matrices[owner][:, None, :, 2]
    moved = torch.cat([turned.amin(1), turned.amax(1)], 1)
    moved = torch.minimum(moved.clamp(min=0), limits[owner]).to(old.dtype)
    made = torch.where((owner < len(moves))[:, None], moved, old)
    return new_batch(made.reshape(values.shape), boxes.ragged_shapes, boxes.layout, fixed=boxes.shared_extents)
