# SPDX-License-Identifier: Apache-2.0
"""COCO annotations of images that became smaller."""

from typing import Any

import numpy as np

from .._core.context.states import format_value

Size = tuple[int, int]
_MAX_NUMBER = 1e15  # larger coordinates are not pixels
_MAX_SHIFT = 60


def scaled_annotation(annotation: dict[str, Any], original: Size, size: Size) -> dict[str, Any]:
    """Return an annotation of an image of height and width ``original`` for the same one at ``size``.

    Boxes, areas, polygons and key points are multiplied; masks of runs are sampled at the nearest pixels and stored as lists of counts.

    >>> scaled_annotation({"bbox": [4, 8, 10, 20], "area": 100}, (80, 40), (40, 20))
    {'bbox': [2.0, 4.0, 5.0, 10.0], 'area': 25.0}
    """
    if size == original:
        return annotation
    y, x = size[0] / original[0], size[1] / original[1]
    scaled = dict(annotation)
    if "bbox" in scaled:
        scaled["bbox"] = [_short(value * scale) for value, scale in zip(_numbers(scaled["bbox"], "bbox", 4), (x, y, x, y), strict=True)]
    if "area" in scaled:
        scaled["area"] = _short(_numbers([scaled["area"]], "area", 1)[0] * x * y)
    shape = scaled.get("segmentation")
    if isinstance(shape, dict):
        scaled["segmentation"] = _scaled_runs(shape, original, size)
    elif shape is not None:
        if not isinstance(shape, list):
            raise ValueError(f"the segmentation of an annotation must be polygons or runs, got {format_value(shape)}")
        scaled["segmentation"] = [
            [_short(value * (y if k % 2 else x)) for k, value in enumerate(_numbers(polygon, "segmentation"))] for polygon in shape
        ]
    if "keypoints" in scaled:
        points = _numbers(scaled["keypoints"], "keypoints")
        scaled["keypoints"] = [value if k % 3 == 2 else _short(value * (y if k % 3 else x)) for k, value in enumerate(points)]
    return scaled


def _numbers(value: Any, name: str, count: int | None = None) -> list[Any]:
    """Return a list of finite numbers. Raise ValueError for anything else."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise ValueError(f"the {name} of an annotation must be a list of {count or 'numbers'}, got {format_value(value)}")
    for number in value:
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < _MAX_NUMBER:
            raise ValueError(f"the {name} of an annotation must consist of numbers, got {format_value(number)}")
    return value


def _short(value: float) -> float:
    return round(value, 3)


def _scaled_runs(runs: dict[str, Any], original: Size, size: Size) -> dict[str, Any]:
    height, width = _numbers(runs.get("size"), "mask's size", 2)
    if (height, width) != original:
        raise ValueError(f"a mask of {height}x{width} belongs to an image of {original[0]}x{original[1]}")
    counts = runs.get("counts")
    counts = _counts_of(counts) if isinstance(counts, str) else _numbers(counts, "mask's counts")
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError("the runs of a mask must be non-negative integers")
    if sum(counts) != height * width:
        raise ValueError(f"the runs of a mask cover {sum(counts)} pixels of {height}x{width}")
    # Runs go down the columns, so the mask is stored transposed.
    mask = np.repeat(np.arange(len(counts)) % 2, counts).reshape(width, height).T
    rows, columns = (np.minimum((np.arange(new) + 0.5) * old / new, old - 1).astype(int) for new, old in zip(size, original, strict=True))
    flat = mask[np.ix_(rows, columns)].T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *edges.tolist(), len(flat)]).tolist()
    # Runs begin with background, perhaps none of it.
    return {"size": [*size], "counts": [0, *lengths] if flat[0] else lengths}


def _counts_of(text: str) -> list[int]:
    """Decode the run lengths in COCO's text: letters of six bits, lowest first; from the third run on, differences from the run two before."""
    counts: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64:
            raise ValueError(f"{letter!r} cannot stand in the text of a mask")
        if shift > _MAX_SHIFT:
            raise ValueError("a run of a mask has too many letters")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        # From the third run on, numbers are relative to the run before the last.
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        if counts[-1] < 0:
            raise ValueError("a run of a mask has a negative length")
        value = shift = 0
    return counts
