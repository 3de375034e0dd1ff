# SPDX-License-Identifier: Apache-2.0
import gc
import os
import pickle
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _messages import datum, floats, ints, pixels, string, tensors, write_lmdb
from torch.utils.data import DataLoader

import torch_ndd as ndd
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
    with pytest.raises(RuntimeError, match=r"scalar_labels=True needs one integer as a label, but it is \[4\.5\]"):
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
        (b"\x80" * 11, "the number at byte 0 has no end"),
        (b"\x80", "the number at byte 0 has no end"),
        (b"\x28", "the number at byte 1 has no end"),
        (b"\x0b", "wire type 3 at byte 1"),
        (b"\x00\x01", "field number 0 at byte 1"),
        (b"\x80\x80\x80\x80\x10\x01", "field number 536870912 at byte 5"),
        (b"\x22\x7fabc", "field 4 at byte 2 has 127 bytes, 3 are left"),
        (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "field 4 at byte 11 has 18446744073709551615 bytes, 0 are left"),
        (b"\x25abc", "field 4 at byte 1 has 4 bytes, 3 are left"),
        (b"\x21abc", "field 4 at byte 1 has 8 bytes, 3 are left"),
    ],
)
@pytest.mark.parametrize("before", [0, 3000], ids=["alone", "behind an image"])
def test_damaged_messages(tmp_path: Path, message: bytes, text: str, before: int) -> None:
    good = datum(bytes(before)) if before else b""
    path = write_lmdb(tmp_path, [good + message])
    # Positions are those in the value.
    text = re.sub(r"at byte (\d+)", lambda found: f"at byte {int(found[1]) + len(good)}", text)
    with pytest.raises(RuntimeError, match=rf"readers\.Caffe: sample 0 \({path} at key 00000000\): {text}"):
        next(ndd.readers.Caffe(path=path).next_epoch())


def test_damaged_messages_of_tensors(tmp_path: Path) -> None:
    image, labels = string(b"x" * 2000), ints([1])
    damaged = {
        b"\x0a\x7f": "field 1 at byte 2 has 127 bytes, 0 are left",
        tensors(b"\x80"): "the number at byte 2 has no end",
        tensors(image, b"\x22\x01\x80"): "the number at byte .* has no end",
        tensors(image, b"\x22\x0b" + b"\x80" * 10 + b"\x01"): "the number at byte .* has no end",
        tensors(image, b"\x1a\x03abc"): "packed float numbers of 3 bytes",
        tensors(image, labels, b"\x0b"): "wire type 3",  # a tensor that is not delivered
        tensors(image): "there are 1 tensors and none is left for the label",
        tensors(image, ints([1, 2])): "a label is one number, not 2",
        tensors(image, string(b"1")): "numbers are float or int32, not of data type 4",
        tensors(labels, labels): "an image is a string or bytes, not of data type 2",
        tensors(b"\x10\x04", labels): "the image is a string, but there is none",
        tensors(pixels(b"abc", [1, 3, 2]), labels): r"the image has 3 bytes and the extents \[1, 3, 2\]",
        tensors(pixels(b"", [0, -1, 2]), labels): r"the image has 0 bytes and the extents \[0, -1, 2\]",
        tensors(pixels(b"abc", [2**62, 4, 3]), labels): "the image has 3 bytes and the extents",
        tensors(pixels(b"abc", [1] * 3000), labels): "the image has 3 bytes and the extents",
    }
    path = write_lmdb(tmp_path, [*damaged, tensors(image, ints([5]))])
    reader = ndd.readers.Caffe2(len(damaged) + 1, path=path, on_error="skip")
    assert [labels.torch().tolist() for _, labels in reader] == [[[5]]]
    assert len(reader.errors) == len(damaged)
    for error, text in zip(reader.errors, damaged.values(), strict=True):
        assert re.search(text, error.reason), error.reason
        assert len(error.reason) < 200


def test_images_of_pixels(tmp_path: Path) -> None:
    shapes = [(3, 20, 30), (3, 25, 30), (3, 20, 30)]
    draw = np.random.default_rng(0)
    images = [draw.integers(0, 256, (height, width, channels), np.uint8) for channels, height, width in shapes]
    values = [datum(image.tobytes(), k, shape, encoded=False) for k, (image, shape) in enumerate(zip(images, shapes, strict=True))]
    path = write_lmdb(tmp_path / "a", values)
    ((batch, numbers),) = ndd.readers.Caffe(path=path).next_epoch(3)
    assert batch.shape == [image.shape for image in images]
    assert all(np.array_equal(np.asarray(sample), image) for sample, image in zip(batch.tensors, images, strict=True))
    assert numbers.torch().tolist() == [[0], [1], [2]]
    path = write_lmdb(tmp_path / "b", [tensors(pixels(image.tobytes(), image.shape), floats([k])) for k, image in enumerate(images[::2])])
    ((batch, numbers),) = ndd.readers.Caffe2(path=path).next_epoch(2)
    assert np.array_equal(batch.torch().numpy(), np.stack(images[::2]))
    assert (numbers.dtype, numbers.torch().tolist()) == (ndd.float32, [[0], [1]])
    path = write_lmdb(tmp_path / "c", [values[0], datum(b"a file", 1)])
    with pytest.raises(RuntimeError, match="one type and number of dimensions, got uint8 with 1 dimensions, uint8 with 3 dimensions"):
        next(ndd.readers.Caffe(path=path).next_epoch(2))
    path = write_lmdb(tmp_path / "d", [tensors(string(b"x"), ints([1])), tensors(string(b"x"), floats([1]))])
    with pytest.raises(RuntimeError, match="one type and number of dimensions, got float32 with 1 dimensions, int32 with 1 dimensions"):
        next(ndd.readers.Caffe2(path=path).next_epoch(2))


def test_numbers_packed_or_not(tmp_path: Path) -> None:
    whole = [0, 1, -1, 127, 128, 300, 2**31 - 1, -(2**31)]
    real = [0.5, -2.0, 1e30]
    for repeats in (0, 1, 200):  # few numbers, which are copied, and many, which are read into the batch
        for packed in (True, False):
            messages = [tensors(ints(whole * repeats, packed), floats(real * repeats, packed))]
            path = write_lmdb(tmp_path / f"{repeats}{packed}", messages)
            reader = ndd.readers.Caffe2(path=path, image_available=False, label_type=2, additional_inputs=1)
            ((numbers, more),) = reader.next_epoch(1)
            assert (numbers.dtype, numbers.torch().tolist()) == (ndd.int32, [whole * repeats])
            assert np.array_equal(more.torch().numpy(), np.array([real * repeats], np.float32))


def test_classes_are_checked(tmp_path: Path) -> None:
    bad = {(5,): "class 5 is not among num_labels=5", (3, -1): "class -1 is not among", (1, 2**31 - 1): "class 2147483647 is not among"}
    values = [*(tensors(string(b"x"), ints(classes)) for classes in bad), tensors(string(b"x"), ints([]))]
    reader = ndd.readers.Caffe2(4, path=write_lmdb(tmp_path, values), label_type=1, num_labels=5, on_error="skip")
    assert [labels.torch().tolist() for _, labels in reader] == [[[0.0] * 5]]
    assert all(text in error.reason for text, error in zip(bad.values(), reader.errors, strict=True))
    with pytest.raises(RuntimeError, match="additional_inputs must be at most 1000, got 100000000000"):
        next(ndd.readers.Caffe2(path=tmp_path, additional_inputs=10**11).next_epoch())
