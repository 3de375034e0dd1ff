# SPDX-License-Identifier: Apache-2.0
"""Readers of URLs: the memory of fsspec, and a web server."""

import io
import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from readers._files import example, ints, tfrecord
from readers._web import Handler

import torch_ndd as ndd
from torch_ndd import tfrecord as tf
from torch_ndd.io import _urls
from torch_ndd.readers._ranges import remote as _remote
from torch_ndd.testing import assert_resumable


def contents(batch: Any) -> list[bytes]:
    return [bytes(np.asarray(sample)) for sample in batch.tensors]


FILES = {f"{folder}/{i}.jpg": f"{folder}{i}".encode() * i for folder in ("b", "a") for i in range(4)}


@pytest.mark.parametrize("kind", ["file_root", "files", "file_list", "file_list without file_root"])
def test_files_of_a_bucket(put: Any, kind: str) -> None:
    url = put({**FILES, "list.txt": "".join(f"{name} {k}\n" for k, name in enumerate(FILES)).encode()})
    options: dict[str, Any] = {"file_root": url}
    if kind != "file_root":
        options = {"files": list(FILES), **options} if kind == "files" else {"file_list": f"{url}/list.txt", **options}
    if kind == "file_list without file_root":
        del options["file_root"]
    names = sorted(FILES) if kind == "file_root" else list(FILES)
    reader = ndd.readers.File(**options)
    epoch = [(contents(files), labels.torch().flatten().tolist(), list(files.sources)) for files, labels in reader.next_epoch(4)]
    assert [file for files, _, _ in epoch for file in files] == [FILES[name] for name in names]
    assert [label for _, labels, _ in epoch for label in labels] == ([0] * 4 + [1] * 4 if kind == "file_root" else list(range(8)))
    assert epoch[0][2][1] == f"{url}/{names[1]}"


def test_whole_urls_among_paths(put: Any, tmp_path: Path) -> None:
    url = put(FILES)
    (tmp_path / "here.jpg").write_bytes(b"here")
    ((files, _),) = ndd.readers.File(files=[f"{url}/a/2.jpg", tmp_path / "here.jpg"]).next_epoch(2)
    assert contents(files) == [b"a2a2", b"here"]


def test_errors_name_the_url(put: Any) -> None:
    url = put(FILES)
    with pytest.raises(RuntimeError, match=rf"readers\.File: sample 1 \({url}/none\.jpg\): .*none\.jpg"):
        next(ndd.readers.File(files=["a/1.jpg", "none.jpg"], file_root=url).next_epoch(2))
    reader = ndd.readers.File(2, files=["a/1.jpg", "none.jpg", "a/2.jpg"], file_root=url, on_error="skip")
    assert [content for files, _ in reader for content in contents(files)] == [b"a1", b"a2a2"]
    for options in ({"file_list": f"{url}/none.txt"}, {"file_root": f"{url}/none"}):
        with pytest.raises(RuntimeError, match=rf"readers\.File: .*{url}/none.*cannot be (read|opened)"):
            next(ndd.readers.File(**options).next_epoch())


@pytest.mark.parametrize("put", ["memory"], indirect=True)
def test_resumes_anywhere(put: Any) -> None:
    url = put(FILES)
    make = lambda rank, world, size: ndd.readers.File(size, file_root=url, shard_id=rank, num_shards=world, random_shuffle=True)  # noqa: E731
    assert assert_resumable(make, worlds=((1, 1), (2, 3)), batch_sizes=(1, 3)).cuts > 10


def tar_of(files: dict[str, bytes]) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return result.getvalue()


def test_archives_of_a_bucket(put: Any) -> None:
    samples = {f"{i}.{ext}": f"{ext}{i}".encode() * 100 for i in range(5) for ext in ("jpg", "cls")}
    url = put({"x.tar": tar_of(samples)})
    (batch,) = ndd.readers.Webdataset(paths=f"{url}/x.tar", ext=["jpg", "cls"]).next_epoch(5)
    assert [contents(sample) for sample in batch] == [[samples[f"{i}.{ext}"] for i in range(5)] for ext in ("jpg", "cls")]


