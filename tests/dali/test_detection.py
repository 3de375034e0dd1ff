# SPDX-License-Identifier: Apache-2.0
"""Boxes and points against DALI's. See known_differences.md for what the cases avoid."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, assert_same, dali, evaluate, farthest, ndd, with_dtype
from _raises import Raises, raising

Program = Callable[[Any], Any]
COUNT = 1024  # a power of two: DALI rounds the batch size up and rejects arguments for the requested samples


def random_boxes(count: int, seed: int = 1) -> np.ndarray:
    corners = np.random.default_rng(seed).uniform(0, 1, (2, count, 2))
    return np.concatenate([corners.min(0), corners.max(0)], 1).astype(np.float32)


BOXES = random_boxes(6)
LABELS = np.arange(1, 7, dtype=np.int32)
POINTS = np.random.default_rng(2).normal(size=(5, 2)).astype(np.float32)


def assert_near(program: Program, tolerance: float = 2e-6, raises: Raises | None = None) -> None:
    """Check equality except for an absolute difference: DALI computes start and size from the ends."""
    assert_same(program, absolute=tolerance, raises=raises)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.bb_flip(BOXES),
        lambda m: m.bb_flip(BOXES, ltrb=True),
        lambda m: m.bb_flip(BOXES, vertical=1, horizontal=0),
        lambda m: m.bb_flip(BOXES, vertical=1, ltrb=True),
        lambda m: m.bb_flip(BOXES[0]),
        lambda m: m.bb_flip(BOXES.reshape(-1)),
        lambda m: m.bb_flip(BOXES[None]),
        lambda m: m.bb_flip(BOXES[:0]),
        lambda m: m.bb_flip(BOXES + 5),
        lambda m: m.bb_flip(BOXES, horizontal=2),
        lambda m: m.bb_flip(m.batch([BOXES, BOXES[:1]]), horizontal=m.batch([0, 1]), vertical=m.batch([1, 0])),
        raising(RuntimeError, lambda m: m.bb_flip(BOXES.astype(np.float64))),
        raising(RuntimeError, lambda m: m.bb_flip(BOXES.astype(np.int32))),
        raising(TypeError, lambda m: m.bb_flip(BOXES, ltrb=m.tensor(True))),
        lambda m: m.bbox_paste(BOXES, ratio=2.0),
        lambda m: m.bbox_paste(BOXES, ratio=3.0, ltrb=True, paste_x=0.0, paste_y=1.0),
        lambda m: m.bbox_paste(BOXES, ratio=0.5),
        lambda m: m.bbox_paste(BOXES, ratio=2.0, paste_x=2.0, paste_y=-1.0),
        lambda m: m.bbox_paste(BOXES[0], ratio=2.0),
        lambda m: m.bbox_paste(m.batch([BOXES, BOXES[:1]]), ratio=m.batch([2.0, 3.0]), paste_x=m.batch([0.0, 1.0]), paste_y=m.batch([0.3, 1.0])),
        raising(RuntimeError, lambda m: m.bbox_paste(np.zeros((2, 5), np.float32), ratio=2.0)),
        raising(RuntimeError, lambda m: m.bbox_paste(BOXES.astype(np.float64), ratio=2.0)),
        raising(TypeError, lambda m: m.bbox_paste(BOXES)),
    ],
)
def test_flipped_and_pasted_boxes(program: Program, raises: Raises | None) -> None:
    assert_near(program, raises=raises)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.coord_flip(POINTS),
        lambda m: m.coord_flip(POINTS, flip_x=0, flip_y=1, center_y=0.25),
        lambda m: m.coord_flip(POINTS, layout="yx", center_x=3.0),
        lambda m: m.coord_flip(np.ones((2, 3), np.float32), flip_z=1, center_z=1.0),
        lambda m: m.coord_flip(np.ones((2, 3), np.float32), flip_z=1, layout="zxy"),
        lambda m: m.coord_flip(np.ones((2, 1), np.float32), center_x=3.0),
        lambda m: m.coord_flip(POINTS[:0]),
        lambda m: m.coord_flip(m.batch([POINTS, POINTS[:1]]), flip_x=m.batch([1, 0]), center_x=m.batch([0.5, 0.1])),
        raising(RuntimeError, lambda m: m.coord_flip(POINTS[0])),
        raising(RuntimeError, lambda m: m.coord_flip(np.ones((2, 4), np.float32))),
        raising(RuntimeError, lambda m: m.coord_flip(POINTS, layout="ab")),
        raising(RuntimeError, lambda m: m.coord_flip(POINTS, layout="xx")),
        raising(RuntimeError, lambda m: m.coord_flip(POINTS.astype(np.int32))),
        raising(RuntimeError, lambda m: m.coord_flip(POINTS[None])),
        lambda m: m.coord_transform(POINTS),
        lambda m: m.coord_transform(POINTS, M=[1.0, 2.0, 3.0, 4.0]),
        lambda m: m.coord_transform(POINTS, M=np.float32([[1, 2], [3, 4], [5, 6]])),
        lambda m: m.coord_transform(POINTS, M=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        lambda m: m.coord_transform(POINTS, M=2.0),
        lambda m: m.coord_transform(POINTS, T=[1.0, 2.0]),
        lambda m: m.coord_transform(POINTS, T=1.0, M=[1.0, 2.0, 3.0, 4.0]),
        lambda m: m.coord_transform(POINTS, MT=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        lambda m: m.coord_transform(POINTS, MT=[1.0, 2.0, 3.0]),
        lambda m: m.coord_transform(np.arange(12, dtype=np.float32).reshape(2, 2, 3), M=np.eye(3, dtype=np.float32) * 3),
        lambda m: m.coord_transform(m.tensor(POINTS, layout="NX"), M=[1.0, 2.0, 3.0, 4.0]),
        lambda m: m.coord_transform(m.batch([POINTS, POINTS[:1]]), MT=m.batch(np.arange(12, dtype=np.float32).reshape(2, 2, 3))),
        raising(RuntimeError, lambda m: m.coord_transform(POINTS, T=[1.0, 2.0, 3.0])),
        raising(RuntimeError, lambda m: m.coord_transform(POINTS, M=[1.0, 2.0, 3.0, 4.0, 5.0])),
        raising(RuntimeError, lambda m: m.coord_transform(POINTS, MT=[1.0, 2.0, 3.0, 4.0, 5.0])),
        raising(RuntimeError, lambda m: m.coord_transform(POINTS, M=[1.0, 2.0, 3.0, 4.0], MT=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        raising(RuntimeError, lambda m: m.coord_transform(POINTS[0], M=[1.0, 2.0, 3.0, 4.0])),
        raising(
            RuntimeError, lambda m: m.coord_transform(m.batch([POINTS] * 2), M=m.batch([np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)]))
        ),
    ],
)
def test_flipped_and_transformed_points(program: Program, raises: Raises | None) -> None:
    assert_near(program, 4e-6, raises=raises)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32"])
def test_integer_points(dtype: str) -> None:
    array = np.arange(10, 30).reshape(10, 2).astype(dtype)
    for args in ({}, {"dtype": dtype}):
        assert_same(lambda m, args=args: m.coord_transform(array, M=np.float32([[1.5, 0.0], [0.25, 2.0]]), **with_dtype(m, args)))


@pytest.mark.parametrize(
    "args",
    [
        lambda m: {"M": m.per_frame(np.float32([[[1, 0], [0, 1]], [[2, 3], [0, 2]]]))},
        lambda m: {"MT": m.per_frame(np.float32([[[1, 0, 5], [0, 1, 6]], [[2, 3, 7], [0, 2, 8]]]))},
        lambda m: {"T": m.per_frame(np.float32([[1, 0], [0, 1]])), "M": np.float32([[1, 2], [3, 4]])},
        lambda m: {"T": m.per_frame(np.float32([[1, 0], [0, 1]])), "M": m.per_frame(np.float32([[[1, 0], [0, 1]], [[2, 3], [0, 2]]]))},
    ],
)
def test_points_with_frames(args: Callable[[Any], dict[str, Any]]) -> None:
    assert_near(lambda m: m.coord_transform(m.tensor(np.stack([POINTS, POINTS + 1]), layout="FNX"), **args(m)))
    assert_near(lambda m: m.coord_transform(POINTS, **args(m)))


ANCHORS = random_boxes(30, 3).ravel().tolist()


@pytest.mark.parametrize("k", range(2))
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"criteria": 0.2},
        {"criteria": 0.0},
        {"criteria": 1.0},
        {"offset": True},
        {"offset": True, "scale": 300.0, "means": [0.1, 0.2, 0.3, 0.4], "stds": [0.1, 0.1, 0.2, 0.2]},
        {"means": [0.1, 0.2, 0.3, 0.4], "stds": [0.1, 0.1, 0.2, 0.2]},
        raising(RuntimeError, {"criteria": 2.0}),
        raising(RuntimeError, {"criteria": -1.0}),
        raising(RuntimeError, {"stds": [0.0, 1.0, 1.0, 1.0]}),
        raising(RuntimeError, {"stds": [1.0, 1.0]}),
        raising(RuntimeError, {"means": [1.0, 1.0]}),
        raising(RuntimeError, {"anchors": [0.0, 1.0, 0.5]}),
        {"anchors": [0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5, 0.5]},
    ],
    ids=str,
)
def test_encoded_boxes(args: dict[str, Any], k: int, raises: Raises | None) -> None:
    args = {"anchors": ANCHORS, **args}
    tolerance = 2e-5  # differences of nearly equal numbers, divided by 0.1
    assert_near(lambda m: m.box_encoder(BOXES, LABELS, **args)[k], tolerance, raises=raises)
    assert_near(lambda m: m.box_encoder(m.batch([BOXES, BOXES[:1]]), m.batch([LABELS, LABELS[:1]]), **args)[k], tolerance, raises=raises)
    assert_near(lambda m: m.box_encoder(np.repeat(BOXES[:1], 3, 0), LABELS[:3, None].copy(), **args)[k], tolerance, raises=raises)
    assert_near(lambda m: m.box_encoder(BOXES[:0], LABELS[:0], **args)[k], tolerance, raises=raises)


def test_labels_of_many_boxes() -> None:
    for seed in range(20):
        value, anchors = random_boxes(8, seed), random_boxes(50, seed + 100).ravel().tolist()
        assert_same(lambda m, source=value, anchors=anchors: m.box_encoder(source, np.arange(1, 9, dtype=np.int32), anchors=anchors, criteria=0.3)[1])


SHAPE = [100, 200]


@pytest.mark.parametrize("angle", [0.0, 30.0, 44.0, 46.0, 90.0, 150.0, 180.0, -70.0, 400.0])
@pytest.mark.parametrize("mode", ["expand", "halfway", "fixed"])
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"keep_size": True},
        {"size": [50.0, 60.0]},
        {"bbox_normalized": False},
        {"bbox_normalized": False, "size": [150.0, 260.0]},
        {"remove_threshold": 0.6},
        {"remove_threshold": 0.0, "keep_size": True},
        {"bbox_layout": "xyWH"},
        {"shape_layout": "WH"},
    ],
    ids=str,
)
def test_turned_boxes(angle: float, mode: str, args: dict[str, Any]) -> None:
    array = BOXES * np.float32([200, 100, 200, 100]) if "bbox_normalized" in args else BOXES
    if "bbox_layout" in args:
        array = np.concatenate([array[:, :2], array[:, 2:] - array[:, :2]], 1)
    tolerance = 2e-4 if "bbox_normalized" in args else 2e-6
    for k in range(2):
        assert_near(lambda m, k=k: m.bbox_rotate(array, LABELS, angle=angle, mode=mode, input_shape=SHAPE, **args)[k], tolerance)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.bbox_rotate(BOXES, angle=30.0, input_shape=[100, 200, 3]),
        lambda m: m.bbox_rotate(BOXES, angle=30.0, input_shape=[3, 100, 200], shape_layout="CHW"),
        lambda m: m.bbox_rotate(m.batch([BOXES, BOXES[:1]]), angle=m.batch([30.0, 45.0]), input_shape=m.batch([[100, 200], [50, 60]])),
        lambda m: m.bbox_rotate(BOXES[:0], angle=30.0, input_shape=SHAPE),
        lambda m: m.bbox_rotate(BOXES, angle=float("nan"), input_shape=SHAPE, keep_size=True),
        lambda m: m.bbox_rotate(BOXES, LABELS[:, None].copy(), angle=30.0, input_shape=SHAPE)[1],
        raising(RuntimeError, lambda m: m.bbox_rotate(BOXES, LABELS[:1], angle=30.0, input_shape=SHAPE)[1]),
        raising(RuntimeError, lambda m: m.bbox_rotate(BOXES, angle=30.0, input_shape=SHAPE, mode="junk")),
        raising(RuntimeError, lambda m: m.bbox_rotate(BOXES, angle=30.0, input_shape=SHAPE, bbox_layout="yxYX")),
        raising(RuntimeError, lambda m: m.bbox_rotate(BOXES, angle=30.0, input_shape=SHAPE, remove_threshold=2.0)),
        raising(RuntimeError, lambda m: m.bbox_rotate(BOXES, angle=30.0, input_shape=SHAPE, keep_size=True, size=[5.0, 5.0])),
        raising(RuntimeError, lambda m: m.bbox_rotate(BOXES.astype(np.float64), angle=30.0, input_shape=SHAPE)),
        raising(TypeError, lambda m: m.bbox_rotate(BOXES, angle=30.0)),
    ],
)
def test_arguments_of_turned_boxes(program: Program, raises: Raises | None) -> None:
    assert_near(program, raises=raises)


CROP: dict[str, Any] = {"num_attempts": 10, "quiet": True}
TWO = np.float32([[0.1, 0.1, 0.3, 0.3], [0.6, 0.6, 0.9, 0.9]])


@pytest.mark.parametrize("k", range(5))
@pytest.mark.parametrize(
    "program",
    [
        lambda m, **a: m.random_bbox_crop(TWO, LABELS[:2], output_bbox_indices=True, rng=m.random.RNG(seed=1), **a),
        lambda m, **a: m.random_bbox_crop(TWO, LABELS[:2], output_bbox_indices=True, input_shape=[480, 480], shape_layout="HW", **a),
        lambda m, **a: m.random_bbox_crop(TWO, LABELS[:2], output_bbox_indices=True, bbox_layout="yxYX", **a),
        lambda m, **a: m.random_bbox_crop(TWO, LABELS[:2], output_bbox_indices=True, ltrb=True, **a),
        lambda m, **a: m.random_bbox_crop(m.batch([TWO, TWO]), m.batch([LABELS[:2, None].copy()] * 2), output_bbox_indices=True, **a),
    ],
)
def test_outputs_of_a_window_that_is_the_image(program: Callable[..., Any], k: int) -> None:
    assert_same(lambda m: program(m, bbox_prune_threshold=0.0, **CROP)[k])


@pytest.mark.parametrize(
    "args",
    [
        raising(RuntimeError, {"threshold_type": "foo"}),
        raising(RuntimeError, {"thresholds": [2.0]}),
        raising(RuntimeError, {"thresholds": [-1.0]}),
        raising(RuntimeError, {"thresholds": []}),
        raising(RuntimeError, {"aspect_ratio": [1.0]}),
        raising(RuntimeError, {"aspect_ratio": [2.0, 1.0]}),
        raising(RuntimeError, {"scaling": [0.5]}),
        raising(RuntimeError, {"scaling": [0.5, 0.1]}),
        raising(RuntimeError, {"scaling": [-1.0, 1.0]}),
        raising(RuntimeError, {"num_attempts": 0}),
        raising(RuntimeError, {"total_num_attempts": 0}),
        raising(RuntimeError, {"bbox_prune_threshold": 2.0}),
        raising(RuntimeError, {"bbox_layout": "abcd"}),
        raising(RuntimeError, {"bbox_layout": "xyWH", "ltrb": True}),
        raising(RuntimeError, {"crop_shape": [100, 200]}),
        raising(RuntimeError, {"crop_shape": [100, 200], "input_shape": [480, 640], "scaling": [0.5, 1.0]}),
        raising(RuntimeError, {"crop_shape": [100, 200], "input_shape": [480, 640], "aspect_ratio": [0.5, 1.0]}),
        raising(RuntimeError, {"input_shape": [480, 640, 3]}),
        raising(RuntimeError, {"input_shape": [480, 640, 3], "shape_layout": "HWC"}),
        raising(TypeError, {"seed": 3}),
    ],
    ids=str,
)
def test_errors_of_windows(args: dict[str, Any], raises: Raises | None) -> None:
    assert_alike(lambda m: m.random_bbox_crop(TWO, LABELS[:2], rng=m.random.RNG(seed=1), **{**CROP, **args})[0], raises=raises)


@pytest.mark.parametrize(
    "wrong", [TWO * 2, TWO.astype(np.float64), TWO[0], np.zeros((2, 5), np.float32), -TWO], ids=["outside", "double", "one", "five", "negative"]
)
def test_wrong_boxes_of_windows(wrong: np.ndarray) -> None:
    assert_alike(lambda m: m.random_bbox_crop(wrong, rng=m.random.RNG(seed=1), **CROP)[0], raises=RuntimeError)


def windows(module: Any, boxes: np.ndarray, **args: Any) -> np.ndarray:
    """Return anchor, shape and number of boxes of many windows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = module.random_bbox_crop(boxes, batch_size=COUNT, rng=module.random.RNG(seed=3), quiet=True, **args)
    anchors, shapes, left = (list(result.tensors) for result in output)
    counts = np.array([[len(np.asarray(value))] for value in left])
    return np.concatenate(
        [np.stack([np.asarray(anchor) for anchor in anchors]), np.stack([np.asarray(shape) for shape in shapes]), counts], 1
    ).astype(np.float64)


