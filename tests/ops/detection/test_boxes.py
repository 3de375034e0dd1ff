# SPDX-License-Identifier: Apache-2.0
"""``bb_flip``, ``bbox_paste``, ``bbox_rotate``, ``bbox_transform`` and ``box_encoder``, against NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from _cases import COUNT, Case, Each, Samples

import torch_ndd as ndd
from torch_ndd import EvalMode, bb_flip, bbox_paste, bbox_rotate, bbox_transform, box_encoder


def random_boxes(count: int, generator: np.random.Generator) -> np.ndarray:
    """Start and end, within 0 to 1."""
    corners = generator.uniform(0, 1, (2, count, 2))
    return np.concatenate([corners.min(0), corners.max(0)], 1).astype(np.float32)


def boxes(ragged: bool) -> tuple[Samples, ...]:
    generator = np.random.default_rng(7)
    return ([random_boxes(5 + (2 * i + 1) * ragged, generator) for i in range(COUNT)],)


def boxes_and_labels(ragged: bool) -> tuple[Samples, ...]:
    (output,) = boxes(ragged)
    return output, [np.arange(1, len(sample) + 1, dtype=np.int32) for sample in output]


def flip_reference(boxes: np.ndarray, horizontal: int = 1, vertical: int = 0, ltrb: bool = False) -> np.ndarray:
    output = boxes.astype(np.float64)
    for d, wanted in enumerate((horizontal, vertical)):
        if wanted:
            output[:, d] = 1 - boxes[:, d + 2] if ltrb else 1 - output[:, d] - boxes[:, d + 2]
            output[:, d + 2] = 1 - boxes[:, d] if ltrb else boxes[:, d + 2]
    return output.astype(np.float32)


def paste_reference(boxes: np.ndarray, ratio: float, paste_x: float = 0.5, paste_y: float = 0.5, ltrb: bool = False) -> np.ndarray:
    """The box in pixels of a canvas with sides of ``ratio``."""
    shift = np.array([paste_x, paste_y]) * (ratio - 1)
    return ((boxes + np.concatenate([shift, shift * ltrb])) / ratio).astype(np.float32)


def map_reference(boxes: np.ndarray, matrix: np.ndarray, old: tuple[float, float], new: tuple[float, float] | None) -> np.ndarray:
    """The box around the mapped corners; ``old`` and ``new`` are width and height."""
    outputs = []
    for left, top, right, bottom in boxes.astype(np.float64) * [*old, *old]:
        corners = np.array([[x, y, 1] for x in (left, right) for y in (top, bottom)]) @ matrix.T
        box = np.concatenate([corners.min(0), corners.max(0)])
        outputs.append(box if new is None else np.clip(box, 0, [*new, *new]) / [*new, *new])
    return np.array(outputs).reshape(-1, 4).astype(np.float32)


def turn_reference(boxes: np.ndarray, labels: np.ndarray | None = None, *, angle: float, input_shape: Any, keep_size: bool = True, **_: Any) -> Any:
    assert keep_size
    height, width = input_shape
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    center = np.array([width / 2, height / 2])
    turn = np.array([[c, s], [-s, c]])
    matrix = np.concatenate([turn, (center - turn @ center)[:, None]], 1)
    output = map_reference(boxes, matrix, (width, height), (width, height))
    return output if labels is None else (output, labels)


def transform_reference(boxes: np.ndarray, *, MT: Any, output_shape: Any = None, **_: Any) -> np.ndarray:
    new = (output_shape[1], output_shape[0])
    return map_reference(boxes, np.asarray(MT, np.float64).reshape(2, 3), (1, 1), new) * np.float32([*new, *new])


ANCHORS = [float(x) for x in random_boxes(40, np.random.default_rng(3)).ravel()]


def encode_reference(
    boxes: np.ndarray,
    labels: np.ndarray,
    anchors: Any,
    criteria: float = 0.5,
    offset: bool = False,
    scale: float = 1.0,
    means: Any = (0, 0, 0, 0),
    stds: Any = (1, 1, 1, 1),
) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(anchors, np.float32).reshape(-1, 4), boxes
    low, high = np.maximum(b[:, None, :2], a[None, :, :2]), np.minimum(b[:, None, 2:], a[None, :, 2:])
    both = np.maximum(high - low, 0).prod(2)
    overlap = both / ((b[:, 2:] - b[:, :2]).prod(1)[:, None] + (a[:, 2:] - a[:, :2]).prod(1)[None] - both)
    for row in overlap:
        row[len(row) - 1 - row[::-1].argmax()] = 2
    found = overlap.max(0) > criteria
    chosen = len(b) - 1 - overlap[::-1].argmax(0)

    def center_and_size(value: np.ndarray) -> np.ndarray:
        return np.concatenate([(value[:, :2] + value[:, 2:]) / 2, value[:, 2:] - value[:, :2]], 1)

    own = center_and_size(a.astype(np.float64))
    output, classes = own * (not offset), np.where(found, labels[chosen], 0).astype(labels.dtype)
    matched = center_and_size(b.astype(np.float64))[chosen]
    if offset:
        matched = np.concatenate([(matched[:, :2] - own[:, :2]) / own[:, 2:], np.log(matched[:, 2:] / own[:, 2:])], 1)
        matched = (matched - means) / stds
    output[found] = matched[found]
    return output.astype(np.float32), classes


CASES = [
    Case("bb_flip", "both ways", boxes, {"horizontal": Each([1, 0, 1]), "vertical": Each([0, 1, 1])}, reference=flip_reference, tolerance=2e-7),
    Case("bb_flip", "start and end", boxes, {"ltrb": True, "vertical": 1}, reference=flip_reference),
    Case(
        "bbox_paste",
        "start and size",
        boxes,
        {"ratio": Each([1.0, 2.0, 3.5]), "paste_x": Each([0.0, 0.25, 1.0]), "paste_y": Each([1.0, 0.5, 0.125])},
        reference=paste_reference,
        tolerance=3e-7,
    ),
    Case("bbox_paste", "start and end", boxes, {"ratio": 2.5, "ltrb": True}, reference=paste_reference, tolerance=3e-7),
    Case(
        "bbox_rotate",
        "kept size",
        boxes,
        {"angle": Each([0.0, 30.0, -100.0]), "input_shape": Each([[50, 80], [100, 30], [64, 64]]), "keep_size": True, "remove_threshold": 0.0},
        reference=turn_reference,
        tolerance=1e-6,
    ),
    Case(
        "bbox_rotate",
        "labels, some boxes left out",
        boxes_and_labels,
        {"angle": 45.0, "input_shape": [100, 20], "size": Each([[20.0, 20.0], [50.0, 40.0], [90.0, 90.0]]), "mode": "halfway", "bbox_layout": "xyXY"},
    ),
    Case(
        "bbox_transform",
        "pixels",
        boxes,
        {
            "MT": Each([np.float32([[50, 10, 5], [0, 40, -3]]), np.float32([[20, 0, 0], [0, 20, 0]]), np.float32([[0, -30, 30], [30, 0, 0]])]),
            "output_shape": Each([[40, 60], [20, 20], [30, 30]]),
            "input_shape": Each([[1, 1], [1, 1], [1, 1]]),
            "remove_threshold": 0.0,
        },
        reference=transform_reference,
        tolerance=2e-5,
    ),
    Case("box_encoder", "centers", boxes_and_labels, {"anchors": ANCHORS}, reference=encode_reference, tolerance=2e-7),
    Case(
        "box_encoder",
        "differences",
        boxes_and_labels,
        {"anchors": ANCHORS, "offset": True, "criteria": 0.3, "scale": 300.0, "means": [0.1, 0.2, 0.3, 0.4], "stds": [0.1, 0.1, 0.2, 0.2]},
        reference=encode_reference,
        tolerance=1e-4,
    ),
]


def array(value: Any) -> np.ndarray:
    return np.asarray(value)


def test_boxes_that_leave_the_image_are_left_out() -> None:
    values = np.float32([[0.1, 0.1, 0.2, 0.2], [0.4, 0.4, 0.6, 0.6], [0.8, 0.1, 0.9, 0.2]])
    names = np.array([[5.0, 1.0], [6.0, 2.0], [7.0, 3.0]])
    output, labels = bbox_rotate(values, names, angle=45, input_shape=[100, 100], size=[30, 30])
    assert array(labels).tolist() == [[6.0, 2.0]]
    np.testing.assert_allclose(array(output), [[0.5 - 2**0.5 / 3, 0.5 - 2**0.5 / 3, 0.5 + 2**0.5 / 3, 0.5 + 2**0.5 / 3]], atol=1e-6)
    everything = ndd.batch([values, values[:1]]), ndd.batch([names, names[:1]])
    output, labels = bbox_rotate(*everything, angle=45, input_shape=[100, 100], size=[30, 30])
    assert output.shape == [(1, 4), (0, 4)]
    assert labels.shape == [(1, 2), (0, 2)]
    assert bbox_rotate(values[:0], angle=45, input_shape=[100, 100]).shape == (0, 4)


@pytest.mark.parametrize(("threshold", "left"), [(0.0, 3), (0.24, 3), (0.26, 2), (0.51, 1), (1.0, 1)])
def test_how_much_of_a_box_must_be_left(threshold: float, left: int) -> None:
    values = np.float32([[-6, 0, 2, 4], [-4, 4, 4, 8], [0, 0, 4, 4]])
    output = bbox_transform(values, MT=[1, 0, 0, 0, 1, 0], output_shape=[10, 10], remove_threshold=threshold)
    assert output.shape == (left, 4)
    assert array(output)[:, 0].min() == 0


def test_a_box_without_an_area_or_with_nan_is_left_out() -> None:
    values = np.float32([[0.5, 0.5, 0.5, 0.9], [np.nan, 0, 1, 1], [0, 0, 1, 1]])
    assert bbox_rotate(values, angle=0, input_shape=[10, 10], remove_threshold=0.0).shape == (1, 4)


@pytest.mark.parametrize(("angle", "exchanged"), [(30, False), (60, True), (-30, False), (-60, True), (120, True), (150, False), (270, True)])
def test_modes_of_turned_boxes(angle: float, exchanged: bool) -> None:
    values, args = np.float32([[40, 45, 60, 55]]), {"angle": angle, "input_shape": [100, 100], "keep_size": True, "bbox_normalized": False}
    sizes = [array(bbox_rotate(values, mode=mode, **args))[0] for mode in ("expand", "halfway", "fixed")]
    expand, halfway, fixed = ((box[2] - box[0], box[3] - box[1]) for box in sizes)
    np.testing.assert_allclose(fixed, (10, 20) if exchanged else (20, 10), atol=1e-4)
    np.testing.assert_allclose(halfway, np.add(expand, fixed) / 2, atol=1e-4)


def test_start_and_size() -> None:
    values = random_boxes(6, np.random.default_rng(1))
    as_size = np.concatenate([values[:, :2], values[:, 2:] - values[:, :2]], 1)
    args = {"angle": 20, "input_shape": [30, 70, 3], "shape_layout": "HWC"}
    ends, sizes = array(bbox_rotate(values, **args)), array(bbox_rotate(as_size, bbox_layout="xyWH", **args))
    np.testing.assert_allclose(sizes, np.concatenate([ends[:, :2], ends[:, 2:] - ends[:, :2]], 1), atol=1e-6)


def test_a_rotated_box_follows_its_pixels() -> None:
    for angle in (0, 17, 45, 90, 133, 250):
        image = np.zeros((60, 90, 1), np.float32)
        image[10:30, 20:60] = 1
        output = array(ndd.rotate(image, angle=angle, fill_value=0))[..., 0] > 0.5
        box = array(bbox_rotate(np.float32([[20, 10, 60, 30]]), angle=angle, input_shape=[60, 90], bbox_normalized=False))[0]
        rows, columns = np.nonzero(output)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_allclose(box, found, atol=1.01)


def test_every_box_has_an_anchor() -> None:
    values = np.float32([[0, 0, 0.1, 0.1], [0, 0, 0.1, 0.1], [0.9, 0.9, 1, 1]])
    anchors = [0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0]
    for labels in (np.array([4, 5, 6], np.int32), np.array([4, 5, 6], np.int64), np.array([[4], [5], [6]], np.uint8)):
        _, classes = box_encoder(values, labels, anchors=anchors)
        assert array(classes).tolist() == [0, 5, 6]  # the last one of equal anchors and boxes
        assert array(classes).dtype == labels.dtype
    output, classes = box_encoder(values[:0], np.zeros(0, np.int32), anchors=anchors)
    assert not array(classes).any()
    assert array(output)[0].tolist() == [0.25, 0.25, 0.5, 0.5]


def test_anchors_may_be_an_array_and_a_list_may_change() -> None:
    values, labels = random_boxes(4, np.random.default_rng(2)), np.arange(1, 5, dtype=np.int32)
    anchors = list(ANCHORS)
    expected = array(box_encoder(values, labels, anchors=anchors)[0])
    for other in (np.float32(ANCHORS), np.float32(ANCHORS).reshape(-1, 4), torch.tensor(ANCHORS), ndd.tensor(ANCHORS), tuple(ANCHORS)):
        np.testing.assert_array_equal(array(box_encoder(values, labels, anchors=other)[0]), expected)
    anchors[:4] = [0.0, 0.0, 0.25, 0.25]
    changed = array(box_encoder(values, labels, anchors=anchors)[0])
    np.testing.assert_array_equal(changed, array(box_encoder(values, labels, anchors=np.float32(anchors))[0]))
    assert (changed != expected).any()


def test_boxes_without_an_area_are_encoded_as_infinitely_small() -> None:
    output, classes = box_encoder(np.float32([[0.2, 0.2, 0.2, 0.2]]), np.int32([1]), anchors=[0.0, 0.0, 1.0, 1.0], offset=True)
    np.testing.assert_allclose(array(output)[0], [-0.3, -0.3, -np.inf, -np.inf], atol=1e-6)
    assert array(classes).tolist() == [1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda b, n: bb_flip(b.astype(np.float64)), "float32"),
        (lambda b, n: bb_flip(b[:, :3].copy()), "4 numbers"),
        (lambda b, n: bbox_paste(b.astype(np.int32), ratio=2), "float32"),
        (lambda b, n: bbox_rotate(b, n[:1], angle=1, input_shape=[1, 1]), "as many labels"),
        (lambda b, n: bbox_rotate(b[0], angle=1, input_shape=[1, 1]), "table"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[1, 1], mode="wide"), "mode"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[1, 1], bbox_layout="xywh"), "bbox_layout"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[1, 1], remove_threshold=2), "remove_threshold"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[1, 1], keep_size=True, size=[1, 1]), "keep_size"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[1]), "input_shape"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[-1, 5]), "negative"),
        (lambda b, n: bbox_rotate(b, angle=1, input_shape=[1, 5], shape_layout="AB"), "layout"),
        (lambda b, n: bbox_transform(b, MT=[1, 2, 3]), "2 by 3"),
        (lambda b, n: bbox_transform(b, MT=[1, 0, 0, 0, 1, 0], bbox_normalized=True), "input_shape"),
        (lambda b, n: box_encoder(b, n[:1], anchors=ANCHORS), "as many labels"),
        (lambda b, n: box_encoder(b, n.astype(np.float32), anchors=ANCHORS), "integers"),
        (lambda b, n: box_encoder(b, n, anchors=ANCHORS[:5]), "anchors"),
        (lambda b, n: box_encoder(b, n, anchors=[]), "anchors"),
        (lambda b, n: box_encoder(b, n, anchors=ANCHORS, criteria=1.5), "criteria"),
        (lambda b, n: box_encoder(b, n, anchors=ANCHORS, stds=[1, 1, 0, 1]), "stds"),
        (lambda b, n: box_encoder(b, n, anchors=ANCHORS, means=[1, 1]), "means"),
    ],
)
def test_wrong_boxes(call: Any, text: str) -> None:
    with EvalMode.sync_cpu, pytest.raises(RuntimeError, match=text):
        call(random_boxes(3, np.random.default_rng(1)), np.int32([1, 2, 3]))
