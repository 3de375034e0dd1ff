# SPDX-License-Identifier: Apache-2.0
"""Bounding boxes, points and masks."""

import functools
import importlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._case import DATA, Case

_BATCH, _BOXES = 64, 20


def _boxes() -> np.ndarray:
    corners = np.random.default_rng(1).uniform(0, 1, (2, _BATCH, _BOXES, 2))
    return np.concatenate([corners.min(0), corners.max(0)], 2).astype(np.float32)


def _points() -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 640, (_BATCH, 100, 2)).astype(np.float32)


def _masks() -> np.ndarray:
    """40 ellipses of five classes in VGA images."""
    generator, rows, columns = np.random.default_rng(1), *np.mgrid[:480, :640]
    masks = np.zeros((16, 480, 640), np.int32)
    for mask in masks:
        for label in range(40):
            y, x, height, width = generator.uniform(0, [480, 640, 60, 60])
            mask[((rows - y) / (height + 5)) ** 2 + ((columns - x) / (width + 5)) ** 2 < 1] = 1 + label % 5
    return masks


def _polygons() -> np.ndarray:
    """A row for each polygon: its mask, its first vertex, and the one behind its last."""
    return np.stack([np.arange(30), np.arange(30) * 20, np.arange(30) * 20 + 20], 1).astype(np.int32)[None].repeat(_BATCH, 0)


DATA.update({"boxes": _boxes, "points": _points, "masks": _masks, "polygons": _polygons})


def _anchors() -> Iterator[float]:
    """The 8732 anchors of SSD300 (Liu et al., 2016)."""
    sizes = (21, 45, 99, 153, 207, 261, 315)
    for k, (cells, ratios) in enumerate(zip((38, 19, 10, 5, 3, 1), ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)), strict=True)):
        side, between = sizes[k] / 300, (sizes[k] * sizes[k + 1]) ** 0.5 / 300
        shapes = [(side, side), (between, between)]
        for ratio in ratios:
            shapes += [(side * ratio**0.5, side / ratio**0.5), (side / ratio**0.5, side * ratio**0.5)]
        for y, x, (width, height) in itertools.product(range(cells), range(cells), shapes):
            center_x, center_y = (x + 0.5) / cells, (y + 0.5) / cells
            yield from (
                max(0.0, center_x - width / 2),
                max(0.0, center_y - height / 2),
                min(1.0, center_x + width / 2),
                min(1.0, center_y + height / 2),
            )


ANCHORS = list(_anchors())


@functools.cache
def _labels(module: str, samples: int) -> Any:
    ndd = importlib.import_module(module)
    return ndd.batch(np.arange(samples * _BOXES, dtype=np.int32).reshape(samples, _BOXES)).evaluate()


@functools.cache
def _vertices(module: str, samples: int) -> Any:
    ndd = importlib.import_module(module)
    return ndd.batch(np.random.default_rng(1).uniform(0, 640, (samples, 600, 2)).astype(np.float32)).evaluate()


@functools.cache
def _masks_chosen(module: str, samples: int) -> Any:
    ndd = importlib.import_module(module)
    return ndd.batch(np.array([[3, 1, 17, 28, 9]] * samples, np.int32)).evaluate()


@functools.cache
def _folder() -> str:
    return tempfile.mkdtemp()


def _dump(ndd: Any, x: Any) -> Any:
    os.chdir(_folder())
    return ndd.dump_image(x, suffix="bench")


def _objects(x: np.ndarray) -> np.ndarray:
    ndimage = importlib.import_module("scipy.ndimage")
    rows, columns = ndimage.find_objects(ndimage.label(x == 1)[0])[0]
    return np.array([rows.start, columns.start, rows.stop, columns.stop], np.int32)


CASES = (
    Case(
        "bb_flip, 64x20 boxes",
        ndd=lambda ndd, types, x: ndd.bb_flip(x, ltrb=True),
        np=lambda x: np.stack([1 - x[:, 2], x[:, 1], 1 - x[:, 0], x[:, 3]], 1),
        data="boxes",
    ),
    Case(
        "bbox_paste, 64x20 boxes",
        ndd=lambda ndd, types, x: ndd.bbox_paste(x, ratio=1.5, ltrb=True),
        np=lambda x: x / np.float32(1.5) + np.float32(1 / 6),
        data="boxes",
    ),
    Case(
        "bbox_rotate, 64x20 boxes",
        ndd=lambda ndd, types, x: ndd.bbox_rotate(x, angle=30.0, input_shape=[480, 640], keep_size=True),
        data="boxes",
    ),
    Case(
        "box_encoder, 64x20 boxes, 8732 anchors",
        ndd=lambda ndd, types, x: ndd.box_encoder(x, _labels(ndd.__name__, x.batch_size), anchors=ANCHORS)[0],
        data="boxes",
    ),
    Case(
        "random_bbox_crop, 64x20 boxes",
        ndd=lambda ndd, types, x: ndd.random_bbox_crop(
            x,
            _labels(ndd.__name__, x.batch_size),
            scaling=[0.3, 1.0],
            aspect_ratio=[0.5, 2.0],
            thresholds=[0.1, 0.3, 0.5],
            threshold_type="overlap",
            all_boxes_above_threshold=False,
            num_attempts=20,
        )[2],
        data="boxes",
    ),
    Case(
        "coord_flip, 64x100 points",
        ndd=lambda ndd, types, x: ndd.coord_flip(x, flip_y=1),
        np=lambda x: 1 - x,
        data="points",
    ),
    Case(
        "coord_transform, 64x100 points",
        ndd=lambda ndd, types, x: ndd.coord_transform(x, MT=[0.8, 0.1, 5.0, -0.2, 1.1, 7.0]),
        np=lambda x: x @ np.array([[0.8, -0.2], [0.1, 1.1]], np.float32) + np.array([5, 7], np.float32),
        data="points",
    ),
    Case(
        "segmentation.select_masks, 64x30 polygons",
        ndd=lambda ndd, types, x: ndd.segmentation.select_masks(_masks_chosen(ndd.__name__, x.batch_size), x, _vertices(ndd.__name__, x.batch_size))[
            1
        ],
        data="polygons",
    ),
    Case(
        "segmentation.random_mask_pixel",
        ndd=lambda ndd, types, x: ndd.segmentation.random_mask_pixel(x, foreground=1),
        np=lambda x: np.argwhere(x > 0)[7],
        data="masks",
    ),
    Case(
        "segmentation.random_object_bbox",
        ndd=lambda ndd, types, x: ndd.segmentation.random_object_bbox(x, format="box"),
        np=_objects,
        data="masks",
    ),
    Case("dump_image", ndd=lambda ndd, types, x: _dump(ndd, x)),
)