def test_records_of_a_bucket(put: Any) -> None:
    records = [tfrecord(example({"x": ints([i, 8])})) for i in range(3)]
    begins = np.cumsum([0, *map(len, records)])
    index = "".join(f"{begin} {len(record)}\n" for begin, record in zip(begins, records, strict=False))
    url = put({"x.tfrecord": b"".join(records), "x.idx": index.encode()})
    for options in ({}, {"index_path": f"{url}/x.idx"}):
        reader = ndd.readers.TFRecord(path=f"{url}/x.tfrecord", features={"x": tf.FixedLenFeature([2], tf.int64, 0)}, **options)
        (batch,) = reader.next_epoch(3)
        assert batch["x"].torch().tolist() == [[0, 8], [1, 8], [2, 8]]


def test_arrays_of_a_bucket(put: Any) -> None:
    arrays, files = [np.arange(6, dtype=np.int16).reshape(2, 3) + i for i in range(4)], {}
    for i, array in enumerate(arrays):
        result = io.BytesIO()
        np.save(result, array)
        files[f"{i}.npy"] = result.getvalue()
    url = put(files)
    ((batch,),) = ndd.readers.Numpy(file_root=url, file_filter="*.npy").next_epoch(4)
    assert batch.torch().tolist() == [array.tolist() for array in arrays]