@pytest.mark.parametrize(
    "args",
    [
        {"scaling": [0.3, 1.0], "aspect_ratio": [0.5, 2.0], "allow_no_crop": False},
        {"scaling": [0.3, 0.9], "aspect_ratio": [0.8, 1.0], "thresholds": [0.0, 0.05]},
        {"scaling": [0.3, 0.9]},
        {"scaling": [0.3, 0.9], "aspect_ratio": [2.0, 2.0], "all_boxes_above_threshold": False, "thresholds": [0.2], "num_attempts": 5},
        {"scaling": [0.3, 0.9], "aspect_ratio": [0.5, 2.0], "input_shape": [640, 320], "allow_no_crop": False},
        {"scaling": [0.3, 0.9], "input_shape": [320, 640], "allow_no_crop": False},
        {"scaling": [0.3, 1.5], "aspect_ratio": [0.5, 2.0], "allow_no_crop": False, "bbox_prune_threshold": 0.3},
        {"scaling": [0.3, 0.9], "threshold_type": "overlap", "thresholds": [0.3, 0.8], "all_boxes_above_threshold": False, "num_attempts": 3},
        {"scaling": [0.2, 1.0], "thresholds": [0.95], "num_attempts": 3, "total_num_attempts": 6, "allow_no_crop": False},
        {"scaling": [0.2, 1.0], "thresholds": [0.95], "num_attempts": 3, "total_num_attempts": 6, "all_boxes_above_threshold": False},
        {"crop_shape": [200, 300], "input_shape": [640, 480], "bbox_prune_threshold": 0.1},
        {"crop_shape": [800, 300], "input_shape": [640, 480]},
    ],
    ids=str,
)
def test_distributions_of_windows(args: dict[str, Any]) -> None:
    for boxes in (TWO, TWO[:0]):
        if not len(boxes) and "total_num_attempts" in args:
            continue
        ours, theirs = windows(ndd, boxes, **args), windows(dali, boxes, **args)
        limit = 2.3 * (2 / COUNT) ** 0.5  # exceeded once in 20000
        for k in range(5):
            assert farthest(ours[:, k], theirs[:, k]) < limit
        assert farthest(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3]) < limit


