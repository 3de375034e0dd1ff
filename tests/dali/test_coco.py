# SPDX-License-Identifier: Apache-2.0
"""readers.COCO compared with DALI's, bitwise. known_differences.md lists where DALI crashes or hangs."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _dali_readers import ORDERS, assert_reader_raises, assert_same_epochs, dali, epochs

import torch_ndd as ndd

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # DALI's, about older names of arguments


def run_lengths(mask: np.ndarray) -> list[int]:
    flat = mask.flatten(order="F").astype(np.int8)
    ends = np.flatnonzero(np.diff(np.concatenate([[0], flat, [1 - flat[-1]]])))
    return np.diff(np.concatenate([[0], ends])).tolist()


@pytest.fixture
def annotations(tmp_path: Path) -> dict[str, Any]:
    """Annotations out of order, of several kinds, some without a category or an image."""
    for i in range(1, 6):
        (tmp_path / f"{i}.jpg").write_bytes(bytes([i]) * i)
    square = [[1, 1, 5, 1, 5, 5], [2, 2, 14, 2, 14, 8.5, 2, 8]]
    mask = np.zeros((10, 20))
    mask[2:7, 3:9] = 1
    lengths = {"size": [10, 20], "counts": run_lengths(mask)}

    def annotation(image: int, category: int, box: list[float], segmentation: Any = None, crowd: int = 0) -> dict[str, Any]:
        shape = {} if segmentation is None else {"segmentation": segmentation}
        return {"image_id": image, "category_id": category, "bbox": box, "iscrowd": crowd, **shape}

    document = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 20, "height": 10} for i in (3, 1, 5, 2, 4)],
        "annotations": [
            annotation(5, 3, [1, 2, 3, 4], square),
            annotation(1, 7, [5, 6, 7.25, 8.5], [square[1]]),
            annotation(3, 9, [0, 0, 0.05, 5], square),
            annotation(3, 9, [0, 0, 5, 0.1], []),
            annotation(5, 9, [1.5, 1, 9, 9], lengths, 1),
            annotation(77, 9, [1, 1, 2, 2]),
            annotation(4, 11, [1, 1, 2, 2]),
            annotation(4, 3, [1, 1, -2, 2]),
        ],
        "categories": [{"id": 7}, {"id": 3}, {"id": 9}],
    }
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(document))
    return {"annotations_file": str(path), "file_root": str(tmp_path)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ltrb": True},
        {"ratio": True},
        {"ltrb": True, "ratio": True, "image_ids": True},
        {"save_img_ids": True, "include_iscrowd": False},
        {"skip_empty": True},
        {"size_threshold": 5.0, "skip_empty": True},
        {"size_threshold": 0.0},
        {"avoid_class_remapping": True},
        {"polygon_masks": True},
        {"polygon_masks": True, "ratio": True, "image_ids": True},
        {"masks": True, "ltrb": True},
        {"masks": True, "polygon_masks": True},
        {"pixelwise_masks": True, "image_ids": True},
        {"pixelwise_masks": True, "avoid_class_remapping": True},
        {"images": ["5.jpg", "1.jpg", "5.jpg"], "image_ids": True},
        {"images": ["5.jpg", "none", "2.jpg"], "skip_empty": True},
    ],
    ids=str,
)
def test_every_option_of_annotations(annotations: dict[str, Any], options: dict[str, Any]) -> None:
    if "pixelwise_masks" in options:  # DALI crashes for annotations without a segmentation
        path = Path(annotations["annotations_file"])
        document = json.loads(path.read_text())
        document["annotations"] = [value for value in document["annotations"] if value.get("segmentation")]
        path.write_text(json.dumps(document))
    assert_same_epochs("COCO", None, {**annotations, **options}, count=1)


@pytest.mark.parametrize(("batch_size", "options"), ORDERS, ids=str)
def test_order_shards_and_padding(annotations: dict[str, Any], batch_size: int | None, options: dict[str, Any]) -> None:
    assert_same_epochs("COCO", batch_size, {**annotations, **options, "image_ids": True, "polygon_masks": True})


@pytest.mark.parametrize(
    "options",
    [
        {"file_root": None},
        {"annotations_file": None},
        {"annotations_file": "/nowhere.json"},
        {"file_root": "/nowhere"},
        {"images": ["none"]},
        {"polygon_masks": True, "pixelwise_masks": True},
        {"num_shards": 100},
    ],
    ids=str,
)
def test_wrong_arguments_are_rejected(annotations: dict[str, Any], options: dict[str, Any]) -> None:
    assert_reader_raises("COCO", {key: value for key, value in {**annotations, **options}.items() if value is not None}, RuntimeError)


@pytest.mark.parametrize("box", [[1, 2, 3], [1, 2, 3, 4, 5]])
def test_boxes_of_another_length(annotations: dict[str, Any], box: list[float]) -> None:
    document = json.loads(Path(annotations["annotations_file"]).read_text())
    document["annotations"][0]["bbox"] = box
    Path(annotations["annotations_file"]).write_text(json.dumps(document))
    assert_reader_raises("COCO", annotations, ValueError)


@pytest.mark.parametrize("module", [ndd, dali], ids=["of torch_ndd", "of DALI"])
def test_each_reads_what_the_other_has_preprocessed(annotations: dict[str, Any], tmp_path: Path, module: Any) -> None:
    folder = str(tmp_path / "meta")
    os.mkdir(folder)
    save = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": folder}
    epochs(module, "COCO", None, {**annotations, **save, "polygon_masks": True, "image_ids": True, "ltrb": True}, 1)
    read = {"preprocessed_annotations": folder, "file_root": annotations["file_root"]}
    assert_same_epochs("COCO", 2, read)
    assert_same_epochs("COCO", None, {**read, "polygon_masks": True, "image_ids": True})
    assert_same_epochs("COCO", None, {**read, "masks": True})
    for option in ({"ratio": True}, {"skip_empty": True}, {"images": ["1.jpg"]}, {"annotations_file": annotations["annotations_file"]}):
        assert_reader_raises("COCO", {**read, **option}, RuntimeError)


@pytest.mark.parametrize("module", [ndd, dali], ids=["of torch_ndd", "of DALI"])
@pytest.mark.parametrize("lengths", [False, True])
def test_each_reads_the_maps_of_labels_that_the_other_has_preprocessed(tmp_path: Path, module: Any, lengths: bool) -> None:
    shapes: list[Any] = [[[2, 1, 9, 1, 9, 7, 2, 7], [1, 1, 3.5, 1, 3, 3]], [[0, 0, 4, 0, 4, 9.25]]]
    if lengths:
        shapes += [{"size": [10, 20], "counts": [30, 5, 165]}, {"size": [10, 20], "counts": "n05U5"}]
    document = {
        "images": [{"id": 9 - k, "file_name": f"{k}.jpg", "width": 20, "height": 10} for k in range(4)],
        "annotations": [
            {"image_id": 9 - k % 3, "category_id": k % 3, "bbox": [1, 1, 5, 5], "segmentation": shapes[k % len(shapes)]} for k in range(11)
        ],
        "categories": [{"id": k} for k in range(3)],
    }
    (tmp_path / "maps.json").write_text(json.dumps(document))
    for k in range(4):
        (tmp_path / f"{k}.jpg").write_bytes(b"image %d" % k)
    folder = str(tmp_path / "meta")
    os.mkdir(folder)
    save = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": folder, "annotations_file": str(tmp_path / "maps.json")}
    values = {"file_root": str(tmp_path), "pixelwise_masks": True}
    epochs(module, "COCO", None, {**values, **save}, 1)
    read = {**values, "preprocessed_annotations": folder}
    assert_same_epochs("COCO", 2, read, count=1)
    from_json = list(ndd.readers.COCO(**values, annotations_file=str(tmp_path / "maps.json")).next_epoch())
    for ours, theirs in zip(ndd.readers.COCO(**read).next_epoch(), from_json, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("batch_size", "options"), [ORDERS[1], ORDERS[4]], ids=str)
def test_photographs_of_dali_extra(dali_extra: Path, batch_size: int, options: dict[str, Any]) -> None:
    folder = dali_extra / "db/coco"
    values = {"annotations_file": str(folder / "instances.json"), "file_root": str(folder / "images"), "image_ids": True, "polygon_masks": True}
    assert_same_epochs("COCO", batch_size, {**values, **options})


def test_maps_of_labels_of_photographs(dali_extra: Path) -> None:
    folder = dali_extra / "db/coco_pixelwise"
    values = {"annotations_file": str(folder / "instances.json"), "file_root": str(folder / "images"), "pixelwise_masks": True}
    assert_same_epochs("COCO", 2, values, count=1)
