# SPDX-License-Identifier: Apache-2.0
"""URLs in functions with paths and in the readers of videos, FITS files and records; missing packages and failures."""

import importlib
import io
import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from _videos import write
from PIL import Image
from readers._files import example, ints, tfrecord
from readers._web import Handler
from readers.test_remote import contents, tar_of
from readers.test_torch_loaders import stateful
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd import tfrecord as tf
from torch_ndd.io import _url_files, _urls
from torch_ndd.testing import assert_resumable


def path_bytes(*paths: str) -> ndd.Batch:
    return ndd.batch([np.frombuffer(path.encode(), np.uint8) for path in paths])


def image(k: int) -> bytes:
    result = io.BytesIO()
    Image.new("RGB", (4 + k, 3), (10 * k, 0, 0)).save(result, "png")
    return result.getvalue()


def test_files_named_by_data(put: Any, tmp_path: Path) -> None:
    url = put({"a.bin": b"aaa", "b.bin": b"b", "empty": b""})
    (tmp_path / "here").write_bytes(b"here")
    files = ndd.io.file.read(path_bytes(f"{url}/a.bin", f"{url}/empty", str(tmp_path / "here"), f"{url}/b.bin"))
    assert contents(files) == [b"aaa", b"", b"here", b"b"]
    assert (files.dtype, files.sources[0]) == (ndd.uint8, f"{url}/a.bin")
    assert bytes(np.asarray(ndd.io.file.read(np.frombuffer(f"{url}/b.bin".encode(), np.uint8)))) == b"b"
    with pytest.raises(RuntimeError, match=rf'io\.file\.read: sample 1: "{url}/none" cannot be read: no such file'):
        ndd.io.file.read(path_bytes(f"{url}/a.bin", f"{url}/none"))


def test_images_of_a_bucket(put: Any) -> None:
    url = put({f"{k}.png": image(k) for k in range(3)})
    images = ndd.imread([f"{url}/{k}.png" for k in range(3)])
    assert images.shape == [(3, 4 + k, 3) for k in range(3)]
    assert np.asarray(ndd.imread(f"{url}/2.png"))[0, 0].tolist() == [20, 0, 0]
    with pytest.raises(RuntimeError, match=rf'sample 1: "{url}/none\.png" cannot be read'):
        ndd.imread([f"{url}/1.png", f"{url}/none.png"])
    put({"text.png": b"no image"})
    with pytest.raises(RuntimeError, match=rf"decoders\.image: sample 1 \({url}/text\.png\)"):
        ndd.imread([f"{url}/1.png", f"{url}/text.png"])


# --- videos ---


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    write(folder, counts=(9, 4, 6))
    (folder / "list.txt").write_text("x/a.mp4 5 0.2 0.8\ny/c.mp4 6\n")
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.*"))}


def epoch(reader: Any) -> list[list[Any]]:
    return [[value.torch().tolist() for value in sample] for sample in reader.next_epoch()]


@pytest.mark.parametrize("kind", [ndd.readers.Video, ndd.experimental.readers.Video])
def test_videos_of_a_bucket(put: Any, videos: Path, kind: Any, tmp_path: Path) -> None:
    url = put(files_in(videos))
    expected = epoch(kind(filenames=[videos / "x/a.mp4", videos / "y/c.mp4"], sequence_length=3, enable_timestamps=True))
    assert epoch(kind(filenames=[f"{url}/x/a.mp4", f"{url}/y/c.mp4"], sequence_length=3, enable_timestamps=True)) == expected
    assert epoch(kind(file_root=url, sequence_length=3)) == epoch(kind(file_root=videos, sequence_length=3))
    (tmp_path / "list").write_text("".join(f"{videos}/{line}\n" for line in (videos / "list.txt").read_text().splitlines()))
    listed = epoch(kind(file_list=f"{url}/list.txt", sequence_length=3))
    assert listed == epoch(kind(file_list=tmp_path / "list", sequence_length=3))
    assert [label for _, label in listed] == [[5], [6], [6]] or [label for _, label in listed] == [[5], [5], [6], [6]]


def test_resized_videos(put: Any, videos: Path) -> None:
    url = put(files_in(videos))
    options: dict[str, Any] = {"sequence_length": 4, "size": (16, 12)}
    expected = epoch(ndd.readers.VideoResize(filenames=[videos / "x/b.mp4"], **options))
    assert epoch(ndd.readers.VideoResize(filenames=[f"{url}/x/b.mp4"], **options)) == expected


