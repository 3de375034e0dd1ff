# SPDX-License-Identifier: Apache-2.0
"""``random_bbox_crop``: every window obeys the rules, and boxes, labels and indices match."""

from typing import Any

import numpy as np
import pytest
import torch
from _cases import COUNT, Case, Each, Samples

import torch_ndd as ndd
from torch_ndd import random_bbox_crop
from torch_ndd.random import RNG

COUNT_OF_WINDOWS = 400
BOXES = np.float32([[0.1, 0.1, 0.3, 0.35], [0.5, 0.4, 0.9, 0.9], [0.05, 0.6, 0.25, 0.95]])
LABELS = np.array([7, 8, 9], np.int64)


def boxes(ragged: bool) -> tuple[Samples, ...]:
    generator, outputs = np.random.default_rng(5), []
    for i in range(COUNT):
        corners = generator.uniform(0, 1, (2, 4 + i * ragged, 2))
        outputs.append(np.concatenate([corners.min(0), corners.max(0)], 1).astype(np.float32))
    return outputs, [np.arange(len(sample), dtype=np.int32) for sample in outputs]


CASES = [
    Case(
        "random_bbox_crop",
        "ssd",
        boxes,
        {
            "scaling": [0.3, 1.0],
            "aspect_ratio": [0.5, 2.0],
            "thresholds": [0.0, 0.1],
            "num_attempts": 5,
            "all_boxes_above_threshold": False,
            "output_bbox_indices": True,
            "total_num_attempts": 100,
            "quiet": True,
        },
        out_layout=None,
    ),
    Case(
        "random_bbox_crop",
        "fixed window",
        boxes,
        {
            "crop_shape": Each([[200, 150], [180, 170], [100, 90]]),
            "input_shape": Each([[400, 300], [200, 200], [120, 100]]),
            "total_num_attempts": 50,
            "quiet": True,
        },
        out_layout=None,
    ),
]


def draw_samples(count: int = COUNT_OF_WINDOWS, boxes: np.ndarray = BOXES, seed: int = 3, **args: Any) -> list[tuple[np.ndarray, ...]]:
    """Return anchor, shape, boxes, labels and indices of many windows."""
    output = random_bbox_crop(boxes, LABELS[: len(boxes)], batch_size=count, output_bbox_indices=True, rng=RNG(seed=seed), **args)
    return list(zip(*([np.asarray(value) for value in result] for result in output), strict=True))


def overlaps(anchor: np.ndarray, shape: np.ndarray, boxes: np.ndarray = BOXES) -> tuple[np.ndarray, np.ndarray]:
    """Return intersection over union, and over the box."""
    dims = len(anchor)
    both = np.maximum(0, np.minimum(anchor + shape, boxes[:, dims:]) - np.maximum(anchor, boxes[:, :dims])).prod(1)
    own = (boxes[:, dims:] - boxes[:, :dims]).prod(1)
    return both / (own + shape.prod() - both), both / own


SSD: dict[str, Any] = {"scaling": [0.3, 1.0], "aspect_ratio": [0.5, 2.0], "allow_no_crop": False}


@pytest.mark.parametrize("prune", [None, 0.0, 0.4])
def test_boxes_labels_and_numbers_go_together(prune: float | None) -> None:
    for anchor, shape, left, labels, numbers in draw_samples(bbox_prune_threshold=prune, **SSD):
        centers = (BOXES[:, :2] + BOXES[:, 2:]) / 2
        if prune is None:
            kept = ((centers >= anchor) & (centers <= anchor + shape)).all(1)
        else:
            kept = overlaps(anchor, shape)[1] > prune
        assert kept.any()
        assert numbers.tolist() == np.flatnonzero(kept).tolist()
        assert labels.tolist() == LABELS[kept].tolist()
        expected = np.clip((BOXES[kept] - np.tile(anchor, 2)) / np.tile(shape, 2), 0, 1)
        np.testing.assert_allclose(left, expected, atol=1e-6)


def test_windows_are_inside_the_image_and_within_the_ranges() -> None:
    for anchor, shape, *_ in draw_samples(**SSD):
        assert (anchor >= 0).all()
        assert (anchor + shape <= 1 + 1e-6).all()
        assert ((shape >= 0.3) & (shape <= 1)).all()
        assert 0.5 <= shape[0] / shape[1] <= 2
    for _, shape, *_ in draw_samples(input_shape=[640, 320], **SSD):
        assert 0.5 <= shape[0] * 640 / (shape[1] * 320) <= 2
    for ratio in (0.5, 1.0, 2.0):
        for _, shape, *_ in draw_samples(50, scaling=[0.4, 0.9], aspect_ratio=[ratio, ratio], allow_no_crop=False):
            assert shape[0] / shape[1] == pytest.approx(ratio, rel=1e-5)
            assert 0.4 <= shape.max() <= 0.9


