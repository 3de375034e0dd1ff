# SPDX-License-Identifier: Apache-2.0
import contextlib
import importlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CI, WHOLE

import torch_ndd as ndd
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


def test_outputs_follow_the_options(coco: Callable[..., ndd.readers.COCO]) -> None:
    (images, boxes, labels, polygons, vertices, ids), *_ = coco(image_ids=True, polygon_masks=True).next_epoch(11)
    numbers = 100 - ids.torch().flatten().numpy()
    assert numbers.tolist() == list(range(10, -1, -1))  # by id
    for k, i in enumerate(numbers):
        assert images.select(k).torch().tolist() == [i] * (i + 1)
        assert boxes.select(k).torch().tolist() == [[n, i, 5.5, 4] for n in range(i % 4)]
        assert labels.select(k).torch().tolist() == [[2, 3, 1][i % 3]] * (i % 4)
        assert polygons.select(k).torch().tolist() == [[n, 4 * n, 4 * n + 4] for n in range(i % 4)]
        assert vertices.select(k).shape == (4 * (i % 4), 2)
    assert str(ndd.as_batch(images).sources[0]).endswith("10.jpg")


@pytest.mark.parametrize("kind", ["polygon", "lengths", "compressed"])
def test_maps_of_labels(coco: Callable[..., ndd.readers.COCO], kind: str) -> None:
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
    ((_, _, _, result),) = coco(content, pixelwise_masks=True).next_epoch()
    assert (result.layout, result.dtype, result.shape) == ("HWC", ndd.int32, (10, 20, 1))
    assert np.array_equal(np.asarray(result)[..., 0], expected.astype(np.int32) * 2)


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "polygon_masks": True}, {"pixelwise_masks": True}], ids=str)
def test_resumes_anywhere(coco: Callable[..., ndd.readers.COCO], options: dict[str, Any]) -> None:
    make = lambda rank, world, size: coco(max_batch_size=size, shard_id=rank, num_shards=world, image_ids=True, **options)  # noqa: E731
    assert assert_resumable(make, worlds=((1, 1), (1, 2), (2, 3), (3, 1))).cuts > 30


def change(**values: Any) -> dict[str, Any]:
    content = document(3)
    content["annotations"][0].update(values)
    return content


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        ('{"images": [', RuntimeError, "is not valid JSON"),
        ("", RuntimeError, "is not valid JSON"),
        ("[1, 2]", RuntimeError, "is not a COCO file"),
        ('{"images": 5}', RuntimeError, "is not a COCO file"),
        ('{"images": [5]}', RuntimeError, "is not a COCO file"),
        ('{"images": []}', RuntimeError, "No files found"),
        ({"images": [{"id": 1}]}, RuntimeError, "file_name"),
        ({"images": [{"file_name": "x"}]}, ValueError, "id is missing"),
        ({"images": [{"id": "1", "file_name": "x"}]}, RuntimeError, "id of an image must be an integer"),
        ({"images": [{"id": 2**63, "file_name": "x"}]}, RuntimeError, "64 bits"),
        (change(bbox=[1, 2, 3]), ValueError, "exactly 4"),
        (change(bbox=[1, 2, 3, "x"]), RuntimeError, "is not a COCO file"),
        (change(bbox=5), RuntimeError, "is not a COCO file"),
        (change(image_id=None), ValueError, "image_id is missing"),
        (change(image_id=1.5), RuntimeError, "image_id must be an integer"),
        (change(category_id=[1]), RuntimeError, "category_id must be an integer"),
        (change(segmentation=[["x"]]), RuntimeError, "is not a COCO file"),
    ],
    ids=str,
)
def test_other_files(coco: Callable[..., ndd.readers.COCO], content: Any, error: type[Exception], text: str) -> None:
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
    reader = coco(change(segmentation=shape), pixelwise_masks=True)
    with pytest.raises(RuntimeError, match=rf"readers\.COCO: sample 0 \(.*1\.jpg\): its masks cannot be read: .*{text}"):
        list(reader.next_epoch())
    assert len(list(coco(change(segmentation=shape), pixelwise_masks=True, on_error="skip"))) == 2


@pytest.mark.parametrize("masks", ["pixelwise_masks", "object_masks"])
@pytest.mark.parametrize(
    ("height", "objects", "text"),
    [
        (2**31 - 1, 1, f"{2**31 - 1} x 20 pixels ha.* more than max_sample_bytes=4294967296"),
        (10_000_000, 22, "22 masks .* 4400000000 bytes, more than"),
    ],
    ids=str,
)
def test_huge_sizes(coco: Callable[..., ndd.readers.COCO], masks: str, height: int, objects: int, text: str) -> None:
    content = document(3)
    content["images"][0]["height"] = height
    shape = {"size": [10, 20], "counts": [0, 200]}
    content["annotations"] = [{"image_id": 100, "category_id": 0, "bbox": [1, 1, 5, 5], "segmentation": shape}] * objects
    if objects > 1 and masks == "pixelwise_masks":
        pytest.skip("one map for all objects")
    with pytest.raises(RuntimeError, match=rf"readers\.COCO: sample \d \(.*0\.jpg\): its masks cannot be read: .*{text}"):
        list(coco(content, **{masks: True}).next_epoch())


