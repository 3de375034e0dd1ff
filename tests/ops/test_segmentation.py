# SPDX-License-Identifier: Apache-2.0
"""``segmentation.*``, against NumPy and scipy."""

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from _cases import COUNT, Case, Each, Samples, arrays
from scipy import ndimage, stats

import torch_ndd as ndd
from torch_ndd.random import RNG
from torch_ndd.segmentation import random_mask_pixel, random_object_bbox, select_masks

POLYGONS = np.int32([[0, 0, 3], [5, 3, 6], [2, 6, 9], [5, 9, 11]])
VERTICES = np.arange(22, dtype=np.float32).reshape(11, 2)


def masks(ragged: bool) -> tuple[Samples, ...]:
    ids = [np.int32([5, 2]), np.int32([0, 5]), np.int32([2, 5])]
    ids = [polygon_ids[: 1 + (i > 0)] for i, polygon_ids in enumerate(ids)] if ragged else ids
    return ids, [POLYGONS] * COUNT, [VERTICES + i for i in range(COUNT)]


def select_reference(ids: np.ndarray, polygons: np.ndarray, vertices: np.ndarray, reindex_masks: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rows, points = [], []
    for k, polygon_ids in enumerate(ids):
        for _, first, last in polygons[polygons[:, 0] == polygon_ids]:
            start = sum(map(len, points))
            rows.append([k if reindex_masks else polygon_ids, start, start + last - first])
            points.append(vertices[first:last])
    return np.array(rows, np.int32), np.concatenate(points)


LABELS = np.int32(
    [
        [0, 0, 0, 0, 0, 0, 2, 2, 0],
        [0, 1, 1, 1, 0, 0, 2, 2, 0],
        [0, 1, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 3, 0, 0, 0, 0],
        [0, 0, 0, 3, 0, 0, 0, 0, 0],
        [3, 3, 0, 0, 0, 1, 1, 1, 0],
        [0, 0, 3, 0, 0, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 0, 1, 4],
    ]
)


def labels(ragged: bool) -> tuple[Samples, ...]:
    return ([LABELS[i * ragged :].copy() for i in range(COUNT)],)


def winding_masks(ragged: bool) -> tuple[Samples, ...]:
    """Return a spiral, a comb and noise: their objects reach through many rows, or are many."""
    spiral = np.zeros((41, 47), np.uint8)
    top, left, bottom, right = 0, 0, 40, 46
    while top < bottom and left < right:
        spiral[top, max(left - 2, 0) : right + 1] = spiral[top : bottom + 1, right] = spiral[bottom, left : right + 1] = 3
        spiral[top + 2 : bottom + 1, left] = 3
        top, left, bottom, right = top + 2, left + 2, bottom - 2, right - 2
    comb = np.zeros((41, 47), np.uint8)
    comb[:, ::2] = 2
    comb[40] = 2
    noise = np.random.default_rng(5).integers(0, 3, (41, 47)).astype(np.uint8)
    return ([mask[i * ragged :].copy() for i, mask in enumerate((spiral, comb, noise))],)


CASES = [
    Case("segmentation.select_masks", "numbers kept", masks, reference=select_reference, out_layout=None),
    Case("segmentation.select_masks", "renumbered", masks, {"reindex_masks": True}, reference=select_reference, out_layout=None),
    Case(
        "segmentation.random_mask_pixel",
        "threshold",
        arrays((20, 30)),
        {"foreground": Each([0, 1, 1]), "threshold": Each([0.0, 100.0, 300.0])},
        out_layout=None,
    ),
    Case("segmentation.random_mask_pixel", "value", arrays((20, 30, 2), "int16"), {"foreground": 1, "value": Each([3, 40, 500])}, out_layout=None),
    Case(
        "segmentation.random_object_bbox",
        "classes",
        labels,
        {
            "classes": Each([np.int32([1, 2]), np.int32([3, 2]), np.int32([1, 2])]),
            "class_weights": Each([np.float32([1, 2]), np.float32([3, 2]), np.float32([1, 9])]),
            "foreground_prob": Each([1.0, 0.5, 0.9]),
            "background": Each([0, 7, -1]),
            "output_class": True,
        },
        out_layout=None,
    ),
    Case(
        "segmentation.random_object_bbox",
        "all labels together",
        labels,
        {"ignore_class": True, "k_largest": 4, "threshold": Each([[1, 1], [1, 1], [1, 2]]), "format": "box"},
        out_layout=None,
    ),
    Case(
        "segmentation.random_object_bbox", "winding", winding_masks, {"foreground_prob": 1.0, "format": "box", "output_class": True}, out_layout=None
    ),
    Case(
        "segmentation.random_object_bbox",
        "volumes",
        lambda ragged: ([np.random.default_rng(i).integers(0, 2, (7, 9 + i * ragged, 38)).astype(np.int64) for i in range(COUNT)],),
        {"foreground_prob": 1.0, "format": "start_end", "k_largest": 2},
        out_layout=None,
    ),
]


def test_masks_that_are_not_there() -> None:
    ids = np.int32([5])
    for call, text in (
        (lambda: select_masks(np.int32([5, 7]), POLYGONS, VERTICES), "sample 0: mask_ids must be masks of the polygons, got 7"),
        (lambda: select_masks(np.int32([5, 5]), POLYGONS, VERTICES), "5 twice"),
        (lambda: select_masks(ids, POLYGONS, VERTICES[:10]), "polygon 3 has the vertices 9 to 11, but there are 10"),
        (lambda: select_masks(ids, np.int32([[5, 4, 3]]), VERTICES), "vertices 4 to 3"),
        (lambda: select_masks(ids, np.int32([[5, -1, 3]]), VERTICES), "vertices -1 to 3"),
        (lambda: select_masks(ids, POLYGONS[:, :2].copy(), VERTICES), "3 columns"),
        (lambda: select_masks(ids, POLYGONS.astype(np.int64), VERTICES), "int32"),
        (lambda: select_masks(np.int64([5]), POLYGONS, VERTICES), "int32"),
        (lambda: select_masks(np.int32(5), POLYGONS, VERTICES), "mask_ids"),
        (lambda: select_masks(ids, POLYGONS, VERTICES[:, 0].copy()), "vertices"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_no_masks_and_other_vertices() -> None:
    rows, points = select_masks(np.int32([]), POLYGONS, VERTICES)
    assert (rows.shape, points.shape) == ((0, 3), (0, 2))
    in_space = np.arange(33, dtype=np.uint8).reshape(11, 3)
    np.testing.assert_array_equal(np.asarray(select_masks(np.int32([2]), POLYGONS, in_space)[1]), in_space[6:9])


def pixels(mask: np.ndarray, count: int = 4000, **args: Any) -> np.ndarray:
    return np.stack([np.asarray(pixel) for pixel in random_mask_pixel(mask, batch_size=count, rng=RNG(seed=1), **args)])


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64", "float32", "float64", "uint16"])
def test_pixels_of_the_foreground_are_equally_likely(dtype: str) -> None:
    mask = np.zeros((70, 130), dtype)
    places = np.random.default_rng(2).choice(mask.size, 50, replace=False)
    mask.flat[places] = 1
    output = pixels(mask, foreground=1)
    counts = Counter(np.ravel_multi_index(tuple(output.T), mask.shape).tolist())
    assert set(counts) <= set(places.tolist())
    assert stats.chisquare([counts[k] for k in places.tolist()]).pvalue > 1e-4


def test_what_the_foreground_is() -> None:
    mask = np.int32([[0, 3, -1], [5, 3, 0]])
    assert {tuple(pixel) for pixel in pixels(mask, 200, foreground=1, value=3)} == {(0, 1), (1, 1)}
    assert {tuple(pixel) for pixel in pixels(mask, 200, foreground=1, threshold=3)} == {(1, 0)}
    assert {tuple(pixel) for pixel in pixels(mask, 200, foreground=1, threshold=-0.5)} == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)}
    everything = {(r, c) for r in range(2) for c in range(3)}
    for args in ({}, {"foreground": 1, "value": 77}, {"foreground": 1, "threshold": 9.0}, {"value": 3}):
        assert {tuple(pixel) for pixel in pixels(mask, 400, **args)} == everything
    assert pixels(np.ones((2, 3, 4)), 5).shape == (5, 3)


def test_masks_without_a_pixel() -> None:
    with ndd.EvalMode.sync_cpu:
        with pytest.raises(RuntimeError, match="no pixel"):
            random_mask_pixel(np.zeros((0, 4)))
        with pytest.raises(RuntimeError, match="threshold or value"):
            random_mask_pixel(LABELS, threshold=1.0, value=1)
        with pytest.raises(RuntimeError, match="dimensions"):
            random_mask_pixel(np.int32(4))


def objects(mask: np.ndarray, label: int | None = None, largest: int | None = None, threshold: Any = 0) -> list[tuple[int, ...]]:
    """Start and end of the boxes, as scipy finds them."""
    found: list[tuple[int, ...]] = []
    for value in np.unique(mask) if label is None else [label]:
        if value == 0:
            continue
        for box in ndimage.find_objects(ndimage.label(mask == value)[0]):
            if all(s.stop - s.start >= t for s, t in zip(box, np.broadcast_to(threshold, mask.ndim), strict=True)):
                found.append((*(s.start for s in box), *(s.stop for s in box)))
    half = mask.ndim
    found.sort(key=lambda box: -np.prod(np.subtract(box[half:], box[:half])))
    return found[:largest]


def boxes(mask: np.ndarray, count: int = 600, **args: Any) -> tuple[Counter[tuple[int, ...]], Counter[int]]:
    args = {"output_class": not args.get("ignore_class"), **args}
    output = random_object_bbox(mask, batch_size=count, format="box", rng=RNG(seed=5), **args)
    output, classes = output if isinstance(output, tuple) else (output, [])
    return Counter(tuple(np.asarray(sample).tolist()) for sample in output), Counter(int(np.asarray(label)) for label in classes)


WHOLE = (0, 0, 8, 9)


@pytest.mark.parametrize(("shape", "classes"), [((40, 50), 3), ((12, 9, 11), 2), ((3, 4, 5, 6), 2), ((200,), 3), ((1, 30), 2), ((30, 1), 2)])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_objects_of_random_masks(shape: tuple[int, ...], classes: int, dtype: str) -> None:
    mask = np.random.default_rng(1).integers(0, classes + 1, shape)
    mask = np.repeat(mask, 3, -1).astype(dtype)  # runs
    for args in ({}, {"threshold": 2}, {"k_largest": 3}):
        found, _ = boxes(mask, 300, classes=[2], **args)
        expected = objects(mask, 2, threshold=args.get("threshold", 0))
        if "k_largest" in args:
            volumes = sorted((np.prod(np.subtract(box[mask.ndim :], box[: mask.ndim])) for box in expected), reverse=True)[:3]
            assert len(found) == min(3, len(expected))
            assert sorted((np.prod(np.subtract(box[mask.ndim :], box[: mask.ndim])) for box in found), reverse=True) == volumes
        elif expected:
            assert set(found) <= set(expected)
            assert len(found) > min(len(expected), 300) / 3
        else:
            assert set(found) == {(*(0,) * mask.ndim, *mask.shape)}


def shares(counts: Counter[Any]) -> dict[Any, float]:
    return {key: count / sum(counts.values()) for key, count in counts.items()}


def test_labels_and_their_objects_are_equally_likely() -> None:
    found, classes = boxes(LABELS, 6000)
    assert shares(classes) == pytest.approx({1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}, abs=0.025)
    assert shares(found)[0, 6, 2, 8] == pytest.approx(0.25, abs=0.025)
    assert shares(found)[1, 1, 3, 4] == pytest.approx(0.125, abs=0.02)
    every, _ = boxes(LABELS, 6000, ignore_class=True)
    assert set(every) == set(objects(LABELS))
    assert shares(every)[0, 6, 2, 8] == pytest.approx(1 / len(objects(LABELS)), abs=0.02)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"classes": [1, 2]}, {1: 0.5, 2: 0.5}),
        ({"classes": [1, 2], "class_weights": [1.0, 3.0]}, {1: 0.25, 2: 0.75}),
        ({"classes": [2, 2, 1]}, {1: 1 / 3, 2: 2 / 3}),
        ({"class_weights": [1.0, 3.0]}, {1: 0.25, 2: 0.75}),
        ({"class_weights": [1.0, 0.0, 3.0], "background": 1}, {0: 0.25, 3: 0.75}),
        ({"classes": [1, 77]}, {1: 1.0}),
        ({"classes": [77]}, {0: 1.0}),
        ({"classes": [0, 2], "class_weights": [0.0, 1.0]}, {2: 1.0}),
        ({"classes": [0, 2], "foreground_prob": 0.0}, {-1: 1.0}),
        ({"classes": [1, 2], "class_weights": [-1.0, -2.0]}, {0: 1.0}),
        ({"threshold": 2}, {1: 0.5, 2: 0.5}),
        ({"threshold": [3, 3]}, {1: 1.0}),
        ({"threshold": 5}, {0: 1.0}),
        ({"foreground_prob": 0.25}, {0: 0.75, 1: 0.0625, 2: 0.0625, 3: 0.0625, 4: 0.0625}),
        ({"background": 3}, {0: 0.25, 1: 0.25, 2: 0.25, 4: 0.25}),
    ],
)
def test_how_likely_labels_are(args: dict[str, Any], expected: dict[int, float]) -> None:
    assert shares(boxes(LABELS, 4000, **args)[1]) == pytest.approx(expected, abs=0.03)


