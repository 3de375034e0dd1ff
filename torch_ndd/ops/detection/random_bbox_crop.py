# SPDX-License-Identifier: Apache-2.0
"""``random_bbox_crop``."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch

from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, Random, ShapeArg, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, new_batch
from ._boxes import Kept, check_labels, check_table, on_host
from .boxes import numbers

ThresholdType = Literal["iou", "overlap"]
_THRESHOLD_TYPES = get_args(ThresholdType)
_AXES = "xyz"
_search = native.kernel("random_bbox_crop_search")
_BEST = 2  # status in the results: no window was valid


@operator(kernel=None, reads_values=True)
def random_bbox_crop(
    boxes: T,
    labels: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    all_boxes_above_threshold: bool = True,
    allow_no_crop: bool = True,
    aspect_ratio: Sequence[float] | None = None,
    bbox_layout: str | None = None,
    bbox_prune_threshold: float | None = None,
    crop_shape: ShapeArg[Sequence[int]] | None = None,
    input_shape: ShapeArg[Sequence[int]] | None = None,
    ltrb: bool | None = None,
    num_attempts: int = 1,
    output_bbox_indices: bool = False,
    quiet: bool = False,
    scaling: Sequence[float] | None = None,
    shape_layout: str | None = None,
    threshold_type: ThresholdType = "iou",
    thresholds: float | Sequence[float] = 0.0,
    total_num_attempts: int | None = None,
    rng: Random = None,
) -> T | tuple[T, ...]:
    """Draw a window of an image that shows its bounding boxes well enough, and transform the boxes to it: the SSD crop (Liu et al., 2016).

    A threshold is drawn, or no crop. Then up to ``num_attempts`` windows are drawn, until one has an allowed aspect ratio, overlaps the boxes by at
    least the threshold, and shows one of them; otherwise the next threshold is drawn. :func:`slice` cuts the window out of the image.

    Args:
        boxes: float32 (boxes, 4), or (boxes, 6) for volumes, relative to the image's size.
        labels: one row per box, of any type.
        all_boxes_above_threshold: all boxes must reach the threshold; otherwise one is enough.
        allow_no_crop: make the whole image one of the choices.
        aspect_ratio: smallest and largest width / height of windows, for volumes of x / y, x / z and y / z; by default [1, 1]. In pixels if
            ``input_shape`` is given, else in relative coordinates. If both are equal, the longer side is drawn and determines the other one.
        bbox_layout: order of a box's numbers: a permutation of "xyXY" (start and end) or "xyWH" (start and size), for volumes of "xyzXYZ" or
            "xyzWHD".
        bbox_prune_threshold: keep boxes with more than this part of their area in the window; by default those whose center is in it.
        crop_shape: size of the window in pixels, instead of ``aspect_ratio`` and ``scaling``; needs ``input_shape``, and always crops.
        input_shape: shape of the image in pixels.
        ltrb: old form of ``bbox_layout``: whether boxes are start and end.
        num_attempts: windows per threshold.
        output_bbox_indices: also return the indices of the remaining boxes.
        quiet: do not warn if no window was good enough.
        scaling: smallest and largest sides of the window relative to the image's; by default [1, 1].
        shape_layout: order of ``crop_shape`` and ``input_shape``: a permutation of "WH", for volumes of "WHD".
        threshold_type: "iou", intersection over union of window and box, or "overlap", intersection over box.
        thresholds: one or several, from 0 to 1.
        total_num_attempts: number of windows after which the best one is taken; by default 100000.
        rng: random generator; by default this thread's.

    Returns:
        The start and the size of the window, x first, float32 (2,) or (3,), relative to the image's size, or in pixels with ``crop_shape``; the
        remaining boxes, relative to the window's size; then, if requested, their labels and their indices (int32). The number of boxes depends on the
        values, so the call waits for the inputs.

    Raises:
        RuntimeError: boxes that are not a float32 table or leave the image, a number of label rows other than the number of boxes, ranges in the
            wrong order or outside 0 to 1, no thresholds, an unknown layout or type, ``crop_shape`` without ``input_shape`` or together with
            ``scaling``.

    >>> box, label = torch.tensor([[0.2, 0.2, 0.4, 0.4]]), torch.tensor([3], dtype=torch.int32)
    >>> anchor, shape, boxes, labels = random_bbox_crop(box, label, scaling=[0.5, 1.0], thresholds=[0.1, 0.3], num_attempts=10)
    >>> anchor.shape, shape.shape, boxes.shape, labels.torch().tolist()
    ((2,), (2,), (1, 4), [3])
    """
    op = "random_bbox_crop"
    inputs: Batch = boxes  # type: ignore[assignment]
    # Rows of six numbers are boxes in volumes; of anything else check_table() says what it should be.
    dims = 3 if _columns(inputs) == 6 else 2
    check_table(op, inputs, 2 * dims)
    if labels is not None:
        check_labels(op, inputs, labels)  # type: ignore[arg-type]
    layout = _layout(op, bbox_layout, ltrb, dims)
    image, wanted = (
        _reorder_shape(op, name, value, shape_layout, dims) for name, value in (("input_shape", input_shape), ("crop_shape", crop_shape))
    )
    if wanted is not None:
        _check_crop_shape(op, image, scaling=scaling, aspect_ratio=aspect_ratio)
    scales = _range(op, "scaling", scaling if scaling is not None else (1.0, 1.0), (2,))
    ratios = _range(op, "aspect_ratio", aspect_ratio if aspect_ratio is not None else (1.0, 1.0), (2, 6))
    levels = _levels(op, thresholds)
    check_choice(op, "threshold_type", threshold_type, _THRESHOLD_TYPES, RuntimeError if isinstance(threshold_type, str) else TypeError)
    prune = _prune_threshold(op, bbox_prune_threshold)
    total = _total_attempts(op, num_attempts, total_num_attempts)
    # The search has many branches and few numbers, so it runs on the CPU, for boxes of a GPU too.
    host, target = on_host(inputs), inputs.buffer.device
    kept, count = Kept(host), host.batch_size
    anchors, shapes = torch.empty(count, dims), torch.empty(count, dims)
    shifted, indices = torch.empty_like(host.buffer), torch.empty(len(kept.mask), dtype=torch.int32)
    results = torch.empty(count, dtype=torch.int32)
    _search(
        host.buffer,
        host.ragged_shapes,
        image,
        wanted,
        torch.tensor(levels, dtype=torch.float64),
        torch.tensor(scales, dtype=torch.float64),
        torch.tensor(ratios * (3 if len(ratios) == 2 else 1), dtype=torch.float64),
        num_attempts,
        total,
        prune,
        bool(allow_no_crop),
        bool(all_boxes_above_threshold),
        threshold_type == "overlap",
        layout,
        rng,
        anchors,
        shapes,
        shifted,
        kept.mask,
        indices,
        kept.counts,
        results,
    )
    if not quiet and not is_compiling() and bool((results == _BEST).any()):
        sample = int((results == _BEST).int().argmax())
        warnings.warn(f"{op}: no window of sample {sample} shows its boxes as thresholds ask for; the best one is taken (quiet=True)", stacklevel=5)
    out = [new_batch(anchors), new_batch(shapes)]
    out = [output if target.type == "cpu" else output.to_device(target) for output in out]
    # Boxes outside the window are gone; labels and indices keep the same rows.
    out.append(kept.of(shifted.reshape(-1, 2 * dims), host, target))
    if labels is not None:
        rows = on_host(labels)  # type: ignore[arg-type]
        out.append(kept.of(rows.buffer, rows, target))
    if output_bbox_indices:
        counts = None if host.ragged_shapes is None else host.ragged_shapes[:, :1].contiguous()  # kernels read the rows one after another
        numbered = new_batch(indices.view(count, -1) if counts is None else indices, counts)
        out.append(kept.of(indices, numbered, target))
    for output in out:
        output.relabel(None)
    return launch((), also=tuple(out))


def _check_crop_shape(op: str, image: torch.Tensor | None, **others: Any) -> None:
    """Raise RuntimeError for a size in pixels without that of the image, or beside relative sizes."""
    if image is None:
        raise RuntimeError(f"{op}: crop_shape needs input_shape")
    for name, value in others.items():
        if value is not None:
            raise RuntimeError(f"{op}: give either crop_shape or {name}")


def _prune_threshold(op: str, value: Any) -> float:
    """Return the part of a box that must lie in the window; -1 if its center must."""
    if value is None:
        return -1.0
    (threshold,) = _range(op, "bbox_prune_threshold", [value], (1,))
    if not 0 <= threshold <= 1:
        raise RuntimeError(f"{op}: bbox_prune_threshold must be from 0 to 1, got {threshold}")
    return threshold


def _total_attempts(op: str, num_attempts: int, total_num_attempts: Any) -> int:
    """Return the number of windows after which the best one is taken; -1 without a limit but that of each threshold."""
    total = -1 if total_num_attempts is None else total_num_attempts
    if isinstance(total, bool) or not isinstance(total, int):
        raise TypeError(f"{op}: total_num_attempts must be an int, got {total_num_attempts!r}")
    if num_attempts < 1 or total == 0 or total < -1:
        raise RuntimeError(f"{op}: num_attempts and total_num_attempts must be at least 1, got {num_attempts} and {total_num_attempts}")
    return total


def _columns(boxes: Batch) -> int:
    if boxes.ndim != 2:
        return 0
    columns = boxes.shared_extent(1)
    if columns is not None:
        return columns
    # Unknown while a graph is traced, unless the batch has recorded it: boxes of images are far more frequent.
    return 4 if is_compiling() or not boxes.batch_size else boxes.shape[0][1]


def _layout(op: str, bbox_layout: Any, ltrb: Any, dims: int) -> str:
    if not isinstance(ltrb, bool | None):
        raise TypeError(f"{op}: ltrb must be bool, got {ltrb!r}")
    ends, extents = (_AXES[:dims] + upper[:dims] for upper in ("XYZ", "WHD"))
    if bbox_layout is None:
        return ends if ltrb is None or ltrb else extents
    if ltrb is not None:
        raise RuntimeError(f"{op}: ltrb is an old form of bbox_layout; give only bbox_layout")
    if not isinstance(bbox_layout, str):
        raise TypeError(f"{op}: bbox_layout must be a str, got {bbox_layout!r}")
    if sorted(bbox_layout) not in (sorted(ends), sorted(extents)):
        raise RuntimeError(f"{op}: bbox_layout must be a permutation of {ends} or {extents}, got {bbox_layout!r}")
    return bbox_layout


def _reorder_shape(op: str, name: str, value: Any, shape_layout: Any, dims: int) -> torch.Tensor | None:
    """Return a shape in pixels, float64 (1 or N, dims), x first."""
    order = "WHD"[:dims]
    if shape_layout is not None and not isinstance(shape_layout, str):
        raise TypeError(f"{op}: shape_layout must be a str, got {shape_layout!r}")
    if value is None:
        return None
    layout = shape_layout or order
    if sorted(layout) != sorted(order):
        raise RuntimeError(f"{op}: shape_layout must be a permutation of {order}, got {shape_layout!r}")
    extents = numbers(value)
    if extents.shape[1] != dims:
        raise RuntimeError(f"{op}: {name} must have {dims} numbers, got {extents.shape[1]}")
    if not is_compiling() and not bool((extents > 0).all()):
        raise RuntimeError(f"{op}: {name} must be positive, got {extents.tolist()}")
    return extents[:, [layout.index(letter) for letter in order]].contiguous()


def _range(op: str, name: str, value: Any, lengths: tuple[int, ...]) -> list[float]:
    values: list[Any] = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in values):
        raise TypeError(f"{op}: {name} must be numbers, got {value!r}")
    if len(values) not in lengths:
        raise RuntimeError(f"{op}: {name} must have {' or '.join(map(str, lengths))} numbers, got {len(values)}")
    # Pairs of a smaller and a larger number; a single number has none.
    for low, high in zip(values[::2], values[1::2], strict=False):
        if not 0 <= low <= high:
            raise RuntimeError(f"{op}: {name} must be positive, the smaller number first, got {value}")
    return [float(number) for number in values]


def _levels(op: str, thresholds: Any) -> list[float]:
    values: list[Any] = list(thresholds) if isinstance(thresholds, Sequence) and not isinstance(thresholds, str) else [thresholds]
    if any(isinstance(threshold, bool) or not isinstance(threshold, int | float) for threshold in values):
        raise TypeError(f"{op}: thresholds must be numbers, got {thresholds!r}")
    if not values or not all(0 <= threshold <= 1 for threshold in values):
        raise RuntimeError(f"{op}: thresholds must be at least one number from 0 to 1, got {thresholds}")
    return [float(threshold) for threshold in values]