@pytest.mark.parametrize("kind", [ndd.readers.Video, ndd.experimental.readers.Video])
def test_missing_videos(put: Any, videos: Path, kind: Any) -> None:
    url = put({**files_in(videos), "x/text.mp4": b"no video"})
    name = "experimental.readers.Video" if kind is not ndd.readers.Video else "readers.Video"
    with pytest.raises(RuntimeError, match=rf'{name}: "{url}/none\.mp4" cannot be opened: .*no such file'):
        next(kind(filenames=[f"{url}/none.mp4"], sequence_length=3).next_epoch())
    for options in ({"file_list": f"{url}/none.txt"}, {"file_root": f"{url}/none"}):
        with pytest.raises(RuntimeError, match=rf'{name}: file_\w+ "{url}/none.*cannot be (read|opened)'):
            next(kind(sequence_length=3, **options).next_epoch())
    reader = kind(filenames=[f"{url}/{value}.mp4" for value in ("none", "x/b", "x/text")], sequence_length=3, on_error="skip")
    assert len(epoch(reader)) == 1
    assert [error.source for error in reader.errors] == [f"{url}/none.mp4", f"{url}/x/text.mp4"]
    assert "no such file" in reader.errors[0].reason


def test_a_video_in_blocks(put: Any, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_url_files, "_BLOCK", 300)
    url = put(files_in(videos))
    options: dict[str, Any] = {"sequence_length": 3, "random_shuffle": True, "seed": 1}
    expected = epoch(ndd.readers.Video(filenames=[videos / "x/a.mp4"], **options))
    assert epoch(ndd.readers.Video(filenames=[f"{url}/x/a.mp4"], **options)) == expected
    file, whole = _url_files.RemoteFile(f"{url}/x/a.mp4"), (videos / "x/a.mp4").read_bytes()
    assert (file.read(), file.read(), file.tell()) == (whole, b"", len(whole))
    assert (file.seek(-350, 2), file.read(310)) == (len(whole) - 350, whole[-350:-40])
    assert (file.seek(-10, 1), file.read(3)) == (len(whole) - 50, whole[-50:-47])
    assert file.error is None


def test_a_video_that_goes_away(server: str, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_urls, "_PAUSE", 0.001)
    monkeypatch.setattr(_url_files, "_BLOCK", 300)
    (tmp_path / "a.mp4").write_bytes((videos / "x/a.mp4").read_bytes())
    reader = ndd.readers.Video(filenames=[f"{server}/a.mp4"], sequence_length=3, on_error="skip")
    reader.get_metadata()  # the file has been looked at
    Handler.failures = 10_000
    with pytest.raises(RuntimeError, match=r"none of the 3 samples can be read.*503"):
        list(reader.next_epoch(1))
    assert all(error.source.startswith(f"{server}/a.mp4, from frame ") and "503" in error.reason for error in reader.errors)


# --- others ---


def fits_file(k: int) -> bytes:
    fits = pytest.importorskip("astropy.io.fits")
    result = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(np.arange(6, dtype=np.int16).reshape(2, 3) + k)]).writeto(result)
    return result.getvalue()


def sound(k: int) -> bytes:
    result = io.BytesIO()
    pytest.importorskip("soundfile").write(result, np.full(50, k, np.int16), 8000, format="WAV")
    return result.getvalue()


def array(k: int) -> bytes:
    result = io.BytesIO()
    np.save(result, np.full(3, k, np.int16))
    return result.getvalue()


def recordio(k: int) -> bytes:
    content = np.uint32(0).tobytes() + np.float32(k).tobytes() + bytes(16) + bytes([k] * 4)
    return np.array([0xCED7230A, len(content)], np.uint32).tobytes() + content


def table(k: int) -> bytes:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    result = io.BytesIO()
    parquet.write_table(arrow.table({"x": arrow.array([k], arrow.int64())}), result)
    return result.getvalue()


def annotations(names: list[str]) -> bytes:
    images = [{"id": k, "file_name": name} for k, name in enumerate(names)]
    boxes = [{"image_id": k, "category_id": 1, "bbox": [k, 1, 2, 3]} for k in range(len(names))]
    return json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1}]}).encode()


def manifest(names: list[str]) -> bytes:
    return "\n".join(json.dumps({"audio_filepath": name, "text": name}) for name in names).encode()