def test_annotations_of_a_bucket(put: Any) -> None:
    document = {
        "images": [{"id": 1, "file_name": "a/2.jpg"}, {"id": 2, "file_name": "b/1.jpg"}],
        "annotations": [{"image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 1}],
    }
    url = put({**FILES, "x.json": json.dumps(document).encode()})
    ((images, boxes, _),) = ndd.readers.COCO(annotations_file=f"{url}/x.json", file_root=url).next_epoch(2)
    assert contents(images) == [b"a2a2", b"b1"]
    assert boxes.shape == [(0, 4), (1, 4)]


def test_speech_of_a_bucket(put: Any) -> None:
    soundfile = pytest.importorskip("soundfile")
    result = io.BytesIO()
    soundfile.write(result, np.arange(100, dtype=np.int16), 8000, format="WAV")
    url = put({"x.wav": result.getvalue(), "x.json": b'{"audio_filepath": "x.wav", "text": "a"}'})
    ((sound, _, _),) = ndd.readers.NemoAsr(manifest_filepaths=f"{url}/x.json", dtype=ndd.int16).next_epoch()
    assert sound.torch().tolist() == list(range(100))


def test_a_busy_server_is_asked_again(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_urls, "_PAUSE", 0.01)
    (tmp_path / "x.jpg").write_bytes(b"content")
    read = partial(ndd.readers.File, files=["x.jpg"], file_root=server)
    Handler.failures = 3
    ((files, _),) = read().next_epoch(1)
    assert contents(files) == [b"content"]
    Handler.failures = 1000
    with pytest.raises(RuntimeError, match=rf"{server}/x\.jpg.*503"):
        next(read().next_epoch(1))
    assert Handler.failures > 980  # it gives up


def test_neighboring_ranges_are_one_request(server: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    (tmp_path / "x.bin").write_bytes(content)
    begins = np.arange(0, 200_000, 2000)
    lengths = np.full(len(begins), 1500)
    ranges = _remote.ranges_of(b"", *_paths(f"{server}/x.bin"), np.zeros(len(begins), np.int32), begins, lengths)
    batch = ranges.start(np.arange(len(begins))[::-1]).finish()
    assert contents(batch) == [content[begin : begin + 1500] for begin in begins[::-1]]
    assert [request.split()[0] for request in Handler.requests].count("GET") == 1


def test_ranges_beyond_the_end(put: Any) -> None:
    url = put({"x.bin": b"0123456789"})
    paths = _paths(f"{url}/x.bin")
    begin, length = np.array([2, 8, 4]), np.array([3, 5, -1])
    ranges = _remote.ranges_of(b"", *paths, np.zeros(3, np.int32), begin, length)
    assert contents(ranges.start(np.array([0, 2, -1])).finish()) == [b"234", b"456789", b""]
    with pytest.raises(Exception) as error:  # noqa: PT011  (UnreadableSamples, which is for readers)
        ranges.start(np.array([0, 1])).finish()
    assert "ends at byte 10, before byte 13" in error.value.reasons[1]


def _paths(*paths: str) -> tuple[bytes, np.ndarray]:
    return "".join(paths).encode(), np.cumsum([0, *map(len, paths)])


def test_protocols_without_a_package() -> None:
    with pytest.raises(RuntimeError, match="nothing://x"):
        next(ndd.readers.File(files=["nothing://x"]).next_epoch())


NAMES = ("x y.jpg", "ü.jpg", "100%.jpg", "a#b.jpg", "q?.jpg", "p%20q.jpg")


@pytest.mark.parametrize("host", ["", "localhost"])
def test_urls_of_files_are_percent_encoded_or_not(tmp_path: Path, host: str) -> None:
    folder = tmp_path / "two words"
    (folder / "class").mkdir(parents=True)
    for name in NAMES:
        (folder / "class" / name).write_bytes(name.encode())
    encoded = f"file://{host}{folder.as_uri().removeprefix('file://')}"
    urls = [f"file://{host}{(folder / 'class' / name).as_uri().removeprefix('file://')}" for name in NAMES]
    plain = [f"file://{host}{folder}/class/{name}" for name in NAMES]
    for files in (urls, plain):
        assert contents(next(iter(ndd.readers.File(files=files).next_epoch(len(NAMES))))[0]) == [name.encode() for name in NAMES]
    ((files, _),) = ndd.readers.File(file_root=encoded).next_epoch(len(NAMES))
    assert contents(files) == sorted(name.encode() for name in NAMES)
    assert len(_urls.find_urls(f"{encoded}/class/*.jpg")) == len(NAMES)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///C:/data/a.jpg", "a file on a drive of Windows"),
        ("file://C:\\data\\a.jpg", "a file on a drive of Windows"),
        ("file://server/share/a.jpg", "a file on the host 'server'"),
    ],
)
def test_urls_of_files_elsewhere_are_refused(url: str, reason: str) -> None:
    with pytest.raises(RuntimeError, match=rf"no such file; this URL is that of {reason}"):
        next(ndd.readers.File(files=[url]).next_epoch())


def test_neighboring_ranges_are_fetched_together() -> None:
    wanted = [
        _urls.Range("a", 500_000, 10),
        _urls.Range("a", 0, 100),
        _urls.Range("b", 0, -1),
        _urls.Range("a", 40_000, 50),
        _urls.Range("a", 10, 20),
        _urls.Range("b", 0, -1),
    ]
    first, large, larger = _urls.Range("a", 0, 40_050), _urls.Range("a", 40_000, 7_990_000), _urls.Range("a", 40_000, 9_000_000)
    assert _urls.merge_ranges(wanted) == [wanted[0], first, wanted[2], first, first, wanted[2]]
    assert set(_urls.merge_ranges([wanted[1], large])) == {_urls.Range("a", 0, 8_030_000)}
    assert _urls.merge_ranges([wanted[1], larger]) == [wanted[1], larger]
    assert _urls.merge_ranges([]) == []


@pytest.mark.parametrize("forgets", [False, True])
def test_each_range_lies_in_what_is_fetched_for_it(forgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if forgets:  # as older releases do

        def ends_of_the_latest(paths: list[str], begins: list[int], ends: list[int], gap: int, most: int) -> Any:
            order = sorted(range(len(paths)), key=lambda k: (paths[k], begins[k], ends[k]))
            return [paths[order[0]]], [begins[order[0]]], [ends[order[-1]]]

        monkeypatch.setattr("fsspec.utils.merge_offset_ranges", ends_of_the_latest)
    wanted = [_urls.Range("a", begin, length) for begin, length in ((0, 1000), (10, 20), (300, 0), (990, 5))]
    for value, whole in zip(wanted, _urls.merge_ranges(wanted), strict=True):
        assert whole.begin <= value.begin
        assert value.begin + value.length <= whole.begin + whole.length
