# SPDX-License-Identifier: Apache-2.0
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from readers._files import MAGIC, image_record, recordio, write_recordio

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

RECORDS: list[tuple[Any, bytes]] = [
    (1.0, b"abc"),
    (2.0, b"defgh"),
    ([3.0, 4.0], b"zz"),
    (5.0, MAGIC + b"1234" + MAGIC + MAGIC + b"5"),
    ([], b""),
    (6.5, b"wxyz"),
]
EXPECTED = [(image, list(labels) or [0.0] if isinstance(labels, list) else [labels]) for labels, image in RECORDS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_recordio(tmp_path / "a.rec", RECORDS)


def read(*paths: Path, **options: Any) -> list[tuple[bytes, list[float]]]:
    reader = ndd.readers.MXNet(path=paths, **options)
    return [(np.asarray(image).tobytes(), labels.torch().tolist()) for image, labels in reader.next_epoch()]


def test_records_have_images_and_labels(path: Path) -> None:
    assert read(path, index_path=path.with_suffix(".idx")) == EXPECTED
    assert read(path) == EXPECTED
    assert read(path, path) == EXPECTED * 2


def test_a_part_of_the_index(path: Path) -> None:
    place = path.with_suffix(".idx")
    lines = place.read_text().splitlines()
    place.write_text("\n".join([lines[3], lines[1], lines[4]]))
    assert read(path, index_path=place) == [EXPECTED[1], EXPECTED[3], EXPECTED[4]]


def test_damaged_files(path: Path) -> None:
    whole = path.read_bytes()
    begins = [int(line.split()[1]) for line in path.with_suffix(".idx").read_text().splitlines()]
    wrong, other = bytearray(whole), bytearray(whole)
    wrong[begins[2]] ^= 1
    other[begins[2] + 7] |= 0xE0
    cases = [
        (wrong, "magic"),
        (other, "unknown kind"),
        (whole[: begins[2] + 5], "within its header"),
        (whole[: begins[2] + 20], "the file ends earlier"),
    ]
    for data, reason in cases:
        path.write_bytes(data)
        for options in ({}, {"index_path": path.with_suffix(".idx")}):
            with pytest.raises(RuntimeError, match=rf"readers\.MXNet: sample 0 \(.*a\.rec at byte {begins[2]}\): "):
                read(path, **options)
        with pytest.raises(RuntimeError, match=reason):
            read(path)
        reader = ndd.readers.MXNet(1, path=path, on_error="skip")
        assert [labels.torch().item() for _, labels in reader] == [1, 2]
    path.write_bytes(whole[: begins[3] + 16])  # the parts of a record
    with pytest.raises(RuntimeError, match=rf"sample 0 \(.* at byte {begins[3]}\): "):
        read(path)
    for content, reason in ((b"short", "no room for the header"), (struct.pack("<IfQQ", 9, 0, 0, 0) + bytes(8), "no room for 9 labels")):
        path.write_bytes(recordio(content) + recordio(image_record(1, b"")))
        with pytest.raises(RuntimeError, match=reason):
            read(path)
        reader = ndd.readers.MXNet(2, path=path, on_error="skip")
        assert [labels.torch().item() for _, labels in reader] == [1]
    path.write_bytes(b"x" * 30)
    with pytest.raises(RuntimeError, match=r'readers\.MXNet: ".*a\.rec": .*it is a text file, not a RecordIO file'):
        read(path)


def test_bad_arguments_are_rejected(path: Path) -> None:
    for options, message in (
        ({"index_path": ["a", "b"]}, "2 index files for 1"),
        ({"index_path": "/none"}, "No such file"),
        ({"path": "/none"}, "No such file"),
    ):
        with pytest.raises(RuntimeError, match=message):
            next(ndd.readers.MXNet(**{"path": path, **options}).next_epoch())
    path.with_suffix(".idx").write_text("0\ta\n")
    with pytest.raises(RuntimeError, match="integers"):
        read(path, index_path=path.with_suffix(".idx"))


def test_scalar_labels(path: Path, tmp_path: Path) -> None:
    whole = write_recordio(tmp_path / "b.rec", [(1.0, b"abc"), (7.0, b"d")])
    ((_, labels),) = ndd.readers.MXNet(path=whole, scalar_labels=True).next_epoch(2)
    assert (labels.dtype, labels.torch().tolist()) == (ndd.int64, [1, 7])
    reader = ndd.readers.MXNet(path=path, scalar_labels=True, on_error="skip")
    assert [label.item() for _, label in reader.next_epoch()][:4] == [1, 2, 5, 0]
    assert [error.sample for error in reader.errors][:2] == [2, 5]
    assert "needs one integer as a label, but it is [3.0, 4.0]" in str(reader.errors[0])


def test_batches_after_pickling(path: Path) -> None:
    reader = pickle.loads(pickle.dumps(ndd.readers.MXNet(path=path, max_batch_size=3)))
    images, labels = next(reader.next_epoch())
    assert (images.shape, labels.shape) == ([(3,), (5,), (2,)], [(1,), (1,), (2,)])
    assert bytes(np.asarray(ndd.get_property(images, key="source_info").tensors[1])) == f"{path} at index 36".encode()


@pytest.mark.figures
def test_resumes_anywhere(path: Path) -> None:
    write_recordio(path, [(i, bytes([i])) for i in range(11)])

    def make(rank: int, world: int, batch_size: int) -> ndd.readers.MXNet:
        return ndd.readers.MXNet(batch_size, path=path, random_shuffle=True, shard_id=rank, num_shards=world)

    resumed = assert_resumable(make)
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")
