# SPDX-License-Identifier: Apache-2.0
import importlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torch_ndd as ndd
from torch_ndd.readers import _coco_index
from torch_ndd.testing import assert_resumable


def document(images: int = 11) -> dict[str, Any]:
    return {
        "images": [{"id": 100 - i, "file_name": f"{i}.jpg", "width": 20, "height": 10} for i in range(images)],
        "annotations": [
            {"image_id": 100 - i, "category_id": i % 3, "bbox": [k, i, 5.5, 4], "segmentation": [[k, 1, 8, 1, 8, 6, k, 6]]}
            for i in range(images)
            for k in range(i % 4)
        ],
        "categories": [{"id": 2}, {"id": 0}, {"id": 1}],
    }


@pytest.fixture
def coco(tmp_path: Path) -> Callable[..., ndd.readers.COCO]:
    for i in range(11):
        (tmp_path / f"{i}.jpg").write_bytes(bytes([i]) * (i + 1))

    def make(content: Any = None, **options: Any) -> ndd.readers.COCO:
        path = tmp_path / "a.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content or document()))
        return ndd.readers.COCO(annotations_file=path, file_root=tmp_path, **options)

    return make


@pytest.fixture(params=["json", "simdjson"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "json":
        monkeypatch.setattr(_coco_index, "_parsed", lambda content: (None, json.loads(content)))
    else:
        pytest.importorskip("simdjson")
    return request.param


def test_outputs(coco: Callable[..., ndd.readers.COCO], parser: str) -> None:
    (images, boxes, labels, polygons, vertices, ids), *_ = coco(image_ids=True, polygon_masks=True).next_epoch(11)
    numbers = 100 - ids.torch().flatten().numpy()
    assert numbers.tolist() == list(range(10, -1, -1))  # by id
    for k, i in enumerate(numbers):
        assert images.select(k).torch().tolist() == [i] * (i + 1)
        assert boxes.select(k).torch().tolist() == [[n, i, 5.5, 4] for n in range(i % 4)]
        assert labels.select(k).torch().tolist() == [[2, 3, 1][i % 3]] * (i % 4)
        assert polygons.select(k).torch().tolist() == [[n, 4 * n, 4 * n + 4] for n in range(i % 4)]
        assert vertices.select(k).shape == (4 * (i % 4), 2)
    assert str(ndd.as_batch(images)._sources[0]).endswith("10.jpg")


@pytest.mark.parametrize("kind", ["polygon", "lengths", "compressed"])
def test_maps_of_labels(coco: Callable[..., ndd.readers.COCO], kind: str, parser: str) -> None:
    masks = importlib.import_module("pycocotools.mask")
    square = masks.merge(masks.frPyObjects([[2, 1, 9, 1, 9, 7, 2, 7]], 10, 20))
    with warnings.catch_warnings(action="ignore"):  # of pycocotools, about NumPy
        expected = masks.decode(square)
    lengths = np.diff(np.flatnonzero(np.diff(np.concatenate([[2], expected.ravel(order="F"), [2]])))).tolist()
    shape: Any = [[2, 1, 9, 1, 9, 7, 2, 7]]
    if kind != "polygon":
        shape = {"size": [10, 20], "counts": lengths if kind == "lengths" else square["counts"].decode()}
    content = document(1)
    content["annotations"] = [{"image_id": 100, "category_id": 0, "bbox": [1, 1, 5, 5], "segmentation": shape}]
    ((_, _, _, made),) = coco(content, pixelwise_masks=True).next_epoch()
    assert (made.layout, made.dtype, made.shape) == ("HWC", ndd.int32, (10, 20, 1))
    assert np.array_equal(np.asarray(made)[..., 0], expected.astype(np.int32) * 2)


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "polygon_masks": True}, {"pixelwise_masks": True}], ids=str)
def test_resume(coco: Callable[..., ndd.readers.COCO], options: dict[str, Any]) -> None:
    make = lambda rank, world, size: coco(max_batch_size=size, shard_id=rank, num_shards=world, image_ids=True, **options)  # noqa: E731
    assert assert_resumable(make, worlds=((1, 1), (1, 2), (2, 3), (3, 1))).cuts > 30


