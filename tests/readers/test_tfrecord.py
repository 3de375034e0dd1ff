# SPDX-License-Identifier: Apache-2.0
import os
import pickle
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from readers._files import GZIP, example, field, floats, ints, strings, tfrecord, varint, write_tfrecord

import torch_ndd as ndd
from torch_ndd import tfrecord as tf
from torch_ndd.testing import assert_resumable

IMAGE = tf.FixedLenFeature([], tf.string, "")
LABEL = tf.FixedLenFeature([1], tf.int64, -1)


def examples(count: int, first: int = 0) -> list[dict[str, bytes]]:
    return [
        {
            "image": strings(bytes([i]) * (i % 5)),
            "label": ints([i], i % 2 == 0),
            "pair": ints([-i, 1 << 62], i % 2 == 1),
            "boxes": floats([i + k / 8 for k in range(4 * (i % 3))], i % 2 == 0),
        }
        for i in range(first, first + count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tfrecord(tmp_path / "a.tfrecord", examples(11))


def read(features: dict[str, tf.Feature], *paths: Path, **options: Any) -> list[dict[str, np.ndarray]]:
    reader = ndd.readers.TFRecord(path=paths, features=features, **options)
    return [{key: np.asarray(value) for key, value in sample.items()} for sample in reader.next_epoch()]


@pytest.mark.parametrize("indexed", [True, False])
def test_features_have_types_and_shapes(path: Path, tmp_path: Path, indexed: bool) -> None:
    second = write_tfrecord(tmp_path / "b.tfrecord", examples(2, 11))
    features = {
        "label": LABEL,
        "image": IMAGE,
        "pair": tf.FixedLenFeature([1, 2], tf.int64, 0),
        "boxes": tf.VarLenFeature([4], tf.float32, 0.0),
        "flat": tf.VarLenFeature(tf.int64, 0),
    }
    options = {"index_path": [path.with_suffix(".idx"), second.with_suffix(".idx")]} if indexed else {}
    samples = read(features, path, second, **options)
    assert [list(sample) for sample in samples] == [list(features)] * 13
    for i, sample in enumerate(samples):
        assert sample["label"].tolist() == [i]
        assert sample["label"].dtype == sample["pair"].dtype == np.int64
        assert sample["image"].tobytes() == bytes([i]) * (i % 5)
        assert sample["pair"].tolist() == [[-i, 1 << 62]]
        assert sample["boxes"].dtype == np.float32
        assert sample["boxes"].tolist() == [[i + (4 * row + k) / 8 for k in range(4)] for row in range(i % 3)]
        assert sample["flat"].shape == (0,)


def test_missing_features(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a", [{}, {"n": b""}])  # the second one is there, without a list
    features = {
        "n": tf.FixedLenFeature([2], tf.int64, 7),
        "x": tf.FixedLenFeature([], tf.float32, 1.5),
        "s": tf.FixedLenFeature([], tf.string, "none"),
        "rows": tf.VarLenFeature([3], tf.float32, 0),
    }
    for sample in read(features, path):
        assert sample["n"].tolist() == [7, 7]
        assert (sample["x"].shape, sample["x"].item()) == ((), 1.5)
        assert sample["s"].tobytes() == b"none"
        assert sample["rows"].shape == (0, 3)


@pytest.mark.parametrize(
    ("feature", "reason"),
    [
        (tf.FixedLenFeature([3], tf.int64, 0), '"pair" has 2 elements, not 3'),
        (tf.FixedLenFeature([1], tf.int64, 0), '"pair" has 2 elements, not 1'),
        (tf.VarLenFeature([3], tf.int64, 0), "not a multiple of 3"),
        (tf.FixedLenFeature([2], tf.float32, 0), "list of int64, not of float32"),
        (tf.FixedLenFeature([], tf.string, ""), "list of int64, not of string"),
    ],
)
def test_values_that_do_not_fit(path: Path, feature: tf.Feature, reason: str) -> None:
    with pytest.raises(RuntimeError, match=rf"readers\.TFRecord: sample 0 \(.*a\.tfrecord at byte 0\): .*{reason}"):
        read({"pair": feature}, path)


def test_more_than_one_string(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a", [{"s": strings(b"a", b"b")}])
    with pytest.raises(RuntimeError, match="2 strings, not one"):
        read({"s": IMAGE}, path)
    for feature in (tf.VarLenFeature(tf.string, ""), tf.FixedLenFeature([2], tf.string, "")):
        with pytest.raises(RuntimeError, match="tensors of strings"):
            read({"s": feature}, path)


DAMAGED = {
    "wire type": b"\x0b",
    "truncated number": b"\x80",
    "endless number": b"\xff" * 11,
    "field beyond the end": b"\x0a\x7f",
    "map beyond the end": field(1, b"\x0a\x7f"),
    "list beyond the end": field(1, field(1, field(1, b"label") + field(2, b"\x1a\x7f"))),
    "number without a field": b"\x00\x00",
    "string in a list of numbers": field(1, field(1, field(1, b"label") + field(2, field(3, b"\x0d\0\0\0\0")))),
    "huge length": b"\x0a" + varint((1 << 64) - 1),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_examples_are_bad_samples(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(tfrecord(example({"label": ints([1])})) + tfrecord(DAMAGED[name]) + tfrecord(example({"label": ints([3])})))
    with pytest.raises(RuntimeError, match=r"at byte \d+\): the Example is damaged"):
        read({"label": LABEL}, path)
    reader = ndd.readers.TFRecord(3, path=path, features={"label": LABEL}, on_error="skip")
    assert [batch["label"].torch().flatten().tolist() for batch in reader] == [[1, 3]]
    assert [(error.sample, "damaged" in error.reason) for error in reader.errors] == [(1, True)]


def test_damaged_files(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    begins = [int(line.split()[0]) for line in path.with_suffix(".idx").read_text().splitlines()]
    for name, data, reason in (
        ("checksum", bytearray(whole), "checksum"),
        ("cut in the data", whole[: begins[5] + 20], "the file ends earlier"),
        ("cut in the header", whole[: begins[5] + 7], "ends within its header"),
    ):
        if name == "checksum":
            data[begins[5]] ^= 1
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=rf"sample 0 \(.* at byte {begins[5]}\): .*{reason}"):
            read({"label": LABEL}, path)
        reader = ndd.readers.TFRecord(4, path=path, features={"label": LABEL}, on_error="skip")
        assert [label for batch in reader for label in batch["label"].torch().flatten().tolist()] == [0, 1, 2, 3, 4]
        with pytest.raises(RuntimeError, match=rf"at byte {begins[5]}\): "):
            read({"label": LABEL}, path, index_path=path.with_suffix(".idx"))
    for data, reason in ((GZIP, "gzip"), (b"x" * 30, "it is a text file, not a TFRecord"), (b"\x01\x02" * 15, "checksum"), (b"x", "header")):
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=rf'readers\.TFRecord: ".*a\.tfrecord": .*{reason}'):
            read({"label": LABEL}, path)
    path.write_bytes(b"")
    with pytest.raises(RuntimeError, match="number of input samples: 0"):
        read({"label": LABEL}, path)


@pytest.mark.parametrize("text", ["0\n", "a b\n", "0 99999999999999999999\n"])
def test_damaged_indices(path: Path, text: str) -> None:
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(RuntimeError, match=r"readers\.TFRecord: the index .*a\.idx"):
        read({"label": LABEL}, path, index_path=path.with_suffix(".idx"))


@pytest.mark.parametrize("text", ["-5 20\n", "0 -1\n", "0 10\n", "0 1000000000000\n", "99999999 5\n", "3 40\n"])
def test_indices_that_lie(path: Path, text: str) -> None:
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(RuntimeError, match=r"readers\.TFRecord: sample 0 \(.*a\.tfrecord at byte"):
        read({"label": LABEL}, path, index_path=path.with_suffix(".idx"))


def test_bad_arguments_are_rejected(path: Path) -> None:
    with pytest.raises(TypeError, match='feature "x" must come from'):
        ndd.readers.TFRecord(path=path, features={"x": 3})
    with pytest.raises(TypeError):
        ndd.readers.TFRecord(path=path)
    for options, message in (
        ({"features": {}}, "features is empty"),
        ({"index_path": ["a", "b"]}, "2 index files for 1"),
        ({"path": "/none"}, "No such file"),
    ):
        with pytest.raises(RuntimeError, match=message):
            next(ndd.readers.TFRecord(**{"path": path, "features": {"label": LABEL}, **options}).next_epoch())
    for mistake, message in (
        (([-1], tf.int64, 0), "negative extents"),
        (([2], tf.int64, [1, 2]), r"must be one number, int64, for all elements, got \[1, 2\]"),
        (([1], tf.float32, "a"), "must be one number, float32"),
        (([1], tf.string, 1), "must be a text or bytes, got 1"),
        (([1], tf.int64, None), "got None"),
    ):
        with pytest.raises(TypeError, match=message):
            tf.FixedLenFeature(*mistake)
    with pytest.raises(RuntimeError, match="type of a feature"):
        tf.FixedLenFeature([1], 7, 0)
    with pytest.raises(TypeError):
        tf.VarLenFeature(tf.int64)


def test_batches_after_pickling(path: Path) -> None:
    features = {"image": IMAGE, "label": LABEL, "boxes": tf.VarLenFeature([4], tf.float32, 0)}
    reader = pickle.loads(pickle.dumps(ndd.readers.TFRecord(path=path, features=features, max_batch_size=4)))
    batches = list(reader.next_epoch())
    assert [batch["label"].torch().flatten().tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 0]]
    assert batches[0]["boxes"].shape == [(0, 4), (1, 4), (2, 4), (0, 4)]
    assert batches[0]["image"].shape == [(0,), (1,), (2,), (3,)]
    assert bytes(np.asarray(ndd.get_property(batches[0]["image"], key="source_info").tensors[1])).endswith(b"a.tfrecord at index 88")


@pytest.mark.figures
def test_resumes_anywhere(path: Path) -> None:
    def make(rank: int, world: int, batch_size: int) -> ndd.readers.TFRecord:
        features = {"label": LABEL, "image": IMAGE}
        return ndd.readers.TFRecord(batch_size, path=path, features=features, random_shuffle=True, shard_id=rank, num_shards=world)

    resumed = assert_resumable(make)
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")


@pytest.mark.parametrize("kind", ["zero", "wrong"])
def test_wrong_checksums_are_rejected(tmp_path: Path, kind: str) -> None:
    path = write_tfrecord(tmp_path / "a", [{"label": ints([k])} for k in range(4)])
    content, at = bytearray(path.read_bytes()), 0
    while at < len(content):
        length = int.from_bytes(content[at : at + 8], "little")
        for place in (at + 8, at + 12 + length):
            content[place : place + 4] = bytes(4) if kind == "zero" else bytes([content[place] ^ 1]) + content[place + 1 : place + 4]
        at += 16 + length
    path.write_bytes(content)
    features = {"label": tf.FixedLenFeature([1], tf.int64, -1)}

    def labels(**options: Any) -> list[int]:
        return [int(value) for batch in ndd.readers.TFRecord(2, path=path, features=features, **options) for value in batch["label"].torch()]

    for index in ({}, {"index_path": tmp_path / "a.idx"}):
        assert labels(**index, verify_checksums=False) == [0, 1, 2, 3]
        if kind == "zero":
            assert labels(**index) == [0, 1, 2, 3]
        else:
            with pytest.raises(RuntimeError, match="the checksum of the record's length is wrong"):
                labels(**index)


def test_zeros_behind_the_records(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a", [{"label": ints([k])} for k in range(3)])
    path.write_bytes(path.read_bytes() + bytes(1 << 20))
    reader = ndd.readers.TFRecord(2, path=path, features={"label": tf.FixedLenFeature([1], tf.int64, -1)}, on_error="skip")
    assert [int(value) for batch in reader for value in batch["label"].torch()] == [0, 1, 2]
    assert [error.reason for error in reader.errors] == ["there are zeros where a record should begin"]


def test_sizes_of_sparse_records_cannot_overflow() -> None:
    length = 1 << 62  # four of them make 2**64, which wraps around to 0
    head = b""
    for prefix in (b"\x0a", b"\x0a", b"\x12", b"\x0a", b"\x0a"):  # from the inside out: string, list, feature, entry, features
        name = b"\x0a\x01s" if prefix == b"\x12" else b""
        head = name + prefix + varint(length + len(head)) + head
    size = length + len(head)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # the size of a file on a disk is more limited
        path = Path(folder) / "a.tfrecord"
        path.write_bytes(struct.pack("<QI", size, 0) + head)
        try:
            os.truncate(path, 12 + size + 4)
        except OSError:
            pytest.skip("no file system with files of 4 EB")
        reader = ndd.readers.TFRecord(path=path, features={"s": IMAGE}, pad_last_batch=True)
        with pytest.raises(RuntimeError, match="too many bytes"):
            reader(batch_size=4)
