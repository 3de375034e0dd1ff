# SPDX-License-Identifier: Apache-2.0
"""Applying the steps of every sample of a batch, with one operator call for all samples that share an augmentation."""

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
    samples = list(images)
    boxes = None if boxes is None else copy(boxes)
    mask_samples = None if masks is None else list(add_channels(masks, images))
    for turn in range(max(map(len, steps), default=0)):
        # Warps of all kinds are one call, since each sample has its own matrix.
        moving, groups = _group_samples(steps, turn)
        if moving:
            matrices = np.stack([_augmentation_matrix(op, *steps[i][turn], *sizes[i]) for i in moving])
            inverses = _float_batch(_invert_matrices(op, matrices))
            _replace(samples, moving, _warp(_select(samples, moving), inverses, fill_value, interp_type))
            if mask_samples is not None:
                warped = warp_affine(_select(mask_samples, moving), matrix=inverses, fill_value=mask_fill_value, interp_type=types.INTERP_NN)
                _replace(mask_samples, moving, warped)
            if boxes is not None:
                boxes = _move_boxes(boxes, moving, matrices, sizes)
        for augmentation, indices in groups:
            part = _select(samples, indices)
            output = augmentation.values(part, _float_batch([steps[i][turn][1] for i in indices]))  # type: ignore[misc]
            if not isinstance(output, Batch) or output.shape != part.shape or output.dtype != part.dtype:
                raise ValueError(f"{op}: the augmentation {augmentation.name!r} must keep the shapes and the type of the images")
            _replace(samples, indices, output)
    output = _join(samples, images)
    output.sources = images.sources
    if masks is not None and mask_samples is not None:
        masks = restore_channels(_join(mask_samples, add_channels(masks, images)), masks)
    return output, boxes, masks


def _warp(images: Batch, inverses: Batch, fill_value: Any, interp_type: types.DALIInterpType) -> Batch:
    if interp_type != types.INTERP_CUBIC:
        return warp_affine(images, matrix=inverses, fill_value=fill_value, interp_type=interp_type)
    # Only the projective warp interpolates cubically.
    rows = inverses.torch()
    projective = torch.cat([rows, torch.tensor([0.0, 0.0, 1.0]).expand(len(rows), 1, 3)], 1)
    return warp_perspective(images, matrix=new_batch(projective), fill_value=fill_value, interp_type=interp_type)


def _group_samples(steps: Sequence[Sequence[Step]], turn: int) -> tuple[list[int], list[tuple[Augmentation, list[int]]]]:
    """Return the samples whose pixels move in a turn, and those whose values change, by augmentation."""
    moving: list[int] = []
    groups: dict[int, tuple[Augmentation, list[int]]] = {}
    for i, sample_steps in enumerate(steps):
        if turn < len(sample_steps):
            augmentation = sample_steps[turn][0]
            if augmentation.matrix is not None:
                moving.append(i)
            elif augmentation.values is not None:
                groups.setdefault(id(augmentation), (augmentation, []))[1].append(i)
    return moving, list(groups.values())


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


def _augmentation_matrix(op: str, augmentation: Augmentation, parameter: float, height: int, width: int) -> np.ndarray:
    assert augmentation.matrix is not None
    matrix = np.asarray(augmentation.matrix(parameter, height, width), np.float64)
    if matrix.shape != (2, 3) or not np.isfinite(matrix).all():
        raise ValueError(f"{op}: the matrix of augmentation {augmentation.name!r} must be two rows of three finite numbers, got {matrix.tolist()}")
    return matrix


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
    return new_batch(output.reshape(values.shape), boxes.ragged_shapes, boxes.layout, fixed=boxes.shared_extents)