@pytest.mark.parametrize(("masks", "size"), [("pixelwise_masks", 800), ("object_masks", 200)])
def test_max_sample_bytes_bounds_masks(coco: Callable[..., ndd.readers.COCO], masks: str, size: int) -> None:
    content = document(1)
    content["annotations"] = [{"image_id": 100, "category_id": 0, "bbox": [1, 1, 5, 5], "segmentation": {"size": [10, 20], "counts": [0, 200]}}]
    assert list(coco(content, **{masks: True}, max_sample_bytes=size).next_epoch())
    with pytest.raises(RuntimeError, match=f"{size} bytes, more than max_sample_bytes={size - 1}"):
        list(coco(content, **{masks: True}, max_sample_bytes=size - 1).next_epoch())


ONE = {"id": 1, "file_name": "x", "width": 20, "height": 10}


def load(text: str | bytes, folder: Path, **options: Any) -> tuple[list[str], list[Any]]:
    """Names of the images and what stands in the boxes."""
    path = folder / "loaded.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    reader = ndd.readers.COCO(annotations_file=path, file_root=folder, **options)
    count = reader.get_metadata()["epoch_size"]
    index = reader.index
    assert index is not None
    return [Path(reader._source(k)).name for k in range(count)], index.boxes.tolist()


@pytest.mark.parametrize("name", ["a.jpg", "\u00e4\u4e2d\U0001f600.jpg", 'quote".jpg', "back\\slash", "tab\t\b\f\r\n\x7f.jpg", "\x01"], ids=ascii)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_names_in_json(tmp_path: Path, name: str, ascii_only: bool) -> None:
    text = json.dumps({"images": [{**ONE, "file_name": name}]}, ensure_ascii=ascii_only)
    assert load(text, tmp_path)[0] == [name]
    assert load(b"\xef\xbb\xbf" + json.dumps(json.loads(text), indent=1).encode() + b"\r\n\t ", tmp_path)[0] == [name]


def test_numbers_in_json(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [
        "0",
        "-0",
        "1e3",
        "1E+2",
        "0.1",
        "1e-400",
        "-0.0e5",
        "123456789012345678",
        "12345678901234567890",
        "0.3333333333333333333333333",
        "2e-45",
    ]
    texts += [repr(value) for value in (draw.standard_normal(3000) * 10.0 ** draw.integers(-30, 30, 3000)).tolist()]
    texts += [f"{value:.2f}" for value in draw.uniform(-9999, 9999, 3000).tolist()]
    texts = texts[: len(texts) // 4 * 4]
    boxes = ",".join(f'{{"image_id": 1, "bbox": [{",".join(texts[k : k + 4])}]}}' for k in range(0, len(texts), 4))
    _, found = load(f'{{"annotations": [{boxes}], "images": [{json.dumps(ONE)}]}}', tmp_path, size_threshold=-1e38)
    assert np.array_equal(np.array(found, np.float32).ravel(), np.array([float(text) for text in texts]).astype(np.float32))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 01}', '{"a": 1.}', '{"a": .5}', '{"a": +1}', '{"a": 1e}', '{"a": -}', '{"a": NaN}', '{"a": tru}', '{"a": nul', '{"a" 1}',
        '{"a": 1,}', '{"a": [1,]}', '{"a": [1 2]}', "{a: 1}", '{"a": 1} x', '{"a": "\\x"}', '{"a": "\\u12g4"}', '{"a": "\\u12',
        '{"a": "\n"}', '{"a": "', '{"images": [{"file_name": "\\ud800"}]}', '{"\\udc00": 1}', b'{"a": "\xff"}', b'{"a": "\xc0\x80"}',
        b'{"a": "\xed\xa0\x80"}', b'{"a": "\xf4\x90\x80\x80"}', b'{"a": "\xe4', '{"a": "\0"}', '{"a": 1}\0', "[" * 5000,
        '{"a": ' + "[" * 5000,
    ],
    ids=ascii,
)  # fmt: skip
def test_no_json(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(RuntimeError, match=r"not valid JSON: .* at byte \d+$|not a COCO file: the document must be an object at byte 0"):
        load(text, tmp_path)


def test_as_the_json_module(tmp_path: Path) -> None:
    """Invalid documents are rejected; accepted ones are JSON, except for NaN and infinity."""
    content = json.dumps({**document(4), "x": [None, True, -1.5e3, "\u00e4\n"]}, ensure_ascii=False).encode()
    draw = np.random.default_rng(1)
    same = 0
    for _ in range(1500):
        result = bytearray(content)
        for _ in range(draw.integers(1, 4)):
            place = int(draw.integers(len(result)))
            kind = draw.integers(4)
            if kind == 0:
                result[place] = int(draw.integers(256))
            elif kind == 1:
                del result[place : place + int(draw.integers(1, 9))]
            elif kind == 2:
                result[place:place] = draw.choice([b'"', b"\\", b"0", b",", b"[", b"}", b"e9", b"null", b"\\u00e4", b"\xc3"])
            else:
                result[place] ^= 1 << int(draw.integers(8))
        try:
            json.loads(bytes(result).decode("utf-8"))
            valid = True
        except ValueError:
            valid = False
        try:
            load(bytes(result), tmp_path)
            refused = ""
        except (RuntimeError, ValueError) as error:
            refused = str(error)
        assert valid or refused, result
        same += valid == ("is not valid JSON" not in refused)
        assert not valid or "is not valid JSON" not in refused or "too large" in refused or "surrogates" in refused, (result, refused)
    assert same > 1000


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
        ({"file_root": "/", "preprocessed_annotations": "/nowhere", "pixelwise_masks": True}, "cannot be read"),
        ({"file_root": "/", "annotations_file": "/x", "save_preprocessed_annotations": True}, "_dir"),
    ],
    ids=str,
)
def test_bad_arguments_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        next(ndd.readers.COCO(**options).next_epoch())