FEATURES = {"x": tf.FixedLenFeature([1], tf.int64, 0)}
# Makes a reader with one file per sample, or a reader of some names at a URL.
Make = Callable[..., Any]
ONE_FILE_EACH: dict[str, tuple[Callable[[int], bytes], Make]] = {
    "File": (image, lambda url, names, size, **o: ndd.readers.File(size, files=names, file_root=url, **o)),
    "Numpy": (array, lambda url, names, size, **o: ndd.readers.Numpy(size, files=names, file_root=url, **o)),
    "Fits": (fits_file, lambda url, names, size, **o: ndd.experimental.readers.Fits(size, files=names, file_root=url, **o)),
    "COCO": (image, lambda url, names, size, **o: ndd.readers.COCO(size, annotations_file=f"{url}/list", file_root=url, **o)),
    "NemoAsr": (sound, lambda url, names, size, **o: ndd.readers.NemoAsr(size, manifest_filepaths=f"{url}/list", **o)),
}
SEVERAL: dict[str, tuple[Callable[[int], bytes], Make]] = {
    "TFRecord": (
        lambda k: tfrecord(example({"x": ints([k])})),
        lambda url, names, size, **o: ndd.readers.TFRecord(size, path=[f"{url}/{name}" for name in names], features=FEATURES, **o),
    ),
    "Webdataset": (
        lambda k: tar_of({f"{k}.bin": bytes([k])}),
        lambda url, names, size, **o: ndd.readers.Webdataset(size, paths=[f"{url}/{name}" for name in names], ext=["bin"], **o),
    ),
    "MXNet": (recordio, lambda url, names, size, **o: ndd.readers.MXNet(size, path=[f"{url}/{name}" for name in names], **o)),
    "Parquet": (table, lambda url, names, size, **o: ndd.readers.Parquet(size, path=[f"{url}/{name}" for name in names], **o)),
}


def store_files(put: Any, kind: str, names: list[str], missing: str = "") -> tuple[str, Make]:
    result, make = {**ONE_FILE_EACH, **SEVERAL}[kind]
    files = {name: result(k) for k, name in enumerate(names) if name != missing}
    lists = {"COCO": annotations, "NemoAsr": manifest}
    return put(files | ({"list": lists[kind](names)} if kind in lists else {})), make


def stored_on_disk(server: str, folder: Path, kind: str, names: list[str]) -> tuple[str, Make]:
    """Files in a folder of the server named after the reader."""
    here = folder / kind
    here.mkdir(exist_ok=True)
    return store_files(lambda files: [(here / name).write_bytes(content) for name, content in files.items()] and f"{server}/{kind}", kind, names)


def values(batches: Any) -> list[list[int]]:
    """Return all numbers of each sample of all batches."""
    samples = []
    for batch in batches:
        outputs = list(batch.values()) if isinstance(batch, dict) else list(batch)
        samples += [[x for value in row for x in np.asarray(value).ravel().tolist()] for row in zip(*(out.tensors for out in outputs), strict=True)]
    return samples


NAMES = [f"{k}.dat" for k in range(7)]


@pytest.mark.parametrize("kind", list({**ONE_FILE_EACH, **SEVERAL}))
def test_the_same_as_from_a_disk(put: Any, kind: str, tmp_path: Path) -> None:
    url, make = store_files(put, kind, NAMES)
    found = values(make(url, NAMES, 3).next_epoch())
    here, _ = stored_on_disk(str(tmp_path), tmp_path, kind, NAMES)
    assert found == values(make(here, NAMES, 3).next_epoch())
    assert len(found) == 9
    assert found[0] != found[1]


@pytest.mark.parametrize("kind", list(ONE_FILE_EACH))
def test_a_missing_object(put: Any, kind: str) -> None:
    url, make = store_files(put, kind, NAMES, missing=NAMES[2])
    with pytest.raises(RuntimeError, match=rf"readers\.{kind}: sample 2 \({url}/2\.dat\): .*no such file"):
        list(make(url, NAMES, 7).next_epoch())
    reader = make(url, NAMES, 2, on_error="skip")
    assert len(values(reader)) == 6
    assert [(error.sample, error.source) for error in reader.errors] == [(2, f"{url}/2.dat")]
    assert "no such file" in reader.errors[0].reason


@pytest.mark.parametrize("kind", list(SEVERAL))
def test_a_missing_container(put: Any, kind: str) -> None:
    url, make = store_files(put, kind, NAMES, missing=NAMES[2])
    with pytest.raises(RuntimeError, match=rf"readers\.{kind}: .*{url}/2\.dat.*no such file"):
        list(make(url, NAMES, 7).next_epoch())


@pytest.mark.parametrize("kind", [ndd.readers.Caffe, ndd.readers.Caffe2])
def test_databases_are_local(kind: Any) -> None:
    with pytest.raises(RuntimeError, match=rf'readers\.{kind.__name__}: path "s3://bucket/db" is a URL, but the keys .*download it'):
        next(kind(path=["s3://bucket/db"]).next_epoch())


# --- failures ---


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_urls, "_PAUSE", 0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", list({**ONE_FILE_EACH, **SEVERAL}))
@pytest.mark.parametrize("failure", [503, 429, "reset"])
def test_transient_failures_are_retried(server: str, tmp_path: Path, kind: str, failure: Any) -> None:
    url, make = stored_on_disk(server, tmp_path, kind, NAMES)
    Handler.failures, Handler.resets, Handler.status = 4, failure == "reset", 503 if failure == "reset" else failure
    assert len(values(make(url, NAMES, 1).next_epoch())) == 7
    assert Handler.failures == 0