def test_boxes_in_windows_are_dalis() -> None:
    """For DALI's own windows, DALI's boxes equal those of our formula."""
    output = dali.random_bbox_crop(
        BOXES, batch_size=256, rng=dali.random.RNG(seed=3), scaling=[0.3, 1.0], aspect_ratio=[0.5, 2.0], output_bbox_indices=True
    )
    for anchor, shape, left, numbers in zip(*([np.asarray(sample) for sample in result.tensors] for result in output), strict=True):
        whole = shape.tolist() == [1, 1]
        expected = np.clip((BOXES - np.tile(anchor, 2)) / np.tile(shape, 2), 0, 1)
        centers = (BOXES[:, :2] + BOXES[:, 2:]) / 2
        kept = whole | ((centers >= anchor) & (centers <= anchor + shape)).all(1)
        assert numbers.tolist() == np.flatnonzero(kept).tolist()
        np.testing.assert_allclose(left, expected[kept], atol=2e-6)


@pytest.mark.parametrize("dims", [2, 3])
def test_distributions_in_space(dims: int) -> None:
    boxes = np.float32([[0.2, 0.2, 0.2, 0.5, 0.6, 0.7]])
    args: dict[str, Any] = {"scaling": [0.4, 1.0], "allow_no_crop": False}
    args["aspect_ratio"] = [0.5, 2.0] if dims == 2 else [0.5, 1.0, 0.8, 2.0, 1.0, 3.0]
    ours, theirs = windows(ndd, boxes, **args), windows(dali, boxes, **args)
    for k in range(7):
        assert farthest(ours[:, k], theirs[:, k]) < 2.3 * (2 / COUNT) ** 0.5


def test_dump_image(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.random.default_rng(1).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    monkeypatch.chdir(tmp_path)
    for program, raises in (
        (lambda m: m.dump_image(m.batch([image, image[:3]]), suffix="a"), None),
        (lambda m: m.dump_image(image[..., :1].copy(), suffix="b"), None),
        (lambda m: m.dump_image(m.tensor(image, layout="HWC")), None),
        (lambda m: m.dump_image(image, input_layout="CHW"), RuntimeError),
        (lambda m: m.dump_image(image.astype(np.float32)), RuntimeError),
        (lambda m: m.dump_image(image[..., 0].copy()), RuntimeError),
        (lambda m: m.dump_image(np.zeros((3, 3, 4), np.uint8)), RuntimeError),
        (lambda m: m.dump_image(image, suffix="no/such/folder"), RuntimeError),
    ):
        assert_same(program, raises=raises)
        files = []
        for module in (dali, ndd):
            for path in tmp_path.iterdir():
                path.unlink()
            with suppress(raises or ()):
                evaluate(program, module)
            files.append(sorted(path.name for path in tmp_path.iterdir()))
        assert files[0] == files[1]
