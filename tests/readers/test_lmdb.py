# SPDX-License-Identifier: Apache-2.0
"""LMDB databases as LMDB writes them, truncated, damaged and modified while they are read."""

import itertools
import os
import random
import re
from pathlib import Path

import lmdb
import numpy as np
import pytest
from _messages import datum, write_lmdb

import torch_ndd as ndd
from torch_ndd.readers._ranges.records import LMDB, scan


def contents(file: Path) -> list[tuple[bytes, bytes]]:
    found, data = scan(LMDB, str(file)), file.read_bytes()
    offsets = found.name_offsets.tolist()
    keys = [found.names[begin:end] for begin, end in itertools.pairwise(offsets)]
    values = [data[begin : begin + length] for begin, length in zip(found.begin.tolist(), found.length.tolist(), strict=True)]
    return list(zip(keys, values, strict=True))


@pytest.mark.parametrize(("count", "longest"), [(0, 0), (1, 10), (40, 20), (3000, 30), (300, 9000), (1500, 2500)])
def test_trees_of_any_depth(tmp_path: Path, count: int, longest: int) -> None:
    draw = random.Random(count)
    expected = {b"%d" % draw.randrange(10**9): draw.randbytes(draw.randrange(longest + 1)) for _ in range(count)}
    keys = list(expected)
    with lmdb.open(str(tmp_path), map_size=1 << 26) as environment:
        for begin in range(0, count, 700):  # several transactions, and free pages
            with environment.begin(write=True) as transaction:
                for key in keys[begin : begin + 700]:
                    transaction.put(key, expected[key])
            with environment.begin(write=True) as transaction:
                for key in keys[begin : begin + 200]:
                    transaction.delete(key)
                    if draw.random() < 0.5:
                        del expected[key]
            with environment.begin(write=True) as transaction:
                for key in keys[begin : begin + 200]:
                    if key in expected:
                        transaction.put(key, expected[key])
    assert contents(tmp_path / "data.mdb") == sorted(expected.items())


def test_a_file_without_a_folder(tmp_path: Path) -> None:
    path = str(tmp_path / "one.lmdb")
    with lmdb.open(path, subdir=False, map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a", datum(b"x", 5))
    ((_, label),) = ndd.readers.Caffe(path=path).next_epoch()
    assert label.torch().tolist() == [5]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return Path(write_lmdb(tmp_path / "db", [datum(bytes([k]) * 3000, k, encoded=True) for k in range(200)]))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("part", [0, 0.01, 0.3, 0.7, 0.99, 0.9999])
def test_cut_off(database: Path, part: float, on_error: str) -> None:
    file = database / "data.mdb"
    os.truncate(file, int(part * file.stat().st_size))
    with pytest.raises(RuntimeError, match=rf'^readers\.Caffe: LMDB database "{file}": .*(cut off|ends within the header)'):
        next(ndd.readers.Caffe(10, path=database, on_error=on_error).next_epoch())


def test_cut_off_while_it_is_read(database: Path) -> None:
    file = database / "data.mdb"
    for on_error in ("raise", "skip"):
        reader = ndd.readers.Caffe(10, path=database, on_error=on_error)
        steps = iter(reader)
        next(steps)
        content = file.read_bytes()
        os.truncate(file, len(content) // 2)
        reasons = "became shorter|was written to|this part ends"
        if on_error == "raise":
            with pytest.raises(RuntimeError, match=rf"sample \d+ \({database} at key .*({reasons})"):
                list(steps)
        else:
            assert sum(len(labels.tensors) for _, labels in steps) < 190
            assert all(re.search(reasons, error.reason) for error in reader.errors)
        file.write_bytes(content)


def test_written_to_while_it_is_read(database: Path) -> None:
    steps = iter(ndd.readers.Caffe(10, path=database))
    next(steps)
    with lmdb.open(str(database), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"new", datum(b"x", 1))
    with pytest.raises(RuntimeError, match=rf"{database} at key .*: the database was written to"):
        list(steps)
    assert sum(1 for _ in ndd.readers.Caffe(path=database).next_epoch()) == 201


META = 16  # of a page's header; the main tree's record begins 72 bytes later
ROOT = META + 24 + 48 + 40


def patch(file: Path, at: int, value: bytes) -> None:
    """Both headers of a database changed."""
    content = bytearray(file.read_bytes())
    for page in (0, 4096):
        content[page + at : page + at + len(value)] = value
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (META, b"\0\0\0\0", "not an LMDB database"),
        (META + 4, b"\x02", "version 2"),
        (META + 24, b"\0\0\0\0", "pages of 0 bytes"),
        (META + 24, b"\xff\xff\xff\xff", "pages of 4294967295 bytes"),
        (META + 24 + 48 + 4, b"\x04", "several values of a key"),
        (META + 24 + 48 + 6, b"\xff\xff", "depth 65535"),
        (META + 24 + 48 + 6, b"\0\0", "depth 0"),
        (META + 24 + 48 + 6, b"\x01", "of kind 1"),
        (META + 24 + 48 + 32, b"\xff" * 8, "counts 18446744073709551615 keys"),
        (ROOT, b"\0" * 8, "page 0 of the database is beyond"),
        (ROOT, b"\xfe" + b"\xff" * 7, "beyond the end of the file"),
        (ROOT, b"\x02" + b"\0" * 7, "page 2 of the database is damaged"),
    ],
)
def test_damaged_headers(database: Path, at: int, value: bytes, text: str) -> None:
    patch(database / "data.mdb", at, value)
    with pytest.raises(RuntimeError, match=text):
        next(ndd.readers.Caffe(path=database).next_epoch())


def test_a_tree_that_is_its_own_child(database: Path) -> None:
    file = database / "data.mdb"
    content = file.read_bytes()
    header = max((0, 4096), key=lambda page: int.from_bytes(content[page + META + 24 + 96 + 8 :][:8], "little"))
    root = int.from_bytes(content[header + ROOT :][:8], "little")
    page = bytearray(content[root * 4096 :][:4096])
    assert page[10] & 1  # a branch
    node = int.from_bytes(page[16:18], "little")
    page[node : node + 4] = root.to_bytes(4, "little")
    file.write_bytes(content[: root * 4096] + page + content[(root + 1) * 4096 :])
    patch(file, META + 24 + 48 + 6, b"\x20")
    with pytest.raises(RuntimeError, match=f"page {root} of the database is damaged: it is used twice"):
        next(ndd.readers.Caffe(path=database).next_epoch())


def test_damaged_pages(database: Path) -> None:
    file, draw = database / "data.mdb", random.Random(1)
    good = file.read_bytes()
    numbered = (begin for begin in range(8192, len(good), 4096) if good[begin : begin + 8] == (begin // 4096).to_bytes(8, "little"))
    headers = [begin for begin in numbered if good[begin + 10] & 3]
    refused: list[str] = []
    for k in range(300):
        content = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            at = draw.choice(headers) + draw.randrange(16 + 40) if k % 2 else draw.randrange(len(content))
            content[at] = draw.choice([0, 255, draw.randrange(256)])
        file.write_bytes(content)
        try:
            for images, labels in ndd.readers.Caffe(50, path=database, on_error="skip").next_epoch():
                np.asarray(images.tensors[0])
                labels.torch()
        except RuntimeError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all(text.startswith("readers.Caffe: ") for text in refused)