@pytest.mark.usefixtures("quick")
def test_permanent_failures_are_requested_once(server: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    for status, least in ((403, 1), (503, _urls._ATTEMPTS)):
        Handler.failures, Handler.status = 1000, status
        with pytest.raises(RuntimeError, match=rf'io\.file\.read: sample 0: "{server}/x" cannot be read: {status}'):
            ndd.io.file.read(path_bytes(f"{server}/x"))
        assert 1000 - Handler.failures == least


@pytest.mark.usefixtures("quick")
def test_a_server_without_ranges(server: str, tmp_path: Path) -> None:
    Handler.knows_ranges = False
    samples = {f"{k}.bin": bytes([k]) * 3000 for k in range(40)}
    (tmp_path / "x.tar").write_bytes(tar_of(samples))
    (batch,) = ndd.readers.Webdataset(paths=f"{server}/x.tar", ext=["bin"], random_shuffle=True).next_epoch(40)
    assert sorted(contents(batch[0])) == sorted(samples.values())


def test_how_many_requests(server: str, tmp_path: Path) -> None:
    for kind in ONE_FILE_EACH:  # one per file of a batch; another batch may be read ahead
        url, make = stored_on_disk(server, tmp_path, kind, NAMES[:4])
        assert len(values(make(url, NAMES[:4], 4).next_epoch())) == 4
        downloads = [get for get in Handler.gets() if f"/{kind}/" in get and "list" not in get]
        assert max(map(downloads.count, downloads)) <= 2, downloads
    samples = {f"{k}.bin": bytes([k]) * 1000 for k in range(40)}
    (tmp_path / "x.tar").write_bytes(tar_of(samples))
    (tmp_path / "x.tfrecord").write_bytes(b"".join(tfrecord(example({"x": ints([k])})) for k in range(40)))
    for name, reader in (
        ("x.tar", ndd.readers.Webdataset(8, paths=f"{server}/x.tar", ext=["bin"])),
        ("x.tfrecord", ndd.readers.TFRecord(8, path=f"{server}/x.tfrecord", features=FEATURES)),
    ):
        Handler.requests = []
        assert len(values(reader)) == 40
        downloads = [get for get in Handler.gets() if name in get]  # the reader before may still be reading ahead
        assert len(downloads) <= 1 + 5 + 1, downloads  # searching the records, and one per batch


# --- processes ---


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_workers_of_a_data_loader(server: str, tmp_path: Path, context: str) -> None:
    kinds = list({**ONE_FILE_EACH, **SEVERAL}) if context == "fork" else ["NemoAsr"]  # a new interpreter takes 3 s
    for kind in kinds:
        url, make = stored_on_disk(server, tmp_path, kind, NAMES)
        reader = make(url, NAMES, 2)
        expected = values(reader)  # fsspec's event loop and its thread run when the process forks
        reader.set_epoch(0)
        loader = DataLoader(reader, batch_size=None, num_workers=1 + (context == "fork"), multiprocessing_context=context, timeout=60)
        assert list(chain(values(loader))) == expected, kind
        assert values(make(url, NAMES, 2)) == expected  # and the parent continues


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.slow
def test_a_stateful_data_loader(server: str, tmp_path: Path) -> None:
    url, make = stored_on_disk(server, tmp_path, "File", NAMES)

    def loader(rank: int, world: int, size: int) -> Any:
        return stateful()(make(url, NAMES, size, random_shuffle=True), batch_size=None, num_workers=2)

    assert assert_resumable(loader, worlds=[(1, 1)], batch_sizes=[2], cuts=[0, 1, 3]).cuts == 3


# --- other protocols ---


@pytest.mark.parametrize("protocol", ["gs", "hf"])
def test_a_protocol_of_another_package(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec selects the file system by protocol; here it is one in memory."""

    class Files(fsspec.get_filesystem_class("memory")):
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return super()._strip_protocol(path.removeprefix(f"{protocol}://"))

    Files.protocol = (protocol,)
    monkeypatch.setitem(importlib.import_module("fsspec.registry")._registry, protocol, Files)
    files = {f"datasets/me/{k}.png": image(k) for k in range(3)}
    for name, content in files.items():
        Files().pipe_file(name, content)
    assert ndd.imread([f"{protocol}://{name}" for name in files]).shape == [(3, 4 + k, 3) for k in range(3)]
    ((found, _),) = ndd.readers.File(file_root=f"{protocol}://datasets", file_filters=["*.png"]).next_epoch(3)
    assert contents(found) == list(files.values())
    with pytest.raises(RuntimeError, match=rf'"{protocol}://datasets/none" cannot be read: no such file'):
        ndd.io.file.read(path_bytes(f"{protocol}://datasets/none"))