@pytest.mark.parametrize("kind", ["iou", "overlap"])
@pytest.mark.parametrize("threshold", [0.03, 0.06])
def test_boxes_meet_the_threshold(kind: str, threshold: float) -> None:
    args = {"thresholds": [threshold], "threshold_type": kind, "num_attempts": 20, **SSD}
    every = [overlaps(anchor, shape)[kind == "overlap"] for anchor, shape, *_ in draw_samples(**args)]
    assert min(values.min() for values in every) >= threshold - 1e-6
    some = [overlaps(anchor, shape)[kind == "overlap"] for anchor, shape, *_ in draw_samples(all_boxes_above_threshold=False, **args)]
    assert min(values.max() for values in some) >= threshold - 1e-6
    assert min(values.min() for values in some) < threshold


def test_no_crop_is_one_of_the_choices() -> None:
    whole = [shape.tolist() == [1, 1] for _, shape, *_ in draw_samples(4000, scaling=[0.3, 0.9], thresholds=[0.0, 0.0, 0.0])]
    assert np.mean(whole) == pytest.approx(0.25, abs=0.03)
    for anchor, shape, left, labels, numbers in draw_samples(scaling=[0.3, 0.9]):
        if shape.tolist() == [1, 1]:
            assert anchor.tolist() == [0, 0]
            np.testing.assert_array_equal(left, BOXES)
            assert labels.tolist() == LABELS.tolist()
            assert numbers.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("wanted", "layout", "size"), [([50, 20], None, (50, 20)), ([20, 50], "HW", (50, 20)), ([150, 20], "WH", (150, 20))])
def test_windows_of_a_fixed_size(wanted: list[int], layout: str | None, size: tuple[int, int]) -> None:
    image = [100, 80] if layout != "HW" else [80, 100]
    for anchor, shape, left, *_ in draw_samples(crop_shape=wanted, input_shape=image, shape_layout=layout, bbox_prune_threshold=0.0):
        assert tuple(shape) == size
        room = np.array([100, 80]) - shape
        assert ((anchor >= np.minimum(room, 0)) & (anchor <= np.maximum(room, 0)) & (anchor == anchor.round())).all()
        pixels = left * np.tile(shape, 2) + np.tile(anchor, 2)
        assert ((pixels >= -1e-4) & (pixels <= np.tile([100, 80], 2) + 1e-4)).all()


@pytest.mark.parametrize("layout", ["xyWH", "yxYX", "xXyY", "HWyx"])
def test_layouts_of_boxes(layout: str) -> None:
    column = {"x": BOXES[:, 0], "y": BOXES[:, 1], "X": BOXES[:, 2], "Y": BOXES[:, 3], "W": BOXES[:, 2] - BOXES[:, 0], "H": BOXES[:, 3] - BOXES[:, 1]}
    values = np.stack([column[letter] for letter in layout], 1)
    for (anchor, shape, left, *_), (other_anchor, other_shape, expected, *_) in zip(
        draw_samples(20, values, bbox_layout=layout, **SSD), draw_samples(20, **SSD), strict=True
    ):
        np.testing.assert_allclose(anchor, other_anchor, atol=1e-6)
        np.testing.assert_allclose(shape, other_shape, atol=1e-6)
        found = {letter: left[:, k] for k, letter in enumerate(layout)}
        np.testing.assert_allclose(found["x"], expected[:, 0], atol=1e-6)
        np.testing.assert_allclose(found["Y"] if "Y" in found else found["y"] + found["H"], expected[:, 3], atol=1e-6)


def test_volumes_keep_the_aspect_ratios() -> None:
    values = np.float32([[0.2, 0.2, 0.2, 0.5, 0.6, 0.7], [0.6, 0.1, 0.3, 0.8, 0.3, 0.9]])
    args = {"scaling": [0.4, 1.0], "aspect_ratio": [0.5, 1.0, 0.8, 2.0, 1.0, 3.0], "allow_no_crop": False, "thresholds": [0.05]}
    args |= {"all_boxes_above_threshold": False, "num_attempts": 50}
    for anchor, shape, left, _, numbers in draw_samples(100, values, **args):
        for (a, b), (low, high) in zip([(0, 1), (0, 2), (1, 2)], [(0.5, 1.0), (0.8, 2.0), (1.0, 3.0)], strict=True):
            assert low <= shape[a] / shape[b] <= high
        assert overlaps(anchor, shape, values)[0].max() >= 0.05 - 1e-6
        np.testing.assert_allclose(left, np.clip((values[numbers] - np.tile(anchor, 2)) / np.tile(shape, 2), 0, 1), atol=1e-6)


