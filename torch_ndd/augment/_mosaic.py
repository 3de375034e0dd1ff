# SPDX-License-Identifier: Apache-2.0
"""Mosaics of four images."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import types
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.operand import layout_error, unwrap
from ..ops.geometry.paste import multi_paste
from ..ops.geometry.resize import resize
from ..ops.random.permute import batch_permutation, permute_batch
from ..ops.shape.join import cat
from ._inputs import add_channels, as_batch_beside, as_boxes, as_images, as_masks, draw_numbers, exclude_from_compilation, restore_channels

_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))  # of the canvas: whether below, whether to the right


@exclude_from_compilation
def mosaic(
    images: Batch,
    /,
    *,
    boxes: Any = None,
    center_range: Sequence[float] = (0.25, 0.75),
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    labels: Any = None,
    masks: Any = None,
    min_visibility: float = 0.1,
    output_size: Sequence[int],
    return_params: bool = False,
    rng: Any = None,
) -> Any:
    """Combine four images around a random center, for each sample: the mosaic of YOLOv4 (Bochkovskiy et al., arXiv:2004.10934).

    Sample i is the upper left part of mosaic i; the other three are other images of the batch, all different if it has four or more. Every image
    occurs four times. Images are scaled, keeping their aspect ratio, to cover their part of the canvas; the rest is cropped away from the center.

    Args:
        images: a Batch of images ``HWC`` of any sizes with the same number of channels; uint8 or floating-point.
        output_size: height and width of the mosaics, at least 2.
        center_range: range of the center, relative to the canvas.
        boxes: (M, 4) per image: left, top, right, bottom in pixels. They are scaled, moved and clipped to their image's part of the canvas.
        labels: (M, ...) per image, one entry per box, kept or dropped with it.
        min_visibility: drop a box if less than this fraction of its area remains, or nothing.
        masks: (H, W), (H, W, C), or one for each object, (M, H, W), per image, any type; they are sampled by nearest neighbor. Masks of objects are
            those of the boxes, and are kept or dropped with them; they come back as ``CHW``.
        interp_type: interpolation of the images.
        return_params: also return the source images of each mosaic, int64 (N, 4): upper left, upper right, lower left, lower right; and the centers,
            int64 (N, 2): y, x.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`; it advances by 21 words per call.

    Returns:
        The mosaics; with boxes, labels, masks or parameters a tuple of these, in this order. Boxes are read on the host.

    Raises:
        ValueError: an empty batch, another layout or type, boxes, labels or masks that do not fit, an invalid range or size.
        TypeError: ``images`` that are not a Batch.

    >>> images = batch([torch.zeros(4, 6, 3, dtype=torch.uint8), torch.ones(5, 5, 3, dtype=torch.uint8)], layout="HWC")
    >>> mosaics, boxes, labels = ndd.augment.mosaic(images, output_size=[8, 8], boxes=[[[0, 0, 6, 4]], [[0, 0, 5, 5]]], labels=[[7], [9]])
    >>> mosaics.shape, boxes.shape, labels.shape
    ([(8, 8, 3), (8, 8, 3)], [(4, 4), (4, 4)], [(4,), (4,)])
    """
    op, images = "mosaic", unwrap(images)
    if not isinstance(images, Batch):
        raise TypeError(f"{op}: images must be a Batch, got {type(images).__name__}; convert them with batch() or as_batch()")
    batch, _ = as_images(op, images)
    if batch.ndim != 3:
        raise layout_error(op, batch, ("HWC",))
    canvas = _check_arguments(op, batch, output_size, center_range, min_visibility)
    box_batch, mask_batch = as_boxes(op, boxes, batch, True), as_masks(op, masks, batch, True)
    label_batch = _as_labels(op, labels, batch, box_batch)

    size = batch.batch_size
    low, high = center_range
    centers = np.rint((low + (high - low) * draw_numbers(op, rng, size, 2)) * canvas).astype(np.int64)
    centers = np.clip(centers, 1, np.array(canvas) - 1)  # every part has pixels
    sources = _draw_sources(op, size, rng)

    parts = [_Part(batch, sources[:, k], centers, canvas, *corner) for k, corner in enumerate(_CORNERS)]
    results: list[Any] = [_assemble(batch, parts, canvas, interp_type)]
    kept = None
    if box_batch is not None:
        _check_objects(op, mask_batch, box_batch)
        kept = [_find_visible(part, box_batch, min_visibility) for part in parts]
        results += _collect_boxes(kept, parts, box_batch, label_batch)
    if mask_batch is not None:
        results.append(_assemble_masks(mask_batch, batch, parts, canvas, kept))
    if return_params:
        results += [torch.from_numpy(sources), torch.from_numpy(centers)]
    return results[0] if len(results) == 1 else tuple(results)


def _draw_sources(op: str, size: int, rng: Any) -> np.ndarray:
    """Return the four images of every mosaic, (N, 4): those at random distances along a random cycle of the batch."""
    # So every image occurs four times, once in each corner, and the four of a mosaic differ.
    cycle = batch_permutation(batch_size=size, rng=rng).torch().numpy().astype(np.int64)
    distances = list(range(1, size)) if size >= 4 else [k % size for k in (1, 2, 3)]
    drawn = [distances.pop(int(u * len(distances))) for u in draw_numbers(op, rng, 1, 3)[0]]
    # Position of each image in the cycle.
    position = np.argsort(cycle)
    return np.stack([np.arange(size), *(cycle[(position + distance) % size] for distance in drawn)], 1)


class _Part:
    """One of the four parts of all canvases: its image, the scale, and the source and target regions.

    Attributes:
        source: the image of each mosaic (N,).
        start, extent: the part on the canvas, y and x (N, 2).
        scale: pixels of the canvas per pixel of the image (N, 1).
        roi: start and end of the visible region of the image, y and x (N, 2) each.
    """

    def __init__(self, images: Batch, source: np.ndarray, centers: np.ndarray, canvas: Sequence[int], below: int, right: int) -> None:
        after = np.array([below, right])
        sizes = np.array([shape[:2] for shape in images.shape], np.float64)[source]
        self.source = source
        self.start = centers * after
        # Parts after the center reach from it to the end of the canvas, those before it from 0 to the center.
        self.extent = np.where(after, np.array(canvas) - centers, centers)
        # The larger ratio: the image covers its part in both directions.
        self.scale = (self.extent / sizes).max(1, keepdims=True)
        visible = np.minimum(self.extent / self.scale, sizes)
        # The side towards the center is kept: the end of the parts before it, the start of those after it.
        self.roi = np.where(after, 0.0, sizes - visible), np.where(after, visible, sizes)

    def cut(self, images: Batch, interp_type: types.DALIInterpType) -> Batch:
        """Return this part of every mosaic."""
        # Images are scaled in the order of the batch and permuted afterwards, when they are small.
        order = np.argsort(self.source)  # the mosaic that contains each image
        start, end, extent = (_batch(values[order].astype(np.float32)) for values in (*self.roi, self.extent))
        cut = resize(images, size=extent, roi_start=start, roi_end=end, interp_type=interp_type)
        return permute_batch(cut, indices=self.source.tolist())


def _batch(values: np.ndarray) -> Batch:
    return new_batch(torch.from_numpy(np.ascontiguousarray(values)))


def _assemble(images: Batch, parts: Sequence[_Part], canvas: Sequence[int], interp_type: types.DALIInterpType) -> Batch:
    anchors = _batch(np.stack([part.start for part in parts], 1).astype(np.int32))
    return multi_paste(*[part.cut(images, interp_type) for part in parts], out_anchors=anchors, output_size=list(canvas))


def _assemble_masks(masks: Batch, images: Batch, parts: Sequence[_Part], canvas: Sequence[int], kept: Sequence["_VisibleBoxes"] | None) -> Batch:
    if masks.layout != "CHW":
        return restore_channels(_assemble(add_channels(masks, images), parts, canvas, types.INTERP_NN), masks)
    placed = []
    for part in parts:
        cut = as_batch(part.cut(masks, types.INTERP_NN), layout="FHW")
        anchors = _batch(part.start[:, None].astype(np.int32))
        placed.append(multi_paste(cut, out_anchors=anchors, output_size=list(canvas)))
    output = as_batch(cat(*placed, axis=0), layout="CHW")
    if kept is None:
        return output
    keep = [torch.from_numpy(np.concatenate([visible.keep[i] for visible in kept])) for i in range(output.batch_size)]
    samples = [sample.torch() for sample in output]
    return as_batch([sample[chosen.to(sample.device)] for sample, chosen in zip(samples, keep, strict=True)], layout="CHW")


class _VisibleBoxes(NamedTuple):
    """The boxes of one part of every mosaic."""

    boxes: list[np.ndarray]
    keep: list[np.ndarray]  # for each box of the image, whether it is among these


def _find_visible(part: _Part, boxes: Batch, min_visibility: float) -> _VisibleBoxes:
    """Return the boxes of a part on the canvas, clipped to the part, and which boxes of the image they are."""
    old = [np.asarray(sample, np.float64) for sample in boxes.cpu()]
    visible = _VisibleBoxes([], [])
    for i, j in enumerate(part.source):
        (top, left), (y, x), (height, width) = part.roi[0][i], part.start[i], part.extent[i]
        # From pixels of the image to pixels of the canvas.
        moved = (old[j] - (left, top, left, top)) * part.scale[i] + (x, y, x, y)
        clipped = np.clip(moved, (x, y, x, y), (x + width, y + height, x + width, y + height))
        area, remaining = _areas(moved), _areas(clipped)
        # A box without any visible area is left out, also with min_visibility=0.
        keep = (remaining > 0) & (remaining >= min_visibility * area)
        visible.boxes.append(clipped[keep])
        visible.keep.append(keep)
    return visible


def _collect_boxes(kept: Sequence[_VisibleBoxes], parts: Sequence[_Part], boxes: Batch, labels: Batch | None) -> list[Batch]:
    """Return the boxes of every mosaic, and their labels."""
    count = boxes.batch_size
    box_samples = [torch.from_numpy(np.concatenate([visible.boxes[i] for visible in kept])) for i in range(count)]
    result = as_batch(box_samples, boxes.dtype).to_device(boxes.device)
    if labels is None:
        return [result]
    old = [sample.torch() for sample in labels.cpu()]
    pairs = list(zip(kept, parts, strict=True))
    made_labels = [torch.cat([old[part.source[i]][torch.from_numpy(visible.keep[i])] for visible, part in pairs]) for i in range(count)]
    return [result, as_batch(made_labels, labels.dtype).to_device(labels.device)]


def _check_objects(op: str, masks: Batch | None, boxes: Batch) -> None:
    if masks is None or masks.layout != "CHW":
        return
    for i, (mask, box) in enumerate(zip(masks.shape, boxes.shape, strict=True)):
        if mask[0] != box[0]:
            raise ValueError(f"{op}: masks of objects must be one for each box, but sample {i} has {mask[0]} masks and {box[0]} boxes")


def _areas(boxes: np.ndarray) -> np.ndarray:
    return np.maximum(boxes[:, 2] - boxes[:, 0], 0) * np.maximum(boxes[:, 3] - boxes[:, 1], 0)


def _as_labels(op: str, value: Any, images: Batch, boxes: Batch | None) -> Batch | None:
    if value is None:
        return None
    if boxes is None:
        raise ValueError(f"{op}: labels need boxes, one for each label")
    labels = as_batch_beside(op, "labels", value, images, True)
    for i, (label, box) in enumerate(zip(labels.shape, boxes.shape, strict=True)):
        if not label or label[0] != box[0]:
            raise ValueError(f"{op}: labels must be one for each box, but sample {i} has labels {label} and {box[0]} boxes")
    return labels


def _check_arguments(op: str, images: Batch, output_size: Any, center_range: Any, min_visibility: float) -> tuple[int, int]:
    """Check the arguments and return height and width of the canvas."""
    if not images.batch_size:
        raise ValueError(f"{op}: images must not be an empty batch")
    if any(0 in shape[:2] for shape in images.shape):
        raise ValueError(f"{op}: images must have pixels, got the shape {next(shape for shape in images.shape if 0 in shape[:2])}")
    if len(output_size) != 2 or min(output_size) < 2:
        raise ValueError(f"{op}: output_size must be height and width, at least 2, got {output_size!r}")
    if len(center_range) != 2 or not 0 <= center_range[0] <= center_range[1] <= 1:
        raise ValueError(f"{op}: center_range must be two increasing numbers from 0 to 1, got {center_range!r}")
    if not 0 <= min_visibility <= 1:
        raise ValueError(f"{op}: min_visibility must be from 0 to 1, got {min_visibility}")
    return int(output_size[0]), int(output_size[1])
