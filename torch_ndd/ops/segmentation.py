# SPDX-License-Identifier: Apache-2.0
"""Selecting polygons, pixels and objects of masks."""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from .._core import native
from .._core.operators.operator import DeviceLike, PerSample, Random, T, Varying, launch, operator
from .._core.suggestions import check_choice
from .._core.values.batch import Batch, empty_batch, empty_packed
from ._columns import extents_of
from ._outputs import columns_of
from .detection._boxes import on_host

Format = Literal["anchor_shape", "start_end", "box"]
_FORMATS = native.numbers("random_object_bbox.Format")
_MAX_DIMENSIONS = 6
_plan = native.kernel("select_masks_plan", writes=(-3, -2, -1))


@operator(name="segmentation.select_masks", reads_values=True)
def select_masks(
    mask_ids: T,
    polygons: T,
    vertices: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    reindex_masks: bool = False,
) -> tuple[T, T]:
    """Select the polygons of some masks, and their vertices.

    Args:
        mask_ids: int32 (masks,), without repetitions.
        polygons: int32 (polygons, 3): mask id, start and end of the polygon's vertices. A mask may have several polygons.
        vertices: (vertices, coordinates) of any type.
        reindex_masks: renumber the masks: 0 for the first of ``mask_ids`` and so on.

    Returns:
        Polygons and vertices of the masks, in the order of ``mask_ids``. Their number depends on the values, so the call waits for the inputs.

    Raises:
        RuntimeError: a mask id that does not exist or is repeated, vertices out of range, inputs of another type or shape.

    >>> polygons = torch.tensor([[4, 0, 2], [7, 2, 3]], dtype=torch.int32)
    >>> points = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> select_masks(torch.tensor([7], dtype=torch.int32), polygons, points)[1].torch()
    tensor([[4., 5.]])
    """
    op = "segmentation.select_masks"
    ids, rows, points = mask_ids, polygons, vertices
    assert isinstance(ids, Batch)
    assert isinstance(rows, Batch)
    assert isinstance(points, Batch)
    for name, value, ndim in (("mask_ids", ids, 1), ("polygons", rows, 2), ("vertices", points, 2)):
        if value.ndim != ndim:
            raise RuntimeError(f"{op}: {name} must have {ndim} dimension{'s'[: ndim > 1]}, got {value.ndim}")
        if name != "vertices" and value.dtype is not torch.int32:
            raise RuntimeError(f"{op}: {name} must be int32, got {value.dtype}")
    if rows.batch_size and rows.shared_extent(1) != 3:
        raise RuntimeError(f"{op}: polygons must have 3 columns: mask, first vertex, end; got the shapes {rows.shape}")
    host_ids, host_rows = on_host(ids), on_host(rows)
    size, (many, wide) = ids.batch_size, (0, 0) if points.ragged_shapes is not None else points.buffer.shape[1:]
    table = torch.empty(rows.buffer.numel() // 3, 4, dtype=torch.int64)
    polygons_out, vertices_out = torch.empty(size, 2, dtype=torch.int64), torch.empty(size, 2, dtype=torch.int64)
    ours = (host_ids.buffer, host_ids.ragged_shapes, host_rows.buffer, host_rows.ragged_shapes)
    _plan(*ours, points.ragged_shapes, many, wide, bool(reindex_masks), table, polygons_out, vertices_out)
    target, width = points.buffer.device, extents_of(points)[1]
    out = (
        empty_packed(polygons_out, torch.int32, target, shared_extents=(None, 3)),
        empty_packed(vertices_out, points.dtype, target, shared_extents=(None, width if isinstance(width, int) else None)),
    )
    return launch(out, [table])


@operator(name="segmentation.random_mask_pixel")
def random_mask_pixel(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    foreground: PerSample[int] = 0,
    threshold: PerSample[float] | None = None,
    value: PerSample[int] | None = None,
    rng: Random = None,
) -> Any:
    """Draw a random pixel of a mask, all equally likely, and return its coordinates.

    Args:
        input: any type, with at least one dimension and one element.
        foreground: choose only foreground pixels, if there are any.
        threshold: foreground is larger than this, by default 0.
        value: foreground is equal to this.
        rng: random generator; by default this thread's.

    Returns:
        int64, one number per dimension.

    Raises:
        RuntimeError: both ``threshold`` and ``value``, a mask without pixels.

    >>> random_mask_pixel(torch.tensor([[0, 0, 0], [0, 0, 5]]), foreground=1).torch()
    tensor([1, 2])
    """
    op = "segmentation.random_mask_pixel"
    mask: Batch = input  # type: ignore[assignment]
    if threshold is not None and value is not None:
        raise RuntimeError(f"{op}: give either threshold or value")
    if mask.ndim == 0:
        raise RuntimeError(f"{op}: the input must have dimensions, got single numbers")
    return empty_batch(mask.batch_size, [mask.ndim], torch.int64, mask.buffer.device)


@operator(name="segmentation.random_object_bbox", fills=(-6, -4, -2))
def random_object_bbox(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    background: PerSample[int] | None = None,
    cache_objects: bool = False,
    class_weights: Varying[Sequence[float]] | None = None,
    classes: Varying[Sequence[int]] | None = None,
    foreground_prob: PerSample[float] = 1.0,
    format: Format = "anchor_shape",
    ignore_class: bool = False,
    k_largest: int | None = None,
    output_class: bool = False,
    threshold: PerSample[Sequence[int]] | None = None,
    rng: Random = None,
) -> T | tuple[T, ...]:
    """Draw a random object of a label mask and return its bounding box; an object is a set of pixels of one label, connected by their sides.

    First a label is drawn, then one of its objects, all equally likely. Labels without a large enough object do not count. With a probability of ``1
    - foreground_prob``, and if there are no objects, the box is the whole mask.

    Args:
        input: integers or bool with one to six dimensions.
        background: the background label, by default 0, or one less than the smallest of ``classes`` if they contain 0.
        cache_objects: ignored; finding the objects again takes about as long as recognizing a mask.
        class_weights: weights of ``classes`` or, without these, of 0, 1, 2... except the background.
        classes: labels to choose from, by default all except the background.
        foreground_prob: probability of choosing an object.
        format: form of the result: "anchor_shape", "start_end", or "box", start and end in one.
        ignore_class: choose from the objects of all labels together.
        k_largest: choose only among this many objects, those with the largest boxes.
        output_class: also return the label, int32.
        threshold: smallest extents of the box, one number or one per dimension.
        rng: random generator; by default this thread's.

    Returns:
        int32: start and shape, start and end, or both in one; then the label, if requested.

    Raises:
        RuntimeError: an input of another type, an unknown format, ``k_largest`` below 1, ``background`` among the classes, a number of weights other
            than that of the classes, ``ignore_class`` together with arguments about classes.

    >>> mask = torch.tensor([[0, 0, 0, 0], [0, 3, 3, 0], [0, 3, 0, 0]])
    >>> random_object_bbox(mask, format="box", output_class=True)[0].torch()
    tensor([1, 1, 3, 3], dtype=torch.int32)
    """
    op = "segmentation.random_object_bbox"
    mask: Batch = input  # type: ignore[assignment]
    del cache_objects
    if mask.dtype.is_floating_point:
        raise RuntimeError(f"{op}: the mask must have integers or bool, got {mask.dtype}")
    if not 1 <= mask.ndim <= _MAX_DIMENSIONS:
        raise RuntimeError(f"{op}: the mask must have 1 to {_MAX_DIMENSIONS} dimensions, got {mask.ndim}")
    if not isinstance(format, str):
        raise TypeError(f"{op}: format must be a str, got {format!r}")
    check_choice(op, "format", format, _FORMATS)
    if ignore_class and (classes is not None or class_weights is not None or output_class):
        raise RuntimeError(f"{op}: with ignore_class there are no classes, class_weights and output_class")
    if k_largest is not None and (isinstance(k_largest, bool) or not isinstance(k_largest, int)):
        raise TypeError(f"{op}: k_largest must be an int, got {k_largest!r}")
    if k_largest is not None and k_largest < 1:
        raise RuntimeError(f"{op}: k_largest must be at least 1, got {k_largest}")
    if threshold is not None and columns_of(threshold) not in (1, mask.ndim):
        raise RuntimeError(f"{op}: threshold must be one number or {mask.ndim}, got {columns_of(threshold)}")
    box = format == "box"
    target, count = mask.buffer.device, mask.batch_size
    first = empty_batch(count, [2 * mask.ndim if box else mask.ndim], torch.int32, target)
    # The kernel always fills both; for a box the second one is empty.
    second = empty_batch(count, [0 if box else mask.ndim], torch.int32, target)
    label = empty_batch(count, [], torch.int32, target)
    arguments = [background, class_weights, classes, foreground_prob, threshold, k_largest or 0, bool(ignore_class), _FORMATS[format], rng]
    results = (first,) if box else (first, second)
    return launch((first, second, label), arguments, views=(*results, label) if output_class else results)