def test_the_whole_mask_is_the_background() -> None:
    for args in ({"foreground_prob": 0.0}, {"threshold": 6}):
        assert set(boxes(LABELS, 20, **args)[0]) == {WHOLE}
    assert set(boxes(LABELS * 0, 20)[0]) == {WHOLE}
    assert random_object_bbox(np.zeros((0, 9), np.uint8))[1].evaluate().shape == (2,)


def test_forms_of_boxes() -> None:
    args = {"classes": [2]}
    anchor, shape = (np.asarray(output) for output in random_object_bbox(LABELS, **args))
    start, end, label = (np.asarray(output) for output in random_object_bbox(LABELS, format="start_end", output_class=True, **args))
    box = np.asarray(random_object_bbox(LABELS, format="box", **args))
    assert anchor.tolist() == start.tolist() == [0, 6]
    assert shape.tolist() == [2, 2]
    assert end.tolist() == [2, 8]
    assert box.tolist() == [0, 6, 2, 8]
    assert label.shape == ()
    assert {value.dtype for value in (anchor, shape, box, label)} == {np.dtype(np.int32)}


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"format": "corners"}, "format"),
        ({"k_largest": 0}, "k_largest"),
        ({"threshold": [1, 2, 3]}, "threshold"),
        ({"ignore_class": True, "classes": [1]}, "ignore_class"),
        ({"ignore_class": True, "output_class": True}, "ignore_class"),
        ({"classes": [1, 2], "class_weights": [1.0]}, "class_weights"),
        ({"classes": [1, 2], "background": 1}, "background 1 is among the classes"),
    ],
)
def test_wrong_arguments(args: dict[str, Any], text: str) -> None:
    with ndd.EvalMode.sync_cpu, pytest.raises(RuntimeError, match=text):
        random_object_bbox(LABELS, **args)
    with ndd.EvalMode.sync_cpu, pytest.raises(RuntimeError, match="integers"):
        random_object_bbox(LABELS.astype(np.float32))


@pytest.mark.parametrize("format", ["box", "anchor_shape", "start_end"])
def test_work_whose_results_are_dropped_writes_to_memory_of_its_own(format: str) -> None:
    """Whoever gets the memory of results next keeps its values."""
    go = threading.Event()

    def wait(mask: Any) -> Any:
        go.wait(10)
        return mask

    masks = ndd.python_function(wait, ndd.batch(np.ones((10, 8, 12, 3), np.uint8)), shape="same")
    output = random_object_bbox(masks, format=format)
    del output
    others = [torch.full((10, numbers), 77, dtype=torch.int32) for numbers in (3, 6) for _ in range(50)]
    go.set()
    last = random_object_bbox(masks, format=format)
    for value in last if isinstance(last, tuple) else (last,):
        value.evaluate()
    time.sleep(0.1)
    assert all(bool((other == 77).all()) for other in others)
