# SPDX-License-Identifier: Apache-2.0
"""readers.Caffe and readers.Caffe2 against DALI's, on databases that the tests write."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _dali_readers import ORDERS, assert_reader_raises, assert_same_epochs, dali
from _messages import datum, floats, ints, pixels, string, tensors, write_lmdb

import torch_ndd as ndd

IMAGE, LABEL = string(b"bytes of a file"), ints([7])


@pytest.mark.parametrize(("batch_size", "options"), ORDERS, ids=str)
@pytest.mark.parametrize("name", ["Caffe", "Caffe2"])
def test_order_shards_and_padding(tmp_path: Path, name: str, batch_size: int | None, options: dict[str, Any]) -> None:
    def value(i: int) -> bytes:
        content = bytes([i]) * (i + 1)
        return datum(content, i - 3, encoded=True) if name == "Caffe" else tensors(string(content), ints([i - 3]))

    paths = [write_lmdb(tmp_path / f"{k}", [value(i) for i in numbers]) for k, numbers in enumerate([range(4), range(4, 5), range(5, 11)])]
    assert_same_epochs(name, batch_size, {"path": paths, **options})


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (datum(b"abc", 5, encoded=True), {}),
        (datum(b"abc", 2**31 - 1), {}),
        (datum(bytes(range(12)), 7, (3, 2, 2)), {}),
        (datum(bytes(range(12)), 7, (3, 2, 2), False), {}),
        (datum(bytes(range(12)), 7, (3, 2, 2), True), {}),
        (datum(b"abc", None), {}),
        (datum(None, 3), {}),
        (datum(b"", 3), {}),
        (b"", {}),
        (datum(b"abc", 3), {"label_available": False}),
        (datum(b"abc", 3), {"image_available": False}),
    ],
)
def test_options_of_caffe(tmp_path: Path, value: bytes, options: dict[str, Any]) -> None:
    assert_same_epochs("Caffe", None, {"path": write_lmdb(tmp_path, [value]), **options}, count=1)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (tensors(IMAGE, LABEL), {}),
        (tensors(IMAGE, ints([-7], packed=False)), {}),
        (tensors(IMAGE, floats([7.5], packed=False)), {}),
        (tensors(IMAGE, floats([7.5])), {}),
        (tensors(pixels(bytes(range(12)), [2, 2, 3]), LABEL), {}),
        (tensors(pixels(bytes(range(12)), [3, 4]), LABEL), {}),
        (tensors(IMAGE, floats([0.5, 0.25])), {"label_type": 2, "num_labels": 2}),
        (tensors(IMAGE, ints([1, 0, 300, -1])), {"label_type": 2, "num_labels": 4}),
        (tensors(IMAGE), {"label_type": 4}),
        (tensors(IMAGE, LABEL, ints([1, 2, 3, 4])), {"bbox": True}),
        (tensors(IMAGE, ints([1, 2, 3, 4])), {"bbox": True, "label_type": 4}),
        (tensors(IMAGE, LABEL, floats([1, 2, 3, 4.5]), ints([5, 6, 7])), {"additional_inputs": 2}),
        (tensors(IMAGE, LABEL, floats([1, 2]), ints([5, 6, 7, 8])), {"additional_inputs": 1, "bbox": True}),
        (tensors(LABEL), {"image_available": False}),
        (tensors(LABEL, floats([7, 8])), {"image_available": False, "additional_inputs": 1}),
    ],
)
def test_options_of_caffe2(tmp_path: Path, value: bytes, options: dict[str, Any]) -> None:
    assert_same_epochs("Caffe2", None, {"path": write_lmdb(tmp_path, [value]), **options}, count=1)


@pytest.mark.parametrize(
    ("name", "values", "options"),
    [
        ("Caffe", [b"\xff\xff\xff"], {}),
        ("Caffe", [], {}),
        ("Caffe", None, {}),
        ("Caffe", [datum(b"abc", 3, (3, 5, 5), False)], {}),
        ("Caffe2", [tensors(IMAGE)], {}),
        ("Caffe2", [tensors(IMAGE, ints([1, 2]))], {}),
        ("Caffe2", [tensors(IMAGE, ints([]))], {}),
        ("Caffe2", [tensors(pixels(b"abc", [1, 2, 3]), LABEL)], {}),
        ("Caffe2", [tensors(pixels(b"abc", []), LABEL)], {}),
        ("Caffe2", [tensors(IMAGE, LABEL)], {"bbox": True}),
        ("Caffe2", [tensors(IMAGE, LABEL, floats([1, 2, 3, 4]))], {"bbox": True}),
        ("Caffe2", [tensors(IMAGE, LABEL, ints([1, 2, 3, 4, 5]))], {"bbox": True}),
        ("Caffe2", [tensors(IMAGE, ints([1, 9]))], {"label_type": 1, "num_labels": 6}),
        ("Caffe2", [tensors(IMAGE, LABEL)], {"label_type": 9}),
        ("Caffe2", [tensors(IMAGE, LABEL, pixels(b"abc", [3]))], {"additional_inputs": 1}),
        ("Caffe2", [tensors(floats([1, 2]), LABEL)], {}),
    ],
)
def test_bad_databases_are_rejected(tmp_path: Path, name: str, values: list[bytes] | None, options: dict[str, Any]) -> None:
    path = str(tmp_path / "nowhere") if values is None else write_lmdb(tmp_path, values)
    assert_reader_raises(name, {"path": path, **options}, RuntimeError)


@pytest.mark.parametrize("name", ["Caffe", "Caffe2"])
def test_path_is_required(name: str) -> None:
    for module in (dali, ndd):
        with pytest.raises(TypeError):
            getattr(module.readers, name)()


def test_source_info_is_the_key(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path, [datum(b"a", 1), datum(b"b", 2)], [b"z", b"a"])
    found = []
    for module in (dali, ndd):
        images = [image for image, _ in module.readers.Caffe(path=path).next_epoch()]
        found.append([bytes(np.asarray(module.get_property(image, key="source_info"))) for image in images])
    assert found[0] == found[1] == [f"{path} at key a".encode(), f"{path} at key z".encode()]