@pytest.mark.parametrize("masks", ["polygon_masks", "pixelwise_masks"])
def test_damaged_preprocessed_annotations(coco: Callable[..., ndd.readers.COCO], tmp_path: Path, masks: str) -> None:
    folder = tmp_path / "meta"
    folder.mkdir()
    content = document()
    if masks == "pixelwise_masks":
        content["annotations"][1]["segmentation"] = {"size": [10, 20], "counts": [30, 5, 165]}
    list(coco(content, save_preprocessed_annotations=True, save_preprocessed_annotations_dir=folder, image_ids=True, **{masks: True}).next_epoch())
    # A damaged width makes a large mask.
    options = {"preprocessed_annotations": folder, "file_root": tmp_path, "image_ids": True, "max_sample_bytes": 1 << 24, masks: True}
    assert len(list(ndd.readers.COCO(**options).next_epoch())) == 11
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-3])
        if path.name == "filenames.dat":
            path.write_bytes(content.split(b"\n")[0] + b"\n")
        with pytest.raises(RuntimeError, match=r"damaged|do not fit"):
            next(ndd.readers.COCO(**options).next_epoch())
        draw = np.random.default_rng(0)
        for _ in range(20 if CI or WHOLE else 5):  # an error or other numbers, but no crash
            damaged = bytearray(content)
            damaged[draw.integers(len(damaged))] = draw.integers(256)
            path.write_bytes(damaged)
            with contextlib.suppress(RuntimeError):
                list(ndd.readers.COCO(**options).next_epoch())
        path.write_bytes(content)


def test_absolute_names_are_taken_as_they_are(coco: Callable[..., ndd.readers.COCO], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.jpg").write_bytes(b"X")
    content = {"images": [{"id": 1, "file_name": str(tmp_path / "elsewhere" / "x.jpg")}, {"id": 2, "file_name": "0.jpg"}], "annotations": []}
    reader = coco({**content, "categories": []})
    assert [bytes(np.asarray(image)) for image, *_ in reader.next_epoch()] == [b"X", b"\0"]


def test_ids_may_have_64_bits(coco: Callable[..., ndd.readers.COCO]) -> None:
    large = 2**53 + 1  # which no double holds
    images = [{"id": large + 1, "file_name": "1.jpg"}, {"id": large, "file_name": "0.jpg"}, {"id": -large, "file_name": "2.jpg"}]
    content = {"images": images, "annotations": [{"image_id": large, "category_id": 2**62, "bbox": [1, 2, 3, 4]}], "categories": [{"id": 2**62}]}
    found = [[np.asarray(value) for value in sample] for sample in coco(content, image_ids=True).next_epoch()]
    assert [len(image) for image, *_ in found] == [3, 1, 2]
    assert [ids.tolist() for *_, ids in found] == [[-large], [large], [large + 1]]
    assert {ids.dtype for *_, ids in found} == {np.dtype(np.int64)}
    assert [labels.tolist() for _, _, labels, _ in found] == [[], [1], []]
    with pytest.raises(ValueError, match="category_id does not fit into 32 bits"):
        list(coco(content, avoid_class_remapping=True).next_epoch())
    small = [np.asarray(sample[-1]).dtype for sample in coco(image_ids=True).next_epoch()]
    assert set(small) == {np.dtype(np.int32)}
