# SPDX-License-Identifier: Apache-2.0
"""Containers stay open, a few at a time, while their reader lives, also in forked processes."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from readers._files import ints, write_tar, write_tfrecord

import torch_ndd as ndd
from torch_ndd.readers._ranges.ranges import Ranges, pack_paths


def count_open(folder: Path) -> int:
    """Return how many files below a folder this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
        except FileNotFoundError:
            continue
    return found


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return [write_tar(tmp_path / f"{k:03}.tar", [(f"{i}.txt", f"{k} {i}".encode()) for i in range(3)]) for k in range(50)]


def wait_until_closed(folder: Path) -> None:
    """A thread of a reader that is gone may be in the middle of a batch."""
    end = time.monotonic() + 30
    while count_open(folder) and time.monotonic() < end:
        time.sleep(0.01)
    assert count_open(folder) == 0


def texts(reader: ndd.readers.Webdataset) -> list[str]:
    return [bytes(sample.torch().tolist()).decode() for (batch,) in reader for sample in batch]


@pytest.mark.slow
def test_files_are_kept_and_closed(shards: list[Path], tmp_path: Path) -> None:
    expected = [f"{k} {i}" for k in range(50) for i in range(3)]
    reader = ndd.readers.Webdataset(7, paths=shards, ext="txt")
    assert texts(reader) == expected
    assert 0 < count_open(tmp_path) <= 32
    assert texts(reader) == expected
    reader = ndd.readers.Webdataset(7, paths=shards, ext="txt", random_shuffle=True)
    gc.collect()
    wait_until_closed(tmp_path)
    assert sorted(texts(reader)) == sorted(expected)
    for _ in zip(range(3), reader, strict=False):  # left while batches are read ahead
        pass
    del reader, _
    gc.collect()
    wait_until_closed(tmp_path)


def test_forked_processes_read_on(shards: list[Path]) -> None:
    reader = ndd.readers.Webdataset(7, paths=shards, ext="txt")
    batches = iter(reader)
    next(batches)
    for _ in range(5):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                rest = [bytes(sample.torch().tolist()).decode() for (batch,) in batches for sample in batch]
                status = int(rest != [f"{k} {i}" for k in range(50) for i in range(3)][7:])
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    assert len(list(batches)) == 21


def test_all_bad_samples_of_a_batch_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    files, length = ["a", "none", "a", "a", "."], np.array([3, 3, 11, -1, 1])
    ranges = Ranges(os.fsencode(f"{tmp_path}/"), *pack_paths(files), np.arange(5, dtype=np.int32), np.array([2, 0, 0, 8, 0]), length)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        ranges.start(np.arange(5)).finish()
    assert {k: reason.split(",")[0] for k, reason in caught.value.reasons.items()} == {
        1: "No such file or directory",
        2: "the file has 10 bytes",
        4: "Is a directory",
    }
    found = ranges.start(np.array([[3, 0], [-1, 3]])).finish_all()
    assert [[bytes(sample.torch().tolist()) for sample in batch] for batch in found] == [[b"89", b"234"], [b"", b"89"]]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RuntimeError, match="not a regular file"):
        next(ndd.readers.File(files=[tmp_path / "pipe"]).next_epoch())


_MANY_FILES = """
import resource, sys
import torch_ndd as ndd

folder = sys.argv[1]
paths = [f"{folder}/{k:03}" for k in range(200)]
features = {"n": ndd.tfrecord.FixedLenFeature([1], ndd.tfrecord.int64, 0)}
readers = {
    "one reader": ndd.readers.Webdataset(paths=[f"{path}.tar" for path in paths], ext=["txt", "cls"], random_shuffle=True, initial_fill=1000),
    "records": ndd.readers.TFRecord(path=[f"{path}.tfrecord" for path in paths], features=features),
    "arrays": ndd.readers.Numpy(files=[f"{path}.npy" for path in paths]),
    "sources": ndd.readers.Mix({path: ndd.readers.Webdataset(paths=[f"{path}.tar"], ext=["txt", "cls"]) for path in paths}),
}
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
for name, reader in readers.items():
    for batch_size in (512, 16):
        count = sum(len(batch["n"] if name == "records" else batch[0]) for batch in ndd.DataLoader(reader, batch_size=batch_size))
        assert count == (200 if name in ("records", "arrays") else 600), (name, count)
"""


def test_batches_of_more_files_than_may_be_open(tmp_path: Path) -> None:
    for k in range(200):
        write_tar(tmp_path / f"{k:03}.tar", [(f"{i}.{kind}", b"1") for i in range(3) for kind in ("txt", "cls")])
        np.save(tmp_path / f"{k:03}.npy", np.arange(3))
        write_tfrecord(tmp_path / f"{k:03}.tfrecord", [{"n": ints([k])}])
    subprocess.run([sys.executable, "-c", _MANY_FILES, str(tmp_path)], check=True, timeout=300)
