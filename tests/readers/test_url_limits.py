# SPDX-License-Identifier: Apache-2.0
"""Limits on reads from URLs, whatever the server does."""

import importlib.util
import io
import itertools
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from _forks import Forks
from readers._hostile import ANSWERS, LIMITS, REASONS, Write, answering, limits_of

import torch_ndd as ndd
from torch_ndd import tfrecord as tf
from torch_ndd.io import _urls


def path_bytes(*paths: str) -> ndd.Batch:
    return ndd.batch([np.frombuffer(path.encode(), np.uint8) for path in paths])


def first(reader: Any) -> Any:
    return next(reader.next_epoch(1))


FEATURES = {"x": tf.FixedLenFeature([1], tf.int64, 0)}
# All functions and readers that read a URL.
WAYS: dict[str, Callable[..., Any]] = {
    "io.file.read": lambda url, **limits: ndd.io.file.read(path_bytes(f"{url}/x"), **limits),
    "imread": lambda url, **limits: ndd.imread(f"{url}/x.png", **limits),
    "a file": lambda url, **limits: first(ndd.readers.File(files=[f"{url}/x"], **limits)),
    "a list of files": lambda url, **limits: first(ndd.readers.File(file_list=f"{url}/x", **limits)),
    "a folder": lambda url, **limits: first(ndd.readers.File(file_root=f"{url}/x", **limits)),
    "an array": lambda url, **limits: first(ndd.readers.Numpy(files=[f"{url}/x"], **limits)),
    "a container": lambda url, **limits: first(ndd.readers.TFRecord(path=f"{url}/x", features=FEATURES, **limits)),
    "an index": lambda url, **limits: first(ndd.readers.TFRecord(path=f"{url}/x", index_path=f"{url}/i", features=FEATURES, **limits)),
    "a tar": lambda url, **limits: first(ndd.readers.Webdataset(paths=f"{url}/x", ext=["a"], **limits)),
    "annotations": lambda url, **limits: first(ndd.readers.COCO(annotations_file=f"{url}/x", file_root="/", **limits)),
    "a manifest": lambda url, **limits: first(ndd.readers.NemoAsr(manifest_filepaths=f"{url}/x", **limits)),
    "a table": lambda url, **limits: first(ndd.readers.Parquet(path=f"{url}/x.parquet", **limits)),
    "tables": lambda url, **limits: first(ndd.readers.Parquet(path=f"{url}/*.parquet", **limits)),
    "a video": lambda url, **limits: first(ndd.readers.Video(filenames=[f"{url}/x.mp4"], sequence_length=1, **limits)),
    "videos": lambda url, **limits: first(ndd.readers.Video(file_root=f"{url}/x", sequence_length=1, **limits)),
}
PACKAGES = {"a manifest": "soundfile", "a table": "pyarrow", "tables": "pyarrow", "a video": "torchcodec", "videos": "torchcodec"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_urls, "_PAUSE", 0.001)


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_answer_ends(answer: str) -> None:
    with answering(ANSWERS[answer]) as url, pytest.raises(RuntimeError, match=rf"{url}/x.*{REASONS[answer]}"):
        ndd.io.file.read(path_bytes(f"{url}/x"), **limits_of(answer))