def changed(**values: Any) -> dict[str, Any]:
    content = document(3)
    content["annotations"][0].update(values)
    return content


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        ('{"images": [', RuntimeError, "no JSON"),
        ("", RuntimeError, "no JSON"),
        ("[1, 2]", RuntimeError, "no COCO"),
        ('{"images": 5}', RuntimeError, "no COCO"),
        ('{"images": [5]}', RuntimeError, "no COCO"),
        ('{"images": []}', RuntimeError, "No files found"),
        ({"images": [{"id": 1}]}, RuntimeError, "file_name"),
        ({"images": [{"file_name": "x"}]}, ValueError, "id is missing"),
        ({"images": [{"id": "1", "file_name": "x"}]}, RuntimeError, "id of an image must be an integer"),
        ({"images": [{"id": 2**40, "file_name": "x"}]}, RuntimeError, "32 bits"),
        (changed(bbox=[1, 2, 3]), ValueError, "exactly 4"),
        (changed(bbox=[1, 2, 3, "x"]), RuntimeError, "no COCO"),
        (changed(bbox=5), RuntimeError, "no COCO"),
        (changed(image_id=None), ValueError, "image_id is missing"),
        (changed(image_id=1.5), RuntimeError, "image_id must be an integer"),
        (changed(category_id=[1]), RuntimeError, "category_id must be an integer"),
        (changed(segmentation=[["x"]]), RuntimeError, "no COCO"),
    ],
    ids=str,
)
def test_other_files(coco: Callable[..., ndd.readers.COCO], content: Any, error: type[Exception], text: str, parser: str) -> None:
    with pytest.raises(error, match=text):
        next(coco(content, polygon_masks=True).next_epoch())


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"size": [10, 20], "counts": [3, 2]}, "do not fill"),
        ({"size": [5, 20], "counts": [50, 50]}, "the image"),
        ({"size": [10, 20], "counts": [300, -100]}, "do not fill"),
        ({"size": [10, 20], "counts": "~~~"}, "damaged"),
        ({"size": [10, 20], "counts": "oooooooooo"}, "damaged"),
        ([[1, 1, 1e300, 5, 5, 5]], "far beyond"),
    ],
    ids=str,
)
def test_damaged_masks(coco: Callable[..., ndd.readers.COCO], shape: Any, text: str) -> None:
    reader = coco(changed(segmentation=shape), pixelwise_masks=True)
    with pytest.raises(RuntimeError, match=rf"readers\.COCO: sample 0 \(.*1\.jpg\): its masks cannot be read: .*{text}"):
        list(reader.next_epoch())
    assert len(list(coco(changed(segmentation=shape), pixelwise_masks=True, on_error="skip"))) == 2


def test_missing_images(coco: Callable[..., ndd.readers.COCO], tmp_path: Path) -> None:
    reader = coco(on_error="skip", image_ids=True)
    (tmp_path / "4.jpg").unlink()
    assert [ids.item() for *_, ids in iter(reader)] == [100 - i for i in range(10, -1, -1) if i != 4]
    assert "4.jpg" in reader.errors[0].source


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"file_root": "/"}, "annotations_file or preprocessed"),
        ({"file_root": "/", "preprocessed_annotations": "/nowhere"}, "cannot be read"),
        ({"file_root": "/", "preprocessed_annotations": "/nowhere", "ratio": True}, "ratio is not supported"),
        ({"file_root": "/", "preprocessed_annotations": "/nowhere", "pixelwise_masks": True}, "pixelwise_masks"),
        ({"file_root": "/", "annotations_file": "/x", "save_preprocessed_annotations": True}, "_dir"),
    ],
    ids=str,
)
def test_misuse(options: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        next(ndd.readers.COCO(**options).next_epoch())


def test_damaged_preprocessed_annotations(coco: Callable[..., ndd.readers.COCO], tmp_path: Path) -> None:
    folder = tmp_path / "meta"
    folder.mkdir()
    list(coco(save_preprocessed_annotations=True, save_preprocessed_annotations_dir=folder, polygon_masks=True, image_ids=True).next_epoch())
    options = {"preprocessed_annotations": folder, "file_root": tmp_path, "polygon_masks": True, "image_ids": True}
    assert len(list(ndd.readers.COCO(**options).next_epoch())) == 11
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-3])
        if path.name == "filenames.dat":
            path.write_bytes(content.split(b"\n")[0] + b"\n")
        with pytest.raises(RuntimeError, match=r"damaged|do not fit"):
            next(ndd.readers.COCO(**options).next_epoch())
        path.write_bytes(content)
