# SPDX-License-Identifier: Apache-2.0
"""``segmentation.*`` against DALI's. See known_differences.md for what the cases avoid."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, assert_same, dali, ndd
from _raises import Raises, raising

Program = Callable[[Any], Any]
COUNT = 1024

POLYGONS = np.int32([[0, 0, 3], [1, 3, 6], [2, 6, 9], [7, 9, 11]])
VERTICES = np.arange(22, dtype=np.float32).reshape(11, 2)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("k", range(2))
@pytest.mark.parametrize("reindex", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        lambda m, **a: m.segmentation.select_masks(ids(1, 2), POLYGONS, VERTICES, **a),
        lambda m, **a: m.segmentation.select_masks(ids(7, 0, 2), POLYGONS, VERTICES, **a),
        lambda m, **a: m.segmentation.select_masks(ids(), POLYGONS, VERTICES, **a),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1, 1), POLYGONS, VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(5), POLYGONS, VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1)[None], POLYGONS, VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(np.int64([1]), POLYGONS, VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1), POLYGONS.astype(np.int64), VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1), POLYGONS[:, :2].copy(), VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1), np.int32([[1, 3, 60]]), VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1), np.int32([[1, -3, 6]]), VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1), np.int32([[1, 6, 3]]), VERTICES, **a)),
        raising(RuntimeError, lambda m, **a: m.segmentation.select_masks(ids(1), POLYGONS, VERTICES[:, 0].copy(), **a)),
        lambda m, **a: m.segmentation.select_masks(ids(1), POLYGONS, np.arange(33, dtype=np.uint8).reshape(11, 3), **a),
        lambda m, **a: m.segmentation.select_masks(ids(1), POLYGONS, VERTICES.astype(np.float64), **a),
        lambda m, **a: m.segmentation.select_masks(ids(0, 1), np.int32([[0, 0, 3], [1, 1, 3]]), VERTICES, **a),
        lambda m, **a: m.segmentation.select_masks(m.batch([ids(1), ids(2, 0)]), m.batch([POLYGONS] * 2), m.batch([VERTICES, VERTICES + 1]), **a),
        lambda m, **a: m.segmentation.select_masks(
            m.tensor(ids(1), layout="A"), m.tensor(POLYGONS, layout="BC"), m.tensor(VERTICES, layout="DE"), **a
        ),
    ],
)
def test_selected_masks(program: Callable[..., Any], reindex: bool, k: int, raises: Raises | None) -> None:
    assert_same(lambda m: program(m, reindex_masks=reindex)[k], raises=raises)


MASK = np.zeros((4, 5), np.int32)
MASK[1, 2], MASK[3, 4], MASK[2, 2] = 3, -1, 3


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.segmentation.random_mask_pixel(MASK),
        lambda m: m.segmentation.random_mask_pixel(MASK[..., None], foreground=1),
        lambda m: m.segmentation.random_mask_pixel(MASK[1], foreground=1),
        lambda m: m.segmentation.random_mask_pixel(m.batch([MASK, MASK[:2]]), foreground=m.batch([0, 1])),
        lambda m: m.segmentation.random_mask_pixel(m.tensor(MASK, layout="HW")),
        raising(RuntimeError, lambda m: m.segmentation.random_mask_pixel(MASK, threshold=1.0, value=1)),
        lambda m: m.segmentation.random_mask_pixel(MASK, batch_size=3),
        raising(TypeError, lambda m: m.segmentation.random_mask_pixel(MASK, seed=3)),
    ],
)
def test_forms_of_pixels(program: Program, raises: Raises | None) -> None:
    assert_alike(program, raises=raises)


def tally(module: Any, call: Callable[..., Any], **args: Any) -> Counter[tuple[int, ...]]:
    output = call(module, batch_size=COUNT, rng=module.random.RNG(seed=3), **args)
    output = output if isinstance(output, tuple) else (output,)
    rows = zip(*([tuple(np.asarray(sample).ravel().tolist()) for sample in result.tensors] for result in output), strict=True)
    return Counter(sum(row, ()) for row in rows)


def assert_as_likely(call: Callable[..., Any], **args: Any) -> None:
    """As often as in DALI, within one false alarm in 100000."""
    ours, theirs = (tally(module, call, **args) for module in (ndd, dali))
    for key in ours.keys() | theirs.keys():
        share = (ours[key] + theirs[key]) / (2 * COUNT)
        assert abs(ours[key] - theirs[key]) <= 4.5 * (2 * COUNT * max(share * (1 - share), 4 / COUNT)) ** 0.5, key
    assert sum(key not in theirs for key in ours) <= len(ours) // 20


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"foreground": 1},
        {"foreground": 1, "threshold": -2.0},
        {"foreground": 1, "value": -1},
        {"foreground": 1, "value": 9},
        {"foreground": 0, "value": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_distributions_of_pixels(args: dict[str, Any], dtype: str) -> None:
    assert_as_likely(lambda m, **a: m.segmentation.random_mask_pixel(MASK.astype(dtype), **a), **args)


LABELS = np.zeros((8, 9), np.int32)
LABELS[1:3, 1:4], LABELS[5:7, 5:8], LABELS[0:2, 6:8], LABELS[5, 0:2], LABELS[6, 2], LABELS[7, 8] = 1, 1, 2, 3, 3, 4
LABELS[3, 3], LABELS[4, 4] = 5, 5  # they touch at a corner: two objects


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"foreground_prob": 0.5},
        {"foreground_prob": -1.0},
        {"foreground_prob": 2.0},
        {"classes": [1, 2], "class_weights": [1.0, 3.0]},
        {"classes": [1, 2, 2]},
        {"class_weights": [1.0, 3.0]},
        {"class_weights": [1.0, 3.0, 0.0, 1.0, 7.0]},
        {"class_weights": [0.0, 0.0]},
        {"classes": [1, 2], "class_weights": [-1.0, 2.0]},
        {"classes": [0, 2]},
        {"classes": [0, 2], "foreground_prob": 0.0},
        {"classes": [1, 77]},
        {"classes": [77]},
        {"background": 1},
        {"background": 1, "class_weights": [5.0, 1.0, 0.0, 0.0]},
        {"threshold": 2},
        {"threshold": [1, 2]},
        {"threshold": 9},
        {"k_largest": 1},
        {"k_largest": 1, "threshold": 2},
        {"k_largest": 2},
    ],
    ids=str,
)
def test_distributions_of_objects(args: dict[str, Any]) -> None:
    assert_as_likely(lambda m, **a: m.segmentation.random_object_bbox(LABELS, output_class=True, format="box", **a), **args)


@pytest.mark.parametrize(
    "args", [{}, {"k_largest": 2}, {"threshold": 2}, {"background": 1}, {"foreground_prob": 0.3}, {"cache_objects": True}], ids=str
)
def test_distributions_of_objects_of_all_labels(args: dict[str, Any]) -> None:
    assert_as_likely(lambda m, **a: m.segmentation.random_object_bbox(LABELS, ignore_class=True, format="box", **a), **args)


@pytest.mark.parametrize("shape", [(24, 30), (6, 8, 10), (3, 4, 5, 6), (60,)])
def test_objects_of_random_masks(shape: tuple[int, ...]) -> None:
    mask = np.random.default_rng(1).integers(0, 3, shape).astype(np.uint8)
    ours, theirs = (
        set(tally(module, lambda m, **a: m.segmentation.random_object_bbox(mask, classes=[2], threshold=2, format="box", **a)))
        for module in (ndd, dali)
    )
    assert ours == theirs


@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.segmentation.random_object_bbox(LABELS, classes=[2], output_class=True),
        lambda m: m.segmentation.random_object_bbox(LABELS, classes=[2], output_class=True, format="start_end"),
        lambda m: m.segmentation.random_object_bbox(LABELS, classes=2, output_class=True),
        lambda m: m.segmentation.random_object_bbox(LABELS[0], classes=[2], output_class=True),
        lambda m: m.segmentation.random_object_bbox(LABELS[None], classes=[2], output_class=True),
        lambda m: m.segmentation.random_object_bbox(m.tensor(LABELS, layout="HW"), classes=[2], output_class=True),
        lambda m: m.segmentation.random_object_bbox(
            m.batch([LABELS, LABELS[:5]]), classes=m.batch([[2], [1, 2]]), threshold=2, output_class=True, k_largest=1
        ),
        lambda m: m.segmentation.random_object_bbox(LABELS[:0], output_class=True),
        lambda m: m.segmentation.random_object_bbox(LABELS, classes=[0, -5, 3], foreground_prob=0.0, output_class=True),
        lambda m: m.segmentation.random_object_bbox(LABELS, background=7, foreground_prob=0.0, output_class=True),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS, format="corners", output_class=True)),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS, k_largest=0, output_class=True)),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS, ignore_class=True, output_class=True)),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS, ignore_class=True, classes=[1])),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS, classes=[1, 2], class_weights=[1.0], output_class=True)),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS, classes=[1, 2], background=1, output_class=True)),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(LABELS.astype(np.float32), output_class=True)),
        raising(RuntimeError, lambda m: m.segmentation.random_object_bbox(np.int32(1), output_class=True)),
    ],
)
def test_forms_and_errors_of_objects(program: Program, k: int, raises: Raises | None) -> None:
    assert_alike(lambda m: program(m)[k], raises=raises)