def assert_way_ends(way: str, answer: str) -> None:
    with answering(ANSWERS[answer]) as url, pytest.raises(RuntimeError, match=rf"{url}/[xi]?.*({REASONS[answer]}|does not report its size)"):
        WAYS[way](url, **limits_of(answer))


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["an endless body", "compressed"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_ends(way: str, answer: str) -> None:
    if way in PACKAGES:
        pytest.importorskip(PACKAGES[way])
    assert_way_ends(way, answer)


@pytest.mark.parametrize("answer", ["a byte now and then", "silence"])
def test_every_way_ends_when_nothing_arrives(answer: str) -> None:
    """All ways wait for their limit at the same time: one after the other they waited for 20 s."""
    ways = [way for way in WAYS if way not in PACKAGES or importlib.util.find_spec(PACKAGES[way])]
    with ThreadPoolExecutor(len(ways)) as pool:
        ends = {way: pool.submit(assert_way_ends, way, answer) for way in ways}
    for way, end in ends.items():
        assert end.exception() is None, way


def test_a_sample_that_reaches_a_limit_is_a_bad_one(server: str, tmp_path: Path) -> None:
    for name, size in (("a", 10), ("b", 400_000), ("c", 10)):
        (tmp_path / name).write_bytes(bytes(size))
    reader = ndd.readers.File(files=[f"{server}/{name}" for name in "abc"], on_error="skip", **LIMITS)
    assert [len(np.asarray(value)) for (value, _) in reader] == [10, 10]
    assert [(error.source, "url_max_bytes" in error.reason) for error in reader.errors] == [(f"{server}/b", True)]


def test_a_range_of_a_larger_file_is_read(server: str, tmp_path: Path) -> None:
    """A limit applies to each read: a record of a container with an index, a part of a video."""
    record = np.zeros(400_000, np.uint8).tobytes()
    content = np.array([0xCED7230A, 28], np.uint32).tobytes() + bytes(24) + b"wxyz"
    (tmp_path / "x.rec").write_bytes(content + record)
    (tmp_path / "x.idx").write_text(f"0 0\n1 {len(content)}\n")
    (sample, _) = next(ndd.readers.MXNet(path=f"{server}/x.rec", index_path=f"{server}/x.idx", **LIMITS).next_epoch())
    assert bytes(np.asarray(sample)) == b"wxyz"


@pytest.mark.parametrize("url", ["memory://limits/large", "zip://large::memory://limits/x.zip"])
def test_other_protocols(url: str) -> None:
    memory, packed = fsspec.filesystem("memory"), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("large", bytes(300_001))
    memory.pipe_file("/limits/x.zip", packed.getvalue())
    memory.pipe_file("/limits/large", bytes(300_001))
    with pytest.raises(RuntimeError, match=rf"{url}.*more than 300000 bytes \(url_max_bytes\)"):
        ndd.io.file.read(path_bytes(url), **LIMITS)
    with pytest.raises(RuntimeError, match=rf"{url}.*more than 300000 bytes \(url_max_bytes\)"):
        first(ndd.readers.TFRecord(path=url, features=FEATURES, **LIMITS))
    assert len(np.asarray(ndd.io.file.read(path_bytes(url), url_max_bytes=300_001).tensors[0])) == 300_001


def test_a_zip_behind_a_hostile_server() -> None:
    with answering(ANSWERS["compressed"]) as url, pytest.raises(RuntimeError, match=r"Content-Encoding gzip|no such file|does not tell"):
        ndd.io.file.read(path_bytes(f"zip://a::{url}/x.zip"), **LIMITS)


def test_a_hanging_connection_is_reopened() -> None:
    connections = itertools.count()

    def answer(write: Write, over: threading.Event) -> None:
        if next(connections):
            write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
        else:
            over.wait(600)

    with answering(answer) as url:  # a third of the limit is for an attempt
        assert bytes(np.asarray(ndd.io.file.read(path_bytes(f"{url}/x"), url_stall_seconds=6).tensors[0])) == b"abc"
    assert next(connections) > 1


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("url_max_bytes", 0, ValueError),
        ("url_max_bytes", 1.5, TypeError),
        ("url_max_bytes", True, TypeError),
        ("url_stall_seconds", -1, ValueError),
        ("url_stall_seconds", float("nan"), ValueError),
        ("url_max_seconds", float("inf"), ValueError),
        ("url_max_seconds", "1", TypeError),
    ],
)
def test_limits_that_are_none(name: str, value: Any, error: type[Exception]) -> None:
    for call in (
        lambda: ndd.readers.File(files=["memory://x"], **{name: value}),
        lambda: ndd.io.file.read(path_bytes("memory://x"), **{name: value}),
        lambda: ndd.imread("memory://x", **{name: value}),
    ):
        with pytest.raises(error, match=rf"(File|read).*{name}"):
            call()


@pytest.mark.parametrize("way", ["imread", "File", "TFRecord"])
def test_ctrl_c_ends_the_wait_and_the_program(way: str, forks: Forks) -> None:
    code = """
import os, signal, sys, threading, torch_ndd as ndd
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
way, url = sys.argv[1:]
try:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    if way == "imread":
        ndd.imread(url)
    elif way == "File":
        next(ndd.readers.File(files=[url]).next_epoch(1))
    else:
        next(ndd.readers.TFRecord(path=url, features={"x": ndd.tfrecord.FixedLenFeature([1], ndd.tfrecord.int64, 0)}).next_epoch(1))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with answering(lambda write, over: over.wait(600)) as url:
        done = forks.run(code, way, f"{url}/x")
        assert (done.wait(300), done.output, done.errors) == (0, "interrupted\n", "")
