# SPDX-License-Identifier: Apache-2.0
"""COCO annotations of images that became smaller."""

from typing import Any

import numpy as np

Size = tuple[int, int]


def scaled_annotation(annotation: dict[str, Any], original: Size, size: Size) -> dict[str, Any]:
    """Return an annotation of an image of height and width ``original`` for the same one at ``size``.

    Boxes, areas, polygons and key points are multiplied; masks of runs are sampled at the nearest pixels and stored as lists of counts.

    >>> scaled_annotation({"bbox": [4, 8, 10, 20], "area": 100}, (80, 40), (40, 20))
    {'bbox': [2.0, 4.0, 5.0, 10.0], 'area': 25.0}
    """
    if size == original:
        return annotation
    y, x = size[0] / original[0], size[1] / original[1]
    made = dict(annotation)
    if "bbox" in made:
        made["bbox"] = [_short(value * scale) for value, scale in zip(made["bbox"], (x, y, x, y), strict=True)]
    if "area" in made:
        made["area"] = _short(made["area"] * x * y)
    shape = made.get("segmentation")
    if isinstance(shape, dict):
        made["segmentation"] = _scaled_runs(shape, original, size)
    elif shape is not None:
        made["segmentation"] = [[_short(value * (y if k % 2 else x)) for k, value in enumerate(polygon)] for polygon in shape]
    if "keypoints" in made:
        made["keypoints"] = [value if k % 3 == 2 else _short(value * (y if k % 3 else x)) for k, value in enumerate(made["keypoints"])]
    return made


def _short(value: float) -> float:
    return round(value, 3)


def _scaled_runs(runs: dict[str, Any], original: Size, size: Size) -> dict[str, Any]:
    height, width = runs["size"]
    if (height, width) != original:
        raise ValueError(f"a mask of {height}x{width} belongs to an image of {original[0]}x{original[1]}")
    counts = runs["counts"]
    counts = _counts_of(counts) if isinstance(counts, str) else counts
    if sum(counts) != height * width:
        raise ValueError(f"the runs of a mask cover {sum(counts)} pixels of {height}x{width}")
    mask = np.repeat(np.arange(len(counts)) % 2, counts).reshape(width, height).T
    rows, columns = (np.minimum((np.arange(new) + 0.5) * old / new, old - 1).astype(int) for new, old in zip(size, original, strict=True))
    flat = mask[np.ix_(rows, columns)].T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *edges.tolist(), len(flat)]).tolist()
    return {"size": [*size], "counts": [0, *lengths] if flat[0] else lengths}


def _counts_of(text: str) -> list[int]:
    """Return the lengths of runs from COCO's text: six bits a letter, low ones first, as differences to the run before the last."""
    counts: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64:
            raise ValueError(f"{letter!r} cannot stand in the text of a mask")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        if counts[-1] < 0:
            raise ValueError("a run of a mask has a negative length")
        value = shift = 0
    return counts