def test_the_best_window_is_taken_where_none_is_good_enough() -> None:
    args = {"thresholds": [0.99], "total_num_attempts": 20, "num_attempts": 4, **SSD}
    with pytest.warns(UserWarning, match="random_bbox_crop: no window of sample 0"):
        random_bbox_crop(BOXES, rng=RNG(seed=1), **args)
    best = np.mean([overlaps(*draw[:2])[0].min() for draw in draw_samples(quiet=True, **args)])
    first = np.mean([overlaps(*draw[:2])[0].min() for draw in draw_samples(quiet=True, **{**args, "num_attempts": 1, "total_num_attempts": 1})])
    assert best > 2 * first
    for *_, left, labels, numbers in draw_samples(quiet=True, **args):
        assert len(left) == len(labels) == len(numbers)


def test_windows_do_not_depend_on_the_batch() -> None:
    crops = draw_samples(3, **SSD)
    many = draw_samples(9, **SSD)
    for a, b in zip(crops, many, strict=False):
        for first, second in zip(a, b, strict=True):
            np.testing.assert_array_equal(first, second)


def test_images_without_boxes() -> None:
    batch = ndd.batch([BOXES, BOXES[:0]])
    anchors, shapes, left, labels = random_bbox_crop(
        batch, ndd.batch([LABELS, LABELS[:0]]), rng=RNG(seed=2), thresholds=[0.05], num_attempts=50, **SSD
    )
    assert left.shape[1] == (0, 4)
    assert labels.shape[1] == (0,)
    assert (np.asarray(shapes.select(1)) <= 1).all()
    assert anchors.shape == [(2,), (2,)]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"scaling": [0.5, 0.1]}, "scaling"),
        ({"scaling": [0.5]}, "scaling"),
        ({"aspect_ratio": [1.0, 2.0, 3.0]}, "aspect_ratio"),
        ({"thresholds": []}, "thresholds"),
        ({"thresholds": [1.5]}, "thresholds"),
        ({"threshold_type": "giou"}, "threshold_type"),
        ({"num_attempts": 0}, "num_attempts"),
        ({"total_num_attempts": 0}, "total_num_attempts"),
        ({"bbox_prune_threshold": 2.0}, "bbox_prune_threshold"),
        ({"bbox_layout": "xywh"}, "bbox_layout"),
        ({"bbox_layout": "xyWH", "ltrb": True}, "ltrb"),
        ({"crop_shape": [5, 5]}, "input_shape"),
        ({"crop_shape": [5, 5], "input_shape": [9, 9], "scaling": [0.5, 1.0]}, "scaling"),
        ({"input_shape": [9, 9, 3]}, "input_shape"),
        ({"input_shape": [9, 0]}, "positive"),
        ({"input_shape": [9, 9], "shape_layout": "HWC"}, "shape_layout"),
        ({"aspect_ratio": [5.0, 6.0], "scaling": [0.5, 1.0], "allow_no_crop": False, "total_num_attempts": 9}, "aspect_ratio"),
    ],
)
def test_wrong_arguments(args: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        random_bbox_crop(BOXES, **args)


@pytest.mark.parametrize("wrong", [[0.5, 0.5, 1.2, 0.6], [-0.1, 0.5, 0.6, 0.6], [0.6, 0.5, 0.5, 0.6], [np.nan, 0, 1, 1]])
def test_boxes_that_leave_the_image(wrong: list[float]) -> None:
    with pytest.raises(RuntimeError, match="sample 1, box 3 is not within the image"):
        random_bbox_crop(ndd.batch([BOXES, np.concatenate([BOXES, np.float32([wrong])])]))


def test_indices_of_ragged_batches_that_lose_no_box() -> None:
    rows = [BOXES, BOXES[:1], BOXES[:2]]
    batch = ndd.batch([torch.from_numpy(row) for row in rows])
    *_, indices = random_bbox_crop(
        batch, ndd.batch([torch.arange(len(row), dtype=torch.int32) for row in rows]), output_bbox_indices=True, thresholds=[0.0]
    )
    assert [index.torch().tolist() for index in indices] == [[0, 1, 2], [0], [0, 1]]
    polygons = ndd.batch([torch.tensor([[k, 2 * k, 2 * k + 2] for k in range(len(row))], dtype=torch.int32) for row in rows])
    points = ndd.batch([torch.arange(4.0 * len(row)).reshape(-1, 2) for row in rows])
    kept, vertices = ndd.segmentation.select_masks(indices, polygons, points)
    assert [sample.shape[0] for sample in kept] == [3, 1, 2]
    assert [points.torch().tolist() for points in vertices] == [row.torch().tolist() for row in points]
