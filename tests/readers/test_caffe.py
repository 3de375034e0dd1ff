# SPDX-License-Identifier: Apache-2.0
import gc
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from _messages import datum, floats, ints, string, tensors, write_lmdb
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd.readers.caffe._protobuf import fields, packed_float, packed_int32
from torch_ndd.testing import assert_resumable


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_lmdb(tmp_path / "db", [datum(bytes([i]) * (i + 1), i, encoded=True) for i in range(13)])


def labels(steps: Any) -> list[int]:
    return [value for _, label in steps for value in label.torch().flatten().tolist()]


def test_samples_have_images_and_labels(path: str) -> None:
    (images, numbers), *_ = ndd.readers.Caffe(path=path).next_epoch(13)
    assert images.shape == [(i + 1,) for i in range(13)]
    assert numbers.torch().flatten().tolist() == list(range(13))
    assert images.select(5).torch().tolist() == [5] * 6


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3}], ids=str)
def test_resumes_anywhere(path: str, options: dict[str, Any]) -> None:
    make = lambda rank, world, size: ndd.readers.Caffe(size, path=path, shard_id=rank, num_shards=world, **options)  # noqa: E731
    assert assert_resumable(make).cuts > 60


def test_classes_and_weights(tmp_path: Path) -> None:
    # DALI fails for both; this is what its documentation and Caffe2 say.
    path = write_lmdb(tmp_path / "a", [tensors(string(b"x"), ints([1, 3]))])
    ((_, label),) = ndd.readers.Caffe2(path=path, label_type=1, num_labels=5).next_epoch()
    assert (label.dtype, label.torch().tolist()) == (ndd.float32, [0, 1, 0, 1, 0])
    path = write_lmdb(tmp_path / "b", [tensors(string(b"x"), ints([1, 3]), floats([0.5, 0.75]))])
    ((_, label),) = ndd.readers.Caffe2(path=path, label_type=3, num_labels=5).next_epoch()
    assert label.torch().tolist() == [0, 0.5, 0, 0.75, 0]


def test_scalar_labels(path: str, tmp_path: Path) -> None:
    ((_, numbers),) = ndd.readers.Caffe(path=path, scalar_labels=True).next_epoch(13)
    assert (numbers.dtype, numbers.torch().tolist()) == (ndd.int64, list(range(13)))
    whole = write_lmdb(tmp_path / "a", [tensors(string(b"x"), ints([4])), tensors(string(b"y"), floats([5.0]))])
    ((_, numbers),) = ndd.readers.Caffe2(path=whole, scalar_labels=True).next_epoch(2)
    assert (numbers.dtype, numbers.torch().tolist()) == (ndd.int64, [4, 5])
    broken = write_lmdb(tmp_path / "b", [tensors(string(b"x"), floats([4.5]))])
    with pytest.raises(RuntimeError, match=r"scalar_labels=True needs one whole number as a label, but it is \[4\.5\]"):
        next(ndd.readers.Caffe2(path=broken, scalar_labels=True).next_epoch())
    with pytest.raises(RuntimeError, match="scalar_labels is for label_type 0"):
        next(ndd.readers.Caffe2(path=whole, label_type=2, scalar_labels=True).next_epoch())


def test_bad_samples(tmp_path: Path) -> None:
    values = [datum(bytes([i]), i, encoded=True) for i in range(6)]
    values[2] = b"\xff" * 5
    path = write_lmdb(tmp_path / "db", values)
    with pytest.raises(RuntimeError, match=rf"readers\.Caffe: sample 2 \({path} at key 00000002\): the number at byte 0 has no end"):
        list(ndd.readers.Caffe(path=path).next_epoch(6))
    reader = ndd.readers.Caffe(2, path=path, on_error="skip")
    assert labels(reader) == [0, 1, 3, 4, 5]
    assert [error.sample for error in reader.errors] == [2]


def test_workers_share_the_samples(path: str) -> None:
    reader = ndd.readers.Caffe(3, path=path)
    next(reader.next_epoch())  # the database is open when the process forks
    loader = DataLoader(reader, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert sorted(labels(loader)) == list(range(13))
    loader = DataLoader(reader, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    reader.set_epoch(0)
    assert labels(loader) == list(range(13))
    reader = ndd.readers.Caffe(path=path)
    next(reader.next_epoch())
    assert labels(pickle.loads(pickle.dumps(reader)).next_epoch()) == [*range(1, 13), 0]


def test_several_readers_of_a_database(path: str) -> None:
    readers = [ndd.readers.Caffe(path=path, shard_id=k, num_shards=2) for k in range(2)]
    assert [labels(reader.next_epoch()) for reader in readers] == [list(range(6)), list(range(6, 13))]


def test_databases_are_closed(path: str) -> None:
    def count_open() -> int:
        return sum(os.readlink(value).startswith(path) for value in Path("/proc/self/fd").iterdir() if os.path.lexists(value))

    reader = ndd.readers.Caffe(path=path)
    next(reader.next_epoch(3))
    assert count_open() == 1
    del reader  # its threads may still be reading ahead
    deadline = time.monotonic() + 10
    while count_open() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert count_open() == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\x80" * 11, "has no end"),
        (b"\x80", "has no end"),
        (b"\x0b", "wire type 3"),
        (b"\x00\x01", "field number 0"),
        (b"\x22\x7fabc", "are left"),
        (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "are left"),
        (b"\x25abc", "are left"),
        (b"\x21abc", "are left"),
    ],
)
def test_damaged_messages(message: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(fields(memoryview(message)))


def test_packed_numbers() -> None:
    numbers = [0, 1, -1, 127, 128, 300, 2**31 - 1, -(2**31)]
    content = next(value for number, _, value in fields(memoryview(ints(numbers))) if number == 4)
    assert isinstance(content, memoryview)
    assert packed_int32(content).tolist() == numbers
    assert packed_int32(memoryview(b"")).tolist() == []
    content = b"".join(next(value for number, _, value in fields(memoryview(ints([n]))) if number == 4) for n in numbers)  # type: ignore[misc]
    for repeats in (0, 1, 7):  # few numbers, and many
        assert packed_int32(memoryview(content * repeats)).tolist() == numbers * repeats
    for damaged in (b"\x80", b"\x80" * 10 + b"\x01", b"\x01" * 30 + b"\x80", b"\x01" * 30 + b"\x80" * 10 + b"\x01"):
        with pytest.raises(ValueError, match="no end"):
            packed_int32(memoryview(damaged))
    with pytest.raises(ValueError, match="3 bytes"):
        packed_float(memoryview(b"abc"))
